"""The sensitivity band: the same fit with other values of keep."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fairpremium import Channel, DiscriminationFreePricer, RandomizedResponse
from fairpremium.audit import (
    compute_channel_band,
    compute_group_means,
    compute_keep_sensitivity,
    plot_keep_sensitivity,
    plot_sensitivity,
)
from fairpremium.portfolios import zhang_liu_shi_2025
from fairpremium.pricing import PossibleChannels, premium_band, tabulate_channels
from fairpremium.pricing._possible_channels import default_keeps
from fairpremium.pricing._sensitivity import sensitivity_band
from fairpremium.privacy import KeyedChannels


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


# --- an interval of keeps, a set of channels, and the band ---


def explored(function, keep=(0.6, 0.9)):
    """Values of keep at which a function is computed, and the band that they give."""
    used = RandomizedResponse(["F", "M"], keep=0.8)
    numbers = lambda channel: function(1.0 if channel is None else channel.keep)  # noqa: E731
    table = PossibleChannels(used, keep=keep).tabulate(
        lambda channel: (pd.DataFrame({"value": numbers(channel)}), np.asarray(numbers(channel)))
    )
    return sorted(table["keep"].unique()), table["value"].min(), table["value"].max()


@pytest.mark.parametrize("function", [lambda k: [k], lambda k: [-k], lambda k: [k, 1 / (k - 0.5)]])
def test_a_premium_that_rises_throughout_takes_the_first_grid_and_its_middles(function):
    keeps, low, high = explored(function)
    assert len(keeps) == 11  # 5 and the one in use, and their middles
    ends = np.array([function(0.6), function(0.9)])
    assert (low, high) == pytest.approx((ends.min(), ends.max()))


@pytest.mark.parametrize("top", [0.63, 0.7, 0.777, 0.86])
@pytest.mark.parametrize("sign", [-1, 1])
def test_extremes_inside_the_interval_are_found(top, sign):
    _, low, high = explored(lambda k: [sign * np.exp(-(((k - top) / 0.06) ** 2)), k])
    grid = np.linspace(0.6, 0.9, 10_001)
    values = sign * np.exp(-(((grid - top) / 0.06) ** 2))
    if sign == 1:
        assert high == pytest.approx(max(values.max(), 0.9), abs=0.02)
    else:
        assert low == pytest.approx(values.min(), abs=0.02)


def test_gaps_in_an_interval_do_not_hide_the_rest():
    keeps, low, high = explored(lambda k: [np.nan if k < 0.65 else k, np.nan])
    assert 0.65 <= low <= 0.675  # the lowest value of the grid that has one
    assert high == 0.9
    assert len(keeps) < 40


@pytest.mark.filterwarnings("ignore::fairpremium.errors.ChannelRefutedWarning")  # of the ordinary fits
def test_the_band_of_a_set_is_the_envelope_of_ordinary_fits(fitted):
    pricer, p, S = fitted
    asymmetric = Channel([[0.8, 0.3], [0.2, 0.7]], groups=["F", "M"])
    others = {"asymmetric": asymmetric, "less noise": RandomizedResponse(["F", "M"], keep=0.9)}
    table = pricer.sensitivity(p.X, p.y, sensitive=S, rows=[0, 7, 3], channels=others, level=0.9)
    assert table["channel"].unique().tolist() == ["in use", *others]
    band = premium_band(table)
    assert band["row"].tolist() == [0, 3, 7]
    fits = [
        DiscriminationFreePricer(channel=channel, correction="inverse", pooling=0).fit(p.X, p.y, sensitive=S)
        for channel in (pricer.channel_, *others.values())
    ]
    rows = p.X.iloc[[0, 3, 7]]
    premiums = np.array([fit.predict(rows) for fit in fits])
    limits = np.array([fit.predict_interval(rows, level=0.9) for fit in fits])  # (fits, 2, rows)
    np.testing.assert_allclose(band["premium"], premiums[0])
    np.testing.assert_allclose(band["premium_lowest"], premiums.min(axis=0))
    np.testing.assert_allclose(band["premium_highest"], premiums.max(axis=0))
    np.testing.assert_allclose(band["premium_low"], limits[:, 0].min(axis=0))
    np.testing.assert_allclose(band["premium_high"], limits[:, 1].max(axis=0))
    assert (band["channels"] == 3).all()
    assert (band["unsolved"] == 0).all()
    by_position = pricer.sensitivity(p.X, p.y, sensitive=S, rows=[0], channels=list(others.values()))
    assert by_position["channel"].tolist() == ["in use", "channel 1", "channel 2"]


def test_an_interval_of_keeps_contains_its_grid(fitted):
    pricer, p, S = fitted
    table = pricer.sensitivity(p.X, p.y, sensitive=S, rows=[0, 1], keep=(0.75, 0.9))
    band = premium_band(table)
    assert "premium_low" not in band
    coarse = pricer.sensitivity(p.X, p.y, sensitive=S, rows=[0, 1], keeps=np.linspace(0.75, 0.9, 7))
    inside = coarse.merge(band, on="row")
    room = 0.01 * (inside["premium_highest"] - inside["premium_lowest"])
    assert (inside["premium_x"] >= inside["premium_lowest"] - room).all()
    assert (inside["premium_x"] <= inside["premium_highest"] + room).all()
    assert set(table["keep"]) >= {0.75, 0.8, 0.9}


@pytest.mark.parametrize(
    "more, match",
    [
        ({"keep": (0.9, 0.8)}, "Got keep="),
        ({"keep": (0.5, 0.8)}, "above 1/K"),
        ({"keep": 0.8}, "such as keep="),
        ({"keep": (0.7, 0.8), "keeps": [0.9]}, "keeps and keep"),
        ({"channels": []}, "at least one channel"),
        ({"channels": [RandomizedResponse(["a", "b"], keep=0.8)]}, "Got channels with the groups"),
        ({"channels": {"in use": RandomizedResponse(["F", "M"], keep=0.9)}}, "a name of its own"),
    ],
)
def test_other_sets(fitted, more, match):
    pricer, p, S = fitted
    with pytest.raises(ValueError, match=match):
        pricer.sensitivity(p.X, p.y, sensitive=S, rows=[0], **more)
    with pytest.raises(TypeError, match="expected a Channel"):
        pricer.sensitivity(p.X, p.y, sensitive=S, rows=[0], channels=[0.8])
    with pytest.raises(ValueError, match="without the columns"):
        premium_band(pd.DataFrame({"row": [0]}))


# --- several sources at once ---

SOURCES = KeyedChannels(
    {
        "app": RandomizedResponse(["F", "M"], keep=0.75),
        "broker": RandomizedResponse(["F", "M"], keep=0.9),
        "staff": None,
    }
)


def tabulated(function, used=SOURCES, **given):
    """A table of a number that depends on the keeps of the sources."""

    def evaluate(channels):
        keeps = {key: 1.0 if each is None else each.keep for key, each in channels.items()}
        return pd.DataFrame({"row": [0], "premium": [function(keeps)], "unaware": [0.0]}), np.array([function(keeps)])

    return tabulate_channels(used, {"keeps": None, "keep": None, "channels": None, **given}, evaluate)


def test_the_band_is_that_of_all_combinations():
    function = lambda k: 10 + 40 * (k["app"] - 0.75) * (k["broker"] - 0.9) + k["app"]  # noqa: E731
    intervals = {"app": (0.7, 0.8), "broker": (0.85, 0.95)}
    table = tabulated(function, keep=intervals)
    band = premium_band(table).iloc[0]
    grid = [function({"app": a, "broker": b}) for a in np.linspace(0.7, 0.8, 51) for b in np.linspace(0.85, 0.95, 51)]
    assert (band["premium_lowest"], band["premium_highest"]) == pytest.approx((min(grid), max(grid)))
    assert band["together"]
    # changed one at a time it would be too narrow: the product vanishes where one of them is right
    alone = table[table["source"] != "together"]["premium"]
    assert alone.max() - alone.min() == pytest.approx(0.1)
    assert max(grid) - min(grid) > 0.2
    assert set(table["combination"]) == {
        "", "app 0.7, broker 0.85", "app 0.7, broker 0.95", "app 0.8, broker 0.85", "app 0.8, broker 0.95"
    }  # fmt: skip


def test_an_extreme_within_an_interval_is_combined_too():
    function = lambda k: -((k["app"] - 0.75) ** 2) + k["broker"]  # noqa: E731
    band = premium_band(tabulated(function, keep={"app": (0.7, 0.8), "broker": (0.85, 0.95)})).iloc[0]
    assert band["premium_highest"] == pytest.approx(0.95)
    assert band["premium_lowest"] == pytest.approx(0.85 - 0.0025)


def test_named_channels_are_combined():
    near = {
        "app": {"near": RandomizedResponse(["F", "M"], keep=0.7)},
        "broker": [RandomizedResponse(["F", "M"], keep=0.8)],
    }
    table = tabulated(lambda k: k["app"] * k["broker"], channels=near)
    assert table["combination"].tolist()[-1] == "app near, broker channel 1"
    band = premium_band(table).iloc[0]
    assert (band["premium_lowest"], band["premium_highest"]) == pytest.approx((0.56, 0.675))


def test_too_many_combinations_are_added_up():
    keys = [f"s{i}" for i in range(7)]  # 2^7 corners
    many = KeyedChannels({key: RandomizedResponse(["F", "M"], keep=0.8) for key in keys})
    table = tabulated(lambda k: sum(k[key] * (i + 1) for i, key in enumerate(keys)), many, keep=(0.75, 0.85))
    assert "combination" not in table
    band = premium_band(table).iloc[0]
    assert not band["together"]
    total = sum(range(1, 8))
    assert band["premium"] == pytest.approx(0.8 * total)
    assert (band["premium_lowest"], band["premium_highest"]) == pytest.approx((0.75 * total, 0.85 * total))


def test_one_source_to_change_needs_no_combination():
    table = tabulated(lambda k: k["app"], keep={"app": (0.7, 0.8)})
    assert "combination" not in table
    assert "together" not in premium_band(table)


def test_pricer_and_audit_over_two_sources(fitted):
    _, p, _ = fitted
    where = np.random.default_rng(3).choice(list(SOURCES), len(p.y))
    S = SOURCES.privatize(p.sensitive, where, rng=0)
    roles = {"sensitive": S, "channel_key": where}
    pricer = DiscriminationFreePricer(channel=SOURCES, correction="inverse", pooling=0, random_state=0)
    pricer.fit(p.X, p.y, **roles)
    others = {"app": [RandomizedResponse(["F", "M"], keep=0.7)], "broker": [RandomizedResponse(["F", "M"], keep=0.85)]}
    table = pricer.sensitivity(p.X, p.y, rows=[0, 5], channels=others, **roles)
    right = DiscriminationFreePricer(
        channel={"app": others["app"][0], "broker": others["broker"][0], "staff": None}, correction="inverse", pooling=0
    ).fit(p.X, p.y, **roles)
    together = table[table["source"] == "together"]
    np.testing.assert_allclose(together["premium"], right.predict(p.X.iloc[[0, 5]]))
    assert len(premium_band(table)) == 2
    band = compute_channel_band(p.y, p.y, channel=SOURCES, channels=others, **roles)
    means = compute_group_means(p.y, p.y, channel=right.channel, **roles)
    found = compute_keep_sensitivity(p.y, p.y, channel=SOURCES, channels=others, **roles)
    np.testing.assert_allclose(found[found["source"] == "together"]["premium"], means["premium"])
    assert (band["premium_lowest"] <= means["premium"] + 1e-12).all()
    assert (band["premium_highest"] >= means["premium"] - 1e-12).all()
    assert band["together"].all()
    assert band["channels"].tolist() == [5, 5]  # in use twice, each alone, both
    with pytest.raises(ValueError, match="expected one of them"):
        plot_sensitivity(pricer.sensitivity(p.X, p.y, rows=[0], keep=(0.7, 0.95), **roles))
    assert plot_keep_sensitivity(p.y, p.y, channel=SOURCES, channels=others, **roles) is not None
    assert plot_keep_sensitivity(p.y, p.y, channel=SOURCES, keep=(0.7, 0.95), **roles) is not None
