"""From a pricer and a portfolio to the closest multiplicative tariff."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri, stdtrit, xlogy

from fairpremium.arrays import Array
from fairpremium.models import is_number
from fairpremium.tariffs._constraints import Constraints
from fairpremium.tariffs._factor_choice import base_rows, choose_factors, exposures, factor_columns
from fairpremium.tariffs._factors import Factor, FormulaFactor
from fairpremium.tariffs._portfolio import Portfolio, Pricer, rows_of
from fairpremium.tariffs._projection import Projection
from fairpremium.tariffs._proxy_discrimination import proxy_discrimination
from fairpremium.tariffs._tariff import Tariff

_BLOCK_ROWS = 20_000
_UNKNOWN = "Rare levels were grouped, so that a level which the tariff does not know has the relativity of"


def fit_tariff(
    pricer: Pricer,
    X: Any,
    exposure: Any = None,
    bands: Any = None,
    *,
    monotone: Mapping[str, Any] | None = None,
    fixed: Mapping[str, Mapping[Any, float]] | None = None,
    rounding: float | None = None,
    minimum_premium: float | None = None,
    tolerance: float = 0.05,
    level: float = 0.95,
) -> Tariff:
    """Find the closest multiplicative tariff; see `DiscriminationFreePricer.to_tariff`."""
    _check_positive(rounding=rounding, minimum_premium=minimum_premium, tolerance=tolerance)
    portfolio = Portfolio.read(pricer, X, exposure)
    factors, notes = choose_factors(portfolio, bands, tolerance)
    constraints = Constraints.of(monotone, fixed, factors)
    base = np.concatenate(base_rows(portfolio, factors))
    known = np.where(np.isnan(constraints.given), base, constraints.given)
    lower = np.hstack([np.zeros((len(constraints.lower), 1)), constraints.lower])
    Z = factor_columns(portfolio, factors)
    asked = Projection(Z, portfolio.weight, np.append(np.nan, known), lower)
    problem = asked.without_repeats(portfolio.h)
    notes = (*notes, *(f"{_UNKNOWN} {level!r} of {name}." for name, level in portfolio.rests.items()))
    notes = (*notes, *_describe_repeats(factors, (asked.free & ~problem.free)[1:]))
    theta = problem.solve(portfolio.h)
    width = _half_widths(portfolio, problem, theta, level)[1:]
    relativity = constraints.round(np.exp(constraints.settle(theta[1:], known)), rounding, factors)
    index = np.exp((Z[:, 1:] @ np.log(relativity))[: portfolio.n])  # premiums over the base
    tariff = Tariff(
        base=float(np.exp(theta[0])),
        factors=tuple(_with_rows(portfolio, factors, relativity, width)),
        minimum_premium=None if minimum_premium is None else float(minimum_premium),
        deviation={},
        level=float(level),
        notes=(),
        named=portfolio.design.named,
        unseen_levels=pricer.unseen_levels,
    )
    if rounding is not None or minimum_premium is not None:
        tariff = replace(tariff, base=_rebalanced(tariff, portfolio, index))
    measures = _deviation(portfolio, tariff.predict(portfolio.given))
    sentences = _describe(measures, factors, rounding, minimum_premium, bool(monotone or fixed))
    return replace(tariff, deviation=measures, notes=(*sentences, *notes))


def _describe_repeats(factors: Sequence[Factor], repeated: npt.NDArray[np.bool_]) -> list[str]:
    rows = [f"{factor.name} {label}" for factor in factors for label in factor.labels]
    found = [row for row, same in zip(rows, repeated, strict=True) if same]
    same = "Factors before them say the same in every row of the portfolio, so that they have one"
    return [f"{same}: {', '.join(found)}."] if found else []


def _check_positive(**values: float | None) -> None:
    for name, value in values.items():
        if value is not None and not (is_number(value) and 0 < value < np.inf):
            raise ValueError(f"Got {name}={value!r}, but expected a finite number above zero.")


def _half_widths(portfolio: Portfolio, problem: Projection, theta: Array, level: float) -> Array:
    """Compute half the widths of the intervals of theta, by the delta method; NaN without intervals: shape (q,).

    With R R' the covariance of the premiums, theta moves by H^-1 sum_i w_i z_i R_i, without the constraints.
    """
    found = np.where(problem.free, np.nan, 0.0)
    total: Any = 0.0
    freedom = np.inf
    for start in range(0, len(portfolio.h), _BLOCK_ROWS):
        block = slice(start, start + _BLOCK_ROWS)
        root = portfolio.pricer.covariance_root(rows_of(portfolio.table, block))
        if root is None:
            return found
        R, freedom = root
        total = total + problem.Z[block].T @ (portfolio.weight[block, None] * R)
    error = np.sqrt((problem.response(theta, total) ** 2).sum(axis=1))
    quantile = ndtri(0.5 + level / 2) if np.isinf(freedom) else stdtrit(freedom, 0.5 + level / 2)
    return np.asarray(np.where(problem.free, quantile * error, 0.0))


def _with_rows(portfolio: Portfolio, factors: Sequence[Factor], relativity: Array, width: Array) -> list[Factor]:
    ends = np.cumsum([0, *(len(factor.labels) for factor in factors)])
    found = []
    for factor, a, b in zip(factors, ends[:-1], ends[1:], strict=True):
        value, spread = relativity[a:b], np.exp(width[a:b])
        if isinstance(factor, FormulaFactor):
            cells = portfolio.cells[factor.name][: portfolio.n]
            factor = replace(factor, typical=_quantile(cells, portfolio.exposure, 0.5))
        found.append(factor.with_rows(value, value / spread, value * spread, exposures(portfolio, factor)))
    return found


def _rebalanced(tariff: Tariff, portfolio: Portfolio, index: Array) -> float:
    """Find the base with which the tariff has the total of h*, after rounding and with the minimum premium."""
    w, total = portfolio.weight[: portfolio.n], float(portfolio.weight[: portfolio.n] @ portfolio.h[: portfolio.n])
    base = total / float(w @ index)
    least = tariff.minimum_premium
    if least is None or base * index.min() >= least:
        return base
    if least >= total:
        raise ValueError(
            f"Got minimum_premium={least:g}, but expected less than the mean premium {total:.6g} of the "
            "portfolio, which the tariff keeps."
        )

    from scipy.optimize import brentq

    def gap(b: float) -> float:
        return float(w @ np.maximum(b * index, least)) / total - 1

    return float(brentq(gap, 0.0, base, xtol=1e-300, rtol=1e-14))


def _deviation(portfolio: Portfolio, premium: Array) -> dict[str, float]:
    n, w = portfolio.n, portfolio.exposure / portfolio.exposure.sum()
    h, t = portfolio.h[:n], premium
    relative = portfolio.relative_deviation(premium)

    def deviance(price: Any) -> float:
        return float(2 * w @ (xlogy(h, h / price) - (h - price)))

    flat = deviance(np.full(n, float(w @ h)))
    best = np.asarray(portfolio.pricer.predict_best_estimate(portfolio.given), dtype=np.float64)
    unaware = np.asarray(portfolio.pricer.predict_unaware(portfolio.given), dtype=np.float64)
    middle, high = _quantile(relative, w, 0.5), _quantile(relative, w, 0.99)
    found = {"median": middle, "p99": high, "largest": float(relative.max()), "deviance": deviance(t)}
    found["deviance_explained"] = 1 - found["deviance"] / flat if flat > 0 else 1.0
    for name, price in (("before", h), ("after", t), ("unaware", unaware)):
        found[f"proxy_discrimination_{name}"] = proxy_discrimination(price, best, w)
    return found


def _quantile(values: Array, weight: Array, level: float) -> float:
    """Return the smallest value that a part of the weight does not exceed."""
    order = np.argsort(values)
    share = np.cumsum(weight[order])
    return float(values[order[min(int(np.searchsorted(share, level * share[-1])), len(values) - 1)]])


def _describe(
    measures: dict[str, float],
    factors: Sequence[Factor],
    rounding: float | None,
    least: float | None,
    constrained: bool,
) -> list[str]:
    percent = {name: f"{100 * measures[name]:.3g} %" for name in ("median", "p99", "largest")}
    proxy = {name: f"{round(measures[f'proxy_discrimination_{name}'], 6):g}" for name in ("before", "after", "unaware")}
    found = [
        "Premiums are per unit of exposure.",
        f"Relative deviation from the discrimination-free premium on the portfolio: median {percent['median']}, 99th "
        f"percentile {percent['p99']}, largest {percent['largest']}.",
        f"Proxy discrimination (0 none, 1 largest): {proxy['before']} of the discrimination-free premium, "
        f"{proxy['after']} of the tariff, {proxy['unaware']} of the unaware price.",
    ]
    if constrained:
        found.append("Limits of relativities leave aside that some relativities were fixed or put in order.")
    if rounding is not None:
        found.append(f"Relativities are rounded to multiples of {rounding:g}, and the base keeps the total premium.")
        if any(factor.kind == "formula" for factor in factors):
            found.append("Relativities of formulas are not rounded.")
    if least is not None:
        found.append(f"The premium is at least {least:g}, and the base keeps the total premium.")
    return found
