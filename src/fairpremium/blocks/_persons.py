"""Rows of persons: whose rows they are, and sums over the persons of a source.

Rows of one person are not independent, so that their contributions are added up before they are squared. In a source a
person's rows may lie in several partitions. One pass over the column of the persons finds out whose do. Everybody else
is squared where the rows are; the totals of the former come here, as many at a time as memory holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.types as pt

from fairpremium.arrays import Array
from fairpremium.blocks._job import Job, Source
from fairpremium.blocks._rows import RowFunction, Rows

PersonCodes = npt.NDArray[np.uint64]

_AT_ONCE = 2048  # persons whose contributions are in memory at the same time
_CODES = 1 << 24  # codes of persons that are looked at in one pass
_TOTALS = 1 << 24  # numbers in the totals of persons with rows in several partitions, in one pass
_FEW = 1 << 12  # persons whose totals are few numbers, however many each has
_MIX = np.uint64(0x9E3779B97F4A7C15)  # odd: spreads codes that follow each other over the passes


def person_codes(table: pa.Table, name: str) -> PersonCodes:
    """Return a code for each value of a column that says whose a row is, the same in every file and partition.

    Whole numbers are their own codes. Other values have a hash of 64 bits: among ten million persons the chance that
    any two are taken for one is 3 in a million.
    """
    column = table.column(name)
    if pt.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    missing = column.null_count
    if pt.is_floating(column.type) and not missing:
        values = column.to_numpy().astype(np.float64, copy=False)
        missing = int(np.count_nonzero(np.isnan(values)))
    if missing:
        raise ValueError(f"Got cluster with missing values in column {name!r} of X, but expected none.")
    if pt.is_boolean(column.type):
        column = column.cast(pa.int8())
    if pt.is_integer(column.type):
        return np.asarray(column.to_numpy()).astype(np.int64).view(np.uint64)
    if pt.is_floating(column.type):
        codes = np.asarray(pd.util.hash_array(values))
        whole = (values == np.floor(values)) & (np.abs(values) < 2.0**53)
        codes[whole] = values[whole].astype(np.int64).view(np.uint64)
        return codes
    if not (pt.is_string(column.type) or pt.is_large_string(column.type)):
        column = column.cast(pa.string())
    return np.asarray(pd.util.hash_array(np.asarray(column.to_numpy(), dtype=object)))


def small_codes(rows: Rows) -> Rows:
    """Number the persons in the order in which they appear."""
    return rows if rows.cluster is None else replace(rows, cluster=pd.factorize(rows.cluster)[0])


def person_totals(rows: Rows, function: RowFunction) -> Iterator[tuple[npt.NDArray[Any], Array]]:
    """Yield the codes of some persons, ascending, and their totals of a function of each row: shape (persons, ...)."""
    assert rows.cluster is not None
    if not len(rows):
        return
    order = np.argsort(rows.cluster, kind="stable")
    ordered = rows.cluster[order]
    first = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))  # where each person's rows begin
    for persons in np.array_split(first, max(1, len(first) // _AT_ONCE)):
        last = first[np.searchsorted(first, persons[-1], side="right") :]
        block = rows.take(order[persons[0] : last[0] if len(last) else len(order)])
        values = function(block.block(0, len(block)))
        yield ordered[persons], np.add.reduceat(values, persons - persons[0], axis=0)


@dataclass(frozen=True, eq=False)
class Persons:
    """Whose the rows of a source are.

    Attributes
    ----------
    scattered : tuple of arrays
        For each partition the codes of the persons who have rows in other partitions, too.
    """

    source: Source = field(repr=False)
    column: str

    def __reduce__(self) -> Any:
        """Stay here when a function that refers to it is sent to a worker."""
        return type(None), ()

    @cached_property
    def scattered(self) -> tuple[PersonCodes, ...]:
        counts = self.source.counts
        found: list[list[PersonCodes]] = [[np.empty(0, dtype=np.uint64)] for _ in counts]
        passes = -(-sum(counts) // _CODES)
        for i in range(passes):
            job = Job(_CodeReader(self.column), _Distinct(i, passes), 0, None)
            own = self.source.run([job if n else None for n in counts], [self.column])
            parts = [np.empty(0, dtype=np.uint64) if not n else next(own) for n in counts]
            codes, times = np.unique(np.concatenate(parts), return_counts=True)
            several = codes[times > 1]
            for kept, part in zip(found, parts, strict=True):
                kept.append(part[np.isin(part, several, assume_unique=True)])
        return tuple(np.concatenate(each) for each in found)

    def passes(self, width: int) -> int:
        """Return in how many passes the totals of scattered persons come, if each has so many numbers."""
        return max(1, -(-sum(map(len, self.scattered)) * width // _TOTALS))

    @property
    def are_few(self) -> bool:
        """Whether one pass will do, however many numbers a total has."""
        return sum(map(len, self.scattered)) <= _FEW


@dataclass(frozen=True)
class PersonSquares:
    """Sum u u' over the persons of a partition, u the total of a function of each row; return scattered persons' u."""

    function: RowFunction
    scattered: PersonCodes
    number: int  # of the pass,
    passes: int  # of so many

    def __call__(self, rows: Rows, start: int) -> list[Rows]:
        """Take the rows that this pass is about."""
        assert rows.cluster is not None
        return [rows.take(self._is_scattered(rows.cluster))] if self.number else [rows]

    def _is_scattered(self, codes: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        own = np.isin(codes, self.scattered)
        return np.asarray(own & (_pass_of(codes, self.passes) == self.number))

    @staticmethod
    def join(a: list[Rows], b: list[Rows]) -> list[Rows]:
        """Keep the rows of both pieces."""
        return a + b

    def finish(self, pieces: list[Rows]) -> tuple[Array | float, PersonCodes, Array]:
        """Add up the persons of a partition whose rows are all here."""
        rows = concatenate(pieces)
        assert rows.cluster is not None
        squares: Array | float = 0.0
        if self.number == 0:
            closed = ~np.isin(rows.cluster, self.scattered)
            for _, totals in person_totals(rows.take(closed), self.function):
                squares = squares + totals.T @ totals
        found = list(person_totals(rows.take(self._is_scattered(rows.cluster)), self.function))
        if not found:
            return squares, np.empty(0, dtype=np.uint64), np.empty((0, 0))
        return squares, np.concatenate([codes for codes, _ in found]), np.concatenate([u for _, u in found])


def concatenate(pieces: list[Rows]) -> Rows:
    """Put rows one below the other."""

    def joined(values: tuple[Any, ...]) -> Any:
        return None if values[0] is None else np.ascontiguousarray(np.concatenate(values))

    fields = [(p.X, p.y, p.weight, p.report, p.share, p.cluster) for p in pieces]
    return Rows(*map(joined, zip(*fields, strict=True)))


def squares_of_totals(codes: list[PersonCodes], totals: list[Array]) -> Array | float:
    """Sum u u' over persons whose totals come in parts."""
    some = [(c, u) for c, u in zip(codes, totals, strict=True) if len(c)]
    if not some:
        return 0.0
    place, _ = pd.factorize(np.concatenate([c for c, _ in some]))
    order = np.argsort(place, kind="stable")
    place = place[order]
    first = np.flatnonzero(np.append(True, place[1:] != place[:-1]))
    U = np.add.reduceat(np.concatenate([u for _, u in some])[order], first, axis=0)
    return np.asarray(U.T @ U)


@dataclass(frozen=True)
class _Codes:
    """The persons of some rows."""

    codes: PersonCodes

    def __len__(self) -> int:
        return len(self.codes)


@dataclass(frozen=True)
class _CodeReader:
    """Reads whose rows they are, and nothing else."""

    column: str
    n_features: int = 0

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def __call__(self, table: pa.Table) -> _Codes:
        return _Codes(person_codes(table, self.column))


@dataclass(frozen=True)
class _Distinct:
    """The distinct codes of a partition that a pass is about, ascending."""

    number: int
    passes: int

    def __call__(self, rows: Any, start: int) -> PersonCodes:
        codes = np.unique(rows.codes)
        return np.asarray(codes[_pass_of(codes, self.passes) == self.number])

    join = staticmethod(np.union1d)


def _pass_of(codes: npt.NDArray[Any], passes: int) -> npt.NDArray[Any]:
    """Say which of several passes is about a person."""
    return np.asarray(((codes * _MIX) >> np.uint64(40)) % np.uint64(passes))
