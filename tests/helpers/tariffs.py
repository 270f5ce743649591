"""A portfolio with awkward levels, and pricers with known coefficients."""

from __future__ import annotations

import numpy as np
import pandas as pd

from fairpremium import DiscriminationFreePricer, LinearModel
from fairpremium.families import get_family
from fairpremium.models import Design
from fairpremium.pricing import LinearPrices

GROUPS = ("F", "M")


def portfolio(n: int = 3000, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 90, n),
            "power": rng.gamma(9, 10, n),
            "region": rng.choice(["city", "rural", "it's", 'a "b"', "=1+1"], n, p=[0.4, 0.3, 0.1, 0.1, 0.1]),
            "smoker": rng.random(n) < 0.3,
        }
    )


def pricer_with(
    X: pd.DataFrame, own: float = 0.0, family: str = "poisson", **settings: object
) -> DiscriminationFreePricer:
    """A pricer with known coefficients; `own` is how far the slopes of the groups differ."""
    design = Design.learn(X)
    slopes = {"age": -0.01, "power": 0.004, "smoker=True": 0.4}
    steps = [slopes.get(name, 0.1 * (j - 2)) for j, name in enumerate(design.features)]
    slope = np.array([-2.0, *steps])[:, None] * np.ones(2)
    slope[0, 1] += 0.3
    slope[1:, 1] += own * slope[1:, 1]
    size = slope.size + 2
    root = np.random.default_rng(1).normal(size=(size, 3)) * 0.01
    prices = LinearPrices(
        get_family(family), design, GROUPS, slope, slope.mean(axis=1), np.array([0.45, 0.55]), root @ root.T
    )
    return DiscriminationFreePricer.from_prices(
        prices,
        LinearModel(),
        channel=None,
        correction="inverse",
        pooling=0.0,
        group_distribution=np.array([0.45, 0.55]),
        candidates=pd.DataFrame(),
        n_rows=len(X),
        n_missing_reports=0,
        **settings,
    )
