"""Shares of the groups in the portfolio, from the reports."""

from dataclasses import dataclass

import numpy as np

from fairpremium.arrays import Array
from fairpremium.blocks import Block, RowFunction
from fairpremium.models import Coordinates, Moments


def share_coefficients(moments: Moments, table: Array) -> Array:
    """Regress T^-1[k, s] on z among the rows that reported: a linear model of P(D = k given x), shape (q, K)."""
    q = moments.q
    by_report = moments.by_report[:-1]
    gram = by_report[:, :q, :q].sum(axis=0)
    cross = by_report[:, 0, :q].T @ table[:, :-1].T  # sum of w z T^-1[k, s]
    return np.asarray(np.linalg.lstsq(gram, cross, rcond=None)[0])


def estimate_shares(moments: Moments, table: Array) -> Array:
    """Estimate P(D = k), the distribution of volume over groups, without bias and without clipping.

    The linear model of P(D = k given x) that the reporting rows give is averaged over **all** rows. If every row
    reported, this is the plain mean of T^-1[k, s_i]. If some did not, it corrects for reporting that depends on the
    features, where the plain mean over those who reported would be biased.
    """
    mean = moments.gram[0] / moments.total_weight  # mean of z over all rows
    return np.asarray(mean @ share_coefficients(moments, table))


def report_shares(moments: Moments, table: Array) -> tuple[Array, RowFunction]:
    """Estimate P(D) from the reports and the features alone, with each row's contribution.

    Returns z'gamma_k - p_k + r c'z (T^-1[k, s] - z'gamma_k), where gamma is the linear model of P(D = k given x), r = 1
    if the row reported, and c solves (sum of r w z z') c = sum of w z over all rows, so that c'z = 1 when all did.
    """
    q = moments.q
    shares = estimate_shares(moments, table)
    gamma = share_coefficients(moments, table)  # (q, K)
    reported_gram = moments.by_report[:-1, :q, :q].sum(axis=0)
    c = np.linalg.lstsq(reported_gram, moments.gram[0], rcond=None)[0]
    return shares, _ShareScores(moments.coordinates, gamma, c, shares, np.ascontiguousarray(table.T))


@dataclass(frozen=True)
class _ShareScores:
    coordinates: Coordinates
    gamma: Array
    c: Array
    shares: Array
    row_table: Array  # (codes, K)

    def __call__(self, block: Block) -> Array:
        Z = self.coordinates.matrix(block.X)
        propensity = Z @ self.gamma
        factor = np.where(block.report == len(self.row_table) - 1, 0.0, Z @ self.c)
        return np.asarray(propensity - self.shares + factor[:, None] * (self.row_table[block.report] - propensity))
