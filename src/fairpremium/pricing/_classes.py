"""From a portfolio to fitted prices, for one model class or for the best of several.

The linear class has a sandwich covariance. Every other class gets a delete-a-group jackknife: the rows are divided into
folds, the whole fit is repeated without each of them, and the premiums' scatter is scaled up accordingly.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from fairpremium.arrays import Array
from fairpremium.blocks import Rows, Stream, worth_merging
from fairpremium.corrections import (
    CHECK_ROWS,
    FAILURES,
    CandidateResult,
    Chosen,
    GroupFit,
    ModelChosen,
    ModelFit,
    ModelFitSettings,
    ReportChannel,
    Statistics,
    fit_correction,
    fit_model,
    held_persons,
    held_risk,
    held_volumes,
    mean_and_error,
    paired_z,
    plausible_range,
    portfolio_means,
    sandwich,
)
from fairpremium.families import Family, Normal
from fairpremium.models import Design, GroupModel, LinearModel, prepare
from fairpremium.noise import NoiseEstimator
from fairpremium.pricing._inputs import check_counts
from fairpremium.pricing._prices import Formula, LinearPrices, ModelPrices, Prices
from fairpremium.pricing._reference import balanced, marginal, reference_jacobian
from fairpremium.privacy import Channel, RandomizedResponse

_COMPARE_FOLDS = 5
_MERGE_FROM = 100_000  # rows from which merging is considered


@dataclass(frozen=True)
class Assignment:
    """What is to be learned, whatever the model class."""

    rows: Rows | Stream
    design: Design
    family: Family
    groups: tuple[Any, ...]
    channel: Channel | None
    estimator: NoiseEstimator | None  # that the channel is from
    correction: str
    pooling: float | None
    reference: Any
    fixed_reference: Array | None
    intervals: bool
    classifier: Any
    seed: int
    merge: bool | Literal["auto"] = "auto"

    @property
    def merges(self) -> bool:
        """Whether the linear class should fit to merged rows."""
        inverse = self.channel is None or self.correction == "inverse"
        clustered = isinstance(self.rows, Rows) and self.rows.cluster is not None
        if self.merge is True and not inverse:
            raise ValueError(
                f'Got merge=True with correction={self.correction!r}, but only "inverse" does not change when rows are '
                "merged."
            )
        if not inverse or clustered or self.merge is False or isinstance(self.family, Normal):
            return False  # squared loss has its moments and needs no second pass
        return self.merge is True or (len(self.rows) >= _MERGE_FROM and worth_merging(self.rows))

    @property
    def report_channel(self) -> ReportChannel:
        """The channel as the corrections need it."""
        return ReportChannel.of(self.channel, self.groups)

    def weights(self, shares: Array, group_means: Array, mean_loss: float) -> Array:
        """Compute P*."""
        if self.fixed_reference is not None:
            return self.fixed_reference
        if self.reference == "marginal":
            return marginal(shares, self.groups)
        return balanced(shares, group_means, mean_loss, self.groups)


@dataclass(frozen=True)
class Learned:
    """A fitted model class."""

    prices: Prices
    correction: str
    pooling: float
    shares: Array
    reference: Array
    model: LinearModel | GroupModel
    n_missing: int  # rows without a report
    history: Any = None


class ClassFit(ABC):
    """One model class, fitted to an assignment."""

    kind: str
    results: list[CandidateResult]

    @abstractmethod
    def without(self, train: Rows, held: Rows) -> Array:
        """Fit the same again on some rows and compute the linear predictors of others: shape (held, K)."""

    @abstractmethod
    def finish(self) -> Learned:
        """Compute P*, standard errors and prices."""


class LinearClass(ClassFit):
    """The (generalised) linear class."""

    kind = "linear"

    def __init__(self, task: Assignment, model: LinearModel):
        self.task, self.model = task, model
        rng = np.random.default_rng(task.seed)
        rows = task.rows
        n_folds = 1 if task.pooling is not None else _n_folds(len(rows))
        if n_folds > 1:
            rows = rows.with_folds(rows.draw_folds(n_folds, rng))  # type: ignore[arg-type]
        channel = task.report_channel
        self.rows = rows
        problem = prepare(rows, channel.n_codes, n_folds, task.family, model, task.design.features, merge=task.merges)
        counts = problem.moments.counts.sum(axis=0)
        check_counts(counts[:-1], channel.labels, task.groups)
        self.n_missing = int(counts[-1])
        correction = "inverse" if task.channel is None else task.correction
        self.chosen: Chosen = fit_correction(problem, channel, correction, task.pooling, rng, task.classifier)
        self.results = self.chosen.results

    def without(self, train: Rows, held: Rows) -> Array:
        """Fit again on some rows and price others."""
        fit = self.chosen.refit(self.task.report_channel, self.chosen.fit.problem.on(train)).fit
        return np.asarray(held.X @ fit.coefficients[1:] + fit.coefficients[0])

    def finish(self) -> Learned:
        """Compute P*, the sandwich covariance and the prices."""
        task, fit = self.task, self.chosen.fit
        each = replace(fit, problem=replace(fit.problem, rows=self.rows))  # merged rows do not show their scatter
        statistics = _statistics(each, task.intervals, need_means=_is_balanced(task.reference))
        if task.intervals and task.estimator is not None:
            statistics = _add_channel_error(statistics, self.chosen, task.estimator, task.groups)
        reference = task.weights(statistics.shares, statistics.group_means, statistics.mean_loss)
        covariance = _premium_covariance(task.reference, reference, statistics)
        prices = LinearPrices(
            task.family,
            task.design,
            task.groups,
            fit.coefficients,
            fit.unaware_coefficients[:, 0],
            reference,
            covariance,
        )
        return Learned(prices, fit.correction, fit.strength, fit.shares, reference, self.model, self.n_missing)


class NonlinearClass(ClassFit):
    """Any other model class."""

    def __init__(self, task: Assignment, model: GroupModel):
        self.task, self.model, self.kind = task, model, model.kind
        self.rows = _in_memory(task)
        correction = "none" if task.channel is None else task.correction
        learner = model.learner(task.design, task.family)
        settings = ModelFitSettings(
            task.family,
            task.report_channel,
            model,
            learner,
            task.pooling,
            task.classifier,
            task.seed,
            task.design.features,
        )
        self.chosen: ModelChosen = fit_model(settings, self.rows, correction)
        self.results = self.chosen.results

    def without(self, train: Rows, held: Rows) -> Array:
        """Fit again on some rows and price others."""
        fit = self.chosen.refit(train)
        return fit.predictor(fit.start.lift_rows(held))

    def finish(self) -> Learned:
        """Compute P*, the jackknife's fits and the prices."""
        task, fit = self.task, self.chosen.fit
        formula = self._formula(fit)
        replicates: tuple[Formula, ...] = ()
        shifted: tuple[Formula, ...] = ()
        shift = 0.0
        if task.intervals:
            try:
                replicates = tuple(self._replicates())
                if task.estimator is not None:
                    shifted, shift = self._shifted(task.estimator)
            except FAILURES as error:
                replicates = ()
                warnings.warn(
                    f"The prices have no intervals: the fit could not be repeated on other rows or for another keep. "
                    f"{error}",
                    UserWarning,
                    stacklevel=6,
                )
        prices = ModelPrices(task.family, task.design, task.groups, formula, replicates, shifted, shift)
        missing = int(np.count_nonzero(self.rows.report == task.report_channel.n_codes - 1))
        history = None if fit.prices is None else getattr(fit.prices, "history", None)
        return Learned(
            prices, fit.correction, fit.strength, fit.shares, formula.reference, self.model, missing, history
        )

    def _formula(self, fit: ModelFit) -> Formula:
        rows = self.rows
        group_means, loss = np.full(len(fit.shares), np.nan), np.nan
        if _is_balanced(self.task.reference):
            mu = self.task.family.link.mean_of(fit.predictor(fit.start.lift_rows(rows)))
            group_means = np.average(mu, axis=0, weights=rows.weight)
            loss = float(np.average(rows.y, weights=rows.weight))
        reference = self.task.weights(fit.shares, group_means, loss)
        return Formula(
            fit.unaware.center, fit.unaware.prices, fit.coefficients, fit.prices, reference, plausible_range(fit.start)
        )

    def _replicates(self) -> list[Formula]:
        rows, folds = self.rows, self.model.replicates
        fold = rows.draw_folds(folds, np.random.default_rng(self.task.seed))
        return [self._formula(self.chosen.without(fold == g)) for g in range(folds)]

    def _shifted(self, estimator: NoiseEstimator) -> tuple[tuple[Formula, ...], float]:
        """Fit with keep a little higher and lower, and what a unit of their difference is in standard errors."""
        step = _keep_step(estimator, len(self.task.groups))
        if step is None:
            return (), 0.0
        channels = [RandomizedResponse(self.task.groups, keep=estimator.keep_ + sign * step) for sign in (1, -1)]
        fits = [self.chosen.with_channel(ReportChannel.of(channel)) for channel in channels]
        return tuple(self._formula(fit) for fit in fits), estimator.standard_error_ / (2 * step)


def learn(task: Assignment, models: list[LinearModel | GroupModel]) -> tuple[Learned, list[CandidateResult]]:
    """Fit each model class and keep the one whose held-out corrected risk is smallest.

    Parameters
    ----------
    task : Assignment
    models : list
        Model classes, the preferred one first: a later one has to be better than it.
    """
    if not all(isinstance(model, LinearModel) for model in models):
        _in_memory(task)
    fits: list[ClassFit] = []
    failed: list[CandidateResult] = []
    for model in models:
        kind = "linear" if isinstance(model, LinearModel) else model.kind
        try:
            fits.append(LinearClass(task, model) if isinstance(model, LinearModel) else NonlinearClass(task, model))
        except FAILURES as error:
            failed.append(
                CandidateResult(task.correction, "", np.nan, False, f"could not be fitted: {error}", model=kind)
            )
            if len(failed) == len(models):
                raise
    if len(fits) == 1:
        return fits[0].finish(), [*fits[0].results, *failed]
    best, results = _compare(task, fits)
    return best.finish(), [*results, *failed]


def candidates_table(results: list[CandidateResult], correction: str) -> pd.DataFrame:
    """Return the results of all candidates as a table; the true attribute needs no correction."""
    return pd.DataFrame(
        {
            "model": [r.model for r in results],
            "correction": [
                correction if r.correction == "inverse" and correction == "none" else r.correction for r in results
            ],
            "detail": [r.detail for r in results],
            "pooling": [r.pooling for r in results],
            "corrected_risk": [r.risk for r in results],
            "corrected_risk_se": [r.risk_error for r in results],
            "report_log_loss": [r.report_loss for r in results],
            "report_log_loss_se": [r.report_loss_error for r in results],
            "chosen": [r.chosen for r in results],
            "reason": [r.reason for r in results],
        }
    )


def correction_for(model: LinearModel | GroupModel, correction: str) -> str:
    """Return the correction with which a pricer that ended with this one can be fitted again.

    The true attribute needs none, and a model class may have ended with its linear start, whose corrections it does
    not serve itself.
    """
    served = isinstance(model, LinearModel) or correction in model.corrections
    return correction if served and correction != "none" else "auto"


def _compare(task: Assignment, fits: list[ClassFit]) -> tuple[ClassFit, list[CandidateResult]]:
    """Judge what each class chose by the corrected risk on folds that it did not see, the same for all.

    A class that cannot be fitted without a fold is out, unless that is true of all.
    """
    rng = np.random.default_rng(task.seed)
    rows, table = _in_memory(task), task.report_channel.table
    if len(rows) > CHECK_ROWS:
        rows = rows.take(np.sort(rng.choice(len(rows), CHECK_ROWS, replace=False)))
    fold = rows.draw_folds(_COMPARE_FOLDS, rng)
    held = [rows.take((fold == f) & (rows.report < table.shape[1] - 1)) for f in range(_COMPARE_FOLDS)]
    weight, person = held_volumes(held), held_persons(held)
    risk: dict[int, Array] = {}
    trouble: dict[int, str] = {}
    for i, fit in enumerate(fits):
        try:
            risk[i] = np.concatenate(
                [held_risk(task.family, h, fit.without(rows.take(fold != f), h), table) for f, h in enumerate(held)]
            )
        except FAILURES as error:
            trouble[i] = f"could not be fitted without a fold of the rows: {error}"
            if len(trouble) == len(fits):
                raise
    best = min(risk, key=lambda i: mean_and_error(risk[i], weight)[0])
    results = []
    for i, fit in enumerate(fits):
        for result in fit.results:
            if result.chosen and i in trouble:
                result = replace(result, chosen=False, reason=trouble[i])
            elif result.chosen:
                gap = paired_z(risk[i] - risk[best], weight, person)
                mean, error_of_mean = mean_and_error(risk[i], weight, person)
                reason = (
                    f"{result.reason}; smallest corrected risk of all model classes"
                    if i == best
                    else f"corrected risk {gap:.1f} standard errors above that of the {fits[best].kind} model"
                )
                result = replace(result, chosen=i == best, reason=reason, risk=mean, risk_error=error_of_mean)
            results.append(result)
    return fits[best], results


def _in_memory(task: Assignment) -> Rows:
    """Return the rows, or say that this cannot be done with rows that are read piece by piece."""
    if isinstance(task.rows, Stream):
        raise ValueError(
            f'Got a source of {len(task.rows):,} rows, but only model="linear" fits rows that are read piece by piece; '
            "for another model class, or a choice between several, pass a table that fits into memory."
        )
    return task.rows


def _n_folds(n: int) -> int:
    """Folds that choose the pooling strength: with many rows few folds tell it as well, and a pass is faster."""
    return int(min(n, 10 if n < 20_000 else 5 if n < 5_000_000 else 2))


def _is_balanced(reference: Any) -> bool:
    return isinstance(reference, str) and reference == "balanced"


def _statistics(fit: GroupFit, intervals: bool, *, need_means: bool) -> Statistics:
    if intervals:
        return sandwich(fit)
    K = len(fit.shares)
    H, _, loss = portfolio_means(fit) if need_means else (np.full(K, np.nan), None, np.nan)
    return Statistics(fit.coefficients, fit.shares, H, loss, np.empty((0, 0)))


def _keep_step(estimator: NoiseEstimator, K: int) -> float | None:
    """Return how far keep is moved to see what its error does; None if it has none."""
    keep, error = estimator.keep_, estimator.standard_error_
    if not (np.isfinite(error) and error > 0 and np.isfinite(keep)):
        return None
    return float(min(error / 2, (1 - keep) / 2, (keep - 1 / K) / 2))


def _add_channel_error(
    statistics: Statistics, chosen: Chosen, estimator: NoiseEstimator, groups: tuple[Any, ...]
) -> Statistics:
    """Add the uncertainty of an estimated keep, by the delta method with a central difference.

    The estimate of keep is taken as independent of the fit given its own sample, which holds for
    validation and retest samples and to first order for the others.
    """
    step = _keep_step(estimator, len(groups))
    if step is None:
        return statistics

    def stacked(keep: float) -> Array:
        near = chosen.refit(ReportChannel.of(RandomizedResponse(groups, keep=keep))).fit
        H = portfolio_means(near)[0]
        return np.concatenate([near.coefficients.T.ravel(), near.shares, H, [statistics.mean_loss]])

    slope = (stacked(estimator.keep_ + step) - stacked(estimator.keep_ - step)) / (2 * step)
    variance = estimator.standard_error_**2
    return replace(statistics, covariance=statistics.covariance + variance * np.outer(slope, slope))


def _premium_covariance(reference: Any, weights: Array, statistics: Statistics) -> Array | None:
    """Reduce the covariance of all statistics to that of the coefficients and P*."""
    if not len(statistics.covariance):
        return None
    size = statistics.coefficients.size
    jacobian = reference_jacobian(
        reference if isinstance(reference, str) else "given",
        weights,
        statistics.shares,
        statistics.group_means,
        statistics.mean_loss,
    )
    L = np.zeros((size + len(weights), len(statistics.covariance)))
    L[:size, :size] = np.eye(size)
    L[size:, size:] = jacobian
    return np.asarray(L @ statistics.covariance @ L.T)
