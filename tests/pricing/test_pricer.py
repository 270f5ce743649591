"""The pricer on portfolios with constructed truth, against slow loops written from the formulas."""

from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy.stats import binom

from fairpremium import (
    Channel,
    DiscriminationFreePricer,
    LinearModel,
    MarginNoise,
    RandomizedResponse,
    ValidationNoise,
)
from fairpremium.errors import ChannelRefutedWarning, NotIdentifiedError, RiskUnboundedError, UnattainableReferenceError
from fairpremium.families import Tweedie
from fairpremium.portfolios import unbalanced_poisson, zhang_liu_shi_2025

# most of these tests are about the paper's own correction; the others have tests of their own
Pricer = partial(DiscriminationFreePricer, correction="inverse")

SHARES = {2: (0.8, 0.2), 3: (0.7, 0.2, 0.1), 4: (0.4, 0.3, 0.2, 0.1), 5: (0.3, 0.25, 0.2, 0.15, 0.1)}
FAMILIES = ["normal", "poisson", "gamma", "tweedie", "bernoulli"]


def simulate(K, family="normal", n=20_000, seed=0, keep=0.75, missing=0.0):
    """A portfolio with right specification: groups differ in every coefficient, features depend on the group."""
    rng = np.random.default_rng([seed, K])
    d = rng.choice(K, n, p=SHARES[K])
    X = rng.normal(0.3 * d[:, None], 1.0, (n, 2))
    w = rng.uniform(0.2, 1.0, n)
    beta = np.array([[0.2 + 0.3 * k, 0.3 - 0.1 * k, 0.05 * k] for k in range(K)])  # (K, 3)
    eta = beta[d, 0] + (X * beta[d, 1:]).sum(axis=1)
    if family == "normal":
        y = eta + rng.normal(0, 1, n) / np.sqrt(w)
    elif family == "bernoulli":
        y = (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(float)
    elif family == "poisson":
        y = rng.poisson(w * np.exp(eta)) / w
    elif family == "gamma":
        y = rng.gamma(3 * w, np.exp(eta) / (3 * w))
    else:
        claims = rng.poisson(w * np.exp(eta))
        y = np.where(claims > 0, rng.gamma(2 * np.maximum(claims, 1), 0.5), 0.0) / w
    groups = [f"g{k}" for k in range(K)]
    channel = RandomizedResponse(groups, keep=keep)
    true = np.array(groups, dtype=object)[d]
    reports = channel.privatize(true, rng=rng)
    if missing:
        reports = np.where(rng.random(n) < missing, None, reports)
    return {"X": X, "y": y, "w": w, "true": true, "S": reports, "channel": channel, "beta": beta, "groups": groups}


def signed_normal_equations(data):
    """The paper's estimator for squared loss, one dense row loop per group."""
    channel, Z = data["channel"], np.column_stack([np.ones(len(data["y"])), data["X"]])
    code = np.array([channel.reports.index(s) for s in data["S"]])
    solutions = []
    for k in range(len(channel.groups)):
        a = channel.inverse[k, code] * data["w"]
        solutions.append(np.linalg.solve((Z * a[:, None]).T @ Z, (Z * a[:, None]).T @ data["y"]))
    p = np.array([(channel.inverse[k, code] * data["w"]).sum() / data["w"].sum() for k in range(len(channel.groups))])
    return np.array(solutions), p, Z


@pytest.mark.parametrize("K", [2, 3, 4, 5])
def test_inverse_equals_the_signed_normal_equations(K):
    data = simulate(K)
    pricer = Pricer(channel=data["channel"], pooling=0)
    pricer.fit(data["X"], data["y"], sensitive=data["S"], sample_weight=data["w"])
    beta, p, Z = signed_normal_equations(data)
    np.testing.assert_allclose(pricer.coefficients_[data["groups"]].T, beta, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(pricer.group_distribution_, p, rtol=1e-10)
    np.testing.assert_allclose(pricer.predict_best_estimate(data["X"]), Z @ beta.T, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(pricer.predict(data["X"]), Z @ beta.T @ p, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(data["channel"].group_distribution(data["S"], sample_weight=data["w"]), p, rtol=1e-10)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("K", [2, 3])
def test_every_family_recovers_its_coefficients(family, K):
    data = simulate(K, family, n=60_000, seed=1)
    pricer = Pricer(family=family, channel=data["channel"], pooling=0)
    weight = None if family == "bernoulli" else data["w"]
    pricer.fit(data["X"], data["y"], sensitive=data["S"], sample_weight=weight)
    estimate = pricer._prices.coefficients.T.ravel()
    error = np.sqrt(np.diag(pricer._prices.covariance))[: estimate.size]
    # 15 coefficients at most, each beyond 4.5 standard errors with probability 7e-6
    assert np.abs((estimate - data["beta"].ravel()) / error).max() < 4.5
    p_error = np.sqrt(np.diag(pricer._prices.covariance))[estimate.size :]
    volume = np.array([data["w"][data["true"] == g].sum() for g in data["groups"]]) / data["w"].sum()
    if weight is not None:
        assert np.abs((pricer.group_distribution_ - volume) / p_error).max() < 4.5


def test_poisson_with_exposure_recovers_the_group_means_of_the_unbalanced_portfolio():
    p = unbalanced_poisson(n=150_000, rng=5)
    channel = RandomizedResponse(list(p.groups), keep=0.75)
    S = channel.privatize(p.sensitive, rng=6)
    pricer = Pricer(family="poisson", channel=channel, pooling=0)
    pricer.fit(p.X, p.y, sensitive=S, sample_weight=p.sample_weight)
    truth = p.best_estimate(p.X)
    estimate = pricer.predict_best_estimate(p.X)
    ratio = {}
    for group in p.groups:
        members = p.sensitive == group
        w = p.sample_weight[members]
        ratio[group] = (w @ estimate[group][members]) / (w @ truth[group][members])
    # the relative error of a group mean is about sqrt(inflation / claims); claims of group C are about 1,000
    claims = {g: (p.sample_weight * p.y)[p.sensitive == g].sum() for g in p.groups}
    from fairpremium import plan

    inflation = plan(list(p.groups), keep=0.75, shares=[0.7, 0.2, 0.1]).table.set_index("group")["inflation"]
    for group in p.groups:
        assert abs(ratio[group] - 1) < 5 * np.sqrt(inflation[group] / claims[group])
    # and it is far better than taking the reports as true
    naive = Pricer(family="poisson", channel=None, pooling=0).fit(p.X, p.y, sensitive=S, sample_weight=p.sample_weight)
    h = p.discrimination_free(p.X)
    ours, theirs = pricer.predict(p.X) - h, naive.predict(p.X) - h
    assert np.sqrt(np.mean(ours**2)) < np.sqrt(np.mean(theirs**2))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("K", [2, 3, 4, 5])
def test_almost_no_noise_equals_the_true_attribute(family, K):
    data = simulate(K, family, n=4000, seed=2)
    channel = RandomizedResponse(data["groups"], keep=1 - 1e-9)
    settings = {"family": family, "pooling": 0, "intervals": False}
    noisy = Pricer(channel=channel, **settings).fit(data["X"], data["y"], sensitive=data["true"])
    exact = Pricer(channel=None, **settings).fit(data["X"], data["y"], sensitive=data["true"])
    np.testing.assert_allclose(noisy.predict(data["X"]), exact.predict(data["X"]), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(
        noisy.predict_best_estimate(data["X"]), exact.predict_best_estimate(data["X"]), rtol=1e-6, atol=1e-7
    )
    assert exact.correction_ == "none"
    assert noisy.correction_ == "inverse"


def test_true_attribute_fits_each_group_alone():
    data = simulate(3, n=3000)
    pricer = Pricer(pooling=0).fit(data["X"], data["y"], sensitive=data["true"])
    Z = np.column_stack([np.ones(3000), data["X"]])
    for group in data["groups"]:
        own = data["true"] == group
        beta = np.linalg.lstsq(Z[own], data["y"][own], rcond=None)[0]
        np.testing.assert_allclose(pricer.coefficients_[group], beta, rtol=1e-9)


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_equal_repeated_rows(family):
    data = simulate(3, family, n=1500, seed=3, keep=0.85)
    times = np.random.default_rng(0).integers(1, 4, 1500)
    settings = {"family": family, "channel": data["channel"], "pooling": 5.0, "intervals": False}
    weighted = Pricer(**settings).fit(data["X"], data["y"], sensitive=data["S"], sample_weight=times.astype(float))
    repeated = Pricer(**settings).fit(
        np.repeat(data["X"], times, axis=0), np.repeat(data["y"], times), sensitive=np.repeat(data["S"], times)
    )
    np.testing.assert_allclose(weighted.predict(data["X"]), repeated.predict(data["X"]), rtol=1e-6)
    np.testing.assert_allclose(weighted.predict_unaware(data["X"]), repeated.predict_unaware(data["X"]), rtol=1e-6)
    np.testing.assert_allclose(weighted.group_distribution_, repeated.group_distribution_, rtol=1e-9)


@pytest.mark.parametrize("pooling", [0, "auto"])
@pytest.mark.parametrize("K", [2, 3, 4, 5])
def test_relabelling_and_reordering_groups_change_nothing(K, pooling):
    data = simulate(K, n=3000, seed=4, keep=0.8)
    order = np.random.default_rng(K).permutation(K)
    names = {f"g{k}": 100 + int(order[k]) for k in range(K)}
    renamed = RandomizedResponse([names[data["groups"][k]] for k in order], keep=0.8)
    settings = {"pooling": pooling, "random_state": 0}
    a = Pricer(channel=data["channel"], **settings).fit(data["X"], data["y"], sensitive=data["S"])
    b = Pricer(channel=renamed, **settings).fit(data["X"], data["y"], sensitive=[names[s] for s in data["S"]])
    # outcomes are of size one; the iterations of a pooled likelihood stop at a thousandth of a standard error
    atol = 0 if pooling == 0 else 1e-5
    np.testing.assert_allclose(a.predict(data["X"]), b.predict(data["X"]), rtol=1e-7, atol=atol)
    np.testing.assert_allclose(a.predict_interval(data["X"]), b.predict_interval(data["X"]), rtol=1e-6, atol=atol)
    best_a, best_b = a.predict_best_estimate(data["X"]), b.predict_best_estimate(data["X"])
    for group in data["groups"]:
        np.testing.assert_allclose(best_a[group], best_b[names[group]], rtol=1e-7, atol=atol)


def test_unaware_and_discrimination_free_agree_when_the_groups_do_not_matter():
    p = unbalanced_poisson(n=20_000, rng=7, group_effect=0.0)
    channel = RandomizedResponse(list(p.groups), keep=0.8)
    pricer = Pricer(family="poisson", channel=channel, random_state=0)
    pricer.fit(p.X, p.y, sensitive=channel.privatize(p.sensitive, rng=8), sample_weight=p.sample_weight)
    lower, upper = pricer.predict_interval(p.X, level=0.9999)
    unaware = pricer.predict_unaware(p.X)
    assert np.mean((lower <= unaware) & (unaware <= upper)) > 0.99


class TestPooling:
    def test_no_worse_when_groups_differ_and_much_better_when_they_do_not(self):
        differ, same = [], []
        for seed in range(8):
            p = zhang_liu_shi_2025(n=2000, rng=seed, age_band=True)
            channel = RandomizedResponse(["F", "M"], keep=0.75)
            S = channel.privatize(p.sensitive, rng=np.random.default_rng([1, seed]))
            for y, truth, errors in (
                (p.y, p.best_estimate(p.X).to_numpy(), differ),
                (p.y - p.best_estimate(p.X).to_numpy()[np.arange(2000), (p.sensitive == "M") * 1], 0.0, same),
            ):
                row = []
                for pooling in (0, "auto"):
                    pricer = Pricer(channel=channel, pooling=pooling, random_state=seed)
                    fitted = pricer.fit(p.X, y, sensitive=S).predict_best_estimate(p.X).to_numpy()
                    row.append(np.sqrt(np.mean((fitted - truth) ** 2)))
                errors.append(row)
        none, auto = np.mean(differ, axis=0)
        assert auto < 1.1 * none
        none, auto = np.mean(same, axis=0)
        assert auto < 0.75 * none

    @pytest.mark.parametrize("correction", ["auto", "inverse"])
    def test_the_table_of_candidates(self, correction):
        data = simulate(2, n=2000, keep=0.7)
        pricer = DiscriminationFreePricer(channel=data["channel"], correction=correction)
        pricer.fit(data["X"], data["y"], sensitive=data["S"])
        table = pricer.candidates_
        assert table["correction"].iloc[0] == "inverse"  # the base comes first
        assert table["chosen"].sum() == 1
        chosen = table[table["chosen"]].iloc[0]
        assert chosen["correction"] == pricer.correction_
        assert np.isnan(chosen["pooling"])  # empirical Bayes has no strength
        assert (table["reason"] != "").all()
        assert {"model", "corrected_risk", "corrected_risk_se", "report_log_loss", "report_log_loss_se"} <= set(table)

    def test_what_empirical_bayes_found_is_told(self):
        data = simulate(2, n=2000, keep=0.7)
        X = pd.DataFrame({"a": data["X"][:, 0], "b": np.where(data["X"][:, 1] > 0, "high", "low")})
        pooling = Pricer(channel=data["channel"]).fit(X, data["y"], sensitive=data["S"]).pooling_
        assert set(pooling) == {"main", "slopes"}
        assert list(pooling["slopes"]) == ["a", "b"]  # the caller's columns
        assert all(0 < tau < np.inf for tau in [pooling["main"], *pooling["slopes"].values()])

    def test_where_the_corrected_risk_has_no_minimum_there_are_prices(self):
        data = simulate(3, n=150, keep=0.6)
        settings = {"channel": data["channel"], "reference": "uniform"}
        with pytest.raises(RiskUnboundedError, match="no minimum"):
            Pricer(pooling=0, **settings).fit(data["X"], data["y"], sensitive=data["S"])
        pricer = Pricer(**settings).fit(data["X"], data["y"], sensitive=data["S"])
        best = pricer.predict_best_estimate(data["X"]).to_numpy()
        assert np.abs(best - data["y"].mean()).max() < 5 * data["y"].std()
        lower, upper = pricer.predict_interval(data["X"])
        assert np.isfinite(upper - lower).all()
        assert (upper > lower).all()

    def test_given_strength_is_used(self):
        data = simulate(2, n=500)
        pricer = Pricer(channel=data["channel"], pooling=1e12)
        pricer.fit(data["X"], data["y"], sensitive=data["S"])
        assert pricer.pooling_ == pricer.candidates_["pooling"].item() == 1e12
        np.testing.assert_allclose(pricer.predict(data["X"]), pricer.predict_unaware(data["X"]), rtol=1e-6)


class TestReference:
    def fit(self, reference, family="normal", **settings):
        data = simulate(3, family, n=4000, keep=0.9)
        pricer = Pricer(family=family, channel=data["channel"], pooling=0, reference=reference, **settings)
        return data, pricer.fit(data["X"], data["y"], sensitive=data["S"], sample_weight=data["w"])

    def test_uniform_and_given(self):
        data, pricer = self.fit("uniform")
        best = pricer.predict_best_estimate(data["X"])
        np.testing.assert_allclose(pricer.predict(data["X"]), best.mean(axis=1), rtol=1e-12)
        data, pricer = self.fit({"g2": 0.5, "g0": 0.25, "g1": 0.25})
        np.testing.assert_allclose(pricer.predict(data["X"]), best @ [0.25, 0.25, 0.5], rtol=1e-12)

    @pytest.mark.parametrize("family", ["normal", "poisson"])
    @pytest.mark.parametrize("intervals", [True, False])
    def test_balanced_reproduces_the_total_and_is_the_nearest_distribution(self, family, intervals):
        data, pricer = self.fit("balanced", family, intervals=intervals)
        w = data["w"]
        assert w @ pricer.predict(data["X"]) == pytest.approx(w @ data["y"], rel=1e-9)
        P, p = pricer.reference_distribution_, pricer.group_distribution_
        assert P.sum() == pytest.approx(1)
        H = w @ pricer.predict_best_estimate(data["X"]).to_numpy() / w.sum()
        # any other distribution with the same total is further away: move along the one free direction
        direction = np.cross(np.ones(3), H)
        for step in (1e-4, -1e-4):
            Q = P + step * direction / np.linalg.norm(direction)
            assert pytest.approx(P @ H) == Q @ H
            assert Q @ np.log(Q / p) > P @ np.log(P / p)

    def test_unattainable_balance_gives_the_range_and_the_cure(self):
        data = simulate(2, n=4000, keep=0.9)
        # losses of rows without a report count in the total, but no group's formula explains them
        y = np.concatenate([data["y"], np.full(4000, 50.0)])
        S = np.concatenate([data["S"], np.full(4000, None)])
        pricer = Pricer(channel=data["channel"], pooling=0, reference="balanced")
        with pytest.raises(UnattainableReferenceError, match=r"mean premiums from .* to .*factor"):
            pricer.fit(np.tile(data["X"], (2, 1)), y, sensitive=S)

    @pytest.mark.parametrize(
        "reference, error, text",
        [
            ("marginals", ValueError, "expected one of"),
            ({"g0": 1.0}, ValueError, "one weight for each of"),
            ({"g0": 0.5, "g1": 0.5, "g2": 0.5}, ValueError, "sum to one"),
            ({"g0": 1.5, "g1": -0.5, "g2": 0.0}, ValueError, ">= 0"),
            ({"g0": np.nan, "g1": 0.5, "g2": 0.5}, ValueError, "sum to one"),
            (3, TypeError, "dict"),
        ],
    )
    def test_bad_references(self, reference, error, text):
        with pytest.raises(error, match=text):
            self.fit(reference)

    def test_negative_share_is_not_a_reference(self):
        rng = np.random.default_rng(0)
        channel = RandomizedResponse(["a", "b"], keep=0.6)
        S = np.where(rng.random(300) < 0.3, "b", "a")  # fewer reports of b than even its absence would give
        pricer = Pricer(channel=channel, pooling=1e6)
        refuted = pytest.warns(ChannelRefutedWarning, match="report 'a'")
        with refuted, pytest.raises(NotIdentifiedError, match="share of group 'b' is -0"):
            pricer.fit(rng.normal(size=(300, 1)), rng.normal(size=300), sensitive=S)


class TestMissingReports:
    def test_rows_without_a_report_count_for_the_unaware_price_only(self):
        data = simulate(2, n=5000, missing=0.4)
        have = np.array([s is not None for s in data["S"]])
        settings = {"channel": data["channel"], "pooling": 0, "intervals": False}
        all_rows = Pricer(**settings).fit(data["X"], data["y"], sensitive=data["S"])
        reported = Pricer(**settings).fit(data["X"][have], data["y"][have], sensitive=data["S"][have])
        np.testing.assert_allclose(
            all_rows.predict_best_estimate(data["X"]), reported.predict_best_estimate(data["X"]), rtol=1e-9
        )
        everyone = Pricer(channel=None, pooling=0).fit(data["X"], data["y"], sensitive=data["true"])
        np.testing.assert_allclose(all_rows.predict_unaware(data["X"]), everyone.predict_unaware(data["X"]), rtol=1e-9)
        assert all_rows.n_missing_reports_ == (~have).sum()
        assert len(all_rows.predict(data["X"])) == 5000

    @pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
    def test_every_kind_of_missing_value(self, missing):
        data = simulate(2, n=1000)
        S = data["S"].copy()
        S[:100] = missing
        pricer = Pricer(channel=data["channel"], pooling=0).fit(data["X"], data["y"], sensitive=S)
        assert pricer.n_missing_reports_ == 100

    def test_shares_correct_for_reporting_that_depends_on_features(self):
        rng = np.random.default_rng(3)
        n = 40_000
        x = rng.integers(0, 2, n)
        d = np.where(rng.random(n) < np.where(x == 1, 0.8, 0.3), "F", "M")
        channel = RandomizedResponse(["F", "M"], keep=0.8)
        S = channel.privatize(d, rng=rng)
        S[rng.random(n) < np.where(x == 1, 0.1, 0.8)] = None  # those with x = 1 report far more often
        pricer = Pricer(channel=channel, pooling=0)
        pricer.fit(x[:, None].astype(float), rng.normal(size=n), sensitive=S)
        error = np.sqrt(pricer._prices.covariance[-2, -2])
        truth = np.mean(d == "F")
        assert abs(pricer.group_distribution_[0] - truth) < 4.5 * error
        respondents, covariance = channel.group_distribution(S, return_covariance=True)
        assert respondents[0] - truth > 4.5 * np.sqrt(covariance[0, 0])  # what the correction is for


class TestIntervals:
    @pytest.mark.simulation
    @pytest.mark.parametrize("family", ["normal", "poisson"])
    @pytest.mark.parametrize("reference", ["marginal", "uniform", "balanced"])
    def test_coverage(self, family, reference, repetitions):
        """Nominal 95 % covers the true h* of the estimated target; K = 3, unbalanced, weights."""
        repeats = repetitions(120, 1000)
        X = np.array([[0.0, 0.0], [1.0, -0.5], [-1.0, 1.0]])
        big = simulate(3, family, n=2_000_000, seed=999)
        oracle = Pricer(family=family, pooling=0, reference=reference, intervals=False)
        truth = oracle.fit(big["X"], big["y"], sensitive=big["true"], sample_weight=big["w"]).predict(X)
        hits = np.zeros(3)
        for seed in range(repeats):
            data = simulate(3, family, n=4000, seed=seed, keep=0.85)
            pricer = Pricer(family=family, channel=data["channel"], pooling=0, reference=reference)
            try:
                pricer.fit(data["X"], data["y"], sensitive=data["S"], sample_weight=data["w"])
            except UnattainableReferenceError:  # no interval, no coverage: rare here
                hits += 0.95
                continue
            lower, upper = pricer.predict_interval(X)
            hits += (lower <= truth) & (truth <= upper)
        # binomial limits at 1e-4 on either side around 0.95, widened by 0.01 for the asymptotics
        low, high = binom.ppf([1e-4, 1 - 1e-4], repeats, 0.95) / repeats
        assert (hits / repeats >= low - 0.01).all(), hits / repeats
        assert (hits / repeats <= high + 0.01).all(), hits / repeats

    def test_levels_nest_and_stay_in_the_domain(self):
        data = simulate(2, "bernoulli", n=300, keep=0.9)
        pricer = Pricer(family="bernoulli", channel=data["channel"], pooling=10)
        pricer.fit(data["X"], data["y"], sensitive=data["S"])
        narrow, wide = pricer.predict_interval(data["X"], level=0.5), pricer.predict_interval(data["X"], level=0.99)
        h = pricer.predict(data["X"])
        assert (wide.lower < narrow.lower).all()
        assert (narrow.lower < h).all()
        assert (h < narrow.upper).all()
        assert (narrow.upper < wide.upper).all()
        assert (wide.lower > 0).all()
        assert (wide.upper < 1).all()

    def test_not_asked_for_not_given(self):
        data = simulate(2, n=500)
        pricer = Pricer(channel=data["channel"], intervals=False, pooling=0)
        pricer.fit(data["X"], data["y"], sensitive=data["S"])
        with pytest.raises(ValueError, match="intervals=True"):
            pricer.predict_interval(data["X"])

    @pytest.mark.parametrize("level", [0, 1, 1.5, -0.1, np.nan, True, "0.95", None])
    def test_bad_levels(self, level):
        data = simulate(2, n=500)
        pricer = Pricer(channel=data["channel"], pooling=0).fit(data["X"], data["y"], sensitive=data["S"])
        with pytest.raises(ValueError, match="level"):
            pricer.predict_interval(data["X"], level=level)


class TestTables:
    frame = pd.DataFrame(
        {"age": [20.0, 30.0, 40.0, 50.0] * 50, "smoker": [True, False, False, False] * 50, "area": ["a", "b"] * 100}
    )

    def fitted(self, X):
        rng = np.random.default_rng(0)
        y, S = rng.normal(size=200), np.where(rng.random(200) < 0.5, "F", "M")
        return Pricer(pooling=0).fit(X, y, sensitive=S)

    def test_the_same_prices_from_every_library(self):
        X = self.frame
        pandas = self.fitted(X)
        for other in (pl.from_pandas(X), pa.Table.from_pandas(X)):
            pricer = self.fitted(other)
            np.testing.assert_allclose(pricer.predict(other), pandas.predict(X), rtol=1e-12)
            assert type(pricer.predict_best_estimate(other)) is type(other)
        best = pandas.predict_best_estimate(X.set_index(np.arange(200) + 7))
        assert list(best.columns) == ["F", "M"]
        assert best.index[0] == 7

    def test_unseen_levels(self):
        pricer = self.fitted(self.frame)
        new = self.frame.head(3).assign(area=["a", "z", "b"])
        with pytest.raises(ValueError, match="1 rows of X with a level of column 'area'"):
            pricer.predict(new)
        base = pricer.set_params(unseen_levels="base").predict(new.assign(area=["a", "a", "b"]))
        np.testing.assert_allclose(pricer.predict(new), base)

    def test_column_order_and_further_columns_do_not_matter(self):
        pricer = self.fitted(self.frame)
        shuffled = self.frame[["area", "smoker", "age"]].assign(note="x")
        np.testing.assert_array_equal(pricer.predict(shuffled), pricer.predict(self.frame))

    def test_redundant_features_are_named(self):
        X = self.frame.assign(again=2 * self.frame["age"] + 1)
        with pytest.warns(UserWarning, match=r"\['again'\]"):
            pricer = self.fitted(X)
        np.testing.assert_allclose(pricer.predict(X), self.fitted(self.frame).predict(self.frame), rtol=1e-9)


class TestChannels:
    def test_more_reports_than_groups(self):
        """An "undecided" answer: three reports, two groups."""
        rng = np.random.default_rng(0)
        n = 60_000
        channel = Channel([[0.7, 0.1], [0.1, 0.6], [0.2, 0.3]], groups=["F", "M"], reports=["F", "M", "?"])
        d = np.where(rng.random(n) < 0.3, "F", "M")
        x = rng.normal(size=n)
        y = np.where(d == "F", 1 + x, -x) + rng.normal(size=n)
        pricer = Pricer(channel=channel, pooling=0)
        pricer.fit(x[:, None], y, sensitive=channel.privatize(d, rng=rng))
        error = np.sqrt(np.diag(pricer._prices.covariance))
        estimate = np.concatenate([pricer._prices.coefficients.T.ravel(), pricer.group_distribution_])
        assert np.abs((estimate - [1, 1, 0, -1, np.mean(d == "F"), np.mean(d == "M")]) / error).max() < 4.5

    def test_two_attributes(self):
        rng = np.random.default_rng(1)
        n = 40_000
        sex, area = RandomizedResponse(["F", "M"], keep=0.9), RandomizedResponse(["u", "r"], keep=0.85)
        both = Channel.product(sex, area)
        d = pd.DataFrame({"sex": rng.choice(["F", "M"], n, p=[0.4, 0.6]), "area": rng.choice(["u", "r"], n)})
        mean = 1.0 * (d["sex"] == "F") + 2.0 * (d["area"] == "u") + 3.0 * ((d["sex"] == "F") & (d["area"] == "u"))
        x = rng.normal(size=n)
        y = mean.to_numpy() + 0.5 * x + rng.normal(size=n)
        S = pd.DataFrame({"sex": sex.privatize(d["sex"], rng=rng), "area": area.privatize(d["area"], rng=rng)})
        pricer = Pricer(channel=both, pooling=0).fit(x[:, None], y, sensitive=S)
        truth = {("F", "u"): 6.0, ("F", "r"): 1.0, ("M", "u"): 2.0, ("M", "r"): 0.0}
        intercepts = pricer._prices.coefficients[0]
        errors = np.sqrt(np.diag(pricer._prices.covariance))[[0, 2, 4, 6]]
        assert pricer.groups_ == both.groups
        assert max(abs(intercepts[k] - truth[g]) / errors[k] for k, g in enumerate(both.groups)) < 4.5
        assert list(pricer.predict_best_estimate(x[:5, None]).columns) == list(both.groups)

    def test_noise_estimators(self):
        data = simulate(2, n=20_000, seed=11, keep=0.8)
        rng = np.random.default_rng(2)
        true = rng.choice(data["groups"], 1500)
        noise = ValidationNoise(true, data["channel"].privatize(true, rng=rng))
        known = Pricer(channel=data["channel"], pooling=0)
        known.fit(data["X"], data["y"], sensitive=data["S"])
        pricer = Pricer(channel=noise, pooling=0).fit(data["X"], data["y"], sensitive=data["S"])
        assert pricer.channel_.keep == pytest.approx(pricer.noise_.keep_)
        assert abs(pricer.noise_.keep_ - 0.8) < 4.5 * np.sqrt(0.16 / 1500)
        assert not hasattr(noise, "keep_")  # the caller's object is cloned
        width = np.subtract(*reversed(pricer.predict_interval(data["X"])))
        known_width = np.subtract(*reversed(known.predict_interval(data["X"])))
        assert width.mean() > known_width.mean()  # not knowing keep costs something

    def test_unidentified_noise_raises_with_its_message(self):
        data = simulate(2, n=500)
        noise = MarginNoise({"g0": 0.5, "g1": 0.5})
        with pytest.raises(NotIdentifiedError, match="uniform"):
            Pricer(channel=noise).fit(data["X"], data["y"], sensitive=data["S"])


class TestBadInput:
    """Each mistake is one clear error, and nothing is half fitted."""

    def check(self, error, text, settings=None, **changes):
        data = simulate(2, n=200, keep=0.9)
        arguments = {"X": data["X"], "y": data["y"], "sensitive": data["S"], "sample_weight": data["w"], **changes}
        pricer = Pricer(**{"channel": data["channel"], "pooling": 0, **(settings or {})})
        X, y = arguments.pop("X"), arguments.pop("y")
        with pytest.raises(error, match=text):
            pricer.fit(X, y, **arguments)
        assert [name for name in vars(pricer) if name.endswith("_") and not name.startswith("__")] == []
        assert not hasattr(pricer, "_prices")

    def test_lengths(self):
        self.check(ValueError, "y with 199 rows, but X has 200", y=np.zeros(199))
        self.check(ValueError, "sensitive with 199 rows, but X has 200", sensitive=["g0", "g1", "g1"] * 66 + ["g0"])
        self.check(ValueError, "sample_weight with 3 rows, but X has 200", sample_weight=[1, 2, 3])

    def test_empty(self):
        self.check(ValueError, "0 sample", X=np.empty((0, 2)), y=[], sensitive=[], sample_weight=None)
        self.check(ValueError, "no columns", X=pd.DataFrame(index=range(200)))
        self.check(ValueError, r"0 feature", X=np.empty((200, 0)))

    def test_reports(self):
        self.check(ValueError, r"without a single report of the group\(s\) \['g1'\]", sensitive=["g0"] * 200)
        self.check(ValueError, "no report at all", sensitive=[None] * 200)
        self.check(ValueError, "sensitive=", sensitive=None)
        self.check(ValueError, "at least two", sensitive=["g0"] * 200, settings={"channel": None})
        secret = "dr-who"
        with pytest.raises(AssertionError):  # the unknown label is not echoed
            self.check(ValueError, secret, sensitive=[secret] + ["g0", "g1"] * 99 + ["g0"])
        self.check(ValueError, "'g0', 'g1'", sensitive=[secret] + ["g0", "g1"] * 99 + ["g0"])

    def test_outcomes(self):
        y = simulate(2, n=200)["y"]
        self.check(ValueError, "NaN", y=np.where(np.arange(200) == 5, np.nan, y))
        self.check(ValueError, "infinite", y=np.where(np.arange(200) == 5, np.inf, y))
        self.check(ValueError, "None", y=None)
        self.check(ValueError, "numbers", y=["a"] * 200)
        self.check(ValueError, "2 of 200 rows", y=np.r_[-1.0, -2.0, np.ones(198)], settings={"family": "poisson"})
        self.check(ValueError, "greater than 0", y=np.r_[0.0, np.ones(199)], settings={"family": "gamma"})
        self.check(ValueError, "one of 0, 1", y=np.r_[0.5, np.ones(199)], settings={"family": "bernoulli"})
        self.check(ValueError, "all outcomes zero", y=np.zeros(200), settings={"family": "poisson"})
        self.check(ValueError, "all one", y=np.ones(200), settings={"family": "bernoulli"})

    def test_weights(self):
        self.check(ValueError, "1 negative", sample_weight=np.r_[-1.0, np.ones(199)])
        self.check(ValueError, "NaN or infinite", sample_weight=np.r_[np.nan, np.ones(199)])
        self.check(ValueError, "NaN or infinite", sample_weight=np.r_[np.inf, np.ones(199)])
        self.check(ValueError, "zero", sample_weight=np.zeros(200))

    def test_features(self):
        frame = pd.DataFrame(np.random.default_rng(0).normal(size=(200, 2)), columns=["a", "b"])
        self.check(ValueError, r"duplicate columns \['a'\]", X=frame.set_axis(["a", "a"], axis=1))
        self.check(ValueError, "1 missing .* in column 'b'", X=frame.assign(b=np.r_[np.nan, np.ones(199)]))
        self.check(ValueError, "column 'b'", X=frame.assign(b=["x", None] * 100))
        self.check(TypeError, "column 'b'", X=frame.assign(b=["x", 1] * 100))
        self.check(TypeError, "column 'b'", X=frame.assign(b=pd.Timestamp("2026-01-01")))
        self.check(ValueError, "infinite", X=frame.assign(b=np.r_[np.inf, np.ones(199)]))
        self.check(TypeError, "lazy", X=pl.from_pandas(frame).lazy())

    @pytest.mark.parametrize(
        "settings, error, text",
        [
            ({"family": "lognormal"}, ValueError, "family='lognormal'"),
            ({"model": "forest"}, ValueError, "model='forest'"),
            ({"model": 3}, TypeError, "model of type int"),
            ({"model": LinearModel(ridge=-1)}, ValueError, "ridge=-1"),
            ({"correction": "magic"}, ValueError, "correction='magic'"),
            ({"pooling": -1}, ValueError, "pooling=-1"),
            ({"pooling": np.nan}, ValueError, "pooling=nan"),
            ({"pooling": np.inf}, ValueError, "pooling=inf"),
            ({"pooling": True}, ValueError, "pooling=True"),
            ({"pooling": "some"}, ValueError, "pooling='some'"),
            ({"channel": 0.8}, TypeError, "channel of type float"),
            ({"unseen_levels": "drop"}, ValueError, "unseen_levels='drop'"),
        ],
    )
    def test_settings(self, settings, error, text):
        self.check(error, text, settings=settings)

    def test_too_little_information(self):
        data = simulate(3, n=60, keep=0.4)
        pricer = Pricer(channel=data["channel"], pooling=0)
        with pytest.raises(RiskUnboundedError, match=r"effective rows.*What helps: more data") as caught:
            pricer.fit(data["X"], data["y"], sensitive=data["S"])
        assert caught.value.group in data["groups"]
        assert 0 <= caught.value.effective_rows < 60

    def test_a_failed_second_fit_leaves_the_first(self):
        data = simulate(2, n=300)
        pricer = Pricer(channel=data["channel"], pooling=0)
        before = pricer.fit(data["X"], data["y"], sensitive=data["S"]).predict(data["X"])
        with pytest.raises(ValueError, match="NaN"):
            pricer.fit(data["X"][:, :1], np.full(300, np.nan), sensitive=data["S"])
        np.testing.assert_array_equal(pricer.predict(data["X"]), before)

    def test_prediction(self):
        data = simulate(2, n=300)
        pricer = Pricer(channel=data["channel"], pooling=0)
        pricer.fit(data["X"], data["y"], sensitive=data["S"])
        with pytest.raises(ValueError, match="3 features"):
            pricer.predict(np.zeros((2, 3)))
        with pytest.raises(TypeError):
            pricer.predict(data["X"], data["S"])  # there is no place for the attribute

    def test_absurd_rows_do_not_get_absurd_prices(self):
        data = simulate(2, "poisson", n=2000)
        pricer = Pricer(family="poisson", channel=data["channel"], pooling=0)
        pricer.fit(data["X"], data["y"], sensitive=data["S"])
        with pytest.raises(OverflowError, match="far outside"):
            pricer.predict(np.array([[1e6, 1e6]]))


def test_tweedie_power_is_a_family_object():
    data = simulate(2, "tweedie", n=3000)
    pricer = Pricer(family=Tweedie(power=1.7), channel=data["channel"], pooling=0)
    assert pricer.fit(data["X"], data["y"], sensitive=data["S"])._prices.family == Tweedie(1.7)


class TestClusters:
    @staticmethod
    def policies(rng, persons=400, years=5):
        """Several years of one person share features, the report, and a personal effect."""
        channel = RandomizedResponse(["F", "M"], keep=0.8)
        d = rng.choice(["F", "M"], persons, p=[0.4, 0.6])
        x = rng.normal(size=persons)
        mean = np.where(d == "F", 1 + x, -x) + rng.normal(size=persons)
        who = np.repeat(np.arange(persons), years)
        y = mean[who] + 0.5 * rng.normal(size=len(who))
        return x[who, None], y, channel.privatize(d, rng=rng)[who], who, channel

    def test_clustered_rows_equal_the_slow_sum_over_persons(self):
        X, y, S, who, channel = self.policies(np.random.default_rng(0))
        shuffle = np.random.default_rng(1).permutation(len(y))
        a = Pricer(channel=channel, pooling=0).fit(X, y, sensitive=S, cluster=who)
        b = Pricer(channel=channel, pooling=0).fit(
            X[shuffle], y[shuffle], sensitive=S[shuffle], cluster=[f"p{i}" for i in who[shuffle]]
        )
        np.testing.assert_allclose(a._prices.covariance, b._prices.covariance, rtol=1e-7, atol=1e-12)
        # a slow reference for the first coefficients: totals per person of T^-1 (y - f) z
        Z = np.column_stack([np.ones(len(y)), X])
        k = 0
        a_k = channel.inverse[k, channel.encode(S)]
        psi = (a_k * (y - Z @ a._prices.coefficients[:, k]))[:, None] * Z
        totals = np.array([psi[who == i].sum(axis=0) for i in range(400)])
        bread = np.linalg.inv((Z * a_k[:, None]).T @ Z)
        np.testing.assert_allclose(a._prices.covariance[:2, :2], bread @ totals.T @ totals @ bread.T, rtol=1e-7)

    @staticmethod
    def twice(X, y, S, model, **settings):
        """The stories of each row as a person, of each row twice as one person, and of each row twice as two."""
        rows = np.repeat(np.arange(len(y)), 2)
        pricers = [Pricer(model=m, pooling=0, random_state=0, intervals=False, **settings) for m in model]
        return (
            pricers[0].fit(X, y, sensitive=S, cluster=np.arange(len(y))).candidates_,
            pricers[1].fit(X[rows], y[rows], sensitive=S[rows], cluster=rows).candidates_,
            pricers[1].fit(X[rows], y[rows], sensitive=S[rows]).candidates_,
        )

    @pytest.mark.parametrize("pooling", [0, "auto"])
    def test_a_second_copy_of_every_row_is_no_evidence(self, pooling):
        data = simulate(2, "normal", n=3000)
        X, y, S, rows = data["X"], data["y"], data["S"], np.repeat(np.arange(3000), 2)
        pricer = Pricer(channel=data["channel"], pooling=pooling)
        once = pricer.fit(X, y, sensitive=S)._prices
        twice = pricer.fit(X[rows], y[rows], sensitive=S[rows], cluster=rows)._prices
        loose = pricer.fit(X[rows], y[rows], sensitive=S[rows])._prices
        error = np.sqrt(np.diag(once.covariance))
        moved = (twice.coefficients - once.coefficients).T.ravel() / error[: once.coefficients.size]
        # the model of P(D given x), which gives the evidence its weight, has a ridge that counts rows
        assert np.abs(moved).max() < (1e-6 if pooling == 0 else 0.01)
        np.testing.assert_allclose(np.sqrt(np.diag(twice.covariance)), error, rtol=0.01)
        # what pooling moves is in the covariance, too, and does not halve
        assert np.trace(loose.covariance) < (0.75 if pooling == 0 else 0.9) * np.trace(once.covariance)

    def test_checks_see_persons(self):
        """A second copy of every row is no evidence for or against a correction."""
        data = simulate(2, "normal", n=3000)
        settings = {"channel": data["channel"], "correction": "auto"}
        once, twice, _ = self.twice(data["X"], data["y"], data["S"], ["linear"] * 2, **settings)
        assert list(twice["correction"]) == list(once["correction"])
        assert list(twice["chosen"]) == list(once["chosen"])
        assert list(twice["reason"]) == list(once["reason"])

    def test_the_comparison_of_models_sees_persons(self):
        data = simulate(2, "normal", n=1000)
        # a ridge counts rows: with twice the rows it takes twice the ridge to give the same prices
        models = [[LinearModel(), LinearModel(ridge=500.0 * times)] for times in (1, 2)]
        settings = {"channel": data["channel"], "correction": "inverse"}
        once, twice, loose = self.twice(data["X"], data["y"], data["S"], models, **settings)
        np.testing.assert_allclose(twice["corrected_risk_se"], once["corrected_risk_se"], rtol=1e-7)
        assert list(twice["reason"]) == list(once["reason"])
        assert not np.allclose(loose["corrected_risk_se"], once["corrected_risk_se"], rtol=0.1)

    @pytest.mark.simulation
    @pytest.mark.filterwarnings("ignore::fairpremium.errors.ChannelRefutedWarning")  # that check needs them, too
    def test_coverage_needs_the_clusters(self, repetitions):
        repeats = repetitions(150, 1000)
        hits = np.zeros(2)
        truth = 0.4 * (1 + 0.5) - 0.6 * 0.5
        for seed in range(repeats):
            X, y, S, who, channel = self.policies(np.random.default_rng([7, seed]))
            for i, cluster in enumerate((None, who)):
                pricer = Pricer(channel=channel, pooling=0, reference={"F": 0.4, "M": 0.6})
                lower, upper = pricer.fit(X, y, sensitive=S, cluster=cluster).predict_interval([[0.5]])
                hits[i] += lower[0] <= truth <= upper[0]
        low, high = binom.ppf([1e-4, 1 - 1e-4], repeats, 0.95) / repeats
        assert low - 0.01 <= hits[1] / repeats <= high + 0.01
        assert hits[0] / repeats < low - 0.01  # what ignoring the persons would claim

    def test_bad_clusters(self):
        X, y, S, who, channel = self.policies(np.random.default_rng(0))
        with pytest.raises(ValueError, match="cluster with 3 rows"):
            Pricer(channel=channel).fit(X, y, sensitive=S, cluster=[1, 2, 3])
        with pytest.raises(ValueError, match="1 missing"):
            Pricer(channel=channel).fit(X, y, sensitive=S, cluster=[None, *who[1:]])
