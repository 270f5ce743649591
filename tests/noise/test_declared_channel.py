"""check_declared_channel: never rejects a true keep too often, rejects one that is too low."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom
from sklearn.tree import DecisionTreeClassifier

from fairpremium import RandomizedResponse, check_declared_channel
from fairpremium.noise import AnchorNoise
from fairpremium.portfolios import zhang_liu_shi_2025
from fairpremium.privacy import Channel


def reported(n, keep, seed):
    p = zhang_liu_shi_2025(n=n, rng=seed, age_band=True)
    S = RandomizedResponse(["F", "M"], keep=keep).privatize(p.sensitive, rng=np.random.default_rng([seed, 1]))
    return p, S


def declare(keep, groups=("F", "M")):
    return RandomizedResponse(list(groups), keep=keep)


@pytest.mark.simulation
@pytest.mark.parametrize("keep", [0.9, 0.7])
@pytest.mark.parametrize(
    "classifier", [None, "linear", DecisionTreeClassifier(max_depth=4)], ids=["logistic", "linear", "tree"]
)
def test_a_true_declaration_is_rarely_rejected(keep, classifier, repetitions):
    level, repeats = 0.8, repetitions(12, 400)
    rejected = 0
    for seed in range(repeats):
        p, S = reported(900, keep, seed)
        check = check_declared_channel(
            p.X, p.y, sensitive=S, channel=declare(keep), level=level, classifier=classifier, random_state=seed
        )
        rejected += check.rejected
    assert rejected <= binom.isf(1e-6, repeats, 1 - level)


@pytest.mark.simulation
@pytest.mark.parametrize("truth, declared", [(0.9, 0.7), (0.8, 0.65), (0.7, 0.6)])
def test_power_on_the_papers_portfolio(truth, declared, repetitions):
    for seed in range(repetitions(3, 40)):
        p, S = reported(5000, truth, seed)
        check = check_declared_channel(p.X, p.y, sensitive=S, channel=declare(declared), random_state=0)
        assert check.rejected
        assert declared < check.lower_limit < truth + 0.02
        assert "is rejected" in str(check)


def test_the_outcome_says_more_than_the_features():
    p, S = reported(4000, 0.9, 0)
    with_y = check_declared_channel(p.X, p.y, sensitive=S, channel=declare(0.8), random_state=0)
    without = check_declared_channel(p.X, None, sensitive=S, channel=declare(0.8), random_state=0)
    assert with_y.rejected
    assert not without.rejected  # at most .8 * .9 + .2 * .1 = .74 can be seen
    assert without.lower_limit < 0.74 < with_y.lower_limit
    assert "too high cannot be seen" in without.message


def test_without_the_outcome_it_is_the_limit_of_the_anchor_method():
    # One machinery: the same thirds and the same classifier give the same limit.
    p, S = reported(1000, 0.8, 0)
    rng, twin = np.random.default_rng(3), np.random.default_rng(3)
    twin.permutation(1000)  # AnchorNoise draws its splits first
    twin.integers(2**31)  # and the seed of the classifier of its one split
    anchor = AnchorNoise(n_splits=1, random_state=rng).fit(p.X, None, sensitive=S)
    check = check_declared_channel(p.X, None, sensitive=S, channel=declare(0.8), random_state=twin)
    assert check.lower_limit == pytest.approx(anchor.interval_[0])


def test_too_high_is_never_rejected():
    p, S = reported(2000, 0.7, 0)
    assert not check_declared_channel(p.X, p.y, sensitive=S, channel=declare(0.95), random_state=0).rejected


def test_three_groups_and_missing_reports():
    rng = np.random.default_rng(0)
    n = 3000
    d = rng.integers(0, 3, size=n)
    y = 5.0 * d + rng.normal(size=n)
    s = np.where(rng.random(n) < 0.85, d, (d + rng.integers(1, 3, size=n)) % 3)
    S = np.array(["a", "b", "c"], dtype=object)[s]
    S[:100] = None
    X = pd.DataFrame({"x": rng.normal(size=n), "region": rng.choice(["north", "south"], size=n)})
    low = check_declared_channel(X, y, sensitive=S, channel=declare(0.6, "abc"), random_state=0)
    assert low.rejected
    assert low.keep == pytest.approx(0.6)
    assert low.level == 0.95
    assert "100 reports were left out" in low.message
    with pytest.raises(AttributeError):
        low.rejected = False
    assert not check_declared_channel(X, y, sensitive=S, channel=declare(0.9, "abc"), random_state=0).rejected


CHANNELS = {
    "asymmetric": Channel([[0.9, 0.3], [0.1, 0.7]], groups=["F", "M"]),
    "more reports than groups": Channel(
        [[0.7, 0.1], [0.2, 0.2], [0.1, 0.7]], groups=["F", "M"], reports=["F", "no answer", "M"]
    ),
    "a report that is always true": Channel([[0.8, 0.0], [0.2, 1.0]], groups=["F", "M"]),
    "three groups": RandomizedResponse(["F", "M", "X"], keep=0.7),
    "several attributes": Channel.product(
        RandomizedResponse(["F", "M"], keep=0.8), RandomizedResponse(["a", "b", "c"], keep=0.7)
    ),
}


def separated(channel, n, rng):
    """Features and outcomes that nearly tell the group, unbalanced groups."""
    K = len(channel.groups)
    d = rng.choice(K, size=n, p=np.arange(1, K + 1) / np.arange(1, K + 1).sum())
    X = rng.normal(size=(n, 3))
    X[:, 0] += 2 * (d == 0)
    labels = np.empty(K, dtype=object)
    labels[:] = list(channel.groups)
    return X, 3.0 * d + rng.normal(size=n), labels[d]


@pytest.mark.simulation
@pytest.mark.parametrize("name", CHANNELS)
def test_any_channel_is_rarely_rejected_when_it_is_true(name, repetitions):
    channel, level, repeats = CHANNELS[name], 0.8, repetitions(20, 400)
    rejected = 0
    for seed in range(repeats):
        rng = np.random.default_rng([seed, 7])
        X, y, D = separated(channel, 900, rng)
        S = channel.privatize(list(D), rng=rng)
        check = check_declared_channel(
            X, y, sensitive=S, channel=channel, level=level, classifier="linear", random_state=seed
        )
        rejected += check.rejected
    assert rejected <= binom.isf(1e-6, repeats, 1 - level)


@pytest.mark.parametrize("name", CHANNELS)
def test_any_channel_is_rejected_when_the_column_is_the_truth(name):
    channel = CHANNELS[name]
    X, y, D = separated(channel, 6000, np.random.default_rng(0))
    check = check_declared_channel(X, y, sensitive=list(D), channel=channel, level=0.999, random_state=0)
    assert check.rejected
    assert "the declared channel permits at" in check.message
    if name == "three groups":
        assert check.keep == channel.keep < check.lower_limit < 1
    else:
        assert np.isnan([check.keep, check.lower_limit]).all()
        assert "The declared channel is rejected" in check.message


@pytest.mark.parametrize("unit", [1e-250, 1e250])
def test_units_do_not_matter(unit):
    p, S = reported(1000, 0.9, 0)
    limits = [
        check_declared_channel(
            p.X[["age"]] * of_x, p.y * of_y, sensitive=S, channel=declare(0.8), classifier="linear", random_state=0
        ).lower_limit
        for of_x, of_y in ((1.0, 1.0), (unit, 1.0), (1.0, unit))
    ]
    assert limits[1:] == pytest.approx(limits[:1] * 2)


@pytest.mark.simulation
def test_one_row_of_each_person_is_looked_at(repetitions):
    # Ten rows share a report: taken for 6,000 people, the 600 are rejected far too often.
    level, alone, together = 0.95, 0, 0
    repeats = repetitions(20, 200)
    for seed in range(repeats):
        rng = np.random.default_rng([seed, 3])
        person = np.repeat(np.arange(600), 10)
        d = np.repeat(rng.random(600) < 0.97, 10)
        y = np.repeat(rng.normal(size=600), 10) + 0.1 * rng.normal(size=6000)
        S = np.repeat(declare(0.8).privatize(np.where(d[::10], "F", "M"), rng=rng), 10)
        check = partial(
            check_declared_channel, y[:, None], y, sensitive=S, channel=declare(0.8), level=level, random_state=0
        )
        together += check(classifier="linear", cluster=person).rejected
        alone += check(classifier="linear").rejected
    assert together <= binom.isf(1e-6, repeats, 1 - level)
    assert alone > 3 * (1 - level) * repeats


@pytest.mark.parametrize(
    "change, error, match",
    [
        ({"channel": 0.8}, TypeError, "expected a Channel"),
        ({"classifier": "forest"}, ValueError, "classifier='forest'"),
        ({"cluster": [1, 2]}, ValueError, "cluster"),
        ({"level": 0}, ValueError, "level"),
        ({"sensitive": ["F", "M"] * 99}, ValueError, "same rows"),
        ({"sensitive": [None] * 150 + ["F", "M"] * 25}, ValueError, "at least 60"),
        ({"y": np.zeros(199)}, ValueError, "same number"),
        ({"y": np.full(200, np.inf)}, ValueError, "infinite"),
    ],
)
def test_bad_arguments(change, error, match):
    p, S = reported(200, 0.8, 0)
    arguments = {"X": p.X, "y": p.y, "sensitive": S, "channel": declare(0.8)} | change
    with pytest.raises(error, match=match):
        check_declared_channel(arguments.pop("X"), arguments.pop("y"), **arguments)
