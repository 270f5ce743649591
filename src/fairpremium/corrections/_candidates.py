"""The corrections as candidates: the P(D given x, y) that each learns, the prices it gives, and its full fit."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from fairpremium.arrays import Array
from fairpremium.blocks import Rows
from fairpremium.corrections._checks import corrected_risk
from fairpremium.corrections._classifier import classifier_fit, train_classifier
from fairpremium.corrections._fit import GroupFit
from fairpremium.corrections._latent import Latent, Parameters
from fairpremium.corrections._likelihood import fit_mixture, likelihood_fit, mixture_likelihood, naive_start
from fairpremium.corrections._pooling import MAX_ROWS, choose_strength
from fairpremium.corrections._posterior import GroupPosterior, classifier_likelihood, posterior_fit, posterior_prices
from fairpremium.corrections._propensity import OutcomeFeatures, fit_propensity, reported_rows
from fairpremium.corrections._score import fit_score
from fairpremium.families import Law
from fairpremium.models import LinearProblem

Posteriors = dict[str, GroupPosterior]


class NamedCorrection(ABC):
    """One way to correct, with a name that tells it from all others in the choice."""

    correction: ClassVar[str]
    detail: str = ""

    @property
    def name(self) -> str:
        """Correction and detail."""
        return f"{self.correction} ({self.detail})" if self.detail else self.correction


class Candidate(NamedCorrection):
    """One way to correct the linear problem.

    Its methods fit a problem from `start`, an inverse fit that also holds the channel. `posterior` is what `learn`
    returned: a `GroupPosterior`, a `FittedClassifier`, or None. `posteriors` are those of other candidates on the same
    rows, by name.
    """

    def learn(self, problem: LinearProblem, start: GroupFit, posteriors: Posteriors) -> Any:
        """Learn P(D given x, y) on the problem's rows; None if the correction needs none."""
        return None

    def relearn(self, posterior: Any, problem: LinearProblem, posteriors: Posteriors) -> Any:
        """Learn the posterior again on fewer rows, from the solution on all of them."""
        latent = posterior.latent.on(problem.rows)
        return GroupPosterior(latent, latent.maximise(posterior.parameters))

    @abstractmethod
    def prices(self, problem: LinearProblem, start: GroupFit, strength: float, posterior: Any) -> Array:
        """Fit coefficients of shape (q, K) with a given pooling strength."""

    @abstractmethod
    def fit(
        self, problem: LinearProblem, start: GroupFit, pooling: float | None, posterior: Any, rng: np.random.Generator
    ) -> GroupFit:
        """Fit with all that intervals need; `pooling` None chooses the strength."""


class InverseCandidate(Candidate):
    """The paper's correction."""

    correction = "inverse"

    def prices(self, problem: LinearProblem, start: GroupFit, strength: float, posterior: Any) -> Array:
        """Fit coefficients."""
        return problem.solve(start.channel.table, strength, start.channel.groups).B

    def fit(
        self, problem: LinearProblem, start: GroupFit, pooling: float | None, posterior: Any, rng: np.random.Generator
    ) -> GroupFit:
        """Return the start: it is this fit."""
        return start


class ScoreCandidate(Candidate):
    """The optimally weighted score; without pooling unless a strength is given."""

    correction = "score"

    def prices(self, problem: LinearProblem, start: GroupFit, strength: float, posterior: Any) -> Array:
        """Fit coefficients."""
        return fit_score(problem, start, strength).B

    def fit(
        self, problem: LinearProblem, start: GroupFit, pooling: float | None, posterior: Any, rng: np.random.Generator
    ) -> GroupFit:
        """Fit with influences; without a strength, none or the inverse correction's, by the corrected risk."""
        return fit_score(problem, start, self._strength(problem, start, rng) if pooling is None else pooling)

    def _strength(self, problem: LinearProblem, start: GroupFit, rng: np.random.Generator) -> float:
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
                    problem.moments.coordinates.matrix(held.X) @ fit_score(train, start, strength).B
                )
                volume = 1.0 if held.weight is None else held.weight.sum() / len(held)
                mean, _ = corrected_risk(problem.family, held.y, mu, held.report, start.channel.table, held.weight)
                risk[strength] += mean * volume * len(held)
        return min(risk, key=lambda strength: risk[strength])


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

    def learn(self, problem: LinearProblem, start: GroupFit, posteriors: Posteriors) -> GroupPosterior:
        """Maximise the likelihood without pooling."""
        latent = self._latent(problem, start, 0.0)
        naive = naive_start(problem, start.channel.matrix, start.channel.groups)
        starts = [start.B] if naive is None else [start.B, naive]
        return GroupPosterior(latent, fit_mixture(latent, problem, start.shares, starts))

    def prices(self, problem: LinearProblem, start: GroupFit, strength: float, posterior: Any) -> Array:
        """Fit coefficients."""
        return self._pooled(problem, start, strength, posterior).parameters.B

    def fit(
        self, problem: LinearProblem, start: GroupFit, pooling: float | None, posterior: Any, rng: np.random.Generator
    ) -> GroupFit:
        """Fit with influences; the strength is chosen for the responsibilities of the fit without pooling."""
        strength, risks = choose_strength(problem, start.channel, pooling, rng, posterior.weights)
        pooled = self._pooled(problem, start, strength, posterior)
        fit = likelihood_fit(problem, pooled.latent, pooled.parameters, start.channel, strength)
        return replace(fit, strength_risks=risks)

    def _latent(self, problem: LinearProblem, start: GroupFit, strength: float) -> Latent:
        matrix = start.channel.matrix
        return mixture_likelihood(problem, matrix, self.law, strength, common_dispersion=self.common_dispersion)

    def _pooled(
        self, problem: LinearProblem, start: GroupFit, strength: float, posterior: GroupPosterior
    ) -> GroupPosterior:
        if strength == 0:
            return posterior
        latent = self._latent(problem, start, strength)
        return GroupPosterior(latent, latent.maximise(posterior.parameters))


class _WeightedCandidate(Candidate):
    """Posterior weights of some classifier."""

    correction = "posterior"

    def prices(self, problem: LinearProblem, start: GroupFit, strength: float, posterior: Any) -> Array:
        """Fit coefficients."""
        return posterior_prices(problem, posterior.weights, start.channel, strength).B

    def fit(
        self, problem: LinearProblem, start: GroupFit, pooling: float | None, posterior: Any, rng: np.random.Generator
    ) -> GroupFit:
        """Fit with influences."""
        return posterior_fit(problem, posterior, start.channel, pooling, rng)


@dataclass(frozen=True)
class PosteriorCandidate(_WeightedCandidate):
    """Posterior weights of a logit in x, the outcome and their products."""

    spline: bool
    ridge: float

    @property
    def detail(self) -> str:  # type: ignore[override]
        """The classifier."""
        return f"{'spline' if self.spline else 'quadratic'} logit, ridge {self.ridge:g}"

    def learn(self, problem: LinearProblem, start: GroupFit, posteriors: Posteriors) -> GroupPosterior:
        """Fit the classifier through the channel."""
        latent = classifier_likelihood(problem, start.channel.matrix, spline=self.spline, ridge=self.ridge)
        return GroupPosterior(latent, fit_propensity(latent, start.shares))


@dataclass(frozen=True)
class TiltedCandidate(_WeightedCandidate):
    """Posterior weights of a likelihood's own P(D given x, y), tilted by a logit where the reports disagree."""

    base: str  # name of the likelihood candidate
    ridge: float = 1.0

    @property
    def detail(self) -> str:  # type: ignore[override]
        """The classifier."""
        return f"tilted {self.base}"

    def learn(self, problem: LinearProblem, start: GroupFit, posteriors: Posteriors) -> GroupPosterior:
        """Fit the tilt through the channel."""
        inner = posteriors[self.base].latent
        rows = reported_rows(problem, len(start.channel.matrix))
        features = OutcomeFeatures.learn(problem, rows, spline=False, products=False)
        latent = Latent(rows, inner.T, features, features.n_features, self.ridge)
        zero = Parameters(np.zeros((latent.n_groups - 1, latent.n_features)))
        return self.relearn(GroupPosterior(latent, zero), problem, posteriors)

    def relearn(self, posterior: Any, problem: LinearProblem, posteriors: Posteriors) -> GroupPosterior:
        """Tilt the likelihood of the same rows."""
        rows = reported_rows(problem, len(posterior.latent.T) - 1)
        latent = replace(posterior.latent, rows=rows, offset=posteriors[self.base].log_odds)
        return GroupPosterior(latent, latent.maximise(posterior.parameters))


@dataclass(frozen=True)
class ClassifierCandidate(_WeightedCandidate):
    """Posterior weights of a scikit-learn classifier."""

    classifier: Any

    @property
    def detail(self) -> str:  # type: ignore[override]
        """The classifier."""
        return type(self.classifier).__name__

    def learn(self, problem: LinearProblem, start: GroupFit, posteriors: Posteriors) -> Any:
        """Train the classifier through the channel."""
        return train_classifier(self.classifier, problem, start.channel.matrix)

    def relearn(self, posterior: Any, problem: LinearProblem, posteriors: Posteriors) -> Any:
        """Train it again."""
        return train_classifier(self.classifier, problem, posterior.T[:-1])

    def fit(
        self, problem: LinearProblem, start: GroupFit, pooling: float | None, posterior: Any, rng: np.random.Generator
    ) -> GroupFit:
        """Fit with influences."""
        return classifier_fit(problem, posterior, start.channel, pooling, rng)
