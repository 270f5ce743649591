"""The bands of numeric columns: the fewest that keep the tariff close to the premiums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import floor, log10

import numpy as np

from fairpremium.arrays import Array

MAX_BANDS = 40  # of one column
_FINE = 64  # cuts at equal steps of the distribution, and as many at equal steps of the range
FINE_BANDS = 2 * _FINE
_TRIALS = 14
_SLACK = 1.1  # bands may add a tenth to a deviation that no bands can avoid

Edges = tuple[float, ...]


@dataclass(frozen=True)
class Curve:
    """A column cut finely, and what the premium does along it."""

    edges: Edges  # of the fine bands
    effect: Array  # (edges + 1,), logarithm of the relativities of the fine bands

    @property
    def spread(self) -> float:
        """The distance between the highest and the lowest effect."""
        return float(np.ptp(self.effect))

    def within(self, half_width: float) -> Edges:
        """Cut it into the fewest bands in which no effect is further than `half_width` from the middle of its band."""
        found, low, high = [], self.effect[0], self.effect[0]
        for edge, effect in zip(self.edges, self.effect[1:], strict=True):
            low, high = min(low, effect), max(high, effect)
            if high - low > 2 * half_width:
                found.append(edge)
                low = high = effect
        return tuple(found)

    def at_most(self, bands: int) -> Edges:
        """Cut it into at most so many bands, as evenly as that is possible."""
        low, high = 0.0, self.spread
        for _ in range(50):
            middle = (low + high) / 2
            low, high = (low, middle) if len(self.within(middle)) < bands else (middle, high)
        return self.within(high)


def fine_edges(values: Array) -> Edges:
    """Cut a column finely at round numbers: between any two values that occur if they are few."""
    seen = np.unique(values)
    if len(seen) > FINE_BANDS:
        steps = np.linspace(0, 1, _FINE + 1)[1:-1]
        wanted = np.concatenate([np.quantile(values, steps), seen[0] + steps * (seen[-1] - seen[0])])
        seen = np.unique(np.concatenate([seen[:1], seen[np.searchsorted(seen, wanted)], seen[-1:]]))
    return tuple(roundest(a, b) for a, b in zip(seen[:-1].tolist(), seen[1:].tolist(), strict=True))


def roundest(a: float, b: float) -> float:
    """Find a number with few digits that is above a and not above b.

    Examples
    --------
    >>> roundest(24, 25), roundest(17.3, 22.8), roundest(0.1234, 0.1239)
    (25.0, 20.0, 0.1239)
    """
    first = floor(log10(b - a)) + 1
    for exponent in range(first, first - 4, -1):
        found = floor(b / 10.0**exponent) * 10.0**exponent
        found = float(f"{found:.{max(-exponent, 0)}f}")  # 0.3 and not 3 * 0.1
        if a < found <= b:
            return found
    return b


def choose_edges(
    curves: dict[str, Curve], deviation: Callable[[dict[str, Edges]], float], tolerance: float
) -> tuple[dict[str, Edges], float]:
    """Choose the bands of several columns together.

    A tolerance on the whole deviation is shared out among the columns. A column with the spread R that may deviate by d
    needs about R / (2 d) bands, so that the sum of all is smallest if d is proportional to the root of R. How large d
    may be is found by bisection, with the largest deviation of the tariff that `deviation` computes.

    Returns the edges of each column, and the largest deviation that the finest bands reach. Where that is more than the
    tolerance, bands may add a tenth to it.
    """
    finest = {name: curve.at_most(MAX_BANDS) for name, curve in curves.items()}
    reachable = deviation(finest)
    target = max(tolerance, _SLACK * reachable)
    best, fewest = finest, sum(map(len, finest.values()))
    low, high = 1e-4 * tolerance, max(1.0, max((np.sqrt(curve.spread) for curve in curves.values()), default=1.0))
    tried: dict[tuple[Edges, ...], float] = {}
    for _ in range(_TRIALS):
        middle = float(np.sqrt(low * high))
        trial = {name: _limited(curve, middle * float(np.sqrt(curve.spread))) for name, curve in curves.items()}
        key = tuple(trial.values())
        if key not in tried:
            tried[key] = deviation(trial)
        if tried[key] <= target:
            low, count = middle, sum(map(len, trial.values()))
            if count < fewest:
                best, fewest = trial, count
        else:
            high = middle
    return best, reachable


def _limited(curve: Curve, half_width: float) -> Edges:
    found = curve.within(half_width)
    return found if len(found) < MAX_BANDS else curve.at_most(MAX_BANDS)
