"""Rows without a report in the likelihood: when they help, when they harm, and what the fit says then."""

import warnings

import numpy as np
import pytest

from fairpremium import DiscriminationFreePricer, RandomizedResponse
from fairpremium.errors import SourcesDependWarning

CHANNEL = RandomizedResponse(["F", "M"], keep=0.75)
B = np.array([[0.0, 2.5], [1.0, 0.0]])  # (intercept, x) by group
CLOSE = np.array([[0.0, 1.2], [1.0, 0.0]])  # outcomes tell the groups apart less well


def sample(seed, by_group, n=2500, B=B):
    """Most rows have no report; whether they do depends on x, or on the group as well."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    D = (rng.random(n) < 1 / (1 + np.exp(-0.5 * x))).astype(int)
    y = B[0, D] + B[1, D] * x + rng.normal(size=n)
    reported = rng.random(n) < np.where(by_group, np.array([0.5, 0.08])[D], np.where(x > 0, 0.1, 0.25))
    S = np.where(reported, CHANNEL.privatize(np.array(["F", "M"])[D], rng=seed), None)
    return x[:, None], y, S, D


def fit(seed, by_group, unreported, correction="likelihood", B=B, n=2500):
    x, y, S, _ = sample(seed, by_group, n, B)
    pricer = DiscriminationFreePricer(
        channel=CHANNEL, correction=correction, pooling=0, unreported=unreported, intervals=False
    )
    return pricer.fit(x, y, sensitive=S).coefficients_[["F", "M"]].to_numpy() - B


@pytest.mark.parametrize("correction", ["likelihood", "posterior"])
def test_they_help_if_missing_reports_depend_on_features_alone(correction):
    runs = 8 if correction == "likelihood" else 5
    errors = {u: np.array([fit(s, False, u, correction) for s in range(runs)]) for u in ("exclude", "include")}
    for found in errors.values():  # neither is biased
        z = found.mean(axis=0) / (found.std(axis=0, ddof=1) / np.sqrt(runs))
        assert np.abs(z).max() < (6 if runs == 8 else 9)  # Student's t, four of them: p = 0.002
    size = {u: np.sqrt(np.mean(e**2)) for u, e in errors.items()}
    assert size["include"] < 0.8 * size["exclude"] if correction == "likelihood" else size["include"] < size["exclude"]


def test_they_harm_if_missing_reports_depend_on_the_group_and_the_fit_warns():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SourcesDependWarning)
        found = {u: np.array([fit(s, True, u, B=CLOSE, n=5000) for s in range(8)]) for u in ("exclude", "include")}
    z = {u: np.abs(e.mean(axis=0) / (e.std(axis=0, ddof=1) / np.sqrt(8))).max() for u, e in found.items()}
    assert z["exclude"] < 6  # as above
    assert z["include"] > 8
    with pytest.warns(SourcesDependWarning, match="depends on the outcome"):
        fit(0, True, "include")


def test_intervals_and_moments_do_not_need_them():
    x, y, S, _ = sample(0, False, 1200)
    settings = {"channel": CHANNEL, "correction": "inverse"}
    plain = DiscriminationFreePricer(**settings).fit(x, y, sensitive=S)
    same = DiscriminationFreePricer(**settings, unreported="include").fit(x, y, sensitive=S)
    assert np.array_equal(plain.predict(x), same.predict(x))
    settings["correction"] = "likelihood"
    narrow, wide = (
        np.diff(DiscriminationFreePricer(**settings, unreported=u).fit(x, y, sensitive=S).predict_interval(x), axis=0)
        for u in ("include", "exclude")
    )
    assert narrow.mean() < wide.mean()


def test_a_word_that_is_not_known():
    x, y, S, _ = sample(0, False)
    with pytest.raises(ValueError, match="unreported='flat'"):
        DiscriminationFreePricer(channel=CHANNEL, unreported="flat").fit(x, y, sensitive=S)
