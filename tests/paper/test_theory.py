"""The simulated theorems against brute force: every f of the class, every sign, every part."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fairpremium.paper import _theory
from fairpremium.paper._setup import QUICK
from fairpremium.paper._theory import (
    HALF,
    LOSS,
    PRICES,
    Population,
    check_bounds,
    check_lemma,
    estimate_c1,
    excess_risk,
    rademacher,
    symmetric_matrix,
)


@pytest.fixture(params=[2, 3])
def population(request):
    return Population.draw(request.param, 0.7, np.random.default_rng(request.param))


def test_a_population_is_a_distribution_with_an_anchor(population):
    assert population.joint.sum() == pytest.approx(1)
    assert population.observed.sum() == pytest.approx(1)
    anchor = population.joint[0].sum(axis=0)
    assert anchor[0] == pytest.approx(anchor.sum())
    np.testing.assert_allclose(population.inverse @ population.matrix, np.eye(population.K), atol=1e-12)


def test_the_excess_risk_is_that_of_the_best_of_all_prices(population, monkeypatch):
    grid = np.linspace(0, 1, 4)  # 4 constants: 16 prices for each group, all tried
    monkeypatch.setattr(_theory, "LOSS", (grid[:, None] - np.array([0.0, 1.0])) ** 2)
    rng = np.random.default_rng(0)
    counts = rng.multinomial(300, population.observed.ravel(), size=5).reshape(5, *population.observed.shape)
    C1 = _theory.inverse_constants(population.K, 0.7)[0]
    found = excess_risk(population, counts, np.full(5, C1))
    prices = list(itertools.product(grid, repeat=2))

    def risk(price, mass):  # mass of (x, y)
        return sum(mass[x, y] * (price[HALF[x]] - y) ** 2 for x in range(5) for y in range(2))

    for r in range(5):
        total = 0.0
        for k in range(population.K):
            empirical = counts[r] @ population.inverse[k]
            chosen = min(prices, key=lambda p, mass=empirical: risk(p, mass))
            truth = population.joint[:, :, k]
            total += risk(chosen, truth) - min(risk(p, truth) for p in prices)
        assert found[r] == pytest.approx(total, abs=1e-12)


def test_rademacher_complexity_by_all_signs(monkeypatch):
    grid = np.linspace(0, 1, 3)
    monkeypatch.setattr(_theory, "LOSS", (grid[:, None] - np.array([0.0, 1.0])) ** 2)
    counts = np.zeros((1, 5, 2, 2), dtype=np.int64)
    rows = [(0, 0, 0), (1, 1, 1), (2, 1, 0), (3, 0, 1), (4, 1, 1), (0, 1, 0)]  # (x, y, s)
    for row in rows:
        counts[(0, *row)] += 1
    ends = (1.0, 1.75)
    sups = []
    for signs in itertools.product([-1, 1], repeat=len(rows)):
        best = -np.inf
        for c in np.linspace(*ends, 5):
            inverse = symmetric_matrix(2, c)
            total = 0.0
            for k, half in itertools.product(range(2), range(2)):
                here = [(y, s, sign) for (x, y, s), sign in zip(rows, signs, strict=True) if HALF[x] == half]
                total += max(sum(sign * inverse[k, s] * (a - y) ** 2 for y, s, sign in here) for a in grid)
            best = max(best, total)
        sups.append(best / len(rows))
    many = np.repeat(counts, 4000, axis=0)
    found = rademacher(many, len(rows), ends, np.random.default_rng(1))
    assert abs(found - np.mean(sups)) < 4 * np.std(sups) / np.sqrt(4000)


def test_c1_of_each_part_by_hand():
    parts = np.zeros((1, 2, 5, 2, 2), dtype=np.int64)
    parts[0, 0, 0, 0] = [9, 1]  # 0.9 in class 0
    parts[0, 0, 1, 1] = [1, 1]
    parts[0, 1, 0, 0] = [7, 3]
    parts[0, 1, 2, 1] = [8, 2]  # 0.8 in class 2
    assert estimate_c1(parts, 2)[0] == pytest.approx((0.9 / 0.8 + 0.8 / 0.6) / 2)


@pytest.mark.parametrize("K", [2, 3, 5])
def test_the_lemma_holds_with_the_corrected_inverse(K):
    runs = [{row[0]: row[4] for row in check_lemma(K, 0.7, 20_000, seed)} for seed in range(30)]
    corrected = np.array([run["lemma, corrected"] for run in runs])
    printed = np.array([run["lemma, printed"] for run in runs])
    assert abs(corrected.mean()) < 4 * corrected.std(ddof=1) / np.sqrt(30)
    error = printed.std(ddof=1) / np.sqrt(30)
    assert (abs(printed.mean()) < 4 * error) == (K == 2)


def test_prices_and_losses_are_bounded():
    assert LOSS.shape == (len(PRICES), 2)
    assert LOSS.max() == 1


def test_the_bounds_are_above_what_they_bound(population):
    found = check_bounds(population, 2000, QUICK.theorem_runs, np.random.default_rng(0))
    assert found["4.3, within"] == 1
    assert found["4.6, within"] == 1
    assert found["4.6, bound"] > found["4.3, bound"] > found["4.3, excess"] > 0
    assert found["4.6, parts asked"] > 4
