"""What the operator and the auditor may see of the log: pages of entries, the newest first."""

import json
from typing import Any, NamedTuple

from sqlalchemy import Connection, select

from fairpremium.parties.store.log import count_entries
from fairpremium.parties.store.schema import log

# What the log tells of, in the order in which it usually happens.
EVENTS = (
    "key.added", "key.ends", "key.revoked", "service.key.rotated", "service.restored", "study.secret.rotated",
    "study.declared", "study.open", "study.closed",
    "epoch.begun", "epoch.sealed", "answers.released", "report.taken", "reports.taken",  # the last two in logs of 0.1
    "reports.withdrawn", "reports.erased",
    "portfolio.declared", "portfolio.part", "portfolio.sealed", "portfolio.erased",
    "fit.requested", "fit.started", "fit.cancel", "fit.succeeded", "fit.refused", "fit.failed", "fit.cancelled",
    "bundle.fetched", "bundle.erased",
    "account.added", "account.disabled", "account.password", "login.opened", "login.ended", "login.failed",
    "security.bad-signature", "security.key-refused",
)  # fmt: skip


class EntryView(NamedTuple):
    """An entry of the log: short facts beside each other, longer ones as JSON text."""

    seq: int
    time: str
    party: str
    event: str
    facts: list[tuple[str, str, str]]
    more: str


class LogView(NamedTuple):
    """A page of the log, the newest entry first; numbers for the pages beside it, and of the last entry of all."""

    entries: list[EntryView]
    older: int | None
    newer: int | None
    last: int


def read_log(
    connection: Connection, *, party: str = "", event: str = "", before: int | None = None, size: int = 50
) -> LogView:
    """Read a page of the log, the newest entry first.

    - `party`, `event`: Only entries of this party and this event; empty for all.
    - `before`: Only entries with a smaller number.
    """
    wanted = [column == value for column, value in ((log.c.party, party), (log.c.event, event)) if value]
    query = select(log).where(*wanted).order_by(log.c.seq.desc()).limit(size + 1)
    rows = connection.execute(query if before is None else query.where(log.c.seq < before)).all()
    newer = None
    if before is not None:
        later = select(log.c.seq).where(*wanted, log.c.seq >= before).order_by(log.c.seq).limit(size)
        above = connection.execute(later).scalars().all()
        newer = above[-1] + 1 if above else None
    older = rows[size - 1].seq if len(rows) > size else None
    return LogView([_view(row) for row in rows[:size]], older, newer, count_entries(connection))


def _view(row: Any) -> EntryView:
    try:
        body = json.loads(row.body)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        body = {"content": "cannot be read"}
    facts, more = [], {}
    for name, value in body.items():
        if isinstance(value, dict | list):
            more[name] = value
        else:
            text = str(value)
            is_digest = len(text) == 64 and " " not in text
            facts.append((name, f"{text[:12]}…" if is_digest else text, text if is_digest else ""))
    for name in ("refusal", "problem"):
        inner = more.pop(name, None)
        if isinstance(inner, dict):
            facts += [(key, str(inner[key]), "") for key in ("rule", "title", "limit") if key in inner]
    rest = json.dumps(more, indent=1, ensure_ascii=False) if more else ""
    return EntryView(row.seq, str(row.time), row.party, row.event, facts, rest)
