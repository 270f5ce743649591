"""Commands on fits, and the leases by which workers take them.

A worker acquires a lease of a fit. Every later write of the worker carries the lease's token, so that a worker that
lost its lease changes nothing. Only an expired lease makes a running fit free again.
"""

import json
import secrets
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, Update, delete, func, insert, or_, select, update

from fairpremium.parties.protocol import ENDED, Fit, FitSpec, Problem, Refusal
from fairpremium.parties.store.log import append, iso
from fairpremium.parties.store.schema import fits, releases

from ._context import Party, ServiceContext, as_json, find_row
from ._portfolios import find_portfolio
from ._studies import count_fits, find_study, lock_study, spec_of

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
    lock_study(connection, spec.study)  # two requests must not both be the last one of rule 6
    if spec.family not in study.families:
        raise Problem("not-allowed-here", "family")
    if spec.model not in study.models:
        raise Problem("not-allowed-here", "model")
    portfolio = find_portfolio(connection, who, spec.portfolio, lock=True)
    if portfolio.study != spec.study:
        raise Problem("not-found")
    if portfolio.state == "deleted":
        raise Problem("portfolio-deleted")
    if portfolio.state != "sealed":
        raise Problem("portfolio-open")
    known = select(fits.c.id).where(fits.c.party == who.name, fits.c.study == spec.study, fits.c.spec == text)
    if connection.execute(known.limit(1)).first() is None and (
        count_fits(connection, spec.study, who.name) >= study.rules.fits
    ):
        raise Problem("quota", "distinct fits of a study")
    seq = append(connection, context.now(), who.name, "fit.requested", fit=fit, spec=spec.model_dump(mode="json"))
    values = {"party": who.name, "id": fit, "study": spec.study, "portfolio": spec.portfolio, "spec": text}
    connection.execute(insert(fits).values(**values, state="queued", log_seq=seq, created=context.now()))
    return get_fit(connection, context, who, fit)


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
        _end(connection, context, row, "cancelled")
    elif row.state == "running" and not row.cancel:
        connection.execute(update(fits).where(_is(row)).values(cancel=1))
        append(connection, context.now(), who.name, "fit.cancel", fit=fit)
    return get_fit(connection, context, who, fit)


def get_bundle(connection: Connection, context: ServiceContext, who: Party, fit: str) -> tuple[Path, str]:
    """Return the file and the digest of a finished fit's bundle; fetching it is an event."""
    row = find_row(connection, _mine(who, fit))
    if row.state != "succeeded":
        raise Problem("not-finished")
    append(connection, context.now(), who.name, "bundle.fetched", fit=fit, sha256=row.sha256)
    return context.files.path(row.sha256), row.sha256


# --- leases ----------------------------------------------------------------------------------------------------------


class Lease(NamedTuple):
    """The right to work on a fit for a while."""

    party: str
    fit: str
    token: str
    attempt: int


class LeaseLost(Exception):  # noqa: N818 (an event, not an error of anybody)
    """Somebody else has the fit now, or it was cancelled."""


def acquire_lease(connection: Connection, context: ServiceContext) -> Lease | None:
    """Take the oldest fit that waits or whose worker went silent."""
    now = context.now()
    free = or_(fits.c.state == "queued", (fits.c.state == "running") & (fits.c.lease_until < now))
    while True:
        query = select(fits).where(free).order_by(fits.c.created, fits.c.party, fits.c.id).limit(1)
        row = connection.execute(query.with_for_update(skip_locked=True)).one_or_none()
        if row is None:
            return None
        if row.cancel:
            _end(connection, context, row, "cancelled")
            continue
        if row.attempt >= context.limits.attempts:
            _end(connection, context, row, "failed", problem=json.dumps(Problem("gave-up").to_dict()))
            continue
        token = secrets.token_hex(16)
        until = now + context.limits.lease_seconds
        values = {"state": "running", "attempt": row.attempt + 1, "lease_until": until, "lease_token": token}
        connection.execute(update(fits).where(_is(row)).values(**values, phase="starting", progress=0.0))
        append(connection, now, row.party, "fit.started", fit=row.id, attempt=row.attempt + 1)
        return Lease(row.party, row.id, token, row.attempt + 1)


def renew_lease(connection: Connection, context: ServiceContext, lease: Lease) -> None:
    """Prolong a lease, or learn that it is lost or that the fit should stop."""
    change = update(fits).where(*_held(lease), fits.c.cancel == 0)
    _apply(connection, change.values(lease_until=context.now() + context.limits.lease_seconds))


def record_progress(connection: Connection, lease: Lease, phase: str, progress: float) -> None:
    """Say how far the fit is."""
    _apply(connection, update(fits).where(*_held(lease)).values(phase=phase, progress=min(max(progress, 0.0), 1.0)))


def _apply(connection: Connection, change: Update) -> None:
    if not connection.execute(change).rowcount:
        raise LeaseLost


def release_lease(connection: Connection, context: ServiceContext, lease: Lease, *, tried: bool = True) -> None:
    """End a lease without a result: the fit waits again, or ends if that was asked for.

    `tried` says whether this counts as an attempt; a worker that was told to stop does not use one up.
    """
    row = connection.execute(select(fits).where(*_held(lease)).with_for_update()).one_or_none()
    if row is None:
        return
    if row.cancel:
        _end(connection, context, row, "cancelled")
    else:
        values = {"state": "queued", "lease_until": None, "lease_token": None, "phase": "waiting", "progress": 0.0}
        connection.execute(update(fits).where(_is(row)).values(**values, attempt=row.attempt - (not tried)))


def finish_fit(connection: Connection, context: ServiceContext, lease: Lease, state: str, **values: Any) -> None:
    """Write the end of a fit; only the holder of the lease can."""
    row = connection.execute(select(fits).where(*_held(lease)).with_for_update()).one_or_none()
    if row is None:
        raise LeaseLost
    _end(connection, context, row, state, **values)


def refund(connection: Connection, party: str, fit: str) -> None:
    """Delete the charge of a fit of which nothing was released."""
    connection.execute(delete(releases).where(releases.c.party == party, releases.c.fit == fit))


def _end(connection: Connection, context: ServiceContext, row: Any, state: str, **values: Any) -> None:
    now = context.now()
    if state == "cancelled":
        refund(connection, row.party, row.id)
    done = {"state": state, "ended": now, "lease_until": None, "lease_token": None, "phase": state, "progress": 1.0}
    connection.execute(update(fits).where(_is(row)).values(**done, **values))
    body: dict[str, Any] = {"fit": row.id}
    if values.get("sha256"):
        body["sha256"] = values["sha256"]
    for name in ("refusal", "problem"):
        if values.get(name):
            body[name] = json.loads(values[name])
    append(connection, now, row.party, f"fit.{state}", **body)


def _held(lease: Lease) -> tuple[Any, ...]:
    mine = (fits.c.party == lease.party, fits.c.id == lease.fit)
    return (*mine, fits.c.lease_token == lease.token, fits.c.state == "running")


def _is(row: Any) -> Any:
    return (fits.c.party == row.party) & (fits.c.id == row.id)


def _mine(who: Party, fit: str) -> Select[Any]:
    return select(fits).where(fits.c.party == who.name, fits.c.id == fit)


def _view(row: Any) -> Fit:
    return Fit(
        **{name: getattr(row, name) for name in ("id", "state", "phase", "progress", "sha256")},
        spec=FitSpec.model_validate_json(row.spec),
        refusal=None if row.refusal is None else Refusal.model_validate_json(row.refusal),
        problem=None if row.problem is None else json.loads(row.problem),
        matched=row.matched if row.state in ENDED else None,
        created=iso(row.created),
        ended=None if row.ended is None else iso(row.ended),
    )
