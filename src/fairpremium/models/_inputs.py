"""Checks of outcomes and volumes, once, at the boundary."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import column_or_1d

from fairpremium.arrays import Array
from fairpremium.families import Family


def check_outcome(y: Any, n: int, family: Family | None = None, *, of: str = "X") -> Array:
    """Return the outcome as finite floats of length n within the family's domain."""
    if y is None:
        raise ValueError("This estimator requires y to be passed, but the target y is None.")
    outcome = _numbers(y, "y", n, of)
    bad = int(np.count_nonzero(~np.isfinite(outcome)))
    if bad:
        raise ValueError(f"Got y with {bad} of {n} values that are NaN or inf (infinite); expected finite numbers.")
    if family is not None:
        family.check_outcome(outcome)
    return outcome


def check_weight(sample_weight: Any, n: int, *, of: str = "X") -> Array | None:
    """Return the weights as finite floats >= 0 of length n, or None for ones."""
    if sample_weight is None:
        return None
    weight = _numbers(sample_weight, "sample_weight", n, of)
    if not np.isfinite(weight).all():
        bad = int(np.count_nonzero(~np.isfinite(weight)))
        raise ValueError(f"Got sample_weight with {bad} values that are NaN or infinite; expected finite numbers.")
    if (weight < 0).any():
        bad = int(np.count_nonzero(weight < 0))
        raise ValueError(
            f"Got sample_weight with {bad} negative values; expected volumes >= 0. The signs that undo the noise "
            "of the reports come from the channel."
        )
    if not weight.any():
        raise ValueError("Got sample_weight with every weight zero; expected some volume.")
    return weight


def _numbers(values: Any, name: str, n: int, of: str = "X") -> Array:
    if hasattr(values, "to_numpy"):
        values = values.to_numpy()
    try:
        column = column_or_1d(np.asarray(values), warn=True, input_name=name)
        numbers = np.asarray(column, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"Got {name} that is not one column of numbers: {error}") from error
    if len(numbers) != n:
        raise ValueError(f"Got {name} with {len(numbers)} rows, but {of} has {n}; expected the same number.")
    return numbers
