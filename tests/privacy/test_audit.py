"""The black-box audit of every path that releases reports, and mutants that it must catch."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest

from fairpremium.privacy import (
    Channel,
    MemoizedReports,
    RandomizedResponse,
    SubsetSelection,
    read_reports,
    write_reports,
)
from helpers.privacy_audit import audit, clopper_pearson

from ._mutants import (
    EpsilonDoubled,
    LieMayEqualTheTruth,
    MemoIgnoresTheAnswer,
    UnnoisedLastGroup,
    WrongK,
)

CLEAN = {"privacy": [], "channel": []}
GROUPS = ["F", "M", "not said"]
CHANNELS = {
    "two groups": RandomizedResponse(["F", "M"], epsilon=1.0),
    "three groups": RandomizedResponse(GROUPS, epsilon=1.0),
    "five groups, little privacy": RandomizedResponse(list("abcde"), epsilon=3.0),
    "integer labels": RandomizedResponse([0, 1], keep=0.6),
    "general": Channel([[0.7, 0.2], [0.3, 0.8]], groups=[False, True]),
    "more reports than groups": Channel(
        [[0.5, 0.125], [0.25, 0.25], [0.25, 0.625]], groups=["no", "yes"], reports=["-", "?", "+"]
    ),
    "subsets": SubsetSelection(list("abcde"), epsilon=0.5),
    "product": Channel.product(RandomizedResponse(["F", "M"], keep=0.8), RandomizedResponse([1, 2], epsilon=0.5)),
}


@pytest.fixture(params=list(CHANNELS))
def channel(request):
    return CHANNELS[request.param]


def test_privatize(channel):
    assert audit(channel.privatize, channel) == CLEAN


def test_memo(channel):
    memo = MemoizedReports(channel, b"a secret of the tests", attribute="sex", campaign="audit")
    keys = itertools.count()  # never the same person twice: the audit asks for independent reports
    assert audit(lambda v: memo.privatize([next(keys) for _ in v], v), channel, n=10_000) == CLEAN


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_files(channel, suffix, tmp_path):
    path = tmp_path / f"reports.{suffix}"
    width = len(channel.components)
    columns = ["report"] if width == 1 else [f"report {j}" for j in range(width)]

    def draw(values):
        table = pd.DataFrame({"policy": range(len(values))})
        drawn = channel.privatize(values)
        for j, name in enumerate(columns):
            table[name] = drawn if width == 1 else [label[j] for label in drawn]
        write_reports(path, table, channel, column=columns)
        again, its_channel = read_reports(path)
        assert its_channel == channel
        return again["report"] if width == 1 else again[columns]

    assert audit(draw, channel, n=10_000) == CLEAN


def test_simulation(channel):
    rng = np.random.default_rng(20_250_101)
    assert audit(lambda v: channel.privatize(v, rng=rng), channel) == CLEAN


# --- the audit is audited ---


@pytest.mark.parametrize("mutant", [UnnoisedLastGroup, LieMayEqualTheTruth, EpsilonDoubled, WrongK])
@pytest.mark.parametrize("groups", [GROUPS, list("abcde")], ids=len)
def test_the_audit_finds_a_broken_mechanism(mutant, groups):
    broken = mutant(groups, epsilon=1.0)
    found = audit(broken.privatize, RandomizedResponse(groups, epsilon=1.0))
    assert found["privacy"]
    assert found["channel"]


@pytest.mark.parametrize("mutant", [UnnoisedLastGroup, LieMayEqualTheTruth, EpsilonDoubled])
def test_the_audit_finds_a_broken_mechanism_with_two_groups(mutant):
    broken = mutant(["F", "M"], epsilon=1.0)
    assert audit(broken.privatize, RandomizedResponse(["F", "M"], epsilon=1.0))["privacy"]


def test_the_audit_finds_a_leak_in_either_direction():
    # Only the second group leaks, only in one report.
    leak = Channel([[0.5, 0.05], [0.5, 0.95]], groups=["a", "b"])
    declared = RandomizedResponse(["a", "b"], epsilon=1.0)
    found = audit(leak.privatize, declared, epsilon=1.0)["privacy"]
    assert found == ["P('a' | 'a') : P(same | 'b') > 2.718"]
    mirrored = Channel([[0.95, 0.5], [0.05, 0.5]], groups=["a", "b"])
    assert audit(mirrored.privatize, declared, epsilon=1.0)["privacy"] == ["P('b' | 'b') : P(same | 'a') > 2.718"]


def test_the_audit_finds_too_much_noise():
    # More private than declared is no leak, but it is not the channel that corrects.
    found = audit(RandomizedResponse(GROUPS, epsilon=0.5).privatize, RandomizedResponse(GROUPS, epsilon=1.0))
    assert not found["privacy"]
    assert found["channel"]


def test_the_audit_finds_a_memo_without_noise():
    channel = RandomizedResponse(["F", "M"], epsilon=1.0)
    memo = MemoIgnoresTheAnswer(channel, b"a secret of the tests", attribute="sex", campaign="audit")
    assert audit(lambda v: memo.privatize([""] * len(v), v), channel, n=1_000)["privacy"]


def test_clopper_pearson_against_the_definition():
    from scipy.stats import binom

    n, alpha = 50, 0.01
    low, high = clopper_pearson(np.arange(n + 1), n, alpha)
    assert low[0] == 0
    assert high[n] == 1
    k = np.arange(1, n)
    np.testing.assert_allclose(binom.sf(k - 1, n, low[k]), alpha / 2, rtol=1e-9)
    np.testing.assert_allclose(binom.cdf(k, n, high[k]), alpha / 2, rtol=1e-9)
