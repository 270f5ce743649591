"""Time, peak memory and passes of fits of 10^5 to 10^8 rows, from Parquet files that the benchmark makes.

Every fit runs in a process of its own, whose memory (with its workers') is watched; what takes less than half a minute
runs up to three times, and the fastest counts. What is compared runs in the same run on the same files. Usage:

    python benchmarks/scale.py [--largest 100000000] [--files FOLDER]
        [--sections squared,steps,poisson,others,peers,engines]

Results go to benchmarks/results/scale.json, the table and the charts to scale.md and scale-*.svg beside it; sections
that are not run keep their results.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
RESULTS = HERE / "results"
FEATURES = 20
GROUPS = {2: ["A", "B"], 4: ["A", "B", "C", "D"]}
KEEP = {2: 0.8, 4: 0.7}
FILE_ROWS = 1_000_000
COLUMNS = [f"x{j}" for j in range(FEATURES)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--largest", type=float, default=1e8)
    parser.add_argument("--sections", default="squared,steps,poisson,others,peers,engines")
    parser.add_argument("--json", type=Path, default=RESULTS / "scale.json")
    parser.add_argument(
        "--files", type=Path, help="a folder for the files that stays; by default it is a temporary one"
    )
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        child(json.loads(args.child))
        return
    result: dict[str, Any] = json.loads(args.json.read_text()) if args.json.exists() else {}
    result["machine"] = (
        f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores, {psutil.virtual_memory().total / 2**30:.0f} GiB, "
        f"{platform.python_implementation()} {platform.python_version()}"
    )
    largest, run = int(args.largest), time.strftime("%Y-%m-%d %H:%M")
    result.pop("runs", None)
    with tempfile.TemporaryDirectory(prefix="fairpremium-scale-") as folder:
        files = Files(args.files or Path(folder))
        for section in args.sections.split(","):
            print(f"-- {section}", flush=True)
            found = SECTIONS[section](files, largest)
            for row in found if isinstance(found, list) else []:
                row["run"] = run
            result[section] = found
            args.json.write_text(json.dumps(result, indent=2) + "\n")
    write_report(result, args.json)


# -- rows ------------------------------------------------------------------------------------------------------


class Files:
    """Folders of Parquet files of any number of rows; a smaller one is the beginning of a larger one."""

    def __init__(self, folder: Path):
        self.folder = folder

    def of(self, rows: int) -> Path:
        path = self.folder / f"rows-{rows}"
        if path.exists():
            return path
        path.mkdir(parents=True)
        for i in range(max(1, rows // FILE_ROWS)):
            size = min(rows, FILE_ROWS)
            whole = self.folder / f"file-{i:04}-{size}.parquet"
            if not whole.exists():
                pq.write_table(make_table(size, i), whole, row_group_size=262_144, use_dictionary=["s2", "s4"])
            (path / f"part-{i:04}.parquet").hardlink_to(whole)
        return path


def make_table(rows: int, seed: int) -> pa.Table:
    """Float32 features, a loss, a claim frequency with its exposure, and reports of two and of four groups."""
    rng = np.random.default_rng([7, seed])
    X = rng.standard_normal((FEATURES, rows), dtype=np.float32)
    group = rng.choice(4, size=rows, p=[0.4, 0.3, 0.2, 0.1])
    effect = np.array([0.0, 0.3, -0.2, 0.5])[group]
    eta = 0.1 * X[0] - 0.1 * X[1] + effect
    exposure = rng.uniform(0.2, 1.0, size=rows)
    columns: dict[str, Any] = {name: X[j] for j, name in enumerate(COLUMNS)}
    columns["loss"] = (eta + rng.standard_normal(rows)).astype(np.float32)
    columns["claims"] = (rng.poisson(exposure * np.exp(eta - 1.5)) / exposure).astype(np.float32)
    columns["exposure"] = exposure.astype(np.float32)
    for K in (2, 4):
        d = group % K
        lie = rng.random(rows) >= KEEP[K]
        s = np.where(lie, (d + rng.integers(1, K, size=rows)) % K, d).astype(np.int8)
        columns[f"s{K}"] = pa.DictionaryArray.from_arrays(s, GROUPS[K])
    return pa.table(columns)


# -- one measurement, in a process of its own ------------------------------------------------------------------


def measure(**what: Any) -> dict[str, Any]:
    """Run one piece of work in a new process; watch its memory and that of its workers."""
    command = [sys.executable, __file__, "--child", json.dumps(what, default=str)]
    env = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONWARNINGS": "ignore"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
    peak = Peak(process.pid)
    out, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"{what} failed")
    found: dict[str, Any] = {**what, **json.loads(out.splitlines()[-1]), "peak_gib": peak.stop() / 2**30}
    found["cpu_seconds"] = sum(peak.cpu.values())
    found.pop("path", None)
    found.pop("sample", None)
    print("   ", {k: round(v, 3) if isinstance(v, float) else v for k, v in found.items()}, flush=True)
    return found


class Peak:
    """The largest memory of a process and its descendants; what they share, such as libraries, counts once."""

    def __init__(self, pid: int):
        self.process, self.largest, self.done = psutil.Process(pid), 0, False
        self.cpu: dict[int, float] = {}  # processor time of each process when it was last seen
        self.thread = threading.Thread(target=self._watch, daemon=True)
        self.thread.start()

    def _watch(self) -> None:
        while not self.done:
            total = 0
            try:
                for process in [self.process, *self.process.children(recursive=True)]:
                    try:
                        total += process.memory_full_info().pss
                        times = process.cpu_times()
                        self.cpu[process.pid] = times.user + times.system
                    except psutil.Error:
                        continue
            except psutil.Error:
                return
            self.largest = max(self.largest, total)
            time.sleep(0.05)

    def stop(self) -> int:
        self.done = True
        self.thread.join()
        return self.largest


def child(what: dict[str, Any]) -> None:
    works = {
        "fit": child_fit,
        "gram": child_gram,
        "steps": child_steps,
        "engine": child_engine,
        "predict": child_predict,
    }
    print(json.dumps(works[what["work"]](what)))


def pricer(what: dict[str, Any]) -> Any:
    from fairpremium import DiscriminationFreePricer, RandomizedResponse

    K = what["groups"]
    return DiscriminationFreePricer(
        family=what["family"],
        channel=RandomizedResponse(GROUPS[K], keep=KEEP[K]),
        correction=what["correction"],
        pooling=what["pooling"],
        intervals=what.get("intervals", False),
        random_state=0,
    )


def roles(what: dict[str, Any]) -> dict[str, Any]:
    poisson = what["family"] == "poisson"
    return {
        "y": "claims" if poisson else "loss",
        "sensitive": f"s{what['groups']}",
        "sample_weight": "exposure" if poisson else None,
        "features": COLUMNS,
    }


def child_fit(what: dict[str, Any]) -> dict[str, Any]:
    from fairpremium.blocks._files import FileSource

    start_workers()
    seen = [0]
    run = FileSource.run

    def counted(self: Any, jobs: Any, columns: Any) -> Any:
        seen[0] += sum(piece.rows for piece, job in zip(self.pieces, jobs, strict=True) if job is not None)
        return run(self, jobs, columns)

    FileSource.run = counted  # type: ignore[method-assign]
    seconds, fits = fastest(lambda: pricer(what).fit(what["path"], **roles(what)))
    return {"seconds": seconds, "passes": seen[0] / what["rows"] / len(fits), "chosen": fits[0].correction_}


def child_gram(what: dict[str, Any]) -> dict[str, Any]:
    from _scale_work import Gram, PlainReader

    from fairpremium.blocks import Stream, open_source

    K = what["groups"]
    reader = PlainReader((*COLUMNS, "loss"), f"s{K}" if K > 1 else None)

    def bare() -> None:
        with open_source(what["path"]) as source:
            gram = Gram(K)
            Stream(source, reader, source.counts).reduce(gram, block_rows=gram.block_rows)

    start_workers()
    return {"seconds": fastest(bare)[0]}


def child_steps(what: dict[str, Any]) -> dict[str, Any]:
    import pyarrow.dataset as ds
    from _scale_work import Gram, PlainReader

    from fairpremium.blocks import Job, one_blas_thread
    from fairpremium.blocks._files import FileSource

    source = FileSource(ds.dataset(what["path"]))
    passes: list[tuple[Any, Any]] = []
    run = FileSource.run

    def noted(self: Any, jobs: Any, columns: Any) -> Any:
        passes.append((jobs, columns))
        return run(self, jobs, columns)

    FileSource.run = noted  # type: ignore[method-assign]
    pricer(what).fit(what["path"], **roles(what))
    ((own, own_columns),) = passes  # there is one

    def through(reader: PlainReader, work: Callable[[Any], Any]) -> None:
        for piece in source.pieces:
            for table in piece.batches(reader.columns):
                work(table)

    def multiply(reader: PlainReader, gram: Gram) -> Callable[[Any], Any]:
        def work(table: Any) -> None:
            rows = reader(table)
            rows.reduce_here(gram, 0, len(rows), gram.block_rows)

        return work

    def ours() -> None:
        for piece, job in zip(source.pieces, own, strict=True):
            assert isinstance(job, Job)
            job(piece.batches(own_columns))

    one, reports = PlainReader((*COLUMNS, "loss")), PlainReader((*COLUMNS, "loss"), "s4")
    work = {
        "read x and y": lambda: through(one, len),
        "read, one matrix": lambda: through(one, multiply(one, Gram())),
        "read x, y and the reports": lambda: through(reports, len),
        "read, one matrix for each report": lambda: through(reports, multiply(reports, Gram(what["groups"]))),
        "the pass of a fit": ours,
    }
    least = dict.fromkeys(work, np.inf)
    with one_blas_thread():
        for _ in range(3):  # in turns
            for name, function in work.items():
                begin = time.process_time()
                function()
                least[name] = min(least[name], (time.process_time() - begin) / what["rows"] * 1e9)
    return {"nanoseconds": least}


def fastest(run: Callable[[], Any]) -> tuple[float, list[Any]]:
    """Run up to three times within half a minute; what is short suffers most from whatever else goes on."""
    times: list[float] = []
    found: list[Any] = []
    while not times or (len(times) < 3 and sum(times) < 30):
        begin = time.perf_counter()
        found.append(run())
        times.append(time.perf_counter() - begin)
    return min(times), found


def child_predict(what: dict[str, Any]) -> dict[str, Any]:
    start_workers()
    with tempfile.TemporaryDirectory() as folder:
        fitted = pricer(what).fit(what["sample"], **roles(what))
        begin = time.perf_counter()
        fitted.predict_to(what["path"], Path(folder) / "premiums")
        return {"seconds": time.perf_counter() - begin, "passes": 1.0}


def child_engine(what: dict[str, Any]) -> dict[str, Any]:
    begin = time.perf_counter()
    source, stop = ENGINES[what["engine"]](what["path"])
    started = time.perf_counter() - begin
    times = []
    for _ in range(2):
        begin = time.perf_counter()
        pricer(what).fit(source, **roles(what))
        times.append(time.perf_counter() - begin)
    stop()
    return {"start_seconds": started, "first_seconds": times[0], "second_seconds": times[1]}


def start_workers() -> None:
    """Start what later worker processes are made from, which a session pays for once."""
    from fairpremium.blocks._pool import WorkerPool

    pool = WorkerPool()
    list(pool.map(abs, [(1,), (2,)]))
    pool.close()


def use_pool(path: str) -> tuple[Any, Callable[[], None]]:
    start_workers()
    return path, lambda: None


def use_dask(path: str) -> tuple[Any, Callable[[], None]]:
    import dask.dataframe as dd
    from distributed import Client, LocalCluster

    cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    client = Client(cluster)
    return dd.read_parquet(path), lambda: (client.close(), cluster.close())  # type: ignore[func-returns-value]


def use_spark(path: str) -> tuple[Any, Callable[[], None]]:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = builder.config("spark.driver.memory", "3g").config("spark.driver.host", "127.0.0.1").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session.read.parquet(path).persist(), session.stop  # as who fits twice would do


ENGINES = {"worker processes": use_pool, "Dask, 2 processes": use_dask, "Spark, local[2]": use_spark}


# -- sections --------------------------------------------------------------------------------------------------


def squared(files: Files, largest: int) -> list[dict[str, Any]]:
    """The inverse correction with squared loss, and bare passes: one Gram matrix, or one per report."""
    rows = []
    for n in sizes(1e5, largest):
        path = files.of(n)
        rows += [measure(work="gram", path=path, rows=n, groups=K) for K in (1, 4)]
        for K in (2, 4):
            for pooling in (0, "auto"):
                if n > 10_000_000 and (K, pooling) == (2, "auto"):
                    continue
                what = {"family": "normal", "correction": "inverse", "groups": K, "pooling": pooling}
                rows.append(measure(work="fit", path=path, rows=n, **what))
        rows += [measure(work="gram", path=path, rows=n, groups=K) for K in (1, 4)]
    what = {"family": "normal", "correction": "inverse", "groups": 4, "pooling": 0}
    n = min(largest, 10_000_000)
    rows.append(measure(work="predict", path=files.of(n), sample=files.of(100_000), rows=n, **what))
    return rows


def poisson(files: Files, largest: int) -> list[dict[str, Any]]:
    rows = []
    for correction in ("inverse", "score"):
        for n in sizes(1e5, min(largest, 10_000_000)):
            for K in (2, 4):
                what = {"family": "poisson", "correction": correction, "groups": K, "pooling": 0}
                rows.append(measure(work="fit", path=files.of(n), rows=n, **what))
    return rows


def others(files: Files, largest: int) -> list[dict[str, Any]]:
    rows = []
    for correction in ("likelihood", "posterior", "auto"):
        for n in sizes(1e5, min(largest, 1_000_000)):
            for K in (2, 4):
                what = {"family": "normal", "correction": correction, "groups": K, "pooling": 0}
                rows.append(measure(work="fit", path=files.of(n), rows=n, **what))
    return rows


def peers(files: Files, largest: int) -> dict[str, Any]:
    """One million rows in memory, the same for all."""
    from glum import GeneralizedLinearRegressor
    from insurance_fairness_ldp import KaryRandomisedResponse, LDPDiscriminationFreePrice
    from sklearn.linear_model import Ridge

    n = min(largest, 1_000_000)
    table = pq.read_table(files.of(n))
    X = np.column_stack([table[name].to_numpy() for name in COLUMNS]).astype(np.float64)
    y, claims, exposure = (table[c].to_numpy().astype(np.float64) for c in ("loss", "claims", "exposure"))
    S = np.asarray(table["s4"].to_pandas(), dtype=object)
    squared_loss = {"family": "normal", "correction": "inverse", "groups": 4, "pooling": 0}
    counts = {**squared_loss, "family": "poisson"}

    def peer() -> None:
        mechanism = KaryRandomisedResponse(epsilon=float(np.log(3 * KEEP[4] / (1 - KEEP[4]))), categories=GROUPS[4])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            LDPDiscriminationFreePrice(base_estimator=Ridge(), mechanism=mechanism).fit(X, S, y)

    work = {
        "one pass over X in memory": lambda: X.sum(),
        "one X'X": lambda: X.T @ X,
        "scikit-learn Ridge, one fit": lambda: Ridge(alpha=1e-6).fit(X, y),
        "insurance-fairness-ldp, 4 groups": peer,
        "fairpremium, 4 groups, in memory": lambda: pricer(squared_loss).fit(X, y, sensitive=S),
        "glum, Poisson, one fit of all rows": lambda: GeneralizedLinearRegressor(family="poisson", alpha=0).fit(
            X, claims, sample_weight=exposure
        ),
        "fairpremium, Poisson inverse, 4 groups, in memory": lambda: pricer(counts).fit(
            X, claims, sensitive=S, sample_weight=exposure
        ),
    }
    seconds = dict.fromkeys(work, np.inf)
    for _ in range(3):  # in turns, so that a slow minute of the machine hits all
        for name, run in work.items():
            begin = time.perf_counter()
            run()
            seconds[name] = min(seconds[name], time.perf_counter() - begin)
    return {"rows": n, "seconds": seconds}


def engines(files: Files, largest: int) -> list[dict[str, Any]]:
    n = min(largest, 2_000_000)
    what = {"family": "normal", "correction": "inverse", "groups": 4, "pooling": 0}
    return [measure(work="engine", engine=name, path=files.of(n), rows=n, **what) for name in ENGINES]


def steps(files: Files, largest: int) -> dict[str, Any]:
    """What the steps of a pass take in one process, each with those before it: nanoseconds of processor time a row."""
    n = min(largest, 10_000_000)
    what = {"family": "normal", "correction": "inverse", "groups": 4, "pooling": 0}
    found = measure(work="steps", path=files.of(n), rows=n, **what)
    return {"rows": n, "nanoseconds": found["nanoseconds"]}


SECTIONS: dict[str, Callable[[Files, int], Any]] = {
    "squared": squared,
    "steps": steps,
    "poisson": poisson,
    "others": others,
    "peers": peers,
    "engines": engines,
}


def sizes(first: float, last: int) -> list[int]:
    return [n for n in (10**k for k in range(9)) if first <= n <= last]


# -- the report ------------------------------------------------------------------------------------------------


def write_report(result: dict[str, Any], path: Path) -> None:
    lines = ["# Scale and speed", "", f"p = {FEATURES} features. Machine: {result['machine']}.", ""]
    fits = [row for name in ("squared", "poisson", "others") for row in result.get(name, [])]
    bare: dict[tuple[str, int, int], float] = {}  # a ratio is taken within a run, never across two
    for row in fits:
        if row["work"] == "gram":
            place = row["run"], row["rows"], row["groups"]
            bare[place] = min(row["seconds"], bare.get(place, np.inf))
    if "runs" in result:
        lines += ["Runs, with what else went on. A ratio compares with the fastest bare pass of the same run:", ""]
        lines += [f"- {name}: {text}" for name, text in result["runs"].items()] + [""]
    exponents = {}
    lines += [
        "| work | rows | groups | pooling | run | seconds | to one Gram matrix | to one per report | passes | memory |"
    ]
    lines += ["| --- | ---: | ---: | --- | --- | ---: | ---: | ---: | ---: | ---: |"]
    series: dict[str, list[tuple[int, float, float]]] = {}
    for row in sorted(fits, key=lambda r: (label(r), r["rows"], r.get("groups", 0), str(r.get("pooling")), r["run"])):
        n, seconds = row["rows"], row["seconds"]
        others = [bare.get((row["run"], n, K)) for K in (1, row.get("groups", 1))]
        if row["work"] != "fit" or row["family"] != "normal" or row["correction"] != "inverse":
            others = [None, None]
        ratios = " | ".join("" if other is None else f"{seconds / other:.2f}" for other in others)
        passes = f"{row['passes']:.1f}" if "passes" in row else ""
        lines.append(
            f"| {label(row)} | {n:,} | {row.get('groups', '')} | {row.get('pooling', '')} | {row['run']} "
            f"| {seconds:.2f} | {ratios} | {passes} | {row['peak_gib']:.2f} GiB |"
        )
        if row.get("groups", 4) == 4 or row["work"] == "gram":
            name = f"{label(row)}, pooling {row['pooling']}" if "pooling" in row else label(row)
            if any(label(other) == label(row) and other["run"] != row["run"] for other in fits):
                name += f", run {row['run']}"
            series.setdefault(name, []).append((n, seconds, row["peak_gib"]))
    lines += [
        "",
        "Exponent of time in rows between the two largest sizes of a run, four groups (100,000 rows are read at once):",
        "",
    ]
    for name, points in series.items():
        best: dict[int, float] = {}
        for n, seconds, _ in points:
            best[n] = min(seconds, best.get(n, np.inf))
        if len(best) > 1:
            (n0, t0), (n1, t1) = sorted(best.items())[-2:]
            exponents[name] = float(np.log(t1 / t0) / np.log(n1 / n0))
            lines.append(f"- {name}: {exponents[name]:.2f}")
    if "steps" in result:
        lines += ["", f"## Steps of a pass, {result['steps']['rows']:,} rows, 4 groups, one process", ""]
        lines += ["| step | nanoseconds a row |", "| --- | ---: |"]
        lines += [f"| {name} | {value:.0f} |" for name, value in result["steps"]["nanoseconds"].items()]
    if "engines" in result:
        lines += ["", f"## Engines, {result['engines'][0]['rows']:,} rows, 4 groups, squared loss", ""]
        lines += ["| engine | start | first fit | second fit | peak memory |", "| --- | ---: | ---: | ---: | ---: |"]
        for row in result["engines"]:
            lines.append(
                f"| {row['engine']} | {row['start_seconds']:.1f} s | {row['first_seconds']:.1f} s "
                f"| {row['second_seconds']:.1f} s | {row['peak_gib']:.2f} GiB |"
            )
    if "peers" in result:
        lines += [
            "",
            f"## In memory, {result['peers']['rows']:,} rows",
            "",
            "| work | seconds | ours takes |",
            "| --- | ---: | --- |",
        ]
        seconds = result["peers"]["seconds"]
        for name, value in seconds.items():
            ours = seconds[f"fairpremium{', Poisson inverse' if 'Poisson' in name else ''}, 4 groups, in memory"]
            lines.append(f"| {name} | {value:.3f} | {ours / value:.2f} times that |")
    for value, title in ((1, "seconds"), (2, "peak memory, GiB")):
        name = f"scale-{'time' if value == 1 else 'memory'}.svg"
        least = {k: {n: min(p[value] for p in v if p[0] == n) for n in {p[0] for p in v}} for k, v in series.items()}
        draw({k: sorted(v.items()) for k, v in least.items()}, title, path.with_name(name))
        lines += ["", f"![{title} against rows]({name})"]
    path.with_suffix(".md").write_text("\n".join(lines) + "\n")
    result["exponents"] = exponents
    path.write_text(json.dumps(result, indent=2) + "\n")
    print("\n".join(lines))


def label(row: dict[str, Any]) -> str:
    if row["work"] == "gram":
        return "bare pass, one Gram matrix" if row["groups"] == 1 else "bare pass, one per report"
    if row["work"] == "predict":
        return "writing premiums"
    return f"{row['family']}, {row['correction']}"


def draw(series: dict[str, list[tuple[int, float]]], title: str, path: Path) -> None:
    import altair as alt
    import pandas as pd

    data = pd.DataFrame([(k, n, v) for k, points in series.items() for n, v in points], columns=["work", "rows", title])
    log, powers = alt.Scale(type="log"), [10**k for k in range(9) if data["rows"].min() <= 10**k <= data["rows"].max()]
    x = alt.X("rows:Q", scale=log, axis=alt.Axis(values=powers, format=","))
    color = alt.Color("work:N", legend=alt.Legend(labelLimit=0))
    chart = (
        alt.Chart(data, width=520, height=300)
        .mark_line(point=True)
        .encode(x=x, y=alt.Y(f"{title}:Q", scale=log), color=color)
        .properties(padding={"left": 5, "top": 5, "bottom": 5, "right": 60})  # fonts of a browser are wider
    )
    chart.save(str(path))


if __name__ == "__main__":
    main()
