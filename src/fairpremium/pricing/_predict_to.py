"""Premiums of a source, written as Parquet piece by piece."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fairpremium.blocks import Job, Source, open_source
from fairpremium.blocks import source_kind as kind_of
from fairpremium.pricing._reader import features_of
from fairpremium.pricing._sources import RawPiece, RawReader

_OWN = ("premium", "low", "high")


class Priced(NamedTuple):
    """What was written: the number of rows, and mean, smallest and largest premium."""

    rows: int
    mean: float
    smallest: float
    largest: float


@dataclass(frozen=True)
class Pricing:
    """From a table with features to one with premiums; it travels to the workers."""

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
class _WritePart(Job):
    """Price a partition and write it to a file of its own, which appears when it is complete."""

    path: str = ""

    def __call__(self, batches: Any) -> Priced | None:
        pricing = self.task.pricing  # type: ignore[attr-defined]
        target = Path(self.path)
        draft = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        try:
            result = write_tables(draft, (pricing(table) for table in batches))
            if result is not None:
                draft.replace(target)
            return result
        finally:
            draft.unlink(missing_ok=True)


def predict_to(
    prices: Any, source: Any, path: str | os.PathLike[str], columns: Sequence[str], level: float | None, unseen: str
) -> Priced:
    """Write the premiums of a source; see `DiscriminationFreePricer.predict_to`."""
    pricing = Pricing(prices, unseen, tuple(columns), level)
    target = Path(path)
    if kind_of(source) is None:
        raise TypeError(
            f"Got a source of type {type(source).__name__}, but expected a Parquet file or folder, a pyarrow.dataset, "
            "a Dask or a Spark data frame; `predict` prices a table in memory."
        )
    if kind_of(source) == "spark":
        return _spark(pricing, source, os.fspath(path))
    single = target.suffix == ".parquet"
    _check_target(target, source, single)
    with open_source(source) as opened:
        needed = _needed(pricing, opened.names)
        if single:
            return _one_file(pricing, opened, needed, target)
        target.mkdir(parents=True, exist_ok=True)
        job = _WritePart(RawReader(needed), _Return(pricing), 0, 0, None, None)
        jobs = [
            replace(job, path=str(target.absolute() / f"part-{i:06}.parquet")) if n else None
            for i, n in enumerate(opened.counts)
        ]
        return _total(result for result in opened.run(jobs, needed) if result is not None)


def write_tables(path: Path, tables: Iterator[pa.Table]) -> Priced | None:
    """Write tables one after the other into a Parquet file; None if there are none."""
    found: list[Priced] = []
    writer = None
    try:
        for table in tables:
            writer = writer or pq.ParquetWriter(path, table.schema)
            writer.write_table(table)
            found.append(_summary(table))
    finally:
        if writer is not None:
            writer.close()
    return _total(iter(found)) if found else None


def _one_file(pricing: Pricing, source: Source, needed: tuple[str, ...], target: Path) -> Priced:
    job = Job(RawReader(needed), _Return(pricing), 0, 0, None, None)
    tables = (
        table for found in source.run([job if n else None for n in source.counts], needed) for table in found or ()
    )
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        result = write_tables(draft, tables)
        assert result is not None  # a source without rows is refused
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    return result


def _spark(pricing: Pricing, frame: Any, target: str) -> Priced:
    """Let the executors write, wherever Spark may write to."""
    from pyspark.sql import functions
    from pyspark.sql.types import DoubleType, StructField, StructType

    needed = _needed(pricing, tuple(frame.columns))
    own = [StructField(name, DoubleType()) for name in (_OWN if pricing.level is not None else _OWN[:1])]
    schema = StructType([*(frame.schema[name] for name in pricing.columns), *own])
    quoted = ["`" + name.replace("`", "``") + "`" for name in needed]
    frame.select(*quoted).mapInArrow(_SparkPricing(pricing), schema).write.mode("error").parquet(target)
    written = frame.sparkSession.read.parquet(target)
    row = written.agg(*(getattr(functions, name)("premium") for name in ("count", "avg", "min", "max"))).first()
    return Priced(*row)


@dataclass(frozen=True)
class _SparkPricing:
    pricing: Pricing

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if batch.num_rows:
                yield from self.pricing(pa.Table.from_batches([batch])).to_batches()


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


def _summary(table: pa.Table) -> Priced:
    premium = table.column("premium").to_numpy()
    return Priced(len(premium), float(np.mean(premium)), float(premium.min()), float(premium.max()))


def _total(found: Iterator[Priced]) -> Priced:
    every = list(found)
    rows = sum(p.rows for p in every)
    mean = sum(p.mean * (p.rows / rows) for p in every)
    return Priced(rows, float(mean), min(p.smallest for p in every), max(p.largest for p in every))
