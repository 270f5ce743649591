"""Rules that a fit must satisfy before anything of it is released; every refusal names its rule.

A refusal is itself something that comes back. So the rules look at the reports through one thing only, how many there
are of each kind: all else comes from what the insurer knows anyway, in the worst case over the reports. Where the
reports reach the rules after a privacy mechanism (see `_release`), refusals tell no more than it allows; where they do
not, a count of reports is what a refusal can tell.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairpremium.errors import FairPremiumError
from fairpremium.models import Design, LinearProblem
from fairpremium.parties.protocol import Rules, round_count
from fairpremium.privacy import Channel

from ._public_data import LargestShare, largest_leverage, largest_score_share

TITLES = {
    1: "each reported group needs enough rows and effective rows",
    2: "no row may have a large leverage in a reported group",
    3: "a reported group needs enough rows per coefficient",
    4: "no row may carry a large part of the score in any direction",
    5: "the rows of two fits must be the same or differ by enough rows",
    6: "a study allows so many distinct fits",
    9: "the privacy budget of the study is used up",
}
OUTCOME = "the outcome"


@dataclass(frozen=True)
class RuleResult:
    """What a rule says.

    - `rule`: Its number.
    - `limit`: The limit, for everybody.
    - `measured`: What was measured, rounded: for the log of the third party, never for the insurer.
    - `column`: Of rules 2 and 4: the column of the portfolio, or the term, by which a row stands out most, whether the
      rule is broken or not. It follows from the insurer's own rows, and from no report.
    """

    rule: int
    passed: bool
    limit: str
    measured: str
    column: str | None = None

    @property
    def title(self) -> str:
        """What the rule asks for."""
        return TITLES[self.rule]


class RefusedError(FairPremiumError, ValueError):
    """A fit breaks a disclosure rule.

    - `rule_results`: Of all rules that were looked at.
    """

    def __init__(self, rule_results: Iterable[RuleResult]):
        self.rule_results = tuple(rule_results)
        broken = next(v for v in self.rule_results if not v.passed)
        by = "" if broken.column is None else f" A row stands out most by {broken.column}."
        super().__init__(f"Rule {broken.rule} of the study forbids this fit: {broken.title} ({broken.limit}).{by}")


def refuse(rule_results: Sequence[RuleResult]) -> None:
    """Raise if a rule is broken."""
    if not all(v.passed for v in rule_results):
        raise RefusedError(rule_results)


@dataclass(frozen=True)
class Exposure:
    """What a fit could show of a single row, from public data alone."""

    rows: int
    effective_rows: float  # (sum of w)^2 / sum of w^2
    parameters: int  # coefficients of one group's linear predictor
    leverage: LargestShare
    score_share: LargestShare


NOTHING = Exposure(0, 0.0, 0, LargestShare(0.0, None, 0.0), LargestShare(0.0, None, 0.0))


def measure(problem: LinearProblem, design: Design) -> Exposure:
    """Measure how far a single row can stand out, from rows without reports."""
    moments = problem.moments
    effective_rows = float(moments.weights.sum() ** 2 / moments.squared_weights.sum())
    leverage, score_share = largest_leverage(problem, design), largest_score_share(problem, design)
    return Exposure(len(problem.rows), effective_rows, moments.q, leverage, score_share)


def check_count_rules(exposure: Exposure, counts: npt.ArrayLike, rules: Rules) -> list[RuleResult]:
    """Apply rules 1 to 4.

    - `counts`, shape (reports,): Rows of each report: of reports that may be shown, or noised. This is all that the
      rules see of the reports.

    Notes
    -----
    Rule 2: in a group with a share c of the rows the sum of w z z' is about c times that of all rows, so a row's
    leverage is about 1 / c of what it is among all rows. A column that singles out fewer than n_min / c rows is
    refused whatever those reported. Rule 4 does not depend on the reports at all: a row's score is hidden among the
    scores of all other rows, whose reports the insurer does not know. If no single column makes the row stand out, its
    outcome does.
    """
    counts = np.asarray(counts, dtype=np.float64)
    fewest = max(float(counts.min()), 0.0)
    share = fewest / exposure.rows if exposure.rows else 0.0
    effective = exposure.effective_rows * share
    leverage = exposure.leverage.share / share if share else math.inf
    score = exposure.score_share
    return [
        RuleResult(
            1,
            fewest >= rules.rows and effective >= rules.effective_rows,
            f"at least {rules.rows} rows and {rules.effective_rows} effective rows",
            f"{_count(fewest, rules)} rows, {_round(effective)} effective rows",
        ),
        RuleResult(
            2,
            leverage <= 1 / rules.n_min,
            f"leverage at most 1/{rules.n_min}",
            _round(leverage),
            exposure.leverage.column,
        ),
        RuleResult(
            3,
            exposure.parameters * rules.rows_per_parameter <= fewest,
            f"at least {rules.rows_per_parameter} rows for each of {exposure.parameters} coefficients",
            f"{_count(fewest, rules)} rows",
        ),
        RuleResult(
            4,
            score.share <= rules.score_share,
            f"a share of at most {rules.score_share:g}",
            _round(score.share),
            score.column if score.without <= rules.score_share else OUTCOME,
        ),
    ]


def check_overlap(key_sets: Sequence[Any], rules: Rules | None = None, *, rarest: float) -> RuleResult:
    """Apply rule 5 to the keys of all fits of one insurer, the one that is asked for last.

    - `key_sets` (sequence of arrays): Keys of the rows of each fit.
    - `rarest`: Smallest probability of a report, whoever reports: `rarest_report(channel)`.

    Notes
    -----
    The sets divide the keys into cells: the keys that are in exactly the same fits. Whatever is added up and
    subtracted between fits is constant on cells, so no combination of fits says something about fewer rows than a
    cell has. Every cell needs n_min / rarest rows, among which n_min of each reported group are to be expected
    whatever the true groups. The rule does not look at reports.
    """
    rules = Rules() if rules is None else rules
    if not 0 < rarest <= 1:
        raise ValueError(f"Got rarest={rarest!r}, but expected a probability above zero.")
    least = math.ceil(rules.n_min / rarest)
    smallest = min(cell_sizes(key_sets), default=least)
    return RuleResult(5, smallest >= least, f"no row or at least {least}", str(smallest))


def cell_sizes(key_sets: Sequence[Any]) -> list[int]:
    """Count the keys that are in exactly the same sets, for each combination that occurs.

    Examples
    --------
    >>> sorted(cell_sizes([["a", "b", "c"], ["b", "c", "d"]]))  # a alone, b and c, d alone
    [1, 1, 2]
    """
    lengths = [len(keys) for keys in key_sets]
    if not sum(lengths):
        return []
    everything = np.concatenate([np.asarray(keys, dtype=object) for keys in key_sets])
    codes, distinct = pd.factorize(everything)
    member = np.zeros((len(distinct), len(key_sets)), dtype=bool)
    member[codes, np.repeat(np.arange(len(key_sets)), lengths)] = True
    _, sizes = np.unique(np.packbits(member, axis=1), axis=0, return_counts=True)
    return [int(size) for size in sizes]


def rarest_report(channel: Channel) -> float:
    """Compute the smallest entry of T: every report is at least so likely, whoever reports."""
    return float(channel.matrix.min())


def round_missing(rows: int, missing: int, rules: Rules | None = None) -> int:
    """Return how many of the rows to show as without a report.

    It comes from the rounded number of those with one: that and a second rounding would tell more than either.

    Examples
    --------
    >>> round_missing(1503, 190)  # 1313 reports, shown as 1315
    188
    """
    return max(rows - (round_count(rows - missing, rules) or 0), 0)


def _count(count: float, rules: Rules) -> str:
    rounded = round_count(count, rules)
    return f"at most {rules.suppress_up_to}" if rounded is None else f"about {rounded}"


def _round(value: float) -> str:
    return f"{value:.2g}"
