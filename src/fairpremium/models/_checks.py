"""Checks of what a caller gives, each made once at the entry: settings of a model, and columns of a portfolio."""

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.utils import column_or_1d

from fairpremium.arrays import Array
from fairpremium.errors import ExposureWarning
from fairpremium.families import ZERO_OR_ONE, Family, Poisson

_MOST_CLAIMS = 50  # whole numbers above are amounts, not counts


def is_whole(value: Any, least: int) -> bool:
    """Tell whether a value is an integer, at least so large; truth values are no numbers."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= least)


def is_number(value: Any) -> bool:
    """Tell whether a value is a number; truth values are none."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def check_setting(model: Any, name: str, fits: bool, expected: str) -> None:
    """Raise if a setting of a model does not fit what is expected."""
    if not fits:
        raise ValueError(f"Got {name}={getattr(model, name)!r}, but expected {expected}.")


def check_whole(model: Any, **least: int) -> None:
    """Raise if a setting of a model is not an integer, or less than it may be."""
    for name, low in least.items():
        check_setting(model, name, is_whole(getattr(model, name), low), f"an integer >= {low}")


def check_not_negative(model: Any, *names: str) -> None:
    """Raise if a setting of a model is not a finite number >= 0."""
    for name in names:
        value = getattr(model, name)
        check_setting(model, name, is_number(value) and 0 <= value < np.inf, "a finite number >= 0")


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


def check_one_volume(sample_weight: Any, exposure: Any) -> None:
    """Raise if there are two volumes."""
    if sample_weight is not None and exposure is not None:
        raise ValueError(
            "Got both exposure and sample_weight, but expected one of them: exposure if y is a total over it, "
            "sample_weight if y is already per unit of volume."
        )


def check_weight(sample_weight: Any, n: int, *, exposure: Any = None, of: str = "X") -> Array | None:
    """Return the volumes of n rows, which are weights >= 0 or exposures > 0, or None for ones."""
    check_one_volume(sample_weight, exposure)
    if exposure is not None:
        return _check_exposure(_numbers(exposure, "exposure", n, of))
    if sample_weight is None:
        return None
    weight = _numbers(sample_weight, "sample_weight", n, of)
    bad = int(np.count_nonzero(~np.isfinite(weight)))
    if bad:
        raise ValueError(f"Got sample_weight with {bad} values that are NaN or infinite; expected finite numbers.")
    negative = int(np.count_nonzero(weight < 0))
    if negative:
        raise ValueError(
            f"Got sample_weight with {negative} negative values; expected volumes >= 0. The signs that undo the noise "
            "of the reports come from the channel."
        )
    if not weight.any():
        raise ValueError("Got sample_weight with every weight zero; expected some volume.")
    return weight


def check_volume(
    y: Any, n: int, sample_weight: Any, exposure: Any, family: Family | None = None, *, of: str = "X"
) -> tuple[Array, Array | None]:
    """Return n outcomes per unit of volume, and the volumes; with an exposure, y is a total over it."""
    outcome, volume = check_outcome(y, n, of=of), check_weight(sample_weight, n, exposure=exposure, of=of)
    if exposure is not None and volume is not None:
        if family is not None and family.outcome == ZERO_OR_ONE:
            raise ValueError(
                f"Got exposure with the {family.name} family, whose outcome is 0 or 1 and no total; expected a family "
                "of totals. Use poisson for counts over an exposure."
            )
        outcome = np.asarray(outcome / volume)
    if family is not None:
        family.check_outcome(outcome)
    return outcome, volume


def warn_if_counts(y: Array, weight: Array | None, family: Family | None = None, *, stacklevel: int = 3) -> None:
    """Warn if outcomes look like claim counts that came with their exposure as weight.

    Counts per unit of exposure are not whole where exposures differ. Whole numbers are counts in a family of counts; in
    another one, or without one, they are if they go from 0 to a few and the weights do not count rows.
    """
    if weight is None or not len(y) or not np.ptp(weight) > 0:
        return
    low, high = y.min(), y.max()
    if isinstance(family, Poisson):
        whole = low >= 0 and high >= 1
    else:
        whole = low == 0 and 1 <= high <= _MOST_CLAIMS and bool((weight % 1).any())
        whole = whole and (family is None or family.outcome != ZERO_OR_ONE)
    if whole and not (y % 1).any():
        warnings.warn(
            "Got y with counts (whole numbers from 0) and sample_weight that varies, but expected counts per unit of "
            "volume. If they are totals over an exposure, pass it as exposure (--exposure) and not as sample_weight "
            "(--weight); premiums are wrong otherwise. Weights that count equal rows are right.",
            ExposureWarning,
            stacklevel=stacklevel,
        )


def _check_exposure(volume: Array) -> Array:
    bad = np.flatnonzero(~(np.isfinite(volume) & (volume > 0)))
    if len(bad):
        raise ValueError(exposure_message(len(bad), len(volume), int(bad[0]), volume[bad[0]]))
    return volume


def exposure_message(bad: int, n: int, row: int, value: Any) -> str:
    """Say that exposures are wrong, and where the first of them is."""
    return (
        f"Got exposure with {bad} of {n} values that are not positive and finite, the first of them {value:g} in row "
        f"{row} (counted from 0); expected an exposure above zero for each row. Leave rows without exposure out."
    )


def check_cluster(cluster: Any, n: int, *, of: str = "X") -> npt.NDArray[np.integer[Any]] | None:
    """Return codes of the persons, or None if every row is a person of its own."""
    if cluster is None:
        return None
    codes, _ = pd.factorize(np.asarray(cluster))
    if len(codes) != n:
        raise ValueError(f"Got cluster with {len(codes)} rows, but {of} has {n}; expected the same number.")
    if (codes < 0).any():
        raise ValueError(f"Got cluster with {int(np.count_nonzero(codes < 0))} missing values; expected none.")
    return np.asarray(codes)


def mean_predictor(mean: Any, family: Family) -> float:
    """Return the link of a mean outcome, or refuse a mean that no price of the family can have."""
    if not family.mean.contains(np.asarray(mean)):
        raise ValueError(
            f"Got y with the mean {mean:g}, but the {family.name} family needs a mean {family.mean}; "
            "are all outcomes zero, or all one?"
        )
    return float(family.link.predictor(np.asarray(mean)))


def _numbers(values: Any, name: str, n: int, of: str) -> Array:
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
