"""Small portfolios behind randomized response, drawn without the package's own channel."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import norm

from fairpremium.blocks import Rows
from fairpremium.corrections import GroupFit, ReportChannel, fit_inverse
from fairpremium.corrections._report_channel import pad_missing
from fairpremium.families import Family
from fairpremium.models import LinearModel, prepare

# False-alarm probability of each statistical comparison when the assertion is true.
FALSE_ALARM = 1e-6


@pytest.fixture
def sigmas() -> Callable[[int], float]:
    """sigmas(m): how many standard errors m two-sided comparisons may miss by, false alarm 1e-6 in all."""
    return lambda m=1: float(norm.isf(FALSE_ALARM / (2 * m)))


@pytest.fixture
def randomized_response() -> Callable[[int, float], np.ndarray]:
    """T with T[s, d] = P(S = s given D = d)."""

    def matrix(K: int, keep: float) -> np.ndarray:
        T = np.full((K, K), (1 - keep) / (K - 1))
        np.fill_diagonal(T, keep)
        return T

    return matrix


@pytest.fixture
def report() -> Callable[..., np.ndarray]:
    """report(D, T, rng): draw S."""

    def draw(D: np.ndarray, T: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return (rng.random(len(D))[:, None] > np.cumsum(T, axis=0)[:-1].T[D]).sum(axis=1)

    return draw


@pytest.fixture
def fit() -> Callable[..., GroupFit]:
    """fit(rows, T, family, pooling): the inverse correction; the number of folds is read from the rows."""

    def fit(rows: Rows, T: np.ndarray, family: Family, pooling: float | None = 0.0, **settings: float) -> GroupFit:
        folds = 1 if rows.fold is None else int(rows.fold.max()) + 1
        names = [f"x{j}" for j in range(rows.n_features)]
        problem = prepare(rows, len(T) + 1, folds, family, LinearModel(**settings), names)
        channel = ReportChannel(T, pad_missing(np.linalg.inv(T)), tuple(range(len(T))))
        return fit_inverse(problem, channel, pooling, np.random.default_rng(0))

    return fit
