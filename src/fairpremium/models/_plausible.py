"""The range that prices cannot plausibly leave, whatever the model class."""

from __future__ import annotations

import math

from fairpremium.arrays import Array
from fairpremium.families import Family


def plausible_bounds(family: Family, y: Array, center: float, *starts: Array) -> tuple[float, float]:
    """Return the range that linear predictors of such outcomes cannot plausibly leave.

    Means lie between the smallest and the largest outcome. Estimates of them may lie outside by the width of that
    range (identity), by a factor of ten above and e^20 below the mean (log), by 20 on the scale of the logit; and as
    far as what prices build on does.

    Parameters
    ----------
    family : Family
    y : array of shape (n,)
        Outcomes.
    center : float
        Link of the mean outcome.
    *starts : arrays
        Linear predictors that prices build on.
    """
    low, high = float(y.min()), float(y.max())
    if family.link.name == "identity":
        width = high - low or 1.0
        low, high = low - width, high + width
    elif family.link.name == "log":
        low, high = center - 20.0, math.log(high) + math.log(10.0)
    else:
        low, high = center - 20.0, center + 20.0
    for start in starts:
        if start.size:
            low, high = min(low, float(start.min())), max(high, float(start.max()))
    return low, high
