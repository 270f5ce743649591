"""The audited rows: prices and losses with their reports, divided into classes, and tables in the caller's type."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import narwhals.stable.v1 as nw
import numpy as np
import numpy.typing as npt
import pandas as pd

from fairpremium.arrays import Array
from fairpremium.corrections import describe_lack
from fairpremium.models import check_outcome, check_weight, warn_if_counts
from fairpremium.pricing import check_level

from ._estimate import Estimate, fieller
from ._weighted_reports import REPORTED, WeightedReports

Records = list[dict[str, Any]]


@dataclass(frozen=True)
class AuditData:
    """Columns of numbers with their reports."""

    columns: dict[str, Array]  # (n,) or (n, K)
    reports: WeightedReports
    level: float
    source: Any  # whose type tables come back in
    # (name, codes, labels) of what divides the rows: risk classes, then bins; a table is made in each combination
    divisions: tuple[tuple[str, npt.NDArray[Any], Sequence[Any]], ...] = ()

    @classmethod
    def read(
        cls,
        columns: dict[str, Any],
        sensitive: Any,
        channel: Any,
        sample_weight: Any,
        cluster: Any,
        by: Any,
        level: float,
        exposure: Any = None,
        tables: Sequence[str] = (),
        need_groups: bool = True,
        *,
        channel_key: Any = None,
    ) -> AuditData:
        """Check what the caller gave; the first column gives the number of rows, `tables` have a column per group.

        With an `exposure` the losses y are totals over it, and are divided by it here. Where no groups are needed,
        ``sensitive=None`` leaves them out: the tables are about everybody.
        """
        (first, source), *_ = columns.items()
        n = n_rows(source, first)
        checked = {name: check_numbers(values, name, n, first) for name, values in columns.items()}
        for name, values in checked.items():
            if values.ndim != 1 and name not in tables:
                raise ValueError(f"Got {name} of shape {values.shape}, but expected one column: a number per row.")
        weight = check_weight(sample_weight, n, exposure=exposure, of=first)
        if "y" in checked:
            if exposure is None or weight is None:
                warn_if_counts(checked["y"], weight, stacklevel=2)
            else:
                checked["y"] = np.asarray(checked["y"] / weight)
        if sensitive is None and channel is None and channel_key is None and not need_groups:
            reports = WeightedReports.of_everybody(n, weight, cluster, first)
        else:
            reports = WeightedReports.read(n, sensitive, channel, weight, cluster, first, channel_key=channel_key)
        divisions = () if by is None else (("risk_class", *class_codes(by, n, first)),)
        level = check_level(level)
        for name in tables:
            if checked[name].shape[1:] != (len(reports.groups),):
                raise ValueError(
                    f"Got {name} of shape {checked[name].shape}, but expected one column for each of the groups "
                    f"{list(reports.groups)}."
                )
            checked[name] = checked[name][:, group_columns(columns[name], reports.groups)]
        return cls(checked, reports, level, source, divisions)

    @property
    def groups(self) -> tuple[Any, ...]:
        """The groups."""
        return self.reports.groups

    def __getitem__(self, name: str) -> Array:
        return self.columns[name]

    def with_columns(self, **columns: Array) -> AuditData:
        """Return the data with further columns."""
        return replace(self, columns={**self.columns, **columns})

    def in_bins(self, name: str, bins: int) -> AuditData:
        """Divide the rows at quantiles of a column (see `premium_bins`); tables get the column `bin`."""
        codes = premium_bins(self[name], self.reports.weight, bins)
        return replace(self, divisions=(*self.divisions, ("bin", codes, range(1, bins + 1))))

    def divided(self, *divisions: tuple[str, npt.NDArray[Any], Sequence[Any]]) -> AuditData:
        """Divide the rows further: a column's name, the position of each row's label in it, and the labels."""
        return replace(self, divisions=(*self.divisions, *divisions))

    def table(self, make: Callable[[AuditData], Records]) -> Any:
        """Make the records of every class and return them as a data frame of the caller's library."""
        rows = [{**labels, **row} for labels, piece in self._pieces() for row in make(piece)]
        table = pd.DataFrame(rows)
        for name in ("group", "against"):
            if name in table:  # pandas would turn None into NaN, and whole numbers beside it into floats
                table[name] = pd.Series([row[name] for row in rows], dtype=object)
        return frame_like_source(self.source, table)

    def _pieces(self) -> Iterator[tuple[dict[str, Any], AuditData]]:
        """Yield the rows of every class, or of every bin of every class, behind the labels that name them."""
        if not self.divisions:
            yield {}, self
            return
        key = np.zeros(len(self.reports), dtype=np.int64)
        for _, codes, names in self.divisions:
            key = key * len(names) + codes
        order = np.argsort(key, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(key[order])) + 1):
            labels = {name: names[codes[rows[0]]] for name, codes, names in self.divisions}
            columns = {name: values[rows] for name, values in self.columns.items()}
            yield labels, AuditData(columns, self.reports.take(rows), self.level, self.source)

    def totals(self, names: Sequence[str], groups: Sequence[int]) -> dict[str, Estimate]:
        """Sum columns over groups; the volume is among them under the name "volume"."""
        return self.reports.totals({name: self.columns[name] for name in names}, groups)

    def totals_and_shares(self, names: Sequence[str], first: Sequence[int] = ()) -> tuple[dict[str, Estimate], Array]:
        """Sum columns over `first` (EVERYONE or nothing) and every group, with shares of the volume that reported."""
        totals = self.totals(names, [*first, *range(len(self.groups)), REPORTED])
        share = (totals["volume"][:-1] / totals["volume"][-1]).value
        share[: len(first)] = 1.0
        return {name: total[:-1] for name, total in totals.items()}, share


def estimate_records(
    labels: Mapping[str, Sequence[Any]],
    effective: Array,
    numbers: dict[str, Array],
    notes: Sequence[str] | None = None,
) -> Records:
    """Put numbers behind columns of labels, and a sentence instead of numbers where the reports are too few.

    `notes` are about rows that have numbers.
    """
    rows = []
    for i, count in enumerate(effective):
        note = describe_lack(count)
        values = {name: float("nan") if note else float(column[i]) for name, column in numbers.items()}
        label = {name: column[i] for name, column in labels.items()}
        said = note or (notes[i] if notes is not None else "")
        rows.append({**label, **values, "effective_reports": float(count), "note": said})
    return rows


def mean_columns(name: str, total: Estimate, volume: Estimate, level: float) -> dict[str, Array]:
    """Return a mean with Fieller's limits as the columns name, name_low, name_high."""
    return with_limits(name, total / volume, fieller(total, volume, level))


def with_limits(name: str, estimate: Estimate, limits: tuple[Array, Array] | Array) -> dict[str, Array]:
    """Return an estimate with limits as the columns name, name_low, name_high."""
    return {name: estimate.value, f"{name}_low": limits[0], f"{name}_high": limits[1]}


def n_rows(values: Any, name: str) -> int:
    """Return the number of rows of a column or table."""
    try:
        return len(values)
    except TypeError:
        raise TypeError(f"Got {name} of type {type(values).__name__}, but expected a column of numbers.") from None


def check_numbers(values: Any, name: str, n: int, of: str) -> Array:
    """Return finite floats of shape (n,), or (n, K) for a table."""
    if len(getattr(values, "shape", ())) == 2:
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


def group_columns(table: Any, groups: Sequence[Any]) -> list[int]:
    """Return where each group's column is: by name if the columns are named like the groups, else in their order."""
    names = list(map(str, getattr(table, "column_names", getattr(table, "columns", ()))))
    wanted = list(map(str, groups))
    return [names.index(group) for group in wanted] if sorted(names) == sorted(wanted) else list(range(len(wanted)))


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


def frame_like_source(source: Any, table: pd.DataFrame) -> Any:
    """Return a table as a data frame of the library of `source`; pandas for arrays, lists and pandas."""
    try:
        backend = nw.from_native(source, allow_series=True).implementation
    except TypeError:
        return table
    if backend.is_pandas():
        return table
    data = {name: [to_scalar(v) for v in table[name]] for name in table.columns}
    for name, values in data.items():
        if len({type(value) for value in values if value is not None}) > 1:  # a column has one type
            data[name] = [None if value is None else str(value) for value in values]
    return nw.from_dict(data, backend=backend).to_native()


def as_pandas(table: Any) -> pd.DataFrame:
    """Return a table that `frame_like_source` made as pandas."""
    return table if isinstance(table, pd.DataFrame) else nw.from_native(table).to_pandas()


def to_scalar(value: Any) -> Any:
    """Return a tuple of labels as text, and a number of numpy as a number of Python."""
    if isinstance(value, tuple):
        return ", ".join(map(str, value))
    return value.item() if isinstance(value, np.generic) else value
