"""Exact arithmetic: ratios, bounds, inverses and logarithms as fractions and high-precision decimals."""

from __future__ import annotations

import decimal
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairpremium.privacy import Channel, RandomizedResponse
from fairpremium.privacy._exact import (
    MAX_TOTAL,
    floor_times_exp,
    integer_weights,
    left_inverse,
    log_rounded_up,
)
from fairpremium.privacy._randomized_response import weights_from_epsilon, weights_from_keep

epsilons = st.floats(1e-6, 20.0)
sizes = st.integers(2, 12)


def exponential(x: float) -> tuple[Fraction, Fraction]:
    """e^x from below and above by its series, without decimal.exp: the independent twin."""
    x = Fraction(x)
    halvings = max(math.ceil(math.log2(float(x) + 1)), 0) + 1
    y = x / 2**halvings
    term, total = Fraction(1), Fraction(1)
    for k in range(1, 40):
        term = term * y / k
        total += term
        total = Fraction(math.floor(total * 10**60), 10**60)
        term = Fraction(math.floor(term * 10**60), 10**60)
    low, high = total, total + Fraction(1, 10**55)
    for _ in range(halvings):
        low = Fraction(math.floor(low * low * 10**60), 10**60)
        high = Fraction(math.ceil(high * high * 10**60), 10**60)
    return low, high


@settings(max_examples=60, deadline=None)
@given(epsilons, sizes)
def test_the_ratio_is_the_largest_below_the_request(epsilon, K):
    a, b = weights_from_epsilon(epsilon, K, MAX_TOTAL)
    low, high = exponential(epsilon)
    assert Fraction(a, b) <= high
    assert low <= Fraction(a + 1, b)
    assert a + (K - 1) * b <= MAX_TOTAL
    # b is as large as the bits admit
    assert floor_times_exp(b + 1, epsilon) + (K - 1) * (b + 1) > MAX_TOTAL


@settings(max_examples=80, deadline=None)
@given(epsilons, sizes)
def test_the_realised_epsilon_is_never_above_the_request(epsilon, K):
    channel = RandomizedResponse(range(K), epsilon=epsilon)
    assert channel.epsilon <= epsilon
    assert channel._worst_ratio == Fraction(channel.a, channel.b)
    assert math.gcd(channel.a, channel.b) == 1
    # ... and within what 32 bits can express
    assert channel.epsilon >= epsilon - 2 * (math.exp(epsilon) + K) / 2**32 - 1e-15
    # the float does not understate the exact logarithm
    with decimal.localcontext() as context:
        context.prec = 50
        exact = (decimal.Decimal(channel.a) / decimal.Decimal(channel.b)).ln()
        assert decimal.Decimal(channel.epsilon) >= exact


@settings(max_examples=100, deadline=None)
@given(st.decimals("0.51", "0.999", places=3))
def test_keep_as_written(keep):
    channel = RandomizedResponse(["F", "M"], keep=float(keep))
    assert Fraction(channel.a, channel.total) == Fraction(keep)
    assert channel.keep == float(keep)
    assert channel.matrix[0, 0] == float(keep)


@settings(max_examples=60, deadline=None)
@given(st.floats(0.05, 0.999), sizes)
def test_keep_of_any_float(share, K):
    keep = 1 / K + (1 - 1 / K) * share
    if not 1 / K < keep < 1:
        return
    channel = RandomizedResponse(range(K), keep=keep)
    assert channel.keep == pytest.approx(keep, abs=2**-31)
    assert channel.keep <= keep


def test_keep_point_eight_is_four_to_one():
    channel = RandomizedResponse(["F", "M"], keep=0.8)
    assert (channel.a, channel.b, channel.total, channel.keep) == (4, 1, 5, 0.8)
    assert RandomizedResponse(["F", "M"], keep=np.float64(0.8)) == channel
    assert RandomizedResponse(["F", "M"], keep=Fraction(4, 5)) == channel
    assert weights_from_keep(Fraction("0.7"), 4, 2**32) == (7, 1)


@pytest.mark.parametrize("K", [2, 3, 5, 8])
@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 5.0, 22.0, 1e308])
def test_the_inverse_of_randomized_response_is_exact(K, epsilon):
    channel = RandomizedResponse(range(K), epsilon=epsilon)
    T = [[Fraction(int(w), channel.total) for w in row] for row in channel.weights]
    assert is_identity(channel.inverse_exact, T)
    assert channel.inverse_exact == left_inverse(channel._weight_rows, channel.total)
    np.testing.assert_allclose(channel.inverse.sum(axis=0), 1, rtol=0, atol=1e-15 * K * np.abs(channel.inverse).max())


def is_identity(A, T):
    product = [[sum(A[d][s] * T[s][e] for s in range(len(T))) for e in range(len(T[0]))] for d in range(len(A))]
    return all(product[d][e] == (d == e) for d in range(len(A)) for e in range(len(A)))


def test_the_formulas_of_the_paper():
    for K, keep in [(2, 0.8), (3, 0.7), (5, 0.5)]:
        channel = RandomizedResponse(range(K), keep=keep)
        np.testing.assert_allclose(np.diag(channel.inverse), (keep + K - 2) / (K * keep - 1), rtol=1e-14)
        np.testing.assert_allclose(channel.inverse[0, 1], (keep - 1) / (K * keep - 1), rtol=1e-14)
        np.testing.assert_allclose(channel.epsilon, np.log(keep * (K - 1) / (1 - keep)), rtol=1e-14)
        again = RandomizedResponse(range(K), epsilon=channel.epsilon)
        np.testing.assert_allclose(again.keep, keep, rtol=1e-8)


@pytest.mark.parametrize("epsilon", [22.2, 64.0, 65.0, 700.0, 1e308])
def test_requests_beyond_32_bits_spend_less(epsilon):
    channel = RandomizedResponse(["F", "M"], epsilon=epsilon)
    assert channel.total == 2**32
    assert channel.b == 1
    assert channel.epsilon < 22.181


@pytest.mark.parametrize("epsilon", [5e-324, 1e-300, 1e-12, 1e-10])
def test_requests_below_32_bits_are_refused(epsilon):
    with pytest.raises(ValueError, match="too close to pure chance"):
        RandomizedResponse(["F", "M"], epsilon=epsilon)


def columns(draw, rows, K):
    return np.array([draw(st.lists(st.floats(0.01, 1), min_size=rows, max_size=rows)) for _ in range(K)]).T


@st.composite
def channels(draw):
    K = draw(st.integers(2, 4))
    rows = K + draw(st.integers(0, 2))
    T = columns(draw, rows, K)
    T[:K] += 2 * np.eye(K)  # well away from singular
    return Channel(T / T.sum(axis=0), groups=range(K), reports=range(rows))


@settings(max_examples=60, deadline=None)
@given(channels())
def test_any_channel(channel):
    assert set(channel.weights.sum(axis=0).tolist()) == {channel.total}
    assert channel.total <= 2**32
    T = [[Fraction(int(w), channel.total) for w in row] for row in channel.weights]
    assert is_identity(channel.inverse_exact, T)
    assert all(sum(row[s] for row in channel.inverse_exact) == 1 for s in range(len(channel.reports)))
    ratios = [Fraction(int(x), int(y)) for row in channel.weights for x in row for y in row]
    assert channel.epsilon == log_rounded_up(max(ratios))
    np.testing.assert_allclose(channel.epsilon, math.log(max(ratios)), rtol=1e-12, atol=1e-15)
    np.testing.assert_array_equal(channel.matrix, channel.weights / channel.total)
    assert Channel.from_descriptor(channel.descriptor()) == channel


def test_the_left_inverse_against_its_formula():
    T = np.array([[0.5, 0.125, 0.1], [0.25, 0.25, 0.2], [0.15, 0.5, 0.1], [0.1, 0.125, 0.6]])
    channel = Channel(T, groups=["a", "b", "c"], reports=range(4))
    W = np.diag(1 / T.mean(axis=1))
    np.testing.assert_allclose(channel.inverse, np.linalg.inv(T.T @ W @ T) @ T.T @ W, atol=1e-12)
    np.testing.assert_allclose(channel.inverse @ T, np.eye(3), atol=1e-12)
    # With W = diag(1/P(S)) no left inverse has a smaller variance when the groups are uniform.
    P = T.mean(axis=1)
    plain = np.linalg.pinv(T)
    for d in range(3):
        assert channel.inverse[d] ** 2 @ P <= plain[d] ** 2 @ P + 1e-12


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 2**32), st.integers(1, 2**32))
def test_log_rounded_up(x, y):
    ratio = Fraction(max(x, y), min(x, y))
    value = log_rounded_up(ratio)
    if ratio == 1:
        assert value == 0
        return
    assert exponential(value)[1] >= ratio
    assert exponential(math.nextafter(value, 0))[0] < ratio


def test_floor_times_exp_needs_more_digits_near_an_integer():
    # e^log(3) for the float next to log 3 misses 3 b by less than 1e-16: forty digits decide.
    below, above = math.log(3), math.nextafter(math.log(3), 2)
    for b in (1, 10**15):
        for x in (below, above):
            low, high = exponential(x)
            assert math.floor(b * low) <= floor_times_exp(b, x) <= math.floor(b * high)


def test_rounding_keeps_zeros_and_positives():
    weights, total = integer_weights(
        [
            [Fraction(1, 3), Fraction(0)],
            [Fraction(2, 3) - Fraction(1, 10**20), Fraction(1)],
            [Fraction(1, 10**20), Fraction(0)],
        ]
    )
    assert total == 2**32
    assert weights[0][1] == weights[2][1] == 0
    assert weights[2][0] == 1
    assert all(sum(column) == total for column in zip(*weights, strict=True))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=2, max_size=9).filter(lambda p: sum(p) > 0.1))
def test_largest_remainder_errs_by_less_than_one(p):
    shares = [Fraction(x) / sum(map(Fraction, p)) for x in p]
    (weights, total) = integer_weights([[x] for x in shares])
    assert sum(w for (w,) in weights) == total
    for (w,), x in zip(weights, shares, strict=True):
        assert abs(Fraction(w, total) - x) < Fraction(len(p), 2**32)
        assert (w == 0) == (x == 0)


def test_floor_times_exp_of_tiny_exponents():
    # Forty digits cannot tell e^1e-45 from one, below or above; the loop takes more until they can.
    assert floor_times_exp(7, 1e-45) == 7
    assert floor_times_exp(2**32, 5e-324) == 2**32
