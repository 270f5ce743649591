"""What every correction returns: group prices, shares, and how each row influenced them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from fairpremium.arrays import Array
from fairpremium.blocks import Block, RowFunction
from fairpremium.corrections._pooling import StrengthRisk
from fairpremium.corrections._report_channel import ReportChannel
from fairpremium.corrections._shares import estimate_shares, share_coefficients
from fairpremium.models import Coordinates, LinearProblem


@dataclass(frozen=True)
class Influence:
    """How rows move the parameters of a fit: bread^-1 scores(row), to first order.

    Parameters
    ----------
    scores : callable
        From a block to the estimating function of each row, shape (rows, parameters).
    bread : array of shape (parameters, parameters)
        Minus the derivative of the summed estimating function, penalties included.
    first : int
        Where B starts among the parameters (group after group).
    share_scores : callable
        From a block to what each row adds to W (shares - P(D)) at fixed parameters, per unit of weight.
    share_gradient : array of shape (K, parameters)
        Derivative of the shares in the parameters.
    """

    scores: RowFunction
    bread: Array
    first: int
    share_scores: RowFunction
    share_gradient: Array


@dataclass(frozen=True)
class GroupFit:
    """Group prices of the linear class, in the coordinates of the problem's moments."""

    problem: LinearProblem
    correction: str
    channel: ReportChannel
    B: Array  # (q, K)
    shares: Array  # (K,), estimate of P(D)
    strength: float
    influence: Influence
    strength_risks: list[StrengthRisk] = field(default_factory=list)

    @property
    def coefficients(self) -> Array:
        """Coefficients of (1, x) on the caller's scale: shape (1 + features, K)."""
        return self.problem.moments.coordinates.to_raw(self.B)

    @property
    def unaware_coefficients(self) -> Array:
        """Coefficients of the unaware price on the caller's scale: shape (1 + features, 1)."""
        return self.problem.moments.coordinates.to_raw(self.problem.unaware)


def report_shares(problem: LinearProblem, table: Array) -> tuple[Array, RowFunction]:
    """Estimate P(D) from the reports and the features alone, with each row's contribution.

    Returns
    -------
    shares : array of shape (K,)
    share_scores : callable
        z'gamma_k - p_k + r c'z (T^-1[k, s] - z'gamma_k), where gamma is the linear model of P(D = k given x), r = 1 if
        the row reported, and c solves (sum of r w z z') c = sum of w z over all rows, so that c'z = 1 when all did.
    """
    moments = problem.moments
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


@dataclass(frozen=True)
class TableScores:
    """Estimating functions -table[k, s] w loss'(y, z'b_k) z of fits whose row weights a table gives."""

    problem: LinearProblem
    B: Array  # (q, K)
    row_table: Array  # (codes, K)

    def __call__(self, block: Block) -> Array:
        """Compute them for the rows of a block: shape (rows, K q)."""
        Z = self.problem.moments.coordinates.matrix(block.X)
        _, slope, _ = self.problem.family.loss_terms(block.y[:, None], Z @ self.B)
        weight = self.row_table[block.report]
        weight = weight if block.weight is None else weight * block.weight[:, None]
        return np.asarray((-(weight * slope)[:, :, None] * Z[:, None, :]).reshape(len(Z), -1))
