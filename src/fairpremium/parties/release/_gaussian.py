"""Linear models with the inverse correction, from noised sums: Newton steps that never see an exact gradient.

From the unaware price, which needs no report, each step computes

    g_k = sum_i T^-1[k, s_i] w_i loss'(y_i, z_i'b_k) z_i

at coefficients b_k that are released already. One report moves g by at most a length that features, outcomes, volumes
and b_k give exactly, in the worst case over all reports; Gaussian noise in proportion is added, and the step is
taken with a Hessian in which the reports are replaced by a released model of them. Everything else - pooling, shares,
standard errors with the noise in them - is computed from what was released.
"""

import hashlib
import math
from collections.abc import MutableMapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from fairpremium.arrays import Array
from fairpremium.blocks import Block, RowFunction, Rows, Stream, one_blas_thread
from fairpremium.corrections import CandidateResult, GroupFit, Influence, ReportChannel, TableScores, sandwich
from fairpremium.errors import NotIdentifiedError
from fairpremium.families import get_family
from fairpremium.models import LinearModel, LinearProblem
from fairpremium.parties.protocol import Rules, round_count
from fairpremium.pricing import DiscriminationFreePricer, LinearPrices, Reference
from fairpremium.privacy import Channel

from ._accounting import mu_of
from ._disclosure import check_count_rules, measure, refuse
from ._expected_reports import ExpectedReports, floored, release_expected_reports
from ._fit_data import FitData, FitSettings
from ._noised_newton import Solver
from ._public_data import public_problem, weight_of
from ._release import Progress, Release, ReleaseSettings, labels_of_reports
from ._released_sums import Releaser, digest_of

_MU_SHARES = (0.20, 0.15, 0.20, 0.45)  # of mu^2: the model of the reports, then one gradient after the other


def release_gaussian(
    settings: FitSettings,
    data: FitData,
    channel: Any,
    groups: Sequence[Any] | None,
    privacy: ReleaseSettings,
    rules: Rules | None,
    tell: Progress,
    checkpoint: MutableMapping[str, Any] | None,
) -> Release:
    """Fit from noised sums; see `fit_release`."""
    model = LinearModel() if settings.model == "linear" else settings.model
    if not isinstance(model, LinearModel) or settings.correction not in ("inverse", "auto"):
        raise ValueError(
            'Got mechanism="gaussian" with another model or correction than linear and inverse; expected '
            'mechanism="randomized" for those.'
        )
    model.check()
    if model.slopes == "common":
        raise ValueError(
            'Got mechanism="gaussian" with slopes="common", but its noised sums are those of each group; expected '
            'slopes="own", or mechanism="randomized".'
        )
    if channel is not None and not isinstance(channel, Channel):
        raise ValueError('Got an unknown channel with mechanism="gaussian", but expected "randomized" for that.')
    family = get_family(settings.family)
    codes = labels_of_reports(channel, groups)
    groups = codes if channel is None else channel.groups
    report_channel = ReportChannel.of(channel, groups)
    pooling = None if settings.pooling == "auto" else float(settings.pooling)
    table = report_channel.table
    asked = (family, model.get_params(), table.tolist(), pooling, settings.reference, privacy.epsilon, privacy.delta)
    mu = mu_of(privacy.epsilon, privacy.delta)
    # Noise depends on the last digits of what follows, which the number of threads must not change.
    with one_blas_thread(), data.rows(codes, family, model.terms) as (rows, design):
        tell("unaware price", 0.0)
        problem = public_problem(rows, design, family, model)
        identity = hashlib.sha256(digest_of(rows) + repr(asked).encode()).digest()
        releaser = Releaser(privacy.secret, identity, {} if checkpoint is None else checkpoint)

        tell("reports", 0.1)
        expected = release_expected_reports(rows, problem, table, releaser.release, mu * math.sqrt(_MU_SHARES[0]))
        rule_results = []
        if rules is not None:
            rule_results = check_count_rules(measure(problem, design), len(rows) * expected.code_shares[:-1], rules)
            refuse(rule_results)
        solver = Solver(rows, problem, expected, pooling, releaser)
        B, strength = problem.start(len(groups)), 0.0
        bread = noise = np.empty((0, 0))
        for j, share in enumerate(_MU_SHARES[1:]):
            tell("step", 0.2 + 0.2 * j)
            point = solver.point(B, mu * math.sqrt(share), f"gradient {j + 1}")
            strength = solver.strength(point)
            B, bread, noise = solver.move(point, strength)

        tell("standard errors", 0.8)
        shares = _shares(problem, expected)
        scores = TableScores(problem, B, np.ascontiguousarray(table.T))
        share_scores = partial(_share_scores, reports=expected, shares=shares)
        influence = Influence(
            scores, np.asarray(np.linalg.inv(bread)), 0, share_scores, np.zeros((len(groups), B.size))
        )
        fit = GroupFit(problem, "inverse", report_channel, B, shares, strength, influence)
        statistics = sandwich(fit, partial(_meat, reports=expected, noise=noise))
    reference = Reference.of(settings.reference, groups)
    weights = reference.distribution(statistics.shares, statistics.group_means, statistics.mean_loss)
    covariance = reference.covariance(weights, statistics) if settings.intervals else None
    prices = LinearPrices(family, design, groups, fit.coefficients, fit.unaware_coefficients[:, 0], weights, covariance)
    if not np.isfinite(prices.coefficients).all():
        raise NotIdentifiedError("The noise that this epsilon needs leaves nothing of the prices.")
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
    tell("done", 1.0)
    return Release(
        pricer=pricer,
        mechanism="gaussian",
        epsilon=privacy.epsilon,
        delta=privacy.delta,
        statement=_STATEMENT.format(privacy.epsilon, privacy.delta),
        rule_results=tuple(rule_results),
        channel_used=channel,
        noise={"mu": mu, "sums": releaser.released},
        reported=round_count(len(rows) - pricer.n_missing_reports_, rules) or 0,
    )


_STATEMENT = (
    "The prices in this bundle are computed from sums over the reports with Gaussian noise: for any single report, its "
    "value and whether there is one, they are ({:.4g}, {:.2g})-differentially private. Fits of the same study add up."
)


# --- shares and standard errors ---


def _group_sums(block: Block, reports: ExpectedReports) -> tuple[Array, ...]:
    return (weight_of(block) @ (reports.groups(block) / reports.reported(block)[:, None]),)


def _share_scores(block: Block, reports: ExpectedReports, shares: Array) -> Array:
    """Compute what each row adds to the shares, per unit of weight; see `report_shares`."""
    r = reports.reported(block)[:, None]
    p = reports.groups(block) / r
    there = (block.report < reports.codes - 1)[:, None]
    weights = np.ascontiguousarray(reports.table.T)[block.report]
    return np.asarray((weights - there * p) / r + p - shares)


def _expected_squares(block: Block, contributions: RowFunction, reports: ExpectedReports) -> tuple[Array, ...]:
    """sum_i of E[u_i u_i'] over the reports that row i might have given, as they are expected and within bounds."""
    chances = reports.linear(block), reports.probabilities(block)
    total: Any = 0.0
    for s in range(reports.codes):
        U = contributions(block._replace(report=np.full(len(block.y), s, dtype=np.uint16)))
        total = total + np.stack([(U * chance[:, s, None]).T @ U for chance in chances])
    return (total,)


def _meat(rows: Rows | Stream, contributions: RowFunction, *, reports: ExpectedReports, noise: Array) -> Array:
    """Compute the expected squares of all contributions, with the noise in minus the gradient and the shares."""
    squares = partial(_expected_squares, contributions=contributions, reports=reports)
    meat = floored(*rows.reduce(squares, block_rows=2048)[0])
    meat[: len(noise), : len(noise)] += noise
    return np.asarray(meat)


def _shares(problem: LinearProblem, reports: ExpectedReports) -> Array:
    sums = problem.rows.reduce(partial(_group_sums, reports=reports))[0]
    return np.asarray(sums / sums.sum())
