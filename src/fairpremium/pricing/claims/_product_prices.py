"""The prices of frequency and severity together: sums over perils of products, with one P* and joint intervals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtri

from fairpremium.arrays import Array
from fairpremium.families import Family, Normal, Tweedie
from fairpremium.models import Design
from fairpremium.pricing._prices import Formula, LinearPrices, Matrix, ModelPrices, Prices, jackknife_width

_BLOCK_ROWS = 16_384


@dataclass(frozen=True)
class PerilPrices:
    """Frequency and severity of one peril, and the factor that spreads what is above the cap."""

    name: str
    frequency: Prices
    severity: Prices
    loading: float = 1.0
    loading_replicates: tuple[float, ...] = ()  # without one fold of the rows each

    @property
    def parts(self) -> tuple[Prices, Prices]:
        """Both."""
        return self.frequency, self.severity


@dataclass(frozen=True)
class ProductPrices(Prices):
    """The three prices per unit of exposure.

    mu(x, d) = sum over perils of loading lambda(x, d) s(x, d), and h*(x) = sum_d P*(d) mu(x, d). All parts have the
    same features, groups and P*.
    """

    perils: tuple[PerilPrices, ...]
    covariance: Array | None  # of the coefficients part after part (see `LinearPrices`), P* and the loadings
    group_covariance: Array | None = None  # the same for single groups, with P* as known; None: as in `covariance`

    @property
    def family(self) -> Family:  # type: ignore[override]
        """What the interval's scale follows from: the log if no part can be negative."""
        signed = any(part.family.link.name == "identity" for peril in self.perils for part in peril.parts)
        return Normal() if signed else Tweedie()

    @property
    def design(self) -> Design:  # type: ignore[override]
        """The map from columns to features."""
        return self.perils[0].frequency.design

    @property
    def groups(self) -> tuple[Any, ...]:  # type: ignore[override]
        """The groups."""
        return self.perils[0].frequency.groups

    @property
    def reference(self) -> Array:  # type: ignore[override]
        """P*."""
        return self.perils[0].frequency.reference

    @property
    def is_linear(self) -> bool:
        """Whether every part is linear, so that the intervals are those of a joint sandwich covariance."""
        return all(isinstance(part, LinearPrices) for peril in self.perils for part in peril.parts)

    @property
    def has_intervals(self) -> bool:
        """Whether standard errors were estimated."""
        if self.is_linear:
            return self.covariance is not None
        return all(part.has_intervals for peril in self.perils for part in peril.parts)

    def best_estimate(self, matrix: Matrix) -> Array:
        """Compute mu(x, d): shape (n, K)."""
        return np.asarray(
            sum(p.loading * p.frequency.best_estimate(matrix) * p.severity.best_estimate(matrix) for p in self.perils)
        )

    def unaware_price(self, matrix: Matrix) -> Array:
        """Compute the sum of unaware frequencies times unaware severities: shape (n,)."""
        return np.asarray(
            sum(p.loading * p.frequency.unaware_price(matrix) * p.severity.unaware_price(matrix) for p in self.perils)
        )

    def predictor(self, matrix: Matrix) -> Array:
        """Compute mu(x, d) on the scale of the interval: shape (n, K)."""
        return self.family.link.predictor(self.best_estimate(matrix))

    def unaware_predictor(self, matrix: Matrix) -> Array:
        """Compute the unaware price on the scale of the interval: shape (n,)."""
        return self.family.link.predictor(self.unaware_price(matrix))

    def half_width(self, matrix: Matrix, eta: Array, level: float) -> Array:
        """Compute it by the delta method from the joint covariance, or from the joint jackknife."""
        link = self.family.link
        if not self.is_linear:
            return self._jackknife(lambda mu, reference: link.predictor(mu @ reference), matrix, level)
        assert self.covariance is not None
        error = self._standard_error(matrix, self.reference, self.covariance)
        return np.asarray(ndtri(0.5 + level / 2) * error / link.slope(eta))

    def covariance_root(self, matrix: Matrix) -> tuple[Array, float]:
        """Compute it by the delta method from the joint covariance, or from the joint jackknife, in money."""
        if self.is_linear:
            assert self.covariance is not None
            values, vectors = np.linalg.eigh(self.covariance)
            gradient = self.gradient(np.asarray(matrix, dtype=np.float64), self.reference)
            return gradient @ (vectors * np.sqrt(np.maximum(values, 0.0))), np.inf
        h, moved = self._replicates(lambda mu, reference: mu @ reference, matrix)
        root = np.sqrt((len(h) - 1) / len(h)) * (h - h.mean(axis=0))
        return (root if moved is None else np.vstack([root, moved])).T, len(h) - 1.0

    def contrast_width(self, matrix: Matrix, contrast: Array, level: float) -> Array:
        """Compute it from the covariance for single groups, or from the joint jackknife."""
        if not self.is_linear:
            return self._jackknife(lambda mu, _: mu @ contrast, matrix, level)
        assert self.covariance is not None
        covariance = self.covariance if self.group_covariance is None else self.group_covariance
        return np.asarray(ndtri(0.5 + level / 2) * self._standard_error(matrix, contrast, covariance))

    def gradient(self, matrix: Matrix, weights: Array) -> Array:
        """Differentiate sum_d weights_d mu(x, d) in the coefficients part after part, the weights and the loadings."""
        with_one = np.column_stack([np.ones(len(matrix)), matrix])
        columns, total, by_peril = [], np.zeros((len(matrix), len(weights))), []
        for peril in self.perils:
            eta = [part.predictor(matrix) for part in peril.parts]
            mean = [part.family.link.mean_of(e) for part, e in zip(peril.parts, eta, strict=True)]
            for i, part in enumerate(peril.parts):
                slope = peril.loading * part.family.link.slope(eta[i]) * mean[1 - i] * weights
                columns.append((slope[:, :, None] * with_one[:, None, :]).reshape(len(matrix), -1))
            product = mean[0] * mean[1]
            total += peril.loading * product
            by_peril.append(product @ weights)
        return np.column_stack([*columns, total, *by_peril])

    def _standard_error(self, matrix: Matrix, weights: Array, covariance: Array) -> Array:
        found = [np.empty(0)]
        for start in range(0, len(matrix), _BLOCK_ROWS):
            gradient = self.gradient(np.asarray(matrix[start : start + _BLOCK_ROWS], dtype=np.float64), weights)
            variance = np.einsum("ij,ij->i", gradient @ covariance, gradient)
            found.append(np.sqrt(np.maximum(variance, 0.0)))
        return np.concatenate(found)

    def _jackknife(self, price: Callable[[Array, Array], Array], matrix: Matrix, level: float) -> Array:
        h, moved = self._replicates(price, matrix)
        return jackknife_width(h, level, moved)

    def _replicates(self, price: Callable[[Array, Array], Array], matrix: Matrix) -> tuple[Array, Array | None]:
        """Combine the fits of all parts without the same fold of the rows."""

        def prices(which: Callable[[ModelPrices], Formula], loadings: list[float]) -> Array:
            mu = np.zeros((len(matrix), len(self.groups)))
            reference = self.reference
            for peril, loading in zip(self.perils, loadings, strict=True):
                means = []
                for part in peril.parts:
                    assert isinstance(part, ModelPrices)
                    formula = which(part)
                    means.append(part.family.link.mean_of(formula.predictor(matrix)))
                    reference = formula.reference
                mu += loading * means[0] * means[1]
            return np.asarray(price(mu, reference))

        first = self.perils[0].frequency
        assert isinstance(first, ModelPrices)
        replicates = np.array(
            [
                prices(lambda part, g=g: part.replicates[g], [p.loading_replicates[g] for p in self.perils])  # type: ignore[misc]
                for g in range(len(first.replicates))
            ]
        )
        moved = None
        if first.shifted:
            now = [p.loading for p in self.perils]
            near = range(len(first.shifted))
            pairs = np.array([prices(lambda part, i=i: part.shifted[i], now) for i in near])  # type: ignore[misc]
            moved = first.shift * np.sqrt(np.sum((pairs[::2] - pairs[1::2]) ** 2, axis=0))
        return replicates, moved
