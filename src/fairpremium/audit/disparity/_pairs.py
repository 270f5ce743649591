"""Which groups are compared: every group with the reference group."""

from collections.abc import Callable
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from fairpremium.arrays import Array

from .._audit_data import AuditData
from .._estimate import Estimate
from .._weighted_reports import effective_reports


class Pairs(NamedTuple):
    """Positions of groups, and of the group that each is compared with."""

    first: list[int]
    second: list[int]

    def labels(self, groups: tuple[Any, ...]) -> dict[str, list[Any]]:
        """Return the columns `group` and `against`."""
        return {"group": [groups[k] for k in self.first], "against": [groups[k] for k in self.second]}

    def effective(self, volume: Estimate) -> Any:
        """Return the effective reports of the rarer group of each pair."""
        reports = effective_reports(volume)
        return np.minimum(reports[self.first], reports[self.second])


def read_pairs(data: AuditData, against: Any) -> Pairs:
    """Compare every other group with `against`, or with the largest group of the whole portfolio."""
    groups = data.groups
    if against is None:
        at = int(np.argmax(data.totals([], range(len(groups)))["volume"].value))
    elif against in groups:
        at = groups.index(against)
    else:
        raise ValueError(f"Got against={against!r}, but expected one of the groups {list(groups)}.")
    others = [k for k in range(len(groups)) if k != at]
    if not others:
        raise ValueError(f"Got sensitive with one group, {groups[at]!r}, but expected two or more to compare.")
    return Pairs(others, [at] * len(others))


def all_pairs(means: Array) -> Pairs:
    """Compare every two groups, the one with the lower mean first."""
    order = np.argsort(means, kind="stable").tolist()
    found = list(combinations(order, 2))
    return Pairs([first for first, _ in found], [second for _, second in found])


def check_choice(value: Any, name: str, choices: tuple[str, ...]) -> str:
    """Return one of some words."""
    if value not in choices:
        raise ValueError(f"Got {name}={value!r}, but expected {' or '.join(map(repr, choices))}.")
    return str(value)


def on_scale(scale: str) -> Callable[[Any], Any]:
    """Return the premium as it is, or its logarithm, for premiums above zero."""
    if check_choice(scale, "scale", ("linear", "log")) == "linear":
        return lambda premiums: premiums

    def log(premiums: Any) -> Any:
        bad = int(np.count_nonzero(premiums <= 0))
        if bad:
            raise ValueError(
                f"Got premiums with {bad} of {len(premiums)} values not above zero; expected premiums above zero, "
                'which have a logarithm. Use scale="linear" for others.'
            )
        return np.log(premiums)

    return log
