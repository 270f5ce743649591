"""The noise from people who reported twice."""

import math
from collections.abc import Sequence
from typing import Any, Self

from fairpremium.noise._base import SampleNoiseEstimator, check_level
from fairpremium.noise._keep_formulas import agreement_to_keep, binomial_interval


class RetestNoise(SampleNoiseEstimator):
    r"""Estimate the channel from people who reported twice, without anyone's true group.

    Parameters
    ----------
    first, second : array-like of shape (n_people,)
        Two reports of the same people, drawn independently. People without one of them are left out.
    groups : sequence, optional
        All groups; by default the labels in ``first`` and ``second``.
    level : float, default=0.95
        Confidence level.

    Attributes
    ----------
    groups_, channel_, keep_, interval_, standard_error_, identified_, message_
        See `NoiseEstimator`; the interval is the exact one of alpha, transformed.
    agreement_ : float
        alpha, the share of people whose two reports agree.
    n_people_ : int
        How many people had both reports.

    Notes
    -----
    .. math::
        \hat\pi = \frac{1 + \sqrt{(K - 1)(K \hat\alpha - 1)}}{K}, \qquad
        se(\hat\pi) = \frac{\sqrt{\hat\alpha (1 - \hat\alpha) / n}}{2 \hat\pi - 2 \bar\pi}, \qquad
        \bar\pi = \frac{1 - \hat\pi}{K - 1}

    where

    - :math:`\hat\alpha` is ``agreement_``, n is ``n_people_`` and K is the number of groups.

    The equation for pi has two roots; the larger one is taken, so keep > 1/K is assumed. The second report must be a
    fresh draw (a memoized report agrees with itself, and keep would come out as one), and it costs its epsilon again.

    Examples
    --------
    >>> first = ["F"] * 50 + ["M"] * 50
    >>> second = ["F"] * 41 + ["M"] * 41 + ["F"] * 9 + ["M"] * 9
    >>> noise = RetestNoise(first, second).fit(None, None, sensitive=["F", "M", "M"])
    >>> noise.agreement_, round(noise.keep_, 4), noise.identified_
    (0.82, 0.9, True)
    """

    def __init__(self, first: Any, second: Any, groups: Sequence[Any] | None = None, level: float = 0.95):
        self.first = first
        self.second = second
        self.groups = groups
        self.level = level

    def fit(self, X: Any = None, y: Any = None, *, sensitive: Any, sample_weight: Any = None) -> Self:
        """Estimate the channel from the reports given to the constructor.

        Parameters
        ----------
        X, y, sample_weight
            Ignored; all noise estimators have the same signature.
        sensitive : array-like of shape (n_samples,) or None
            The reports of the portfolio; only their labels are checked.

        Returns
        -------
        self
        """
        level = check_level(self.level)
        groups, s1, s2, left_out = self._read_sample("first", "second", sensitive)
        n, K = len(s1), len(groups)
        hits = int((s1 == s2).sum())
        alpha = hits / n
        alpha_low, alpha_high = binomial_interval(hits, n, level)
        keep = float(agreement_to_keep(alpha, K))
        low, high = (float(agreement_to_keep(max(limit, 1 / K), K)) for limit in (alpha_low, alpha_high))
        keep_bar = (1 - keep) / (K - 1)
        slope = 2 * keep - 2 * keep_bar
        standard_error = math.sqrt(alpha * (1 - alpha) / n) / slope if K * alpha > 1 else math.nan

        problems = []
        if K * alpha_low <= 1:
            problems.append(
                f"The two reports of a person agree with probability {alpha_low:.3f} to {alpha_high:.3f}, "
                f"which does not exclude 1/K = {1 / K:.3f}, pure noise: more people with two reports are needed."
            )
        elif hits == n:
            problems.append(
                "No two reports of a person differ, so no noise is seen: were the second reports fresh "
                "draws, or copies of the first?"
            )
        sentences = [
            f"Estimated from {n} people with two reports, of which {alpha:.3f} agree; it rests on the two being "
            "independent draws of one randomized response that keeps the truth more often than chance.",
            *left_out,
        ]
        self.n_people_ = n
        self.agreement_ = alpha
        return self._store(groups, keep, standard_error, (low, high), sentences, problems)
