"""A source of rows, and the jobs that its workers do, one for each partition."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from fairpremium.blocks._rows import Rows

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


class PersonReader(Reader, Protocol):
    """A reader that can tell whose rows they are."""

    def with_persons(self, column: str) -> Reader:
        """Return the same reader, whose rows have the codes of a column as their cluster."""


class Task(Protocol):
    """What is computed from each piece of a partition, and how the results of two pieces become one.

    A task may have a method `finish`, which gets the result of the whole partition before it leaves the worker.
    """

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
        finish = getattr(self.task, "finish", None)
        return result if finish is None or result is None else finish(result)


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
