"""Checks of the caller's columns, once, at the boundary."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairpremium.models._inputs import check_outcome, check_weight

__all__ = ["check_cluster", "check_level", "check_outcome", "check_weight"]


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


def check_counts(counts: npt.NDArray[Any], labels: tuple[Any, ...], groups: tuple[Any, ...]) -> None:
    """Raise if nobody reported, or nobody a group that reports name."""
    if not counts.any():
        raise ValueError("Got sensitive with no report at all (every value is missing); expected some.")
    if labels == groups and (counts == 0).any():
        absent = [group for group, count in zip(groups, counts, strict=True) if count == 0]
        raise ValueError(
            f"Got sensitive without a single report of the group(s) {absent}; expected reports of each of "
            f"{list(groups)}. Leave a group out of the channel only if nobody could have reported it."
        )


def check_level(level: Any) -> float:
    """Return a confidence level strictly between 0 and 1."""
    if isinstance(level, bool) or not isinstance(level, int | float | np.floating) or not 0 < level < 1:
        raise ValueError(f"Got level={level!r}, but expected a number strictly between 0 and 1, such as 0.95.")
    return float(level)
