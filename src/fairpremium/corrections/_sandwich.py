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
from fairpremium.corrections._fit import GroupFit, Influence, sums_of_squares
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
    unaware_covariance: Array | None = None  # of the coefficients of the unaware price


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
    eta = np.dot(B.T, Z.T)  # (K, rows)
    mu, slope = link.mean_and_slope(eta)
    w = np.ones(len(Z)) if block.weight is None else block.weight
    return np.dot(mu, w), np.dot(Z.T, (slope * w).T), np.dot(w, block.y)


def sandwich(fit: GroupFit, squares: Callable[[Rows | Stream, RowFunction], Array] | None = None) -> Statistics:
    """Estimate the joint covariance of coefficients, shares, mean group prices and mean loss.

    `squares` computes sum_i u_i u_i' from rows and contributions, where that is not to be summed over the reports of
    the rows; there is then no covariance of the unaware price.

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
    unaware = None
    if squares is None:
        meat, of_unaware = sums_of_squares(problem.rows, contributions, _UnawareScores(fit))
        unaware = _unaware_covariance(fit, of_unaware)
    else:
        meat = squares(problem.rows, contributions)
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
    return Statistics(fit.coefficients, fit.shares, H, mean_loss, covariance, groups, unaware)


def _unaware_covariance(fit: GroupFit, meat: Array) -> Array:
    """Estimate the covariance of the coefficients of the unaware price on the caller's scale: (1 + features) squared.

    `meat` is sum_i u_i u_i' of `_UnawareScores`.

    Notes
    -----
    The sandwich of an ordinary fit, which no report enters. Where the price was shifted to reproduce the total, the
    shift c solves sum_i w_i (y_i - mu(z_i'b + c)) = 0 and moves by (sum_i u_i - G'db) / D with u_i that imbalance, G
    its derivative in b and D that in c.
    """
    problem, c = fit.problem, fit.unaware_shift
    coordinates, link = problem.moments.coordinates, problem.family.link
    bread = np.linalg.inv(problem.metric * problem.moments.total_weight)
    move = coordinates.jacobian() @ np.hstack([bread, np.zeros((len(bread), 1))])
    if c:
        slopes = partial(_unaware_slopes, link=link, coordinates=coordinates, b=problem.unaware, shift=c)
        G, D = problem.rows.reduce(slopes)
        move[0] += np.append(-(bread @ G), 1.0) / float(D)
    return np.asarray(move @ meat @ move.T)


def _unaware_slopes(block: Block, link: Link, coordinates: Coordinates, b: Array, shift: float) -> tuple[Array, ...]:
    """Sums of w mu'(z'b + c) z and of w mu'(z'b + c)."""
    Z = coordinates.matrix(block.X)
    slope = link.slope(np.dot(Z, b[:, 0]) + shift)
    slope = slope if block.weight is None else slope * block.weight
    return np.dot(Z.T, slope), slope.sum()


@dataclass(frozen=True)
class _UnawareScores:
    """The unaware price's estimating function of each row, and what it adds to outcomes minus prices: (rows, q + 1)."""

    fit: GroupFit

    def __call__(self, block: Block) -> Array:
        problem = self.fit.problem
        Z = problem.moments.coordinates.matrix(block.X)
        eta = np.dot(Z, problem.unaware[:, 0])
        _, slope, _ = problem.family.loss_terms(block.y, eta)
        gap = block.y - problem.family.link.mean_of(eta + self.fit.unaware_shift)
        found = np.vstack([-slope * Z.T, gap])
        return (found if block.weight is None else found * block.weight).T


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
        eta = np.dot(self.B.T, self.coordinates.matrix(block.X).T)
        price = self.link.mean_of(eta) - self.group_means[:, None]  # (K, rows)
        means = np.vstack([self.influence.share_scores(block).T, price, block.y - self.mean_loss])
        means *= w / self.total_weight
        return np.concatenate([self.influence.scores(block).T, means]).T
