"""Whether the reports refute a declared channel, from features, outcomes and reports alone."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairpremium.models import check_outcome
from fairpremium.noise._base import check_level, describe_missing, make_generator
from fairpremium.noise._keep_bounds import Evidence, collect_evidence
from fairpremium.noise._report_classifier import ReportClassifier, select_reports
from fairpremium.privacy import RandomizedResponse

_MIN_ROWS = 30  # reports per group


@dataclass(frozen=True)
class DeclaredChannelCheck:
    """What `check_declared_channel` found.

    Attributes
    ----------
    rejected : bool
        Whether the reports refute the declared keep as too low.
    keep : float
        The declared keep.
    lower_limit : float
        Lower confidence limit of the true keep, at `level`.
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
    channel: RandomizedResponse,
    level: float = 0.95,
    classifier: Any = None,
    random_state: Any = None,
) -> DeclaredChannelCheck:
    r"""Check a declared keep against the reports: one that is too low can be refuted, with no law for Y.

    Parameters
    ----------
    X : data frame or array of shape (n_samples, n_columns)
        Features.
    y : array-like of shape (n_samples,) or None
        Outcome; with it far more is seen than with the features alone. None leaves it out.
    sensitive : array-like of shape (n_samples,)
        S; rows without a report are left out.
    channel : RandomizedResponse
        The declaration.
    level : float, default=0.95
        Confidence level.
    classifier : scikit-learn classifier, optional
        Of S given (x, y), with ``predict_proba``; cloned. Default: multinomial logistic regression on x, y,
        their products and y squared. The limit is valid for any classifier; a better one makes it higher.
    random_state : int, numpy.random.Generator or None
        Divides the rows.

    Returns
    -------
    DeclaredChannelCheck

    Notes
    -----
    S is drawn from D alone, so P(S = s | x, y) lies between (1 - pi)/(K - 1) and pi, and for any set A of
    values of (x, y) that was chosen on other rows

    .. math:: \pi \ge P(S = s | A), \qquad \pi \ge 1 - (K - 1) P(S = s | A)

    with exact binomial limits. The rows take turns in thirds: fit the classifier, choose s and A, compute the limit. A
    declaration below the largest limit is rejected; a true one is rejected with probability at most 1 - level, for
    every sample size. **A keep that is too high cannot be refuted in this way**, because groups may always overlap more
    than they seem to. Several rows of one person with the same report break the guarantee: pass one row per person.

    References
    ----------
    The bounds behind Lemma 4.4 of the paper.

    Examples
    --------
    >>> from fairpremium.portfolios import zhang_liu_shi_2025
    >>> p = zhang_liu_shi_2025(n=3000, rng=0, age_band=True)
    >>> reports = RandomizedResponse(["F", "M"], keep=0.9).privatize(p.sensitive, rng=0)
    >>> declared = RandomizedResponse(["F", "M"], keep=0.7)
    >>> check_declared_channel(p.X, p.y, sensitive=reports, channel=declared, random_state=0).rejected
    True
    """
    if not isinstance(channel, RandomizedResponse):
        raise TypeError(
            f"Got channel of type {type(channel).__name__}, but expected a RandomizedResponse: others have no keep."
        )
    level = check_level(level)
    groups = channel.groups
    K = len(groups)
    design, s, known = select_reports(X, None, sensitive, groups)
    if len(s) < _MIN_ROWS * K:
        raise ValueError(f"Got {len(s)} reports, but expected at least {_MIN_ROWS * K} for {K} groups.")
    outcome = None if y is None else check_outcome(y, len(known))[known]
    evidence = outcome_evidence(design, outcome, s, K, level, make_generator(random_state), classifier)
    rejected = channel.keep < evidence.lower_limit
    seen = "features" if y is None else "features, outcomes"
    finding = f"{seen} and reports show that keep is at least {evidence.lower_limit:.3f} (confidence {level:g})"
    if rejected:
        sentences = [
            f"The declared keep of {channel.keep:.3f} is rejected: {finding}. Too low a keep overcorrects, which "
            "does more harm than no correction: ask the sender, or estimate the channel."
        ]
    else:
        sentences = [
            f"The declared keep of {channel.keep:.3f} is not rejected: {finding}.",
            "A keep that is too high cannot be seen in this way.",
        ]
    sentences += describe_missing(known, "reports were")
    return DeclaredChannelCheck(rejected, float(channel.keep), evidence.lower_limit, level, " ".join(sentences))


def outcome_evidence(
    design: NDArray[np.float64],
    y: NDArray[np.float64] | None,
    s: NDArray[np.intp],
    n_groups: int,
    level: float,
    rng: np.random.Generator,
    classifier: Any = None,
) -> Evidence:
    """Bound keep from below by sets of (x, y); see `collect_evidence`.

    The default classifier gets the products of y with x, so that what an outcome says may depend on x.
    """
    if y is not None:
        design = np.column_stack([design, y])
        if classifier is None:
            t = (y - y.mean()) / (y.std() or 1.0)
            spread = design.std(axis=0)
            z = (design - design.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
            design = np.column_stack([z, t[:, None] * z])
    return collect_evidence(ReportClassifier(classifier, design, s, n_groups, rng), level)
