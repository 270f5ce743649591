"""The log: append-only, under a tree of hashes (RFC 6962), written in the transaction of the change that it records.

An entry names parties, ids, digests, settings and rounded counts; never rows, keys of policies or reports. It stores
the hashes of the subtrees that it completes, so that a root or a proof reads a few entries only.
"""

import json
import secrets
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection, insert, select, update
from sqlalchemy.dialects.postgresql import insert as pg_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from fairpremium.documents import canonical_json
from fairpremium.parties.protocol import (
    EMPTY_ROOT,
    HASH_BYTES,
    ChainCheckpoint,
    Checkpoint,
    Entry,
    KeyChain,
    LogPage,
    SigningKey,
    append_leaf,
    chain_hash,
    leaf_of,
    prove_consistency,
    prove_inclusion,
    read_root,
    root_of,
    sign_root,
    what_is_wrong,
)

from ._tree_migration import CHAIN, START
from .schema import checkpoints, log, log_head, meta

_PAGE = 500
_NO_FIT = "it does not fit the tree of hashes over the log"


def iso(seconds: float) -> str:
    """Write a time as text, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def upsert(connection: Connection, table: Any) -> Any:
    """Return an insert that does nothing when the row is there already (add values)."""
    kind = pg_insert if connection.dialect.name == "postgresql" else sqlite_insert
    return kind(table).on_conflict_do_nothing()


# --- writing ---------------------------------------------------------------------------------------------------------


def lock_log(connection: Connection) -> None:
    """Let others who write to the log wait. Whoever locks a study, too, does this first: or two wait for each other."""
    connection.execute(select(log_head.c.seq).with_for_update())


def append(connection: Connection, now: float, party: str, event: str, **body: Any) -> int:
    """Add an entry to the log and return its number."""
    head = connection.execute(select(log_head.c.seq, log_head.c.peaks).with_for_update()).one()
    salt = secrets.token_bytes(16)
    entry = {"seq": head.seq + 1, "time": iso(now), "party": party, "event": event, "body": body, "salt": salt.hex()}
    peaks, nodes = append_leaf(head.seq, _split(head.peaks), leaf_of(entry))
    stored = {**entry, "body": canonical_json(body).decode(), "salt": salt, "nodes": b"".join(nodes)}
    connection.execute(insert(log).values(**stored))
    connection.execute(update(log_head).values(seq=entry["seq"], peaks=b"".join(peaks)))
    return int(entry["seq"])


def _split(hashes: bytes) -> list[bytes]:
    return [bytes(hashes[i : i + HASH_BYTES]) for i in range(0, len(hashes), HASH_BYTES)]


# --- reading ---------------------------------------------------------------------------------------------------------


def _entry(row: Any) -> Entry:
    return Entry(
        seq=row.seq,
        time=row.time,
        party=row.party,
        event=row.event,
        body=json.loads(row.body),
        salt=bytes(row.salt).hex(),
    )


def read_page(connection: Connection, after: int, party: str | None, key: SigningKey) -> LogPage:
    """Read entries after a position, those of one party or all, with a signed checkpoint."""
    query = select(log).where(log.c.seq > after).order_by(log.c.seq).limit(_PAGE + 1)
    if party is not None:
        query = query.where(log.c.party == party)
    rows = connection.execute(query).all()
    entries = tuple(_entry(row) for row in rows[:_PAGE])
    return LogPage(entries=entries, checkpoint=sign_checkpoint(connection, key), more=len(rows) > _PAGE)


def sign_checkpoint(connection: Connection, key: SigningKey, size: int | None = None) -> Checkpoint:
    """Sign the root over the whole log, or over its first entries."""
    if size is None:
        head = connection.execute(select(log_head.c.seq, log_head.c.peaks)).one()
        return sign_root(key, head.seq, root_of(_split(head.peaks)))
    return sign_root(key, size, read_root(size, _Nodes(connection)))


def store_checkpoint(connection: Connection, key: SigningKey, size: int) -> Checkpoint:
    """Sign the root over the first entries and remember the signature."""
    point = sign_checkpoint(connection, key, size)
    values = {"seq": point.size, "hash": point.root, "key_id": point.key_id, "signature": point.signature, "form": 2}
    connection.execute(upsert(connection, checkpoints).values(**values))
    return point


class _Nodes:
    """The stored hashes of subtrees; see `fairpremium.parties.protocol`."""

    def __init__(self, connection: Connection):
        self._connection = connection

    def __call__(self, level: int, end: int) -> bytes:
        nodes = self._connection.execute(select(log.c.nodes).where(log.c.seq == end)).scalar_one()
        return bytes(nodes[level * HASH_BYTES : (level + 1) * HASH_BYTES])


def read_consistency(connection: Connection, first: int, second: int) -> list[bytes]:
    """Prove that the log with `first` entries is the beginning of that with `second`, which exist."""
    return prove_consistency(first, second, _Nodes(connection))


def read_inclusion(connection: Connection, seq: int, size: int) -> list[bytes]:
    """Prove that an entry is in the log with `size` entries, which exist."""
    return prove_inclusion(seq - 1, size, _Nodes(connection))


def party_of(connection: Connection, seq: int) -> str | None:
    """Return whose entry this is; None if there is none."""
    return connection.execute(select(log.c.party).where(log.c.seq == seq)).scalar()


def count_entries(connection: Connection) -> int:
    """Count the entries of the log."""
    return int(connection.execute(select(log_head.c.seq)).scalar_one())


# --- checking --------------------------------------------------------------------------------------------------------


class Verification(NamedTuple):
    """What a check of the log found; all entries before the first bad one are intact."""

    entries: int
    intact: bool
    first_bad: int | None
    reason: str


def verify_log(
    connection: Connection, keys: KeyChain, known: Iterable[Checkpoint | ChainCheckpoint] = ()
) -> Verification:
    """Check all entries, the tree over them, its end, and all signed checkpoints; name the first bad entry.

    - `keys`: Public keys of the service.
    - `known`: Checkpoints from elsewhere, for instance from bundles; they find a log that was rewritten as a whole.
    """
    rows = connection.execute(select(checkpoints))
    points = sorted([*known, *map(_point, rows)], key=_size)
    text = connection.execute(select(meta.c.value).where(meta.c.name == CHAIN)).scalar()
    chain: dict[str, Any] = {"entries": 0, "hash": START, "bad": None} if text is None else json.loads(text)
    of_chain = {point.seq for point in points if isinstance(point, ChainCheckpoint)}
    past = _Past({point.size for point in points if isinstance(point, Checkpoint)}, {*of_chain, chain["entries"]})
    bad = past.check_entries(connection) or chain["bad"]
    if bad is None and past.hashes.get(chain["entries"]) != chain["hash"]:
        bad = chain["entries"], "the entries up to it are not those of 0.1.0"
    for point in points:
        if bad is not None:
            break
        wrong = what_is_wrong(point, keys)
        if wrong is None and not past.contains(point):
            wrong = "it is not what the service signed"
        bad = None if wrong is None else (_size(point), wrong)
    return Verification(past.size, True, None, "") if bad is None else Verification(past.size, False, *bad)


class _Past:
    """What the log was at some sizes: the roots of the tree, and the hashes of the chain of 0.1.0."""

    def __init__(self, sizes: set[int], chain_sizes: set[int]):
        self.size = 0  # entries that are intact
        self.roots, self.hashes = {0: EMPTY_ROOT.hex()}, {0: START}
        self._sizes, self._chain_sizes = sizes, chain_sizes

    def contains(self, point: Checkpoint | ChainCheckpoint) -> bool:
        """Was the log what was signed?"""
        if isinstance(point, Checkpoint):
            return self.roots.get(point.size) == point.root
        return self.hashes.get(point.seq) == point.hash

    def check_entries(self, connection: Connection) -> tuple[int, str] | None:
        """Read the log, and return the first bad entry and what is wrong with it."""
        peaks: list[bytes] = []
        digest, longest = START, max(self._chain_sizes)
        for row in _rows(connection):
            if row.seq != self.size + 1:
                return self.size + 1, "an entry is missing"
            entry, stored = _true_entry(row), _split(row.nodes)
            if entry is None or [leaf_of(entry.model_dump())] != stored[:1]:
                return row.seq, "its content does not match its hash"
            peaks, nodes = append_leaf(self.size, peaks, stored[0])
            if nodes != stored:
                level = next((n for n, (a, b) in enumerate(zip(nodes, stored, strict=False)) if a != b), 0)
                return row.seq - 2**level + 1, _NO_FIT
            self.size = row.seq
            if self.size in self._sizes:
                self.roots[self.size] = root_of(peaks).hex()
            if self.size <= longest:
                digest = chain_hash(entry, digest)
            if self.size in self._chain_sizes:
                self.hashes[self.size] = digest
        head = connection.execute(select(log_head.c.seq, log_head.c.peaks)).one()
        if head.seq != self.size:
            return min(head.seq, self.size) + 1, "the end of the log is missing"
        return None if _split(head.peaks) == peaks else (_first_leaf(self.size, peaks, _split(head.peaks)), _NO_FIT)


def _point(row: Any) -> Checkpoint | ChainCheckpoint:
    signed = {"key_id": row.key_id, "signature": row.signature}
    if row.form == 1:
        return ChainCheckpoint(seq=row.seq, hash=row.hash, **signed)
    return Checkpoint(size=row.seq, root=row.hash, **signed)


def _size(point: Checkpoint | ChainCheckpoint) -> int:
    return point.size if isinstance(point, Checkpoint) else point.seq


def _true_entry(row: Any) -> Entry | None:
    """Return an entry as it was written; None if it is not JSON in its one form any more."""
    try:
        entry = _entry(row)
        return entry if canonical_json(entry.body).decode() == str(row.body) else None
    except ValueError:
        return None


def _first_leaf(size: int, peaks: list[bytes], others: list[bytes]) -> int:
    """Return the first entry under the first peak that differs."""
    first, widths = 1, [1 << level for level in reversed(range(size.bit_length())) if size >> level & 1]
    for width, peak, other in zip(widths, peaks, [*others, *[b""] * len(peaks)], strict=False):
        if peak != other:
            break
        first += width
    return min(first, size)


def _rows(connection: Connection) -> Iterator[Any]:
    after = 0
    while rows := connection.execute(select(log).where(log.c.seq > after).order_by(log.c.seq).limit(5000)).all():
        yield from rows
        after = rows[-1].seq
