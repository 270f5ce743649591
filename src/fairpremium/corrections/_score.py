"""Correction by the optimally weighted score: the moments of the inverse correction, with their best weights.

The inverse correction rests on  M_k = T^-1[k, s] (y - f_k(x)),  whose mean given x is zero for every k if every f_k
is right. Solving

    sum_i w_i z_i q_k(x_i) f_k'(x_i) [Omega_i^-1 M_i]_k = 0  for all k, Omega[d, e](x) = sum_j q_j(x) C[j, d, e] (V_j +
    (f_j - f_d)(f_j - f_e)), C[j, d, e] = sum_s T[s, j] T^-1[d, s] T^-1[e, s]

weights them by the inverse of their covariance Omega. With several sources T, and with it C and Omega, is that of the
row's source: reports with little noise get the weight that they deserve. A wrong propensity q or variance V costs
efficiency, not consistency; a wrong f_k does harm to the other groups too.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from fairpremium.arrays import Array
from fairpremium.blocks import Block, Rows, Stream
from fairpremium.corrections._empirical_bayes import Evidence, relinearise
from fairpremium.corrections._fit import GroupFit, Influence
from fairpremium.corrections._latent import Latent, row_products, softmax
from fairpremium.corrections._propensity import (
    fit_propensity,
    report_shares,
    reported_rows,
    with_missing_row,
    x_features,
)
from fairpremium.corrections._report_channel import ReportChannel
from fairpremium.errors import ConvergenceError
from fairpremium.models import LinearProblem, Penalty

_ROUNDS = 2  # how often the weights are computed anew from the solution
_PASSES = 30
_SAMPLE_ROWS = 200_000  # rows of a sample that gives the slope of the equations if there are more than twice as many,
_ROUGH_FROM = 800_000  # and, from so many rows on, the first weights,
_ROUGH = 1e-4  # for which such a change of the predictors is small enough
_NEAR = 5e-3  # a slope computed within this distance of the solution, root mean square, counts as the solution's
_TOL, _LITTLE = 1e-7, 0.3  # a step that changes predictors by less, or with a sample leaves a third, is the last;
_NOISE_SHARE = 3e-4  # of n^-1/2, about the standard error of predictors: the same for many rows


def fit_score(problem: LinearProblem, base: GroupFit, pooling: float | None) -> GroupFit:
    """Fit all groups with the score correction, from a consistent fit that gives the channel and the first weights.

    A ConvergenceError says that the equations have no solution near the base.
    """
    matrix, table = base.channel.matrix, base.channel.table
    features, q = x_features(problem.moments)
    rows = reported_rows(problem, len(matrix))
    shares, share_scores = report_shares(problem.moments, table)
    gamma = fit_propensity(Latent(rows, with_missing_row(matrix), features, q), shares, rough=True).gamma
    phi = dispersion(problem, table, base.B)
    penalty = problem.penalty(pooling or 0.0, len(table)).scaled(1 / phi)
    n = len(problem.rows)
    some = problem.rows.spaced(_SAMPLE_ROWS) if n > 2 * _SAMPLE_ROWS else None
    tol = _TOL if some is None else _NOISE_SHARE / math.sqrt(n)
    B, posterior, bread = base.B, None, None
    respond: Array | Callable[[], Array]
    for round in range(_ROUNDS):
        used = instruments = _Instruments(problem, base.channel, gamma, B, phi)
        sample = None if some is None else replace(instruments, rows=some)
        is_rough = round < _ROUNDS - 1 and n > _ROUGH_FROM
        if sample is not None and is_rough:
            used = sample
        if pooling is None:
            evidence = partial(used.evidence, penalty=penalty, repeats=base.repeats, worth=sample or used)
            posterior = relinearise(problem, B, evidence)
            B, respond = posterior.B, posterior.covariance / base.repeats
            continue
        if sample is not None and bread is None:
            bread = sample.expand(B, modelled=True)[1] + penalty.hessian(len(table))
        B, found, is_exact = _solve(problem, used, penalty, base.B, bread, _ROUGH if is_rough else tol)
        bread = None if is_exact else found
        respond = problem.span(len(table)).inverse(found) if is_exact else partial(_response, instruments, penalty, B)
    influence = Influence(partial(instruments.scores, B=B), respond, 0, share_scores, np.zeros((len(table), B.size)))
    return GroupFit(problem, "score", base.channel, B, shares, pooling, influence, posterior)


@dataclass(frozen=True)
class _Instruments:
    """The weights G(x) = diag(q_k f_k') Omega^-1 at a fixed solution, and the equations they give."""

    problem: LinearProblem
    channel: ReportChannel
    gamma: Array  # of q(x)
    at: Array  # (q, K), the solution
    phi: float
    rows: Rows | Stream | None = None  # a sample of the rows; None: all

    @cached_property
    def _products(self) -> Array:
        """C[j, d, e] = sum_s T[s, j] T^-1[d, s] T^-1[e, s] of each source: shape (sources, j, d, e)."""
        by_source = []
        matrix, table, source = self.channel.matrix, self.channel.table, self.channel.source
        for w in range(source.max() + 1):
            own = np.flatnonzero(source[:-1] == w)
            inverse = table[:, own]
            by_source.append(np.einsum("sj,ds,es->jde", matrix[own], inverse, inverse))
            by_source[-1] /= matrix[own].sum(axis=0).mean()  # keys that share the channel
        return np.array(by_source)

    def terms(self, block: Block, eta: Array, logits: Array) -> _Terms:
        """Compute what the weights consist of, from the linear predictors (K, rows) of solution and propensity."""
        family = self.problem.family
        (f, slope), q = family.link.mean_and_slope(eta), softmax(logits)
        spread = self.phi * family.variance(f)
        if len(self._products) == 1:
            omega = _omega(self._products[0], q, f, spread)
        else:
            source = self.channel.source[block.report]
            omega = np.empty((len(f), len(f), f.shape[1]))
            for w, C in enumerate(self._products):
                here = source == w
                omega[:, :, here] = _omega(C, q[:, here], f[:, here], spread[:, here])
        factor = q * slope
        return _Terms(q, factor if block.weight is None else factor * block.weight, omega)

    def _at(self, block: Block, B: Array) -> tuple[Array, _Terms, Array, Array]:
        """Compute the features, the terms, the moments M and the linear predictors at B: (K, rows)."""
        coordinates, K = self.problem.moments.coordinates, B.shape[1]
        X = coordinates.features(block.X)
        b = coordinates.from_features.T @ np.hstack([self.at, B, self.gamma.T])
        eta = np.dot(b[1:].T, X.T) + b[0, :, None]
        mu = self.problem.family.link.mean_of(eta[K : 2 * K])
        moments = np.take(self.channel.table, block.report, axis=1) * (block.y - mu)
        return X, self.terms(block, eta[:K], eta[2 * K :]), moments, eta[K : 2 * K]

    def scores(self, block: Block, B: Array) -> Array:
        """The equations' terms, row by row: shape (rows, K q)."""
        _, terms, moments, _ = self._at(block, B)
        return row_products(terms.weigh(moments).T, self.problem.moments.coordinates.matrix(block.X))

    def value(self, B: Array) -> Array:
        """The summed equations: shape (K q,)."""
        A = self.problem.moments.coordinates.from_features
        return (A @ self._reduce(partial(self._sum, B=B))[0]).T.ravel()

    def expand(self, B: Array, modelled: bool = False) -> tuple[Array, Array]:
        """The summed equations and minus their derivative, or its mean given x: (K q,) and (K q, K q)."""
        A, size = self.problem.moments.coordinates.from_features, B.size
        value, minus = self._reduce(partial(self._sums, B=B, modelled=modelled))
        return (A @ value).T.ravel(), (A @ minus @ A.T).transpose(0, 2, 1, 3).reshape(size, size)

    def _reduce(self, function: Callable[[Block], tuple[Array, ...]]) -> tuple[Array, ...]:
        rows = self.problem.rows if self.rows is None else self.rows
        part = len(rows) / len(self.problem.rows)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # a step too far is not taken
            return tuple(each / part for each in rows.reduce(function, block_rows=8192))

    def evidence(self, B: Array, penalty: Penalty, repeats: float, worth: _Instruments) -> Evidence:
        """What the equations say about the coefficients: with the best weights, their slope is their covariance.

        The slope is modelled, with q_k(x) in place of T^-1[k, s]: that of few rows need not have a sign. The rows of
        `worth` tell it.
        """
        value, minus = worth.expand(B, modelled=True)
        if worth is not self:
            value = self.value(B)
        bread = minus + penalty.hessian(B.shape[1])
        bread = 0.5 * (bread + bread.T)
        return Evidence(bread, value - penalty.gradient(B).T.ravel() + bread @ B.T.ravel()).divided(repeats)

    def _sum(self, block: Block, B: Array) -> tuple[Array, ...]:
        X, terms, moments, _ = self._at(block, B)
        values = terms.weigh(moments)
        return (np.vstack([values.sum(axis=1), np.dot(X.T, values.T)]),)

    def _sums(self, block: Block, B: Array, modelled: bool) -> tuple[Array, ...]:
        K = B.shape[1]
        X, terms, moments, eta = self._at(block, B)
        G = terms.weights()
        values = (G * moments).sum(axis=1)
        inverse = np.take(self.channel.table, block.report, axis=1)
        if modelled:
            inverse = terms.q * (block.report != self.channel.n_codes - 1)
        slope = inverse * self.problem.family.link.slope(eta)
        X = np.vstack([np.ones(len(X)), X.T]).T
        minus = np.empty((K, K, X.shape[1], X.shape[1]))
        for k in range(K):
            for j in range(K):
                minus[k, j] = np.dot(X.T * (G[k, j] * slope[j]), X)
        return np.dot(X.T, values.T), minus


@dataclass(frozen=True)
class _Terms:
    """What the weights of some rows consist of."""

    q: Array  # (K, rows)
    factor: Array  # w q_k f_k', (K, rows)
    omega: Array  # (K, K, rows); the upper triangle counts

    def weigh(self, moments: Array) -> Array:
        """Multiply moments (K, rows) by the weights."""
        return self.factor * _solve_factored(_factor(self.omega), moments)

    def weights(self) -> Array:
        """Compute the weights G: shape (K, K, rows)."""
        K, n = self.q.shape
        found, factored = np.empty((K, K, n)), _factor(self.omega)
        for k, unit in enumerate(np.eye(K)):
            found[:, k] = self.factor * _solve_factored(factored, np.repeat(unit[:, None], n, axis=1))
        return found


def _omega(C: Array, q: Array, f: Array, spread: Array) -> Array:
    """Compute sum_j q_j C[j, d, e] (V_j + (f_j - f_d)(f_j - f_e)) of each row, d <= e: shape (K, K, rows).

    q, f and V are (K, rows). With the product written out it is three products of matrices: in q_j (V_j + f_j^2),
    q_j f_j and q_j. The lower triangle is left empty.
    """
    K, n = f.shape
    omega = np.empty((K, K, n))
    level, steep = q * f, q * (spread + f**2)
    for d in range(K):
        flat, own = C[:, d, d:].T, omega[d, d:]  # e from d on
        first = np.dot(flat, level)
        np.dot(flat, steep, out=own)
        own -= f[d] * first
        first -= f[d] * np.dot(flat, q)
        first *= f[d:]
        own -= first
    return omega


def _factor(M: Array) -> Array:
    """Factor the positive definite matrix of each row, M = L D L', in place: shape (K, K, rows).

    D takes the place of the diagonal, L' that of the upper triangle; the lower one is used for nothing else. All rows
    take a step together; LAPACK would be called once for each row.
    """
    for j in range(len(M)):
        for i in range(j + 1, len(M)):
            ratio = np.divide(M[j, i], M[j, j], out=M[i, j])
            M[i, i:] -= ratio * M[j, i:]
        M[j, j + 1 :] = M[j + 1 :, j]
    return M


def _solve_factored(M: Array, vectors: Array) -> Array:
    """Solve for each row with what `_factor` returned: vectors and result are (K, rows)."""
    x = vectors.copy()
    for j in range(len(x)):
        x[j + 1 :] -= M[j, j + 1 :] * x[j]
    for j in reversed(range(len(x))):
        x[j] /= M[j, j]
        for i in range(j + 1, len(x)):
            x[j] -= M[j, i] * x[i]
    return x


def _solve(
    problem: LinearProblem, instruments: _Instruments, penalty: Penalty, B: Array, bread: Array | None, tol: float
) -> tuple[Array, Array, bool]:
    """Solve the equations by Newton's method; returns the solution, minus the derivative, and whether it is that there.

    A derivative serves several steps while each is at most a tenth of the one before. A given one, `bread`, is about
    that at B, such as the modelled one of a sample. It serves as long as each step is at most a third of the one
    before, and is corrected by what the steps show (Broyden, 1965).
    """
    gram, span = problem.moments.gram / problem.moments.total_weight, problem.span(B.shape[1])

    def rms(B: Array) -> float:
        return float(np.sqrt(np.einsum("ik,ij,jk->k", B, gram, B).max()))

    size, last, bread_at = 1.0 + rms(B), np.inf, None  # where the derivative was computed; None: it was given
    step = before = np.empty(0)
    for _ in range(_PASSES):
        if bread is not None:
            value = instruments.value(B)
        else:
            value, minus = instruments.expand(B)
            bread, bread_at = minus + penalty.hessian(B.shape[1]), B
        left = value - penalty.gradient(B).T.ravel()
        if bread_at is None and len(step):
            bread = bread + np.outer(before - left - bread @ step, step / (step @ step))
        step = span.solve(bread, left)
        move = step.reshape(B.shape[::-1]).T
        length = rms(move)
        if not np.isfinite(length) or length > 100 * size:
            break
        expected = length**2 / last if bread_at is None and np.isfinite(last) else length  # to be left, at most
        if length <= tol * size or expected <= _LITTLE * tol * size:
            if bread_at is not None and rms(B - bread_at) > _NEAR:
                bread = instruments.expand(B)[1] + penalty.hessian(B.shape[1])
            return B + move, bread, bread_at is not None
        if bread_at is not B and length > (0.3 if bread_at is None else 0.1) * last:
            bread, step, last = None, np.empty(0), np.inf  # it is that of another place: first a newer one
            continue
        B, last, before = B + move, length, left
    raise ConvergenceError("The score equations have no solution near the inverse correction's.")


def _response(instruments: _Instruments, penalty: Penalty, B: Array) -> Array:
    """Invert minus the derivative at a solution, which standard errors alone need."""
    bread = instruments.expand(B)[1] + penalty.hessian(B.shape[1])
    return instruments.problem.span(B.shape[1]).inverse(bread)


def dispersion(problem: LinearProblem, table: Array, B: Array) -> float:
    """Pearson's dispersion of the group prices, corrected for the noise of the reports; at least a tenth of the
    unaware price's, because a corrected variance can come out negative.
    """
    sums = partial(_pearson, problem=problem, row_table=np.ascontiguousarray(table.T), B=B)
    own, reported, unaware, n = problem.rows.reduce(sums, block_rows=2048)[0]
    if not np.isfinite(own):
        raise ConvergenceError(
            "The score equations have no start: some prices of a group lie at the border of its means."
        )
    return float(max(own / reported, 0.1 * unaware / n))


def _pearson(block: Block, problem: LinearProblem, row_table: Array, B: Array) -> tuple[Array, ...]:
    family = problem.family
    Z = problem.moments.coordinates.matrix(block.X)
    w = np.ones(len(Z)) if block.weight is None else block.weight
    f, mu = family.link.mean_of(np.dot(B.T, Z.T)), family.link.mean_of(np.dot(Z, problem.unaware[:, 0]))
    a = np.take(row_table.T, block.report, axis=1)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        own = (a * w * (block.y - f) ** 2 / family.variance(f)).sum()
    unaware = (w * (block.y - mu) ** 2 / family.variance(mu)).sum()
    return (np.array([own, a.sum(), unaware, len(Z)]),)
