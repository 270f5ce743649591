"""What each feature does to the premium and to the differences between groups."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairpremium.models import Design
from fairpremium.pricing._prices import Prices


def explain_prices(
    prices: Prices, matrix: npt.NDArray[Any], *, points: int, max_rows: int, rng: np.random.Generator
) -> pd.DataFrame:
    """Compute partial dependences; see `DiscriminationFreePricer.explain`."""
    if len(matrix) > max_rows:
        matrix = matrix[np.sort(rng.choice(len(matrix), max_rows, replace=False))]
    link = prices.family.link
    tables: list[dict[Any, Any]] = []
    for name, values, settings in _settings(prices.design, matrix, points):
        for value, columns in zip(values, settings, strict=True):
            moved = matrix.copy()
            for position, number in columns.items():
                moved[:, position] = number
            gap = link.predictor(prices.best_estimate(moved)) - link.predictor(prices.unaware_price(moved))[:, None]
            row: dict[Any, Any] = {
                "feature": name,
                "value": value,
                "premium": float(prices.premium(moved).mean()),
                "unaware": float(prices.unaware_price(moved).mean()),
            }
            row |= {f"gap {group}": float(g) for group, g in zip(prices.groups, gap.mean(axis=0), strict=True)}
            tables.append(row)
    return pd.DataFrame(tables)


def _settings(
    design: Design, matrix: npt.NDArray[Any], points: int
) -> list[tuple[str, list[Any], list[dict[int, Any]]]]:
    """For each column of the caller: its name, the values to try, and what they are in the matrix."""
    found: list[tuple[str, list[Any], list[dict[int, Any]]]] = []
    at = 0
    for column in design.columns:
        width = len(column.features)
        if column.levels is None:
            seen = np.unique(matrix[:, at])
            if len(seen) > points:
                seen = np.unique(np.quantile(matrix[:, at], np.linspace(0.01, 0.99, points)))
            found.append((column.name, seen.tolist(), [{at: value} for value in seen]))
        else:
            indicators = [{at + j: float(j + 1 == code) for j in range(width)} for code in range(width + 1)]
            found.append((column.name, list(column.levels), indicators))
        at += width
    return found
