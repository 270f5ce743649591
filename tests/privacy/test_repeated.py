"""Two reports of one person with fresh noise as one channel."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

from fairpremium.privacy import Channel, KeyedChannels, RandomizedResponse

GROUPS = ("a", "b", "c")
FIRST = RandomizedResponse(GROUPS, epsilon=1.0)
SECOND = Channel([[0.6, 0.2, 0.1], [0.2, 0.5, 0.2], [0.2, 0.3, 0.7]], groups=GROUPS)
TWICE = Channel.repeated(FIRST, SECOND)


def test_matrix_is_the_row_wise_product():
    for (s, t), row in zip(TWICE.reports, TWICE.matrix, strict=True):
        np.testing.assert_allclose(row, FIRST.matrix[GROUPS.index(s)] * SECOND.matrix[GROUPS.index(t)])
    np.testing.assert_allclose(TWICE.matrix.sum(axis=0), 1)
    np.testing.assert_allclose(TWICE.inverse @ TWICE.matrix, np.eye(3), atol=1e-12)
    assert TWICE.groups == GROUPS
    assert Channel.repeated(FIRST, FIRST).epsilon == pytest.approx(2 * FIRST.epsilon)


def test_left_inverse_has_the_smallest_variance_at_equal_groups():
    """No other left inverse, T^-1 plus anything that T annihilates, has a smaller mean square."""
    p = TWICE.matrix.mean(axis=1)  # P(S) if groups are equally frequent
    null = np.linalg.svd(TWICE.matrix.T)[2][3:]  # (6, 9), with null @ matrix = 0
    best = (TWICE.inverse**2 @ p).sum()
    for seed in range(20):
        other = TWICE.inverse + 0.1 * np.random.default_rng(seed).normal(size=(3, 6)) @ null
        np.testing.assert_allclose(other @ TWICE.matrix, np.eye(3), atol=1e-9)
        assert (other**2 @ p).sum() > best
    once = (FIRST.inverse**2 @ FIRST.matrix.mean(axis=1)).sum()
    assert best < once


def test_drawing_and_estimating():
    rng, n = np.random.default_rng(0), 40_000
    D = rng.choice(GROUPS, n, p=[0.2, 0.3, 0.5])
    S = TWICE.privatize(D, rng=1)
    a = TWICE.inverse.T[TWICE.encode(S)]
    z = np.sqrt(n) * (a.mean(axis=0) - [0.2, 0.3, 0.5]) / a.std(axis=0)
    assert np.abs(z).max() < norm.isf(1e-4)
    table = pd.DataFrame(S.tolist(), columns=["first", "second"])
    assert np.array_equal(TWICE.encode(table), TWICE.encode(S))
    assert TWICE.encode([("a", None)]).tolist() == [-1]


def test_in_a_mapping_beside_single_reports():
    keyed = KeyedChannels({"once": FIRST, "twice": TWICE})
    S = np.empty(3, dtype=object)
    S[:] = ["b", ("b", "c"), None]
    assert keyed.encode(S, ["once", "twice", "twice"]).tolist() == [1, 3 + 5, -1]


def test_descriptor():
    assert Channel.from_descriptor(json.loads(json.dumps(TWICE.descriptor()))) == TWICE
    assert repr(TWICE).startswith("Channel.repeated(RandomizedResponse(")


def test_refusals():
    with pytest.raises(ValueError, match="the same, in one order"):
        Channel.repeated(FIRST, RandomizedResponse(("b", "a", "c"), epsilon=1.0))
    with pytest.raises(TypeError, match="Got a float"):
        Channel.repeated(FIRST, 0.8)
    with pytest.raises(TypeError, match=r"Channel\.repeated"):
        type(TWICE)(FIRST, FIRST)
    with pytest.raises(ValueError, match="which a product cannot draw"):
        Channel.product(Channel.repeated(FIRST, FIRST), FIRST)
