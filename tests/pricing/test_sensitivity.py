"""The sensitivity band: the same fit with other values of keep."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fairpremium import DiscriminationFreePricer, RandomizedResponse
from fairpremium.portfolios import zhang_liu_shi_2025
from fairpremium.pricing._sensitivity import default_keeps, sensitivity_band


@pytest.fixture(scope="module")
def fitted():
    p = zhang_liu_shi_2025(n=3000, rng=0, age_band=True)
    channel = RandomizedResponse(["F", "M"], keep=0.8)
    S = channel.privatize(p.sensitive, rng=0)
    pricer = DiscriminationFreePricer(channel=channel, correction="inverse", pooling=0, random_state=0)
    return pricer.fit(p.X, p.y, sensitive=S), p, S


def test_each_keep_is_an_ordinary_fit(fitted):
    pricer, p, S = fitted
    table = sensitivity_band(pricer, p.X, p.y, sensitive=S, rows=p.X[:3], keeps=[0.75, 0.9, 1.0])
    assert table.columns.tolist() == ["row", "keep", "premium", "unaware", "used"]
    assert table["row"].tolist() == np.repeat([0, 1, 2], 4).tolist()
    for keep, part in table.groupby("keep"):
        channel = None if keep == 1 else RandomizedResponse(["F", "M"], keep=keep)
        other = DiscriminationFreePricer(channel=channel, correction="inverse", pooling=0, intervals=False)
        expected = other.fit(p.X, p.y, sensitive=S).predict(p.X[:3])
        assert part["premium"].to_numpy() == pytest.approx(expected)
        assert part["unaware"].to_numpy() == pytest.approx(pricer.predict_unaware(p.X[:3]))
    assert table.loc[table["used"], "keep"].unique() == pytest.approx([0.8])
    assert table.loc[table["used"], "premium"].to_numpy() == pytest.approx(pricer.predict(p.X[:3]))


def test_positions_and_tables_are_the_same_risks(fitted):
    pricer, p, S = fitted
    by_table = sensitivity_band(pricer, p.X, p.y, sensitive=S, rows=p.X.iloc[[7, 3]], keeps=[0.9])
    by_position = sensitivity_band(pricer, p.X, p.y, sensitive=S, rows=[7, 3], keeps=[0.9])
    assert set(by_position["row"]) == {3, 7}
    for position, row in ((7, 0), (3, 1)):
        a = by_position[by_position["row"] == position]["premium"].to_numpy()
        assert a == pytest.approx(by_table[by_table["row"] == row]["premium"].to_numpy())


@pytest.mark.parametrize("K", [2, 3, 5])
@pytest.mark.parametrize("keep", [0.55, 0.7, 0.9, 0.99])
def test_default_grid_is_wider_upwards(K, keep):
    grid = default_keeps(keep, K)
    assert grid == sorted(grid)
    assert keep in grid
    assert grid[-1] == 1.0
    assert grid[0] > 1 / K
    assert grid[-1] - keep >= 2 * (keep - grid[0]) - 1e-12


def test_a_fit_without_solution_is_a_gap(fitted):
    pricer, p, S = fitted
    few = np.arange(60)
    table = sensitivity_band(pricer, p.X.iloc[few], p.y[few], sensitive=S[few], rows=[0], keeps=[0.501, 1.0])
    assert np.isnan(table["premium"].iloc[0])
    assert np.isfinite(table["premium"].iloc[-1])
    assert np.isfinite(table["unaware"]).all()


@pytest.mark.parametrize("pooling", ["auto", 7.0])
def test_pooling_and_settings_stay(fitted, pooling):
    _, p, S = fitted
    channel = RandomizedResponse(["F", "M"], keep=0.8)
    pricer = DiscriminationFreePricer(channel=channel, correction="inverse", reference="uniform", pooling=pooling)
    pricer.fit(p.X, p.y, sensitive=S, sample_weight=np.full(3000, 2.0))
    arguments = {"sensitive": S, "rows": [0], "sample_weight": np.full(3000, 2.0), "keeps": [0.9]}
    table = sensitivity_band(pricer, p.X, p.y, **arguments)
    other = DiscriminationFreePricer(
        channel=RandomizedResponse(["F", "M"], keep=0.9),
        correction="inverse",
        reference="uniform",
        pooling=pooling,
        intervals=False,
    ).fit(p.X, p.y, sensitive=S, sample_weight=np.full(3000, 2.0))
    assert table["premium"].iloc[-1] == pytest.approx(other.predict(p.X[:1])[0])
    assert pricer.channel.keep == pytest.approx(0.8)  # the pricer itself is left as it was


@pytest.mark.parametrize(
    "rows, keeps, match",
    [
        ([5000], [0.9], "positions 0 to 2999"),
        ([-1], [0.9], "positions"),
        (["a"], [0.9], "neither positions"),
        ([], [0.9], "neither positions"),
        ([0], [0.4], "above 1/K"),
        ([0], [1.1], "at most 1"),
    ],
)
def test_bad_arguments(fitted, rows, keeps, match):
    pricer, p, S = fitted
    with pytest.raises(ValueError, match=match):
        sensitivity_band(pricer, p.X, p.y, sensitive=S, rows=rows, keeps=keeps)


def test_true_attribute_has_no_keep(fitted):
    _, p, _ = fitted
    pricer = DiscriminationFreePricer(pooling=0).fit(p.X, p.y, sensitive=p.sensitive)
    for bad in (pricer, DiscriminationFreePricer()):
        with pytest.raises(ValueError, match="RandomizedResponse"):
            sensitivity_band(bad, p.X, p.y, sensitive=p.sensitive, rows=[0])


def test_arrays(fitted):
    _, p, S = fitted
    X = p.X.to_numpy(dtype=float)
    channel = RandomizedResponse(["F", "M"], keep=0.8)
    pricer = DiscriminationFreePricer(channel=channel, correction="inverse", pooling=0).fit(X, p.y, sensitive=S)
    table = sensitivity_band(pricer, X, p.y, sensitive=S, rows=X[:2].tolist(), keeps=[0.9])
    assert isinstance(table, pd.DataFrame)
    assert len(table) == 4
