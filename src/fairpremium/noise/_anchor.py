"""The noise from anchor points: the paper's method."""

import math
from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm
from scipy.stats import t as student

from fairpremium.labels import encode_labels
from fairpremium.models import is_whole
from fairpremium.noise._base import NoiseEstimator, check_level, describe_missing, make_generator, resolve_groups
from fairpremium.noise._keep_bounds import Evidence, collect_evidence
from fairpremium.noise._keep_formulas import c1_to_keep, keep_to_c1
from fairpremium.noise._report_classifier import ReportClassifier, select_reports


class AnchorNoise(NoiseEstimator):
    r"""Estimate the channel from anchor points, features that give the group away (the paper's method).

    Use it when nothing better is at hand: it is right only if some x has P(D = j | x) = 1 for a group j, which the data
    cannot show; otherwise the estimate is too low, and a keep that is too low does more harm than one that is too high.

    Parameters
    ----------
    n_splits : int, default=4
        n1, the number of random splits of equal size, each with its own classifier.
    classifier : scikit-learn classifier, optional
        Of S given x, with ``predict_proba``; cloned. Default: multinomial logistic regression on standardised
        columns. Text and categories reach every classifier as one column of zeros and ones per level. A
        flexible classifier overfits the largest probability of the rows it was fitted on, and keep errs high.
    group : label, optional
        j*, the group that has an anchor. Default: the one with the highest estimate, which errs high when
        several are close.
    features : sequence, optional
        Columns that serve as x*: names for a data frame, positions for an array. Default: all.
    aggregate : {"c1", "keep"}, default="c1"
        Average C1 over the splits and turn it back into pi (Procedure 4.5), or average pi (the paper's
        experiments). The first is never above the second.
    random_state : int, numpy.random.Generator or None
        Seeds the splits, and the classifier where its own ``random_state`` is None.
    groups : sequence, optional
        All groups; by default the labels in the reports.
    level : float, default=0.95
        Confidence level.

    Attributes
    ----------
    groups_, channel_, keep_, standard_error_, identified_, message_
        See `NoiseEstimator`. ``standard_error_`` is the one between the splits; it knows nothing of a bias.
    interval_ : tuple of float
        (lower confidence limit, 1.0): what (X, S) say about pi **without** any anchor. It covers pi with
        probability at least ``level`` for any classifier, because its lower end is a binomial limit on rows
        that the classifier has not seen, and no upper end below one can be had from (X, S).
    anchor_interval_ : tuple of float
        What pi is **if** there is an anchor: the t interval between the splits, cut at one.
    lower_bound_ : float
        Estimate of pi_L = 1 - (K - 1) min P(S = s | x), the least pi that the reports allow; errs low.
    group_ : label
        j*.
    group_keeps_ : dict
        The estimate for every group as j*.
    split_keeps_ : ndarray of shape (n_splits,)
        The largest fitted P(S = j* | x) of each split.
    dependence_pvalue_ : float
        p-value of the test that the reports do not depend on x (held-out log-loss).
    n_reports_ : int
        How many rows had a report.

    Notes
    -----
    In split k, with a classifier fitted on its rows,

    .. math::
        \hat\pi_k = \max_i \hat P_k(S = j^* | x_i), \qquad
        \hat C_{1,k} = \frac{\hat\pi_k + K - 2}{K \hat\pi_k - 1}, \qquad
        \hat\pi = \frac{\bar C_1 + K - 2}{K \bar C_1 - 1}

    where

    - :math:`x_i` are the rows of split k, :math:`\bar C_1` is the average over the splits and K is the number
      of groups.

    Randomized response keeps P(S = j | x) between pi_bar and pi, so in the population the value is at most pi, with
    equality exactly at an anchor of j*. A split whose largest probability is 1/K or less carries no information: its C1
    is set to infinity (the limit; the formula turns negative), so that with ``aggregate="c1"`` the estimate becomes 1/K
    and is not identified. C1 < 1 cannot occur. Nothing is clipped.

    ``identified_`` is True when all of this holds:

    - the reports depend on x: ``dependence_pvalue_`` is below 1 - level;
    - ``interval_`` lies above 1/K, as for the other sources, and 1/K < ``keep_`` < 1;
    - the held-out reports do not refute it: ``keep_`` is not below ``interval_[0]`` by more than the
      one-sided normal quantile of ``level`` times ``standard_error_`` (with K >= 3 it can happen).

    True means "if there is an anchor", and ``message_`` says so: such data cannot show that there is one.

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
    >>> noise = AnchorNoise(random_state=0).fit(x[:, None], None, sensitive=S)
    >>> noise.group_, noise.identified_, abs(noise.keep_ - 0.8) < 0.05
    ('F', True, True)
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
    ):
        self.n_splits = n_splits
        self.classifier = classifier
        self.group = group
        self.features = features
        self.aggregate = aggregate
        self.random_state = random_state
        self.groups = groups
        self.level = level

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
        estimates = [estimate_keep(largest[:, j], K, self.aggregate, level) for j in range(K)]
        j = int(np.argmax([keep for keep, _, _ in estimates])) if given is None else given
        keep, standard_error, anchor_interval = estimates[j]
        evidence = collect_evidence(reports, level)

        self.n_reports_ = n
        self.group_ = groups[j]
        self.group_keeps_ = {group: e[0] for group, e in zip(groups, estimates, strict=True)}
        self.split_keeps_ = largest[:, j]
        self.anchor_interval_ = anchor_interval
        self.lower_bound_ = evidence.lower_bound
        self.dependence_pvalue_ = evidence.dependence_pvalue
        how = "the group with the highest estimate" if given is None else "the given group"
        sentences = [
            f"Estimated as {keep:.3f} from the largest fitted probability of the report "
            f"{self.group_!r} ({how}) in {n_splits} random splits of {n} reports.",
            f"It rests on an anchor point: some features must give the group {self.group_!r} away with "
            "certainty, which these data cannot show. If none does, keep is higher than the estimate, "
            "which is then only a lower bound, and the harmful side to err on; features and reports alone "
            f"say that keep lies between {evidence.lower_limit:.3f} and 1.",
        ]
        empty = int((self.split_keeps_ <= 1 / K).sum())
        if empty:
            sentences.append(
                f"In {empty} of the {n_splits} splits the largest probability is 1/K or less, which "
                "carries no information about the noise (C1 is infinite there): use fewer n_splits or another group."
            )
        sentences += describe_missing(known, "reports were")
        problems = find_problems(keep, standard_error, evidence, level, K)
        return self._store(groups, keep, standard_error, (evidence.lower_limit, 1.0), sentences, problems)


def estimate_keep(
    keeps: NDArray[np.float64], n_groups: int, aggregate: str, level: float
) -> tuple[float, float, tuple[float, float]]:
    """Aggregate the splits' estimates of pi to one, with its standard error and interval.

    The error is the one between the splits (delta method for C1), nan for one split; the interval is a t interval on
    the scale that was averaged, cut at keep = 1.
    """
    n, K = len(keeps), n_groups
    values = keep_to_c1(keeps, K) if aggregate == "c1" else keeps
    mean = float(values.mean())
    if aggregate == "c1" and not math.isfinite(mean):
        return 1 / K, math.nan, (1 / K, 1.0)
    error = float(values.std(ddof=1)) / math.sqrt(n) if n > 1 else math.nan
    half = float(student.ppf(0.5 + level / 2, n - 1)) * error if n > 1 else math.inf
    if aggregate == "keep":
        return mean, error, (max(mean - half, 0.0), min(mean + half, 1.0))
    slope = (K - 1) ** 2 / (K * mean - 1) ** 2
    low, high = float(c1_to_keep(mean + half, K)), float(c1_to_keep(max(mean - half, 1.0), K))
    return float(c1_to_keep(mean, K)), slope * error, (low, high)


def find_problems(keep: float, standard_error: float, evidence: Evidence, level: float, K: int) -> list[str]:
    """Return what stands against using the anchor estimate."""
    problems = []
    if evidence.dependence_pvalue >= 1 - level:
        problems.append(
            f"The reports hardly depend on the features (p-value {evidence.dependence_pvalue:.2g} on held-out rows), "
            "so there is no sign of an anchor point, and the estimate is the share of a group plus chance. Take the "
            "channel from the protocol that drew the reports, or use RetestNoise, ValidationNoise or MarginNoise."
        )
    if keep <= 1 / K:
        problems.append(f"The estimate {keep:.3f} is not above 1/K = {1 / K:.3f}, pure noise.")
    elif evidence.lower_limit <= 1 / K:
        problems.append(
            f"Held-out reports only show that keep is at least {evidence.lower_limit:.3f}, which does "
            f"not exclude 1/K = {1 / K:.3f}, pure noise: more reports, or another source, are needed."
        )
    if keep >= 1:
        problems.append(
            f"The estimate {keep:.3f} is not below one: the classifier overfits its rows, or there is no noise."
        )
    margin = 0.0 if math.isnan(standard_error) else float(norm.ppf(level)) * standard_error
    if keep + margin < evidence.lower_limit:
        problems.append(
            f"Held-out reports show that keep is at least {evidence.lower_limit:.3f}, more than the "
            f"estimate {keep:.3f}: the classifier does not see an anchor point of this group. Try "
            "another one, or another group."
        )
    return problems
