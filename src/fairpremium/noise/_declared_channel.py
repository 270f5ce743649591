"""Whether the reports refute a declared channel, from features, outcomes and reports alone."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairpremium.models import check_cluster, check_outcome
from fairpremium.noise._base import check_level, describe_missing, make_generator
from fairpremium.noise._keep_bounds import (
    Bound,
    Events,
    Evidence,
    ReportScores,
    collect_evidence,
    sharpest_bound,
    take_turns,
)
from fairpremium.noise._linear_scores import LinearScores, standardise, with_outcome
from fairpremium.noise._report_classifier import ReportClassifier, select_reports
from fairpremium.privacy import Channel

_MIN_ROWS = 30  # reports per group


@dataclass(frozen=True)
class DeclaredChannelCheck:
    """What `check_declared_channel` found.

    Attributes
    ----------
    rejected : bool
        Whether the reports refute the declared channel: they are sharper than its noise permits.
    keep : float
        The declared keep; nan for a channel without one.
    lower_limit : float
        Lower confidence limit of the true keep, at `level`; nan for a channel without one.
    level : float
        Confidence level; 1 - level bounds the probability that a true declaration is rejected.
    message : str
        The finding in words.
    """

    rejected: bool
    keep: float
    lower_limit: float
    level: float
    message: str

    def __str__(self) -> str:
        return self.message


def check_declared_channel(
    X: Any,
    y: Any,
    *,
    sensitive: Any,
    channel: Channel,
    level: float = 0.95,
    classifier: Any = None,
    random_state: Any = None,
    cluster: Any = None,
) -> DeclaredChannelCheck:
    r"""Check a declared channel against the reports: too much noise can be refuted, with no law for Y.

    Parameters
    ----------
    X : data frame or array of shape (n_samples, n_columns)
        Features.
    y : array-like of shape (n_samples,) or None
        Outcome; with it far more is seen than with the features alone. None leaves it out.
    sensitive : array-like of shape (n_samples,)
        S; rows without a report are left out. For several attributes a data frame with one column each, or tuples.
    channel : Channel
        The declaration.
    level : float, default=0.95
        Confidence level.
    classifier : scikit-learn classifier or "linear", optional
        Of S given (x, y), with ``predict_proba``; cloned. Default: multinomial logistic regression on x, y,
        their products and y squared. "linear" is least squares on the same columns, which takes a third of the time.
        The limit is valid for any classifier; a better one makes it higher.
    random_state : int, numpy.random.Generator or None
        Divides the rows.
    cluster : array-like of shape (n_samples,), optional
        Who a row belongs to, if several rows of a person share one report; one row of each is looked at.

    Returns
    -------
    DeclaredChannelCheck

    Notes
    -----
    S is drawn from D alone, so for any set A of values of (x, y) that was chosen on other rows

    .. math:: \min_d T_{sd} \le P(S = s | A) \le \max_d T_{sd},

    which for randomized response means that P(S = s | A) lies between (1 - pi)/(K - 1) and pi. Given (x, y) the reports
    in A are independent, so that these shares have exact binomial limits. The rows take turns in thirds: fit the
    classifier, choose s and A, compute the limit. A declaration that permits less than the limit of one of them is
    rejected; a true one is rejected with probability at most 1 - level, for every sample size. **Too little noise (a
    keep that is too high) cannot be refuted in this way**, because groups may always overlap more than they seem to,
    nor can too much of it where features and outcome say too little about the group. Several rows of one person with
    the same report break the guarantee: pass `cluster`.

    A pricer makes this check in ``fit``, at level 0.999 with the linear classifier, on at most 20,000 rows, and warns.

    References
    ----------
    The bounds behind Lemma 4.4 of the paper.

    Examples
    --------
    >>> from fairpremium.portfolios import zhang_liu_shi_2025
    >>> from fairpremium.privacy import RandomizedResponse
    >>> p = zhang_liu_shi_2025(n=3000, rng=0, age_band=True)
    >>> reports = RandomizedResponse(["F", "M"], keep=0.9).privatize(p.sensitive, rng=0)
    >>> declared = RandomizedResponse(["F", "M"], keep=0.7)
    >>> check_declared_channel(p.X, p.y, sensitive=reports, channel=declared, random_state=0).rejected
    True
    """
    if not isinstance(channel, Channel):
        raise TypeError(f"Got channel of type {type(channel).__name__}, but expected a Channel.")
    level = check_level(level)
    design, s, known = select_reports(X, None, sensitive, channel.reports)
    if y is not None:
        outcome = check_outcome(y, len(known))[known]
        own = classifier is not None and not isinstance(classifier, str)
        design = np.column_stack([design, outcome]) if own else with_outcome(design, outcome)
    persons = check_cluster(cluster, len(known))
    if persons is not None:
        first = np.unique(persons[known], return_index=True)[1]
        design, s = design[first], s[first]
    least = _MIN_ROWS * max(len(channel.groups), len(channel.reports))
    if len(s) < least:
        raise ValueError(f"Got {len(s)} reports, but expected at least {least} for this channel.")
    rng, n_reports = make_generator(random_state), len(channel.reports)
    scores: ReportScores
    if isinstance(classifier, str):
        if classifier != "linear":
            raise ValueError(f'Got classifier={classifier!r}, but expected "linear" or a scikit-learn classifier.')
        scores = LinearScores(standardise(design) if y is None else design, s, n_reports, rng)
    else:
        scores = ReportClassifier(classifier, design, s, n_reports, rng)
    seen = "features" if y is None else "features and outcomes"
    return _check(scores, channel, level, seen, describe_missing(known, "reports were"))


def check_coded_reports(
    X: NDArray[np.float64], y: NDArray[np.float64], s: NDArray[np.intp], channel: Channel, level: float
) -> DeclaredChannelCheck:
    """Check a declared channel on rows that are numbers already, with the linear classifier.

    Every row must have a report, `s` being its position in ``channel.reports``, and a person of its own.
    """
    scores = LinearScores(with_outcome(X, y), s, len(channel.reports), np.random.default_rng(0))
    return _check(scores, channel, level, "features and outcomes", [])


def _check(
    scores: ReportScores, channel: Channel, level: float, seen: str, sentences: list[str]
) -> DeclaredChannelCheck:
    """Look for the set of rows whose reports are sharpest, and say what it shows."""
    events = Events.of(channel)
    bounds = [sharpest_bound(turn, scores.s, events, level) for turn in take_turns(scores)]
    sharpest = max(bounds, key=lambda bound: bound.limit)
    keep = float(channel.keep)
    has_keep = 1 / len(channel.groups) < keep < 1
    lower_limit = max(keep + sharpest.limit * (1 - keep), 0.0) if has_keep else math.nan
    declared = f"The declared keep of {keep:.3f}" if has_keep else "The declared channel"
    finding = f": with the reports, {seen} show that keep is at least {lower_limit:.3f} (confidence {level:g})"
    rejected = sharpest.limit > 0
    if rejected:
        found = [
            f"{declared} is rejected{finding if has_keep else ''}.",
            _describe(sharpest, events, channel, seen),
            "Too much assumed noise overcorrects, which does more harm than no correction. What helps: if the column "
            "holds the true attribute, say so (channel=None, --true-attribute); else ask the sender for the channel, "
            "or estimate it. If several rows of a person share one report, say whose they are (cluster=...).",
        ]
    else:
        found = [
            f"{declared} is not rejected{finding if has_keep else ''}.",
            f"{'A keep that is too high' if has_keep else 'Too little noise'} cannot be seen in this way.",
        ]
    return DeclaredChannelCheck(rejected, keep, lower_limit, level, " ".join([*found, *sentences]))


def _describe(bound: Bound, events: Events, channel: Channel, seen: str) -> str:
    """Say what a set of rows shows that the channel does not permit."""
    members = [label for label, member in zip(channel.reports, events.members[bound.event], strict=True) if member]
    among = repr(members[0]) if len(members) == 1 else f"one of {members}"
    edge = events.upper[bound.event] if bound.sign > 0 else events.lower[bound.event]
    return (
        f"Of {bound.rows:,} rows that {seen} pick out, {bound.share:.1%} report {among}, and the declared channel "
        f"permits {'at most' if bound.sign > 0 else 'at least'} {edge:.1%}."
    )


def outcome_evidence(
    design: NDArray[np.float64],
    y: NDArray[np.float64],
    s: NDArray[np.intp],
    n_groups: int,
    level: float,
    rng: np.random.Generator,
) -> Evidence:
    """Bound keep from below by sets of (x, y); see `collect_evidence`."""
    return collect_evidence(ReportClassifier(None, with_outcome(design, y), s, n_groups, rng), level)
