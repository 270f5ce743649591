"""Candidates: tariffs with features dropped or coarsened, between the unaware and the discrimination-free price."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from fairpremium.arrays import Array

OTHER = "other"
_BANDS, _LEVELS = 4, 3  # of a coarsened column by default: bands of numbers, levels kept beside "other"
_FEW = 8  # numbers with so many values, and texts with one more than the levels kept, are coarse already

Coarse = tuple[float, ...] | tuple[str, ...]  # limits of bands of a number, or the levels of a text that stay


@dataclass(frozen=True)
class FeatureSet:
    """Which features a tariff uses, and how finely: enough to make its features from a table again."""

    drop: tuple[str, ...] = ()
    coarsen: tuple[tuple[str, Coarse], ...] = ()

    def apply(self, X: pd.DataFrame) -> pd.DataFrame:
        """Return the features of the tariff."""
        changed = X.drop(columns=list(self.drop))
        for name, how in self.coarsen:
            changed[name] = _coarse(X[name], how)
        return changed

    @property
    def words(self) -> str:
        """What differs from the features of the pricer."""
        parts = []
        if self.drop:
            parts.append(f"without {', '.join(self.drop)}")
        for name, how in self.coarsen:
            bands = isinstance(how[0], float)
            parts.append(f"{name} in {len(how) + 1} {'bands' if bands else 'levels'}")
        return ", ".join(parts) or "all features"


@dataclass(frozen=True)
class Candidate:
    """A tariff to be tried: its features, and where it lies between the unaware (0) and the discrimination-free (1)."""

    features: FeatureSet = field(default_factory=FeatureSet)
    mixture: float = 0.0

    @property
    def name(self) -> str:
        """The candidate in words."""
        ends = {0.0: "unaware", 1.0: "discrimination-free"}
        return f"{self.features.words}; {ends.get(self.mixture, f'{self.mixture:.0%} discrimination-free')}"

    def mix(self, unaware: Array, free: Array) -> Array:
        """Return the price between both ends."""
        return np.asarray((1 - self.mixture) * unaware + self.mixture * free)


def _coarse(column: pd.Series, how: Coarse) -> pd.Series:
    """Return a column of texts: the band of each number, or the level, or "other"."""
    if not isinstance(how[0], float):
        texts = column.astype(str)
        return texts.where(texts.isin([str(level) for level in how]), OTHER)
    limits = [f"{limit:g}" for limit in how]
    labels = [f"below {limits[0]}", *(f"{a} to {b}" for a, b in pairwise(limits))]
    labels.append(f"from {limits[-1]}")
    return pd.Series(np.array(labels)[np.searchsorted(how, column, side="right")], index=column.index)


def feature_sets(X: pd.DataFrame, drop: Any, coarsen: Any) -> list[FeatureSet]:
    """Return what to try: all features first, then what is dropped, then what is coarsened."""
    found = [FeatureSet()]
    found += [FeatureSet(drop=names) for names in _drops(X, drop)]
    found += [FeatureSet(coarsen=((name, how),)) for name, how in _coarsenings(X, coarsen)]
    return list(dict.fromkeys(found))


def _drops(X: pd.DataFrame, drop: Any) -> list[tuple[str, ...]]:
    if drop is None:
        return []
    if isinstance(drop, str) and drop == "each":
        return [(name,) for name in X.columns] if X.shape[1] > 1 else []
    if isinstance(drop, str) or not isinstance(drop, Sequence):
        raise ValueError(f'Got drop={drop!r}, but expected "each", None, or a list of columns or of lists of columns.')
    found = [(each,) if isinstance(each, str) else tuple(each) for each in drop]
    for names in found:
        _require(X, names, "drop")
        if len(set(names)) == X.shape[1]:
            raise ValueError(f"Got drop with all columns {list(names)}, but expected some to be left to price with.")
    return found


def _coarsenings(X: pd.DataFrame, coarsen: Any) -> list[tuple[str, Coarse]]:
    if coarsen is None:
        return []
    if isinstance(coarsen, str) and coarsen == "each":
        wishes: list[tuple[str, Any]] = [(name, None) for name in X.columns if _is_fine(X[name])]
    elif isinstance(coarsen, Mapping):
        _require(X, coarsen, "coarsen")
        wishes = [(name, how) for name, hows in coarsen.items() for how in (hows if _several(hows) else [hows])]
    else:
        raise ValueError(
            f'Got coarsen={coarsen!r}, but expected "each", None, or a dict such as {{"age": [30, 50], "region": 3}}.'
        )
    return [(name, how) for name, wish in wishes if (how := _limits(X[name], wish, name))]


def _several(hows: Any) -> bool:
    """Tell whether a wish is a list of wishes, such as [3, [30, 50]]: one that holds a list."""
    return isinstance(hows, list) and any(isinstance(how, list | tuple) for how in hows)


def _require(X: pd.DataFrame, names: Any, argument: str) -> None:
    unknown = [name for name in names if name not in X.columns]
    if unknown:
        raise ValueError(f"Got {argument} with {unknown}, but expected columns of X, which are {list(X.columns)}.")


def is_number(column: Any) -> bool:
    """Tell numbers from levels."""
    return bool(pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column))


def _is_fine(column: pd.Series) -> bool:
    return int(column.nunique()) > (_FEW if is_number(column) else _LEVELS + 1)


def _limits(column: pd.Series, wish: Any, name: str) -> Coarse:
    """Turn a number of bands or levels into limits or levels; they depend on the features alone."""
    number = is_number(column)
    if isinstance(wish, list | tuple):
        texts = [limit for limit in wish if isinstance(limit, str)] if number else []
        if texts:
            raise ValueError(f"Got coarsen with {name}: {texts}, but expected numbers, the limits of its bands.")
        if number and list(wish) != sorted(set(wish)):
            raise ValueError(f"Got coarsen with {name}: {list(wish)}, but expected limits that increase.")
        return tuple(float(limit) for limit in wish) if number else tuple(str(level) for level in wish)
    if wish is not None and (isinstance(wish, bool) or not isinstance(wish, int) or wish < 2):
        raise ValueError(f"Got coarsen with {name}: {wish!r}, but expected limits, or a number of bands from 2 on.")
    if number:
        bands = _BANDS if wish is None else wish
        inner = np.unique(np.quantile(column, np.arange(1, bands) / bands, method="higher"))
        return tuple(float(limit) for limit in inner if limit > column.min())
    levels = _LEVELS if wish is None else wish - 1
    return tuple(str(level) for level in column.value_counts().index[:levels])
