"""Risk classes for the comparison of three prices, from the rating factors that proxies act through most."""

from typing import Any

import numpy as np
import pandas as pd

from fairpremium.arrays import Array

from ..tables import Factor, read_factors

MAX_CLASSES = 8
_BANDS = 4
_FEWEST_ROWS = 50


def choose_classes(X: Any, shift: Array, weight: Array) -> pd.Series | None:
    r"""Return the risk class of each row, or None if no factor has two to eight levels or bands.

    - `X`: features, of which numbers are divided into bands.
    - `shift`, shape (n,): what proxies do to each premium, unaware minus discrimination-free price.
    - `weight`, shape (n,): volumes.

    Notes
    -----
    A factor's proxy effect is the variance of the mean shift between its levels, sum_l p_l (E[shift given l] -
    E[shift])^2. Of the factors in this order the first gives the classes, and the next one divides them if at most
    eight come out, each of at least 50 rows.
    """
    factors = [f for f in read_factors(X, None, _BANDS, weight) if 2 <= len(f.levels) <= MAX_CLASSES]
    ranked = sorted(factors, key=lambda factor: -_between(factor, shift, weight))
    if not ranked:
        return None
    first, *others = ranked
    for other in others:
        both = _cross(first, other)
        if len(both.levels) <= MAX_CLASSES and np.bincount(both.codes).min() >= _FEWEST_ROWS:
            first = both
            break
    else:
        first = _cross(first)
    return pd.Series(pd.Categorical.from_codes(first.codes, categories=first.levels))


def _between(factor: Factor, shift: Array, weight: Array) -> float:
    volume = np.bincount(factor.codes, weights=weight)
    total = np.bincount(factor.codes, weights=weight * shift)
    means = np.divide(total, volume, out=np.zeros_like(total), where=volume > 0)
    return float(volume @ (means - total.sum() / volume.sum()) ** 2 / volume.sum())


def _cross(*factors: Factor) -> Factor:
    """Return one factor whose levels are the combinations that occur, named by factor and level."""
    codes = np.zeros(len(factors[0].codes), dtype=np.int64)
    labels = [""]
    for factor in factors:
        codes = codes * len(factor.levels) + factor.codes
        labels = [
            f"{before}{', ' if before else ''}{factor.name}: {level}" for before in labels for level in factor.levels
        ]
    used, codes = np.unique(codes, return_inverse=True)
    return Factor("", codes, [labels[code] for code in used])
