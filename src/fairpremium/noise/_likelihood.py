"""The noise from the likelihood of the outcome: the law of Y tells the groups apart, and so the noise."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.linalg import LinAlgError
from scipy.special import gammaincinv, xlogy

from fairpremium.blocks import Rows
from fairpremium.corrections import Parameters, fit_propensity, mixture_likelihood, naive_start
from fairpremium.errors import ConvergenceError
from fairpremium.families import Family, Normal, get_family, law_of
from fairpremium.models import Design, LinearModel, LinearProblem, check_outcome, check_weight, prepare
from fairpremium.noise._base import (
    NoiseEstimator,
    check_level,
    describe_missing,
    make_generator,
    report_codes,
    resolve_groups,
)
from fairpremium.noise._declared_channel import outcome_evidence
from fairpremium.noise._keep_profile import GRID, Point, Profile, strength_to_keep

MAX_ROWS = 200_000  # more rows are sampled: keep is sharp long before
SEARCH_ROWS = 20_000  # rows that the search for the right maximum looks at
_START_STRENGTHS = (0.2, 0.5, 0.8, 1.0)


class LikelihoodNoise(NoiseEstimator):
    r"""Estimate the channel jointly with the group prices, from the likelihood of outcomes and reports.

    Use it when y is far from the same in all groups and its law is known: it needs neither anchors nor a
    second sample, and is sharp. A wrong law gives a wrong keep.

    Parameters
    ----------
    family : str or Family, default="normal"
        The law of y given x and group: "normal", "poisson", "negative_binomial", "gamma", "tweedie",
        "bernoulli", or an object of `fairpremium.families`. The dispersion is the same in all groups.
    model : "linear" or LinearModel, default="linear"
        What f_k may look like on the scale of the family's link.
    random_state : int, numpy.random.Generator or None
        Draws the sample of a portfolio with more than 200,000 reports, and divides the rows for the check of the law.
    level : float, default=0.95
        Confidence level.
    groups : sequence, optional
        All groups; by default the labels in the reports.

    Attributes
    ----------
    groups_, channel_, keep_, identified_, message_
        See `NoiseEstimator`.
    interval_ : tuple of float
        Profile-likelihood interval: every pi whose profile is not refuted against ``keep_`` (chi-square with
        one degree of freedom).
    standard_error_ : float
        From the curvature of the profile; nan at the ends.
    profile_ : pandas.DataFrame
        `keep` and `log_likelihood` (0 at the maximum), where the profile was computed.
    noise_gain_ : float
        Twice the gain in log-likelihood over the reports being the truth (pi = 1).
    dependence_gain_ : float
        Twice the gain over reports that do not depend on (x, y).
    lower_limit_ : float
        Lower confidence limit of pi without any law for y; see `check_declared_channel`.
    n_reports_ : int
        How many rows were used.

    Notes
    -----
    .. math::
        \max_{\pi, b, \gamma, \phi} \sum_i \log \sum_k T_\pi[s_i, k] \, q_k(x_i; \gamma) \,
        p(y_i; x_i'b_k, \phi / w_i)

    where

    - q is multinomial logistic in x (with a ridge of one row), p the family's density, :math:`w_i` the volume.

    For each pi everything else is maximised out, from several starts at several pi that are carried along
    in both directions; pi > 1/K, together with starts in the direction in which the reports differ, says which
    group is which. ``identified_`` is True when all of this holds:

    - ``noise_gain_`` and ``dependence_gain_`` exceed the ``level`` quantile of a chi-square law with
      (K - 1)(2 q - 1) degrees of freedom, the parameters with which groups differ (q coefficients per f_k; with
      common slopes (K - 1) q).
      Where groups do not differ, the profile is flat and the mixture is not a regular model: one degree of
      freedom, as for the interval, would find noise in pure noise far too often;
    - ``interval_`` lies inside (1/K, 1);
    - reports on held-out rows do not refute it: ``interval_`` is not all below ``lower_limit_``, which needs no
      law for y. A skewed y that is taken for normal is often caught in this way, but not always.

    A row counts as one person with one report.

    References
    ----------
    S. A. Murphy and A. W. van der Vaart (2000), "On profile likelihood".

    Examples
    --------
    >>> from fairpremium import RandomizedResponse
    >>> from fairpremium.portfolios import zhang_liu_shi_2025
    >>> p = zhang_liu_shi_2025(n=1500, rng=0, age_band=True)
    >>> reports = RandomizedResponse(["F", "M"], keep=0.8).privatize(p.sensitive, rng=0)
    >>> noise = LikelihoodNoise(random_state=0).fit(p.X, p.y, sensitive=reports)
    >>> noise.identified_, abs(noise.keep_ - 0.8) < 0.05
    (True, True)
    """

    def __init__(
        self,
        family: str | Family = "normal",
        model: str | LinearModel = "linear",
        random_state: Any = None,
        level: float = 0.95,
        groups: Sequence[Any] | None = None,
    ):
        self.family = family
        self.model = model
        self.random_state = random_state
        self.level = level
        self.groups = groups

    def fit(self, X: Any, y: Any, *, sensitive: Any, sample_weight: Any = None) -> Self:
        """Estimate the channel from features, outcomes and reports.

        Parameters
        ----------
        X, y, sensitive
            As in `NoiseEstimator.fit`; none of them may be None.
        sample_weight : array-like of shape (n_samples,), optional
            Volumes: the dispersion of row i is phi / w_i. Rows without volume are left out.

        Returns
        -------
        self

        Raises
        ------
        ConvergenceError
            If no maximum of the likelihood was found.
        """
        level = check_level(self.level)
        family = get_family(self.family)
        model = LinearModel() if isinstance(self.model, str) and self.model == "linear" else self.model
        if not isinstance(model, LinearModel):
            raise TypeError(f'Got model={model!r}, but LikelihoodNoise expects "linear" or a LinearModel.')
        model.check()
        if X is None or y is None or sensitive is None:
            raise ValueError(
                "Got None for X, y or sensitive, but LikelihoodNoise needs features, outcomes and reports."
            )
        groups = resolve_groups(self.groups, sensitive, name="sensitive")
        rng = make_generator(self.random_state)
        design, matrix = Design.learn_transform(X, terms=model.terms)
        rows, known = _select_rows(matrix, y, sensitive, sample_weight, groups, family)
        available = len(rows)
        if available > MAX_ROWS:
            rows = rows.take(np.sort(rng.choice(available, MAX_ROWS, replace=False)))
        K = len(groups)
        problem = prepare(rows, K + 1, family, model, design.features)
        q = problem.moments.q
        if len(rows) < 10 * K * q:
            raise ValueError(
                f"Got {len(rows)} reports for {K} groups with {q} coefficients each, but expected at least "
                f"{10 * K * q}. Use fewer features, or more rows."
            )

        keep, standard_error, (low, high) = self._fit_profile(problem, groups, level, rng)
        evidence = outcome_evidence(
            problem.moments.coordinates.matrix(rows.X)[:, 1:], rows.y, rows.report.astype(np.intp), K, level, rng
        )
        self.n_reports_ = len(rows)
        self.lower_limit_ = evidence.lower_limit
        sentences = [
            f"Estimated as {keep:.3f}, between {low:.3f} and {high:.3f} at confidence {level:g}, "
            f"by maximum likelihood from {len(rows)} outcomes and reports.",
            f"It rests on the law of the outcome ({family.name}, one dispersion for all groups), on prices linear in "
            "the features and on group probabilities logistic in them; a wrong law, such as skewed losses taken for "
            "normal, gives a wrong keep.",
            *describe_missing(known, "rows were"),
        ]
        if available > len(rows):
            sentences.append(f"It used a random sample of {len(rows)} of {available} rows.")
        effects = q if model.slopes == "own" else 1  # with which the prices of two groups differ
        problems = self._find_problems(keep, low, high, (K - 1) * (effects + q - 1), K)
        return self._store(groups, keep, standard_error, (low, high), sentences, problems)

    def _fit_profile(
        self, problem: LinearProblem, groups: tuple[Any, ...], level: float, rng: np.random.Generator
    ) -> tuple[float, float, tuple[float, float]]:
        """Maximise the likelihood over keep and everything else; return keep, its standard error and its interval.

        All rows must have a report; `rng` draws the rows for the search in a large problem.
        """
        K = len(groups)
        law = law_of(problem.family)
        latent = mixture_likelihood(problem, np.eye(K), law, 0.0)
        profile = Profile(latent)
        if len(latent.rows) > SEARCH_ROWS:
            chosen = np.sort(rng.choice(len(latent.rows), SEARCH_ROWS, replace=False))
            sample = Profile(latent.on(latent.rows.take(chosen)))
            sample.search(_starts(sample, problem, groups))
            near = sample.maximise()
            beside = sorted(GRID, key=lambda s: abs(s - near.strength))[:2]
            for strength in {near.strength, *beside, GRID[0], GRID[-1]} & sample.points.keys():
                profile.climb(strength, sample.points[strength].parameters)
        else:
            profile.search(_starts(profile, problem, groups))
        best = profile.maximise()

        drop = float(gammaincinv(0.5, level))
        low, high = profile.limit(best, GRID[0], drop), profile.limit(best, 1.0, drop)
        best = profile.best  # the limits may have met a higher point
        keep = strength_to_keep(best.strength, K)
        interval = (min(1 / K if low == GRID[0] else strength_to_keep(low, K), keep), strength_to_keep(high, K))
        self.profile_ = pd.DataFrame(
            [(strength_to_keep(s, K), p.value - best.value) for s, p in sorted(profile.points.items()) if s > 0],
            columns=["keep", "log_likelihood"],
        )
        standard_error = _standard_error(profile, best, K)
        self.noise_gain_ = max(2 * (best.value - profile.value(1.0)), 0.0)
        self.dependence_gain_ = 2 * (best.value - _independent_value(profile, best))
        return keep, standard_error, interval

    def _find_problems(self, keep: float, low: float, high: float, freedom: int, K: int) -> list[str]:
        """Return what stands against using the estimate; groups differ by so many parameters."""
        cut = 2 * float(gammaincinv(freedom / 2, self.level))
        other = "Take the channel from the protocol that drew the reports, or use RetestNoise or ValidationNoise."
        problems = []
        if self.dependence_gain_ <= cut:
            problems.append(
                "Outcomes and features say nothing about the reports (the gain in log-likelihood, "
                f"{self.dependence_gain_ / 2:.1f}, is below {cut / 2:.1f}), so they say nothing about their noise. "
                f"{other}"
            )
        elif self.noise_gain_ <= cut or high >= 1:
            problems.append(
                f"The likelihood is too flat towards keep = 1: its gain of {self.noise_gain_ / 2:.1f} over reports "
                f"without noise is below {cut / 2:.1f}. Either there is hardly any noise, or the outcome does not tell "
                f"the groups apart. {other}"
            )
        elif low <= 1 / K or keep <= 1 / K:
            problems.append(f"keep may be as low as 1/K = {1 / K:.3f}, pure noise: more reports are needed. {other}")
        elif high < self.lower_limit_:
            problems.append(
                f"Held-out reports show that keep is at least {self.lower_limit_:.3f}, more than the estimate "
                f"{keep:.3f}: the law of the outcome or the form of the prices is wrong. Try another family, or "
                f"further features. {other}"
            )
        return problems


def _starts(profile: Profile, problem: LinearProblem, groups: tuple[Any, ...]) -> dict[float, list[Parameters]]:
    """Leave the unaware price in the direction in which the reports differ, or spread its intercepts."""
    K = len(groups)
    law = profile.latent.law
    assert law is not None
    unaware = problem.start(K)
    found = naive_start(problem, np.eye(K), groups)
    naive = unaware if found is None else found
    rows = problem.rows
    assert isinstance(rows, Rows)
    w = 1.0 if rows.weight is None else rows.weight
    mean = problem.family.link.mean_of((problem.moments.coordinates.matrix(rows.X) @ problem.unaware)[:, 0])
    dispersion = law.start(rows.y, np.broadcast_to(w, len(rows)), mean)
    rank = np.argsort(np.argsort(naive[0] - unaware[0]))
    spread = unaware.copy()
    spread[0] += (math.exp(dispersion / 2) if isinstance(problem.family, Normal) else 0.5) * (rank - (K - 1) / 2)
    starts = {}
    for strength in _START_STRENGTHS:
        reports = replace(profile.at(strength), law=None, predictors=None, penalty=None)
        try:
            gamma = fit_propensity(reports, np.full(K, 1 / K)).gamma
        except ConvergenceError:
            gamma = np.zeros((K - 1, reports.n_features))
        B = [unaware + (naive - unaware) * min(1 / strength, 4.0)]
        if strength < 1:
            B.append(spread)
        starts[strength] = [Parameters(gamma, b, np.full(K, dispersion)) for b in B]
    return starts


def _standard_error(profile: Profile, best: Point, n_groups: int) -> float:
    if not 0 < best.strength < 1 - 1e-5:
        return math.nan
    try:
        _, curvature, _ = profile.derivatives(best)
    except LinAlgError:
        return math.nan
    slope = (n_groups - 1) / n_groups * best.strength * (1 - best.strength)  # d pi / d tau
    return slope / math.sqrt(-curvature) if curvature < 0 else math.nan


def _independent_value(profile: Profile, best: Point) -> float:
    """Maximise the likelihood of reports that do not depend on (x, y): any mixture for y, any shares of reports."""
    latent = profile.latent
    lowest = profile.points.get(GRID[0], best)
    for start in (lowest.parameters, best.parameters):
        profile.climb(0.0, start)
    flat = profile.points.get(0.0, lowest)
    K, n = latent.n_groups, len(latent.rows)
    assert isinstance(latent.rows, Rows)
    counts = np.bincount(latent.rows.report, minlength=K)[:K]
    return flat.value + n * math.log(K) + float(xlogy(counts, counts / n).sum())


def _select_rows(
    matrix: npt.NDArray[Any], y: Any, sensitive: Any, sample_weight: Any, groups: tuple[Any, ...], family: Family
) -> tuple[Rows, npt.NDArray[np.bool_]]:
    """Return the rows with a report and volume, and which rows these are."""
    n = len(matrix)
    outcome, weight = check_outcome(y, n, family), check_weight(sample_weight, n)
    s = report_codes(sensitive, groups, "sensitive")
    if len(s) != n:
        raise ValueError(f"Got X with {n} and sensitive with {len(s)} rows, but expected the same rows.")
    known = s >= 0 if weight is None else (s >= 0) & (weight > 0)
    if not known.any():
        raise ValueError("Got no row with a report and a positive weight, but expected some.")
    rows = Rows(matrix, outcome, weight, np.where(s < 0, len(groups), s).astype(np.uint16))
    return (rows if known.all() else rows.take(known)), known
