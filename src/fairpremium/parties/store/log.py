"""The log: an append-only chain of hashes, written in the transaction of the change that it records.

An entry names parties, ids, digests, settings and rounded counts; never rows, keys of policies or reports.
"""

import base64
import hashlib
import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, insert, select, update
from sqlalchemy.dialects.postgresql import insert as pg_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from fairpremium.documents import canonical_json
from fairpremium.parties.protocol import Checkpoint, Entry, LogPage, SigningKey, VerifyKey

from .schema import START, checkpoints, log, log_head

_PREFIX = b"fairpremium log checkpoint 1\n"
_PAGE = 500


def iso(seconds: float) -> str:
    """Write a time as text, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def upsert(connection: Connection, table: Any) -> Any:
    """Return an insert that does nothing when the row is there already (add values)."""
    kind = pg_insert if connection.dialect.name == "postgresql" else sqlite_insert
    return kind(table).on_conflict_do_nothing()


def append(connection: Connection, now: float, party: str, event: str, **body: Any) -> int:
    """Add an entry to the chain and return its number."""
    head = connection.execute(select(log_head.c.seq, log_head.c.hash).with_for_update()).one()
    entry = {"seq": head.seq + 1, "time": iso(now), "party": party, "event": event, "body": body}
    entry["previous"] = head.hash
    digest = _hash(entry)
    connection.execute(insert(log).values(**{**entry, "body": canonical_json(body).decode()}, hash=digest))
    connection.execute(update(log_head).values(seq=entry["seq"], hash=digest))
    return int(entry["seq"])


def _hash(entry: dict[str, Any]) -> str:
    return hashlib.sha256(canonical_json(entry)).hexdigest()


def _entry(row: Any) -> Entry:
    return Entry(**{**row._mapping, "body": json.loads(row.body)})


def read_page(connection: Connection, after: int, party: str | None, key: SigningKey) -> LogPage:
    """Read entries after a position, those of one party or all, with a signed checkpoint."""
    query = select(log).where(log.c.seq > after).order_by(log.c.seq).limit(_PAGE + 1)
    if party is not None:
        query = query.where(log.c.party == party)
    rows = connection.execute(query).all()
    entries = tuple(_entry(row) for row in rows[:_PAGE])
    return LogPage(entries=entries, checkpoint=sign_checkpoint(connection, key), more=len(rows) > _PAGE)


def sign_checkpoint(connection: Connection, key: SigningKey, seq: int | None = None) -> Checkpoint:
    """Sign the end of the log, or an entry of it."""
    if seq is None:
        row = connection.execute(select(log_head.c.seq, log_head.c.hash)).one()
    else:
        row = connection.execute(select(log.c.seq, log.c.hash).where(log.c.seq == seq)).one()
    signature = base64.b64encode(key.sign(_message(row.seq, row.hash))).decode()
    return Checkpoint(seq=row.seq, hash=row.hash, key_id=key.key_id, signature=signature)


def store_checkpoint(connection: Connection, key: SigningKey, seq: int) -> Checkpoint:
    """Sign an entry of the log and remember the signature."""
    checkpoint = sign_checkpoint(connection, key, seq)
    connection.execute(upsert(connection, checkpoints).values(**checkpoint.model_dump()))
    return checkpoint


def _message(seq: int, digest: str) -> bytes:
    return _PREFIX + f"{seq} {digest}".encode()


class Verification(NamedTuple):
    """What a check of the log found."""

    entries: int
    intact: bool
    first_bad: int | None
    reason: str


def verify_log(connection: Connection, key: VerifyKey, known: Iterable[Checkpoint] = ()) -> Verification:
    """Check the whole chain, its end, and all signed checkpoints; name the first bad entry.

    - `key`: Public key of the service.
    - `known`: Checkpoints from elsewhere, for instance from bundles; they find a log that was rewritten as a whole.
    """
    stored = connection.execute(select(checkpoints).order_by(checkpoints.c.seq)).all()
    points = [*known, *(Checkpoint(**row._mapping) for row in stored)]
    signed = {**dict.fromkeys((point.seq for point in points), ""), 0: START}  # hashes of the entries that matter
    last, digest = 0, START
    for row in _rows(connection):
        if row.seq != last + 1:
            return Verification(last, False, last + 1, "an entry is missing")
        if row.previous != digest:
            return Verification(last, False, row.seq, "it does not follow the entry before it")
        if not _is_true(row):
            return Verification(last, False, row.seq, "its content does not match its hash")
        last, digest = row.seq, row.hash
        if last in signed:
            signed[last] = digest
    head = connection.execute(select(log_head.c.seq, log_head.c.hash)).one()
    if head.seq != last or head.hash != digest:
        return Verification(last, False, last + 1, "the end of the log is missing")
    for point in points:
        if not _is_signed(point, key):
            return Verification(last, False, point.seq, "a checkpoint has a wrong signature")
        if signed[point.seq] != point.hash:
            return Verification(last, False, point.seq, "it is not what the service signed")
    return Verification(last, True, None, "")


def _is_true(row: Any) -> bool:
    """Does the content of an entry match its hash?"""
    try:
        entry = _entry(row).model_dump(exclude={"hash"})
        return canonical_json(entry["body"]).decode() == str(row.body) and _hash(entry) == str(row.hash)
    except ValueError:  # not JSON any more
        return False


def _is_signed(point: Checkpoint, key: VerifyKey) -> bool:
    try:
        signature = base64.b64decode(point.signature, validate=True)
    except ValueError:
        return False
    return key.verify(signature, _message(point.seq, point.hash))


def _rows(connection: Connection) -> Iterator[Any]:
    after = 0
    while rows := connection.execute(select(log).where(log.c.seq > after).order_by(log.c.seq).limit(5000)).all():
        yield from rows
        after = rows[-1].seq


def count_entries(connection: Connection) -> int:
    """Count the entries of the log."""
    return int(connection.execute(select(log_head.c.seq)).scalar_one())
