"""Tables from the reports alone: right on a population that is known exactly, honest about their error."""

from __future__ import annotations

import math
import re

import numpy as np
import pandas as pd
import polars as pl
import pytest
from fairlearn.metrics import MetricFrame
from scipy.optimize import minimize
from sklearn.linear_model import LinearRegression
from sklearn.metrics import mean_squared_error

from fairpremium import Channel, RandomizedResponse
from fairpremium import audit as fa
from fairpremium.audit._audit_data import premium_bins
from fairpremium.corrections import MIN_EFFECTIVE_REPORTS
from fairpremium.tariffs._proxy_discrimination import simplex_minimum
from helpers.limits import fieller, limits

CONTRACT = ["group", "share", "premium", "premium_low", "premium_high", "loss", "loss_low", "loss_high"]
BY_REPORTS = [
    "group means", "demographic disparity", "loss-ratio gap", "group deviance", "calibration", "gini", "lorenz",
    "prices by group", "premium change", "adverse selection", "discrimination",
]  # fmt: skip


def numbers(table, columns):
    return table[columns].to_numpy(float)


# --- unbiased: reports with their exact probabilities give the numbers of the true attribute ---


def channels(groups):
    K = len(groups)
    uneven = 0.6 * np.eye(K) + 0.4 * np.arange(1, K + 1)[:, None] / (K * (K + 1) / 2)
    more_reports = np.vstack([0.7 * np.eye(K), np.full((1, K), 0.1), np.linspace(0.05, 0.15, K)[None]])
    more_reports[-1] += 1 - more_reports.sum(axis=0)
    return {
        "uneven": Channel(uneven, groups=groups),
        "more reports than groups": Channel(more_reports, groups=groups, reports=[*groups, "?", "!"]),
    }


@pytest.mark.parametrize(("K", "kind"), [(2, "more reports than groups"), (4, "uneven")])
@pytest.mark.parametrize("name", BY_REPORTS)
def test_in_expectation_the_reports_tell_the_truth(benchmark, K, kind, name):
    population = benchmark.Population.with_groups(K)
    channel = channels(population.groups)[kind]
    whole = population.itself()
    table, columns = benchmark.TABLES[name]
    if name == "discrimination":  # the bias correction needs many rows; without it the numbers agree
        columns = []
    n, R = len(whole["D"]), len(channel.reports)
    row, s = np.repeat(np.arange(n), R), np.tile(np.arange(R), n)
    d = np.searchsorted(population.groups, whole["D"].astype(str))
    noisy = {k: v[row] if isinstance(v, np.ndarray) else v for k, v in whole.items()}
    noisy |= {"S": np.array(channel.reports, dtype=object)[s], "channel": channel}
    noisy["w"] = whole["w"][row] * channel.matrix[s, d[row]]
    true, found = table(whole, benchmark.roles(whole)), table(noisy, benchmark.roles(noisy))
    enough = found["note"] == ""
    assert enough.mean() > 0.8
    np.testing.assert_allclose(numbers(found[enough], columns), numbers(true[enough], columns), rtol=1e-8, atol=1e-10)


def test_several_attributes_through_a_product_of_channels():
    a, b = RandomizedResponse(["F", "M"], keep=0.8), RandomizedResponse(["x", "y"], keep=0.7)
    channel = Channel.product(a, b)
    K, R = len(channel.groups), len(channel.reports)
    d, s = (v.ravel() for v in np.indices((K, R)))
    share, premium = np.array([0.1, 0.2, 0.3, 0.4]), np.array([1.0, 3.0, 2.0, 5.0])
    weight = np.tile(share[d] * channel.matrix[s, d], 500)
    reports = pd.DataFrame(list(channel.reports)).iloc[np.tile(s, 500)]
    table = fa.compute_group_means(
        np.tile(premium[d], 500), np.tile(d * 0.5, 500), sensitive=reports, channel=channel, sample_weight=weight
    )
    assert table["group"].tolist() == list(channel.groups)
    np.testing.assert_allclose(table["share"], share)
    np.testing.assert_allclose(table["premium"], premium)
    np.testing.assert_allclose(table["loss"], 0.5 * np.arange(K), atol=1e-12)


# --- the true attribute: the numbers of fairlearn ---


@pytest.fixture(scope="module")
def known(sample):
    seen = pd.notna(sample["S"])
    return {k: v[seen] if isinstance(v, np.ndarray) else v for k, v in sample.items()}


def mean_of(y_true, y_pred, sample_weight=None):
    return float(np.average(y_pred, weights=sample_weight))


def test_with_the_true_attribute_the_numbers_are_those_of_fairlearn(known):
    h, y, D, w = known["unaware"], known["y"], known["D"], known["w"]
    weights = {"sample_weight": w}
    frame = MetricFrame(
        metrics={"premium": mean_of, "loss": lambda a, b, sample_weight: mean_of(b, a, sample_weight),
                 "mse": mean_squared_error},
        y_true=y, y_pred=h, sensitive_features=D,
        sample_params={"premium": weights, "loss": weights, "mse": weights},
    )  # fmt: skip
    table = fa.compute_group_means(h, y, sensitive=D, sample_weight=w).set_index("group")
    for column in ("premium", "loss"):
        np.testing.assert_allclose(table[column], frame.by_group[column].loc[table.index].astype(float))
    gaps = fa.compute_demographic_disparity(h, sensitive=D, sample_weight=w)
    pairs = gaps[gaps["against"].notna()]
    assert pairs["difference"].abs().max() == pytest.approx(frame.difference()["premium"])
    ratios = np.minimum(pairs["ratio"], 1 / pairs["ratio"])
    assert ratios.min() == pytest.approx(frame.ratio()["premium"])
    overall = gaps[gaps["against"].isna()]
    assert overall["difference"].abs().max() == pytest.approx(frame.difference(method="to_overall")["premium"])
    deviance = fa.compute_group_deviance(h, y, sensitive=D, sample_weight=w).set_index("group")
    np.testing.assert_allclose(deviance["deviance"], frame.by_group["mse"].loc[deviance.index].astype(float))


# --- the same numbers by slow loops ---


def test_group_means_and_their_error_are_the_printed_formula(sample):
    h, channel, S = sample["unaware"], sample["channel"], sample["S"]
    gaps = fa.compute_demographic_disparity(h, sensitive=S, channel=channel, sample_weight=sample["w"], level=0.6827)
    table = fa.compute_group_means(h, sample["y"], sensitive=S, channel=channel, sample_weight=sample["w"])
    influence, means = [], []
    for k, group in enumerate(channel.groups):
        a = np.array(
            [0.0 if s is None else w * channel.inverse[k, channel.reports.index(s)]
             for s, w in zip(S, sample["w"], strict=True)]
        )  # fmt: skip
        means.append(sum(a * h) / sum(a))
        influence.append(a * (h - means[-1]) / sum(a))
        row = table[table["group"] == group].iloc[0]
        assert row["premium"] == pytest.approx(means[-1])
        assert row["effective_reports"] == pytest.approx(sum(a) ** 2 / sum(a**2))
        ones = np.ones(len(a))
        assert (row["premium_low"], row["premium_high"]) == pytest.approx(fieller(a, h, ones), rel=1e-9)
        assert (row["loss_low"], row["loss_high"]) == pytest.approx(fieller(a, sample["y"], ones), rel=1e-9)
    pair = gaps[(gaps["group"] == channel.groups[0]) & (gaps["against"] == channel.groups[1])].iloc[0]
    assert pair["difference"] == pytest.approx(means[0] - means[1])
    expected = limits(pair["difference"], influence[0] - influence[1], level=0.6827)
    assert (pair["difference_low"], pair["difference_high"]) == pytest.approx(expected, rel=1e-9)


def test_gini_is_that_of_all_pairs(sample):
    rows = slice(0, 600)
    h, y, S, w = (sample[k][rows] for k in ("unaware", "y", "S", "w"))
    channel = sample["channel"]
    table = fa.compute_gini(h, y, sensitive=S, channel=channel, sample_weight=w)
    lower = (h[None] < h[:, None]) + 0.5 * (h[None] == h[:, None])  # row j below row i
    codes = np.array([channel.reports.index(s) if s is not None else -1 for s in S])
    for group in (None, *channel.groups):
        if group is None:
            a, row = w, table[table["group"].isna()].iloc[0]
        else:
            a = np.where(codes >= 0, channel.inverse[channel.groups.index(group)][codes], 0) * w
            row = table[table["group"] == group].iloc[0]
        if row["note"]:
            continue
        gini = 2 * (a * y) @ lower @ a / (a.sum() * (a @ y)) - 1
        assert row["gini"] == pytest.approx(gini)
    # the limits are those of the rows' influences, here by moving the weight of one row after the other
    whole = table[table["group"].isna()].iloc[0]
    a = w
    moved = []
    base = 2 * (a * y) @ lower @ a / (a.sum() * (a @ y)) - 1
    for i in range(600):
        b = a.copy()
        b[i] *= 1 + 1e-5
        moved.append((2 * (b * y) @ lower @ b / (b.sum() * (b @ y)) - 1 - base) / 1e-5)
    expected = limits(whole["gini"], np.array(moved))
    assert (whole["gini_low"], whole["gini_high"]) == pytest.approx(expected, rel=1e-4)


def test_the_curve_encloses_half_the_gini(known):
    curve = fa.compute_lorenz(known["unaware"], known["y"], sensitive=known["D"], points=1000)
    gini = fa.compute_gini(known["unaware"], known["y"], sensitive=known["D"])
    for group in known["channel"].groups:
        part = curve[curve["group"] == group]
        area = np.trapezoid(part["volume"] - part["losses"], part["volume"])
        assert 2 * area == pytest.approx(gini.loc[gini["group"] == group, "gini"].iloc[0], abs=2e-3)


def test_the_nearest_admissible_price_is_the_constrained_minimum():
    rng = np.random.default_rng(0)
    for K in (2, 3, 5):
        for _ in range(5):
            root = rng.normal(size=(K + 2, K))
            A, b = root.T @ root, rng.normal(size=K) * 3
            v = simplex_minimum(A, b)
            assert v.min() >= 0
            assert v.sum() == pytest.approx(1)
            other = minimize(
                lambda v, A=A, b=b: v @ A @ v - 2 * b @ v, np.full(K, 1 / K), bounds=[(0, 1)] * K, method="SLSQP",
                constraints={"type": "eq", "fun": lambda v: v.sum() - 1}, options={"ftol": 1e-14, "maxiter": 1000},
            )  # fmt: skip
            assert v @ A @ v - 2 * b @ v <= other.fun + 1e-9
            np.testing.assert_allclose(v, other.x, atol=1e-5)


def test_many_groups_take_the_projected_gradient():
    rng = np.random.default_rng(1)
    root = rng.normal(size=(40, 13))
    A, b = root.T @ root, rng.normal(size=13) * 3
    v = simplex_minimum(A, b)
    gradient = A @ v - b
    assert v.sum() == pytest.approx(1)
    np.testing.assert_allclose(gradient[v > 1e-9], gradient.min(), atol=1e-8)


def test_a_price_that_infers_nothing_has_no_proxy_discrimination(sample):
    roles = {"best_estimate": sample["mu"], "sensitive": sample["S"], "channel": sample["channel"]}
    free = fa.compute_discrimination(1.1 + sample["free"], **roles).set_index("measure")
    proxy = fa.compute_discrimination(
        sample["unaware"], discrimination_free=sample["free"], propensity=sample["q"], **roles
    ).set_index("measure")
    assert free.loc["proxy_discrimination", "value"] == pytest.approx(0, abs=1e-12)
    assert proxy.loc["proxy_discrimination", "value_low"] > 1e-5
    shift = math.sqrt(np.mean((sample["unaware"] - sample["free"]) ** 2))
    assert proxy.loc["proxy_shift", "value"] == pytest.approx(shift)
    assert proxy.loc["direct_spread", "value"] == pytest.approx(np.ptp(sample["mu"], axis=1).mean())
    assert 0 < proxy.loc["proxy_explained", "value"] < 1


def test_what_guessing_the_group_explains_is_not_taken_by_a_rescaled_price():
    rng = np.random.default_rng(0)
    D = rng.choice(2, 5000, p=[0.6, 0.4])
    x = rng.normal(0.8 * D, 1)
    w = rng.uniform(0.5, 1.5, 5000)
    weights = {"sensitive": np.where(D == 1, "b", "a"), "sample_weight": w}
    q = 0.4 + 0.05 * x  # in a straight line with x, as a linear model's guess is
    Q = np.column_stack([1 - q, q])
    h = 1 + 0.3 * x
    noise = rng.normal(size=5000)
    mu = np.column_stack([h, h + 2])
    variance = {name: np.cov(v, aweights=w, ddof=0) for name, v in {"q": 2 * q, "pi": h + 2 * q}.items()}

    def explained(pi):
        table = fa.compute_discrimination(pi, best_estimate=mu, discrimination_free=h, propensity=Q, **weights)
        row = table.set_index("measure").loc["proxy_explained"]
        assert row["value_low"] <= row["value"] <= row["value_high"]
        return row["value"]

    assert explained(h + 2 * q) == pytest.approx(variance["q"] / variance["pi"])
    pi = h + 2 * q + noise
    fit = LinearRegression().fit(q[:, None], pi - h, sample_weight=w)
    fitted = fit.predict(q[:, None])
    assert explained(pi) == pytest.approx(np.cov(fitted, aweights=w, ddof=0) / np.cov(pi, aweights=w, ddof=0))


def test_propensities_are_learned_through_the_channel():
    rng = np.random.default_rng(0)
    n = 20_000
    x = rng.normal(size=n)
    logits = np.column_stack([np.zeros(n), 0.5 + x, -0.5 - 0.5 * x])
    q = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    D = np.array(list("abc"), dtype=object)[(rng.random(n)[:, None] > np.cumsum(q, axis=1)).sum(axis=1)]
    channel = RandomizedResponse(["a", "b", "c"], keep=0.8)
    S = np.where(rng.random(n) < 0.1, None, channel.privatize(D, rng=0))
    X = pd.DataFrame({"x": x})
    found = fa.compute_propensities(X, sensitive=S, channel=channel)
    assert found.columns.tolist() == ["a", "b", "c"]
    np.testing.assert_allclose(found.sum(axis=1), 1)
    noisy = math.sqrt(np.mean((found.to_numpy() - q) ** 2))
    exact = math.sqrt(np.mean((fa.compute_propensities(X, sensitive=D).to_numpy() - q) ** 2))
    assert exact < 0.01
    assert noisy < 0.03
    more = fa.compute_propensities(X.assign(one=1.0, twice=2 * x + 3), sensitive=S, channel=channel)
    np.testing.assert_allclose(more, found, atol=1e-9)  # what says nothing new changes nothing, and needs no warning


# --- equivalences ---


@pytest.mark.parametrize("name", BY_REPORTS)
def test_a_person_with_two_equal_rows_is_one_report(benchmark, name):
    table, columns = benchmark.TABLES[name]
    n = 2000
    sample = benchmark.Population.with_groups(3).sample(n, 0.8, np.random.default_rng(1))
    once = {k: v[:n] if isinstance(v, np.ndarray) else v for k, v in sample.items()}
    twice = {k: np.repeat(v, 2, axis=0) if isinstance(v, np.ndarray) else v for k, v in once.items()}
    wanted = [f"{c}{end}" for c in columns for end in ("", "_low", "_high")]
    a = table(once, benchmark.roles(once))
    b = table(twice, {**benchmark.roles(twice), "cluster": np.repeat(np.arange(n), 2)})
    np.testing.assert_allclose(numbers(a, wanted), numbers(b, wanted), rtol=1e-6, atol=1e-10)


@pytest.mark.parametrize("name", ["group means", "calibration", "gini", "lorenz", "premium change"])
def test_weights_are_repeated_rows(benchmark, sample, name):
    table, columns = benchmark.TABLES[name]
    weight = np.arange(4000) % 3 + 1
    heavy = {**sample, "w": weight}
    repeated = {k: np.repeat(v, weight, axis=0) if isinstance(v, np.ndarray) else v for k, v in sample.items()}
    repeated["w"] = np.ones(weight.sum())
    a, b = (table(d, benchmark.roles(d)) for d in (heavy, repeated))
    ok = (a["note"] == "") & (b["note"] == "")
    assert ok.mean() > 0.6
    np.testing.assert_allclose(numbers(a[ok], columns), numbers(b[ok], columns), rtol=1e-8, atol=1e-12)


def test_rows_without_a_report_count_for_the_portfolio_and_for_no_group(sample):
    seen = pd.notna(sample["S"])
    h, y, w = sample["unaware"], sample["y"], sample["w"]
    roles = {"sensitive": sample["S"], "channel": sample["channel"], "sample_weight": w}
    there = {"sensitive": sample["S"][seen], "channel": sample["channel"], "sample_weight": w[seen]}
    pd.testing.assert_frame_equal(
        fa.compute_group_means(h, y, **roles), fa.compute_group_means(h[seen], y[seen], **there)
    )
    everybody = fa.compute_gini(h, y, **roles).iloc[0]
    assert everybody["effective_reports"] == pytest.approx(w.sum() ** 2 / (w**2).sum())
    assert fa.compute_premium_change(h, 2 * h, **roles)["old"].iloc[0] == pytest.approx(np.average(h, weights=w))


def test_by_gives_the_tables_of_the_classes(sample):
    by = np.where(sample["free"] > 1.5, "dear", "cheap")
    roles = {"sensitive": sample["S"], "channel": sample["channel"]}
    table = fa.compute_loss_ratio_gap(sample["unaware"], sample["y"], by=by, **roles)
    assert set(table["risk_class"]) == {"dear", "cheap"}
    dear = by == "dear"
    alone = fa.compute_loss_ratio_gap(
        sample["unaware"][dear], sample["y"][dear], sensitive=sample["S"][dear], channel=sample["channel"]
    )
    part = table[table["risk_class"] == "dear"].drop(columns="risk_class").reset_index(drop=True)
    pd.testing.assert_frame_equal(part, alone)


def test_equal_premiums_stay_in_one_bin():
    rng = np.random.default_rng(0)
    premiums = rng.integers(0, 7, 500).astype(float)
    bins = premium_bins(premiums, rng.random(500), 10)
    assert len(set(zip(premiums, bins, strict=True))) == len(set(premiums))
    assert (np.diff(bins[np.argsort(premiums)]) >= 0).all()
    smooth = premium_bins(rng.random(1000), np.ones(1000), 10)
    assert np.bincount(smooth).tolist() == [100] * 10


# --- the frame ---


def test_the_contract(sample):
    table = fa.compute_group_means(
        sample["unaware"], sample["y"], sensitive=sample["S"], channel=sample["channel"], sample_weight=None
    )
    assert table.columns.tolist()[:8] == CONTRACT
    assert table["group"].tolist() == list(sample["channel"].groups)
    assert table["share"].sum() == pytest.approx(1)
    for name in ("premium", "loss"):
        assert (table[f"{name}_low"] < table[name]).all()
        assert (table[name] < table[f"{name}_high"]).all()


def test_polars_in_polars_out(sample):
    roles = {"sensitive": pl.Series(sample["S"].tolist()), "channel": sample["channel"]}
    table = fa.compute_group_means(pl.Series(sample["unaware"]), pl.Series(sample["y"]), **roles)
    assert isinstance(table, pl.DataFrame)
    expected = fa.compute_group_means(sample["unaware"], sample["y"], sensitive=sample["S"], channel=sample["channel"])
    np.testing.assert_allclose(table["premium"].to_numpy(), expected["premium"])


def test_everybody_is_none_beside_other_groups_in_polars_too(sample):
    h, y, channel = sample["unaware"], sample["y"], sample["channel"]
    roles = {"sensitive": pl.Series(sample["S"].tolist()), "channel": channel}
    for compute in (fa.compute_calibration, fa.compute_gini, fa.compute_lorenz):
        table = compute(pl.Series(h), pl.Series(y), **roles)
        assert set(table["group"]) == {None, *channel.groups}
        expected = compute(h, y, sensitive=sample["S"], channel=channel)
        assert table["group"].to_list() == expected["group"].tolist()


def test_whole_numbers_stay_whole_beside_everybody():
    h = np.arange(1.0, 201.0)
    table = fa.compute_calibration(h, h, sensitive=[0, 1] * 100, bins=1)
    assert table["group"].tolist() == [None, 0, 1]
    assert {type(group) for group in table["group"]} == {type(None), int}
    against = fa.compute_demographic_disparity(h, sensitive=[0, 1] * 100)["against"].tolist()
    assert against == [None, None, 1]


@pytest.mark.parametrize("y", [0.0, -1.0])
def test_there_is_no_ratio_to_losses_of_nothing(y):
    h, S = np.arange(1.0, 201.0), ["a", "b"] * 100
    gini = fa.compute_gini(h, np.full(200, y), sensitive=S)
    curve = fa.compute_lorenz(h, np.full(200, y), sensitive=S)
    ratios = fa.compute_balance({"h": h}, np.full(200, y))
    if y == 0:
        assert gini["gini"].isna().all()
        assert curve["losses"].isna().all()
        assert ratios["ratio"].isna().all()
    else:
        assert np.isfinite(gini["gini"]).all()
        assert ratios["ratio_low"].isna().all()


def test_too_few_reports_are_said_and_not_guessed():
    rng = np.random.default_rng(0)
    D = np.where(rng.random(5000) < 0.01, "rare", "common")
    channel = RandomizedResponse(["common", "rare"], keep=0.7)
    S = channel.privatize(D, rng=0)
    h, y = np.ones(5000), rng.exponential(size=5000)
    for table in (
        fa.compute_group_means(h, y, sensitive=S, channel=channel),
        fa.compute_loss_ratio_gap(h, y, sensitive=S, channel=channel),
        fa.compute_gini(rng.random(5000), y, sensitive=S, channel=channel),
        fa.compute_demographic_disparity(h, sensitive=S, channel=channel),
    ):
        rare = table[table["group"] == "rare"]
        assert rare["note"].str.startswith("too few effective reports").all()
        assert rare.select_dtypes(float).drop(columns="effective_reports").isna().all(axis=None)
        assert (rare["effective_reports"] < MIN_EFFECTIVE_REPORTS).all()
        assert (table.loc[table["group"] == "common", "note"] == "").any()


def test_a_handful_who_stay_gives_no_profit():
    rng = np.random.default_rng(0)
    n = 5000
    channel = RandomizedResponse(["a", "b"], keep=0.8)
    S = channel.privatize(rng.choice(["a", "b"], n), rng=0)
    h, y = np.full(n, 2.0), rng.exponential(size=n)
    few = rng.random(n) < 0.02
    mu = np.column_stack([np.full(n, 3.0), np.where(few, 3.0, 1.0)])
    table = fa.compute_adverse_selection(h, y, mu, sensitive=S, channel=channel).set_index("group")
    b = channel.inverse[1][(S == "b").astype(int)] * few
    assert table.loc["b", "effective_reports"] == pytest.approx(b.sum() ** 2 / (b**2).sum() if b.sum() > 0 else 0)
    assert table.loc["b", "note"].startswith("too few effective reports")
    assert table.loc["b", ["stays", "profit"]].isna().all()
    assert table.loc["a", "note"] == ""
    a = channel.inverse[0][(S == "b").astype(int)]
    assert table.loc["a", "effective_reports"] == pytest.approx(a.sum() ** 2 / (a**2).sum())
    mu[:, 1] = 1.0  # now it is certain that nobody of the group stays, however many reported
    sure = fa.compute_adverse_selection(h, y, mu, sensitive=S, channel=channel).set_index("group")
    assert sure.loc["b", ["stays", "profit", "note"]].tolist() == [0, 0, ""]


@pytest.mark.parametrize(
    ("change", "error", "expected"),
    [
        ({"sensitive": None}, ValueError, "sensitive=None"),
        ({"sensitive": ["a"]}, ValueError, "sensitive with 1 rows, but premiums has 100"),
        ({"sensitive": [None] * 100}, ValueError, "no report at all"),
        ({"sensitive": ["z"] * 100}, ValueError, "not among the declared"),
        ({"channel": 0.8}, TypeError, "channel of type float"),
        ({"y": [1.0]}, ValueError, "y with 1 rows, but premiums has 100"),
        ({"y": [math.nan] * 100}, ValueError, "NaN"),
        ({"premiums": ["x"] * 100}, ValueError, "Got premiums that is not one column of numbers"),
        ({"premiums": 3.0}, TypeError, "premiums of type float"),
        ({"premiums": np.ones((100, 2))}, ValueError, "premiums of shape (100, 2), but expected one column"),
        ({"y": pd.DataFrame({"y": np.ones(100)})}, ValueError, "y of shape (100, 1), but expected one column"),
        ({"sample_weight": [-1.0] * 100}, ValueError, "negative"),
        ({"cluster": [1]}, ValueError, "cluster with 1 rows, but premiums has 100"),
        ({"by": [1]}, ValueError, "by with 1 rows, but premiums has 100"),
        ({"level": 95}, ValueError, "level=95"),
    ],
)
def test_wrong_arguments(change, error, expected):
    arguments = {
        "premiums": np.ones(100), "y": np.ones(100), "sensitive": ["a", "b"] * 50,
        "channel": RandomizedResponse(["a", "b"], keep=0.8), **change,
    }  # fmt: skip
    with pytest.raises(error, match=re.escape(expected)):
        fa.compute_group_means(**arguments)


def discrimination(h, S, q):
    mu = np.column_stack([h, 2 * h])
    return fa.compute_discrimination(h, best_estimate=mu, sensitive=S, discrimination_free=h, propensity=q)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda h, S: fa.compute_calibration(h, h, sensitive=S, bins=0), "bins=0"),
        (lambda h, S: fa.compute_lorenz(h, h, sensitive=S, points=1), "points=1"),
        (lambda h, S: fa.compute_adverse_selection(h, h, np.ones((100, 3)), sensitive=S), r"shape \(100, 3\)"),
        (lambda h, S: fa.compute_group_deviance(-h, h, sensitive=S, family="poisson"), "outside the means"),
        (lambda h, S: fa.compute_group_deviance(h, -h, sensitive=S, family="poisson"), "outside the domain"),
        (lambda h, S: fa.compute_keep_sensitivity(h, h, sensitive=S, channel=None), "RandomizedResponse"),
        (
            lambda h, S: discrimination(h, S, np.full((100, 2), 0.6)),
            "propensity with 100 of 100 rows that are not prob",
        ),
        (lambda h, S: discrimination(h, S, np.tile([1.5, -0.5], (100, 1))), "expected numbers from 0 to 1"),
    ],
)
def test_wrong_settings(call, expected):
    with pytest.raises(ValueError, match=expected):
        call(np.ones(100), ["a", "b"] * 50)


def test_other_keeps_bracket_the_one_in_use(sample):
    channel = sample["channel"]
    table = fa.compute_keep_sensitivity(
        sample["unaware"], sample["y"], sensitive=sample["S"], channel=channel, keeps=[0.75, 0.9, 1.0]
    )
    assert table["keep"].unique().tolist() == [0.75, channel.keep, 0.9, 1.0]
    used = table[table["used"]].drop(columns=["keep", "used"]).reset_index(drop=True)
    direct = fa.compute_group_means(sample["unaware"], sample["y"], sensitive=sample["S"], channel=channel)
    pd.testing.assert_frame_equal(used, direct)
    spread = table.groupby("keep")["premium"].agg(np.ptp)
    assert spread.is_monotonic_decreasing  # taken for the truth, noisy groups look alike


def test_the_band_of_a_set_of_channels_is_the_envelope_of_its_tables(sample):
    channel = sample["channel"]
    pair = (sample["unaware"], sample["y"])
    others = [RandomizedResponse(channel.groups, keep=0.9), channel]
    band = fa.compute_channel_band(*pair, sensitive=sample["S"], channel=channel, channels=others)
    tables = [fa.compute_group_means(*pair, sensitive=sample["S"], channel=other) for other in others]
    for name in ("premium", "loss"):
        stacked = {
            column: np.array([table[column] for table in tables]) for column in (name, f"{name}_low", f"{name}_high")
        }
        np.testing.assert_allclose(band[name], tables[1][name])
        np.testing.assert_allclose(band[f"{name}_lowest"], stacked[name].min(axis=0))
        np.testing.assert_allclose(band[f"{name}_highest"], stacked[name].max(axis=0))
        np.testing.assert_allclose(band[f"{name}_low"], stacked[f"{name}_low"].min(axis=0))
        np.testing.assert_allclose(band[f"{name}_high"], stacked[f"{name}_high"].max(axis=0))
    assert band["channels"].tolist() == [2] * len(channel.groups)
    assert band["group"].tolist() == list(channel.groups)
    interval = fa.compute_channel_band(*pair, sensitive=sample["S"], channel=channel, keep=(0.7, 0.95))
    assert (interval["loss_lowest"] <= interval["loss"]).all()
    assert (interval["channels"] >= 9).all()
    assert fa.plot_keep_sensitivity(*pair, sensitive=sample["S"], channel=channel, channels=others) is not None
    with pytest.raises(ValueError, match="there is no keep to change"):
        fa.compute_channel_band(*pair, sensitive=sample["S"], channel=Channel(channel.matrix, groups=channel.groups))


# --- the study: 3 standard errors, coverage, a million rows ---


@pytest.mark.simulation
@pytest.mark.parametrize(("K", "keep"), [(2, 0.7), (3, 0.7), (4, 0.7), (4, 0.9)])
def test_the_truth_is_within_three_standard_errors_and_in_the_interval(benchmark, repetitions, K, keep):
    R = repetitions(10, 200)
    result = benchmark.simulate(K, 10_000, keep, R, seed=1000 + 10 * K + int(10 * keep))
    total = benchmark.pooled(result)
    # Cells of one sample are dependent: the rates vary like those of a few independent cells per sample.
    slack = 3 / math.sqrt(5 * R)
    assert total["within_3_se"] >= 0.9973 - slack * math.sqrt(0.9973 * 0.0027)
    assert total["within_3_se"] >= 0.99 or R < 200
    assert 0.95 - slack * 0.218 <= total["coverage"] <= 0.95 + slack * 0.218
    assert 0.92 <= total["coverage"] <= 0.98 or R < 200
    for name, row in result.items():
        assert row["coverage"] >= 0.95 - 4 * 0.218 / math.sqrt(R), f"{name}: {row}"  # all its cells may move as one


def test_a_million_rows_take_seconds(benchmark):
    seconds = benchmark.time_rows(1_000_000, 4)
    assert seconds["group means"] < 5  # 0.4 s on a quiet core
    assert seconds["all tables"] < 60  # 6 s
