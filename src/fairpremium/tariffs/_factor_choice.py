"""How each column enters a tariff: levels as they are, numbers as a formula or in bands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from fairpremium.arrays import Array
from fairpremium.models import BandsFactor, is_number, is_whole
from fairpremium.tariffs._bands import FINE_BANDS, MAX_BANDS, Curve, Edges, choose_edges, fine_edges
from fairpremium.tariffs._factors import Factor, TableFactor, band_factor, formula_factor, level_factor
from fairpremium.tariffs._portfolio import Portfolio
from fairpremium.tariffs._projection import Projection

_SAME = 1e-10  # differences of logarithms that are rounding
_PROBES, _PROBE_ROWS = 5, 50  # values of a column, and rows in which they are tried
_LINE = 0.1  # share of the tolerance that a formula may add to the deviation of the finest bands
_STEPS = 10  # so many bands are exact rather than few

FORMULA, BANDS = "formula", "bands"
_EXPECTED = 'a number of bands, "bands" or "formula"'


def choose_factors(portfolio: Portfolio, bands: Any, tolerance: float) -> tuple[list[Factor], tuple[str, ...]]:
    """Choose the factors, and say in sentences what a reader should know about the choice."""
    numeric = [column.name for column in portfolio.design.columns if column.levels is None]
    wanted = _check_bands(bands, numeric, portfolio)
    found: dict[str, Factor] = {
        column.name: level_factor(column, portfolio.rests.get(column.name))
        for column in portfolio.design.columns
        if column.levels is not None
    }
    found |= {name: formula_factor(name) for name, given in wanted.items() if given == FORMULA}
    found |= {name: band_factor(name, given) for name, given in wanted.items() if isinstance(given, tuple)}
    free = [name for name in numeric if name not in wanted]
    found |= _exact_factors(portfolio, free)
    search = _Search(portfolio, found, {name: wanted.get(name) for name in numeric if name not in found}, tolerance)
    found, notes = search.run()
    return [found[name] for name in portfolio.design.names], notes


def _exact_factors(portfolio: Portfolio, names: list[str]) -> dict[str, Factor]:
    """Find columns that enter as they do in the premium: as a formula, or in bands, one for each of its steps."""
    probes = {name: _Probe.of(portfolio, name) for name in names}
    multiplicative = len(portfolio.design.columns) > 1 and all(probe.same_in_all_rows for probe in probes.values())
    found: dict[str, Factor] = {}
    for name, probe in probes.items():
        if probe.same_in_all_rows and probe.is_line:
            found[name] = formula_factor(name)
        elif probe.same_in_all_rows and len(probe.steps) < (FINE_BANDS if multiplicative else _STEPS):
            found[name] = band_factor(name, probe.steps)
        elif not probe.same_in_all_rows and (edges := _own_edges(portfolio, name)):
            found[name] = band_factor(name, edges)
    return found


@dataclass(frozen=True, eq=False)
class _Search:
    """The choice of the columns that do not enter exactly, by the largest deviation of whole tariffs."""

    portfolio: Portfolio
    known: dict[str, Factor]
    open: dict[str, Any]  # by column: a number of bands, "bands", or None for bands or a formula
    tolerance: float

    def run(self) -> tuple[dict[str, Factor], tuple[str, ...]]:
        """Return the factors of all columns, and notes."""
        found, portfolio = dict(self.known), self.portfolio
        if not self.open:
            return found, ()
        fine = {name: band_factor(name, fine_edges(portfolio.cells[name][: portfolio.n])) for name in self.open}
        formulas: dict[str, Factor] = {name: formula_factor(name) for name in self.open if self.open[name] is None}
        if self.deviation(found | fine | formulas) <= self.tolerance:
            found |= formulas
        else:
            finest = self.deviation(found | fine)
            for name, formula in formulas.items():
                if self.deviation(found | fine | {name: formula}) <= finest + _LINE * self.tolerance:
                    found[name] = formula
        fine = {name: factor for name, factor in fine.items() if name not in found}
        effects = self._effects(found | fine)
        curves = {name: Curve(factor.edges, effects[name]) for name, factor in fine.items()}
        for name in [name for name in fine if isinstance(self.open[name], int)]:
            found[name] = band_factor(name, curves.pop(name).at_most(self.open[name]))
        if not curves:
            return found, ()

        def deviation(edges: dict[str, Edges]) -> float:
            return self.deviation(found | {name: band_factor(name, cut) for name, cut in edges.items()})

        edges, reachable = choose_edges(curves, deviation, self.tolerance)
        chosen: dict[str, Factor] = {name: band_factor(name, cut) for name, cut in edges.items()}
        if reachable > self.tolerance:
            formulas = {name: formula for name, formula in formulas.items() if name in curves}
            if formulas and (left := self.deviation(found | chosen | formulas)) <= deviation(edges):
                return found | chosen | formulas, (_unreachable(self.tolerance, reachable, left),)
            return found | chosen, (_unreachable(self.tolerance, reachable),)
        return found | chosen, ()

    def deviation(self, factors: dict[str, Factor]) -> float:
        """Compute the largest relative deviation of the tariff with these factors."""
        Z, theta = self._fit(factors)
        return float(self.portfolio.relative_deviation(np.exp(Z @ theta)).max())

    def _effects(self, factors: dict[str, Factor]) -> dict[str, Array]:
        """Compute the logarithms of the relativities of each factor."""
        _, theta = self._fit(factors)
        ends = np.cumsum([1, *(len(factor.labels) for factor in factors.values())])
        return {name: theta[a:b] for name, a, b in zip(factors, ends[:-1], ends[1:], strict=True)}

    def _fit(self, factors: dict[str, Factor]) -> tuple[sparse.csr_array, Array]:
        portfolio, some = self.portfolio, list(factors.values())
        Z = factor_columns(portfolio, some)
        fixed = np.concatenate([[np.nan], *base_rows(portfolio, some)])
        problem = Projection(Z, portfolio.weight, fixed, np.zeros((0, len(fixed))))
        return Z, problem.without_repeats(portfolio.h).solve(portfolio.h)


def _unreachable(tolerance: float, reachable: float, formulas: float | None = None) -> str:
    instead = "" if formulas is None else f", and formulas, which the tariff has instead, {100 * formulas:.3g} %"
    return (
        f"No bands keep the largest deviation within {100 * tolerance:g} %: {MAX_BANDS} bands of each column reach "
        f"{100 * reachable:.3g} %{instead}. The rest is interaction, which a multiplicative tariff cannot have, or few "
        "rows far from the others."
    )


def factor_columns(portfolio: Portfolio, factors: Sequence[Factor]) -> sparse.csr_array:
    """Return the columns of the log-linear model: one, then the rows of each factor."""
    ones = sparse.csr_array(np.ones((len(portfolio.h), 1)))
    return sparse.csr_array(sparse.hstack([ones, *(f.design(portfolio.cells[f.name]) for f in factors)], format="csr"))


def base_rows(portfolio: Portfolio, factors: Sequence[Factor]) -> list[Array]:
    """Return for each factor zero at its base row and NaN elsewhere; a formula has no base.

    The base of levels is their first one; that of bands is the band with the most exposure.
    """
    found = []
    for factor in factors:
        values = np.full(len(factor.labels), np.nan)
        if factor.kind == "levels":
            values[0] = 0.0
        elif isinstance(factor, TableFactor):
            values[np.argmax(exposures(portfolio, factor))] = 0.0
        found.append(values)
    return found


def exposures(portfolio: Portfolio, factor: Factor) -> Array:
    """Compute the exposure of each row of a factor; that of a formula is the whole."""
    if not isinstance(factor, TableFactor):
        return np.array([portfolio.exposure.sum()])
    codes = factor.codes(portfolio.cells[factor.name][: portfolio.n])
    return np.bincount(codes, portfolio.exposure, minlength=len(factor.labels)).astype(np.float64)


@dataclass(frozen=True, eq=False)
class _Probe:
    """What moving one column does to the premiums of some rows."""

    edges: Edges  # of the fine bands
    points: Array  # (points,), values of the column, one in each fine band unless rows differ already in a few
    effect: Array  # (points, rows), change of log h* from the first point

    @classmethod
    def of(cls, portfolio: Portfolio, name: str) -> _Probe:
        """Try a few values of a column, and all fine bands if the rows agree about these."""
        seen = np.unique(portfolio.cells[name][: portfolio.n])
        edges = _own_edges(portfolio, name) or fine_edges(portfolio.cells[name][: portfolio.n])
        points = seen[np.append(0, np.searchsorted(seen, edges))]  # the smallest value of each fine band
        some = points[np.unique(np.linspace(0, len(points) - 1, _PROBES).astype(np.intp))]
        found = cls(edges, some, _effects_of(portfolio, name, some))
        return cls(edges, points, _effects_of(portfolio, name, points)) if found.same_in_all_rows else found

    @property
    def same_in_all_rows(self) -> bool:
        """Whether the column multiplies every premium by the same factor."""
        return bool(np.ptp(self.effect, axis=1).max() <= _SAME * (1 + np.abs(self.effect).max()))  # False for NaN

    @property
    def steps(self) -> Edges:
        """Where the factor changes, if it is the same in all rows."""
        return Curve(self.edges, self.effect[:, 0]).within(_SAME)

    @property
    def is_line(self) -> bool:
        """Whether log h* is linear in the column; an indicator is better a table."""
        if len(self.points) < 2 or self.points.tolist() == [0.0, 1.0]:
            return False
        x = self.points - self.points[0]
        error = self.effect[:, 0] - self.effect[-1, 0] * x / x[-1]
        return bool(np.abs(error).max() <= _SAME * (1 + np.abs(self.effect).max()))


def _own_edges(portfolio: Portfolio, name: str) -> Edges:
    """Return the limits of bands that the pricer's own terms put a column into; none if it enters otherwise as well."""
    factors = [f for term in portfolio.pricer.design_.terms or () for f in term.factors if f.column == name]
    if not all(isinstance(factor, BandsFactor) for factor in factors):
        return ()
    cuts = sorted({cut for factor in factors if isinstance(factor, BandsFactor) for cut in factor.cuts})
    values = portfolio.cells[name][: portfolio.n]
    return tuple(cut for cut in cuts if values.min() < cut <= values.max())


def _effects_of(portfolio: Portfolio, name: str, points: Array) -> Array:
    """Compute changes of log h*: NaN where a model class refuses rows far from those of the fit."""
    try:
        h = np.array([portfolio.pricer.predict(portfolio.moved(name, value, _PROBE_ROWS)) for value in points.tolist()])
    except (ValueError, ArithmeticError):
        return np.full((len(points), 1), np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.log(h) - np.log(h[0]))


def _check_bands(bands: Any, numeric: list[str], portfolio: Portfolio) -> dict[str, Any]:
    """Return what the caller wants for some columns: a tuple of edges, a number of bands, "bands" or "formula"."""
    if bands is None:
        return {}
    if isinstance(bands, str) or is_whole(bands, 1):
        bands = dict.fromkeys(numeric, bands)
    if not isinstance(bands, Mapping):
        raise TypeError(f"Got bands of type {type(bands).__name__}, but expected a dict by column, or {_EXPECTED}.")
    unknown = sorted(set(bands) - set(numeric), key=str)
    if unknown:
        raise ValueError(f"Got bands for {unknown}, but the numeric columns are {numeric}.")
    return {name: _check_wish(given, name, portfolio) for name, given in bands.items()}


def _check_wish(given: Any, name: str, portfolio: Portfolio) -> Any:
    if is_whole(given, 1):
        return int(given)
    if isinstance(given, str) and given in (FORMULA, BANDS):
        return given
    if isinstance(given, str) or not isinstance(given, Sequence | np.ndarray) or not all(map(is_number, given)):
        raise ValueError(f"Got bands {given!r} for {name!r}, but expected edges, such as [25, 40], or {_EXPECTED}.")
    edges = np.asarray(given, dtype=np.float64)
    if not np.isfinite(edges).all() or (np.diff(edges) <= 0).any():
        raise ValueError(f"Got bands {list(given)} for {name!r}, but expected finite edges in ascending order.")
    factor = band_factor(name, tuple(edges.tolist()))
    empty = exposures(portfolio, factor) == 0
    if empty.any():
        raise ValueError(
            f"Got bands for {name!r} with {factor.labels[int(np.argmax(empty))]!r}, where X has no row, but expected "
            "rows in every band. Leave an edge out."
        )
    return factor.edges
