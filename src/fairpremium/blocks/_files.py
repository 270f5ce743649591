"""Parquet files and folders, and any other `pyarrow.dataset`, read by processes on this machine."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from fairpremium.blocks._job import PIECE_ROWS, Job, Source
from fairpremium.blocks._pool import WorkerPool
from fairpremium.blocks._threads import count_workers, one_blas_thread

_PARTITION_ROWS = 262_144  # row groups are combined until they have so many rows
_FEW_CELLS = 20_000_000  # numbers that are read faster than worker processes start
_ERRORS = (pa.ArrowException, OSError)


@dataclass(frozen=True)
class Piece:
    """Some row groups of a Parquet file, or a whole fragment of another format."""

    fragment: Any  # pyarrow.dataset.Fragment
    schema: pa.Schema  # of the whole dataset
    rows: int
    where: str

    def batches(self, columns: Sequence[str], rows: int = PIECE_ROWS) -> Iterator[pa.Table]:
        """Read the rows, some at a time, in order."""
        fragment, names = self.fragment, list(columns)
        try:
            if not isinstance(fragment, ds.ParquetFileFragment):
                scanner = fragment.scanner(schema=self.schema, columns=names, batch_size=rows, use_threads=False)
                for batch in scanner.to_batches():
                    yield pa.Table.from_batches([batch])
                return
            schema = pa.schema([self.schema.field(name) for name in names])
            fixed = ds.get_partition_keys(fragment.partition_expression)  # columns that folder names hold
            stored = [name for name in names if name not in fixed]
            # a page of each column at a time, so that a large row group needs no more memory than a small one
            with fragment.open() as handle, pq.ParquetFile(handle, pre_buffer=False, buffer_size=1 << 20) as file:
                groups = [group.id for group in _row_groups(fragment)]
                for batch in file.iter_batches(rows, row_groups=groups, columns=stored, use_threads=False):
                    yield _as_declared(pa.Table.from_batches([batch]), schema, fixed, self.where)
        except _ERRORS as error:
            raise unreadable(self.where, error) from error


def _work(columns: tuple[str, ...], piece: Piece, job: Job) -> Any:
    """Do a job in a worker process; an error names the file."""
    with one_blas_thread():
        try:
            return job(piece.batches(columns))
        except (ValueError, TypeError) as error:
            if piece.where and piece.where not in str(error):
                raise type(error)(f"{piece.where}: {error}") from None
            raise


class FileSource(Source):
    """The fragments of a `pyarrow.dataset`, cut at row groups."""

    def __init__(self, dataset: Any):
        self.schema: pa.Schema = dataset.schema
        self.names = tuple(self.schema.names)
        self.pieces = [piece for fragment in dataset.get_fragments() for piece in _pieces(fragment, self.schema)]
        self.counts = tuple(piece.rows for piece in self.pieces)
        self._pool = WorkerPool()

    def run(self, jobs: Sequence[Job | None], columns: Sequence[str]) -> Iterator[Any]:
        """Work on the pieces: in this process if there is little to do, else in worker processes."""
        work = partial(_work, tuple(columns))
        arguments = [(piece, job) for piece, job in zip(self.pieces, jobs, strict=True) if job is not None]
        cells = sum(piece.rows for piece, _ in arguments) * max(1, len(columns))
        if cells <= _FEW_CELLS or len(arguments) == 1 or count_workers() == 1:
            return (work(piece, job) for piece, job in arguments)
        return self._pool.map(work, arguments)

    def glance(self, columns: Sequence[str], size: int) -> pa.Table:
        """Return the first rows of pieces from all over."""
        chosen, rows = self._glance_at(size)
        tables = []
        for i in chosen:
            batches = self.pieces[i].batches(columns, rows)
            tables.append(next(batches).slice(0, rows))
            batches.close()  # type: ignore[attr-defined]
        return pa.concat_tables(tables, promote_options="permissive")

    def close(self) -> None:
        """Stop the worker processes."""
        self._pool.close()


def open_files(X: Any) -> FileSource:
    """Open a Parquet file, a folder of them (with ``key=value`` folders or not), or a `pyarrow.dataset`."""
    dataset, empty = X, "Got a dataset with no rows, but expected some."
    if not hasattr(X, "get_fragments"):
        path = Path(X)
        empty = f"{path} has no rows."
        if not path.exists():
            raise ValueError(f"There is no file or folder {path}.")
        try:
            dataset = ds.dataset(path, format="parquet", partitioning="hive")
        except _ERRORS as error:
            raise unreadable(_first_bad(path), error) from error
        if not dataset.files:
            raise ValueError(f"There is no Parquet file in {path}.")
    source = FileSource(dataset)
    if not sum(source.counts):
        raise ValueError(empty)
    return source


def unreadable(where: str, error: BaseException) -> ValueError:
    """Say which file could not be read."""
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return ValueError(f"{where} is not a Parquet file that can be read: {reason}")


def _pieces(fragment: Any, schema: pa.Schema) -> Iterator[Piece]:
    where = str(getattr(fragment, "path", ""))
    try:
        known = {*fragment.physical_schema.names, *ds.get_partition_keys(fragment.partition_expression)}
        absent = [name for name in schema.names if name not in known]
        if absent:  # reading would fill them with nulls
            raise ValueError(f"{where or 'A file of the dataset'} has no column {absent}, which other files have.")
        if not isinstance(fragment, ds.ParquetFileFragment):
            yield Piece(fragment, schema, fragment.count_rows(), where)
            return
        groups: list[int] = []
        rows = 0
        row_groups = _row_groups(fragment)
        for group in row_groups:
            groups.append(group.id)
            rows += group.num_rows
            if rows >= _PARTITION_ROWS or group is row_groups[-1]:
                # a fragment that travels light, without the statistics of all columns
                some = fragment.format.make_fragment(
                    fragment.path, fragment.filesystem, fragment.partition_expression, row_groups=groups
                )
                yield Piece(some, schema, rows, where)
                groups, rows = [], 0
    except _ERRORS as error:
        raise unreadable(where, error) from error


def _row_groups(fragment: Any) -> list[Any]:
    """Return the row groups of a Parquet fragment in the order of the file: Arrow may list 6, 7, 8 as 8, 6, 7."""
    return sorted(fragment.row_groups, key=lambda group: group.id)


def _as_declared(table: pa.Table, schema: pa.Schema, fixed: dict[str, Any], where: str) -> pa.Table:
    """Add the columns that folder names hold, and bring all into the order and the types of the dataset.

    Numbers may differ in type from file to file: a column of integers with gaps is stored as floats.
    """
    for name in schema.names:
        if name in fixed:
            value = pa.scalar(fixed[name]).cast(schema.field(name).type)
            table = table.append_column(name, pa.repeat(value, table.num_rows))
    table = table.select(schema.names)
    for i, (own, declared) in enumerate(zip(table.schema, schema, strict=True)):
        if own.type == declared.type or (_is_number(own.type) and _is_number(declared.type)):
            continue
        try:
            table = table.set_column(i, declared, table.column(i).cast(declared.type))
        except pa.ArrowException:
            raise ValueError(
                f"{where} has column {own.name!r} with type {own.type}, but in other files it is {declared.type}."
            ) from None
    return table


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _first_bad(path: Path) -> str:
    """Name the file that cannot be opened."""
    files = [path] if path.is_file() else sorted(path.rglob("*.parquet"))
    for file in files:
        try:
            ds.dataset(file, format="parquet")
        except _ERRORS:
            return str(file)
    return str(path)
