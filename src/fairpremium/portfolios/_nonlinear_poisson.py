"""A claim-frequency portfolio that no linear predictor fits: bends, thresholds and interactions, three groups."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import softmax

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

GROUPS = ("A", "B", "C")
REGIONS = ("rural", "suburb", "city")


@dataclass(frozen=True)
class _Truth:
    frequency: float
    group_effect: float

    @property
    def group_distribution(self) -> dict[str, float]:
        """P(D) by Gauss rules for x: exact to many digits, since P(D given x) is smooth in each feature."""
        age, age_weight = np.polynomial.legendre.leggauss(60)
        z, z_weight = np.polynomial.hermite_e.hermegauss(40)
        power = np.arange(4.0, 14.0)
        a, b, c, d = np.meshgrid(49 + 31 * age, power, np.exp(np.log(10) + 0.5 * z), np.arange(3), indexing="ij")
        weights = age_weight / 2, np.full(10, 0.1), z_weight / z_weight.sum(), np.full(3, 1 / 3)
        region = np.array(REGIONS, dtype=object)[d.ravel()]
        X = pd.DataFrame({"age": a.ravel(), "power": b.ravel(), "mileage": c.ravel(), "region": region})
        P = np.einsum("a,b,c,d->abcd", *weights).ravel() @ self.propensities(X)
        return dict(zip(GROUPS, P.tolist(), strict=True))

    def means(self, X: Any) -> Array:
        age, power, mileage, city = _features(X)
        base = (
            np.log(self.frequency)
            + 0.9 * np.exp(-(age - 18) / 8)
            + 0.5 * np.maximum(age - 65, 0) / 15
            + 0.35 * np.log(mileage / 10)
            + 0.12 * (power - 7) * (age < 30)
            + 0.3 * city * (mileage < 8)
        )
        g = self.group_effect
        effects = [0.0 * age, g * (0.4 + 0.4 * (age < 40)), g * (0.5 * np.cos(np.pi * (power - 4) / 6) - 0.2)]
        return np.asarray(np.exp(base[:, None] + np.column_stack(effects)))

    def propensities(self, X: Any) -> Array:
        age, power, mileage, city = _features(X)
        logits = [
            0.0 * age,
            -0.9 + 0.8 * city + 0.7 * np.sin(age / 8),
            -2.2 + 1.5 * (power > 9) + 0.04 * (mileage - 10),
        ]
        return np.asarray(softmax(np.column_stack(logits), axis=1))


def nonlinear_poisson(
    n: int = 100_000,
    rng: int | np.random.Generator | None = None,
    *,
    frequency: float = 0.15,
    group_effect: float = 1.0,
) -> SimulatedPortfolio:
    """Draw a claim-frequency portfolio with bends, thresholds and interactions, three unequal groups and exposure.

    Parameters
    ----------
    n : int, default 100_000
        Number of policies.
    rng : int, Generator or None
        Seed or generator; None draws anew on each call.
    frequency : float, default 0.15
        Claims per year of group A at the base of all effects.
    group_effect : float, default 1
        How much D itself matters; with 0, Y is independent of D given X.

    Returns
    -------
    SimulatedPortfolio
        X with the columns `age`, `power`, `mileage` (thousand km), `region` (text); y = claims / exposure,
        `sample_weight` = exposure in (0, 1], family "poisson". The shares of A, B, C are about .54, .31, .14.

    Notes
    -----
    With f = `frequency` and g = `group_effect`::

        log lambda(x, A) = log f + 0.9 exp(-(age - 18) / 8) + 0.5 max(age - 65, 0) / 15 + 0.35 log(mileage / 10)
                           + 0.12 (power - 7) 1{age < 30} + 0.3 1{city and mileage < 8}
        log lambda(x, B) = log lambda(x, A) + g (0.4 + 0.4 1{age < 40})
        log lambda(x, C) = log lambda(x, A) + g (0.5 cos(pi (power - 4) / 6) - 0.2)

        P(D given x) proportional to exp(0, -0.9 + 0.8 1{city} + 0.7 sin(age / 8),
                                         -2.2 + 1.5 1{power > 9} + 0.04 (mileage - 10))

    Examples
    --------
    >>> import pandas as pd
    >>> from fairpremium.portfolios import nonlinear_poisson
    >>> p = nonlinear_poisson(n=10, rng=0, frequency=1.0)
    >>> x = pd.DataFrame({"age": [50.0], "power": 4.0, "mileage": 10.0, "region": "rural"})
    >>> p.best_estimate(x).round(3)
           A      B      C
    0  1.017  1.517  1.372
    """
    rows = check_rows(n)
    frequency = check_frequency(frequency)
    if not np.isfinite(group_effect):
        raise ValueError(f"Got group_effect={group_effect}, but expected a finite number.")
    generator = np.random.default_rng(rng)
    truth = _Truth(frequency, float(group_effect))
    X = pd.DataFrame(
        {
            "age": generator.uniform(18, 80, rows),
            "power": generator.integers(4, 14, rows).astype(float),
            "mileage": np.exp(generator.normal(np.log(10), 0.5, rows)),
            "region": np.array(REGIONS, dtype=object)[generator.integers(0, len(REGIONS), rows)],
        }
    )
    d = draw_positions(truth.propensities(X), generator)
    return draw_claims("nonlinear_poisson", truth, X, d, GROUPS, generator)


def _features(X: Any) -> tuple[Array, ...]:
    city = level_positions(X, "region", REGIONS) == REGIONS.index("city")
    return (*(number_column(X, name) for name in ("age", "power", "mileage")), city.astype(np.float64))
