"""The confidence level of intervals, apart from prices, which tables of given premiums do not need."""

from typing import Any

import numpy as np


def check_level(level: Any) -> float:
    """Return a confidence level strictly between 0 and 1."""
    if isinstance(level, bool) or not isinstance(level, int | float | np.floating) or not 0 < level < 1:
        raise ValueError(f"Got level={level!r}, but expected a number strictly between 0 and 1, such as 0.95.")
    return float(level)
