"""How fast a portfolio and reports come in, step by step, against writing the same bytes plainly to the same disk.

Each step is timed for every part; the table has the fastest part, which others on the machine disturb least, and the
total of all parts. Usage:

    python benchmarks/ingest.py [--rows 5000000] [--folder FOLDER]

Results go to benchmarks/results/ingest.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from fairpremium.parties import Feature, PortfolioSpec
from fairpremium.parties._blobs import BlobStore
from fairpremium.parties._parts import (
    Checker,
    check_portfolio_part,
    check_report_part,
    write_portfolio_part,
    write_report_part,
)
from fairpremium.parties._runs import match, merge_runs, open_run, plan_merge, sort_run, write_run
from fairpremium.privacy import RandomizedResponse

RESULTS = Path(__file__).resolve().parent / "results"
FEATURES = 20
PORTFOLIO_ROWS, REPORT_ROWS = 500_000, 1_000_000
CHUNK = 1 << 18
T = TypeVar("T")


class Clock:
    """Seconds per step and part, and bytes per part."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.bytes: list[int] = []

    def time(self, step: str, work: Callable[[], T]) -> T:
        start = time.perf_counter()
        result = work()
        self.seconds[step].append(time.perf_counter() - start)
        return result

    def table(self) -> dict[str, Any]:
        """MB/s of the fastest part and of all parts, and the share of plain writing."""
        sizes = np.array(self.bytes) / 1e6
        plain = np.array(self.seconds["plain write and fsync"])
        rows = {}
        for step, seconds in self.seconds.items():
            times = np.array(seconds)
            rows[step] = {
                "fastest_mb_per_s": round(float((sizes / times).max())),
                "all_mb_per_s": round(float(sizes.sum() / times.sum())),
                "fastest_to_plain": round(float(plain.min() / times.min()), 3),
                "all_to_plain": round(float(plain.sum() / times.sum()), 3),
            }
        return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--folder", type=Path, help="where to write; a temporary folder by default")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder, Checker(processes=1) as checker:
        store = BlobStore(Path(folder) / "files")
        result = {
            "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores",
            "rows": args.rows,
            "portfolio": portfolio(store, checker, args.rows, Path(folder)),
            "reports": reports(store, checker, args.rows, Path(folder)),
        }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "ingest.json").write_text(json.dumps(result, indent=1) + "\n")
    for part in ("portfolio", "reports"):
        print(part)
        for step, row in result[part]["steps"].items():
            print(
                f"  {step:28s} fastest {row['fastest_mb_per_s']:6d} MB/s ({row['fastest_to_plain']:7.3f} of plain)"
                f"   all {row['all_mb_per_s']:6d} MB/s ({row['all_to_plain']:7.3f})"
            )
        print("  " + ", ".join(f"{k}: {v}" for k, v in result[part].items() if k != "steps"))


def portfolio(store: BlobStore, checker: Checker, rows: int, folder: Path) -> dict[str, Any]:
    """Parts of 20 features, key and loss: rounded numbers and flags as portfolios have them, and continuous ones."""
    rng = np.random.default_rng(0)
    names = [f"x{j}" for j in range(FEATURES)]
    spec = PortfolioSpec(study="s", features=tuple(Feature(name=name) for name in names), outcome="loss")
    clock = Clock()
    for start in range(0, rows, PORTFOLIO_ROWS):
        count = min(PORTFOLIO_ROWS, rows - start)
        columns = [rng.standard_normal(count, dtype=np.float32) for _ in names]
        keys = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), count, [None, pa.py_buffer(rng.bytes(16 * count))])
        table = pa.table([keys, *columns, rng.gamma(1.0, 1000.0, count)], names=["key", *names, "loss"])
        body = clock.time("client: Parquet", lambda table=table: write_portfolio_part(table, spec))
        clock.bytes.append(len(body))
        clock.time("plain write and fsync", lambda body=body: write_plainly(folder / "plain", body))

        def server(body: bytes = body) -> None:
            with store.receive() as incoming:
                clock.time("receive", lambda: write_chunks(incoming, body))
                with incoming.syncing():
                    clock.time("check", lambda: check_portfolio_part(incoming.path, spec, checker=checker))
                clock.time("keep", incoming.keep)

        clock.time("server in all", server)
    return {"steps": clock.table(), "bytes": sum(clock.bytes)}


def reports(store: BlobStore, checker: Checker, rows: int, folder: Path) -> dict[str, Any]:
    """Batches of keys and reports; every batch is compared with all that came before it."""
    channel = RandomizedResponse(["F", "M"], keep=0.8)
    keys = np.frombuffer(os.urandom(16 * rows), dtype="V16")
    values = np.where(np.frombuffer(os.urandom(rows), dtype=np.uint8) < 128, "F", "M")
    clock = Clock()
    alive: dict[str, int] = {}
    merging = 0.0
    for start in range(0, rows, REPORT_ROWS):
        some = slice(start, start + REPORT_ROWS)
        body = clock.time("client: Parquet", lambda some=some: write_report_part(keys[some], values[some], channel))
        clock.bytes.append(len(body))
        clock.time("plain write and fsync", lambda body=body: write_plainly(folder / "plain", body))

        def server(body: bytes = body) -> None:
            with store.receive() as incoming:
                clock.time("receive", lambda: write_chunks(incoming, body))
                found, codes = clock.time(
                    "check",
                    lambda: check_report_part(incoming.path, channel.reports, channel.descriptor(), checker=checker),
                )
            runs = [open_run(store.path(digest)) for digest in alive]
            known = clock.time("compare", lambda: match(found, runs))
            assert (known < 0).all()
            run = clock.time("sort", lambda: sort_run(found, codes))
            digest = clock.time("write run", lambda: write_run(store, run))
            alive[digest] = len(run)

        clock.time("server in all", server)
        begin = time.perf_counter()
        while chosen := plan_merge(list(alive.items())):
            merged = merge_runs(store, [open_run(store.path(digest)) for digest in chosen])
            alive[merged] = sum(alive.pop(digest) for digest in chosen)
        merging += time.perf_counter() - begin
    begin = time.perf_counter()
    codes = match(keys, [open_run(store.path(digest)) for digest in alive])
    joining = time.perf_counter() - begin
    assert np.array_equal(codes, (values == "M").astype(np.int32))
    return {
        "steps": clock.table(),
        "bytes": sum(clock.bytes),
        "runs": len(alive),
        "seconds_merging": round(merging, 3),
        "seconds_joining_all_rows": round(joining, 3),
    }


def write_plainly(path: Path, body: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    view = memoryview(body)
    while view:
        view = view[os.write(file, view) :]
    os.fsync(file)
    os.close(file)


def write_chunks(incoming: Any, body: bytes) -> None:
    for start in range(0, len(body), CHUNK):
        incoming.write(body[start : start + CHUNK])


if __name__ == "__main__":
    main()
