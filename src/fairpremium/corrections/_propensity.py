"""Propensities P(D given x) and P(D given x, y), and the shares P(D), learned from the reports through the channel."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairpremium.arrays import Array
from fairpremium.blocks import Block, RowFunction, Rows, Stream
from fairpremium.corrections._latent import INFORMATION_ROWS, SAMPLE_ROWS, Latent, Parameters
from fairpremium.corrections._report_channel import ReportChannel
from fairpremium.errors import ConvergenceError
from fairpremium.models import Coordinates, LinearProblem, Moments, find_redundant

_ALL_PRODUCTS = 6  # up to so many features all products are features of P(D given x, y)
_KNOTS = (0.05, 0.275, 0.5, 0.725, 0.95)
_APART = 1e-6  # least distance of two knots, in standard deviations
_GAIN_LEFT = 1e-4  # log-likelihood that a maximum of many rows may leave: a hundredth of a standard error
_LARGEST_RIDGE = 3.0  # of a feature of P(D given x), over what the reports know about it: a quarter is always left
_SHRINK_ROUNDS = 8
_SHRINK_TOL = 0.3  # a change of all ridges by less than this factor, as its logarithm, ends the search


def reported_rows(problem: LinearProblem, n_reports: int) -> Rows | Stream:
    """Return the rows that reported."""
    if isinstance(problem.rows, Stream) and not problem.moments.counts[n_reports]:
        return problem.rows  # one pass less
    return problem.rows.reported(n_reports)


def with_missing_row(matrix: Array) -> Array:
    """Append a row of ones to T: a missing report says nothing about the group."""
    return np.vstack([matrix, np.ones(matrix.shape[1])])


@dataclass(frozen=True)
class Standardised:
    """The features z of a block, and its volumes if their center and spread are given."""

    coordinates: Coordinates
    volume: tuple[float, float] | None = None

    def __call__(self, block: Block) -> Array:
        """Compute them: shape (rows, q) or (rows, q + 1)."""
        Z = self.coordinates.matrix(block.X)
        if self.volume is None:
            return Z
        assert block.weight is not None
        center, spread = self.volume
        return np.vstack([Z.T, (block.weight - center) / spread]).T


def x_features(moments: Moments) -> tuple[RowFunction, int]:
    """Return z, the standardised features, as features of P(D given x)."""
    return Standardised(moments.coordinates), moments.q


def volume_features(problem: LinearProblem) -> tuple[RowFunction, int]:
    """Return z and, if rows have volumes, the volume: exposure may depend on the group given x."""
    moments = problem.moments
    n = float(moments.counts.sum())
    center = moments.total_weight / n
    variance = float(moments.squared_weights.sum()) / n - center**2
    if variance <= 1e-14 * center**2:
        return x_features(moments)
    return Standardised(moments.coordinates, (center, float(np.sqrt(variance)))), moments.q + 1


@dataclass(frozen=True)
class OutcomeFeatures:
    """Features of P(D given x, y): how the log-odds of two groups move with the outcome.

    Around the unaware price, with score residual e and information h per row,

        log p_k(y) - log p_l(y)  is about  e (d_k(x) - d_l(x)) - h (d_k(x)^2 - d_l(x)^2) / 2

    for group effects d_k(x) on the linear predictor. With d linear in x the features are (1, z) times (1, e, h) and
    the products of z (if `products`); `spline` lets the effect of the outcome bend, for laws other than the family's.
    """

    problem: LinearProblem
    spline: bool
    products: bool
    center: Array
    scale: Array
    knots: Array

    @classmethod
    def learn(
        cls, problem: LinearProblem, rows: Rows | Stream, *, spline: bool, products: bool = True
    ) -> OutcomeFeatures:
        """Fix the knots and the scale of each feature on a sample of the rows."""
        some = rows.spaced(SAMPLE_ROWS)
        sample = some.block(0, len(some))
        draft = cls(problem, spline, products, np.zeros(0), np.ones(0), np.zeros(0))
        residual = draft.residual(sample)[0]
        spread = float(np.std(residual)) or 1.0
        knots = np.quantile(residual / spread, _KNOTS)
        apart = np.diff(knots, prepend=-np.inf) > _APART  # outcomes that are often the same have quantiles that are
        draft = replace(draft, knots=np.append(knots[apart], spread))
        raw = draft._raw(sample)
        center, scale = raw.mean(axis=0), raw.std(axis=0)
        constant = scale <= 1e-8 * (1 + np.abs(center))
        standard = np.column_stack([np.ones(len(raw)), (raw - center) / np.where(constant, np.inf, scale)])
        use = np.ones(raw.shape[1], dtype=bool)
        use[find_redundant(standard.T @ standard) - 1] = False
        return replace(draft, center=np.where(use, center, np.nan), scale=np.where(use, scale, np.nan))

    @property
    def n_features(self) -> int:
        """Number of features, the intercept included."""
        return 1 + int(np.isfinite(self.scale).sum())

    def __call__(self, block: Block) -> Array:
        """Compute the features of a block, standardised, with a leading one: shape (rows, n_features)."""
        use = np.isfinite(self.scale)
        raw = self._raw(block)[:, use]
        return np.column_stack([np.ones(len(raw)), (raw - self.center[use]) / self.scale[use]])

    def residual(self, block: Block) -> tuple[Array, Array, Array]:
        """Score residual e, information h, and z."""
        family = self.problem.family
        Z = self.problem.moments.coordinates.matrix(block.X)
        eta = np.dot(Z, self.problem.unaware)[:, 0]
        w = np.ones(len(Z)) if block.weight is None else block.weight
        mu, slope = family.link.mean_and_slope(eta)
        variance = family.variance(mu)
        return w * (block.y - mu) * slope / variance, w * slope**2 / variance, Z

    def _raw(self, block: Block) -> Array:
        e, h, Z = self.residual(block)
        t = e / self.knots[-1]
        q = Z.shape[1]
        columns = [Z[:, 1:], t[:, None] * Z, t[:, None] ** 2, h[:, None] * Z]
        if self.products and q - 1 <= _ALL_PRODUCTS:
            i, j = np.triu_indices(q - 1)
            columns.append(Z[:, 1 + i] * Z[:, 1 + j])
        elif self.products:
            columns.append(Z[:, 1:] ** 2)
        if self.spline:
            basis = natural_spline(t, self.knots[:-1])
            columns.append(basis)
            if q - 1 <= _ALL_PRODUCTS:
                columns.append((basis[:, :, None] * Z[:, None, 1:]).reshape(len(Z), -1))
        return np.concatenate(columns, axis=1)


@dataclass(frozen=True)
class GroupPropensity:
    """P(D given x) and P(D given x, s), by a logit that may bend in x; `latent` None: the reports are the truth."""

    T: Array  # (codes, K), with a row of ones for the missing report
    latent: Latent | None = None
    parameters: Parameters | None = None

    @classmethod
    def learn(
        cls, problem: LinearProblem, channel: ReportChannel, *, always: bool = False, rough: bool = False
    ) -> GroupPropensity:
        """Fit it to the reports; those that are the truth need none, unless P(D given x) is wanted `always`.

        `rough` is that of `fit_propensity`.
        """
        T = with_missing_row(channel.matrix)
        if channel.truth and not always:
            return cls(T)
        features = BentFeatures.learn(problem)
        latent = Latent(reported_rows(problem, len(channel.matrix)), T, features, features.n_features)
        shares = report_shares(problem.moments, channel.table)[0]
        try:
            return cls(T, latent, fit_propensity(latent, shares, rough=rough))
        except ConvergenceError:  # then it does not depend on x: evidence gets a little too much weight, or too little
            gamma = np.zeros((latent.n_groups - 1, latent.n_features))
            gamma[:, 0] = np.log(np.maximum(shares[1:], 0.01) / max(shares[0], 0.01))
            return cls(T, latent, Parameters(gamma))

    def shrunk(self, problem: LinearProblem) -> GroupPropensity:
        r"""Return the same logit of a problem with the ridges that the reports ask for, or itself where there are none.

        Notes
        -----
        Every column of the portfolio has a ridge of its own, whatever the number of its levels, and all squares and
        products share one. A ridge is one over the variance of a normal prior, and the one that makes the reports most
        probable (Laplace's approximation) satisfies

        .. math:: \lambda_j = \frac{\sum_{l \in j} (K - 1 - \lambda_j \mathrm{tr}\, C V_l)}{\sum_{l \in j} g_l' C g_l}

        with the coefficients g_l of a feature over groups, their covariance V_l and C = I - 11' / K [MacKay1992]. It is
        solved by repetition. Such a ridge is infinite for effects within chance. At most three times the information
        of the reports is taken, as an average over ridges would: the noise of a column that says nothing about the
        group becomes a quarter, and a small effect is not lost.
        """
        latent, at = self.latent, self.parameters
        if latent is None or at is None:
            return self
        m, K = latent.n_features, latent.n_groups
        columns = ["", *(problem.origins[j] for j in problem.moments.coordinates.used)]  # the intercept has no ridge
        part = pd.factorize(np.array(columns + ["squares and products"] * (m - len(columns)), dtype=object))[0]
        C = np.eye(K - 1) - 1 / K
        ridge, largest = np.ones(m), None
        try:
            for _ in range(_SHRINK_ROUNDS):
                V = latent.covariance(at)[: at.gamma.size, : at.gamma.size].reshape(K - 1, m, K - 1, m)
                size, noise = np.einsum("jl,kl,jk->l", at.gamma, at.gamma, C), np.einsum("jlkl,jk->l", V, C)
                if largest is None:
                    largest = _LARGEST_RIDGE * (K - 1) * np.bincount(part) / np.bincount(part, np.maximum(noise, 1e-12))
                free = np.clip(K - 1 - ridge * noise, 1e-3, K - 1)
                found = np.bincount(part, free) / np.maximum(np.bincount(part, size), 1e-12)
                before, ridge = ridge, np.clip(found, 1.0, np.maximum(largest, 1.0))[part]
                latent = replace(latent, ridge=ridge)
                at = latent.maximise(at)
                if np.abs(np.log(ridge / before)).max() < _SHRINK_TOL:
                    break
        except (ConvergenceError, np.linalg.LinAlgError):
            return self
        return replace(self, latent=latent, parameters=at)

    def propensity(self, block: Block) -> Array:
        """Compute P(D = k given x) for the rows of a block: shape (rows, K)."""
        if self.latent is None or self.parameters is None:
            raise ValueError("P(D given x) was not learned: the reports are the truth.")
        return np.exp(self.latent.log_propensity(self.latent.features(block), self.parameters))

    def posterior(self, block: Block) -> Array:
        """Compute P(D = k given x, s), zero for rows that did not report: shape (rows, K)."""
        if self.latent is None or self.parameters is None:
            r = self.T[block.report]
        else:
            r = self.latent.responsibilities(block, self.parameters)
        return np.asarray(r * (block.report != len(self.T) - 1)[:, None])


@dataclass(frozen=True)
class BentFeatures:
    """Features of P(D given x): z, the volume, squares of numbers, and products if the features are few.

    Squares and products are cut off at three standard deviations and standardised.
    """

    linear: RowFunction
    first: npt.NDArray[np.intp]  # positions in z of the first factors of squares and products,
    second: npt.NDArray[np.intp]  # and of the second ones
    center: Array
    scale: Array
    n_features: int

    @classmethod
    def learn(cls, problem: LinearProblem) -> BentFeatures:
        """Choose the products, and their scale on a sample of the rows."""
        some = problem.rows.spaced(SAMPLE_ROWS)
        Z = problem.moments.coordinates.matrix(some.X)
        linear, width = volume_features(problem)
        pairs = np.array(np.triu_indices(Z.shape[1] - 1)) + 1
        if Z.shape[1] - 1 > _ALL_PRODUCTS:
            pairs = pairs[:, pairs[0] == pairs[1]]
        products = _products(Z, *pairs)
        center, scale = products.mean(axis=0), products.std(axis=0)
        standard = np.column_stack([Z, (products - center) / np.where(scale > 1e-8, scale, np.inf)])
        redundant = find_redundant(standard.T @ standard)  # the square of an indicator, a product that never occurs
        use = np.setdiff1d(np.arange(pairs.shape[1]), redundant - Z.shape[1])
        first, second = pairs[:, use]
        return cls(linear, first, second, center[use], scale[use], width + len(use))

    def __call__(self, block: Block) -> Array:
        """Compute the features of a block: shape (rows, n_features)."""
        Z = self.linear(block)
        bent = _products(Z, self.first, self.second).T
        bent -= self.center[:, None]
        bent /= self.scale[:, None]
        return np.concatenate([Z.T, bent]).T


def _products(Z: Array, first: npt.NDArray[np.intp], second: npt.NDArray[np.intp]) -> Array:
    short = np.clip(Z.T, -3, 3)
    return np.asarray(short[first] * short[second]).T


def natural_spline(t: Array, knots: Array) -> Array:
    """Compute the non-linear part of a natural cubic spline: shape (n, knots - 2), or (n, 0) below three knots."""
    if len(knots) < 3:
        return np.zeros((len(t), 0))
    last, before = knots[-1], knots[-2]

    def d(k: float) -> Array:
        return np.asarray((np.maximum(t - k, 0) ** 3 - np.maximum(t - last, 0) ** 3) / (last - k))

    end = d(before)
    return np.column_stack([d(k) - end for k in knots[:-2]])


def fit_propensity(
    latent: Latent, shares: Array, *, rough: bool = False, nested: Parameters | None = None
) -> Parameters:
    """Fit a propensity through the channel, from the shares; a large problem is solved on samples first.

    With `rough` the sample of many rows has to do: where the propensity only says what equations are worth. `nested` is
    the solution for the first of its features alone, from which it starts instead.
    """
    p = np.maximum(shares, 0.02)
    gamma = np.zeros((latent.n_groups - 1, latent.n_features))
    gamma[:, 0] = np.log(p[1:] / p[0])
    if nested is not None:
        gamma[:, : nested.gamma.shape[1]] = nested.gamma
    start, n = Parameters(gamma), len(latent.rows)
    is_large = n > 4 * INFORMATION_ROWS
    if nested is None:
        if n > 4 * SAMPLE_ROWS:
            start = latent.on(latent.rows.spaced(SAMPLE_ROWS)).maximise(start, tol=1e-4)
        if is_large or (rough and n > 2 * INFORMATION_ROWS):
            start = latent.on(latent.rows.spaced(INFORMATION_ROWS)).maximise(start, tol=1e-4)
            if rough:
                return start
    return latent.maximise(start, tol=float(np.sqrt(_GAIN_LEFT / 2 / n)) if is_large else 1e-6)


# --- shares of the groups in the portfolio ---------------------------------------------------------------------------


def share_coefficients(moments: Moments, table: Array) -> Array:
    """Regress T^-1[k, s] on z among the rows that reported: a linear model of P(D = k given x), shape (q, K)."""
    q = moments.q
    by_report = moments.by_report[:-1]
    gram = by_report[:, :q, :q].sum(axis=0)
    cross = by_report[:, 0, :q].T @ table[:, :-1].T  # sum of w z T^-1[k, s]
    return np.asarray(np.linalg.lstsq(gram, cross, rcond=None)[0])


def estimate_shares(moments: Moments, table: Array) -> Array:
    """Estimate P(D = k), the distribution of volume over groups, without bias and without clipping.

    The linear model of P(D = k given x) that the reporting rows give is averaged over **all** rows. If every row
    reported, this is the plain mean of T^-1[k, s_i]. If some did not, it corrects for reporting that depends on the
    features, where the plain mean over those who reported would be biased.
    """
    mean = moments.gram[0] / moments.total_weight  # mean of z over all rows
    return np.asarray(mean @ share_coefficients(moments, table))


def report_shares(moments: Moments, table: Array) -> tuple[Array, RowFunction]:
    """Estimate P(D) from the reports and the features alone, with each row's contribution.

    Returns z'gamma_k - p_k + r c'z (T^-1[k, s] - z'gamma_k), where gamma is the linear model of P(D = k given x), r = 1
    if the row reported, and c solves (sum of r w z z') c = sum of w z over all rows, so that c'z = 1 when all did.
    """
    q = moments.q
    shares = estimate_shares(moments, table)
    gamma = share_coefficients(moments, table)  # (q, K)
    reported_gram = moments.by_report[:-1, :q, :q].sum(axis=0)
    c = np.linalg.lstsq(reported_gram, moments.gram[0], rcond=None)[0]
    return shares, _ShareScores(moments.coordinates, gamma, c, shares, np.ascontiguousarray(table.T))


@dataclass(frozen=True)
class _ShareScores:
    coordinates: Coordinates
    gamma: Array
    c: Array
    shares: Array
    row_table: Array  # (codes, K)

    def __call__(self, block: Block) -> Array:
        Z = self.coordinates.matrix(block.X)
        propensity: Array = np.dot(self.gamma.T, Z.T)  # (K, rows)
        factor = np.where(block.report == len(self.row_table) - 1, 0.0, np.dot(Z, self.c))
        moved = factor * (np.take(self.row_table.T, block.report, axis=1) - propensity)
        return (propensity - self.shares[:, None] + moved).T
