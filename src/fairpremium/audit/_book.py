"""The audited rows: prices and losses with their reports, divided into classes, and tables in the caller's type."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import narwhals.stable.v1 as nw
import numpy as np
import numpy.typing as npt
import pandas as pd

from fairpremium.arrays import Array
from fairpremium.audit._estimate import Estimate, fieller
from fairpremium.audit._sample import Sample, describe_lack
from fairpremium.models import check_outcome
from fairpremium.pricing import check_level

Rows = list[dict[str, Any]]
Limits = tuple[Array, Array]


@dataclass(frozen=True)
class Book:
    """Columns of numbers with their reports.

    Parameters
    ----------
    columns : dict of str to array of shape (n,) or (n, K)
    sample : Sample
    level : float
    codes, classes : array of shape (n,) and list, optional
        The class of each row.
    source : object
        Whose type tables come back in.
    """

    columns: dict[str, Array]
    sample: Sample
    level: float
    source: Any
    codes: npt.NDArray[Any] | None = None
    classes: tuple[Any, ...] = ()

    @classmethod
    def read(
        cls,
        columns: dict[str, Any],
        *,
        sensitive: Any,
        channel: Any,
        sample_weight: Any,
        cluster: Any,
        by: Any,
        level: float,
        tables: Sequence[str] = (),
    ) -> Book:
        """Check what the caller gave; the first column says how many rows there are, `tables` may have K columns."""
        (first, source), *_ = columns.items()
        n = n_rows(source, first)
        checked = {name: check_numbers(values, name, n, first) for name, values in columns.items()}
        for name, values in checked.items():
            if values.ndim != 1 and name not in tables:
                raise ValueError(f"Got {name} of shape {values.shape}, but expected one column: a number per row.")
        sample = Sample.read(n, sensitive, channel, sample_weight, cluster, first)
        codes, classes = (None, ()) if by is None else class_codes(by, n, first)
        return cls(checked, sample, check_level(level), source, codes, tuple(classes))

    @property
    def groups(self) -> tuple[Any, ...]:
        """The groups."""
        return self.sample.groups

    def __getitem__(self, name: str) -> Array:
        return self.columns[name]

    def with_columns(self, **columns: Array) -> Book:
        """Return the book with further columns."""
        return replace(self, columns={**self.columns, **columns})

    def take(self, rows: Any) -> Book:
        """Return some of the rows, of one class."""
        columns = {name: values[rows] for name, values in self.columns.items()}
        return Book(columns, self.sample.take(rows), self.level, self.source)

    def parts(self) -> Iterable[tuple[Any, Book]]:
        """Return every class with its rows."""
        if self.codes is None:
            return [(None, self)]
        return ((name, self.take(np.flatnonzero(self.codes == k))) for k, name in enumerate(self.classes))

    def table(self, make: Callable[[Book], Rows]) -> Any:
        """Make the rows of every class and return them as a data frame of the caller's library."""
        rows = []
        for name, part in self.parts():
            head = {} if self.codes is None else {"risk_class": name}
            rows += [{**head, **row} for row in make(part)]
        table = pd.DataFrame(rows)
        for name in ("group", "against"):
            if name in table:  # pandas would turn None into NaN, and whole numbers beside it into floats
                table[name] = pd.Series([row[name] for row in rows], dtype=object)
        return give_back(self.source, table)

    def totals(self, names: Sequence[str], groups: Sequence[int]) -> dict[str, Estimate]:
        """Sum columns over groups; the volume is among them under the name "volume".

        A column of shape (n, K) has a value for each group, and counts for its own.
        """
        columns: list[Array] = []
        place: dict[str, int] = {}
        for name in names:
            place[name] = len(columns)
            values = self.columns[name]
            columns += [values] if values.ndim == 1 else list(values.T)
        wanted = []
        for name in names:
            by_group = self.columns[name].ndim == 2
            wanted += [(k, place[name] + (k if by_group else 0)) for k in groups]
        wanted += [(k, -1) for k in groups]
        found = self.sample.totals(columns, wanted)
        K = len(groups)
        return {name: found[i * K : (i + 1) * K] for i, name in enumerate([*names, "volume"])}


def estimate_rows(labels: Sequence[dict[str, Any]], effective: Array, numbers: dict[str, Array]) -> Rows:
    """Put numbers behind labels, and a sentence instead of numbers where the reports are too few."""
    rows = []
    for i, label in enumerate(labels):
        note = describe_lack(effective[i])
        values = {name: float("nan") if note else float(column[i]) for name, column in numbers.items()}
        rows.append({**label, **values, "effective_reports": float(effective[i]), "note": note})
    return rows


def mean_columns(name: str, total: Estimate, volume: Estimate, level: float) -> dict[str, Array]:
    """Return a mean with Fieller's limits as the columns name, name_low, name_high."""
    low, high = fieller(total, volume, level)
    return {name: (total / volume).value, f"{name}_low": low, f"{name}_high": high}


def with_limits(name: str, estimate: Estimate, limits: Limits) -> dict[str, Array]:
    """Return an estimate with limits as the columns name, name_low, name_high."""
    return {name: estimate.value, f"{name}_low": limits[0], f"{name}_high": limits[1]}


def group_labels(groups: Sequence[Any]) -> Rows:
    """Return one label per group."""
    return [{"group": group} for group in groups]


def volume_share(volume: Estimate, reported: Estimate) -> Array:
    """Return the groups' shares of the volume that reported."""
    return (volume / reported).value


def n_rows(values: Any, name: str) -> int:
    """Return the number of rows of a column or table."""
    shape = getattr(values, "shape", None)
    if shape is not None and len(shape):
        return int(shape[0])
    try:
        return len(values)
    except TypeError:
        raise TypeError(f"Got {name} of type {type(values).__name__}, but expected a column of numbers.") from None


def check_numbers(values: Any, name: str, n: int, of: str) -> Array:
    """Return finite floats of shape (n,), or (n, K) for a table."""
    shape = getattr(values, "shape", ())
    if len(shape) == 2:
        table = np.asarray(values.to_numpy() if hasattr(values, "to_numpy") else values, dtype=np.float64)
        if len(table) != n:
            raise ValueError(f"Got {name} with {len(table)} rows, but {of} has {n}; expected the same number.")
        if not np.isfinite(table).all():
            raise ValueError(f"Got {name} with values that are NaN or infinite; expected finite numbers.")
        return table
    try:
        return check_outcome(values, n, of=of)
    except ValueError as error:
        raise ValueError(str(error).replace("Got y ", f"Got {name} ", 1)) from None


def check_table(book: Book, name: str) -> None:
    """Raise if a table does not have one column per group."""
    shape, K = book[name].shape, len(book.groups)
    if shape[1:] != (K,):
        raise ValueError(
            f"Got {name} of shape {shape}, but expected one column for each of the groups {list(book.groups)}."
        )


def class_codes(by: Any, n: int, of: str = "X") -> tuple[npt.NDArray[Any], list[Any]]:
    """Return the position of each row's class, and the classes in order: of their categories, or of first rows."""
    if hasattr(by, "to_pandas"):
        by = by.to_pandas()
    labels = pd.Series(list(by) if not hasattr(by, "dtype") else by)
    if len(labels) != n:
        raise ValueError(f"Got by with {len(labels)} rows, but {of} has {n}; expected the same number.")
    if labels.isna().any():
        raise ValueError(f"Got by with {int(labels.isna().sum())} missing values; expected a class for every row.")
    if isinstance(labels.dtype, pd.CategoricalDtype):
        labels = labels.cat.remove_unused_categories()
        return labels.cat.codes.to_numpy(), list(labels.cat.categories)
    codes, classes = pd.factorize(labels)
    return codes, list(classes)


def premium_bins(premiums: Array, weight: Array, bins: int) -> npt.NDArray[np.intp]:
    """Divide the rows at quantiles of the premium into bins of about equal volume; equal premiums stay together.

    Examples
    --------
    >>> premium_bins(np.array([3.0, 1.0, 2.0, 2.0]), np.ones(4), 2).tolist()
    [1, 0, 1, 1]
    """
    if isinstance(bins, bool) or not isinstance(bins, int | np.integer) or not 1 <= bins <= 100:
        raise ValueError(f"Got bins={bins!r}, but expected a whole number from 1 to 100, such as 10.")
    values, place = np.unique(premiums, return_inverse=True)
    volume = np.bincount(place, weights=weight, minlength=len(values))
    middle = np.cumsum(volume) - volume / 2
    number = np.minimum((bins * middle / volume.sum()).astype(np.intp), bins - 1)
    return np.asarray(number[place])


def give_back(source: Any, table: pd.DataFrame) -> Any:
    """Return a table as a data frame of the library of `source`; pandas for arrays, lists and pandas."""
    try:
        backend = nw.from_native(source, allow_series=True).implementation
    except TypeError:
        return table
    if backend.is_pandas():
        return table
    data = {name: [_plain(v) for v in table[name]] for name in table.columns}
    return nw.from_dict(data, backend=backend).to_native()


def as_pandas(table: Any) -> pd.DataFrame:
    """Return a table that `give_back` made as pandas."""
    return table if isinstance(table, pd.DataFrame) else nw.from_native(table).to_pandas()


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return value.item() if isinstance(value, np.generic) else value
