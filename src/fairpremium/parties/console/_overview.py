"""What the operator and the auditor may see, read from the database: rounded counts, released numbers, progress.

Nothing here carries a report, a key of a policy, a row of a portfolio or a small count.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select

from fairpremium.parties.protocol import ENDED, EstimatedChannel, FitSpec, KnownChannel, Refusal, StudySpec, round_count
from fairpremium.parties.service import ServiceContext, count_fits, count_reports, plan_of, releases_to, spec_of
from fairpremium.parties.store.log import count_entries
from fairpremium.parties.store.schema import fits, keys, log, releases, studies
from fairpremium.privacy import Channel

__all__ = [
    "EVENTS", "ChannelView", "FitView", "InsurerView", "LogView", "QueueView", "StudyView",
    "read_fit", "read_fits", "read_log", "read_parties", "read_queue", "read_studies", "read_study",
]  # fmt: skip

# What the log tells of, in the order in which it usually happens.
EVENTS = (
    "key.added", "key.revoked",
    "study.declared", "study.open", "study.closed",
    "report.taken", "reports.taken",
    "portfolio.declared", "portfolio.part", "portfolio.sealed", "portfolio.erased",
    "fit.requested", "fit.started", "fit.cancel", "fit.succeeded", "fit.refused", "fit.failed", "fit.cancelled",
    "bundle.fetched",
)  # fmt: skip


@dataclass(frozen=True)
class ChannelView:
    """How reports come about, in words, and what a report may tell at most."""

    words: str
    epsilon: float | None
    is_private: bool


@dataclass(frozen=True)
class InsurerView:
    """What an insurer has used up of a study. `spent` is None where rule 9 is off."""

    name: str
    has_key: bool
    fits: int
    allowed: int
    spent: float | None
    budget: float | None
    delta: float | None

    @property
    def share(self) -> float:
        """The part of the budget that is spent."""
        return 0.0 if not self.budget or self.spent is None else min(self.spent / self.budget, 1.0)


@dataclass(frozen=True)
class StudyView:
    """A study. `reports` is rounded by rule 7; None stands for at most `suppressed`."""

    id: str
    title: str
    state: str
    standing: str
    groups: tuple[str, ...]
    channel: ChannelView
    collectors: tuple[tuple[str, bool], ...]
    insurers: tuple[InsurerView, ...]
    reports: int | None
    suppressed: int
    created: float
    spec: StudySpec

    @property
    def fits(self) -> int:
        """Distinct fits of all insurers."""
        return sum(insurer.fits for insurer in self.insurers)

    @property
    def hungriest(self) -> InsurerView | None:
        """The insurer that has spent most of its budget."""
        charged = [insurer for insurer in self.insurers if insurer.spent is not None]
        return max(charged, key=lambda insurer: insurer.share, default=None)


@dataclass(frozen=True)
class FitView:
    """A fit, with what was released of it. `cost` is what it took from the budget of rule 9, in words."""

    party: str
    id: str
    study: str
    spec: FitSpec
    state: str
    phase: str
    progress: float
    attempt: int
    attempts: int
    cancelling: bool
    silent: bool
    refusal: Refusal | None
    problem: str | None
    matched: int | None
    suppressed: int
    summary: dict[str, Any] | None
    cost: str
    sha256: str | None
    created: float
    ended: float | None

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


@dataclass(frozen=True)
class LogView:
    """A page of the log, the newest entry first; numbers for the pages beside it, and of the last entry of all."""

    entries: tuple[Any, ...]
    older: int | None
    newer: int | None
    last: int


# --- studies ---


def read_studies(connection: Connection, context: ServiceContext) -> list[StudyView]:
    """Read all studies, the newest first."""
    known = _parties(connection)
    rows = connection.execute(select(studies).order_by(studies.c.created.desc(), studies.c.id)).all()
    return [_study(connection, context, row, known) for row in rows]


def read_study(connection: Connection, context: ServiceContext, study: str) -> StudyView | None:
    """Read one study."""
    row = connection.execute(select(studies).where(studies.c.id == study)).one_or_none()
    return None if row is None else _study(connection, context, row, _parties(connection))


def _study(connection: Connection, context: ServiceContext, row: Any, known: dict[str, str]) -> StudyView:
    spec = spec_of(row)
    return StudyView(
        id=row.id,
        title=spec.title,
        state=row.state,
        standing=_standing(row.state, spec, context.now()),
        groups=_groups(spec),
        channel=_channel(spec),
        collectors=tuple((name, known.get(name) == "collector") for name in spec.collectors),
        insurers=tuple(_insurer(connection, row.id, spec, name, known) for name in spec.insurers),
        reports=round_count(count_reports(connection, row.id), spec.rules),
        suppressed=spec.rules.suppress_up_to,
        created=row.created,
        spec=spec,
    )


def _parties(connection: Connection) -> dict[str, str]:
    rows = connection.execute(select(keys.c.party, keys.c.role).where(keys.c.revoked.is_(None)).distinct())
    return {row.party: row.role for row in rows}


def _standing(state: str, spec: StudySpec, now: float) -> str:
    """Say what the state and the dates of a study come to."""
    if state == "open" and spec.opens and now < spec.opens.timestamp():
        return "opens later"
    if state == "open" and spec.closes and now >= spec.closes.timestamp():
        return "over"
    return state


def _groups(spec: StudySpec) -> tuple[str, ...]:
    attribute = spec.attribute
    groups = (
        Channel.from_descriptor(attribute.channel).groups if isinstance(attribute, KnownChannel) else attribute.groups
    )
    return tuple(", ".join(map(str, group)) if isinstance(group, tuple) else str(group) for group in groups)


def _channel(spec: StudySpec) -> ChannelView:
    attribute = spec.attribute
    if isinstance(attribute, KnownChannel):
        channel = Channel.from_descriptor(attribute.channel)
        kept = f", truth kept with probability {channel.keep:.4g}" if channel.keep == channel.keep else ""
        finite = channel.epsilon if channel.epsilon < float("inf") else None
        return ChannelView(f"Randomized response{kept}", finite, finite is not None)
    if isinstance(attribute, EstimatedChannel):
        return ChannelView(f"Noise unknown, estimated at each fit ({attribute.method})", None, False)
    return ChannelView("True attribute, without noise", None, False)


def _insurer(connection: Connection, study: str, spec: StudySpec, name: str, known: dict[str, str]) -> InsurerView:
    rule = spec.release
    spent = None if rule is None else plan_of(rule, releases_to(connection, study, name)).spent
    return InsurerView(
        name=name,
        has_key=known.get(name) == "insurer",
        fits=count_fits(connection, study, name),
        allowed=spec.rules.fits,
        spent=spent,
        budget=None if rule is None else rule.epsilon,
        delta=None if rule is None else rule.delta,
    )


# --- fits ---


def read_fits(connection: Connection, context: ServiceContext, study: StudyView) -> list[FitView]:
    """Read the fits of a study, the newest first."""
    query = select(fits).where(fits.c.study == study.id).order_by(fits.c.created.desc(), fits.c.party, fits.c.id)
    rows = connection.execute(query).all()
    made = _costs(connection, study, rows)
    return [_fit(context, study, row, made) for row in rows]


def read_fit(connection: Connection, context: ServiceContext, study: StudyView, party: str, fit: str) -> FitView | None:
    """Read one fit of a study."""
    return next((f for f in read_fits(connection, context, study) if (f.party, f.id) == (party, fit)), None)


def _fit(context: ServiceContext, study: StudyView, row: Any, costs: dict[tuple[str, str], str]) -> FitView:
    problem = _json(row.problem)
    return FitView(
        party=row.party,
        id=row.id,
        study=row.study,
        spec=FitSpec.model_validate_json(row.spec),
        state=row.state,
        phase=row.phase,
        progress=row.progress,
        attempt=row.attempt,
        attempts=context.limits.attempts,
        cancelling=bool(row.cancel) and row.state == "running",
        silent=row.state == "running" and row.lease_until is not None and row.lease_until < context.now(),
        refusal=_refusal(row.refusal),
        problem=None if problem is None else str(problem.get("title", "")),
        matched=row.matched,
        suppressed=study.suppressed,
        summary=_json(row.summary),
        cost=costs.get((row.party, row.id), ""),
        sha256=row.sha256,
        created=row.created,
        ended=row.ended,
    )


def _costs(connection: Connection, study: StudyView, rows: Any) -> dict[tuple[str, str], str]:
    """Say what each fit took from the budget; the first of equal ones pays."""
    ended = {(row.party, row.id): row.ended or 0.0 for row in rows}
    made: list[Any] = list(connection.execute(select(releases).where(releases.c.study == study.id)))
    made.sort(key=lambda row: (ended.get((row.party, row.fit), 0.0), row.fit))
    rule = study.spec.release
    first: dict[tuple[str, str], str] = {}
    seen: set[str] = set()
    costs = {}
    for row in made:
        payer = first.setdefault((row.party, row.identity), row.fit)
        once = "" if rule is None or row.party in seen else f"{rule.randomized_epsilon:g} once"
        seen.add(row.party)
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
    if not text:
        return None
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def read_queue(connection: Connection, context: ServiceContext) -> QueueView:
    """Count fits that wait and that run."""
    now = context.now()
    columns = (fits.c.state, fits.c.lease_until, fits.c.created)
    rows = connection.execute(select(*columns).where(fits.c.state.in_(("queued", "running")))).all()
    waiting = [row.created for row in rows if row.state == "queued"]
    silent = sum(row.state == "running" and (row.lease_until or 0.0) < now for row in rows)
    return QueueView(len(waiting), len(rows) - len(waiting) - silent, silent, min(waiting, default=None))


# --- the log ---


def read_log(
    connection: Connection, *, party: str = "", event: str = "", before: int | None = None, size: int = 50
) -> LogView:
    """Read a page of the log, the newest entry first.

    Parameters
    ----------
    connection : Connection
    party, event : str
        Only entries of this party and this event; empty for all.
    before : int or None
        Only entries with a smaller number.
    size : int
    """
    wanted = []
    if party:
        wanted.append(log.c.party == party)
    if event:
        wanted.append(log.c.event == event)
    query = select(log).where(*wanted).order_by(log.c.seq.desc()).limit(size + 1)
    rows = connection.execute(query if before is None else query.where(log.c.seq < before)).all()
    newer = None
    if before is not None:
        later = select(log.c.seq).where(*wanted, log.c.seq >= before).order_by(log.c.seq).limit(size)
        above = connection.execute(later).scalars().all()
        newer = above[-1] + 1 if above else None
    last = count_entries(connection)
    return LogView(tuple(rows[:size]), rows[size - 1].seq if len(rows) > size else None, newer, last)


def read_parties(connection: Connection) -> list[str]:
    """Read the names that have a key or had one."""
    return list(connection.execute(select(keys.c.party).distinct().order_by(keys.c.party)).scalars())
