"""A released model of who reports what, P(S = s given x, y): from one noised sum per report.

It stands in for the reports wherever their average would do: in Hessians, in variances, in the shares of the groups and
of those who did not report. With phi = (z, t z), z the features and t the bounded residual of the unaware price, it is
the least-squares fit of the reports on phi, and needs

    N_s = sum over rows with report s of  w phi

alone. A missing report is a report of its own kind, so that participation is protected like the answer. The sum of N_s
over all kinds is public; noise that contradicts it is taken out.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.linalg import eigh

from fairpremium.arrays import Array
from fairpremium.blocks import Block, Rows, Stream
from fairpremium.models import LinearProblem

from ._public_data import largest, part_within, row_lengths, unaware_slope, weight_of, whitening

_NULL = 1e-10  # directions of phi with less than this part of the largest spread are left out
_LEAST_SHARE = 0.02  # least P(D = k given x, y) in a sum that must be positive


@dataclass(frozen=True)
class Phi:
    """phi = (z, t z) in coordinates in which sum of w phi phi' is the total weight times the identity."""

    problem: LinearProblem
    scale: float  # root mean square of the loss's slope at the unaware price
    root: Array  # (2 q, r)

    def __call__(self, block: Block) -> Array:
        """Compute phi for the rows of a block: shape (rows, r)."""
        return _raw_phi(self.problem, self.scale, block) @ self.root


def learn_phi(problem: LinearProblem) -> Phi:
    """Choose the scale and the coordinates of phi, from public rows."""
    rows, total = problem.rows, problem.moments.total_weight
    scale = float(np.sqrt(rows.reduce(partial(_slope_squares, problem=problem))[0] / total)) or 1.0
    gram = rows.reduce(partial(_phi_squares, problem=problem, scale=scale))[0] / total
    return Phi(problem, scale, whitening(gram, _NULL))


def _raw_phi(problem: LinearProblem, scale: float, block: Block) -> Array:
    Z, slope = unaware_slope(block, problem)
    return np.concatenate([Z, Z * np.tanh(slope / scale)[:, None]], axis=1)


def _slope_squares(block: Block, problem: LinearProblem) -> tuple[Array, ...]:
    return (np.asarray(weight_of(block) @ unaware_slope(block, problem)[1] ** 2),)


def _phi_squares(block: Block, problem: LinearProblem, scale: float) -> tuple[Array, ...]:
    phi = _raw_phi(problem, scale, block)
    return ((phi * weight_of(block)[:, None]).T @ phi,)


def _weighted(block: Block, phi: Phi) -> Array:
    return phi(block) * weight_of(block)[:, None]


def weighted_length(block: Block, phi: Phi) -> Array:
    """Compute w |phi| of each row."""
    return row_lengths(_weighted(block, phi))


def sums_by_report(block: Block, phi: Phi, codes: int, limit: float = math.inf) -> tuple[Array, ...]:
    """Compute N_s, the sum of w phi over the rows with each report: shape (codes, r).

    - `limit`: Of w |phi|. With the largest one it changes nothing, however the numbers of a row are rounded here.
    """
    weighted = _weighted(block, phi)
    weighted *= part_within(row_lengths(weighted), limit)[:, None]
    return (np.stack([weighted[block.report == s].sum(axis=0) for s in range(codes)]),)


@dataclass(frozen=True)
class ExpectedReports:
    """P(S = s given x, y), linear in phi.

    - `coefficients`, shape (r, codes): The last code is the missing report.
    - `table`, shape (K, codes): The inverse channel with a zero column for the missing report.
    - `sigma`: Standard deviation of the noise in each coefficient before the public total was restored.
    - `mean_phi`, shape (r,): Of all rows, weighted.
    """

    phi: Phi
    coefficients: Array
    table: Array
    sigma: float
    mean_phi: Array

    @property
    def codes(self) -> int:
        """Kinds of reports, the missing one among them."""
        return int(self.table.shape[1])

    def linear(self, block: Block) -> Array:
        """Compute the linear model, which may leave [0, 1]: shape (rows, codes)."""
        return np.asarray(self.phi(block) @ self.coefficients)

    def probabilities(self, block: Block) -> Array:
        """Compute it within [0, 1], summing to one: shape (rows, codes)."""
        inside = np.clip(self.linear(block), 0.0, 1.0)
        return np.asarray(inside / np.maximum(inside.sum(axis=1, keepdims=True), 1e-9))

    def groups(self, block: Block) -> Array:
        """Compute P(D = k and there is a report, given x, y), linear: shape (rows, K)."""
        return np.asarray(self.linear(block) @ self.table.T)

    def positive_groups(self, block: Block) -> Array:
        """The same within bounds, for sums that must be positive."""
        return np.clip(self.groups(block), _LEAST_SHARE, 1.0)

    def reported(self, block: Block) -> Array:
        """Compute P(there is a report given x, y), within bounds: shape (rows,)."""
        return np.clip(1.0 - self.linear(block)[:, -1], 0.05, 1.0)

    @property
    def code_shares(self) -> Array:
        """Volume of each kind of report over the total: shape (codes,)."""
        return np.asarray(self.mean_phi @ self.coefficients)


def floored(A: Array, B: Array, least: float = 0.3) -> Array:
    """Return A, raised to at least a part of B in every direction.

    The linear model may leave [0, 1], which is right on average and can make a sum of squares indefinite; the one
    within bounds (B) never does.
    """
    scale = np.sqrt(np.maximum(np.diag(B), np.finfo(float).tiny))
    outer = np.outer(scale, scale)
    base = B / outer + 1e-10 * np.eye(len(B))
    values, vectors = eigh(A / outer, base)
    half = base @ vectors
    return np.asarray((half * np.maximum(values, least)) @ half.T * outer)


def centering(codes: int) -> Array:
    """Return I - 11'/n: what is left of independent noise when its sum is known to be zero."""
    return np.eye(codes) - 1.0 / codes


def release_expected_reports(
    rows: Rows | Stream,
    problem: LinearProblem,
    table: Array,
    release: Callable[..., tuple[Array, float]],
    mu: float,
) -> ExpectedReports:
    """Release the sums per report and fit the model.

    - `rows`: With reports.
    - `problem`: Of the same rows without reports.
    - `table`, shape (K, codes)
    - `release`: Adds noise; see `Releaser.release`.
    - `mu`: What it may cost.
    """
    phi, codes = learn_phi(problem), table.shape[1]
    total_weight = problem.moments.total_weight
    longest = largest(problem.rows, partial(weighted_length, phi=phi))
    sums = partial(sums_by_report, phi=phi, limit=longest)
    shape = (codes, phi.root.shape[1])
    noised, sigma = release(
        "reports",
        (phi.root, np.asarray(phi.scale)),
        math.sqrt(2.0) * longest,  # a row that changes its report leaves one sum and enters another
        mu,
        shape,
        lambda: rows.reduce(partial(sums, codes=codes))[0],
    )
    total = problem.rows.reduce(partial(sums, codes=1))[0][0]
    noised = noised - (noised.sum(axis=0) - total) / codes
    return ExpectedReports(phi, noised.T / total_weight, table, sigma / total_weight, total / total_weight)
