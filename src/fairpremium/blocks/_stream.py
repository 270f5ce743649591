"""Rows that are never in memory together: a portfolio read piece by piece, wherever it lives.

A `Stream` offers what estimators need of `Rows`: a reduction, some rows by position, evenly spaced rows. Its `Source`
knows the partitions (row groups of Parquet files, partitions of a cluster engine) and runs a `Job` on each. The results
are combined in the order of the partitions, so that they do not depend on who computed them, nor on when.
"""

from __future__ import annotations

import functools
import operator
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from fairpremium.blocks._rows import Block, RowFunction, Rows, Sums, add, draw_places

PIECE_ROWS = 65_536  # rows that are in memory at once, per worker
_GLANCES = 8  # partitions that a glance looks at

Batches = Iterable[pa.Table]


class Reader(Protocol):
    """From columns as they are stored to rows as a model sees them; it travels to the workers."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns to read."""

    @property
    def n_features(self) -> int:
        """Number of columns of X."""

    def __call__(self, table: pa.Table) -> Any:
        """Turn some rows of a table into numbers (`Rows`), or into whatever the task wants."""


class Task(Protocol):
    """What is computed from each piece of a partition, and how the results of two pieces become one."""

    def __call__(self, rows: Rows, start: int) -> Any:
        """Work on rows whose first one has the position `start`."""

    def join(self, a: Any, b: Any) -> Any:
        """Combine two results, in the order of the rows."""


@dataclass(frozen=True)
class Job:
    """A task for one partition, with everything that its worker needs."""

    reader: Reader
    task: Task
    start: int  # position of the partition's first row among those that count
    missing: int | None

    def __call__(self, batches: Batches) -> Any:
        """Work through the partition; None if it has no rows."""
        start, result = self.start, None
        for table in batches:
            for first in range(0, table.num_rows, PIECE_ROWS):
                piece = table.slice(first, PIECE_ROWS)
                rows: Rows = self.reader(piece)
                if self.missing is not None:
                    rows = rows.reported(self.missing)
                if not len(rows):
                    continue
                found = self.task(rows, start)
                result = found if result is None else self.task.join(result, found)
                start += len(rows)
        return result


@dataclass(frozen=True)
class Reduction:
    """Sum a function over blocks of rows."""

    function: Callable[[Block], Sums]
    block_rows: int

    def __call__(self, rows: Rows, start: int) -> Sums:
        """Sum over one piece."""
        return rows.reduce_here(self.function, 0, len(rows), self.block_rows)

    join = staticmethod(add)


@dataclass(frozen=True)
class Pick:
    """Copy the rows at some positions, in ascending order."""

    index: npt.NDArray[np.int64]

    def __call__(self, rows: Rows, start: int) -> list[Rows]:
        """Pick from one piece."""
        first, last = np.searchsorted(self.index, [start, start + len(rows)])
        return [rows.take(self.index[first:last] - start)]

    join = staticmethod(operator.add)


def _with_shares(function: Callable[[Block], Sums], share: RowFunction, block: Block) -> Sums:
    """Compute the shares of a block, then a function of it."""
    return function(block._replace(share=share(block)))


def _count_reports(missing: int, block: Block) -> Sums:
    """Count the rows whose report is not the code of a missing one."""
    return (np.asarray(np.count_nonzero(block.report != missing), dtype=np.float64),)


class Source(AbstractContextManager["Source"]):
    """Partitions in a fixed order, and workers that process them."""

    names: tuple[str, ...]  # columns
    counts: tuple[int, ...]  # rows of each partition
    schema: pa.Schema

    @abstractmethod
    def run(self, jobs: Sequence[Job | None], columns: Sequence[str]) -> Iterator[Any]:
        """Give each partition its job and yield the results in order; partitions without a job are left out."""

    @abstractmethod
    def glance(self, columns: Sequence[str], size: int) -> pa.Table:
        """Return some rows from all over, without reading everything."""

    def type_of(self, column: str) -> pa.DataType:
        """Return the Arrow type of a column."""
        return self.schema.field(column).type

    def _glance_at(self, size: int) -> tuple[list[int], int]:
        """Choose partitions from all over, and how many rows to take of each so that there are `size`."""
        full = [i for i, rows in enumerate(self.counts) if rows]
        chosen = full[:: max(1, len(full) // _GLANCES)]
        return chosen, max(1, -(-size // len(chosen)))

    def close(self) -> None:
        """Release what the source holds."""

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True, eq=False)
class Stream:
    """A portfolio that is read piece by piece.

    Parameters
    ----------
    source : Source
    reader : Reader
    counts : tuple of int
        Rows of each partition that count.
    share : callable, optional
        From a block to the weight of each row for each group.
    missing : int, optional
        Code of the reports whose rows are left out.
    thorough : bool
        Whether a glance returns the same rows as a glance at rows in memory, which takes a pass. Any rows will do where
        the scale of the columns serves the accuracy of the arithmetic alone.
    """

    source: Source
    reader: Reader
    counts: tuple[int, ...]
    share: RowFunction | None = None
    missing: int | None = None
    thorough: bool = False
    _known: dict[tuple[str, int], Any] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return sum(self.counts)

    def __reduce__(self) -> Any:
        """Leave the rows behind, and None in their place, when a function that refers to them is sent to a worker."""
        return type(None), ()

    @property
    def n_features(self) -> int:
        """Number of columns of X."""
        return self.reader.n_features

    def reduce(self, function: Callable[[Block], Sums], *, block_rows: int = 8192) -> Sums:
        """Sum a function over blocks of rows; see `Rows.reduce`. The function must be picklable."""
        if self.share is not None:
            function = functools.partial(_with_shares, function, self.share)
        return functools.reduce(add, self.apply(Reduction(function, block_rows)))

    def take(self, index: npt.NDArray[Any]) -> Rows:
        """Copy the rows at these ascending positions into memory, without persons."""

        def joined(values: tuple[Any, ...]) -> Any:
            return None if values[0] is None else np.ascontiguousarray(np.concatenate(values))

        pieces = [(p.X, p.y, p.weight, p.report) for p in self.pick(index)]
        rows = Rows(*map(joined, zip(*pieces, strict=True)))
        return rows if self.share is None else rows.with_shares(self.share)

    def pick(self, index: npt.NDArray[Any]) -> Iterator[Any]:
        """Yield the rows at these ascending positions as the reader gives them, partition by partition."""
        index = np.asarray(index, dtype=np.int64)

        def pick(start: int, stop: int) -> Pick | None:
            first, last = np.searchsorted(index, [start, stop])
            return Pick(index[first:last]) if last > first else None

        for pieces in self._run(pick):
            yield from pieces

    def spaced(self, size: int) -> Rows:
        """Return evenly spaced rows, at least `size` of them; they are read once."""
        if ("spaced", size) not in self._known:
            self._known["spaced", size] = self.take(np.arange(0, len(self), max(1, len(self) // size)))
        rows: Rows = self._known["spaced", size]
        return rows

    def draw(self, size: int) -> Rows:
        """Return so many rows, one at random from each of equally long parts; they are read once."""
        if ("drawn", size) not in self._known:
            self._known["drawn", size] = self.take(draw_places(len(self), size))
        rows: Rows = self._known["drawn", size]
        return rows

    def glance(self, size: int) -> Rows:
        """Return some rows from all over the portfolio, without a pass if it need not be thorough."""
        if self.thorough:
            return self.spaced(size)
        rows: Rows = self.reader(self.source.glance(self.reader.columns, size))
        return rows

    def reported(self, missing: int) -> Stream:
        """Return the rows whose report is not the code of a missing one."""
        if self.missing is not None:
            return self
        if ("reported", missing) not in self._known:
            found = self.apply(Reduction(functools.partial(_count_reports, missing), 1 << 20))
            counts = tuple(int(next(found)[0]) if n else 0 for n in self.counts)
            some = replace(self, counts=counts, missing=missing, _known={})
            self._known["reported", missing] = self if counts == self.counts else some
        stream: Stream = self._known["reported", missing]
        return stream

    def with_shares(self, function: RowFunction) -> Stream:
        """Return the same rows with a weight for each group, a function of the row."""
        return replace(self, share=function, _known={})

    def apply(self, task: Task) -> Iterator[Any]:
        """Yield the result of a task for each partition, in order."""
        return self._run(lambda start, stop: task)

    def _run(self, task: Callable[[int, int], Task | None]) -> Iterator[Any]:
        jobs: list[Job | None] = []
        for start, stop in pairwise(accumulate(self.counts, initial=0)):
            given = task(start, stop) if stop > start else None
            jobs.append(None if given is None else Job(self.reader, given, start, self.missing))
        yield from (result for result in self.source.run(jobs, self.reader.columns) if result is not None)
