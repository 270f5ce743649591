"""Rule 9 in numbers: what the releases to an insurer have cost; the worker checks it, the console shows it."""

import json
from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, select

from fairpremium.parties.protocol import ReleaseRules, Spent, StudySpec, names_of
from fairpremium.parties.release import ReleasePlan
from fairpremium.parties.store.schema import releases


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
    return Spent(epsilon=plan_of(spec.release, made).spent, by_attribute=each or None)


def plan_of(rule: ReleaseRules, made: Iterable[Any], *more: str | None, only: str | None = None) -> ReleasePlan:
    """Add up releases: the second randomization once for each attribute, and every distinct Gaussian fit.

    - `rule`: Rule 9 of the study.
    - `made` (iterable of rows): From `releases_to`. A fit that was asked for again has the same noise and costs
      nothing.
    - `more`: Attributes whose reports are randomized as well.
    - `only`: Add up what was released about this attribute. A Gaussian release of several attributes tells about each
      of them what it tells about all together, so that the plan of all attributes can cost less than theirs in sum.
    """
    rows = [row for row in made if only is None or only in attributes_of(row)]
    plan = ReleasePlan(rule.epsilon, rule.delta)
    randomized = {name for row in rows for name in attributes_of(row)} | set(more)
    if only is not None:
        randomized &= {only}
    if randomized:
        plan = plan.after("randomized", len(randomized) * rule.randomized_epsilon)
    distinct = {row.identity: row.epsilon for row in rows if row.mechanism == "gaussian"}
    for epsilon in distinct.values():
        plan = plan.after("gaussian", epsilon)
    return plan
