"""The spectrum of fair prices: five prices, distances between groups, multicalibration."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.stats import ks_2samp, norm, wasserstein_distance

from fairpremium import Channel, DiscriminationFreePricer, RandomizedResponse
from fairpremium.spectrum import (
    PriceSpectrum,
    compute_multicalibration,
    compute_parity_distance,
    compute_spectrum,
    plot_multicalibration,
    plot_parity_distance,
    plot_spectrum,
)
from fairpremium.spectrum._group_distributions import make_monotone


def population(n, K, rng):
    """Continuous features, a logit for the groups, normal losses: everything linear, so that the fit is right."""
    x = rng.normal(size=(n, 3))
    eta = np.column_stack([0 * x[:, 0], *(0.8 * k * x[:, 0] - 0.3 * k for k in range(1, K))])
    q = np.exp(eta) / np.exp(eta).sum(axis=1, keepdims=True)
    d = (rng.random(n)[:, None] > q.cumsum(axis=1)).sum(axis=1)
    mu = 10 + x @ [1.0, 0.7, 0.3] + d * (1 + 0.5 * x[:, 2])
    groups = np.array(list("abcd")[:K], dtype=object)
    return pd.DataFrame(x, columns=["u", "v", "w"]), mu + rng.normal(size=n), groups[d], list(groups)


@pytest.fixture(scope="module")
def portfolio():
    X, y, D, groups = population(6000, 2, np.random.default_rng(0))
    channel = RandomizedResponse(groups, keep=0.8)
    S = channel.privatize(D, rng=1)
    pricer = DiscriminationFreePricer(channel=channel, correction="inverse", pooling=0).fit(X, y, sensitive=S)
    return X, y, D, S, channel, pricer, PriceSpectrum(pricer).fit(X, sensitive=S)


def kolmogorov(price, D):
    a, b = (price[g == D] for g in sorted(set(D)))
    return ks_2samp(a, b).statistic


def own(table, D, groups):
    return np.asarray(table)[np.arange(len(D)), [list(groups).index(g) for g in D]]


# --- distances ---


def test_with_the_true_attribute_distances_are_those_of_scipy():
    rng = np.random.default_rng(0)
    h, D = rng.gamma(2, size=600).round(2), rng.choice(list("abc"), 600)
    table = compute_parity_distance(h, sensitive=D)
    assert [tuple(pair) for pair in table[["group", "against"]].iloc[1:].to_numpy()] == [
        ("a", "b"), ("a", "c"), ("b", "c")]  # fmt: skip
    for row in table.iloc[1:].itertuples():
        first, second = h[row.group == D], h[row.against == D]
        assert row.kolmogorov == pytest.approx(ks_2samp(first, second).statistic, abs=1e-12)
        assert row.wasserstein == pytest.approx(wasserstein_distance(first, second), abs=1e-12)
        share = [np.mean(values <= row.at) for values in (first, second)]
        assert row.sign * (share[0] - share[1]) == pytest.approx(row.kolmogorov)
    assert table["kolmogorov"][0] == table["kolmogorov"][1:].max()


def test_weights_are_those_of_scipy_and_the_identity_channel_changes_nothing():
    rng = np.random.default_rng(1)
    h, w, D = rng.normal(size=500), rng.uniform(0.2, 2, 500), rng.choice(["a", "b"], 500)
    direct = compute_parity_distance(h, sensitive=D, sample_weight=w)
    identity = compute_parity_distance(h, sensitive=D, sample_weight=w, channel=Channel(np.eye(2), groups=["a", "b"]))
    expected = wasserstein_distance(h[D == "a"], h[D == "b"], w[D == "a"], w[D == "b"])
    assert direct["wasserstein"][1] == pytest.approx(expected, abs=1e-9)
    columns = ["kolmogorov", "kolmogorov_low", "wasserstein", "wasserstein_high", "p_value"]
    np.testing.assert_allclose(direct[columns].to_numpy(float), identity[columns].to_numpy(float), atol=1e-9)


def test_a_table_of_prices_counts_each_column_for_its_group():
    rng = np.random.default_rng(2)
    prices, D = rng.normal([0, 1], size=(400, 2)), rng.choice(["a", "b"], 400)
    expected = ks_2samp(prices[D == "a", 0], prices[D == "b", 1]).statistic
    assert compute_parity_distance(prices, sensitive=D)["kolmogorov"][0] == pytest.approx(expected, abs=1e-12)
    named = pd.DataFrame(prices[:, ::-1], columns=["b", "a"])
    assert compute_parity_distance(named, sensitive=D)["kolmogorov"][0] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("shift", [0.0, 0.5])
def test_limits_of_the_distances_cover(shift):
    """A small version of benchmarks/spectrum.py: normal prices, whose distances are known."""
    channel, covered = RandomizedResponse(["a", "b"], keep=0.8), []
    truth = [2 * norm.cdf(shift / 2) - 1, shift]
    for seed in range(40):
        rng = np.random.default_rng(seed)
        d = rng.integers(0, 2, 1500)
        S = channel.privatize(np.array(["a", "b"])[d], rng=seed)
        row = compute_parity_distance(shift * d + rng.normal(size=1500), sensitive=S, channel=channel).iloc[0]
        covered.append(
            [
                row[f"{m}_low"] <= t <= row[f"{m}_high"]
                for m, t in zip(("kolmogorov", "wasserstein"), truth, strict=True)
            ]
        )
    assert np.mean(covered, axis=0).min() >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / 40)


def test_rows_of_one_person_widen_the_limits():
    rng = np.random.default_rng(3)
    h, D = rng.normal(size=300), rng.choice(["a", "b"], 300)
    h[D == "b"] += 2
    single = compute_parity_distance(h, sensitive=D).iloc[0]
    person = np.tile(np.arange(300), 4)
    four = compute_parity_distance(np.tile(h, 4), sensitive=np.tile(D, 4), cluster=person).iloc[0]
    assert four["kolmogorov"] == pytest.approx(single["kolmogorov"])
    assert four["wasserstein_high"] == pytest.approx(single["wasserstein_high"], rel=1e-6)


def test_a_group_with_few_reports_has_a_note():
    table = compute_parity_distance(np.arange(1000.0), sensitive=["a"] * 990 + ["b"] * 10)
    assert table["kolmogorov"].isna().all()
    assert table["note"].str.contains("too few").all()


def test_groups_that_do_not_overlap_may_have_the_largest_distance():
    rng = np.random.default_rng(9)
    d = rng.integers(0, 2, 3000)
    channel = RandomizedResponse(["a", "b"], keep=0.8)
    S = channel.privatize(np.array(["a", "b"])[d], rng=9)
    row = compute_parity_distance(10 * d + rng.normal(size=3000), sensitive=S, channel=channel).iloc[0]
    assert row["kolmogorov_low"] > 0.8
    assert row["kolmogorov_high"] == 1


def test_rearrangement_is_never_farther_from_a_monotone_truth():
    rng = np.random.default_rng(4)
    truth = np.linspace(0, 1, 200)
    for _ in range(50):
        noisy = truth + rng.normal(scale=0.1, size=200)
        better = make_monotone(noisy)
        assert (np.diff(better) >= 0).all()
        assert better.min() >= 0
        assert better.max() <= 1
        for p in (1, 2, np.inf):
            assert np.linalg.norm(better - truth, p) <= np.linalg.norm(noisy - truth, p) + 1e-12


# --- the five prices ---


def test_corrective_prices_with_the_true_attribute_are_the_direct_computation():
    """The slow twin: mean over the atoms' part of the mean of both quantile functions, by fine integration."""
    X, y, D, groups = population(300, 2, np.random.default_rng(5))
    pricer = DiscriminationFreePricer(pooling=0).fit(X, y, sensitive=D)
    found = np.asarray(PriceSpectrum(pricer).fit(X, sensitive=D).predict_corrective(X))
    best = np.asarray(pricer.predict_best_estimate(X))
    share = [np.mean(g == D) for g in groups]
    sorted_prices = [np.sort(best[g == D, k]) for k, g in enumerate(groups)]
    n = [len(values) for values in sorted_prices]

    def barycentre(a, b):
        cuts = np.unique(np.concatenate([[a, b], *(np.arange(1, m) / m for m in n)]))
        cuts = cuts[(cuts >= a) & (cuts <= b)]
        middle, width = (cuts[1:] + cuts[:-1]) / 2, np.diff(cuts)
        return sum(p * v[(middle * m).astype(int)] @ width for p, v, m in zip(share, sorted_prices, n, strict=True)) / (
            b - a
        )

    for k, g in enumerate(groups):
        for i in np.flatnonzero(g == D)[:40]:
            rank = int(np.searchsorted(sorted_prices[k], best[i, k]))
            assert found[i, k] == pytest.approx(barycentre(rank / n[k], (rank + 1) / n[k]), abs=1e-9)
    means = [found[g == D, k].mean() for k, g in enumerate(groups)]
    assert means[0] == pytest.approx(means[1], abs=1e-9)  # the same for all groups, and the portfolio's
    assert means[0] == pytest.approx(own(best, D, groups).mean(), abs=1e-9)


def test_identity_channel_equals_the_true_attribute():
    X, y, D, groups = population(800, 3, np.random.default_rng(6))
    true = DiscriminationFreePricer(pooling=0).fit(X, y, sensitive=D)
    channel = Channel(np.eye(3), groups=groups)
    same = DiscriminationFreePricer(pooling=0, channel=channel, correction="inverse").fit(X, y, sensitive=D)
    a, b = (PriceSpectrum(pricer).fit(X, sensitive=D).predict(X) for pricer in (true, same))
    np.testing.assert_allclose(a, b, atol=1e-9)


@pytest.mark.parametrize("K", [2, 3])
def test_corrective_prices_from_reports_are_as_even_as_those_from_the_attribute(K):
    """A small version of benchmarks/spectrum.py, at one keep."""
    ratios = {"corrective": [], "hyperaware": []}
    for seed in range(4):
        X, y, D, groups = population(4000, K, np.random.default_rng(seed))
        new, _, new_d, _ = population(20_000, K, np.random.default_rng(100 + seed))
        channel = RandomizedResponse(groups, keep=0.8)
        S = channel.privatize(D, rng=seed)
        found = {}
        for name, settings, reports in (("D", {}, D), ("S", {"channel": channel, "correction": "inverse"}, S)):
            pricer = DiscriminationFreePricer(pooling=0, intervals=False, **settings).fit(X, y, sensitive=reports)
            prices = PriceSpectrum(pricer).fit(X, sensitive=reports).by_price(new)
            for kind in ratios:
                table = compute_parity_distance(prices[kind], sensitive=new_d)
                found[name, kind] = table["kolmogorov"][0]
        for kind in ratios:
            ratios[kind].append((found["S", kind], found["D", kind]))
    for kind, pairs in ratios.items():
        reports, attribute = np.mean(pairs, axis=0)
        assert reports <= 1.2 * attribute, (kind, pairs)


def test_outcomes_tell_the_groups_apart_where_their_law_holds():
    """Losses are normal, two standard deviations apart: with them P(D given x) is closer to the truth."""
    errors = []
    for seed in range(4):
        X, y, D, groups = population(4000, 2, np.random.default_rng(seed))
        y = y + (D == "b")
        channel = RandomizedResponse(groups, keep=0.7)
        S = channel.privatize(D, rng=seed)
        pricer = DiscriminationFreePricer(channel=channel, intervals=False, random_state=0).fit(X, y, sensitive=S)
        assert pricer.correction_ == "likelihood"
        truth = 1 / (1 + np.exp(0.8 * X["u"] - 0.3))  # of the first group
        both = [PriceSpectrum(pricer).fit(X, given, sensitive=S).predict_propensity(X) for given in (None, y)]
        errors.append([np.sqrt(np.mean((q["a"] - truth) ** 2)) for q in both])
    without, given = np.mean(errors, axis=0)
    assert given < 0.85 * without


def test_outcomes_are_not_used_by_a_pricer_that_does_not_trust_their_law(portfolio):
    X, y, _, S, _, pricer, spectrum = portfolio
    again = PriceSpectrum(pricer).fit(X, y, sensitive=S)
    np.testing.assert_array_equal(again.predict_hyperaware(X), spectrum.predict_hyperaware(X))


def test_a_wrong_model_of_the_groups_is_held_by_the_band():
    """P(D given x) depends on the sign of a product of three features, which no logit of squares and products sees."""
    rng = np.random.default_rng(7)
    X = pd.DataFrame(rng.normal(size=(20_000, 3)), columns=list("uvw"))
    d = (rng.random(len(X)) < np.where(X.prod(axis=1) > 0, 0.9, 0.1)).astype(int)
    D = np.array(["a", "b"])[d]
    best = X["u"] * X["v"] * X["w"]

    class Given(DiscriminationFreePricer):
        def predict_best_estimate(self, X):
            price = X["u"] * X["v"] * X["w"]
            return pd.DataFrame({"a": price, "b": price})

    channel = RandomizedResponse(["a", "b"], keep=0.8)
    S = channel.privatize(D, rng=1)
    pricer = Given(channel=channel, pooling=0, correction="inverse").fit(X, best + rng.normal(size=len(X)), sensitive=S)
    price = own(PriceSpectrum(pricer).fit(X, sensitive=S).predict_corrective(X), D, ["a", "b"])
    assert kolmogorov(best.to_numpy(), D) > 0.7
    assert kolmogorov(price, D) < 0.1


def test_the_prices_are_what_they_are_called(portfolio):
    X, _, D, _, channel, pricer, spectrum = portfolio
    prices = spectrum.predict(X)
    assert list(prices) == ["unaware", "aware", "hyperaware", *(f"best_estimate_{g}" for g in "ab"),
                            *(f"corrective_{g}" for g in "ab")]  # fmt: skip
    np.testing.assert_allclose(prices["aware"], pricer.predict(X))
    np.testing.assert_allclose(prices["unaware"], pricer.predict_unaware(X))
    corrective, q = spectrum.predict_corrective(X), spectrum.predict_propensity(X)
    np.testing.assert_allclose(q.sum(axis=1), 1)
    np.testing.assert_allclose(prices["hyperaware"], (corrective * q).sum(axis=1))
    np.testing.assert_allclose(spectrum.predict_hyperaware(X), prices["hyperaware"])
    best = own(pricer.predict_best_estimate(X), D, channel.groups)
    assert kolmogorov(own(corrective, D, channel.groups), D) < 0.2 * kolmogorov(best, D)


def test_beyond_the_prices_of_the_fit_a_price_moves_as_the_best_estimate_does(portfolio):
    _X, *_, pricer, spectrum = portfolio
    far = pd.DataFrame({"u": [50.0, 51.0], "v": 0.0, "w": 0.0})
    best, moved = np.asarray(pricer.predict_best_estimate(far)), np.asarray(spectrum.predict_corrective(far))
    np.testing.assert_allclose(np.diff(best, axis=0), np.diff(moved, axis=0))


def test_mistakes_are_explained(portfolio):
    X, _, D, S, _, pricer, _ = portfolio
    with pytest.raises(ValueError, match="not fitted"):
        PriceSpectrum(pricer).predict(X)
    with pytest.raises(ValueError, match='expected "auto" or "reports"'):
        PriceSpectrum(pricer, distribution="smooth").fit(X, sensitive=S)
    with pytest.raises(ValueError, match="too few"):
        PriceSpectrum(pricer).fit(X, sensitive=np.where(np.arange(len(X)) < 60, D, None))


def test_comparison_and_drawings(portfolio):
    X, y, _, S, *_, spectrum = portfolio
    table = compute_spectrum(spectrum, X, y, sensitive=S)
    assert table["price"].tolist() == ["best_estimate", "unaware", "aware", "hyperaware", "corrective"]
    assert table["needs_attribute"].tolist() == [True, False, False, False, True]
    by_price = table.set_index("price")
    assert by_price.loc["best_estimate", "excess"] == 0
    assert (table["excess"][1:] > 0).all()
    assert by_price["kolmogorov"].idxmin() == "corrective"
    assert by_price.loc["corrective", "kolmogorov_low"] == 0  # the groups may well have the same distribution
    assert plot_spectrum(spectrum, X, y, sensitive=S).to_dict()
    price = spectrum.predict_hyperaware(X)
    assert plot_parity_distance(price, sensitive=S, channel=spectrum.pricer.channel_, unit="EUR").to_dict()
    assert plot_multicalibration(price, y, sensitive=S, channel=spectrum.pricer.channel_).to_dict()


# --- multicalibration ---


def test_multicalibration_of_the_true_attribute_is_the_direct_computation():
    rng = np.random.default_rng(8)
    h, D = rng.choice([1.0, 2.0, 3.0], 600), rng.choice(["a", "b"], 600)
    y = h + rng.normal(size=600) + (D == "b") * (h == 3)
    table = compute_multicalibration(h, y, sensitive=D, bins=3).set_index(["bin", "group"])
    for (code, group), row in table.iterrows():
        here = (h == code) & (group == D)
        excess = (y - h)[here]
        assert row["difference"] == pytest.approx(excess.mean(), abs=1e-9)
        assert row["difference"] / row["z"] == pytest.approx(excess.std() / np.sqrt(here.sum()), abs=1e-9)
        assert row["share"] == pytest.approx(here.mean(), abs=1e-9)
    assert table.loc[(3, "b"), "p_value"] < 0.01 < table.drop((3, "b"))["p_value"].min()


def test_multicalibration_holds_for_all_cells_together():
    """The price is right for everybody: over simulations the whole table rejects in five per cent."""
    channel, rejected, covered = RandomizedResponse(["a", "b"], keep=0.8), [], []
    for seed in range(150):
        rng = np.random.default_rng(seed)
        h, d = rng.choice([1.0, 2.0, 3.0, 4.0], 2000), rng.integers(0, 2, 2000)
        S = channel.privatize(np.array(["a", "b"])[d], rng=seed)
        table = compute_multicalibration(h, rng.normal(h, 1 + d), sensitive=S, channel=channel, bins=4)
        rejected.append(table["p_value"].min() < 0.05)
        covered.append(((table["difference_low"] <= 0) & (table["difference_high"] >= 0)).all())
    margin = 3 * np.sqrt(0.05 * 0.95 / 150)
    assert np.mean(rejected) <= 0.05 + margin
    assert np.mean(covered) >= 0.95 - margin


@pytest.mark.parametrize("clustered", [False, True])
def test_limits_of_cells_are_what_their_tests_do_not_reject(clustered):
    """The rarity of both limits of all cells, computed row by row, is one number: that of the largest of all cells."""
    rng = np.random.default_rng(3)
    n, names = 3000, np.array(["a", "b"], dtype=object)
    channel = RandomizedResponse(list(names), keep=0.8)
    d, w, h = rng.integers(0, 2, n), rng.choice([0.5, 1.0], n), rng.choice([1.0, 2.0], n)
    person = rng.integers(0, 2000, n) if clustered else np.arange(n)
    S, y = channel.privatize(names[d], rng=3), h * rng.lognormal(-0.5, 1.0, n)
    roles = {"sensitive": S, "channel": channel, "sample_weight": w, "cluster": person if clustered else None}
    table = compute_multicalibration(h, y, bins=2, **roles)
    a = w[:, None] * channel.inverse.T[np.searchsorted(names.astype(str), S.astype(str))]
    moments = [np.sum((w * (y - h)) ** p) / np.sum((w * h**0.75) ** p) for p in (2, 3, 4)]
    found = []
    for _, row in table.iterrows():
        k = int(row["group"] == "b")
        share = a[:, k] * (h == row["bin"])
        share = share / share.sum()
        by_person = np.bincount(person, share)

        def rarity(t, share=share, by_person=by_person, estimate=row["difference"]):
            psi = np.bincount(person, share * (y - h - t))
            own = [np.sum(psi**p) for p in (2, 3, 4)]
            pooled = [moment * np.sum((share * h**0.75) ** p) for moment, p in zip(moments, (2, 3, 4), strict=True)]
            rows = np.count_nonzero(by_person)
            f = min(1 / (own[2] / own[0] ** 2 - 1 / rows), 0.5 / np.sum(by_person**2))
            weight = 4 / (4 + f) if pooled[0] > own[0] else 0.0
            second, third, fourth = ((1 - weight) * o + weight * p for o, p in zip(own, pooled, strict=True))
            skewness = third / second**1.5
            T = (estimate - t) / np.sqrt(second)
            g = T + skewness * T**2 / 3 + skewness**2 * T**3 / 27 + skewness / 6
            return stats.norm.isf(stats.t.sf(abs(g), 2 / (fourth / second**2 - 1 / rows)))

        found += [rarity(row["difference_low"]), rarity(row["difference_high"])]
    np.testing.assert_allclose(found, found[0], rtol=1e-8)
    single, bonferroni = (stats.norm.isf(0.025 / m) for m in (1, len(table)))
    assert single < found[0] < bonferroni + 0.03  # 10,000 draws


def test_a_cell_without_a_claim_is_not_certain():
    """Of 80 contracts at one price none has a claim, where 2 % have one: chance, and no interval of width zero."""
    h, D = np.ones(4080), np.array(["a"] * 4000 + ["b"] * 80)
    y = np.where(np.arange(4080) % 50 == 0, 50.0, 0.0) * (D == "a")
    row = compute_multicalibration(h, y, sensitive=D, bins=1).set_index("group").loc["b"]
    assert row["difference"] == -1
    assert row["difference_low"] < -1 < 0 < row["difference_high"]
    assert row["p_value"] > 0.05
