"""The array types that every package writes in its signatures."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["Array"]

Array: TypeAlias = npt.NDArray[np.float64]
