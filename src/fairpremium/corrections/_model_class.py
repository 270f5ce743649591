"""A model class beyond the linear one: a linear start, and what the class adds to it.

1. The unaware price u(x) is the linear one plus what the class adds to it.
2. The groups start from the linear fit, with the correction that `fit_correction` chooses, in x and in what the class
   added to the unaware price. All rows teach the unaware price what the features do, whatever the noise.
3. To this start the class adds what it finds with the weights P(D given x, y, s) that go with the chosen correction:
   those of the likelihood if one was chosen, otherwise those of the posterior correction.
4. One shift of all linear predictors makes best estimates reproduce the portfolio's total.

Additions are cross-fitted: every row is priced by a fit that did not see it. They are taken if these prices are better
than those of the start by two standard errors, in deviance (the unaware price) or in corrected risk (the groups).
Otherwise the prices are the linear ones.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fairpremium.arrays import Array
from fairpremium.blocks import Rows
from fairpremium.corrections._balance import balance_shift
from fairpremium.corrections._checks import FAILURES, CandidateResult, held_risk, mean_and_error, paired_z
from fairpremium.corrections._choice import Chosen, fit_correction
from fairpremium.corrections._fit_input import FitInput
from fairpremium.corrections._objectives import MixtureObjective, Propensity, WeightedObjective
from fairpremium.corrections._report_channel import ReportChannel
from fairpremium.errors import ConvergenceError
from fairpremium.families import Family
from fairpremium.models import (
    AddedPrices,
    GroupModel,
    GroupPrices,
    Lesson,
    LinearModel,
    LinearProblem,
    Trainer,
    plausible_bounds,
    prepare,
)

_GAIN = 2.0  # standard errors by which additions must improve on the start
_FREE = ("auto", "likelihood")  # corrections that need not be taught by their own weights
_RIDGE = 1.0  # of the linear fits, in rows: a rare level must not stop them

Mask = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.intp]


@dataclass(frozen=True)
class ModelFit:
    """Group prices of a model class."""

    inputs: FitInput
    model: GroupModel
    unaware: AddedPrices
    lift: Array  # (n,), u(x) of each row by a fit that did not see it
    start: Chosen
    teacher: Chosen  # whose P(D given x, y, s) weight the rows, unless the channel does
    groups: AddedPrices  # of x, from a start that is linear in (x, u(x))
    correction: str
    results: list[CandidateResult]

    @property
    def pooling(self) -> float | dict[str, Any]:
        """Of the start; see `GroupFit`."""
        return self.start.fit.pooling

    @property
    def shares(self) -> Array:
        """Estimate of P(D): shape (K,)."""
        return self.start.fit.shares

    @property
    def bounds(self) -> tuple[float, float]:
        """The range that linear predictors cannot plausibly leave."""
        rows, family = self.inputs.rows_in_memory(), self.inputs.family
        center = family.link.predictor(np.asarray(np.average(rows.y, weights=rows.weight)))
        return plausible_bounds(family, rows.y, float(center))

    def predictor(self, X: npt.NDArray[Any]) -> Array:
        """Compute f_k(x): shape (n, K)."""
        return self.groups.predictor(X, np.column_stack([X, self.unaware.predictor(X, X)]))

    def refit(self, rows: Rows) -> ModelFit:
        """Fit the same, trained as long, on other rows."""
        return _Fitting(replace(self.inputs, rows=rows), self.model, self).fit()

    def without(self, fold: Mask) -> ModelFit:
        """Fit the same, trained as long, without a fold of the rows."""
        rows = self.inputs.rows_in_memory().take(~fold)
        return _Fitting(replace(self.inputs, rows=rows), self.model, self, ~fold).fit()

    def with_channel(self, channel: ReportChannel) -> ModelFit:
        """Fit the same, trained as long, for another channel."""
        everyone = np.ones(len(self.inputs.rows), dtype=bool)
        return _Fitting(replace(self.inputs, channel=channel), self.model, self, everyone).fit()


def fit_model(inputs: FitInput, model: GroupModel) -> ModelFit:
    """Fit a model class with the correction of the inputs, or for "auto" with the one that the checks choose."""
    return _Fitting(inputs, model).fit()


class _Fitting:
    """One fit.

    `like` is an earlier one, whose choices and numbers of rounds are taken over; `taken` says which of its rows these
    are, if they are.
    """

    def __init__(self, inputs: FitInput, model: GroupModel, like: ModelFit | None = None, taken: Mask | None = None):
        self.inputs, self.model, self.like, self.taken = inputs, model, like, taken
        self.rows, self.channel, self.family = inputs.rows_in_memory(), inputs.channel, inputs.family
        self.volume = np.ones((len(self.rows), 1)) if self.rows.weight is None else self.rows.weight[:, None]
        self.correction = "inverse" if self.channel.channel is None else inputs.correction
        self.trainer = Trainer(model, inputs.design, self.family, np.random.default_rng(inputs.seed))

    def fit(self) -> ModelFit:
        unaware, lift = self.fit_unaware()
        problem = self.problem(unaware, lift)
        like, settings = self.like, (self.inputs.pooling, self.inputs.classifier)
        if like is None:
            start = teacher = fit_correction(problem, self.channel, self.correction, *settings)
            alone = self.model.begin != "linear"  # then the start, which prices do not build on, does not teach them
            if (self.correction == "auto" and start.posterior is None) or (self.correction in _FREE and alone):
                teacher = fit_correction(problem, self.channel, "posterior", *settings)
        else:
            start = teacher = like.start.refit(self.channel, problem)
            if like.teacher is not like.start and like.groups.prices is not None:
                teacher = like.teacher.refit(self.channel, problem)
        groups = AddedPrices(_in_unaware(start.fit.coefficients, unaware))
        fit = ModelFit(self.inputs, self.model, unaware, lift, start, teacher, groups, start.fit.correction, [])
        if like is None:
            fit = self.choose(fit)
        elif like.groups.prices is not None:
            fit = self.add(fit, like.groups.prices)
        return self.balance(fit)

    # --- the unaware price and the start --------------------------------------------------------------------------

    def fit_unaware(self) -> tuple[AddedPrices, Array]:
        """Fit the unaware price; returns it with u(x) of each row by a fit that did not see it."""
        like, rows = self.like, self.rows
        if like is not None and self.taken is not None and self.model.begin == "constant":
            return like.unaware, like.lift[self.taken]  # prices do not build on it
        coefficients = np.zeros((1 + rows.n_features, 1))
        coefficients[0] = self.center
        if self.model.begin != "unaware":
            problem = self.problem()
            coefficients = problem.moments.coordinates.to_raw(problem.unaware)
        found = AddedPrices(coefficients)
        start = held = found.predictor(rows.X, rows.X)
        earlier = None if like is None else like.unaware.prices
        if like is None or earlier is not None:
            lesson = Lesson(rows, start, _fixed(self.family, rows, self.volume))
            typical, added = self.trainer.cross_fit(lesson, earlier)
            gain = paired_z(self._deviance(start) - self._deviance(added), rows.weight, rows.cluster)
            if like is not None or gain > (0.0 if self.model.begin == "unaware" else _GAIN):
                prices = self.trainer.train(lesson, typical if self.model.refit else earlier)
                found, held = replace(found, prices=prices), added
        everyone = np.ones((1, self.channel.n_codes))
        shift = balance_shift(self.family, rows, found.predictor(rows.X, rows.X), everyone)
        return replace(found, shift=shift), held[:, 0] + shift

    def _deviance(self, eta: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(self.family.unit_deviance(self.rows.y, self.family.link.mean_of(eta[:, 0])))

    @property
    def center(self) -> float:
        """Link of the mean outcome."""
        mean = np.asarray(np.average(self.rows.y, weights=self.rows.weight))
        if not self.family.mean.contains(mean):
            raise (ValueError if self.like is None else ConvergenceError)(
                f"Got y with the mean {mean:g}, but the {self.family.name} family needs a mean {self.family.mean}; "
                "are all outcomes zero, or all one?"
            )
        return float(self.family.link.predictor(mean))

    def problem(self, unaware: AddedPrices | None = None, lift: Array | float = 0.0) -> LinearProblem:
        """Prepare the linear problem in x, and in what was added to the unaware price."""
        rows, names, origins = self.rows, self.inputs.design.features, self.inputs.design.origins
        if unaware is not None and unaware.prices is not None:
            linear = replace(unaware, prices=None).predictor(rows.X, rows.X)[:, 0]
            rows = replace(rows, X=np.column_stack([rows.X, lift - linear]))
            names, origins = (*names, "the unaware price"), (*origins, "the unaware price")
        with warnings.catch_warnings():  # constant columns are no news for trees and nets
            warnings.filterwarnings("ignore", message="The features", category=UserWarning)
            model = LinearModel(ridge=_RIDGE)
            return prepare(rows, self.channel.n_codes, self.family, model, names, origins=origins)

    # --- what the class adds ----------------------------------------------------------------------------------------

    def choose(self, fit: ModelFit) -> ModelFit:
        """Take what the class adds if its correction was asked for, or if it clearly lowers the corrected risk."""
        asked = self.channel.channel is not None and self.inputs.correction != "auto"
        if asked or self.model.begin == "unaware":  # there are no other prices with the shape that was asked for
            results = [replace(result, model=self.model.kind) for result in fit.start.results]
            return replace(self.add(fit), results=results)
        lesson, added, after = self.lesson(fit), None, None
        before = held_risk(self.family, lesson.rows, self.reported(fit, fit.groups.coefficients), self.channel.table)
        try:
            typical, held = self.trainer.cross_fit(lesson)
            after = held_risk(self.family, lesson.rows, held, self.channel.table)
            gain = paired_z(before - after, lesson.rows.weight, lesson.rows.cluster)
            reason = f"corrected risk {abs(gain):.1f} standard errors {'below' if gain > 0 else 'above'} the start's"
            if gain > _GAIN:
                added = self.add(fit, typical if self.model.refit else None)
        except FAILURES as error:
            reason = f"could not be fitted: {error}"
        return replace(added or fit, results=self.results(fit, added is not None, reason, before, after))

    def results(
        self, fit: ModelFit, added: bool, reason: str, before: Array, after: Array | None
    ) -> list[CandidateResult]:
        """Return the candidates of the start, and as one more the start with what the class adds."""
        use = self.rows.reported(self.channel.n_codes - 1)

        def risk(losses: Array | None) -> tuple[float, float]:
            return (np.nan, np.nan) if losses is None else mean_and_error(losses, use.weight, use.cluster)

        adds, kind, found = self.model.adds, self.model.kind, []
        for result in fit.start.results:
            result = replace(result, model=kind)
            if result.chosen:
                told = f"{result.reason}; {adds} improve it" if added else result.reason
                mean, error = risk(before)
                result = replace(result, chosen=not added, reason=told, risk=mean, risk_error=error)
            found.append(result)
        source = self.source(fit)
        pooling = np.nan if source.fit.strength is None else source.fit.strength
        detail = ", ".join(filter(None, (source.candidate.detail, f"start and {adds}")))
        last = CandidateResult(source.fit.correction, detail, pooling, added, reason, *risk(after), model=kind)
        return [*found, last]

    def add(self, fit: ModelFit, like: GroupPrices | None = None) -> ModelFit:
        """Train the class on all rows, as long as held-out rows say or as earlier prices were trained."""
        prices = self.trainer.train(self.lesson(fit), like)
        groups = AddedPrices(self.begin(fit.groups.coefficients), prices)
        return replace(fit, groups=groups, correction=self.source(fit).fit.correction)

    def source(self, fit: ModelFit) -> Chosen:
        """Return the fit that what the class adds goes back to: the likelihood that was asked for, or the teacher."""
        return fit.start if self.correction == "likelihood" else fit.teacher

    def lesson(self, fit: ModelFit) -> Lesson:
        """Return the rows that reported, with the weights of the teacher or of the channel."""
        use = self.rows.report < self.channel.n_codes - 1
        rows, start = self.rows.take(use), self.reported(fit, self.begin(fit.groups.coefficients))
        if self.correction == "inverse":
            return Lesson(rows, start, _fixed(self.family, rows, self.channel.table.T[rows.report] * self.volume[use]))
        problem = fit.teacher.fit.problem
        assert isinstance(problem.rows, Rows)
        weights = problem.rows.map(fit.teacher.posterior.weights)[use]
        source = self.source(fit)
        if source.fit.correction != "likelihood":
            return Lesson(rows, start, _fixed(self.family, rows, weights * self.volume[use]))
        latent, at = source.posterior.latent, source.posterior.parameters
        U = problem.rows.map(latent.features)[use]
        dispersion = float(at.log_dispersion[0]) if latent.common_dispersion else at.log_dispersion
        guide = None if source is fit.teacher else weights

        def mixture(t: Positions, h: Positions) -> MixtureObjective:
            train, held = (rows.take(t), U[t]), (rows.take(h), U[h]) if len(h) else None
            follow = None if guide is None else guide[t]
            return MixtureObjective(latent.law, latent.T, Propensity(at.gamma), train, held, dispersion, follow)

        return Lesson(rows, start, mixture)

    def reported(self, fit: ModelFit, coefficients: Array) -> Array:
        """Compute linear predictors in (1, x, u(x)) of the rows that reported, u(x) out of sample: shape (rows, K)."""
        use = self.rows.report < self.channel.n_codes - 1
        return np.asarray(np.column_stack([self.rows.X, fit.lift])[use] @ coefficients[1:] + coefficients[0])

    def begin(self, start: Array) -> Array:
        """Return the coefficients of (1, x, u(x)) that prices of the class begin at; see `GroupModel.begin`."""
        if self.model.begin == "linear":
            return start
        alone = np.zeros_like(start)
        if self.model.begin == "unaware":
            alone[-1] = 1.0
        else:
            alone[0] = self.center
        return alone

    def balance(self, fit: ModelFit) -> ModelFit:
        """Shift all linear predictors so that best estimates reproduce the total of the outcomes."""
        eta = fit.predictor(self.rows.X)
        low, high = fit.bounds
        outside = int(np.count_nonzero(~((eta >= low) & (eta <= high)).all(axis=1)))
        if outside:
            raise ConvergenceError(
                f"The prices of {outside} rows are far outside the range of the outcomes: the reports say too little "
                "about a group. More pooling helps, or more rows."
            )
        table = self.channel.table.copy()
        table[:, -1] = fit.shares  # of those who did not report nothing else is known
        return replace(fit, groups=replace(fit.groups, shift=balance_shift(self.family, self.rows, eta, table)))


def _in_unaware(found: Array, unaware: AddedPrices) -> Array:
    """Turn coefficients of (1, x, t(x)) into those of (1, x, u(x)), where u(x) = shift + l_0 + l'x + t(x).

    Without an addition to the unaware price there is no t(x).
    """
    if unaware.prices is None:
        return np.vstack([found, np.zeros((1, found.shape[1]))])
    slope = found[-1:]
    linear = found[:-1] - unaware.coefficients @ slope
    linear[0] -= unaware.shift * slope[0]
    return np.vstack([linear, slope])


def _fixed(family: Family, rows: Rows, weights: Array) -> Callable[[Positions, Positions], WeightedObjective]:
    """Return what makes objectives of weights that do not follow the prices, volumes included: shape (rows, K)."""
    return lambda t, h: WeightedObjective(family, weights[t], rows.y[h], weights[h])
