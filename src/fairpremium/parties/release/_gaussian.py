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
import math
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fairpremium.arrays import Array
from fairpremium.blocks import Block, RowFunction, Rows, Stream
from fairpremium.corrections import CandidateResult, GroupFit, Influence, ReportChannel, TableScores, sandwich
from fairpremium.errors import NotIdentifiedError
from fairpremium.families import Family, get_family
from fairpremium.labels import encode_labels
from fairpremium.models import LinearModel, LinearProblem
from fairpremium.parties.protocol import Rules, round_count
from fairpremium.pricing import DiscriminationFreePricer, LinearPrices, Reference, SourcePortfolio, is_source
from fairpremium.privacy import Channel

from ._accounting import mu_of
from ._disclosure import check_counts, measure, refuse
from ._expected_reports import ExpectedReports, floored, release_expected_reports, weight_of
from ._noised_newton import Solver
from ._public_data import public_rows, read_rows
from ._release import FitSettings, Progress, Release, ReleaseSettings
from ._released_sums import Releaser, digest_of

_PARTS = (0.20, 0.15, 0.20, 0.45)  # of mu^2: the model of the reports, then one gradient after the other


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
    report_channel = ReportChannel.of(channel, groups)
    table = report_channel.table
    reference = Reference.of(settings.reference, groups)
    pooling = None if settings.pooling == "auto" else float(settings.pooling)
    asked = (family, model.get_params(), table.tolist(), pooling, settings.reference, privacy.epsilon, privacy.delta)
    releaser = Releaser(privacy.secret, hashlib.sha256(digest_of(rows) + repr(asked).encode()).digest(), checkpoint)

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
    fit = GroupFit(problem, "inverse", report_channel, B, shares, strength, influence)
    statistics = sandwich(fit, _Meat(expected, noise))
    weights = reference.distribution(statistics.shares, statistics.group_means, statistics.mean_loss)
    covariance = reference.covariance(weights, statistics) if settings.intervals else None
    prices = LinearPrices(family, design, groups, fit.coefficients, fit.unaware_coefficients[:, 0], weights, covariance)
    reason = f"Gaussian noise, epsilon {privacy.epsilon:g}, delta {privacy.delta:g}"
    pricer = DiscriminationFreePricer.from_prices(
        prices,
        model,
        channel=channel,
        correction="inverse",
        pooling=strength,
        group_distribution=shares,
        candidates=[CandidateResult("inverse", "noised sums", strength, True, reason)],
        n_rows=len(rows),
        n_missing_reports=max(round(float(len(rows) * expected.code_shares[-1])), 0),
        reference=settings.reference,
    )
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
        round_count(len(rows) - pricer.n_missing_reports_, rules) or 0,
    )


_STATEMENT = (
    "The prices in this bundle are computed from sums over the reports with Gaussian noise: for any single report, its "
    "value and whether there is one, they are ({:.4g}, {:.2g})-differentially private. Fits of the same study add up."
)


# --- shares and standard errors ---


def _group_sums(block: Block, reports: ExpectedReports) -> tuple[Array, ...]:
    return (weight_of(block) @ (reports.groups(block) / reports.reported(block)[:, None]),)


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


def _expected_squares(block: Block, contributions: RowFunction, reports: ExpectedReports) -> tuple[Array, ...]:
    """sum_i of E[u_i u_i'] over the reports that row i might have given, as they are expected and within bounds."""
    chances = reports.linear(block), reports.probabilities(block)
    total: Any = 0.0
    for s in range(reports.codes):
        U = contributions(block._replace(report=np.full(len(block.y), s, dtype=np.uint16)))
        total = total + np.stack([(U * chance[:, s, None]).T @ U for chance in chances])
    return (total,)


@dataclass(frozen=True)
class _Meat:
    """Expected squares of all contributions, with the noise that was added to gradients and shares."""

    reports: ExpectedReports
    noise: Array  # of minus the gradient and the shares

    def __call__(self, rows: Rows | Stream, contributions: RowFunction) -> Array:
        squares = partial(_expected_squares, contributions=contributions, reports=self.reports)
        meat = floored(*rows.reduce(squares, block_rows=2048)[0])
        meat[: len(self.noise), : len(self.noise)] += self.noise
        return np.asarray(meat)


def _shares(problem: LinearProblem, reports: ExpectedReports) -> Array:
    sums = problem.rows.reduce(partial(_group_sums, reports=reports))[0]
    return np.asarray(sums / sums.sum())
