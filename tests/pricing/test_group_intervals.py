"""Intervals of single groups and of differences between them."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom

from fairpremium import DiscriminationFreePricer, RandomizedResponse

CHANNEL = RandomizedResponse(["a", "b", "c"], keep=0.8)
QUOTES = np.array([[0.0, 0.0], [1.0, 1.0]])


def draw(n: int, seed: int, sd: tuple[float, float, float] = (1.0, 1.0, 1.0)) -> tuple[np.ndarray, ...]:
    """Unbalanced groups with effects of their own; one report in ten is missing."""
    rng = np.random.default_rng([seed, 23])
    D = rng.choice(3, n, p=[0.5, 0.4, 0.1])
    X = np.column_stack([rng.normal(0.3 * D, 1.0), rng.random(n) < 0.4])
    y = 1 + 0.2 * X[:, 0] + np.array([0.0, 0.3, -0.4])[D] + rng.normal(size=n) * np.array(sd)[D]
    S = np.array(CHANNEL.privatize(np.array(CHANNEL.groups, dtype=object)[D], rng=rng), dtype=object)
    S[rng.random(n) < 0.1] = None
    return X, y, S, np.array(CHANNEL.groups, dtype=object)[D]


@pytest.fixture(scope="module")
def pricer() -> DiscriminationFreePricer:
    X, y, S, _ = draw(1500, 0)
    return DiscriminationFreePricer(channel=CHANNEL).fit(X, y, sensitive=S)


def test_they_lie_around_the_estimates(pricer: DiscriminationFreePricer) -> None:
    best = pricer.predict_best_estimate(QUOTES)
    low, high = pricer.predict_interval(QUOTES, group="b")
    np.testing.assert_allclose(0.5 * (low + high), best["b"])
    low, high = pricer.predict_interval(QUOTES, group="b", against="c")
    np.testing.assert_allclose(0.5 * (low + high), best["b"] - best["c"])
    other = pricer.predict_interval(QUOTES, group="c", against="b")
    np.testing.assert_allclose((-other.upper, -other.lower), (low, high))
    assert (np.diff(pricer.predict_interval(QUOTES, 0.99, group="b"), axis=0) > 0).all()


def test_a_difference_is_more_uncertain_than_the_learned_scales_say() -> None:
    """Pooling hides how far groups may differ; the interval must not. Nor is it wider than without pooling."""
    X, y, S, _ = draw(1500, 0)
    unpooled = DiscriminationFreePricer(channel=CHANNEL, correction="inverse", pooling=0).fit(X, y, sensitive=S)
    pooled = DiscriminationFreePricer(channel=CHANNEL, correction="inverse").fit(X, y, sensitive=S)
    learned = copy(pooled)
    learned._prices = replace(pooled._prices, group_covariance=None)
    widths = [-np.subtract(*p.predict_interval(QUOTES, group="a", against="c")) for p in (learned, pooled, unpooled)]
    assert (widths[0] < widths[1]).all()
    assert (widths[1] < widths[2]).all()


def test_a_file_keeps_them(pricer: DiscriminationFreePricer, tmp_path: Path) -> None:
    pricer.save(tmp_path / "model.json")
    again = DiscriminationFreePricer.load(tmp_path / "model.json")
    for settings in ({"group": "a"}, {"group": "a", "against": "c"}):
        expected = pricer.predict_interval(QUOTES, **settings)
        np.testing.assert_allclose(again.predict_interval(QUOTES, **settings), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"group": "d"}, "group='d', but expected one of the groups"),
        ({"against": "a"}, "without a group"),
        ({"group": "a", "against": "a"}, "two different groups"),
        ({"group": "a", "against": 7}, "against=7"),
    ],
)
def test_wrong_groups(pricer: DiscriminationFreePricer, settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pricer.predict_interval(QUOTES, **settings)


def test_trees_have_them_too() -> None:
    X, y, S, _ = draw(600, 1)
    settings = {"channel": CHANNEL, "correction": "posterior", "random_state": 0}
    pricer = DiscriminationFreePricer(model="boosted", **settings).fit(X, y, sensitive=S)
    low, high = pricer.predict_interval(QUOTES, group="a", against="b")
    best = pricer.predict_best_estimate(QUOTES)
    assert ((low < best["a"] - best["b"]) & (best["a"] - best["b"] < high)).all()


@pytest.mark.simulation
@pytest.mark.parametrize("sd", [(1.0, 1.0, 1.0), (1.0, 1.0, 3.0)], ids=["equal noise", "a noisy group"])
def test_differences_are_covered(sd: tuple[float, float, float], repetitions: Callable) -> None:
    """With the true attribute, where the noise of a small group differs: at least 95 %, false alarm 1e-4."""
    R = repetitions(30, 400)
    covered = np.zeros(2, dtype=int)
    for seed in range(R):
        X, y, _, D = draw(800, seed, sd)
        pricer = DiscriminationFreePricer(random_state=0).fit(X, y, sensitive=D)
        low, high = pricer.predict_interval(QUOTES, group="c", against="a")
        covered += (low <= -0.4) & (high >= -0.4)
    assert (covered >= binom.ppf(1e-4 / 4, R, 0.95)).all(), covered / R
