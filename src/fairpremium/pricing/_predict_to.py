"""Premiums of a source, written as Parquet piece by piece."""

import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fairpremium.blocks import Job, open_source, source_kind
from fairpremium.pricing._source_portfolio import RawPiece, RawReader
from fairpremium.pricing._source_reader import features_of
from fairpremium.progress import tell

_OWN = ("premium", "low", "high")


class Priced(NamedTuple):
    """What was written: the number of rows, and mean, smallest and largest premium."""

    rows: int
    mean: float
    smallest: float
    largest: float


@dataclass(frozen=True)
class Pricing:
    """From a table with features to one with premiums; it is sent to the workers."""

    prices: Any
    unseen: str
    columns: tuple[str, ...]
    level: float | None

    def __call__(self, table: pa.Table) -> pa.Table:
        """Price some rows."""
        matrix = features_of(table, self.prices.design, self.unseen)
        found = {name: table.column(name) for name in self.columns}
        found["premium"] = self.prices.premium(matrix)
        if self.level is not None:
            found["low"], found["high"] = self.prices.interval(matrix, self.level)
        return pa.table(found)

    def price_batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Price batch by batch, as Spark's executors do."""
        for batch in batches:
            if batch.num_rows:
                yield from self(pa.Table.from_batches([batch])).to_batches()


@dataclass(frozen=True)
class _Return:
    """Send the priced rows back."""

    pricing: Pricing

    def __call__(self, rows: Any, start: int) -> list[pa.Table]:
        assert isinstance(rows, RawPiece)
        return [self.pricing(rows.table)]

    def join(self, a: list[pa.Table], b: list[pa.Table]) -> list[pa.Table]:
        return a + b


@dataclass(frozen=True)
class _WriteFile(Job):
    """Price a partition and write it to a file of its own, which appears when it is complete."""

    path: str = ""

    def __call__(self, batches: Any) -> Priced | None:
        pricing = self.task.pricing  # type: ignore[attr-defined]
        return write_tables(Path(self.path), (pricing(table) for table in batches))


def predict_to(
    prices: Any, source: Any, path: str | os.PathLike[str], columns: Sequence[str], level: float | None, unseen: str
) -> Priced:
    """Write the premiums of a source; see `DiscriminationFreePricer.predict_to`."""
    pricing = Pricing(prices, unseen, tuple(columns), level)
    target = Path(path)
    if source_kind(source) is None:
        raise TypeError(
            f"Got a source of type {type(source).__name__}, but expected a Parquet file or folder, a pyarrow.dataset, "
            "a Dask or a Spark data frame; `predict` prices a table in memory."
        )
    if source_kind(source) == "spark":
        return _spark(pricing, source, os.fspath(path))
    single = target.suffix == ".parquet"
    _check_target(target, source, single)
    with open_source(source) as opened:
        needed = _needed(pricing, opened.names)
        if single:
            job = Job(RawReader(needed), _Return(pricing), 0, None)
            pieces = _told(opened.run([job if n else None for n in opened.counts], needed), opened.counts)
            result = write_tables(target, (table for tables in pieces for table in tables or ()))
            assert result is not None  # a source without rows is refused
            return result
        made = not target.exists()
        target.mkdir(parents=True, exist_ok=True)
        folder = target.absolute()
        jobs: list[_WriteFile | None] = [
            _WriteFile(RawReader(needed), _Return(pricing), 0, None, str(folder / f"part-{i:06}.parquet"))
            if n
            else None
            for i, n in enumerate(opened.counts)
        ]
        try:
            return _total([found for found in _told(opened.run(jobs, needed), opened.counts) if found is not None])
        except BaseException:
            opened.close()  # workers end before their files are removed
            for each in jobs:
                if each is not None:
                    Path(each.path).unlink(missing_ok=True)
            if made:
                with suppress(OSError):
                    folder.rmdir()
            raise


def _told(results: Iterator[Any], counts: Sequence[int]) -> Iterator[Any]:
    """Say how many rows are priced, as the results of the partitions come in."""
    done, total = 0, sum(counts)
    tell(0.0, f"0 of {total:,} rows")
    for count, result in zip(filter(None, counts), results, strict=True):
        yield result
        done += count
        tell(done / total, f"{done:,} of {total:,} rows")


def write_tables(target: Path, tables: Iterator[pa.Table]) -> Priced | None:
    """Write tables into a Parquet file, which appears when it is complete; None if there are no tables."""
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    found: list[Priced] = []
    writer = None
    try:
        try:
            for table in tables:
                writer = writer or pq.ParquetWriter(draft, table.schema)
                writer.write_table(table)
                premium = table.column("premium").to_numpy()
                found.append(Priced(len(premium), float(np.mean(premium)), float(premium.min()), float(premium.max())))
        finally:
            if writer is not None:
                writer.close()
        if found:
            draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    return _total(found) if found else None


def _spark(pricing: Pricing, frame: Any, target: str) -> Priced:
    """Let the executors write, wherever Spark may write to."""
    from pyspark.sql import functions
    from pyspark.sql.types import DoubleType, StructField, StructType

    needed = _needed(pricing, tuple(frame.columns))
    own = [StructField(name, DoubleType()) for name in (_OWN if pricing.level is not None else _OWN[:1])]
    schema = StructType([*(frame.schema[name] for name in pricing.columns), *own])
    quoted = ["`" + name.replace("`", "``") + "`" for name in needed]
    frame.select(*quoted).mapInArrow(pricing.price_batches, schema).write.mode("error").parquet(target)
    written = frame.sparkSession.read.parquet(target)
    row = written.agg(*(getattr(functions, name)("premium") for name in ("count", "avg", "min", "max"))).first()
    return Priced(*row)


def _needed(pricing: Pricing, names: tuple[str, ...]) -> tuple[str, ...]:
    design = pricing.prices.design
    if not design.named:
        raise ValueError("The model was fitted on an array without column names, so columns cannot be found by name.")
    wanted = tuple(dict.fromkeys([*design.names, *pricing.columns]))
    absent = [name for name in wanted if name not in names]
    if absent:
        raise ValueError(f"Got a source without the columns {absent}; its columns are {list(names)}.")
    taken = [name for name in pricing.columns if name in _OWN]
    if taken:
        raise ValueError(f"Got columns={list(pricing.columns)}, of which {taken} are names of the output's own.")
    return wanted


def _check_target(target: Path, source: Any, single: bool) -> None:
    if not target.absolute().parent.is_dir():
        raise ValueError(f"There is no folder {target.parent}. Create it first, or choose another output.")
    if single:
        if target.is_dir():
            raise ValueError(f"{target} is a folder, but expected the name of a file.")
        if isinstance(source, str | os.PathLike) and target.exists() and target.samefile(source):
            raise ValueError(f"The output {target} would overwrite the source. Choose another name.")
    elif target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ValueError(f"{target} exists already. Choose another name, or remove it.")


def _total(found: list[Priced]) -> Priced:
    rows = sum(p.rows for p in found)
    mean = sum(p.mean * (p.rows / rows) for p in found)
    return Priced(rows, float(mean), min(p.smallest for p in found), max(p.largest for p in found))
