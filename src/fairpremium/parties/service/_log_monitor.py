"""Checking the log beside the work: one check at a time, and what the last one found."""

import threading
from dataclasses import dataclass, replace

from fairpremium.parties.store.log import Verification, count_entries, verify_log

from ._context import ServiceContext
from .operations import log_failure

_FRESH, _RECENT = 300.0, 10.0  # seconds for which a check is good enough: of the whole log, of a shorter one
_SMALL = 50_000  # entries of a log that is checked without being asked


@dataclass(frozen=True)
class LogState:
    """What is known about the log: the last check, when it was made, and whether one is running."""

    found: Verification | None = None
    at: float | None = None
    is_running: bool = False
    has_failed: bool = False

    @property
    def is_broken(self) -> bool:
        """Did the last check find a bad entry?"""
        return self.found is not None and not self.found.intact


class LogMonitor:
    """Checks the whole log in a thread of its own."""

    def __init__(self, context: ServiceContext):
        self._context = context
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self.state = LogState()

    def start(self) -> None:
        """Begin a check, unless one is running."""
        with self._lock:
            if self.state.is_running:
                return
            self.state = replace(self.state, is_running=True)
            self._thread = threading.Thread(target=self._check, name="log check", daemon=True)
            self._thread.start()

    def start_if_due(self) -> None:
        """Begin a check if the last one is old or there are new entries; a large log is checked when somebody asks."""
        state = self.state
        if state.is_running:
            return
        entries = self._context.database.read(count_entries)
        is_whole = state.found is not None and state.found.entries >= entries
        age = float("inf") if state.at is None else self._context.now() - state.at
        if entries <= _SMALL and age >= (_FRESH if is_whole or state.is_broken else _RECENT):
            self.start()

    def wait(self, seconds: float | None = None) -> None:
        """Wait for a check that is running."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _check(self) -> None:
        now = self._context.now()
        try:
            found = self._context.database.read(lambda c: verify_log(c, self._context.keys.current(c).chain))
        except Exception:
            log_failure("the check of the log")
            self.state = replace(self.state, is_running=False, has_failed=True)
        else:
            self.state = LogState(found, now)
