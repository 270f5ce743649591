"""From the chain of hashes of 0.1.0 to the tree: computed anew from the entries, after the chain was checked."""

import json
import secrets
from typing import Any

import sqlalchemy as sa

from fairpremium.documents import canonical_json
from fairpremium.parties.protocol import Entry, append_leaf, chain_hash, leaf_of

from .schema import log, log_head, meta

CHAIN = "log_chain"  # in `meta`: what was known about the chain when the tree took its place
START = "0" * 64  # what the first entry of the chain follows
_AT_ONCE = 5000
_NOTHING = bytes(32)  # a leaf in the place of an entry that is missing or cannot be read
_OLD = sa.table("log", *(sa.column(name) for name in ("seq", "time", "party", "event", "body", "previous", "hash")))
_OLD_HEAD = sa.table("log_head", sa.column("seq"), sa.column("hash"))


def replace_chain(connection: sa.Connection) -> None:
    """Check the chain, remember its end or its first bad entry, and store the hashes of the tree."""
    peaks: list[bytes] = []
    last, digest, bad = 0, START, None
    change = (
        sa.update(log)
        .where(log.c.seq == sa.bindparam("entry"))
        .values(salt=sa.bindparam("new_salt"), nodes=sa.bindparam("new_nodes"))
    )
    query = sa.select(_OLD).order_by(_OLD.c.seq).limit(_AT_ONCE)
    while rows := connection.execute(query.where(_OLD.c.seq > last)).all():
        changes = []
        for row in rows:
            salt, entry = secrets.token_bytes(16), _read(row)
            if bad is None:
                bad = _fault(row, entry, last, digest)
            leaf = _NOTHING if entry is None else leaf_of({**entry.model_dump(), "salt": salt.hex()})
            peaks = _skip(last, row.seq - 1, peaks)
            peaks, nodes = append_leaf(row.seq - 1, peaks, leaf)
            changes.append({"entry": row.seq, "new_salt": salt, "new_nodes": b"".join(nodes)})
            last, digest = row.seq, row.hash
        connection.execute(change, changes)
    head = connection.execute(sa.select(_OLD_HEAD)).one()
    if bad is None and (head.seq, head.hash) != (last, digest):
        bad = (last + 1, "the end of the log is missing")
    connection.execute(sa.update(log_head).values(peaks=b"".join(_skip(last, head.seq, peaks))))
    known = {"entries": last, "hash": digest, "bad": bad}
    connection.execute(sa.insert(meta).values(name=CHAIN, value=canonical_json(known).decode()))


def _skip(last: int, to: int, peaks: list[bytes]) -> list[bytes]:
    """Leave the place of missing entries, so that the tree can grow behind them."""
    for size in range(last, to):
        peaks, _ = append_leaf(size, peaks, _NOTHING)
    return peaks


def _read(row: Any) -> Entry | None:
    try:
        body = json.loads(row.body)
        if canonical_json(body).decode() != row.body:
            return None
        return Entry(seq=row.seq, time=row.time, party=row.party, event=row.event, body=body, salt="")
    except ValueError:
        return None


def _fault(row: Any, entry: Entry | None, last: int, digest: str) -> tuple[int, str] | None:
    """Say what is wrong with an entry of the chain."""
    if row.seq != last + 1:
        return last + 1, "an entry is missing"
    if row.previous != digest:
        return row.seq, "it does not follow the entry before it"
    if entry is None or chain_hash(entry, row.previous) != row.hash:
        return row.seq, "its content does not match its hash"
    return None
