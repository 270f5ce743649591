"""Newton steps from gradients with noise, and how far a report can move a gradient.

One report moves the gradient by at most

    max over rows i and reports s, t of  | (T^-1[., s] - T^-1[., t]) * w_i loss'(y_i, z_i'b) | |z_i|

in the metrics of the noise, which features, outcomes, volumes and released coefficients give exactly. No row counts
with more than that where the gradient is added up, even if its numbers are rounded in another way there. The step is
taken with a Hessian in which the reports are replaced by a released model of them.
"""

import itertools
import math
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy.linalg import block_diag, cho_factor, cho_solve, cholesky, solve_triangular

from fairpremium.arrays import Array
from fairpremium.blocks import Block, Rows, Stream
from fairpremium.families import Normal
from fairpremium.models import LinearProblem

from ._expected_reports import ExpectedReports, centering, floored
from ._public_data import largest, part_within, row_lengths, weight_of
from ._released_sums import Releaser

_STRENGTHS = np.concatenate([[0.0], np.logspace(-4, 1, 11), [1e2, 1e4, 1e6]])  # of pooling, per unit of volume
_MAX_STEP = 2.0  # largest root mean square change of a linear predictor in one step (log and logit links)
_WRONG = 0.2  # how wrong the model of the reports may be for extreme rows
_THRESHOLDS = 2.0 ** (-np.arange(17) / 2)  # of the largest move, at which rows may be tempered


@dataclass(frozen=True)
class Step:
    """Where a step stands: coefficients that are public, and the coordinates of its sums.

    - `problem`: Without reports.
    - `B`, shape (q, K)
    - `root`, shape (q, q): From z to coordinates in which the portfolio's mean curvature is the identity.
    - `shape`, shape (K, K): Covariance of the noise between groups, up to a factor.
    - `limit`: Rows that would move the sum further count so much less. Their expectation for the rest is public: it is
      added after the release, where it takes no digit from the sum.
    """

    problem: LinearProblem
    B: Array
    root: Array
    reports: ExpectedReports
    shape: Array
    limit: float = math.inf

    def terms(self, block: Block) -> tuple[Array, Array, Array]:
        """Compute z, w loss' and w loss'' of each row and group."""
        Z = self.problem.moments.coordinates.matrix(block.X)
        _, slope, bent = self.problem.family.loss_terms(block.y[:, None], Z @ self.B)
        w = weight_of(block)[:, None]
        return Z, w * slope, w * bent

    def moves(self, block: Block) -> Array:
        """Compute how far each row moves the sum at most, whatever it reported and might have: shape (rows,)."""
        Z, a, _ = self.terms(block)
        return self._moves(a, Z @ self.root.T)

    def _moves(self, a: Array, U: Array) -> Array:
        table, turn = self.reports.table, self._turn()
        pairs = itertools.combinations(range(self.reports.codes), 2)
        furthest = [row_lengths((a * (table[:, s] - table[:, t])) @ turn.T) for s, t in pairs]
        return np.asarray(np.max(furthest, axis=0) * row_lengths(U))

    def _turn(self) -> Array:
        """Return the map to groups with noise that is independent and alike."""
        return np.asarray(np.linalg.inv(cholesky(self.shape, lower=True)))

    def counted(self, block: Block) -> Array:
        """Compute the part of each row that counts with its report: shape (rows,)."""
        return part_within(self.moves(block), self.limit)

    def gradient(self, block: Block) -> tuple[Array, ...]:
        """Compute the sum of what rows count with over a block, in the coordinates of its noise: shape (K, q)."""
        Z, a, _ = self.terms(block)
        U = Z @ self.root.T
        part = part_within(self._moves(a, U), self.limit)[:, None]
        weights = np.ascontiguousarray(self.reports.table.T)[block.report]
        return (self._turn() @ ((a * part * weights).T @ U),)

    def tempered(self, block: Block) -> tuple[Array, ...]:
        """Derivative of the rest of the gradient in the model of the reports: sum of (1 - c) a z phi', (K, q, r)."""
        Z, a, _ = self.terms(block)
        rest = 1 - self.counted(block)
        phi = self.reports.phi(block)
        return (np.stack([(Z * (rest * a[:, k])[:, None]).T @ phi for k in range(a.shape[1])]),)

    def excess(self, block: Block, limits: Array) -> tuple[Array, ...]:
        """How much rows move the sum beyond some limits."""
        moves = self.moves(block)
        return (np.maximum(moves[:, None] - limits, 0.0).sum(axis=0),)

    def curvature(self, block: Block) -> tuple[Array, ...]:
        """Expected Hessians (K, q, q) and squares of the scores (K q, K q), both as they are and within bounds, and the
        sum of |u|^2 a a' (K, K).
        """
        table = self.reports.table
        Z, a, bent = self.terms(block)
        K, q = a.shape[1], Z.shape[1]
        hessian = np.empty((2, K, q, q))
        squares = np.empty((2, K, q, K, q))
        shares = self.reports.groups(block), self.reports.positive_groups(block)
        chances = self.reports.linear(block), self.reports.probabilities(block)
        for j, (share, chance) in enumerate(zip(shares, chances, strict=True)):
            for k in range(K):
                hessian[j, k] = (Z * (share[:, k] * bent[:, k])[:, None]).T @ Z
                for m in range(k + 1):
                    factor = (chance @ (table[k] * table[m])) * a[:, k] * a[:, m]
                    squares[j, k, :, m] = squares[j, m, :, k] = (Z * factor[:, None]).T @ Z
        length = ((Z @ self.root.T) ** 2).sum(axis=1)
        return hessian, squares.reshape(2, K * q, K * q), (a * length[:, None]).T @ a


@dataclass(frozen=True)
class _Point:
    """The quadratic model at some coefficients, after noise."""

    B: Array
    gradient: Array  # (q, K)
    hessian: Array  # (K q, K q), without pooling, within bounds: steps with it are rather too short
    bread: Array  # (K q, K q), without pooling, right on average: for standard errors
    squares: Array  # (K q, K q), expected
    noise: Array  # (K q, K q), covariance of the noise in the gradient
    tempered: Array  # (K, q, r), how the model of the reports moves the gradient


class Solver:
    """Newton steps from released gradients."""

    def __init__(
        self,
        rows: Rows | Stream,
        problem: LinearProblem,
        reports: ExpectedReports,
        pooling: float | None,
        releaser: Releaser,
    ):
        self.rows, self.problem, self.reports = rows, problem, reports
        self.pooling, self.releaser = pooling, releaser
        self.factor = cholesky(problem.metric, lower=True)
        self.root = solve_triangular(self.factor, np.eye(len(self.factor)), lower=True)
        codes = centering(reports.codes)
        self.pattern = reports.table @ codes @ reports.table.T  # of noise that is spread over the codes evenly

    def point(self, B: Array, mu: float, label: str) -> _Point:
        """Release the gradient at B."""
        K = B.shape[1]
        step = Step(self.problem, B, self.root, self.reports, np.eye(K))
        hessian, squares, spread = self.problem.rows.reduce(step.curvature, block_rows=2048)
        shape = self.pattern * spread
        step = replace(step, shape=shape / np.trace(shape) * K)
        furthest = largest(self.problem.rows, step.moves)
        step = replace(step, limit=self._limit(step, furthest, mu))
        tempered = self._tempered(step, furthest)
        noised, sigma = self.releaser.release(
            label,
            (B, step.shape, self.reports.coefficients),
            step.limit,
            mu,
            (K, len(B)),
            lambda: self.rows.reduce(step.gradient, block_rows=2048)[0],
        )
        bread = np.stack([floored(*pair) for pair in zip(*hessian, strict=True)])
        gradient = self.factor @ (cholesky(step.shape, lower=True) @ noised).T
        gradient += np.einsum("kir,rk->ik", tempered, self.reports.coefficients @ self.reports.table.T)
        penalty = self.problem.penalty(0.0, K)
        return _Point(
            B,
            gradient + penalty.gradient(B),
            block_diag(*hessian[1]) + penalty.hessian(K),
            block_diag(*bread) + penalty.hessian(K),
            floored(*squares),
            np.asarray(sigma**2 * np.kron(step.shape, self.problem.metric), dtype=np.float64),
            tempered,
        )

    def _tempered(self, step: Step, furthest: float) -> Array:
        if step.limit >= furthest:
            return np.zeros((step.B.shape[1], len(step.B), len(self.reports.coefficients)))
        return self.problem.rows.reduce(step.tempered, block_rows=2048)[0]

    def _limit(self, step: Step, furthest: float, mu: float) -> float:
        """Choose where extreme rows are tempered: less noise against a bias if the expectations are wrong."""
        limits = furthest * _THRESHOLDS
        excess = self.problem.rows.reduce(partial(step.excess, limits=limits), block_rows=2048)[0]
        cost = (limits / mu) ** 2 * step.B.size + (_WRONG * excess) ** 2
        return float(limits[int(np.argmin(cost))])

    def strength(self, point: _Point) -> float:
        """Choose the pooling strength by Stein's unbiased estimate of the error of the premium's predictor."""
        if self.pooling is not None:
            return self.pooling
        K = point.B.shape[1]
        H = point.bread
        inverse = np.linalg.inv(H)
        V = inverse @ (point.squares + self.noise(point)[: len(H), : len(H)]) @ inverse
        free = point.B.T.ravel() - inverse @ point.gradient.T.ravel()
        shares = np.clip(self.reports.table @ self.reports.code_shares, 0.02, 1.0)
        W = np.kron(np.outer(shares, shares), self.problem.metric)
        pull = replace(self.problem.penalty(1.0, K), ridge=None).hessian(K)
        best, best_risk = 0.0, math.inf
        for strength in self.problem.moments.total_weight * _STRENGTHS:
            A = np.linalg.solve(H + strength * pull, H)
            gap = A @ free - free
            risk = float(gap @ W @ gap + 2 * np.trace(W @ A @ V))
            if risk < best_risk:
                best, best_risk = float(strength), risk
        return best

    def move(self, point: _Point, strength: float) -> tuple[Array, Array, Array]:
        """Take a Newton step; return the coefficients, the Hessian with pooling, and the covariance of the noise in
        minus the gradient and in the shares that goes with it.
        """
        K = point.B.shape[1]
        pull = replace(self.problem.penalty(strength, K), ridge=None)
        joint = point.hessian + pull.hessian(K)
        gradient = (point.gradient + pull.gradient(point.B)).T.ravel()
        step = -cho_solve(cho_factor(joint), gradient).reshape(K, -1).T
        if not isinstance(self.problem.family, Normal):
            gram = self.problem.moments.gram / self.problem.moments.total_weight
            length = float(np.sqrt(np.einsum("ik,ij,jk->k", step, gram, step).max()))
            step *= min(1.0, _MAX_STEP / length)
        bread = point.bread + pull.hessian(K)
        turned = block_diag(bread @ np.linalg.inv(joint), np.eye(K))  # the step took the noise in with its own Hessian
        return point.B + step, bread, turned @ self.noise(point) @ turned.T

    def noise(self, point: _Point) -> Array:
        """Compute the covariance of the noise in (minus the gradient, shares): shape (K q + K,) squared."""
        reports, (K, q, _) = self.reports, point.tempered.shape
        pattern = reports.sigma**2 * self.pattern
        reported = max(1.0 - float(reports.code_shares[-1]), 0.05)
        to_shares = np.broadcast_to(reports.mean_phi / reported, (K, len(reports.mean_phi)))
        slopes = np.concatenate([-point.tempered, to_shares[:, None]], axis=1)  # (K, q + 1, r)
        joint = np.einsum("kir,kl,ljr->kilj", slopes, pattern, slopes)
        covariance = np.empty((K * q + K, K * q + K))
        g, h = slice(None, K * q), slice(K * q, None)
        covariance[g, g] = joint[:, :q, :, :q].reshape(K * q, K * q) + point.noise
        covariance[g, h] = joint[:, :q, :, q].reshape(K * q, K)
        covariance[h, g] = covariance[g, h].T
        covariance[h, h] = joint[:, q, :, q]
        shares = reports.table @ reports.code_shares / reported
        whole = block_diag(np.eye(K * q), np.eye(K) - shares[:, None])  # shares are divided by their sum
        return np.asarray(whole @ covariance @ whole.T)
