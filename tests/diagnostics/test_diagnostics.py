"""Observed against expected, lift, double lift and held-out rows: against slow computations and known truths."""

from __future__ import annotations

import inspect

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import stats
from sklearn.metrics import d2_tweedie_score, mean_poisson_deviance

from fairpremium import DiscriminationFreePricer, RandomizedResponse
from fairpremium import diagnostics as dg
from fairpremium.audit import compute_gini
from helpers.limits import fieller

CHANNEL = RandomizedResponse(["F", "M"], keep=0.8)


def book(n: int, seed: int = 0) -> dict[str, np.ndarray | pd.DataFrame]:
    """Counts over exposures; `h` is right for everybody, and 0.8 and 1.2 of the truth in the groups."""
    rng = np.random.default_rng(seed)
    D = rng.choice(["F", "M"], n)
    X = pd.DataFrame({
        "age": rng.integers(18, 80, n), "region": rng.choice(["north", "south"], n), "new": rng.random(n) < 0.3,
    })  # fmt: skip
    h = 0.4 * np.exp(0.01 * (X["age"].to_numpy() - 40) + 0.3 * (X["region"] == "south").to_numpy())
    e = rng.uniform(0.3, 1.0, n)
    counts = rng.poisson(e * h * np.where(D == "F", 0.8, 1.2))
    return {"X": X, "h": h, "e": e, "counts": counts, "D": D, "S": CHANNEL.privatize(D, rng=seed)}


def test_observed_over_expected_is_that_of_a_slow_computation():
    b = book(3000)
    table = dg.compute_observed_expected(b["h"], b["counts"], b["X"], exposure=b["e"], sensitive=b["D"], bands=4)
    assert list(table["factor"].unique()) == ["age", "region", "new"]
    assert list(table.loc[table["factor"] == "new", "level"].unique()) == ["False", "True"]
    assert table.loc[table["factor"] == "age", "level"].nunique() == 4
    for region in ("north", "south"):
        for group in (None, "F", "M"):
            rows = (b["X"]["region"] == region).to_numpy() & (True if group is None else b["D"] == group)
            N, E = b["counts"][rows], (b["h"] * b["e"])[rows]
            row = table[(table["level"] == region) & table["group"].map(lambda g, want=group: g == want)].iloc[0]
            assert row["ratio"] == pytest.approx(N.sum() / E.sum())
            assert row["volume"] == pytest.approx(b["e"][rows].sum())
            assert row["observed"] == pytest.approx(N.sum() / b["e"][rows].sum())
            assert row["expected"] == pytest.approx(E.sum() / b["e"][rows].sum())
            found = (row["ratio_low"], row["ratio_high"])
            assert found == pytest.approx(fieller(rows.astype(float), b["counts"], b["h"] * b["e"]))
    of_weights = dg.compute_observed_expected(
        b["h"], b["counts"] / b["e"], b["X"], sample_weight=b["e"], sensitive=b["D"], bands=4
    )
    pd.testing.assert_frame_equal(of_weights, table)


def test_groups_are_seen_through_the_noise():
    b = book(40_000)
    table = dg.compute_observed_expected(
        b["h"], b["counts"], b["X"], exposure=b["e"], sensitive=b["S"], channel=CHANNEL, bands=5
    )
    truth = table["group"].map({"F": 0.8, "M": 1.2}).fillna(1.0)
    error = (table["ratio_high"] - table["ratio_low"]) / (2 * stats.norm.ppf(0.975))
    z = (table["ratio"] - truth) / error
    assert np.abs(z).max() < 4
    assert np.mean(z**2) == pytest.approx(1, abs=3 * np.sqrt(2 / len(z)))


def test_intervals_cover():
    """95 per cent, up to three standard errors of 300 portfolios."""
    inside = []
    for seed in range(300):
        b = book(400, seed)
        row = dg.compute_observed_expected(b["h"], b["counts"], b["X"][["region"]], exposure=b["e"]).iloc[0]
        lift = dg.compute_lift(b["h"], b["counts"], exposure=b["e"], bins=2).iloc[0]
        truth = lift["expected_lift"]  # the price is right, and its mean over the rows close to that of the population
        inside.append((row["ratio_low"] < 1 < row["ratio_high"], lift["lift_low"] < truth < lift["lift_high"]))
    assert (np.abs(np.mean(inside, axis=0) - 0.95) < 3 * np.sqrt(0.95 * 0.05 / 300)).all()


def test_bands_and_levels():
    n = 1000
    X = pd.DataFrame({
        "few": np.arange(n) % 3,
        "many": np.arange(n),
        "ordered": pd.Categorical(np.where(np.arange(n) % 2, "low", "high"), ["none", "low", "high"], ordered=True),
    })  # fmt: skip
    table = dg.compute_observed_expected(np.ones(n), np.ones(n), X, bands=5)
    levels = {name: list(part["level"]) for name, part in table.groupby("factor", sort=False)}
    assert levels["few"] == ["0", "1", "2"]
    assert levels["ordered"] == ["low", "high"]
    assert levels["many"] == ["0 to 199", "200 to 399", "400 to 599", "600 to 799", "800 to 999"]
    only = dg.compute_observed_expected(np.ones(n), np.ones(n), X.to_numpy()[:, :1].astype(float), factors=["x0"])
    assert set(only["factor"]) == {"x0"}


def test_few_rows_have_a_mean_and_no_interval():
    n = 300
    X = pd.DataFrame({"area": ["rare"] * 10 + ["usual"] * (n - 10)})
    D = np.array(["F", "M"] * (n // 2))
    table = dg.compute_observed_expected(np.ones(n), np.ones(n), X, sensitive=D)
    rare = table[table["level"] == "rare"]
    assert rare["ratio"].tolist()[0] == 1.0
    assert np.isnan(rare["ratio"].to_numpy()[1:]).all()
    assert rare[["ratio_low", "ratio_high"]].isna().all(axis=None)
    assert "too few rows for an interval (10" in rare["note"].iloc[0]
    assert "too few effective reports" in rare["note"].iloc[1]


def test_mistakes_are_named():
    b = book(100)
    for change, said in (
        ({"X": b["X"].head(9)}, "Got X with 9 rows, but premiums has 100"),
        ({"X": b["X"].assign(age=np.nan)}, "100 missing values in column 'age'"),
        ({"factors": ["colour"]}, r"Got factors=\['colour'\]"),
        ({"bands": 0}, "Got bins=0"),
        ({"exposure": np.zeros(100)}, "Got exposure with 100"),
        ({"channel": CHANNEL}, "sensitive=None"),
    ):
        with pytest.raises(ValueError, match=said):
            dg.compute_observed_expected(**{"premiums": b["h"], "y": b["counts"], "X": b["X"], **change})
    with pytest.raises(ValueError, match="Got against with 1 of 100 values not above zero"):
        dg.compute_double_lift(b["h"], np.append(0.0, b["h"][1:]), b["counts"])
    with pytest.raises(ValueError, match="without any loss"):
        dg.compute_double_lift(b["h"], b["h"], np.zeros(100))


def test_lift_is_that_of_a_slow_computation():
    b = book(2000)
    table = dg.compute_lift(b["h"], b["counts"], exposure=b["e"], sensitive=b["D"], bins=4)
    assert len(table) == 12
    order = np.argsort(b["h"], kind="stable")
    middle = np.cumsum(b["e"][order]) - b["e"][order] / 2
    quarter = np.empty(2000, int)
    quarter[order] = np.minimum(4 * middle / b["e"].sum(), 3).astype(int)
    for group in (None, "M"):
        own = np.ones(2000, bool) if group is None else b["D"] == group
        part = table[table["group"].map(lambda g, want=group: g == want)]
        for k, row in enumerate(part.to_dict("records")):
            inside = own & (quarter == k)
            lift = np.average(b["counts"][inside] / b["e"][inside], weights=b["e"][inside])
            lift /= np.average(b["counts"][own] / b["e"][own], weights=b["e"][own])
            assert row["bin"] == k + 1
            assert row["lift"] == pytest.approx(lift, rel=0.02)  # equal premiums stay together
            assert row["lift_low"] < row["lift"] < row["lift_high"]


def test_double_lift_shows_the_better_price():
    b = book(30_000)
    worse = b["h"] * np.exp(np.random.default_rng(1).normal(0, 0.4, len(b["h"])))
    table = dg.compute_double_lift(b["h"], 3 * worse, b["counts"], exposure=b["e"], bins=5)
    assert list(table["bin"]) == [1, 2, 3, 4, 5]
    assert (np.diff(table["quotient"]) > 0).all()
    assert ((table["ratio_low"] < 1) & (table["ratio_high"] > 1)).sum() >= 4
    assert table["against_ratio_high"].iloc[0] < 1 < table["against_ratio_low"].iloc[-1]
    total = np.average(table["premium"], weights=np.ones(5))
    assert total == pytest.approx(table["loss"].mean(), rel=0.01)  # rescaled, in bins of equal volume
    plain = dg.compute_double_lift(b["h"], 3 * worse, b["counts"], exposure=b["e"], bins=5, rescale=False)
    assert (plain["against"] / plain["premium"]).mean() > 2


def test_tables_come_back_in_the_callers_library():
    b = book(500)
    table = dg.compute_lift(pl.Series(b["h"]), pl.Series(b["counts"]), bins=2)
    assert isinstance(table, pl.DataFrame)
    table = dg.compute_observed_expected(pl.Series(b["h"]), b["counts"], pl.from_pandas(b["X"]))
    assert isinstance(table, pl.DataFrame)


def test_held_out_rows():
    held = dg.hold_out(1000, 0.2, random_state=0)
    assert held.sum() == 200
    assert (held == dg.hold_out(1000, 0.2, random_state=0)).all()
    person = np.arange(1000) // 4
    held = dg.hold_out(1000, 0.2, cluster=person, random_state=0)
    assert held.sum() == 200
    assert all(held[person == p].all() or not held[person == p].any() for p in range(250))
    for wrong in (0, 1, 1.5, True, "half", 1e-9):
        with pytest.raises(ValueError, match="Got test="):
            dg.hold_out(1000, wrong)


def test_evaluation_is_that_of_a_slow_computation():
    b = book(1500)
    y = b["counts"] / b["e"]
    pricer = DiscriminationFreePricer("poisson", pooling=0).fit(b["X"], y, sensitive=b["D"], sample_weight=b["e"])
    table = dg.evaluate(pricer, b["X"], b["counts"], sensitive=b["D"], exposure=b["e"]).set_index("price")
    best = pricer.predict_best_estimate(b["X"]).to_numpy()[np.arange(1500), (b["D"] == "M").astype(int)]
    prices = {
        "discrimination_free": pricer.predict(b["X"]), "unaware": pricer.predict_unaware(b["X"]), "best_estimate": best,
    }  # fmt: skip
    for name, mu in prices.items():
        assert table.loc[name, "deviance"] == pytest.approx(mean_poisson_deviance(y, mu, sample_weight=b["e"]))
        explained = d2_tweedie_score(y, mu, sample_weight=b["e"], power=1)
        assert table.loc[name, "deviance_explained"] == pytest.approx(explained)
        assert table.loc[name, "ratio"] == pytest.approx(b["counts"].sum() / (mu * b["e"]).sum())
    gini = compute_gini(prices["unaware"], y, sample_weight=b["e"])
    assert table.loc["unaware", "gini"] == pytest.approx(gini["gini"][0])
    assert np.isnan(table.loc["best_estimate", "gini"])
    without = dg.evaluate(pricer, b["X"], b["counts"], exposure=b["e"])
    assert list(without["price"]) == ["discrimination_free", "unaware"]


@pytest.mark.parametrize("with_groups", [False, True])
def test_drawings(with_groups):
    b = book(800)
    roles = {"exposure": b["e"], "sensitive": b["S"], "channel": CHANNEL} if with_groups else {"exposure": b["e"]}
    charts = (
        dg.plot_observed_expected(b["h"], b["counts"], b["X"], bands=3, **roles),
        dg.plot_lift(b["h"], b["counts"], bins=4, unit="claims", **roles),
        dg.plot_double_lift(b["h"], b["h"] ** 1.1, b["counts"], bins=4, **roles),
    )
    for chart in charts:
        assert chart.to_dict()["$schema"]
    for name in ("observed_expected", "lift", "double_lift"):
        plot, compute = getattr(dg, f"plot_{name}"), getattr(dg, f"compute_{name}")
        assert set(inspect.signature(compute).parameters) | {"unit"} == set(inspect.signature(plot).parameters)
