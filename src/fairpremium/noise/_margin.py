"""The noise from the known distribution of the groups."""

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any, Self

import numpy as np
from scipy.special import chdtrc, ndtri

from fairpremium.arrays import Array
from fairpremium.labels import check_labels
from fairpremium.models import check_weight
from fairpremium.noise._base import NoiseEstimator, check_level, describe_missing, report_codes

REFUTED = 0.001  # below this p-value of the fit the declared shares are taken to be wrong


class MarginNoise(NoiseEstimator):
    r"""Estimate the channel from the known shares of the groups, such as those of a census.

    Parameters
    ----------
    margin : mapping of group to share
        P(D) of the portfolio, positive and summing to one; shares of volume when ``fit`` gets a
        ``sample_weight``, shares of people otherwise. Taken as exact.
    level : float, default=0.95
        Confidence level.

    Attributes
    ----------
    groups_, channel_, keep_, interval_, standard_error_, identified_, message_
        See `NoiseEstimator`; the interval is ``keep_`` plus and minus z standard errors, cut to [0, 1].
    report_distribution_ : ndarray of shape (n_groups,)
        P(S), weighted.
    fit_pvalue_ : float
        p-value of the test that P(S) lies on the line from uniform to the declared shares; nan for two
        groups, where it always does.

    Notes
    -----
    Randomized response shrinks the distribution towards the uniform one, P(S) - 1/K = lambda (p - 1/K), so

    .. math::
        \hat\lambda = \frac{(p - 1/K)'(\hat P(S) - 1/K)}{|p - 1/K|^2}, \qquad
        \hat\pi = \frac{1 + (K - 1) \hat\lambda}{K}

    where

    - p is ``margin``, :math:`\hat P(S)` is ``report_distribution_`` and K is the number of groups.

    The variance is that of a ratio of weighted sums (delta method). The closer p is to uniform, the larger it
    is; at p = 1/K nothing can be learned. A wrong margin gives a wrong pi, and with two groups nothing in the
    data shows it. With K >= 3 a chi-square test with K - 2 degrees of freedom does: ``message_`` mentions a
    p-value below 1 - level, and below 0.001 pi counts as not identified.

    Examples
    --------
    >>> reports = ["F"] * 260 + ["M"] * 740
    >>> noise = MarginNoise({"F": 0.2, "M": 0.8}).fit(None, None, sensitive=reports)
    >>> round(noise.keep_, 4), noise.identified_
    (0.9, True)
    """

    def __init__(self, margin: Mapping[Any, float], level: float = 0.95):
        self.margin = margin
        self.level = level

    def fit(self, X: Any = None, y: Any = None, *, sensitive: Any, sample_weight: Any = None) -> Self:
        """Estimate the channel from the distribution of the reports.

        Parameters
        ----------
        X, y
            Ignored; all noise estimators have the same signature.
        sensitive : array-like of shape (n_samples,)
            The reports; missing ones are left out.
        sample_weight : array-like of shape (n_samples,), optional
            Volumes, if `margin` holds shares of volume.

        Returns
        -------
        self
        """
        level = check_level(self.level)
        groups, p = check_margin(self.margin)
        if sensitive is None:
            raise ValueError("Got sensitive=None, but MarginNoise needs the reports of the portfolio.")
        codes = report_codes(sensitive, groups, "sensitive")
        known = codes >= 0
        weight = check_weight(sample_weight, len(codes), of="sensitive")
        w = np.ones(int(known.sum())) if weight is None else weight[known]
        if not w.sum() > 0:
            raise ValueError("Got sensitive without any report of positive weight, but expected at least one.")

        K = len(groups)
        E = np.eye(K)[codes[known]]  # (n_samples, n_groups)
        P = w @ E / w.sum()
        c = p - 1 / K
        length = float(c @ c)
        self.report_distribution_ = P
        self.fit_pvalue_ = math.nan
        sentences = [
            f"Estimated by comparing {len(E)} reports with the declared shares of the groups; it rests on "
            "these shares being those of the portfolio.",
            *describe_missing(known, "reports were"),
        ]
        if length < 1e-12:
            problem = "The declared shares are uniform, and noise leaves these as they are: use another source."
            return self._store(groups, math.nan, math.nan, (0.0, 1.0), sentences, [problem])

        lam = float(c @ (P - 1 / K)) / length
        keep = (1 + (K - 1) * lam) / K
        influence = w * ((E - P) @ c) / (length * w.sum())  # of lambda, one per row
        standard_error = (K - 1) / K * math.sqrt(float(influence @ influence))
        margin_of_error = float(ndtri(0.5 + level / 2)) * standard_error
        low, high = keep - margin_of_error, keep + margin_of_error
        interval = (min(max(low, 0.0), 1.0), min(max(high, 0.0), 1.0))

        problems = []
        if low <= 1 / K:
            problems.append(
                f"keep lies between {interval[0]:.3f} and {interval[1]:.3f}, which does not exclude 1/K = "
                f"{1 / K:.3f}, pure noise: more reports, or another source if the shares are nearly equal."
            )
        elif low >= 1:
            problems.append(
                "The reports are less evenly spread than the declared shares (keep would be "
                f"{keep:.3f}), which no noise can do: the shares are not those of the portfolio."
            )
        elif keep >= 1:
            problems.append(
                f"The estimate {keep:.3f} is not below one: either there is hardly any noise, or the "
                "declared shares are not those of the portfolio. More reports, or another source, can tell."
            )
        if K >= 3:
            self.fit_pvalue_ = line_pvalue(E, w, P, c, lam)
            misfit = (
                "The shares of the reports do not lie between the declared ones and uniform ones (p-value "
                f"{self.fit_pvalue_:.2g})"
            )
            if self.fit_pvalue_ < REFUTED:
                problems.append(f"{misfit}: the declared shares are wrong, or the noise is not symmetric.")
            elif self.fit_pvalue_ < 1 - level:
                sentences.append(f"{misfit}: check the declared shares.")
        return self._store(groups, keep, standard_error, interval, sentences, problems)


def check_margin(margin: object) -> tuple[tuple[Any, ...], Array]:
    """Return the groups and their shares."""
    if not isinstance(margin, Mapping):
        raise TypeError(f"Got margin of type {type(margin).__name__}, but expected a mapping {{group: share}}.")
    if len(margin) < 2:
        raise ValueError(f"Got margin with {len(margin)} group(s), but expected at least two.")
    for group, share in margin.items():
        if not isinstance(share, Real) or isinstance(share, bool) or not 0 < float(share) < 1:
            raise ValueError(
                f"Got margin with share {share!r} of group {group!r}, but expected numbers between 0 and 1. "
                "Leave out a group that does not occur."
            )
    shares = np.array([float(share) for share in margin.values()])
    if abs(shares.sum() - 1) > 1e-6:
        raise ValueError(
            f"Got margin with shares that sum to {shares.sum():.6g}, but expected one. Divide them by their "
            "sum, or add the missing group."
        )
    return check_labels(list(margin), "margin"), shares / shares.sum()


def line_pvalue(E: Array, w: Array, P: Array, c: Array, lam: float) -> float:
    """Test whether the shares of the reports lie on the line 1/K + lambda c.

    The statistic is min over lambda of r' V^-1 r, r = P(S) - 1/K - lambda c, without the last group, which
    the others determine; V is the weighted covariance of the reports around the fitted point of the line. It
    has a chi-square law with K - 2 degrees of freedom.
    """
    K = len(c)
    residuals = w[:, None] * (E - 1 / K - lam * c)[:, :-1] / w.sum()
    V = residuals.T @ residuals
    t, u = (P - 1 / K)[:-1], c[:-1]
    precision = np.linalg.pinv(V)
    statistic = float(t @ precision @ t - (u @ precision @ t) ** 2 / (u @ precision @ u))
    return float(chdtrc(K - 2, max(statistic, 0.0)))
