"""The comparison of the three prices: numbers first, then the drawing."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtri, stdtrit

from fairpremium import DiscriminationFreePricer, RandomizedResponse
from fairpremium.audit import compute_price_comparison, plot_price_comparison
from fairpremium.audit.drawing import to_svg
from fairpremium.errors import MissingExtraError
from fairpremium.portfolios import unbalanced_poisson, zhang_liu_shi_2025


@pytest.fixture(scope="module")
def portfolio():
    return zhang_liu_shi_2025(n=3000, rng=0, age_band=True)


@pytest.fixture(scope="module")
def pricer(portfolio):
    channel = RandomizedResponse(portfolio.groups, keep=0.8)
    reports = channel.privatize(portfolio.sensitive, rng=0)
    return DiscriminationFreePricer(channel=channel, random_state=0).fit(portfolio.X, portfolio.y, sensitive=reports)


@pytest.fixture(scope="module")
def comparison(pricer, portfolio):
    return compute_price_comparison(pricer, portfolio.X, by="smoker", truth=portfolio)


# --- the table ---


def test_means_are_those_of_the_rows(comparison, pricer, portfolio):
    smoker = portfolio.X["smoker"].to_numpy()
    part = comparison[comparison["risk_class"] == True].set_index("price")  # noqa: E712
    X = portfolio.X[smoker]
    best = part.loc["best_estimate"].set_index("group")["mean"]
    np.testing.assert_allclose(best[["F", "M"]], pricer.predict_best_estimate(X).mean())
    assert part.loc["unaware", "mean"] == pytest.approx(pricer.predict_unaware(X).mean())
    assert part.loc["discrimination_free", "mean"] == pytest.approx(pricer.predict(X).mean())
    assert part.loc["discrimination_free", "truth"] == pytest.approx(portfolio.discrimination_free(X).mean())
    assert part["rows"].unique().tolist() == [smoker.sum()]


def test_the_interval_beside_a_mean_is_the_interval_of_the_mean(pricer, portfolio):
    """Not the mean of the rows' limits: it has the standard error of the mean, which that of one row is for itself."""
    X, weight = portfolio.X.head(50), np.arange(1.0, 51.0)
    row = compute_price_comparison(pricer, X, sample_weight=weight, level=0.9).iloc[-1]
    R, _ = pricer.covariance_root(X)
    error = np.sqrt((weight / weight.sum()) @ (R @ R.T) @ (weight / weight.sum()))
    assert (row["high"] - row["mean"], row["mean"] - row["low"]) == pytest.approx((ndtri(0.95) * error,) * 2)
    limits = pricer.predict_interval(X, 0.9)
    assert row["high"] - row["low"] < 0.9 * np.average(limits.upper - limits.lower, weights=weight)
    alone = compute_price_comparison(pricer, X, by=np.arange(50).astype(str), level=0.9)
    alone = alone[alone["price"] == "discrimination_free"]
    np.testing.assert_allclose(alone[["low", "high"]].to_numpy().T, limits)  # of one policy: the identity link


def test_a_jackknife_has_the_interval_of_the_mean_too(portfolio):
    """Against the definition: the mean premium of each fit without a fold, and Student's quantile."""
    pricer = DiscriminationFreePricer(model="boosted", random_state=0, pooling=0)
    pricer.fit(portfolio.X.head(600), portfolio.y[:600], sensitive=portfolio.sensitive[:600])
    R, freedom = pricer.covariance_root(portfolio.X.head(40))
    row = compute_price_comparison(pricer, portfolio.X.head(40)).iloc[-1]
    width = stdtrit(freedom, 0.975) * np.linalg.norm(R.mean(axis=0))
    assert row["high"] - row["mean"] == pytest.approx(width)


def test_intervals_of_class_means_cover_as_often_as_they_say():
    """150 samples: 95 % of the intervals hold the truth, neither fewer nor nearly all."""
    held = []
    for seed in range(150):
        p = zhang_liu_shi_2025(n=1000, rng=seed)
        pricer = DiscriminationFreePricer(pooling=0, correction="inverse").fit(p.X, p.y, sensitive=p.sensitive)
        table = compute_price_comparison(pricer, p.X, by="smoker", truth=p)
        free = table[table["price"] == "discrimination_free"]
        held += ((free["low"] <= free["truth"]) & (free["truth"] <= free["high"])).tolist()
    assert len(held) == 300
    assert 0.91 < np.mean(held) < 0.985


def test_the_premium_is_the_weighted_mean_of_the_best_estimates(comparison, pricer):
    for _, part in comparison.groupby("risk_class"):
        values = part.set_index("price")["mean"]
        assert values["discrimination_free"] == pytest.approx(
            values["best_estimate"].to_numpy() @ pricer.reference_distribution_
        )


def test_weights_equal_repeated_rows(pricer, portfolio):
    X = portfolio.X.head(200)
    weight = np.arange(200) % 3
    repeated = X.loc[X.index.repeat(weight)]
    by = np.where(X["age"] > 50, "old", "young")
    a = compute_price_comparison(pricer, X, by=by, sample_weight=weight)
    b = compute_price_comparison(pricer, repeated, by=np.repeat(by, weight))
    columns = ["share", "mean", "low", "high"]
    a, b = (t.set_index(["risk_class", "price", "group"])[columns].sort_index() for t in (a, b))
    pd.testing.assert_frame_equal(a, b)


def test_one_class_by_default(pricer, portfolio):
    table = compute_price_comparison(pricer, portfolio.X)
    assert table["risk_class"].unique().tolist() == ["all"]
    assert "truth" not in table
    assert table["share"].unique().tolist() == [1.0]


def test_classes_keep_the_order_of_their_categories(pricer, portfolio):
    by = pd.Categorical(np.where(portfolio.X["age"] > 50, "old", "young"), ["young", "old", "absent"])
    table = compute_price_comparison(pricer, portfolio.X, by=pd.Series(by))
    assert table["risk_class"].unique().tolist() == ["young", "old"]
    assert compute_price_comparison(pricer, portfolio.X, by=by)["risk_class"].unique().tolist() == ["young", "old"]


def test_many_groups_another_family_and_no_intervals():
    p = unbalanced_poisson(n=4000, rng=0)
    pricer = DiscriminationFreePricer(family="poisson", intervals=False, pooling=10)
    pricer.fit(p.X, p.y, sensitive=p.sensitive, sample_weight=p.sample_weight)
    table = compute_price_comparison(pricer, p.X, truth=p, sample_weight=p.sample_weight)
    assert len(table) == len(p.groups) + 2
    assert table["low"].isna().all()
    to_svg(plot_price_comparison(pricer, p.X, truth=p))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"by": "town"}, "X has the columns"),
        ({"by": ["a"]}, "by with 1 rows"),
        ({"by": [None] * 3000}, "3000 missing"),
        ({"sample_weight": [1.0]}, "sample_weight with 1 rows, but X has 3000"),
        ({"sample_weight": [-1.0] * 3000}, "volumes >= 0"),
        ({"level": 2}, "level=2"),
    ],
)
def test_wrong_arguments(pricer, portfolio, arguments, expected):
    with pytest.raises(ValueError, match=re.escape(expected)):
        compute_price_comparison(pricer, portfolio.X, **arguments)


# --- the drawing ---


def test_the_drawing_holds_every_number(pricer, portfolio, comparison):
    svg = to_svg(plot_price_comparison(pricer, portfolio.X, by="smoker", truth=portfolio, unit="EUR"))
    root = ElementTree.fromstring(svg)
    words = " ".join(text for text in root.itertext())
    for mean in comparison["mean"]:
        assert f"{mean:,.0f}" in words
    for word in ("discrimination-free", "unaware", "best estimate", "EUR", "95 % interval", "the truth"):
        assert word in words
    assert "http" not in svg.replace("http://www.w3.org/", "")


def test_without_altair_it_says_how_to_get_it(pricer, portfolio, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "altair", None)
    with pytest.raises(MissingExtraError, match=r"fairpremium\[report\]"):
        plot_price_comparison(pricer, portfolio.X)
