"""Subset selection: proof by enumeration, exact inverse, the figures it promises, and how a subset is written."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from fairpremium import Channel, RandomizedResponse, SubsetSelection
from fairpremium.privacy import MemoizedReports, draw_from_words, read_reports, write_reports
from fairpremium.privacy._exact import floor_times_exp, left_inverse

CASES = [
    (K, size, epsilon) for K, size in [(2, 1), (3, 2), (5, 1), (5, 2), (6, 3), (7, 5)] for epsilon in (0.3, 1.0, 2.0)
]


def second_moment(channel) -> Fraction:
    """E[T^-1[k, S]^2] / P(D = k) for equal groups, the largest over k, in fractions and from the definition."""
    K = len(channel.groups)
    P = [Fraction(sum(row), K * channel.total) for row in channel._weight_rows]
    return max(K * sum(p * x * x for p, x in zip(P, row, strict=True)) for row in channel.inverse_exact)


@pytest.mark.parametrize(("K", "size", "epsilon"), CASES)
def test_every_integer_is_used_once_and_rightly(K, size, epsilon, monkeypatch):
    groups = [f"g{k}" for k in range(K)]
    channel = SubsetSelection(groups, epsilon, size=size, _bits=11)
    subsets = list(itertools.combinations(groups, size))
    counts = {}
    for group in groups:
        stream = iter(np.arange(channel.total, dtype="<u4").tobytes())
        monkeypatch.setattr("os.urandom", lambda n, stream=stream: bytes(itertools.islice(stream, n)))
        drawn = channel.privatize([group] * channel.total)
        counts[group] = Counter(tuple(json.loads(report)) for report in drawn)
    for group in groups:
        assert counts[group] == {s: channel.a if group in s else channel.b for s in subsets}
        assert sum(counts[group].values()) == channel.total
    # the bound on all ratios, in integers: counts share one total, so that b e^epsilon decides
    for s in subsets:
        for d, e in itertools.permutations(groups, 2):
            assert counts[d][s] * channel.b <= counts[e][s] * channel.a
    assert channel.a <= floor_times_exp(channel.b, epsilon)
    assert channel.epsilon <= epsilon


@pytest.mark.parametrize(("K", "size"), [(3, 1), (5, 2), (6, 3), (7, 4)])
@pytest.mark.parametrize("epsilon", [0.25, 1.0])
def test_the_integers_are_the_largest_that_fit(K, size, epsilon):
    limit = 2**12
    truths, others = math.comb(K - 1, size - 1), math.comb(K - 1, size)
    fits = [(math.floor(b * math.exp(epsilon)), b) for b in range(1, limit)]
    a, b = max((a, b) for a, b in fits if truths * a + others * b <= limit)
    channel = SubsetSelection(range(K), epsilon, size=size, _bits=12)
    assert Fraction(channel.a, channel.b) == Fraction(a, b)
    full = SubsetSelection(range(K), epsilon, size=size)
    assert full.total <= 2**32
    assert 0 <= epsilon - full.epsilon < 1e-7


@pytest.mark.parametrize(("K", "size", "epsilon"), CASES)
def test_the_left_inverse_is_exact_and_the_best(K, size, epsilon):
    channel = SubsetSelection(range(K), epsilon, size=size)
    A, W = channel.inverse_exact, channel._weight_rows
    for k, d in itertools.product(range(K), repeat=2):
        assert sum(a * w[d] for a, w in zip(A[k], W, strict=True)) == channel.total * (k == d)
    # the weighted left inverse of every channel has the smallest variance for equal groups; this is the same one
    assert left_inverse(W, channel.total) == A
    np.testing.assert_array_equal(channel.matrix, channel.weights / channel.total)
    assert math.isnan(channel.keep)


def test_the_figures_of_twelve_groups():
    groups = [f"g{k}" for k in range(12)]
    chosen, response = SubsetSelection(groups, 1.0), RandomizedResponse(groups, epsilon=1.0)
    assert (chosen.size, len(chosen.reports)) == (3, 220)
    assert int(second_moment(chosen)) == 37
    assert int(second_moment(response)) == 58
    assert max(max(row) * chosen.b for row in chosen._weight_rows) <= chosen.b * floor_times_exp(chosen.b, 1.0)
    half = second_moment(RandomizedResponse(groups, epsilon=0.5)) / second_moment(SubsetSelection(groups, 0.5))
    assert 2.15 < half < 2.25


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 2.0, 5.0, 700.0, 1e308])
@pytest.mark.parametrize("K", [2, 3, 5, 9])
def test_the_size_is_the_best_of_all(K, epsilon):
    chosen = SubsetSelection(range(K), epsilon)
    assert second_moment(chosen) <= min(
        second_moment(SubsetSelection(range(K), epsilon, size=m)) for m in range(1, K)
    ) * (
        1 + Fraction(1, 10**6)  # the 32 bits round each of them differently
    )
    if chosen.size == 1:
        response = RandomizedResponse(range(K), epsilon=epsilon)
        assert (chosen.a, chosen.b, chosen.total) == (response.a, response.b, response.total)
        assert chosen.inverse_exact == response.inverse_exact


# --- how a report is written ---

HOSTILE = ["a,b", 'with "quotes"', "[bracket]", "back\\slash", "umlaut ä", "NA", " space ", "1", "line\nbreak"]


@pytest.mark.parametrize("suffix", ["csv", "parquet", "xlsx"])
def test_labels_with_any_content_survive_files(suffix, tmp_path):
    groups = HOSTILE if suffix != "xlsx" else HOSTILE[:-1]
    channel = SubsetSelection(groups, 0.8, size=2)
    values = groups * 20
    table = pd.DataFrame({"policy": range(len(values)), "report": channel.privatize(values)})
    path = tmp_path / f"reports.{suffix}"
    write_reports(path, table, channel)
    again, its_channel = read_reports(path)
    assert its_channel == channel
    assert isinstance(its_channel, SubsetSelection)
    assert again["report"].tolist() == table["report"].tolist()
    np.testing.assert_array_equal(its_channel.encode(again["report"]), channel.encode(table["report"]))


def test_a_report_is_a_list_in_json_of_its_groups_in_order():
    channel = SubsetSelection([3, "3", True, 2.5, ("F", 1)][:4], 1.0, size=2)
    assert channel.reports[:3] == ('[3,"3"]', "[3,true]", "[3,2.5]")
    assert channel.subsets[:3] == ((3, "3"), (3, True), (3, 2.5))
    pairs = SubsetSelection([("F", 1), ("F", 2), ("M", 1)], 1.0, size=2)
    assert pairs.reports[0] == '[["F",1],["F",2]]'
    assert set(pairs.privatize([("F", 1), ("M", 1)])) <= set(pairs.reports)
    assert channel.encode([channel.reports[4], None]).tolist() == [4, -1]
    for other in ('["3",3]', '[3, "3"]', "3", "[3]"):
        with pytest.raises(ValueError, match="not among the declared labels"):
            channel.encode([other])


def test_descriptors_and_their_mutants():
    channel = SubsetSelection(list("abcdef"), 1.0)
    sent = json.loads(json.dumps(channel.descriptor()))
    assert sent["scheme"] == "subset-selection/1"
    assert {"size", "a", "b", "reports", "groups", "epsilon", "sha256"} < set(sent)
    again = Channel.from_descriptor(sent)
    assert again == channel
    assert again.subsets == channel.subsets
    for change in ({"a": sent["a"] + 1}, {"size": 3}, {"size": 6}, {"size": 0}, {"epsilon": 0.5}, {"b": 0}, {"a": 1.5}):
        assert not channel.matches({**sent, **change})
    assert not channel.matches(SubsetSelection(list("abcdef"), 1.1).descriptor())


def test_memoized_words_and_products():
    channel = SubsetSelection(list("abcdefg"), 1.0)
    memo = MemoizedReports(channel, b"a secret of the tests", attribute="origin", campaign="1")
    assert memo.report("p", "a") == memo.report("p", "a")
    values = ["a", "b", "g"]
    assert draw_from_words(channel, values, [[1], [2], [3]]).tolist() == [
        channel.reports[int(channel._choose(np.array([d]), np.array([u]))[0])] for d, u in [(0, 1), (1, 2), (6, 3)]
    ]
    both = Channel.product(channel, RandomizedResponse(["F", "M"], keep=0.8))
    assert math.isclose(both.epsilon, channel.epsilon + math.log(4))
    np.testing.assert_allclose(both.inverse @ both.matrix, np.eye(14), atol=1e-9)
    assert Channel.from_descriptor(both.descriptor()) == both


# --- what is refused ---


def test_too_many_subsets():
    with pytest.raises(
        ValueError, match=r"167960 different reports, but expected at most 4096.*size=3 \(1140 reports\)"
    ):
        SubsetSelection(range(20), 0.1)
    assert SubsetSelection(range(20), 0.1, size=3).size == 3
    with pytest.raises(ValueError, match="20 groups and size=10"):
        SubsetSelection(range(20), 1.0, size=10)
    with pytest.raises(ValueError, match="What helps"):
        SubsetSelection.from_integers(range(20), 10, 2, 1)


@pytest.mark.parametrize("size", [0, 3, -1, 1.0, True, "2"])
def test_other_sizes(size):
    with pytest.raises(ValueError, match="Got size="):
        SubsetSelection(["a", "b", "c"], 1.0, size=size)


@pytest.mark.parametrize("epsilon", [0, -1, math.nan, math.inf, True, "1", None])
def test_other_epsilons(epsilon):
    with pytest.raises((TypeError, ValueError), match="epsilon"):
        SubsetSelection(["a", "b", "c"], epsilon)


def test_pure_chance_is_refused():
    with pytest.raises(ValueError, match="too close to pure chance"):
        SubsetSelection(list("abcdef"), 1e-12)
    for a, b in [(1, 1), (4, 2), (2**32, 1), (1, 2)]:
        with pytest.raises(ValueError, match="a > b >= 1"):
            SubsetSelection.from_integers(list("abcdef"), 2, a, b)
