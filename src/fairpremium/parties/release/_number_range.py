"""Numbers that everything can be computed from: zero, and magnitudes from 1e-50 to 1e50.

A fit multiplies an outcome with a volume and with a feature, divides it by a price, and squares the result. The squares
of such products of three numbers within this range are within 1e-300 to 1e300, where floats have all their digits. A
square that underflows would be a row that seems to move nothing, whose report no noise would hide. Every float of 32
bits is within the range.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

SMALLEST, LARGEST = 1e-50, 1e50
NUMBER_RANGE = "zero, or of a magnitude from 1e-50 to 1e50"


def find_outside_range(columns: Mapping[str, Any]) -> str | None:
    """Return the name of the first column with a number that is not within the range; None is no column."""
    return next((name for name, values in columns.items() if values is not None and _outside(values).any()), None)


def check_number_range(columns: Mapping[str, Any]) -> None:
    """Raise if a column has a number that is not within the range."""
    name = find_outside_range(columns)
    if name is not None:
        bad = int(np.count_nonzero(_outside(columns[name])))
        raise ValueError(
            f"Got {name} with {bad} numbers outside the range that fits compute with, but expected each to be "
            f"{NUMBER_RANGE}. Write smaller ones as zero, or choose another unit."
        )


def _outside(values: Any) -> npt.NDArray[np.bool_]:
    size = np.abs(np.asarray(values, dtype=np.float64))
    return np.asarray((size > LARGEST) | ((size > 0) & (size < SMALLEST)))
