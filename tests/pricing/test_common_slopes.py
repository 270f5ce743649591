"""Groups that differ by the intercept only: the same as a group indicator without products, in every correction."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import softmax
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, PoissonRegressor, Ridge

from fairpremium import DiscriminationFreePricer, LikelihoodNoise, LinearModel, RandomizedResponse
from fairpremium.blocks import Rows
from fairpremium.corrections import Parameters, mixture_likelihood
from fairpremium.families import get_family, law_of
from fairpremium.models import prepare

COMMON = LinearModel(slopes="common")
GROUPS = ["a", "b", "c"]
LEVELS = np.array([-1.2, -0.9, -0.5])


def portfolio(n, rng, keep=0.75, family="poisson", groups=GROUPS):
    rng = np.random.default_rng(rng)
    K = len(groups)
    age, power = rng.normal(size=n), rng.uniform(0, 2, n)
    region = rng.choice(["north", "south", "west"], n, p=[0.5, 0.3, 0.2])
    logits = np.column_stack([0.8 * k * age - 0.2 * k for k in range(K)])
    shares = softmax(logits, axis=1)
    D = (shares.cumsum(axis=1) < rng.random(n)[:, None]).sum(axis=1)
    eta = LEVELS[:K][D] + 0.3 * age - 0.2 * power + 0.25 * (region == "south")
    y = rng.poisson(np.exp(eta)).astype(float) if family == "poisson" else eta + rng.normal(0, 0.5, n)
    X = pd.DataFrame({"age": age, "power": power, "region": region})
    channel = RandomizedResponse(groups, keep=keep)
    return X, y, np.asarray(groups)[D], channel.privatize(np.asarray(groups)[D], rng=rng), channel


def dummies(X, D, groups=GROUPS):
    own = np.column_stack([g == D for g in groups]).astype(float)
    return np.column_stack([own, X["age"], X["power"], X["region"] == "south", X["region"] == "west"]).astype(float)


def slopes_differ(pricer):
    found = pricer.coefficients_[list(pricer.groups_)].to_numpy()[1:]
    return np.ptp(found, axis=1).max()


def multiplicative(pricer, X):
    """Tell how far h* is from a base times one factor per feature, relative to h*."""
    base = X.iloc[[0]]
    one = {c: pricer.predict(base.assign(**{c: v})) for c, v in X.iloc[1].items()}
    both = pricer.predict(X.iloc[[1]])
    product = pricer.predict(base) * np.prod([v / pricer.predict(base) for v in one.values()], axis=0)
    return abs(both / product - 1).max()


@pytest.mark.parametrize("family", ["poisson", "normal"])
def test_true_attribute_is_a_fit_with_group_indicators(family):
    X, y, D, _, _ = portfolio(4000, 0, family=family)
    pricer = DiscriminationFreePricer(family=family, model=COMMON, pooling=0).fit(X, y, sensitive=D)
    Z = dummies(X, D)
    if family == "poisson":
        other = PoissonRegressor(alpha=0, fit_intercept=False, tol=1e-12, max_iter=10_000, solver="newton-cholesky")
    else:
        other = LinearRegression(fit_intercept=False)
    expected = other.fit(Z, y).predict(Z)
    own = pricer.predict_best_estimate(X).to_numpy()[np.arange(len(y)), np.searchsorted(GROUPS, D)]
    np.testing.assert_allclose(own, expected, rtol=1e-6)
    assert slopes_differ(pricer) < 1e-12


def test_the_ridge_counts_common_coefficients_once():
    X, y, D, _, _ = portfolio(500, 1, family="normal")
    pricer = DiscriminationFreePricer(model=LinearModel(ridge=200.0, slopes="common"), pooling=0)
    pricer.fit(X, y, sensitive=D)
    Z = dummies(X, D)
    features = (Z[:, 3:] - Z[:, 3:].mean(axis=0)) / Z[:, 3:].std(axis=0)
    own = Z[:, :3] / 1e-4  # indicators this large are not penalised
    fitted = Ridge(alpha=200.0, fit_intercept=False, tol=1e-12).fit(np.hstack([own, features]), y)
    expected = fitted.predict(np.hstack([own, features]))
    found = pricer.predict_best_estimate(X).to_numpy()[np.arange(len(y)), np.searchsorted(GROUPS, D)]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_inverse_is_the_minimum_of_the_corrected_risk():
    X, y, _, S, channel = portfolio(3000, 2)
    pricer = DiscriminationFreePricer("poisson", COMMON, channel, "inverse", pooling=0).fit(X, y, sensitive=S)
    Z = dummies(X, S)[:, 3:]
    weight = channel.inverse[:, np.searchsorted(channel.reports, S)].T

    def risk(v):
        eta = v[:3] + (Z @ v[3:])[:, None]
        gap = weight * (np.exp(eta) - y[:, None])
        return np.sum(weight * (np.exp(eta) - y[:, None] * eta)), np.append(gap.sum(axis=0), Z.T @ gap.sum(axis=1))

    start = np.append(np.full(3, np.log(y.mean())), np.zeros(4))
    best = minimize(risk, start, jac=True, method="BFGS", options={"gtol": 1e-7, "maxiter": 2000}).x
    found = pricer.coefficients_[GROUPS].to_numpy()
    np.testing.assert_allclose(found[0], best[:3], atol=1e-5)
    np.testing.assert_allclose(found[1:], np.repeat(best[3:, None], 3, axis=1), atol=1e-5)


@pytest.mark.parametrize("correction", ["inverse", "score", "posterior", "likelihood", "auto"])
@pytest.mark.parametrize("pooling", ["auto", 0.0, 50.0])
def test_every_correction_gives_one_set_of_slopes_and_covers_the_truth(correction, pooling):
    X, y, _, S, channel = portfolio(6000, 3, keep=0.8, groups=["a", "b"])
    pricer = DiscriminationFreePricer("poisson", COMMON, channel, correction, pooling).fit(X, y, sensitive=S)
    assert slopes_differ(pricer) < 1e-12
    assert multiplicative(pricer, X) < 1e-9
    assert multiplicative(pricer, X.iloc[5:7]) < 1e-9
    if pooling == "auto":
        assert pricer.pooling_["slopes"] == {}
        assert pricer.pooling_["main"] > 0
    few = X.iloc[:40]
    low, high = pricer.predict_interval(few)
    truth = np.exp(0.3 * few["age"] - 0.2 * few["power"] + 0.25 * (few["region"] == "south"))
    p = pricer.reference_distribution_
    truth = truth * (np.exp(LEVELS[:2]) @ p)
    error = (high - low) / 2 / 1.96
    assert np.abs(pricer.predict(few) - truth).max() < 4 * error.max()
    own = pricer.predict_interval(few, group="a", against="b")
    assert np.isfinite(own.lower).all()
    assert (own.lower < own.upper).all()


def test_likelihood_is_the_maximum_over_common_slopes():
    X, y, _, S, channel = portfolio(2000, 4, keep=0.85, groups=["a", "b"])
    Z = dummies(X, S)[:, 3:]
    rows = Rows(Z, y, None, np.searchsorted(["a", "b"], S).astype(np.uint16))
    family = get_family("poisson")
    problem = prepare(rows, 3, family, COMMON, ["age", "power", "south", "west"])
    latent = mixture_likelihood(problem, channel.matrix, law_of(family), 0.0)
    gamma = np.zeros((1, latent.n_features))
    at = latent.maximise(Parameters(gamma, problem.start(2) + [[-0.2, 0.2]] * np.eye(problem.moments.q)[:, :1]))
    top, rng, Q = latent.value(at), np.random.default_rng(0), latent.span.basis
    assert np.ptp(at.B[1:], axis=1).max() < 1e-12
    flat, g = latent.pack(at), gamma.size
    for _ in range(20):  # in every direction with common slopes it is lower
        step = 1e-3 * np.concatenate([rng.normal(size=g), Q @ rng.normal(size=Q.shape[1])])
        ahead, behind = (latent.value(latent.unpack(flat + sign * step)) for sign in (1, -1))
        assert max(ahead, behind) < top
        assert abs(ahead - behind) < 0.1 * abs(ahead + behind - 2 * top)


@pytest.mark.parametrize(("pooling", "portfolios"), [(0.0, 60), ("auto", 20)])
def test_intervals_cover(pooling, portfolios):
    x = pd.DataFrame({"age": [1.5, -1.0], "power": [0.2, 1.8], "region": ["south", "north"]})
    truth = LEVELS[:2] @ expected_share() + 0.3 * x["age"] - 0.2 * x["power"] + 0.25 * (x["region"] == "south")
    inside, length = [], {"own": [], "common": []}
    for seed in range(portfolios):
        X, y, _, S, channel = portfolio(1500, 100 + seed, keep=0.8, family="normal", groups=["a", "b"])
        for slopes in length if pooling == 0 else ("common",):
            pricer = DiscriminationFreePricer("normal", LinearModel(slopes=slopes), channel, "inverse", pooling)
            low, high = pricer.fit(X, y, sensitive=S).predict_interval(x)
            length[slopes].append(high - low)
            if slopes == "common":
                inside.append((low <= truth) & (truth <= high))
    assert (np.mean(inside, axis=0) >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / portfolios)).all()
    if pooling == 0:
        assert (np.mean(length["common"], axis=0) < np.mean(length["own"], axis=0)).all()


def expected_share():
    """P(D) of the portfolios with two groups."""
    age = np.random.default_rng(0).normal(size=200_000)
    own = np.mean(1 / (1 + np.exp(0.2 - 0.8 * age)))
    return np.array([1 - own, own])


def test_saved_and_loaded(tmp_path):
    X, y, _, S, channel = portfolio(1500, 5)
    pricer = DiscriminationFreePricer("poisson", COMMON, channel).fit(X, y, sensitive=S)
    pricer.save(tmp_path / "model.json")
    again = DiscriminationFreePricer.load(tmp_path / "model.json")
    assert again.model_.slopes == "common"
    np.testing.assert_array_equal(again.predict(X), pricer.predict(X))
    np.testing.assert_array_equal(again.predict_interval(X).lower, pricer.predict_interval(X).lower)


@pytest.mark.parametrize("correction", ["inverse", "likelihood"])
def test_parquet_source(tmp_path, correction):
    X, y, _, S, channel = portfolio(3000, 6)
    X.assign(y=y, s=S).to_parquet(tmp_path / "rows.parquet")
    pricer = DiscriminationFreePricer("poisson", COMMON, channel, correction)
    here = clone(pricer).fit(X, y, sensitive=S)
    there = pricer.fit(tmp_path / "rows.parquet", "y", sensitive="s")
    assert slopes_differ(there) < 1e-12
    np.testing.assert_allclose(there.predict(X), here.predict(X), rtol=1e-4)


def test_the_noise_can_be_estimated_with_common_slopes():
    X, y, _, S, _ = portfolio(4000, 7, keep=0.8, family="normal", groups=["a", "b"])
    noise = LikelihoodNoise("normal", COMMON, random_state=0).fit(X, y * 3, sensitive=S)
    assert abs(noise.keep_ - 0.8) < 4 * noise.standard_error_


def test_setting_is_checked_and_cloned():
    assert clone(COMMON).get_params()["slopes"] == "common"
    with pytest.raises(ValueError, match=r'slopes.*"own" or "common"'):
        DiscriminationFreePricer(model=LinearModel(slopes="same")).fit([[1.0], [2.0]], [1.0, 2.0], sensitive=[0, 1])
