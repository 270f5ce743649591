"""Commands on reports: one report per key and collector, the first one stays.

A batch is a file. Reports that come one by one wait in a table until there are many, and become a file then
(`_compaction`).

Nothing here writes to the log, whose length everybody sees: it has the epochs in which reports are used (`_snapshots`).

What one collector sends is never compared with what another one sent: an answer that depended on it would tell the one
what a policyholder reported to the other.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from sqlalchemy import Connection, insert, select
from sqlalchemy.dialects.postgresql import insert as pg_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert

from fairpremium.documents import canonical_json
from fairpremium.parties.protocol import (
    Attribute,
    Problem,
    Report,
    ReportBatch,
    ReportsTaken,
    StudySpec,
    as_keys,
    code_width,
    descriptor_of,
    find_codes,
    find_words,
    labels_of,
    match,
    meaning,
    one_attribute,
    sort_batch,
    to_words,
)
from fairpremium.parties.store import Incoming
from fairpremium.parties.store.log import upsert
from fairpremium.parties.store.schema import batch_files, keyed_digest, reports, sent_batches, studies, withdrawals

from .._context import Party, ServiceContext
from .._studies import find_study, source_of, spec_of, study_row, takes_reports

_SHORT = 4096  # bytes of the JSON text of a report that is cached


class SingleReport(NamedTuple):
    """A report on its own, and who sent it."""

    who: Party
    study: str
    key: bytes
    report: Report
    attribute: str | None = None  # its name in a study of several


def put_report(
    connection: Connection,
    context: ServiceContext,
    who: Party,
    study: str,
    key: bytes,
    report: Report,
    attribute: str | None = None,
) -> None:
    """Take one report. The same report again is accepted; another value is a conflict."""
    if not isinstance(key, bytes) or len(key) != 16:
        raise Problem("bad-key")
    problem = put_reports(connection, context, [SingleReport(who, study, key, report, attribute)])[0]
    if problem is not None:
        raise problem


def put_reports(connection: Connection, context: ServiceContext, sent: Sequence[SingleReport]) -> list[Problem | None]:
    """Take many reports that came one by one, each on its own: the answer to each is None or a problem."""
    answers: list[Problem | None] = [None] * len(sent)
    positions: dict[tuple[str, str, str | None], list[int]] = {}
    for i, item in enumerate(sent):
        positions.setdefault((item.who.name, item.study, item.attribute), []).append(i)
    for places in positions.values():
        for i, answer in zip(places, _put_alike(connection, context, [sent[i] for i in places]), strict=True):
            answers[i] = answer
    return answers


def _put_alike(connection: Connection, context: ServiceContext, sent: list[SingleReport]) -> list[Problem | None]:
    """Take reports of one collector to one attribute of a study."""
    who, study, name = sent[0].who, sent[0].study, sent[0].attribute
    try:
        spec = spec_of(_open_study(connection, context, who, study))
        attribute, source = one_attribute(spec.attribute, name), source_of(who.name, name)
    except Problem as problem:
        return [problem] * len(sent)
    distinct = {id(item.report): item.report for item in sent}  # few: `read_report` caches them
    code_of = {place: _code(attribute, report) for place, report in distinct.items()}
    codes = [code_of[id(item.report)] for item in sent]
    coded: dict[bytes, int] = {}  # the first code of each key
    for item, code in zip(sent, codes, strict=True):
        if isinstance(code, int):
            coded.setdefault(item.key, code)
    withdrawn = set(waits_for_withdrawal(connection, study, who.name)) & set(coded)
    for key in withdrawn:
        del coded[key]
    first = _codes_of(connection, context, study, source, list(coded)) if coded else {}
    new = {key: code for key, code in coded.items() if key not in first}
    if new:
        rows = [{"study": study, "collector": source, "key": key, "code": code} for key, code in new.items()]
        connection.execute(upsert(connection, reports), rows)
        if connection.dialect.name == "postgresql":  # another process may have been faster
            new |= _codes_of(connection, context, study, source, list(new))
    first |= new

    def answer(key: bytes, code: int | Problem) -> Problem | None:
        if isinstance(code, Problem):
            return code
        if key in withdrawn:
            return Problem("withdrawal-waits")
        return None if first[key] == code else Problem("report-conflict")

    return [answer(item.key, code) for item, code in zip(sent, codes, strict=True)]


def read_report(body: bytes) -> Report:
    """Read a report from JSON; those of a study have few different texts, and each short text is read once."""
    return _read_short(body) if len(body) <= _SHORT else Report.parse(body)


@lru_cache(maxsize=256)
def _read_short(body: bytes) -> Report:
    return Report.parse(body)


def _code(attribute: Attribute, report: Report) -> int | Problem:
    """Return the code of a report, or the problem with it."""
    if canonical_json(descriptor_of(attribute)) != canonical_json(report.channel):
        return Problem("wrong-channel")
    code = code_of_label(attribute, report.report)
    return Problem("bad-values", "report") if code is None else code


def code_of_label(attribute: Attribute, report: Any) -> int | None:
    """Return the code of a report of an attribute's channel, or None if there is no such report."""
    for code, label in enumerate(labels_of(attribute)):
        if type(label) is type(report) and label == report:
            return code
    return None


def page_of(collector: str) -> str:
    """Name the source of reports that people sent from their own devices, invited by a collector.

    It is another source than the collector itself: what people answered is never compared with what the collector
    sends, or its answers would tell the collector who has reported, and what.
    """
    return f"@{collector}"


def sources_of(spec: StudySpec, attribute: str | None = None) -> list[str]:
    """Return the sources of reports of an attribute, the one that counts first: people themselves, then collectors."""
    if spec.question is None:
        return [source_of(collector, attribute) for collector in spec.collectors]
    return [source for collector in spec.collectors for source in (page_of(collector), collector)]


def _codes_of(
    connection: Connection, context: ServiceContext, study: str, source: str, keys: list[bytes]
) -> dict[bytes, int]:
    """Look up the reports of a source to some keys."""
    mine = (reports.c.study == study, reports.c.collector == source)
    single = select(reports.c.key, reports.c.code).where(*mine, reports.c.key.in_(keys))
    found = {bytes(row.key): int(row.code) for row in connection.execute(single)}
    batches = batches_of(connection, context, study, source)
    if batches:
        codes = match(as_keys(keys), batches)
        found |= {key: int(code) for key, code in zip(keys, codes, strict=True) if code >= 0}
    return found


def put_report_batch(
    connection: Connection,
    context: ServiceContext,
    who: Party,
    study: str,
    n: int,
    incoming: Incoming,
    batch: ReportBatch,
    attribute: str | None = None,
) -> ReportsTaken:
    """Take a batch of reports that was checked, all of them or none; its file is stored if it has a new report."""
    row = _open_study(connection, context, who, study, lock=True)
    source = source_of(who.name, attribute)
    sha256 = incoming.sha256
    keyed = keyed_digest(bytes(row.secret), sha256)
    place = (sent_batches.c.study == study, sent_batches.c.collector == source, sent_batches.c.n == n)
    before = connection.execute(select(sent_batches).where(*place)).one_or_none()
    if before is not None:
        if before.sha256 != keyed:
            raise Problem("conflict")
        return ReportsTaken(rows=before.rows, sha256=sha256)
    if n >= context.limits.parts:
        raise Problem("quota", f"{context.limits.parts} batches of a study; send more reports in each")
    withdrawn = waits_for_withdrawal(connection, study, who.name)
    if withdrawn and (find_words(batch.high, batch.low, *to_words(as_keys(withdrawn))) >= 0).any():
        raise Problem("withdrawal-waits")
    files = batches_of(connection, context, study, source)
    new = len(batch) - _count_known(batch, [*files, singles_of(connection, study, source)])
    if new:
        incoming.commit()
        add_file(connection, study, source, sha256, new)
    values = {"study": study, "collector": source, "sha256": keyed}
    connection.execute(insert(sent_batches).values(**values, n=n, rows=len(batch)))
    return ReportsTaken(rows=len(batch), sha256=sha256)


def add_file(connection: Connection, study: str, source: str, sha256: str, rows: int) -> None:
    """Refer to a file of reports, of which so many were in none before.

    A file with the same reports may be there already: what is left of one after a withdrawal.
    """
    kind = pg_insert if connection.dialect.name == "postgresql" else sqlite_insert
    new = kind(batch_files).values(study=study, collector=source, sha256=sha256, rows=rows)
    total = {"rows": batch_files.c.rows + new.excluded.rows}
    connection.execute(new.on_conflict_do_update(index_elements=["study", "collector", "sha256"], set_=total))


def waits_for_withdrawal(connection: Connection, study: str, collector: str) -> list[bytes]:
    """Return the keys whose reports are about to be deleted: who has been told that one is taken must not lose it."""
    asked = (withdrawals.c.study == study, withdrawals.c.party.in_((collector, "")), withdrawals.c.removed == 0)
    return [bytes(key) for key in connection.execute(select(withdrawals.c.key).where(*asked)).scalars()]


def _count_known(batch: ReportBatch, others: list[ReportBatch]) -> int:
    """Count the reports of a batch that are there already; one with another value is a problem."""
    first, last = batch.high[0], batch.high[-1]
    near = [other for other in others if len(other) and other.high[0] <= last and first <= other.high[-1]]
    if not near:
        return 0
    known = find_codes(batch.high, batch.low, near)
    is_known = known >= 0
    if np.any(known[is_known] != batch.codes[is_known]):
        raise Problem("report-conflict")
    return int(np.count_nonzero(is_known))


def batches_of(connection: Connection, context: ServiceContext, study: str, source: str) -> list[ReportBatch]:
    """Return the files of reports from a source."""
    mine = (batch_files.c.study == study, batch_files.c.collector == source)
    rows = connection.execute(select(batch_files.c.sha256).where(*mine).order_by(batch_files.c.sha256))
    return [context.open_batch(row.sha256) for row in rows]


def singles_of(connection: Connection, study: str, source: str) -> ReportBatch:
    """Return the reports from a source that came one by one and are not in a file yet."""
    mine = (reports.c.study == study, reports.c.collector == source)
    rows = connection.execute(select(reports.c.key, reports.c.code).where(*mine).order_by(reports.c.key)).all()
    name = source.partition("/")[2] or None  # see `source_of`
    attribute = one_attribute(spec_of(study_row(connection, study)).attribute, name)
    labels = labels_of(attribute)
    codes = np.array([row.code for row in rows], dtype=f"u{code_width(len(labels))}")
    said = meaning(labels, descriptor_of(attribute), name)
    return sort_batch(as_keys([bytes(row.key) for row in rows]), codes, said)


def _open_study(connection: Connection, context: ServiceContext, who: Party, study: str, *, lock: bool = False) -> Any:
    # Batches of a study come one after the other, and while one is checked no single report is stored.
    connection.execute(select(studies.c.id).where(studies.c.id == study).with_for_update(read=not lock))
    row = find_study(connection, who, study)
    if not takes_reports(row, context.now()):
        raise Problem("study-not-open")
    return row
