"""How many requests a caller may make: a bucket of tokens for each."""

import time
from collections import OrderedDict
from collections.abc import Callable

from fairpremium.parties.protocol import Problem

_REMEMBERED = 10_000


class RateLimiter:
    """Let each caller make so many requests a second, and a few more at once.

    - `rate`: Requests a second.
    - `clock`: Returns the time in seconds; it never goes back.
    - `burst`: Requests at once after a pause; None for twice the rate.
    """

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic, burst: float | None = None):
        self._rate = rate
        self._burst = 2 * rate if burst is None else burst
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str) -> None:
        """Take a token, or raise the problem that there is none."""
        now, full = self._clock(), self._burst
        tokens, then = self._buckets.pop(caller, (full, now))
        tokens = min(full, tokens + (now - then) * self._rate)
        allowed = tokens >= 1
        self._buckets[caller] = (tokens - 1 if allowed else tokens, now)
        if len(self._buckets) > _REMEMBERED:
            self._buckets.popitem(last=False)
        if not allowed:
            raise Problem("too-many")
