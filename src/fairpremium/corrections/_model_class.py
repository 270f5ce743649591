"""A model class beyond the linear one: a linear start, and what the class adds to it.

1. The unaware price u(x) is the linear one plus what the class adds to it.
2. The groups start from the linear fit, with the correction that `fit_correction` chooses, in x and in what the class
   added to the unaware price. All rows tell the unaware price what the features do, whatever the noise.
3. To this start the class adds what it finds with the weights P(D given x, y, s) of the likelihood, which follow the
   prices, or of the posterior correction.
4. One shift of all linear predictors makes best estimates reproduce the portfolio's total.

Additions are cross-fitted: every row is priced by a fit that did not see it. They are taken if these prices are better
than those of the start by two standard errors, in deviance (the unaware price) or in corrected risk (the groups; of
both weights the one with the smaller risk). Otherwise the prices are the linear ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from fairpremium.arrays import Array
from fairpremium.blocks import Block, Rows, one_blas_thread
from fairpremium.corrections._balance import balance_shift
from fairpremium.corrections._candidates import Candidate
from fairpremium.corrections._checks import FAILURES, CandidateResult, held_risk, mean_and_error, paired_z
from fairpremium.corrections._choice import Chosen, fit_correction
from fairpremium.corrections._fit import GroupFit
from fairpremium.corrections._fit_input import FitInput
from fairpremium.corrections._objectives import MixtureObjective, Propensity, WeightedObjective
from fairpremium.corrections._report_channel import ReportChannel
from fairpremium.errors import ConvergenceError
from fairpremium.families import REAL, Family, ResidualLaw
from fairpremium.models import (
    AddedPrices,
    Features,
    GroupModel,
    GroupPrices,
    LinearModel,
    LinearProblem,
    Trainer,
    TrainingTask,
    plausible_bounds,
    prepare,
)
from fairpremium.progress import section, tell

_GAIN = 2.0  # standard errors by which additions must improve on the start
_SETTLE = 20  # rounds that bring dispersion and propensity to their values at the final prices
_RIDGE = 1.0  # of the linear fits, in rows: a rare level must not stop them

Mask = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Weighting:
    """The weights P(D given x, y, s) with which a class learns, from a linear correction that has them."""

    candidate: Candidate
    posterior: Any  # None: the channel gives the weights
    problem: LinearProblem
    shares: Array  # (K,), estimate of P(D)
    strength: float | None  # of pooling

    @classmethod
    def of(cls, chosen: Chosen) -> Weighting:
        """Take the weights of a fit."""
        fit = chosen.fit
        return cls(chosen.candidate, chosen.posterior, fit.problem, fit.shares, fit.strength)

    @classmethod
    @one_blas_thread()
    def learn(cls, candidate: Candidate, problem: LinearProblem, base: GroupFit, strength: float | None) -> Weighting:
        """Learn the weights of a correction, without its prices; `base` is the distribution-free fit."""
        learned = candidate.learn(problem, base, strength)
        return cls(*learned, problem, learned.shares(problem, base), strength)

    def refit(self, start: Chosen) -> Weighting:
        """Learn the same for the problem of another start."""
        return self.learn(self.candidate, start.fit.problem, start.base, self.strength)

    def weights(self) -> Array:
        """Compute P(D = k given x, y, s) of all rows: shape (n, K)."""
        assert isinstance(self.problem.rows, Rows)
        return self.problem.rows.map(self.posterior.weights)

    @property
    def follows(self) -> bool:
        """Whether the weights follow the prices: those of a likelihood whose law has any prices as its means."""
        if self.candidate.correction != "likelihood":
            return False
        law = self.posterior.latent.law
        return law.outcomes == REAL and not isinstance(law, ResidualLaw)


@dataclass(frozen=True)
class ModelFit:
    """Group prices of a model class."""

    inputs: FitInput
    model: GroupModel
    unaware: AddedPrices
    lift: Array  # (n,), u(x) of each row by a fit that did not see it
    start: Chosen
    weighting: Weighting
    first_weighting: Weighting | None  # whose weights take the place of a likelihood's in the first rounds
    groups: AddedPrices  # of x, from a start that is linear in (x, u(x))
    shares: Array  # (K,), estimate of P(D)
    correction: str
    results: list[CandidateResult]
    features: Features | None  # of all rows, as the class learns from them

    @property
    def pooling(self) -> float | dict[str, Any]:
        """Of the start; see `GroupFit`."""
        return self.start.fit.pooling

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
        self.correction = "inverse" if self.channel.truth else inputs.correction
        self.trainer = Trainer(model, inputs.design, self.family, np.random.default_rng(inputs.seed))
        if like is None or like.features is None or taken is None:
            self.features = model.read(inputs.design, self.rows.X)
        else:
            self.features = like.features.take(taken)

    def fit(self) -> ModelFit:
        with section(0.0, 0.2):
            unaware, lift = self.fit_unaware()
        problem = self.problem(unaware, lift)
        like, channel = self.like, self.channel
        with section(0.2, 0.4):
            start = self.linear(self.correction, problem) if like is None else like.start.refit(channel, problem)
        groups, fit = AddedPrices(_in_unaware(start.fit.coefficients, unaware)), start.fit
        found = ModelFit(
            self.inputs, self.model, unaware, lift, start, Weighting.of(start), None, groups, fit.shares,
            fit.correction, [], self.features,
        )  # fmt: skip
        if like is None:
            with section(0.4, 1.0):
                return self.balance(self.choose(found))
        if like.groups.prices is not None:
            own = like.weighting.candidate is like.start.candidate
            weighting = found.weighting if own else like.weighting.refit(start)
            first_weighting = None if like.first_weighting is None else like.first_weighting.refit(start)
            found = self.add(replace(found, weighting=weighting, first_weighting=first_weighting), like.groups.prices)
        return self.balance(found)

    def linear(self, correction: str, problem: LinearProblem) -> Chosen:
        """Fit a correction of the linear problem."""
        return fit_correction(problem, self.channel, correction, self.inputs.pooling, self.inputs.classifier)

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
            task = TrainingTask(rows, start, _fixed(self.family, rows, self.volume), self.features)
            gain = partial(_gain, self._deviance, start, rows)
            typical, added, seen = self.trainer.cross_fit(
                task, earlier, gain if like is None else None, words="the unaware price"
            )
            if like is not None or gain(seen, added) > (0.0 if self.model.begin == "unaware" else _GAIN):
                prices = self.trainer.train(task, typical if self.model.refit else earlier)
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
        model = LinearModel(ridge=_RIDGE)  # constant columns are no news for trees and nets
        codes = self.channel.n_codes
        return prepare(rows, codes, self.family, model, names, origins=origins, redundant_told=False)

    # --- what the class adds ----------------------------------------------------------------------------------------

    def choose(self, fit: ModelFit) -> ModelFit:
        """Take what the class adds if its correction was asked for, or if it clearly lowers the corrected risk."""
        results = [replace(result, model=self.model.kind) for result in fit.start.results]
        if not self.channel.truth and self.correction != "auto":
            return replace(self.add(self.weigh(fit, self.correction)), results=results)
        use, table = self.rows.reported(self.channel.n_codes - 1), self.channel.table
        start = self.reported(fit, fit.groups.coefficients)
        losses = partial(held_risk, self.family, use, table=table)
        gain = partial(_gain, losses, start, use)
        must = self.model.begin == "unaware"  # with monotone prices the start is no candidate
        trials: list[CandidateResult] = []
        better: dict[int, tuple[ModelFit, GroupPrices]] = {}
        corrections = ("likelihood", "posterior") if self.correction == "auto" else ("inverse",)
        for correction in corrections:
            risk, detail, strength = (np.nan, np.nan), "", None
            try:
                begun = 0.8 * len(trials) / len(corrections)
                tell(begun, f"weights of the {correction}")
                weighted = self.weigh(fit, correction)
                detail, strength = weighted.weighting.candidate.detail, weighted.weighting.strength
                with section(begun, begun + 0.8 / len(corrections)):
                    typical, held, seen = self.trainer.cross_fit(
                        self.task(weighted), None, None if must else gain, words=f"groups, {correction}"
                    )
                found = gain(seen, held)
                if seen.all():
                    risk = self._mean(losses(held), use)
                    side = "below" if found > 0 else "above"
                    reason = f"corrected risk {abs(found):.1f} standard errors {side} the start's"
                else:
                    reason = f"given up: no better than the start on {100 * seen.mean():.0f} % of the rows"
                if found > _GAIN or must:
                    better[len(trials)] = weighted, typical
            except FAILURES as error:
                reason = f"could not be fitted: {error}"
            detail = ", ".join(filter(None, (detail, f"start and {self.model.adds}")))
            pooling = np.nan if strength is None else strength
            trials.append(CandidateResult(correction, detail, pooling, False, reason, *risk, model=self.model.kind))
        taken = None
        for i in sorted(better, key=lambda i: trials[i].risk):
            weighted, typical = better[i]
            tell(0.8, f"{self.model.adds} of the groups on all rows")
            try:
                taken = self.add(weighted, typical if self.model.refit else None)
            except FAILURES as error:
                trials[i] = replace(trials[i], reason=f"could not be fitted: {error}")
                continue
            trials[i] = replace(trials[i], chosen=True)
            break
        for i, result in enumerate(results):
            if result.chosen:
                mean, error_of_mean = self._mean(losses(start), use)
                told = result.reason if taken is None else f"{result.reason}; {self.model.adds} improve it"
                results[i] = replace(result, chosen=taken is None, reason=told, risk=mean, risk_error=error_of_mean)
        if taken is None and must:
            raise ConvergenceError("No candidate could be fitted: " + "; ".join(trial.reason for trial in trials))
        return replace(fit if taken is None else taken, results=[*results, *trials])

    def _mean(self, losses: Array, rows: Rows) -> tuple[float, float]:
        return mean_and_error(losses, rows.weight, rows.cluster)

    def weigh(self, fit: ModelFit, correction: str) -> ModelFit:
        """Learn the weights of a linear correction, unless the start has them.

        Prices that do not begin at the start would be told apart by chance: the posterior guides a likelihood.
        """
        begins = self.model.begin == "linear"
        own = fit.start.fit.correction == correction and (begins or self.correction != "auto")
        weighting = fit.weighting if own else self.learn_weights(fit.start, correction)
        guided = correction == "likelihood" and not begins
        return replace(
            fit, weighting=weighting, first_weighting=self.learn_weights(fit.start, "posterior") if guided else None
        )

    def learn_weights(self, start: Chosen, correction: str) -> Weighting:
        """Learn the weights of a correction for the start's problem."""
        candidate = Candidate.kinds[correction].requested(self.family, self.inputs.classifier)
        return Weighting.learn(candidate, start.fit.problem, start.base, self.inputs.pooling)

    def add(self, fit: ModelFit, like: GroupPrices | None = None) -> ModelFit:
        """Train the class on all rows, as long as held-out rows say or as earlier prices were trained."""
        prices = self.trainer.train(self.task(fit), like)
        groups = AddedPrices(self.begin(fit.groups.coefficients), prices)
        weighting = fit.weighting
        found = replace(fit, groups=groups, correction=weighting.candidate.correction, shares=weighting.shares)
        return replace(found, shares=self.shares(found)) if weighting.follows else found

    def shares(self, fit: ModelFit) -> Array:
        """Estimate P(D) by the likelihood at the final prices; those who did not report count by their outcomes."""
        mixture, U = self.mixture(fit)
        use = np.flatnonzero(self.rows.report < self.channel.n_codes - 1)
        eta = fit.predictor(self.rows.X)
        objective = mixture(use, use[:0])
        for _ in range(_SETTLE):
            objective.weights(eta[use])
        responsibilities = objective.responsibilities(self.rows, objective.propensity.log(U), eta)
        return np.asarray(np.average(responsibilities, axis=0, weights=self.rows.weight))

    def mixture(self, fit: ModelFit) -> tuple[Callable[[Positions, Positions], MixtureObjective], Array]:
        """Return what makes objectives of the weighting's likelihood from positions of rows, and its features."""
        rows = fit.weighting.problem.rows
        assert isinstance(rows, Rows)
        latent, at = fit.weighting.posterior.latent, fit.weighting.posterior.parameters
        U = rows.map(latent.features)
        dispersion = float(at.log_dispersion[0]) if latent.common_dispersion else at.log_dispersion

        def make(t: Positions, h: Positions) -> MixtureObjective:
            train, held = (self.rows.take(t), U[t]), (self.rows.take(h), U[h]) if len(h) else None
            return MixtureObjective(latent.law, latent.T, Propensity(at.gamma), train, held, dispersion)

        return make, U

    def task(self, fit: ModelFit) -> TrainingTask:
        """Return the rows that reported, with the weights of the weighting or of the channel."""
        use = np.flatnonzero(self.rows.report < self.channel.n_codes - 1)
        rows, start = self.rows.take(use), self.reported(fit, self.begin(fit.groups.coefficients))
        features = None if self.features is None else self.features.take(use)
        if self.correction == "inverse":
            weights = self.channel.table.T[rows.report] * self.volume[use]
            return TrainingTask(rows, start, _fixed(self.family, rows, weights), features)
        if not fit.weighting.follows:
            weights = fit.weighting.weights()[use] * self.volume[use]
            return TrainingTask(rows, start, _fixed(self.family, rows, weights), features)
        mixture = self.mixture(fit)[0]
        first_weights = None if fit.first_weighting is None else fit.first_weighting.weights()[use]

        def objective(t: Positions, h: Positions) -> MixtureObjective:
            return replace(mixture(use[t], use[h]), first_weights=None if first_weights is None else first_weights[t])

        return TrainingTask(rows, start, objective, features)

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
        shift = balance_shift(self.family, replace(self.rows, X=eta, share=self.balancing(fit)), _columns, _own_weights)
        return replace(fit, groups=replace(fit.groups, shift=shift))

    def balancing(self, fit: ModelFit) -> Array:
        """Return the weights of the total, as for the linear class: (n, K); see `_balance`."""
        if fit.weighting.posterior is not None:
            return fit.weighting.weights()
        moments = fit.start.fit.moments
        if moments is None:
            return np.asarray(self.channel.table.T[self.rows.report])
        assert isinstance(moments.rows, Rows)
        return moments.rows.map(moments.weights)


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


def _gain(losses: Callable[[Array], Array], start: Array, rows: Rows, seen: Mask, eta: Array) -> float:
    """Compute by how many standard errors predictors are better than the start, on the rows that were seen."""
    weight = None if rows.weight is None else rows.weight[seen]
    return paired_z((losses(start) - losses(eta))[seen], weight, None if rows.cluster is None else rows.cluster[seen])


def _fixed(family: Family, rows: Rows, weights: Array) -> Callable[[Positions, Positions], WeightedObjective]:
    """Return what makes objectives of weights that do not follow the prices, volumes included: shape (rows, K)."""
    return lambda t, h: WeightedObjective(family, weights[t], rows.y[h], weights[h])


def _columns(block: Block) -> Array:
    return np.asarray(block.X, dtype=np.float64)


def _own_weights(block: Block) -> Array:
    assert block.share is not None
    return block.share
