"""Correction by likelihood: the outcome itself tells the groups apart, if its law is right.

    max over (b_k, gamma, lambda) of  sum_i log sum_k T[s_i, k] q_k(x_i; gamma) p(y_i; x_i'b_k, lambda)

rests on the law of Y given (x, D) and on the model of P(D given x). It is the most efficient correction when both
hold and can be worse than no correction when they do not; the checks decide.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import softmax

from fairpremium.arrays import Array
from fairpremium.blocks import Block, Rows, Stream
from fairpremium.corrections._empirical_bayes import Evidence, GaussianPenalty, Posterior, relinearise
from fairpremium.corrections._fit import GroupFit, Influence, Unpooled, sum_of_squares
from fairpremium.corrections._latent import SAMPLE_ROWS, Latent, Parameters
from fairpremium.corrections._propensity import (
    GroupPropensity,
    reported_rows,
    volume_features,
    with_missing_row,
    x_features,
)
from fairpremium.corrections._report_channel import ReportChannel
from fairpremium.errors import ConvergenceError, RiskUnboundedError
from fairpremium.families import Family, Gamma, Law, ResidualLaw
from fairpremium.models import LinearProblem

_LAW_ROWS = 30_000  # rows whose residuals give the density
_LAW_ROUNDS = 20
_LAW_GAIN = 0.5  # log-likelihood that a round must gain
LAW_PARAMETERS = 20  # for which a learned density counts in a comparison of likelihoods


def mixture_likelihood(
    problem: LinearProblem,
    matrix: Array,
    law: Law,
    strength: float,
    *,
    common_dispersion: bool = True,
    propensity: GroupPropensity | None = None,
    everyone: bool = False,
) -> Latent:
    """Set up the likelihood of the rows that reported, or of `everyone`; `strength` is the pooling strength in rows.

    `matrix` is T. P(D given x) has the features of `propensity`; without one it is a logit linear in x.
    """
    rows = problem.rows if everyone else reported_rows(problem, len(matrix))
    if propensity is not None and propensity.latent is not None:
        features, n_features = propensity.latent.features, propensity.latent.n_features
    else:
        features, n_features = volume_features(problem)
    # a strength counts rows of the risk; in the likelihood a row weighs one over the dispersion
    dispersion = _start_dispersion(problem, rows, law)
    scale = np.exp(-dispersion) if law.name == problem.family.name else 1.0
    K = matrix.shape[1]
    return Latent(
        rows,
        with_missing_row(matrix),
        features,
        n_features,
        law=law,
        predictors=x_features(problem.moments)[0],
        penalty=problem.penalty(strength, K).scaled(scale),
        common_dispersion=common_dispersion,
        center_dispersion=None if common_dispersion else dispersion,
        span=problem.span(K),
        everyone=everyone,
    )


def start_mixture(latent: Latent, problem: LinearProblem, gamma: Array, B: Array) -> Parameters:
    """Return parameters to start from: a propensity, coefficients, and the dispersion of the unaware price."""
    assert latent.law is not None
    return Parameters(gamma, B, np.full(latent.n_groups, _start_dispersion(problem, latent.rows, latent.law)))


def fit_mixture(latent: Latent, starts: list[Parameters]) -> Parameters:
    """Maximise from several starts and return the best; a problem of many rows is solved on some of them first.

    A ConvergenceError says that no start led to a maximum.
    """
    work, n = latent, len(latent.rows)
    if n > SAMPLE_ROWS:
        work = latent.on(latent.rows.spaced(min(SAMPLE_ROWS, n // 4)))
    best: tuple[float, Parameters] | None = None
    for start in starts:
        try:
            found = work.maximise(start, tol=1e-4)
        except ConvergenceError:
            continue
        value = work.value(found)
        if best is None or value > best[0]:
            best = value, found
    if best is None:
        raise ConvergenceError("The likelihood found no maximum from any start.")
    return latent.maximise(best[1])


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
    W = problem.moments.total_weight
    totals, gradient = problem.rows.reduce(partial(latent.share_sums, at=at), block_rows=2048)
    shares = totals / W
    rows = _RowInfluence(latent, at, shares)
    first = at.gamma.size
    response = latent.covariance(at)
    influence = Influence(rows.scores, response, first, rows.share_scores, gradient / W)
    return GroupFit(problem, "likelihood", channel, at.B, shares, strength, influence, posterior)


class _Profiled(NamedTuple):
    """The observed information, and how the parameters other than B follow B."""

    evidence: Evidence  # about B, the others profiled out
    follow: Array  # (others, K q), by which they move when B moves
    step: Array  # (others,), to their maximum at this B


def profile(latent: Latent, at: Parameters) -> _Profiled:
    """Expand a likelihood with its ridge, without its prior, around parameters, as evidence about B."""
    penalty = latent.penalty
    ridge = replace(penalty, prior=np.zeros_like(penalty.prior)) if isinstance(penalty, GaussianPenalty) else None
    _, gradient, information = replace(latent, penalty=ridge).expand(at)
    own, other = _own_and_other(at, len(gradient))
    nuisance = information[np.ix_(other, other)]
    follow = -np.linalg.solve(nuisance, information[np.ix_(other, own)])
    precision = information[np.ix_(own, own)] + information[np.ix_(own, other)] @ follow
    if not np.isfinite(precision).all():
        raise ConvergenceError("The likelihood is not finite near the distribution-free prices.")
    span = latent.span
    values, vectors = np.linalg.eigh(span.extend(span.restrict(0.5 * (precision + precision.T))))
    precision = (vectors * np.maximum(values, 0.0)) @ vectors.T  # where it is not concave it says nothing
    shift = gradient[own] + follow.T @ gradient[other]
    evidence = Evidence(precision, shift + precision @ at.B.T.ravel())
    return _Profiled(evidence, np.asarray(follow), np.asarray(np.linalg.solve(nuisance, gradient[other])))


def expected_evidence(latent: Latent, at: Parameters) -> Evidence:
    """Estimate what a likelihood will say about B at its maximum, from parameters that need not be near it.

    The squares of the rows' scores stand for the information: they have a sign wherever they are computed. Of many
    rows a sample speaks for all.
    """
    rows = latent.rows
    if len(rows) > 4 * SAMPLE_ROWS:
        rows = rows.spaced(SAMPLE_ROWS)
    information = len(latent.rows) / len(rows) * sum_of_squares(rows.without_persons(), partial(latent.scores, at=at))
    if not np.isfinite(information).all():
        raise ConvergenceError("The likelihood is not finite near the distribution-free prices.")
    own, other = _own_and_other(at, len(information))
    across = information[np.ix_(other, own)]
    nuisance = np.linalg.lstsq(information[np.ix_(other, other)], across, rcond=1e-10)[0]
    precision = information[np.ix_(own, own)] - across.T @ nuisance
    return Evidence(precision, precision @ at.B.T.ravel())


def _own_and_other(at: Parameters, size: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """Positions of B among all parameters, and of the others."""
    own = np.arange(at.gamma.size, at.gamma.size + at.B.size)
    return own, np.setdiff1d(np.arange(size), own)


def shrink_likelihood(
    problem: LinearProblem, latent: Latent, at: Parameters, base: GroupFit
) -> tuple[GroupFit, Parameters, Unpooled]:
    """Pool a likelihood by empirical Bayes, from its maximum under a penalty; the base gives the channel.

    The evidence about B is the observed information with the propensity and the dispersions profiled out.
    """
    size = len(latent.pack(at))
    own, other = _own_and_other(at, size)
    found = profile(latent, at)

    def evidence_at(B: Array) -> Evidence:
        nonlocal at, found
        flat = latent.pack(replace(at, B=B))
        flat[other] += found.step + found.follow @ (B - at.B).T.ravel()
        at = latent.unpack(flat)
        found = profile(latent, at)
        return found.evidence.divided(base.repeats)

    posterior = relinearise(problem, at.B, evidence_at)
    at = replace(at, B=posterior.B)
    ridge = latent.penalty.ridge if isinstance(latent.penalty, GaussianPenalty) else 0.0
    pooled = replace(latent, penalty=GaussianPenalty(base.repeats * posterior.prior_precision, ridge))
    fit = likelihood_fit(problem, pooled, at, base.channel, None, posterior)
    precision = base.repeats * posterior.evidence.precision
    inverse = latent.span.inverse(precision + 1e-9 * np.diag(np.diag(precision)))
    response = np.empty((len(own), size))
    response[:, own], response[:, other] = inverse, inverse @ found.follow.T
    free = (base.repeats * inverse @ posterior.evidence.shift).reshape(at.B.shape[::-1]).T
    return fit, at, Unpooled(free, response)


@dataclass(frozen=True)
class _RowInfluence:
    latent: Latent
    at: Parameters
    shares: Array

    def scores(self, block: Block) -> Array:
        return np.asarray(self.latent.scores(block, self.at) * self.latent.takes_part(block)[:, None])

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


# --- a law that is learned --------------------------------------------------------------------------------------------
#
# Prices and the density of their residuals in turn: responsibilities T[s, k] q_k(x) g(y - f_k(x)) weight the residuals
# from which the density g is estimated, and the likelihood with that density gives the prices. The first density comes
# from the distribution-free prices, with the signed weights T^-1[k, s] in place of responsibilities.


def can_learn_law(family: Family) -> bool:
    """Tell whether residuals have a density: additive noise with an identity link, multiplicative for gamma."""
    return family.link.name == "identity" or isinstance(family, Gamma)


def first_law(latent: Latent, base: GroupFit, at: Parameters) -> tuple[ResidualLaw, Parameters]:
    """Learn the density around distribution-free prices, and start the dispersion there."""
    block = _some(latent)
    signed = base.channel.table.T[block.report]
    residual, w = _residuals(latent, block, at)
    volume = signed.sum()
    variance = float((signed * w * residual**2).sum() / volume)
    variance = max(variance, 0.05 * float((w * residual**2).mean()))  # a signed mean can come out negative
    at = replace(at, log_dispersion=np.full(latent.n_groups, np.log(variance)))
    return _learn(latent, block, at, signed), at


def learn_law(latent: Latent, at: Parameters) -> tuple[Latent, Parameters]:
    """Alternate between density and prices from a likelihood with a first density, as long as both gain."""
    block = _some(latent)
    sample = latent if len(latent.rows) <= 2 * _LAW_ROWS else latent.on(latent.rows.spaced(_LAW_ROWS))
    value = -np.inf
    for _ in range(_LAW_ROUNDS):
        at = sample.maximise(at, tol=1e-4)
        now = sample.value(at)
        if now < value + _LAW_GAIN:
            break
        value = now
        sample = replace(sample, law=_learn(sample, block, at, sample.responsibilities(block, at)))
    return replace(latent, law=sample.law), at


def _some(latent: Latent) -> Block:
    """Return some of the rows, one of each person: the choice of a bandwidth takes residuals for independent."""
    rows = latent.rows.spaced(_LAW_ROWS)
    if rows.cluster is not None:
        rows = rows.take(np.sort(np.unique(rows.cluster, return_index=True)[1]))
    return rows.block(0, len(rows))


def _residuals(latent: Latent, block: Block, at: Parameters) -> tuple[Array, Array]:
    """Compute y - f_k(x), or log y - f_k(x), and the volumes: (rows, K) and (rows, 1)."""
    assert latent.predictors is not None
    w = np.ones((len(block.y), 1)) if block.weight is None else block.weight[:, None]
    eta = np.dot(latent.predictors(block), at.B)
    return (np.log(block.y) if _multiplicative(latent) else block.y)[:, None] - eta, w


def _multiplicative(latent: Latent) -> bool:
    law = latent.law
    return law.multiplicative if isinstance(law, ResidualLaw) else law is not None and law.name != "normal"


def _learn(latent: Latent, block: Block, at: Parameters, weight: Array) -> ResidualLaw:
    residual, w = _residuals(latent, block, at)
    e = residual * np.sqrt(w) / np.exp(0.5 * at.log_dispersion)
    return ResidualLaw.learn(e.ravel(), weight.ravel(), _multiplicative(latent))
