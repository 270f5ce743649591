"""The second randomized response: exact, stable, and all that a fit sees."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2

from fairpremium import Channel, RandomizedResponse
from fairpremium.parties.release._randomized import (
    compose,
    join_pieces,
    missing_share,
    mixed_channel,
    randomize_reports,
    second_channel,
)
from helpers.privacy_audit import audit

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
        return randomize_reports(keys, values, SEX, 0.7, SECRET, hidden=False).reports

    found = audit(draw, second_channel(SEX.reports, 0.7, SEX.total, hidden=False), epsilon=0.7, n=20_000)
    assert found == {"privacy": [], "channel": []}


def test_the_audit_would_see_a_second_channel_that_is_too_weak():
    def draw(values):
        keys = [f"{v} {i}" for i, v in enumerate(values)]
        return randomize_reports(keys, values, SEX, 0.9, SECRET, hidden=False).reports

    assert audit(draw, second_channel(SEX.reports, 0.7, SEX.total, hidden=False), epsilon=0.7, n=20_000)["privacy"]


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
    second = second_channel(channel.reports, 1.0, channel.total, hidden=False)
    both = compose(second, channel)
    np.testing.assert_allclose(both.matrix, second.matrix @ channel.matrix, rtol=0, atol=1e-9)
    assert both.groups == channel.groups
    assert both.reports == channel.reports
    assert both.epsilon < min(second.epsilon, channel.epsilon)


def test_it_is_exact_where_the_weights_are_small():
    second = second_channel(SEX.reports, 1.0, SEX.total, hidden=False)
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
    assert drawn.channel.epsilon < 1.0
    for d, group in enumerate(channel.groups):
        mine = drawn.reports[(group == D) & np.array([r is not None for r in drawn.reports])]
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


def test_missing_reports_stay_missing_if_participation_is_open():
    drawn = randomize_reports(names(4), ["F", None, "M", None], SEX, 1.0, SECRET, hidden=False)
    assert [r is None for r in drawn.reports] == [False, True, False, True]


def test_the_true_attribute_gets_the_second_channel_alone():
    truth = [True, False, True] * 500
    drawn = randomize_reports(names(1500), truth, None, 1.0, SECRET, groups=[False, True], hidden=False)
    assert drawn.channel == drawn.second
    hidden = randomize_reports(names(1500), truth, None, 1.0, SECRET, groups=[False, True])
    for found in (drawn, hidden):
        assert found.channel.groups == (False, True)
        assert all(r is None or isinstance(r, bool | np.bool_) for r in found.reports)
    assert hidden.channel.keep == pytest.approx(drawn.channel.keep, abs=0.03)  # up to the estimated share of no report


# --- participation ---

HIDDEN = second_channel(SEX.reports, 1.0)


def test_none_is_one_more_value_and_all_are_mixed_alike():
    """The audit over reports and "no report": every pair, bounds at 1e-6 in total."""
    rounds = iter(range(1_000_000))

    def draw(values):
        start = next(rounds) * len(values)
        keys = [f"{start + i}" for i in range(len(values))]
        stored = [(*SEX.reports, None)[v] for v in values]
        reports = randomize_reports(keys, stored, SEX, 1.0, SECRET).reports
        return [2 if r is None else SEX.reports.index(r) for r in reports]

    assert audit(draw, HIDDEN, epsilon=1.0, n=15_000) == {"privacy": [], "channel": []}


def test_the_channel_accounts_for_reports_that_stand_for_none():
    """A third did not report: among the new reports some say nothing, and the channel knows how many."""
    rng = np.random.default_rng(3)
    n = 60_000
    D = rng.choice(["F", "M"], n)
    S = np.array(SEX.privatize(D, rng=4), dtype=object)
    S[rng.random(n) < 1 / 3] = None
    drawn = randomize_reports(names(n), S, SEX, 1.0, SECRET)
    there = np.array([r is not None for r in drawn.reports])
    for d, group in enumerate(SEX.groups):
        mine = drawn.reports[there & (group == D)]
        rate = np.mean(mine == group)
        error = np.sqrt(0.25 / len(mine)) + 0.003  # and the estimated share
        assert abs(rate - drawn.channel.matrix[d, d]) < 4 * error
    full = randomize_reports(names(n), SEX.privatize(D, rng=4), SEX, 1.0, SECRET).channel
    assert drawn.channel.keep < full.keep - 0.01


def test_the_share_of_missing_reports_is_recovered():
    rng = np.random.default_rng(5)
    for share in (0.0, 0.2, 0.7):
        S = np.where(rng.random(40_000) < share, None, "F")
        drawn = randomize_reports(names(40_000), S, SEX, 1.0, SECRET)
        found = missing_share(drawn.second, float(np.mean([r is None for r in drawn.reports])))
        scale = drawn.second.keep - drawn.second.matrix[0, 1]
        assert abs(found - share) < 5 * np.sqrt(0.25 / 40_000) / scale


def test_nobody_reported_is_no_channel_but_no_error_in_a_piece():
    drawn = randomize_reports(names(400), [None] * 400, SEX, 1.0, SECRET)
    assert drawn.channel is None or drawn.channel.keep < 0.55
    with pytest.raises(ValueError, match="too few"):
        mixed_channel(HIDDEN, SEX, 1.0)


def test_pieces_are_randomized_as_the_whole_is():
    S = np.array(["F", "M", None] * 100, dtype=object)
    keys = np.array(names(300))
    whole = randomize_reports(keys, S, SEX, 1.0, SECRET)
    parts = [randomize_reports(keys[i : i + 70], S[i : i + 70], SEX, 1.0, SECRET) for i in range(0, 300, 70)]
    joined = join_pieces(parts, SEX)
    assert joined.reports.tolist() == whole.reports.tolist()
    assert (joined.second, joined.channel) == (whole.second, whole.channel)


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
