"""The corrections as candidates: each fits the linear problem from a distribution-free base.

A new correction is a subclass of `Candidate` in a file of its own, which the package imports. `fit_correction` finds it
by its name, and "auto" checks what its `for_auto` returns.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from fairpremium.arrays import Array
from fairpremium.blocks import Block, Rows
from fairpremium.corrections._classifier import classifier_fit, train_classifier
from fairpremium.corrections._empirical_bayes import GaussianPenalty, Prior, price_variance
from fairpremium.corrections._fit import GroupFit, Unpooled
from fairpremium.corrections._latent import Latent, Parameters
from fairpremium.corrections._likelihood import (
    LAW_PARAMETERS,
    can_learn_law,
    expected_evidence,
    first_law,
    fit_mixture,
    learn_law,
    likelihood_fit,
    mixture_likelihood,
    naive_start,
    shrink_likelihood,
    start_mixture,
)
from fairpremium.corrections._posterior import GroupPosterior, classifier_likelihood, posterior_fit
from fairpremium.corrections._propensity import GroupPropensity, fit_propensity, reported_rows
from fairpremium.corrections._score import dispersion, fit_score
from fairpremium.families import REAL, Domain, Family, Law, ResidualLaw, law_of, other_laws
from fairpremium.models import LinearProblem, Penalty

_CLASSIFIER_ROWS = 30_000  # rows on which the classifiers of the posterior correction are compared
_FOLDS = 5


class Fitted(NamedTuple):
    """A candidate's fit, and what the checks need to know about it."""

    fit: GroupFit
    posterior: Any = None  # its P(D given x, y), with `weights`; None if it has none
    unpooled: Unpooled | None = None  # the fit without pooling, to first order; None if it needs no check
    candidate: "Candidate | None" = None  # with what it chose itself; None: it had no choice


class Learned(NamedTuple):
    """P(D given x, y) of a candidate, with which prices can be fitted."""

    candidate: "Candidate"  # with what it chose itself
    posterior: Any  # with `weights`

    def shares(self, problem: LinearProblem, base: GroupFit) -> Array:
        """Estimate P(D): the mean of P(D = k given x, y, s), or the base's where no likelihood of reports gives it."""
        if not isinstance(self.posterior, GroupPosterior):
            return base.shares
        sums = partial(self.posterior.latent.share_sums, at=self.posterior.parameters)
        return np.asarray(problem.rows.reduce(sums, block_rows=2048)[0] / problem.moments.total_weight)


class Begun(NamedTuple):
    """A candidate before it is pooled, which takes most of the time."""

    bic: float  # in whose order candidates are checked; those that have none first
    complete: Callable[[], Fitted]


class Candidate(ABC):
    """One way to correct the linear problem; subclasses are known by the name of their correction."""

    correction: ClassVar[str]
    kinds: ClassVar[dict[str, type["Candidate"]]] = {}
    detail: str = ""

    def __init_subclass__(cls) -> None:
        """Register the correction."""
        Candidate.kinds[cls.correction] = cls

    @classmethod
    def requested(cls, family: Family, classifier: Any = None) -> "Candidate":
        """Return the candidate for whoever asks for this correction."""
        return cls()

    @classmethod
    def for_auto(cls, problem: LinearProblem) -> list["Candidate"]:
        """Return the candidates of this correction that "auto" checks against the base."""
        return []

    @property
    def name(self) -> str:
        """Correction and detail, which tell it from all others."""
        return f"{self.correction} ({self.detail})" if self.detail else self.correction

    def prospect(self, problem: LinearProblem, base: GroupFit) -> float:
        """Estimate the variance of the prices if the assumptions hold, relative to the base's, before any fit."""
        return 0.0

    def begin(self, problem: LinearProblem, base: GroupFit, pooling: float | None) -> Begun:
        """Do as much as tells how well the rows are described; parameters as for `fit`."""
        return Begun(-np.inf, partial(self.fit, problem, base, pooling))

    def learn(self, problem: LinearProblem, base: GroupFit, pooling: float | None) -> Learned:
        """Learn P(D given x, y) alone; parameters as for `fit`."""
        raise ValueError(f"The correction {self.correction} has no model of P(D given x, y).")

    @abstractmethod
    def fit(self, problem: LinearProblem, base: GroupFit, pooling: float | None) -> Fitted:
        """Fit the problem, starting from `base`, an inverse fit that also holds the channel.

        `pooling` is a strength in rows; None pools by empirical Bayes.
        """


class InverseCandidate(Candidate):
    """The paper's correction."""

    correction = "inverse"

    def fit(self, problem: LinearProblem, base: GroupFit, pooling: float | None) -> Fitted:
        """Return the base: it is this fit."""
        return Fitted(base)


class ScoreCandidate(Candidate):
    """The optimally weighted score."""

    correction = "score"

    def fit(self, problem: LinearProblem, base: GroupFit, pooling: float | None) -> Fitted:
        """Solve the score equations."""
        return Fitted(fit_score(problem, base, pooling))


@dataclass(frozen=True)
class LikelihoodCandidate(Candidate):
    """The mixture likelihood with one law."""

    correction = "likelihood"
    law: Law | None  # None: learned from the residuals
    common_dispersion: bool = True

    @property
    def detail(self) -> str:  # type: ignore[override]
        """The law."""
        name = ResidualLaw.name if self.law is None else self.law.name
        return name if self.common_dispersion else f"{name}, dispersion by group"

    @classmethod
    def requested(cls, family: Family, classifier: Any = None) -> "LikelihoodCandidate":
        """Return the family's own law."""
        return cls(law_of(family))

    @classmethod
    def for_auto(cls, problem: LinearProblem) -> list[Candidate]:
        """Return the family's own law, and others with the same means that can give these outcomes."""
        family = problem.family
        law = law_of(family)
        found: list[Candidate] = [cls(law)]
        found += [cls(other) for other in other_laws(family) if _covers(other.outcomes, problem)]
        if law.name in ("normal", "gamma"):
            found.append(cls(law, common_dispersion=False))
        if can_learn_law(family):
            found.append(cls(None))
        return found

    def prospect(self, problem: LinearProblem, base: GroupFit) -> float:
        """Estimate the variance of the prices if the law is right, relative to the base's: one look at the rows."""
        if base.posterior is None:
            return 0.0
        latent, start = self._start(problem, base, 0.0)
        evidence = expected_evidence(latent, start).divided(base.repeats)
        covariance = Prior.of(problem).wide_covariance(evidence, len(base.channel.groups))
        return price_variance(problem, covariance) / price_variance(problem, base.posterior.wide_covariance)

    def _start(self, problem: LinearProblem, base: GroupFit, strength: float) -> tuple[Latent, Parameters]:
        """Set up the likelihood and parameters to start from."""
        matrix, common = base.channel.matrix, self.common_dispersion
        propensity = base.moments.propensity if base.moments else GroupPropensity.learn(problem, base.channel)
        assert propensity.parameters is not None  # reports of a channel have been modelled
        law = self.law or law_of(problem.family)
        latent = mixture_likelihood(
            problem,
            matrix,
            law,
            strength,
            common_dispersion=common,
            propensity=propensity,
            everyone=base.channel.everyone,
        )
        if base.posterior is not None:
            assert isinstance(latent.penalty, Penalty)  # without a strength it is the ridge alone
            ridge = latent.penalty.hessian(len(base.channel.groups))
            latent = replace(latent, penalty=GaussianPenalty(base.posterior.prior_precision, ridge))
        start = start_mixture(latent, problem, propensity.parameters.gamma, base.B)
        if law.has_dispersion and law.name == problem.family.name:
            within = dispersion(problem, base.channel.table, base.B)
            if within > 0:  # it is zero where prices fit all outcomes exactly
                start = replace(start, log_dispersion=np.full(latent.n_groups, np.log(within)))
        if self.law is None:
            law, start = first_law(latent, base, start)
            latent = replace(latent, law=law)
        return latent, start

    def fit(self, problem: LinearProblem, base: GroupFit, pooling: float | None) -> Fitted:
        """Maximise the likelihood, and pool."""
        return self.begin(problem, base, pooling).complete()

    def learn(self, problem: LinearProblem, base: GroupFit, pooling: float | None) -> Learned:
        """Maximise the likelihood."""
        return Learned(self, GroupPosterior(*self._maximise(problem, base, pooling)))

    def _maximise(self, problem: LinearProblem, base: GroupFit, pooling: float | None) -> tuple[Latent, Parameters]:
        latent, start = self._start(problem, base, pooling or 0.0)
        if self.law is None:
            latent, start = learn_law(latent, start)
        starts = [start]
        if pooling is not None:
            naive = naive_start(problem, base.channel.matrix, base.channel.groups)
            starts += [] if naive is None else [replace(start, B=naive)]
        return latent, fit_mixture(latent, starts)

    def begin(self, problem: LinearProblem, base: GroupFit, pooling: float | None) -> Begun:
        """Maximise the likelihood."""
        latent, at = self._maximise(problem, base, pooling)
        size = latent.dimension(at) + (LAW_PARAMETERS if self.law is None else 0)
        bic = -2 * latent.value(at) / base.repeats + size * np.log(len(latent.rows) / base.repeats)
        return Begun(float(bic), partial(self._pool, problem, base, pooling, latent, at))

    def _pool(
        self, problem: LinearProblem, base: GroupFit, pooling: float | None, latent: Latent, at: Parameters
    ) -> Fitted:
        if self.law is None:  # prices are means, whatever the density: least squares with its weights
            fit, unpooled = posterior_fit(problem, GroupPosterior(latent, at), base, pooling, self.correction)
            if fit.posterior is not None and base.posterior is not None:  # it takes the density for known
                apart = fit.posterior.wide_mean - base.posterior.wide_mean
                fit = replace(fit, posterior=replace(fit.posterior, apart=apart))
        elif pooling is None:
            fit, at, unpooled = shrink_likelihood(problem, latent, at, base)
        else:
            fit = likelihood_fit(problem, latent, at, base.channel, pooling)
            own = slice(fit.influence.first, fit.influence.first + fit.B.size)
            unpooled = Unpooled(fit.B, fit.influence.response[own])
        return Fitted(fit, GroupPosterior(latent, at), unpooled)


def _covers(domain: Domain, problem: LinearProblem) -> bool:
    """Tell whether all outcomes lie in a domain."""
    return domain == REAL or not problem.rows.reduce(partial(_outside, domain=domain))[0]


def _outside(block: Block, domain: Domain) -> tuple[Array]:
    return (np.array(np.count_nonzero(~domain.contains(block.y))),)


@dataclass(frozen=True)
class PosteriorCandidate(Candidate):
    """Posterior weights of a logit in x, the outcome and their products, or of a scikit-learn classifier.

    The built-in logits differ in their ridge and in whether the effect of the outcome may bend. The one that predicts
    held-out reports best is taken. With many features (q > 7 coefficients) a logit has many more, and one ridge has to
    do for each kind.
    """

    correction = "posterior"
    classifier: Any = None
    logit: tuple[bool, float] | None = None  # whether the effect of the outcome bends, and the ridge
    is_chosen: bool = False  # it is this logit, or this classifier

    @property
    def detail(self) -> str:  # type: ignore[override]
        """What predicts the groups."""
        if not self.is_chosen:
            return ""
        if self.logit is None:
            return type(self.classifier).__name__
        spline, ridge = self.logit
        return f"logit{', spline of the outcome' if spline else ''}, ridge {ridge:g}"

    @classmethod
    def requested(cls, family: Family, classifier: Any = None) -> "PosteriorCandidate":
        """Compare the built-in logits with a given classifier."""
        return cls(classifier)

    def fit(self, problem: LinearProblem, base: GroupFit, pooling: float | None) -> Fitted:
        """Choose a classifier and fit with its weights."""
        candidate, posterior = self.learn(problem, base)
        if isinstance(posterior, GroupPosterior):
            fit = posterior_fit(problem, posterior, base, pooling)[0]
        else:
            fit = classifier_fit(problem, posterior, base, pooling)
        return Fitted(fit, posterior, candidate=candidate)

    def learn(self, problem: LinearProblem, base: GroupFit, pooling: float | None = None) -> Learned:
        """Train the logit, or the one that predicts held-out reports best, or the classifier that does so better."""
        best, loss = None, np.inf
        logits: dict[tuple[bool, float], GroupPosterior] = {}
        for candidate in self._logits(problem):
            assert candidate.logit is not None
            posterior = _train_logit(problem, base, *candidate.logit, logits)
            held = 0.0 if self.is_chosen else self._held_loss(problem, posterior)
            if held < loss:
                best, loss = Learned(candidate, posterior), held
        if self.classifier is not None and (best is None or self._classifier_loss(problem, base) < loss):
            trained = train_classifier(self.classifier, problem, base.channel.matrix)
            best = Learned(replace(self, is_chosen=True), replace(trained, everyone=base.channel.everyone))
        assert best is not None
        return best

    def _logits(self, problem: LinearProblem) -> list["PosteriorCandidate"]:
        if self.is_chosen:
            return [] if self.logit is None else [self]
        ridges = (0.1, 10.0) if problem.moments.q <= 7 else (3.0,)
        return [PosteriorCandidate(None, (spline, ridge), True) for spline in (False, True) for ridge in ridges]

    def _folds(self, problem: LinearProblem, n_reports: int) -> tuple[Rows, npt.NDArray[np.integer[Any]]]:
        """Take a sample of the rows that reported, and cut it into folds."""
        some = reported_rows(problem, n_reports).spaced(_CLASSIFIER_ROWS)
        rows = replace(some, share=None)
        return rows, rows.draw_folds(_FOLDS, np.random.default_rng(0))

    def _held_loss(self, problem: LinearProblem, posterior: GroupPosterior) -> float:
        latent = posterior.latent
        rows, fold = self._folds(problem, len(latent.T) - 1)
        return latent.on(rows).held_out_report_loss(posterior.parameters, fold)

    def _classifier_loss(self, problem: LinearProblem, base: GroupFit) -> float:
        matrix, losses = base.channel.matrix, []
        rows, fold = self._folds(problem, len(matrix))
        for f in range(_FOLDS):
            held = rows.take(fold == f)
            trained = train_classifier(self.classifier, problem.on(rows.take(fold != f)), matrix)
            losses.append(trained.report_log_loss(held.block(0, len(held))))
        return float(np.mean(np.concatenate(losses)))


def _train_logit(
    problem: LinearProblem,
    base: GroupFit,
    spline: bool,
    ridge: float,
    trained: dict[tuple[bool, float], GroupPosterior],
) -> GroupPosterior:
    """Train a logit, one with a spline from that without: the features of the spline come after all others.

    `trained` are those of this problem, and gets the new ones.
    """
    if (spline, ridge) not in trained:
        latent = classifier_likelihood(problem, base.channel.matrix, spline=spline, ridge=ridge)
        latent = replace(latent, everyone=base.channel.everyone)
        plain = _train_logit(problem, base, False, ridge, trained) if spline else None
        nested = None if plain is None or plain.latent.n_features > latent.n_features else plain.parameters
        parameters = fit_propensity(latent, base.shares, nested=nested)
        trained[spline, ridge] = GroupPosterior(latent, parameters)
    return trained[spline, ridge]
