"""What simulated portfolios share: checks of arguments and columns, draws of groups, exposures and counts."""

import operator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairpremium.arrays import Array
from fairpremium.portfolios._portfolio import SimulatedPortfolio, Truth

FULL_YEAR = 0.6  # share of policies with exposure 1


def check_rows(n: int) -> int:
    """Return `n` as an int, refusing everything that is not a positive whole number."""
    try:
        rows = operator.index(n)
    except TypeError:
        raise TypeError(f"Got n={n!r}, but expected a positive whole number of rows.") from None
    if rows < 1:
        raise ValueError(f"Got n={n}, but expected a positive whole number of rows.")
    return rows


def column(X: Any, name: str) -> NDArray[Any]:
    """Return the column `name` of the data frame `X` as an array."""
    columns = getattr(X, "columns", None)
    if columns is None:
        raise TypeError(
            f"Got X of type {type(X).__name__}, but expected a data frame with a column {name!r}, like `portfolio.X`."
        )
    if name not in columns:
        raise ValueError(f"Got X with columns {list(columns)}, but expected a column {name!r}, like `portfolio.X`.")
    return np.asarray(X[name])


def number_column(X: Any, name: str) -> Array:
    """Return a numeric column of `X` as floats."""
    values = column(X, name)
    try:
        return values.astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"Got column {name!r} with values that are not numbers, but expected numbers.") from None


def draw_positions(probabilities: Array, rng: np.random.Generator) -> NDArray[np.intp]:
    """Draw the position of a group (or level) per row of `probabilities`, shape (n_samples, n_groups)."""
    cumulative = np.cumsum(probabilities, axis=1)
    u = rng.random(len(cumulative)) * cumulative[:, -1]  # in [0, total): the last position is never passed
    return np.asarray((u[:, None] >= cumulative).sum(axis=1))


def level_positions(X: Any, name: str, levels: tuple[str, ...]) -> NDArray[np.intp]:
    """Return the position of each value of the column `name` among the levels."""
    positions = pd.Index(levels).get_indexer(pd.Index(column(X, name).astype(object)))
    if (positions < 0).any():
        raise ValueError(f"Got column {name!r} with other values than {list(levels)}, expected only these.")
    return np.asarray(positions, dtype=np.intp)


def check_frequency(frequency: float) -> float:
    """Return the frequency, refusing what is not positive and finite."""
    if not (np.isfinite(frequency) and frequency > 0):
        raise ValueError(f"Got frequency={frequency}, but expected a positive finite number of claims per year.")
    return float(frequency)


def draw_claims(
    name: str, truth: Truth, X: pd.DataFrame, d: NDArray[np.intp], groups: tuple[str, ...], rng: np.random.Generator
) -> SimulatedPortfolio:
    """Draw exposures and Poisson counts of policies whose features and groups (positions) are drawn."""
    n = len(X)
    exposure = np.where(rng.random(n) < FULL_YEAR, 1.0, 1.0 - rng.random(n))
    claims = rng.poisson(exposure * truth.means(X)[np.arange(n), d])
    return SimulatedPortfolio(
        name=name,
        X=X,
        y=claims / exposure,
        sensitive=np.array(groups, dtype=object)[d],
        groups=groups,
        family="poisson",
        sample_weight=exposure,
        truth=truth,
    )
