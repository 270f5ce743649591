"""The fitted prices: coefficients, weights and covariance, with the three prices they give."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri, stdtrit

from fairpremium.arrays import Array
from fairpremium.errors import OutOfRangeError
from fairpremium.families import Family
from fairpremium.models import Design, GroupPrices

_BLOCK_ROWS = 65_536


class Prices(ABC):
    """The three prices of a fitted model, and how uncertain the premium is."""

    family: Family
    design: Design
    groups: tuple[Any, ...]

    @property
    @abstractmethod
    def kind(self) -> str:
        """Name of the model class."""

    @property
    @abstractmethod
    def has_intervals(self) -> bool:
        """Whether standard errors were estimated."""

    @abstractmethod
    def best_estimate(self, matrix: npt.NDArray[Any]) -> Array:
        """Compute mu(x, d): shape (n, K)."""

    @abstractmethod
    def unaware_price(self, matrix: npt.NDArray[Any]) -> Array:
        """Compute mu(x): shape (n,)."""

    @abstractmethod
    def premium(self, matrix: npt.NDArray[Any]) -> Array:
        """Compute h*(x) = sum_d mu(x, d) P*(d): shape (n,)."""

    @abstractmethod
    def interval(self, matrix: npt.NDArray[Any], level: float) -> tuple[Array, Array]:
        """Compute a confidence interval of h*(x), symmetric on the scale of the link."""

    def _need_intervals(self) -> None:
        if not self.has_intervals:
            raise ValueError(
                "The model has no intervals: it was fitted with intervals=False, or a warning at the fit said why they "
                "could not be had. Fit it again with intervals=True."
            )

    def _mean(self, eta: Array) -> Array:
        with np.errstate(over="ignore"):
            mu = self.family.link.mean_of(eta)
        if not np.isfinite(mu).all():
            raise OverflowError(
                f"The price of {int(np.count_nonzero(~np.isfinite(mu)))} rows is too large to be a number: their "
                "features lie far outside those of the fit."
            )
        return mu


@dataclass(frozen=True)
class LinearPrices(Prices):
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

    @property
    def kind(self) -> str:
        """Name of the model class."""
        return "linear"

    @property
    def has_intervals(self) -> bool:
        """Whether there is a covariance."""
        return self.covariance is not None

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
        self._need_intervals()
        pieces = [
            self._standard_error(matrix[start : start + _BLOCK_ROWS]) for start in range(0, len(matrix), _BLOCK_ROWS)
        ]
        return np.concatenate(pieces) if pieces else np.empty(0)

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


@dataclass(frozen=True)
class Formula:
    """Prices of a model class: f_k(x) = start_k(x), linear in (1, x, u(x)), plus what the class adds; and P*."""

    center: float
    unaware: GroupPrices
    coefficients: Array  # (2 + features, K), of (1, x, u(x))
    prices: GroupPrices | None
    reference: Array  # (K,)
    bounds: tuple[float, float]  # linear predictors that outcomes like those of the fit make plausible

    def unaware_predictor(self, matrix: npt.NDArray[Any]) -> Array:
        """Compute the linear predictor of u(x): shape (n, 1)."""
        return self.unaware.predictor(matrix, np.full((len(matrix), 1), self.center))

    def predictor(self, matrix: npt.NDArray[Any]) -> Array:
        """Compute f_k(x): shape (n, K)."""
        lifted = np.column_stack([matrix, self.unaware_predictor(matrix)])
        start = lifted @ self.coefficients[1:] + self.coefficients[0]
        eta = np.asarray(start if self.prices is None else self.prices.predictor(matrix, start))
        low, high = self.bounds
        bad = int(np.count_nonzero(~((eta >= low) & (eta <= high)).all(axis=1)))
        if bad:
            raise OutOfRangeError(
                f"Got X with {bad} of {len(eta)} rows whose price would be far outside the range of the outcomes "
                "of the fit. Expected rows like those of the fit; check the units."
            )
        return eta


@dataclass(frozen=True)
class ModelPrices(Prices):
    """The three prices of a model class beyond the linear one.

    Parameters
    ----------
    family : Family
    design : Design
    groups : tuple
    formula : Formula
    replicates : tuple of Formula
        Fits without one fold of the rows each, for the jackknife.
    shifted : tuple of Formula
        Fits with an estimated keep moved up and down; empty if the channel is known.
    shift : float
        Standard error of keep over the distance of the two.
    """

    family: Family
    design: Design
    groups: tuple[Any, ...]
    formula: Formula
    replicates: tuple[Formula, ...]
    shifted: tuple[Formula, ...] = ()
    shift: float = 0.0

    @property
    def kind(self) -> str:
        """Name of the model class."""
        return self.formula.unaware.kind

    @property
    def reference(self) -> Array:
        """P*."""
        return self.formula.reference

    @property
    def has_intervals(self) -> bool:
        """Whether there are replicates."""
        return bool(self.replicates)

    def best_estimate(self, matrix: npt.NDArray[Any]) -> Array:
        """Compute mu(x, d): shape (n, K)."""
        return self._mean(self.formula.predictor(matrix))

    def unaware_price(self, matrix: npt.NDArray[Any]) -> Array:
        """Compute mu(x): shape (n,)."""
        return self._mean(self.formula.unaware_predictor(matrix)[:, 0])

    def premium(self, matrix: npt.NDArray[Any]) -> Array:
        """Compute h*(x): shape (n,)."""
        return self._premium(self.formula, matrix)

    def interval(self, matrix: npt.NDArray[Any], level: float) -> tuple[Array, Array]:
        """Compute a jackknife interval of h*(x), symmetric on the scale of the link.

        With G folds the variance is (G - 1) / G sum_g (h_g - mean of h_g)^2 on the scale of the link, and the
        quantile is Student's with G - 1 degrees of freedom.
        """
        self._need_intervals()
        link, G = self.family.link, len(self.replicates)
        h = np.array([link.predictor(self._premium(formula, matrix)) for formula in self.replicates])
        variance = (G - 1) / G * np.sum((h - h.mean(axis=0)) ** 2, axis=0)
        if self.shifted:
            up, down = (link.predictor(self._premium(formula, matrix)) for formula in self.shifted)
            variance = variance + (self.shift * (up - down)) ** 2
        eta = link.predictor(self.premium(matrix))
        width = stdtrit(G - 1, 0.5 + level / 2) * np.sqrt(variance)
        return self._mean(eta - width), self._mean(eta + width)

    def _premium(self, formula: Formula, matrix: npt.NDArray[Any]) -> Array:
        return np.asarray(self._mean(formula.predictor(matrix)) @ formula.reference)
