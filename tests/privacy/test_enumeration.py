"""Proof by enumeration: every integer that the system may deliver is tried, and the reports are counted."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import numpy as np
import pytest

from fairpremium.privacy import Channel, MemoizedReports, RandomizedResponse, _sampling
from helpers.privacy_audit import audit

from ._mutants import MUTANTS, FloatProbabilities


@pytest.fixture
def feed(monkeypatch):
    """Replace the operating system's entropy by chosen 32-bit words."""

    def install(words):
        chosen = np.asarray(words, dtype=np.uint64).astype("<u4").tobytes()
        stream = itertools.chain(chosen, itertools.repeat(0))
        monkeypatch.setattr("os.urandom", lambda n: bytes(itertools.islice(stream, n)))

    return install


def counts_per_input(channel, feed):
    """Counts of the reports of every group, over all u in range(N)."""
    found = {}
    for group in channel.groups:
        feed(np.arange(channel.total))
        found[group] = Counter(channel.privatize([group] * channel.total).tolist())
    return found


def expected_counts(channel):
    return {
        group: Counter({s: int(w) for s, w in zip(channel.reports, column, strict=True) if w})
        for group, column in zip(channel.groups, channel.weights.T, strict=True)
    }


def brute_force(epsilon, K, limit):
    """The largest b with floor(b e^epsilon) + (K - 1) b <= limit, by trying them all."""
    fits = [(math.floor(b * math.exp(epsilon)), b) for b in range(1, limit)]
    return max((a, b) for a, b in fits if a + (K - 1) * b <= limit)


@pytest.mark.parametrize("bits", [4, 6, 9])
@pytest.mark.parametrize("K", [2, 3, 4, 7])
@pytest.mark.parametrize("epsilon", [0.3, 0.7, 1.0, 2.0])
def test_every_integer_is_used_once_and_rightly(epsilon, K, bits, feed):
    a, b = brute_force(epsilon, K, 2**bits)
    if a == b:
        with pytest.raises(ValueError, match="too close to pure chance"):
            RandomizedResponse(range(K), epsilon=epsilon, _bits=bits)
        return
    channel = RandomizedResponse(range(K), epsilon=epsilon, _bits=bits)
    divisor = math.gcd(a, b)
    assert (channel.a, channel.b) == (a // divisor, b // divisor)
    found = counts_per_input(channel, feed)
    for group in channel.groups:
        assert found[group] == {s: channel.a if s == group else channel.b for s in channel.groups}
    assert found == expected_counts(channel)


@pytest.mark.parametrize("keep", [0.51, 0.8, 0.95])
def test_keep(keep, feed):
    channel = RandomizedResponse(["F", "M"], keep=keep)
    assert counts_per_input(channel, feed) == expected_counts(channel)


def test_general_channel(feed):
    channel = Channel(
        [[0.5, 0.1, 0.2], [0.25, 0.7, 0.1], [0.15, 0.1, 0.6], [0.1, 0.1, 0.1]],
        groups=["a", "b", "c"],
        reports=["w", "x", "y", "z"],
    )
    assert channel.total == 20
    assert counts_per_input(channel, feed) == expected_counts(channel)


def test_product_over_all_pairs_of_integers():
    a, b = RandomizedResponse(["F", "M"], keep=0.8), Channel([[0.5, 0.25], [0.5, 0.75]], groups=[0, 1])
    both = Channel.product(a, b)
    u, v = (x.ravel() for x in np.meshgrid(np.arange(a.total), np.arange(b.total), indexing="ij"))
    for d in range(4):
        codes = both._choose_all(np.full(u.size, d), [u, v])
        np.testing.assert_array_equal(np.bincount(codes, minlength=4), both.weights[:, d])


def test_words_beyond_the_last_full_round_are_thrown_away(feed):
    channel = RandomizedResponse(["F", "M"], keep=0.8)  # N = 5, and 2**32 = 5 * 858993459 + 1
    rejected = 2**32 - 1
    feed([rejected, 0, rejected, rejected, 4, 3, 9])
    assert channel.privatize(["F", "F", "F", "F"]).tolist() == ["F", "M", "F", "M"]


def test_all_words_that_are_accepted_fill_whole_rounds():
    for total in (1, 2, 3, 5, 1000, 2**31 + 1, 2**32 - 1, 2**32):
        limit = _sampling.WORD - _sampling.WORD % total
        assert limit % total == 0
        assert limit > _sampling.WORD // 2


@pytest.mark.parametrize("total", [2**32, 2**32 - 1, 2**31 + 1])
def test_large_totals(total, feed):
    feed([total - 1, 0, 1])
    assert _sampling.uniform_integers(3, total, None).tolist() == [total - 1, 0, 1]


def test_the_memo_rejects_like_the_sampler(monkeypatch):
    channel = RandomizedResponse(["F", "M"], keep=0.8)
    memo = MemoizedReports(channel, b"a secret of the tests", attribute="sex", campaign="1")
    digests = iter([b"\xff" * 32, b"\xff" * 4 + (4).to_bytes(4, "big") + bytes(24)])
    monkeypatch.setattr("hmac.digest", lambda *_: next(digests))
    assert memo.report("p", "F") == "M"  # u = 4 is a lie; all words before it are beyond the last full round


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda m: m.__name__)
def test_enumeration_finds_the_mutant(mutant, feed):
    broken = mutant(["a", "b", "c"], epsilon=1.0, _bits=7)
    honest = RandomizedResponse(["a", "b", "c"], epsilon=1.0, _bits=7)
    assert broken.total == honest.total
    assert counts_per_input(honest, feed) == expected_counts(honest)
    assert counts_per_input(broken, feed) != expected_counts(honest)


def test_enumeration_is_sharper_than_the_audit():
    # Right to 9 digits: no sample shows it, the enumeration does (above).
    channel = RandomizedResponse(["a", "b", "c"], epsilon=1.0)
    assert audit(FloatProbabilities(channel.groups, epsilon=1.0).privatize, channel) == {
        "privacy": [],
        "channel": [],
    }
