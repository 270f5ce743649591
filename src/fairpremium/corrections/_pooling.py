"""Choice of the pooling strength by the cross-validated corrected risk."""

from dataclasses import dataclass, replace

import numpy as np

from fairpremium.arrays import Array
from fairpremium.blocks import RowFunction, Rows
from fairpremium.corrections._report_channel import ReportChannel
from fairpremium.errors import ConvergenceError, RiskUnboundedError
from fairpremium.models import GlmRisk, LinearProblem, minimise, newton_point

MAX_ROWS = 100_000  # rows that choose the strength of a generalised linear model


@dataclass(frozen=True)
class StrengthRisk:
    """One pooling strength with its cross-validated corrected risk."""

    strength: float
    risk: float
    standard_error: float
    problem: str  # why it cannot be chosen; empty if it can


def strengths(total_weight: float) -> Array:
    """Return the strengths to try: none, from a ten thousandth to ten times the portfolio's volume, and three so
    large that the groups' prices are nearly one, which always has a minimum.
    """
    return np.concatenate([[0.0], total_weight * np.logspace(-4, 1, 11), total_weight * np.array([1e2, 1e4, 1e6])])


def choose_strength(
    problem: LinearProblem,
    channel: ReportChannel,
    pooling: float | None,
    rng: np.random.Generator,
    shares: RowFunction | None = None,
) -> tuple[float, list[StrengthRisk]]:
    """Return a given strength, or the one with the smallest corrected risk, and the risks that were compared.

    See `cross_validate_strengths` for the parameters.
    """
    if pooling is not None:
        return pooling, []
    risks = cross_validate_strengths(problem, channel, rng, shares)
    usable = [r for r in risks if not r.problem]
    if not usable:
        if shares is None:
            problem.solve(channel.table, 0.0, channel.groups)  # says which group, and what helps
        raise RiskUnboundedError("No pooling strength gives a corrected risk with a minimum in every training fold.")
    return min(usable, key=lambda r: r.risk).strength, risks


def cross_validate_strengths(
    problem: LinearProblem, channel: ReportChannel, rng: np.random.Generator, shares: RowFunction | None = None
) -> list[StrengthRisk]:
    """Cross-validate the corrected risk over pooling strengths, on rows that are divided into folds.

    `rng` draws a sample of the rows when there are too many. `shares`, from a block to row weights
    P(D = k given x, y, s), takes the place of T^-1[k, s] in fits and risk: unbiased if it is right, and far less noisy.

    Notes
    -----
    For squared loss each training fit is exact and costs no pass, because there are moments of each fold. For other
    families the fit without a fold is one Newton step from the fit on all rows with the fold's own gradient and Hessian
    taken away, whose error is of second order in the fold's influence. Held-out risks are always exact. Strengths are
    counted in rows, so that a choice made on a sample of a large portfolio holds for the whole.
    """
    if shares is None:
        sample = problem.sample(MAX_ROWS, rng)
        risk = sample.risk(channel.table, folds=True)
    else:
        sample = problem.sample(MAX_ROWS, rng, by_row=True)
        sample = replace(sample, rows=sample.rows.with_shares(shares))
        risk = GlmRisk(sample.rows, sample.moments, channel.table, sample.family)
    n_folds = len(sample.moments.second)
    grid = strengths(problem.moments.total_weight)
    volume = _reported_volume(sample, channel, n_folds)
    B = np.zeros((n_folds, len(grid), risk.q, risk.n_groups))
    trouble = [""] * len(grid)
    start = sample.start(risk.n_groups)
    for c in reversed(range(len(grid))):  # from nearly one price for all to none in common
        penalty = sample.penalty(float(grid[c]))
        try:
            minimum = minimise(risk, penalty, start, channel.groups, max_iter=sample.model.max_iter, tol=1e-7)
        except (RiskUnboundedError, ConvergenceError):
            trouble[c] = "the corrected risk has no minimum"
            continue
        start = minimum.B
        for f in range(n_folds):
            others = np.arange(n_folds) != f
            point = newton_point(minimum.expansion.select(others), penalty, minimum.B)
            if point is None:
                trouble[c] = "the corrected risk has no minimum in a training fold"
                break
            B[f, c] = point
    deviance = risk.deviance(B)  # (folds, strengths)
    return _summary(grid, deviance, volume, trouble)


def _reported_volume(problem: LinearProblem, channel: ReportChannel, n_folds: int) -> Array:
    rows = problem.rows
    if not isinstance(rows, Rows):
        return np.asarray(problem.moments.weights[:, :-1].sum(axis=1))
    assert rows.fold is not None
    reported = rows.report < channel.n_codes - 1
    weight = reported.astype(float) if rows.weight is None else np.where(reported, rows.weight, 0.0)
    return np.asarray(np.bincount(rows.fold, weights=weight, minlength=n_folds), dtype=np.float64)


def _summary(grid: Array, deviance: Array, volume: Array, trouble: list[str]) -> list[StrengthRisk]:
    finite = np.asarray(np.isfinite(deviance).all(axis=0))
    mean = np.where(finite, deviance, np.nan).sum(axis=0) / volume.sum()
    per_fold = deviance / volume.mean()  # their mean over folds is `mean`
    risks = []
    for c, strength in enumerate(grid.tolist()):
        problem = trouble[c] or ("" if finite[c] else "the corrected risk is not finite")
        error = np.nan if problem else float(per_fold[:, c].std(ddof=1) / np.sqrt(len(volume)))
        risks.append(StrengthRisk(strength, np.nan if problem else float(mean[c]), error, problem))
    return risks
