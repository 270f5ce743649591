"""What each feature does to the premium and to the differences between groups."""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
import pandas as pd

from fairpremium.models import Categories, Column, Values
from fairpremium.pricing._prices import Prices


def explain_prices(
    prices: Prices,
    values: Mapping[str, Values],
    *,
    points: int,
    max_rows: int,
    unseen: Literal["error", "base"],
    rng: np.random.Generator,
) -> pd.DataFrame:
    """Compute partial dependences from the columns' values; see `DiscriminationFreePricer.explain`."""
    n = _rows(next(iter(values.values())))
    if n > max_rows:
        some = np.sort(rng.choice(n, max_rows, replace=False))
        values, n = {name: _take(column, some) for name, column in values.items()}, max_rows
    link, design = prices.family.link, prices.design
    tables: list[dict[Any, Any]] = []
    for column in design.columns:
        for value, constant in _settings(column, values[column.name], points, n):
            moved = design.build({**values, column.name: constant}, unseen)
            gap = link.predictor(prices.best_estimate(moved)) - link.predictor(prices.unaware_price(moved))[:, None]
            row: dict[Any, Any] = {
                "feature": column.name,
                "value": value,
                "premium": float(prices.premium(moved).mean()),
                "unaware": float(prices.unaware_price(moved).mean()),
            }
            row |= {f"gap {group}": float(g) for group, g in zip(prices.groups, gap.mean(axis=0), strict=True)}
            tables.append(row)
    return pd.DataFrame(tables)


def _settings(column: Column, values: Values, points: int, n: int) -> list[tuple[Any, Values]]:
    """Return the values to try, each with a column of nothing else."""
    if column.levels is not None:
        here = np.zeros(n, dtype=np.intp)
        return [(level, Categories((level,), here)) for level in column.levels]
    assert isinstance(values, np.ndarray)
    seen = np.unique(values)
    if len(seen) > points:
        seen = np.unique(np.quantile(values, np.linspace(0.01, 0.99, points)))
    return [(value, np.full(n, value)) for value in seen.tolist()]


def _rows(values: Values) -> int:
    return len(values.positions) if isinstance(values, Categories) else len(values)


def _take(values: Values, some: Any) -> Values:
    if isinstance(values, Categories):
        return values._replace(positions=values.positions[some])
    return np.asarray(values[some])
