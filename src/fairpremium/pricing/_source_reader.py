"""From the columns of a large portfolio to numbers, piece by piece; the reader is sent to the workers."""

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from fairpremium.blocks import Rows, all_finite, person_codes
from fairpremium.corrections import ReportChannel
from fairpremium.families import REAL, Family
from fairpremium.models import Design, check_finite, check_outcome, check_volume, check_weight

_EXACT_IN_FLOAT32 = (pt.is_float16, pt.is_float32, pt.is_int8, pt.is_int16, pt.is_uint8, pt.is_uint16)


@dataclass(frozen=True)
class ReportReader:
    """Reads the reports of some rows."""

    sensitive: str | tuple[str, ...]  # name of the column, or of several: attributes, or reports of one person,
    key: str | None  # and of that with the sources, if there are several
    channel: ReportChannel
    _known: dict[tuple[Any, ...], npt.NDArray[np.uint16]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that are read."""
        own = (self.sensitive,) if isinstance(self.sensitive, str) else self.sensitive
        return own if self.key is None else (*own, self.key)

    def __call__(self, table: pa.Table) -> npt.NDArray[np.uint16]:
        """Turn reports into codes, the number of reports standing for a missing one."""
        if not isinstance(self.sensitive, str):
            keys = None if self.key is None else table.column(self.key)
            return self.channel.encode(table.select(list(self.sensitive)), keys)
        column = table.column(self.sensitive)
        if self.key is not None:
            return self.channel.encode(column, table.column(self.key))
        if pt.is_dictionary(column.type) and column.num_chunks == 1 and not column.null_count:
            chunk = column.chunk(0)
            with suppress(ValueError, TypeError):  # a value that no row has may be unknown
                return np.asarray(np.take(self._codes_of(chunk.dictionary), chunk.indices.to_numpy()))
        return self._codes(column)

    def _codes_of(self, dictionary: pa.Array) -> npt.NDArray[np.uint16]:
        """Return the codes of the values of a dictionary, which is the same in piece after piece."""
        values = tuple(dictionary.to_pylist())
        if values not in self._known:
            self._known[values] = self._codes(dictionary)
        return self._known[values]

    def _codes(self, values: Any) -> npt.NDArray[np.uint16]:
        return self.channel.encode(values, name=str(self.sensitive))


@dataclass(frozen=True)
class PortfolioReader:
    """Reads features, outcome, volume and reports of some rows."""

    design: Design
    y: str  # names of columns
    reports: ReportReader
    weight: str | None  # None for ones
    family: Family  # in whose domain the outcome has to be
    is_total: bool = False  # whether the outcome is a total over the volume
    cluster: str | None = None  # None if it does not matter whose rows they are

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns that are read."""
        own = [name for name in (self.weight, self.cluster) if name is not None]
        return (*self.design.names, self.y, *self.reports.columns, *own)

    def with_persons(self, column: str) -> Self:
        """Read whose rows they are, too."""
        return replace(self, cluster=column)

    @property
    def n_features(self) -> int:
        """Number of columns of X."""
        return len(self.design.features)

    def __call__(self, table: pa.Table) -> Rows:
        """Turn some rows of a table into numbers, after the same checks that a table in memory gets."""
        n = table.num_rows
        y, weight = read_numbers(table, self.y), None
        if self.weight is not None and not self.is_total:
            numbers = read_numbers(table, self.weight)
            weight = check_weight(numbers, n) if numbers.any() else np.zeros(n)  # others may have some volume
        if self.weight is not None and self.is_total:
            y, weight = check_volume(y, n, None, read_numbers(table, self.weight), self.family)
        elif y.dtype.kind == "f" and self.family.outcome == REAL and np.isfinite(y).all():
            y = y.astype(np.float64, copy=False)
        else:
            y = check_outcome(y, n, self.family)
        person = None if self.cluster is None else person_codes(table, self.cluster)
        return Rows(features_of(table, self.design), y, weight, self.reports(table), cluster=person)


def features_of(table: pa.Table, design: Design, unseen: Any = "error") -> npt.NDArray[Any]:
    """Return the matrix of the features of some rows; numbers stay column by column and in four bytes if they fit."""
    if not design.named or design.terms is not None or any(column.levels is not None for column in design.columns):
        return design.transform(table, unseen=unseen)
    types = [table.schema.field(name).type for name in design.names]
    if not all(pt.is_floating(t) or pt.is_integer(t) for t in types):
        return design.transform(table, unseen=unseen)  # says which column is not a number
    small = all(any(test(t) for test in _EXACT_IN_FLOAT32) for t in types)
    columns = np.empty((len(types), table.num_rows), dtype=np.float32 if small else np.float64)
    for values, name in zip(columns, design.names, strict=True):
        start = 0
        for chunk in table.column(name).chunks:
            values[start : start + len(chunk)] = chunk.to_numpy(zero_copy_only=False)
            start += len(chunk)
    if not all_finite(columns.T):
        check_finite(columns.T, [f"column {name!r}" for name in design.names], "X")
    return columns.T


def read_numbers(table: pa.Table, name: str) -> npt.NDArray[Any]:
    """Return a column of numbers as they are stored."""
    column = table.column(name)
    if pt.is_decimal(column.type):
        column = column.cast(pa.float64())
    return np.asarray(column.to_numpy())
