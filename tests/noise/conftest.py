"""Constructed truths and the yardstick of coverage for the noise estimators."""

from __future__ import annotations

import os

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

FULL = os.environ.get("FAIRPREMIUM_SIMULATIONS") == "full"
LABELS = ["a", "b", "c", "d", "e"]
# False-alarm probability of each statistical assertion when the claim is true.
FALSE_ALARM = 1e-6


def randomize(d, keep, n_groups, rng):
    """Randomized response on codes, written independently of the package."""
    lie = rng.random(len(d)) > keep
    other = (d + rng.integers(1, n_groups, size=len(d))) % n_groups
    return np.where(lie, other, d)


@pytest.fixture
def draw():
    """Return (D, S) as labels: unbalanced groups, randomized response."""

    def draw(n, keep, shares, rng):
        K = len(shares)
        d = rng.choice(K, size=n, p=shares)
        s = randomize(d, keep, K, rng)
        labels = np.array(LABELS[:K])
        return labels[d], labels[s]

    return draw


@pytest.fixture
def shares():
    """Return unbalanced shares of K groups."""
    return lambda K: np.arange(1, K + 1) / np.arange(1, K + 1).sum()


@pytest.fixture
def portfolio():
    """Return (X, D) of the paper's synthetic portfolio (zhang_liu_shi_2025): age, smoker; sex."""

    def portfolio(n, rng):
        age = rng.integers(18, 81, size=n)
        smoker = rng.random(n) < 0.3
        female = rng.random(n) < np.where(smoker, 0.8, 0.3)
        X = pd.DataFrame({"age": age, "smoker": np.where(smoker, "yes", "no")})
        return X, np.where(female, "F", "M")

    return portfolio


@pytest.fixture
def flip():
    """Return S for labels D of two groups."""

    def flip(D, keep, rng):
        groups, d = np.unique(D, return_inverse=True)
        return groups[randomize(d, keep, len(groups), rng)]

    return flip


@pytest.fixture
def repetitions():
    """Return how often a study repeats: (short, full)."""
    return lambda short, full: full if FULL else short


@pytest.fixture
def assert_covers():
    """Assert that intervals cover at least as often as they claim.

    The number of covered repetitions is compared with the binomial quantile at ``FALSE_ALARM``.
    """

    def assert_covers(covered, level):
        covered = np.asarray(covered)
        needed = binom.ppf(FALSE_ALARM, len(covered), level)
        assert covered.sum() >= needed, f"{covered.sum()} of {len(covered)} covered, needed {needed}"

    return assert_covers
