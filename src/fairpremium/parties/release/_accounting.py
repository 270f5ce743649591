"""What releases cost: Gaussian mechanisms add up exactly, and randomized reports are paid once.

A Gaussian mechanism with noise sigma on a sum that one report changes by at most Delta has mu = Delta / sigma. Any
number of them, each chosen after seeing the results of the others, is together exactly as private as one with
mu^2 = sum of mu_j^2 (Dong, Roth and Su, 2022, corollary 3.3), and

    delta(epsilon) = Phi(mu / 2 - epsilon / mu) - e^epsilon Phi(-mu / 2 - epsilon / mu)

(Balle and Wang, 2018, theorem 8) is exact, not a bound.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from scipy.special import log_ndtr, ndtr

from fairpremium.errors import BudgetExceededError
from fairpremium.privacy import check_epsilon

Mechanism = Literal["gaussian", "randomized"]

STUDY_EPSILON = 4.0
STUDY_DELTA = 1e-6


def delta_of(mu: float, epsilon: float) -> float:
    """Compute delta(epsilon) of a Gaussian mechanism.

    Examples
    --------
    >>> round(delta_of(1.0, 1.0), 5)
    0.12694
    """
    if mu <= 0:
        return 0.0
    return float(ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu)))


def mu_of(epsilon: float, delta: float) -> float:
    """Compute the largest mu for which a Gaussian mechanism is (epsilon, delta)-private.

    Examples
    --------
    >>> mu = mu_of(1.0, 1e-6)
    >>> round(1 / mu, 2), abs(delta_of(mu, 1.0) / 1e-6 - 1) < 1e-6
    (4.22, True)
    """
    epsilon, delta = check_epsilon(epsilon), check_delta(delta)
    low, high = 1e-6, 1.0
    while delta_of(high, epsilon) < delta:
        high *= 2
    return _root(lambda mu: math.log(max(delta_of(mu, epsilon), 1e-300) / delta), low, high)


def epsilon_of(mu: float, delta: float) -> float:
    """Compute the smallest epsilon for which a Gaussian mechanism is (epsilon, delta)-private.

    Examples
    --------
    >>> round(epsilon_of(mu_of(2.0, 1e-6), 1e-6), 9)
    2.0
    """
    check_delta(delta)
    if mu <= 0 or delta_of(mu, 0.0) <= delta:
        return 0.0
    high = 1.0
    while delta_of(mu, high) > delta:
        high *= 2
    return _root(lambda e: delta_of(mu, e) - delta, 0.0, high)


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    from scipy.optimize import brentq  # takes long to load, and most commands of a third party need no root

    return float(brentq(function, low, high, xtol=1e-12))


def check_delta(delta: Any) -> float:
    """Return delta as a float if 0 < delta < 1, or raise with a sentence."""
    if isinstance(delta, bool) or not isinstance(delta, int | float | np.floating) or not 0 < delta < 1:
        raise ValueError(f"Got delta={delta!r}, but expected a number between 0 and 1, far below 1 / rows.")
    return float(delta)


@dataclass(frozen=True)
class ReleasePlan:
    """The privacy budget of a study for the reports S, and what of it has been spent.

    - `epsilon`, `delta`: What all releases of the study may cost together.
    - `squares`: Sum of mu^2 of the Gaussian releases so far.
    - `randomized`: The epsilons with which reports were randomized again; each is paid once, however many fits follow.

    Notes
    -----
    Gaussian releases add up to one with mu = sqrt(squares), which costs epsilon_of(mu, delta). The reports that were
    randomized again with epsilon_r cost epsilon_r on top (basic composition). A fit that is asked for again gets the
    same noise and costs nothing: the caller charges distinct fits.

    Examples
    --------
    >>> plan = ReleasePlan(epsilon=4.0, delta=1e-6)
    >>> plan = plan.charge("gaussian", 1.0).charge("randomized", 1.0).charge("randomized", 1.0)
    >>> round(plan.spent, 6)
    2.0
    """

    epsilon: float = STUDY_EPSILON
    delta: float = STUDY_DELTA
    squares: float = 0.0
    randomized: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon)
        check_delta(self.delta)

    @property
    def spent(self) -> float:
        """The epsilon that everything so far costs, at the plan's delta."""
        return epsilon_of(math.sqrt(self.squares), self.delta) + math.fsum(self.randomized)

    def after(self, mechanism: Mechanism, epsilon: float) -> ReleasePlan:
        """Return what would be spent after one more fit, within the budget or not."""
        if mechanism == "gaussian":
            return replace(self, squares=self.squares + mu_of(epsilon, self.delta) ** 2)
        if mechanism != "randomized":
            raise ValueError(f'Got mechanism={mechanism!r}, but expected "gaussian" or "randomized".')
        epsilon = check_epsilon(epsilon)
        return self if epsilon in self.randomized else replace(self, randomized=(*self.randomized, epsilon))

    def allows(self, mechanism: Mechanism, epsilon: float) -> bool:
        """Say whether one more fit stays within the budget."""
        return self.after(mechanism, epsilon).spent <= self.epsilon * (1 + 1e-9)

    def charge(self, mechanism: Mechanism, epsilon: float) -> ReleasePlan:
        """Return the plan after one more fit, or raise if the budget does not allow it."""
        if not self.allows(mechanism, epsilon):
            raise BudgetExceededError(
                f"The fit would cost epsilon={epsilon:g} where {max(self.epsilon - self.spent, 0):.3g} of the study's "
                f"{self.epsilon:g} is left. Ask for an earlier fit again, which costs nothing, or for less."
            )
        return self.after(mechanism, epsilon)

    def fits_left(self, epsilon: float) -> int:
        """Count the Gaussian fits with this epsilon that the rest of the budget allows."""
        left = self.epsilon - math.fsum(self.randomized)
        if left <= 0:
            return 0
        squares = mu_of(left, self.delta) ** 2 - self.squares
        return max(int(squares / mu_of(epsilon, self.delta) ** 2 + 1e-9), 0)
