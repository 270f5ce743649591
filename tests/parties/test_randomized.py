"""The second randomized response: exact, stable, and all that a fit sees."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chi2

from fairpremium import Channel, RandomizedResponse
from fairpremium.parties._randomized import compose, randomize_reports, second_channel

_spec = importlib.util.spec_from_file_location("_audit", Path(__file__).parents[1] / "privacy" / "_audit.py")
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)
audit = _module.audit  # the black-box audit that every public path of reports has to pass

SECRET = b"a secret of the study"
SEX = RandomizedResponse(["F", "M"], keep=0.8)


def names(n):
    return [f"key {i}" for i in range(n)]


def test_the_second_channel_keeps_its_epsilon_by_a_black_box_audit():
    """Every pair of stored reports, bounds at 1e-6 in total."""
    rounds = iter(range(1_000_000))

    def draw(values):
        start = next(rounds) * len(values)
        keys = [f"{start + i}" for i in range(len(values))]
        return randomize_reports(keys, values, SEX, 0.7, SECRET).reports

    found = audit(draw, second_channel(SEX.reports, 0.7, SEX.total), epsilon=0.7, n=20_000)
    assert found == {"privacy": [], "channel": []}


def test_the_audit_would_see_a_second_channel_that_is_too_weak():
    def draw(values):
        keys = [f"{v} {i}" for i, v in enumerate(values)]
        return randomize_reports(keys, values, SEX, 0.9, SECRET).reports

    assert audit(draw, second_channel(SEX.reports, 0.7, SEX.total), epsilon=0.7, n=20_000)["privacy"]


@pytest.mark.parametrize(
    "channel",
    [
        SEX,
        RandomizedResponse(["a", "b", "c"], epsilon=1.0),
        Channel([[0.7, 0.1], [0.2, 0.3], [0.1, 0.6]], groups=["no", "yes"], reports=["n", "?", "y"]),
        Channel.product(SEX, RandomizedResponse([0, 1], keep=0.9)),
    ],
)
def test_the_composed_channel_is_the_product(channel):
    second = second_channel(channel.reports, 1.0, channel.total)
    both = compose(second, channel)
    np.testing.assert_allclose(both.matrix, second.matrix @ channel.matrix, rtol=0, atol=1e-9)
    assert both.groups == channel.groups
    assert both.reports == channel.reports
    assert both.epsilon < min(second.epsilon, channel.epsilon)


def test_it_is_exact_where_the_weights_are_small():
    second = second_channel(SEX.reports, 1.0, SEX.total)
    both = compose(second, SEX)
    assert isinstance(both, RandomizedResponse)
    assert both.total in (second.total * 5, second.total)  # up to a common divisor
    a, b = second.a, second.b
    assert both.a * (a + 4 * b) == both.b * (4 * a + b)  # the odds 4 : 1 of SEX, then a : b


def test_frequencies_follow_the_composed_channel():
    rng = np.random.default_rng(0)
    channel = RandomizedResponse(["a", "b", "c"], epsilon=1.5)
    D = rng.choice(["a", "b", "c"], size=30_000, p=[0.6, 0.3, 0.1])
    drawn = randomize_reports(names(len(D)), channel.privatize(D, rng=1), channel, 1.0, SECRET)
    for d, group in enumerate(channel.groups):
        mine = drawn.reports[group == D]
        count = np.array([(mine == s).sum() for s in channel.reports])
        expected = drawn.channel.matrix[:, d] * len(mine)
        assert ((count - expected) ** 2 / expected).sum() < chi2.ppf(1 - 1e-6, 2)


def test_the_same_key_gives_the_same_report_in_any_company():
    reports = np.array(["F", "M"] * 200)
    keys = np.array(names(400))
    first = randomize_reports(keys, reports, SEX, 1.0, SECRET).reports
    pick = np.random.default_rng(2).permutation(400)[:150]
    again = randomize_reports(keys[pick], reports[pick], SEX, 1.0, SECRET).reports
    assert again.tolist() == first[pick].tolist()
    other = randomize_reports(keys, reports, SEX, 1.0, SECRET + b"!").reports
    assert other.tolist() != first.tolist()


def test_missing_reports_stay_missing():
    drawn = randomize_reports(names(4), ["F", None, "M", None], SEX, 1.0, SECRET)
    assert [r is None for r in drawn.reports] == [False, True, False, True]


def test_the_true_attribute_gets_the_second_channel_alone():
    drawn = randomize_reports(names(3), [True, False, True], None, 1.0, SECRET, groups=[False, True])
    assert drawn.channel == drawn.second
    assert drawn.channel.groups == (False, True)
    assert all(isinstance(r, bool | np.bool_) for r in drawn.reports)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"keys": ["a", "a"]}, "repeated"),
        ({"keys": ["a"]}, "one each"),
        ({"secret": b"short"}, "secret"),
        ({"epsilon": 0.0}, "epsilon"),
        ({"channel": None}, "groups"),
        ({"reports": ["F", "X"]}, "not among"),
    ],
)
def test_mistakes_are_refused(arguments, message):
    given = {"keys": ["a", "b"], "reports": ["F", "M"], "channel": SEX, "epsilon": 1.0, "secret": SECRET} | arguments
    with pytest.raises(ValueError, match=message):
        randomize_reports(**given)
