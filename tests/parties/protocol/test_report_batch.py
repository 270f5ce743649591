"""Batches of reports as files: against a writer of a few lines, and everything that can be wrong with one."""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import struct

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairpremium.parties import Problem
from fairpremium.parties.clients._collector import plan_batches
from fairpremium.parties.protocol._report_batch import check_batch, write_batches
from fairpremium.privacy import Channel, RandomizedResponse
from helpers.batches import write_batch

SEX = RandomizedResponse(["F", "M"], keep=0.8)


def plain(reports: dict[bytes, int], labels, descriptor, **change) -> bytes:
    """Write a batch with the standard library alone, from the documented table of bytes."""
    text = json.dumps({"channel": descriptor, "labels": list(labels)}, sort_keys=True, separators=(",", ":"))
    header = {
        "magic": b"fprun\r\n\0",
        "version": 2,
        "width": 1 if len(labels) <= 256 else 2,
        "rows": len(reports),
        "meaning": hashlib.sha256(text.encode("ascii")).digest(),
        "rest": 0,
    } | change
    keys = sorted(reports)
    first = [int.from_bytes(key[:8], "big") for key in keys]
    last = [int.from_bytes(key[8:], "big") for key in keys]
    codes = b"".join(reports[key].to_bytes(header["width"], "little") for key in keys)
    n = len(keys)
    return struct.pack("<8sIIQ32sQ", *header.values()) + struct.pack(f"<{n}Q{n}Q", *first, *last) + codes


def keys_of(rows: int, seed: int = 0) -> list[bytes]:
    rng = random.Random(seed)
    return [rng.randbytes(16) for _ in range(rows)]


@pytest.fixture
def check(tmp_path):
    """Write bytes to a file, check it, and return the reports by key."""

    def check(content, labels=("F", "M"), descriptor=SEX.descriptor()):  # noqa: B008
        path = tmp_path / "reports"
        path.write_bytes(content)
        batch = check_batch(path, labels, descriptor)
        return dict(zip(map(bytes, batch.keys.tolist()), batch.codes.tolist(), strict=True))

    return check


def refuse(check, *arguments, **more):
    with pytest.raises(Problem) as caught:
        check(*arguments, **more)
    return caught.value.code, caught.value.detail


HEADER = ("bad-batch", "its header or its length")
WIDTH = ("bad-batch", "no rows, or codes of another width")
ORDER = ("bad-batch", "keys out of order or repeated")
UNKNOWN = ("bad-batch", "a report that the study does not know")
CHANNEL = ("wrong-channel", "")


@pytest.mark.parametrize(
    ("labels", "values"),
    [
        (("F", "M"), ["M", "F", "F", "M"]),
        (("M", "F", "other"), ["M", "F", "other", "M"]),
        ((True, False), [True, False, False, True]),
        ((30, -10, 20), [20, 30, -10, 20]),
        (("ö", "x"), ["ö", "x", "x", "ö"]),
        (tuple(f"g{i}" for i in range(300)), ["g299", "g0", "g256", "g5"]),
    ],
)
@pytest.mark.parametrize("with_channel", [False, True])
def test_a_batch_is_what_a_few_lines_write(check, labels, values, with_channel):
    channel = RandomizedResponse(list(labels), keep=0.8) if with_channel else None
    descriptor = None if channel is None else channel.descriptor()
    keys = keys_of(4)
    expected = dict(zip(keys, map(labels.index, values), strict=True))
    part = write_batch(keys, values, labels, channel)
    assert part == plain(expected, labels, descriptor)
    assert part == write_batch(keys[::-1], pd.Series(values[::-1]), labels, channel)
    assert part == write_batch(np.frombuffer(b"".join(keys), "V16"), values, labels, channel)
    assert check(part, labels, descriptor) == expected


@given(st.integers(1, 200), st.integers(1, 9))
def test_batches_follow_each_other_and_are_all_reports(rows, parts):
    keys = keys_of(rows, seed=rows)
    codes = {key: i % 2 for i, key in enumerate(keys)}
    whole = write_batch(keys, ["FM"[codes[key]] for key in keys], ["F", "M"], SEX)
    made = list(write_batches(keys, ["FM"[codes[key]] for key in keys], ["F", "M"], SEX, batches=parts))
    cuts = [rows * i // parts for i in range(parts + 1)]
    ordered = sorted(keys)
    pieces = [{key: codes[key] for key in ordered[a:b]} for a, b in itertools.pairwise(cuts)]
    assert made == [plain(piece, ["F", "M"], SEX.descriptor()) for piece in pieces]
    assert sum(len(part) - 64 for part in made) == len(whole) - 64


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"magic": b"PAR1\0\0\0\0"}, HEADER),
        ({"version": 1}, HEADER),
        ({"version": 3}, HEADER),
        ({"width": 0}, HEADER),
        ({"width": 3}, HEADER),
        ({"width": 2}, WIDTH),
        ({"rows": 9}, HEADER),
        ({"rows": 11}, HEADER),
        ({"rows": 0}, HEADER),
        ({"rows": 2**63}, HEADER),
        ({"rows": 2**64 - 1}, HEADER),
        ({"rest": 1}, HEADER),
        ({"meaning": bytes(32)}, CHANNEL),
        ({"meaning": b"\xff" * 32}, CHANNEL),
    ],
)
def test_a_wrong_header_is_refused(check, change, expected):
    reports = dict.fromkeys(keys_of(10), 1)
    if change.get("width", 1) in (0, 3):  # the length stays that of width 1
        content = bytearray(plain(reports, ["F", "M"], SEX.descriptor()))
        content[12] = change["width"]
        assert refuse(check, bytes(content)) == expected
    else:
        assert refuse(check, plain(reports, ["F", "M"], SEX.descriptor(), **change)) == expected


def test_wrong_content_is_refused(check):
    keys = [bytes([i]) * 8 + bytes([j]) * 8 for i in range(3) for j in range(3)]
    good = plain(dict.fromkeys(keys, 1), ["F", "M"], SEX.descriptor())
    assert len(check(good)) == 9
    assert refuse(check, b"") == HEADER
    assert refuse(check, good[:63]) == HEADER
    assert refuse(check, good[:-1]) == HEADER
    assert refuse(check, good + b"\0") == HEADER
    assert refuse(check, plain({}, ["F", "M"], SEX.descriptor())) == WIDTH
    assert refuse(check, good[:-1] + b"\2") == UNKNOWN
    assert refuse(check, good[:-1] + b"\xff") == UNKNOWN
    first, last = 64, 64 + 9 * 8

    def swap(content, a, b):
        content = bytearray(content)
        content[a : a + 8], content[b : b + 8] = content[b : b + 8], content[a : a + 8]
        return bytes(content)

    assert refuse(check, swap(good, first, first + 8 * 8)) == ORDER
    assert refuse(check, swap(good, last, last + 8)) == ORDER  # the first eight bytes are the same
    repeated = bytearray(good)
    repeated[last + 8 : last + 16] = repeated[last : last + 8]
    assert refuse(check, bytes(repeated)) == ORDER


def test_only_reports_of_the_channel_are_taken(check):
    def part(labels=("F", "M"), channel=SEX):
        return write_batch(keys_of(1), [labels[0]], labels, channel)

    assert len(check(part())) == 1
    assert refuse(check, part(channel=None)) == CHANNEL
    assert refuse(check, part(), descriptor=None) == CHANNEL
    assert refuse(check, part(labels=("M", "F"))) == CHANNEL
    for other in (RandomizedResponse(["F", "M"], keep=0.81), RandomizedResponse(["M", "F"], keep=0.8)):
        assert refuse(check, part(channel=other)) == CHANNEL
    general = Channel([[0.8, 0.2], [0.2, 0.8]], groups=["F", "M"])
    assert refuse(check, part(channel=general)) == CHANNEL
    assert refuse(check, part((1, 0), None), (True, False), None) == CHANNEL
    assert refuse(check, part(("1", "0"), None), (1, 0), None) == CHANNEL


@given(st.data())
def test_whatever_comes_is_a_batch_or_a_problem(tmp_path_factory, data):
    """Bits flipped at random: what passes has distinct keys in order and known codes; nothing else is raised."""
    keys = keys_of(6)
    content = bytearray(plain(dict.fromkeys(keys, 1), ["F", "M"], SEX.descriptor()))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    path = tmp_path_factory.mktemp("batch") / "reports"
    path.write_bytes(content[: data.draw(st.sampled_from([len(content)] * 8 + [1, 50, 64, 100]))])
    try:
        batch = check_batch(path, ("F", "M"), SEX.descriptor())
    except Problem as problem:
        assert problem.code in ("bad-batch", "wrong-channel")  # noqa: PT017
    else:
        names = [bytes(key) for key in batch.keys.tolist()]
        assert names == sorted(set(names))
        assert set(batch.codes.tolist()) <= {0, 1}


def test_collectors_hear_what_is_wrong_before_they_send():
    keys = keys_of(2)
    with pytest.raises(ValueError, match="without a value"):
        write_batch(keys, ["F", None], ["F", "M"], SEX)
    with pytest.raises(ValueError, match="not among the declared"):
        write_batch(keys, ["F", "X"], ["F", "M"], SEX)
    with pytest.raises(ValueError, match="one key per report"):
        write_batch(keys, ["F"], ["F", "M"], SEX)
    with pytest.raises(ValueError, match="distinct"):
        write_batch([keys[0]] * 2, ["F", "M"], ["F", "M"], SEX)
    with pytest.raises(ValueError, match="several attributes"):
        write_batch(keys, [("F", 1), ("M", 2)], [("F", 1), ("M", 2)])


def test_a_table_that_grows_is_sent_in_batches_that_stay(tmp_path):
    """What was planned stays as it is; new rows become batches of their own, per study."""
    table = tmp_path / "reports.parquet"
    assert plan_batches(table, "motor", 0) == []
    assert plan_batches(table, "motor", 2_500_000) == [(2_500_000, 3)]
    assert plan_batches(table, "motor", 2_500_000) == [(2_500_000, 3)]
    assert plan_batches(table, "motor", 2_500_010) == [(2_500_000, 3), (2_500_010, 1)]
    assert plan_batches(table, "marine", 10) == [(10, 1)]
    assert plan_batches(table, "motor", 2_500_010) == [(2_500_000, 3), (2_500_010, 1)]
    with pytest.raises(ValueError, match="fewer reports than were sent"):
        plan_batches(table, "motor", 2_500_009)
