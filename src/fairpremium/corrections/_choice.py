"""The choice of a correction: precision as far as all rows agree with it.

The base is distribution-free: the inverse correction, pooled by empirical Bayes. A likelihood uses the law of the
outcome and a model of P(D given x), and is far more precise if both hold. It is taken if it passes three checks, each
on all rows:

1. Its prices solve the base's equations within sampling error. Their values at the likelihood's coefficients without
   pooling, U, have a covariance that the rows' influences on both give, and U' covariance^-1 U is chi-squared (a test
   of Hausman's kind, 1978). Its power grows with the rows.
2. Its prices are plausible under the base's posterior, which knows that groups rarely differ much.
3. It is clearly more precise; otherwise it is not worth its assumptions.

Likelihoods are checked in the order of their Bayesian information criterion. One that fails the first or second check
is wrong, and the next is checked. After one that describes the rows better and is hardly more precise than the base,
no other is asked: its precision would be an illusion. With a given pooling strength only the first check applies.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.special import chdtrc

from fairpremium.arrays import Array
from fairpremium.blocks import Block, RowFunction, one_blas_thread
from fairpremium.corrections._balance import balanced
from fairpremium.corrections._candidates import Begun, Candidate, Fitted, InverseCandidate
from fairpremium.corrections._checks import FAILURES, CandidateResult, losses_of_fit
from fairpremium.corrections._empirical_bayes import price_variance
from fairpremium.corrections._fit import GroupFit, sum_of_squares
from fairpremium.corrections._inverse import fit_inverse
from fairpremium.corrections._report_channel import ReportChannel
from fairpremium.corrections._signed_moments import SignedMoments
from fairpremium.errors import ConvergenceError, RiskUnboundedError
from fairpremium.models import LinearProblem
from fairpremium.progress import tell

_SMALLEST_P = 0.001  # smallest p-value with which a likelihood is still taken
_SMALLEST_P_OF_SEVERAL = 0.01  # with several channels: the best of them makes a good base
_PRECISION = 0.5  # largest variance of a likelihood's prices, relative to the base's, that is worth its assumptions
_HARDLY = "it is hardly more precise than the distribution-free base (variance ratio {:.2f})"
_FAR = "far more precise than the distribution-free base, and all rows agree with it"
_CLEAR = 0.01  # an inverse channel this close to the identity leaves nothing to gain


class Chosen(NamedTuple):
    """A fit with the results of all candidates, and what is needed to fit the same candidate again."""

    candidate: Candidate
    fit: GroupFit
    posterior: Any  # its P(D given x, y) with `weights`; None if it has none
    results: list[CandidateResult]
    base: GroupFit  # the distribution-free fit of the same problem

    def refit(self, channel: ReportChannel, problem: LinearProblem | None = None) -> Chosen:
        """Fit the same candidate with the same pooling for another channel, or on other rows."""
        problem = problem or self.fit.problem
        base = fit_base(problem, channel, self.fit.strength)
        found = self.candidate.fit(problem, base, self.fit.strength)
        return self._replace(fit=balanced(found.fit, base, found.posterior), posterior=found.posterior, base=base)

    @classmethod
    def only(cls, candidate: Candidate, found: Fitted, base: GroupFit, reason: str) -> Chosen:
        """Take a candidate without a choice."""
        candidate = found.candidate or candidate
        found = found._replace(fit=balanced(found.fit, base, found.posterior))
        return cls(candidate, found.fit, found.posterior, [_result(candidate, found, True, reason)], base)


@one_blas_thread()
def fit_correction(
    problem: LinearProblem, channel: ReportChannel, correction: str, pooling: float | None, classifier: Any = None
) -> Chosen:
    """Fit with one correction, or for "auto" with the one that the checks choose.

    Parameters
    ----------
    problem : LinearProblem
    channel : ReportChannel
    correction : {"auto", "inverse", "score", "posterior", "likelihood"}
    pooling : float or None
        Pooling strength; None pools by empirical Bayes.
    classifier : scikit-learn classifier, optional
        A further candidate for P(D given x, y) of the posterior correction.

    Returns
    -------
    Chosen
        With one result per candidate.
    """
    if correction == "inverse":
        fit = fit_inverse(problem, channel, pooling)
        reason = "the true attribute" if channel.truth else "asked for"
        return Chosen.only(InverseCandidate(), Fitted(fit), fit, reason)
    tell(0.0, "distribution-free base")
    base = fit_base(problem, channel, pooling)
    if correction != "auto":
        tell(0.5, f"correction {correction}")
        candidate = Candidate.kinds[correction].requested(problem.family, classifier)
        return Chosen.only(candidate, candidate.fit(problem, base, pooling), base, "asked for")
    if _is_clear(channel):
        reason = "the reports are nearly the truth: there is no noise to undo"
        return Chosen.only(InverseCandidate(), Fitted(base), base, reason)
    return choose(problem, base, pooling)


def choose(problem: LinearProblem, base: GroupFit, pooling: float | None) -> Chosen:
    """Take the likelihood that describes the rows best if it passes every check, otherwise the base."""
    moments = base.moments or SignedMoments.of(problem, base.channel)
    base = replace(base, moments=moments)
    candidates = [candidate for kind in Candidate.kinds.values() for candidate in kind.for_auto(problem)]
    fitted: dict[Candidate, Fitted] = {}
    reasons: dict[Candidate, str] = {}
    best = closer = None
    for candidate, begun in _in_order(candidates, problem, base, pooling, reasons):
        tell(0.7, f"{candidate.name}: pooling and checks")
        if closer is not None:
            reasons[candidate] = f"describes outcomes and reports less well than {closer.detail}"
            continue
        try:
            fitted[candidate] = begun.complete()
        except FAILURES as error:
            reasons[candidate] = f"could not be fitted: {error}"
            continue
        reasons[candidate] = check(fitted[candidate], base, moments)
        if reasons[candidate]:
            continue  # it is wrong, and the next is checked
        closer = candidate  # a law that describes the rows less well is not more precise in truth
        ratio = variance_ratio(fitted[candidate], base)
        best = candidate if ratio <= _PRECISION else None
        reasons[candidate] = _HARDLY.format(ratio) if best is None else _FAR
    of_base = "the distribution-free base; " + (
        "no likelihood passed every check" if best is None else f"the likelihood ({best.detail}) is more precise"
    )
    found = Fitted(base) if best is None else fitted[best]
    found = found._replace(fit=balanced(found.fit, base, found.posterior))
    results = [_result(InverseCandidate(), found if best is None else Fitted(base), best is None, of_base)]
    for candidate in candidates:
        own = found if candidate is best else fitted.get(candidate)
        results.append(_result(candidate, own, candidate is best, reasons[candidate]))
    return Chosen(InverseCandidate() if best is None else best, found.fit, found.posterior, results, base)


def _in_order(
    candidates: list[Candidate],
    problem: LinearProblem,
    base: GroupFit,
    pooling: float | None,
    reasons: dict[Candidate, str],
) -> list[tuple[Candidate, Begun]]:
    """Begin the candidates if one of them promises enough, the one that describes the rows best first."""
    prospects: dict[Candidate, float] = {}
    for candidate in candidates:
        try:
            prospects[candidate] = candidate.prospect(problem, base)
            reasons[candidate] = _HARDLY.format(prospects[candidate])
        except FAILURES as error:
            reasons[candidate] = f"could not be fitted: {error}"
    begun: dict[Candidate, Begun] = {}
    if any(ratio <= _PRECISION for ratio in prospects.values()):
        for i, candidate in enumerate(prospects):  # also those that promise little: they may describe the rows better
            tell(0.3 + 0.4 * i / len(prospects), candidate.name)
            try:
                begun[candidate] = candidate.begin(problem, base, pooling)
            except FAILURES as error:
                reasons[candidate] = f"could not be fitted: {error}"
    return sorted(begun.items(), key=lambda item: item[1].bic)


def check(candidate: Fitted, base: GroupFit, moments: SignedMoments) -> str:
    """Apply the first two checks of the module; returns the objection, or nothing."""
    fit = candidate.fit
    p = agreement(candidate, moments)
    if p < (_SMALLEST_P if moments.part is None else _SMALLEST_P_OF_SEVERAL):
        return f"its prices contradict the distribution-free moments of all rows (p = {p:.1g})"
    if base.posterior is None or fit.posterior is None:
        return ""
    p = _chi_squared_tail(*base.posterior.distance(fit.B))
    if p < _SMALLEST_P:
        return f"its prices are not plausible given the distribution-free evidence (p = {p:.1g})"
    return ""


def variance_ratio(candidate: Fitted, base: GroupFit) -> float:
    """Compute the variance of a candidate's prices relative to the base's; zero without empirical Bayes.

    Both are under the widest prior: with a learned tau, evidence that says too little looks precise.
    """
    own, of_base = candidate.fit.posterior, base.posterior
    if of_base is None or own is None:
        return 0.0
    return price_variance(base.problem, own.wide_covariance) / price_variance(base.problem, of_base.wide_covariance)


def agreement(candidate: Fitted, moments: SignedMoments) -> float:
    """Compute the p-value of the hypothesis that a fit's prices solve the equations of the inverse correction.

    Those of several channels are equations of their own: in one sum the noisiest reports would hide what others say.
    """
    fit, unpooled = candidate.fit, candidate.unpooled
    assert unpooled is not None
    sums = moments.sums(fit.B)
    parts = sums.parts or (sums,)
    answer = np.hstack([(part.J @ unpooled.response).T for part in parts])
    difference = _Difference(moments.scores(fit.B), fit.influence.scores, answer)
    covariance = sum_of_squares(fit.problem.rows, difference)  # a person's rows together
    moved = (unpooled.B - fit.B).T.ravel()
    U = np.concatenate([part.U - part.J @ moved for part in parts])
    span = sums.span.repeated(len(parts))
    covariance, U = span.restrict(covariance), span.restrict(U)
    solved, _, rank, _ = np.linalg.lstsq(covariance, U, rcond=1e-10)
    return _chi_squared_tail(float(U @ solved), int(rank))


def _chi_squared_tail(statistic: float, rank: int) -> float:
    """Return the p-value of a statistic; 1 where nothing is free."""
    return float(chdtrc(rank, max(statistic, 0.0))) if rank else 1.0


@dataclass(frozen=True)
class _Difference:
    """What a row adds to the base's equations, less what the candidate's response to it takes away."""

    own: RowFunction
    scores: RowFunction
    response: Array

    def __call__(self, block: Block) -> Array:
        return np.asarray(self.own(block) - np.dot(self.scores(block), self.response))


def fit_base(problem: LinearProblem, channel: ReportChannel, pooling: float | None) -> GroupFit:
    """Fit the inverse correction, with as little more pooling than a given strength as gives a minimum."""
    if pooling is None:
        return fit_inverse(problem, channel, None)
    volume = problem.moments.total_weight
    for more in (0.0, 1e-3, 1e-2, 0.1, 1.0, 10.0, 1e3):
        try:
            return fit_inverse(problem, channel, pooling + more * volume)
        except (RiskUnboundedError, ConvergenceError):
            continue
    return fit_inverse(problem, channel, 1e6 * volume)


def _is_clear(channel: ReportChannel) -> bool:
    """Tell whether the reports are nearly the truth, so that every correction comes to the same."""
    inverse = channel.table[:, :-1]
    closest = np.eye(len(inverse))[:, inverse.argmax(axis=0)]  # the group that each report nearly proves
    return bool(np.abs(inverse - closest).max() < _CLEAR)


def _result(candidate: Candidate, found: Fitted | None, chosen: bool, reason: str) -> CandidateResult:
    """Tell what became of a candidate; one that was not fitted has no losses."""
    if found is None:
        return CandidateResult(candidate.correction, candidate.detail, np.nan, chosen, reason)
    strength = np.nan if found.fit.strength is None else found.fit.strength
    losses = losses_of_fit(found.fit, found.posterior)
    return CandidateResult(candidate.correction, candidate.detail, strength, chosen, reason, **losses)
