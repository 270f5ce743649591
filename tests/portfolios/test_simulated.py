"""The simulated portfolios are what their formulas say, and their true prices are true.

Statistical checks compare a mean with zero in units of its standard error; the limit 5 has a false-alarm
probability of 6e-7 per comparison, below 1e-4 for this whole file.
"""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest

from fairpremium.portfolios import (
    Portfolio,
    SimulatedPortfolio,
    nonlinear_poisson,
    unbalanced_poisson,
    zhang_liu_shi_2025,
)

LIMIT = 5.0


def z_score(values):
    """The mean of the values in units of its standard error; one row per unit, one column per check."""
    values = np.asarray(values, dtype=float)
    return values.mean(axis=0) / (values.std(axis=0) / np.sqrt(len(values)))


def grid():
    return pd.DataFrame([(age, smoker) for age in range(18, 81) for smoker in (True, False)]).set_axis(
        ["age", "smoker"], axis=1
    )


SHARES = [(0.5, 0.5), (0.9, 0.1), (0.7, 0.2, 0.1), (0.25, 0.25, 0.25, 0.25), (0.5, 0.3, 0.1, 0.07, 0.03)]


# --- the paper's portfolio ---------------------------------------------------------------------------------


def test_the_papers_formula_by_hand():
    p = zhang_liu_shi_2025(n=1, rng=0)
    x = pd.DataFrame({"age": [19, 20, 40, 41], "smoker": [False, False, True, True]}, index=[3, 1, 4, 5])
    truth = p.best_estimate(x)
    assert truth.columns.tolist() == ["F", "M"]
    assert truth.index.tolist() == [3, 1, 4, 5]
    assert truth["M"].tolist() == [176, 180, 360, 364]
    assert truth["F"].tolist() == [296, 500, 680, 484]
    np.testing.assert_allclose(p.propensity(x)["F"], [0.3, 0.3, 0.8, 0.8], rtol=1e-15)


def test_the_papers_probabilities_agree_with_each_other():
    p = zhang_liu_shi_2025(n=1, rng=0)
    x = grid()
    weight = np.where(x["smoker"], 0.3, 0.7) / 63
    assert weight @ p.propensity(x)["F"] == pytest.approx(0.45, abs=1e-12)
    assert p.group_distribution == {"F": 0.45, "M": 0.55}
    np.testing.assert_allclose(p.propensity(x).sum(axis=1), 1, rtol=1e-15)


def test_the_three_prices_of_the_paper():
    p = zhang_liu_shi_2025(n=1, rng=0)
    x, truth = grid(), p.best_estimate(grid())
    np.testing.assert_allclose(p.discrimination_free(x), 0.45 * truth["F"] + 0.55 * truth["M"])
    np.testing.assert_allclose(p.discrimination_free(x, {"M": 0, "F": 1}), truth["F"])
    np.testing.assert_allclose(p.unaware(x), np.where(x["smoker"], 0.8, 0.3) * (truth["F"] - truth["M"]) + truth["M"])
    # Smokers pay for being mostly women: the unaware price is too high for them, and too low for the others.
    assert (p.unaware(x) > p.discrimination_free(x)).tolist() == x["smoker"].tolist()


def test_a_drawn_portfolio_follows_the_formula():
    n = 200_000
    p = zhang_liu_shi_2025(n=n, rng=1, age_band=True)
    female, smoker, age = p.sensitive == "F", p.X["smoker"].to_numpy(), p.X["age"].to_numpy()
    mean = np.where(female, p.best_estimate(p.X)["F"], p.best_estimate(p.X)["M"])
    noise = p.y - mean
    q = p.propensity(p.X)["F"].to_numpy()
    checks = np.column_stack(
        [
            smoker - 0.3,
            female - 0.45,
            (female - 0.8) * smoker,
            (female - 0.3) * ~smoker,
            age - 49.0,
            (age - 49.0) ** 2 - (63**2 - 1) / 12,  # variance of 63 equally likely whole numbers
            (age - 49.0) * (smoker - 0.3),
            (age - 49.0) * (female - 0.45),
            (female - q) * (age - 49.0),
            noise,
            noise * female,
            noise * smoker,
            noise * age,
            noise**2 - 1600,
            p.y - p.unaware(p.X),
            (p.y - p.unaware(p.X)) * smoker,
        ]
    )
    assert np.abs(z_score(checks)).max() < LIMIT
    assert (age.min(), age.max()) == (18, 80)
    assert p.X["age_20_40"].tolist() == ((age >= 20) & (age <= 40)).tolist()


def test_the_means_are_linear_with_the_age_band():
    p = zhang_liu_shi_2025(n=500, rng=0, age_band=True)
    Z = np.column_stack([np.ones(500), p.X.to_numpy(dtype=float)])
    for group in p.groups:
        truth = p.best_estimate(p.X)[group].to_numpy()
        np.testing.assert_allclose(Z @ np.linalg.lstsq(Z, truth)[0], truth, rtol=1e-10)


def test_what_a_portfolio_holds():
    p = zhang_liu_shi_2025(rng=0)
    assert isinstance(p, SimulatedPortfolio)
    assert len(p) == 5000
    assert p.X.columns.tolist() == ["age", "smoker"]
    assert p.X.dtypes.tolist() == [np.int64, np.bool_]
    assert p.y.dtype == np.float64
    assert p.sensitive.dtype == object
    assert set(p.sensitive) == set(p.groups) == {"F", "M"}
    assert (p.family, p.sample_weight, p.dropped_rows) == ("normal", None, 0)
    assert "5000 rows" in repr(p)
    with pytest.raises(AttributeError):
        p.y = p.y


@pytest.mark.parametrize("draw", [zhang_liu_shi_2025, unbalanced_poisson])
def test_a_seed_repeats_and_no_seed_does_not(draw):
    a, b, c, d = draw(n=300, rng=7), draw(n=300, rng=np.random.default_rng(7)), draw(n=300), draw(n=300)
    pd.testing.assert_frame_equal(a.X, b.X)
    np.testing.assert_array_equal(a.y, b.y)
    np.testing.assert_array_equal(a.sensitive, b.sensitive)
    assert not np.array_equal(c.y, d.y)


def test_noise_is_a_parameter():
    p = zhang_liu_shi_2025(n=50, rng=0, noise_sd=0.0)
    truth = p.best_estimate(p.X)
    np.testing.assert_allclose(p.y, np.where(p.sensitive == "F", truth["F"], truth["M"]))


@pytest.mark.parametrize("portfolio", [zhang_liu_shi_2025(n=20, rng=0), unbalanced_poisson(n=20, rng=0)])
def test_portfolios_copy_and_travel_between_processes(portfolio):
    for other in (copy.deepcopy(portfolio), pickle.loads(pickle.dumps(portfolio))):
        np.testing.assert_array_equal(other.unaware(portfolio.X), portfolio.unaware(portfolio.X))


@pytest.mark.parametrize("portfolio", [zhang_liu_shi_2025(n=20, rng=0), unbalanced_poisson(n=20, rng=0)])
def test_polars_frames_are_priced_like_pandas_frames(portfolio):
    X = pl.DataFrame({name: portfolio.X[name].to_numpy() for name in portfolio.X}, strict=False)
    np.testing.assert_array_equal(portfolio.best_estimate(X), portfolio.best_estimate(portfolio.X))
    np.testing.assert_array_equal(portfolio.unaware(X), portfolio.unaware(portfolio.X))


# --- the Poisson portfolio ---------------------------------------------------------------------------------


@pytest.mark.parametrize("shares", SHARES, ids=str)
def test_the_poisson_portfolio_follows_its_truth(shares):
    p = unbalanced_poisson(n=100_000, shares=shares, rng=2, frequency=0.5)
    K = len(shares)
    assert p.groups == tuple("ABCDE"[:K])
    assert p.group_distribution == dict(zip(p.groups, shares, strict=True))
    D = p.sensitive[:, None] == np.array(p.groups)  # (n_samples, n_groups)
    mu, q, w = p.best_estimate(p.X).to_numpy(), p.propensity(p.X).to_numpy(), p.sample_weight
    np.testing.assert_allclose(q.sum(axis=1), 1)
    score, mileage = p.X["driving_score"].to_numpy(), p.X["log_mileage"].to_numpy() - 2.5
    tests = [np.ones(len(p)), score, mileage, p.X["region"] == "city", p.X["vehicle"] == "sport"]
    own = (mu * D).sum(axis=1)
    rest = w * (p.y - own)
    checks = [D - np.array(shares)]
    for phi in tests:
        phi = np.asarray(phi, dtype=float)[:, None]
        checks += [(D - q) * phi, rest[:, None] * D * phi, (w * (p.y - p.unaware(p.X)))[:, None] * phi]
    checks.append((rest**2 - w * own)[:, None])  # the variance of a Poisson count is its mean
    assert np.abs(z_score(np.column_stack(checks))).max() < LIMIT


@pytest.mark.parametrize("shares", SHARES, ids=str)
def test_bayes_rule_against_a_slow_reference(shares):
    p = unbalanced_poisson(n=30, shares=shares, rng=3)
    K = len(shares)
    for i, x in p.X.iterrows():
        joint = []
        for d in range(K):
            c = -1 + 2 * d / (K - 1)
            density = shares[d]
            density *= np.exp(-(((x["log_mileage"] - 2.5 - 0.3 * c) / 0.5) ** 2) / 2)
            density *= np.exp(-((x["driving_score"] + 0.5 * c) ** 2) / 2)
            region = {"rural": 0.3 * np.exp(-0.6 * c), "suburb": 0.4, "city": 0.3 * np.exp(0.6 * c)}
            vehicle = {"small": 0.4 * np.exp(-0.3 * c), "family": 0.4, "sport": 0.2 * np.exp(0.3 * c)}
            density *= region[x["region"]] / sum(region.values())
            density *= vehicle[x["vehicle"]] / sum(vehicle.values())
            joint.append(density)
        np.testing.assert_allclose(p.propensity(p.X).loc[i], np.array(joint) / sum(joint), rtol=1e-12)


def test_exposure_is_volume():
    p = unbalanced_poisson(n=100_000, rng=4)
    e = p.sample_weight
    assert e.min() > 0
    assert e.max() == 1
    claims = p.y * e
    np.testing.assert_allclose(claims, np.rint(claims), atol=1e-9)
    # 1 with probability .6, else uniform: mean .6 + .4 / 2
    assert np.abs(z_score(np.column_stack([e - 0.8, (e == 1) - 0.6]))).max() < LIMIT


def test_unaware_and_discrimination_free_price_differ_unless_they_must_not():
    p = unbalanced_poisson(n=2000, rng=5)
    assert np.abs(np.log(p.unaware(p.X) / p.discrimination_free(p.X))).mean() > 0.05
    for options in ({"group_effect": 0.0}, {"association": 0.0}):
        p = unbalanced_poisson(n=2000, rng=5, **options)
        np.testing.assert_allclose(p.unaware(p.X), p.discrimination_free(p.X), rtol=1e-12)


def test_the_log_means_are_linear():
    p = unbalanced_poisson(n=400, rng=6)
    Z = pd.get_dummies(p.X, drop_first=True).to_numpy(dtype=float)
    Z = np.column_stack([np.ones(len(p)), Z])
    for group in p.groups:
        eta = np.log(p.best_estimate(p.X)[group].to_numpy())
        np.testing.assert_allclose(Z @ np.linalg.lstsq(Z, eta)[0], eta, rtol=1e-9)


# --- mistakes ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("draw", [zhang_liu_shi_2025, unbalanced_poisson])
@pytest.mark.parametrize("n, error", [(0, ValueError), (-5, ValueError), (2.5, TypeError), ("9", TypeError)])
def test_a_wrong_number_of_rows(draw, n, error):
    with pytest.raises(error, match="expected a positive whole number of rows"):
        draw(n=n)


@pytest.mark.parametrize(
    "shares", [(1.0,), (0.5, 0.6), (1.0, 0.0), (1.2, -0.2), (0.2,) * 6, (np.nan, 1.0), [[0.5, 0.5]]]
)
def test_wrong_shares(shares):
    with pytest.raises(ValueError, match=r"Got shares=.*expected"):
        unbalanced_poisson(n=10, shares=shares)


@pytest.mark.parametrize("options", [{"frequency": 0}, {"group_effect": np.inf}, {"association": np.nan}])
def test_wrong_parameters(options):
    with pytest.raises(ValueError, match=f"Got .*{next(iter(options))}=.*expected"):
        unbalanced_poisson(n=10, **options)
    with pytest.raises(ValueError, match=r"Got noise_sd=-1"):
        zhang_liu_shi_2025(n=10, noise_sd=-1)


@pytest.mark.parametrize(
    "reference", [{"F": 1.0}, {"F": 0.5, "M": 0.4}, {"F": 1.5, "M": -0.5}, {"F": 0.5, "M": 0.5, "X": 0.0}]
)
def test_a_wrong_reference(reference):
    p = zhang_liu_shi_2025(n=5, rng=0)
    with pytest.raises(ValueError, match=r"Got reference.*expected"):
        p.discrimination_free(p.X, reference)


def test_features_that_are_not_the_portfolios():
    p = zhang_liu_shi_2025(n=5, rng=0)
    with pytest.raises(ValueError, match="expected a column 'smoker'"):
        p.best_estimate(p.X[["age"]])
    with pytest.raises(TypeError, match="expected a data frame"):
        p.best_estimate(p.X.to_numpy())
    with pytest.raises(ValueError, match=r"'smoker'.*True and False"):
        p.unaware(pd.DataFrame({"age": [30], "smoker": ["no"]}))
    with pytest.raises(ValueError, match=r"'age'.*expected numbers"):
        p.unaware(pd.DataFrame({"age": ["old"], "smoker": [True]}))
    q = unbalanced_poisson(n=5, rng=0)
    with pytest.raises(ValueError, match=r"'region'.*'rural', 'suburb', 'city'"):
        q.unaware(q.X.assign(region="moon"))


def test_a_plain_portfolio_has_no_truth():
    assert not hasattr(Portfolio, "best_estimate")


# --- the nonlinear portfolio ---------------------------------------------------------------------------------


def test_the_nonlinear_formula_by_hand():
    p = nonlinear_poisson(n=1, rng=0, frequency=0.2)
    x = pd.DataFrame(
        {"age": [18.0, 75.0], "power": [10.0, 4.0], "mileage": [5.0, 20.0], "region": ["city", "rural"]}, index=[7, 2]
    )
    log_a = np.array(
        [
            np.log(0.2) + 0.9 + 0.35 * np.log(0.5) + 0.12 * 3 + 0.3,
            np.log(0.2) + 0.9 * np.exp(-57 / 8) + 0.5 * 10 / 15 + 0.35 * np.log(2),
        ]
    )
    truth = p.best_estimate(x)
    assert truth.index.tolist() == [7, 2]
    np.testing.assert_allclose(np.log(truth["A"]), log_a, rtol=1e-12)
    np.testing.assert_allclose(np.log(truth["B"]), log_a + [0.8, 0.4], rtol=1e-12)
    np.testing.assert_allclose(np.log(truth["C"]), log_a + [-0.7, 0.3], rtol=1e-12)
    odds = p.propensity(x)["C"] / p.propensity(x)["A"]
    np.testing.assert_allclose(np.log(odds), [-2.2 + 1.5 + 0.04 * -5, -2.2 + 0.04 * 10], rtol=1e-12)


def test_the_nonlinear_portfolio_is_drawn_from_its_formula():
    p = nonlinear_poisson(n=200_000, rng=1)
    member = np.column_stack([p.sensitive == g for g in p.groups])
    shares = np.array(list(p.group_distribution.values()))
    assert shares.sum() == pytest.approx(1, abs=1e-12)
    assert (np.abs(z_score(member - shares)) < LIMIT).all()
    assert (np.abs(z_score(member - p.propensity(p.X).to_numpy())) < LIMIT).all()
    excess = p.sample_weight * (p.y - (p.best_estimate(p.X).to_numpy() * member).sum(axis=1))
    for checked in (np.ones(len(p)), p.X["age"] < 30, p.X["power"] > 9, p.X["region"] == "city"):
        assert np.abs(z_score(excess[:, None] * member * np.asarray(checked, dtype=float)[:, None])).max() < LIMIT


@pytest.mark.parametrize("bad", [{"frequency": 0.0}, {"frequency": np.nan}, {"group_effect": np.inf}, {"n": 0}])
def test_the_nonlinear_portfolio_refuses_nonsense(bad):
    with pytest.raises(ValueError, match="expected"):
        nonlinear_poisson(**{"n": 10, **bad})
