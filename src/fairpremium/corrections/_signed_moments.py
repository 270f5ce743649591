"""The moments of the inverse correction as evidence about the coefficients, whether or not they have a common root.

With a_k = T^-1[k, s], W_k = w mu_k' / v_k and residuals y - mu_k(x), the equations of the inverse correction are

    U_k = sum_i a_ik W_ik (y_i - mu_ik) z_i.

Given x they have mean zero for every law of y. Their slope and covariance are modelled, because with few claims the
empirical ones are zero where no claim was seen:

    J_k  = sum_i r_ik W_ik mu_ik' z_i z_i',
    V_kl = sum_i a_ik a_il W_ik W_il [phi_i sum_j r_ij v_ij / w_i + sum_j r_ij (mu_ij - mu_ik)(mu_ij - mu_il)] z_i z_i'

with r_ij = P(D = j given x_i, s_i) and a dispersion phi that depends on the level of the unaware price. This rests on
models of P(D given x) and of the variance, but only in the weight that the evidence gets: U does not use them. Around
coefficients b the evidence is Lambda = J V^-1 J and eta = J V^-1 (U + J b), which exists even where U = 0 has no
solution.

Reports of several channels are evidence of different worth: the moments of each channel have their own J and V, and
their evidence adds up. In one sum the noisiest reports would drown all others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from fairpremium.arrays import Array
from fairpremium.blocks import Block, RowFunction, Rows, Stream
from fairpremium.corrections._empirical_bayes import Evidence, Posterior, Prior, relinearise
from fairpremium.corrections._fit import TableScores, sum_of_squares
from fairpremium.corrections._propensity import GroupPropensity
from fairpremium.corrections._report_channel import ReportChannel
from fairpremium.models import LinearProblem, Span

_CLASSES = 5  # of the unaware price, each with its dispersion
_LEAST_PHI = 0.05  # smallest dispersion, relative to the mean at the unaware price
_SAMPLE_FROM = 400_000  # rows from which a sample tells what the equations are worth
_SAMPLE_ROWS = 200_000
_FIRST_ROWS = 25_000  # rows that give the others, if they are four times as many, a first solution
_OWN_ROWS = 10  # rows per coefficient from which the reports of a channel are evidence of their own


@dataclass(frozen=True)
class MomentSums:
    """U, J and V at one point."""

    U: Array  # (K q,)
    J: Array  # (K q, K q), block diagonal
    V: Array  # (K q, K q)
    span: Span  # of the coefficients: as many sums of the equations are used as coefficients are free
    parts: tuple[MomentSums, ...] = ()  # of each channel, if there are several; U, J and V are their sums

    @property
    def gain(self) -> Array:
        """Return J V^-1, which turns moments into evidence; directions without any variance tell nothing.

        With several channels theirs stand side by side.
        """
        if self.parts:
            return np.hstack([part.gain for part in self.parts])
        V, J = self.span.restrict(self.V), self.span.restrict(self.J)
        scale = np.sqrt(np.maximum(np.diag(V), np.finfo(float).tiny))
        values, vectors = np.linalg.eigh(V / np.outer(scale, scale))
        inverse = (vectors / np.maximum(values, 1e-9)) @ vectors.T / np.outer(scale, scale)
        return self.span.extend(np.asarray(J.T @ inverse))

    def with_equations(self, U: Array) -> MomentSums:
        """Return the moments with another U, of each channel: shape (parts, K q)."""
        parts = tuple(replace(part, U=own) for part, own in zip(self.parts, U, strict=False))
        return replace(self, U=U.sum(axis=0), parts=parts)

    def evidence(self, B: Array) -> Evidence:
        """Return what the moments say about the coefficients, linearised at B."""
        if self.parts:
            found = [part.evidence(B) for part in self.parts]
            return Evidence(np.sum([e.precision for e in found], axis=0), np.sum([e.shift for e in found], axis=0))
        gain = self.gain
        return Evidence(gain @ self.J, gain @ (self.U + self.J @ B.T.ravel()))


@dataclass(frozen=True)
class SignedMoments:
    """The moments of a problem's rows."""

    problem: LinearProblem
    channel: ReportChannel
    rows: Rows | Stream  # their shares, if they have some, are P(D = k given x, s)
    propensity: GroupPropensity
    edges: Array  # (classes - 1,), limits of the unaware price's classes
    repeats: float = 1.0  # how much more the moments scatter because persons have several rows
    part: npt.NDArray[np.intp] | None = None  # (codes,), whose evidence a report belongs to; None: all to one

    @classmethod
    def of(cls, problem: LinearProblem, channel: ReportChannel) -> SignedMoments:
        """Learn P(D given x) from the reports, unless they are the truth."""
        propensity = GroupPropensity.learn(problem, channel, rough=True)
        rows = problem.rows
        if len(rows) <= _SAMPLE_FROM:  # the shares of all rows would be used once
            rows = rows.with_shares(propensity.posterior)
        some = problem.rows.spaced(_SAMPLE_ROWS)
        level = problem.moments.coordinates.matrix(some.X) @ problem.unaware
        edges = np.quantile(level, np.arange(1, _CLASSES) / _CLASSES)
        return cls(problem, channel, rows, propensity, edges, _repeats(problem, channel), _parts(problem, channel))

    def shrink(self, *, rough: bool = False) -> tuple[Posterior, MomentSums]:
        """Shrink the evidence of the moments; returns the posterior and the moments where it was linearised.

        A `rough` posterior gives others a start.
        """
        K = len(self.channel.groups)
        start, sample, is_large = self.problem.start(K), self, len(self.rows) > _SAMPLE_FROM
        if is_large:
            sample = self._spaced(_SAMPLE_ROWS)
        if len(self.rows) >= 4 * _FIRST_ROWS:
            start = sample._spaced(_FIRST_ROWS).shrink(rough=True)[0].B
        _, phi = sample.sums_and_dispersion(start, np.ones(_CLASSES))
        prior = Prior.of(self.problem)
        seen = phi[phi != 0]  # a class may be empty
        base = max(
            float(seen.mean()) if len(seen) else 0.0, 1e-8 * prior.unit**2
        )  # a perfect fit has no dispersion at all
        ridge = self.problem.penalty(0.0, K).hessian(K)
        sums: MomentSums

        def evidence_at(B: Array) -> Evidence:
            nonlocal phi, sums
            sums, phi = sample.sums_and_dispersion(B, np.maximum(phi, _LEAST_PHI * base))
            if is_large:  # J and V only say what the equations are worth, which a sample tells
                sums = sums.with_equations(self._equations(B))
            found = sums.evidence(B)
            return replace(found, precision=found.precision + ridge / base)

        posterior = relinearise(self.problem, start, evidence_at, rough=rough)
        return posterior, sums

    def _spaced(self, size: int) -> SignedMoments:
        """Return the moments of evenly spaced rows."""
        some = self.rows.spaced(size)
        return replace(self, rows=some if some.share is not None else some.with_shares(self.propensity.posterior))

    def weights(self, block: Block) -> Array:
        """Return P(D = k given x, s), zero for rows that did not report: shape (rows, K)."""
        return self.propensity.posterior(block) if block.share is None else block.share

    def sums(self, B: Array) -> MomentSums:
        """Compute the moments at coefficients B, with dispersion one."""
        return self.sums_and_dispersion(B, np.ones(_CLASSES))[0]

    def sums_and_dispersion(self, B: Array, phi: Array) -> tuple[MomentSums, Array]:
        """Compute the moments at coefficients B, given the dispersions for V, and the dispersions at B."""
        q, K = B.shape
        U, slopes, V, pearson, counts = self.rows.reduce(partial(self._block_sums, B=B, phi=phi), block_rows=2048)
        factor = len(self.problem.rows) / len(self.rows)  # a sample speaks for all rows
        size, span = K * q, self.problem.span(K)
        parts = []
        for own_U, own_slopes, own_V in zip(U, slopes, V, strict=True):
            J = np.zeros((K, q, K, q))
            for k in range(K):
                J[k, :, k] = own_slopes[k]
            own_V = factor * own_V.reshape(size, size)
            parts.append(
                MomentSums(factor * own_U.T.ravel(), factor * J.reshape(size, size), self.repeats * own_V, span)
            )
        found = parts[0]
        if len(parts) > 1:
            whole_U, whole_J, whole_V = (np.sum([getattr(part, name) for part in parts], axis=0) for name in "UJV")
            found = MomentSums(whole_U, whole_J, whole_V, span, tuple(parts))
        return found, pearson / np.maximum(counts, 1.0)

    def _block_sums(self, block: Block, B: Array, phi: Array) -> tuple[Array, ...]:
        family = self.problem.family
        Z = self.problem.moments.coordinates.matrix(block.X)
        q, K = B.shape
        eta = np.dot(B.T, Z.T)  # (K, rows), like all that follows
        mu, slope = family.link.mean_and_slope(eta)
        variance = family.variance(mu)
        w = np.ones(len(Z)) if block.weight is None else block.weight
        a, r = np.take(self.channel.table, block.report, axis=1), np.ascontiguousarray(self.weights(block).T)
        W = w * slope / variance
        aW = a * W
        level = np.searchsorted(self.edges, np.dot(Z, self.problem.unaware)[:, 0])
        spread = (r * variance).sum(axis=0)
        noise = phi[level] * spread / w
        residual = aW * (block.y - mu)
        reported, mixed = spread > 0, (r * mu).sum(axis=0)
        gap = (mu - mixed) * reported
        between = (r * gap**2).sum(axis=0)
        level_part, gap_part, curvature = aW * (noise + between), aW * gap, r * W * slope
        U, slopes, V = np.empty((self.n_parts, q, K)), np.empty((self.n_parts, K, q, q)), self._no_covariance(B)
        for p, (own, here) in enumerate(self._own_rows(block, Z)):
            U[p] = np.dot(own.T, residual[:, here].T)
            for k in range(K):
                slopes[p, k] = np.dot(own.T * curvature[k, here], own)
                for j in range(k, K):
                    # sum_l r_l (mu_l - mu_k)(mu_l - mu_j) is the variance of mu plus the product of the gaps
                    both = level_part[k] * aW[j] + gap_part[k] * gap_part[j]
                    V[p, k, :, j] = np.dot(own.T * both[here], own)
                    V[p, j, :, k] = V[p, k, :, j].T
        within = (block.y - mixed) ** 2 - between
        pearson = np.where(reported, w * within / np.where(reported, spread, 1.0), 0.0)
        by_level = [np.asarray(np.bincount(level, values, _CLASSES), np.float64) for values in (pearson, reported)]
        return U, slopes, V, by_level[0], by_level[1]

    def _equations(self, B: Array) -> Array:
        """Compute U alone, of each channel: shape (parts, K q)."""
        U = self.rows.reduce(partial(self._block_equations, B=B), block_rows=4096)[0]
        return np.asarray(len(self.problem.rows) / len(self.rows) * U.transpose(0, 2, 1).reshape(self.n_parts, -1))

    def _block_equations(self, block: Block, B: Array) -> tuple[Array, ...]:
        family = self.problem.family
        Z = self.problem.moments.coordinates.matrix(block.X)
        eta = np.dot(B.T, Z.T)  # (K, rows)
        mu, slope = family.link.mean_and_slope(eta)
        residual = np.take(self.channel.table, block.report, axis=1) * (block.y - mu)
        residual *= slope / family.variance(mu)
        if block.weight is not None:
            residual *= block.weight
        return (np.array([np.dot(own.T, residual[:, here].T) for own, here in self._own_rows(block, Z)]),)

    @property
    def n_parts(self) -> int:
        """Number of channels whose moments are evidence of their own."""
        return 1 if self.part is None else int(self.part.max()) + 1

    def _no_covariance(self, B: Array) -> Array:
        q, K = B.shape
        return np.empty((self.n_parts, K, q, K, q))

    def _own_rows(self, block: Block, Z: Array) -> Iterator[tuple[Array, Any]]:
        """The rows of z of each part, and which rows they are."""
        if self.part is None:
            yield Z, slice(None)
            return
        for p in range(self.n_parts):
            here = self.part[block.report] == p
            yield Z[here], here

    def scores(self, B: Array) -> RowFunction:
        """Return what each row adds to the moments, those of several channels side by side: (rows, parts K q)."""
        own = TableScores(self.problem, B, np.ascontiguousarray(self.channel.table.T))
        return own if self.part is None else _PartScores(own, self.part, self.n_parts)


@dataclass(frozen=True)
class _PartScores:
    """Scores that count in the columns of the row's part only."""

    own: TableScores
    part: npt.NDArray[np.intp]
    n_parts: int

    def __call__(self, block: Block) -> Array:
        belongs = self.part[block.report][:, None] == np.arange(self.n_parts)  # (rows, parts)
        scores = self.own(block)
        return np.asarray((belongs[:, :, None] * scores[:, None, :]).reshape(len(scores), -1))


def _parts(problem: LinearProblem, channel: ReportChannel) -> npt.NDArray[np.intp] | None:
    """Say whose evidence each code belongs to: channels with few rows count with the one that has most."""
    counts = np.bincount(channel.source[:-1], weights=problem.moments.counts[:-1])
    large = counts >= _OWN_ROWS * problem.moments.q * len(channel.groups)
    large[np.argmax(counts)] = True
    if large.sum() == 1:
        return None
    place = np.where(large, np.cumsum(large) - 1, 0)
    place[~large] = place[np.argmax(counts)]
    return np.asarray(place[channel.source])


def _repeats(problem: LinearProblem, channel: ReportChannel) -> float:
    """Compute by how much persons with several rows make the moments scatter more than independent rows would."""
    rows = problem.rows
    if not rows.clustered:
        return 1.0
    scores = TableScores(problem, problem.start(len(channel.groups)), np.ascontiguousarray(channel.table.T))
    by_person, by_row = sum_of_squares(rows, scores), sum_of_squares(rows.without_persons(), scores)
    return max(1.0, float(np.trace(np.linalg.lstsq(by_row, by_person, rcond=1e-10)[0])) / len(by_row))
