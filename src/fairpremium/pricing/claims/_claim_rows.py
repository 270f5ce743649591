"""Rows with their claims: what `fit` is given, checked, and what the frequency and the severity part see of it.

A row holds, after its features, three columns for each peril: the number of claims, their amount up to the cap, and
their amount. Its outcome is the amount of all perils, its weight the exposure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from fairpremium.arrays import Array
from fairpremium.blocks import Block, Rows
from fairpremium.families import Family
from fairpremium.models import check_outcome

ONE_PERIL = "all"  # what the peril is called if there is but one
_SHOWN = 5  # rows that an error names

Kind = Literal["frequency", "severity"]
KINDS: tuple[Kind, ...] = ("frequency", "severity")


@dataclass(frozen=True)
class Peril:
    """One peril: the families of its parts, and the amount per claim above which claims are large."""

    name: str
    frequency: Family
    severity: Family
    cap: float | None = None

    def check(self, counts: Array, amounts: Array, place: str = "") -> None:
        """Raise, naming the rows, if numbers and amounts of claims do not agree; `place` says what rows these are."""
        refuse = partial(_refuse_rows, place=place)
        of = "" if self.name == ONE_PERIL else f" of peril {self.name!r}"
        refuse(
            (counts < 0) | (counts != np.floor(counts)),
            f"Got counts{of} that are not whole numbers >= 0",
            "expected the number of claims of each row, not divided by the exposure",
        )
        refuse(
            ~self.frequency.outcome.contains(counts),
            f"Got counts{of} outside the domain of the {self.frequency.name} family",
            f"expected counts that are {self.frequency.outcome}. Take another frequency, such as poisson",
        )
        refuse(
            (counts == 0) & (amounts != 0),
            f"Got amounts{of} without a claim",
            "expected an amount of zero where the number of claims is zero. Count these claims, or leave the amounts "
            "out",
        )
        if not self.severity.outcome.contains(np.zeros(1))[0]:
            refuse(
                (counts > 0) & (amounts == 0),
                f"Got claims{of} without an amount",
                f"expected an amount above zero, which the {self.severity.name} family needs. Count only claims that "
                'were paid; or price claims closed without payment too, with severity="tweedie"',
            )
        claims = counts > 0
        refuse(
            claims & ~self.severity.outcome.contains(amounts / np.where(claims, counts, 1.0)),
            f"Got amounts{of} outside the domain of the {self.severity.name} family",
            f"expected an amount per claim that is {self.severity.outcome}",
        )

    def capped(self, counts: Array, amounts: Array) -> Array:
        """Return the amounts up to the cap; a row's mean claim decides, as single claims are not known."""
        return amounts if self.cap is None else np.minimum(amounts, self.cap * counts)


def _refuse_rows(wrong: npt.NDArray[np.bool_], got: str, expected: str, place: str) -> None:
    rows = np.flatnonzero(wrong)
    if len(rows):
        named = ", ".join(map(str, rows[:_SHOWN])) + (", ..." if len(rows) > _SHOWN else "")
        raise ValueError(f"{got} in {len(rows)} of {len(wrong)} rows{place} (counted from 0: {named}), but {expected}.")


@dataclass(frozen=True)
class ClaimLayout:
    """Where the features and the claims of each peril are in the matrix of a row."""

    n_features: int
    perils: tuple[Peril, ...]

    @property
    def width(self) -> int:
        """Number of columns."""
        return self.n_features + 3 * len(self.perils)

    def pack(
        self,
        X: npt.NDArray[Any],
        counts: Sequence[Array],
        amounts: Sequence[Array],
        exposure: Array | None,
        report: npt.NDArray[Any],
        cluster: npt.NDArray[Any] | None = None,
        of: str = "",
    ) -> Rows:
        """Check the claims of all perils and put them beside the features."""
        columns = [X]
        for peril, n, a in zip(self.perils, counts, amounts, strict=True):
            peril.check(n, a, of)
            columns.append(np.column_stack([n, peril.capped(n, a), a]))
        total = np.sum(amounts, axis=0)
        return Rows(np.column_stack(columns), total, exposure, report, cluster=cluster)

    def claims(self, X: npt.NDArray[Any], peril: int) -> tuple[Array, Array, Array]:
        """Return number, capped amount and amount of a peril's claims."""
        first = self.n_features + 3 * peril
        return X[:, first], X[:, first + 1], X[:, first + 2]

    def features(self, X: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the features."""
        return X[:, : self.n_features]

    def part(self, rows: Rows, peril: int, kind: Kind) -> Rows:
        """Return the rows of a part: all with claims per exposure, or those with claims and their mean amount."""
        number, capped, _ = self.claims(rows.X, peril)
        if kind == "frequency":
            y = number if rows.weight is None else number / rows.weight
            return Rows(self.features(rows.X), y, rows.weight, rows.report, cluster=rows.cluster)
        some = number > 0
        number = number[some]
        cluster = None if rows.cluster is None else rows.cluster[some]
        return Rows(self.features(rows.X)[some], capped[some] / number, number, rows.report[some], cluster=cluster)

    def part_of_block(self, block: Block, peril: int, kind: Kind) -> tuple[npt.NDArray[np.bool_], Block]:
        """Return which rows of a block a part sees, and its block of them."""
        rows = self.part(Rows(block.X, block.y, block.weight, block.report), peril, kind)
        some = np.ones(len(block.y), dtype=bool) if kind == "frequency" else self.claims(block.X, peril)[0] > 0
        return some, rows.block(0, len(rows))


def by_peril(values: Any, name: str) -> dict[str, Any]:
    """Return counts, amounts or names of columns by peril; one column is the claims of the only peril."""
    if isinstance(values, Mapping):
        found = {str(peril): values[peril] for peril in values}
    elif hasattr(values, "columns") and not isinstance(values, str):
        names = getattr(values, "column_names", values.columns)  # those of an Arrow table are in the former
        found = {str(column): values[column] for column in names}
    else:
        return {ONE_PERIL: values}
    if not found:
        raise ValueError(f"Got {name} without a peril, but expected at least one.")
    return found


def check_claims(values: Any, name: str, n: int) -> Array:
    """Return counts or amounts as finite floats of length n."""
    if values is None:
        raise ValueError(f"Got {name}=None, but expected one number for each row. Put zero where there is no claim.")
    try:
        return check_outcome(values, n)
    except ValueError as error:
        help_ = " Put zero where there is no claim." if "NaN" in str(error) else ""
        text = str(error).replace("Got y ", f"Got {name} ", 1).replace("y to be passed, but the target y", name)
        raise ValueError(text + help_) from None
