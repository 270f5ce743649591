"""The likelihood of reports and outcomes as a function of keep: everything else maximised out."""

import math
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError
from scipy.special import expit, logit

from fairpremium.arrays import Array
from fairpremium.blocks import Block
from fairpremium.corrections import Latent, Parameters, with_missing_row
from fairpremium.errors import ConvergenceError

GRID = (0.02, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.97, 1.0)  # values of lambda that the search visits
_SEARCH_TOL, _TOL = 1e-3, 1e-5  # of the climbs that look around, and of those that count
_ROUGH = 3.0  # a point of the search this far below a cut need not be climbed again
_LIMIT_TOL = 1e-4  # of lambda, where an interval ends
_STEP = 1e-4  # of logit(lambda), for central differences
_MAX_NEWTON, _MAX_PASSES = 30, 80


class Point(NamedTuple):
    """A maximum over everything but lambda."""

    strength: float  # lambda
    parameters: Parameters
    value: float


def strength_to_keep(strength: float, n_groups: int) -> float:
    """Return pi = (1 + (K - 1) lambda) / K: lambda = 0 is pure noise, lambda = 1 the truth."""
    return (1 + (n_groups - 1) * strength) / n_groups


def channel_matrix(strength: float, n_groups: int) -> Array:
    """Return T = lambda I + (1 - lambda) 11'/K."""
    return strength * np.eye(n_groups) + (1 - strength) / n_groups


@dataclass
class Profile:
    """The profile log-likelihood of lambda, with every maximum found so far as a start for the next.

    The channel of the given likelihood is replaced. A mixture likelihood has several maxima. The search climbs from
    several starts at several lambda, carries each maximum to the neighbouring lambda in both directions, and stores the
    highest at each. Values at one lambda never go down.
    """

    latent: Latent
    points: dict[float, Point] = field(default_factory=dict)
    _final: set[float] = field(default_factory=set)

    def at(self, strength: float) -> Latent:
        """Return the likelihood at a given lambda."""
        return replace(self.latent, T=with_missing_row(channel_matrix(strength, self.latent.n_groups)))

    def climb(self, strength: float, start: Parameters, tol: float = _TOL) -> Point | None:
        """Maximise at lambda from a start, and remember the result if it is the highest there.

        A climb on a plateau that does not end gets a wider tolerance: its gain is then below n tol^2.
        """
        latent = self.at(strength)
        for wider in (1, 10, 1000):
            with suppress(ConvergenceError):
                found = latent.maximise(start, tol=tol * wider, max_iter=_MAX_PASSES)
                point = Point(strength, found, latent.value(found))
                self.points[strength] = max(self.points.get(strength, point), point, key=lambda p: p.value)
                break
        return self.points.get(strength)

    def search(self, starts: dict[float, list[Parameters]]) -> Point:
        """Visit the grid: climb from the starts, then carry maxima upwards and downwards.

        A ConvergenceError says that no start led to a maximum.
        """
        for strength, at in starts.items():
            for start in at:
                self.climb(strength, start, _SEARCH_TOL)
        if not self.points:
            raise ConvergenceError("The likelihood of the noise found no maximum from any start.")
        for order in (GRID, GRID[::-1]):
            for before, strength in pairwise(order):
                if before in self.points:
                    self.climb(strength, self.points[before].parameters, _SEARCH_TOL)
        return self.best

    @property
    def best(self) -> Point:
        """The highest point found so far."""
        return max(self.points.values(), key=lambda point: point.value)

    def value(self, strength: float) -> float:
        """Compute the profile at lambda, from the nearest maxima on both sides and the one found there."""
        if strength not in self._final:
            near = [max((s for s in self.points if s < strength), default=strength)]
            near += [min((s for s in self.points if s > strength), default=strength), strength]
            for start in [self.points[s].parameters for s in set(near) & self.points.keys()]:
                self.climb(strength, start)
            self._final.add(strength)
        return self.points[strength].value if strength in self.points else -math.inf

    def derivatives(self, point: Point) -> tuple[float, float, Array]:
        """Compute slope and curvature of the profile in tau = logit(lambda), and d parameters / d tau.

        With the gradient g in the other parameters and their observed information J, and the slope u of the
        log-likelihood in tau at fixed parameters (the envelope theorem makes it that of the profile),

            curvature = du/dtau + (dg/dtau)' J^-1 (dg/dtau).
        """
        tau = float(logit(point.strength))
        low, high = (self._score(float(expit(tau + step)), point.parameters) for step in (-_STEP, _STEP))
        slope = (low[1] + high[1]) / 2
        d_gradient = (high[0] - low[0]) / (2 * _STEP)
        tangent = self.at(point.strength).step(point.parameters, d_gradient)
        return slope, (high[1] - low[1]) / (2 * _STEP) + float(d_gradient @ tangent), tangent

    def _score(self, strength: float, at: Parameters) -> tuple[Array, float]:
        """Gradient in the other parameters without penalties, and in tau."""
        latent, K = self.at(strength), self.latent.n_groups
        # d log T / d tau, with d lambda / d tau = lambda (1 - lambda)
        d_log_T = strength * (1 - strength) * (np.eye(K) - 1 / K) / channel_matrix(strength, K)

        def sums(block: Block) -> tuple[Array, ...]:
            r = latent.responsibilities(block, at)
            return latent.scores(block, at).sum(axis=0), np.array(np.sum(r * d_log_T[block.report]))

        gradient, slope = latent.rows.reduce(sums, block_rows=2048)
        return gradient, float(slope)

    def maximise(self) -> Point:
        """Climb in lambda from the best point by Newton's method; the end lambda = 1 is a possible answer."""
        point = self.best
        for _ in range(_MAX_NEWTON):
            if not 0 < point.strength < 1:
                return point
            try:
                slope, curvature, tangent = self.derivatives(point)
            except LinAlgError:
                return point
            tau = float(logit(point.strength))
            step = -slope / curvature if curvature < 0 else math.copysign(0.5, slope)
            step = max(-1.0, min(1.0, step))
            if abs(slope * step) < 1e-7:
                return point
            latent, flat = self.at(point.strength), self.latent.pack(point.parameters)
            for _halving in range(12):
                strength = float(expit(tau + step))
                found = self.climb(strength, latent.unpack(flat + step * tangent))
                if found is not None and found.value > point.value:
                    point = found
                    break
                step /= 2
            else:
                return point
            if point.strength > 1 - 1e-5:
                return self.best
        return self.best

    def limit(self, best: Point, end: float, drop: float) -> float:
        """Find lambda between the maximum and an end where the profile has dropped; the end if it has not."""
        from scipy.optimize import brentq

        def excess(strength: float) -> float:
            fall = max(2 * (best.value - self.value(strength)), 0.0)
            return min(math.sqrt(fall), 1e3) - math.sqrt(2 * drop)

        if best.strength == end or excess(end) <= 0:
            return end
        # the outermost points found so far between which the profile crosses the cut
        between = [s for s in self.points if min(best.strength, end) < s < max(best.strength, end)]
        outer = end
        for strength in sorted(between, key=lambda s: abs(s - end)):
            if self.points[strength].value > best.value - drop - _ROUGH and excess(strength) <= 0:
                return float(brentq(excess, strength, outer, xtol=_LIMIT_TOL))
            outer = strength
        return float(brentq(excess, best.strength, outer, xtol=_LIMIT_TOL))
