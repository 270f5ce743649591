"""The choice among corrections and model classes by checks on rows that no candidate saw."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from fairpremium.arrays import Array
from fairpremium.blocks import Rows
from fairpremium.corrections._checks import (
    CHECK_ROWS,
    FAILURES,
    CandidateResult,
    held_persons,
    held_risk,
    held_volumes,
    mean_and_error,
    paired_z,
)
from fairpremium.corrections._model_start import ModelFitSettings, ModelStart
from fairpremium.corrections._report_channel import ReportChannel
from fairpremium.corrections._tournament_entries import (
    Entry,
    InverseEntry,
    LikelihoodEntry,
    LinearEntry,
    ModelFit,
    PosteriorEntry,
    TrueGroupsEntry,
)
from fairpremium.errors import ConvergenceError
from fairpremium.families import law_of, other_laws
from fairpremium.models import GroupPrices, plausible_bounds

_LIKELIHOOD_MARGIN = 1.0  # standard errors by which a classifier may beat the likelihood's report log-loss
_RISK_MARGIN = 1.0  # standard errors by which a candidate's corrected risk may exceed the start's


def entries_for(settings: ModelFitSettings, correction: str) -> list[Entry]:
    """Return the candidates of one correction, or of all that the model class can serve for "auto"."""
    family = settings.family
    laws = [law_of(family), *other_laws(family)]
    if correction == "none":
        return [TrueGroupsEntry()]
    if correction == "auto":
        likelihoods = [LikelihoodEntry(law) for law in laws]
        start = [] if settings.model.begin == "unaware" else [LinearEntry()]
        return [*likelihoods, PosteriorEntry(), *start]
    return [
        {"inverse": InverseEntry(), "posterior": PosteriorEntry(), "likelihood": LikelihoodEntry(laws[0])}[correction]
    ]


@dataclass(frozen=True)
class ModelChosen:
    """A fit of a model class with the results of all candidates."""

    entry: Entry
    fit: ModelFit
    results: list[CandidateResult]

    def refit(self, rows: Rows) -> ModelFit:
        """Fit the same candidate, trained as long, on other rows."""
        return self._fit(ModelStart(self.fit.start.settings, rows, like=self.fit.start))

    def without(self, fold: npt.NDArray[np.bool_]) -> ModelFit:
        """Fit the same candidate, trained as long, without a fold of its rows."""
        start = self.fit.start
        return self._fit(ModelStart(start.settings, start.rows.take(~fold), like=start, taken=~fold))

    def with_channel(self, channel: ReportChannel) -> ModelFit:
        """Fit the same candidate, trained as long, for another channel."""
        start = self.fit.start
        everyone = np.ones(len(start.rows), dtype=bool)
        settings = replace(start.settings, channel=channel)
        return self._fit(ModelStart(settings, start.rows, like=start, taken=everyone))

    def _fit(self, start: ModelStart) -> ModelFit:
        return fit_entry(self.entry, start, self.fit.prices)


def fit_model(settings: ModelFitSettings, rows: Rows, correction: str) -> ModelChosen:
    """Fit a model class with one correction, or with the one that the checks choose."""
    entries = entries_for(settings, correction)
    if len(entries) == 1:
        fit = fit_entry(entries[0], ModelStart(settings, rows))
        reason = "asked for" if correction != "none" else "the true attribute"
        kind = settings.model.kind
        result = CandidateResult(fit.correction, entries[0].detail, _strength(fit), True, reason, model=kind)
        return ModelChosen(entries[0], fit, [result])
    contest = Contest(settings, rows)
    for entry in entries:
        contest.measure(entry)
    order, reasons = contest.rank(entries)
    start = contest.start if len(contest.start.rows) == len(rows) else ModelStart(settings, rows, like=contest.start)
    for name in order:
        entry = next(e for e in entries if e.name == name)
        try:
            fit = fit_entry(entry, start)
        except FAILURES as error:
            reasons[name] = f"could not be fitted: {error}"
            continue
        return ModelChosen(entry, fit, contest.results(entries, name, fit, reasons))
    why = {**reasons, **contest.trouble}
    raise ConvergenceError("No candidate could be fitted: " + "; ".join(sorted(set(why.values()))))


class Contest:
    """Held-out losses of candidates on the same rows and folds.

    A large portfolio is represented by a sample. A class that takes long to train is checked on one held-out fold.
    Which classifier the posterior uses, which linear start, and how many rounds the unaware price has, is decided once
    on all these rows; every coefficient, tree and weight is learned without the held-out fold.
    """

    def __init__(self, settings: ModelFitSettings, rows: Rows):
        rng = np.random.default_rng(settings.seed)
        if len(rows) > CHECK_ROWS:
            rows = rows.take(np.sort(rng.choice(len(rows), CHECK_ROWS, replace=False)))
        self.settings = settings
        self.start = ModelStart(settings, rows)
        n_folds = settings.model.check_folds
        fold = rows.draw_folds(max(n_folds, 4), rng)
        self.fold_starts = [ModelStart(settings, rows.take(fold != f), like=self.start) for f in range(n_folds)]
        missing = settings.channel.n_codes - 1
        self.held = [rows.take((fold == f) & (rows.report < missing)) for f in range(n_folds)]
        self.weight, self.cluster = held_volumes(self.held), held_persons(self.held)
        self.trouble: dict[str, str] = {}
        self.risk: dict[str, Array] = {}
        self.report: dict[str, Array] = {}

    def measure(self, entry: Entry) -> None:
        """Fit a candidate without each fold, and record both losses of the rows in it."""
        risk, report = [], []
        family, table = self.settings.family, self.settings.channel.table
        for start, held in zip(self.fold_starts, self.held, strict=True):
            try:
                fit = fit_entry(entry, start)
                lifted = start.lift_rows(held)
                eta = fit.predictor(lifted)
                check_range(start, eta)
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
            reasons.setdefault(name, f"less efficient than {order[0]}, which passes every check")
        return order, reasons

    def _passes(self, name: str, start: str | None, reasons: dict[str, str]) -> bool:
        gap = 0.0 if start is None else paired_z(self.risk[name] - self.risk[start], self.weight, self.cluster)
        if gap > _RISK_MARGIN:
            reasons[name] = f"corrected risk {gap:.1f} standard errors above that of the linear start"
        return gap <= _RISK_MARGIN

    def results(
        self, entries: Sequence[Entry], chosen: str, fit: ModelFit, reasons: dict[str, str]
    ) -> list[CandidateResult]:
        """Return the result of every candidate."""
        reasons = {**reasons, **self.trouble}
        reasons[chosen] = "the most efficient candidate that passes every check"
        none, person = (np.nan, np.nan), self.cluster
        return [
            CandidateResult(
                entry.correction,
                entry.detail,
                _strength(fit) if entry.name == chosen else np.nan,
                entry.name == chosen,
                reasons[entry.name],
                *(mean_and_error(self.risk[entry.name], self.weight, person) if entry.name in self.risk else none),
                *(mean_and_error(self.report[entry.name], cluster=person) if entry.name in self.report else none),
                model=self.settings.model.kind,
            )
            for entry in entries
        ]


def fit_entry(entry: Entry, start: ModelStart, like: GroupPrices | None = None) -> ModelFit:
    """Fit a candidate; prices outside every plausible range are a failure, as they are for nets."""
    fit = entry.fit(start, like)
    check_range(start, fit.predictor(start.lifted))
    check_range(start, fit.predictor(start.lift_rows(start.rows)))  # what a quote for these rows would be
    return fit


def check_range(start: ModelStart, eta: Array) -> None:
    """Raise if linear predictors leave the range of means that the outcomes of the rows make plausible."""
    low, high = plausible_range(start)
    outside = int(np.count_nonzero(~((eta >= low) & (eta <= high)).all(axis=1)))
    if outside:
        raise ConvergenceError(
            f"The prices of {outside} rows are far outside the range of the outcomes: the reports say too little about "
            "a group. More pooling helps, or more rows."
        )


def plausible_range(start: ModelStart) -> tuple[float, float]:
    """Return the range that linear predictors cannot plausibly leave."""
    return plausible_bounds(start.settings.family, start.rows.y, start.center)


def _strength(fit: ModelFit) -> float:
    """The strength of the start's pooling for the table of candidates; NaN stands for empirical Bayes."""
    return fit.pooling if isinstance(fit.pooling, float) else np.nan
