"""Rating factors: the columns of a table, each with its levels, or with bands where it holds many numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import narwhals.stable.v1 as nw
import numpy as np
import numpy.typing as npt
import pandas as pd

from fairpremium.arrays import Array

from .._audit_data import AuditData, premium_bins


class Factor(NamedTuple):
    """A column, the position of each row's level, and the levels in order."""

    name: str
    codes: npt.NDArray[Any]  # (n,)
    levels: list[str]

    def divide(self, data: AuditData) -> AuditData:
        """Divide rows by the levels; tables get the columns `factor` and `level`."""
        whole = ("factor", np.zeros(len(self.codes), dtype=np.intp), [self.name])
        return data.divided(whole, ("level", self.codes, self.levels))


def read_factors(X: Any, names: Sequence[str] | None, bands: int, weight: Array) -> list[Factor]:
    """Return the columns of X, or some of them, as factors.

    A column of text, categories or booleans has its levels, one of numbers at most `bands` values or that many bands of
    about equal volume, labelled by the smallest and the largest value in them.
    """
    columns = dict(_columns(X, len(weight)))
    chosen = list(columns) if names is None else [names] if isinstance(names, str) else list(names)
    unknown = [name for name in chosen if name not in columns]
    if unknown or not chosen:
        raise ValueError(f"Got factors={unknown or chosen}, but expected columns of X, which are {list(columns)}.")
    return [_factor(name, columns[name], bands, weight) for name in chosen]


def _columns(X: Any, n: int) -> Iterator[tuple[str, pd.Series]]:
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        table = X if isinstance(X, pd.DataFrame) else frame.to_pandas()
    else:
        values = np.asarray(X)
        if values.ndim != 2:
            raise ValueError(f"Got X of shape {values.shape}, but expected a table with a column for each factor.")
        table = pd.DataFrame(values, columns=[f"x{j}" for j in range(values.shape[1])])
    if len(table) != n:
        raise ValueError(f"Got X with {len(table)} rows, but premiums has {n}; expected the same number.")
    for name in table.columns:
        column = table[name].reset_index(drop=True)
        if column.isna().any():
            raise ValueError(
                f"Got X with {int(column.isna().sum())} missing values in column {str(name)!r}; expected none. Give "
                "missing values a level of their own, such as 'missing'."
            )
        yield str(name), column


def _factor(name: str, column: pd.Series, bands: int, weight: Array) -> Factor:
    numeric = pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)
    if not numeric:
        kept = column.cat.remove_unused_categories() if isinstance(column.dtype, pd.CategoricalDtype) else column
        labels = pd.Categorical(kept)
        return Factor(name, labels.codes, [str(level) for level in labels.categories])
    values = column.to_numpy(dtype=np.float64)
    bins = premium_bins(values, weight, bands)  # also checks the number of bands
    distinct, codes = np.unique(values, return_inverse=True)
    if len(distinct) <= bands:
        return Factor(name, codes, [f"{value:.6g}" for value in distinct])
    used, codes = np.unique(bins, return_inverse=True)
    ends = [(values[bins == b].min(), values[bins == b].max()) for b in used]
    return Factor(name, codes, [f"{low:.4g} to {high:.4g}" if high > low else f"{low:.4g}" for low, high in ends])
