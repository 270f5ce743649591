"""Leases, by which workers take fits.

A worker acquires a lease of a fit. Every later write of the worker carries the lease's token, so that a worker that
lost its lease changes nothing. Only an expired lease makes a running fit free again.
"""

import json
import secrets
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import Connection, Update, case, delete, func, or_, select, update

from fairpremium.parties.protocol import Problem
from fairpremium.parties.store import after_commit
from fairpremium.parties.store.log import append
from fairpremium.parties.store.schema import fits, releases

from ._context import Party, ServiceContext
from .operations import log_event
from .reports import choose_epoch


class Lease(NamedTuple):
    """The right to work on a fit for a while."""

    party: str
    fit: str
    token: str
    attempt: int


class LeaseLost(Exception):  # noqa: N818 (an event, not an error of anybody)
    """Somebody else has the fit now, or it was cancelled."""


def acquire_lease(connection: Connection, context: ServiceContext) -> Lease | None:
    """Take a fit that waits or whose worker went silent: insurers in turn, the oldest fit of an insurer first.

    An attempt that ended without a result was a turn, too: a fit whose process dies does not keep others waiting.
    """
    now = context.now()
    free = or_(fits.c.state == "queued", (fits.c.state == "running") & (fits.c.lease_until < now))
    other = fits.alias()
    is_running = case(((other.c.state == "running") & (other.c.lease_until >= now), 1), else_=0)
    had_turn = func.max(func.coalesce(other.c.ended, other.c.lease_until, 0.0))
    of_insurer = select(func.sum(is_running), had_turn).where(other.c.party == fits.c.party)
    running, last = (of_insurer.with_only_columns(each).scalar_subquery() for each in of_insurer.selected_columns)
    while True:
        query = select(fits).where(free).order_by(running, last, fits.c.created, fits.c.party, fits.c.id).limit(1)
        row = connection.execute(query.with_for_update(skip_locked=True)).one_or_none()
        if row is None:
            return None
        if row.state == "running":
            _tell(connection, "fit.lost", row)
        if row.cancel:
            end_fit(connection, context, row, "cancelled")
            continue
        if row.attempt >= context.limits.attempts:
            end_fit(connection, context, row, "failed", problem=json.dumps(Problem("gave-up").to_dict()))
            continue
        token = secrets.token_hex(16)
        until = context.after(context.limits.lease_seconds)
        values = {"state": "running", "attempt": row.attempt + 1, "lease_until": until, "lease_token": token}
        if not row.epoch:  # asked for before there were epochs
            values["epoch"] = choose_epoch(connection, context, Party(row.party, "insurer"), row.study, None)
        connection.execute(update(fits).where(is_fit(row)).values(**values, phase="starting", progress=0.0))
        append(connection, now, row.party, "fit.started", fit=row.id, attempt=row.attempt + 1)
        _tell(connection, "fit.leased", row, attempt=row.attempt + 1)
        return Lease(row.party, row.id, token, row.attempt + 1)


def renew_lease(connection: Connection, context: ServiceContext, lease: Lease) -> None:
    """Prolong a lease, or learn that it is lost or that the fit should stop."""
    change = update(fits).where(*_held(lease), fits.c.cancel == 0)
    _apply(connection, change.values(lease_until=context.after(context.limits.lease_seconds)))


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
        end_fit(connection, context, row, "cancelled")
    else:
        until = context.now() if tried else None  # when the insurer had its turn
        values = {"state": "queued", "lease_until": until, "lease_token": None, "phase": "waiting", "progress": 0.0}
        connection.execute(update(fits).where(is_fit(row)).values(**values, attempt=row.attempt - (not tried)))
        if not tried:
            _tell(connection, "fit.returned", row)


def finish_fit(connection: Connection, context: ServiceContext, lease: Lease, state: str, **values: Any) -> bool:
    """Write the end of a fit, and return whether it is that one: who was to be cancelled is. Only the holder can."""
    row = connection.execute(select(fits).where(*_held(lease)).with_for_update()).one_or_none()
    if row is None:
        raise LeaseLost
    if row.cancel:
        end_fit(connection, context, row, "cancelled")
    else:
        end_fit(connection, context, row, state, **values)
    return not row.cancel


def refund(connection: Connection, party: str, fit: str) -> None:
    """Delete the charge of an attempt that was killed, before the same fit is charged again."""
    connection.execute(delete(releases).where(releases.c.party == party, releases.c.fit == fit))


def end_fit(connection: Connection, context: ServiceContext, row: Any, state: str, **values: Any) -> None:
    """Write the end of a fit, and an event. What was charged stays charged, for a rule has looked at the reports."""
    now = context.now()
    done = {"state": state, "ended": now, "lease_until": None, "lease_token": None, "phase": state, "progress": 1.0}
    connection.execute(update(fits).where(is_fit(row)).values(**done, **values))
    body: dict[str, Any] = {"fit": row.id}
    if values.get("sha256"):
        body["sha256"] = values["sha256"]
    for name in ("refusal", "problem"):
        if values.get(name):
            body[name] = json.loads(values[name])
    append(connection, now, row.party, f"fit.{state}", **body)
    more = {"rule": body["refusal"]["rule"]} if "refusal" in body else {}
    if "problem" in body:
        more["problem"] = Problem.from_dict(body["problem"]).code
    _tell(connection, f"fit.{state}", row, **more)


def _tell(connection: Connection, event: str, row: Any, **more: Any) -> None:
    """Write to the operational log what became of a fit, once it is so."""
    fields = {"party": row.party, "fit": row.id, "attempt": row.attempt, **more}
    after_commit(connection, partial(log_event, event, **fields))


def _held(lease: Lease) -> tuple[Any, ...]:
    mine = (fits.c.party == lease.party, fits.c.id == lease.fit)
    return (*mine, fits.c.lease_token == lease.token, fits.c.state == "running")


def is_fit(row: Any) -> Any:
    """Return the condition that selects the fit of a row."""
    return (fits.c.party == row.party) & (fits.c.id == row.id)
