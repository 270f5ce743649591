"""Partitions of a Spark data frame, worked on by the executors of its session through `mapInArrow`.

To hand rows to Python, Spark turns them into Arrow one by one, which takes far longer than what is done with them. A
source is read many times, so this is done once: a first pass packs each column of some thousand rows into one binary
value, in Arrow's own format. Spark keeps these, and every later pass copies them as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from fairpremium.blocks._job import PIECE_ROWS, Job, Source
from fairpremium.blocks._spark_packed import keep, recall, stays_as_it_is
from fairpremium.blocks._threads import one_blas_thread

_RESULT = "partition long, rows long, payload binary"
_ROWS = "rows"


class SparkSource(Source):
    """A `pyspark.sql.DataFrame` of an existing session.

    The packed rows are persisted while the source is in use, so that every pass sees the same rows in the same
    partitions. Spark repeats tasks that fail, and a repeated partition gives the same numbers. Of a frame that is not
    persisted itself, only the columns that will be read are packed, if they are known.
    """

    def __init__(self, frame: Any, columns: Sequence[str] | None = None):
        from pyspark.sql.pandas.types import to_arrow_schema

        self.schema: pa.Schema = to_arrow_schema(frame.schema)
        self.names = tuple(frame.columns)
        self._place = {name: f"c{i}" for i, name in enumerate(self.names)}  # of each column in the packed frame
        self._seen: dict[tuple[str, ...], pa.Table] = {}  # by a glance
        kept = recall(frame)
        self._stays = kept is not None or stays_as_it_is(frame)
        if kept is not None:
            self._packed, self.counts = kept.rows, kept.counts
            return
        self._packed = self._pack(frame, None if self._stays else columns)
        found = {i: rows for i, rows, _ in self._collect(_Work({}, ()), ())}
        self.counts = tuple(found.get(i, 0) for i in range(max(found, default=-1) + 1))
        if not sum(self.counts):
            self._packed.unpersist()
            raise ValueError("Got a Spark data frame with no rows, but expected some.")
        if self._stays:
            keep(frame, self._packed, self.counts)

    def _pack(self, frame: Any, columns: Sequence[str] | None) -> Any:
        places = [place for name, place in self._place.items() if columns is None or name in columns]
        chosen = frame.toDF(*(f"c{i}" for i in range(len(self.names)))).select(places or ["*"])
        packed = ", ".join([f"{_ROWS} long", *(f"{place} binary" for place in chosen.columns)])
        return chosen.mapInArrow(_pack, packed).persist()

    def run(self, jobs: Sequence[Job | None], columns: Sequence[str]) -> Iterator[Any]:
        """Give each partition its job."""
        given = {i: job for i, job in enumerate(jobs) if job is not None}
        found = {i: (rows, payload) for i, rows, payload in self._collect(_Work(given, tuple(columns)), columns)}
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
        place, pieces, wanted = tuple(columns), 1, min(size, sum(self.counts))
        while place not in self._seen or self._seen[place].num_rows < wanted:
            found = self._select(columns).limit(pieces).toArrow()
            tables = [table for batch in found.to_batches() for table in _unpack(batch, columns)]
            self._seen[place] = pa.concat_tables(tables)
            pieces *= 8
        return self._seen[place].slice(0, size)

    def close(self) -> None:
        """Let Spark forget the rows, unless the next fit of the frame needs them."""
        if not self._stays:
            self._packed.unpersist()

    def _select(self, columns: Sequence[str]) -> Any:
        return self._packed.select(_ROWS, *(self._place[name] for name in columns))

    def _collect(self, work: _Work, columns: Sequence[str]) -> list[tuple[int, int, Any]]:
        table = self._select(columns).mapInArrow(work, _RESULT).toArrow()
        payload = [bytes(value) if value is not None else None for value in table.column("payload").to_pylist()]
        return list(zip(table.column("partition").to_pylist(), table.column("rows").to_pylist(), payload, strict=True))


def _pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Put the rows of a partition together to pieces of a good size, and each column of a piece into one value."""
    waiting: list[pa.RecordBatch] = []
    n = 0
    for batch in batches:
        waiting.append(batch)
        n += batch.num_rows
        if n >= PIECE_ROWS:
            yield _packed(waiting)
            waiting, n = [], 0
    if n:
        yield _packed(waiting)


def _packed(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    table = pa.Table.from_batches(batches).combine_chunks()
    values: dict[str, Any] = {_ROWS: pa.array([table.num_rows], pa.int64())}
    for place, column in zip(table.column_names, table.columns, strict=True):
        sink = pa.BufferOutputStream()
        alone = pa.table({"": column})
        with pa.ipc.new_stream(sink, alone.schema) as writer:
            writer.write_table(alone)
        values[place] = pa.array([sink.getvalue().to_pybytes()], pa.binary())
    return pa.RecordBatch.from_pydict(values)


def _unpack(batch: pa.RecordBatch, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the pieces of a batch, without copying them."""
    for i in range(batch.num_rows):
        found = [pa.ipc.open_stream(values[i].as_buffer()).read_all().column(0) for values in batch.columns[1:]]
        yield pa.Table.from_arrays(found, names=list(columns))


@dataclass(frozen=True)
class _Work:
    """What an executor does with the pieces of a partition: its job, if it has one, and count its rows."""

    jobs: dict[int, Job]
    columns: tuple[str, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        i = context.partitionId()
        pieces = _Counted(batches, self.columns)
        payload = None
        if i in self.jobs:
            with one_blas_thread():
                try:
                    result = self.jobs[i](pieces)
                except (ValueError, TypeError) as error:  # the caller's mistake, not a fault of the cluster
                    result = type(error)(str(error))
            payload = bytes(_serializer().dumps(result))
        pieces.count_rest()  # Spark starts a process anew that has not read everything
        yield pa.RecordBatch.from_pydict(
            {"partition": [i], "rows": [pieces.rows], "payload": [payload]},
            schema=pa.schema([("partition", pa.int64()), ("rows", pa.int64()), ("payload", pa.binary())]),
        )


class _Counted:
    """The pieces of a partition, and the number of their rows."""

    def __init__(self, batches: Iterator[pa.RecordBatch], columns: tuple[str, ...]):
        self.batches = batches
        self.columns = columns
        self.rows = 0

    def __iter__(self) -> Iterator[pa.Table]:
        for batch in self.batches:
            self.rows += sum(batch.column(0).to_pylist())
            yield from _unpack(batch, self.columns)

    def count_rest(self) -> None:
        """Count the rows that no job has read."""
        self.rows += sum(sum(batch.column(0).to_pylist()) for batch in self.batches)


def _serializer() -> Any:
    from pyspark.serializers import CPickleSerializer

    return CPickleSerializer()
