"""What the operator and the auditor may see of keys: whose they are, since when, and until when."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, select

from fairpremium.parties.service import ServiceContext, list_keys
from fairpremium.parties.store.schema import log

_OLD = 365 * 86400.0  # seconds after which a change is due
_SOON = 30 * 86400.0  # seconds before its end in which a key is pointed out


@dataclass(frozen=True)
class KeyView:
    """A key of a party, or of the service itself; the times are in seconds.

    `since` of the service's first key is the first entry of the log. `age` is None if nothing is known.
    """

    party: str
    role: str
    key_id: str
    since: float | None
    ends: float | None
    now: float

    @property
    def age(self) -> float | None:
        """For how long it has been or was in force, in seconds."""
        until = self.now if self.ends is None else min(self.ends, self.now)
        return None if self.since is None else max(until - self.since, 0.0)

    @property
    def state(self) -> str:
        """Is it in force?"""
        if self.ends is not None and self.ends <= self.now:
            return "ended"
        if self.ends is not None and self.ends <= self.now + _SOON:
            return "ends soon"
        return "older than a year" if (self.age or 0.0) > _OLD else "in force"


def read_keys(connection: Connection, context: ServiceContext) -> list[KeyView]:
    """Read the keys of all parties, those in force first, then the newest."""
    now = context.now()
    found = [KeyView(key.party, key.role, key.key_id, key.added, key.ends, now) for key in list_keys(connection)]
    return sorted(found, key=lambda key: (key.state == "ended", key.party, -(key.since or 0.0)))


def read_service_keys(connection: Connection, context: ServiceContext) -> list[KeyView]:
    """Read the service's own keys, the newest first."""
    first = connection.execute(select(log.c.time).where(log.c.seq == 1)).scalar()
    chain = context.keys.current(connection).chain.public_keys()
    return [
        KeyView("", "", key.key_id, _seconds(key.since or first), _seconds(key.until), context.now())
        for key in reversed(chain)
    ]


def _seconds(time: str | None) -> float | None:
    return None if time is None else datetime.fromisoformat(time).timestamp()
