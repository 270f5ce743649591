"""The distribution of a price in every true group, from the reports alone, with the noise of its estimate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from fairpremium.arrays import Array

_GRID = 128  # points at which the noise of a distribution function is drawn
DRAWS = 1000


@dataclass(frozen=True)
class GroupDistributions:
    r"""Distribution functions of a price by group, and draws of their errors.

    Notes
    -----
    With a_ik = w_i T^-1[k, s_i] and the price p_ik, which may differ between groups,

        F_k(t) = sum_i a_ik 1{p_ik <= t} / sum_i a_ik

    is a ratio of unbiased estimates. It ends at one, but negative weights let it fall in places and leave [0, 1]. Its
    error is a sum over rows (or persons) of a_ik (1{p_ik <= t} - F_k(t)) / sum_i a_ik. Draws of a Gaussian process with
    the empirical covariance of these sums follow the law of the error (multiplier bootstrap). They are made on at most
    128 points, which lie at quantiles of the prices; the functions themselves have every price.
    """

    points: Array  # (m,), all prices in order
    probability: Array  # (K, m)
    grid: Any  # (g,), positions in `points` of the points at which errors are drawn
    errors: Array  # (draws, K, g)

    @classmethod
    def estimate(cls, prices: Array, signed: Array, cluster: Any, *, draws: int = DRAWS) -> GroupDistributions:
        """Estimate the distributions of prices of shape (n,) or (n, K), with signed weights a of shape (n, K)."""
        n, K = signed.shape
        table = prices if prices.ndim == 2 else np.repeat(prices[:, None], K, axis=1)
        points, code = np.unique(table, return_inverse=True)
        code = code.reshape(n, K)
        m, total = len(points), signed.sum(axis=0)
        jumps = np.stack([np.bincount(code[:, k], weights=signed[:, k], minlength=m) for k in range(K)])
        probability = np.cumsum(jumps, axis=1) / total[:, None]
        grid = _grid(code, m)
        errors = _draw_errors(np.searchsorted(grid, code), signed, cluster, len(grid), draws)
        errors = np.cumsum(errors, axis=2)
        errors -= probability[:, grid] * errors[:, :, -1:]
        return cls(points, probability, grid, errors / total[:, None])

    def differences(self, pairs: Sequence[tuple[int, int]]) -> tuple[Array, Array, Array]:
        """Return F_k - F_l of some pairs at all points, on the grid, and draws of its error on the grid."""
        first, second = map(list, zip(*pairs, strict=True))
        whole = self.probability[first] - self.probability[second]
        return whole, whole[:, self.grid], self.errors[:, first] - self.errors[:, second]


def _grid(code: Any, m: int) -> Any:
    """Choose the positions of at most so many points, at quantiles of all prices; the largest is among them."""
    if m <= _GRID:
        return np.arange(m)
    mass = np.cumsum(np.bincount(code.ravel(), minlength=m))
    return np.unique(np.searchsorted(mass, np.linspace(0, mass[-1], _GRID + 1)[1:]))


def _draw_errors(bins: Any, signed: Array, cluster: Any, g: int, draws: int) -> Array:
    """Draw Gaussian errors of the signed totals of each group in each bin: shape (draws, K, g)."""
    n, K = signed.shape
    unit = np.arange(n) if cluster is None else cluster
    place = bins + g * np.arange(K)
    sums = csr_matrix((signed.ravel(), (np.repeat(unit, K), place.ravel())), shape=(int(unit.max()) + 1, K * g))
    return draw_normal((sums.T @ sums).toarray(), draws).reshape(draws, K, g)


def draw_normal(covariance: Array, draws: int) -> Array:
    """Draw from a centred normal law: shape (draws, m). The seed is fixed: the draws are part of the estimator.

    The root of the covariance is the symmetric one, which is unique: all machines draw the same but for rounding.
    """
    values, vectors = np.linalg.eigh(covariance)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return np.asarray(np.random.default_rng(0).standard_normal((draws, len(covariance))) @ root)


def make_monotone(probability: Array) -> Array:
    """Put the values of a distribution function in order (rearrangement), between zero and one.

    The rearranged function is never farther from a monotone truth than the given one, in every L_p norm and in the
    largest difference [Chernozhukov2009]. The running maximum has no such property: it is too high wherever noise
    was high once. A function that is monotone already stays as it is.
    """
    return np.clip(np.sort(probability, axis=-1), 0.0, 1.0)
