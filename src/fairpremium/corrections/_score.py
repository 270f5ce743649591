"""Correction by the optimally weighted score: the moments of the inverse correction, with their best weights.

The inverse correction rests on  M_k = T^-1[k, s] (y - f_k(x)),  whose mean given x is zero for every k if every f_k
is right. Solving

    sum_i w_i z_i q_k(x_i) f_k'(x_i) [Omega_i^-1 M_i]_k = 0  for all k, Omega[d, e](x) = sum_j q_j(x) C[j, d, e] (V_j +
    (f_j - f_d)(f_j - f_e)), C[j, d, e] = sum_s T[s, j] T^-1[d, s] T^-1[e, s]

weights them by the inverse of their covariance Omega. With several sources T, and with it C and Omega, is that of the
row's source: reports with little noise get the weight that they deserve. A wrong propensity q or variance V costs
efficiency, not consistency; a wrong f_k does harm to the other groups too.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from fairpremium.arrays import Array
from fairpremium.blocks import Block, Rows, Stream
from fairpremium.corrections._empirical_bayes import Evidence, relinearise
from fairpremium.corrections._fit import GroupFit, Influence
from fairpremium.corrections._latent import Latent, log_softmax
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
_SAMPLE_FROM, _SAMPLE_ROWS = 800_000, 200_000  # rows from which a sample is enough for the first weights, and its size
_NEAR = 5e-3  # a slope computed within this distance of the solution, root mean square, counts as the solution's


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
    B, posterior = base.B, None
    for round in range(_ROUNDS):
        instruments = _Instruments(problem, base.channel, gamma, B, phi)
        if round < _ROUNDS - 1 and len(problem.rows) > _SAMPLE_FROM:  # a sample tells the weights of the last round
            instruments = replace(instruments, rows=problem.rows.spaced(_SAMPLE_ROWS))
        if pooling is None:
            posterior = relinearise(problem, B, partial(instruments.evidence, penalty=penalty, repeats=base.repeats))
            B, response = posterior.B, posterior.covariance / base.repeats
        else:
            B, bread = _solve(problem, instruments, penalty, B)
            response = problem.span(len(table)).inverse(bread)
    influence = Influence(partial(instruments.scores, B=B), response, 0, share_scores, np.zeros((len(table), B.size)))
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

    @cached_property
    def _row_table(self) -> Array:
        """T^-1 with a row for each report: shape (codes, K)."""
        return np.ascontiguousarray(self.channel.table.T)

    def _terms(self, block: Block, Z: Array) -> tuple[Array, Array]:
        """Compute q_k f_k' and Omega of each row: shapes (rows, K) and (rows, K, K)."""
        family = self.problem.family
        eta = Z @ self.at
        f, q = family.link.mean_of(eta), np.exp(log_softmax(Z @ self.gamma.T))
        spread = self.phi * family.variance(f)
        if len(self._products) == 1:
            return q * family.link.slope(eta), _omega(self._products[0], q, f, spread)
        source = self.channel.source[block.report]
        omega = np.empty((len(Z), self.at.shape[1], self.at.shape[1]))
        for w, C in enumerate(self._products):
            here = source == w
            omega[here] = _omega(C, q[here], f[here], spread[here])
        return q * family.link.slope(eta), omega

    def _values(self, block: Block, Z: Array, B: Array) -> Array:
        """Compute what z is multiplied by in the equations: shape (rows, K)."""
        inverse = self._row_table[block.report]
        moments = inverse * (block.y[:, None] - self.problem.family.link.mean_of(Z @ B))
        factor, omega = self._terms(block, Z)
        values = factor * np.linalg.solve(omega, moments[:, :, None])[:, :, 0]
        return np.asarray(values if block.weight is None else values * block.weight[:, None])

    def scores(self, block: Block, B: Array) -> Array:
        """The equations' terms, row by row: shape (rows, K q)."""
        Z = self.problem.moments.coordinates.matrix(block.X)
        return np.asarray((self._values(block, Z, B)[:, :, None] * Z[:, None, :]).reshape(len(Z), -1))

    def value(self, B: Array) -> Array:
        """The summed equations: shape (K q,)."""
        return self._reduce(partial(self._sum, B=B))[0]

    def expand(self, B: Array, modelled: bool = False) -> tuple[Array, Array]:
        """The summed equations and minus their derivative, or its mean given x: (K q,) and (K q, K q)."""
        value, minus = self._reduce(partial(self._sums, B=B, modelled=modelled))
        return value, minus

    def _reduce(self, function: Callable[[Block], tuple[Array, ...]]) -> tuple[Array, ...]:
        rows = self.problem.rows if self.rows is None else self.rows
        part = len(rows) / len(self.problem.rows)
        with np.errstate(over="ignore", invalid="ignore"):  # a step too far is not taken
            return tuple(each / part for each in rows.reduce(function, block_rows=2048))

    def evidence(self, B: Array, penalty: Penalty, repeats: float) -> Evidence:
        """What the equations say about the coefficients: with the best weights, their slope is their covariance.

        The slope is modelled, with q_k(x) in place of T^-1[k, s]: that of few rows need not have a sign.
        """
        value, minus = self.expand(B, modelled=True)
        bread = minus + penalty.hessian(B.shape[1])
        bread = 0.5 * (bread + bread.T)
        return Evidence(bread, value - penalty.gradient(B).T.ravel() + bread @ B.T.ravel()).divided(repeats)

    def _sum(self, block: Block, B: Array) -> tuple[Array, ...]:
        Z = self.problem.moments.coordinates.matrix(block.X)
        return ((Z.T @ self._values(block, Z, B)).T.ravel(),)

    def _sums(self, block: Block, B: Array, modelled: bool) -> tuple[Array, ...]:
        q, K = B.shape
        Z = self.problem.moments.coordinates.matrix(block.X)
        link = self.problem.family.link
        eta = Z @ B
        inverse = self._row_table[block.report]
        factor, omega = self._terms(block, Z)
        if block.weight is not None:
            factor = factor * block.weight[:, None]
        G = factor[:, :, None] * np.linalg.inv(omega)
        value = np.einsum("ikl,il->ik", G, inverse * (block.y[:, None] - link.mean_of(eta)))
        weight = inverse
        if modelled:
            reported = block.report != self.channel.n_codes - 1
            weight = np.exp(log_softmax(Z @ self.gamma.T)) * reported[:, None]
        slope = weight * link.slope(eta)
        minus = np.empty((K, q, K, q))
        for k in range(K):
            for j in range(K):
                minus[k, :, j] = (Z * (G[:, k, j] * slope[:, j])[:, None]).T @ Z
        return (Z.T @ value).T.ravel(), minus.reshape(K * q, K * q)


def _omega(C: Array, q: Array, f: Array, spread: Array) -> Array:
    """Compute sum_j q_j C[j, d, e] (V_j + (f_j - f_d)(f_j - f_e)) of each row: shape (rows, K, K).

    With the product written out it is three products of matrices: in q_j (V_j + f_j^2), q_j f_j and q_j.
    """
    n, K = f.shape
    flat = C.reshape(K, K * K)
    none, first, second = (((q * p) @ flat).reshape(n, K, K) for p in (np.ones_like(f), f, spread + f**2))
    return np.asarray(second - (f[:, :, None] + f[:, None, :]) * first + f[:, :, None] * f[:, None, :] * none)


def _solve(problem: LinearProblem, instruments: _Instruments, penalty: Penalty, B: Array) -> tuple[Array, Array]:
    """Solve the equations by Newton's method; returns the solution and minus the derivative near it.

    A derivative serves several steps while each is at most a tenth of the one before.
    """
    gram, span = problem.moments.gram / problem.moments.total_weight, problem.span(B.shape[1])

    def rms(B: Array) -> float:
        return float(np.sqrt(np.einsum("ik,ij,jk->k", B, gram, B).max()))

    size, last, bread, bread_at = 1.0 + rms(B), 0.0, np.empty(0), B
    for _ in range(_PASSES):
        if not len(bread):
            value, minus = instruments.expand(B)
            bread, bread_at = minus + penalty.hessian(B.shape[1]), B
        else:
            value = instruments.value(B)
        step = span.solve(bread, value - penalty.gradient(B).T.ravel()).reshape(B.shape[::-1]).T
        length = rms(step)
        if not np.isfinite(length) or length > 100 * size:
            break
        if length <= 1e-7 * size:
            if rms(B - bread_at) > _NEAR:
                bread = instruments.expand(B)[1] + penalty.hessian(B.shape[1])
            return B + step, bread
        if length > 0.1 * last and bread_at is not B:  # the derivative is that of another place: first a newer one
            bread, last = np.empty(0), np.inf
            continue
        B, last = B + step, length
    raise ConvergenceError("The score equations have no solution near the inverse correction's.")


def dispersion(problem: LinearProblem, table: Array, B: Array) -> float:
    """Pearson's dispersion of the group prices, corrected for the noise of the reports; at least a tenth of the
    unaware price's, because a corrected variance can come out negative.
    """
    sums = partial(_pearson, problem=problem, row_table=np.ascontiguousarray(table.T), B=B)
    own, reported, unaware, n = problem.rows.reduce(sums)[0]
    if not np.isfinite(own):
        raise ConvergenceError(
            "The score equations have no start: some prices of a group lie at the border of its means."
        )
    return float(max(own / reported, 0.1 * unaware / n))


def _pearson(block: Block, problem: LinearProblem, row_table: Array, B: Array) -> tuple[Array, ...]:
    family = problem.family
    Z = problem.moments.coordinates.matrix(block.X)
    w = np.ones((len(Z), 1)) if block.weight is None else block.weight[:, None]
    f, mu = family.link.mean_of(Z @ B), family.link.mean_of(Z @ problem.unaware)
    a = row_table[block.report]
    y = block.y[:, None]
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        own = (a * w * (y - f) ** 2 / family.variance(f)).sum()
    unaware = (w * (y - mu) ** 2 / family.variance(mu)).sum()
    return (np.array([own, a.sum(), unaware, len(Z)]),)
