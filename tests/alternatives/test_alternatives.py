"""Less discriminatory alternatives: candidates, measures with their errors, the search and its frontier."""

import dataclasses
import itertools

import numpy as np
import pandas as pd
import pytest

from fairpremium import DiscriminationFreePricer, LinearModel, RandomizedResponse
from fairpremium.alternatives import Candidate, FeatureSet, plot_alternatives, search_alternatives
from fairpremium.alternatives._candidate import feature_sets
from fairpremium.alternatives._disparity import MEASURES
from fairpremium.spectrum import compute_parity_distance


def portfolio(n, seed=0):
    """Claims depend on age, region and group; `proxy` says much about the group and nothing else about claims."""
    rng = np.random.default_rng(seed)
    d = rng.integers(0, 2, n)
    X = pd.DataFrame({
        "age": rng.integers(18, 80, n),
        "region": rng.choice(list("NSEWC"), n, p=[0.4, 0.3, 0.2, 0.06, 0.04]),
        "proxy": np.where(rng.random(n) < 0.85, d, 1 - d).astype(float),
    })  # fmt: skip
    e = rng.uniform(0.3, 1, n)
    rate = np.exp(-1.5 - 0.015 * (X["age"] - 45) + 0.3 * (X["region"] == "N") + 0.6 * d)
    return X, rng.poisson(e * rate), np.array(["F", "M"], dtype=object)[d], e


@pytest.fixture(scope="module")
def searched():
    X, counts, D, e = portfolio(12_000)
    channel = RandomizedResponse(["F", "M"], keep=0.8)
    S = channel.privatize(D, rng=0)
    pricer = DiscriminationFreePricer(family="poisson", channel=channel, correction="inverse", pooling=0)
    said = []
    found = search_alternatives(
        pricer, X, counts, sensitive=S, exposure=e, coarsen={"age": [30, 50]}, mixtures=(0, 0.5, 1),
        verbose=lambda part, words: said.append((part, words)),
    )  # fmt: skip
    return X, counts, D, S, e, pricer, found, said


# --- candidates ---


def test_candidates_are_made_from_the_features_alone():
    X, *_ = portfolio(2000)
    sets = feature_sets(X, "each", "each")
    assert sets[0] == FeatureSet()
    assert [each.drop for each in sets[1:4]] == [("age",), ("region",), ("proxy",)]
    age, region = sets[4:]
    assert age.words == "age in 4 bands"
    assert age.apply(X)["age"].value_counts(normalize=True).between(0.2, 0.3).all()
    assert region.coarsen == (("region", ("N", "S", "E")),)
    assert set(region.apply(X)["region"]) == {"N", "S", "E", "other"}
    assert list(X) == ["age", "region", "proxy"]  # the caller's table stays
    assert X["age"].dtype.kind == "i"


def test_bands_are_half_open():
    how = FeatureSet(coarsen=(("age", (30.0, 50.0)),))
    bands = how.apply(pd.DataFrame({"age": [18, 29.9, 30, 49, 50, 90]}))["age"].tolist()
    assert bands == ["below 30", "below 30", "30 to 50", "30 to 50", "from 50", "from 50"]


def test_wishes_may_be_several_and_names_tell_them_apart():
    X, *_ = portfolio(500)
    sets = feature_sets(X, [["age", "region"]], {"age": [2, [30, 50]], "region": 2})
    names = [Candidate(each, 0.25).name for each in sets]
    assert names == [
        "all features; 25% discrimination-free",
        "without age, region; 25% discrimination-free",
        "age in 2 bands; 25% discrimination-free",
        "age in 3 bands; 25% discrimination-free",
        "region in 2 levels; 25% discrimination-free",
    ]


# --- measures ---


@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize("K", [2, 3])
def test_influences_are_derivatives(name, K):
    """The slow twin: the weight of one row is changed a little, and the measure computed again."""
    rng = np.random.default_rng(1)
    n = 120
    price, best = rng.gamma(3, size=n), rng.gamma(3, size=(n, K))
    weight, signed = rng.uniform(0.5, 2, n), rng.uniform(-0.3, 1.2, (n, K))
    measure = MEASURES[name]
    value, influence = measure(price, signed, weight, best)
    assert influence.sum() == pytest.approx(0, abs=1e-10)
    for i in (0, 17, 63):
        step = 1e-6
        w, a = weight.copy(), signed.copy()
        w[i] *= 1 + step
        a[i] *= 1 + step
        assert (measure(price, a, w, best)[0] - value) / step == pytest.approx(influence[i], abs=2e-5)


def test_distances_are_those_of_the_spectrum():
    rng = np.random.default_rng(2)
    price, D, w = rng.gamma(2, size=400), rng.choice(list("abc"), 400), rng.uniform(0.5, 1, 400)
    signed = (np.array(list("abc")) == D[:, None]) * w[:, None]
    table = compute_parity_distance(price, sensitive=D, sample_weight=w).iloc[0]
    for name in ("kolmogorov", "wasserstein"):
        assert MEASURES[name](price, signed, w, price[:, None])[0] == pytest.approx(table[name], abs=1e-12)
    means = [np.average(price[g == D], weights=w[g == D]) for g in "abc"]
    sd = np.sqrt(np.average((price - np.average(price, weights=w)) ** 2, weights=w))
    expected = max(abs(a - b) for a, b in itertools.combinations(means, 2)) / sd
    assert MEASURES["standardized_mean_difference"](price, signed, w, price[:, None])[0] == pytest.approx(expected)


# --- the search ---


def test_the_search_finds_what_was_built_in(searched):
    *_, found, said = searched
    table = found.table.set_index("candidate")
    assert len(table) == 1 + 5 * 3
    assert len(said) == 15
    assert said[0] == (0.0, "all features, fold 1 of 3")
    unaware, free = "all features; unaware", "all features; discrimination-free"
    assert table.loc["current price", "deviance_change"] == 0
    assert abs(table.loc[unaware, "disparity_change"]) < 1e-3  # the current price, but for the balance
    assert table.loc["current price", "disparity"] > 0.2  # the proxy stands for the group
    assert table.loc[free, "disparity"] < 0.02
    assert table.loc[free, "disparity_change_high"] < 0
    assert table.loc["without proxy; unaware", "disparity_change_high"] < 0
    assert table.loc["without age; unaware", "deviance_change_low"] > 0
    assert table.loc[free, "answer"].startswith("less disparity")
    assert table.loc["without age; unaware", "answer"] in ("more disparity", "cannot tell")
    mixed = table.loc[[unaware, "all features; 50% discrimination-free", free], "disparity"]
    assert mixed.is_monotonic_decreasing


def test_the_frontier_is_what_nothing_beats(searched):
    table, frontier = searched[-2].table, searched[-2].frontier
    for row in table.itertuples():
        beats = table[(table["deviance"] <= row.deviance) & (table["disparity"] <= row.disparity)]
        beats = beats[(beats["deviance"] < row.deviance) | (beats["disparity"] < row.disparity)]
        assert row.frontier == beats.empty
    assert (frontier["deviance"].pct_change()[1:] >= -1e-9).all()  # those that differ by rounding keep their order
    assert (frontier["disparity"].diff()[1:] <= 1e-9).all()


def test_deviances_are_of_rows_that_the_fit_has_not_seen(searched):
    """The slow twin: folds, fits and the balance by hand, for one candidate."""
    X, counts, _, S, e, pricer, found, _ = searched
    fold = np.random.RandomState(0).permutation(len(X)) % 3
    used = X.drop(columns="proxy")
    price = np.empty(len(X))
    for f in range(3):
        seen = fold != f
        fitted = DiscriminationFreePricer(family="poisson", channel=pricer.channel, correction="inverse", pooling=0)
        fitted.fit(used[seen], counts[seen], sensitive=S[seen], exposure=e[seen])
        mixed = (fitted.predict_unaware(used) + fitted.predict(used)) / 2
        price[~seen] = mixed[~seen] * counts[seen].sum() / (mixed[seen] @ e[seen])
    name = "without proxy; 50% discrimination-free"
    np.testing.assert_allclose(found.premiums[name], price, rtol=1e-9)
    y = counts / e
    unit = 2 * (np.where(y > 0, y * np.log(np.where(y > 0, y, 1) / price), 0) - y + price)
    row = found.table.set_index("candidate").loc[name]
    assert row["deviance"] == pytest.approx(np.average(unit, weights=e), rel=1e-9)


def test_a_candidate_can_be_fitted_to_all_rows(searched):
    X, counts, _, S, e, *_, found, _ = searched
    fitted = found.refit("age in 3 bands; 50% discrimination-free", X, counts, sensitive=S, exposure=e)
    premium = fitted.predict(X)
    assert premium @ e == pytest.approx(counts.sum())
    assert len(np.unique(premium[X["region"] == "N"])) == 3 * 2
    with pytest.raises(ValueError, match="expected one of the candidates"):
        found.refit("another", X, counts, sensitive=S, exposure=e)


def test_limits_hold_for_all_candidates_together(searched):
    """The slow twin: paired differences by hand; all limits are the same multiple of their errors, above 1.96."""
    _, counts, _, _, e, *_, found, _ = searched
    price, w, y = found.premiums.to_numpy(), e / e.sum(), (counts / e)[:, None]
    unit = 2 * (np.where(y > 0, y * np.log(np.where(y > 0, y, 1) / price), 0) - y + price)
    paired = unit - unit[:, :1]
    error = np.sqrt((w[:, None] ** 2 * (paired - w @ paired) ** 2).sum(axis=0))[2:]
    table = found.table.iloc[2:]
    np.testing.assert_allclose(table["deviance_change"], (w @ paired)[2:], atol=1e-12)
    factor = (table["deviance_change_high"] - table["deviance_change"]) / error
    np.testing.assert_allclose(factor, factor.iloc[0], rtol=1e-6)
    assert 1.96 < factor.iloc[0] < 3.5


def test_limits_on_the_change_from_given_prices():
    X, counts, D, e = portfolio(3000, seed=1)
    current = np.full(len(X), counts.sum() / e.sum())
    pricer = DiscriminationFreePricer(family="poisson", pooling=0)
    found = search_alternatives(
        pricer, X, counts, sensitive=D, exposure=e, current=current, cap=0.1, floor=-0.1, drop=None, coarsen=None,
        mixtures=(0, 1), disparity="kolmogorov", folds=2,
    )  # fmt: skip
    change = found.premiums / current[:, None] - 1
    assert change.abs().max().max() <= 0.1 + 1e-12
    assert found.table["disparity"][0] == pytest.approx(0, abs=1e-12)  # a flat price


def test_the_same_seed_gives_the_same_table_and_persons_stay_in_a_fold():
    X, counts, D, e = portfolio(1500, seed=2)
    pricer = DiscriminationFreePricer(family="poisson", pooling=0)
    settings = {"sensitive": np.repeat(D, 2), "exposure": np.repeat(e, 2), "drop": None, "coarsen": None, "folds": 2,
                "mixtures": (1,), "disparity": "standardized_mean_difference"}  # fmt: skip
    twice, both = X.loc[np.repeat(X.index, 2)], np.repeat(counts, 2)
    tables = [
        search_alternatives(pricer, twice, both, cluster=np.repeat(np.arange(1500), 2), **settings) for _ in range(2)
    ]
    pd.testing.assert_frame_equal(tables[0].table, tables[1].table)
    pairs = tables[0].premiums.to_numpy().reshape(1500, 2, -1)
    np.testing.assert_allclose(pairs[:, 0], pairs[:, 1])


def test_the_frontier_is_drawn(searched):
    assert plot_alternatives(searched[-2]).to_dict()["layer"]


def test_a_tariff_far_behind_the_frontier_does_not_hide_it(searched):
    found = searched[-2]
    table = found.table.copy()
    reach = table.loc[table["frontier"], "deviance_change_high"].max()
    last = table.index[~table["frontier"]][-1]
    table.loc[last, ["deviance_change", "deviance"]] = [100 * reach, 1e6]
    chart = plot_alternatives(dataclasses.replace(found, table=table)).to_dict()
    drawn = [row["candidate"] for rows in chart["datasets"].values() for row in rows if "candidate" in row]
    assert table.loc[last, "candidate"] not in drawn
    assert set(table.loc[table["frontier"], "candidate"]) <= set(drawn)
    left_out = (table["deviance_change"] > 3 * reach).sum()
    assert chart["title"]["subtitle"] == f"{left_out} with a still larger deviance are not drawn"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"disparity": "gini"}, "Got disparity='gini', but expected one of proxy_discrimination"),
        ({"drop": ["income"]}, r"Got drop with \['income'\], but expected columns of X"),
        ({"drop": [["age", "region", "proxy"]]}, "some to be left"),
        ({"coarsen": {"age": [50, 30]}}, "limits that increase"),
        ({"coarsen": {"age": 1}}, "number of bands from 2 on"),
        ({"mixtures": (2,)}, "numbers from 0"),
        ({"folds": 1}, "whole number from 2 to 20"),
        ({"pricer": DiscriminationFreePricer(model=LinearModel(terms="age"))}, "has terms"),
    ],
)
def test_mistakes_are_explained(settings, message):
    X, counts, D, e = portfolio(500)
    pricer = settings.pop("pricer", DiscriminationFreePricer(family="poisson"))
    with pytest.raises(ValueError, match=message):
        search_alternatives(pricer, X, counts, sensitive=D, exposure=e, **settings)
