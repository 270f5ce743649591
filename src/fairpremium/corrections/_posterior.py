"""Correction by posterior weights: learn P(D given x, y) from the reports, then fit each group with it.

    r_k = T[s, k] q_k(x, y) / sum_l T[s, l] q_l(x, y)  in [0, 1],   then K ordinary weighted fits.

It rests on the classifier q(x, y) alone, not on a law for Y, and works with every model that takes weights. The
classifier is trained through the channel by the log-loss of the reports, which also measures it without the truth.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from fairpremium.arrays import Array
from fairpremium.blocks import Block, RowFunction
from fairpremium.corrections._empirical_bayes import Evidence, Posterior, relinearise
from fairpremium.corrections._fit import GroupFit, Influence, Unpooled
from fairpremium.corrections._latent import Latent, Parameters, row_products
from fairpremium.corrections._propensity import OutcomeFeatures, reported_rows, with_missing_row
from fairpremium.corrections._score import dispersion
from fairpremium.models import GlmRisk, LinearProblem, joint_hessian, minimise


def classifier_likelihood(problem: LinearProblem, matrix: Array, *, spline: bool, ridge: float) -> Latent:
    """Set up the report log-loss of a multinomial logit in x, the outcome and their products."""
    rows = reported_rows(problem, len(matrix))
    features = OutcomeFeatures.learn(problem, rows, spline=spline)
    return Latent(rows, with_missing_row(matrix), features, features.n_features, ridge)


@dataclass(frozen=True)
class GroupPosterior:
    """A fitted P(D given x, y)."""

    latent: Latent
    parameters: Parameters

    def weights(self, block: Block) -> Array:
        """Compute P(D = k given x, y, s), zero for rows that do not take part: shape (rows, K)."""
        taking = self.latent.takes_part(block)
        return np.asarray(self.latent.responsibilities(block, self.parameters) * taking[:, None])

    def weight_gradient(self, block: Block, Z: Array, by_group: Array) -> Array:
        """Sum by_group[i, k] z_i times the derivative of the weight of k: (K columns of Z, parameters)."""
        return self.latent.weight_gradient(block, self.parameters, Z, by_group)

    def report_log_loss(self, block: Block) -> Array:
        """Compute -log P(s given x, y)."""
        return self.latent.report_log_loss(block, self.parameters)


class WeightedPrices(NamedTuple):
    """Group prices that were fitted with row weights."""

    B: Array  # (q, K)
    response: Array  # (K q, K q), of B to the scores of the weighted fits
    unpooled: Array  # (q, K)
    unpooled_response: Array
    posterior: Posterior | None  # of empirical Bayes


def weighted_prices(
    problem: LinearProblem, weights: RowFunction, base: GroupFit, pooling: float | None, doubt: Array | float = 0.0
) -> WeightedPrices:
    """Fit all groups with row weights, pooled with a strength or by empirical Bayes.

    The scores of the weighted fits have the covariance phi H + doubt: H is their slope, and `doubt` (K q, K q) is what
    the error of the weights adds.
    """
    channel, K = base.channel, len(base.channel.groups)
    span = problem.span(K)
    risk = GlmRisk(problem.rows.with_shares(weights), problem.moments, channel.table, problem.family)
    if pooling is not None:
        start, model = problem.start(K), problem.model
        penalty = problem.penalty(pooling, K)
        found = minimise(risk, penalty, start, channel.groups, span=span, max_iter=model.max_iter, tol=model.tol)
        response = span.inverse(found.hessian)
        return WeightedPrices(found.B, response, found.B, response, None)
    scale = dispersion(problem, channel.table, base.B)
    gain, free, H = np.empty(0), base.B, np.empty(0)

    def evidence_at(B: Array) -> Evidence:
        nonlocal gain, free, H
        expansion = risk.expand(B)
        ridge = problem.penalty(0.0, K)
        H = joint_hessian(expansion, ridge)
        step = span.solve(H, (expansion.gradient + ridge.gradient(B)).T.ravel())
        free = B - step.reshape(B.shape[::-1]).T
        gain = H @ span.inverse(base.repeats * (scale * H + doubt))
        return Evidence(gain @ H, gain @ H @ free.T.ravel())

    posterior = relinearise(problem, base.B, evidence_at)
    return WeightedPrices(posterior.B, posterior.covariance @ gain, free, span.inverse(H), posterior)


def posterior_fit(
    problem: LinearProblem,
    posterior: GroupPosterior,
    base: GroupFit,
    pooling: float | None,
    correction: str = "posterior",
) -> tuple[GroupFit, Unpooled]:
    """Fit all groups with the weights P(D = k given x, y, s) of a model, from a consistent fit that gives the channel.

    The shares are the mean of these weights over all rows (of P(D = k given x, y) for those that did not report). The
    influence stacks the scores of the model on those of the weighted fits: leaving them out makes intervals far too
    short.
    """
    latent, at = posterior.latent, posterior.parameters
    inverse = latent.covariance(at)
    rows = _RowInfluence(problem, posterior, base.B, base.shares)
    cross = problem.rows.reduce(rows.cross, block_rows=2048)[0]
    prices = weighted_prices(problem, posterior.weights, base, pooling, cross @ inverse @ cross.T)
    totals, share_gradient = problem.rows.reduce(partial(latent.share_sums, at=at), block_rows=2048)
    W = problem.moments.total_weight
    rows = replace(rows, B=prices.B, shares=totals / W)
    cross = problem.rows.reduce(rows.cross, block_rows=2048)[0]
    g = len(inverse)
    size = g + len(cross)

    def stacked(response: Array) -> Array:
        return np.hstack([-response @ cross @ inverse, response])

    response, gradient = np.zeros((size, size)), np.zeros((len(totals), size))
    response[:g, :g], response[g:] = inverse, stacked(prices.response)
    gradient[:, :g] = share_gradient / W
    influence = Influence(rows.scores, response, g, rows.share_scores, gradient)
    fit = GroupFit(problem, correction, base.channel, prices.B, rows.shares, pooling, influence, prices.posterior)
    return fit, Unpooled(prices.unpooled, stacked(prices.unpooled_response))


@dataclass(frozen=True)
class _RowInfluence:
    """The scores of the model of the weights stacked on those of the weighted fits, row by row."""

    problem: LinearProblem
    posterior: GroupPosterior
    B: Array
    shares: Array

    def _pieces(self, block: Block) -> tuple[Array, Array]:
        """Return z, and w loss' at the group prices, zero for rows that do not take part."""
        Z = self.problem.moments.coordinates.matrix(block.X)
        _, slope, _ = self.problem.family.loss_terms(block.y[:, None], np.dot(self.B.T, Z.T).T)
        slope = slope if block.weight is None else slope * block.weight[:, None]
        return Z, slope * self._reported(block)

    def _reported(self, block: Block) -> Array:
        return self.posterior.latent.takes_part(block)[:, None].astype(np.float64)

    def scores(self, block: Block) -> Array:
        latent, at = self.posterior.latent, self.posterior.parameters
        Z, slope = self._pieces(block)
        own = row_products(-(self.posterior.weights(block) * slope), Z)
        return np.concatenate([latent.scores(block, at) * self._reported(block), own], axis=1)

    def share_scores(self, block: Block) -> Array:
        return self.posterior.latent.responsibilities(block, self.posterior.parameters) - self.shares

    def cross(self, block: Block) -> tuple[Array]:
        """Sum the derivative of the weighted fits' gradient in the parameters of the weights: (K q, parameters)."""
        Z, slope = self._pieces(block)
        return (self.posterior.weight_gradient(block, Z, slope),)
