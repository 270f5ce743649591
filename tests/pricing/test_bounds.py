"""The bounds of Theorems 4.3 and 4.6: by hand, against enumerated ranges, by drawing; and their errors."""

from __future__ import annotations

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest

from fairpremium.pricing._bounds import (
    excess_risk_bound,
    inverse_constants,
    required_rows,
    required_splits,
)
from fairpremium.privacy import RandomizedResponse

CASES = [(K, keep) for K in (2, 3, 4, 5) for keep in (1.0, 0.9, 0.6)]


def randomized_response(K, keep):
    T = np.full((K, K), (1 - keep) / (K - 1))
    np.fill_diagonal(T, keep)
    return T


def a_channel(T):
    return SimpleNamespace(matrix=T, inverse=np.linalg.pinv(T))


@pytest.mark.parametrize("K, keep", CASES)
def test_the_constants_are_the_entries_of_the_inverse(K, keep):
    C1, C2 = inverse_constants(K, keep)
    inverse = np.linalg.inv(randomized_response(K, keep))
    assert inverse[0, 0] == pytest.approx(C1)
    assert inverse[0, 1] == pytest.approx(C2, abs=1e-12)
    assert inverse_constants(list("abcde")[:K], keep) == (C1, C2)


@pytest.mark.parametrize("K, keep", CASES)
def test_the_known_channel(K, keep):
    bound = excess_risk_bound(5000, groups=K, keep=keep, loss_bound=3.0, delta=0.05, rademacher=0.01)
    weights = np.abs(np.linalg.inv(randomized_response(K, keep))[:, 0]).sum()
    assert bound.estimation == pytest.approx(2 * 3 * weights * math.sqrt(math.log(20) / 10_000))
    assert bound.rademacher == pytest.approx(0.04)
    assert bound.noise == 0
    assert bound.total == bound.estimation + bound.rademacher
    assert bound.probability == 0.95


@pytest.mark.parametrize("K, keep", CASES)
def test_the_estimated_channel(K, keep):
    known = excess_risk_bound(5000, groups=K, keep=keep, loss_bound=3.0, delta=0.05)
    bound = excess_risk_bound(5000, groups=K, keep=keep, loss_bound=3.0, delta=0.05, c1_error=0.2)
    extra = 2 * 3 * 2 * 0.2 * math.sqrt(math.log(20) / 10_000)
    assert bound.estimation == pytest.approx(known.estimation + extra)
    assert bound.noise == pytest.approx(4 * 3 * 0.2)
    assert bound.probability == pytest.approx(0.85)
    tiny = excess_risk_bound(5000, groups=K, keep=keep, loss_bound=3.0, delta=0.05, c1_error=1e-12)
    assert tiny.total == pytest.approx(known.total, rel=1e-9)


def test_epsilon_and_keep_are_two_names_of_one_channel():
    epsilon = math.log(0.7 * 3 / 0.3)
    options = {"loss_bound": 1.0, "delta": 0.1}
    by_keep = excess_risk_bound(100, groups=4, keep=0.7, **options)
    assert excess_risk_bound(100, groups=4, epsilon=epsilon, **options).total == pytest.approx(by_keep.total)
    without = excess_risk_bound(100, groups=4, keep=1.0, **options)
    assert excess_risk_bound(100, groups=4, epsilon=math.inf, **options).total == without.total


@pytest.mark.parametrize("K, keep", CASES)
def test_a_channel_object_gives_the_same_bound(K, keep):
    channels = [a_channel(randomized_response(K, keep))]
    if keep < 1:  # without noise there is nothing to declare
        channels.append(RandomizedResponse(list("abcde")[:K], keep=keep))
    for channel, error in itertools.product(channels, (None, 0.1)):
        options = {"loss_bound": 1.0, "delta": 0.1, "c1_error": error}
        a = excess_risk_bound(100, groups=K, keep=keep, **options)
        assert excess_risk_bound(100, channel=channel, **options).total == pytest.approx(a.total)


@pytest.mark.parametrize("shape", [(2, 2), (3, 3), (4, 2), (5, 3)])
def test_the_width_is_the_range_of_the_weighted_loss(shape):
    # McDiarmid needs the largest change of sum_k T^-1[k, s] L_k when one row changes: enumerate the corners.
    rng = np.random.default_rng(shape)
    for _ in range(20):
        T = rng.dirichlet(np.ones(shape[0]), size=shape[1]).T + 0.5 * np.eye(*shape)
        T /= T.sum(axis=0)
        inverse = np.linalg.pinv(T)
        corners = np.array(list(itertools.product([0.0, 1.0], repeat=shape[1])))
        values = corners @ inverse
        bound = excess_risk_bound(2, channel=a_channel(T), loss_bound=1.0, delta=math.exp(-1))
        assert bound.estimation == pytest.approx(2 * (values.max() - values.min()) * math.sqrt(1 / 4))
        if shape[0] == shape[1]:  # then it is the largest l1 norm of a column
            assert values.max() - values.min() == pytest.approx(np.abs(inverse).sum(axis=0).max())


def test_the_bound_holds():
    # Losses 0 and 1, two constant candidates per group. Even without its Rademacher term the bound may be
    # broken in at most 5 % of the draws (it is loose: none), and so may its half by the deviation of one f.
    rng = np.random.default_rng(0)
    K, keep, n, delta, repeats = 2, 0.8, 400, 0.05, 2000
    inverse = np.linalg.inv(randomized_response(K, keep))
    chance = np.array([[0.3, 0.25], [0.2, 0.25]])  # P(D = d, Y = y), y in {0, 1}
    observed = randomized_response(K, keep) @ chance  # P(S, Y)
    loss = np.array([[0.0, 1.0], [1.0, 0.0]])  # candidate f = 0 or 1, loss 1{f != y}
    counts = rng.multinomial(n, observed.ravel(), size=repeats).reshape(repeats, K, 2)
    empirical = np.einsum("ks,rsy,fy->rkf", inverse, counts / n, loss)
    true = chance @ loss.T  # (k, f)
    chosen = empirical.argmin(axis=2)
    excess = (true[np.arange(K), chosen] - true.min(axis=1)).sum(axis=1)
    bound = excess_risk_bound(n, groups=K, keep=keep, loss_bound=1.0, delta=delta)
    assert (excess > 0).mean() > 0.1
    assert (excess > bound.total).mean() <= delta
    deviation = empirical[:, 0, 0] + empirical[:, 1, 1] - true[0, 0] - true[1, 1]
    assert deviation.max() > bound.estimation / 4
    assert (deviation > bound.estimation / 2).mean() <= delta


@pytest.mark.parametrize("K, keep", CASES)
@pytest.mark.parametrize("error", [None, 0.05])
def test_required_rows_by_substitution(K, keep, error):
    options = {"groups": K, "keep": keep, "loss_bound": 2.0, "delta": 0.01, "c1_error": error}
    for target in (0.5, 0.1, 0.0123):
        n = required_rows(target, **options)
        assert excess_risk_bound(n, **options).estimation <= target * (1 + 1e-12)
        assert excess_risk_bound(n - 1, **options).estimation > target


def test_required_rows_at_a_whole_number_and_for_a_generous_target():
    assert required_rows(0.2, groups=2, keep=0.75, loss_bound=1.0, delta=math.exp(-2)) == 400
    assert required_rows(1e9, groups=2, keep=0.75, loss_bound=1.0, delta=0.1) == 1
    channel = a_channel(randomized_response(2, 0.75))
    assert required_rows(0.2, channel=channel, loss_bound=1.0, delta=math.exp(-2)) == 400


def test_required_splits_by_hand():
    # C1 = .8 / .6 = 4/3, M_g = C1 / ln 2: the most favourable reading of the paper's n1 = 2 and 4
    n1 = required_splits(0.1, groups=2, keep=0.8, bias=0.0, norm_bound=4 / 3 / math.log(2), delta=0.05, constant=1.0)
    assert n1 == 5460
    options = {"groups": 2, "keep": 0.8, "norm_bound": 2.5, "delta": 0.05}
    plain = required_splits(0.1, bias=0.0, constant=1.0, **options)
    assert required_splits(0.1, bias=0.0, constant=0.5, **options) in (2 * plain - 1, 2 * plain)
    assert required_splits(0.1, bias=0.09, constant=1.0, **options) > 100 * plain


BOUND = {"n": 100, "groups": 2, "keep": 0.8, "loss_bound": 1.0, "delta": 0.1}


@pytest.mark.parametrize(
    "change, message",
    [
        ({"n": 0}, "Got n=0"),
        ({"keep": None}, "exactly one"),
        ({"epsilon": 1.0}, "exactly one"),
        ({"keep": None, "epsilon": 0.0}, "Got epsilon=0"),
        ({"keep": None, "epsilon": math.nan}, "Got epsilon=nan"),
        ({"keep": 0.5}, "at 1/2 a report says nothing"),
        ({"keep": 1.2}, "Got keep=1.2"),
        ({"keep": math.nan}, "Got keep=nan"),
        ({"groups": 1}, r"Got 1 group\(s\)"),
        ({"groups": ["F", "F"]}, "distinct"),
        ({"groups": None}, "neither groups nor channel"),
        ({"channel": a_channel(np.eye(2))}, "expected the channel alone"),
        ({"loss_bound": math.inf}, "bounded loss"),
        ({"loss_bound": 0}, "Got loss_bound=0"),
        ({"delta": 0.0}, "between 0 and 1"),
        ({"delta": 1.0}, "between 0 and 1"),
        ({"delta": 0.4, "c1_error": 0.1}, "between 0 and 1/3"),
        ({"c1_error": 0.0}, "None when the channel is known"),
        ({"c1_error": math.inf}, "Got c1_error=inf"),
        ({"rademacher": -1.0}, "Got rademacher=-1"),
    ],
)
def test_mistakes_of_the_bound(change, message):
    with pytest.raises(ValueError, match=message):
        excess_risk_bound(**{**BOUND, **change})


def test_mistakes_of_type():
    with pytest.raises(TypeError, match=r"Got n=10.5"):
        excess_risk_bound(**{**BOUND, "n": 10.5})
    with pytest.raises(TypeError, match="expected an object with `inverse`"):
        excess_risk_bound(10, channel="rr", loss_bound=1.0, delta=0.1)
    with pytest.raises(TypeError, match=r"Got groups of type .*a list"):
        inverse_constants("FM", 0.8)
    with pytest.raises(TypeError, match=r"Got groups of type .*a list"):
        inverse_constants(True, 0.8)


def test_mistakes_of_the_channel():
    wide = a_channel(np.array([[0.6, 0.2], [0.2, 0.6], [0.2, 0.2]]))
    with pytest.raises(ValueError, match="as many reports as groups"):
        excess_risk_bound(10, channel=wide, loss_bound=1.0, delta=0.1, c1_error=0.1)
    with pytest.raises(ValueError, match=r"shape \(2,\)"):
        excess_risk_bound(10, channel=SimpleNamespace(inverse=[1, 2]), loss_bound=1.0, delta=0.1)


@pytest.mark.parametrize("target", [0.0, -1.0, math.nan, math.inf])
def test_a_wrong_target(target):
    with pytest.raises(ValueError, match="Got target="):
        required_rows(target, groups=2, keep=0.8, loss_bound=1.0, delta=0.1)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"bias": 0.1}, "averaging cannot remove a bias"),
        ({"bias": -0.1}, "0 <= bias"),
        ({"c1_error": 50.0}, "Ask for a smaller error"),
        ({"norm_bound": 1.0}, "never below the mean over log 2"),
        ({"norm_bound": math.inf}, "Got norm_bound=inf"),
        ({"constant": 0.0}, "Got constant=0"),
        ({"delta": 0.5}, "between 0 and 1/3"),
    ],
)
def test_mistakes_of_the_splits(change, message):
    right = {"c1_error": 0.1, "bias": 0.0, "norm_bound": 2.5, "delta": 0.05, "constant": 1.0}
    with pytest.raises(ValueError, match=message):
        required_splits(groups=2, keep=0.8, **{**right, **change})
