"""Partitions of a Spark data frame, worked on by the executors of its session through `mapInArrow`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from fairpremium.blocks._job import PIECE_ROWS, Job, Source
from fairpremium.blocks._rows import blas

_RESULT = "partition long, rows long, payload binary"


class SparkSource(Source):
    """A `pyspark.sql.DataFrame` of an existing session.

    The frame is persisted while it is in use, so that every pass sees the same rows in the same partitions. Spark
    repeats tasks that fail, and a repeated partition gives the same numbers.
    """

    def __init__(self, frame: Any):
        from pyspark.sql.pandas.types import to_arrow_schema

        self._own = not frame.is_cached
        self.frame = frame.persist() if self._own else frame
        self.schema: pa.Schema = to_arrow_schema(frame.schema)
        self.names = tuple(frame.columns)
        found = {i: rows for i, rows, _ in self._collect(_Work({}, count_only=True), list(self.names))}
        self.counts = tuple(found.get(i, 0) for i in range(max(found, default=-1) + 1))
        if not sum(self.counts):
            self.close()
            raise ValueError("Got a Spark data frame with no rows, but expected some.")

    def run(self, jobs: Sequence[Job | None], columns: Sequence[str]) -> Iterator[Any]:
        """Give each partition its job."""
        given = {i: job for i, job in enumerate(jobs) if job is not None}
        found = {i: (rows, payload) for i, rows, payload in self._collect(_Work(given), list(columns))}
        for i in given:
            rows, payload = found.get(i, (0, None))
            if rows != self.counts[i]:
                raise RuntimeError(
                    "The Spark data frame came out with other partitions than before. Persist it (df.persist()), or "
                    "write it to Parquet, and fit that."
                )
            result = _serializer().loads(payload)
            if isinstance(result, Exception):
                raise result
            yield result

    def glance(self, columns: Sequence[str], size: int) -> pa.Table:
        """Return the first rows."""
        return self.frame.select(*_quoted(columns)).limit(size).toArrow()

    def close(self) -> None:
        """Let Spark forget the rows."""
        if self._own:
            self.frame.unpersist()
            self._own = False

    def _collect(self, work: _Work, columns: list[str]) -> list[tuple[int, int, Any]]:
        table = self.frame.select(*_quoted(columns)).mapInArrow(work, _RESULT).toArrow()
        payload = [bytes(value) if value is not None else None for value in table.column("payload").to_pylist()]
        return list(zip(table.column("partition").to_pylist(), table.column("rows").to_pylist(), payload, strict=True))


@dataclass(frozen=True)
class _Work:
    """What an executor does with the batches of a partition."""

    jobs: dict[int, Job]
    count_only: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        i = context.partitionId()
        if i not in self.jobs and not self.count_only:
            return
        counted = _Counted(batches)
        payload = None
        if i in self.jobs:
            with blas().limit(limits=1, user_api="blas"):
                try:
                    result = self.jobs[i](counted)
                except (ValueError, TypeError) as error:  # the caller's mistake, not a fault of the cluster
                    result = type(error)(str(error))
            payload = bytes(_serializer().dumps(result))
        for _ in counted:  # the rows that no job has read
            pass
        yield pa.RecordBatch.from_pydict(
            {"partition": [i], "rows": [counted.rows], "payload": [payload]},
            schema=pa.schema([("partition", pa.int64()), ("rows", pa.int64()), ("payload", pa.binary())]),
        )


class _Counted:
    """Batches put together to pieces of a good size, and the number of their rows."""

    def __init__(self, batches: Iterator[pa.RecordBatch]):
        self.batches = batches
        self.rows = 0

    def __iter__(self) -> Iterator[pa.Table]:
        waiting: list[pa.RecordBatch] = []
        n = 0
        for batch in self.batches:
            waiting.append(batch)
            n += batch.num_rows
            self.rows += batch.num_rows
            if n >= PIECE_ROWS:
                yield pa.Table.from_batches(waiting).combine_chunks()
                waiting, n = [], 0
        if n:
            yield pa.Table.from_batches(waiting).combine_chunks()


def _quoted(columns: Sequence[str]) -> list[str]:
    """Names as Spark takes them literally."""
    return ["`" + name.replace("`", "``") + "`" for name in columns]


def _serializer() -> Any:
    from pyspark.serializers import CPickleSerializer

    return CPickleSerializer()
