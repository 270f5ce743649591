"""A claim-frequency portfolio with two to five groups of any size."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax

from fairpremium.arrays import Array
from fairpremium.portfolios._portfolio import SimulatedPortfolio
from fairpremium.portfolios._simulation import (
    check_frequency,
    check_rows,
    draw_claims,
    draw_positions,
    level_positions,
    number_column,
)

LABELS = ("A", "B", "C", "D", "E")


@dataclass(frozen=True)
class _Factor:
    """A categorical feature: P(level given d) proportional to base * exp(tilt * association * c_d)."""

    levels: tuple[str, ...]
    base: tuple[float, ...]
    tilt: tuple[float, ...]
    effect: tuple[float, ...]  # on log lambda

    def log_probabilities(self, shift: Array) -> Array:
        """Log P(level given d), shape (n_groups, n_levels)."""
        return np.asarray(log_softmax(np.log(self.base) + np.outer(shift, self.tilt), axis=1))


@dataclass(frozen=True)
class _Gauss:
    """A numeric feature: Normal(centre + tilt * association * c_d, sd^2) given D = d."""

    centre: float
    tilt: float
    sd: float


FACTORS = {
    "region": _Factor(("rural", "suburb", "city"), (0.3, 0.4, 0.3), (-0.6, 0.0, 0.6), (0.0, 0.1, 0.3)),
    "vehicle": _Factor(("small", "family", "sport"), (0.4, 0.4, 0.2), (-0.3, 0.0, 0.3), (0.0, 0.1, 0.4)),
}
NUMBERS = {"log_mileage": _Gauss(2.5, 0.3, 0.5), "driving_score": _Gauss(0.0, -0.5, 1.0)}


@dataclass(frozen=True)
class _Truth:
    shares: tuple[float, ...]
    frequency: float
    group_effect: float
    association: float

    @property
    def group_distribution(self) -> dict[str, float]:
        return dict(zip(LABELS, self.shares, strict=False))

    @property
    def position(self) -> Array:
        """c_d, from -1 to 1 in equal steps."""
        return np.linspace(-1.0, 1.0, len(self.shares))

    def means(self, X: Any) -> Array:
        effect = self.group_effect * self.position
        mileage = number_column(X, "log_mileage") - NUMBERS["log_mileage"].centre
        score = number_column(X, "driving_score")
        common = np.log(self.frequency) + 0.4 * mileage - 0.2 * score
        for name, factor in FACTORS.items():
            common = common + np.array(factor.effect)[level_positions(X, name, factor.levels)]
        return np.asarray(np.exp(common[:, None] + effect * (1 - 0.3 * score[:, None])))

    def propensities(self, X: Any) -> Array:
        shift = self.association * self.position
        log_joint = np.log(self.shares)  # log P(D = d) + sum over features of log p(x_f given d)
        for name, gauss in NUMBERS.items():
            z = (number_column(X, name)[:, None] - gauss.centre - gauss.tilt * shift) / gauss.sd
            log_joint = log_joint - z**2 / 2
        for name, factor in FACTORS.items():
            log_joint = log_joint + factor.log_probabilities(shift).T[level_positions(X, name, factor.levels)]
        return np.asarray(softmax(log_joint, axis=1))

    def draw_features(self, d: NDArray[np.intp], rng: np.random.Generator) -> pd.DataFrame:
        shift = self.association * self.position
        columns: dict[str, NDArray[Any]] = {}
        for name, gauss in NUMBERS.items():
            columns[name] = gauss.centre + gauss.tilt * shift[d] + gauss.sd * rng.standard_normal(len(d))
        for name, factor in FACTORS.items():
            levels = np.array(factor.levels, dtype=object)
            columns[name] = levels[draw_positions(np.exp(factor.log_probabilities(shift))[d], rng)]
        return pd.DataFrame(columns)


def unbalanced_poisson(
    n: int = 100_000,
    shares: Sequence[float] = (0.7, 0.2, 0.1),
    rng: int | np.random.Generator | None = None,
    *,
    frequency: float = 0.1,
    group_effect: float = 0.5,
    association: float = 1.0,
) -> SimulatedPortfolio:
    r"""Draw a claim-frequency portfolio with two to five groups of any size and with exposure.

    Parameters
    ----------
    n : int, default 100_000
        Number of policies.
    shares : sequence of 2 to 5 floats, default (0.7, 0.2, 0.1)
        P(D), positive, with sum one. The groups are named "A", "B", "C", "D", "E".
    rng : int, Generator or None
        Seed or generator; None draws anew on each call.
    frequency : float, default 0.1
        Claims per year of a policy with average features in the middle group.
    group_effect : float, default 0.5
        How much D itself matters; with 0, Y is independent of D given X, and unaware price and h* agree.
    association : float, default 1
        How much X says about D; with 0 they are independent, and again unaware price and h* agree.

    Returns
    -------
    SimulatedPortfolio
        X with the columns `log_mileage`, `driving_score`, `region`, `vehicle`; y = claims / exposure,
        `sample_weight` = exposure in (0, 1], family "poisson".

    Notes
    -----
    With group positions c_d = -1, ..., 1 in equal steps, and given D = d independently::

        log_mileage    ~ Normal(2.5 + 0.3 a c_d, 0.5^2)
        driving_score  ~ Normal(-0.5 a c_d, 1)
        P(region = r)  proportional to (0.3, 0.4, 0.3)_r exp(a c_d (-0.6, 0, 0.6)_r), r: rural, suburb, city
        P(vehicle = v) proportional to (0.4, 0.4, 0.2)_v exp(a c_d (-0.3, 0, 0.3)_v), v: small, family, sport
        exposure       = 1 with probability 0.6, else uniform on (0, 1]

        log lambda(x, d) = log f + g c_d + 0.4 (log_mileage - 2.5) - (0.2 + 0.3 g c_d) driving_score
                           + (0, 0.1, 0.3)_region + (0, 0.1, 0.4)_vehicle
        claims           ~ Poisson(exposure * lambda(x, d)),       y = claims / exposure

    where

    - a is `association`, g is `group_effect`, f is `frequency`,
    - mu(x, d) = lambda(x, d): in each group a log-linear model in the columns of X, a Poisson GLM,
    - P(D = d given x) follows from Bayes' rule, since all densities of x given d are in closed form.

    Examples
    --------
    Two equal groups; at driving_score 0, log_mileage 2.5, a small car in the country, the rates are
    f exp(-g) and f exp(g):

    >>> import numpy as np, pandas as pd
    >>> from fairpremium.portfolios import unbalanced_poisson
    >>> p = unbalanced_poisson(n=10, shares=(0.5, 0.5), rng=0, frequency=1.0, group_effect=np.log(2))
    >>> x = pd.DataFrame({"log_mileage": [2.5], "driving_score": 0.0, "region": "rural", "vehicle": "small"})
    >>> p.best_estimate(x)
         A    B
    0  0.5  2.0
    >>> float(p.discrimination_free(x)[0])
    1.25
    """
    rows = check_rows(n)
    p = np.asarray(shares, dtype=np.float64)
    if p.ndim != 1 or not 2 <= p.size <= len(LABELS):
        raise ValueError(f"Got shares={shares}, but expected between 2 and {len(LABELS)} shares, one per group.")
    if not (p > 0).all() or not np.isclose(p.sum(), 1.0, rtol=0, atol=1e-9):
        raise ValueError(
            f"Got shares={shares}, but expected positive numbers that sum to one. Divide them by their sum."
        )
    truth = _Truth(tuple(p.tolist()), check_frequency(frequency), float(group_effect), float(association))
    if not (np.isfinite(group_effect) and np.isfinite(association)):
        raise ValueError(f"Got group_effect={group_effect} and association={association}, but expected finite numbers.")
    generator = np.random.default_rng(rng)
    d = draw_positions(np.tile(truth.shares, (rows, 1)), generator)
    X = truth.draw_features(d, generator)
    return draw_claims("unbalanced_poisson", truth, X, d, LABELS[: len(truth.shares)], generator)
