"""Linear models with the inverse correction, from noised sums: Newton steps that never see an exact gradient.

From the unaware price, which needs no report, each step computes

    g_k = sum_i T^-1[k, s_i] w_i loss'(y_i, z_i'b_k) z_i

at coefficients b_k that are released already. One report moves g by at most a length that features, outcomes, volumes
and b_k give exactly, in the worst case over all reports; Gaussian noise in proportion is added, and the step is
taken with a Hessian in which the reports are replaced by a released model of them. Everything else - pooling, shares,
standard errors with the noise in them - is computed from what was released.
"""

from __future__ import annotations

import hashlib
import hmac
import itertools
import math
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import block_diag, cho_factor, cho_solve, cholesky, solve_triangular

from fairpremium._labels import encode_labels
from fairpremium.blocks import Block, RowFunction, Rows, Stream
from fairpremium.corrections import GroupFit, Verdict, pad_missing, sandwich
from fairpremium.corrections._fit import Influence, TableScores
from fairpremium.corrections._pooling import strengths
from fairpremium.errors import NotIdentifiedError
from fairpremium.families import Family, Normal, get_family
from fairpremium.models import LinearModel, LinearProblem
from fairpremium.parties._accounting import mu_of
from fairpremium.parties._disclosure import check_counts, measure, refuse
from fairpremium.parties._expected_reports import (
    ExpectedReports,
    centering,
    floored,
    release_expected_reports,
    weight_of,
)
from fairpremium.parties._keyed_noise import FINENESS, KeyedStream, Noised, grid_for, noised_steps
from fairpremium.parties._public import largest, public_rows, read_rows
from fairpremium.parties._release import FitSettings, Progress, Release, ReleaseSettings
from fairpremium.parties._rules import Rules, round_count
from fairpremium.pricing import DiscriminationFreePricer
from fairpremium.pricing._classes import Assignment, Learned, _premium_covariance, noise_of
from fairpremium.pricing._prices import LinearPrices
from fairpremium.pricing._reference import check_reference
from fairpremium.pricing._sources import SourcePortfolio, is_source
from fairpremium.privacy import Channel

Array = npt.NDArray[np.float64]

_PARTS = (0.20, 0.15, 0.20, 0.45)  # of mu^2: the model of the reports, then one gradient after the other
_MAX_STEP = 2.0  # largest root mean square change of a linear predictor in one step (log and logit links)
_WRONG = 0.2  # how wrong the model of the reports may be for extreme rows
_THRESHOLDS = 2.0 ** (-np.arange(17) / 2)  # of the largest move, at which rows may be tempered


# --- releasing a sum ---


class Releaser:
    """Adds noise to sums, each once: the noise belongs to the data, the settings and the question.

    Parameters
    ----------
    secret : bytes
    identity : bytes
        Digest of the data, reports and settings.
    checkpoint : mutable mapping
        Released integers by label; what is in it is not computed again.
    """

    def __init__(self, secret: bytes, identity: bytes, checkpoint: MutableMapping[str, Any]):
        self._secret, self._identity, self.checkpoint = secret, identity, checkpoint
        self.released: list[dict[str, Any]] = []

    def release(
        self,
        label: str,
        context: Sequence[Array],
        sensitivity: float,
        mu: float,
        shape: tuple[int, ...],
        compute: Callable[[], Array],
    ) -> tuple[Array, float]:
        """Return a noised vector in a shape, and the standard deviation of the noise.

        Parameters
        ----------
        label : str
        context : sequence of arrays
            All that the sum depends on besides the data and the settings.
        sensitivity : float
            Largest change, in Euclidean length, that one report makes.
        mu : float
        shape : tuple
        compute : callable
            Returns the sum; called unless the checkpoint has the answer.
        """
        size = math.prod(shape)
        grid = grid_for(sensitivity, mu, size)
        question = hashlib.sha256(label.encode())
        for array in (*context, np.array([sensitivity, mu, grid])):
            question.update(np.ascontiguousarray(array, dtype=np.float64).tobytes() + b"|")
        fields = (self._identity, question.digest())
        mark = hmac.digest(self._secret, b"question" + b"".join(fields), "sha256").hex()
        known = self.checkpoint.get(label)
        if known is not None and known["question"] == mark and len(known["steps"]) == size:
            steps = [int(step) for step in known["steps"]]
        else:
            exact = np.asarray(compute(), dtype=np.float64).ravel()
            steps = noised_steps(exact, grid, KeyedStream(self._secret, *fields))
            self.checkpoint[label] = {"question": mark, "steps": steps}
        found = Noised(steps, grid, grid * FINENESS)
        self.released.append({"sum": label, "numbers": size, "sigma": found.sigma, "mu": mu})
        return found.values(shape), found.sigma


def _digest(rows: Rows | Stream) -> bytes:
    """Compute a digest of everything in the rows, reports included."""
    task = _Digest()
    parts = [task(rows, 0)] if isinstance(rows, Rows) else list(rows.apply(task))
    return hashlib.sha256(b"".join(d for part in parts for d in part)).digest()


@dataclass(frozen=True)
class _Digest:
    def __call__(self, rows: Rows, start: int) -> list[bytes]:
        hashed = hashlib.sha256()
        for array in (rows.X, rows.y, weight_of(rows.block(0, len(rows))), rows.report):
            hashed.update(str((array.dtype.str, array.shape)).encode() + np.ascontiguousarray(array).tobytes())
        return [hashed.digest()]

    def join(self, a: list[bytes], b: list[bytes]) -> list[bytes]:
        return a + b


# --- one step ---


@dataclass(frozen=True)
class Step:
    """Where a step stands: coefficients that are public, and the coordinates of its sums.

    Parameters
    ----------
    problem : LinearProblem
        Without reports.
    B : array of shape (q, K)
    root : array of shape (q, q)
        From z to coordinates in which the portfolio's mean curvature is the identity.
    reports : ExpectedReports
    shape : array of shape (K, K)
        Covariance of the noise between groups, up to a factor.
    limit : float
        Rows that would move the sum further count so much less, and their expectation for the rest.
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
        inverse = np.linalg.inv(self.shape)
        furthest = np.zeros(len(Z))
        for s, t in itertools.combinations(range(self.reports.codes), 2):
            d = self.reports.table[:, s] - self.reports.table[:, t]
            furthest = np.maximum(furthest, np.einsum("ik,kl,il->i", a, np.outer(d, d) * inverse, a))
        return np.asarray(np.sqrt(np.maximum(furthest, 0.0)) * np.linalg.norm(Z @ self.root.T, axis=1))

    def kept(self, block: Block) -> Array:
        """Compute the part of each row that counts with its report: shape (rows,)."""
        return np.minimum(1.0, self.limit / np.maximum(self.moves(block), 1e-300))

    def gradient(self, block: Block) -> tuple[Array, ...]:
        """Compute the sum over a block in the coordinates of its noise: shape (K, q)."""
        Z, a, _ = self.terms(block)
        weights = np.ascontiguousarray(self.reports.table.T)[block.report]
        if math.isfinite(self.limit):
            part = self.kept(block)[:, None]
            weights = part * weights + (1 - part) * self.reports.groups(block)
        return (np.linalg.inv(cholesky(self.shape, lower=True)) @ ((a * weights).T @ (Z @ self.root.T)),)


@dataclass(frozen=True)
class _Moves:
    step: Step

    def __call__(self, block: Block) -> Array:
        return self.step.moves(block)[:, None]


@dataclass(frozen=True)
class _Gradient:
    step: Step

    def __call__(self, block: Block) -> tuple[Array, ...]:
        return self.step.gradient(block)


@dataclass(frozen=True)
class _Tempered:
    """Derivative of the gradient in the model of the reports: sum of (1 - c) a z phi', shape (K, q, r)."""

    step: Step

    def __call__(self, block: Block) -> tuple[Array, ...]:
        Z, a, _ = self.step.terms(block)
        rest = 1 - self.step.kept(block)
        phi = self.step.reports.phi(block)
        return (np.stack([(Z * (rest * a[:, k])[:, None]).T @ phi for k in range(a.shape[1])]),)


@dataclass(frozen=True)
class _Excess:
    """How much rows move the sum beyond some limits."""

    step: Step
    limits: Array

    def __call__(self, block: Block) -> tuple[Array, ...]:
        moves = self.step.moves(block)
        return (np.maximum(moves[:, None] - self.limits, 0.0).sum(axis=0),)


@dataclass(frozen=True)
class _Curvature:
    """Expected Hessians (K, q, q) and squares of the scores (K q, K q), both as they are and within bounds, and the
    sum of |u|^2 a a' (K, K).
    """

    step: Step

    def __call__(self, block: Block) -> tuple[Array, ...]:
        step, table = self.step, self.step.reports.table
        Z, a, bent = step.terms(block)
        K, q = a.shape[1], Z.shape[1]
        hessian = np.empty((2, K, q, q))
        squares = np.empty((2, K, q, K, q))
        shares = step.reports.groups(block), step.reports.positive_groups(block)
        chances = step.reports.linear(block), step.reports.probabilities(block)
        for j, (share, chance) in enumerate(zip(shares, chances, strict=True)):
            for k in range(K):
                hessian[j, k] = (Z * (share[:, k] * bent[:, k])[:, None]).T @ Z
                for m in range(k + 1):
                    factor = (chance @ (table[k] * table[m])) * a[:, k] * a[:, m]
                    squares[j, k, :, m] = squares[j, m, :, k] = (Z * factor[:, None]).T @ Z
        length = ((Z @ step.root.T) ** 2).sum(axis=1)
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
        hessian, squares, spread = self.problem.rows.fold(_Curvature(step), block_rows=2048)
        shape = self.pattern * spread
        step = replace(step, shape=shape / np.trace(shape) * K)
        furthest = float(largest(self.problem.rows, _Moves(step))[0])
        limit = self._limit(step, furthest, mu)
        step = replace(step, limit=limit)
        noised, sigma = self.releaser.release(
            label,
            (B, step.shape, self.reports.coefficients, np.array([limit])),
            min(furthest, limit),
            mu,
            (K, len(B)),
            lambda: self.rows.fold(_Gradient(step), block_rows=2048)[0],
        )
        bread = np.stack([floored(*pair) for pair in zip(*hessian, strict=True)])
        gradient = self.factor @ (cholesky(step.shape, lower=True) @ noised).T
        penalty = self.problem.penalty(0.0)
        return _Point(
            B,
            gradient + penalty.gradient(B),
            block_diag(*hessian[1]) + penalty.hessian(K),
            block_diag(*bread) + penalty.hessian(K),
            floored(*squares),
            np.asarray(sigma**2 * np.kron(step.shape, self.problem.metric), dtype=np.float64),
            self._tempered(step),
        )

    def _tempered(self, step: Step) -> Array:
        if math.isinf(step.limit):
            return np.zeros((step.B.shape[1], len(step.B), len(self.reports.coefficients)))
        return self.problem.rows.fold(_Tempered(step), block_rows=2048)[0]

    def _limit(self, step: Step, furthest: float, mu: float) -> float:
        """Choose where extreme rows are tempered: less noise against a bias if the expectations are wrong."""
        limits = furthest * _THRESHOLDS
        excess = self.problem.rows.fold(_Excess(step, limits), block_rows=2048)[0]
        cost = (limits / mu) ** 2 * step.B.size + (_WRONG * excess) ** 2
        best = int(np.argmin(cost))
        return math.inf if best == 0 else float(limits[best])

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
        pull = replace(self.problem.penalty(1.0), ridge=None).hessian(K)
        best, best_risk = 0.0, math.inf
        for strength in strengths(self.problem.moments.total_weight):
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
        pull = replace(self.problem.penalty(strength), ridge=None)
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


# --- shares and standard errors ---


@dataclass(frozen=True)
class _GroupSums:
    reports: ExpectedReports

    def __call__(self, block: Block) -> tuple[Array, ...]:
        ratio = self.reports.groups(block) / self.reports.reported(block)[:, None]
        return (weight_of(block) @ ratio,)


@dataclass(frozen=True)
class _ShareScores:
    """What each row adds to the shares, per unit of weight; see `report_shares`."""

    reports: ExpectedReports
    shares: Array

    def __call__(self, block: Block) -> Array:
        r = self.reports.reported(block)[:, None]
        p = self.reports.groups(block) / r
        there = (block.report < self.reports.codes - 1)[:, None]
        weights = np.ascontiguousarray(self.reports.table.T)[block.report]
        return np.asarray((weights - there * p) / r + p - self.shares)


@dataclass(frozen=True)
class _ExpectedSquares:
    """sum_i of E[u_i u_i'] over the reports that row i might have given, as they are expected and within bounds."""

    contributions: RowFunction
    reports: ExpectedReports

    def __call__(self, block: Block) -> tuple[Array, ...]:
        chances = self.reports.linear(block), self.reports.probabilities(block)
        total: Any = 0.0
        for s in range(self.reports.codes):
            U = self.contributions(block._replace(report=np.full(len(block.y), s, dtype=np.uint16)))
            total = total + np.stack([(U * chance[:, s, None]).T @ U for chance in chances])
        return (total,)


@dataclass(frozen=True)
class _Meat:
    """Expected squares of all contributions, with the noise that was added to gradients and shares."""

    reports: ExpectedReports
    noise: Array  # of minus the gradient and the shares

    def __call__(self, rows: Rows | Stream, contributions: RowFunction) -> Array:
        meat = floored(*rows.fold(_ExpectedSquares(contributions, self.reports), block_rows=2048)[0])
        meat[: len(self.noise), : len(self.noise)] += self.noise
        return np.asarray(meat)


def _shares(problem: LinearProblem, reports: ExpectedReports) -> Array:
    sums = problem.rows.fold(_GroupSums(reports))[0]
    return np.asarray(sums / sums.sum())


# --- the release ---


def release_gaussian(
    settings: FitSettings,
    X: Any,
    y: Any,
    sample_weight: Any,
    reports: Any,
    channel: Any,
    privacy: ReleaseSettings,
    groups: Sequence[Any] | None,
    rules: Rules | None,
    features: Sequence[str] | None,
    tell: Progress,
    checkpoint: MutableMapping[str, Any] | None,
) -> Release:
    """Fit from noised sums; see `fit_release`."""
    model, family = _check(settings, channel)
    labels = tuple(groups or ()) if channel is None else channel.groups
    if not labels:
        raise ValueError("Got channel=None without groups=..., but expected the groups of the true attribute.")
    codes = labels if channel is None else channel.reports
    memory = {} if checkpoint is None else checkpoint
    more = (family, model, channel, labels, privacy, rules, tell, memory)
    if is_source(X):
        with SourcePortfolio(X, y, reports, sample_weight, features) as portfolio:
            rows = portfolio.rows(codes, family, thorough=False)
            return _release(settings, rows, portfolio.design, *more)
    encoded = encode_labels(reports, codes, name="reports", missing="code")
    encoded = np.where(encoded < 0, len(codes), encoded)
    table, design = read_rows(X, y, sample_weight, family, encoded)
    return _release(settings, table, design, *more)


def _check(settings: FitSettings, channel: Any) -> tuple[LinearModel, Family]:
    model = LinearModel() if settings.model == "linear" else settings.model
    if not isinstance(model, LinearModel) or settings.correction not in ("inverse", "auto"):
        raise ValueError(
            'Got mechanism="gaussian" with another model or correction than linear and inverse; expected '
            'mechanism="randomized" for those.'
        )
    model.check()
    if channel is not None and not isinstance(channel, Channel):
        raise ValueError('Got an unknown channel with mechanism="gaussian", but expected "randomized" for that.')
    return model, get_family(settings.family)


def _release(
    settings: FitSettings,
    rows: Rows | Stream,
    design: Any,
    family: Family,
    model: LinearModel,
    channel: Channel | None,
    groups: tuple[Any, ...],
    privacy: ReleaseSettings,
    rules: Rules | None,
    tell: Progress,
    checkpoint: MutableMapping[str, Any],
) -> Release:
    tell("unaware price", 0.0)
    public = public_rows(rows, design, family, model)
    problem = public.problem
    exposure = None if rules is None else measure(public)
    mu = mu_of(privacy.epsilon, privacy.delta)
    table = pad_missing(noise_of(channel, groups).table[:, :-1])
    fixed = check_reference(settings.reference, groups)
    pooling = None if settings.pooling == "auto" else float(settings.pooling)
    asked = (family, model.get_params(), table.tolist(), pooling, settings.reference, privacy.epsilon, privacy.delta)
    releaser = Releaser(privacy.secret, hashlib.sha256(_digest(rows) + repr(asked).encode()).digest(), checkpoint)

    tell("reports", 0.1)
    expected = release_expected_reports(rows, problem, table, releaser.release, mu * math.sqrt(_PARTS[0]))
    verdicts = []
    if exposure is not None and rules is not None:
        verdicts = check_counts(exposure, len(rows) * expected.code_shares[:-1], rules)
        refuse(verdicts)
    solver = Solver(rows, problem, expected, pooling, releaser)
    B, strength = problem.start(len(groups)), 0.0
    bread = noise = np.empty((0, 0))
    for j, part in enumerate(_PARTS[1:]):
        tell("step", 0.2 + 0.2 * j)
        point = solver.point(B, mu * math.sqrt(part), f"gradient {j + 1}")
        strength = solver.strength(point)
        B, bread, noise = solver.move(point, strength)

    tell("standard errors", 0.8)
    shares = _shares(problem, expected)
    influence = Influence(
        TableScores(problem, B, np.ascontiguousarray(table.T)),
        bread,
        0,
        _ShareScores(expected, shares),
        np.zeros((len(groups), B.size)),
    )
    fit = GroupFit(problem, "inverse", table, B, shares, strength, influence)
    statistics = sandwich(fit, _Meat(expected, noise))
    task = Assignment(
        problem.rows, design, family, groups, channel, None, "inverse", pooling, settings.reference, fixed,
        settings.intervals, None, 0,
    )  # fmt: skip
    reference = task.weights(statistics.shares, statistics.group_means, statistics.mean_loss)
    covariance = _premium_covariance(settings.reference, reference, statistics) if settings.intervals else None
    prices = LinearPrices(
        family, design, groups, fit.coefficients, fit.unaware_coefficients[:, 0], reference, covariance
    )
    missing = max(round(float(len(rows) * expected.code_shares[-1])), 0)
    learned = Learned(prices, "inverse", strength, shares, reference, model, missing)
    reason = f"Gaussian noise, epsilon {privacy.epsilon:g}, delta {privacy.delta:g}"
    pricer = DiscriminationFreePricer(
        settings.family,
        model,
        channel,
        "inverse",
        settings.pooling,
        settings.reference,
        settings.intervals,
        random_state=0,
    )
    candidate = Verdict("inverse", "noised sums", strength, True, reason)
    pricer._take_over(learned, [candidate], design, None, channel, groups, len(rows))
    if not np.isfinite(prices.coefficients).all():
        raise NotIdentifiedError("The noise that this epsilon needs leaves nothing of the prices.")
    tell("done", 1.0)
    return Release(
        pricer,
        "gaussian",
        privacy.epsilon,
        privacy.delta,
        _STATEMENT.format(privacy.epsilon, privacy.delta),
        tuple(verdicts),
        channel,
        None,
        {"mu": mu, "sums": releaser.released},
        round_count(len(rows) - missing, rules) or 0,
    )


_STATEMENT = (
    "The prices in this bundle are computed from sums over the reports with Gaussian noise: for any single report, its "
    "value and whether there is one, they are ({:.4g}, {:.2g})-differentially private. Fits of the same study add up."
)
