"""Correction by posterior weights: learn P(D given x, y) from the reports, then fit each group with it.

    r_k = T[s, k] q_k(x, y) / sum_l T[s, l] q_l(x, y)  in [0, 1],   then K ordinary weighted fits.

It rests on the classifier q(x, y) alone, not on a law for Y, and works with every model that takes weights. The
classifier is trained through the channel by the log-loss of the reports, which also judges it without the truth.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from fairpremium.blocks import Block
from fairpremium.corrections._fit import GroupFit, Influence, RowFunction
from fairpremium.corrections._latent import Latent, Parameters
from fairpremium.corrections._pooling import Judged, choose_strength, judge_strengths
from fairpremium.corrections._propensity import OutcomeFeatures, reported_rows, with_missing_row
from fairpremium.models._linear import LinearProblem
from fairpremium.models._newton import Minimum, minimise
from fairpremium.models._risk import GlmRisk

Array = npt.NDArray[np.float64]


def classifier_likelihood(problem: LinearProblem, matrix: Array, *, spline: bool, ridge: float) -> Latent:
    """Set up the report log-loss of a multinomial logit in x, the outcome and their products."""
    rows = reported_rows(problem, len(matrix))
    features = OutcomeFeatures.learn(problem, rows, spline=spline)
    return Latent(rows, with_missing_row(matrix), features, features.n_features, ridge)


def posterior_weights(latent: Latent, at: Parameters) -> RowFunction:
    """Return the function from a block to P(D = k given x, y, s), zero for rows that did not report."""
    no_report = len(latent.T) - 1

    def weights(block: Block) -> Array:
        return np.asarray(latent.responsibilities(block, at) * (block.report != no_report)[:, None])

    return weights


def posterior_prices(
    problem: LinearProblem, shares: Array, table: Array, groups: tuple[object, ...], strength: float
) -> Minimum:
    """Fit all groups with given row weights of shape (n, K) and a pooling strength."""
    rows = replace(problem.rows, share=shares, part=None)
    moments = replace(problem.moments, second=problem.moments.by_report[None])
    return minimise(
        GlmRisk(rows, moments, table, problem.family),
        problem.penalty(strength),
        problem.start(len(table)),
        groups,
        max_iter=problem.model.max_iter,
        tol=problem.model.tol,
    )


def posterior_fit(
    problem: LinearProblem,
    latent: Latent,
    at: Parameters,
    table: Array,
    groups: tuple[object, ...],
    pooling: float | None,
    rng: np.random.Generator,
) -> GroupFit:
    """Fit all groups with the classifier's posterior weights.

    Parameters
    ----------
    problem : LinearProblem
    latent, at : Latent, Parameters
        The classifier.
    table : array of shape (K, codes)
        The inverse channel with a zero column, which judges the pooling strengths.
    groups : tuple
        Labels.
    pooling : float or None
        Pooling strength; None chooses it by the corrected risk.
    rng : Generator

    Notes
    -----
    The shares are the mean of q_k(x, y) over all rows. The influence stacks the classifier's scores on those of the
    weighted fits: leaving them out makes intervals far too short.
    """
    K, q = latent.n_groups, problem.moments.q
    no_report = len(latent.T) - 1
    weights = posterior_weights(latent, at)
    shares_of_rows = problem.rows.map(weights)
    judged: list[Judged] = []
    if pooling is None:
        judged = judge_strengths(problem, table, groups, rng, shares_of_rows)
        pooling = choose_strength(judged)
    minimum = posterior_prices(problem, shares_of_rows, table, groups, pooling)
    B = minimum.B
    coordinates, family = problem.moments.coordinates, problem.family
    g = at.gamma.size
    W = problem.moments.total_weight

    def pieces(block: Block) -> tuple[Array, Array, Array]:
        """Row weights, z, and w loss' at the group prices."""
        Z = coordinates.matrix(block.X)
        _, slope, _ = family.loss_terms(block.y[:, None], Z @ B)
        return weights(block), Z, slope if block.weight is None else slope * block.weight[:, None]

    def scores(block: Block) -> Array:
        r, Z, slope = pieces(block)
        own = (-(r * slope)[:, :, None] * Z[:, None, :]).reshape(len(Z), K * q)
        return np.concatenate([latent.scores(block, at) * (block.report != no_report)[:, None], own], axis=1)

    def sums(block: Block) -> tuple[Array, ...]:
        r, Z, slope = pieces(block)
        U = latent.features(block)
        p = np.exp(latent.log_propensity(block, U, at))
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

    cross, totals, share_gradient = problem.rows.fold(sums, block_rows=2048)
    _, _, complete, missing = latent.expand(at)
    size = g + K * q
    bread = np.zeros((size, size))
    bread[:g, :g] = complete - missing
    bread[g:, :g] = cross.reshape(K * q, g)
    bread[g:, g:] = minimum.hessian
    gradient = np.zeros((K, size))
    gradient[:, :g] = share_gradient.reshape(K, g) / W
    shares = totals / W

    def share_scores(block: Block) -> Array:
        return np.asarray(np.exp(latent.log_propensity(block, latent.features(block), at)) - shares)

    influence = Influence(scores, bread, g, share_scores, gradient)
    return GroupFit(problem, "posterior", table, B, shares, pooling, influence, judged)
