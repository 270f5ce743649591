"""What the operator and the auditor may see of fits: progress, refusals, and the numbers that were released."""

import json
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select

from fairpremium.parties.protocol import ENDED, FitSpec, Refusal
from fairpremium.parties.service import ServiceContext, attributes_of
from fairpremium.parties.store.schema import fits, releases

from ._study_views import StudyView

_SHOWN = (
    *("party", "id", "epoch", "state", "phase", "progress", "attempt"),
    *("matched", "sha256", "created", "ended", "erased"),
)


@dataclass(frozen=True)
class FitView:
    """A fit, with what was released of it. `cost` is what it took from the budget of rule 9, in words."""

    party: str
    id: str
    epoch: int
    state: str
    phase: str
    progress: float
    attempt: int
    matched: int | None
    sha256: str | None
    created: float
    ended: float | None
    erased: float | None
    attempts: int
    spec: FitSpec
    is_cancelling: bool
    is_silent: bool
    refusal: Refusal | None
    problem: str | None
    summary: dict[str, Any] | None
    cost: str

    @property
    def percent(self) -> int:
        """Progress in whole per cent."""
        return int(100 * self.progress)

    @property
    def has_ended(self) -> bool:
        """Is it over, one way or another?"""
        return self.state in ENDED


@dataclass(frozen=True)
class QueueView:
    """How the workers are doing: fits that wait, that run, and that run but whose worker went silent."""

    waiting: int
    running: int
    silent: int
    waiting_since: float | None


def read_fits(connection: Connection, context: ServiceContext, study: StudyView) -> list[FitView]:
    """Read the fits of a study, the newest first."""
    query = select(fits).where(fits.c.study == study.id).order_by(fits.c.created.desc(), fits.c.party, fits.c.id)
    rows = connection.execute(query).all()
    costs = _costs(connection, study, rows)
    return [_view(context, row, costs.get((row.party, row.id), "")) for row in rows]


def read_queue(connection: Connection, context: ServiceContext) -> QueueView:
    """Count fits that wait and that run."""
    columns = (fits.c.state, fits.c.lease_until, fits.c.created)
    rows = connection.execute(select(*columns).where(fits.c.state.in_(("queued", "running")))).all()
    waiting = [row.created for row in rows if row.state == "queued"]
    silent = sum(_is_silent(context, row) for row in rows)
    return QueueView(len(waiting), len(rows) - len(waiting) - silent, silent, min(waiting, default=None))


def _is_silent(context: ServiceContext, row: Any) -> bool:
    """Has the lease of a running fit expired?"""
    return bool(row.state == "running" and (row.lease_until or 0.0) < context.now())


def _view(context: ServiceContext, row: Any, cost: str) -> FitView:
    problem = _json(row.problem)
    return FitView(
        **{name: getattr(row, name) for name in _SHOWN},
        attempts=context.limits.attempts,
        spec=FitSpec.model_validate_json(row.spec),
        is_cancelling=bool(row.cancel) and row.state == "running",
        is_silent=_is_silent(context, row),
        refusal=_refusal(row.refusal),
        problem=None if problem is None else str(problem.get("title", "")),
        summary=_json(row.summary),
        cost=cost,
    )


def _costs(connection: Connection, study: StudyView, rows: Any) -> dict[tuple[str, str], str]:
    """Say what each fit took from the budget; the first of equal ones pays."""
    ended = {(row.party, row.id): row.ended or 0.0 for row in rows}
    made: list[Any] = list(connection.execute(select(releases).where(releases.c.study == study.id)))
    made.sort(key=lambda row: (ended.get((row.party, row.fit), 0.0), row.fit))
    rule = study.spec.release
    first: dict[tuple[str, str], str] = {}
    seen: set[tuple[str, int, str | None]] = set()
    costs = {}
    for row in made:
        payer = first.setdefault((row.party, row.identity), row.fit)
        new = {(row.party, row.epoch, name) for name in attributes_of(row)} - seen
        once = "" if rule is None or not new else f"{len(new) * rule.randomized_epsilon:g} once per epoch"
        seen |= new
        if row.mechanism == "none":
            words = "rule 9 is off"
        elif row.mechanism == "randomized":
            words = once or "nothing more"
        elif payer != row.fit:
            words = f"nothing more, it equals {payer}"
        else:
            words = f"{row.epsilon:g}" + (f" and {once}" if once else "")
        costs[row.party, row.fit] = words
    return costs


def _refusal(text: str | None) -> Refusal | None:
    try:
        return Refusal.model_validate_json(text) if text else None
    except ValueError:
        return None


def _json(text: str | None) -> dict[str, Any] | None:
    try:
        found = json.loads(text or "")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
