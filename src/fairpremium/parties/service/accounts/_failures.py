"""Wrong guesses of passwords, added up in the log: an attack leaves a trace there and cannot fill it."""

import threading
from collections import Counter

from sqlalchemy import Connection

from fairpremium.parties.protocol import Problem
from fairpremium.parties.store.log import append

from .._context import ServiceContext

_EVERY = 600.0  # seconds
_NO_ACCOUNT = "(no such account)"  # never what was typed: people type passwords into the wrong field


class FailedLogins:
    """Counts wrong guesses by account, and writes what was counted into the log every ten minutes at most."""

    def __init__(self, context: ServiceContext):
        self._context = context
        self._lock = threading.Lock()
        self._counted: Counter[str] = Counter()
        self._written_at = float("-inf")

    def count(self, account: str | None) -> None:
        """Count a wrong guess at an account, or None for a name that no account has."""
        with self._lock:
            self._counted[_NO_ACCOUNT if account is None else account] += 1
        self.write_if_due()

    def write_if_due(self) -> None:
        """Write what was counted, if that is long ago."""
        if self._counted and self._context.now() - self._written_at >= _EVERY:
            self.write()

    def write(self) -> None:
        """Write what was counted."""
        with self._lock:
            counted, self._counted = self._counted, Counter()
            self._written_at = self._context.now()

        def write(connection: Connection) -> None:
            for account, guesses in sorted(counted.items()):
                append(connection, self._context.now(), "service", "login.failed", account=account, guesses=guesses)

        try:
            if counted:
                self._context.database.write(write)
        except Problem:  # a full disk; a page must be shown all the same
            with self._lock:
                self._counted += counted
