"""Rule 9 in numbers: what the releases to an insurer have cost; the worker checks it, the console shows it."""

import json
import math
from collections.abc import Iterable, Iterator
from typing import Any

from sqlalchemy import Connection, select

from fairpremium.parties.protocol import ReleaseRules, Spent, StudySpec, names_of
from fairpremium.parties.release import ReleasePlan
from fairpremium.parties.store.schema import participants, releases, studies


def releases_to(connection: Connection, study: str, party: str) -> list[Any]:
    """Return the releases of a study to one insurer."""
    mine = (releases.c.study == study, releases.c.party == party)
    return list(connection.execute(select(releases).where(*mine).order_by(releases.c.fit)))


def attributes_of(release: Any) -> tuple[str | None, ...]:
    """Return the names of the attributes whose reports a release used; that of a study with one is called None."""
    return (None,) if release.attributes is None else tuple(json.loads(release.attributes))


def spent_by(connection: Connection, study: str, spec: StudySpec, party: str) -> Spent | None:
    """Add up what releases have cost an insurer, for each of several attributes and together; None without rule 9."""
    if spec.release is None:
        return None
    made = releases_to(connection, study, party)
    each = {name: plan_of(spec.release, made, only=name).spent for name in names_of(spec.attribute) if name is not None}
    spent = plan_of(spec.release, made).spent
    total = spent + sum(_spent_elsewhere(connection, study, spec, party))
    return Spent(epsilon=spent, by_attribute=each or None, with_other_studies=total if math.isfinite(total) else None)


def _spent_elsewhere(connection: Connection, study: str, spec: StudySpec, party: str) -> Iterator[float]:
    """Return what each other study of an insurer with one of the same collectors has cost.

    Each study has linkage secrets of its own, so that nobody can tell whether the same person reported to two of them.
    The sum holds if everybody did, and told the same.
    """
    mine = (participants.c.party == party, participants.c.role == "insurer", studies.c.id != study)
    query = select(studies.c.id, studies.c.spec).join(participants, participants.c.study == studies.c.id).where(*mine)
    for row in connection.execute(query).all():
        other = StudySpec.model_validate_json(row.spec)
        if set(other.collectors) & set(spec.collectors):
            made = releases_to(connection, row.id, party)
            if other.release is not None:
                yield plan_of(other.release, made).spent
            elif made:  # without noise
                yield math.inf


def plan_of(
    rule: ReleaseRules, made: Iterable[Any], *more: tuple[int, str | None], only: str | None = None
) -> ReleasePlan:
    """Add up releases: the second randomization once for each epoch and attribute, and every distinct Gaussian fit.

    - `rule`: Rule 9 of the study.
    - `made` (iterable of rows): From `releases_to`. A fit that was asked for again has the same noise and costs
      nothing.
    - `more`: Epochs and attributes whose reports are randomized as well.
    - `only`: Add up what was released about this attribute. A Gaussian release of several attributes tells about each
      of them what it tells about all together, so that the plan of all attributes can cost less than theirs in sum.
    """
    rows = [row for row in made if only is None or only in attributes_of(row)]
    plan = ReleasePlan(rule.epsilon, rule.delta)
    randomized = {(row.epoch, name) for row in rows for name in attributes_of(row)} | set(more)
    if only is not None:
        randomized = {(epoch, name) for epoch, name in randomized if name == only}
    if randomized:
        plan = plan.after("randomized", len(randomized) * rule.randomized_epsilon)
    distinct = {row.identity: row.epsilon for row in rows if row.mechanism == "gaussian"}
    for epsilon in distinct.values():
        plan = plan.after("gaussian", epsilon)
    return plan
