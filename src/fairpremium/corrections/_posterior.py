"""Correction by posterior weights: learn P(D given x, y) from the reports, then fit each group with it.

    r_k = T[s, k] q_k(x, y) / sum_l T[s, l] q_l(x, y)  in [0, 1],   then K ordinary weighted fits.

It rests on the classifier q(x, y) alone, not on a law for Y, and works with every model that takes weights. The
classifier is trained through the channel by the log-loss of the reports, which also measures it without the truth.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from fairpremium.arrays import Array
from fairpremium.blocks import Block, RowFunction
from fairpremium.corrections._empirical_bayes import Evidence, Posterior, relinearise
from fairpremium.corrections._fit import GroupFit, Influence
from fairpremium.corrections._latent import Latent, Parameters
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
        """Compute P(D = k given x, y, s), zero for rows that did not report: shape (rows, K)."""
        reported = block.report != len(self.latent.T) - 1
        return np.asarray(self.latent.responsibilities(block, self.parameters) * reported[:, None])

    def report_log_loss(self, block: Block) -> Array:
        """Compute -log P(s given x, y)."""
        return self.latent.report_log_loss(block, self.parameters)

    def log_odds(self, block: Block) -> Array:
        """Compute the log-odds of P(D given x, y) against the first group, within 50: shape (rows, K - 1)."""
        log_q, _, log_p = self.latent.log_terms(block, self.parameters)
        joint = log_q + log_p
        return np.asarray(np.clip(joint[:, 1:] - joint[:, :1], -50, 50))


class WeightedPrices(NamedTuple):
    """Group prices that were fitted with row weights."""

    B: Array  # (q, K)
    hessian: Array  # (K q, K q), of risk plus penalty
    posterior: Posterior | None  # of empirical Bayes


def weighted_prices(
    problem: LinearProblem, weights: RowFunction, base: GroupFit, pooling: float | None
) -> WeightedPrices:
    """Fit all groups with row weights, pooled with a strength or by empirical Bayes."""
    channel = base.channel
    risk = GlmRisk(problem.rows.with_shares(weights), problem.moments, channel.table, problem.family)
    if pooling is not None:
        start, model = problem.start(len(channel.table)), problem.model
        penalty = problem.penalty(pooling)
        found = minimise(risk, penalty, start, channel.groups, max_iter=model.max_iter, tol=model.tol)
        return WeightedPrices(found.B, found.hessian, None)
    scale = base.repeats * dispersion(problem, channel.table, base.B)

    def evidence_at(B: Array) -> Evidence:
        expansion = risk.expand(B)
        hessian = joint_hessian(expansion, problem.penalty(0.0))
        gradient = expansion.gradient.T.ravel()
        return Evidence(hessian, hessian @ B.T.ravel() - gradient).divided(scale)

    posterior = relinearise(problem, base.B, evidence_at)
    return WeightedPrices(posterior.B, np.asarray(scale * np.linalg.inv(posterior.covariance)), posterior)


def posterior_fit(problem: LinearProblem, posterior: GroupPosterior, base: GroupFit, pooling: float | None) -> GroupFit:
    """Fit all groups with the classifier's posterior weights, from a consistent fit that gives the channel.

    The shares are the mean of q_k(x, y) over all rows. The influence stacks the classifier's scores on those of the
    weighted fits: leaving them out makes intervals far too short.
    """
    latent, at = posterior.latent, posterior.parameters
    K, q = latent.n_groups, problem.moments.q
    B, hessian, pooled = weighted_prices(problem, posterior.weights, base, pooling)
    g = at.gamma.size
    W = problem.moments.total_weight
    draft = _RowInfluence(problem, posterior, B, np.zeros(K))
    cross, totals, share_gradient = problem.rows.reduce(draft.sums, block_rows=2048)
    _, _, complete, missing = latent.expand(at)
    size = g + K * q
    bread = np.zeros((size, size))
    bread[:g, :g] = complete - missing
    bread[g:, :g] = cross.reshape(K * q, g)
    bread[g:, g:] = hessian
    gradient = np.zeros((K, size))
    gradient[:, :g] = share_gradient.reshape(K, g) / W
    rows = replace(draft, shares=totals / W)
    influence = Influence(rows.scores, np.asarray(np.linalg.inv(bread)), g, rows.share_scores, gradient)
    return GroupFit(problem, "posterior", base.channel, B, rows.shares, pooling, influence, pooled)


@dataclass(frozen=True)
class _RowInfluence:
    """The classifier's scores stacked on those of the weighted fits, row by row, and sums for their derivative."""

    problem: LinearProblem
    posterior: GroupPosterior
    B: Array
    shares: Array

    def _pieces(self, block: Block) -> tuple[Array, Array, Array]:
        """Row weights, z, and w loss' at the group prices."""
        Z = self.problem.moments.coordinates.matrix(block.X)
        _, slope, _ = self.problem.family.loss_terms(block.y[:, None], Z @ self.B)
        return self.posterior.weights(block), Z, slope if block.weight is None else slope * block.weight[:, None]

    def scores(self, block: Block) -> Array:
        latent, at = self.posterior.latent, self.posterior.parameters
        r, Z, slope = self._pieces(block)
        own = (-(r * slope)[:, :, None] * Z[:, None, :]).reshape(len(Z), self.B.size)
        reported = block.report != len(latent.T) - 1
        return np.concatenate([latent.scores(block, at) * reported[:, None], own], axis=1)

    def share_scores(self, block: Block) -> Array:
        return np.asarray(self._propensity(block)[1] - self.shares)

    def sums(self, block: Block) -> tuple[Array, ...]:
        q, K = self.B.shape
        r, Z, slope = self._pieces(block)
        U, p = self._propensity(block)
        w = np.ones(len(U)) if block.weight is None else block.weight
        m = U.shape[1]
        cross = np.empty((K, q, K - 1, m))
        share_gradient = np.empty((K, K - 1, m))
        for k in range(K):
            for j in range(1, K):
                move = r[:, k] * ((j == k) - r[:, j])  # derivative of r_k in the logit of group j
                cross[k, :, j - 1] = (Z * (move * slope[:, k])[:, None]).T @ U
                share_gradient[k, j - 1] = (w * p[:, k] * ((j == k) - p[:, j])) @ U
        return cross, w @ p, share_gradient

    def _propensity(self, block: Block) -> tuple[Array, Array]:
        latent = self.posterior.latent
        U = latent.features(block)
        return U, np.exp(latent.log_propensity(block, U, self.posterior.parameters))
