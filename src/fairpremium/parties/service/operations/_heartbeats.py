"""Signs of life of the workers: a small file for each of them, which says by its time that it looks for fits.

The files are in the folder of the third party, which all workers share. A worker removes its file when it stops; that
of one that was killed counts no more after a while.
"""

from __future__ import annotations

import os
import secrets
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from fairpremium.parties.clock import on_this_machine

if TYPE_CHECKING:
    from .._context import ServiceContext

WORKERS_FOLDER = "workers"  # in the folder of the third party
_EVERY = 5.0  # seconds
_FORGOTTEN = 86400.0  # seconds after which the file of a worker that was killed is removed


class Heartbeat:
    """The file of a worker. It is for the eyes of the operator: a fault of it does not stop the work."""

    def __init__(self, context: ServiceContext):
        folder = _folder(context)
        self._path = folder / secrets.token_hex(16)
        self._next = 0.0
        with suppress(OSError):
            folder.mkdir(mode=0o700, exist_ok=True)
            for path, age in _ages(folder):
                if age > _FORGOTTEN:
                    path.unlink(missing_ok=True)

    def beat(self) -> None:
        """Say that the worker is there, unless it has just done so."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + on_this_machine(_EVERY)
        with suppress(OSError):
            self._path.touch(mode=0o600)

    def end(self) -> None:
        """Say that the worker has stopped."""
        with suppress(OSError):
            self._path.unlink(missing_ok=True)


def count_workers(context: ServiceContext) -> int:
    """Return how many workers have given a sign of life within the time of two leases."""
    most = on_this_machine(2 * context.limits.lease_seconds)
    return sum(age < most for _, age in _ages(_folder(context)))


def _folder(context: ServiceContext) -> Path:
    return context.files.folder.parent / WORKERS_FOLDER


def _ages(folder: Path) -> list[tuple[Path, float]]:
    """Return the files of workers with the seconds since each was touched; some may go meanwhile."""
    found, now = [], time.time()
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                found.append((Path(entry.path), now - entry.stat().st_mtime))
    return found
