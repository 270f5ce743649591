"""The corrections as candidates: what each claims to know, the prices it gives, and its full fit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fairpremium.arrays import Array
from fairpremium.blocks import Block, Rows
from fairpremium.corrections._classifier import classifier_fit, train_classifier
from fairpremium.corrections._fit import GroupFit
from fairpremium.corrections._inverse import fit_inverse
from fairpremium.corrections._latent import Latent, Parameters
from fairpremium.corrections._likelihood import fit_mixture, likelihood_fit, mixture_likelihood, naive_start
from fairpremium.corrections._pooling import MAX_ROWS, choose_strength, judge_strengths
from fairpremium.corrections._posterior import (
    PosteriorWeights,
    classifier_likelihood,
    posterior_fit,
    posterior_prices,
)
from fairpremium.corrections._propensity import OutcomeFeatures, fit_propensity, reported_rows
from fairpremium.corrections._referee import corrected_risk
from fairpremium.corrections._score import fit_score
from fairpremium.families import Law
from fairpremium.models._linear import LinearProblem


@dataclass(frozen=True)
class Noise:
    """What the corrections need of a channel."""

    matrix: Array  # (reports, K), T
    table: Array  # (K, reports + 1), T^-1 with a zero column for the missing report
    groups: tuple[object, ...]


@dataclass(frozen=True)
class Claim:
    """A fitted P(D given x, y)."""

    latent: Latent
    parameters: Parameters

    def weights(self, block: Block) -> Array:
        """Compute P(D = k given x, y, s), zero for rows that did not report: shape (rows, K)."""
        return PosteriorWeights(self.latent, self.parameters)(block)

    def report_log_loss(self, block: Block) -> Array:
        """Compute -log P(s given x, y)."""
        return self.latent.report_log_loss(block, self.parameters)


class Task(NamedTuple):
    """Rows to fit, an inverse fit to start from, and the channel."""

    problem: LinearProblem
    start: GroupFit
    noise: Noise


class Candidate(ABC):
    """One way to correct; `claims` holds the claims of other candidates on the same rows, by name."""

    correction: ClassVar[str]
    detail: str = ""

    @property
    def name(self) -> str:
        """Correction and detail."""
        return f"{self.correction} ({self.detail})" if self.detail else self.correction

    def claim(self, task: Task, claims: dict[str, Claim]) -> Claim | None:
        """Learn P(D given x, y) on the problem's rows; None if the correction claims nothing."""
        return None

    def relearn(self, claim: Claim, problem: LinearProblem, claims: dict[str, Claim]) -> Claim:
        """Learn the claim anew on fewer rows, from the solution on all of them."""
        latent = claim.latent.on(problem.rows)
        return Claim(latent, latent.maximise(claim.parameters))

    @abstractmethod
    def prices(self, task: Task, strength: float, claim: Claim | None) -> Array:
        """Fit coefficients of shape (q, K) with a given pooling strength."""

    @abstractmethod
    def fit(self, task: Task, pooling: float | None, claim: Claim | None, rng: np.random.Generator) -> GroupFit:
        """Fit with all that intervals need; `pooling` None chooses the strength."""


class InverseCandidate(Candidate):
    """The paper's correction."""

    correction = "inverse"

    def prices(self, task: Task, strength: float, claim: Claim | None) -> Array:
        """Fit coefficients."""
        return task.problem.solve(task.noise.table, strength, task.noise.groups).B

    def fit(self, task: Task, pooling: float | None, claim: Claim | None, rng: np.random.Generator) -> GroupFit:
        """Return the start: it is this fit."""
        return task.start


class ScoreCandidate(Candidate):
    """The optimally weighted score; without pooling unless a strength is given."""

    correction = "score"

    def prices(self, task: Task, strength: float, claim: Claim | None) -> Array:
        """Fit coefficients."""
        return self._fit(task, strength).B

    def fit(self, task: Task, pooling: float | None, claim: Claim | None, rng: np.random.Generator) -> GroupFit:
        """Fit with influences; without a strength, none or the inverse correction's, by the corrected risk."""
        if pooling is None:
            pooling = self._choose(task, rng)
        return self._fit(task, pooling)

    def _choose(self, task: Task, rng: np.random.Generator) -> float:
        problem, start, noise = task
        if problem.rows.fold is None or start.strength == 0:
            return 0.0
        problem = problem.sample(MAX_ROWS, rng, by_row=True)
        assert isinstance(problem.rows, Rows)
        fold = problem.rows.fold
        assert fold is not None
        risk = {0.0: 0.0, start.strength: 0.0}
        for f in range(int(fold.max()) + 1):
            held = problem.rows.take(fold == f)
            train = problem.on(problem.rows.with_folds(None).take(fold != f))
            for strength in risk:
                mu = problem.family.link.mean_of(
                    problem.moments.coordinates.matrix(held.X) @ self.prices(Task(train, start, noise), strength, None)
                )
                volume = 1.0 if held.weight is None else held.weight.sum() / len(held)
                mean, _ = corrected_risk(problem.family, held.y, mu, held.report, noise.table, held.weight)
                risk[strength] += mean * volume * len(held)
        return min(risk, key=lambda strength: risk[strength])

    def _fit(self, task: Task, strength: float) -> GroupFit:
        problem, start, noise = task
        begin = replace(start, strength=strength, judged=[])
        return fit_score(problem, noise.matrix, noise.table, noise.groups, begin)


@dataclass(frozen=True)
class LikelihoodCandidate(Candidate):
    """The mixture likelihood with one law."""

    correction = "likelihood"
    law: Law
    common_dispersion: bool = True

    @property
    def detail(self) -> str:  # type: ignore[override]
        """The law."""
        return self.law.name if self.common_dispersion else f"{self.law.name}, dispersion by group"

    def claim(self, task: Task, claims: dict[str, Claim]) -> Claim:
        """Maximise the likelihood without pooling."""
        problem, start, noise = task
        latent = self._latent(problem, noise, 0.0)
        naive = naive_start(problem, noise.matrix, noise.groups)
        starts = [start.B] if naive is None else [start.B, naive]
        return Claim(latent, fit_mixture(latent, problem, start.shares, starts))

    def prices(self, task: Task, strength: float, claim: Claim | None) -> Array:
        """Fit coefficients."""
        assert claim is not None
        B = self._pooled(task.problem, task.noise, strength, claim).parameters.B
        assert B is not None
        return B

    def fit(self, task: Task, pooling: float | None, claim: Claim | None, rng: np.random.Generator) -> GroupFit:
        """Fit with influences; the strength is chosen for the responsibilities of the fit without pooling."""
        problem, _, noise = task
        assert claim is not None
        judged = []
        if pooling is None:
            weights = PosteriorWeights(claim.latent, claim.parameters)
            judged = judge_strengths(problem, noise.table, noise.groups, rng, weights)
            pooling = choose_strength(judged)
        pooled = self._pooled(problem, noise, pooling, claim)
        fit = likelihood_fit(problem, pooled.latent, pooled.parameters, noise.table, pooling)
        return replace(fit, judged=judged)

    def _latent(self, problem: LinearProblem, noise: Noise, strength: float) -> Latent:
        return mixture_likelihood(problem, noise.matrix, self.law, strength, common_dispersion=self.common_dispersion)

    def _pooled(self, problem: LinearProblem, noise: Noise, strength: float, claim: Claim) -> Claim:
        if strength == 0:
            return claim
        latent = self._latent(problem, noise, strength)
        return Claim(latent, latent.maximise(claim.parameters))


class _WeightedCandidate(Candidate):
    """Posterior weights of some classifier."""

    correction = "posterior"

    def prices(self, task: Task, strength: float, claim: Claim | None) -> Array:
        """Fit coefficients."""
        problem, _, noise = task
        assert claim is not None
        weights = PosteriorWeights(claim.latent, claim.parameters)
        return posterior_prices(problem, weights, noise.table, noise.groups, strength).B

    def fit(self, task: Task, pooling: float | None, claim: Claim | None, rng: np.random.Generator) -> GroupFit:
        """Fit with influences."""
        problem, _, noise = task
        assert claim is not None
        return posterior_fit(problem, claim.latent, claim.parameters, noise.table, noise.groups, pooling, rng)


@dataclass(frozen=True)
class PosteriorCandidate(_WeightedCandidate):
    """Posterior weights of a logit in x, the outcome and their products."""

    spline: bool
    ridge: float

    @property
    def detail(self) -> str:  # type: ignore[override]
        """The classifier."""
        return f"{'spline' if self.spline else 'quadratic'} logit, ridge {self.ridge:g}"

    def claim(self, task: Task, claims: dict[str, Claim]) -> Claim:
        """Fit the classifier through the channel."""
        problem, start, noise = task
        latent = classifier_likelihood(problem, noise.matrix, spline=self.spline, ridge=self.ridge)
        return Claim(latent, fit_propensity(latent, start.shares))


@dataclass(frozen=True)
class TiltedCandidate(_WeightedCandidate):
    """Posterior weights of a likelihood's own P(D given x, y), tilted by a logit where the reports disagree."""

    base: str  # name of the likelihood candidate
    ridge: float = 1.0

    @property
    def detail(self) -> str:  # type: ignore[override]
        """The classifier."""
        return f"tilted {self.base}"

    def claim(self, task: Task, claims: dict[str, Claim]) -> Claim:
        """Fit the tilt through the channel."""
        problem, _, noise = task
        inner = claims[self.base].latent
        rows = reported_rows(problem, len(noise.matrix))
        features = OutcomeFeatures.learn(problem, rows, spline=False, products=False)
        latent = Latent(rows, inner.T, features, features.n_features, self.ridge)
        zero = Parameters(np.zeros((latent.n_groups - 1, latent.n_features)))
        return self.relearn(Claim(latent, zero), problem, claims)

    def relearn(self, claim: Claim, problem: LinearProblem, claims: dict[str, Claim]) -> Claim:
        """Tilt the likelihood of the same rows."""
        rows = reported_rows(problem, len(claim.latent.T) - 1)
        latent = replace(claim.latent, rows=rows, offset=_LogOdds(claims[self.base]))
        return Claim(latent, latent.maximise(claim.parameters))


@dataclass(frozen=True)
class ClassifierCandidate(Candidate):
    """Posterior weights of a scikit-learn classifier."""

    correction = "posterior"
    classifier: Any

    @property
    def detail(self) -> str:  # type: ignore[override]
        """The classifier."""
        return type(self.classifier).__name__

    def claim(self, task: Task, claims: dict[str, Claim]) -> Any:
        """Train the classifier through the channel."""
        return train_classifier(self.classifier, task.problem, task.noise.matrix)

    def relearn(self, claim: Any, problem: LinearProblem, claims: dict[str, Claim]) -> Any:
        """Train it anew."""
        return train_classifier(self.classifier, problem, claim.T[:-1])

    def prices(self, task: Task, strength: float, claim: Any) -> Array:
        """Fit coefficients."""
        return posterior_prices(task.problem, claim.weights, task.noise.table, task.noise.groups, strength).B

    def fit(self, task: Task, pooling: float | None, claim: Any, rng: np.random.Generator) -> GroupFit:
        """Fit with influences."""
        return classifier_fit(task.problem, claim, task.noise.table, task.noise.groups, pooling, rng)


@dataclass(frozen=True)
class _LogOdds:
    """Log-odds of the groups against the first one under a claim."""

    claim: Claim

    def __call__(self, block: Block) -> Array:
        log_q, _, log_p = self.claim.latent.log_terms(block, self.claim.parameters)
        joint = log_q + log_p
        return np.asarray(np.clip(joint[:, 1:] - joint[:, :1], -50, 50))


def start_fit(problem: LinearProblem, noise: Noise, pooling: float | None, rng: np.random.Generator) -> GroupFit:
    """Fit the inverse correction, from which all others start."""
    return fit_inverse(problem, noise.table, noise.groups, pooling, rng)
