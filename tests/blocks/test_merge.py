"""Merged rows give the same sums, and the same prices, as the rows themselves."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fairpremium import DiscriminationFreePricer, RandomizedResponse
from fairpremium.blocks import Rows, merge_rows, worth_merging
from fairpremium.pricing import _model_selection, _source_portfolio

N = 120_000
CHANNEL = RandomizedResponse(["A", "B"], keep=0.8)


def few_cells(n: int, *, weights: bool = True) -> Rows:
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.integers(0, 4, size=n), rng.integers(0, 3, size=n) / 7.0])
    return Rows(
        X,
        rng.poisson(2.0, size=n).astype(float),
        rng.integers(0, 3, size=n) / 2 if weights else None,
        rng.integers(0, 3, size=n).astype(np.uint16),
    )


@pytest.mark.parametrize("weights", [False, True])
def test_merged_rows_equal_a_plain_group_by(weights: bool) -> None:
    rows = few_cells(100_000, weights=weights)
    merged = merge_rows(rows)
    assert merged is not None
    w = np.ones(len(rows)) if rows.weight is None else rows.weight
    frame = pd.DataFrame(rows.X).assign(report=rows.report, w=w, wy=w * rows.y)
    expected = frame.groupby([0, 1, "report"], as_index=False).sum()
    assert len(merged) == len(expected) == 4 * 3 * 3
    np.testing.assert_array_equal(merged.X, expected[[0, 1]])
    np.testing.assert_array_equal(merged.report, expected["report"])
    np.testing.assert_allclose(merged.weight, expected["w"], rtol=1e-12)
    np.testing.assert_allclose(merged.y, expected["wy"] / expected["w"], rtol=1e-12)


def test_rows_that_do_not_repeat_are_left_alone() -> None:
    rng = np.random.default_rng(0)
    rows = Rows(rng.normal(size=(70_000, 2)), rng.normal(size=70_000), None, np.zeros(70_000, dtype=np.uint16))
    assert not worth_merging(rows)
    assert merge_rows(rows) is None
    assert worth_merging(few_cells(5000))


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(1)
    d = rng.choice(2, size=N, p=[0.6, 0.4])
    age = rng.integers(0, 6, size=N)
    area = rng.choice(["city", "land"], size=N)
    exposure = rng.uniform(0.2, 1.0, size=N)
    mean = np.exp(-1 + 0.1 * age + 0.4 * d - 0.2 * (area == "city"))
    report = np.array(CHANNEL.privatize(np.array(["A", "B"])[d], rng=2), dtype=object)
    report[:100] = None
    return pd.DataFrame(
        {"age": age, "area": area, "y": rng.poisson(exposure * mean) / exposure, "w": exposure, "s": report}
    )


def fit(frame: pd.DataFrame, merge: object, **settings: object) -> DiscriminationFreePricer:
    pricer = DiscriminationFreePricer(
        **{"family": "poisson", "channel": CHANNEL, "correction": "inverse", "random_state": 0, **settings}
    )
    return pricer.fit(frame[["age", "area"]], frame["y"], sensitive=frame["s"], sample_weight=frame["w"], merge=merge)


@pytest.mark.parametrize("source", [False, True])
def test_prices_and_intervals_do_not_change(
    frame: pd.DataFrame, source: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = fit(frame, False, pooling=20.0)
    seen: list[int] = []
    prepare = _model_selection.prepare

    def prepare_and_count(*args, **kwargs):
        problem = prepare(*args, **kwargs)
        seen.append(len(problem.rows))
        return problem

    monkeypatch.setattr(_model_selection, "prepare", prepare_and_count)
    if source:
        monkeypatch.setattr(_source_portfolio, "_SMALL_CELLS", 0)
        for i, (a, b) in enumerate(pairwise([0, 50_000, N])):
            frame.iloc[a:b].to_parquet(tmp_path / f"{i}.parquet", index=False)
        merged = DiscriminationFreePricer(
            family="poisson", channel=CHANNEL, correction="inverse", pooling=20.0, random_state=0
        ).fit(tmp_path, y="y", sensitive="s", sample_weight="w")
    else:
        merged = fit(frame, "auto", pooling=20.0)
    assert seen == [6 * 2 * 3]
    np.testing.assert_allclose(merged.coefficients_, plain.coefficients_, rtol=1e-8, atol=1e-10)
    some = frame[["age", "area"]].iloc[:200]
    for one, other in zip(merged.predict_interval(some), plain.predict_interval(some), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8)
    assert merged.n_rows_ == plain.n_rows_ == N
    assert merged.n_missing_reports_ == plain.n_missing_reports_ == 100


def test_other_corrections_do_not_merge(frame: pd.DataFrame) -> None:
    for settings in ({"correction": "score", "pooling": 0}, {"pooling": "auto"}):
        with pytest.raises(ValueError, match='only correction="inverse" with a given strength of pooling'):
            fit(frame.iloc[:5000], True, **settings)
    with pytest.raises(ValueError, match="Got merge='yes'"):
        fit(frame.iloc[:5000], "yes")
