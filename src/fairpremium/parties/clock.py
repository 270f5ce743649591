"""The time by which the service and its clients live; tests let it run faster than the machine's.

``FAIRPREMIUM_CLOCK_SPEED="60:1794982026"`` lets 60 seconds pass in each second since that moment (in seconds since
1970), for all processes that have the variable. Dates, epochs and retention follow this time. What guards against a
slow machine (leases, the window of signatures) is a number of the machine's seconds: `in_service_time` converts it.
Without the variable the two are the same.
"""

import os
import time


def service_time() -> float:
    """Return the time in seconds since 1970."""
    speed, since = _setting()
    return since + speed * (time.time() - since)


def in_service_time(seconds: float) -> float:
    """Return how much of this time passes in so many seconds of the machine."""
    return seconds * _setting()[0]


def on_this_machine(seconds: float) -> float:
    """Return how many seconds of the machine so much of this time takes."""
    return seconds / _setting()[0]


def _setting() -> tuple[float, float]:
    speed, _, since = os.environ.get("FAIRPREMIUM_CLOCK_SPEED", "").partition(":")
    return float(speed or 1.0), float(since or 0.0)
