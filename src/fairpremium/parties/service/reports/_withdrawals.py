"""Withdrawals: a report is taken out of all files, and the next epoch begins without it.

A withdrawal waits in a table. Nothing that an insurer sees changes before the next epoch: not a snapshot, not the
number of epochs, not the log. The answer to who withdraws a report does not depend on whether there is one.
"""

from collections.abc import Iterable
from itertools import compress

import numpy as np
from sqlalchemy import Connection, delete, insert, select, update

from fairpremium.parties.faults import point
from fairpremium.parties.protocol import Problem, StudySpec, as_keys, find_words, names_of, to_words
from fairpremium.parties.store import drop_rows
from fairpremium.parties.store.log import upsert
from fairpremium.parties.store.schema import answers, batch_files, reports, withdrawals

from .._context import Party, ServiceContext
from .._epochs import newest_snapshot, uncount_reports
from .._row_sets import hash_keys
from .._studies import count_reports, find_study, lock_study, source_of, spec_of, study_row
from ._reports import add_file, page_of

_AT_ONCE = 500  # keys of one statement
_USED = "withdrawn"  # stands for the digest of an answer


def withdraw_report(connection: Connection, context: ServiceContext, who: Party, study: str, key: bytes) -> None:
    """Queue the withdrawal of a person's report: what a collector and its page took, for the operator what anybody did.

    It covers all attributes of the person.
    """
    if not isinstance(key, bytes) or len(key) != 16:
        raise Problem("bad-key")
    find_study(connection, who, study)
    lock_study(connection, study)  # no epoch begins meanwhile
    newest = newest_snapshot(connection, study)
    place = {"study": study, "party": "" if who.role == "operator" else who.name, "key": key}
    connection.execute(delete(withdrawals).where(*(withdrawals.c[name] == value for name, value in place.items())))
    epoch = 0 if newest is None else newest.number
    connection.execute(insert(withdrawals).values(**place, removed=0, epoch=epoch))


def apply_withdrawals(connection: Connection, context: ServiceContext, study: str) -> None:
    """Take the reports that were withdrawn out of those with which the next epoch begins. Hold the store meanwhile."""
    lock_study(connection, study)
    waiting = (withdrawals.c.study == study, withdrawals.c.removed == 0)
    rows = connection.execute(select(withdrawals).where(*waiting)).all()
    if not rows:
        return
    row, before = study_row(connection, study), count_reports(connection, study)
    keys_of: dict[str, set[bytes]] = {}  # by collector
    for asked in rows:
        for collector in spec_of(row).collectors if not asked.party else (asked.party,):
            keys_of.setdefault(collector, set()).add(bytes(asked.key))
    for collector, keys in keys_of.items():
        for source in _sources(spec_of(row), collector):
            _remove(connection, context, study, source, sorted(keys))
        _hash_answers(connection, study, collector, sorted(keys), bytes(row.secret))
    uncount_reports(connection, study, before - count_reports(connection, study))
    connection.execute(update(withdrawals).where(*waiting).values(removed=1))


def _sources(spec: StudySpec, collector: str) -> list[str]:
    """Return all sources under which a collector's reports are stored."""
    return [*(source_of(collector, name) for name in names_of(spec.attribute)), page_of(collector)]


def _remove(connection: Connection, context: ServiceContext, study: str, source: str, keys: list[bytes]) -> None:
    """Delete the reports of a source to some keys: single ones, and those in files, which are written anew."""
    mine = (reports.c.study == study, reports.c.collector == source)
    single: set[bytes] = set()
    for some in _pieces(keys):
        there = (*mine, reports.c.key.in_(some))
        single |= set(map(bytes, connection.execute(select(reports.c.key).where(*there)).scalars()))
        connection.execute(delete(reports).where(*there))
    _remove_from_files(connection, context, study, source, keys, single)


def _remove_from_files(
    connection: Connection, context: ServiceContext, study: str, source: str, keys: list[bytes], single: set[bytes]
) -> None:
    """Write the files of a source anew without some keys, and count what is left.

    - `single`: Those of the keys that were reported on their own, and are not counted in a file.
    """
    these = (batch_files.c.study == study, batch_files.c.collector == source)
    high, low = to_words(as_keys(keys))
    files = connection.execute(select(batch_files).where(*these).order_by(batch_files.c.sha256)).all()
    is_gone = np.zeros(len(keys), dtype=bool)
    for file in files:
        batch = context.open_batch(file.sha256)
        place = find_words(batch.high, batch.low, high, low)
        is_here = place >= 0
        if not is_here.any():
            continue
        is_gone |= is_here
        connection.execute(delete(batch_files).where(*these, batch_files.c.sha256 == file.sha256))
        if is_here.sum() < len(batch):
            add_file(connection, study, source, drop_rows(context.files, batch, place[is_here].tolist()), 0)
        point("withdrawal.rewritten")
    if is_gone.any():
        # A report that is in several files counts once, in whichever came first: only the sum over the files is known.
        left = sum(file.rows for file in files) - sum(key not in single for key in compress(keys, is_gone))
        kept = connection.execute(select(batch_files.c.sha256).where(*these)).scalars().all()
        connection.execute(update(batch_files).where(*these).values(rows=0))
        connection.execute(update(batch_files).where(*these, batch_files.c.sha256.in_(kept[:1])).values(rows=left))


def _hash_answers(connection: Connection, study: str, collector: str, keys: list[bytes], secret: bytes) -> None:
    """Remember of used invitations a keyed hash: they stay used, and the number of answers stays the same."""
    mine = (answers.c.study == study, answers.c.collector == collector)
    for some in _pieces(keys):
        query = select(answers.c.key).where(*mine, answers.c.key.in_(some))
        for key in map(bytes, connection.execute(query).scalars().all()):
            connection.execute(delete(answers).where(*mine, answers.c.key == key))
            values = {"study": study, "collector": collector, "key": hashed_key(key, secret), "sha256": _USED}
            connection.execute(upsert(connection, answers).values(**values))


def hashed_key(key: bytes, secret: bytes) -> bytes:
    """Return what stands for the key of an answer whose report was withdrawn."""
    return bytes(hash_keys(as_keys([key]), secret, b"withdrawn answers")[0])


def _pieces(keys: list[bytes]) -> Iterable[list[bytes]]:
    return (keys[start : start + _AT_ONCE] for start in range(0, len(keys), _AT_ONCE))
