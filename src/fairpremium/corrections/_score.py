"""Correction by the optimally weighted score: the moments of the inverse correction, with their best weights.

The inverse correction rests on  M_k = T^-1[k, s] (y - f_k(x)),  whose mean given x is zero for every k if every f_k
is right. Solving

    sum_i w_i z_i q_k(x_i) f_k'(x_i) [Omega_i^-1 M_i]_k = 0  for all k, Omega[d, e](x) = sum_j q_j(x) C[j, d, e] (V_j +
    (f_j - f_d)(f_j - f_e)), C[j, d, e] = sum_s T[s, j] T^-1[d, s] T^-1[e, s]

weights them by the inverse of their covariance Omega. With several sources T, and with it C and Omega, is that of the
row's source: reports with little noise get the weight that they deserve. A wrong propensity q or variance V costs
efficiency, not consistency; a wrong f_k does harm to the other groups too.
"""

from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from fairpremium.arrays import Array
from fairpremium.blocks import Block
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


def fit_score(problem: LinearProblem, base: GroupFit, pooling: float | None) -> GroupFit:
    """Fit all groups with the score correction, from a consistent fit that gives the channel and the first weights.

    A ConvergenceError says that the equations have no solution near the base.
    """
    matrix, table = base.channel.matrix, base.channel.table
    features, q = x_features(problem.moments)
    rows = reported_rows(problem, len(matrix))
    shares, share_scores = report_shares(problem.moments, table)
    gamma = fit_propensity(Latent(rows, with_missing_row(matrix), features, q), shares).gamma
    phi = dispersion(problem, table, base.B)
    penalty = problem.penalty(pooling or 0.0, len(table)).scaled(1 / phi)
    B, posterior = base.B, None
    for _ in range(_ROUNDS):
        instruments = _Instruments(problem, base.channel, gamma, B, phi)
        if pooling is None:
            posterior = relinearise(problem, B, partial(instruments.evidence, penalty=penalty, repeats=base.repeats))
            B, response = posterior.B, posterior.covariance / base.repeats
        else:
            B, bread = _solve(problem, instruments, penalty, B)
            response = problem.span(len(table)).inverse(bread)
    influence = Influence(partial(instruments.scores, B=B), response, 0, share_scores, np.zeros((len(table), B.size)))
    return GroupFit(problem, "score", base.channel, B, shares, pooling, influence, posterior)


class _Instruments:
    """The weights G(x) = diag(q_k f_k') Omega^-1 at a fixed solution, and the equations they give."""

    def __init__(self, problem: LinearProblem, channel: ReportChannel, gamma: Array, at: Array, phi: float):
        self.problem, self.gamma, self.at, self.phi = problem, gamma, at, phi
        self.source = channel.source
        by_source = []
        for w in range(self.source.max() + 1):
            own = np.flatnonzero(self.source[:-1] == w)
            inverse = channel.table[:, own]
            by_source.append(np.einsum("sj,ds,es->jde", channel.matrix[own], inverse, inverse))
            by_source[-1] /= channel.matrix[own].sum(axis=0).mean()  # keys that share the channel
        self.C = np.array(by_source)  # (sources, j, d, e)
        self.row_table = np.ascontiguousarray(channel.table.T)

    def _weights(self, Z: Array, report: npt.NDArray[Any]) -> Array:
        """G for each row: shape (rows, K, K)."""
        if len(self.C) == 1:
            return self._weights_of(Z, self.C[0])
        found = np.empty((len(Z), self.C.shape[-1], self.C.shape[-1]))
        for w, C in enumerate(self.C):
            here = self.source[report] == w
            found[here] = self._weights_of(Z[here], C)
        return found

    def _weights_of(self, Z: Array, C: Array) -> Array:
        """G for rows of one source, whose reports have these C."""
        family = self.problem.family
        eta = Z @ self.at
        f = family.link.mean_of(eta)
        q = np.exp(log_softmax(Z @ self.gamma.T))
        gap = f[:, :, None] - f[:, None, :]  # (rows, j, d)
        spread = self.phi * family.variance(f)
        Omega = np.einsum("ij,jde->ide", q * spread, C)
        Omega += np.einsum("ij,jde,ijd,ije->ide", q, C, gap, gap)
        K = len(C)
        inverse = np.linalg.solve(Omega, np.broadcast_to(np.eye(K), Omega.shape))
        return np.asarray((q * family.link.slope(eta))[:, :, None] * inverse)

    def scores(self, block: Block, B: Array) -> Array:
        """The equations' terms, row by row: shape (rows, K q)."""
        Z = self.problem.moments.coordinates.matrix(block.X)
        w = np.ones(len(Z)) if block.weight is None else block.weight
        moments = self.row_table[block.report] * (block.y[:, None] - self.problem.family.link.mean_of(Z @ B))
        weighted = np.einsum("ikl,il->ik", self._weights(Z, block.report), moments) * w[:, None]
        return np.asarray((weighted[:, :, None] * Z[:, None, :]).reshape(len(Z), -1))

    def expand(self, B: Array, modelled: bool = False) -> tuple[Array, Array]:
        """The summed equations and minus their derivative, or its mean given x: (K q,) and (K q, K q)."""
        with np.errstate(over="ignore", invalid="ignore"):  # a step too far is not taken
            value, minus = self.problem.rows.reduce(partial(self._sums, B=B, modelled=modelled), block_rows=2048)
        return value, minus

    def evidence(self, B: Array, penalty: Penalty, repeats: float) -> Evidence:
        """What the equations say about the coefficients: with the best weights, their slope is their covariance.

        The slope is modelled, with q_k(x) in place of T^-1[k, s]: that of few rows need not have a sign.
        """
        value, minus = self.expand(B, modelled=True)
        bread = minus + penalty.hessian(B.shape[1])
        bread = 0.5 * (bread + bread.T)
        return Evidence(bread, value - penalty.gradient(B).T.ravel() + bread @ B.T.ravel()).divided(repeats)

    def _sums(self, block: Block, B: Array, modelled: bool) -> tuple[Array, ...]:
        q, K = B.shape
        Z = self.problem.moments.coordinates.matrix(block.X)
        w = np.ones(len(Z)) if block.weight is None else block.weight
        link = self.problem.family.link
        eta = Z @ B
        inverse = self.row_table[block.report]
        G = self._weights(Z, block.report) * w[:, None, None]
        value = np.einsum("ikl,il->ik", G, inverse * (block.y[:, None] - link.mean_of(eta)))
        weight = inverse
        if modelled:
            weight = np.exp(log_softmax(Z @ self.gamma.T)) * (block.report != len(self.row_table) - 1)[:, None]
        slope = weight * link.slope(eta)
        minus = np.empty((K, q, K, q))
        for k in range(K):
            for j in range(K):
                minus[k, :, j] = (Z * (G[:, k, j] * slope[:, j])[:, None]).T @ Z
        return (Z.T @ value).T.ravel(), minus.reshape(K * q, K * q)


def _solve(problem: LinearProblem, instruments: _Instruments, penalty: Penalty, B: Array) -> tuple[Array, Array]:
    """Solve the equations by Newton's method; returns the solution and minus the derivative there."""
    gram = problem.moments.gram / problem.moments.total_weight
    span = problem.span(B.shape[1])
    size = None
    for _ in range(_PASSES):
        value, minus = instruments.expand(B)
        bread = minus + penalty.hessian(B.shape[1])
        step = span.solve(bread, value - penalty.gradient(B).T.ravel()).reshape(B.shape[::-1]).T
        length = float(np.sqrt(np.einsum("ik,ij,jk->k", step, gram, step).max()))
        size = size or 1.0 + float(np.sqrt(np.einsum("ik,ij,jk->k", B, gram, B).max()))
        if not np.isfinite(length) or length > 100 * size:
            break
        B = B + step
        if length <= 1e-7 * size:
            return B, bread
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
