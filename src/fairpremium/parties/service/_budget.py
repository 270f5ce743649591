"""Rule 9 in numbers: what the releases to an insurer have cost; the worker checks it, the console shows it."""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, select

from fairpremium.parties.protocol import ReleaseRules
from fairpremium.parties.release import ReleasePlan
from fairpremium.parties.store.schema import releases


def releases_to(connection: Connection, study: str, party: str) -> list[Any]:
    """Return the releases of a study to one insurer."""
    mine = (releases.c.study == study, releases.c.party == party)
    return list(connection.execute(select(releases).where(*mine).order_by(releases.c.fit)))


def plan_of(rule: ReleaseRules, made: Iterable[Any]) -> ReleasePlan:
    """Add up releases: nothing for none, else the second randomization once and every distinct Gaussian fit.

    - `rule`: Rule 9 of the study.
    - `made` (iterable of rows): From `releases_to`. A fit that was asked for again has the same noise and costs
      nothing.
    """
    plan, rows = ReleasePlan(rule.epsilon, rule.delta), list(made)
    if rows:
        plan = plan.after("randomized", rule.randomized_epsilon)
    distinct = {row.identity: row.epsilon for row in rows if row.mechanism == "gaussian"}
    for epsilon in distinct.values():
        plan = plan.after("gaussian", epsilon)
    return plan
