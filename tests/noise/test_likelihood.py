"""LikelihoodNoise: constructed truth, a slow fit, coverage of the profile interval, refusal of flat profiles."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.optimize import minimize
from scipy.special import expit, logit
from scipy.stats import chi2, norm

from fairpremium import DiscriminationFreePricer, LinearModel, RandomizedResponse
from fairpremium.errors import NotIdentifiedError
from fairpremium.noise import LikelihoodNoise
from fairpremium.noise import _likelihood as module
from fairpremium.noise._keep_profile import GRID, Profile, channel_matrix, strength_to_keep
from fairpremium.portfolios import zhang_liu_shi_2025

RIDGE = 1.0  # of the slopes of q, symmetric over two groups: RIDGE / 2 * gamma^2 / 2


def separated(n, keep, rng, K=2, gap=3.0, noise="normal"):
    """Groups differ by `gap` standard deviations; x says something about the group."""
    x = rng.normal(size=n)
    logits = np.outer(0.7 * x, np.arange(K))
    P = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    d = (rng.random(n)[:, None] > P.cumsum(axis=1)).sum(axis=1)
    s = np.where(rng.random(n) < keep, d, (d + rng.integers(1, K, size=n)) % K)
    y = 1 + 0.5 * x + gap * d + rng.normal(size=n)
    return x[:, None], y, d, np.array(list("abcde"))[s]


def unrelated(n, rng, family="normal", p=2):
    """Neither x nor y depends on the group."""
    X = rng.normal(size=(n, p))
    d = (rng.random(n) < 0.4).astype(int)
    s = np.where(rng.random(n) < 0.8, d, 1 - d)
    eta = 0.3 * X[:, 0]
    y = {
        "normal": lambda: eta + rng.normal(size=n),
        "poisson": lambda: rng.poisson(np.exp(eta)).astype(float),
        "skewed": lambda: eta + rng.exponential(size=n),
    }[family]()
    return X, y, np.array(["F", "M"])[s]


def minus_log_likelihood(theta, x, y, s):
    """The whole likelihood for two groups and one feature, written plainly; theta ends with logit((pi - .5) / .5)."""
    z = (x - x.mean()) / x.std()
    g0, g1, a0, a1, b0, b1, log_sd, tau = theta
    pi = 0.5 + 0.5 / (1 + math.exp(-tau))
    q1 = 1 / (1 + np.exp(-(g0 + g1 * z)))
    sd = math.exp(log_sd)
    p0, p1 = norm.pdf(y, a0 + b0 * z, sd), norm.pdf(y, a1 + b1 * z, sd)
    t0, t1 = np.where(s == 0, pi, 1 - pi), np.where(s == 1, pi, 1 - pi)
    return -np.sum(np.log(t0 * (1 - q1) * p0 + t1 * q1 * p1)) + RIDGE / 4 * g1**2


def test_slow_reference():
    X, y, _, S = separated(800, 0.8, np.random.default_rng(0), gap=2.0)
    s = (S == "b").astype(int)
    start = [0, 0, y[s == 0].mean(), y[s == 1].mean(), 0, 0, 0, 0]
    start = np.array(start) + 0.0

    def brute(tau=None):
        best = np.inf, None
        for gap in (0.5, 1.5):
            at = start.copy()
            at[2:4] += [-gap, gap]
            if tau is None:
                found = minimize(minus_log_likelihood, at, args=(X[:, 0], y, s), method="BFGS", options={"gtol": 1e-4})
            else:
                found = minimize(
                    lambda t: minus_log_likelihood([*t, tau], X[:, 0], y, s),
                    at[:-1],
                    method="BFGS",
                    options={"gtol": 1e-4},
                )
            if found.fun < best[0]:
                best = found.fun, found.x
        return best

    value, theta = brute()
    noise = LikelihoodNoise(random_state=0).fit(X, y, sensitive=S)
    assert noise.keep_ == pytest.approx(0.5 + 0.5 / (1 + math.exp(-theta[-1])), abs=2e-4)
    for limit in noise.interval_:
        tau = logit(2 * limit - 1)
        assert 2 * (brute(tau)[0] - value) == pytest.approx(chi2.ppf(0.95, 1), abs=0.02)
    # the standard error from a difference quotient of the brute-force profile
    tau, h = theta[-1], 0.05
    curvature = (brute(tau + h)[0] - 2 * value + brute(tau - h)[0]) / h**2
    lam = 1 / (1 + math.exp(-tau))
    assert noise.standard_error_ == pytest.approx(0.5 * lam * (1 - lam) / math.sqrt(curvature), rel=0.03)


@pytest.mark.simulation
@pytest.mark.parametrize("keep", [0.9, 0.8, 0.7])
def test_the_papers_portfolio(keep, repetitions):
    found = []
    for seed in range(repetitions(1, 50)):
        p = zhang_liu_shi_2025(n=5000, rng=seed, age_band=True)
        S = RandomizedResponse(["F", "M"], keep=keep).privatize(p.sensitive, rng=np.random.default_rng([seed, 1]))
        noise = LikelihoodNoise(random_state=0).fit(p.X, p.y, sensitive=S)
        assert noise.identified_
        assert noise.channel_.keep == pytest.approx(noise.keep_, abs=1e-6)
        assert 0.003 < noise.standard_error_ < 0.009
        found.append((noise.keep_ - keep) / noise.standard_error_)
    # five standard errors of a mean: a false alarm has probability 6e-7
    assert abs(np.mean(found)) < 5 / math.sqrt(len(found))
    if len(found) >= 20:
        assert abs(np.mean(found)) * 0.007 < 0.01


@pytest.mark.simulation
@pytest.mark.parametrize("K, n", [(2, 500), (3, 900)])
def test_coverage_of_the_profile_interval(K, n, repetitions, assert_covers):
    keep, covered, error = 0.75, [], []
    for seed in range(repetitions(5, 400)):
        X, y, _, S = separated(n, keep, np.random.default_rng([seed, K]), K)
        noise = LikelihoodNoise(random_state=0).fit(X, y, sensitive=S)
        covered.append(noise.interval_[0] <= keep <= noise.interval_[1])
        error.append((noise.keep_ - keep) / noise.standard_error_)
    assert_covers(covered, 0.95)
    assert abs(np.mean(error)) < 5 / math.sqrt(len(error)) + 0.1


@pytest.mark.simulation
@pytest.mark.parametrize("family, law", [("normal", "normal"), ("poisson", "poisson"), ("skewed", "normal")])
def test_pure_noise_is_not_identified(family, law, repetitions, assert_covers):
    refused = []
    for seed in range(repetitions(4, 200)):
        X, y, S = unrelated(600, np.random.default_rng([seed, 3]), family)
        noise = LikelihoodNoise(law, random_state=0).fit(X, y, sensitive=S)
        refused.append(not noise.identified_)
        if refused[-1]:
            assert noise.channel_ is None
            assert noise.message_.startswith("The noise of the reports is not identified.")
    assert_covers(refused, 0.95)


@pytest.mark.simulation
def test_outcome_unrelated_to_the_group_is_not_identified(repetitions, assert_covers):
    # The reports do depend on x, so that keep is bounded from below, and from nowhere else.
    refused = []
    for seed in range(repetitions(3, 200)):
        X, _, _, S = separated(800, 0.8, np.random.default_rng([seed, 4]))
        y = np.random.default_rng([seed, 5]).normal(size=800)
        noise = LikelihoodNoise(random_state=0).fit(X, y, sensitive=S)
        refused.append(not noise.identified_)
    assert noise.interval_[1] == 1.0
    assert "too flat" in noise.message_
    assert_covers(refused, 0.95)


def test_true_attribute_is_not_taken_for_noise():
    X, y, d, _ = separated(800, 0.8, np.random.default_rng(0))
    noise = LikelihoodNoise(random_state=0).fit(X, y, sensitive=np.array(["a", "b"])[d])
    assert noise.keep_ > 0.99
    assert noise.interval_[1] == 1.0
    assert not noise.identified_
    assert "hardly any noise" in noise.message_


def test_skewed_outcome_taken_for_normal_is_refuted():
    # The mixture explains the skewness, and keep comes out far too low; held-out reports know better.
    rng = np.random.default_rng(1)
    X, y, d, S = separated(3000, 0.9, rng, gap=0.0)
    y = 3.0 * d + 3.0 * rng.exponential(size=3000) ** 2
    noise = LikelihoodNoise(random_state=0).fit(X, y, sensitive=S)
    assert noise.keep_ < 0.8
    assert not noise.identified_


@pytest.mark.parametrize("family", ["poisson", "gamma", "negative_binomial", "tweedie", "bernoulli"])
def test_other_families(family):
    rng = np.random.default_rng(2)
    n = 200 if family == "tweedie" else 1000
    X, _, d, S = separated(n, 0.85, rng)
    mu = np.exp(1 + 0.2 * X[:, 0] + 1.5 * d)
    y = {
        "poisson": lambda: rng.poisson(mu),
        "negative_binomial": lambda: rng.poisson(mu * rng.gamma(5, 1 / 5, size=n)),
        "gamma": lambda: rng.gamma(4, mu / 4),
        "tweedie": lambda: np.array([rng.gamma(2, 1.0, size=k).sum() for k in rng.poisson(mu / 2)]),
        "bernoulli": lambda: rng.random(n) < mu / (1 + mu),
    }[family]().astype(float)
    noise = LikelihoodNoise(family, random_state=0).fit(X, y, sensitive=S)
    if family == "bernoulli":  # one bit says too little
        assert not noise.identified_
    elif family != "tweedie":  # its dispersion is not that of a power law here
        assert noise.identified_
        assert noise.interval_[0] - 0.02 < 0.85 < noise.interval_[1] + 0.02
    low, high = noise.interval_
    assert 0.5 <= low <= noise.keep_ <= high <= 1


def test_values_at_one_keep_never_go_down(monkeypatch):
    X, y, _, S = separated(600, 0.8, np.random.default_rng(0), gap=1.0)
    seen: dict[float, float] = {}
    climb = Profile.climb

    def watched(self, strength, start, *tol):
        point = climb(self, strength, start, *tol)
        if point is not None:
            assert point.value >= seen.get(strength, -np.inf)
            assert point.value >= self.at(strength).value(start) - 1e-6
            seen[strength] = point.value
        return point

    monkeypatch.setattr(Profile, "climb", watched)
    noise = LikelihoodNoise(random_state=0).fit(X, y, sensitive=S)
    assert len(seen) > len(GRID)
    assert noise.profile_["log_likelihood"].max() == pytest.approx(0, abs=1e-9)
    assert noise.profile_["keep"].is_monotonic_increasing


def test_envelope_slope_is_the_slope_of_the_profile(monkeypatch):
    X, y, _, S = separated(600, 0.8, np.random.default_rng(0))
    kept = []
    maximise = Profile.maximise
    monkeypatch.setattr(Profile, "maximise", lambda self: kept.append(self) or maximise(self))
    LikelihoodNoise(random_state=0).fit(X, y, sensitive=S)
    profile, h = kept[0], 1e-3
    point = profile.points[0.5]
    profile.value(0.5)
    slope, curvature, tangent = profile.derivatives(profile.points[0.5])
    low, mid, high = (profile.value(expit(logit(0.5) + step)) for step in (-h, 0.0, h))
    assert slope == pytest.approx((high - low) / (2 * h), rel=1e-3)
    assert curvature == pytest.approx((high - 2 * mid + low) / h**2, rel=2e-2)
    assert len(tangent) == len(profile.latent.pack(point.parameters))


@pytest.mark.parametrize("K", [2, 3, 5])
def test_strength_and_keep(K):
    strength = (K * 0.8 - 1) / (K - 1)
    assert strength_to_keep(strength, K) == pytest.approx(0.8)
    matrix = RandomizedResponse(list("abcde")[:K], keep=0.8).matrix
    assert channel_matrix(strength, K) == pytest.approx(matrix, abs=1e-6)


def test_weights_missing_reports_and_containers():
    rng = np.random.default_rng(0)
    X, y, _, S = separated(500, 0.8, rng)
    frame = pd.DataFrame({"x": X[:, 0]})
    base = LikelihoodNoise(random_state=0).fit(X, y, sensitive=S)
    for same in (frame, pl.from_pandas(frame)):
        assert LikelihoodNoise(random_state=0).fit(same, y, sensitive=S).keep_ == pytest.approx(base.keep_, abs=1e-6)
    more = np.concatenate([X, X[:50] + 9]), np.append(y, y[:50] - 7), np.append(S.astype(object), [None] * 50)
    missing = LikelihoodNoise(random_state=0).fit(more[0], more[1], sensitive=more[2])
    assert missing.keep_ == pytest.approx(base.keep_, abs=1e-6)
    assert "50 rows were left out" in missing.message_
    # a volume that is twice as large everywhere changes the dispersion only
    doubled = LikelihoodNoise(random_state=0).fit(X, y, sensitive=S, sample_weight=np.full(500, 2.0))
    assert doubled.keep_ == pytest.approx(base.keep_, abs=1e-4)
    zero = LikelihoodNoise(random_state=0).fit(
        more[0], more[1], sensitive=np.append(S, S[:50]), sample_weight=np.repeat([1.0, 0.0], [500, 50])
    )
    assert zero.keep_ == pytest.approx(base.keep_, abs=1e-6)


def test_large_portfolios_are_sampled(monkeypatch):
    X, y, _, S = separated(1000, 0.8, np.random.default_rng(0))
    whole = LikelihoodNoise(random_state=0).fit(X, y, sensitive=S)
    monkeypatch.setattr(module, "SEARCH_ROWS", 500)
    searched = LikelihoodNoise(random_state=0).fit(X, y, sensitive=S)
    assert searched.keep_ == pytest.approx(whole.keep_, abs=1e-4)
    assert searched.interval_ == pytest.approx(whole.interval_, abs=1e-3)
    monkeypatch.setattr(module, "MAX_ROWS", 800)
    noise = LikelihoodNoise(random_state=0).fit(X, y, sensitive=S)
    assert noise.n_reports_ == 800
    assert "random sample of 800 of 1000 rows" in noise.message_
    again = LikelihoodNoise(random_state=0).fit(X, y, sensitive=S)
    assert again.keep_ == noise.keep_


def test_in_the_pricer():
    X, y, _, S = separated(900, 0.8, np.random.default_rng(0))
    pricer = DiscriminationFreePricer(channel=LikelihoodNoise(random_state=0), pooling=0, correction="inverse")
    pricer.fit(X, y, sensitive=S)
    assert pricer.channel_.keep == pytest.approx(pricer.noise_.keep_, abs=1e-6)
    X, y, S = unrelated(600, np.random.default_rng(0))
    with pytest.raises(NotIdentifiedError, match="not identified"):
        pricer.fit(X, y, sensitive=S)


@pytest.mark.parametrize(
    "change, error, match",
    [
        ({"y": None}, ValueError, "outcomes"),
        ({"X": None}, ValueError, "features"),
        ({"sensitive": ["a"] * 200}, ValueError, "at least two"),
        ({"sensitive": ["a", "b"] * 99}, ValueError, "same rows"),
        ({"sensitive": [None] * 170 + ["a", "b"] * 15}, ValueError, "at least 40"),
        ({"y": np.full(200, np.nan)}, ValueError, "NaN"),
        ({"y": ["low"] * 200}, ValueError, "one column of numbers"),
        ({"y": np.zeros((200, 2))}, ValueError, "shape"),
        ({"sample_weight": -np.ones(200)}, ValueError, "negative"),
        ({"sample_weight": np.zeros(200)}, ValueError, "every weight zero"),
        ({"family": "weibull"}, ValueError, "family"),
        ({"family": "gamma", "y": -np.ones(200)}, ValueError, "gamma"),
        ({"model": "boosted"}, TypeError, "LinearModel"),
        ({"model": LinearModel(ridge=-1)}, ValueError, "ridge"),
        ({"level": 1.5}, ValueError, "level"),
    ],
)
def test_bad_arguments(change, error, match):
    X, y, _, S = separated(200, 0.8, np.random.default_rng(0))
    data = {"X": X, "y": y, "sensitive": S, "sample_weight": None} | change
    settings = {k: data.pop(k) for k in ("family", "model", "level", "groups") if k in data}
    with pytest.raises(error, match=match):
        LikelihoodNoise(**settings).fit(data.pop("X"), data.pop("y"), **data)
