"""Partial pooling by empirical Bayes: how far the groups differ is learned from the evidence, not from a grid.

The coefficients of group k are a common part and a deviation, b_k = b_0 + sum_c C[k, c] theta_c, with orthonormal
contrasts C. The common part b_0 has a flat prior. The deviations of one feature (all levels of a text column, all
contrasts) share a standard deviation tau_j,

    theta_j ~ N(0, tau_j^2),   tau_0 ~ half-Cauchy(0.3 c) for the level,   tau_j ~ half-Cauchy(0.03 d) for feature j,

in units of the linear predictor, per standard deviation of a number or per step of an indicator. The factors c and d
are unknown, c from 1 and d from 10 down to 0.01: where no feature's effect differs between groups, all are drawn to
zero together. With an identity link the unit is the standard deviation of y around the unaware price, of which groups
differ by a small part, and c begins at 0.1.

Evidence comes in information form, log L(b) = eta'b - b'Lambda b / 2 + constant, so that no minimum of the corrected
risk is needed. The posterior mean is averaged over tau, c and d by a Gibbs sampler on these few numbers; the single
best value of tau would forget how little is known about it.

The posterior's own spread is that of groups that differ as the prior says. Where the evidence is weak the deviation is
drawn to zero, whatever it is, and in a given portfolio always to the same side. Intervals therefore add the square of
what the learned tau moved, against the widest prior, tau = 10 times usual. Averaged over groups, as in h*, little is
added, because shrinking hardly moves the average. Statements about single groups take the widest prior itself:

    covariance for h* = V + (b - b_wide)(b - b_wide)'
    variance of a group's coefficients = V_wide + (b - b_wide)(b - b_wide)'

with the empirical scatter in place of the modelled one in V_wide. An interval of 1.96 standard errors around b then
reaches at least 1.69 standard errors of b_wide beyond b_wide on the side of b, and more than 1.96 on the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import null_space
from scipy.linalg.lapack import dpotrf, dpotri, dpotrs, dtrtrs

from fairpremium.arrays import Array
from fairpremium.blocks import one_blas_thread
from fairpremium.errors import ConvergenceError
from fairpremium.models import LinearProblem, Moments, Span

_LEVEL = 0.3  # usual deviation of a group's level, on the scale of the link
_SLOPE = 0.03  # usual deviation of a feature's effect
_WIDE = 10.0  # times the usual deviation, for statements about single groups
_FACTORS = np.array([1.0, 0.3, 0.1, 0.03, 0.01])  # by how much the groups' levels differ less than usual
_SLOPE_FACTORS = np.array([10.0, 3.0, *_FACTORS])  # and slopes less or more
_BURN_IN = 100
_DRAWS = 600
_ROUNDS = 12  # linearisations at most
_NEAR = 1e-3  # change of the linear predictor, in its unit, that counts as none
_ROUGH = 150  # draws while the linearisation still moves
_MOVES = 0.1  # change of the linear predictor, in its unit, from which it does
_EVERY = 4  # draws after which factors and standard deviations are moved together
_SEED = 0  # the draws are part of the estimator: the same evidence gives the same prices


@dataclass(frozen=True)
class Evidence:
    """What the rows say about the coefficients of all groups, group after group: a Gaussian in information form."""

    precision: Array  # Lambda, (K q, K q)
    shift: Array  # eta, (K q,)

    def divided(self, by: float) -> Evidence:
        """Return the evidence of fewer rows that say the same."""
        return Evidence(self.precision / by, self.shift / by)

    def within(self, span: Span) -> Evidence:
        """Return what it says about coefficients in a subspace."""
        return Evidence(*(span.extend(span.restrict(each)) for each in (self.precision, self.shift)))


@dataclass(frozen=True)
class Posterior:
    """Coefficients of all groups after shrinkage."""

    B: Array  # (q, K)
    covariance: Array  # (K q, K q), group after group; what tau adds is part of it
    wide_mean: Array  # (K q,), with the widest prior
    wide_covariance: Array  # (K q, K q)
    deviations: dict[str, Any]  # posterior means of tau: {"main": ..., "slopes": {column: ...}}
    evidence: Evidence
    span: Span = field(default_factory=Span)  # in which the coefficients are
    apart: Array | float = 0.0  # (K q,), how far a second estimate is, where the evidence alone is too sure
    draws: Array | None = None  # (draws, blocks), of 1 / tau^2, over which it is an average

    @property
    def left(self) -> Array:
        """Variance that is not the evidence's own scatter: how far the prior may have moved the coefficients."""
        C, moved = self.covariance, self.B.T.ravel() - self.wide_mean
        return np.asarray(C - C @ self.evidence.precision @ C + np.outer(moved, moved))

    @property
    def widening(self) -> Array:
        """By how much more than B the mean with the widest prior moves between samples: V_wide V^-1.

        A sample moves the mean of a posterior by its covariance times the change of the shift.
        """
        return np.asarray(self.wide_covariance @ self.span.inverse(self.covariance))

    @property
    def hidden(self) -> Array:
        """What pooling may have hidden from statements about single groups, beyond the scatter between samples."""
        gap, wide = self.B.T.ravel() - self.wide_mean, self.wide_covariance
        apart = np.broadcast_to(self.apart, gap.shape)
        return np.asarray(wide - wide @ self.evidence.precision @ wide + np.outer(gap, gap) + np.outer(apart, apart))

    def group_covariance(self, scatter: Array) -> Array:
        """Compute the covariance for statements about single groups, which do not lean on what tau was learned.

        `scatter` is the covariance of B between samples.
        """
        return np.asarray(self.widening @ scatter @ self.widening.T + self.hidden)

    @property
    def prior_precision(self) -> Array:
        """The precision of a Gaussian prior that would have shrunk as much: (K q, K q)."""
        extra = self.span.inverse(self.covariance) - self.evidence.precision
        values, vectors = np.linalg.eigh(0.5 * (extra + extra.T))
        return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)

    def distance(self, B: Array) -> tuple[float, int]:
        """Compute the squared distance of coefficients in its own metric, and how many of them are free.

        The learned tau may have moved this mean too far: the square of that is added to the covariance.
        """
        gap, moved = (B - self.B).T.ravel(), self.B.T.ravel() - self.wide_mean
        inverse = self.span.inverse(self.covariance + np.outer(moved, moved))
        return float(gap @ inverse @ gap), self.span.dimension(len(gap))


@dataclass(frozen=True)
class Prior:
    """The hierarchical prior of the groups' coefficients in the coordinates of a linear problem."""

    transform: Array  # (q, q), from prior coordinates (centred, in natural units) to those of the problem
    block: npt.NDArray[np.intp]  # (q,), which tau a coefficient has; 0 is the level
    scale: Array  # (blocks,), scales of the half-Cauchy distributions
    unit: float  # of the linear predictor: one, or for an identity link the standard deviation of y - u(x)
    names: tuple[str, ...]  # of the columns, in the order of the blocks after the first
    factors: Array = field(default_factory=lambda: _FACTORS)  # of the level
    common_slopes: bool = False  # whether groups differ by their level only

    @classmethod
    def of(cls, problem: LinearProblem) -> Prior:
        """Build the prior of a problem."""
        moments, metric = problem.moments, problem.metric
        center = metric[0] / metric[0, 0]
        variance = np.diag(metric) / metric[0, 0] - center**2
        spread = np.sqrt(np.maximum(variance, 0.0))
        coordinates = moments.coordinates
        indicator = _indicators(problem)
        spread[1:] = np.where(indicator, 1 / coordinates.spread[coordinates.used], spread[1:])
        spread = np.where(spread > 0, spread, 1.0)
        transform = np.diag(1 / spread)
        transform[0] = -center / spread
        transform[0, 0] = 1.0
        names = list(dict.fromkeys(problem.origins[j] for j in coordinates.used))
        block = np.array([0, *(1 + names.index(problem.origins[j]) for j in coordinates.used)], dtype=np.intp)
        identity = problem.family.link.name == "identity"
        unit = _deviation(moments) if identity else 1.0
        scale = unit * np.concatenate([[_LEVEL], np.full(len(names), _SLOPE)])
        factors = _FACTORS[2:] if identity else _FACTORS
        return cls(transform, block, scale, unit, tuple(names), factors, problem.model.slopes == "common")

    def size(self, problem: LinearProblem, change: Array) -> float:
        """Return by how much coefficients (q, K) move the linear predictors, root mean square, in their unit."""
        metric = problem.metric
        return float(np.sqrt(np.einsum("ik,ij,jk->k", change, metric, change).max() / metric[0, 0])) / self.unit

    def shrink(self, evidence: Evidence, groups: int, draws: int | Array = _DRAWS) -> Posterior:
        """Combine evidence and prior: the posterior mean over coefficients, standard deviations and factors.

        `draws` is a number of draws, or those of an earlier posterior.
        """
        contrasts = self._contrasts(evidence, groups)
        with one_blas_thread():  # many small matrices
            if isinstance(draws, int):
                draws = _draw_precisions(contrasts, self.factors, draws)
            theta, covariance = _average(contrasts, draws)
        tau = (draws**-0.5).mean(axis=0)
        mean, total = contrasts.for_groups(theta, covariance)
        wide_mean, wide_covariance = contrasts.widest()
        names = self.names[: len(tau) - 1]  # common slopes have none
        deviations = {"main": float(tau[0]), "slopes": dict(zip(names, tau[1:].tolist(), strict=True))}
        B = mean.reshape(groups, -1).T
        evidence, span = contrasts.evidence, contrasts.span
        return Posterior(B, total, wide_mean, wide_covariance, deviations, evidence, span, draws=draws)

    def wide_covariance(self, evidence: Evidence, groups: int) -> Array:
        """Compute the covariance of the coefficients under the widest prior, which needs no average over tau."""
        return self._contrasts(evidence, groups).widest()[1]

    def _contrasts(self, evidence: Evidence, K: int) -> _Contrasts:
        q = len(self.block)
        span = Span.of(q, K, common_slopes=self.common_slopes)
        evidence = evidence.within(span)
        # contrasts are dealt out by how much is known about a group, so that the order of the groups does not matter
        known = np.argsort(np.argsort(np.einsum("kiki->k", evidence.precision.reshape(K, q, K, q))))
        contrasts = np.column_stack([np.ones(K), null_space(np.ones((1, K)))])[known]
        E = np.kron(contrasts, self.transform)  # from (b_0, theta) in prior coordinates to all coefficients
        block, scale = np.tile(self.block, K - 1), self.scale
        if self.common_slopes:
            E = E[:, np.concatenate([np.ones(q, dtype=bool), block == 0])]
            block, scale = block[block == 0], scale[:1]
        P, e = E.T @ evidence.precision @ E, E.T @ evidence.shift
        try:
            common = np.asarray(np.linalg.inv(P[:q, :q]))  # b_0 is flat: what is left for theta is a Schur complement
        except np.linalg.LinAlgError as error:
            raise ConvergenceError("The rows say nothing about some coefficient; a ridge helps.") from error
        M = common @ P[:q, q:]
        L = P[q:, q:] - P[q:, :q] @ M
        values, vectors = np.linalg.eigh(0.5 * (L + L.T))
        L = (vectors * np.maximum(values, 1e-12 * values[-1])) @ vectors.T  # rounding may leave it a little below zero
        h = e[q:] - M.T @ e[:q]
        return _Contrasts(evidence, span, E, common, M, common @ e[:q], L, h, block, scale)


@dataclass(frozen=True)
class _Contrasts:
    """The evidence about theta, the differences between groups, with the common coefficients b_0 integrated out."""

    evidence: Evidence  # about the coefficients of all groups,
    span: Span  # in this subspace
    E: Array  # from (b_0, theta) in prior coordinates to all coefficients
    common: Array  # covariance of b_0 given theta
    M: Array  # b_0 moves by -M theta
    start: Array  # b_0 at theta = 0
    L: Array  # precision of theta
    h: Array  # precision times mean
    block: npt.NDArray[np.intp]  # of each element of theta
    scale: Array  # of the blocks

    def widest(self) -> tuple[Array, Array]:
        """Compute mean and covariance of all coefficients under the widest prior."""
        wide = np.asarray(np.linalg.inv(self.L + np.diag((_WIDE * self.scale[self.block]) ** -2.0)))
        return self.for_groups(wide @ self.h, wide)

    def for_groups(self, theta: Array, covariance: Array) -> tuple[Array, Array]:
        """Turn mean and covariance of theta into those of all coefficients."""
        M = self.M
        joint = np.block([[self.common + M @ covariance @ M.T, -M @ covariance], [-covariance @ M.T, covariance]])
        return self.E @ np.concatenate([self.start - M @ theta, theta]), self.E @ joint @ self.E.T


@dataclass(frozen=True)
class GaussianPenalty:
    """Half of b'(P + R) b, in place of `Penalty`."""

    prior: Array  # P, (K q, K q)
    ridge: Array | float = 0.0  # R, which belongs to the evidence

    @property
    def precision(self) -> Array:
        """Both."""
        return np.asarray(self.prior + self.ridge)

    def value(self, B: Array) -> float:
        """Compute the penalty at B of shape (q, K)."""
        b = B.T.ravel()
        return 0.5 * float(b @ self.precision @ b)

    def gradient(self, B: Array) -> Array:
        """Compute its gradient, shape (q, K)."""
        return np.asarray((self.precision @ B.T.ravel()).reshape(B.shape[::-1]).T)

    def hessian(self, groups: int) -> Array:
        """Return its Hessian, shape (K q, K q)."""
        return self.precision


def price_variance(problem: LinearProblem, covariance: Array) -> float:
    """Compute the mean variance of the group prices over the portfolio, on the scale of the link."""
    metric = np.kron(np.eye(len(covariance) // len(problem.metric)), problem.metric)
    return float(np.sum(metric * covariance))


def relinearise(
    problem: LinearProblem, start: Array, evidence_at: Callable[[Array], Evidence], *, rough: bool = False
) -> Posterior:
    """Find the coefficients that are the posterior mean of the evidence linearised at themselves.

    `evidence_at` is called with coefficients of shape (q, K), once for each linearisation. Once these hardly move, tau
    stays: draws of it jump with the smallest change of the evidence, and would keep the coefficients moving. With
    `rough` a few draws have to do, for the start of another search.
    """
    prior = Prior.of(problem)
    B, damping, last = start, 1.0, np.inf
    draws: int | Array = _ROUGH
    for rounds in range(_ROUNDS):
        posterior = prior.shrink(evidence_at(B), B.shape[1], draws)
        step = posterior.B - B
        length = prior.size(problem, step)
        damping = damping / 2 if length > 0.7 * last else damping
        B = B + step * damping / max(1.0, length)
        last = length
        if not isinstance(draws, int):
            if length < _NEAR:
                break
        elif draws == _DRAWS and posterior.draws is not None:
            draws = posterior.draws
        elif length < _MOVES or rounds >= _ROUNDS - 6:
            if rough:
                break
            draws, last = _DRAWS, np.inf  # more draws move the mean, which is no sign of steps too long
    return replace(posterior, B=B)


def _deviation(moments: Moments) -> float:
    """Compute the standard deviation of y around the unaware price; of y itself if that fits perfectly."""
    q, second = moments.q, moments.by_report.sum(axis=0)
    whole = second[q, q] - second[0, q] ** 2 / moments.total_weight
    left = second[q, q] - second[q, :q] @ np.linalg.lstsq(second[:q, :q], second[:q, q], rcond=None)[0]
    variance = max(float(left if left > 1e-6 * whole else whole) / moments.total_weight, 0.0)
    size = abs(float(second[0, q])) / moments.total_weight
    return np.sqrt(variance) if variance > 1e-12 * size**2 else max(size, 1.0)  # all outcomes may be equal


def _indicators(problem: LinearProblem) -> npt.NDArray[np.bool_]:
    """Tell which features in use hold nothing but zeros and ones: exactly those with sum w x (x - 1) = 0 and w > 0."""
    moments = problem.moments
    c, gram = moments.coordinates, moments.gram
    center, spread = c.center[c.used], c.spread[c.used]
    total, first, second = gram[0, 0], gram[0, 1:], np.diag(gram)[1:]
    x = center * total + spread * first
    square = center**2 * total + 2 * center * spread * first + spread**2 * second
    return np.asarray((np.abs(square - x) <= 1e-9 * np.abs(square)) & (x >= 0))


def _average(contrasts: _Contrasts, draws: Array) -> tuple[Array, Array]:
    """Average theta ~ N(L^-1 h, L^-1) x N(0, tau_block^2) over draws of 1 / tau^2: mean and covariance.

    Each of them gives an exact Gaussian, whose mean and covariance are averaged instead of draws of theta.
    """
    L, h, block = contrasts.L, contrasts.h, contrasts.block
    means, lower = np.empty((len(draws), len(h))), np.zeros_like(L, order="F")
    for i, own in enumerate(draws[:, block]):
        root = _root(L, own)
        means[i] = dpotrs(root, h, lower=1)[0]
        lower += dpotri(root, lower=1, overwrite_c=1)[0]
    lower /= len(draws)  # the lower triangle of the mean of the covariances, and nothing above it
    mean = means.mean(axis=0)
    gaps = means - mean
    return mean, lower + np.tril(lower, -1).T + gaps.T @ gaps / len(draws)


def _root(L: Array, own: Array) -> Array:
    """Return the Cholesky root of L + diag(own)."""
    A = L.copy(order="F")
    A.reshape(-1, order="F")[:: len(A) + 1] += own
    root, failed = dpotrf(A, lower=1, overwrite_a=1)
    if failed:
        raise ConvergenceError("The evidence about the groups is not finite.")
    return np.asarray(root)


def _draw_precisions(contrasts: _Contrasts, level_factors: Array, draws: int) -> Array:
    """Draw 1 / tau^2 of all blocks given the evidence about theta, by a Gibbs sampler: shape (draws, blocks).

    A half-Cauchy tau is an inverse-gamma mixture, tau^2 ~ InvGamma(1/2, 1/a) with a ~ InvGamma(1/2, 1/scale^2).
    """
    L, h, block, scale = contrasts.L, contrasts.h, contrasts.block, contrasts.scale
    rng = np.random.default_rng(_SEED)
    size = np.bincount(block, minlength=len(scale))
    steps = _BURN_IN + draws
    normal = rng.standard_normal((steps, len(h)))
    gamma = rng.standard_gamma((size + 1) / 2, size=(steps, len(scale)))
    exponential = rng.standard_exponential((steps, len(scale)))
    uniform = rng.random((steps, 2))
    factors = (slice(0, 1), _Factors(level_factors, 1)), (slice(1, None), _Factors(_SLOPE_FACTORS, len(scale) - 1))
    unit, square_now = 1 / scale**2, scale**2
    precision, rate = unit.copy(), square_now.copy()
    found = np.empty((steps, len(scale)))
    for i in range(steps):
        found[i] = precision
        root = _root(L, precision[block])
        theta = dpotrs(root, h, lower=1)[0] + dtrtrs(root, normal[i], lower=1, trans=1)[0]
        precision = gamma[i] / (rate + 0.5 * np.bincount(block, theta**2, minlength=len(scale)))
        for (which, factor), u in zip(factors, uniform[i], strict=True):
            if i % _EVERY:
                now = factor.draw(unit[which] / precision[which], u)
            else:
                now = factor.draw_with_taus(L, h, precision, block, which, u)
            square_now[which] = scale[which] ** 2 * now**2
        rate = exponential[i] / (1 / square_now + precision)
    return found[_BURN_IN:]


class _Factors:
    """Draws of a factor, which is the scale of the half-Cauchy distributions of tau / scale.

    A small factor makes all tau small, and small tau make the factor small: draws of one given the other hardly move.
    Now and then the factor and all its tau are therefore moved together, theta integrated out.
    """

    def __init__(self, values: Array, count: int):
        self.values, self.inverse, self.now = values, values**-2.0, 0
        self.constant = -count * np.log(values)

    def draw(self, squares: Array, uniform: float) -> float:
        """Draw by inversion; `squares` are (tau / scale)^2."""
        log_density = self.constant - np.log1p(squares[:, None] * self.inverse).sum(axis=0)
        return self._pick(log_density, uniform)

    def draw_with_taus(
        self, L: Array, h: Array, precision: Array, block: npt.NDArray[np.intp], which: slice, uniform: float
    ) -> float:
        """Draw the factor given tau / factor, and move the precisions of its blocks with it."""
        trials = np.repeat(precision[None], len(self.values), axis=0)
        trials[:, which] *= (self.values[self.now] / self.values[:, None]) ** 2
        own = trials[:, block]
        half, diagonal = np.empty_like(own), np.empty_like(own)
        for i, precisions in enumerate(own):
            root = _root(L, precisions)
            half[i], diagonal[i] = dtrtrs(root, h, lower=1)[0], root.diagonal()
        value = self._pick((0.5 * half**2 - np.log(diagonal) + 0.5 * np.log(own)).sum(axis=1), uniform)
        precision[which] = trials[self.now, which]
        return value

    def _pick(self, log_density: Array, uniform: float) -> float:
        reached = np.cumsum(np.exp(log_density - log_density.max()))
        self.now = int(np.searchsorted(reached, uniform * reached[-1]))
        return float(self.values[self.now])
