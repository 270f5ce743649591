"""What every correction returns: group prices, shares, and how each row influenced them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairpremium.arrays import Array
from fairpremium.blocks import Block, RowFunction
from fairpremium.corrections._empirical_bayes import Posterior
from fairpremium.corrections._report_channel import ReportChannel
from fairpremium.corrections._shares import report_shares
from fairpremium.models import LinearProblem

if TYPE_CHECKING:
    from fairpremium.corrections._signed_moments import SignedMoments


@dataclass(frozen=True)
class Influence:
    """How rows move the parameters of a fit: response @ scores(row), to first order."""

    scores: RowFunction  # estimating function of each row: (rows, parameters)
    response: Array  # (parameters, parameters), inverse of minus the derivative of the scores and penalties
    first: int  # where B starts among the parameters (group after group)
    share_scores: RowFunction  # what each row adds to W (shares - P(D)) at fixed parameters, per unit of weight
    share_gradient: Array  # (K, parameters), derivative of the shares in the parameters


@dataclass(frozen=True)
class GroupFit:
    """Group prices of the linear class, in the coordinates of the problem's moments."""

    problem: LinearProblem
    correction: str
    channel: ReportChannel
    B: Array  # (q, K)
    shares: Array  # (K,), estimate of P(D)
    strength: float | None  # of the pooling, in rows; None: empirical Bayes
    influence: Influence
    posterior: Posterior | None = None  # of empirical Bayes
    moments: SignedMoments | None = None  # that it rests on, if they were computed

    @property
    def pooling(self) -> float | dict[str, Any]:
        """The strength, or the standard deviations of the groups' levels and of each feature's effects."""
        if self.strength is not None:
            return self.strength
        assert self.posterior is not None
        return self.posterior.deviations

    @property
    def coefficients(self) -> Array:
        """Coefficients of (1, x) on the caller's scale: shape (1 + features, K)."""
        return self.problem.moments.coordinates.to_raw(self.B)

    @property
    def unaware_coefficients(self) -> Array:
        """Coefficients of the unaware price on the caller's scale: shape (1 + features, 1)."""
        return self.problem.moments.coordinates.to_raw(self.problem.unaware)


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


def table_fit(
    problem: LinearProblem,
    correction: str,
    channel: ReportChannel,
    B: Array,
    response: Array,
    strength: float | None,
    posterior: Posterior | None = None,
) -> GroupFit:
    """Turn group prices into a fit whose standard errors rest on the moments T^-1[k, s] w loss'(y, f_k) z alone."""
    table = channel.table
    shares, share_scores = report_shares(problem.moments, table)
    scores = TableScores(problem, B, np.ascontiguousarray(table.T))
    influence = Influence(scores, response, 0, share_scores, np.zeros((len(table), B.size)))
    return GroupFit(problem, correction, channel, B, shares, strength, influence, posterior)
