"""Correction by likelihood: the outcome itself tells the groups apart, if its law is right.

    max over (b_k, gamma, lambda) of  sum_i log sum_k T[s_i, k] q_k(x_i; gamma) p(y_i; x_i'b_k, lambda)

rests on the law of Y given (x, D) and on the model of P(D given x). It is the most efficient correction when both
hold and can be worse than no correction when they do not; the checks decide.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.linalg import cholesky
from scipy.special import softmax

from fairpremium.arrays import Array
from fairpremium.blocks import Block, Rows, Stream
from fairpremium.corrections._empirical_bayes import Evidence, GaussianPenalty, Posterior, relinearise
from fairpremium.corrections._fit import GroupFit, Influence
from fairpremium.corrections._latent import Latent, Parameters
from fairpremium.corrections._propensity import (
    SAMPLE_ROWS,
    fit_propensity,
    flexible_features,
    reported_rows,
    volume_features,
    with_missing_row,
    x_features,
)
from fairpremium.corrections._report_channel import ReportChannel
from fairpremium.errors import ConvergenceError, RiskUnboundedError
from fairpremium.families import Law
from fairpremium.models import LinearProblem, Penalty


def mixture_likelihood(
    problem: LinearProblem,
    matrix: Array,
    law: Law,
    strength: float,
    *,
    common_dispersion: bool = True,
    flexible: bool = False,
) -> Latent:
    """Set up the likelihood of the rows that reported; `matrix` is T, `strength` the pooling strength in rows.

    With `flexible`, P(D given x) may bend: it has the squares of the features too.
    """
    rows = reported_rows(problem, len(matrix))
    features, n_features = flexible_features(problem) if flexible else volume_features(problem)
    # a strength counts rows of the risk; in the likelihood a row weighs one over the dispersion
    dispersion = _start_dispersion(problem, rows, law)
    scale = np.exp(-dispersion) if law.name == problem.family.name else 1.0
    ridge = None if problem.ridge is None else problem.ridge * scale
    return Latent(
        rows,
        with_missing_row(matrix),
        features,
        n_features,
        law=law,
        predictors=x_features(problem.moments)[0],
        penalty=Penalty(problem.metric * scale, strength, ridge),
        common_dispersion=common_dispersion,
        center_dispersion=None if common_dispersion else dispersion,
    )


def fit_mixture(latent: Latent, problem: LinearProblem, shares: Array, starts: list[Array]) -> Parameters:
    """Maximise from several starts of B and return the best; a large problem is solved on a sample first.

    A ConvergenceError says that no start led to a maximum.
    """
    assert latent.law is not None
    dispersion = np.full(latent.n_groups, _start_dispersion(problem, latent.rows, latent.law))
    propensity = fit_propensity(replace(latent, law=None, predictors=None, penalty=None), shares)
    work = latent
    if len(latent.rows) > 4 * SAMPLE_ROWS:
        work = latent.on(latent.rows.spaced(SAMPLE_ROWS))
    best: tuple[float, Parameters] | None = None
    for B in starts:
        try:
            found = work.maximise(Parameters(propensity.gamma, B, dispersion), tol=1e-4)
        except ConvergenceError:
            continue
        value = work.value(found)
        if best is None or value > best[0]:
            best = value, found
    if best is None:
        raise ConvergenceError("The likelihood found no maximum from any start.")
    return latent.maximise(best[1])


class Unpooled(NamedTuple):
    """What a fit would be without pooling, to first order."""

    B: Array  # (q, K)
    response: Array  # (K q, parameters), of B to the scores


def likelihood_fit(
    problem: LinearProblem,
    latent: Latent,
    at: Parameters,
    channel: ReportChannel,
    strength: float | None,
    posterior: Posterior | None = None,
) -> GroupFit:
    """Turn a maximised likelihood into group prices with shares and influences.

    The shares are the mean of P(D = k given x, y, s) over **all** rows by volume (without s for those that did not
    report), so that they are right also when reporting depends on x, or exposure on the group.
    """
    _, _, complete, missing = latent.expand(at)
    W = problem.moments.total_weight
    totals, gradient = problem.rows.reduce(partial(latent.share_sums, at=at), block_rows=2048)
    shares = totals / W
    rows = _RowInfluence(latent, at, shares)
    first = at.gamma.size
    response = np.linalg.inv(complete - missing)
    influence = Influence(rows.scores, response, first, rows.share_scores, gradient / W)
    return GroupFit(problem, "likelihood", channel, at.B, shares, strength, influence, posterior)


def shrink_likelihood(
    problem: LinearProblem, latent: Latent, at: Parameters, channel: ReportChannel
) -> tuple[GroupFit, Parameters, Unpooled]:
    """Pool a likelihood by empirical Bayes, from its maximum under a penalty.

    The evidence about B is the observed information with the propensity and the dispersions profiled out.
    """
    plain = replace(latent, penalty=None)
    first, size = at.gamma.size, at.B.size
    own = slice(first, first + size)
    other = np.r_[:first, first + size : len(plain.pack(at))]
    now = at
    gradient = information = np.empty(0)

    def evidence_at(B: Array) -> Evidence:
        nonlocal now, gradient, information
        moved = replace(now, B=B)
        if len(information):  # where the other parameters go when B moves
            step = gradient[other] - information[other][:, own] @ (B - now.B).T.ravel()
            flat = plain.pack(moved)
            flat[other] += np.linalg.solve(information[np.ix_(other, other)], step)
            moved = plain.unpack(flat)
        now = moved
        _, gradient, complete, missing = plain.expand(now)
        information = complete - missing
        lean = np.linalg.solve(information[np.ix_(other, other)], information[other][:, own])
        precision = information[own, own] - information[own][:, other] @ lean
        precision = 0.5 * (precision + precision.T)
        cholesky(precision + 1e-9 * np.diag(np.abs(np.diag(precision))))  # raises where the likelihood is not concave
        shift = gradient[own] - lean.T @ gradient[other]
        return Evidence(precision, shift + precision @ B.T.ravel())

    posterior = relinearise(problem, at.B, evidence_at)
    evidence = posterior.evidence
    now = replace(now, B=posterior.B)
    pooled = replace(latent, penalty=GaussianPenalty(posterior.prior_precision))
    fit = likelihood_fit(problem, pooled, now, channel, None, posterior)
    tiny = 1e-9 * np.diag(np.diag(evidence.precision))
    inverse = np.linalg.inv(evidence.precision + tiny)
    lean = np.linalg.solve(information[np.ix_(other, other)], information[other][:, own])
    response = np.zeros((size, len(information)))
    response[:, own], response[:, other] = inverse, -inverse @ lean.T
    unpooled = (inverse @ evidence.shift).reshape(at.B.shape[::-1]).T
    return fit, now, Unpooled(unpooled, response)


@dataclass(frozen=True)
class _RowInfluence:
    latent: Latent
    at: Parameters
    shares: Array

    def scores(self, block: Block) -> Array:
        reported = block.report != len(self.latent.T) - 1
        return np.asarray(self.latent.scores(block, self.at) * reported[:, None])

    def share_scores(self, block: Block) -> Array:
        return self.latent.responsibilities(block, self.at) - self.shares


def naive_start(problem: LinearProblem, matrix: Array, groups: tuple[object, ...]) -> Array | None:
    """Fit each report's own rows, pooled a little: a start that needs no inverse. None if it fails."""
    K = matrix.shape[1]
    closest = softmax(8 * matrix, axis=1)  # reports that a group rarely gives say little about it
    table = np.hstack([closest.T, np.zeros((K, 1))])
    try:
        return problem.solve(table, 0.01 * problem.moments.total_weight, groups).B
    except (RiskUnboundedError, ConvergenceError):
        return None


def _start_dispersion(problem: LinearProblem, rows: Rows | Stream, law: Law) -> float:
    some = rows.spaced(SAMPLE_ROWS)
    eta = problem.moments.coordinates.matrix(some.X) @ problem.unaware
    w = np.ones(len(eta)) if some.weight is None else some.weight
    return law.start(some.y, w, problem.family.link.mean_of(eta[:, 0]))
