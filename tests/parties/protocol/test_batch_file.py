"""Batches against a plain dict, with keys that begin alike as often as not."""

from __future__ import annotations

import hashlib
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairpremium.parties.protocol import _policy_keys
from fairpremium.parties.protocol._batch_file import find_codes, match, open_batch, sort_batch
from fairpremium.parties.protocol._policy_keys import as_keys, from_words, has_repeats, is_sorted, sort_words, to_words
from fairpremium.parties.store._batch_merge import store_batch
from fairpremium.parties.store._files import FileStore
from helpers.batches import KEYS, REPORTS, batch_of, dict_of, many, overlapping


@pytest.fixture
def store(tmp_path):
    return FileStore(tmp_path / "files")


# --- keys ---


@given(st.lists(KEYS, max_size=50))
def test_keys_sort_as_bytes_do(values):
    keys = as_keys(values)
    high, low = to_words(keys)
    assert [bytes(key) for key in from_words(high, low).tolist()] == values
    assert sort_words(high, low).tolist() == sorted(range(len(values)), key=values.__getitem__)
    assert is_sorted(high, low) == (values == sorted(values))
    assert is_sorted(high, low, distinct=True) == (values == sorted(set(values)))
    assert has_repeats(keys) == (len(set(values)) < len(values))
    assert has_repeats(as_keys(sorted(values))) == (len(set(values)) < len(values))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_policy_keys, "_AT_A_TIME", 2)
        assert has_repeats(keys) == (len(set(values)) < len(values))


def test_many_keys_whose_first_bits_agree():
    """Enough rows that the numbers of rows take the place of many bits of their keys."""
    rng = np.random.default_rng(0)
    high = rng.integers(0, 2**20, 100_000, dtype=np.uint64)
    low = rng.integers(0, 3, 100_000, dtype=np.uint64)
    assert np.array_equal(sort_words(high, low), np.lexsort((low, high)))


# --- one batch ---


@given(REPORTS, st.lists(KEYS, max_size=60))
def test_lookup_is_that_of_a_dict(reports, others):
    batch = batch_of(reports)
    assert dict_of(batch) == reports
    wanted = [*others, *reports]
    random.Random(0).shuffle(wanted)
    assert match(as_keys(wanted), [batch]).tolist() == [reports.get(key, -1) for key in wanted]


@pytest.mark.parametrize("prefixes", [None, 1, 7, 3000])
def test_lookup_of_many(prefixes):
    reports = many(20_000, 1, prefixes)
    others = many(5000, 1 if prefixes else 2, prefixes)
    wanted = [*reports, *others, *(key[:15] + b"\0" for key in reports)]
    random.Random(0).shuffle(wanted)
    expected = [reports.get(key, -1) for key in wanted]
    assert match(as_keys(wanted), [batch_of(reports)]).tolist() == expected
    ordered = sorted(wanted)
    assert match(as_keys(ordered), [batch_of(reports)]).tolist() == [reports.get(key, -1) for key in ordered]


@given(REPORTS, REPORTS)
def test_what_is_known_in_some_batches(reports, others):
    """A batch that shares every other key with what is there."""
    batch = batch_of(others | dict(list(reports.items())[::2]))
    halves = [batch_of(dict(list(reports.items())[i::2])) for i in range(2)]
    keys = [bytes(key) for key in batch.keys.tolist()]
    assert find_codes(batch.high, batch.low, halves).tolist() == [reports.get(key, -1) for key in keys]


def test_ranges_that_touch():
    """Batches that share a first or a last key, or the first half of one, with what is looked for."""
    keys = [bytes([a]) * 8 + bytes([b]) * 8 for a in range(5) for b in range(3)]
    for start in range(len(keys)):
        for stop in range(start + 1, len(keys) + 1):
            batch = batch_of(dict.fromkeys(keys[start:stop], 7))
            assert match(as_keys(keys), [batch]).tolist() == [7 if start <= i < stop else -1 for i in range(len(keys))]


def test_batches_take_distinct_keys_with_small_codes():
    keys = as_keys([bytes(16), b"\1" * 16])
    with pytest.raises(ValueError, match="distinct"):
        sort_batch(as_keys([bytes(16)] * 2), [0, 0])
    with pytest.raises(ValueError, match="one code per key"):
        sort_batch(keys, [0])
    for codes in ([0, -1], [0, 2**16]):
        with pytest.raises(ValueError, match="expected 0 to 65535"):
            sort_batch(keys, codes)
    assert sort_batch(keys, [0, 255]).codes.dtype == np.uint8
    assert sort_batch(keys, [0, 256]).codes.dtype == np.uint16
    assert sort_batch(keys, np.array([0, 1], np.uint16)).codes.dtype == np.uint16


# --- files ---


@pytest.mark.parametrize("rows", [0, 1, 2, 1000])
@pytest.mark.parametrize("code", [0, 300])
def test_a_batch_comes_back_from_its_file(store, rows, code):
    reports = dict.fromkeys(many(rows, 3), code)
    digest = store_batch(store, batch_of(reports))
    assert digest == hashlib.sha256(store.path(digest).read_bytes()).hexdigest()
    assert digest == store_batch(store, batch_of(dict(sorted(reports.items(), reverse=True))))
    batch = open_batch(store.path(digest))
    assert dict_of(batch) == reports
    assert match(as_keys(list(reports)), [batch]).tolist() == [code] * rows
    assert match(as_keys([bytes(16)]), [batch]).tolist() == [-1]


def test_the_file_is_plain_arrays(store):
    reports = many(100, 4)
    content = store.path(store_batch(store, batch_of(reports))).read_bytes()
    words = np.frombuffer(content, "<u8", 200, offset=64).reshape(2, 100)
    keys = [int(a).to_bytes(8, "big") + int(b).to_bytes(8, "big") for a, b in words.T]
    assert keys == sorted(reports)
    assert list(content[64 + 1600 :]) == [reports[key] for key in keys]


@pytest.mark.parametrize("damage", ["short", "long", "empty", "magic", "version", "width", "rows", "rest"])
def test_a_damaged_batch_is_not_opened(store, damage):
    path = store.path(store_batch(store, batch_of(many(100, 5))))
    content = bytearray(path.read_bytes())
    if damage == "short":
        del content[-1]
    elif damage == "long":
        content.append(0)
    elif damage == "empty":
        content.clear()
    else:
        content[{"magic": 0, "version": 8, "width": 12, "rows": 16, "rest": 63}[damage]] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="batch"):
        open_batch(path)


# --- many batches ---


@given(REPORTS, REPORTS, st.lists(KEYS, max_size=30), st.randoms(use_true_random=False))
def test_the_join_is_that_of_dicts(reports, singles, others, rng):
    singles = {key: code for key, code in singles.items() if key not in reports}
    batches = overlapping(reports, 3, rng)
    known = {**reports, **singles}
    portfolio = [*others, *known]
    rng.shuffle(portfolio)
    codes = match(as_keys(portfolio), [*batches, batch_of(singles)])
    assert codes.tolist() == [known.get(key, -1) for key in portfolio]
    assert match(as_keys(portfolio), []).tolist() == [-1] * len(portfolio)
