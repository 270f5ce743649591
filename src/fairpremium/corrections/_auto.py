"""The choice of a correction by checks that see held-out rows and reports alone.

The **report log-loss** checks a P(D given x, y): -log sum_k T[s, k] q_k(x, y) on rows that its fit did not see. The
**corrected risk** checks group prices, however they were fitted. Both are cross-validated over shared folds, paired
between candidates row by row, and carry standard errors. The rule (see `_Comparison.choose`) uses the most efficient
candidate that passes every check. A posterior must also agree with the moment-based corrections within sampling error
(see `agreement`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from fairpremium.arrays import Array
from fairpremium.blocks import Rows
from fairpremium.corrections._candidates import (
    Candidate,
    ClassifierCandidate,
    InverseCandidate,
    LikelihoodCandidate,
    PosteriorCandidate,
    Posteriors,
    ScoreCandidate,
    TiltedCandidate,
)
from fairpremium.corrections._checks import agreement, held_risk, mean_and_error, paired_z
from fairpremium.corrections._fit import GroupFit
from fairpremium.corrections._inverse import fit_inverse
from fairpremium.corrections._latent import Latent
from fairpremium.corrections._propensity import fit_propensity, reported_rows, with_missing_row, x_features
from fairpremium.corrections._report_channel import ReportChannel
from fairpremium.errors import ConvergenceError, FairPremiumError, RiskUnboundedError
from fairpremium.families import Family, law_of, other_laws
from fairpremium.models import LinearProblem

CHECK_ROWS = 30_000  # rows that the checks look at
FOLDS = 5
_LIKELIHOOD_MARGIN = 1.0  # standard errors by which a classifier may beat the likelihood's report log-loss
_POSTERIOR_GAIN = 2.0  # standard errors by which the outcome must help to predict the reports
_RISK_MARGIN = 1.0  # standard errors by which a candidate's corrected risk may exceed the inverse correction's
_AGREEMENT = 0.05  # smallest p-value of a posterior's agreement with the moment corrections
_CLEAR = 0.01  # an inverse channel this close to the identity leaves nothing to gain
FAILURES = (FairPremiumError, np.linalg.LinAlgError, FloatingPointError)


@dataclass(frozen=True)
class CandidateResult:
    """What the checks found for one candidate, and why it was chosen or not."""

    correction: str
    detail: str
    pooling: float
    chosen: bool
    reason: str
    risk: float = np.nan
    risk_error: float = np.nan
    report_loss: float = np.nan
    report_loss_error: float = np.nan
    model: str = "linear"


def candidates_for(correction: str, family: Family, q: int, classifier: Any = None) -> list[Candidate]:
    """Return the candidates of one correction, or of all for "auto"; the tilted one follows its base.

    A classifier given by the user joins those of `posterior`. With many features (q > 7 coefficients) a built-in
    classifier has many more, and one ridge has to do for each kind.
    """
    law = law_of(family)
    likelihoods = [LikelihoodCandidate(law), *(LikelihoodCandidate(other) for other in other_laws(family))]
    classifiers: list[Candidate] = [
        PosteriorCandidate(spline=spline, ridge=ridge)
        for spline in (False, True)
        for ridge in ((0.1, 10.0) if q <= 7 else (3.0,))
    ]
    if classifier is not None:
        classifiers.append(ClassifierCandidate(classifier))
    if correction == "likelihood":
        return [likelihoods[0]]
    if correction == "posterior":
        return classifiers
    if correction == "score":
        return [ScoreCandidate()]
    if law.name in ("normal", "gamma"):
        likelihoods.append(LikelihoodCandidate(law, common_dispersion=False))
    tilted = TiltedCandidate(base=likelihoods[-1].name)
    return [*likelihoods, *classifiers, tilted, ScoreCandidate(), InverseCandidate()]


class Chosen(NamedTuple):
    """A fit with the results of all candidates, and what is needed to fit the same candidate again."""

    candidate: Candidate
    fit: GroupFit
    posterior: Any  # its P(D given x, y) with `weights` and `report_log_loss`; None if it has none
    results: list[CandidateResult]

    def refit(self, channel: ReportChannel, problem: LinearProblem | None = None) -> Chosen:
        """Fit the same candidate with the same strength for another channel, or on other rows."""
        rng = np.random.default_rng(0)
        strength, problem = self.fit.strength, problem or self.fit.problem
        if isinstance(self.candidate, InverseCandidate):
            return self._replace(fit=fit_inverse(problem, channel, strength, rng))
        start = robust_start(problem, channel, strength, rng)
        posterior = _learn_on_all(self.candidate, problem, start)
        return self._replace(fit=self.candidate.fit(problem, start, strength, posterior, rng), posterior=posterior)


def fit_correction(
    problem: LinearProblem,
    channel: ReportChannel,
    correction: str,
    pooling: float | None,
    rng: np.random.Generator,
    classifier: Any = None,
) -> Chosen:
    """Fit with one correction, or for "auto" with the one that the checks choose.

    Parameters
    ----------
    problem : LinearProblem
        With its rows divided into folds if `pooling` is None.
    channel : ReportChannel
    correction : {"auto", "inverse", "score", "posterior", "likelihood"}
    pooling : float or None
        Pooling strength; None chooses.
    rng : Generator
    classifier : scikit-learn classifier, optional
        A further candidate for P(D given x, y).

    Returns
    -------
    Chosen
        One result per candidate, or per pooling strength of the inverse correction if nothing else was compared.
    """
    if correction == "inverse" or (correction == "auto" and _is_clear(channel)):
        start = fit_inverse(problem, channel, pooling, rng)
        return Chosen(InverseCandidate(), start, None, _strength_results(start, pooling))
    start = robust_start(problem, channel, pooling, rng)
    candidates = candidates_for(correction, problem.family, problem.moments.q, classifier)
    if len(candidates) == 1:
        only = candidates[0]
        posterior = only.learn(problem, start, {})
        fit = only.fit(problem, start, pooling, posterior, rng)
        result = CandidateResult(fit.correction, only.detail, fit.strength, True, "asked for")
        return Chosen(only, fit, posterior, [result])
    sample = _sample(problem, rng)
    comparison = _Comparison(sample, candidates, start, rng)
    order, reasons = comparison.choose()
    for name in order:
        chosen = next(c for c in candidates if c.name == name)
        try:
            if not comparison.agrees(chosen, order, reasons):
                continue
            if sample is problem:
                posterior = comparison.posteriors.get(name)
            else:
                posterior = _learn_on_all(chosen, problem, start)
            fit = chosen.fit(problem, start, pooling, posterior, rng)
        except FAILURES as error:
            reasons[name] = f"could not be fitted: {error}"
            continue
        return Chosen(chosen, fit, posterior, comparison.results(name, fit.strength, reasons))
    raise ConvergenceError("No candidate could be fitted: " + "; ".join(sorted(set(reasons.values()))))


def _is_clear(channel: ReportChannel) -> bool:
    """Tell whether the reports are nearly the truth, so that every correction comes to the same."""
    inverse = channel.table[:, :-1]
    return inverse.shape[0] == inverse.shape[1] and bool(np.abs(inverse - np.eye(len(inverse))).max() < _CLEAR)


def robust_start(
    problem: LinearProblem, channel: ReportChannel, pooling: float | None, rng: np.random.Generator
) -> GroupFit:
    """Fit the inverse correction with as little more pooling than asked for as gives a minimum."""
    volume = problem.moments.total_weight
    for more in (0.0, 1e-3, 1e-2, 0.1, 1.0, 10.0, 1e3):
        try:
            strength = pooling if pooling is None or more == 0 else pooling + more * volume
            return fit_inverse(problem, channel, strength, rng)
        except (RiskUnboundedError, ConvergenceError):
            if pooling is None:
                raise
    return fit_inverse(problem, channel, 1e6 * volume, rng)


def _sample(problem: LinearProblem, rng: np.random.Generator) -> LinearProblem:
    """Restrict a large portfolio to the rows that the checks look at."""
    n = len(problem.rows)
    if n <= CHECK_ROWS and isinstance(problem.rows, Rows):
        return problem
    index = np.arange(n) if n <= CHECK_ROWS else np.sort(rng.choice(n, CHECK_ROWS, replace=False))
    return problem.on(replace(problem.rows.take(index), fold=None))


def _learn_on_all(candidate: Candidate, problem: LinearProblem, start: GroupFit) -> Any:
    """Learn a posterior on all rows; a tilted one needs its base's first."""
    posteriors: Posteriors = {}
    if isinstance(candidate, TiltedCandidate):
        base = next(c for c in candidates_for("auto", problem.family, problem.moments.q) if c.name == candidate.base)
        posteriors[base.name] = base.learn(problem, start, {})
    return candidate.learn(problem, start, posteriors)


class _Comparison:
    """Held-out losses of all candidates on the same rows.

    Scales of features are those of all rows; every coefficient is learned on the training rows alone.
    """

    def __init__(self, problem: LinearProblem, candidates: list[Candidate], start: GroupFit, rng: np.random.Generator):
        self.candidates, self.problem, self.start = candidates, problem, start
        self.trouble: dict[str, str] = {}
        self.posteriors: Posteriors = {}
        for candidate in candidates:
            try:
                posterior = candidate.learn(problem, start, self.posteriors)
            except (*FAILURES, KeyError) as error:
                self.trouble[candidate.name] = f"could not be fitted: {error}"
                continue
            if posterior is not None:
                self.posteriors[candidate.name] = posterior
        found = reported_rows(problem, len(start.channel.matrix))
        assert isinstance(found, Rows)
        rows = replace(found, fold=None, share=None)
        self.fold = rows.draw_folds(FOLDS, rng)
        self.weight = np.ones(len(rows)) if rows.weight is None else rows.weight
        self.rows = rows
        self.train = [problem.on(rows.take(self.fold != f)) for f in range(FOLDS)]
        self.fold_posteriors: list[Posteriors] = [{} for _ in range(FOLDS)]
        self.report: dict[str, Array] = {}
        self.risk: dict[str, Array] = {}
        for candidate in candidates:
            if candidate.name in self.posteriors and candidate.name not in self.trouble:
                self._measure_posterior(candidate)
        self._measure_x_alone()

    def _measure_posterior(self, candidate: Candidate) -> None:
        """Record the report log-loss of a candidate's posterior."""
        name = candidate.name
        losses = np.empty(len(self.fold))
        for f, train in enumerate(self.train):
            try:
                posterior = candidate.relearn(self.posteriors[name], train, self.fold_posteriors[f])
            except (*FAILURES, KeyError) as error:
                self.trouble[name] = f"could not be fitted without a fold of the rows: {error}"
                return
            self.fold_posteriors[f][name] = posterior
            held = self.rows.take(self.fold == f)
            losses[self.fold == f] = posterior.report_log_loss(held.block(0, len(held)))
        self.report[name] = losses

    def _measure_x_alone(self) -> None:
        """Record the report log-loss of the features alone."""
        features, q = x_features(self.problem.moments)
        latent = Latent(self.rows, with_missing_row(self.start.channel.matrix), features, q)
        losses = np.empty(len(self.fold))
        try:
            near = fit_propensity(latent, self.start.shares)
            for f, train in enumerate(self.train):
                held = self.rows.take(self.fold == f)
                at = latent.on(train.rows).maximise(near)
                losses[self.fold == f] = latent.report_log_loss(held.block(0, len(held)), at)
        except FAILURES:
            return  # nothing to compare with: then the outcome is not known to be useless
        self.report["x alone"] = losses

    def _measure_prices(self, candidate: Candidate) -> bool:
        """Record the corrected risk of a candidate's prices; False if they cannot be fitted."""
        name = candidate.name
        losses = np.empty(len(self.fold))
        strength = 0.0 if candidate.correction in ("likelihood", "score") else self.start.strength
        for f, train in enumerate(self.train):
            held = self.rows.take(self.fold == f)
            try:
                B = candidate.prices(train, self.start, strength, self.fold_posteriors[f].get(name))
            except FAILURES as error:
                self.trouble[name] = f"could not be fitted without a fold of the rows: {error}"
                return False
            eta = self.problem.moments.coordinates.matrix(held.X) @ B
            losses[self.fold == f] = held_risk(self.problem.family, held, eta, self.start.channel.table)
        self.risk[name] = losses
        return True

    def _of(self, correction: str) -> list[Candidate]:
        return [c for c in self.candidates if c.correction == correction and c.name not in self.trouble]

    def report_gap(self, a: str, b: str) -> float:
        """How many standard errors the report log-loss of a exceeds that of b."""
        return paired_z(self.report[a] - self.report[b], cluster=self.rows.cluster)

    def risk_gap(self, a: str, b: str) -> float:
        """How many standard errors the corrected risk of a exceeds that of b."""
        return paired_z(self.risk[a] - self.risk[b], self.weight, self.rows.cluster)

    def choose(self) -> tuple[list[str], dict[str, str]]:
        """Apply the rule; returns the acceptable candidates, best first, and a reason for each candidate.

        1. A likelihood is taken unless the best classifier of (x, y) predicts held-out reports better by more than
           one standard error, or its corrected risk is clearly above the inverse correction's.
        2. Otherwise the best classifier's posterior weights, if the outcome helps to predict the reports at all and
           its corrected risk is not above that of the score and inverse corrections.
        3. Otherwise the score correction, unless its corrected risk is above the inverse correction's.
        4. Otherwise the inverse correction.
        """
        reasons: dict[str, str] = {}
        order: list[str] = []
        inverse = [c.name for c in self._of("inverse") if self._measure_prices(c)]
        classifiers = sorted(self._of("posterior"), key=lambda c: float(np.mean(self.report[c.name])))
        best = classifiers[0] if classifiers else None
        for candidate in classifiers[1:]:
            reasons[candidate.name] = f"report log-loss above {classifiers[0].name}"
        for candidate in self._likelihoods():
            gap = self.report_gap(candidate.name, best.name) if best is not None else 0.0
            if gap > _LIKELIHOOD_MARGIN:
                reasons[candidate.name] = (
                    f"report log-loss {gap:.1f} standard errors above a classifier's: "
                    "its law of y or its P(D given x) is wrong"
                )
            elif self._passes(candidate, inverse, 3 * _RISK_MARGIN, reasons):
                order.append(candidate.name)
        moments = [c.name for c in self._of("score") if self._passes(c, inverse, _RISK_MARGIN, reasons)] + inverse
        if best is not None:
            gain = self.report_gap("x alone", best.name) if "x alone" in self.report else np.inf
            if inverse and gain < _POSTERIOR_GAIN:
                reasons[best.name] = f"the outcome hardly helps to predict the reports ({gain:.1f} standard errors)"
            elif self._passes(best, moments, 0.0, reasons):
                order.append(best.name)
        order += moments
        if not order:
            order = [c.name for c in classifiers]
        for name in order[1:]:
            reasons.setdefault(name, f"less efficient than {order[0]}, which passes every check")
        return order, reasons

    def _likelihoods(self) -> list[Candidate]:
        """Likelihoods, the preferred one first: a simpler law unless another is clearly better."""
        found = self._of("likelihood")
        for candidate in found[1:]:
            if self.report_gap(found[0].name, candidate.name) > _LIKELIHOOD_MARGIN:
                found = [candidate, *(c for c in found if c is not candidate)]
        return found

    def _passes(self, candidate: Candidate, others: list[str], margin: float, reasons: dict[str, str]) -> bool:
        """Tell whether the corrected risk, paired with that of others, lets a candidate pass."""
        if not self._measure_prices(candidate):
            return False
        for other in others:
            gap = self.risk_gap(candidate.name, other)
            if gap > margin:
                reasons[candidate.name] = f"corrected risk {gap:.1f} standard errors above that of {other}"
                return False
        return True

    def agrees(self, candidate: Candidate, order: list[str], reasons: dict[str, str]) -> bool:
        """Tell whether a candidate's coefficients agree with those of the best moment-based correction."""
        moment = next((c for c in self.candidates if c.correction in ("score", "inverse") and c.name in order), None)
        if candidate.correction != "posterior" or moment is None:
            return True
        rng = np.random.default_rng(0)
        fit = candidate.fit(self.problem, self.start, 0.0, self.posteriors.get(candidate.name), rng)
        try:
            robust = fit_inverse(self.problem, self.start.channel, 0.0, rng)
            if moment.correction == "score":
                robust = moment.fit(self.problem, robust, 0.0, None, rng)
        except FAILURES:
            return True  # without pooling there is nothing to compare with
        p = agreement(fit, robust)
        if p < _AGREEMENT:
            reasons[candidate.name] = f"disagrees with {moment.name} beyond sampling error (p = {p:.2g})"
        return p >= _AGREEMENT

    def results(self, chosen: str, strength: float, reasons: dict[str, str]) -> list[CandidateResult]:
        """Return the result of every candidate."""
        reasons = {**reasons, **self.trouble}
        reasons[chosen] = "the most efficient candidate that passes every check"
        rows = []
        for candidate in self.candidates:
            name = candidate.name
            own = self.start.strength if candidate.correction in ("inverse", "posterior") else 0.0
            person, none = self.rows.cluster, (np.nan, np.nan)
            risk = mean_and_error(self.risk[name], self.weight, person) if name in self.risk else none
            loss = mean_and_error(self.report[name], cluster=person) if name in self.report else none
            pooling = strength if name == chosen else own
            chosen_here, reason = name == chosen, reasons[name]
            rows.append(
                CandidateResult(candidate.correction, candidate.detail, pooling, chosen_here, reason, *risk, *loss)
            )
        return rows


def _strength_results(fit: GroupFit, pooling: float | None) -> list[CandidateResult]:
    """Tell how the inverse correction's pooling strength was chosen."""
    if pooling is not None:
        return [CandidateResult("inverse", "", fit.strength, True, "given")]
    rows = []
    for r in fit.strength_risks:
        chosen = r.strength == fit.strength
        reason = "smallest corrected risk" if chosen else r.problem or "larger corrected risk"
        rows.append(CandidateResult("inverse", "", r.strength, chosen, reason, r.risk, r.standard_error))
    return rows
