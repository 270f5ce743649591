"""Intervals of h* from the default settings cover it as often as they say, pooled by empirical Bayes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import binom

import fairpremium.corrections._empirical_bayes as bayes_module
from fairpremium import DiscriminationFreePricer, RandomizedResponse

CHANNEL = RandomizedResponse(["A", "B", "C"], keep=0.8)
SHARES = np.array([0.5, 0.35, 0.15])
LEVELS, SLOPES = np.array([-0.2, 0.0, 0.3]), np.array([0.3, 0.25, 0.3])
QUOTES = np.array([[-1.0, 0.0], [0.0, 1.0], [1.5, 0.0]])


def draw(family: str, n: int, seed: int) -> tuple[np.ndarray, ...]:
    """X, y, weights and reports: group B is found where x0 is large, and one report in ten is missing."""
    rng = np.random.default_rng([seed, 77])
    D = rng.choice(3, n, p=SHARES)
    X = np.column_stack([rng.normal(np.where(D == 1, 0.4, 0.0), 1.0), rng.random(n) < 0.3])
    eta = LEVELS[D] + SLOPES[D] * X[:, 0] - 0.2 * X[:, 1]
    w = rng.uniform(0.5, 1.0, n)
    y = rng.poisson(w * np.exp(eta)) / w if family == "poisson" else rng.normal(eta, 1 / np.sqrt(w))
    S = np.array(CHANNEL.privatize(np.array(CHANNEL.groups, dtype=object)[D], rng=rng), dtype=object)
    S[rng.random(n) < 0.1] = None
    return X, y, w, S


def discrimination_free(family: str) -> np.ndarray:
    """h*(x) of the quotes: the groups' prices, mixed by their shares of the volume."""
    eta = LEVELS + QUOTES[:, :1] * SLOPES - 0.2 * QUOTES[:, 1:]
    return (np.exp(eta) if family == "poisson" else eta) @ SHARES


@pytest.mark.simulation
@pytest.mark.parametrize("family", ["poisson", "normal"])
def test_intervals_of_the_premium_cover(family: str, repetitions: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each quote's count of covering intervals is that of 95 % within binomial error, false alarm 1e-4 in all.

    The short run draws fewer standard deviations, whose Monte Carlo error adds little to the posterior's own width.
    """
    R = repetitions(24, 600)
    draws = repetitions(60, bayes_module._DRAWS)
    for name in ("_DRAWS", "_ROUGH"):
        monkeypatch.setattr(bayes_module, name, draws)
    truth = discrimination_free(family)
    covered = np.zeros(len(truth), dtype=int)
    length = []
    for seed in range(R):
        X, y, w, S = draw(family, 600, seed)
        pricer = DiscriminationFreePricer(family=family, channel=CHANNEL, random_state=0)
        lower, upper = pricer.fit(X, y, sensitive=S, sample_weight=w).predict_interval(QUOTES)
        covered += (lower <= truth) & (truth <= upper)
        length.append(upper - lower)
    low, high = binom.ppf([1e-4 / 6, 1 - 1e-4 / 6], R, 0.95)
    assert (covered >= low).all(), covered / R
    assert (covered <= high).all(), covered / R
    assert (np.mean(length, axis=0) < 1.0).all()  # that they cover is not for their length
