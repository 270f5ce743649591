"""What every correction returns: group prices, shares, and how each row influenced them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fairpremium.arrays import Array
from fairpremium.blocks import Block, RowFunction, Rows, Stream, person_totals
from fairpremium.corrections._empirical_bayes import Posterior
from fairpremium.corrections._latent import row_products
from fairpremium.corrections._propensity import report_shares
from fairpremium.corrections._report_channel import ReportChannel
from fairpremium.models import LinearProblem

if TYPE_CHECKING:
    from fairpremium.corrections._signed_moments import SignedMoments


@dataclass(frozen=True)
class Influence:
    """How rows move the parameters of a fit: response @ scores(row), to first order."""

    scores: RowFunction  # estimating function of each row: (rows, scores), as many as parameters or more
    respond: Array | Callable[[], Array]  # the response, or what computes it where it is needed
    first: int  # where B starts among the parameters (group after group)
    share_scores: RowFunction  # what each row adds to W (shares - P(D)) at fixed parameters, per unit of weight
    share_gradient: Array  # (K, parameters), derivative of the shares in the parameters

    @cached_property
    def response(self) -> Array:
        """Inverse of minus the derivative of the scores and penalties: shape (parameters, scores)."""
        return self.respond() if callable(self.respond) else self.respond


class Unpooled(NamedTuple):
    """What a fit would be without pooling, to first order."""

    B: Array  # (q, K)
    response: Array  # (K q, parameters), of B to the scores


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
    unaware_shift: float = 0.0  # of the linear predictor, with which the unaware price reproduces the total

    @property
    def repeats(self) -> float:
        """By how much persons with several rows make the evidence weaker than as many independent rows."""
        return 1.0 if self.moments is None else self.moments.repeats

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
        found = self.problem.moments.coordinates.to_raw(self.problem.unaware)
        found[0] += self.unaware_shift
        return found


@dataclass(frozen=True)
class TableScores:
    """Estimating functions -table[k, s] w loss'(y, z'b_k) z of fits whose row weights a table gives."""

    problem: LinearProblem
    B: Array  # (q, K)
    row_table: Array  # (codes, K)

    def __call__(self, block: Block) -> Array:
        """Compute them for the rows of a block: shape (rows, K q)."""
        Z = self.problem.moments.coordinates.matrix(block.X)
        _, slope, _ = self.problem.family.loss_terms(block.y, np.dot(self.B.T, Z.T))
        weight = -np.take(self.row_table.T, block.report, axis=1)
        weight = weight if block.weight is None else weight * block.weight
        return row_products((weight * slope).T, Z)


def table_fit(
    problem: LinearProblem,
    correction: str,
    channel: ReportChannel,
    B: Array,
    respond: Array | Callable[[], Array],
    strength: float | None,
    posterior: Posterior | None = None,
    scores: RowFunction | None = None,
) -> GroupFit:
    """Turn group prices into a fit whose standard errors rest on the moments T^-1[k, s] w loss'(y, f_k) z alone.

    `scores` are these moments by parts, if the response is to parts of them.
    """
    table = channel.table
    shares, share_scores = report_shares(problem.moments, table)
    scores = scores or TableScores(problem, B, np.ascontiguousarray(table.T))
    influence = Influence(scores, respond, 0, share_scores, np.zeros((len(table), B.size)))
    return GroupFit(problem, correction, channel, B, shares, strength, influence, posterior)


def _squares(block: Block, contributions: tuple[RowFunction, ...]) -> tuple[Array, ...]:
    return tuple(np.dot(U.T, U) for U in (function(block) for function in contributions))


def sum_of_squares(rows: Rows | Stream, contributions: RowFunction) -> Array:
    """Compute sum_i u_i u_i', or the same over the persons' totals if rows are clustered."""
    return sums_of_squares(rows, contributions)[0]


def sums_of_squares(rows: Rows | Stream, *contributions: RowFunction) -> tuple[Array, ...]:
    """Compute the sums of squares of several contributions, in one pass unless rows are clustered."""
    if not rows.clustered:
        return rows.reduce(partial(_squares, contributions=contributions), block_rows=2048)
    return tuple(_squares_of_persons(rows, function) for function in contributions)


def _squares_of_persons(rows: Rows | Stream, contributions: RowFunction) -> Array:
    if isinstance(rows, Stream):
        return rows.square_persons(contributions)
    return np.asarray(sum(np.dot(totals.T, totals) for _, totals in person_totals(rows, contributions)))
