"""Named points at which tests let a process die or a disk run full; without their variables they do nothing.

``FAIRPREMIUM_KILL_AT="file.synced"`` kills the process at its first passage of that point, ``"file.synced:3"`` at its
third, ``"*:3"`` at the third point of any name. ``FAIRPREMIUM_STOP_AT`` stops it (SIGSTOP) at exactly that passage, and
``FAIRPREMIUM_FULL_AT`` says from which passage on there is no space left.
"""

import errno
import os
import signal
from collections import Counter

_passages: Counter[tuple[str, str]] = Counter()


def point(name: str, *, writes: bool = True) -> None:
    """Pass a named point; die, stop or fail there if the environment says so.

    - `writes`: Whether a full disk can show itself here.
    """
    if _is_here("FAIRPREMIUM_KILL_AT", name):
        os.kill(os.getpid(), signal.SIGKILL)
    if _is_here("FAIRPREMIUM_STOP_AT", name, once=True):
        os.kill(os.getpid(), signal.SIGSTOP)
    if writes and _is_here("FAIRPREMIUM_FULL_AT", name):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _is_here(variable: str, name: str, *, once: bool = False) -> bool:
    setting = os.environ.get(variable)
    if not setting:
        return False
    where, _, count = setting.partition(":")
    if where not in (name, "*"):
        return False
    _passages[variable, setting] += 1
    passed = _passages[variable, setting] - int(count or 1)
    return passed == 0 if once else passed >= 0
