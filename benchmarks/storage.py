"""How fast reports are stored as their number grows: sorted files, a SQLite table, a PostgreSQL table.

Batches of random keys arrive in order of their keys, one after the other. Each store takes a batch whole, on disk, and
refuses one that has another report for a known key. The files are those of the service: `ThirdParty.put_report_batch`
with its checks and its compaction. A table has the primary key (source, key). Turning a batch into Python rows (SQLite)
or into COPY's binary form (PostgreSQL) is not timed. Usage:

    python benchmarks/storage.py [--rows 50000000] [--batch 500000] [--seconds 360] [--postgres URL] [--quick]

Without an address PostgreSQL is left out. Its database must be empty; the table of reports stays in it. A store stops
at `--rows` or after `--seconds`. Results go to benchmarks/results/storage.json; with --quick only to the screen.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from fairpremium.parties import KnownChannel, StudySpec
from fairpremium.parties.protocol import Problem
from fairpremium.parties.protocol._report_batch import write_batches
from fairpremium.parties.service import Party, ThirdParty
from fairpremium.privacy import RandomizedResponse

RESULTS = Path(__file__).resolve().parent / "results"
CHANNEL = RandomizedResponse(["F", "M"], keep=0.8)
STEPS = 10  # sizes of the table at which the rate is told
CACHE_MIB = 1024  # that SQLite may use for its pages
WANTED = 200_000  # reports per second


class Store(Protocol):
    """Takes batches."""

    def prepare(self, keys: Any, codes: Any) -> Any:
        """Bring a batch into the form in which it arrives."""

    def put(self, batch: Any) -> None:
        """Take a batch, or raise."""

    def size(self) -> int:
        """Bytes on disk."""


class ConflictError(Exception):
    """A key has another report."""


class Files:
    """The files of the service."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.party = ThirdParty(folder)
        operator = Party("op", "operator")
        attribute = KnownChannel(channel=CHANNEL.descriptor())
        spec = StudySpec(title="speed", attribute=attribute, collectors=("app",), insurers=("acme",))
        self.party.put_study(operator, "speed", spec)
        self.party.open_study(operator, "speed")
        self.sent = 0

    def prepare(self, keys: Any, codes: Any) -> bytes:
        labels = np.array(CHANNEL.reports, dtype=object)[codes]
        return next(iter(write_batches(keys, labels, CHANNEL.reports, CHANNEL, batches=1)))

    def put(self, batch: bytes) -> None:
        try:
            self.party.put_report_batch(Party("app", "collector"), "speed", self.sent, batch)
        except Problem as problem:
            raise ConflictError if problem.code == "report-conflict" else problem from None
        self.sent += 1

    def size(self) -> int:
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())


class SQLiteTable:
    """A table that is its own index."""

    def __init__(self, folder: Path):
        folder.mkdir()
        self.path = folder / "reports.sqlite"
        self.connection = sqlite3.connect(self.path, isolation_level=None)
        for pragma in ("journal_mode=WAL", "synchronous=FULL", f"cache_size={-CACHE_MIB * 1024}"):
            self.connection.execute(f"PRAGMA {pragma}")
        self.connection.execute(
            "CREATE TABLE reports (source INTEGER, key BLOB, code INTEGER NOT NULL, PRIMARY KEY (source, key)) "
            "WITHOUT ROWID"
        )

    def prepare(self, keys: Any, codes: Any) -> list[tuple[int, bytes, int]]:
        return [(1, bytes(key), code) for key, code in zip(keys, codes.tolist(), strict=True)]

    def put(self, batch: list[tuple[int, bytes, int]]) -> None:
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            self.connection.executemany(  # NULL is not allowed: another report for a known key breaks off
                "INSERT INTO reports VALUES (?, ?, ?) "
                "ON CONFLICT DO UPDATE SET code = NULL WHERE code <> excluded.code",
                batch,
            )
            self.connection.execute("COMMIT")
        except sqlite3.IntegrityError:
            self.connection.execute("ROLLBACK")
            raise ConflictError from None

    def size(self) -> int:
        return sum(path.stat().st_size for path in self.path.parent.iterdir())


class PostgresTable:
    """A table with an index, filled by COPY through another one."""

    def __init__(self, url: str):
        import psycopg

        self.error = psycopg.errors.NotNullViolation
        self.connection = psycopg.connect(url)
        self.connection.execute(
            "CREATE TABLE reports (source int, key bytea, code smallint NOT NULL, PRIMARY KEY (source, key))"
        )
        self.connection.execute("CREATE TEMPORARY TABLE arriving (source int, key bytea, code smallint)")
        self.connection.commit()

    def prepare(self, keys: Any, codes: Any) -> bytes:
        row = np.dtype(
            [("n", ">i2"), ("a", ">i4"), ("source", ">i4"), ("b", ">i4"), ("key", "V16"), ("c", ">i4"), ("code", ">i2")]
        )
        rows = np.empty(len(keys), dtype=row)
        rows["n"], rows["a"], rows["source"], rows["b"], rows["c"] = 3, 4, 1, 16, 2
        rows["key"], rows["code"] = keys, codes
        return b"PGCOPY\n\xff\r\n\0" + bytes(8) + rows.tobytes() + b"\xff\xff"

    def put(self, batch: bytes) -> None:
        try:
            with self.connection.transaction(), self.connection.cursor() as cursor:
                cursor.execute("TRUNCATE arriving")
                with cursor.copy("COPY arriving FROM STDIN (FORMAT BINARY)") as copy:
                    source = io.BytesIO(batch)
                    while piece := source.read(1 << 20):
                        copy.write(piece)
                cursor.execute(
                    "INSERT INTO reports SELECT * FROM arriving ON CONFLICT (source, key) "
                    "DO UPDATE SET code = NULL WHERE reports.code <> excluded.code"
                )
        except self.error:
            raise ConflictError from None

    def size(self) -> int:
        found = self.connection.execute("SELECT pg_total_relation_size('reports')").fetchone()
        self.connection.rollback()
        return int(found[0]) if found else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=50_000_000, help="reports in the end")
    parser.add_argument("--batch", type=int, default=500_000, help="reports of a batch")
    parser.add_argument("--seconds", type=float, default=360.0, help="how long each store may take")
    parser.add_argument("--folder", type=Path, help="where to write; a temporary folder by default")
    parser.add_argument("--postgres", help="address of an empty database, such as postgresql://user@host/name")
    parser.add_argument("--quick", action="store_true", help="a few seconds in all; nothing is written")
    args = parser.parse_args()
    if args.quick:
        args.rows, args.batch = 20_000, 2_000
    result: dict[str, Any] = {
        "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores, CPython {platform.python_version()}",
        "batch": args.batch,
        "stores": {},
    }
    for name, store in stores(args.folder, args.postgres):
        result["stores"][name] = grow(store, args.rows, args.batch, args.seconds)
        print(name, json.dumps(result["stores"][name]), file=sys.stderr, flush=True)
    print(table(result))
    if not args.quick:
        (RESULTS / "storage.json").write_text(json.dumps(result, indent=1) + "\n")


def stores(folder: Path | None, postgres: str | None) -> Iterator[tuple[str, Store]]:
    """One store after the other; nothing is left of the one before."""
    for name, kind in (("files", Files), ("SQLite table", SQLiteTable)):
        with _temporary(folder) as home:
            yield name, kind(home / "store")
    if postgres:
        yield "PostgreSQL table", PostgresTable(postgres)


@contextmanager
def _temporary(folder: Path | None) -> Iterator[Path]:
    home = Path(tempfile.mkdtemp(dir=folder))
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


def grow(store: Store, rows: int, size: int, seconds: float) -> dict[str, Any]:
    """Send batches until there are enough reports or the time is over; the last one must be refused."""
    rng = np.random.default_rng(1)
    until, taken = time.monotonic() + seconds, []
    while sum(n for n, _ in taken) < rows and time.monotonic() < until:
        words = rng.integers(0, 2**64, (size, 2), dtype=np.uint64).astype(">u8")
        words = words[np.argsort(words[:, 0], kind="stable")]  # two that begin alike would be a wonder
        keys = words.view("V16").ravel()
        codes = rng.integers(0, 2, size)
        batch = store.prepare(keys, codes)
        begin = time.perf_counter()
        store.put(batch)
        taken.append((size, time.perf_counter() - begin))
    try:
        store.put(store.prepare(keys, 1 - codes))
    except ConflictError:
        pass
    else:
        raise AssertionError("a store took another report for a known key")
    return {"steps": _steps(taken), "bytes": store.size()}


def _steps(taken: list[tuple[int, float]]) -> list[dict[str, float]]:
    """Rows at the end of each tenth of the batches, and rows per second in it."""
    found, total = [], 0
    for piece in np.array_split(np.array(taken), min(STEPS, len(taken))):
        total += int(piece[:, 0].sum())
        found.append({"rows": total, "per_second": round(piece[:, 0].sum() / piece[:, 1].sum())})
    return found


def table(result: dict[str, Any]) -> str:
    """What was measured, as Markdown."""
    lines = ["| store | reports stored | reports per second | bytes per report |", "| --- | --- | --- | --- |"]
    for name, found in result["stores"].items():
        each = found["bytes"] / found["steps"][-1]["rows"]
        for step in found["steps"]:
            lines.append(f"| {name} | {step['rows']:,} | {step['per_second']:,} | {each:.0f} |")
    return "\n".join([f"{result['machine']}; batches of {result['batch']:,}; wanted: {WANTED:,} a second", "", *lines])


if __name__ == "__main__":
    main()
