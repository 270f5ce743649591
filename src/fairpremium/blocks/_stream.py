"""Rows that are never in memory together: a portfolio read piece by piece, wherever it lives.

A `Stream` offers what estimators need of `Rows`: a reduction, some rows by position, evenly spaced rows. Its `Source`
knows the partitions (row groups of Parquet files, partitions of a cluster engine) and runs a `Job` on each. The results
are combined in the order of the partitions, so that they do not depend on who computed them, nor on when.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from fairpremium.arrays import Array
from fairpremium.blocks._job import Job, PersonReader, Reader, Source, Task
from fairpremium.blocks._persons import Persons, PersonSquares, concatenate, small_codes, squares_of_totals
from fairpremium.blocks._rows import Block, RowFunction, Rows, Sums, add, draw_places


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
    persons : Persons, optional
        Whose the rows are, if persons have several. The reader then has `with_persons`.
    """

    source: Source
    reader: Reader
    counts: tuple[int, ...]
    share: RowFunction | None = None
    missing: int | None = None
    thorough: bool = False
    persons: Persons | None = None
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
        return functools.reduce(add, self.apply(Reduction(self._shared(function), block_rows)))

    def _shared(self, function: Callable[[Block], Any]) -> Callable[[Block], Any]:
        return function if self.share is None else functools.partial(_with_shares, function, self.share)

    @property
    def clustered(self) -> bool:
        """Whether it is known that persons have several rows."""
        return self.persons is not None

    def without_persons(self) -> Stream:
        """Return the same rows, each as a person of its own."""
        return replace(self, persons=None, _known={})

    def square_persons(self, function: RowFunction) -> Array:
        """Sum u u' over persons, u the total of a function over a person's rows; the function must be picklable.

        A partition is in memory at once where a worker is at it.
        """
        assert self.persons is not None
        scattered, passes = self.persons.scattered, 1
        if not self.persons.are_few:
            some = self.take(np.zeros(1, dtype=np.int64))
            passes = self.persons.passes(function(some.block(0, 1)).shape[1])
        total: Array | float = 0.0
        for i in range(passes):
            tasks = [PersonSquares(self._shared(function), own, i, passes) for own in scattered]
            codes, totals = [], []
            for squares, own, apart in self.apply(tasks):
                total = total + squares
                codes.append(own)
                totals.append(apart)
            total = total + squares_of_totals(codes, totals)
        return np.asarray(total)

    def take(self, index: npt.NDArray[Any]) -> Rows:
        """Copy the rows at these ascending positions into memory."""
        rows = small_codes(concatenate([replace(piece, share=None) for piece in self.pick(index)]))
        return rows if self.share is None else rows.with_shares(self.share)

    def pick(self, index: npt.NDArray[Any]) -> Iterator[Any]:
        """Yield the rows at these ascending positions as the reader gives them, partition by partition."""
        index = np.asarray(index, dtype=np.int64)

        def pick(start: int, stop: int) -> Pick | None:
            first, last = np.searchsorted(index, [start, stop])
            return Pick(index[first:last]) if last > first else None

        starts = pairwise(accumulate(self.counts, initial=0))
        for pieces in self._run([pick(start, stop) for start, stop in starts]):
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
        reader = self._reader(persons=True)
        rows: Rows = reader(self.source.glance(reader.columns, size))
        return small_codes(rows) if self.clustered else rows

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

    def apply(self, task: Task | Sequence[Task]) -> Iterator[Any]:
        """Yield the result of a task for each partition, in order; there may be one task for each partition."""
        return self._run(task if isinstance(task, Sequence) else [task] * len(self.counts))

    def _reader(self, *, persons: bool) -> Reader:
        if self.persons is None or not persons:
            return self.reader
        return cast(PersonReader, self.reader).with_persons(self.persons.column)

    def _run(self, tasks: Sequence[Task | None]) -> Iterator[Any]:
        """Run a task on each partition; those that copy rows or add up persons need to know whose rows they are."""
        reader = self._reader(persons=any(isinstance(task, Pick | PersonSquares) for task in tasks))
        jobs: list[Job | None] = []
        for (start, stop), task in zip(pairwise(accumulate(self.counts, initial=0)), tasks, strict=True):
            jobs.append(None if task is None or stop == start else Job(reader, task, start, self.missing))
        yield from (result for result in self.source.run(jobs, reader.columns) if result is not None)
