"""What (X, S) alone say about pi, without anchors: a lower confidence limit, and whether S depends on x."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from fairpremium.noise._keep_formulas import binomial_interval
from fairpremium.noise._report_classifier import ReportClassifier

FRACTIONS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)  # sizes of the sets A that are tried


@dataclass(frozen=True)
class Evidence:
    """What the reports say about pi without any anchor."""

    lower_bound: float  # estimate of a lower bound of pi (of pi_L, from below)
    lower_limit: float  # lower confidence limit of pi
    dependence_pvalue: float  # of the test that S does not depend on x


def collect_evidence(reports: ReportClassifier, level: float) -> Evidence:
    r"""Bound pi from below, and test whether the reports depend on x.

    `reports` holds the reports and the classifier that is to find where they differ, `level` is the confidence level.

    Notes
    -----
    Every report has P(S = s | x) between pi_bar = (1 - pi)/(K - 1) and pi, so for any set A of values of x

    .. math:: \pi \ge P(S = s | A), \qquad \pi \ge 1 - (K - 1) P(S = s | A).

    If A was fixed beforehand, the right sides have exact binomial limits. The rows are cut at random into
    thirds: one fits the classifier, one chooses s and A (the rows where S = s is fitted as most, or least,
    likely), one gives the limit. The thirds take turns; each limit is taken at level 1 - (1 - level)/3, so that the
    largest of the three holds at ``level``, whatever the classifier.

    The dependence is tested on the held-out rows by the mean of log((1 + p(s | x) / p(s)) / 2), whose expectation is at
    most zero when S does not depend on x; halving towards the margin p(s) tames an overfitted classifier.
    """
    n, K = len(reports.s), reports.n_groups
    thirds = np.array_split(reports.rng.permutation(n), 3)
    tail = (1 - level) / 3
    gain = np.zeros(n)
    bounds, limits = [], []
    for turn in range(3):
        fit, choose, limit_rows = (thirds[(turn + i) % 3] for i in range(3))
        fitted = reports.fit(fit)
        margin = (np.bincount(reports.s[fit], minlength=K) + 1) / (len(fit) + K)
        P_choose, P_limit = reports.predict(fitted, choose), reports.predict(fitted, limit_rows)
        for rows, P in ((choose, P_choose), (limit_rows, P_limit)):
            s = reports.s[rows]
            gain[rows] += np.log((1 + P[np.arange(len(s)), s] / margin[s]) / 2) / 2
        sets = [
            (s, sign, float(np.quantile(sign * P_choose[:, s], 1 - fraction)))
            for s in range(K)
            for sign in (1, -1)
            for fraction in FRACTIONS
        ]
        chosen = max(sets, key=lambda A: bound_keep(A, P_choose, reports.s[choose], tail)[1])
        bound, limit = bound_keep(chosen, P_limit, reports.s[limit_rows], tail)
        bounds.append(bound)
        limits.append(limit)
    spread = float(gain.std(ddof=1)) / math.sqrt(n)
    pvalue = float(norm.sf(gain.mean() / spread)) if spread > 0 else 1.0
    return Evidence(float(np.mean(bounds)), max(limits), pvalue)


def bound_keep(
    A: tuple[int, int, float], P: NDArray[np.float64], s: NDArray[np.intp], tail: float
) -> tuple[float, float]:
    """Return the lower bound of pi that a set gives, and its lower confidence limit.

    A set (report, sign, threshold) holds the rows where the report is fitted as likely (sign 1) or unlikely (-1).
    """
    report, sign, threshold = A
    inside = sign * P[:, report] >= threshold
    n, hits = int(inside.sum()), int((s[inside] == report).sum())
    low, high = binomial_interval(hits, n, 1 - 2 * tail)
    share = hits / n if n else 0.0
    if sign > 0:
        return share, low
    K = P.shape[1]
    return (1 - (K - 1) * share if n else 0.0), max(1 - (K - 1) * high, 0.0)
