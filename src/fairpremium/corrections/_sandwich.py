"""Covariance of everything that a premium rests on, from one pass over the rows.

The coefficients solve an estimating equation and the shares, the mean group prices and the mean loss are
means, so each is, to first order, a sum over rows of influences. With u_i the row's contributions, the
covariance of all of them together is  L (sum_i u_i u_i') L'  for a fixed matrix L.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fairpremium.blocks import Block, Rows
from fairpremium.corrections._fit import GroupFit

Array = npt.NDArray[np.float64]


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


def portfolio_means(fit: GroupFit) -> tuple[Array, Array, float]:
    """Compute the mean price of each group's formula over all rows, its gradient, and the mean loss.

    Returns
    -------
    group_means : array of shape (K,)
        H_k = sum_i w_i f_k(x_i) / sum_i w_i.
    gradient : array of shape (K, q)
        Derivative of H_k in the coefficients of group k.
    mean_loss : float
        sum_i w_i y_i / sum_i w_i.
    """
    problem, B = fit.problem, fit.B
    link, coordinates = problem.family.link, problem.moments.coordinates

    def sums(block: Block) -> tuple[Array, ...]:
        Z = coordinates.matrix(block.X)
        eta = Z @ B
        w = np.ones(len(Z)) if block.weight is None else block.weight
        return w @ link.mean_of(eta), (Z * w[:, None]).T @ link.slope(eta), w @ block.y

    H, gradient, loss = problem.rows.fold(sums)
    total = problem.moments.total_weight
    return H / total, gradient.T / total, float(loss / total)


def sandwich(fit: GroupFit) -> Statistics:
    """Estimate the joint covariance of coefficients, shares, mean group prices and mean loss.

    Notes
    -----
    Influences of row i, with theta all parameters of the correction (coefficients, propensity, dispersion) and W
    the total weight:

    - parameters: bread^-1 scores_i;
    - shares: w_i / W share_scores_i + (d shares / d theta)' (influence of theta);
    - mean group prices: w_i / W (f_k(x_i) - H_k) + (dH_k / db_k)' (influence of b_k);
    - mean loss: w_i / W (y_i - mean).

    If one person has several rows, they share one report and are not independent: contributions are then summed per
    person before they are squared. Pooling and ridge enter the bread. The covariance tells how far the estimate
    scatters, not how far a penalty moves it.
    """
    problem, influence = fit.problem, fit.influence
    q, K = fit.B.shape
    W = problem.moments.total_weight
    coordinates, link = problem.moments.coordinates, problem.family.link
    H, dH, mean_loss = portfolio_means(fit)

    def contributions(block: Block) -> Array:
        w = np.ones(len(block.y)) if block.weight is None else block.weight
        price = link.mean_of(coordinates.matrix(block.X) @ fit.B) - H
        means = np.column_stack([influence.share_scores(block), price, block.y - mean_loss]) * (w / W)[:, None]
        return np.concatenate([influence.scores(block), means], axis=1)

    meat = _sum_of_squares(problem.rows, contributions)
    size = len(influence.bread)
    theta = np.linalg.inv(influence.bread)
    select = np.zeros((K * q, size))
    select[:, influence.first : influence.first + K * q] = np.eye(K * q)
    to_raw = np.kron(np.eye(K), coordinates.jacobian()) @ select  # (K (1 + features), parameters)
    means_of = np.zeros((K, K * q))
    for k in range(K):
        means_of[k, k * q : (k + 1) * q] = dH[k]
    p = len(to_raw)
    L = np.zeros((p + 2 * K + 1, size + 2 * K + 1))
    L[:p, :size] = to_raw @ theta
    L[p : p + K, :size] = influence.share_gradient @ theta
    L[p + K : p + 2 * K, :size] = means_of @ select @ theta
    L[p:, size:] = np.eye(2 * K + 1)
    return Statistics(fit.coefficients, fit.shares, H, mean_loss, L @ meat @ L.T)


def _sum_of_squares(rows: Rows, contributions: Callable[[Block], Array]) -> Array:
    """Compute sum_i u_i u_i', or the same over the persons' totals if rows are clustered."""
    if rows.cluster is None:

        def sums(block: Block) -> tuple[Array, ...]:
            U = contributions(block)
            return (U.T @ U,)

        return rows.fold(sums, block_rows=2048)[0]
    order = np.argsort(rows.cluster, kind="stable")
    ordered = rows.cluster[order]
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))  # where each person's rows begin
    total: Array | float = 0.0
    for persons in np.array_split(first, max(1, len(first) // 2048)):
        last = first[np.searchsorted(first, persons[-1], side="right") :]
        stop = last[0] if len(last) else len(order)
        block = rows.take(order[persons[0] : stop])
        per_person = np.add.reduceat(contributions(block.block(0, len(block))), persons - persons[0], axis=0)
        total = total + per_person.T @ per_person
    return np.asarray(total)
