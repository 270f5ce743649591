"""Discrete Gaussian noise from a secret: exact, repeatable, independent, and as private as it says."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from scipy.stats import beta, binom, chi2, norm

from fairpremium.parties.release._accounting import delta_of
from fairpremium.parties.release._keyed_noise import (
    FINENESS,
    KeyedStream,
    bernoulli_exp,
    discrete_gaussian,
    discrete_laplace,
    grid_for,
    noised_steps,
)

SECRET = b"a secret of the study"


def stream(*fields):
    return KeyedStream(SECRET, *fields)


def assert_frequencies(draws, weights):
    """A chi-squared test at 1e-6 of draws against weights per value."""
    total = sum(weights.values())
    counts = Counter(draws)
    assert set(counts) <= set(weights) or sum(counts[k] for k in set(counts) - set(weights)) < 10
    used = {k: w / total * len(draws) for k, w in weights.items() if w / total * len(draws) >= 5}
    statistic = sum((counts[k] - expected) ** 2 / expected for k, expected in used.items())
    assert statistic < chi2.ppf(1 - 1e-6, len(used) - 1)


def test_integers_are_uniform():
    source = stream(b"uniform")
    assert_frequencies([source.below(7) for _ in range(20_000)], dict.fromkeys(range(7), 1.0))
    assert source.below(1) == 0


def test_bits_are_fair_and_cover_blocks():
    source = stream(b"bits")
    ones = sum(source.bits(13).bit_count() for _ in range(5_000))
    assert abs(ones - 5_000 * 6.5) < 5 * math.sqrt(5_000 * 13 / 4)
    assert 0 <= source.bits(2000) < 2**2000


@pytest.mark.parametrize("numerator, denominator", [(0, 1), (1, 3), (1, 1), (5, 2)])
def test_bernoulli_of_an_exponential(numerator, denominator):
    source, n = stream(b"exp", bytes([numerator])), 20_000
    hits = sum(bernoulli_exp(numerator, denominator, source) for _ in range(n))
    p = math.exp(-numerator / denominator)
    assert binom.ppf(1e-7, n, p) <= hits <= binom.ppf(1 - 1e-7, n, p)


def test_the_discrete_laplace_law():
    source = stream(b"laplace")
    assert_frequencies(
        [discrete_laplace(3, source) for _ in range(20_000)], {k: math.exp(-abs(k) / 3) for k in range(-60, 61)}
    )


@pytest.mark.parametrize("sigma", [1, 3, 10])
def test_the_discrete_gaussian_law(sigma):
    source = stream(b"gauss", bytes([sigma]))
    draws = [discrete_gaussian(sigma, source) for _ in range(20_000)]
    assert_frequencies(draws, {k: math.exp(-(k**2) / (2 * sigma**2)) for k in range(-12 * sigma, 12 * sigma + 1)})


def test_at_the_fineness_in_use_it_is_a_normal_law():
    source, n = stream(b"fine"), 5_000
    draws = np.array([discrete_gaussian(FINENESS, source) for _ in range(n)]) / FINENESS
    edges = norm.ppf(np.linspace(0, 1, 21))
    counts = np.histogram(draws, edges)[0]
    assert ((counts - n / 20) ** 2 / (n / 20)).sum() < chi2.ppf(1 - 1e-6, 19)


def test_the_same_question_gets_the_same_noise_and_another_one_other_noise():
    first = [stream(b"a", b"b").bits(64), stream(b"a", b"b").bits(64)]
    others = [stream(b"ab").bits(64), stream(b"a", b"c").bits(64), KeyedStream(SECRET + b"!", b"a", b"b").bits(64)]
    assert first[0] == first[1]
    assert len({first[0], *others, stream(b"", b"ab").bits(64), stream(b"ab", b"").bits(64)}) == 6


def test_a_short_secret_is_refused():
    with pytest.raises(ValueError, match="16 bytes"):
        KeyedStream(b"short", b"a")


@pytest.mark.parametrize("size", [1, 24, 1000])
@pytest.mark.parametrize("mu", [0.05, 0.5])
def test_rounding_is_paid_for(size, mu):
    """Two sums at the largest distance are, on the grid, no further apart than mu allows."""
    rng = np.random.default_rng(size)
    grid = grid_for(2.5, mu, size)
    for _ in range(50):
        a = rng.normal(size=size) * 1e3
        step = rng.normal(size=size)
        b = a + 2.5 * step / np.linalg.norm(step)
        apart = np.linalg.norm(np.rint(a / grid) - np.rint(b / grid))
        assert apart <= mu * FINENESS
    assert 2.5 / grid > 0.95 * mu * FINENESS - 2 * math.sqrt(size)


@pytest.mark.parametrize("sensitivity", [0.0, 5e-324, 1e-310, 1e-260, 1e260, math.inf, math.nan, -1.0])
def test_a_sensitivity_that_floats_do_not_hold_is_refused(sensitivity):
    """The grid of noise must not be rounded to nothing, nor to a number of few digits."""
    with pytest.raises(ValueError, match="expected 1e-250 to 1e"):
        grid_for(sensitivity, 0.5, 3)


def test_too_many_sums_for_the_grid_are_refused():
    with pytest.raises(ValueError, match="fewer sums"):
        grid_for(1.0, 1e-6, 10**4)


@pytest.mark.parametrize("epsilon", [0.25, 1.0])
def test_the_privacy_loss_is_what_the_accounting_says(epsilon):
    """The best test between two neighbours: P(E) <= e^epsilon P'(E) + delta, and nearly equal for the worst event."""
    mu, n = 0.8, 6_000
    grid = grid_for(1.0, mu, 3)
    a, b = np.zeros(3), np.array([0.6, -0.8, 0.0])  # neighbours, one report apart

    def score(vector, name):
        out = np.empty(n)
        for i in range(n):
            steps = noised_steps(vector, grid, stream(name, i.to_bytes(4, "big")))
            out[i] = np.asarray(steps, dtype=np.float64) @ (b - a) / FINENESS
        return out

    from_a, from_b = score(a, b"a"), score(b, b"b")
    cut = epsilon / mu + mu / 2  # where the likelihood ratio is e^epsilon
    hits_a, hits_b = int((from_a > cut).sum()), int((from_b > cut).sum())
    low_b = beta.ppf(1e-5, hits_b, n - hits_b + 1)
    high_a = beta.ppf(1 - 1e-5, hits_a + 1, n - hits_a)
    high_b = beta.ppf(1 - 1e-5, hits_b + 1, n - hits_b)
    low_a = beta.ppf(1e-5, hits_a, n - hits_a + 1)
    delta = delta_of(mu, epsilon)
    assert low_b - math.exp(epsilon) * high_a <= delta
    assert high_b - math.exp(epsilon) * low_a >= 0.9 * delta  # and the noise is not larger than it need be
