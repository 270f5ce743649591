"""When others see that a fit goes on: at whole numbers of steps after its start.

How long the work between takes can depend a little on single reports: how many keys are found, how many rows a sum has.
An insurer that asks all the time how far its fit is measures steps, and no more.
"""

import time


def wait_for_step(started: float, step: float) -> bool:
    """Sleep until a whole number of steps has passed; return whether the first one was over already.

    - `started`: By ``time.monotonic()``.
    - `step`: Seconds; zero for none.
    """
    passed = time.monotonic() - started
    if not step:
        return False
    time.sleep(-passed % step)
    return passed > step
