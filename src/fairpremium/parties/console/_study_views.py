"""What the operator and the auditor may see of studies: released counts and what insurers have spent.

Nothing here carries a report, a key of a policy, a row of a portfolio or a small count.
"""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select

from fairpremium.parties.protocol import (
    Answered,
    CountedEpoch,
    EstimatedChannel,
    SeveralAttributes,
    StudySpec,
    TrueAttribute,
    channel_of,
    one_attribute,
)
from fairpremium.parties.service import (
    EPOCH_LEAP,
    ServiceContext,
    count_epochs,
    count_fits,
    in_force,
    read_answered,
    spec_of,
    spent_by,
)
from fairpremium.parties.store.schema import keys, studies


@dataclass(frozen=True)
class InsurerView:
    """What an insurer has used up of a study, and of each of several attributes; `spent` is None without rule 9."""

    name: str
    has_key: bool
    fits: int
    spent: float | None
    by_attribute: tuple[tuple[str, float], ...]
    with_other_studies: float | None
    budget: float

    @property
    def share(self) -> float:
        """The part of the budget that is spent."""
        return min((self.spent or 0.0) / self.budget, 1.0) if self.budget else 0.0


@dataclass(frozen=True)
class StudyView:
    """A study. `epochs` have the numbers of reports as they were released, the newest epoch last.

    `attributes` has the name, the groups and the epsilon of each of several attributes.

    `status` is what the state and the dates come to; `channel` says how reports come about, and `epsilon` what a report
    may tell at most. `answered` is how many people answered on the page of each collector, as it was released last.
    """

    id: str
    spec: StudySpec
    status: str
    groups: tuple[str, ...]
    attributes: tuple[tuple[str, tuple[str, ...], float | None], ...]
    channel: str
    epsilon: float | None
    collectors: tuple[tuple[str, bool], ...]
    insurers: tuple[InsurerView, ...]
    epochs: tuple[CountedEpoch, ...]
    answered: tuple[tuple[str, Answered | None], ...]
    created: float

    @property
    def fits(self) -> int:
        """Distinct fits of all insurers."""
        return sum(insurer.fits for insurer in self.insurers)

    @property
    def top_spender(self) -> InsurerView | None:
        """The insurer that has spent most of its budget."""
        charged = [insurer for insurer in self.insurers if insurer.spent is not None]
        return max(charged, key=lambda insurer: insurer.share, default=None)


def read_studies(connection: Connection, context: ServiceContext) -> list[StudyView]:
    """Read all studies, the newest first."""
    rows = connection.execute(select(studies).order_by(studies.c.created.desc(), studies.c.id)).all()
    roles = _roles(connection, context)
    return [_view(connection, context, row, roles) for row in rows]


def read_study(connection: Connection, context: ServiceContext, study: str) -> StudyView | None:
    """Read one study."""
    row = connection.execute(select(studies).where(studies.c.id == study)).one_or_none()
    return None if row is None else _view(connection, context, row, _roles(connection, context))


def read_parties(connection: Connection) -> list[str]:
    """Read the names that have a key or had one."""
    return list(connection.execute(select(keys.c.party).distinct().order_by(keys.c.party)).scalars())


def _roles(connection: Connection, context: ServiceContext) -> dict[str, str]:
    """Read the roles of the parties whose keys are in force."""
    rows = connection.execute(select(keys.c.party, keys.c.role).where(in_force(context.now())).distinct())
    return {row.party: row.role for row in rows}


def _view(connection: Connection, context: ServiceContext, row: Any, roles: dict[str, str]) -> StudyView:
    spec = spec_of(row)
    groups, channel, epsilon = _describe(spec)
    return StudyView(
        id=row.id,
        spec=spec,
        status=_status(row.state, spec, context.now()),
        groups=groups,
        attributes=_attributes(spec),
        channel=channel,
        epsilon=epsilon,
        collectors=tuple((name, roles.get(name) == "collector") for name in spec.collectors),
        insurers=tuple(_insurer(connection, row.id, spec, name, roles) for name in spec.insurers),
        epochs=_began(count_epochs(connection, row.id, spec)),
        answered=tuple((name, read_answered(connection, row.id, name)) for name in spec.collectors if spec.question),
        created=row.created,
    )


def _began(epochs: tuple[CountedEpoch, ...]) -> tuple[CountedEpoch, ...]:
    """Leave out what stands for epochs that a restore lost: it never began. Numbers of others follow each other."""
    before = (0, *(epoch.number for epoch in epochs))
    return tuple(epoch for epoch, last in zip(epochs, before, strict=False) if epoch.number - last < EPOCH_LEAP)


def _status(state: str, spec: StudySpec, now: float) -> str:
    if state == "open" and spec.opens and now < spec.opens.timestamp():
        return "opens later"
    return "over" if state == "open" and spec.closes and now >= spec.closes.timestamp() else state


def _describe(spec: StudySpec) -> tuple[tuple[str, ...], str, float | None]:
    """Return the groups of a study, its channel in words, and the epsilon of a report."""
    attribute, epsilon = spec.attribute, None
    groups: Any
    if isinstance(attribute, EstimatedChannel):
        groups, words = attribute.groups, f"Noise unknown, estimated at each fit ({attribute.method})"
    elif isinstance(attribute, TrueAttribute):
        groups, words = attribute.groups, "True attribute, without noise"
    else:
        known = channel_of(attribute)
        assert known is not None
        groups, words = known.groups, "Randomized response"
        if isinstance(attribute, SeveralAttributes):
            words += ", each attribute by itself"
        elif known.keep == known.keep:
            words += f", truth kept with probability {known.keep:.4g}"
        epsilon = _finite(known.epsilon)
    return tuple(", ".join(map(str, g)) if isinstance(g, tuple) else str(g) for g in groups), words, epsilon


def _attributes(spec: StudySpec) -> tuple[tuple[str, tuple[str, ...], float | None], ...]:
    """Return the name, the groups and the epsilon of each of several attributes."""
    if not isinstance(spec.attribute, SeveralAttributes):
        return ()
    found = []
    for one in spec.attribute.attributes:
        channel = channel_of(one_attribute(spec.attribute, one.name))
        assert channel is not None
        found.append((one.name, tuple(map(str, channel.groups)), _finite(channel.epsilon)))
    return tuple(found)


def _finite(epsilon: float) -> float | None:
    return epsilon if epsilon < float("inf") else None


def _insurer(connection: Connection, study: str, spec: StudySpec, name: str, roles: dict[str, str]) -> InsurerView:
    rule, spent = spec.release, spent_by(connection, study, spec, name)
    return InsurerView(
        name=name,
        has_key=roles.get(name) == "insurer",
        fits=count_fits(connection, study, name),
        spent=None if spent is None else spent.epsilon,
        by_attribute=tuple((spent.by_attribute or {}).items()) if spent is not None else (),
        with_other_studies=None if spent is None else spent.with_other_studies,
        budget=0.0 if rule is None else rule.epsilon,
    )
