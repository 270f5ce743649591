"""Persons, classifiers and model classes beyond the linear one on sources that are read piece by piece."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from fairpremium import (
    BoostedModel,
    DiscriminationFreePricer,
    FrequencySeverityPricer,
    LinearModel,
    NeuralModel,
    RandomizedResponse,
)
from fairpremium.blocks import _files, _persons
from fairpremium.pricing import _model_selection, _source_portfolio, load_pricer

N = 6000
GROUPS = ["A", "B"]
CHANNEL = RandomizedResponse(GROUPS, keep=0.8)
FEATURES = ["x1", "x2"]
TREE = DecisionTreeClassifier(max_depth=6, min_samples_leaf=50, random_state=0)


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    """2,000 persons with one to six rows each, in any order; a person has one report and an effect of its own."""
    rng = np.random.default_rng(7)
    person = rng.integers(0, 2000, size=N)
    wave = rng.normal(size=2000)  # says much about the group, but not by a logit in it and its square
    d = (rng.random(2000) < np.where(np.sin(4 * wave) > 0, 0.75, 0.1)).astype(int)
    report = np.array(CHANNEL.privatize(np.array(GROUPS)[d], rng=1), dtype=object)
    report[rng.random(2000) < 0.03] = None
    own = 0.5 * rng.normal(size=2000)
    x1 = rng.normal(size=N) + 0.4 * d[person]
    x2 = wave[person]
    mean = 1 + 0.4 * x1 + np.array([0.0, 1.5])[d][person] + 0.3 * np.maximum(x2, 0)
    claims = rng.poisson(np.exp(-1 + 0.3 * x1 + 0.4 * d[person]))
    return pd.DataFrame(
        {
            "x1": x1,
            "x2": x2,
            "loss": mean + own[person] + rng.normal(size=N),
            "claims": claims.astype(float),
            "amount": np.where(claims > 0, claims * rng.gamma(2.0, 50.0, size=N), 0.0),
            "report": report[person],
            "person": [f"P{p}" for p in person],
        }
    )


@pytest.fixture(scope="module")
def folder(frame: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("portfolio")
    for i, (start, stop) in enumerate([(0, 900), (900, 4000), (4000, N)]):
        frame.iloc[start:stop].to_parquet(path / f"part-{i}.parquet", index=False)
    return path


@pytest.fixture(autouse=True)
def _stream_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_source_portfolio, "_SMALL_ROWS", 0)
    monkeypatch.setattr(_source_portfolio, "_SMALL_CELLS", 0)


def pricer(**settings: Any) -> DiscriminationFreePricer:
    return DiscriminationFreePricer(**{"channel": CHANNEL, "random_state": 3, **settings})


def in_memory(frame: pd.DataFrame, y: str = "loss", *, persons: bool = True, **settings: Any) -> Any:
    cluster = frame["person"] if persons else None
    return pricer(**settings).fit(frame[FEATURES], frame[y], sensitive=frame["report"], cluster=cluster)


def from_source(source: Any, y: str = "loss", *, persons: bool = True, **settings: Any) -> Any:
    cluster = "person" if persons else None
    return pricer(**settings).fit(source, y=y, sensitive="report", cluster=cluster, features=FEATURES)


def assert_same(a: DiscriminationFreePricer, b: DiscriminationFreePricer, frame: pd.DataFrame) -> None:
    assert (a.correction_, a.n_rows_, a.n_missing_reports_) == (b.correction_, b.n_rows_, b.n_missing_reports_)
    np.testing.assert_allclose(a.group_distribution_, b.group_distribution_, rtol=1e-9)
    some = frame.iloc[:300]
    np.testing.assert_allclose(a.predict(some), b.predict(some), rtol=1e-9)
    if a.has_intervals_:
        for group in (None, "A"):
            width = [np.subtract(*p.predict_interval(some, group=group)) for p in (a, b)]
            np.testing.assert_allclose(width[0], width[1], rtol=1e-9)
        pd.testing.assert_frame_equal(a.summary(), b.summary(), rtol=1e-9)
    pd.testing.assert_frame_equal(a.candidates_, b.candidates_, rtol=1e-7)


def dask_frame(frame: pd.DataFrame, partitions: int) -> Any:
    return pytest.importorskip("dask.dataframe").from_pandas(frame, npartitions=partitions, sort=False)


# -- persons ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "y", "correction", "pooling"),
    [
        ("normal", "loss", "inverse", 0.0),
        ("normal", "loss", "auto", "auto"),
        ("normal", "loss", "posterior", "auto"),
        ("poisson", "claims", "inverse", "auto"),
        ("poisson", "claims", "likelihood", "auto"),
        ("poisson", "claims", "score", 5.0),
    ],
)
def test_persons_in_files_count_as_in_memory(
    frame: pd.DataFrame, folder: Path, family: str, y: str, correction: str, pooling: Any
) -> None:
    settings = {"family": family, "correction": correction, "pooling": pooling}
    a, b = in_memory(frame, y, **settings), from_source(folder, y, **settings)
    if pooling != "auto":  # a source would have to be read once more for the losses of a candidate
        a.candidates_, b.candidates_ = (p.candidates_.drop(columns=p.candidates_.columns[4:8]) for p in (a, b))
    assert_same(a, b, frame)


def test_persons_matter(frame: pd.DataFrame, folder: Path) -> None:
    """Rows of a person share a report and an effect, so that intervals without persons are too short.

    A person has 3.0 other rows on average and the effect has a fifth of the variance: the level's error is 1.26 times
    as large by the effect alone.
    """
    settings = {"correction": "inverse", "pooling": 0.0}
    widths = [
        np.subtract(*from_source(folder, persons=persons, **settings).predict_interval(frame.iloc[:50]))
        for persons in (True, False)
    ]
    assert (np.abs(widths[0]) > np.abs(widths[1])).all()
    assert np.abs(widths[0]).mean() > 1.2 * np.abs(widths[1]).mean()


def test_scattered_persons_in_several_passes(
    frame: pd.DataFrame, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_persons, "_CODES", 2500)
    monkeypatch.setattr(_persons, "_TOTALS", 8000)
    monkeypatch.setattr(_persons, "_FEW", 0)
    settings = {"correction": "inverse"}
    assert_same(in_memory(frame, **settings), from_source(folder, **settings), frame)


def test_persons_in_worker_processes(frame: pd.DataFrame, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_files, "_FEW_CELLS", 0)
    monkeypatch.setenv("FAIRPREMIUM_WORKERS", "2")
    settings = {"correction": "inverse"}
    assert_same(in_memory(frame, **settings), from_source(folder, **settings), frame)


def test_persons_in_dask(frame: pd.DataFrame) -> None:
    settings = {"family": "poisson", "correction": "inverse"}
    assert_same(in_memory(frame, "claims", **settings), from_source(dask_frame(frame, 4), "claims", **settings), frame)


def test_persons_and_classifier_in_spark(frame: pd.DataFrame, spark: Any) -> None:
    table = spark.createDataFrame(pa.Table.from_pandas(frame, preserve_index=False)).repartition(2).cache()
    ordered = table.toArrow().to_pandas()
    settings = {"correction": "posterior", "classifier": TREE, "pooling": 50.0, "intervals": True}
    a, b = in_memory(ordered, **settings), from_source(table, **settings)
    a.candidates_, b.candidates_ = (p.candidates_.drop(columns=p.candidates_.columns[4:8]) for p in (a, b))
    assert_same(a, b, frame)


def test_persons_of_claims(frame: pd.DataFrame, folder: Path) -> None:
    def fitted(*args: Any, **columns: Any) -> FrequencySeverityPricer:
        made = FrequencySeverityPricer(channel=CHANNEL, correction="inverse", random_state=0)
        return made.fit(*args, **columns)

    a = fitted(frame[FEATURES], frame["claims"], frame["amount"], sensitive=frame["report"], cluster=frame["person"])
    b = fitted(folder, "claims", "amount", sensitive="report", cluster="person", features=FEATURES)
    alone = fitted(folder, "claims", "amount", sensitive="report", features=FEATURES)
    some = frame.iloc[:200]
    np.testing.assert_allclose(a.predict(some), b.predict(some), rtol=1e-9)
    width = [np.subtract(*p.predict_interval(some)) for p in (a, b, alone)]
    np.testing.assert_allclose(width[0], width[1], rtol=1e-9)
    assert not np.allclose(width[0], width[2], rtol=1e-3)


def test_mistakes_about_persons(frame: pd.DataFrame, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="cluster of type Series, but expected the name of a column"):
        pricer().fit(folder, y="loss", sensitive="report", cluster=frame["person"])
    with pytest.raises(ValueError, match=r"without the columns \['nobody'\]"):
        pricer().fit(folder, y="loss", sensitive="report", cluster="nobody")
    with pytest.raises(ValueError, match="features with 'person', which is cluster already"):
        pricer().fit(folder, y="loss", sensitive="report", cluster="person", features=["x1", "person"])
    bad = frame.copy()
    bad.loc[N - 1, "person"] = None
    bad.to_parquet(tmp_path / "bad.parquet")
    with pytest.raises(ValueError, match="cluster with missing values in column 'person'"):
        from_source(tmp_path, correction="inverse")


# -- classifiers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["files", "processes", "dask"])
def test_a_classifier_is_trained_as_in_memory(
    frame: pd.DataFrame, folder: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if engine == "processes":
        monkeypatch.setattr(_files, "_FEW_CELLS", 0)
        monkeypatch.setenv("FAIRPREMIUM_WORKERS", "2")
    settings = {"correction": "posterior", "classifier": TREE}
    a = in_memory(frame, persons=False, **settings)
    b = from_source(dask_frame(frame, 3) if engine == "dask" else folder, persons=False, **settings)
    assert a.candidates_["detail"].iloc[0] == "DecisionTreeClassifier"  # it predicts held-out reports best
    assert_same(a, b, frame)


class OwnClassifier(DecisionTreeClassifier):
    """A class that pretends to be the running script's."""


OwnClassifier.__module__ = "__main__"


def test_a_class_of_the_running_script_is_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match="Got OwnClassifier, a class of the script that runs"):
        from_source(folder, persons=False, correction="posterior", classifier=OwnClassifier())


# -- other model classes ---------------------------------------------------------------------------------------

FAST = BoostedModel(replicates=2, max_rounds=20)


@pytest.mark.parametrize("model", [FAST, DecisionTreeRegressor(max_depth=2)])
def test_all_rows_of_a_small_source_give_the_prices_of_a_table(frame: pd.DataFrame, folder: Path, model: Any) -> None:
    """The sample is then the portfolio; the balance over all rows is the one that prices have already."""
    settings = {"model": model, "correction": "posterior", "intervals": isinstance(model, BoostedModel)}
    a, b = in_memory(frame, **settings), from_source(folder, **settings)
    assert b.n_sampled_rows_ is None
    assert_same(a, b, frame)


@pytest.mark.parametrize(
    ("engine", "model"),
    [("files", FAST), ("processes", FAST), ("dask", FAST), ("files", NeuralModel(max_epochs=3, replicates=2))],
)
def test_a_sample_of_a_source_is_fitted_and_all_rows_are_balanced(
    frame: pd.DataFrame, folder: Path, engine: str, model: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(_model_selection, "_SAMPLE_ROWS", 2500)
    if engine == "processes":
        monkeypatch.setattr(_files, "_FEW_CELLS", 0)
        monkeypatch.setenv("FAIRPREMIUM_WORKERS", "2")
    settings = {"model": model, "correction": "posterior", "family": "poisson"}
    source = dask_frame(frame, 3) if engine == "dask" else folder
    fitted = from_source(source, "claims", **settings)
    assert (fitted.n_rows_, fitted.n_sampled_rows_) == (N, 2500)
    assert fitted.n_missing_reports_ == frame["report"].isna().sum()
    assert "2,500 random rows of 6,000 rows" in fitted._repr_html_()

    index = np.sort(np.random.default_rng(fitted._seed()).choice(N, 2500, replace=False))
    table = in_memory(frame.iloc[index], "claims", **settings)
    np.testing.assert_allclose(fitted.group_distribution_, table.group_distribution_, rtol=1e-9)
    shift = np.log(frame["claims"].sum() / table.predict_unaware(frame).sum())
    assert abs(shift) > 1e-4  # the sample has another total
    np.testing.assert_allclose(fitted.predict_unaware(frame).sum(), frame["claims"].sum(), rtol=1e-9)
    some = frame.iloc[:300]
    for one, other in [
        (fitted.predict(some), table.predict(some)),
        (fitted.predict_best_estimate(some).to_numpy(), table.predict_best_estimate(some).to_numpy()),
        (fitted.predict_interval(some).upper, table.predict_interval(some).upper),
        (fitted.predict_interval(some, group="B").lower, table.predict_interval(some, group="B").lower),
    ]:
        np.testing.assert_allclose(one, np.exp(shift) * other, rtol=1e-6)

    fitted.save(tmp_path / "model.json")
    assert load_pricer(tmp_path / "model.json").n_sampled_rows_ == 2500
    priced = fitted.predict_to(folder, tmp_path / "premiums.parquet")
    assert priced.rows == N
    np.testing.assert_allclose(pd.read_parquet(tmp_path / "premiums.parquet")["premium"], fitted.predict(frame))


def test_random_state_decides_the_sample(frame: pd.DataFrame, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_model_selection, "_SAMPLE_CELLS", 2 * 1500)
    settings = {"model": FAST, "correction": "posterior", "intervals": False}
    fits = [from_source(folder, random_state=seed, **settings) for seed in (1, 1, 2)]
    assert [p.n_sampled_rows_ for p in fits] == [1500] * 3
    a, b, c = (p.predict(frame.iloc[:100]) for p in fits)
    np.testing.assert_array_equal(a, b)
    assert not np.allclose(a, c)


def test_the_linear_class_of_a_list_is_fitted_to_all_rows(
    frame: pd.DataFrame, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The prices are nearly linear and a single split of trees is not: the linear class wins on the sample."""
    monkeypatch.setattr(_model_selection, "_SAMPLE_ROWS", 3000)
    stump = BoostedModel(max_rounds=1, monotone={"x1": -1}, replicates=2)
    settings = {"model": [stump, LinearModel()], "intervals": False}
    fitted = from_source(folder, **settings)
    assert fitted.model_.kind == "linear"
    assert fitted.n_sampled_rows_ is None
    of_all = in_memory(frame, intervals=False)
    np.testing.assert_allclose(fitted.predict(frame), of_all.predict(frame), rtol=1e-9)
    assert set(fitted.candidates_["model"]) == {"boosted", "linear"}


def test_claims_of_other_model_classes_ask_for_a_table(folder: Path) -> None:
    made = FrequencySeverityPricer(channel=CHANNEL, model=FAST, random_state=0)
    with pytest.raises(ValueError, match='only model="linear" prices claims of rows that are read piece by piece'):
        made.fit(folder, "claims", "amount", sensitive="report", features=FEATURES)
