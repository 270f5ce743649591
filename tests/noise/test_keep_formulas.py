from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from fairpremium.noise._keep_formulas import agreement_to_keep, binomial_interval, c1_to_keep, keep_to_c1

GROUPS = st.integers(2, 8)
FRACTION = st.floats(0.001, 1)


@given(K=GROUPS, fraction=FRACTION)
def test_c1_round_trip(K, fraction):
    keep = 1 / K + fraction * (1 - 1 / K)
    c1 = keep_to_c1(keep, K)
    assert c1 >= 1 - 1e-12
    assert c1_to_keep(c1, K) == pytest.approx(keep, rel=1e-9)


@given(K=GROUPS, fraction=FRACTION)
def test_c1_is_the_diagonal_of_the_inverse(K, fraction):
    keep = 1 / K + fraction * (1 - 1 / K)
    T = np.full((K, K), (1 - keep) / (K - 1))
    np.fill_diagonal(T, keep)
    assert keep_to_c1(keep, K) == pytest.approx(np.linalg.inv(T)[0, 0], rel=1e-6)


@pytest.mark.parametrize("K", [2, 3, 5])
def test_c1_is_infinite_at_pure_noise_and_below(K):
    assert np.isinf(keep_to_c1(np.array([1 / K, 0.5 / K, 0.0]), K)).all()
    assert c1_to_keep(np.inf, K) == 1 / K


@given(K=GROUPS, fraction=FRACTION)
def test_agreement_round_trip(K, fraction):
    keep = 1 / K + fraction * (1 - 1 / K)
    agreement = keep**2 + (1 - keep) ** 2 / (K - 1)
    assert agreement_to_keep(agreement, K) == pytest.approx(keep, rel=1e-6)


@pytest.mark.parametrize("K", [2, 3, 5])
def test_agreement_below_chance_has_no_keep(K):
    assert np.isnan(agreement_to_keep(0.9 / K, K))


@pytest.mark.parametrize("n", [1, 7, 50])
@pytest.mark.parametrize("p", [0.02, 0.3, 0.5, 0.97])
def test_binomial_interval_covers_exactly(n, p):
    # No simulation: sum the probabilities of all outcomes whose interval contains p; each tail on its own.
    limits = [binomial_interval(hits, n, 0.9) for hits in range(n + 1)]
    chances = binom.pmf(np.arange(n + 1), n, p)
    assert sum(q for q, (low, _) in zip(chances, limits, strict=True) if low > p) <= 0.05 + 1e-12
    assert sum(q for q, (_, high) in zip(chances, limits, strict=True) if high < p) <= 0.05 + 1e-12


def test_binomial_interval_without_trials_is_everything():
    assert binomial_interval(0, 0, 0.95) == (0.0, 1.0)


def test_binomial_interval_against_r():
    # R 4.3: binom.test(8, 10)$conf.int -> 0.4439045 0.9747893
    assert binomial_interval(8, 10, 0.95) == pytest.approx((0.4439045, 0.9747893), abs=1e-7)
