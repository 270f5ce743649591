"""The fitted prices: coefficients, weights and covariance, with the three prices they give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from fairpremium.families import Family
from fairpremium.models import Design

Array = npt.NDArray[np.float64]

_BLOCK_ROWS = 65_536


@dataclass(frozen=True)
class LinearPrices:
    """The three prices of a fitted (generalised) linear model.

    Parameters
    ----------
    family : Family
    design : Design
    groups : tuple
    coefficients : array of shape (1 + features, K)
        Of (1, x) on the caller's scale, one column per group.
    unaware : array of shape (1 + features,)
    reference : array of shape (K,)
        P*.
    covariance : array or None
        Of the coefficients, group after group, and P*: shape (K (1 + features) + K,) squared.
    """

    family: Family
    design: Design
    groups: tuple[Any, ...]
    coefficients: Array
    unaware: Array
    reference: Array
    covariance: Array | None

    def best_estimate(self, matrix: npt.NDArray[Any]) -> Array:
        """Compute mu(x, d): shape (n, K)."""
        return self._mean(matrix @ self.coefficients[1:] + self.coefficients[0])

    def unaware_price(self, matrix: npt.NDArray[Any]) -> Array:
        """Compute mu(x): shape (n,)."""
        return self._mean(matrix @ self.unaware[1:] + self.unaware[0])

    def premium(self, matrix: npt.NDArray[Any]) -> Array:
        """Compute h*(x) = sum_d mu(x, d) P*(d): shape (n,)."""
        return np.asarray(self.best_estimate(matrix) @ self.reference)

    def standard_error(self, matrix: npt.NDArray[Any]) -> Array:
        """Compute the standard error of h*(x) by the delta method: shape (n,)."""
        if self.covariance is None:
            raise ValueError("The model was fitted with intervals=False; fit it again with intervals=True.")
        parts = [
            self._standard_error(matrix[start : start + _BLOCK_ROWS]) for start in range(0, len(matrix), _BLOCK_ROWS)
        ]
        return np.concatenate(parts) if parts else np.empty(0)

    def interval(self, matrix: npt.NDArray[Any], level: float) -> tuple[Array, Array]:
        """Compute a confidence interval of h*(x), symmetric on the scale of the link."""
        link = self.family.link
        h = self.premium(matrix)
        eta = link.predictor(h)
        width = ndtri(0.5 + level / 2) * self.standard_error(matrix) / link.slope(eta)
        return self._mean(eta - width), self._mean(eta + width)

    def _standard_error(self, matrix: npt.NDArray[Any]) -> Array:
        assert self.covariance is not None
        eta = matrix @ self.coefficients[1:] + self.coefficients[0]  # (n, K)
        slopes = self.family.link.slope(eta) * self.reference
        with_one = np.column_stack([np.ones(len(matrix)), matrix])
        gradient = (slopes[:, :, None] * with_one[:, None, :]).reshape(len(matrix), -1)
        gradient = np.concatenate([gradient, self.family.link.mean_of(eta)], axis=1)
        variance = np.einsum("ij,ij->i", gradient @ self.covariance, gradient)
        return np.asarray(np.sqrt(np.maximum(variance, 0.0)))

    def _mean(self, eta: Array) -> Array:
        with np.errstate(over="ignore"):
            mu = self.family.link.mean_of(eta)
        if not np.isfinite(mu).all():
            raise OverflowError(
                f"The price of {int(np.count_nonzero(~np.isfinite(mu)))} rows is too large to be a number: their "
                "features lie far outside those of the fit."
            )
        return mu
