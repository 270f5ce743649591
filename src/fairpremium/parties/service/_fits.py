"""Commands on fits: ask, look, cancel, fetch the bundle."""

import json
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Select, func, insert, select, update

from fairpremium.audit import MAX_GROUPS
from fairpremium.models import parse_terms
from fairpremium.parties.protocol import (
    ENDED,
    Fit,
    FitSpec,
    PortfolioSpec,
    Problem,
    Refusal,
    StudySpec,
    channel_of,
    choose_attributes,
    list_allowed,
    stored_fields,
)
from fairpremium.parties.store import after_commit
from fairpremium.parties.store.log import append, iso
from fairpremium.parties.store.schema import fits

from ._context import Party, ServiceContext, as_json, find_row
from ._leases import end_fit, is_fit
from ._portfolios import check_storage, find_portfolio
from ._studies import count_fits, find_study, keeps_no_reports, lock_study, spec_of
from .operations import log_event
from .reports import choose_epoch

Progress = tuple[str, str, float]  # state, phase, progress


def put_fit(connection: Connection, context: ServiceContext, who: Party, fit: str, spec: FitSpec) -> Fit:
    """Ask for a fit."""
    row = connection.execute(_mine(who, fit)).one_or_none()
    text = as_json(spec)
    if row is not None:
        if row.spec != text:
            raise Problem("conflict")
        return _view(row)
    study = spec_of(find_study(connection, who, spec.study))
    if keeps_no_reports(study, context.now()):
        raise Problem("reports-erased")
    lock_study(connection, spec.study)  # two requests must not both be the last one of rule 6
    chosen = channel_of(choose_attributes(study.attribute, spec.attributes))
    if study.attribute.kind == "several" and chosen is not None and len(chosen.groups) > MAX_GROUPS:
        many = f"{len(chosen.groups)} combinations of groups in one fit; at most {MAX_GROUPS} are allowed"
        raise Problem("not-allowed-here", many)
    for name, asked, allowed in (("family", spec.families, study.families), ("model", (spec.model,), study.models)):
        other = [one for one in asked if one not in allowed]
        if other:
            raise Problem("not-allowed-here", f"{name} {list_allowed(other)}; allowed: {list_allowed(allowed)}")
    portfolio = find_portfolio(connection, who, spec.portfolio, lock=True)
    if spec.report is not None and spec.report.by is not None:
        _check_classes(spec.report.by, study, PortfolioSpec.model_validate_json(portfolio.spec))
    if portfolio.study != spec.study:
        raise Problem("not-found")
    if portfolio.state == "deleted":
        raise Problem("portfolio-deleted")
    if portfolio.state != "sealed":
        raise Problem("portfolio-open")
    _check_columns(spec, PortfolioSpec.model_validate_json(portfolio.spec), study)
    epoch = choose_epoch(connection, context, who, spec.study, spec.epoch)
    same = (fits.c.study == spec.study, fits.c.spec == text, fits.c.epoch == epoch)
    known = select(fits.c.id).where(fits.c.party == who.name, *same)
    if connection.execute(known.limit(1)).first() is None and (
        count_fits(connection, spec.study, who.name) >= study.rules.fits
    ):
        raise Problem("quota", f"{study.rules.fits} distinct fits of a study (rule 6); an earlier one may be repeated")
    waiting = select(func.count()).where(fits.c.party == who.name, fits.c.state == "queued")
    if connection.execute(waiting).scalar_one() >= context.limits.queued_fits:
        most = context.limits.queued_fits
        raise Problem("quota", f"{most} fits that wait; ask again when one of them has ended")
    check_storage(connection, context, who, 1)  # its bundle has at least as many
    seq = append(connection, context.now(), who.name, "fit.requested", fit=fit, epoch=epoch, spec=stored_fields(spec))
    values = {"party": who.name, "id": fit, "study": spec.study, "portfolio": spec.portfolio, "spec": text}
    state = {"epoch": epoch, "state": "queued", "log_seq": seq, "created": context.now()}
    connection.execute(insert(fits).values(**values, **state))
    after_commit(connection, partial(log_event, "fit.queued", party=who.name, fit=fit))
    return get_fit(connection, context, who, fit)


def _check_columns(spec: FitSpec, portfolio: PortfolioSpec, study: StudySpec) -> None:
    """Refuse what the columns of the portfolio, or the release, cannot give; nothing is charged for that."""
    if spec.claims is None and portfolio.claims:
        raise Problem("cannot-fit", "the portfolio has claims; ask for a fit of claims")
    if spec.claims is not None:
        if not portfolio.claims:
            raise Problem("cannot-fit", "the portfolio has no claims; upload their number and amount")
        perils = [peril.name for peril in portfolio.claims]
        if isinstance(spec.claims.cap, dict) and not set(spec.claims.cap) <= set(perils):
            raise Problem(
                "cannot-fit", f"the cap names another peril than those of the portfolio: {list_allowed(perils)}"
            )
        if spec.release == "gaussian" and study.release is not None:
            raise Problem(
                "not-allowed-here", "Gaussian noise is for one outcome; claims need the release randomized, or default"
            )
    features = [feature.name for feature in portfolio.features]
    if spec.terms is not None and not set(parse_terms(spec.terms).columns) <= set(features):
        raise Problem(
            "cannot-fit", f"terms name another column than the portfolio's features: {list_allowed(features)}"
        )


def _check_classes(by: str, study: StudySpec, portfolio: PortfolioSpec) -> None:
    """Refuse classes that are no feature, and tables by class of reports that nothing else protects."""
    if study.release is None:
        raise Problem("not-allowed-here", "by: without rule 9 there are no tables by class")
    features = [feature.name for feature in portfolio.features]
    if by not in features:
        raise Problem("not-allowed-here", f"by: not a feature of the portfolio; allowed: {list_allowed(features)}")


def get_fit(connection: Connection, context: ServiceContext, who: Party, fit: str) -> Fit:
    """Return a fit of this insurer."""
    return _view(find_row(connection, _mine(who, fit)))


def list_fits(connection: Connection, context: ServiceContext, who: Party) -> list[Fit]:
    """Return all fits of this insurer, the newest last."""
    query = select(fits).where(fits.c.party == who.name).order_by(fits.c.created)
    return [_view(row) for row in connection.execute(query)]


def fit_states(connection: Connection) -> dict[tuple[str, str], Progress]:
    """Return how far all fits are, by insurer and id; progress counts in steps of 5 %."""
    columns = (fits.c.party, fits.c.id, fits.c.state, fits.c.phase, func.round(fits.c.progress * 20))
    return {(row[0], row[1]): tuple(row[2:]) for row in connection.execute(select(*columns))}


def cancel_fit(connection: Connection, context: ServiceContext, who: Party, fit: str) -> Fit:
    """Ask a fit to stop: at once when it waits, soon when it runs; one that ended stays as it is."""
    row = find_row(connection, _mine(who, fit), lock=True)
    if row.state == "queued":
        end_fit(connection, context, row, "cancelled")
    elif row.state == "running" and not row.cancel:
        connection.execute(update(fits).where(is_fit(row)).values(cancel=1))
        append(connection, context.now(), who.name, "fit.cancel", fit=fit)
    return get_fit(connection, context, who, fit)


def get_bundle(connection: Connection, context: ServiceContext, who: Party, fit: str) -> tuple[Path, str]:
    """Return the file and the digest of a finished fit's bundle; fetching it is an event."""
    row = find_row(connection, _mine(who, fit))
    if row.state != "succeeded":
        raise Problem("not-finished")
    if row.erased is not None:
        raise Problem("bundle-erased")
    append(connection, context.now(), who.name, "bundle.fetched", fit=fit, sha256=row.sha256)
    return context.files.path(row.sha256), row.sha256


def _mine(who: Party, fit: str) -> Select[Any]:
    return select(fits).where(fits.c.party == who.name, fits.c.id == fit)


def _view(row: Any) -> Fit:
    return Fit(
        **{name: getattr(row, name) for name in ("id", "epoch", "state", "phase", "progress", "sha256")},
        spec=FitSpec.model_validate_json(row.spec),
        refusal=None if row.refusal is None else Refusal.model_validate_json(row.refusal),
        problem=None if row.problem is None else json.loads(row.problem),
        matched=row.matched if row.state in ENDED else None,
        created=iso(row.created),
        ended=None if row.ended is None else iso(row.ended),
    )
