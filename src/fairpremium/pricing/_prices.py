"""The fitted prices: best estimates, unaware price and premium of a matrix of features, and how uncertain they are."""

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

Matrix = npt.NDArray[Any]  # (n, features)


def check_level(level: Any) -> float:
    """Return a confidence level strictly between 0 and 1."""
    if isinstance(level, bool) or not isinstance(level, int | float | np.floating) or not 0 < level < 1:
        raise ValueError(f"Got level={level!r}, but expected a number strictly between 0 and 1, such as 0.95.")
    return float(level)


class Prices(ABC):
    """The three prices of a fitted model, and how uncertain the premium is."""

    family: Family
    design: Design
    groups: tuple[Any, ...]
    reference: Array  # (K,), P*

    @property
    @abstractmethod
    def kind(self) -> str:
        """Name of the model class."""

    @property
    @abstractmethod
    def has_intervals(self) -> bool:
        """Whether standard errors were estimated."""

    @abstractmethod
    def predictor(self, matrix: Matrix) -> Array:
        """Compute f_k(x), on the scale of the link: shape (n, K)."""

    @abstractmethod
    def unaware_predictor(self, matrix: Matrix) -> Array:
        """Compute the unaware price on the scale of the link: shape (n,)."""

    @abstractmethod
    def half_width(self, matrix: Matrix, eta: Array, level: float) -> Array:
        """Compute half the width of the interval around the premium `eta`, on the scale of the link: shape (n,)."""

    def best_estimate(self, matrix: Matrix) -> Array:
        """Compute mu(x, d): shape (n, K)."""
        return self._mean(self.predictor(matrix))

    def unaware_price(self, matrix: Matrix) -> Array:
        """Compute mu(x): shape (n,)."""
        return self._mean(self.unaware_predictor(matrix))

    def premium(self, matrix: Matrix) -> Array:
        """Compute h*(x) = sum_d mu(x, d) P*(d): shape (n,)."""
        return np.asarray(self.best_estimate(matrix) @ self.reference)

    def interval(self, matrix: Matrix, level: float) -> tuple[Array, Array]:
        """Compute a confidence interval of h*(x), symmetric on the scale of the link."""
        if not self.has_intervals:
            raise ValueError(
                "The model has no intervals: it was fitted with intervals=False, or a warning at the fit said why they "
                "could not be had. Fit it again with intervals=True."
            )
        eta = self.family.link.predictor(self.premium(matrix))
        width = self.half_width(matrix, eta, level)
        return self._mean(eta - width), self._mean(eta + width)

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
    """The three prices of a fitted (generalised) linear model."""

    family: Family
    design: Design
    groups: tuple[Any, ...]
    coefficients: Array  # (1 + features, K), of (1, x) on the caller's scale
    unaware: Array  # (1 + features,)
    reference: Array  # (K,), P*
    covariance: Array | None  # of the coefficients, group after group, and P*: (K (1 + features) + K,) squared

    @property
    def kind(self) -> str:
        """Name of the model class."""
        return "linear"

    @property
    def has_intervals(self) -> bool:
        """Whether there is a covariance."""
        return self.covariance is not None

    def predictor(self, matrix: Matrix) -> Array:
        """Compute f_k(x): shape (n, K)."""
        return np.asarray(matrix @ self.coefficients[1:] + self.coefficients[0])

    def unaware_predictor(self, matrix: Matrix) -> Array:
        """Compute the unaware price on the scale of the link: shape (n,)."""
        return np.asarray(matrix @ self.unaware[1:] + self.unaware[0])

    def half_width(self, matrix: Matrix, eta: Array, level: float) -> Array:
        """Compute it from the standard error of h*(x), by the delta method."""
        starts = range(0, len(matrix), _BLOCK_ROWS)
        pieces = [self._standard_error(matrix[start : start + _BLOCK_ROWS]) for start in starts]
        error = np.concatenate(pieces) if pieces else np.empty(0)
        return np.asarray(ndtri(0.5 + level / 2) * error / self.family.link.slope(eta))

    def _standard_error(self, matrix: Matrix) -> Array:
        eta = self.predictor(matrix)  # (n, K)
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

    def unaware_predictor(self, matrix: Matrix) -> Array:
        """Compute the linear predictor of u(x): shape (n, 1)."""
        return self.unaware.predictor(matrix, np.full((len(matrix), 1), self.center))

    def predictor(self, matrix: Matrix) -> Array:
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
    """The three prices of a model class beyond the linear one."""

    family: Family
    design: Design
    groups: tuple[Any, ...]
    formula: Formula
    replicates: tuple[Formula, ...]  # fits without one fold of the rows each, for the jackknife
    shifted: tuple[Formula, ...] = ()  # fits with an estimated keep moved up and down; none if the channel is known
    shift: float = 0.0  # standard error of keep over the distance of the two

    @property
    def kind(self) -> str:
        """Name of the model class."""
        return self.formula.unaware.kind

    @property
    def reference(self) -> Array:  # type: ignore[override]
        """P*."""
        return self.formula.reference

    @property
    def history(self) -> Any:
        """Learning curves of the prices that the model class adds, or None."""
        return getattr(self.formula.prices, "history", None)

    @property
    def has_intervals(self) -> bool:
        """Whether there are replicates."""
        return bool(self.replicates)

    def predictor(self, matrix: Matrix) -> Array:
        """Compute f_k(x): shape (n, K)."""
        return self.formula.predictor(matrix)

    def unaware_predictor(self, matrix: Matrix) -> Array:
        """Compute the unaware price on the scale of the link: shape (n,)."""
        return self.formula.unaware_predictor(matrix)[:, 0]

    def half_width(self, matrix: Matrix, eta: Array, level: float) -> Array:
        """Compute it from a delete-a-group jackknife.

        With G folds the variance is (G - 1) / G sum_g (h_g - mean of h_g)^2 on the scale of the link, and the
        quantile is Student's with G - 1 degrees of freedom.
        """
        G = len(self.replicates)
        link = self.family.link
        h = np.array([link.predictor(self._premium(formula, matrix)) for formula in self.replicates])
        variance = (G - 1) / G * np.sum((h - h.mean(axis=0)) ** 2, axis=0)
        if self.shifted:
            up, down = (link.predictor(self._premium(formula, matrix)) for formula in self.shifted)
            variance = variance + (self.shift * (up - down)) ** 2
        return np.asarray(stdtrit(G - 1, 0.5 + level / 2) * np.sqrt(variance))

    def _premium(self, formula: Formula, matrix: Matrix) -> Array:
        return np.asarray(self._mean(formula.predictor(matrix)) @ formula.reference)
