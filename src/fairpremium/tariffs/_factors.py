"""The factors of a tariff: a table of levels, a table of bands, or a formula of a number."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy import sparse

from fairpremium.arrays import Array
from fairpremium.models import Column, Unseen, check_numbers

PER_UNIT = "per unit"

Level = str | bool | int

Cells = npt.NDArray[Any]  # a column of X: codes of levels, or numbers


@dataclass(frozen=True, eq=False)
class Factor(ABC):
    """One rating factor: what each of its rows multiplies the premium by, with limits and exposure."""

    name: str
    relativity: Array  # (rows,)
    low: Array  # (rows,), NaN where there are no intervals
    high: Array
    exposure: Array

    kind: ClassVar[str]

    @property
    @abstractmethod
    def labels(self) -> tuple[Any, ...]:
        """What the rows stand for."""

    @abstractmethod
    def design(self, cells: Cells) -> sparse.csr_array:
        """Return the columns of the log-linear model, one per row of the factor: shape (n, rows)."""

    @abstractmethod
    def apply(self, cells: Cells) -> Array:
        """Compute the relativities of a column of X: shape (n,)."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, with None for what is not finite."""
        numbers = {name: _plain(getattr(self, name)) for name in ("relativity", "low", "high", "exposure")}
        return {"name": self.name, "kind": self.kind, **self._own(), **numbers}

    @abstractmethod
    def _own(self) -> dict[str, Any]:
        """Return the fields that only this kind of factor has, as plain data."""

    def with_rows(self, relativity: Array, low: Array, high: Array, exposure: Array) -> Factor:
        """Return the factor with other numbers."""
        return replace(self, relativity=relativity, low=low, high=high, exposure=exposure)


class TableFactor(Factor):
    """A factor with a table: every cell belongs to one row of it."""

    @abstractmethod
    def codes(self, cells: Cells) -> npt.NDArray[np.intp]:
        """Return the row that each cell belongs to."""

    def design(self, cells: Cells) -> sparse.csr_array:
        """Return indicators of the rows."""
        n = len(cells)
        return sparse.csr_array((np.ones(n), self.codes(cells), np.arange(n + 1)), shape=(n, len(self.labels)))

    def apply(self, cells: Cells) -> Array:
        """Look up the relativities."""
        return np.asarray(self.relativity[self.codes(cells)])


@dataclass(frozen=True, eq=False)
class LevelFactor(TableFactor):
    """A text, boolean or categorical column: one row per level, the base level first.

    `rest` is the level whose row also holds for levels that the tariff does not know, whatever `unseen_levels` says.
    """

    levels: tuple[Level, ...]
    rest: Level | None = None

    kind = "levels"

    @property
    def labels(self) -> tuple[Any, ...]:
        """The levels."""
        return self.levels

    def codes(self, cells: Cells) -> npt.NDArray[np.intp]:
        """Return the codes, which the cells already are."""
        return np.asarray(cells, dtype=np.intp)

    def relativity_of_unknown(self, unseen: Unseen) -> float | None:
        """Return the relativity of a level that the tariff does not know; None if it has no price."""
        if self.rest is not None:
            return float(self.relativity[self.levels.index(self.rest)])
        return float(self.relativity[0]) if unseen == "base" else None

    def _own(self) -> dict[str, Any]:
        rest = {} if self.rest is None else {"rest": self.rest}
        return {"levels": list(self.levels), **rest}


@dataclass(frozen=True, eq=False)
class BandFactor(TableFactor):
    """A numeric column in bands: a number that equals an edge belongs to the band above it."""

    edges: tuple[float, ...]  # ascending; one more band than edges

    kind = "bands"

    @property
    def labels(self) -> tuple[str, ...]:
        """The bands in words, such as ``under 25``, ``25 to under 40`` and ``40 and over``."""
        edges = [number_text(edge) for edge in self.edges]
        if not edges:
            return ("all",)
        between = [f"{a} to under {b}" for a, b in pairwise(edges)]
        return (f"under {edges[0]}", *between, f"{edges[-1]} and over")

    def codes(self, cells: Cells) -> npt.NDArray[np.intp]:
        """Return the band of each number."""
        return np.searchsorted(np.asarray(self.edges), np.asarray(cells, dtype=np.float64), side="right")

    def _own(self) -> dict[str, Any]:
        return {"edges": list(self.edges)}


@dataclass(frozen=True, eq=False)
class FormulaFactor(Factor):
    """A numeric column x that multiplies the premium by relativity ** x: one row, the relativity of one unit.

    - `typical`: A value that half of the exposure does not exceed, with which a quote begins.
    """

    typical: float = 1.0

    kind = "formula"

    @property
    def labels(self) -> tuple[str, ...]:
        """One label: the relativity is that of one unit."""
        return (PER_UNIT,)

    @property
    def slope(self) -> float:
        """The logarithm of the relativity of one unit."""
        return float(np.log(self.relativity[0]))

    def design(self, cells: Cells) -> sparse.csr_array:
        """Return the numbers themselves."""
        return sparse.csr_array(np.asarray(cells, dtype=np.float64)[:, None])

    def apply(self, cells: Cells) -> Array:
        """Compute exp(slope * x)."""
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(self.slope * np.asarray(cells, dtype=np.float64)))

    def _own(self) -> dict[str, Any]:
        return {"typical": self.typical}


def number_text(value: float) -> str:
    """Write a number in as few digits as say which it is.

    Examples
    --------
    >>> number_text(25.0), number_text(0.5), number_text(-1e-7)
    ('25', '0.5', '-1e-07')
    """
    return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(float(value))


def level_factor(column: Column, rest: Level | None = None) -> LevelFactor:
    """Return a factor of a column of levels, without numbers yet."""
    assert column.levels is not None
    return LevelFactor(column.name, *_unknown(len(column.levels)), column.levels, rest)


def band_factor(name: str, edges: tuple[float, ...]) -> BandFactor:
    """Return a factor of a numeric column in bands, without numbers yet."""
    return BandFactor(name, *_unknown(len(edges) + 1), edges)


def formula_factor(name: str, typical: float = 1.0) -> FormulaFactor:
    """Return a factor of a numeric column with a formula, without numbers yet."""
    return FormulaFactor(name, *_unknown(1), typical)


def factor_from_dict(data: dict[str, Any]) -> Factor:
    """Read what `Factor.to_dict` returned, checking every field."""
    kind, name = data["kind"], data["name"]
    if not isinstance(name, str):
        raise ValueError("the name of a factor is not text")
    if kind == "levels":
        found: Factor = level_factor(Column(name, tuple(data["levels"])), data.get("rest"))
        if "rest" in data and data["rest"] not in found.labels:
            raise ValueError(f"factor {name!r} has no row for levels that are not known")
        if len(set(map(repr, found.labels))) != len(found.labels):
            raise ValueError(f"factor {name!r} has a level twice")
    elif kind == "bands":
        edges = check_numbers(data["edges"], (len(data["edges"]),), "edges")
        if (np.diff(edges) <= 0).any():
            raise ValueError(f"the edges of factor {name!r} are not ascending")
        found = band_factor(name, tuple(edges.tolist()))
    elif kind == "formula":
        found = formula_factor(name, *check_numbers([data.get("typical", 1.0)], (1,), "typical").tolist())
    else:
        raise ValueError(f"factor {name!r} is of an unknown kind")
    shape = (len(found.labels),)
    relativity, exposure = (check_numbers(data[field], shape, field) for field in ("relativity", "exposure"))
    low, high = (_limits(data[field], shape, field) for field in ("low", "high"))
    if not (relativity > 0).all():
        raise ValueError(f"factor {name!r} has a relativity that is not positive")
    return found.with_rows(relativity, low, high, exposure)


def _limits(values: list[float | None], shape: tuple[int], name: str) -> Array:
    known = check_numbers([0.0 if value is None else value for value in values], shape, name)
    return np.where([value is None for value in values], np.nan, known)


def _unknown(rows: int) -> tuple[Array, Array, Array, Array]:
    return np.ones(rows), np.full(rows, np.nan), np.full(rows, np.nan), np.zeros(rows)


def _plain(values: Array) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in values]
