"""Runs against a plain dict, with keys that begin alike as often as not."""

from __future__ import annotations

import hashlib
import math
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairpremium.parties import Problem
from fairpremium.parties.protocol import _policy_keys
from fairpremium.parties.protocol._batch_file import ReportBatch, find_codes, match, open_batch, sort_batch
from fairpremium.parties.protocol._policy_keys import as_keys, from_words, has_repeats, is_sorted, sort_words, to_words
from fairpremium.parties.store import _batch_merge
from fairpremium.parties.store._batch_merge import Extent, merge_batches, plan_merge, store_batch
from fairpremium.parties.store._files import FileStore

ENDS = [bytes(8), b"\xff" * 8, b"\0" * 7 + b"\1", b"\1" + b"\0" * 7, b"\x7f" + b"\xff" * 7, b"\x80" + b"\0" * 7]
WORDS = st.sampled_from(ENDS) | st.binary(min_size=8, max_size=8)
KEYS = st.builds(bytes.__add__, WORDS, WORDS)
CODES = st.integers(0, 300)
REPORTS = st.dictionaries(KEYS, CODES, max_size=60)


@pytest.fixture
def store(tmp_path):
    return FileStore(tmp_path / "files")


def run_of(reports: dict[bytes, int]) -> ReportBatch:
    return sort_batch(as_keys(list(reports)), np.array(list(reports.values()), dtype=np.int64))


def dict_of(run: ReportBatch) -> dict[bytes, int]:
    keys = [bytes(key) for key in run.keys.tolist()]
    assert keys == sorted(set(keys))
    return dict(zip(keys, run.codes.tolist(), strict=True))


def many(rows: int, seed: int, prefixes: int | None = None) -> dict[bytes, int]:
    """Random reports; with few prefixes, keys that share their first eight bytes."""
    rng = random.Random(seed)
    some = [rng.randbytes(8) for _ in range(prefixes or 0)]
    return {(rng.choice(some) if some else rng.randbytes(8)) + rng.randbytes(8): rng.randrange(3) for _ in range(rows)}


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


# --- one run ---


@given(REPORTS, st.lists(KEYS, max_size=60))
def test_lookup_is_that_of_a_dict(reports, others):
    run = run_of(reports)
    assert dict_of(run) == reports
    wanted = [*others, *reports]
    random.Random(0).shuffle(wanted)
    assert match(as_keys(wanted), [run]).tolist() == [reports.get(key, -1) for key in wanted]


@pytest.mark.parametrize("prefixes", [None, 1, 7, 3000])
def test_lookup_of_many(prefixes):
    reports = many(20_000, 1, prefixes)
    others = many(5000, 1 if prefixes else 2, prefixes)
    wanted = [*reports, *others, *(key[:15] + b"\0" for key in reports)]
    random.Random(0).shuffle(wanted)
    expected = [reports.get(key, -1) for key in wanted]
    assert match(as_keys(wanted), [run_of(reports)]).tolist() == expected
    ordered = sorted(wanted)
    assert match(as_keys(ordered), [run_of(reports)]).tolist() == [reports.get(key, -1) for key in ordered]


@given(REPORTS, REPORTS)
def test_what_is_known_in_some_runs(reports, others):
    """A batch that shares every other key with what is there."""
    batch = run_of(others | dict(list(reports.items())[::2]))
    halves = [run_of(dict(list(reports.items())[i::2])) for i in range(2)]
    keys = [bytes(key) for key in batch.keys.tolist()]
    assert find_codes(batch.high, batch.low, halves).tolist() == [reports.get(key, -1) for key in keys]


def test_ranges_that_touch():
    """Runs that share a first or a last key, or the first half of one, with what is looked for."""
    keys = [bytes([a]) * 8 + bytes([b]) * 8 for a in range(5) for b in range(3)]
    for start in range(len(keys)):
        for stop in range(start + 1, len(keys) + 1):
            run = run_of(dict.fromkeys(keys[start:stop], 7))
            assert match(as_keys(keys), [run]).tolist() == [7 if start <= i < stop else -1 for i in range(len(keys))]


def test_runs_take_distinct_keys_with_small_codes():
    keys = as_keys([bytes(16), b"\1" * 16])
    with pytest.raises(ValueError, match="distinct"):
        sort_batch(as_keys([bytes(16)] * 2), [0, 0])
    with pytest.raises(ValueError, match="one code per key"):
        sort_batch(keys, [0])
    for codes in ([0, -1], [0, 2**16]):
        with pytest.raises(ValueError, match="between 0 and 65535"):
            sort_batch(keys, codes)
    assert sort_batch(keys, [0, 255]).codes.dtype == np.uint8
    assert sort_batch(keys, [0, 256]).codes.dtype == np.uint16
    assert sort_batch(keys, np.array([0, 1], np.uint16)).codes.dtype == np.uint16


# --- files ---


@pytest.mark.parametrize("rows", [0, 1, 2, 1000])
@pytest.mark.parametrize("code", [0, 300])
def test_a_run_comes_back_from_its_file(store, rows, code):
    reports = dict.fromkeys(many(rows, 3), code)
    digest = store_batch(store, run_of(reports))
    assert digest == hashlib.sha256(store.path(digest).read_bytes()).hexdigest()
    assert digest == store_batch(store, run_of(dict(sorted(reports.items(), reverse=True))))
    run = open_batch(store.path(digest))
    assert dict_of(run) == reports
    assert match(as_keys(list(reports)), [run]).tolist() == [code] * rows
    assert match(as_keys([bytes(16)]), [run]).tolist() == [-1]


def test_the_file_is_plain_arrays(store):
    reports = many(100, 4)
    content = store.path(store_batch(store, run_of(reports))).read_bytes()
    words = np.frombuffer(content, "<u8", 200, offset=64).reshape(2, 100)
    keys = [int(a).to_bytes(8, "big") + int(b).to_bytes(8, "big") for a, b in words.T]
    assert keys == sorted(reports)
    assert list(content[64 + 1600 :]) == [reports[key] for key in keys]


@pytest.mark.parametrize("damage", ["short", "long", "empty", "magic", "version", "width", "rows", "rest"])
def test_a_damaged_run_is_not_opened(store, damage):
    path = store.path(store_batch(store, run_of(many(100, 5))))
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


# --- many runs ---


def overlapping(reports: dict[bytes, int], count: int, rng: random.Random) -> list[ReportBatch]:
    """Runs whose union are the reports; some are in several."""
    parts: list[dict[bytes, int]] = [{} for _ in range(count)]
    for key, code in reports.items():
        for part in rng.sample(parts, rng.choice([1, 1, 1, min(2, count)])):
            part[key] = code
    return [run_of(part) for part in parts]


@settings(deadline=None)
@given(REPORTS, st.integers(1, 6), st.integers(1, 20), st.randoms(use_true_random=False))
def test_merging_is_the_union(tmp_path_factory, reports, count, piece, rng):
    store = FileStore(tmp_path_factory.mktemp("runs"))
    runs = overlapping(reports, count, rng)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_batch_merge, "_MERGED_ROWS", piece)
        digest = merge_batches(store, runs)
    assert dict_of(open_batch(store.path(digest))) == reports
    expected = run_of(reports)
    width = max(run.codes.dtype.itemsize for run in runs)
    assert digest == store_batch(store, ReportBatch(expected.high, expected.low, expected.codes.astype(f"<u{width}")))


@pytest.mark.parametrize("prefixes", [None, 5])
def test_merging_many_rows_in_pieces(store, prefixes, monkeypatch):
    monkeypatch.setattr(_batch_merge, "_MERGED_ROWS", 1000)
    reports = many(20_000, 6, prefixes)
    runs = overlapping(reports, 9, random.Random(0))
    pieces = list(_batch_merge._merged(runs))
    assert len(pieces) >= 20
    assert max(map(len, pieces)) <= 1000
    paths = [store.path(store_batch(store, run)) for run in runs]
    digest = merge_batches(store, [open_batch(path) for path in paths])
    assert dict_of(open_batch(store.path(digest))) == reports
    assert sorted(path.name for path in store.folder.iterdir()) == sorted({digest, *(path.name for path in paths)})


def test_merging_nothing(store):
    assert len(open_batch(store.path(merge_batches(store, [])))) == 0


def test_merging_contradictions_is_refused_and_leaves_nothing(store):
    key = b"k" * 16
    with pytest.raises(ValueError, match="different codes"):
        merge_batches(store, [run_of({key: 0}), run_of({key: 1})])
    assert list(store.folder.iterdir()) == []


def test_runs_of_another_meaning_are_not_merged(store):
    keys = as_keys([bytes(16)])
    runs = [sort_batch(keys, [0], meaning) for meaning in (b"a" * 32, b"b" * 32)]
    with pytest.raises(ValueError, match="meaning"):
        merge_batches(store, runs)
    digest = merge_batches(store, [runs[0], sort_batch(as_keys([b"k" * 16]), [1], b"a" * 32)])
    assert open_batch(store.path(digest)).meaning == b"a" * 32


def test_a_disk_that_is_full_while_merging(store, monkeypatch):
    monkeypatch.setenv("FAIRPREMIUM_FULL_AT", "batch.merging")
    with pytest.raises(Problem) as caught:
        merge_batches(store, [run_of(many(100, 7))])
    assert caught.value.code == "storage-full"
    assert list(store.folder.iterdir()) == []


@given(REPORTS, REPORTS, st.lists(KEYS, max_size=30), st.randoms(use_true_random=False))
def test_the_join_is_that_of_dicts(reports, singles, others, rng):
    singles = {key: code for key, code in singles.items() if key not in reports}
    runs = overlapping(reports, 3, rng)
    known = {**reports, **singles}
    portfolio = [*others, *known]
    rng.shuffle(portfolio)
    codes = match(as_keys(portfolio), runs, run_of(singles))
    assert codes.tolist() == [known.get(key, -1) for key in portfolio]
    assert match(as_keys(portfolio), []).tolist() == [-1] * len(portfolio)


# --- when to merge ---


@pytest.mark.parametrize("sizes", [[1] * 3000, [250_000] * 200, [1, 1_000_000] * 100, None])
def test_few_runs_over_each_other_and_few_writes_per_row(sizes):
    sizes = sizes or [random.Random(0).randrange(1, 100_000) for _ in range(2000)]
    alive: dict[str, Extent] = {}
    written = total = 0
    for number, rows in enumerate(sizes):
        alive[f"new {number}"] = Extent(rows, 0, 99)
        total += rows
        written += rows
        while chosen := plan_merge(alive):
            assert len(chosen) == len(set(chosen)) >= 8
            merged = sum(alive.pop(name).rows for name in chosen)
            alive[f"merged {number} {len(alive)}"] = Extent(merged, 0, 99)
            written += merged
        tiers = 2 + max(0, math.log(max(total, 4096) / 4096, 8))
        assert len(alive) <= 7 * tiers
    assert sum(extent.rows for extent in alive.values()) == total
    small = sum(rows for rows in sizes if rows < 4096)
    assert written <= total * (1 + tiers) + small * 4096 / 8


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)).map(sorted), max_size=80))
def test_runs_are_merged_when_eight_may_have_a_key_or_there_are_many(ranges):
    runs = {str(i): Extent(1000, first, last) for i, (first, last) in enumerate(ranges)}
    deepest = max((sum(first <= at <= last for first, last in ranges) for at in range(21)), default=0)
    chosen = plan_merge(runs)
    assert chosen == (tuple(runs) if deepest >= 8 or len(runs) > 64 else ())
