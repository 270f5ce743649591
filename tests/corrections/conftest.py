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
from fairpremium.privacy import Channel

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
def channel_of() -> Callable[..., ReportChannel]:
    """channel_of(T, groups): reports through T, with its least squares left inverse; T = I is the true attribute."""

    def channel_of(T: np.ndarray, groups: tuple | None = None) -> ReportChannel:
        groups = groups or tuple(range(T.shape[1]))
        W = np.diag(1 / T.mean(axis=1))
        inverse = np.linalg.inv(T) if T.shape[0] == T.shape[1] else np.linalg.solve(T.T @ W @ T, T.T @ W)
        known = np.array_equal(T, np.eye(len(groups)))
        reports = groups if len(T) == len(groups) else tuple(f"report {s}" for s in range(len(T)))
        channel = None if known else Channel(T, groups=groups, reports=reports)
        return ReportChannel(T, pad_missing(inverse), groups, channel)

    return channel_of


@pytest.fixture
def fit(channel_of: Callable) -> Callable[..., GroupFit]:
    """fit(rows, T, family, pooling): the inverse correction of a square channel."""

    def fit(rows: Rows, T: np.ndarray, family: Family, pooling: float | None = 0.0, **settings: float) -> GroupFit:
        names = [f"x{j}" for j in range(rows.n_features)]
        problem = prepare(rows, len(T) + 1, family, LinearModel(**settings), names)
        return fit_inverse(problem, channel_of(T), pooling)

    return fit
