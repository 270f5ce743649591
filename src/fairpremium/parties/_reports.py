"""Commands on reports: one report per key, the first one stays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, delete, insert, select

from fairpremium.privacy._descriptor import canonical_json

from ._house import House, Party
from ._log import append, upsert
from ._messages import KnownChannel, Report, ReportsTaken, StudySpec
from ._problems import Problem
from ._runs import Run, choose_merge, match, merge_runs, sort_run, write_run
from ._schema import report_parts, report_runs, reports, studies
from ._studies import find_study, labels_of, spec_of

Keys = npt.NDArray[Any]


def put_report(connection: Connection, house: House, who: Party, study: str, key: bytes, message: Report) -> None:
    """Take one report. The same again is welcome, another value is not."""
    spec = _open_study(connection, house, who, study)
    check_descriptor(spec, message.channel)
    labels = [(type(label), label) for label in labels_of(spec.attribute)]
    try:
        code = labels.index((type(message.report), message.report))
    except ValueError:
        raise Problem("bad-values", "report") from None
    found = connection.execute(select(reports.c.code).where(reports.c.study == study, reports.c.key == key)).scalar()
    if found is None:
        found = _look_up(house, live_runs(connection, house, study), key)
    if found is not None:
        if found != code:
            raise Problem("report-conflict")
        return
    values = {"study": study, "key": key, "code": code, "collector": who.name}
    taken = connection.execute(upsert(connection, reports).values(**values))
    if not taken.rowcount:  # another process took one for this key in between
        return put_report(connection, house, who, study, key, message)
    append(connection, house.now(), who.name, "report.taken", study=study)


def put_report_part(
    connection: Connection, house: House, who: Party, study: str, n: int, sha256: str, keys: Keys, codes: Any
) -> ReportsTaken:
    """Take a batch of reports, all of them or none."""
    spec = _open_study(connection, house, who, study, lock=True)
    place = (report_parts.c.study == study, report_parts.c.collector == who.name, report_parts.c.n == n)
    before = connection.execute(select(report_parts).where(*place)).one_or_none()
    if before is not None:
        if before.sha256 != sha256:
            raise Problem("conflict")
        return ReportsTaken(rows=before.rows, sha256=sha256)
    if n >= house.limits.parts:
        raise Problem("quota", "parts of a study")
    del spec
    runs = live_runs(connection, house, study)
    known = match(keys, runs, _singles(connection, study))
    if np.any((known >= 0) & (known != codes)):
        raise Problem("report-conflict")
    fresh = known < 0
    if fresh.any():
        digest = write_run(house.blobs, sort_run(keys[fresh], codes[fresh]))
        values = {"study": study, "sha256": digest, "rows": int(fresh.sum())}
        connection.execute(insert(report_runs).values(**values))
        _merge(connection, house, study)
    values = {"study": study, "collector": who.name, "n": n, "sha256": sha256, "rows": len(keys)}
    connection.execute(insert(report_parts).values(**values, new_rows=int(fresh.sum())))
    append(connection, house.now(), who.name, "reports.taken", study=study, part=n, sha256=sha256)
    return ReportsTaken(rows=len(keys), sha256=sha256)


def check_descriptor(spec: StudySpec, descriptor: Any) -> None:
    """Insist that reports come from the channel of the study, and from none where it knows none."""
    expected = spec.attribute.channel if isinstance(spec.attribute, KnownChannel) else None
    if canonical_json(expected) != canonical_json(descriptor):
        raise Problem("wrong-channel")


def live_runs(connection: Connection, house: House, study: str) -> list[Run]:
    """Return the runs that hold the reports of a study."""
    rows = connection.execute(
        select(report_runs.c.sha256).where(report_runs.c.study == study).order_by(report_runs.c.sha256)
    )
    return [house.run(row.sha256) for row in rows]


def all_reports(connection: Connection, house: House, study: str) -> tuple[list[Run], tuple[Keys, Any]]:
    """Return all reports of a study: runs, and those that came one by one."""
    return live_runs(connection, house, study), _singles(connection, study)


def _open_study(connection: Connection, house: House, who: Party, study: str, *, lock: bool = False) -> StudySpec:
    row = find_study(connection, who, study)
    # Batches of a study come one after the other, and while one is checked no single report slips in.
    connection.execute(select(studies.c.id).where(studies.c.id == study).with_for_update(read=not lock))
    spec = spec_of(row)
    now = house.now()
    opens, closes = spec.opens, spec.closes
    if row.state != "open" or (opens and now < opens.timestamp()) or (closes and now >= closes.timestamp()):
        raise Problem("study-not-open")
    return spec


def _singles(connection: Connection, study: str) -> tuple[Keys, Any]:
    rows = connection.execute(
        select(reports.c.key, reports.c.code).where(reports.c.study == study).order_by(reports.c.key)
    ).all()
    keys = np.frombuffer(b"".join(bytes(row.key) for row in rows), dtype="V16")
    return keys, np.array([row.code for row in rows], dtype=np.int32)


def _look_up(house: House, runs: list[Run], key: bytes) -> int | None:
    wanted = np.frombuffer(key, dtype="V16")
    for run in runs:
        code = int(run.lookup(wanted)[0])
        if code >= 0:
            return code
    return None


def _merge(connection: Connection, house: House, study: str) -> None:
    """Keep the number of runs small."""
    rows = connection.execute(select(report_runs).where(report_runs.c.study == study)).all()
    sizes = {row.sha256: row.rows for row in rows}
    chosen = choose_merge(sizes)
    if len(chosen) < 2:
        return
    digest = write_run(house.blobs, merge_runs([house.run(name) for name in chosen]))
    mine = (report_runs.c.study == study, report_runs.c.sha256.in_(chosen))
    connection.execute(delete(report_runs).where(*mine))
    total = sum(sizes[name] for name in chosen)
    connection.execute(insert(report_runs).values(study=study, sha256=digest, rows=total))
