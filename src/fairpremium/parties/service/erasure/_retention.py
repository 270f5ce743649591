"""Retention: what a study says is kept for a time only is erased when the time is over."""

from functools import partial

from sqlalchemy import Connection, delete, select, update

from fairpremium.documents import canonical_json
from fairpremium.parties.faults import point
from fairpremium.parties.protocol import Retention
from fairpremium.parties.store.log import append, lock_log
from fairpremium.parties.store.schema import (
    answer_counts,
    answers,
    batch_files,
    epochs,
    fits,
    log,
    mark_for_scrub,
    portfolios,
    reports,
    studies,
    withdrawals,
)

from .._context import ServiceContext
from .._portfolios import erase_bundles, erase_portfolio
from .._studies import keeps_no_reports, lock_study, spec_of, study_row
from ._reports import cancel_fits, forget_snapshots

_DAY = 86_400.0
_SERVICE = "service"  # who erases, in the log


def enforce_retention(context: ServiceContext) -> None:
    """Erase, in the database, what is kept for longer than its study says; the files go afterwards."""
    for study in context.database.read(lambda c: [row.id for row in c.execute(select(studies)) if _has_dates(row)]):
        for step in (_erase_reports, _erase_portfolios, _erase_bundles):
            context.database.write(partial(step, context=context, study=study))
            point("retention.step", writes=False)


def _has_dates(row: object) -> bool:
    return spec_of(row).retention is not None


def _retention(connection: Connection, study: str) -> Retention:
    return spec_of(study_row(connection, study)).retention or Retention()


def _erase_reports(connection: Connection, context: ServiceContext, study: str) -> None:
    lock_log(connection)
    lock_study(connection, study)
    if not keeps_no_reports(spec_of(study_row(connection, study)), context.now()):
        return
    body = {"study": study, "because": "retention"}
    told = select(log.c.seq).where(log.c.event == "reports.erased", log.c.body == canonical_json(body).decode())
    if connection.execute(told.limit(1)).first() is None:  # whether there were reports or not
        append(connection, context.now(), _SERVICE, "reports.erased", **body)
    cancel_fits(connection, context, fits.c.study == study)  # whether there were reports or not
    found = [
        connection.execute(select(table.c.study).where(table.c.study == study).limit(1)).first()
        for table in (reports, answers, batch_files, withdrawals)
    ]
    kept = select(epochs.c.number).where(epochs.c.study == study, epochs.c.files.is_not(None)).limit(1)
    if not any(found) and connection.execute(kept).first() is None:
        return
    for table in (reports, answers, batch_files, withdrawals):
        connection.execute(delete(table).where(table.c.study == study))
    for table in (epochs, answer_counts):  # no released number goes down by what was erased
        connection.execute(update(table).where(table.c.study == study).values(counted=0))
    forget_snapshots(connection, study)
    mark_for_scrub(connection)


def _erase_portfolios(connection: Connection, context: ServiceContext, study: str) -> None:
    days = _retention(connection, study).portfolios_days
    if days is None:
        return
    is_old = (portfolios.c.study == study, portfolios.c.created <= context.now() - days * _DAY)
    for row in connection.execute(select(portfolios).where(*is_old, portfolios.c.state != "deleted")).all():
        mine = (fits.c.party == row.party, fits.c.portfolio == row.id)
        if not cancel_fits(connection, context, *mine):  # what runs ends soon, and the portfolio goes the next time
            erase_portfolio(connection, context, row, because="retention")


def _erase_bundles(connection: Connection, context: ServiceContext, study: str) -> None:
    days = _retention(connection, study).bundles_days
    if days is None:
        return
    is_old = (fits.c.study == study, fits.c.ended <= context.now() - days * _DAY)
    for row in connection.execute(
        select(fits).where(*is_old, fits.c.sha256.is_not(None), fits.c.erased.is_(None))
    ).all():
        erase_bundles(connection, context, fits.c.party == row.party, fits.c.id == row.id)
        append(
            connection, context.now(), row.party, "bundle.erased", fit=row.id, sha256=row.sha256, because="retention"
        )
