"""Keys of policies: HMAC-SHA-256 of the text as it is written, and nothing that tells the text."""

import copy
import hmac
import pickle
import stat
import time
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairpremium.parties.protocol._linkage import (
    LinkageSecret,
    make_key,
    make_keys,
    new_secret,
    read_secret,
    write_secret,
)

RAW = bytes(range(32))
SECRET = LinkageSecret(RAW)


def slow(policy):
    return hmac.new(RAW, str(policy).encode("utf-8"), "sha256").digest()[:16]


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200)


@given(st.lists(TEXTS | st.integers(), unique_by=str, max_size=20))
def test_keys_are_the_hmac_of_the_text(policies):
    keys = make_keys(SECRET, policies)
    assert keys.type == pa.binary(16)
    assert keys.to_pylist() == [slow(policy) for policy in policies]
    assert [make_key(SECRET, policy) for policy in policies] == keys.to_pylist()


def test_a_key_that_ends_in_zeros_stays_whole():
    policy = next(i for i in range(100_000) if slow(i).endswith(b"\0"))
    assert make_key(SECRET, policy) == slow(policy)
    assert len(make_keys(SECRET, [policy])[0].as_py()) == 16


@pytest.mark.parametrize(
    "column",
    [
        [7, 8],
        ["7", "8"],
        (7, "8"),
        np.array([7, 8], dtype=np.uint16),
        np.array(["7", "8"]),
        np.array([7, "8"], dtype=object),
        [np.int32(7), np.str_("8")],
        pd.Series([7, 8], index=[5, 5]),
        pd.Series(["7", "8"]),
        pd.Series([7, 8], dtype="Int64"),
        pd.Series(["7", "8"], dtype="category"),
        pl.Series([7, 8]),
        pl.Series(["7", "8"]),
        pa.array(["7", "8"]),
        pa.chunked_array([[7], [8]]),
        pa.array(["7", "8"]).dictionary_encode(),
        (str(i) for i in (7, 8)),
    ],
    ids=lambda c: f"{type(c).__module__}.{type(c).__name__}",
)
def test_a_number_is_its_text_in_every_column(column):
    assert make_keys(SECRET, column).to_pylist() == [slow(7), slow(8)]


def test_nothing_is_normalised():
    written = ["7", "07", "7 ", " 7", "7.0", "７", "a", "A", "é", "e\u0301", "7\n", "7\0"]
    assert len(set(make_keys(SECRET, written).to_pylist())) == len(written)
    assert make_keys(SECRET, []).to_pylist() == []


@pytest.mark.parametrize(
    "column",
    [
        ["canary", None],
        ["canary", float("nan")],
        ["canary", ""],
        ["canary", pd.NA],
        ["canary", pd.NaT],
        pd.Series(["canary", None]),
        pd.Series([4711, None], dtype="Int64"),
        pd.Series([4711, None]),
        pa.array(["canary", None]),
        pl.Series(["canary", None]),
        np.array([np.nan, 4711.0]),
    ],
)
def test_missing_numbers_are_refused_without_a_word_of_the_others(column):
    with pytest.raises((ValueError, TypeError)) as caught:
        make_keys(SECRET, column)
    assert "canary" not in str(caught.value)
    assert "4711" not in str(caught.value)
    assert "missing" in str(caught.value) or "float" in str(caught.value)


@pytest.mark.parametrize("column", [["canary", "b", "canary"], [4711, "4711"], pd.Series([4711, 4711])])
def test_repeated_numbers_are_refused_without_saying_which(column):
    with pytest.raises(ValueError, match="same policy number") as caught:
        make_keys(SECRET, column)
    assert "canary" not in str(caught.value)
    assert "4711" not in str(caught.value)


@pytest.mark.parametrize(
    "value", [4711.0, True, b"4711", Decimal(4711), ("4711",), np.float32(4711), pd.Timestamp("2020-04-07")]
)
def test_other_kinds_of_numbers_are_refused(value):
    with pytest.raises(TypeError, match="expected text or integers") as caught:
        make_keys(SECRET, ["a", value])
    assert "4711" not in str(caught.value)


def test_other_arguments_are_refused():
    with pytest.raises(TypeError, match="one text"):
        make_keys(SECRET, "4711")
    with pytest.raises(TypeError, match="LinkageSecret"):
        make_keys(RAW, ["4711"])
    with pytest.raises(ValueError, match="one column"):
        make_keys(SECRET, np.array([["4711"]]))
    with pytest.raises(ValueError, match="surrogates"):
        make_keys(SECRET, ["\ud800"])
    for value in (b"", bytes(31), bytes(33), "a" * 32, bytearray(32)):
        with pytest.raises(ValueError, match="32 bytes"):
            LinkageSecret(value)


def test_another_secret_gives_other_keys():
    assert make_key(new_secret(), "a") != make_key(new_secret(), "a")


def test_the_secret_shows_nowhere():
    shown = f"{SECRET} {SECRET!r} {SECRET.fingerprint} {dir(SECRET)}"
    assert RAW.hex() not in shown
    assert repr(RAW)[2:-1] not in shown
    for use in (pickle.dumps, copy.copy, copy.deepcopy, lambda s: pickle.dumps([s], 5)):
        with pytest.raises(TypeError, match="not pickled"):
            use(SECRET)
    assert LinkageSecret(RAW) == SECRET
    assert SECRET.fingerprint == LinkageSecret(RAW).fingerprint != new_secret().fingerprint


def test_a_secret_survives_its_file(tmp_path):
    path = tmp_path / "study.secret"
    write_secret(path, SECRET)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_secret(path) == SECRET
    with pytest.raises(FileExistsError, match="not overwritten"):
        write_secret(path, new_secret())
    path.chmod(0o640)
    with pytest.raises(PermissionError, match="chmod 600"):
        read_secret(path)
    path.chmod(0o600)
    for content in (b"", RAW, RAW.hex().encode(), path.read_bytes()[:-2], path.read_bytes() + b"\n", b"\xff" * 80):
        other = tmp_path / "other"
        other.write_bytes(content)
        other.chmod(0o600)
        with pytest.raises(ValueError, match="expected the secret of a study"):
            read_secret(other)


def test_five_million_keys_take_seconds():
    policies = [f"POL-{i:08d}" for i in range(100_000)]
    start = time.process_time()
    make_keys(SECRET, policies)
    assert time.process_time() - start < 1.0  # 0.1 s on a slow core; ten times that would be a loop gone wrong
