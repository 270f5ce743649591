"""Covariance of everything that a premium rests on, from one pass over the rows.

The coefficients solve an estimating equation and the shares, the mean group prices and the mean loss are
means, so each is, to first order, a sum over rows of influences. With u_i the row's contributions, the
covariance of all of them together is  L (sum_i u_i u_i') L'  for a fixed matrix L.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fairpremium.blocks import Block
from fairpremium.corrections._inverse import GroupFit
from fairpremium.corrections._shares import share_coefficients

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
    problem, B = fit.problem, fit.minimum.B
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
    Influences of row i, with J the Hessian of risk plus penalty, gamma_k the linear model of P(D = k given x)
    fitted to the reports, W the total weight and r_i = 1 if the row reported:

    - coefficients: -J^-1 psi_i, psi_ik = T^-1[k, s_i] w_i loss'(y_i, z_i'b_k) z_i;
    - shares: w_i / W (z_i'gamma_k - p_k + r_i c'z_i (T^-1[k, s_i] - z_i'gamma_k)), where c solves
      (sum of r w z z') c = sum of w z, so that c'z_i = 1 when every row reported;
    - mean group prices: w_i / W (f_k(x_i) - H_k) + (dH_k/db_k)' (influence of b_k);
    - mean loss: w_i / W (y_i - mean).

    Pooling and ridge enter J. The covariance tells how far the estimate scatters, not how far a penalty
    moves it.
    """
    problem, B, table = fit.problem, fit.minimum.B, fit.table
    moments = problem.moments
    q, K, W = moments.q, len(table), moments.total_weight
    coordinates, family = moments.coordinates, problem.family
    gamma = share_coefficients(moments, table)  # (q, K)
    reported_gram = moments.by_report[:-1, :q, :q].sum(axis=0)
    c = np.linalg.lstsq(reported_gram, moments.gram[0], rcond=None)[0]
    H, dH, mean_loss = portfolio_means(fit)
    missing = table.shape[1] - 1
    row_table = np.ascontiguousarray(table.T)

    def sums(block: Block) -> tuple[Array, ...]:
        Z = coordinates.matrix(block.X)
        w = np.ones(len(Z)) if block.weight is None else block.weight
        inverse = row_table[block.report]  # (rows, K)
        eta = Z @ B
        _, slope, _ = family.loss_terms(block.y[:, None], eta)
        psi = (inverse * slope * w[:, None])[:, :, None] * Z[:, None, :]  # (rows, K, q)
        q_x = Z @ gamma
        reported = np.where(block.report == missing, 0.0, Z @ c)
        share = q_x - fit.shares + reported[:, None] * (inverse - q_x)
        price = family.link.mean_of(eta) - H
        loss = block.y - mean_loss
        means = np.column_stack([share, price, loss]) * (w / W)[:, None]
        U = np.concatenate([psi.reshape(len(Z), K * q), means], axis=1)
        return (U.T @ U,)

    (meat,) = problem.rows.fold(sums, block_rows=2048)
    size = K * q
    to_raw = np.kron(np.eye(K), coordinates.jacobian())  # (K (1 + features), K q)
    influence = -np.linalg.inv(fit.minimum.hessian)  # of the coefficients of z
    means_of = np.zeros((K, size))
    for k in range(K):
        means_of[k, k * q : (k + 1) * q] = dH[k]
    L = np.zeros((len(to_raw) + 2 * K + 1, size + 2 * K + 1))
    L[: len(to_raw), :size] = to_raw @ influence
    L[len(to_raw) :, size:] = np.eye(2 * K + 1)
    L[len(to_raw) + K : len(to_raw) + 2 * K, :size] = means_of @ influence
    return Statistics(fit.coefficients, fit.shares, H, mean_loss, L @ meat @ L.T)
