"""Security events in the audit log: few entries, whatever strangers do.

Anybody can send wrong signatures. So an entry names an hour, and there is one entry an hour for each registered key.
Keys that are not registered have none. The entries do not count: how often a collector's requests were refused tells
how often it tried to report. Failed logins are added up by `FailedLogins`.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, select

from fairpremium.documents import canonical_json
from fairpremium.parties.store.log import append, iso
from fairpremium.parties.store.schema import log

if TYPE_CHECKING:
    from .._context import ServiceContext

_HOUR = 3600


class SecurityEvents:
    """Writes the security events that one process sees; what another process has written is not written again."""

    def __init__(self, context: ServiceContext):
        self._context = context
        self._lock = threading.Lock()
        self._hour = -1
        self._seen: Counter[tuple[str, str]] = Counter()  # in this hour, by kind and key

    def add_refused_key(self, key_id: str, party: str) -> None:
        """Record that a request was signed by a registered key that was revoked or has ended."""
        if self._count("key-refused", key_id) == 1:
            self._write("key-refused", party, key_id=key_id)

    def add_bad_signature(self, key_id: str, party: str) -> None:
        """Record that a request named a registered key and was not signed by it."""
        if self._count("bad-signature", key_id) == 1:
            self._write("bad-signature", party, key_id=key_id)

    def _count(self, kind: str, key_id: str = "") -> int:
        """Count an event, and return how often it came in this hour."""
        hour = int(self._context.now() // _HOUR)
        with self._lock:
            if hour != self._hour:
                self._hour = hour
                self._seen.clear()
            self._seen[kind, key_id] += 1
            return self._seen[kind, key_id]

    def _write(self, kind: str, party: str, **more: Any) -> None:
        body = {"hour": iso(self._hour * _HOUR), **more}

        def write(connection: Connection) -> None:
            same = (log.c.party == party, log.c.event == f"security.{kind}")
            known = select(log.c.seq).where(*same, log.c.body == canonical_json(body).decode())
            if connection.execute(known.limit(1)).first() is None:
                append(connection, self._context.now(), party, f"security.{kind}", **body)

        try:
            self._context.database.write(write)
        except Exception:
            with self._lock:
                self._seen[kind, more.get("key_id", "")] -= 1  # the next one tries again
            raise
