"""Merging batches: the union, whatever overlaps, and few files with few writes."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairpremium.parties import Problem
from fairpremium.parties.protocol._batch_file import ReportBatch, open_batch, sort_batch
from fairpremium.parties.protocol._policy_keys import as_keys
from fairpremium.parties.store import _batch_merge
from fairpremium.parties.store._batch_merge import Extent, drop_rows, merge_batches, plan_merge, store_batch
from fairpremium.parties.store._files import FileStore
from helpers.batches import REPORTS, batch_of, dict_of, many, overlapping


@pytest.fixture
def store(tmp_path):
    return FileStore(tmp_path / "files")


@settings(deadline=None)
@given(REPORTS, st.integers(1, 6), st.integers(1, 20), st.randoms(use_true_random=False))
def test_merging_is_the_union(tmp_path_factory, reports, count, piece, rng):
    store = FileStore(tmp_path_factory.mktemp("batches"))
    batches = overlapping(reports, count, rng)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_batch_merge, "_MERGED_ROWS", piece)
        digest = merge_batches(store, batches)
    assert dict_of(open_batch(store.path(digest))) == reports
    expected = batch_of(reports)
    width = max(batch.codes.dtype.itemsize for batch in batches)
    assert digest == store_batch(store, ReportBatch(expected.high, expected.low, expected.codes.astype(f"<u{width}")))


@settings(deadline=None)
@given(REPORTS, st.data())
def test_a_batch_without_some_rows_is_the_batch_of_the_others(tmp_path_factory, reports, data):
    store = FileStore(tmp_path_factory.mktemp("batches"))
    batch = batch_of(reports)
    dropped = sorted(data.draw(st.sets(st.integers(0, max(len(batch) - 1, 0)), max_size=len(batch))))
    gone = {bytes(batch.keys[position]) for position in dropped}
    digest = drop_rows(store, batch, dropped)
    assert dict_of(open_batch(store.path(digest))) == {k: code for k, code in reports.items() if bytes(k) not in gone}


@pytest.mark.parametrize("prefixes", [None, 5])
def test_merging_many_rows_in_pieces(store, prefixes, monkeypatch):
    monkeypatch.setattr(_batch_merge, "_MERGED_ROWS", 1000)
    reports = many(20_000, 6, prefixes)
    batches = overlapping(reports, 9, random.Random(0))
    pieces = list(_batch_merge._merged(batches))
    assert len(pieces) >= 20
    assert max(map(len, pieces)) <= 1000
    paths = [store.path(store_batch(store, batch)) for batch in batches]
    digest = merge_batches(store, [open_batch(path) for path in paths])
    assert dict_of(open_batch(store.path(digest))) == reports
    assert sorted(path.name for path in store.folder.iterdir()) == sorted({digest, *(path.name for path in paths)})


def test_merging_nothing(store):
    assert len(open_batch(store.path(merge_batches(store, [])))) == 0


def test_merging_contradictions_is_refused_and_leaves_nothing(store):
    key = b"k" * 16
    with pytest.raises(ValueError, match="different codes"):
        merge_batches(store, [batch_of({key: 0}), batch_of({key: 1})])
    assert list(store.folder.iterdir()) == []


def test_batches_of_another_meaning_are_not_merged(store):
    keys = as_keys([bytes(16)])
    batches = [sort_batch(keys, [0], meaning) for meaning in (b"a" * 32, b"b" * 32)]
    with pytest.raises(ValueError, match="meaning"):
        merge_batches(store, batches)
    digest = merge_batches(store, [batches[0], sort_batch(as_keys([b"k" * 16]), [1], b"a" * 32)])
    assert open_batch(store.path(digest)).meaning == b"a" * 32


def test_a_disk_that_is_full_while_merging(store, monkeypatch):
    monkeypatch.setenv("FAIRPREMIUM_FULL_AT", "batch.merging")
    with pytest.raises(Problem) as caught:
        merge_batches(store, [batch_of(many(100, 7))])
    assert caught.value.code == "storage-full"
    assert list(store.folder.iterdir()) == []


# --- when to merge ---


@pytest.mark.parametrize("sizes", [[1] * 3000, [250_000] * 200, [1, 1_000_000] * 100, None])
def test_few_batches_over_each_other_and_few_writes_per_row(sizes):
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
def test_batches_are_merged_when_eight_may_have_a_key_or_there_are_many(ranges):
    batches = {str(i): Extent(1000, first, last) for i, (first, last) in enumerate(ranges)}
    deepest = max((sum(first <= at <= last for first, last in ranges) for at in range(21)), default=0)
    chosen = plan_merge(batches)
    assert chosen == (tuple(batches) if deepest >= 8 or len(batches) > 64 else ())
