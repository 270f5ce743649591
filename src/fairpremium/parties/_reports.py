"""Commands on reports: one report per key and collector, the first one stays.

What one collector sends is never compared with what another one sent: an answer that depended on it would tell the one
what a policyholder reported to the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, delete, insert, select

from fairpremium.privacy._descriptor import canonical_json

from ._house import House, Party
from ._log import append, upsert
from ._messages import KnownChannel, Report, ReportsTaken, StudySpec
from ._policy_keys import as_keys
from ._problems import Problem
from ._runs import Run, match, merge_runs, plan_merge, sort_run, write_run
from ._schema import report_parts, report_runs, reports, studies
from ._studies import find_study, labels_of, spec_of

Keys = npt.NDArray[Any]
Codes = npt.NDArray[np.int32]


class Sent(NamedTuple):
    """A report on its own, and who sent it."""

    who: Party
    study: str
    key: bytes
    report: Report


def put_report(connection: Connection, house: House, who: Party, study: str, key: bytes, report: Report) -> None:
    """Take one report. The same again is welcome, another value is not."""
    problem = put_reports(connection, house, [Sent(who, study, key, report)])[0]
    if problem is not None:
        raise problem


def put_reports(connection: Connection, house: House, sent: Sequence[Sent]) -> list[Problem | None]:
    """Take many reports that came one by one, each on its own: the answer to each is None or a problem."""
    answers: list[Problem | None] = [None] * len(sent)
    together: dict[tuple[Party, str], list[int]] = {}
    for i, item in enumerate(sent):
        together.setdefault((item.who, item.study), []).append(i)
    for (who, study), places in together.items():
        try:
            spec = _open_study(connection, house, who, study)
        except Problem as problem:
            for i in places:
                answers[i] = problem
            continue
        codes = [_code(spec, sent[i].report) for i in places]
        fine = [(i, code) for i, code in zip(places, codes, strict=True) if not isinstance(code, Problem)]
        for i, code in zip(places, codes, strict=True):
            if isinstance(code, Problem):
                answers[i] = code
        if fine:
            _take(connection, house, who, study, sent, fine, answers)
    return answers


def _code(spec: StudySpec, report: Report) -> int | Problem:
    """Return the code of a report, or what is wrong with it."""
    try:
        check_descriptor(spec, report.channel)
    except Problem as problem:
        return problem
    for code, label in enumerate(labels_of(spec.attribute)):
        if type(label) is type(report.report) and label == report.report:
            return code
    return Problem("bad-values", "report")


def _take(
    connection: Connection,
    house: House,
    who: Party,
    study: str,
    sent: Sequence[Sent],
    fine: list[tuple[int, int]],
    answers: list[Problem | None],
) -> None:
    """Take the reports of one collector to one study, given as places and codes."""
    wanted = list({sent[i].key for i, _ in fine})
    known = _codes_of(connection, house, who, study, wanted)
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
        taken = _codes_of(connection, house, who, study, list(new)) if connection.dialect.name == "postgresql" else new
        for i, code in fine:  # another process may have been faster
            if answers[i] is None and taken.get(sent[i].key, code) != code:
                answers[i] = Problem("report-conflict")
        append(connection, house.now(), who.name, "report.taken", study=study)


def _codes_of(connection: Connection, house: House, who: Party, study: str, keys: list[bytes]) -> dict[bytes, int]:
    """Look up reports of a collector that are there already."""
    mine = (reports.c.study == study, reports.c.collector == who.name)
    single = select(reports.c.key, reports.c.code).where(*mine, reports.c.key.in_(keys))
    found = {bytes(row.key): int(row.code) for row in connection.execute(single)}
    runs = _runs(connection, house, study, who.name)
    if runs:
        codes = match(as_keys(keys), runs)
        found |= {key: int(code) for key, code in zip(keys, codes, strict=True) if code >= 0}
    return found


def put_report_part(
    connection: Connection, house: House, who: Party, study: str, n: int, sha256: str, keys: Keys, codes: Any
) -> ReportsTaken:
    """Take a batch of reports, all of them or none."""
    _open_study(connection, house, who, study, lock=True)
    place = (report_parts.c.study == study, report_parts.c.collector == who.name, report_parts.c.n == n)
    before = connection.execute(select(report_parts).where(*place)).one_or_none()
    if before is not None:
        if before.sha256 != sha256:
            raise Problem("conflict")
        return ReportsTaken(rows=before.rows, sha256=sha256)
    if n >= house.limits.parts:
        raise Problem("quota", "parts of a study")
    known = reports_of(connection, house, study, who.name)(keys)
    if np.any((known >= 0) & (known != codes)):
        raise Problem("report-conflict")
    fresh = known < 0
    if fresh.any():
        digest = write_run(house.blobs, sort_run(keys[fresh], codes[fresh]))
        values = {"study": study, "collector": who.name, "sha256": digest, "rows": int(fresh.sum())}
        connection.execute(insert(report_runs).values(**values))
        _merge(connection, house, study, who.name)
    values = {"study": study, "collector": who.name, "n": n, "sha256": sha256, "rows": len(keys)}
    connection.execute(insert(report_parts).values(**values, new_rows=int(fresh.sum())))
    append(connection, house.now(), who.name, "reports.taken", study=study, part=n, sha256=sha256)
    return ReportsTaken(rows=len(keys), sha256=sha256)


def check_descriptor(spec: StudySpec, descriptor: Any) -> None:
    """Insist that reports come from the channel of the study, and from none where it knows none."""
    expected = spec.attribute.channel if isinstance(spec.attribute, KnownChannel) else None
    if canonical_json(expected) != canonical_json(descriptor):
        raise Problem("wrong-channel")


def reports_of(connection: Connection, house: House, study: str, collector: str) -> Callable[[Keys], Codes]:
    """Return the function from keys to the codes of their reports to a collector, -1 for keys without one."""
    runs, singles = _runs(connection, house, study, collector), _singles(connection, study, collector)
    return lambda keys: match(keys, runs, singles)


def _runs(connection: Connection, house: House, study: str, collector: str) -> list[Run]:
    mine = (report_runs.c.study == study, report_runs.c.collector == collector)
    rows = connection.execute(select(report_runs.c.sha256).where(*mine).order_by(report_runs.c.sha256))
    return [house.run(row.sha256) for row in rows]


def _open_study(connection: Connection, house: House, who: Party, study: str, *, lock: bool = False) -> StudySpec:
    # Batches of a study come one after the other, and while one is checked no single report slips in.
    connection.execute(select(studies.c.id).where(studies.c.id == study).with_for_update(read=not lock))
    row = find_study(connection, who, study)
    spec = spec_of(row)
    now = house.now()
    opens, closes = spec.opens, spec.closes
    if row.state != "open" or (opens and now < opens.timestamp()) or (closes and now >= closes.timestamp()):
        raise Problem("study-not-open")
    return spec


def _singles(connection: Connection, study: str, collector: str) -> Run:
    mine = (reports.c.study == study, reports.c.collector == collector)
    rows = connection.execute(select(reports.c.key, reports.c.code).where(*mine).order_by(reports.c.key)).all()
    return sort_run(as_keys([bytes(row.key) for row in rows]), np.array([row.code for row in rows], dtype=np.uint16))


def _merge(connection: Connection, house: House, study: str, collector: str) -> None:
    """Keep the number of runs small."""
    mine = (report_runs.c.study == study, report_runs.c.collector == collector)
    rows = connection.execute(select(report_runs).where(*mine)).all()
    chosen = plan_merge([(row.sha256, row.rows) for row in rows])
    if not chosen:
        return
    digest = merge_runs(house.blobs, [house.run(name) for name in chosen])
    connection.execute(delete(report_runs).where(*mine, report_runs.c.sha256.in_(chosen)))
    total = sum(row.rows for row in rows if row.sha256 in chosen)
    values = {"study": study, "collector": collector, "sha256": digest, "rows": total}
    connection.execute(insert(report_runs).values(**values))
