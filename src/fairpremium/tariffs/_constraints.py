"""What an actuary demands of relativities: an order, given values, rounding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fairpremium.arrays import Array
from fairpremium.models import is_number
from fairpremium.tariffs._factors import Factor, LevelFactor

_DIRECTIONS = {"up": 1.0, "down": -1.0}


@dataclass(frozen=True, eq=False)
class Constraints:
    """Logarithms of given relativities (NaN: free), and rows A with A theta >= 0, over the rows of all factors."""

    given: Array  # (rows,), by the caller
    lower: Array  # (orders, rows)

    @classmethod
    def of(
        cls,
        monotone: Mapping[str, Any] | None,
        fixed: Mapping[str, Mapping[Any, float]] | None,
        factors: Sequence[Factor],
    ) -> Constraints:
        """Check them as `to_tariff` takes them."""
        names = [factor.name for factor in factors]
        for argument, value in (("monotone", monotone), ("fixed", fixed)):
            if value is not None and not isinstance(value, Mapping):
                raise TypeError(f"Got {argument} of type {type(value).__name__}, but expected a dict by factor.")
            unknown = sorted(set(value or ()) - set(names), key=str)
            if unknown:
                raise ValueError(f"Got {argument} for {unknown}, but the factors are {names}.")
        starts = np.concatenate([[0], np.cumsum([len(factor.labels) for factor in factors])]).astype(int)
        given, rows = np.full(starts[-1], np.nan), [np.zeros((0, starts[-1]))]
        for factor, start, stop in zip(factors, starts[:-1], starts[1:], strict=True):
            given[start:stop] = _given((fixed or {}).get(factor.name, {}), factor)
            if monotone is not None and factor.name in monotone:
                A = _order(monotone[factor.name], factor)
                rows.append(np.hstack([np.zeros((len(A), start)), A, np.zeros((len(A), starts[-1] - stop))]))
        return cls(given, np.vstack(rows))

    def settle(self, theta: Array, known: Array) -> Array:
        """Put parameters in order that are out of it by rounding; those that are known stay."""
        found = theta.copy()
        for row in (*self.lower, *self.lower[::-1]):
            if row @ found < 0:
                at = np.flatnonzero(row)
                free = at[np.isnan(known[at])][:1]
                found[free] -= row @ found / row[free]
        return found

    def round(self, relativity: Array, step: float | None, factors: Sequence[Factor]) -> Array:
        """Round relativities of tables that were not given to multiples of a step."""
        if step is None:
            return relativity
        tables = np.concatenate([np.full(len(f.labels), f.kind != "formula") for f in factors])
        rounded = np.round(relativity / step) * step
        digits = max(0, -int(np.floor(np.log10(step))) + 2)
        rounded = np.where(tables & np.isnan(self.given), np.round(rounded, digits), relativity)
        if (rounded <= 0).any():
            labels = [(f.name, label) for f in factors for label in f.labels]
            at = int(np.argmin(rounded))
            name, label = labels[at]
            raise ValueError(
                f"Got rounding={step!r}, which makes the relativity {relativity[at]:.3g} of {name} {label!r} zero, "
                "but expected a step that leaves every relativity positive. Take a smaller one."
            )
        return np.asarray(rounded)


def _given(values: Any, factor: Factor) -> Array:
    if not isinstance(values, Mapping):
        raise TypeError(
            f"Got fixed for {factor.name!r} of type {type(values).__name__}, but expected a dict from level to "
            "relativity."
        )
    found = np.full(len(factor.labels), np.nan)
    for level, value in values.items():
        if level not in factor.labels:
            raise ValueError(f"Got fixed for {level!r} of {factor.name!r}, but expected one of {list(factor.labels)}.")
        if not is_number(value) or not 0 < value < np.inf:
            raise ValueError(f"Got fixed {value!r} for {level!r} of {factor.name!r}, but expected a number above zero.")
        found[factor.labels.index(level)] = np.log(value)
    return found


def _order(wanted: Any, factor: Factor) -> Array:
    """Return A with A theta >= 0 if the relativities are in the order that is wanted."""
    size = len(factor.labels)
    if isinstance(factor, LevelFactor):
        if (
            isinstance(wanted, str)
            or not isinstance(wanted, Sequence)
            or sorted(map(repr, wanted)) != sorted(map(repr, factor.labels))
        ):
            raise ValueError(
                f"Got monotone={wanted!r} for {factor.name!r}, which has levels, but expected all of them in the order "
                f"of rising relativities: {list(factor.labels)}."
            )
        order = [factor.labels.index(level) for level in wanted]
        return np.eye(size)[order[1:]] - np.eye(size)[order[:-1]]
    if not isinstance(wanted, str) or wanted not in _DIRECTIONS:
        raise ValueError(f'Got monotone={wanted!r} for {factor.name!r}, but expected "up" or "down".')
    sign = _DIRECTIONS[wanted]
    return sign * (np.eye(1) if factor.kind == "formula" else np.diff(np.eye(size), axis=0))
