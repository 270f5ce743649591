"""The portfolio that a tariff is made with: its premiums, its columns, its exposure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
import pandas as pd

from fairpremium.arrays import Array
from fairpremium.models import OTHER, Column, Design, LevelsFactor, Unseen, as_frame, check_weight
from fairpremium.tariffs._factors import Level
from fairpremium.tariffs._tariff import design_of, split_cells

_MOVED_ROWS = 100  # rows that stand for a level which the portfolio does not have
_MOVED_WEIGHT = 1e-9  # of all of them, as a share of the portfolio


class Pricer(Protocol):
    """What a tariff needs of a fitted pricer.

    ``covariance_root`` gives the relativities their limits: it returns a matrix R of shape (n, m) with R R' the
    covariance of the premiums, and the degrees of freedom of that estimate. A pricer without intervals returns None.
    """

    design_: Design
    unseen_levels: Literal["error", "base"]

    def predict(self, X: Any) -> Array:
        """Compute h*(x): shape (n,)."""

    def predict_unaware(self, X: Any) -> Array:
        """Compute mu(x): shape (n,)."""

    def predict_best_estimate(self, X: Any) -> Any:
        """Compute mu(x, d): shape (n, K)."""

    def covariance_root(self, X: Any) -> tuple[Array, float] | None:
        """Compute R and the degrees of freedom."""


@dataclass(frozen=True, eq=False)
class Portfolio:
    """Rows with their premiums; rows moved to levels that no row has come last and weigh next to nothing."""

    pricer: Pricer
    design: Design  # the caller's columns, as they come
    table: Any  # pandas data frame or array, all rows
    exposure: Array  # (n,), of the rows that were given
    rests: Mapping[str, Level]  # by column, the level that those which are not known count as

    @classmethod
    def read(cls, pricer: Pricer, X: Any, exposure: Any) -> Portfolio:
        """Check a portfolio, and add rows for levels that it does not have."""
        known = pricer.design_
        columns = [_with_own_base(column, known) for column in known.columns]
        rests = {c.name: rest for c in columns if (rest := _rest(c, known, pricer.unseen_levels)) is not None}
        columns = [_with_level(column, rests[column.name]) if column.name in rests else column for column in columns]
        design = design_of(tuple(columns), known.named, rests)
        frame = as_frame(X)
        absent = [name for name in design.names if frame is not None and design.named and name not in frame.columns]
        if absent:
            raise ValueError(
                f"Got X without the columns {absent}, which the pricer was fitted on; expected all of them."
            )
        table = frame.select(list(design.names)).to_pandas() if frame is not None and design.named else X
        n = len(design.transform(table, unseen=pricer.unseen_levels))
        if not n:
            raise ValueError("Got X without a row, but expected the portfolio that the tariff is for.")
        weight = check_weight(None, n, exposure=exposure)
        found = cls(pricer, design, table, np.ones(n) if weight is None else weight, rests)
        return replace(found, table=found._with_all_levels())

    @property
    def n(self) -> int:
        """Number of rows that were given."""
        return len(self.exposure)

    @property
    def given(self) -> Any:
        """The rows that were given."""
        return rows_of(self.table, slice(0, self.n))

    @cached_property
    def cells(self) -> dict[str, Array]:
        """The columns, levels as codes."""
        matrix = self.design.transform(self.table, unseen=self.pricer.unseen_levels)
        return dict(zip(self.design.names, split_cells(self.design, matrix), strict=True))

    @cached_property
    def h(self) -> Array:
        """The premiums h*(x) of all rows, which must be positive."""
        h = np.asarray(self.pricer.predict(self.table), dtype=np.float64)
        bad = int(np.count_nonzero(~(h[: self.n] > 0)))
        if bad:
            raise ValueError(
                f"Got X with {bad} of {self.n} rows whose premium is not positive, but a multiplicative tariff has "
                'positive premiums only. Fit a family with a log link, such as "poisson", "gamma" or "tweedie".'
            )
        if not (h > 0).all():
            raise ValueError(
                "Got a pricer with a premium that is not positive for a level which no row of X has, but a "
                "multiplicative tariff has positive premiums only. Fit a family with a log link."
            )
        return h

    @cached_property
    def weight(self) -> Array:
        """The exposure of all rows, as shares."""
        more = len(self.h) - self.n
        share = self.exposure / self.exposure.sum()
        return np.concatenate([share, np.full(more, _MOVED_WEIGHT / max(more, 1))])

    def relative_deviation(self, premium: Array) -> Array:
        """Compute abs(tariff / h* - 1) of the rows that were given."""
        return np.asarray(np.abs(premium[: self.n] / self.h[: self.n] - 1))

    def moved(self, name: str, value: Any, rows: int) -> Any:
        """Return some rows, evenly spaced, with another value in one column."""
        at = np.unique(np.linspace(0, self.n - 1, min(rows, self.n)).astype(np.intp))
        table = rows_of(self.table, at)
        if not isinstance(table, pd.DataFrame):
            table = np.array(table, dtype=np.float64)
            table[:, self.design.names.index(name)] = value
            return table
        values = [value] * len(table)
        is_text = not (isinstance(value, bool) or pd.api.types.is_numeric_dtype(table[name]))
        return table.assign(**{name: pd.Categorical(values) if is_text else np.asarray(values)})

    def _with_all_levels(self) -> Any:
        absent = [
            self.moved(column.name, level, _MOVED_ROWS)
            for column in self.design.columns
            if column.levels is not None
            for code, level in enumerate(column.levels)
            if not (self.cells[column.name] == code).any()
        ]
        if not absent:
            return self.table
        if not isinstance(self.table, pd.DataFrame):
            return np.concatenate([np.asarray(self.table, dtype=np.float64), *absent])
        types = {name: object for name in self.table if not pd.api.types.is_numeric_dtype(self.table[name])}
        return pd.concat([piece.astype(types) for piece in (self.table, *absent)], ignore_index=True)


def _with_own_base(column: Column, known: Design) -> Column:
    """Put the base level that the pricer's own terms give a column first."""
    if column.levels is None:
        return column
    factors = [f for term in known.terms or () for f in term.factors if f.column == column.name]
    bases = [f.levels[0] for f in factors if isinstance(f, LevelsFactor) and f.levels[0] in column.levels]
    return Column(column.name, tuple(sorted(column.levels, key=lambda level: level != bases[0]))) if bases else column


def _rest(column: Column, known: Design, unseen: Unseen) -> Level | None:
    """Return the level that unknown levels of a column count as where the pricer's terms group rare levels."""
    factors = [f for term in known.terms or () for f in term.factors if f.column == column.name]
    tables = [f for f in factors if isinstance(f, LevelsFactor)]
    if column.levels is None or not any(f.grouped for f in tables):
        return None
    if unseen == "error" and not all(f.grouped for f in tables):
        return None
    if isinstance(column.levels[0], str) and OTHER not in column.levels:
        return OTHER
    for level in column.levels if len(tables) == len(factors) else ():
        if all(level in (*f.grouped, OTHER) if f.grouped else level == f.levels[0] for f in tables):
            return level
    if unseen == "error":
        return None
    raise ValueError(
        f"Got a pricer in which column {column.name!r} has several terms, so that a level which was not seen has a "
        'price that no level has, but a tariff needs a row for it. Fit with unseen_levels="error".'
    )


def _with_level(column: Column, level: Level) -> Column:
    levels = column.levels or ()
    return column if level in levels else Column(column.name, (*levels, level))


def rows_of(table: Any, which: Any) -> Any:
    """Return rows of a pandas data frame or an array, by position."""
    return table.iloc[which] if isinstance(table, pd.DataFrame) else np.asarray(table)[which]
