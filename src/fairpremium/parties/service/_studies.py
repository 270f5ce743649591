"""Commands on studies: declare, open, close, look."""

import secrets
from functools import lru_cache
from typing import Any

from sqlalchemy import Connection, Select, delete, func, insert, select, update

from fairpremium.parties.protocol import (
    CollectorStudy,
    InsurerStudy,
    OperatorStudy,
    Problem,
    StudySpec,
    invitation_key,
    names_of,
    round_count,
)
from fairpremium.parties.store.log import append
from fairpremium.parties.store.schema import batch_files, fits, participants, reports, studies

from ._budget import spent_by
from ._context import Party, ServiceContext, as_json, find_row
from ._epochs import count_epochs, describe_epoch, newest_epoch

StudyView = OperatorStudy | CollectorStudy | InsurerStudy


def put_study(
    connection: Connection, context: ServiceContext, who: Party, study: str, spec: StudySpec
) -> OperatorStudy:
    """Declare a study. It may be declared anew until it is opened."""
    row = connection.execute(select(studies).where(studies.c.id == study).with_for_update()).one_or_none()
    text = as_json(spec)
    if row is not None and spec_of(row) == spec:
        return describe_to_operator(connection, row)
    if row is not None and row.state != "draft":
        raise Problem("study-frozen")
    if row is None:
        values = {"id": study, "spec": text, "state": "draft", "secret": secrets.token_bytes(32)}
        connection.execute(insert(studies).values(**values, created=context.now()))
    else:
        connection.execute(update(studies).where(studies.c.id == study).values(spec=text))
        connection.execute(delete(participants).where(participants.c.study == study))
    rows = [{"study": study, "party": name, "role": "collector"} for name in spec.collectors]
    rows += [{"study": study, "party": name, "role": "insurer"} for name in spec.insurers]
    if rows:
        connection.execute(insert(participants), rows)
    append(connection, context.now(), who.name, "study.declared", study=study, spec=spec.model_dump(mode="json"))
    return describe_to_operator(connection, study_row(connection, study))


def open_study(connection: Connection, context: ServiceContext, who: Party, study: str) -> OperatorStudy:
    """Take reports from now on."""
    return _set_state(connection, context, who, study, "open")


def close_study(connection: Connection, context: ServiceContext, who: Party, study: str) -> OperatorStudy:
    """Take no more reports."""
    return _set_state(connection, context, who, study, "closed")


def _set_state(connection: Connection, context: ServiceContext, who: Party, study: str, state: str) -> OperatorStudy:
    row = find_row(connection, select(studies).where(studies.c.id == study), lock=True)
    if row.state != state:
        connection.execute(update(studies).where(studies.c.id == study).values(state=state))
        append(connection, context.now(), who.name, f"study.{state}", study=study)
    return describe_to_operator(connection, study_row(connection, study))


def list_studies(connection: Connection, context: ServiceContext, who: Party) -> list[StudyView]:
    """Return the studies that a party takes part in; operator and auditor see all."""
    query = _visible_to(who).order_by(studies.c.created, studies.c.id)
    return [_view(connection, context, who, row) for row in connection.execute(query)]


def get_study(connection: Connection, context: ServiceContext, who: Party, study: str) -> StudyView:
    """Return a study as the party may see it."""
    return _view(connection, context, who, find_study(connection, who, study))


def find_study(connection: Connection, who: Party, study: str) -> Any:
    """Return the row of a study that the party takes part in; otherwise there is no such study."""
    return find_row(connection, _visible_to(who).where(studies.c.id == study))


def _visible_to(who: Party) -> Select[Any]:
    query = select(studies)
    if who.role in ("operator", "auditor"):
        return query
    mine = (participants.c.party == who.name, participants.c.role == who.role)
    return query.join(participants, participants.c.study == studies.c.id).where(*mine)


def lock_study(connection: Connection, study: str) -> None:
    """Let other transactions that lock the same study wait for this one."""
    connection.execute(select(studies.c.id).where(studies.c.id == study).with_for_update())


def study_row(connection: Connection, study: str) -> Any:
    """Return the row of a study that is known to exist."""
    return connection.execute(select(studies).where(studies.c.id == study)).one()


def spec_of(row: Any) -> StudySpec:
    """Return what was declared."""
    return _read_spec(row.spec)


@lru_cache(maxsize=128)
def _read_spec(text: str) -> StudySpec:
    return StudySpec.model_validate_json(text)


def takes_reports(row: Any, now: float) -> bool:
    """Say whether a study takes reports at a time."""
    spec = spec_of(row)
    has_begun = spec.opens is None or now >= spec.opens.timestamp()
    is_over = (spec.closes is not None and now >= spec.closes.timestamp()) or keeps_no_reports(spec, now)
    return bool(row.state == "open" and has_begun and not is_over)


def keeps_no_reports(spec: StudySpec, now: float) -> bool:
    """Say whether the date until which a study keeps its reports is over."""
    until = None if spec.retention is None else spec.retention.reports_until
    return until is not None and now >= until.timestamp()


def count_reports(connection: Connection, study: str, *sources: str) -> int:
    """Count the reports of a study, all of them or those of some sources (`sent_by`).

    A collector knows how many it sent itself. All other numbers of reports are released ones, with noise (`reports`,
    `answers`).
    """
    single = select(func.count()).select_from(reports).where(reports.c.study == study)
    in_files = select(func.coalesce(func.sum(batch_files.c.rows), 0)).where(batch_files.c.study == study)
    if sources:
        single = single.where(reports.c.collector.in_(sources))
        in_files = in_files.where(batch_files.c.collector.in_(sources))
    return int(connection.execute(single).scalar_one()) + int(connection.execute(in_files).scalar_one())


def source_of(collector: str, attribute: str | None = None) -> str:
    """Name the source of reports that a collector sends, for each of several attributes another one.

    Attributes are never compared with each other: a person reports some of them now, others later or never.
    """
    return collector if attribute is None else f"{collector}/{attribute}"


def sent_by(spec: StudySpec, *collectors: str) -> list[str]:
    """Return the sources of what some collectors send themselves, of all attributes; of all collectors by default."""
    names = names_of(spec.attribute)
    return [source_of(collector, name) for collector in collectors or spec.collectors for name in names]


def count_fits(connection: Connection, study: str, party: str | None = None) -> int:
    """Count the distinct fits of a study, of all insurers or of one; the same in another epoch is another one."""
    query = select(func.count()).select_from(
        select(fits.c.party, fits.c.spec, fits.c.epoch)
        .where(fits.c.study == study, *([] if party is None else [fits.c.party == party]))
        .distinct()
        .subquery()
    )
    return int(connection.execute(query).scalar_one())


def _view(connection: Connection, context: ServiceContext, who: Party, row: Any) -> StudyView:
    spec = spec_of(row)
    if who.role == "collector":
        accepted = round_count(count_reports(connection, row.id, *sent_by(spec, who.name)), spec.rules)
        sealed_to = None if spec.question is None else invitation_key(context.keys.current(connection))
        by_attribute = {
            name: round_count(count_reports(connection, row.id, source_of(who.name, name)), spec.rules)
            for name in names_of(spec.attribute)
            if name is not None
        }
        counts: dict[str, Any] = {"accepted": accepted, "accepted_by_attribute": by_attribute or None}
        return CollectorStudy(**_common(row), **counts, invitation_key=sealed_to)
    if who.role == "insurer":
        left = max(spec.rules.fits - count_fits(connection, row.id, who.name), 0)
        allowed: dict[str, Any] = {name: getattr(spec, name) for name in ("families", "models", "rules", "release")}
        spent, newest = spent_by(connection, row.id, spec, who.name), newest_epoch(connection, row.id)
        epoch = None if newest is None else describe_epoch(newest, spec)
        return InsurerStudy(**_common(row), **allowed, fits_left=left, spent=spent, epoch=epoch)
    return describe_to_operator(connection, row)


def describe_to_operator(connection: Connection, row: Any) -> OperatorStudy:
    """Return a study as operator and auditor may see it."""
    spec, fits = spec_of(row), count_fits(connection, row.id)
    return OperatorStudy(**_common(row), spec=spec, epochs=count_epochs(connection, row.id, spec), fits=fits)


def _common(row: Any) -> dict[str, Any]:
    spec = spec_of(row)
    return {"id": row.id, "title": spec.title, "attribute": spec.attribute, "state": row.state}
