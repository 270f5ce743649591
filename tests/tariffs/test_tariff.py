"""The closest tariff: exact where it can be, balanced, close, within its limits, and as the actuary demands."""

from __future__ import annotations

import json
from itertools import pairwise

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.optimize import minimize
from scipy.stats import t as student
from sklearn.linear_model import PoissonRegressor

from fairpremium import BoostedModel, DiscriminationFreePricer, LinearModel, RandomizedResponse, Tariff
from fairpremium.audit import compute_discrimination
from fairpremium.documents import write_document
from fairpremium.errors import ModelFileError
from fairpremium.models import Design
from fairpremium.portfolios import unbalanced_poisson, zhang_liu_shi_2025
from fairpremium.pricing import LinearPrices
from fairpremium.tariffs import fit_tariff
from fairpremium.tariffs._bands import Curve, fine_edges, roundest
from helpers.tariffs import GROUPS, portfolio, pricer_with


def test_groups_that_differ_by_a_factor_give_the_premium_itself():
    X = portfolio()
    exposure = np.random.default_rng(2).uniform(0.1, 1, len(X))
    pricer = pricer_with(X)
    tariff = pricer.to_tariff(X, exposure=exposure)
    other = portfolio(500, seed=9).assign(age=lambda t: t["age"] / 3 + 60)  # values that the portfolio does not have
    for rows in (X, other):
        np.testing.assert_allclose(tariff.predict(rows), pricer.predict(rows), rtol=1e-9)
    assert tariff.deviation["largest"] < 1e-9
    assert tariff.deviation["proxy_discrimination_after"] < 1e-12 < tariff.deviation["proxy_discrimination_unaware"] + 1
    table = tariff.relativities
    assert table.columns.tolist() == ["factor", "level", "relativity", "low", "high", "exposure"]
    age = table[table["factor"] == "age"]
    assert age["level"].tolist() == ["per unit"]
    assert age["relativity"].item() == pytest.approx(np.exp(-0.01), rel=1e-10)
    smoker = table[table["factor"] == "smoker"].set_index("level")
    assert smoker.loc[True, "relativity"] == pytest.approx(np.exp(0.4), rel=1e-10)
    assert smoker.loc[True, "exposure"] == pytest.approx(exposure[X["smoker"]].sum())


@pytest.mark.parametrize(
    "terms",
    [
        None,
        "age + power + region + smoker",
        "bands(age, 25, 40, 65) + bands(power, 66.6, 120) + region + smoker",
        "spline(age, 4) + power + rare(region, 0.15) + smoker",
        "poly(age, 2) + power + base(region, 'rural') + smoker",
    ],
)
def test_common_slopes_give_the_premium_itself(terms):
    X = portfolio(1500)
    rng = np.random.default_rng(0)
    D = np.where(rng.random(len(X)) < 0.3 + 0.4 * X["smoker"], "F", "M")
    exposure = rng.uniform(0.2, 1, len(X))
    y = rng.poisson(exposure * np.exp(-1 - 0.02 * X["age"] + 0.4 * (D == "F") + 0.3 * X["smoker"]))
    channel = RandomizedResponse(GROUPS, keep=0.8)
    model = LinearModel(terms=terms, slopes="common")
    pricer = DiscriminationFreePricer("poisson", model, channel=channel)
    pricer.fit(X, y / exposure, sensitive=channel.privatize(D, rng=1), sample_weight=exposure)
    tariff = pricer.to_tariff(X, exposure=exposure)
    np.testing.assert_allclose(tariff.predict(X), pricer.predict(X), rtol=1e-9)
    assert tariff.deviation["largest"] < 1e-9
    assert tariff.deviation["proxy_discrimination_after"] < 1e-12
    base = tariff.relativities.groupby("factor", sort=False).get_group("region").iloc[0]
    assert (base["level"], base["relativity"]) == ("rural" if "base" in (terms or "") else "city", 1.0)


def test_bands_of_the_terms_are_those_of_the_tariff_where_groups_have_slopes_of_their_own():
    X = portfolio(1500)
    rng = np.random.default_rng(0)
    D = np.where(rng.random(len(X)) < 0.3 + 0.4 * X["smoker"], "F", "M")
    y = rng.poisson(np.exp(-1 - np.where(D == "F", 0.03, 0.01) * X["age"] + 0.3 * X["smoker"]))
    model = LinearModel(terms="bands(age, 25, 40, 65) + spline(power, 3) + region + smoker")
    pricer = DiscriminationFreePricer("poisson", model, pooling=0).fit(X, y, sensitive=D)
    for power in ([80], "formula"):  # however far the rest is from the premium
        age = pricer.to_tariff(X, bands={"power": power}).relativities.query("factor == 'age'")
        assert age["level"].tolist() == ["under 25", "25 to under 40", "40 to under 65", "65 and over"]


def test_steps_of_the_premium_become_bands_exactly():
    X = portfolio().assign(doors=lambda t: np.random.default_rng(3).integers(2, 6, len(t)))
    young = X["age"] < 25

    class Stepped:
        """A price of a step at 25 and of any curve of a few whole numbers, times what the linear pricer says."""

        def __init__(self) -> None:
            self.inner = pricer_with(X.drop(columns=["age", "doors"]))
            self.design_, self.unseen_levels = Design.learn(X), "error"

        def _scale(self, X: pd.DataFrame) -> np.ndarray:
            return (1 + 0.5 * (X["age"].to_numpy() < 25)) * np.sqrt(X["doors"].to_numpy())

        def predict(self, X: pd.DataFrame) -> np.ndarray:
            return self._scale(X) * self.inner.predict(X)

        def predict_unaware(self, X: pd.DataFrame) -> np.ndarray:
            return self._scale(X) * self.inner.predict_unaware(X)

        def predict_best_estimate(self, X: pd.DataFrame) -> np.ndarray:
            return self._scale(X)[:, None] * self.inner.predict_best_estimate(X)

        def covariance_root(self, X: pd.DataFrame) -> None:
            return None

    tariff = fit_tariff(Stepped(), X)
    np.testing.assert_allclose(tariff.predict(X), Stepped().predict(X), rtol=1e-9)
    table = tariff.relativities.set_index(["factor", "level"])
    assert table.loc[("age", "under 25"), "relativity"] == pytest.approx(1.5)
    assert table.loc["age", "exposure"].tolist() == [young.sum(), (~young).sum()]
    assert table.loc["doors"].index.tolist() == ["under 3", "3 to under 4", "4 to under 5", "5 and over"]
    assert table["low"].isna().sum() == len(table) - 4  # only base levels are certain; a formula has none


def test_the_tariff_is_the_log_linear_model_with_the_premium_as_its_response():
    X = portfolio()
    exposure = np.random.default_rng(2).uniform(0.1, 1, len(X))
    pricer = pricer_with(X, own=0.8)
    tariff = pricer.to_tariff(X, exposure=exposure, bands={"age": [25, 40, 65], "power": "formula"})
    bands = pd.cut(X["age"], [-np.inf, 25, 40, 65, np.inf], right=False).astype(str)
    Z = pd.get_dummies(X.assign(age=bands), columns=["age", "region", "smoker"], drop_first=True).astype(float)
    Z["power"] /= 100
    slow = PoissonRegressor(alpha=0, tol=1e-12, max_iter=10_000, solver="newton-cholesky")
    slow.fit(Z, pricer.predict(X), sample_weight=exposure)
    np.testing.assert_allclose(tariff.predict(X), slow.predict(Z), rtol=1e-7)
    totals = pd.DataFrame({"h": pricer.predict(X) * exposure, "t": tariff.predict(X) * exposure})
    for column in (bands, X["region"], X["smoker"]):  # the total of every level is that of h*
        sums = totals.groupby(column).sum()
        np.testing.assert_allclose(sums["h"], sums["t"], rtol=1e-10)


def test_the_deviation_is_what_it_says():
    X = portfolio()
    exposure = np.random.default_rng(2).uniform(0.1, 1, len(X))
    pricer = pricer_with(X, own=0.8)
    tariff = pricer.to_tariff(X, exposure=exposure, bands={"age": 3, "power": 4}, rounding=0.05, minimum_premium=0.1)
    h, t = pricer.predict(X), tariff.predict(X)
    error = np.abs(t / h - 1)
    found = tariff.deviation
    assert found["largest"] == error.max()
    order = np.argsort(error)
    share = np.cumsum(exposure[order]) / exposure.sum()
    assert found["median"] == error[order][np.argmax(share >= 0.5)]
    assert found["p99"] == error[order][np.argmax(share >= 0.99)]
    w = exposure / exposure.sum()
    assert found["deviance"] == pytest.approx(2 * w @ (h * np.log(h / t) - (h - t)))
    assert w @ t == pytest.approx(w @ h, rel=1e-12)  # after rounding and with the minimum premium
    reports = np.where(np.random.default_rng(0).random(len(X)) < 0.5, "F", "M")
    best = pricer.predict_best_estimate(X)
    for name, price in (("before", h), ("after", t), ("unaware", pricer.predict_unaware(X))):
        audit = compute_discrimination(price, best_estimate=best, sensitive=reports, sample_weight=exposure)
        expected = audit.set_index("measure").loc["proxy_discrimination", "value"]
        assert found[f"proxy_discrimination_{name}"] == pytest.approx(expected, abs=1e-12)
    assert found["proxy_discrimination_before"] < 1e-12 < found["proxy_discrimination_after"]


def test_bands_are_as_few_as_the_tolerance_allows():
    p = zhang_liu_shi_2025(3000, rng=0)
    pricer = DiscriminationFreePricer(intervals=False).fit(p.X, p.y, sensitive=p.sensitive)
    wide, narrow = (pricer.to_tariff(p.X, bands="bands", tolerance=tolerance) for tolerance in (0.1, 0.07))
    count = [(tariff.relativities["factor"] == "age").sum() for tariff in (wide, narrow)]
    assert 2 <= count[0] < count[1]
    assert wide.deviation["largest"] <= 0.1
    assert narrow.deviation["largest"] <= 0.07
    assert not [note for note in wide.notes if "No bands" in note]
    fewer = pricer.to_tariff(p.X, bands={"age": int(count[0]) - 1})
    assert fewer.deviation["largest"] > 0.1
    best = pricer.to_tariff(p.X, bands="bands", tolerance=0.001)
    assert any("No bands keep the largest deviation within 0.1 %" in note for note in best.notes)
    assert best.deviation["largest"] < wide.deviation["largest"]
    assert (best.relativities["factor"] == "age").sum() <= 40


def test_a_column_that_is_nearly_linear_stays_a_formula_unless_bands_are_asked_for():
    X = portfolio()
    pricer = pricer_with(X, own=0.1)
    tariff = pricer.to_tariff(X)
    kinds = {factor.name: factor.kind for factor in tariff.factors}
    assert kinds == {"age": "formula", "power": "formula", "region": "levels", "smoker": "levels"}
    assert tariff.deviation["largest"] < 0.01
    bands = pricer.to_tariff(X, bands="bands")
    assert {factor.kind for factor in bands.factors} == {"bands", "levels"}
    some = pricer.to_tariff(X, bands=5)
    assert max(len(factor.labels) for factor in some.factors) <= 5


def test_limits_are_those_of_the_pricers_joint_covariance():
    """The delta method against the relativities of tariffs that are made again from drawn coefficients."""
    X = portfolio(800)
    pricer = pricer_with(X, own=0.5)
    prices = pricer._prices
    settings = {"bands": {"age": [30, 60], "power": "formula"}, "level": 0.9}
    tariff = pricer.to_tariff(X, **settings)
    rng, size, found = np.random.default_rng(4), prices.coefficients.size, []
    for _ in range(40):
        drawn = rng.multivariate_normal(np.zeros(size + 2), prices.covariance, method="eigh") * 0.1  # nearly linear
        moved = pricer_with(X)
        object.__setattr__(
            moved,
            "_prices",
            LinearPrices(
                prices.family,
                prices.design,
                GROUPS,
                prices.coefficients + drawn[:size].reshape(2, -1).T,
                prices.unaware,
                prices.reference + drawn[size:],
                None,
            ),
        )
        table = moved.to_tariff(X, **settings).relativities
        found.append(np.log(table["relativity"].to_numpy()))
    sd = np.std(found, axis=0, ddof=1) / 0.1
    table = tariff.relativities
    width = (np.log(table["high"]) - np.log(table["low"])).to_numpy() / 2 / 1.6448536
    some = width > 0
    assert not some.all()  # base levels
    np.testing.assert_allclose(sd[some] / width[some], 1, atol=4 / np.sqrt(2 * 39))
    np.testing.assert_allclose(table["low"] * table["high"], table["relativity"] ** 2)


@pytest.mark.simulation
def test_limits_cover_the_relativities_of_the_true_premium(repetitions):
    truth = unbalanced_poisson(1500, rng=0)
    inside = []
    for seed in range(n := repetitions(40, 1000)):
        p = unbalanced_poisson(1500, rng=seed, frequency=0.6)
        pricer = DiscriminationFreePricer("poisson", correction="inverse", pooling=0)
        pricer.fit(p.X, p.y, sensitive=p.sensitive, sample_weight=p.sample_weight)
        made = pricer.to_tariff(p.X, exposure=p.sample_weight, bands="formula")
        h = p.best_estimate(p.X).to_numpy() @ np.array(list(truth.truth.group_distribution.values()))
        exact = _projected(p.X, h, p.sample_weight, made)
        table = made.relativities
        free = (table["low"] < table["high"]).to_numpy()
        inside.append(((table["low"] <= exact) & (exact <= table["high"])).to_numpy()[free])
    coverage = np.mean(inside, axis=0)
    error = np.sqrt(0.95 * 0.05 / n)
    assert (np.abs(coverage - 0.95) < 4 * error).all(), coverage


def _projected(X, h, weight, tariff):
    """The relativities of the true premium, by a general minimiser."""
    levels = [f for f in tariff.factors if f.kind == "levels"]
    Z = np.column_stack(
        [
            X[f.name] if f.kind == "formula" else X[f.name].to_numpy()[:, None] == np.array(f.levels[1:])
            for f in tariff.factors
        ]
    ).astype(float)
    Z, w = np.column_stack([np.ones(len(Z)), Z]), weight / weight.sum()
    fit = minimize(
        lambda b: w @ (np.exp(Z @ b) - h * (Z @ b)),
        np.linalg.lstsq(Z, np.log(h), rcond=None)[0],
        jac=lambda b: Z.T @ (w * (np.exp(Z @ b) - h)),
        method="BFGS",
        options={"gtol": 1e-9},
    )
    assert levels
    found, at = [], 1
    for f in tariff.factors:
        size = 1 if f.kind == "formula" else len(f.levels) - 1
        found += [*([] if f.kind == "formula" else [1.0]), *np.exp(fit.x[at : at + size])]
        at += size
    return np.array(found)


def test_constraints_hold_and_are_the_closest_that_do():
    X = portfolio(1000)
    pricer = pricer_with(X, own=0.8)
    order = ["city", "it's", "rural", "=1+1", 'a "b"']
    bands = {"age": [25, 40, 65], "power": [80, 120]}
    tariff = pricer.to_tariff(
        X, bands=bands, monotone={"age": "up", "region": order}, fixed={"power": {"under 80": 0.9}}
    )
    table = tariff.relativities.set_index(["factor", "level"])
    assert (np.diff(table.loc["age", "relativity"]) >= -1e-12).all()
    assert (np.diff(table.loc["region", "relativity"].reindex(order)) >= -1e-12).all()
    assert table.loc[("power", "under 80"), ["relativity", "low", "high"]].tolist() == pytest.approx([0.9] * 3)
    # the slow twin: a general solver over the logarithms of the same relativities
    h, cells = pricer.predict(X), tariff.cells(X)
    Z = np.column_stack([f.design(c).toarray() for f, c in zip(tariff.factors, cells, strict=True)])
    Z = np.column_stack([np.ones(len(X)), Z])
    names = [("base", ""), *table.index]
    free = [i for i, name in enumerate(names) if i == 0 or table.loc[name, "low"] != table.loc[name, "high"]]
    start = np.log([tariff.base, *table["relativity"]])
    fixed = np.where(np.isin(np.arange(len(start)), free), 0.0, start)

    def loss(b):
        eta = Z @ fixed + Z[:, free] @ b
        return float(np.mean(np.exp(eta) - h * eta))

    def slope(b):
        return Z[:, free].T @ (np.exp(Z @ fixed + Z[:, free] @ b) - h) / len(h)

    rows = [*pairwise(names[1:5]), *pairwise(("region", level) for level in order)]
    A = np.zeros((len(rows), len(names)))
    for i, (a, b) in enumerate(rows):
        A[i, names.index(b)], A[i, names.index(a)] = 1, -1
    found = minimize(
        loss,
        np.zeros(len(free)),
        jac=slope,
        method="SLSQP",
        constraints={"type": "ineq", "fun": lambda b: A @ fixed + A[:, free] @ b, "jac": lambda b: A[:, free]},
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert loss(start[free]) <= found.fun + 1e-10
    assert found.fun <= loss(start[free]) + 1e-8
    assert (pricer.to_tariff(X, bands="formula", monotone={"age": "up"}).relativities["relativity"].iloc[0]) == 1.0
    assert (np.diff(table.loc["age", "relativity"]) >= 0).all()  # not even by rounding


def test_rounding_and_the_minimum_premium():
    X = portfolio()
    pricer = pricer_with(X, own=0.8)
    h = pricer.predict(X)
    rounded = pricer.to_tariff(X, bands={"age": 4, "power": "formula"}, rounding=0.01)
    table = rounded.relativities
    steps = table.loc[table["factor"] != "power", "relativity"] / 0.01
    np.testing.assert_allclose(steps, np.round(steps), atol=1e-9)
    assert rounded.predict(X).mean() == pytest.approx(h.mean(), rel=1e-12)
    assert any("formulas are not rounded" in note for note in rounded.notes)
    least = float(np.quantile(h, 0.3))
    limited = pricer.to_tariff(X, minimum_premium=least)
    assert limited.predict(X).min() == least == limited.minimum_premium
    assert limited.predict(X).mean() == pytest.approx(h.mean(), rel=1e-12)
    free = pricer.to_tariff(X, minimum_premium=1e-6)
    assert free.base == pytest.approx(pricer.to_tariff(X).base, rel=1e-12)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"bands": {"age": [40, 25]}}, "ascending"),
        ({"bands": {"age": [5, 25]}}, "'under 5', where X has no row"),
        ({"bands": {"age": "wide"}}, "Got bands 'wide' for 'age'"),
        ({"bands": {"region": 3}}, r"Got bands for \['region'\], but the numeric columns are \['age', 'power'\]"),
        ({"bands": [25]}, "Got bands of type list"),
        ({"monotone": {"sex": "up"}}, r"Got monotone for \['sex'\]"),
        ({"monotone": {"age": "rising"}}, 'expected "up" or "down"'),
        ({"monotone": {"region": "up"}}, "in the order of rising relativities"),
        ({"fixed": {"region": {"moon": 1.2}}}, "Got fixed for 'moon' of 'region'"),
        ({"fixed": {"region": {"city": 0}}}, "a number above zero"),
        ({"rounding": 5.0}, "Take a smaller one"),
        ({"rounding": 5.0, "fixed": {"region": {"it's": 0.001}}}, "makes the relativity 1 of"),  # not the fixed one
        ({"rounding": -1}, "Got rounding=-1"),
        ({"minimum_premium": 1e9}, "less than the mean premium"),
        ({"level": 2}, "Got level=2"),
        ({"exposure": np.zeros(3000)}, "exposure"),
        (
            {
                "bands": {"age": [30]},
                "monotone": {"age": "up"},
                "fixed": {"age": {"under 30": 1.2, "30 and over": 1}},
            },
            "contradict",
        ),
    ],
)
def test_mistakes_are_named(settings, words):
    X = portfolio()
    with pytest.raises((ValueError, TypeError), match=words):
        pricer_with(X, own=0.5).to_tariff(X, **settings)


def test_a_column_that_is_not_there_is_named():
    X = portfolio(300)
    with pytest.raises(ValueError, match=r"Got X without the columns \['region'\]"):
        pricer_with(X).to_tariff(X.drop(columns="region"))


def test_premiums_that_are_not_positive_are_refused():
    X = portfolio(200)
    with pytest.raises(ValueError, match="whose premium is not positive"):
        pricer_with(X, family="normal").to_tariff(X)


def test_levels_that_no_row_has_get_the_relativity_of_the_premium():
    X = portfolio()
    pricer = pricer_with(X)
    some = X[X["region"].isin(["city", "rural"]) & ~X["smoker"]]
    tariff = pricer.to_tariff(some)
    np.testing.assert_allclose(tariff.predict(X), pricer.predict(X), rtol=1e-7)
    table = tariff.relativities
    absent = table[table["exposure"] == 0]
    assert absent["level"].tolist() == ["=1+1", 'a "b"', "it's", True]
    assert (absent["low"] < absent["high"]).all()


@pytest.mark.parametrize("as_array", [False, True])
def test_whole_numbers_as_levels(as_array, tmp_path):
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"x0": rng.integers(18, 80, 500), "x1": rng.integers(2, 6, 500).astype(float)})
    table = X.to_numpy(float) if as_array else X
    model = LinearModel(terms="x0 + levels(x1)", slopes="common")
    pricer = DiscriminationFreePricer("poisson", model, correction="inverse", pooling=0, intervals=False)
    pricer.fit(table, rng.poisson(0.5, 500), sensitive=np.where(rng.random(500) < 0.5, *GROUPS))
    some = table[(X["x1"] < 5).to_numpy()]  # no row with the level 5
    tariff = pricer.to_tariff(some)
    np.testing.assert_allclose(tariff.predict(table), pricer.predict(table), rtol=1e-7)
    assert sorted(tariff.relativities["level"][1:]) == [2, 3, 4, 5]
    tariff.save(tmp_path / "tariff.json")
    np.testing.assert_array_equal(Tariff.load(tmp_path / "tariff.json").predict(table), tariff.predict(table))


def test_a_factor_that_repeats_others_has_the_relativity_one():
    X = portfolio(500).assign(old=lambda t: np.where(t["age"] >= 60, "yes", "no"))
    pricer = pricer_with(X, own=0.8)
    tariff = pricer.to_tariff(X, bands={"age": [30, 60], "power": "formula"})
    table = tariff.relativities.set_index(["factor", "level"])
    assert table.loc["old", ["relativity", "low", "high"]].to_numpy().tolist() == [[1.0] * 3] * 2
    assert "so that they have one: old yes." in " ".join(tariff.notes)
    without = pricer.to_tariff(X, bands={"age": [30, 60], "power": "formula"}, fixed={"old": {"yes": 1.0}})
    np.testing.assert_allclose(tariff.predict(X), without.predict(X), rtol=1e-9)


def test_unknown_levels_are_refused_or_have_the_base_level():
    X = portfolio(400)
    new = X.head(3).assign(region=["city", "moon", "rural"])
    with pytest.raises(ValueError, match="not seen in fit"):
        pricer_with(X).to_tariff(X).predict(new)
    tariff = pricer_with(X, unseen_levels="base").to_tariff(X)
    expected = tariff.predict(new.assign(region=["city", tariff.factors[2].levels[0], "rural"]))
    np.testing.assert_array_equal(tariff.predict(new), expected)


@pytest.mark.parametrize("unseen", ["error", "base"])
@pytest.mark.parametrize("terms", ["age + rare(region, 90)", "age + rare(region, 90):age + rare(region, 40)"])
def test_unknown_levels_have_the_row_of_rare_levels(terms, unseen, tmp_path):
    """The mistake: a level that the pricer counts as "other" had the base level's relativity, or no price."""
    rng = np.random.default_rng(0)
    n = 500
    X = pd.DataFrame({"age": rng.integers(18, 80, n), "region": rng.choice(list("abcd"), n, p=[0.6, 0.3, 0.06, 0.04])})
    model = LinearModel(terms=terms, slopes="common")
    pricer = DiscriminationFreePricer("poisson", model, unseen_levels=unseen, intervals=False, pooling=0)
    pricer.fit(X, rng.poisson(1 + (X["region"] > "b")), sensitive=np.where(rng.random(n) < 0.5, *GROUPS))
    new = X.head(60).assign(region="moon")
    tariff = pricer.to_tariff(X)
    rows = tariff.relativities.set_index(["factor", "level"])["relativity"]
    if ":" not in terms:
        np.testing.assert_allclose(tariff.predict(new), pricer.predict(new), rtol=1e-7)
        assert rows["region", "other"] == pytest.approx(rows["region", "d"], rel=1e-7)
    np.testing.assert_array_equal(tariff.predict(new), tariff.predict(new.assign(region="other")))
    assert "has the relativity of 'other' of region" in " ".join(tariff.notes)
    tariff.save(tmp_path / "tariff.json")
    np.testing.assert_array_equal(Tariff.load(tmp_path / "tariff.json").predict(new), tariff.predict(new))
    moved = pricer.to_tariff(pd.concat([X, new], ignore_index=True))  # a portfolio with the new level
    assert moved.relativities.set_index("level").loc["other", "exposure"] == 60


def test_unknown_whole_numbers_have_the_relativity_of_rare_ones():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {"age": rng.integers(18, 80, 500), "zone": rng.choice([1, 2, 7, 8], 500, p=[0.6, 0.3, 0.06, 0.04])}
    )
    model = LinearModel(terms="age + rare(zone, 90)", slopes="common")
    pricer = DiscriminationFreePricer("poisson", model, unseen_levels="base", intervals=False, pooling=0)
    pricer.fit(X, rng.poisson(1 + (X["zone"] > 2)), sensitive=np.where(rng.random(500) < 0.5, *GROUPS))
    new = X.head(5).assign(zone=99)
    np.testing.assert_allclose(pricer.to_tariff(X).predict(new), pricer.predict(new), rtol=1e-7)
    several = DiscriminationFreePricer(
        "poisson",
        LinearModel(terms="levels(zone) + rare(zone, 90):age", slopes="common"),
        unseen_levels="base",
        intervals=False,
    )
    several.fit(X, rng.poisson(1, 500), sensitive=np.where(rng.random(500) < 0.5, *GROUPS))
    with pytest.raises(ValueError, match="column 'zone' has several terms"):
        several.to_tariff(X)


def test_arrays_and_other_data_frames():
    X = portfolio()[["age", "power"]]
    y = np.random.default_rng(0).poisson(0.3, len(X))
    pricer = DiscriminationFreePricer("poisson", pooling=0, correction="inverse")
    pricer.fit(X.to_numpy(float), y, sensitive=np.where(X["power"] > 90, "F", "M"))
    tariff = pricer.to_tariff(X.to_numpy(float), bands="formula")
    assert tariff.relativities["factor"].tolist() == ["x0", "x1"]
    np.testing.assert_allclose(
        tariff.predict(X.to_numpy(float)), pricer.predict(X.to_numpy(float)), rtol=tariff.deviation["largest"] + 1e-12
    )
    table = portfolio()
    known = pricer_with(table)
    np.testing.assert_allclose(
        known.to_tariff(pl.from_pandas(table)).predict(pl.from_pandas(table)), known.predict(table)
    )


def test_other_model_classes():
    p = unbalanced_poisson(1000, rng=0, shares=(0.6, 0.4))
    model = BoostedModel(max_rounds=10, replicates=4)
    pricer = DiscriminationFreePricer("poisson", model, random_state=0)
    pricer.fit(p.X, p.y, sensitive=p.sensitive, sample_weight=p.sample_weight)
    R, freedom = pricer.covariance_root(p.X)
    low, high = pricer.predict_interval(p.X)
    half = student.ppf(0.975, freedom) * np.sqrt((R**2).sum(axis=1)) / pricer.predict(p.X)
    assert np.median(half / (0.5 * np.log(high / low))) == pytest.approx(1, abs=0.1)  # on two scales
    table = pricer.to_tariff(p.X, exposure=p.sample_weight).relativities
    assert (table["low"] <= table["relativity"]).all()
    assert (table["relativity"] <= table["high"]).all()


def test_save_and_load(tmp_path):
    X = portfolio()
    tariff = pricer_with(X, own=0.8).to_tariff(X, bands={"age": 3}, minimum_premium=0.1)
    tariff.save(tmp_path / "tariff.json")
    again = Tariff.load(tmp_path / "tariff.json")
    np.testing.assert_array_equal(again.predict(X), tariff.predict(X))
    pd.testing.assert_frame_equal(again.relativities, tariff.relativities)
    assert (again.base, again.deviation, again.notes) == (tariff.base, tariff.deviation, tariff.notes)
    without = pricer_with(X)
    object.__setattr__(without._prices, "covariance", None)
    without.to_tariff(X).save(tmp_path / "without.json")
    assert Tariff.load(tmp_path / "without.json").relativities["low"].isna().any()
    text = (tmp_path / "tariff.json").read_text()
    (tmp_path / "edited.json").write_text(text.replace('"base":', '"base": 1e-3, "was":', 1))
    with pytest.raises(ModelFileError, match="damaged or was edited"):
        Tariff.load(tmp_path / "edited.json")
    body = json.loads(text)
    body.pop("sha256")
    for name, value in (("base", -1.0), ("factors", []), ("deviation", {})):
        write_document({**body, name: value}, tmp_path / "wrong.json")
        with pytest.raises(ModelFileError, match="not a valid fairpremium tariff"):
            Tariff.load(tmp_path / "wrong.json")


def test_curves_and_edges():
    curve = Curve((1.0, 2.0, 3.0), np.array([0.0, 0.1, 0.5, 0.55]))
    assert curve.within(0.05) == (2.0,)
    assert curve.within(0.0) == (1.0, 2.0, 3.0)
    assert curve.at_most(2) == (2.0,)
    assert curve.at_most(1) == ()
    assert [roundest(a, b) for a, b in [(24, 25), (99.2, 103.7), (-0.5, 0.5), (1e-9, 2.5e-9)]] == [25, 100, 0, 2e-9]
    values = np.random.default_rng(0).normal(size=5000)
    edges = np.array(fine_edges(values))
    assert (np.diff(edges) > 0).all()
    assert np.bincount(np.searchsorted(edges, values, side="right")).min() > 0
