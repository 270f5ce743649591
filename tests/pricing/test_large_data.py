"""A source gives the numbers that the same rows give in memory, whoever reads them and however they are cut."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import textwrap
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from fairpremium import DiscriminationFreePricer, RandomizedResponse, RetestNoise
from fairpremium.blocks import _files, open_source
from fairpremium.corrections import ReportChannel
from fairpremium.pricing import _source_portfolio

GROUPS = ["A", "B", "C"]
FEATURES = ["x1", "x2", "area"]
CHANNEL = RandomizedResponse(GROUPS, keep=0.75)
N = 33_000


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(5)
    d = rng.choice(3, size=N, p=[0.5, 0.3, 0.2])
    x1 = rng.normal(size=N) + 0.3 * d
    area = rng.choice(["city", "land", "sea"], size=N, p=[0.2, 0.5, 0.3])
    weight = rng.uniform(0.2, 1, size=N)
    eta = -1 + 0.3 * x1 + np.array([0, 0.4, -0.3])[d] + 0.2 * (area == "city") * d
    report = np.array(CHANNEL.privatize(np.array(GROUPS)[d], rng=0), dtype=object)
    report[rng.random(N) < 0.05] = None
    return pd.DataFrame(
        {
            "policy": np.arange(N),
            "x1": x1,
            "x2": rng.integers(18, 90, size=N),
            "area": area,
            "loss": eta + rng.normal(size=N),
            "claims": rng.poisson(weight * np.exp(eta)) / weight,
            "exposure": weight,
            "report": report,
            "truth": np.array(GROUPS)[d],
        }
    )


@pytest.fixture(scope="module")
def folder(frame: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five files of different length, with row groups that fit neither each other nor the pieces."""
    path = tmp_path_factory.mktemp("portfolio")
    for i, (start, stop) in enumerate([(0, 1), (1, 9000), (9000, 9100), (9100, 25_000), (25_000, N)]):
        frame.iloc[start:stop].to_parquet(path / f"part-{i}.parquet", index=False, row_group_size=3700)
    return path


@pytest.fixture(autouse=True)
def _stream_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    """The portfolio is small enough to be read at once; forbid it."""
    monkeypatch.setattr(_source_portfolio, "_SMALL_ROWS", 0)
    monkeypatch.setattr(_source_portfolio, "_SMALL_CELLS", 0)


def pricer(**settings: object) -> DiscriminationFreePricer:
    return DiscriminationFreePricer(**{"channel": CHANNEL, "random_state": 3, **settings})


def in_memory(frame: pd.DataFrame, y: str = "loss", **settings: object) -> DiscriminationFreePricer:
    return pricer(**settings).fit(frame[FEATURES], frame[y], sensitive=frame["report"], sample_weight=frame["exposure"])


def from_source(source: object, y: str = "loss", **settings: object) -> DiscriminationFreePricer:
    return pricer(**settings).fit(source, y=y, sensitive="report", sample_weight="exposure", features=FEATURES)


def approx_scales(fitted: DiscriminationFreePricer) -> dict[str, object]:
    """What `pooling_` of empirical Bayes has to be close to."""
    found = fitted.pooling_
    return {"main": pytest.approx(found["main"], rel=1e-9), "slopes": pytest.approx(found["slopes"], rel=1e-9)}


def told(fitted: DiscriminationFreePricer) -> pd.DataFrame:
    """The candidates; with a given pooling without their losses, for which a source would be read once more."""
    table = fitted.candidates_
    return table.drop(columns=table.columns[4:8]) if isinstance(fitted.pooling_, float) else table


def assert_same(a: DiscriminationFreePricer, b: DiscriminationFreePricer, frame: pd.DataFrame) -> None:
    assert a.correction_ == b.correction_
    assert a.pooling_ == (pytest.approx(b.pooling_, rel=1e-9) if isinstance(b.pooling_, float) else approx_scales(b))
    assert a.n_rows_ == b.n_rows_
    assert a.n_missing_reports_ == b.n_missing_reports_
    np.testing.assert_allclose(a.group_distribution_, b.group_distribution_, rtol=1e-9)
    some = frame.iloc[:500]
    for one, other in [
        (a.predict(some), b.predict(some)),
        (a.predict_unaware(some), b.predict_unaware(some)),
        (a.predict_best_estimate(some).to_numpy(), b.predict_best_estimate(some).to_numpy()),
    ]:
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9 * np.abs(other).max())
    pd.testing.assert_frame_equal(told(a), told(b), rtol=1e-6)
    if a.intervals:
        width = [np.subtract(*p.predict_interval(some)) for p in (a, b)]
        np.testing.assert_allclose(width[0], width[1], rtol=1e-9)


@pytest.mark.parametrize(
    ("family", "y", "correction"),
    [
        ("normal", "loss", "inverse"),
        ("normal", "loss", "auto"),
        ("poisson", "claims", "inverse"),
        ("poisson", "claims", "score"),
        ("poisson", "claims", "likelihood"),
    ],
)
def test_every_correction_gives_the_same_numbers_as_in_memory(
    frame: pd.DataFrame, folder: Path, family: str, y: str, correction: str
) -> None:
    settings = {"family": family, "correction": correction}
    assert_same(in_memory(frame, y, **settings), from_source(folder, y, **settings), frame)


@pytest.mark.parametrize("reference", ["uniform", "balanced"])
def test_references_and_true_attribute(frame: pd.DataFrame, folder: Path, reference: str) -> None:
    settings = {"channel": None, "reference": reference}
    a = pricer(**settings).fit(frame[FEATURES], frame["loss"], sensitive=frame["truth"])
    b = pricer(**settings).fit(folder, y="loss", sensitive="truth", features=FEATURES)
    assert a.groups_ == b.groups_ == tuple(GROUPS)
    assert_same(a, b, frame)


def test_every_way_to_name_the_rows_gives_the_same_numbers(
    frame: pd.DataFrame, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = in_memory(frame, correction="inverse")
    one = tmp_path / "all.parquet"
    table = pa.Table.from_pandas(frame, preserve_index=False)
    pq.write_table(table, one)
    pq.write_table(table, tmp_path / "small.parquet", row_group_size=777)
    ds.write_dataset(table, tmp_path / "ipc", format="ipc")
    sources = [
        folder,
        str(one),
        tmp_path / "small.parquet",
        ds.dataset(folder, format="parquet"),
        ds.dataset(tmp_path / "ipc", format="ipc"),
        ds.dataset(table),
    ]
    for source in sources:
        assert_same(expected, from_source(source, correction="inverse"), frame)
    monkeypatch.setattr(_files, "_PARTITION_ROWS", 1)
    assert_same(expected, from_source(folder, correction="inverse"), frame)


def test_columns_without_a_role_are_features(frame: pd.DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "p.parquet"
    frame[["loss", "x1", "report", "x2"]].to_parquet(path, index=False)
    fitted = pricer(correction="inverse").fit(path, y="loss", sensitive="report")
    assert list(fitted.feature_names_in_) == ["x1", "x2"]
    named = frame[["loss", "x1", "report", "x2"]].set_index(frame["policy"].to_numpy() ** 2)
    named.to_parquet(path)  # pandas stores its index as a column; it is no feature
    assert "__index_level_0__" in pq.read_schema(path).names
    again = pricer(correction="inverse").fit(path, y="loss", sensitive="report")
    assert list(again.feature_names_in_) == ["x1", "x2"]


def test_folders_named_after_a_column_hold_that_column(frame: pd.DataFrame, tmp_path: Path) -> None:
    ordered = frame.sort_values("area", kind="stable", ignore_index=True)
    ordered.to_parquet(tmp_path / "hive", partition_cols=["area"], index=False)
    assert (tmp_path / "hive" / "area=city").is_dir()
    assert_same(in_memory(ordered, correction="inverse"), from_source(tmp_path / "hive", correction="inverse"), frame)


def test_small_numbers_are_kept_in_four_bytes_and_summed_in_eight(frame: pd.DataFrame, tmp_path: Path) -> None:
    small = frame.assign(x1=frame["x1"].astype("float32"), x2=frame["x2"].astype("int16"))
    small.to_parquet(tmp_path / "p.parquet", index=False)
    settings = {"correction": "inverse", "pooling": 0}
    a = pricer(**settings).fit(small[["x1", "x2"]], small["loss"], sensitive=small["report"])
    b = pricer(**settings).fit(tmp_path / "p.parquet", y="loss", sensitive="report", features=["x1", "x2"])
    assert_same(a, b, frame)
    with _source_portfolio.SourcePortfolio(tmp_path / "p.parquet", "loss", "report", None, ["x1", "x2"]) as opened:
        rows = opened.rows(ReportChannel.of(None, tuple(GROUPS)), a._prices.family, thorough=False)
        assert rows.take(np.arange(10)).X.dtype == np.float32


def test_an_estimated_channel_is_learned_from_a_sample(frame: pd.DataFrame, folder: Path) -> None:
    first = CHANNEL.privatize(frame["truth"][:4000], rng=1)
    second = CHANNEL.privatize(frame["truth"][:4000], rng=2)
    noise = RetestNoise(first, second)
    settings = {"channel": noise, "correction": "inverse", "pooling": 0}
    a, b = in_memory(frame, **settings), from_source(folder, **settings)
    assert b.noise_.keep_ == a.noise_.keep_
    assert_same(a, b, frame)


# -- passes and memory -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def long_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Numbers alone, 38 MB in memory."""
    rng = np.random.default_rng(0)
    n = 800_000
    columns = {f"x{j}": rng.standard_normal(n, dtype=np.float32) for j in range(10)}
    columns["y"] = rng.standard_normal(n, dtype=np.float32)
    report = pa.DictionaryArray.from_arrays(rng.integers(0, 3, size=n).astype(np.int8), GROUPS)
    path = tmp_path_factory.mktemp("long") / "long.parquet"
    pq.write_table(pa.table({**columns, "report": report}), path, row_group_size=100_000)
    return path


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts the rows of every pass over a file."""
    seen: list[int] = []
    run = _files.FileSource.run

    def counted(self, jobs, columns):
        seen.append(sum(piece.rows for piece, job in zip(self.pieces, jobs, strict=True) if job is not None))
        return run(self, jobs, columns)

    monkeypatch.setattr(_files.FileSource, "run", counted)
    return seen


@pytest.mark.parametrize(("intervals", "number"), [(False, 1), (True, 3)])
def test_squared_loss_reads_the_rows_once(long_file: Path, passes: list[int], intervals: bool, number: int) -> None:
    fitted = pricer(correction="inverse", intervals=intervals, pooling=0.0)
    fitted.fit(long_file, y="y", sensitive="report")
    assert passes == [800_000] * number


def test_empirical_bayes_reads_the_rows_few_times(long_file: Path, passes: list[int]) -> None:
    """The model of P(D given x) and the linearisations start from a sample; balance takes two passes."""
    pricer(correction="inverse", intervals=False).fit(long_file, y="y", sensitive="report")
    assert sum(passes) <= 14 * 800_000


def test_memory_does_not_grow_with_the_rows(long_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four times the rows, the same memory: of numpy and Python, and of Arrow."""
    monkeypatch.setattr(_files, "_FEW_CELLS", 10**12)  # in this process, where memory is counted
    short_file = tmp_path / "short.parquet"
    pq.write_table(pq.read_table(long_file).slice(0, 200_000), short_file, row_group_size=100_000)
    allocated: list[int] = []
    batches = _files.Piece.batches

    def watched(self, *args):
        for table in batches(self, *args):
            allocated.append(pa.total_allocated_bytes())
            yield table

    monkeypatch.setattr(_files.Piece, "batches", watched)
    peaks = []
    for path in (short_file, long_file):
        allocated.clear()
        before = pa.total_allocated_bytes()
        tracemalloc.start()
        try:
            pricer(correction="inverse", intervals=False, pooling=0).fit(path, y="y", sensitive="report")
            peaks.append(tracemalloc.get_traced_memory()[1] + max(allocated) - before)
        finally:
            tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]
    assert peaks[1] < 800_000 * 12 * 4  # less than the rows themselves


# -- worker processes ------------------------------------------------------------------------------------------


@pytest.fixture
def _processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_files, "_FEW_CELLS", 0)
    monkeypatch.setattr(_files, "_PARTITION_ROWS", 4000)


@pytest.mark.usefixtures("_processes")
@pytest.mark.parametrize("workers", ["2", "3"])
def test_worker_processes_give_the_same_numbers(
    frame: pd.DataFrame, folder: Path, workers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAIRPREMIUM_WORKERS", workers)
    correction = "posterior" if workers == "2" else "inverse"
    settings = {"family": "poisson", "correction": correction, "pooling": 10.0}
    assert_same(in_memory(frame, "claims", **settings), from_source(folder, "claims", **settings), frame)


@pytest.mark.usefixtures("_processes")
def test_a_worker_that_dies_is_replaced(frame: pd.DataFrame, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fairpremium.blocks._pool import WorkerPool

    monkeypatch.setenv("FAIRPREMIUM_WORKERS", "2")
    killed: list[int] = []
    started = WorkerPool._started

    def start_and_kill(self: WorkerPool):
        pool = started(self)
        if not killed:
            victim = next(iter(pool._processes))
            os.kill(victim, signal.SIGKILL)
            killed.append(victim)
        return pool

    monkeypatch.setattr(WorkerPool, "_started", start_and_kill)
    fitted = from_source(folder, correction="inverse")
    assert killed
    assert_same(in_memory(frame, correction="inverse"), fitted, frame)


def test_a_script_without_a_main_guard_runs_once(folder: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(f"""
        print("begin")
        from fairpremium import DiscriminationFreePricer, RandomizedResponse
        from fairpremium.blocks import _files, open_source
        from fairpremium.pricing import _source_portfolio
        _files._FEW_CELLS = _source_portfolio._SMALL_ROWS = _source_portfolio._SMALL_CELLS = 0
        channel = RandomizedResponse(["A", "B", "C"], keep=0.75)
        pricer = DiscriminationFreePricer(channel=channel, correction="inverse", intervals=False)
        pricer.fit({str(folder)!r}, y="loss", sensitive="report", features=["x1", "x2", "area"])
        print(pricer.n_rows_)
        """)
    )
    env = {**os.environ, "FAIRPREMIUM_WORKERS": "2"}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True, env=env)
    assert done.stdout.split() == ["begin", str(N)]


def test_workers_end_with_the_process_that_they_work_for(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import sys, time
        from fairpremium.blocks._pool import WorkerPool
        pool = WorkerPool()
        list(pool.map(abs, [(1,), (2,)]))
        print(*pool._pool._processes, flush=True)
        time.sleep(600)
        """)
    )
    env = {**os.environ, "FAIRPREMIUM_WORKERS": "2"}
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdout is not None
        workers = [int(pid) for pid in process.stdout.readline().split()]
        assert len(workers) == 2
        process.kill()
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]


# -- Dask ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def client() -> Iterator[object]:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", memory_limit="2GiB"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def dask_frame(frame: pd.DataFrame, partitions: int) -> object:
    import dask.dataframe as dd

    return dd.from_pandas(frame, npartitions=partitions, sort=False)


@pytest.mark.parametrize("partitions", [2, 7])
def test_dask_gives_the_same_numbers(frame: pd.DataFrame, client: object, partitions: int) -> None:
    settings = {"family": "poisson", "correction": "score" if partitions == 2 else "inverse"}
    fitted = from_source(dask_frame(frame, partitions), "claims", **settings)
    assert_same(in_memory(frame, "claims", **settings), fitted, frame)


def test_dask_reads_parquet_and_categories(frame: pd.DataFrame, folder: Path, client: object) -> None:
    import dask.dataframe as dd

    expected = in_memory(frame, correction="inverse")
    assert_same(expected, from_source(dd.read_parquet(folder), correction="inverse"), frame)
    categories = dask_frame(frame, 3).assign(area=lambda f: f["area"].astype("category"))
    assert_same(expected, from_source(categories, correction="inverse"), frame)


class KillOnce:
    """A reader of a data frame that kills its worker the first time it meets a certain row."""

    def __init__(self, marker: Path):
        self.marker = marker

    def __call__(self, part: pd.DataFrame) -> pd.DataFrame:
        if len(part) and part["policy"].iloc[0] > 0 and not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return part


def test_a_dask_worker_killed_in_the_middle_changes_nothing(
    frame: pd.DataFrame, client: object, tmp_path: Path
) -> None:
    settings = {"family": "poisson", "correction": "inverse", "pooling": 5.0}
    before = set(client.scheduler_info()["workers"])
    dying = dask_frame(frame, 4).map_partitions(KillOnce(tmp_path / "killed"), meta=frame.iloc[:0])
    fitted = from_source(dying, "claims", **settings)
    assert (tmp_path / "killed").exists()
    deadline = time.monotonic() + 30
    while set(client.scheduler_info()["workers"]) == before and time.monotonic() < deadline:
        time.sleep(0.2)
    assert set(client.scheduler_info()["workers"]) != before
    assert_same(in_memory(frame, "claims", **settings), fitted, frame)


def test_dask_without_a_cluster(frame: pd.DataFrame) -> None:
    import dask

    with dask.config.set(scheduler="threads"):
        fitted = from_source(dask_frame(frame, 3), correction="inverse")
    assert_same(in_memory(frame, correction="inverse"), fitted, frame)


# -- Spark -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("partitions", [1, 5])
def test_spark_gives_the_same_numbers(frame: pd.DataFrame, folder: Path, spark: object, partitions: int) -> None:
    settings = {"correction": "inverse"}
    table = spark.createDataFrame(pa.Table.from_pandas(frame, preserve_index=False)).coalesce(partitions)
    table = table.selectExpr("*", "cast(raise_error('a column that no fit needs') as string) as other")
    before = held(spark)
    assert_same(in_memory(frame, **settings), from_source(table, **settings), frame)
    assert not table.is_cached
    assert held(spark) == before


@pytest.mark.parametrize("how", ["persist", "cache"])
def test_a_persisted_spark_frame_is_packed_once(frame: pd.DataFrame, spark: object, how: str) -> None:
    before, settings = held(spark), {"correction": "inverse"}
    table = getattr(spark.createDataFrame(pa.Table.from_pandas(frame, preserve_index=False)).coalesce(2), how)()
    assert_same(in_memory(frame, **settings), from_source(table, **settings), frame)
    packed = held(spark)
    assert len(packed - before) == 2  # the frame and its packed rows
    settings = {"family": "poisson", "correction": "inverse", "pooling": 5.0}  # other columns
    assert_same(in_memory(frame, "claims", **settings), from_source(table, "claims", **settings), frame)
    assert held(spark) == packed
    table.unpersist()
    del table
    wait_until(lambda: held(spark) == before)


def test_a_spark_frame_is_packed_again_when_its_rows_may_be_others(spark: object, tmp_path: Path) -> None:
    state = tmp_path / "state"

    def read(batches):
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"x": [state.read_text()] * batch.num_rows})

    def seen_when(text: str) -> str:
        state.write_text(text)
        with open_source(table) as source:
            return source.glance(["x"], 1).column(0)[0].as_py()

    before = held(spark)
    table = spark.range(10).mapInArrow(read, "x string")
    assert [seen_when("a"), seen_when("b")] == ["a", "b"]
    assert held(spark) == before
    table.persist()
    assert [seen_when("c"), seen_when("d")] == ["c", "c"]
    table.unpersist()
    table.persist()
    assert [seen_when("e"), seen_when("f")] == ["e", "e"]
    table.unpersist()
    assert [seen_when("g"), seen_when("h")] == ["g", "h"]
    wait_until(lambda: held(spark) == before)


def test_columns_that_a_spark_frame_lacks(spark: object) -> None:
    with pytest.raises(ValueError, match=r"Got X without the columns .*; its columns are \['id'\]"):
        from_source(spark.range(10))


def held(spark: object) -> frozenset[int]:
    """Return the numbers of all that Spark keeps."""
    return frozenset(spark.sparkContext._jsc.getPersistentRDDs())


def wait_until(true: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not true():
        assert time.monotonic() < until
        gc.collect()
        time.sleep(0.05)


def test_spark_task_that_fails_once_changes_nothing(
    frame: pd.DataFrame, folder: Path, spark: object, tmp_path: Path
) -> None:
    marker = tmp_path / "failed"
    settings = {"family": "poisson", "correction": "score", "pooling": 5.0}

    def fail_once(batches):
        for batch in batches:
            if not marker.exists():
                marker.touch()
                raise RuntimeError("a fault of the cluster")
            yield batch

    table = spark.createDataFrame(pa.Table.from_pandas(frame, preserve_index=False)).coalesce(3)
    fitted = from_source(table.mapInArrow(fail_once, table.schema), "claims", **settings)
    assert marker.exists()
    assert_same(in_memory(frame, "claims", **settings), fitted, frame)


def test_a_mistake_in_spark_data_is_a_sentence(frame: pd.DataFrame, spark: object) -> None:
    bad = frame.assign(claims=frame["claims"] - 1)
    table = spark.createDataFrame(pa.Table.from_pandas(bad, preserve_index=False))
    with pytest.raises(ValueError, match="outside the domain of the poisson family"):
        from_source(table, "claims", family="poisson", correction="inverse")


# -- premiums --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fitted(frame: pd.DataFrame) -> DiscriminationFreePricer:
    return in_memory(frame, correction="inverse")


def check_premiums(table: pd.DataFrame, fitted: DiscriminationFreePricer, frame: pd.DataFrame) -> None:
    assert list(table.columns) == ["policy", "premium", "low", "high"]
    np.testing.assert_array_equal(table["policy"], frame["policy"])
    np.testing.assert_allclose(table["premium"], fitted.predict(frame), rtol=1e-12)
    interval = fitted.predict_interval(frame, 0.9)
    np.testing.assert_allclose(table["low"], interval.lower, rtol=1e-9)
    np.testing.assert_allclose(table["high"], interval.upper, rtol=1e-9)


@pytest.mark.parametrize("target", ["premiums.parquet", "premiums"])
@pytest.mark.parametrize("processes", [False, True])
def test_premiums_are_written_in_the_order_of_the_rows(
    frame: pd.DataFrame,
    folder: Path,
    fitted: DiscriminationFreePricer,
    tmp_path: Path,
    target: str,
    processes: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if processes:
        monkeypatch.setattr(_files, "_FEW_CELLS", 0)
        monkeypatch.setenv("FAIRPREMIUM_WORKERS", "2")
    priced = fitted.predict_to(folder, tmp_path / target, columns=["policy"], level=0.9)
    expected = fitted.predict(frame)
    assert priced.rows == N
    np.testing.assert_allclose(priced[1:], [expected.mean(), expected.min(), expected.max()], rtol=1e-12)
    check_premiums(pd.read_parquet(tmp_path / target), fitted, frame)
    assert not [p for p in tmp_path.rglob(".*") if p.is_file()]


def test_dask_writes_premiums(
    frame: pd.DataFrame, fitted: DiscriminationFreePricer, client: object, tmp_path: Path
) -> None:
    fitted.predict_to(dask_frame(frame, 4), tmp_path / "out", columns=["policy"], level=0.9)
    assert len(list((tmp_path / "out").glob("*.parquet"))) == 4
    check_premiums(pd.read_parquet(tmp_path / "out"), fitted, frame)


def test_spark_writes_premiums(
    frame: pd.DataFrame, fitted: DiscriminationFreePricer, spark: object, tmp_path: Path
) -> None:
    table = spark.createDataFrame(pa.Table.from_pandas(frame, preserve_index=False))
    priced = fitted.predict_to(table, tmp_path / "out", columns=["policy"], level=0.9)
    assert priced.rows == N
    written = pd.read_parquet(tmp_path / "out").sort_values("policy", ignore_index=True)
    check_premiums(written, fitted, frame)


# -- mistakes --------------------------------------------------------------------------------------------------


def test_a_corrupt_part_is_named(frame: pd.DataFrame, folder: Path, tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        frame.iloc[:20_000].to_parquet(tmp_path / f"{name}.parquet", index=False, row_group_size=5000)
    whole = (tmp_path / "b.parquet").read_bytes()
    half = len(whole) // 2
    damages = {
        "cut off": whole[:half],
        "empty": b"",
        "text": b"policy,x1\n1,2\n",
        "pages overwritten": whole[:4] + b"\xff" * half + whole[4 + half :],
    }
    for damage, content in damages.items():
        (tmp_path / "b.parquet").write_bytes(content)
        with pytest.raises(ValueError, match=r"b\.parquet is not a Parquet file that can be read"):
            from_source(tmp_path, correction="inverse")
        assert damage


def test_a_part_without_a_column_is_named(frame: pd.DataFrame, tmp_path: Path) -> None:
    frame.to_parquet(tmp_path / "a.parquet", index=False)
    frame.drop(columns="x2").to_parquet(tmp_path / "b.parquet", index=False)
    with pytest.raises(ValueError, match=r"b\.parquet has no column \['x2'\]"):
        from_source(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x1": np.nan}, r"missing \(NaN\) values in column 'x1'"),
        ({"x2": np.inf}, r"infinite \(inf\) values in column 'x2'"),
        ({"loss": np.nan}, "y with 1 of"),
        ({"exposure": -1.0}, "negative values"),
        ({"report": "Z"}, "not among the declared labels"),
        ({"area": None}, "missing values in column 'area'"),
    ],
)
def test_a_bad_value_is_found_wherever_it_is(
    frame: pd.DataFrame, tmp_path: Path, change: dict[str, object], message: str
) -> None:
    frame.to_parquet(tmp_path / "good.parquet", index=False)
    bad = frame.astype({"x2": float}).copy()
    for column, value in change.items():
        bad.loc[N - 5, column] = value
    bad.to_parquet(tmp_path / "wrong.parquet", index=False)
    with pytest.raises(ValueError, match=message) as caught:
        from_source(tmp_path, correction="inverse")
    if "area" not in change:
        assert "wrong.parquet" in str(caught.value)


def test_arguments_that_do_not_fit(frame: pd.DataFrame, folder: Path, tmp_path: Path) -> None:
    fit = pricer().fit
    with pytest.raises(ValueError, match="There is no file or folder"):
        fit(tmp_path / "nowhere.parquet", y="loss", sensitive="report")
    with pytest.raises(ValueError, match="no Parquet file in"):
        fit(tmp_path, y="loss", sensitive="report")
    with pytest.raises(TypeError, match="y of type Series, but expected the name of a column"):
        fit(folder, y=frame["loss"], sensitive="report")
    with pytest.raises(TypeError, match="sensitive of type NoneType"):
        fit(folder, y="loss")
    with pytest.raises(ValueError, match=r"without the columns \['nix'\]"):
        fit(folder, y="nix", sensitive="report")
    for role, name in (("y", "loss"), ("sensitive", "report"), ("sample_weight", "exposure")):
        with pytest.raises(ValueError, match=f"features with '{name}', which is {role} already"):
            fit(folder, y="loss", sensitive="report", sample_weight="exposure", features=["x1", name])
    with pytest.raises(ValueError, match=r"features with \['x1'\] more than once"):
        fit(folder, y="loss", sensitive="report", features=["x1", "x2", "x1"])
    with pytest.raises(TypeError, match=r"expected a list of columns, such as \['x1'\]"):
        fit(folder, y="loss", sensitive="report", features="x1")
    with pytest.raises(ValueError, match="a column of its own for each"):
        fit(folder, y="loss", sensitive="loss")
    with pytest.raises(ValueError, match="chooses columns of a source"):
        fit(frame[FEATURES], frame["loss"], sensitive=frame["report"], features=["x1"])


def test_premiums_never_overwrite_what_is_there(
    frame: pd.DataFrame, folder: Path, fitted: DiscriminationFreePricer, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="exists already"):
        fitted.predict_to(folder, folder)
    one = folder / "part-1.parquet"
    with pytest.raises(ValueError, match="overwrite the source"):
        fitted.predict_to(one, one)
    with pytest.raises(ValueError, match=r"without the columns \['nix'\]"):
        fitted.predict_to(folder, tmp_path / "out", columns=["nix"])
    with pytest.raises(TypeError, match="`predict` prices a table in memory"):
        fitted.predict_to(frame, tmp_path / "out")
