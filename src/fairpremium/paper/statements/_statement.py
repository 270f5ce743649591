"""What a statement is, and how the numbers of many seeds decide it, by one stated rule."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import t as student

LEVEL = 0.95
YES, NO, OPEN = "yes", "no", "open"
HOLDS, FAILS, DEPENDS = "holds", "does not hold", "depends"
RULE = (
    "A statement is a number that should be positive in one or more cases. In each case we take its mean over the "
    "seeds and the 95 % t interval of that mean: *yes* if the interval lies above zero, *no* if it lies below, "
    "*open* if it contains zero. Statements of equality have a margin instead: *yes* if the interval lies inside "
    "it, *no* if it lies outside, *open* otherwise. The verdict is **holds** if every case is yes, **does not "
    "hold** if every case is no, and **depends** otherwise."
)


@dataclass(frozen=True)
class Case:
    """One number per seed that should be positive, or within a margin of zero.

    Seeds without a number (a fit that was refused) are nan: they are counted and left out.
    """

    name: str
    values: npt.ArrayLike  # (seeds,)
    margin: float | None = None  # for a statement of equality: how far from zero still counts as equal

    def judge(self) -> dict[str, Any]:
        """Return mean, standard error, interval, number of seeds and verdict."""
        all_values = np.asarray(self.values, dtype=np.float64)
        known = all_values[np.isfinite(all_values)]
        n = len(known)
        mean = float(known.mean()) if n else math.nan
        error = float(known.std(ddof=1) / math.sqrt(n)) if n > 1 else math.nan
        half = float(student.ppf(0.5 + LEVEL / 2, n - 1)) * error if n > 1 else math.inf
        low, high = mean - half, mean + half
        return {
            "case": self.name,
            "mean": mean,
            "standard_error": error,
            "low": low,
            "high": high,
            "seeds": n,
            "without_number": len(all_values) - n,
            "seeds_in_favour": int((known > 0 if self.margin is None else np.abs(known) <= self.margin).sum()),
            "verdict": self._verdict(low, high),
        }

    def _verdict(self, low: float, high: float) -> str:
        if not math.isfinite(high - low):
            return OPEN
        if self.margin is None:
            return YES if low > 0 else NO if high < 0 else OPEN
        if -self.margin <= low and high <= self.margin:
            return YES
        return NO if low > self.margin or high < -self.margin else OPEN


def combine(verdicts: list[str]) -> str:
    """Return the verdict of a statement from those of its cases.

    Examples
    --------
    >>> combine(["yes", "yes"]), combine(["no", "no"]), combine(["yes", "open"])
    ('holds', 'does not hold', 'depends')
    """
    if all(verdict == YES for verdict in verdicts):
        return HOLDS
    return FAILS if all(verdict == NO for verdict in verdicts) else DEPENDS


Cases = Iterator[Case]


class Statement(NamedTuple):
    """A statement about an experiment."""

    name: str
    source: str  # where the statement stands: a section of the paper, or "ours" for what we add
    text: str
    criterion: str  # the number that must be positive (or within a margin), with its unit
    cases: Callable[[Any], Cases]  # a function of the experiment's measures
    experiment: str = ""  # whose tables decide

    @property
    def id(self) -> str:
        """Its name, with that of the experiment."""
        return f"{self.experiment}/{self.name}"

    def judge(self, measures: Any) -> dict[str, Any]:
        """Measure the statement: all cases and the verdict."""
        cases = [case.judge() for case in self.cases(measures)]
        # the appendix says "similar patterns" of the auto data
        like = "appendix, like " if self.experiment == "auto" and self.source != "ours" else ""
        return {
            "id": self.id,
            "source": like + self.source,
            "statement": self.text,
            "criterion": self.criterion,
            "verdict": combine([case["verdict"] for case in cases]),
            "cases": cases,
        }


def state(statements: list[Statement], source: str, criterion: str, name: str = "") -> Callable[..., Any]:
    """Add a statement to a list: the decorated function yields its cases, its docstring is the sentence."""

    def add(cases: Callable[[Any], Cases]) -> Callable[[Any], Cases]:
        sentence = " ".join((cases.__doc__ or "").split())
        statements.append(Statement(name or cases.__name__.replace("_", "-"), source, sentence, criterion, cases))
        return cases

    return add
