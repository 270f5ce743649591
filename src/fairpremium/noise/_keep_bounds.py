"""What held-out reports say about the noise without any anchor: a lower limit of pi, and whether S depends on x."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from fairpremium.noise._keep_formulas import binomial_interval
from fairpremium.privacy import Channel

FRACTIONS = np.array([0.02, 0.05, 0.1, 0.2, 0.5, 1.0])  # sizes of the sets A that are tried


class ReportScores(Protocol):
    """What finds the rows where a report is likely; it may be fitted to any rows."""

    s: NDArray[np.intp]  # (n_samples,), S as codes
    n_groups: int  # kinds of reports
    rng: np.random.Generator

    def fit(self, rows: NDArray[np.intp]) -> Any:
        """Return what the other method needs, learned from these rows."""

    def predict(self, fitted: Any, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return for each row and report a number that is the higher, the likelier the report is."""


class Turn(NamedTuple):
    """The rows in thirds: one has fitted the scores of the two others, which choose a set and test it."""

    fit: NDArray[np.intp]
    choose: NDArray[np.intp]
    test: NDArray[np.intp]
    P_choose: NDArray[np.float64]  # (rows of `choose`, reports)
    P_test: NDArray[np.float64]


class Events(NamedTuple):
    """Events {S in R} and the least and the largest P(S in R | x) that a channel permits."""

    members: NDArray[np.bool_]  # (events, reports), whether R holds the report
    lower: NDArray[np.float64]  # (events,)
    upper: NDArray[np.float64]

    @classmethod
    def of(cls, channel: Channel) -> Events:
        """Return the events that S is one report, and of several attributes that one of them has some value.

        P(S = . | x) mixes the columns of the matrix, so that each event lies between the least and the largest of its
        probabilities given D.
        """
        members = [np.eye(len(channel.reports), dtype=bool)]
        if isinstance(channel.reports[0], tuple):
            for values in zip(*channel.reports, strict=True):
                members.append(np.array([[v == value for v in values] for value in dict.fromkeys(values)]))
        among = np.concatenate(members)
        P = among @ channel.matrix
        return cls(among, P.min(axis=1), P.max(axis=1))

    @classmethod
    def without_truth(cls, K: int) -> Events:
        """Return the limit of randomized response for pi = 0, for which the excess of a set is a bound of pi."""
        return cls(np.eye(K, dtype=bool), np.full(K, 1 / (K - 1)), np.zeros(K))


@dataclass(frozen=True)
class Bound:
    """A set of rows, and how far its reports are sharper than a channel permits.

    The excess is the share of the declared noise that is not there: at most 0 if the channel is right. For randomized
    response with the declared pi, reports kept with pi + excess (1 - pi) explain what the set shows.
    """

    event: int
    sign: int  # 1: the rows where the event is likely; -1: unlikely
    rows: int
    hits: int  # rows where it happened
    excess: float  # its estimate
    limit: float  # its lower confidence limit

    @property
    def share(self) -> float:
        """Share of the event in the set."""
        return self.hits / self.rows if self.rows else math.nan


@dataclass(frozen=True)
class Evidence:
    """What the reports say about pi without any anchor."""

    lower_bound: float  # estimate of a lower bound of pi (of pi_L, from below)
    lower_limit: float  # lower confidence limit of pi
    dependence_pvalue: float  # of the test that S does not depend on x
    tests: tuple[tuple[NDArray[np.intp], NDArray[np.float64]], ...]  # rows of each third, and P(S | x) fitted elsewhere


def take_turns(scores: ReportScores) -> Iterator[Turn]:
    """Cut the rows at random into thirds, and let them take turns."""
    thirds = [np.sort(third) for third in np.array_split(scores.rng.permutation(len(scores.s)), 3)]
    for turn in range(3):
        fit, choose, test = (thirds[(turn + i) % 3] for i in range(3))
        fitted = scores.fit(fit)
        yield Turn(fit, choose, test, scores.predict(fitted, choose), scores.predict(fitted, test))


def sharpest_bound(turn: Turn, s: NDArray[np.intp], events: Events, level: float) -> Bound:
    r"""Choose the set whose reports are sharpest on one third, and bound its excess on another.

    Notes
    -----
    S is drawn from D alone, so P(S = s | x) mixes the entries T[s, d] of the channel, and for any set A of values of x

    .. math:: \min_d T_{sd} \le P(S = s | A) \le \max_d T_{sd},

    and likewise for sets of reports.
    Given x, the reports in A are independent, so that a set that was chosen on other rows has an exact binomial limit.
    Each of the three turns has the level 1 - (1 - level)/3, so that the largest limit holds at ``level``, whatever
    the scores.
    """
    tail = (1 - level) / 3
    P_choose, P_test = (events.members @ P.T for P in (turn.P_choose, turn.P_test))  # (events, rows)
    ordered = np.sort(P_choose, axis=1)
    thresholds = {1: _quantiles(ordered, 1 - FRACTIONS), -1: -_quantiles(ordered, FRACTIONS)}  # (events, sizes)
    sets = [
        (event, sign, float(threshold))
        for event in range(len(events.members))
        for sign in (1, -1)
        for threshold in thresholds[sign][event]
    ]
    on_choose, on_test = (events.members[:, s[rows]] for rows in (turn.choose, turn.test))
    chosen = max(sets, key=lambda A: _bound(A, P_choose, on_choose, events, tail).limit)
    return _bound(chosen, P_test, on_test, events, tail)


def _quantiles(ordered: NDArray[np.float64], shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Interpolate quantiles of ascending rows: shape (rows, shares)."""
    place = shares * (ordered.shape[1] - 1)
    low, high = np.floor(place).astype(np.intp), np.ceil(place).astype(np.intp)
    found: NDArray[np.float64] = ordered[:, low] + (place - low) * (ordered[:, high] - ordered[:, low])
    return found


def _bound(
    A: tuple[int, int, float], P: NDArray[np.float64], happened: NDArray[np.bool_], events: Events, tail: float
) -> Bound:
    """Bound the excess of a set (event, sign, threshold); arrays have the shape (events, rows)."""
    event, sign, threshold = A
    inside = sign * P[event] >= threshold
    n, hits = int(np.count_nonzero(inside)), int(np.count_nonzero(inside & happened[event]))
    low, high = binomial_interval(hits, n, 1 - 2 * tail)
    share = hits / n if n else 0.5 - sign / 2
    if sign > 0:
        edge = float(events.upper[event])
        excess, limit, room = share - edge, low - edge, 1 - edge
    else:
        edge = float(events.lower[event])
        excess, limit, room = edge - share, edge - high, edge
    if room < 1e-12:  # the channel permits every share
        return Bound(event, sign, n, hits, -math.inf, -math.inf)
    return Bound(event, sign, n, hits, excess / room, limit / room)


def collect_evidence(reports: ReportScores, level: float) -> Evidence:
    r"""Bound pi from below, and test whether the reports depend on x.

    `reports` holds the reports and the classifier that is to find where they differ, `level` is the confidence level.

    Notes
    -----
    With randomized response every report has P(S = s | x) between pi_bar = (1 - pi)/(K - 1) and pi, so for any set A

    .. math:: \pi \ge P(S = s | A), \qquad \pi \ge 1 - (K - 1) P(S = s | A);

    see `sharpest_bound`. The dependence is tested on the held-out rows by the mean of log((1 + p(s | x) / p(s)) / 2),
    whose expectation is at most zero when S does not depend on x; halving towards the margin p(s) tames an overfitted
    classifier.
    """
    n, K = len(reports.s), reports.n_groups
    gain = np.zeros(n)
    bounds, tests = [], []
    for turn in take_turns(reports):
        margin = (np.bincount(reports.s[turn.fit], minlength=K) + 1) / (len(turn.fit) + K)
        for rows, P in ((turn.choose, turn.P_choose), (turn.test, turn.P_test)):
            s = reports.s[rows]
            gain[rows] += np.log((1 + P[np.arange(len(s)), s] / margin[s]) / 2) / 2
        bounds.append(sharpest_bound(turn, reports.s, Events.without_truth(K), level))
        tests.append((turn.test, turn.P_test))
    spread = float(gain.std(ddof=1)) / math.sqrt(n)
    pvalue = float(ndtr(-gain.mean() / spread)) if spread > 0 else 1.0
    lower_limit = max(max(bound.limit for bound in bounds), 0.0)
    return Evidence(float(np.mean([bound.excess for bound in bounds])), lower_limit, pvalue, tuple(tests))
