"""Estimates with their joint covariance: the delta method, written as arithmetic, and limits for skewed rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.special import ndtri, stdtr, stdtrit

from fairpremium.arrays import Array


class Contributions:
    """What independent rows, or persons with all their rows, add to m totals.

    - `blocks`: pairs of values, shape (rows, c), and a matrix, shape (c, m), that turns them into contributions.
    """

    def __init__(self, blocks: Sequence[tuple[Array, Array]]) -> None:
        self._blocks = [(values, matrix) for values, matrix in blocks if len(values)]
        self._size = blocks[0][1].shape[1]

    @cached_property
    def sums(self) -> Array:
        """The totals, shape (m,)."""
        return sum((values.sum(axis=0) @ matrix for values, matrix in self._blocks), np.zeros(self._size))

    @cached_property
    def covariance(self) -> Array:
        """Second moments about zero, shape (m, m)."""
        parts = (matrix.T @ (values.T @ values) @ matrix for values, matrix in self._blocks)
        return sum(parts, np.zeros((self._size, self._size)))

    def shape_of(self, gradient: Array) -> ErrorShape:
        """Return the shape of the errors of linear functions of the totals."""
        rows, second, third, fourth = np.zeros((4, len(gradient)))
        for values, matrix in self._blocks:
            psi = values @ (matrix @ gradient.T)
            square = psi**2
            rows += np.count_nonzero(psi, axis=0)
            second += square.sum(axis=0)
            third += np.einsum("ip,ip->p", square, psi)
            fourth += np.einsum("ip,ip->p", square, square)
        return ErrorShape.of(rows, second, third, fourth)


_TINY = 1e-12  # less is rounding


@dataclass(frozen=True)
class ErrorShape:
    """How skewed the errors of estimates are, and what their standard errors are worth.

    Notes
    -----
    Losses are skewed: a mean of few large claims errs downwards, with a standard error that is too small at the same
    time. With the rows' influences psi_i, the skewness l = sum psi^3 / (sum psi^2)^(3/2) of the estimate and

    - the degrees of freedom f = 1 / (sum psi^4 / (sum psi^2)^2 - 1/n), where n rows count: half of Satterthwaite's for
      its variance, because a sample from a heavy tail understates the fourth moments,
    - Hall's transformation g(T) = T + l T^2 / 3 + l^2 T^3 / 27 + l / 6 of T = (estimate - truth) / SE, which takes the
      skewness out of T,

    g(T) is compared with Student's t with f degrees of freedom. With many rows of ordinary size these are the normal
    limits.

    References
    ----------
    Hall (1992), On the removal of skewness by transformation, Journal of the Royal Statistical Society B 54(1),
    221-228. Satterthwaite (1946), An approximate distribution of estimates of variance components, Biometrics Bulletin
    2(6), 110-114.
    """

    skewness: Array  # (p,)
    freedom: Array  # (p,), degrees of freedom

    @classmethod
    def of(cls, rows: Array, second: Array, third: Array, fourth: Array) -> ErrorShape:
        """Compute it from how many rows count, and from the sums of psi^2, psi^3 and psi^4; shape (p,) each."""
        with np.errstate(divide="ignore", invalid="ignore"):
            skewness = np.where(second > 0, third / second**1.5, 0.0)
            kurtosis = np.where(second > 0, fourth / second**2 - 1 / rows, 0.0)
            freedom = np.where(kurtosis > _TINY, 1 / kurtosis, 1 / _TINY)
        return cls(np.asarray(skewness), np.asarray(freedom))

    def critical(self, error: float | Array) -> tuple[Array, Array]:
        """Return the values outside of which T = (estimate - truth) / SE lies with this probability."""
        x = -stdtrit(self.freedom, error / 2)
        return _invert(self.skewness, -x), _invert(self.skewness, x)

    def p_value(self, T: Array) -> Array:
        """Return the two-sided p values of T: below 1 - level where T lies outside of `critical`."""
        skewness = self.skewness
        g = T + skewness * T**2 / 3 + skewness**2 * T**3 / 27 + skewness / 6
        return np.asarray(2 * stdtr(self.freedom, -np.abs(g)))


@dataclass(frozen=True)
class Estimate:
    """Some numbers, and how they move with the totals that they were computed from.

    Sums, differences, products and quotients carry the gradient along, so that every measure built from the same totals
    has the right standard error, and so has every gap between two of them.

    Notes
    -----
    To first order Cov(f) = G C G' with the gradient G and the covariance C of the totals. C holds the second moments
    of the rows' contributions about zero; that is their covariance up to a term along the totals themselves, which
    vanishes in every measure that does not change when all totals are doubled. All measures here are of that kind.
    The influence of a row is psi_i = G z_i; for limits see `ErrorShape`.
    """

    value: Array  # (p,)
    gradient: Array  # (p, m), derivatives with respect to the m totals
    rows: Contributions  # to the totals

    @property
    def covariance(self) -> Array:
        """Covariance of the totals, shape (m, m)."""
        return self.rows.covariance

    @cached_property
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
        return Estimate(self.value[index], self.gradient[index], self.rows)

    def __add__(self, other: Estimate) -> Estimate:
        return Estimate(self.value + other.value, self.gradient + other.gradient, self.rows)

    def __sub__(self, other: Estimate) -> Estimate:
        return Estimate(self.value - other.value, self.gradient - other.gradient, self.rows)

    def __mul__(self, other: Estimate) -> Estimate:
        gradient = self.gradient * other.value[:, None] + other.gradient * self.value[:, None]
        return Estimate(self.value * other.value, gradient, self.rows)

    def __truediv__(self, other: Estimate) -> Estimate:
        denominator = np.where(other.value == 0, np.nan, other.value)  # there is no ratio to nothing
        value = self.value / denominator
        gradient = (self.gradient - other.gradient * value[:, None]) / denominator[:, None]
        return Estimate(value, gradient, self.rows)

    def sum(self) -> Estimate:
        """Return the sum of the numbers."""
        return Estimate(self.value.sum(keepdims=True), self.gradient.sum(axis=0, keepdims=True), self.rows)

    def sqrt(self) -> Estimate:
        """Return the square roots; nan where a number is not positive."""
        root = np.sqrt(np.where(self.value > 0, self.value, np.nan))
        return Estimate(root, self.gradient / (2 * root)[:, None], self.rows)

    @cached_property
    def shape(self) -> ErrorShape:
        """The shape of the errors."""
        return self.rows.shape_of(self.gradient)

    def p_value(self, null: float = 0.0) -> Array:
        """Return the two-sided p value of a number: below 1 - level where `null` lies outside of `interval`."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.shape.p_value((self.value - null) / self.standard_error)

    def interval(self, level: float) -> tuple[Array, Array]:
        """Return the limits value - c SE with the values c of `critical`."""
        below, above = self.reach(1 - level)
        return self.value - below, self.value + above

    def reach(self, error: float | Array) -> tuple[Array, Array]:
        """Return how far limits that are wrong with probability `error` are below and above the value."""
        low, high = self.shape.critical(error)
        return high * self.standard_error, -low * self.standard_error

    def ratio_interval(self, level: float) -> tuple[Array, Array]:
        """Return limits that are symmetric on the log scale, for positive ratios; nan where one is not positive.

        The log takes most of the skewness out of a ratio, so that only the degrees of freedom count.
        """
        positive = self.value > 0
        value = np.where(positive, self.value, np.nan)
        with np.errstate(over="ignore"):
            width = np.exp(stdtrit(self.shape.freedom, 0.5 + level / 2) * self.standard_error / value)
            return value / width, value * width


def _invert(skewness: Array, x: Array) -> Array:
    """Solve g(T) = x for T, with Hall's g: T = 3 ((1 + l (x - l / 6))^(1/3) - 1) / l."""
    y = x - skewness / 6
    root = np.cbrt(1 + skewness * y)
    return np.asarray(3 * y / (root**2 + root + 1))  # the same, without 0 / 0: a^3 - 1 = (a - 1) (a^2 + a + 1)


@dataclass(frozen=True)
class Difference:
    """The difference of two estimates with tails of their own, such as the mean losses of two groups.

    Notes
    -----
    If both are skewed to the same side, their difference is hardly skewed, and its limits as one number would follow
    the one of the two that has the large losses. So the limits come from those of both: with the lengths l and u of
    their intervals below and above, and the correlation r of the two, the lower limit is a - b - sqrt(l_a^2 + u_b^2 -
    2 r l_a u_b), and likewise the upper one.

    References
    ----------
    Zou and Donner (2008), Construction of confidence limits about effect measures: a general approach, Statistics in
    Medicine 27(10), 1693-1702.
    """

    first: Estimate
    second: Estimate

    @cached_property
    def estimate(self) -> Estimate:
        """The difference itself, with the standard error of the delta method."""
        return self.first - self.second

    def interval(self, level: float) -> tuple[Array, Array]:
        """Return the limits."""
        below, above = self._reach(1 - level)
        return self.estimate.value - below, self.estimate.value + above

    def p_value(self) -> Array:
        """Return the two-sided p value of no difference: below 1 - level where zero lies outside of `interval`."""
        value = self.estimate.value
        low, high = np.full(len(value), np.log(np.finfo(float).tiny)), np.zeros(len(value))  # of the logarithm
        for _ in range(60):
            middle = (low + high) / 2
            below, above = self._reach(np.exp(middle))
            is_outside = (value > below) | (-value > above)
            low, high = np.where(is_outside, low, middle), np.where(is_outside, middle, high)
        return np.where(np.isfinite(value), np.exp(high), np.nan)

    @cached_property
    def correlation(self) -> Array:
        """Correlation of the two, zero where one is certain."""
        product = self.first.standard_error * self.second.standard_error
        twice = self.first.variance + self.second.variance - self.estimate.variance
        return np.asarray(np.divide(twice / 2, product, out=np.zeros_like(product), where=product > 0))

    def _reach(self, error: float | Array) -> tuple[Array, Array]:
        (l_a, u_a), (l_b, u_b), r = self.first.reach(error), self.second.reach(error), self.correlation
        squares = np.array([l_a**2 + u_b**2 - 2 * r * l_a * u_b, u_a**2 + l_b**2 - 2 * r * u_a * l_b])
        same = self.estimate.variance <= _TINY * (self.first.variance + self.second.variance)  # one group is everybody
        below, above = np.sqrt(np.where(same, 0.0, np.maximum(squares, 0.0)))
        return below, above


def fieller(numerator: Estimate, denominator: Estimate, level: float) -> tuple[Array, Array]:
    """Return Fieller's limits of a ratio, all t with (N - t D)^2 <= z^2 Var(N - t D), moved as the rows are skewed.

    They hold for every size of the denominator; the delta method needs one far from zero. They reach further on the
    side to which a noisy denominator moves the ratio. Where z^2 Var(D) >= D^2 the set is not an interval: nan. Each
    limit is then moved by as many standard errors as that of `Estimate.interval` is from the normal one.

    References
    ----------
    Fieller (1954), Some problems in interval estimation, Journal of the Royal Statistical Society B 16(2), 175-185.
    """
    z = ndtri(0.5 + level / 2)
    N, D = numerator.value, denominator.value
    nn, dd = numerator.variance, denominator.variance
    nd = np.einsum("pm,mn,pn->p", numerator.gradient, numerator.covariance, denominator.gradient, optimize=True)
    a, b, c = D**2 - z**2 * dd, N * D - z**2 * nd, N**2 - z**2 * nn
    ratio = numerator / denominator
    low, high = ratio.shape.critical(1 - level)
    with np.errstate(divide="ignore", invalid="ignore"):
        a = np.where(a > 0, a, np.nan)
        root = np.sqrt(np.maximum(b**2 - a * c, 0.0))
        error = ratio.standard_error
        return (b - root) / a - (high - z) * error, (b + root) / a - (low + z) * error
