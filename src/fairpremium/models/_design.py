"""From the caller's table to the numbers a model sees: one-hot levels, named columns, nothing dropped."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

import narwhals.stable.v1 as nw
import numpy as np
import pandas as pd
from sklearn.utils import check_array

from fairpremium.arrays import Array

Unseen = Literal["error", "base"]


@dataclass(frozen=True)
class Column:
    """One column of the caller's table.

    `levels` is None for a numeric column; otherwise it holds the levels with the base level first, and
    the column becomes one indicator for each further level.
    """

    name: str
    levels: tuple[str | bool | int, ...] | None = None

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features that this column becomes."""
        if self.levels is None:
            return (self.name,)
        return tuple(f"{self.name}={level}" for level in self.levels[1:])


@dataclass(frozen=True)
class Design:
    """The map from the caller's columns to features, learned once and stored with the model.

    Parameters
    ----------
    columns : tuple of Column
    named : bool
        Whether the caller gave a data frame (columns are found by name) or an array (by position).
    """

    columns: tuple[Column, ...]
    named: bool

    @classmethod
    def learn(cls, X: Any) -> Design:
        """Learn the columns and levels of a table.

        String, categorical and boolean columns get their most frequent level as base (ties: the first
        in sorted order); the other levels follow in sorted order.
        """
        return cls.learn_transform(X)[0]

    @classmethod
    def learn_transform(cls, X: Any, least_rows: int = 1) -> tuple[Design, Array]:
        """Learn a table of at least so many rows and transform it, looking once at an array."""
        frame = as_frame(X)
        if frame is None:
            matrix = as_matrix(X)
            design = cls(tuple(Column(f"x{j}") for j in range(matrix.shape[1])), named=False)
        else:
            if not len(frame):
                raise ValueError("Got X with 0 sample(s), but expected at least one row.")
            if not frame.columns:
                raise ValueError("Got X with no columns, but expected at least one feature.")
            design = cls(tuple(_learn_column(frame[name]) for name in frame.columns), named=True)
            matrix = design._from_frame(frame)
        n = len(matrix)
        if n < least_rows:
            raise ValueError(f"Got X with {n} sample, but expected at least two rows (n_samples = {n}).")
        return design, matrix

    @property
    def features(self) -> tuple[str, ...]:
        """Names of all features, in the order of the matrix that `transform` returns."""
        return tuple(name for column in self.columns for name in column.features)

    @property
    def origins(self) -> tuple[str, ...]:
        """Name of the column that each feature is from."""
        return tuple(column.name for column in self.columns for _ in column.features)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the caller's columns."""
        return tuple(column.name for column in self.columns)

    def transform(self, X: Any, *, unseen: Unseen = "error", of: str = "DiscriminationFreePricer") -> Array:
        """Turn a table into a float matrix of shape (n, features).

        Parameters
        ----------
        X : data frame or array
            The same columns as at `learn`; a data frame may hold them in any order, and others besides.
        unseen : "error" or "base"
            What to do with a level that was not seen: refuse, or treat it as the base level.
        of : str
            Name of the estimator, for messages.
        """
        frame = as_frame(X)
        if frame is None:
            matrix = as_matrix(X)
            if self.named and any(column.levels is not None for column in self.columns):
                raise ValueError(
                    "Got X as an array, but the model was fitted on a data frame with text columns; "
                    f"expected a data frame with the columns {list(self.names)}."
                )
            if matrix.shape[1] != len(self.columns):
                raise ValueError(
                    f"X has {matrix.shape[1]} features, but {of} is expecting {len(self.columns)} features as input."
                )
            return matrix
        if not self.named:
            return self.transform(frame.to_numpy(), unseen=unseen, of=of)
        absent = [name for name in self.names if name not in frame.columns]
        if absent:
            raise ValueError(f"Got X without the columns {absent}, which the model was fitted on.")
        return self._from_frame(frame, unseen)

    def _from_frame(self, frame: nw.DataFrame[Any], unseen: Unseen = "error") -> Array:
        native = frame.select(list(self.names)).to_native()
        if isinstance(native, pd.DataFrame) and all(column.levels is None for column in self.columns):
            for name in self.names:
                _check_numeric(frame[name])
            matrix = native.to_numpy(dtype=np.float64, na_value=np.nan)
            check_finite(matrix, [f"column {name!r}" for name in self.names], "X")
            return np.asarray(matrix)
        return np.concatenate([_transform_column(frame[c.name], c, unseen) for c in self.columns], axis=1)

    def name_features(self, estimator: Any) -> None:
        """Set `n_features_in_`, and `feature_names_in_` if the columns have names, as scikit-learn does."""
        estimator.n_features_in_ = len(self.columns)
        vars(estimator).pop("feature_names_in_", None)  # of an earlier fit
        if self.named:
            estimator.feature_names_in_ = np.asarray(self.names, dtype=object)

    def to_dict(self) -> dict[str, Any]:
        """Return the design as plain data."""
        return {
            "named": self.named,
            "columns": [{"name": c.name, "levels": None if c.levels is None else list(c.levels)} for c in self.columns],
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Design:
        """Read back what `to_dict` returned."""
        columns = tuple(
            Column(str(c["name"]), None if c["levels"] is None else tuple(c["levels"])) for c in data["columns"]
        )
        return cls(columns, bool(data["named"]))


def as_frame(X: Any, name: str = "X") -> nw.DataFrame[Any] | None:
    """Return a data frame of any library behind one interface, or None if X is not a data frame."""
    if hasattr(X, "collect") and not hasattr(X, "to_numpy"):
        raise TypeError(f"Got {name} as a lazy frame; call .collect() on it first.")
    if isinstance(X, pd.DataFrame) and not all(isinstance(c, str) for c in X.columns):
        if any(isinstance(c, str) for c in X.columns):
            raise TypeError(
                f"Feature names are only supported if all input features have string names, but "
                f"{name} has column names of several types. Convert them with "
                f"{name}.columns = {name}.columns.astype(str)."
            )
        return None
    is_arrow = type(X).__module__.startswith("pyarrow") and hasattr(X, "column_names")
    columns = X.columns if isinstance(X, pd.DataFrame) else X.column_names if is_arrow else ()
    duplicated = sorted(column for column, count in Counter(columns).items() if count > 1)
    if duplicated:
        raise ValueError(f"Got {name} with duplicate columns {duplicated}; expected each name once.")
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    return frame if isinstance(frame, nw.DataFrame) else None


def frame_like(X: Any, values: Array, columns: tuple[Any, ...]) -> Any:
    """Return values of shape (n, columns) as a data frame of X's library; pandas for arrays."""
    frame = as_frame(X)
    if frame is None or isinstance(X, pd.DataFrame):
        index = X.index if isinstance(X, pd.DataFrame) else None
        return pd.DataFrame(values, index=index, columns=pd.Index(columns, tupleize_cols=False))
    data = {str(column): values[:, j] for j, column in enumerate(columns)}
    return nw.from_dict(data, backend=frame.implementation).to_native()


def as_matrix(X: Any, name: str = "X") -> Array:
    """Check a two-dimensional numeric array and return it as floats, without a copy where possible."""
    if (
        isinstance(X, np.ndarray)
        and X.ndim == 2
        and (X.dtype.kind in "US" or (X.dtype.kind == "O" and any(isinstance(v, str) for v in X.flat)))
    ):
        raise ValueError(
            f"Got {name} as an array of text; pass a data frame, whose text columns are encoded, or numbers."
        )
    matrix: Array = check_array(X, dtype=[np.float64, np.float32], order=None, ensure_all_finite=False, input_name=name)
    check_finite(matrix, [f"column {j}" for j in range(matrix.shape[1])], name)
    return matrix


def check_finite(matrix: Array, names: list[str], argument: str) -> None:
    """Raise if a number is missing or infinite, saying in which column."""
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(matrix.sum(dtype=np.float64)):
            return
    for j, name in enumerate(names):
        finite = np.isfinite(matrix[:, j])
        if not finite.all():
            nan, bad = bool(np.isnan(matrix[:, j]).any()), int(np.count_nonzero(~finite))
            kind = "missing (NaN)" if nan else "infinite (inf)"
            raise ValueError(
                f"Got {argument} with {bad} {kind} values in {name}; expected finite numbers. "
                "Impute them, or make the column a text column with a level of its own for missing."
            )


def _check_numeric(series: nw.Series[Any]) -> None:
    """Raise if a column cannot stand where numbers were learned; booleans can: True is one."""
    if not (series.dtype.is_numeric() or series.dtype == nw.Boolean):
        raise ValueError(
            f"Got column {series.name!r} of X with type {series.dtype}, but the model was fitted on numbers."
        )


def _texts(series: nw.Series[Any]) -> pd.Series[Any]:
    """Return a text, categorical or boolean column for pandas, after checking that nothing is missing."""
    values = series.to_pandas()
    missing = int(values.isna().sum())
    if missing:
        raise ValueError(
            f"Got X with {missing} missing values in column {series.name!r}; "
            "expected none. Give missing values a level of their own, such as 'missing'."
        )
    if series.dtype in (nw.String, nw.Boolean):
        return values
    levels = values.cat.categories if isinstance(values.dtype, pd.CategoricalDtype) else values
    kinds = set(pd.Series(levels, dtype=object).map(type).unique())
    if not (kinds <= {str} or kinds <= {bool} or kinds <= {int}):
        raise TypeError(
            f"Got column {series.name!r} of X with values of type {sorted(k.__name__ for k in kinds)}; "
            "expected numbers, text or booleans (one kind in a column)."
        )
    return values


def _is_text(series: nw.Series[Any]) -> bool:
    return series.dtype in (nw.String, nw.Boolean, nw.Object, nw.Enum) or series.dtype == nw.Categorical


def _plain(level: Any) -> str | bool | int:
    plain: str | bool | int = level.item() if isinstance(level, np.generic) else level
    return plain


def _learn_column(series: nw.Series[Any]) -> Column:
    if series.dtype.is_numeric():
        return Column(series.name)
    if not _is_text(series):
        raise TypeError(
            f"Got column {series.name!r} of X with type {series.dtype}; expected numbers, text, categories or booleans."
        )
    counts = _texts(series).value_counts()
    return levels_column(series.name, {_plain(level): int(count) for level, count in counts.items() if count})


def levels_column(name: str, counts: dict[Any, int]) -> Column:
    """Return a column of levels from how often each occurs: the first of the most frequent is the base."""
    levels = sorted(counts)
    base = max(levels, key=lambda level: counts[level])
    return Column(name, (base, *(level for level in levels if level != base)))


def _transform_column(series: nw.Series[Any], column: Column, unseen: Unseen) -> Array:
    if column.levels is None:
        _check_numeric(series)
        matrix = np.asarray(series.cast(nw.Float64).to_numpy(), dtype=np.float64)[:, None]
        check_finite(matrix, [f"column {column.name!r}"], "X")
        return matrix
    if not _is_text(series):
        raise ValueError(
            f"Got column {column.name!r} of X with type {series.dtype}, "
            f"but the model was fitted on the levels {list(column.levels)}."
        )
    positions, present = pd.factorize(_texts(series))
    known = {level: code for code, level in enumerate(column.levels)}
    codes = np.array([known.get(_plain(level), -1) for level in present], dtype=np.intp)[positions]
    unknown = int(np.count_nonzero(codes < 0))
    if unknown and unseen == "error":
        raise ValueError(
            f"Got {unknown} rows of X with a level of column {column.name!r} that was not seen in fit; expected one "
            f'of {list(column.levels)}. unseen_levels="base" prices such rows at the base level {column.levels[0]!r}.'
        )
    return np.asarray(codes[:, None] == np.arange(1, len(column.levels)), dtype=np.float64)
