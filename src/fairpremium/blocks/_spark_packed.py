"""For how long the packed rows of a Spark frame are kept.

A Spark frame is a recipe, whose rows may be others the next time, so that they are packed anew for every fit. Who
persists a frame says that its rows stay as they are; those are packed once, for all fits of this frame.
"""

from __future__ import annotations

import threading
import weakref
from dataclasses import dataclass
from typing import Any

_KEPT: weakref.WeakKeyDictionary[Any, Packed] = weakref.WeakKeyDictionary()  # by the frame


@dataclass(frozen=True, eq=False)
class Packed:
    """The packed rows of a frame, and how many rows each partition has."""

    rows: Any  # a data frame, persisted
    counts: tuple[int, ...]
    held: frozenset[int]  # numbers of all that Spark held when the rows had been packed
    release: Any  # lets Spark forget the packed rows, once; called when the frame is gone, too


def stays_as_it_is(frame: Any) -> bool:
    """Tell whether a frame is persisted, and it can be seen whether it still is (Spark Connect does not show it)."""
    level = frame.storageLevel
    return hasattr(frame.sparkSession, "sparkContext") and (level.useMemory or level.useDisk or level.useOffHeap)


def keep(frame: Any, rows: Any, counts: tuple[int, ...]) -> None:
    """Keep the packed rows of a frame for the next fit."""
    release = weakref.finalize(frame, _release, rows)
    release.atexit = False
    _KEPT[frame] = Packed(rows, counts, _held(frame), release)


def recall(frame: Any) -> Packed | None:
    """Return the packed rows of a frame that has been persisted all the time since they were packed.

    All that Spark held then has to be there still. That may be more than this frame: rows are packed once more than
    necessary when another one was unpersisted, but never too seldom.
    """
    packed = _KEPT.get(frame)
    if packed is None or packed.held <= _held(frame):
        return packed
    _KEPT.pop(frame, None)
    packed.release()
    return None


def _held(frame: Any) -> frozenset[int]:
    return frozenset(frame.sparkSession.sparkContext._jsc.getPersistentRDDs())


def _release(rows: Any) -> None:
    """Unpersist in a thread: Python collects a frame at any moment, also amidst a call to Spark."""
    threading.Thread(target=_unpersist, args=(rows,)).start()


def _unpersist(rows: Any) -> None:
    if rows.sparkSession.sparkContext._jsc is not None:  # the session goes on
        rows.unpersist()
