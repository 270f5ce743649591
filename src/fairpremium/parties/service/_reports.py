"""Commands on reports: one report per key and collector, the first one stays.

Batches are files (`_runs`). Reports that come one by one wait in a table until there are some, and become a file then.

What one collector sends is never compared with what another one sent: an answer that depended on it would tell the one
what a policyholder reported to the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, insert, select

from fairpremium.parties.protocol import (
    Problem,
    Report,
    ReportsTaken,
    Run,
    StudySpec,
    as_keys,
    code_width,
    descriptor_of,
    find_codes,
    labels_of,
    match,
    meaning,
    sort_run,
)
from fairpremium.parties.store import Incoming
from fairpremium.parties.store.log import append, upsert
from fairpremium.parties.store.schema import report_parts, report_runs, reports, studies
from fairpremium.privacy._descriptor import canonical_json

from ._context import Party, ServiceContext
from ._studies import find_study, spec_of, study_row

_SHORT = 4096  # bytes of a report that is remembered

Keys = npt.NDArray[Any]
Codes = npt.NDArray[np.int32]


class Sent(NamedTuple):
    """A report on its own, and who sent it."""

    who: Party
    study: str
    key: bytes
    report: Report


def put_report(
    connection: Connection, context: ServiceContext, who: Party, study: str, key: bytes, report: Report
) -> None:
    """Take one report. The same again is welcome, another value is not."""
    problem = put_reports(connection, context, [Sent(who, study, key, report)])[0]
    if problem is not None:
        raise problem


def put_reports(connection: Connection, context: ServiceContext, sent: Sequence[Sent]) -> list[Problem | None]:
    """Take many reports that came one by one, each on its own: the answer to each is None or a problem."""
    answers: list[Problem | None] = [None] * len(sent)
    together: dict[tuple[Party, str], list[int]] = {}
    for i, item in enumerate(sent):
        together.setdefault((item.who, item.study), []).append(i)
    for (who, study), places in together.items():
        try:
            spec = spec_of(_open_study(connection, context, who, study))
        except Problem as problem:
            for i in places:
                answers[i] = problem
            continue
        same = {id(sent[i].report): sent[i].report for i in places}  # few, for they are read once
        codes = {name: _code(spec, report) for name, report in same.items()}
        fine: list[tuple[int, int]] = []
        for i in places:
            code = codes[id(sent[i].report)]
            if isinstance(code, int):
                fine.append((i, code))
            else:
                answers[i] = Problem(*code)
        if fine:
            _take(connection, context, who, study, sent, fine, answers)
    return answers


def read_report(body: bytes) -> Report:
    """Read a report from JSON; those of a study have few different texts, and each is read once."""
    return _read_short(body) if len(body) <= _SHORT else Report.parse(body)


@lru_cache(maxsize=256)
def _read_short(body: bytes) -> Report:
    return Report.parse(body)


def _code(spec: StudySpec, report: Report) -> int | tuple[str, str]:
    """Return the code of a report, or code and detail of the problem with it."""
    try:
        check_descriptor(spec, report.channel)
    except Problem as problem:
        return problem.code, problem.detail
    for code, label in enumerate(labels_of(spec.attribute)):
        if type(label) is type(report.report) and label == report.report:
            return code
    return "bad-values", "report"


def _take(
    connection: Connection,
    context: ServiceContext,
    who: Party,
    study: str,
    sent: Sequence[Sent],
    fine: list[tuple[int, int]],
    answers: list[Problem | None],
) -> None:
    """Take the reports of one collector to one study, given as places and codes."""
    wanted = list({sent[i].key for i, _ in fine})
    known = _codes_of(connection, context, who, study, wanted)
    new: dict[bytes, int] = {}
    for i, code in fine:
        first = known.get(sent[i].key, new.get(sent[i].key))
        if first is None:
            new[sent[i].key] = code
        elif first != code:
            answers[i] = Problem("report-conflict")
    if new:
        rows = [{"study": study, "collector": who.name, "key": key, "code": code} for key, code in new.items()]
        connection.execute(upsert(connection, reports), rows)
        taken = (
            _codes_of(connection, context, who, study, list(new)) if connection.dialect.name == "postgresql" else new
        )
        for i, code in fine:  # another process may have been faster
            if answers[i] is None and taken.get(sent[i].key, code) != code:
                answers[i] = Problem("report-conflict")
        append(connection, context.now(), who.name, "report.taken", study=study)


def _codes_of(
    connection: Connection, context: ServiceContext, who: Party, study: str, keys: list[bytes]
) -> dict[bytes, int]:
    """Look up reports of a collector that are there already."""
    mine = (reports.c.study == study, reports.c.collector == who.name)
    single = select(reports.c.key, reports.c.code).where(*mine, reports.c.key.in_(keys))
    found = {bytes(row.key): int(row.code) for row in connection.execute(single)}
    runs = runs_of(connection, context, study, who.name)
    if runs:
        codes = match(as_keys(keys), runs)
        found |= {key: int(code) for key, code in zip(keys, codes, strict=True) if code >= 0}
    return found


def put_report_part(
    connection: Connection, context: ServiceContext, who: Party, study: str, n: int, incoming: Incoming, run: Run
) -> ReportsTaken:
    """Take a batch of reports that was checked, all of them or none; its file is kept if there is news in it."""
    _open_study(connection, context, who, study, lock=True)
    sha256 = incoming.sha256
    place = (report_parts.c.study == study, report_parts.c.collector == who.name, report_parts.c.n == n)
    before = connection.execute(select(report_parts).where(*place)).one_or_none()
    if before is not None:
        if before.sha256 != sha256:
            raise Problem("conflict")
        return ReportsTaken(rows=before.rows, sha256=sha256)
    if n >= context.limits.parts:
        raise Problem("quota", "parts of a study")
    files = runs_of(connection, context, study, who.name)
    new = len(run) - _count_known(run, [*files, singles_of(connection, study, who.name)])
    if new:
        incoming.keep()
        values = {"study": study, "collector": who.name, "sha256": sha256, "rows": new}
        connection.execute(insert(report_runs).values(**values))
    values = {"study": study, "collector": who.name, "n": n, "sha256": sha256, "rows": len(run)}
    connection.execute(insert(report_parts).values(**values))
    append(connection, context.now(), who.name, "reports.taken", study=study, part=n, sha256=sha256)
    return ReportsTaken(rows=len(run), sha256=sha256)


def _count_known(run: Run, others: list[Run]) -> int:
    """Count the reports of a batch that are there already; one with another value is a problem."""
    near = [other for other in others if len(other) and other.high[0] <= run.high[-1] and run.high[0] <= other.high[-1]]
    if not near:
        return 0
    known = find_codes(run.high, run.low, near)
    is_known = known >= 0
    if np.any(known[is_known] != run.codes[is_known]):
        raise Problem("report-conflict")
    return int(np.count_nonzero(is_known))


def check_descriptor(spec: StudySpec, descriptor: Any) -> None:
    """Insist that reports come from the channel of the study, and from none where it knows none."""
    if canonical_json(descriptor_of(spec.attribute)) != canonical_json(descriptor):
        raise Problem("wrong-channel")


def reports_of(connection: Connection, context: ServiceContext, study: str, collector: str) -> Callable[[Keys], Codes]:
    """Return the function from keys to the codes of their reports to a collector, -1 for keys without one."""
    runs, singles = runs_of(connection, context, study, collector), singles_of(connection, study, collector)
    return lambda keys: match(keys, runs, singles)


def runs_of(connection: Connection, context: ServiceContext, study: str, collector: str) -> list[Run]:
    """Return the files of reports to a collector."""
    mine = (report_runs.c.study == study, report_runs.c.collector == collector)
    rows = connection.execute(select(report_runs.c.sha256).where(*mine).order_by(report_runs.c.sha256))
    return [context.run(row.sha256) for row in rows]


def _open_study(connection: Connection, context: ServiceContext, who: Party, study: str, *, lock: bool = False) -> Any:
    # Batches of a study come one after the other, and while one is checked no single report slips in.
    connection.execute(select(studies.c.id).where(studies.c.id == study).with_for_update(read=not lock))
    row = find_study(connection, who, study)
    spec = spec_of(row)
    now = context.now()
    opens, closes = spec.opens, spec.closes
    if row.state != "open" or (opens and now < opens.timestamp()) or (closes and now >= closes.timestamp()):
        raise Problem("study-not-open")
    return row


def singles_of(connection: Connection, study: str, collector: str) -> Run:
    """Return the reports to a collector that came one by one and are not in a file yet."""
    mine = (reports.c.study == study, reports.c.collector == collector)
    rows = connection.execute(select(reports.c.key, reports.c.code).where(*mine).order_by(reports.c.key)).all()
    attribute = spec_of(study_row(connection, study)).attribute
    labels = labels_of(attribute)
    codes = np.array([row.code for row in rows], dtype=f"u{code_width(len(labels))}")
    return sort_run(as_keys([bytes(row.key) for row in rows]), codes, meaning(labels, descriptor_of(attribute)))
