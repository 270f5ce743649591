"""The choice among corrections and model classes by the two referees, on rows that no candidate saw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from fairpremium.arrays import Array
from fairpremium.blocks import Rows
from fairpremium.corrections._auto import FAILURES, JUDGE_ROWS, Verdict
from fairpremium.corrections._candidates import Noise
from fairpremium.corrections._entries import (
    Entry,
    InverseEntry,
    LikelihoodEntry,
    LinearEntry,
    ModelFit,
    PosteriorEntry,
    TrueGroupsEntry,
)
from fairpremium.corrections._referee import mean_and_error, paired_z
from fairpremium.corrections._stage import Setting, Stage
from fairpremium.errors import ConvergenceError
from fairpremium.families import law_of, other_laws
from fairpremium.models._groups import GroupPrices
from fairpremium.models._plausible import plausible_bounds

_LIKELIHOOD_MARGIN = 1.0  # standard errors by which a classifier may beat the likelihood's report log-loss
_RISK_MARGIN = 1.0  # standard errors by which a candidate's corrected risk may exceed the start's


def entries_for(setting: Setting, correction: str) -> list[Entry]:
    """Return the candidates of one correction, or of all that the model class can serve for "auto"."""
    family = setting.family
    laws = [law_of(family), *other_laws(family)]
    if correction == "none":
        return [TrueGroupsEntry()]
    if correction == "auto":
        likelihoods = [LikelihoodEntry(law) for law in laws]
        start = [] if setting.learner.begin == "unaware" else [LinearEntry()]
        return [*likelihoods, PosteriorEntry(), *start]
    return [
        {
            "inverse": InverseEntry(),
            "posterior": PosteriorEntry(),
            "likelihood": LikelihoodEntry(laws[0]),
        }[correction]
    ]


@dataclass(frozen=True)
class ModelChosen:
    """A fit of a model class with the story of its choice."""

    entry: Entry
    fit: ModelFit
    verdicts: list[Verdict]

    def refit(self, rows: Rows) -> ModelFit:
        """Fit the same candidate, trained as long, on other rows."""
        return self._fit(Stage(self.fit.stage.setting, rows, like=self.fit.stage))

    def without(self, fold: npt.NDArray[np.bool_]) -> ModelFit:
        """Fit the same candidate, trained as long, without a fold of its rows."""
        stage = self.fit.stage
        return self._fit(Stage(stage.setting, stage.rows.take(~fold), like=stage, taken=~fold))

    def with_noise(self, noise: Noise) -> ModelFit:
        """Fit the same candidate, trained as long, for another channel."""
        stage = self.fit.stage
        everyone = np.ones(len(stage.rows), dtype=bool)
        return self._fit(Stage(replace(stage.setting, noise=noise), stage.rows, like=stage, taken=everyone))

    def _fit(self, stage: Stage) -> ModelFit:
        return fit_entry(self.entry, stage, self.fit.prices)


def fit_model(setting: Setting, rows: Rows, correction: str) -> ModelChosen:
    """Fit a model class with one correction, or with the one that the referees prefer."""
    entries = entries_for(setting, correction)
    if len(entries) == 1:
        fit = fit_entry(entries[0], Stage(setting, rows))
        reason = "asked for" if correction != "none" else "the true attribute"
        verdict = Verdict(fit.correction, entries[0].detail, fit.strength, True, reason, model=setting.model.kind)
        return ModelChosen(entries[0], fit, [verdict])
    contest = Contest(setting, rows)
    for entry in entries:
        contest.judge(entry)
    order, reasons = contest.rank(entries)
    stage = contest.stage if len(contest.stage.rows) == len(rows) else Stage(setting, rows, like=contest.stage)
    for name in order:
        entry = next(e for e in entries if e.name == name)
        try:
            fit = fit_entry(entry, stage)
        except FAILURES as error:
            reasons[name] = f"could not be fitted: {error}"
            continue
        return ModelChosen(entry, fit, contest.verdicts(entries, name, fit, reasons))
    why = {**reasons, **contest.trouble}
    raise ConvergenceError("No candidate could be fitted: " + "; ".join(sorted(set(why.values()))))


class Contest:
    """Held-out judgements of candidates on the same rows and folds.

    A large portfolio is judged on a sample. A class that takes long to train is judged on one held-out fold. Which
    classifier the posterior uses, which linear start, and how many rounds the unaware price has, is decided once on all
    these rows; every coefficient, tree and weight is learned without the fold that is judged.
    """

    def __init__(self, setting: Setting, rows: Rows):
        rng = np.random.default_rng(setting.seed)
        if len(rows) > JUDGE_ROWS:
            rows = rows.take(np.sort(rng.choice(len(rows), JUDGE_ROWS, replace=False)))
        self.setting = setting
        self.stage = Stage(setting, rows)
        n_folds = setting.model.judge_folds
        fold = rows.draw_folds(max(n_folds, 4), rng)
        self.stages = [Stage(setting, rows.take(fold != f), like=self.stage) for f in range(n_folds)]
        self.held = [rows.take((fold == f) & (rows.report < setting.noise.table.shape[1] - 1)) for f in range(n_folds)]
        self.trouble: dict[str, str] = {}
        self.risk: dict[str, Array] = {}
        self.report: dict[str, Array] = {}

    @property
    def weight(self) -> Array:
        """Volumes of the held-out rows."""
        return held_volumes(self.held)

    @property
    def cluster(self) -> npt.NDArray[Any] | None:
        """Whose rows they are."""
        return held_persons(self.held)

    def judge(self, entry: Entry) -> None:
        """Fit a candidate without each fold, and record both losses of the rows in it."""
        risk, report = [], []
        family, table = self.setting.family, self.setting.noise.table
        for stage, held in zip(self.stages, self.held, strict=True):
            try:
                fit = fit_entry(entry, stage)
                lifted = stage.lift_rows(held)
                eta = fit.predictor(lifted)
                check_range(stage, eta)
            except FAILURES as error:
                self.trouble[entry.name] = f"could not be fitted without a fold of the rows: {error}"
                return
            risk.append(held_risk(family, held, eta, table))
            report.append(fit.report_log_loss(lifted))
        self.risk[entry.name] = np.concatenate(risk)
        if all(losses is not None for losses in report):
            self.report[entry.name] = np.concatenate([losses for losses in report if losses is not None])

    def rank(self, entries: Sequence[Entry]) -> tuple[list[str], dict[str, str]]:
        """Apply the rule; returns the acceptable candidates, best first, and a reason for each candidate.

        1. A likelihood, the one with the smallest report log-loss, unless the posterior's classifier predicts
           held-out reports better by more than one standard error.
        2. Otherwise the posterior. Neither is taken if its corrected risk is above that of the linear start by more
           than one standard error.
        3. Otherwise the linear start.
        """
        reasons: dict[str, str] = {}
        order: list[str] = []
        able = [e for e in entries if e.name not in self.trouble]
        start = next((e.name for e in able if isinstance(e, LinearEntry)), None)
        posterior = next((e.name for e in able if isinstance(e, PosteriorEntry)), None)
        likelihoods = sorted(
            (e.name for e in able if isinstance(e, LikelihoodEntry)), key=lambda name: float(np.mean(self.report[name]))
        )
        for name in likelihoods:
            ahead = order[0] if order else None
            gap = 0.0
            if posterior is not None:
                gap = paired_z(self.report[name] - self.report[posterior], cluster=self.cluster)
            if ahead is not None:
                reasons[name] = f"report log-loss above {ahead}"
            elif gap > _LIKELIHOOD_MARGIN:
                reasons[name] = (
                    f"report log-loss {gap:.1f} standard errors above a classifier's: its law of y or its P(D given x) "
                    "is wrong"
                )
            elif self._passes(name, start, reasons):
                order.append(name)
        if posterior is not None and self._passes(posterior, start, reasons):
            order.append(posterior)
        if start is not None:
            order.append(start)
        for name in order[1:]:
            reasons.setdefault(name, f"less efficient than {order[0]}, which no referee rejects")
        return order, reasons

    def _passes(self, name: str, start: str | None, reasons: dict[str, str]) -> bool:
        gap = 0.0 if start is None else paired_z(self.risk[name] - self.risk[start], self.weight, self.cluster)
        if gap > _RISK_MARGIN:
            reasons[name] = f"corrected risk {gap:.1f} standard errors above that of the linear start"
        return gap <= _RISK_MARGIN

    def verdicts(self, entries: Sequence[Entry], chosen: str, fit: ModelFit, reasons: dict[str, str]) -> list[Verdict]:
        """Tell the story of every candidate."""
        reasons = {**reasons, **self.trouble}
        reasons[chosen] = "the most efficient candidate that no referee rejects"
        none, person = (np.nan, np.nan), self.cluster
        return [
            Verdict(
                entry.correction,
                entry.detail,
                fit.strength if entry.name == chosen else np.nan,
                entry.name == chosen,
                reasons[entry.name],
                *(mean_and_error(self.risk[entry.name], self.weight, person) if entry.name in self.risk else none),
                *(mean_and_error(self.report[entry.name], cluster=person) if entry.name in self.report else none),
                model=self.setting.model.kind,
            )
            for entry in entries
        ]


def fit_entry(entry: Entry, stage: Stage, like: GroupPrices | None = None) -> ModelFit:
    """Fit a candidate; prices outside every plausible range are a failure, as they are for nets."""
    fit = entry.fit(stage, like)
    check_range(stage, fit.predictor(stage.lifted))
    check_range(stage, fit.predictor(stage.lift_rows(stage.rows)))  # what a quote for these rows would be
    return fit


def check_range(stage: Stage, eta: Array) -> None:
    """Raise if linear predictors leave the range of means that the outcomes of a stage make plausible."""
    low, high = plausible_range(stage)
    outside = int(np.count_nonzero(~((eta >= low) & (eta <= high)).all(axis=1)))
    if outside:
        raise ConvergenceError(
            f"The prices of {outside} rows are far outside the range of the outcomes: the reports say too little about "
            "a group. More pooling helps, or more rows."
        )


def plausible_range(stage: Stage) -> tuple[float, float]:
    """Return the range that linear predictors cannot plausibly leave."""
    return plausible_bounds(stage.setting.family, stage.rows.y, stage.center)


def held_risk(family: Any, held: Rows, eta: Array, table: Array) -> Array:
    """Compute each row's corrected deviance, sum_k T^-1[k, s] d(y, mu_k)."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        deviance = family.unit_deviance(held.y[:, None], family.link.mean_of(eta))
    return np.asarray(np.einsum("ik,ik->i", table.T[held.report], deviance))


def held_volumes(held: Sequence[Rows]) -> Array:
    """Return the volumes of held-out folds, one after the other."""
    return np.concatenate([np.ones(len(h)) if h.weight is None else h.weight for h in held])


def held_persons(held: Sequence[Rows]) -> npt.NDArray[Any] | None:
    """Return whose rows held-out folds hold, one after the other; None if each row is a person of its own."""
    codes = [h.cluster for h in held if h.cluster is not None]
    return np.concatenate(codes) if codes else None
