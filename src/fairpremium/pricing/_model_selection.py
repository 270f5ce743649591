"""From a portfolio to fitted prices, for one model class or for the best of several.

The linear class has a sandwich covariance. Every other class gets a delete-a-group jackknife: the rows are divided into
folds, the whole fit is repeated without each of them, and the premiums' scatter is scaled up accordingly.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairpremium.arrays import Array
from fairpremium.blocks import Block, Rows, Stream, at_once, one_blas_thread
from fairpremium.corrections import (
    CHECK_ROWS,
    FAILURES,
    CandidateResult,
    Chosen,
    FitInput,
    GroupFit,
    ModelFit,
    ReportChannel,
    Statistics,
    balance_shift,
    fit_correction,
    fit_model,
    held_persons,
    held_risk,
    held_volumes,
    mean_and_error,
    paired_z,
    portfolio_means,
    sandwich,
)
from fairpremium.models import AddedPrices, GroupModel, LinearModel, prepare
from fairpremium.noise import NoiseEstimator
from fairpremium.pricing._fit_arguments import check_counts
from fairpremium.pricing._fit_quality import Outcomes, PriceQuality, count_parameters, measure_fit, with_joint_aic
from fairpremium.pricing._prices import Formula, LinearPrices, ModelPrices, Prices, Reference
from fairpremium.privacy import KeyedChannels, RandomizedResponse
from fairpremium.progress import section, tell

_COMPARE_FOLDS = 5
_SAMPLE_ROWS = 200_000  # rows of a source that a model class beyond the linear one is fitted to,
_SAMPLE_CELLS = 20_000_000  # or fewer, if they have many features
_COLUMNS = {  # of the table of candidates, from fields of a result
    "model": "model",
    "correction": "correction",
    "detail": "detail",
    "pooling": "pooling",
    "corrected_risk": "risk",
    "corrected_risk_se": "risk_error",
    "report_log_loss": "report_loss",
    "report_log_loss_se": "report_loss_error",
    "chosen": "chosen",
    "reason": "reason",
}


class ClassFit(ABC):
    """One model class, fitted."""

    inputs: FitInput
    model: LinearModel | GroupModel
    fit: GroupFit | ModelFit
    results: list[CandidateResult]
    n_missing: int  # rows without a report

    @abstractmethod
    def without(self, train: Rows, held: Rows) -> Array:
        """Fit the same again on some rows and compute the linear predictors of others: shape (held, K)."""

    @abstractmethod
    def prices(self, reference: Reference, intervals: bool) -> Prices:
        """Compute P*, standard errors if wanted, and the prices."""

    @abstractmethod
    def quality(self, prices: Prices) -> tuple[PriceQuality, ...]:
        """Measure prices on the rows of the fit."""


@dataclass(frozen=True)
class LinearFit(ClassFit):
    """The (generalised) linear class."""

    inputs: FitInput
    model: LinearModel
    chosen: Chosen
    n_missing: int

    @property
    def fit(self) -> GroupFit:  # type: ignore[override]
        """The group prices."""
        return self.chosen.fit

    @property
    def results(self) -> list[CandidateResult]:  # type: ignore[override]
        """What the checks found."""
        return self.chosen.results

    @classmethod
    def of(cls, inputs: FitInput, model: LinearModel) -> LinearFit:
        """Fit with the given correction, or choose one."""
        channel, rows, design = inputs.channel, inputs.rows, inputs.design
        tell(0.0, "linear model: adding up the rows, the unaware price")
        problem = prepare(
            rows,
            channel.n_codes,
            inputs.family,
            model,
            design.features,
            merge=inputs.merges(),
            origins=design.origins,
        )
        counts = problem.moments.counts
        if isinstance(rows, Stream):  # its reports are counted by this first pass; those in memory were at the entry
            check_counts(counts, channel)
        correction = "inverse" if channel.truth else inputs.correction
        with section(0.2, 1.0):
            chosen = fit_correction(problem, channel, correction, inputs.pooling, inputs.classifier)
        return cls(inputs, model, chosen, int(counts[-1]))

    def without(self, train: Rows, held: Rows) -> Array:
        """Fit again on some rows and price others."""
        fit = self.chosen.refit(self.inputs.channel, self.chosen.fit.problem.on(train)).fit
        return np.asarray(held.X @ fit.coefficients[1:] + fit.coefficients[0])

    @one_blas_thread()
    def prices(self, reference: Reference, intervals: bool) -> LinearPrices:
        """Compute P*, the sandwich covariance and the prices."""
        inputs, fit = self.inputs, self.chosen.fit
        each = replace(fit, problem=replace(fit.problem, rows=inputs.rows))  # merged rows do not show their scatter
        if intervals:
            tell(0.0, "standard errors")
        statistics = sandwich(each) if intervals else _point_estimates(each, reference.needs_means)
        if intervals:
            statistics = _add_channel_error(statistics, self.chosen, inputs.channel)
        weights = reference.distribution(statistics.shares, statistics.group_means, statistics.mean_loss)
        prices = LinearPrices(
            inputs.family,
            inputs.design,
            inputs.channel.groups,
            fit.coefficients,
            fit.unaware_coefficients[:, 0],
            weights,
            reference.covariance(weights, statistics),
            statistics.group_covariance,
            statistics.unaware_covariance,
        )
        return replace(prices, quality=self.quality(prices)) if intervals else prices

    def quality(self, prices: Prices) -> tuple[PriceQuality, ...]:
        """Measure prices on the rows of the fit."""
        inputs, fit, parameters = self.inputs, self.chosen.fit, count_parameters(self.chosen)
        found = measure_fit(inputs.rows, inputs.channel, prices, Outcomes.of_fit(fit), parameters, fit)
        return with_joint_aic(found, self.chosen, parameters[1])


@dataclass(frozen=True)
class NonlinearFit(ClassFit):
    """Any other model class."""

    inputs: FitInput
    model: GroupModel
    fit: ModelFit
    n_missing: int

    @property
    def results(self) -> list[CandidateResult]:  # type: ignore[override]
        """What the checks found."""
        return self.fit.results

    @classmethod
    def of(cls, inputs: FitInput, model: GroupModel) -> NonlinearFit:
        """Fit with the given correction, or choose one."""
        fit = fit_model(inputs, model)
        missing = inputs.rows_in_memory().report == inputs.channel.n_codes - 1
        return cls(inputs, model, fit, int(np.count_nonzero(missing)))

    def without(self, train: Rows, held: Rows) -> Array:
        """Fit again on some rows and price others."""
        return self.fit.refit(train).predictor(held.X)

    def prices(self, reference: Reference, intervals: bool) -> ModelPrices:
        """Compute P*, the jackknife's fits and the prices."""
        inputs = self.inputs
        formula = self._formula(self.fit, reference)
        replicates: tuple[Formula, ...] = ()
        shifted: tuple[Formula, ...] = ()
        shift = 0.0
        if intervals:
            try:
                fold = inputs.rows_in_memory().draw_folds(self.model.replicates, np.random.default_rng(inputs.seed))
                replicates = self._replicates(fold, reference)
                shifted, shift = self._shifted(reference)
            except FAILURES as error:
                replicates = ()
                warnings.warn(
                    f"The prices have no intervals: the fit could not be repeated on other rows or for another keep. "
                    f"{error}",
                    UserWarning,
                    stacklevel=4,
                )
        prices = ModelPrices(inputs.family, inputs.design, inputs.channel.groups, formula, replicates, shifted, shift)
        return replace(prices, quality=self.quality(prices)) if intervals else prices

    def quality(self, prices: Prices) -> tuple[PriceQuality, ...]:
        """Measure prices on the rows of the fit."""
        rows, uncounted = self.inputs.rows_in_memory(), (float("nan"), float("nan"))
        outcomes = Outcomes.of(rows, self.inputs.channel.n_codes)
        return measure_fit(rows, self.inputs.channel, prices, outcomes, uncounted)

    @property
    def _several(self) -> bool:
        return self.model.several_at_once(len(self.inputs.rows))

    def _replicates(self, fold: npt.NDArray[np.integer[Any]], reference: Reference) -> tuple[Formula, ...]:
        """Fit again without each fold of the rows."""
        count = self.model.replicates

        def before(g: int) -> None:
            tell(g / count, f"intervals: fit {g + 1} of {count} without a part of the rows")

        def without(g: int) -> Formula:
            return self._formula(self.fit.without(fold == g), reference)

        return tuple(at_once([partial(without, g) for g in range(count)], before, self._several))

    def _formula(self, fit: ModelFit, reference: Reference) -> Formula:
        rows = self.inputs.rows_in_memory()
        group_means, loss = np.full(len(fit.shares), np.nan), np.nan
        if reference.needs_means:
            mu = self.inputs.family.link.mean_of(fit.predictor(rows.X))
            group_means = np.average(mu, axis=0, weights=rows.weight)
            loss = float(np.average(rows.y, weights=rows.weight))
        weights = reference.distribution(fit.shares, group_means, loss)
        return Formula(fit.unaware, fit.groups, weights, fit.bounds)

    def _shifted(self, reference: Reference) -> tuple[tuple[Formula, ...], float]:
        """Fit with each estimated keep a little higher and lower, and what their difference is in standard errors."""
        pairs, shift = near_channels(self.inputs.channel)
        near = [channel for pair in pairs for channel in pair]

        def shifted(channel: ReportChannel) -> Formula:
            return self._formula(self.fit.with_channel(channel), reference)

        fits = [partial(shifted, channel) for channel in near]
        return tuple(at_once(fits, several=self._several)), shift


def select_model(
    inputs: FitInput, models: Sequence[LinearModel | GroupModel]
) -> tuple[ClassFit, list[CandidateResult]]:
    """Fit each model class and return the one whose held-out corrected risk is smallest, with all results.

    The preferred class is the first: a later one has to be better than it. Of a source that is read piece by piece all
    rows are fitted by the linear class alone, and a random sample by other classes.
    """
    every = inputs
    if isinstance(inputs.rows, Stream) and not all(isinstance(model, LinearModel) for model in models):
        sample = draw_sample(inputs.rows, inputs.seed)
        check_counts(np.bincount(sample.report, minlength=inputs.channel.n_codes), inputs.channel)
        inputs = replace(inputs, rows=sample)
    fits: list[ClassFit] = []
    failed: list[CandidateResult] = []
    for i, model in enumerate(models):
        try:
            linear = isinstance(model, LinearModel)
            with section(i / len(models), (i + 1) / len(models)):
                fits.append(LinearFit.of(inputs, model) if linear else NonlinearFit.of(inputs, model))
        except FAILURES as error:
            reason = f"could not be fitted: {error}"
            failed.append(CandidateResult(inputs.correction, "", np.nan, False, reason, model=model.kind))
            if len(failed) == len(models):
                raise
    best, results = (fits[0], fits[0].results) if len(fits) == 1 else _compare(inputs, fits)
    if isinstance(best, LinearFit) and every is not inputs:
        best = LinearFit.of(every, best.model)
    elif isinstance(best, NonlinearFit) and isinstance(every.rows, Stream):
        missing = every.channel.n_codes - 1
        best = replace(best, n_missing=len(every.rows) - len(every.rows.reported(missing)))
    return best, [*results, *failed]


def draw_sample(rows: Stream, seed: int) -> Rows:
    """Return random rows of a source, in their order: as many as a model class beyond the linear one is fitted to."""
    size = min(len(rows), _SAMPLE_ROWS, max(2, _SAMPLE_CELLS // max(1, rows.n_features)))
    tell(0.0, f"reading {size:,} random rows of {len(rows):,}")
    return rows.take(np.sort(np.random.default_rng(seed).choice(len(rows), size, replace=False)))


def balance_on(prices: ModelPrices, rows: Stream) -> ModelPrices:
    """Shift all prices of a model class together, so that the unaware price reproduces the total of all rows.

    They reproduce that of the sample that they were fitted to. The shift takes the sample's error of the total away
    from the groups' prices, too. Intervals stay those of the sample.
    """
    shift = balance_shift(prices.family, rows, _UnawarePredictor(prices.formula.unaware), _everyone)

    def moved(formula: Formula) -> Formula:
        # best estimates are linear in u(x), too: what the shift of u(x) does to them is taken back
        best, start = formula.best, formula.best.coefficients.copy()
        start[0] -= shift * start[-1]
        return replace(
            formula,
            unaware=replace(formula.unaware, shift=formula.unaware.shift + shift),
            best=replace(best, coefficients=start, shift=best.shift + shift),
        )

    return replace(
        prices,
        formula=moved(prices.formula),
        replicates=tuple(map(moved, prices.replicates)),
        shifted=tuple(map(moved, prices.shifted)),
    )


def _everyone(block: Block) -> Array:
    return np.ones((len(block.y), 1))


@dataclass(frozen=True)
class _UnawarePredictor:
    """Linear predictors of u(x); it is sent to the workers."""

    unaware: AddedPrices

    def __call__(self, block: Block) -> Array:
        return self.unaware.predictor(block.X, block.X)


def candidates_table(results: list[CandidateResult], correction: str) -> pd.DataFrame:
    """Return the results of all candidates as a table; the true attribute needs no correction."""
    table = pd.DataFrame({column: [getattr(r, name) for r in results] for column, name in _COLUMNS.items()})
    if correction == "none":
        table["correction"] = ["none" if r.correction == "inverse" else r.correction for r in results]
    return table


def describe_pooling(pooling: float | dict[str, Any]) -> str:
    """Say in words how groups were pooled: `pooling_` of a pricer."""
    if isinstance(pooling, float | int):
        return f"{pooling:.4g} rows"
    slopes = pooling["slopes"].values()
    between = f", of their slopes {min(slopes):.3g} to {max(slopes):.3g}" if slopes else ""
    return f"empirical Bayes; standard deviation of the groups' levels {pooling['main']:.3g}{between}"


def correction_for(model: LinearModel | GroupModel, correction: str) -> str:
    """Return the correction with which a pricer that ended with this one can be fitted again.

    The true attribute needs none, and a model class may have ended with its linear start, whose corrections it does
    not serve itself.
    """
    return correction if correction in model.corrections else "auto"


def _compare(inputs: FitInput, fits: list[ClassFit]) -> tuple[ClassFit, list[CandidateResult]]:
    """Compare what each class chose by the corrected risk on folds that it did not see, the same for all.

    A class that cannot be fitted without a fold is out, unless that is true of all.
    """
    rng = np.random.default_rng(inputs.seed)
    rows, table = inputs.rows_in_memory(), inputs.channel.table
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
                [held_risk(inputs.family, h, fit.without(rows.take(fold != f), h), table) for f, h in enumerate(held)]
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
                    else f"corrected risk {gap:.1f} standard errors above that of the {fits[best].model.kind} model"
                )
                result = replace(result, chosen=i == best, reason=reason, risk=mean, risk_error=error_of_mean)
            results.append(result)
    return fits[best], results


def _point_estimates(fit: GroupFit, need_means: bool) -> Statistics:
    """Return the statistics without their covariance, which needs another pass over the rows."""
    K = len(fit.shares)
    H, _, loss = portfolio_means(fit) if need_means else (np.full(K, np.nan), None, np.nan)
    return Statistics(fit.coefficients, fit.shares, H, loss, np.empty((0, 0)))


def near_channels(channel: ReportChannel) -> tuple[list[tuple[ReportChannel, ReportChannel]], float]:
    """Return the channel with each estimated keep moved up and down, and what the difference is in standard errors.

    There is one pair for each source whose keep is estimated with an error, none if there is none.
    """
    keyed = channel.channel if isinstance(channel.channel, KeyedChannels) else None
    estimators = channel.estimator or {}
    if isinstance(estimators, NoiseEstimator):
        estimators = {None: estimators}
    K = len(channel.groups)
    moves = {}  # how far a keep may be moved, in standard errors
    for key, estimator in estimators.items():
        keep, error = estimator.keep_, estimator.standard_error_
        if np.isfinite(error) and error > 0 and np.isfinite(keep):
            moves[key] = min(error / 2, (1 - keep) / 2, (keep - 1 / K) / 2) / error
    if not moves:
        return [], 0.0
    move = min(moves.values())

    def at(key: Any, sign: int) -> ReportChannel:
        estimator = estimators[key]
        keep = float(estimator.keep_ + sign * move * estimator.standard_error_)
        moved = RandomizedResponse(channel.groups, keep=keep)
        near = moved if keyed is None else KeyedChannels({**keyed, key: moved}, groups=channel.groups)
        return replace(ReportChannel.of(near), everyone=channel.everyone)

    return [(at(key, 1), at(key, -1)) for key in moves], 1 / (2 * move)


def _add_channel_error(statistics: Statistics, chosen: Chosen, channel: ReportChannel) -> Statistics:
    """Add the uncertainty of estimated keeps, by the delta method with central differences.

    The estimates of keep are taken as independent of the fit, and of each other, given their own samples, which holds
    for validation and retest samples and to first order for the others.
    """

    def stacked(near: ReportChannel) -> Array:
        fit = chosen.refit(near).fit
        H = portfolio_means(fit)[0]
        return np.concatenate([fit.coefficients.T.ravel(), fit.shares, H, [statistics.mean_loss]])

    pairs, shift = near_channels(channel)
    for up, down in pairs:
        slope = shift * (stacked(up) - stacked(down))
        single, own = statistics.group_covariance, slope[: statistics.coefficients.size]
        statistics = replace(
            statistics,
            covariance=statistics.covariance + np.outer(slope, slope),
            group_covariance=None if single is None else single + np.outer(own, own),
        )
    return statistics
