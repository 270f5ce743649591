"""Estimates with their joint covariance: the delta method, written as arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from fairpremium.arrays import Array


@dataclass(frozen=True)
class Estimate:
    """Some numbers, and how they move with the totals that they were computed from.

    Sums, differences and quotients carry the gradient along, so that every measure built from the same totals has the
    right standard error, and so has every gap between two of them.

    Notes
    -----
    To first order Cov(f) = G C G' with the gradient G and the covariance C of the totals. C holds the second moments
    of the rows' contributions about zero; that is their covariance up to a term along the totals themselves, which
    vanishes in every measure that does not change when all totals are doubled. All measures here are of that kind.
    """

    value: Array  # (p,)
    gradient: Array  # (p, m), derivatives with respect to the m totals
    covariance: Array  # (m, m), of the totals

    @property
    def variance(self) -> Array:
        """Variances, shape (p,)."""
        return np.asarray(np.einsum("pm,mn,pn->p", self.gradient, self.covariance, self.gradient, optimize=True))

    @property
    def standard_error(self) -> Array:
        """Standard errors, shape (p,)."""
        return np.asarray(np.sqrt(np.maximum(self.variance, 0.0)))

    def __len__(self) -> int:
        return len(self.value)

    def __getitem__(self, index: Any) -> Estimate:
        index = np.atleast_1d(np.arange(len(self))[index])
        return Estimate(self.value[index], self.gradient[index], self.covariance)

    def __sub__(self, other: Estimate) -> Estimate:
        return Estimate(self.value - other.value, self.gradient - other.gradient, self.covariance)

    def __truediv__(self, other: Estimate) -> Estimate:
        denominator = np.where(other.value == 0, np.nan, other.value)  # there is no ratio to nothing
        value = self.value / denominator
        gradient = (self.gradient - other.gradient * value[:, None]) / denominator[:, None]
        return Estimate(value, gradient, self.covariance)

    def sum(self) -> Estimate:
        """Return the sum of the numbers."""
        return Estimate(self.value.sum(keepdims=True), self.gradient.sum(axis=0, keepdims=True), self.covariance)

    def interval(self, level: float) -> tuple[Array, Array]:
        """Return the limits value -+ z SE."""
        width = ndtri(0.5 + level / 2) * self.standard_error
        return self.value - width, self.value + width

    def ratio_interval(self, level: float) -> tuple[Array, Array]:
        """Return limits that are symmetric on the log scale, for positive ratios; nan where one is not positive."""
        positive = self.value > 0
        value = np.where(positive, self.value, np.nan)
        with np.errstate(over="ignore"):
            width = np.exp(ndtri(0.5 + level / 2) * self.standard_error / value)
            return value / width, value * width


def fieller(numerator: Estimate, denominator: Estimate, level: float) -> tuple[Array, Array]:
    """Return Fieller's limits of a ratio: all t with (N - t D)^2 <= z^2 Var(N - t D).

    They hold for every size of the denominator; the delta method needs one far from zero. They reach further on the
    side to which a noisy denominator moves the ratio. Where z^2 Var(D) >= D^2 the set is not an interval: nan.

    References
    ----------
    Fieller (1954), Some problems in interval estimation, Journal of the Royal Statistical Society B 16(2), 175-185.
    """
    z2 = ndtri(0.5 + level / 2) ** 2
    N, D = numerator.value, denominator.value
    nn, dd = numerator.variance, denominator.variance
    nd = np.einsum("pm,mn,pn->p", numerator.gradient, numerator.covariance, denominator.gradient, optimize=True)
    a, b, c = D**2 - z2 * dd, N * D - z2 * nd, N**2 - z2 * nn
    with np.errstate(divide="ignore", invalid="ignore"):
        a = np.where(a > 0, a, np.nan)
        root = np.sqrt(np.maximum(b**2 - a * c, 0.0))
        return (b - root) / a, (b + root) / a
