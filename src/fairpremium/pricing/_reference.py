"""Reference distributions P*: the weights that the groups' prices get in the premium."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.special import softmax

from fairpremium.arrays import Array
from fairpremium.corrections import Statistics
from fairpremium.errors import NotIdentifiedError, UnattainableReferenceError

NAMES = ("marginal", "uniform", "balanced")


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
        L[size:, size:] = self._jacobian(weights, statistics.shares, statistics.group_means)
        return np.asarray(L @ statistics.covariance @ L.T)

    def _jacobian(self, weights: Array, shares: Array, group_means: Array) -> Array:
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
