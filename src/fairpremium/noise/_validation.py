"""The noise from people whose true group is known."""

import math
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from fairpremium.noise._base import SampleNoiseEstimator, check_level
from fairpremium.noise._keep_formulas import binomial_interval
from fairpremium.privacy import Channel

_NO_NOISE = (
    "Every report equals the truth, so no noise is seen: price with channel=None if the reports are the true groups, "
    "or check more people."
)


class ValidationNoise(SampleNoiseEstimator):
    r"""Estimate the channel from people whose true group and report are both known.

    Parameters
    ----------
    true : array-like of shape (n_people,)
        D, the true groups.
    report : array-like of shape (n_people,)
        S, the reports of the same people. People without one of the two are left out.
    groups : sequence, optional
        All groups; by default the labels in ``true`` and ``report``.
    symmetric : bool, default=True
        True: the channel is a randomized response with one unknown, pi. False: any channel, one unknown per
        entry of its matrix; ``keep_``, ``standard_error_`` and ``interval_`` are then nan.
    level : float, default=0.95
        Confidence level.

    Attributes
    ----------
    groups_, channel_, keep_, interval_, standard_error_, identified_, message_
        See `NoiseEstimator`; the interval is exact (Clopper and Pearson).
    n_people_ : int
        How many people had both labels.
    matrix_standard_error_ : ndarray of shape (reports, groups)
        Standard errors of the channel's matrix; only with ``symmetric=False``.

    Notes
    -----
    .. math:: \hat\pi = \frac{1}{n} \sum_i 1\{s_i = d_i\}

    where

    - :math:`s_i` is ``report``, :math:`d_i` is ``true`` and n is ``n_people_``.

    The people need not be a fair sample of the portfolio, because pi is the same for everybody. They must
    have reported through the same channel, knowing no more about the check than the others.

    Without symmetry, T[s, d] is the share of the reports s among the people of group d. It is taken as
    identified when its smallest singular value exceeds z times the standard error of the whole matrix, the
    root of the sum of all variances: an error matrix E moves a singular value by at most its Frobenius norm.

    Examples
    --------
    >>> noise = ValidationNoise(true=["F"] * 50 + ["M"] * 50, report=["F"] * 45 + ["M"] * 50 + ["F"] * 5)
    >>> noise = noise.fit(None, None, sensitive=["F", "M", "M"])
    >>> noise.keep_, noise.channel_.groups
    (0.9, ('F', 'M'))
    """

    def __init__(
        self, true: Any, report: Any, groups: Sequence[Any] | None = None, symmetric: bool = True, level: float = 0.95
    ):
        self.true = true
        self.report = report
        self.groups = groups
        self.symmetric = symmetric
        self.level = level

    def fit(self, X: Any = None, y: Any = None, *, sensitive: Any, sample_weight: Any = None) -> Self:
        """Estimate the channel from the sample given to the constructor.

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
        groups, d, s, left_out = self._read_sample("true", "report", sensitive)
        self.n_people_ = n = len(d)
        sentences = [
            f"Estimated from {n} people whose true group is known; it rests on their having reported through the same "
            "channel as the portfolio.",
            *left_out,
        ]
        if not self.symmetric:
            return self._fit_matrix(d, s, groups, level, sentences)
        hits, K = int((s == d).sum()), len(groups)
        keep = hits / n
        low, high = binomial_interval(hits, n, level)
        problems = []
        if low <= 1 / K:
            problems.append(
                f"keep lies between {low:.3f} and {high:.3f}, which does not exclude 1/K = "
                f"{1 / K:.3f}, pure noise: more people with a known group are needed."
            )
        elif hits == n:
            problems.append(_NO_NOISE)
        return self._store(groups, keep, math.sqrt(keep * (1 - keep) / n), (low, high), sentences, problems)

    def _fit_matrix(
        self, d: NDArray[np.intp], s: NDArray[np.intp], groups: tuple[Any, ...], level: float, sentences: list[str]
    ) -> Self:
        K = len(groups)
        counts = np.bincount(s * K + d, minlength=K * K).reshape(K, K)  # (reports, groups)
        people = counts.sum(axis=0)
        if not people.all():
            absent = [group for group, n in zip(groups, people, strict=True) if n == 0]
            raise ValueError(
                f"Got true without anyone of the groups {absent}, but symmetric=False needs people of every group. Add "
                "some, or use symmetric=True."
            )
        T = counts / people
        variance = T * (1 - T) / people
        smallest = float(np.linalg.svd(T, compute_uv=False)[-1])
        margin = float(ndtri(0.5 + level / 2) * math.sqrt(variance.sum()))
        problems = []
        if smallest <= margin:
            problems.append(
                "The estimated channel cannot be told from one that has no inverse (smallest singular value "
                f"{smallest:.3f}, needed {margin:.3f}): check more people of the small groups."
            )
        elif smallest > 1 - 1e-12:
            problems.append(_NO_NOISE)
        self.matrix_standard_error_ = np.sqrt(variance)
        channel = None if problems else Channel(T, groups=groups, reports=groups)
        return self._store(groups, math.nan, math.nan, (math.nan, math.nan), sentences, problems, channel)
