"""Covariance of everything that a premium rests on, from one pass over the rows.

The coefficients solve an estimating equation and the shares, the mean group prices and the mean loss are
means, so each is, to first order, a sum over rows of influences. With u_i the row's contributions, the
covariance of all of them together is  L (sum_i u_i u_i') L'  for a fixed matrix L.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from fairpremium.arrays import Array
from fairpremium.blocks import Block, RowFunction, Rows, Stream
from fairpremium.corrections._fit import GroupFit, Influence, sum_of_squares
from fairpremium.families import Link
from fairpremium.models import Coordinates


@dataclass(frozen=True)
class Statistics:
    """Estimates with their joint covariance, stacked in this order.

    ``coefficients`` group after group on the caller's scale (K (1 + features)), ``shares`` (K),
    ``group_means`` H_k = mean of w f_k(x) over the portfolio (K), ``mean_loss`` (1).
    """

    coefficients: Array  # (1 + features, K)
    shares: Array  # (K,)
    group_means: Array  # (K,)
    mean_loss: float
    covariance: Array
    group_covariance: Array | None = None  # of the coefficients, for statements about groups; None: as in `covariance`


def portfolio_means(fit: GroupFit) -> tuple[Array, Array, float]:
    """Compute what the portfolio would pay by each group's prices, and what it costs.

    Returns H_k = sum_i w_i f_k(x_i) / sum_i w_i (K,), its derivative in the coefficients of group k (K, q), and the
    mean loss sum_i w_i y_i / sum_i w_i.
    """
    problem = fit.problem
    sums = partial(_price_sums, link=problem.family.link, coordinates=problem.moments.coordinates, B=fit.B)
    H, gradient, loss = problem.rows.reduce(sums)
    total = problem.moments.total_weight
    return H / total, gradient.T / total, float(loss / total)


def _price_sums(block: Block, link: Link, coordinates: Coordinates, B: Array) -> tuple[Array, ...]:
    """Sums of w f_k(x), of its derivative, and of w y."""
    Z = coordinates.matrix(block.X)
    eta = Z @ B
    w = np.ones(len(Z)) if block.weight is None else block.weight
    return w @ link.mean_of(eta), (Z * w[:, None]).T @ link.slope(eta), w @ block.y


def sandwich(fit: GroupFit, squares: Callable[[Rows | Stream, RowFunction], Array] | None = None) -> Statistics:
    """Estimate the joint covariance of coefficients, shares, mean group prices and mean loss.

    `squares` computes sum_i u_i u_i' from rows and contributions, where that is not to be summed over the reports of
    the rows.

    Notes
    -----
    Influences of row i, with theta all parameters of the correction (coefficients, propensity, dispersion) and W
    the total weight:

    - parameters: response @ scores_i;
    - shares: w_i / W share_scores_i + (d shares / d theta)' (influence of theta);
    - mean group prices: w_i / W (f_k(x_i) - H_k) + (dH_k / db_k)' (influence of b_k);
    - mean loss: w_i / W (y_i - mean).

    If one person has several rows, they share one report and are not independent: contributions are then summed per
    person before they are squared. Pooling and ridge enter the response. With empirical Bayes the covariance also holds
    how far the prior may have moved the coefficients; with a given strength it only tells how far they scatter.
    """
    problem, influence = fit.problem, fit.influence
    q, K = fit.B.shape
    W = problem.moments.total_weight
    coordinates = problem.moments.coordinates
    H, dH, mean_loss = portfolio_means(fit)
    contributions = _Contributions(influence, problem.family.link, coordinates, fit.B, H, mean_loss, W)
    meat = (squares or sum_of_squares)(problem.rows, contributions)
    size = len(influence.response)
    select = np.zeros((K * q, size))
    select[:, influence.first : influence.first + K * q] = np.eye(K * q)
    means_of = np.zeros((K, K * q))
    for k in range(K):
        means_of[k, k * q : (k + 1) * q] = dH[k]
    of_B = np.vstack([np.kron(np.eye(K), coordinates.jacobian()), np.zeros((K, K * q)), means_of, np.zeros((1, K * q))])
    p = len(of_B) - 2 * K - 1
    of_parameters = of_B @ select  # derivative of all statistics in the parameters
    of_parameters[p : p + K] += influence.share_gradient
    of_means = np.vstack([np.zeros((p, 2 * K + 1)), np.eye(2 * K + 1)])
    L = np.hstack([of_parameters @ influence.response, of_means])
    covariance = L @ meat @ L.T
    groups = None
    if fit.posterior is not None:
        covariance = covariance + of_B @ fit.posterior.left @ of_B.T
        own = influence.response[influence.first : influence.first + K * q]
        scatter = own @ meat[: own.shape[1], : own.shape[1]] @ own.T
        groups = of_B[:p] @ fit.posterior.group_covariance(scatter) @ of_B[:p].T
    return Statistics(fit.coefficients, fit.shares, H, mean_loss, covariance, groups)


@dataclass(frozen=True)
class _Contributions:
    """What each row adds to the parameters' equations and to the means: shape (rows, parameters + 2 K + 1)."""

    influence: Influence
    link: Link
    coordinates: Coordinates
    B: Array
    group_means: Array
    mean_loss: float
    total_weight: float

    def __call__(self, block: Block) -> Array:
        w = np.ones(len(block.y)) if block.weight is None else block.weight
        price = self.link.mean_of(self.coordinates.matrix(block.X) @ self.B) - self.group_means
        means = np.column_stack([self.influence.share_scores(block), price, block.y - self.mean_loss])
        return np.concatenate([self.influence.scores(block), means * (w / self.total_weight)[:, None]], axis=1)
