"""The fitted prices: best estimates, unaware price and premium of a matrix of features, how uncertain they are, and P*.

P*, the reference distribution, holds the weights that the groups' prices get in the premium.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri, softmax, stdtrit

from fairpremium.arrays import Array
from fairpremium.corrections import Statistics
from fairpremium.errors import NotIdentifiedError, OutOfRangeError, UnattainableReferenceError
from fairpremium.families import Family
from fairpremium.models import AddedPrices, Design

NAMES = ("marginal", "uniform", "balanced")
_BLOCK_ROWS = 65_536

Matrix = npt.NDArray[Any]  # (n, features)


class Prices(ABC):
    """The three prices of a fitted model, and how uncertain the premium is."""

    family: Family
    design: Design
    groups: tuple[Any, ...]
    reference: Array  # (K,), P*
    quality: tuple[Any, ...]

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

    @abstractmethod
    def contrast_width(self, matrix: Matrix, contrast: Array, level: float) -> Array:
        """Compute half the width of an interval around sum_d c_d mu(x, d) with fixed weights c: shape (n,)."""

    @abstractmethod
    def covariance_root(self, matrix: Matrix) -> tuple[Array, float]:
        """Compute R with R R' the covariance of the premiums h*(x), shape (n, m), and its degrees of freedom."""

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
        self._check_intervals()
        eta = self.family.link.predictor(self.premium(matrix))
        width = self.half_width(matrix, eta, level)
        return self._mean(eta - width), self._mean(eta + width)

    def group_interval(self, matrix: Matrix, level: float, group: Any, against: Any = None) -> tuple[Array, Array]:
        """Compute a confidence interval of mu(x, group), or of mu(x, group) - mu(x, against)."""
        self._check_intervals()
        contrast = np.zeros(len(self.groups))
        contrast[self.groups.index(group)] = 1.0
        if against is not None:
            contrast[self.groups.index(against)] -= 1.0
        value = self.best_estimate(matrix) @ contrast
        width = self.contrast_width(matrix, contrast, level)
        if against is not None:
            return value - width, value + width
        link = self.family.link
        eta = link.predictor(value)
        width = width / link.slope(eta)
        return self._mean(eta - width), self._mean(eta + width)

    def _check_intervals(self) -> None:
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
    """The three prices of a fitted (generalised) linear model."""

    family: Family
    design: Design
    groups: tuple[Any, ...]
    coefficients: Array  # (1 + features, K), of (1, x) on the caller's scale
    unaware: Array  # (1 + features,)
    reference: Array  # (K,), P*
    covariance: Array | None  # of the coefficients, group after group, and P*: (K (1 + features) + K,) squared
    group_covariance: Array | None = None  # of the coefficients, for single groups; None: as in `covariance`
    unaware_covariance: Array | None = None  # of the coefficients of the unaware price
    quality: tuple[Any, ...] = ()  # how well the prices describe the outcomes of the fit: `PriceQuality`

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
        assert self.covariance is not None
        error = self._standard_error(matrix, self.reference, self.covariance)
        return np.asarray(ndtri(0.5 + level / 2) * error / self.family.link.slope(eta))

    def contrast_width(self, matrix: Matrix, contrast: Array, level: float) -> Array:
        """Compute it from the covariance for single groups, by the delta method."""
        assert self.covariance is not None
        size = self.coefficients.size
        covariance = self.covariance[:size, :size] if self.group_covariance is None else self.group_covariance
        return np.asarray(ndtri(0.5 + level / 2) * self._standard_error(matrix, contrast, covariance))

    def covariance_root(self, matrix: Matrix) -> tuple[Array, float]:
        """Compute it by the delta method, from the eigenvectors of the covariance."""
        assert self.covariance is not None
        values, vectors = np.linalg.eigh(self.covariance)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        return self._gradient(matrix, self.reference, len(self.covariance)) @ root, np.inf

    def _gradient(self, X: Matrix, weights: Array, size: int) -> Array:
        """Differentiate sum_d weights_d mu(x, d) in the coefficients, and in the weights if `size` leaves room."""
        link, eta = self.family.link, self.predictor(X)  # (rows, K)
        slopes = link.slope(eta) * weights
        with_one = np.column_stack([np.ones(len(X)), X])
        gradient = (slopes[:, :, None] * with_one[:, None, :]).reshape(len(X), -1)
        return np.concatenate([gradient, link.mean_of(eta)], axis=1) if size > gradient.shape[1] else gradient

    def _standard_error(self, matrix: Matrix, weights: Array, covariance: Array) -> Array:
        """Compute that of sum_d weights_d mu(x, d); a covariance that is large enough holds the weights as well."""
        found = [np.empty(0)]
        for start in range(0, len(matrix), _BLOCK_ROWS):
            gradient = self._gradient(matrix[start : start + _BLOCK_ROWS], weights, len(covariance))
            variance = np.einsum("ij,ij->i", gradient @ covariance, gradient)
            found.append(np.sqrt(np.maximum(variance, 0.0)))
        return np.concatenate(found)


@dataclass(frozen=True)
class Formula:
    """Prices of a model class: those of the groups start from a linear predictor in (x, u(x)); and P*."""

    unaware: AddedPrices  # u(x), from a linear predictor in x
    best: AddedPrices  # f_k(x)
    reference: Array  # (K,)
    bounds: tuple[float, float]  # linear predictors that outcomes like those of the fit make plausible

    def unaware_predictor(self, matrix: Matrix) -> Array:
        """Compute the linear predictor of u(x): shape (n, 1)."""
        return self.unaware.predictor(matrix, matrix)

    def predictor(self, matrix: Matrix) -> Array:
        """Compute f_k(x): shape (n, K)."""
        eta = self.best.predictor(matrix, np.column_stack([matrix, self.unaware_predictor(matrix)]))
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
    shifted: tuple[Formula, ...] = ()  # fits with each estimated keep moved up and down; none if the channel is known
    shift: float = 0.0  # standard error of keep over the distance of a pair
    quality: tuple[Any, ...] = ()  # as for `LinearPrices`

    @property
    def reference(self) -> Array:  # type: ignore[override]
        """P*."""
        return self.formula.reference

    @property
    def history(self) -> Any:
        """Learning curves of the prices that the model class adds, or None."""
        return getattr(self.formula.best.prices, "history", None)

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
        """Compute it from a delete-a-group jackknife on the scale of the link."""
        link = self.family.link
        return self._jackknife(
            lambda f: link.predictor(np.asarray(self._mean(f.predictor(matrix)) @ f.reference)), level
        )

    def covariance_root(self, matrix: Matrix) -> tuple[Array, float]:
        """Compute it from the same jackknife, in money: a column per replicate, and one for an estimated keep."""
        G = len(self.replicates)
        h, *moved = (
            np.array([self._mean(f.predictor(matrix)) @ f.reference for f in some])
            for some in (self.replicates, self.shifted)
            if some
        )
        root = np.sqrt((G - 1) / G) * (h - h.mean(axis=0))
        return np.vstack([root, *(self.shift * (pairs[::2] - pairs[1::2]) for pairs in moved)]).T, G - 1.0

    def contrast_width(self, matrix: Matrix, contrast: Array, level: float) -> Array:
        """Compute it from the same jackknife."""
        return self._jackknife(lambda f: np.asarray(self._mean(f.predictor(matrix)) @ contrast), level)

    def _jackknife(self, price: Callable[[Formula], Array], level: float) -> Array:
        moved = None
        if self.shifted:
            pairs = np.array([price(formula) for formula in self.shifted])
            moved = self.shift * np.sqrt(np.sum((pairs[::2] - pairs[1::2]) ** 2, axis=0))
        return jackknife_width(np.array([price(formula) for formula in self.replicates]), level, moved)


def jackknife_width(h: Array, level: float, moved: Array | None = None) -> Array:
    """Compute half the width of intervals from prices without one of G folds each, shape (G, n).

    The variance is (G - 1) / G sum_g (h_g - mean of h_g)^2, and the quantile Student's with G - 1 degrees of freedom.
    `moved` is how far one standard error of an estimated keep moves the prices.
    """
    G = len(h)
    variance = (G - 1) / G * np.sum((h - h.mean(axis=0)) ** 2, axis=0)
    if moved is not None:
        variance = variance + moved**2
    return np.asarray(stdtrit(G - 1, 0.5 + level / 2) * np.sqrt(variance))


# --- the reference distribution --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reference:
    """How P* follows from the fit: by a rule, or as given weights."""

    name: str  # one of `NAMES`, or "given"
    groups: tuple[Any, ...]
    fixed: Array | None  # (K,), weights that do not depend on data

    @classmethod
    def of(cls, reference: Any, groups: tuple[Any, ...]) -> Reference:
        """Check a reference as the pricer takes it.

        Raises
        ------
        ValueError, TypeError
            If the reference is unknown, names other groups, or is not a distribution.
        """
        if isinstance(reference, str):
            if reference not in NAMES:
                raise ValueError(
                    f"Got reference={reference!r}, but expected one of {list(NAMES)} or a dict from group to weight."
                )
            return cls(reference, groups, np.full(len(groups), 1 / len(groups)) if reference == "uniform" else None)
        if not isinstance(reference, Mapping):
            raise TypeError(
                f"Got reference of type {type(reference).__name__}, but expected one of {list(NAMES)} or a dict "
                "from group to weight."
            )
        if set(reference) != set(groups):
            raise ValueError(
                f"Got reference with weights for {list(reference)}, but expected one weight for each of {list(groups)}."
            )
        weights = np.array([float(reference[group]) for group in groups])
        if not (np.isfinite(weights).all() and (weights >= 0).all() and abs(weights.sum() - 1) <= 1e-6):
            raise ValueError(
                f"Got reference with weights {weights.tolist()}, but expected weights >= 0 that sum to one "
                f"(they sum to {weights.sum():g})."
            )
        return cls("given", groups, weights / weights.sum())

    @property
    def needs_means(self) -> bool:
        """Whether P* depends on the portfolio's mean prices and mean loss."""
        return self.name == "balanced"

    def distribution(self, shares: Array, group_means: Array, mean_loss: float) -> Array:
        """Compute P* from the shares of the groups, the means of f_k(x) and the mean loss of the portfolio: (K,)."""
        if self.fixed is not None:
            return self.fixed
        if self.name == "marginal":
            return marginal(shares, self.groups)
        return balanced(shares, group_means, mean_loss, self.groups)

    def covariance(self, weights: Array, statistics: Statistics) -> Array | None:
        """Reduce the covariance of all statistics to that of the coefficients and P*; None if there is none."""
        if not len(statistics.covariance):
            return None
        size = statistics.coefficients.size
        L = np.zeros((size + len(weights), len(statistics.covariance)))
        L[:size, :size] = np.eye(size)
        L[size:, size:] = self.jacobian(weights, statistics.shares, statistics.group_means)
        return np.asarray(L @ statistics.covariance @ L.T)

    def jacobian(self, weights: Array, shares: Array, group_means: Array) -> Array:
        """Differentiate P* in (shares, group_means, mean_loss): shape (K, 2 K + 1).

        Notes
        -----
        For `balanced`, P*_k = p_k exp(t H_k) / Z and u_k = dp_k / p_k + t dH_k + H_k dt give
        dP*_k = P*_k (u_k - sum_j P*_j u_j); the constraint sum_k P*_k H_k = mean_loss determines dt.
        """
        K = len(weights)
        jacobian = np.zeros((K, 2 * K + 1))
        if self.name == "marginal":
            jacobian[:, :K] = np.eye(K)
        elif self.name == "balanced":
            P, H = weights, group_means
            center = np.diag(P) - np.outer(P, P)  # dP* = center @ u
            spread = H @ center @ H
            positive = (shares > 0) & (P > 0)
            log_ratio = np.log(np.where(positive, P, 1.0) / np.where(positive, shares, 1.0))
            t = (H @ center @ log_ratio) / spread
            free = np.zeros((K, 2 * K + 1))  # u with t held
            free[:, :K] = np.diag(np.where(positive, 1 / np.where(positive, shares, 1.0), 0.0))
            free[:, K : 2 * K] = t * np.eye(K)
            dt = -(H @ center @ free)
            dt[K : 2 * K] -= P
            dt[2 * K] += 1.0
            jacobian = center @ (free + np.outer(H, dt / spread))
        return jacobian


def marginal(shares: Array, groups: tuple[Any, ...]) -> Array:
    """Return the estimated distribution of the groups, or refuse if a share came out negative."""
    if (shares < 0).any():
        k = int(np.argmin(shares))
        raise NotIdentifiedError(
            f"The estimated share of group {groups[k]!r} is {shares[k]:.4f}: too few reports to tell its share from "
            'zero, so reference="marginal" has no meaning here. Give the weights, reference={group: weight}, or use '
            'reference="uniform", more data, or a less noisy channel.'
        )
    return shares


def balanced(shares: Array, group_means: Array, mean_loss: float, groups: tuple[Any, ...]) -> Array:
    """Tilt the shares as little as possible until premiums and losses agree in total.

    `shares` is P(D), `group_means` are H_k, the portfolio's means of f_k(x); `groups` are labels for messages.

    Returns the distribution closest to `shares` in Kullback-Leibler divergence with sum_k P*_k H_k = mean_loss: P*_k
    proportional to p_k exp(t H_k).

    Raises
    ------
    UnattainableReferenceError
        If the mean loss is not strictly between the smallest and the largest H_k.
    """
    p, H = marginal(shares, groups), group_means
    low, high = float(H.min()), float(H.max())
    if np.isclose(p @ H, mean_loss, rtol=1e-12):
        return p
    if not low < mean_loss < high:
        raise UnattainableReferenceError(
            f"No weights over the groups balance the portfolio: its mean loss is {mean_loss:g}, but the groups' "
            f'formulas give mean premiums from {low:g} to {high:g}. Use reference="marginal" and multiply every '
            f"premium by the same factor ({mean_loss / float(p @ H):.6g})."
        )
    scale = high - low

    def tilted(t: float) -> Array:
        with np.errstate(divide="ignore"):
            return np.asarray(softmax(np.log(p) + t * (H - mean_loss) / scale))

    from scipy.optimize import brentq

    def gap(t: float) -> float:
        return float(tilted(t) @ (H - mean_loss)) / scale

    bound = 1.0
    while gap(-bound) > 0 or gap(bound) < 0:
        bound *= 2
        if bound > 1e6:
            raise UnattainableReferenceError(
                f"The weights that balance the portfolio (mean loss {mean_loss:g}, groups from {low:g} to {high:g}) "
                "would leave out a group entirely."
            )
    return tilted(float(brentq(gap, -bound, bound, xtol=1e-14, rtol=1e-14)))
