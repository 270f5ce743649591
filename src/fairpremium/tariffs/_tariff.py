"""A multiplicative tariff: it prices, it is a table, and it is a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
import pandas as pd

from fairpremium.arrays import Array
from fairpremium.csv_cells import escape_formulas
from fairpremium.documents import read_document, write_document
from fairpremium.errors import ModelFileError
from fairpremium.models import (
    OTHER,
    Categories,
    Column,
    Design,
    LevelsFactor,
    Term,
    Unseen,
    Values,
    check_numbers,
    whole_categories,
)
from fairpremium.tariffs._factors import BandFactor, Factor, Level, LevelFactor, factor_from_dict
from fairpremium.tariffs._sql import select_expression
from fairpremium.tariffs._workbook import write_workbook

_FORMAT, _VERSION, _NOUN = "fairpremium-tariff", 1, "fairpremium tariff"
_MEASURES = (
    "median",
    "p99",
    "largest",
    "deviance",
    "deviance_explained",
    "proxy_discrimination_before",
    "proxy_discrimination_after",
    "proxy_discrimination_unaware",
)


@dataclass(frozen=True, eq=False)
class Tariff:
    """A base premium and the relativities of rating factors; `to_tariff` of a pricer makes one.

    The premium of a risk is the base times one relativity per factor, and at least the minimum premium. A table has a
    row per level or band. A formula has one row, ``per unit``: a number x multiplies the premium by relativity ** x.

    Attributes
    ----------
    base : float
        Premium of a risk whose relativities are all one.
    factors : tuple of Factor
        The factors, in the order of the columns.
    minimum_premium : float or None
    deviation : dict of str to float
        How far the tariff is from h* on the portfolio that it was made with. ``median``, ``p99`` and ``largest`` of the
        relative deviation ``abs(tariff / h* - 1)``, the first two by exposure. ``deviance``: mean Poisson deviance of
        h* about the tariff; ``deviance_explained``: the share of the deviance about a flat premium that this saves.
        ``proxy_discrimination_before``, ``proxy_discrimination_after`` and ``proxy_discrimination_unaware``: the
        measure PD of `fairpremium.audit.compute_discrimination`, from 0 to 1, of h*, of the tariff and of the unaware
        price.
    level : float
        Confidence level of the limits in `relativities`.
    notes : tuple of str
        What a reader of the tariff should know, in sentences.

    Examples
    --------
    >>> from fairpremium import DiscriminationFreePricer
    >>> from fairpremium.portfolios import unbalanced_poisson
    >>> p = unbalanced_poisson(3000, rng=0)
    >>> pricer = DiscriminationFreePricer("poisson", intervals=False)
    >>> pricer = pricer.fit(p.X, p.y, sensitive=p.sensitive, sample_weight=p.sample_weight)
    >>> tariff = pricer.to_tariff(p.X, exposure=p.sample_weight, bands="formula")
    >>> tariff.relativities["factor"].unique().tolist()
    ['log_mileage', 'driving_score', 'region', 'vehicle']
    >>> bool(abs(tariff.predict(p.X) / pricer.predict(p.X) - 1).max() <= tariff.deviation["largest"] + 1e-12)
    True
    """

    base: float
    factors: tuple[Factor, ...]
    minimum_premium: float | None
    deviation: dict[str, float]
    level: float
    notes: tuple[str, ...]
    named: bool = True  # whether columns are found by name, or by position in an array
    unseen_levels: Unseen = "error"

    @property
    def relativities(self) -> pd.DataFrame:
        """The table: factor, level, relativity, low, high, exposure."""
        rows = [
            (factor.name, *row)
            for factor in self.factors
            for row in zip(factor.labels, factor.relativity, factor.low, factor.high, factor.exposure, strict=True)
        ]
        return pd.DataFrame(rows, columns=["factor", "level", "relativity", "low", "high", "exposure"])

    @property
    def design(self) -> Design:
        """The columns that the tariff needs, with the levels that it knows."""
        tables = [factor for factor in self.factors if isinstance(factor, LevelFactor)]
        levels = {factor.name: factor.levels for factor in tables}
        rests = {factor.name: factor.rest for factor in tables if factor.rest is not None}
        columns = tuple(Column(factor.name, levels.get(factor.name)) for factor in self.factors)
        return design_of(columns, self.named, rests)

    def predict(self, X: Any) -> Array:
        """Compute the premium per unit of exposure.

        Parameters
        ----------
        X : data frame or array of shape (n, features)
            The columns of the factors. A level that the tariff does not know is an error, or gets the relativity of the
            base level if the pricer was made with ``unseen_levels="base"``. Where the pricer's terms group rare levels,
            it gets the relativity of the row ``other``.

        Returns
        -------
        array of shape (n,)
        """
        cells = self.cells(X)
        premium = np.full(len(cells[0]), self.base)
        with np.errstate(over="ignore"):
            for factor, column in zip(self.factors, cells, strict=True):
                premium = premium * factor.apply(column)
        bad = int(np.count_nonzero(~np.isfinite(premium)))
        if bad:
            raise OverflowError(
                f"The premium of {bad} rows is too large to be a number: their features lie far outside those of the "
                "portfolio that the tariff was made with."
            )
        return premium if self.minimum_premium is None else np.maximum(premium, self.minimum_premium)

    def cells(self, X: Any) -> list[Array]:
        """Return the columns of X that the factors need, levels as codes."""
        return split_cells(self.design, self.design.transform(X, unseen=self.unseen_levels, of="Tariff"))

    def to_excel(self, path: str | PathLike[str]) -> None:
        """Write a workbook with live formulas: a quote, one sheet per factor, checks, and notes.

        The sheet Quote prices one risk from the cells that a user fills in. The sheet Check prices one risk per row of
        each factor by the same formulas, beside the premium that `predict` computes. Needs the extra ``tariff``.
        """
        write_workbook(self, path)

    def to_csv(self, path: str | PathLike[str]) -> None:
        """Write the base premium, the minimum premium and the relativities as CSV.

        Bands have their limits in the columns ``from`` (included) and ``to`` (not included). Text that a spreadsheet
        program would take for a formula gets an apostrophe in front.
        """
        rows: list[dict[str, Any]] = [{"factor": "base premium", "relativity": self.base}]
        if self.minimum_premium is not None:
            rows.append({"factor": "minimum premium", "relativity": self.minimum_premium})
        for factor in self.factors:
            edges = factor.edges if isinstance(factor, BandFactor) else ()
            starts, ends = ((None, *edges), (*edges, None)) if edges else ([None] * len(factor.labels),) * 2
            for i, label in enumerate(factor.labels):
                row = {"factor": factor.name, "level": label, "from": starts[i], "to": ends[i]}
                row |= {name: getattr(factor, name)[i] for name in ("relativity", "low", "high", "exposure")}
                rows.append(row)
        columns = ["factor", "level", "from", "to", "relativity", "low", "high", "exposure"]
        table = pd.DataFrame(rows, columns=columns)
        escape_formulas(table)[0].to_csv(path, index=False, lineterminator="\n")

    def to_sql(self, table: str, name: str = "premium") -> str:
        """Return a query that prices the rows of a table: all its columns, and the premium.

        Parameters
        ----------
        table : str
            The table with the columns of the factors; ``schema.table`` names one in a schema.
        name : str
            Name of the column of premiums.

        Returns
        -------
        str
            One SELECT, in SQL that DuckDB, SQLite and PostgreSQL understand. Names and levels are quoted.

        Notes
        -----
        The premium is NULL where a value is missing, not a finite number, or a level that the tariff does not know. An
        unknown level gets the base level's relativity if the pricer was made with ``unseen_levels="base"``, and that of
        ``other`` where the pricer's terms group rare levels. A column that is not there is an error of the database.
        """
        return select_expression(self, table, name)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the tariff to a JSON file; `load` reads it back and never executes code."""
        body = {
            "format": _FORMAT,
            "version": _VERSION,
            "base": self.base,
            "minimum_premium": self.minimum_premium,
            "level": self.level,
            "named": self.named,
            "unseen_levels": self.unseen_levels,
            "deviation": {name: value if np.isfinite(value) else None for name, value in self.deviation.items()},
            "notes": list(self.notes),
            "factors": [factor.to_dict() for factor in self.factors],
        }
        write_document(body, path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read a tariff that `save` wrote.

        Raises
        ------
        ModelFileError
            If the file is damaged, is not a tariff, or is from an unknown version.
        """
        body = read_document(Path(path), _FORMAT, _VERSION, _NOUN)
        try:
            return cls._build(body)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ModelFileError(f"{path} is not a valid {_NOUN}: {type(error).__name__}: {error}") from error

    @classmethod
    def _build(cls, body: dict[str, Any]) -> Self:
        base, level = (float(check_numbers(body[name], (), name)) for name in ("base", "level"))
        minimum = body["minimum_premium"]
        minimum = None if minimum is None else float(check_numbers(minimum, (), "minimum_premium"))
        factors = tuple(factor_from_dict(data) for data in body["factors"])
        names = [factor.name for factor in factors]
        if base <= 0 or not 0 < level < 1 or not factors or len(set(names)) != len(names):
            raise ValueError("the base, the level or the names of the factors are not those of a tariff")
        if body["unseen_levels"] not in ("error", "base"):
            raise ValueError("unseen_levels is not known")
        measures = {
            name: float("nan") if (value := body["deviation"][name]) is None else float(check_numbers(value, (), name))
            for name in _MEASURES
        }
        notes = tuple(map(str, body["notes"]))
        return cls(base, factors, minimum, measures, level, notes, bool(body["named"]), body["unseen_levels"])

    def __repr__(self) -> str:
        rows = sum(len(factor.labels) for factor in self.factors)
        return (
            f"Tariff(base={self.base:.6g}, {len(self.factors)} factors, {rows} relativities, largest deviation "
            f"{100 * self.deviation['largest']:.2g} %)"
        )


@dataclass(frozen=True)
class _LevelsWithRest(LevelsFactor):
    """Levels of which one also stands for those that are not known."""

    rest: Level = OTHER

    def encode(self, values: Values, unseen: Unseen) -> Array:
        """Return the indicators."""
        if not isinstance(values, Categories):
            values = whole_categories(values, self.column)
        known = set(self.levels)
        return super().encode(values._replace(present=[v if v in known else self.rest for v in values.present]), unseen)


def design_of(columns: tuple[Column, ...], named: bool, rests: Mapping[str, Level]) -> Design:
    """Return a design in which every column becomes what it is by itself.

    - `rests`: By column, the level that those which are not known count as.
    """

    def term(column: Column) -> Term:
        if column.name not in rests:
            return column.term
        assert column.levels is not None
        return Term((_LevelsWithRest(column.name, column.levels, rest=rests[column.name]),), column.name)

    return Design(columns, named, tuple(map(term, columns)))


def split_cells(design: Design, matrix: Array) -> list[Array]:
    """Return the columns of a matrix of features, with codes in the place of indicators of levels."""
    found, at = [], 0
    for column in design.columns:
        width = len(column.features)
        block = matrix[:, at : at + width]
        found.append(np.asarray(block[:, 0] if column.levels is None else block @ np.arange(1.0, width + 1)))
        at += width
    return found
