"""The array types that every package writes in its signatures, and arrays as plain data."""

import math
from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["Array", "plain_data"]

Array: TypeAlias = npt.NDArray[np.float64]


def plain_data(value: Any) -> Any:
    """Return a value as JSON can hold it, with None for what is not finite."""
    if isinstance(value, Mapping):
        return {str(key): plain_data(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain_data(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
