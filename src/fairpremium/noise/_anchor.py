"""The noise from anchor points: the paper's method."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from fairpremium.labels import encode_labels
from fairpremium.models import is_whole
from fairpremium.noise._base import NoiseEstimator, check_level, describe_missing, make_generator, resolve_groups
from fairpremium.noise._keep_bounds import Evidence, collect_evidence
from fairpremium.noise._keep_formulas import binomial_interval, c1_to_keep, keep_to_c1
from fairpremium.noise._report_classifier import ReportClassifier, select_reports

_UNDECLARED = (
    "No anchor is declared, and features and reports cannot show that there is one. If you know of features that give "
    "a group away with certainty, declare them with group= and anchor_share=, the share of the rows that have them. "
    "Better: take the channel from the protocol that drew the reports, or use RetestNoise, ValidationNoise or "
    "MarginNoise."
)


class AnchorNoise(NoiseEstimator):
    r"""Estimate the channel from anchor points, features that give the group away (the paper's method).

    Use it when nothing better is at hand. Features and reports alone give a lower bound of keep and nothing more: an
    estimate needs an anchor, some x with P(D = j | x) = 1, which no data show. Declare it with ``group`` and
    ``anchor_share``; without a declaration nothing is identified.

    Parameters
    ----------
    n_splits : int, default=4
        n1, the number of random splits of equal size, each with its own classifier (Procedure 4.5).
    classifier : scikit-learn classifier, optional
        Of S given x, with ``predict_proba``; cloned. Default: multinomial logistic regression on standardised
        columns. Text and categories reach every classifier as one column of zeros and ones per level.
    group : label, optional
        j*, the group that has an anchor. Default: the one with the highest value of Procedure 4.5.
    features : sequence, optional
        Columns that serve as x*: names for a data frame, positions for an array. Default: all. A declared anchor is
        found best by the columns that make it one.
    aggregate : {"c1", "keep"}, default="c1"
        Average C1 over the splits and turn it back into pi (Procedure 4.5), or average pi (the paper's
        experiments). The first is never above the second.
    random_state : int, numpy.random.Generator or None
        Seeds the splits, and the classifier where its own ``random_state`` is None.
    groups : sequence, optional
        All groups; by default the labels in the reports.
    level : float, default=0.95
        Confidence level.
    anchor_share : float, optional
        Declares an anchor of ``group``: this share of the rows, those where its report is most likely, belong to
        ``group`` without exception. A smaller share is the weaker claim, and the wider interval.

    Attributes
    ----------
    groups_, channel_, identified_, message_
        See `NoiseEstimator`.
    keep_ : float
        With a declared anchor: the share of the report ``group`` among the declared rows, found by classifiers that
        have not seen their reports. Without: the value of Procedure 4.5, for comparison with the paper only.
    standard_error_ : float
        With a declared anchor the binomial one of ``keep_``; else the one between the splits, which knows nothing of a
        bias.
    interval_ : tuple of float
        (lower confidence limit, 1.0): what (X, S) say about pi **without** any anchor. It covers pi with
        probability at least ``level`` for any classifier, because its lower end is a binomial limit on rows
        that the classifier has not seen, and no upper end below one can be had from (X, S).
    anchor_interval_ : tuple of float
        The binomial interval of ``keep_``, which covers pi with probability ``level`` **if** the declaration is true.
        ``interval_`` if no anchor is declared, or the data refute it.
    lower_bound_ : float
        Estimate of pi_L = 1 - (K - 1) min P(S = s | x), the least pi that the reports allow; errs low.
    group_ : label
        j*.
    group_keeps_ : dict
        The value of Procedure 4.5 for every group as j*.
    split_keeps_ : ndarray of shape (n_splits,)
        The largest fitted P(S = j* | x) of each split.
    dependence_pvalue_ : float
        p-value of the test that the reports do not depend on x (held-out log-loss).
    n_reports_ : int
        How many rows had a report.

    Notes
    -----
    **Procedure 4.5.** In split k, with a classifier fitted on its rows,

    .. math::
        \hat\pi_k = \max_i \hat P_k(S = j^* | x_i), \qquad
        \hat C_{1,k} = \frac{\hat\pi_k + K - 2}{K \hat\pi_k - 1}, \qquad
        \hat\pi = \frac{\bar C_1 + K - 2}{K \bar C_1 - 1}

    where

    - :math:`x_i` are the rows of split k, :math:`\bar C_1` is the average over the splits and K is the number
      of groups.

    Randomized response keeps P(S = j | x) between pi_bar and pi, so the largest *true* probability is at most pi, with
    equality exactly at an anchor of j*. The largest *fitted* one errs on both sides: it is too low where there is no
    anchor, and too high where the classifier extrapolates (a logit goes on to 1 where P(S = j | x) levels off at pi),
    overfits, or is merely noisy, for it is a maximum. On real features it gave 0.91 where pi was 0.82. That is why it
    serves for comparison only. A split whose largest probability is 1/K or less carries no information: its C1 is set
    to infinity (the limit; the formula turns negative), so that with ``aggregate="c1"`` the value becomes 1/K. C1 < 1
    cannot occur. Nothing is clipped.

    **A declared anchor.** The rows are cut into thirds. In each, A holds the share ``anchor_share`` of the rows where a
    classifier that was fitted on another third finds the report j* most likely. The
    choice of A uses x and other rows' reports, so that the share of j* in A is an unbiased estimate of
    P(S = j* | A), with a binomial interval. By the bound above **it can only err low**, beyond its sampling error, and
    it is pi if the declaration is true.

    ``identified_`` is True when an anchor is declared and the data do not refute it:

    - the reports depend on x: ``dependence_pvalue_`` is below 1 - level;
    - ``interval_`` lies above 1/K, as for the other sources, and 1/K < ``keep_`` < 1;
    - no set of rows shows that pi is larger: ``interval_[0]`` is at most the upper end of the anchor's interval;
    - inside A the report does not depend on x (score test of the fitted probability, level 1 - level): where D is
      certain, it cannot.

    A row counts as one report: ``sample_weight`` is ignored, because volume says nothing about the channel.
    Several rows with one and the same report of a person make the intervals too narrow.

    References
    ----------
    Lemma 4.4 and Procedure 4.5 of the paper.

    Examples
    --------
    >>> import numpy as np
    >>> from fairpremium.privacy import RandomizedResponse
    >>> x = np.repeat([0, 1], 2000)
    >>> D = np.where(x == 1, "F", np.where(np.arange(4000) % 2, "F", "M"))      # x = 1 is an anchor of F
    >>> S = RandomizedResponse(["F", "M"], keep=0.8).privatize(D, rng=0)
    >>> noise = AnchorNoise(group="F", anchor_share=0.1, random_state=0).fit(x[:, None], None, sensitive=S)
    >>> noise.identified_, abs(noise.keep_ - 0.8) < 0.05
    (True, True)
    >>> AnchorNoise(random_state=0).fit(x[:, None], None, sensitive=S).identified_
    False
    """

    def __init__(
        self,
        n_splits: int = 4,
        classifier: Any = None,
        group: Any = None,
        features: Sequence[Any] | None = None,
        aggregate: Literal["c1", "keep"] = "c1",
        random_state: Any = None,
        groups: Sequence[Any] | None = None,
        level: float = 0.95,
        anchor_share: float | None = None,
    ):
        self.n_splits = n_splits
        self.classifier = classifier
        self.group = group
        self.features = features
        self.aggregate = aggregate
        self.random_state = random_state
        self.groups = groups
        self.level = level
        self.anchor_share = anchor_share

    def fit(self, X: Any, y: Any = None, *, sensitive: Any, sample_weight: Any = None) -> Self:
        """Estimate the channel from features and reports.

        Parameters
        ----------
        X : data frame or array-like of shape (n_samples, n_columns)
            The features.
        y, sample_weight
            Ignored; all noise estimators have the same signature.
        sensitive : array-like of shape (n_samples,)
            The reports; rows without one are left out.

        Returns
        -------
        self
        """
        level = check_level(self.level)
        n_splits = self.n_splits
        if not is_whole(n_splits, 1):
            raise ValueError(f"Got n_splits={n_splits!r}, but expected an integer of at least 1, such as 4.")
        if self.aggregate not in ("c1", "keep"):
            raise ValueError(f'Got aggregate={self.aggregate!r}, but expected "c1" or "keep".')
        if self.anchor_share is not None:
            check_anchor(self.group, self.anchor_share)
        if X is None or sensitive is None:
            raise ValueError("Got X=None or sensitive=None, but AnchorNoise needs features and reports.")
        groups = resolve_groups(self.groups, sensitive, name="sensitive")
        given = None if self.group is None else int(encode_labels([self.group], groups, name="group")[0])
        design, s, known = select_reports(X, self.features, sensitive, groups)
        n, K = len(s), len(groups)
        if n < max(n_splits, 3) * K:
            raise ValueError(
                f"Got {n} reports for n_splits={n_splits} and {K} groups, but expected at least "
                f"{max(n_splits, 3) * K}. Use fewer n_splits, or more rows."
            )

        rng = make_generator(self.random_state)
        reports = ReportClassifier(self.classifier, design, s, K, rng)
        splits = np.array_split(rng.permutation(n), n_splits)
        largest = np.array([reports.predict(reports.fit(split), split).max(axis=0) for split in splits])
        estimates = [estimate_keep(largest[:, j], K, self.aggregate) for j in range(K)]
        j = int(np.argmax([keep for keep, _ in estimates])) if given is None else given
        evidence = collect_evidence(reports, level)
        limits = (evidence.lower_limit, 1.0)

        self.n_reports_ = n
        self.group_ = groups[j]
        self.group_keeps_ = {group: e[0] for group, e in zip(groups, estimates, strict=True)}
        self.split_keeps_ = largest[:, j]
        self.lower_bound_ = evidence.lower_bound
        self.dependence_pvalue_ = evidence.dependence_pvalue
        self.anchor_interval_ = limits
        if self.anchor_share is None:
            keep, standard_error = estimates[j]
            problems = [_UNDECLARED]
            sentences = self._describe_procedure(keep, evidence, K)
        else:
            anchor = find_anchor(evidence, s, j, self.anchor_share, level, rng)
            keep, standard_error = anchor.keep, anchor.standard_error
            problems = find_problems(anchor, evidence, level, K)
            sentences = self._describe_anchor(anchor, evidence)
            if not problems:
                self.anchor_interval_ = anchor.interval
        sentences += describe_missing(known, "reports were")
        return self._store(groups, keep, standard_error, limits, sentences, problems)

    def _describe_procedure(self, keep: float, evidence: Evidence, K: int) -> list[str]:
        """Say what features and reports tell without an anchor."""
        sentences = [
            f"Features and reports alone give a lower bound only: keep is at least {evidence.lower_limit:.3f} "
            f"(confidence {self.level:g}, from {self.n_reports_} reports).",
        ]
        if evidence.dependence_pvalue >= 1 - self.level:
            sentences.append(_independent(evidence))
        sentences.append(
            f"The paper's Procedure 4.5 gives {keep:.3f}, the largest fitted probability of the report "
            f"{self.group_!r} in {self.n_splits} random splits: too low where no features give the group away, too "
            "high where the classifier extrapolates or overfits, so that it is no estimate to rely on."
        )
        empty = int((self.split_keeps_ <= 1 / K).sum())
        if empty:
            sentences.append(
                f"In {empty} of the {self.n_splits} splits the largest probability is 1/K or less, which "
                "carries no information about the noise (C1 is infinite there)."
            )
        return sentences

    def _describe_anchor(self, anchor: Anchor, evidence: Evidence) -> list[str]:
        """Say what the estimate from a declared anchor is, and what it rests on."""
        low, high = anchor.interval
        return [
            f"Estimated as {anchor.keep:.3f}, between {low:.3f} and {high:.3f} at confidence {self.level:g}: the share "
            f"of the report {self.group_!r} in {anchor.rows} of {self.n_reports_} rows, those where a classifier that "
            "has not seen their reports finds it most likely.",
            f"It rests on your declaration that all of these rows belong to {self.group_!r}, which the data can refute "
            "but not confirm. If some do not, keep is higher than the estimate, which is the harmful side to err on; "
            f"features and reports alone say that keep lies between {evidence.lower_limit:.3f} and 1.",
        ]


@dataclass(frozen=True)
class Anchor:
    """The rows that are declared to belong to a group, and their reports."""

    rows: int
    keep: float  # share of the report of the group
    standard_error: float
    interval: tuple[float, float]
    trend_pvalue: float  # of the test that the report does not depend on the fitted probability


def check_anchor(group: Any, share: Any) -> None:
    """Raise unless an anchor is declared as it should be."""
    if isinstance(share, bool) or not isinstance(share, Real) or not 0 < float(share) <= 1:
        raise ValueError(
            f"Got anchor_share={share!r}, but expected a share of the rows between 0 and 1, such as 0.02, or None."
        )
    if group is None:
        raise ValueError(
            "Got anchor_share without a group, but expected the group whose anchor is declared. Pass group=..."
        )


def find_anchor(
    evidence: Evidence, s: NDArray[np.intp], group: int, share: float, level: float, rng: np.random.Generator
) -> Anchor:
    """Estimate P(S = group) on the rows where it is likeliest, as classifiers find that have not seen their reports.

    The trend test is one-sided: rows that are not of the group are found at the lower probabilities.
    """
    hits: list[NDArray[np.bool_]] = []
    trend, variance = 0.0, 0.0
    for rows, P in evidence.tests:
        p = np.round(P[:, group], 9)  # rows with the same features are tied, and luck decides
        inside = np.lexsort((rng.random(len(p)), p))[-max(1, int(share * len(p))) :]
        hit = s[rows[inside]] == group
        hits.append(hit)
        deviation = p[inside] - p[inside].mean()
        trend += float(deviation @ (hit - hit.mean()))
        variance += float(deviation @ deviation) * float(hit.mean() * (1 - hit.mean()))
    n, count = sum(map(len, hits)), int(sum(hit.sum() for hit in hits))
    keep = count / n
    pvalue = float(ndtr(-trend / math.sqrt(variance))) if variance > 0 else 1.0
    return Anchor(n, keep, math.sqrt(keep * (1 - keep) / n), binomial_interval(count, n, level), pvalue)


def estimate_keep(keeps: NDArray[np.float64], n_groups: int, aggregate: str) -> tuple[float, float]:
    """Aggregate the splits' values of pi to one, with its standard error between the splits.

    The error is by the delta method for C1, and nan for one split.
    """
    n, K = len(keeps), n_groups
    values = keep_to_c1(keeps, K) if aggregate == "c1" else keeps
    mean = float(values.mean())
    if aggregate == "c1" and not math.isfinite(mean):
        return 1 / K, math.nan
    error = float(values.std(ddof=1)) / math.sqrt(n) if n > 1 else math.nan
    if aggregate == "keep":
        return mean, error
    return float(c1_to_keep(mean, K)), (K - 1) ** 2 / (K * mean - 1) ** 2 * error


def find_problems(anchor: Anchor, evidence: Evidence, level: float, K: int) -> list[str]:
    """Return what stands against a declared anchor."""
    problems = []
    if evidence.dependence_pvalue >= 1 - level:
        problems.append(_independent(evidence))
    if anchor.keep <= 1 / K:
        problems.append(f"The estimate {anchor.keep:.3f} is not above 1/K = {1 / K:.3f}, pure noise.")
    elif evidence.lower_limit <= 1 / K:
        problems.append(
            f"Held-out reports only show that keep is at least {evidence.lower_limit:.3f}, which does "
            f"not exclude 1/K = {1 / K:.3f}, pure noise: more reports, or another source, are needed."
        )
    if anchor.keep >= 1:
        problems.append("All reports of the anchor are the same: there is no noise, or there are too few rows.")
    if anchor.interval[1] < evidence.lower_limit:
        problems.append(
            f"Held-out reports show that keep is at least {evidence.lower_limit:.3f}, more than the anchor's "
            f"{anchor.keep:.3f} (at most {anchor.interval[1]:.3f}): the declared rows are not all of this group. Try "
            "a smaller anchor_share, the features that make the anchor, or another group."
        )
    elif anchor.trend_pvalue < 1 - level:
        problems.append(
            "The reports of the declared rows still depend on the features (p-value "
            f"{anchor.trend_pvalue:.2g}), which they cannot where the group is certain: the declared rows are not all "
            "of this group. Try a smaller anchor_share, or the features that make the anchor."
        )
    return problems


def _independent(evidence: Evidence) -> str:
    return (
        f"The reports hardly depend on the features (p-value {evidence.dependence_pvalue:.2g} on held-out rows), "
        "so there is no sign of an anchor point. Take the channel from the protocol that drew the reports, or use "
        "RetestNoise, ValidationNoise or MarginNoise."
    )
