"""Limits of rates near 0 or 1, and of what is computed from two of them: Wilson's, from noisy reports."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from fairpremium.arrays import Array

from .._estimate import Estimate
from ._pairs import Pairs

Limits = tuple[Array, Array]
_TINY = 1e-9  # less is rounding


@dataclass(frozen=True)
class EdgeRates:
    """Rates of groups as Wilson's interval sees them, for groups whose rate may be 0 or 1.

    Notes
    -----
    With the effective reports m and the variance V of a rate p, Wilson's centre is (m p + z^2 / 2) / (m + z^2) and its
    variance (m^2 V + z^2 / 4) / (m + z^2)^2; with the true attribute these are his own, since V = p (1 - p) / m.
    Neither vanishes where no favourable decision is seen.
    """

    rate: Array  # (K,), as estimated
    is_near: npt.NDArray[np.bool_]  # (K,), whether 0 or 1 is less than two half-widths of an interval away
    is_at: npt.NDArray[np.bool_]  # (K,), whether it is less than one away
    centre: Array  # (K,)
    covariance: Array  # (K, K), of the centres
    z: float
    smallest: Array  # (K,), Wilson's centre of a rate of zero

    @classmethod
    def of(cls, rate: Estimate, effective: Array, level: float) -> EdgeRates:
        """Compute them for rates with these effective reports."""
        z = float(ndtri(0.5 + level / 2))
        m = np.where(effective > 0, effective, np.nan)
        weight = m / (m + z**2)
        covariance = rate.gradient @ rate.covariance @ rate.gradient.T * np.outer(weight, weight)
        covariance += np.diag(z**2 / 4 / (m + z**2) ** 2)
        centre = weight * rate.value + z**2 / 2 / (m + z**2)
        distance = np.minimum(rate.value, 1 - rate.value)
        is_near, is_at = (np.asarray(~(distance > times * z * rate.standard_error)) for times in (2, 1))
        return cls(rate.value, is_near, is_at, centre, covariance, z, z**2 / 2 / (m + z**2))

    @staticmethod
    def choose(which: npt.NDArray[np.bool_], plain: Limits, wilson: Limits) -> Array:
        """Return Wilson's limits where `which` says so, as two rows."""
        return np.asarray(np.where(which, wilson, plain))

    @property
    def low(self) -> Array:
        """Lower limits of the rates."""
        return np.asarray(self.centre - self.z * np.sqrt(np.diag(self.covariance)))

    @property
    def high(self) -> Array:
        """Upper limits of the rates."""
        return np.asarray(self.centre + self.z * np.sqrt(np.diag(self.covariance)))

    def value_of(self, k: int) -> float:
        """Return an estimated rate."""
        return float(self.rate[k])

    def value(self, pairs: Pairs, ratio: Array) -> Array:
        """Return the ratios of rates: from zero, infinite or unknown where a rate is not above zero."""
        a, b = self.rate[pairs.first], self.rate[pairs.second]
        return np.asarray(np.where(b > 0, np.maximum(ratio, 0.0), np.where(a > 0, np.inf, np.nan)))

    def odds_value(self, pairs: Pairs, odds_ratio: Array) -> Array:
        """Return the ratios of odds of denial, with rates outside of [0, 1] taken as 0 or 1."""
        a, b = np.clip(self.rate[pairs.first], 0, 1), np.clip(self.rate[pairs.second], 0, 1)
        inside = (a > 0) & (a < 1) & (b > 0) & (b < 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            limit = ((1 - a) * b) / (a * (1 - b))
        return np.asarray(np.where(inside, odds_ratio, limit))

    def difference(self, pairs: Pairs) -> Limits:
        """Return Newcombe's limits of differences of rates, with the correlation of the two."""
        (i, j), p, C = pairs, self.rate, self.covariance
        below, above = np.maximum(p - self.low, 0.0), np.maximum(self.high - p, 0.0)
        gap, correlation = p[i] - p[j], C[i, j] / np.sqrt(C[i, i] * C[j, j])

        def width(a: Array, b: Array) -> Array:
            return np.asarray(np.sqrt(a**2 - 2 * correlation * a * b + b**2))

        return gap - width(below[i], above[j]), gap + width(above[i], below[j])

    def ratio(self, pairs: Pairs) -> Limits:
        """Return all t >= 0 with (p - t q)^2 <= z^2 Var(p - t q) for the centres p and q, an interval from 0 on."""
        i, j = pairs
        N, D, C, z2 = self.centre[i], self.centre[j], self.covariance, self.z**2
        a, b, c = D**2 - z2 * C[j, j], N * D - z2 * C[i, j], N**2 - z2 * C[i, i]
        bounded = a > _TINY * D**2
        with np.errstate(divide="ignore", invalid="ignore"):
            root = np.sqrt(np.maximum(b**2 - a * c, 0.0))
            low, high = (b - root) / a, (b + root) / a
            open_low = np.where(c > 0, c / (b + root), 0.0)  # the denominator may be zero: all t from the one root on
        low, high = np.where(bounded, low, open_low), np.where(bounded, high, np.inf)
        return np.maximum(low, 0.0), np.maximum(high, 0.0)

    def odds_ratio(self, pairs: Pairs) -> Limits:
        """Return limits of the odds ratio from those of the logarithms for the centres; open where a rate is 0 or 1."""
        i, j = pairs
        p = np.clip(self.centre, self.smallest, 1 - self.smallest)
        slope = 1 / (p * (1 - p))
        C = self.covariance * np.outer(slope, slope)
        logit = np.log(p / (1 - p))
        value, variance = logit[j] - logit[i], C[i, i] + C[j, j] - 2 * C[i, j]
        with np.errstate(over="ignore", invalid="ignore"):
            low, high = (np.exp(value + sign * self.z * np.sqrt(variance)) for sign in (-1, 1))
        none, every = self.rate <= 0, self.rate >= 1
        return np.where(every[i] | none[j], 0.0, low), np.where(none[i] | every[j], np.inf, high)
