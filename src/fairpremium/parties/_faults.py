"""Named points at which tests let a process die or a disk run full; without their variables they do nothing.

``FAIRPREMIUM_KILL_AT="blob.synced"`` kills the process at its first passage of that point, ``"blob.synced:3"`` at its
third. ``FAIRPREMIUM_FULL_AT`` says in the same way from which passage on there is no space left.
"""

from __future__ import annotations

import errno
import os
import signal
from collections import Counter

_passages: Counter[tuple[str, str]] = Counter()


def point(name: str) -> None:
    """Pass a named point; die or fail there if the environment says so."""
    if _is_here("FAIRPREMIUM_KILL_AT", name):
        os.kill(os.getpid(), signal.SIGKILL)
    if _is_here("FAIRPREMIUM_FULL_AT", name):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _is_here(variable: str, name: str) -> bool:
    where, _, count = os.environ.get(variable, "").partition(":")
    if where != name:
        return False
    _passages[variable, name] += 1
    return _passages[variable, name] >= int(count or 1)
