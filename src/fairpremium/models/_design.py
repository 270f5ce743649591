"""From the caller's table to the numbers a model sees: one-hot levels, named columns, nothing dropped."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import narwhals.stable.v1 as nw
import numpy as np
import pandas as pd
from sklearn.utils import check_array

from fairpremium.arrays import Array
from fairpremium.blocks import all_finite
from fairpremium.models._recognition import DATES_HELP, check_texts
from fairpremium.models._terms import (
    Categories,
    ColumnFacts,
    LevelsFactor,
    NumberFactor,
    Term,
    Unseen,
    Values,
    learn_term,
    whole_categories,
)
from fairpremium.models._terms_language import Label, parse_terms


@dataclass(frozen=True)
class Column:
    """One column of the caller's table.

    `levels` is None for a numeric column; otherwise it holds the levels with the base level first, and, unless terms
    say otherwise, the column becomes one indicator for each further level.
    """

    name: str
    levels: tuple[Label, ...] | None = None

    @property
    def term(self) -> Term:
        """What this column becomes by itself."""
        factor = NumberFactor(self.name) if self.levels is None else LevelsFactor(self.name, self.levels)
        return Term((factor,), self.name)

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features that this column becomes by itself."""
        return self.term.names


@dataclass(frozen=True)
class Design:
    """The map from the caller's columns to features, learned once and stored with the model.

    Parameters
    ----------
    columns : tuple of Column
    named : bool
        Whether the caller gave a data frame (columns are found by name) or an array (by position).
    terms : tuple of Term, optional
        What the columns become; by default each by itself.
    """

    columns: tuple[Column, ...]
    named: bool
    terms: tuple[Term, ...] | None = None

    @classmethod
    def learn(cls, X: Any, terms: str | None = None) -> Design:
        """Learn the columns and levels of a table.

        String, categorical and boolean columns get their most frequent level as base (ties: the first
        in sorted order); the other levels follow in sorted order. With `terms` nothing is transformed, so that
        `n_features` can be asked before there are so many.
        """
        frame = as_frame(X)
        if terms is None or frame is None:
            return cls.learn_transform(X, terms=terms)[0]
        return learn_design(terms, {name: _SeriesFacts(frame[name]) for name in frame.columns})

    @classmethod
    def learn_transform(cls, X: Any, least_rows: int = 1, terms: str | None = None) -> tuple[Design, Array]:
        """Learn a table of at least so many rows and transform it, looking once at an array.

        With `terms`, see `LinearModel`, the columns become what these say, and those of a data frame that they do not
        name are left out.
        """
        frame = as_frame(X)
        if frame is None:
            matrix = as_matrix(X)
            names = tuple(f"x{j}" for j in range(matrix.shape[1]))
            design = cls(tuple(map(Column, names)), named=False)
            if terms is not None:
                facts = {name: ArrayFacts(name, matrix[:, j]) for j, name in enumerate(names)}
                own = learn_design(terms, facts)
                learned = {column.name: column for column in own.columns}
                design = replace(own, columns=tuple(learned.get(name, Column(name)) for name in names), named=False)
                matrix = design._from_matrix(matrix, "error")
        else:
            if not len(frame):
                raise ValueError("Got X with 0 sample(s), but expected at least one row.")
            if not frame.columns:
                raise ValueError("Got X with no columns, but expected at least one feature.")
            if terms is None:
                design = cls(tuple(_learn_column(frame[name]) for name in frame.columns), named=True)
            else:
                design = learn_design(terms, {name: _SeriesFacts(frame[name]) for name in frame.columns})
            matrix = design._from_frame(frame)
        n = len(matrix)
        if n < least_rows:
            raise ValueError(f"Got X with {n} sample, but expected at least two rows (n_samples = {n}).")
        return design, matrix

    @cached_property
    def _terms(self) -> tuple[Term, ...]:
        return tuple(column.term for column in self.columns) if self.terms is None else self.terms

    @property
    def n_features(self) -> int:
        """Number of features."""
        return sum(math.prod(len(factor.names) for factor in term.factors) for term in self._terms)

    @property
    def features(self) -> tuple[str, ...]:
        """Names of all features, in the order of the matrix that `transform` returns."""
        return tuple(name for term in self._terms for name in term.names)

    @property
    def origins(self) -> tuple[str, ...]:
        """The column or term that each feature is from."""
        return tuple(term.text for term in self._terms for _ in term.names)

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
            return self._from_matrix(matrix, unseen)
        if not self.named:
            return self.transform(frame.to_numpy(), unseen=unseen, of=of)
        absent = [name for name in self.names if name not in frame.columns]
        if absent:
            raise ValueError(f"Got X without the columns {absent}, which the model was fitted on.")
        return self._from_frame(frame, unseen)

    def _from_matrix(self, matrix: Array, unseen: Unseen) -> Array:
        if self.terms is None:
            return matrix
        return self.build({column.name: matrix[:, j] for j, column in enumerate(self.columns)}, unseen)

    def _from_frame(self, frame: nw.DataFrame[Any], unseen: Unseen = "error") -> Array:
        native = frame.select(list(self.names)).to_native()
        numbers = self.terms is None and all(column.levels is None for column in self.columns)
        if isinstance(native, pd.DataFrame) and numbers:
            for name in self.names:
                _check_numeric(frame[name])
            matrix = native.to_numpy(dtype=np.float64, na_value=np.nan)
            check_finite(matrix, [f"column {name!r}" for name in self.names], "X")
            return np.asarray(matrix)
        return self.build({column.name: _read_column(frame[column.name], column) for column in self.columns}, unseen)

    def read(self, X: Any) -> dict[str, Values]:
        """Return the values of the columns, as `build` takes them."""
        frame = as_frame(X)
        if frame is None or not self.named:
            matrix = np.asarray(as_matrix(X if frame is None else frame.to_numpy()), dtype=np.float64)
            return {column.name: matrix[:, j] for j, column in enumerate(self.columns)}
        return {column.name: _read_column(frame[column.name], column) for column in self.columns}

    def build(self, values: Mapping[str, Values], unseen: Unseen = "error") -> Array:
        """Compute the features from the values of the columns: shape (n, features)."""
        return np.concatenate([term.encode(values, unseen) for term in self._terms], axis=1)

    def select(self, X: Any) -> Any:
        """Return the columns of a data frame that the design uses; anything else as it is."""
        frame = as_frame(X)
        return X if frame is None or not self.named else frame.select(list(self.names)).to_native()

    def name_features(self, estimator: Any) -> None:
        """Set `n_features_in_`, and `feature_names_in_` if the columns have names, as scikit-learn does."""
        estimator.n_features_in_ = len(self.columns)
        vars(estimator).pop("feature_names_in_", None)  # of an earlier fit
        if self.named:
            estimator.feature_names_in_ = np.asarray(self.names, dtype=object)

    def to_dict(self) -> dict[str, Any]:
        """Return the design as plain data."""
        columns = [{"name": c.name, "levels": None if c.levels is None else list(c.levels)} for c in self.columns]
        found: dict[str, Any] = {"named": self.named, "columns": columns}
        return found if self.terms is None else {**found, "terms": [term.to_dict() for term in self.terms]}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Design:
        """Read back what `to_dict` returned."""
        columns = tuple(
            Column(str(c["name"]), None if c["levels"] is None else tuple(c["levels"])) for c in data["columns"]
        )
        terms = data.get("terms")
        found = cls(columns, bool(data["named"]), None if terms is None else tuple(map(Term.from_dict, terms)))
        known = set(found.names)
        if not all(factor.column in known for term in found._terms for factor in term.factors):
            raise ValueError("a term is of a column that the design does not have")
        return found


def learn_design(terms: str, facts: Mapping[str, ColumnFacts]) -> Design:
    """Learn the design that terms describe over the columns of a table."""
    learned = tuple(learn_term(spec, facts) for spec in parse_terms(terms).over(tuple(facts)))
    as_levels = {f.column for term in learned for f in term.factors if isinstance(f, LevelsFactor)}
    used = {factor.column for term in learned for factor in term.factors}
    columns = (levels_column(n, dict(facts[n].counts())) if n in as_levels else Column(n) for n in facts if n in used)
    return Design(tuple(columns), named=True, terms=learned)


@dataclass(frozen=True)
class ArrayFacts:
    """What can be learned from the numbers of a column."""

    name: str
    values: Array
    is_number: bool = True

    def counts(self) -> Mapping[Label, int]:
        """Count whole numbers."""
        found = whole_categories(np.asarray(self.values, dtype=np.float64), self.name)
        return dict(zip(found.present, np.bincount(found.positions).tolist(), strict=True))

    def sample(self) -> Array:
        """Return all of them."""
        return np.asarray(self.values, dtype=np.float64)


@dataclass(frozen=True)
class _SeriesFacts:
    """What can be learned from a column of a data frame."""

    series: nw.Series[Any]

    @property
    def name(self) -> str:
        return self.series.name

    @property
    def is_number(self) -> bool:
        _check_kind(self.series)
        return bool(self.series.dtype.is_numeric())

    def counts(self) -> Mapping[Label, int]:
        if self.is_number:
            return ArrayFacts(self.name, self.sample()).counts()
        counts = _texts(self.series).value_counts()
        return {_plain(level): int(count) for level, count in counts.items() if count}

    def sample(self) -> Array:
        return _read_numbers(self.series)


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
    if all_finite(matrix):
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


def _check_kind(series: nw.Series[Any]) -> None:
    """Raise if a column is neither numbers nor text."""
    if series.dtype.is_numeric() or _is_text(series):
        return
    helps = ""
    if series.dtype.is_temporal():
        helps = f" {DATES_HELP}"
    raise TypeError(
        f"Got column {series.name!r} of X with type {series.dtype}; expected numbers, text, categories or booleans."
        + helps
    )


def _learn_column(series: nw.Series[Any]) -> Column:
    facts = _SeriesFacts(series)
    if facts.is_number:
        return Column(series.name)
    counts = dict(facts.counts())
    check_texts(series.name, counts)
    return levels_column(series.name, counts)


def levels_column(name: str, counts: dict[Any, int]) -> Column:
    """Return a column of levels from how often each occurs: the first of the most frequent is the base."""
    levels = sorted(counts)
    base = max(levels, key=lambda level: counts[level])
    return Column(name, (base, *(level for level in levels if level != base)))


def _read_numbers(series: nw.Series[Any]) -> Array:
    _check_numeric(series)
    values = np.asarray(series.cast(nw.Float64).to_numpy(), dtype=np.float64)
    check_finite(values[:, None], [f"column {series.name!r}"], "X")
    return values


def _read_column(series: nw.Series[Any], column: Column) -> Values:
    if column.levels is None:
        return _read_numbers(series)
    whole = isinstance(column.levels[0], int) and not isinstance(column.levels[0], bool)
    if whole and series.dtype.is_numeric():
        return whole_categories(_read_numbers(series), column.name)
    if not _is_text(series):
        raise ValueError(
            f"Got column {column.name!r} of X with type {series.dtype}, "
            f"but the model was fitted on the levels {list(column.levels)}."
        )
    positions, present = pd.factorize(_texts(series))
    return Categories([_plain(level) for level in present], np.asarray(positions, dtype=np.intp))
