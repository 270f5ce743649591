"""What simulated portfolios of claim frequencies share: exposure, counts, and the check of the frequency."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from fairpremium.portfolios._portfolio import SimulatedPortfolio, Truth

FULL_YEAR = 0.6  # share of policies with exposure 1


def check_frequency(frequency: float) -> float:
    """Return the frequency, refusing what is not positive and finite."""
    if not (np.isfinite(frequency) and frequency > 0):
        raise ValueError(f"Got frequency={frequency}, but expected a positive finite number of claims per year.")
    return float(frequency)


def draw_claims(
    name: str,
    truth: Truth,
    X: pd.DataFrame,
    group: NDArray[np.intp],
    sensitive: NDArray[np.object_],
    groups: tuple[str, ...],
    rng: np.random.Generator,
) -> SimulatedPortfolio:
    """Draw exposures and Poisson counts of policies whose features and groups (positions and labels) are drawn."""
    n = len(X)
    exposure = np.where(rng.random(n) < FULL_YEAR, 1.0, 1.0 - rng.random(n))
    claims = rng.poisson(exposure * truth.means(X)[np.arange(n), group])
    return SimulatedPortfolio(
        name=name,
        X=X,
        y=claims / exposure,
        sensitive=sensitive,
        groups=groups,
        family="poisson",
        sample_weight=exposure,
        truth=truth,
    )
