"""What a setting must be, for every model alike: truth values are no numbers, and text is none either."""

from __future__ import annotations

from typing import Any

import numpy as np


def is_whole(value: Any, least: int) -> bool:
    """Tell whether a value is an integer, at least so large."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= least)


def is_number(value: Any) -> bool:
    """Tell whether a value is a number."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def check_whole(model: Any, **least: int) -> None:
    """Raise if a setting of a model is not an integer, or less than it may be."""
    for name, low in least.items():
        value = getattr(model, name)
        if not is_whole(value, low):
            raise ValueError(f"Got {name}={value!r}, but expected an integer >= {low}.")


def check_not_negative(model: Any, *names: str) -> None:
    """Raise if a setting of a model is not a finite number >= 0."""
    for name in names:
        value = getattr(model, name)
        if not is_number(value) or not 0 <= value < np.inf:
            raise ValueError(f"Got {name}={value!r}, but expected a finite number >= 0.")


def check_learning_rate(model: Any) -> None:
    """Raise if the part of a tree that is added is not in (0, 1]."""
    if not is_number(model.learning_rate) or not 0 < model.learning_rate <= 1:
        raise ValueError(f"Got learning_rate={model.learning_rate!r}, but expected a number in (0, 1].")
