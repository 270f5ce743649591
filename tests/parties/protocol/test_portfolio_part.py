"""Parquet from outside: what is sound passes whole, the rest is one of our own problems, and the reader lives."""

from __future__ import annotations

import io
import os
import random
import signal
import string
import threading
import time
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from fairpremium.parties import Feature, PortfolioSpec, Problem
from fairpremium.parties.protocol import _parquet_check as parquet_check
from fairpremium.parties.protocol._policy_keys import as_keys
from fairpremium.parties.protocol._portfolio_part import (
    Checker,
    ParquetLimits,
    check_portfolio_keys,
    check_portfolio_part,
    write_portfolio_part,
)

ROWS = 1000
SPEC = PortfolioSpec(
    study="motor",
    features=(Feature(name="age"), Feature(name="power"), Feature(name="region", kind="category")),
    x_star=(Feature(name="height"),),
    outcome="loss",
    weight="exposure",
)


@pytest.fixture(scope="module")
def checker():
    with Checker(processes=1) as checker:
        yield checker


@pytest.fixture
def check(checker, tmp_path):
    """Write a table or bytes to a file and check it."""

    def check(content, spec=SPEC, limits=None, **how):
        path = tmp_path / "part.parquet"
        if isinstance(content, (bytes, bytearray)):
            path.write_bytes(content)
        else:
            pq.write_table(content, path, **how)
        return check_portfolio_part(path, spec, limits, checker=checker)

    return check


def keys_of(rows: int, seed: int = 0) -> np.ndarray:
    return np.frombuffer(np.random.default_rng(seed).bytes(16 * rows), dtype="V16")


def key_column(keys) -> pa.Array:
    return pa.array([bytes(key) for key in keys.tolist()] if isinstance(keys, np.ndarray) else keys, pa.binary(16))


def portfolio(rows: int = ROWS) -> pa.Table:
    rng = np.random.default_rng(1)
    return pa.table(
        {
            "key": key_column(keys_of(rows)),
            "age": rng.integers(18, 90, rows).astype(np.int16),
            "power": rng.normal(80, 20, rows).astype(np.float32),
            "region": pa.array(rng.choice(["north", "south", "Île-de-France"], rows).tolist()),
            "height": rng.normal(170, 10, rows),
            "loss": rng.gamma(1.0, 1000.0, rows),
            "exposure": rng.uniform(0, 1, rows),
        }
    )


def change(name: str, values, kind=None, rows: int = ROWS) -> pa.Table:
    table = portfolio(rows)
    column = values if isinstance(values, (pa.Array, pa.ChunkedArray)) else pa.array(values, kind)
    return table.set_column(table.schema.get_field_index(name), name, column)


def put(name: str, value, row: int = ROWS // 2) -> pa.Table:
    """The portfolio with one value replaced."""
    values = portfolio()[name].to_pylist()
    values[row] = value
    return change(name, values, portfolio().schema.field(name).type)


def problem_of(question, *arguments, **more) -> tuple[str, str]:
    with pytest.raises(Problem) as caught:
        question(*arguments, **more)
    return caught.value.code, caught.value.detail


# --- sound parts ---


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd", "lz4", "brotli"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_a_sound_part_passes(check, compression, version):
    how = {"compression": compression, "data_page_version": version, "row_group_size": 300}
    assert check(portfolio(), **how) == ROWS


@pytest.mark.parametrize(
    "kind",
    [pa.int8(), pa.uint8(), pa.int32(), pa.uint32(), pa.int64(), pa.uint64(), pa.float32(), pa.float64()],
    ids=str,
)
def test_all_plain_numbers_pass(check, kind):
    assert check(change("age", np.arange(ROWS) % 100, kind)) == ROWS


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())], ids=str)
def test_all_forms_of_categories_pass(check, kind):
    column = pa.array(["a", "b"] * (ROWS // 2)).cast(kind)
    assert check(change("region", column)) == ROWS


def test_limits_are_reached_and_not_passed(check):
    largest = put("age", 2**15 - 1)
    assert check(largest, limits=ParquetLimits(rows=ROWS, cells=7 * ROWS, levels=3, level_length=13)) == ROWS
    assert check(change("age", [2**53] * ROWS)) == ROWS
    assert check(change("height", [1e100] * ROWS)) == ROWS
    for limits in (ParquetLimits(rows=ROWS - 1), ParquetLimits(cells=7 * ROWS - 1), ParquetLimits(bytes=1000)):
        assert problem_of(check, largest, limits=limits) == (
            "bad-parquet",
            "it has more rows or bytes than a part may have",
        )
    assert problem_of(check, largest, limits=ParquetLimits(levels=2)) == (
        "bad-values",
        "a column has too many categories",
    )
    assert problem_of(check, largest, limits=ParquetLimits(level_length=12)) == (
        "bad-values",
        "a category is empty or too long",
    )
    assert problem_of(check, largest, limits=ParquetLimits(footer=100)) == (
        "bad-parquet",
        "its table of contents is too large",
    )


def test_the_order_of_columns_and_zero_weights_are_free(check):
    table = portfolio()
    assert check(table.select(table.column_names[::-1])) == ROWS
    assert check(put("exposure", 0.0)) == ROWS


def test_a_part_without_weight_and_categories(check):
    spec = PortfolioSpec(study="s", features=(Feature(name="age"),), outcome="loss")
    assert check(portfolio().select(["key", "age", "loss"]), spec) == ROWS


# --- wrong values ---

NUMBER = "numbers are integers or floats of 32 or 64 bits"
TEXT = "categories are strings, plain or as a dictionary"
NESTED = ("bad-columns", "a column is nested")
MISSING = ("bad-values", "a value is missing")
INFINITE = ("bad-values", "a number is not finite, or beyond 1e100")
BIG = ("bad-values", "an integer is beyond 2**53")
CATEGORY = ("bad-values", "a category is empty or too long")
CONTROL = ("bad-values", "a category has a control character")

WRONG = {
    "no rows": (portfolio().slice(0, 0), ("bad-parquet", "it has no rows")),
    "missing": (portfolio().drop_columns(["age"]), ("bad-columns", "a declared column is missing")),
    "missing weight": (portfolio().drop_columns(["exposure"]), ("bad-columns", "a declared column is missing")),
    "extra": (
        portfolio().append_column("name", pa.array(["secret"] * ROWS)),
        ("bad-columns", "there is a column that was not declared"),
    ),
    "repeated name": (
        portfolio().append_column("age", pa.array(np.zeros(ROWS))),
        ("bad-columns", "a name is repeated"),
    ),
    "NaN": (put("power", float("nan")), INFINITE),
    "infinity": (put("power", float("inf")), INFINITE),
    "NaN in x*": (put("height", float("nan"), row=0), INFINITE),
    "minus infinity at the end": (put("loss", float("-inf"), row=ROWS - 1), INFINITE),
    "huge": (put("loss", 1e101), INFINITE),
    "null feature": (put("age", None), MISSING),
    "null outcome": (put("loss", None), MISSING),
    "null weight": (put("exposure", None), MISSING),
    "null category": (put("region", None), MISSING),
    "only nulls": (change("age", pa.nulls(ROWS, pa.int16())), MISSING),
    "null type": (change("age", pa.nulls(ROWS)), ("bad-columns", NUMBER)),
    "large integer": (change("age", [0] * (ROWS - 1) + [2**53 + 1]), BIG),
    "large negative integer": (change("age", [0] * (ROWS - 1) + [-(2**53) - 1]), BIG),
    "large unsigned integer": (change("age", [0] * (ROWS - 1) + [2**64 - 1], pa.uint64()), BIG),
    "negative weight": (put("exposure", -1e-300), ("bad-values", "a weight is negative")),
    "all weights zero": (change("exposure", np.zeros(ROWS)), ("bad-values", "all weights are zero")),
    "bool": (change("age", [True] * ROWS), ("bad-columns", NUMBER)),
    "half": (change("age", np.ones(ROWS, dtype=np.float16)), ("bad-columns", NUMBER)),
    "decimal": (change("age", [1] * ROWS, pa.decimal128(10, 2)), ("bad-columns", NUMBER)),
    "decimal as integer": (change("age", [1] * ROWS, pa.decimal128(5, 2)), ("bad-columns", NUMBER)),
    "timestamp": (change("age", [1] * ROWS, pa.timestamp("us")), ("bad-columns", NUMBER)),
    "date": (change("age", [1] * ROWS, pa.date32()), ("bad-columns", NUMBER)),
    "duration": (change("age", [1] * ROWS, pa.duration("s")), ("bad-columns", NUMBER)),
    "string as number": (change("age", ["1"] * ROWS), ("bad-columns", NUMBER)),
    "binary": (change("age", [b"1"] * ROWS), ("bad-columns", NUMBER)),
    "list": (change("age", [[1]] * ROWS), NESTED),
    "fixed list": (change("age", [[1]] * ROWS, pa.list_(pa.int32(), 1)), NESTED),
    "struct": (change("age", [{"a": 1}] * ROWS), NESTED),
    "struct of two": (change("age", [{"a": 1, "b": 2}] * ROWS), NESTED),
    "map": (change("age", [[(1, 2)]] * ROWS, pa.map_(pa.int8(), pa.int8())), NESTED),
    "extension": (
        change(
            "age", pa.ExtensionArray.from_storage(pa.opaque(pa.int32(), "t", "v"), pa.array([1] * ROWS, pa.int32()))
        ),
        ("bad-columns", NUMBER),
    ),
    "uuid keys": (
        change("key", pa.ExtensionArray.from_storage(pa.uuid(), key_column(keys_of(ROWS)))),
        ("bad-keys", ""),
    ),
    "integer category": (change("region", [1] * ROWS), ("bad-columns", TEXT)),
    "binary category": (change("region", [b"1"] * ROWS), ("bad-columns", TEXT)),
    "list of categories": (change("region", [["a"]] * ROWS), NESTED),
    "empty category": (put("region", ""), CATEGORY),
    "long category": (put("region", "ä" * 201), CATEGORY),
    "NUL": (put("region", "a\0"), CONTROL),
    "line break": (put("region", "a\nb"), CONTROL),
    "C1 control": (put("region", "a\x9bb"), CONTROL),
    "many categories": (
        change("region", [str(i) for i in range(10_001)], rows=10_001),
        ("bad-values", "a column has too many categories"),
    ),
    "string keys": (change("key", ["0" * 16] * ROWS), ("bad-keys", "")),
    "binary keys": (change("key", [b"0" * 16] * ROWS), ("bad-keys", "")),
    "short keys": (change("key", [i.to_bytes(8, "big") for i in range(ROWS)], pa.binary(8)), ("bad-keys", "")),
    "null key": (put("key", None), ("bad-keys", "")),
    "decimal keys": (change("key", [1] * ROWS, pa.decimal128(38, 0)), ("bad-keys", "")),
}


NEED_ARROW_SCHEMA = {"extension", "duration", "uuid keys"}  # plain integers and keys without it


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_refused_by_name(check, case):
    table, expected = WRONG[case]
    assert problem_of(check, table) == expected


@pytest.mark.parametrize("case", sorted(WRONG.keys() - NEED_ARROW_SCHEMA))
def test_what_is_wrong_is_refused_whatever_the_sender_calls_it(check, case):
    table, expected = WRONG[case]
    assert problem_of(check, table, store_schema=False) == expected


def test_strings_that_are_no_text(check):
    binary = change("region", pa.array([b"\xff\xfe"] * ROWS))
    as_text = binary.set_column(3, "region", pa.array([b"\xff\xfe"] * ROWS).view(pa.string()))
    assert problem_of(check, as_text)[0] == "bad-parquet"


# --- hostile files ---


def parquet(table: pa.Table, **how) -> bytearray:
    sink = io.BytesIO()
    pq.write_table(table, sink, **how)
    return bytearray(sink.getvalue())


def test_truncated_files(check):
    whole = bytes(parquet(portfolio()))
    for size in [0, 1, 4, 7, 8, 11, 12, 100, len(whole) // 2, len(whole) - 9, len(whole) - 8, len(whole) - 1]:
        assert problem_of(check, whole[:size])[0] == "bad-parquet"
    for size in (9, 100, 5000):  # the end is there, something before it is not
        assert problem_of(check, whole[:100] + whole[100 + size :])[0] == "bad-parquet"


@pytest.mark.parametrize(
    "content",
    [
        b"PAR1" * 3,
        b"PAR1\xff\xff\xff\xffPAR1",
        b"PAR1\0\0\0\0PAR1",
        b"PARE" + bytes(100) + b"\x10\0\0\0PARE",
        b"\x80\x04N.",
    ],
)
def test_no_parquet_at_all(check, content):
    assert problem_of(check, content)[0] == "bad-parquet"


def varint(number: int) -> bytes:
    number <<= 1  # zigzag, for what is not negative
    digits = bytearray()
    while number >= 128:
        digits.append(number & 127 | 128)
        number >>= 7
    return bytes([*digits, number])


@pytest.mark.parametrize("lie", [ROWS - 1, ROWS + 1, 100, 8191])
@pytest.mark.parametrize("which", ["first", "all", "last", "random"])
def test_footers_that_lie_about_rows(check, lie, which):
    """Every count of rows and values in the table of contents is the same number, and some are replaced."""
    content = parquet(portfolio())
    true, false = varint(ROWS), varint(lie)
    assert len(true) == len(false)
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    places = [i for i in range(start, len(content)) if content[i : i + len(true)] == true]
    assert len(places) >= 9  # the file, the group and seven columns
    chosen = {
        "first": places[:1],
        "all": places,
        "last": places[-1:],
        "random": random.Random(lie).sample(places, 4),
    }[which]
    for place in chosen:
        content[place : place + len(true)] = false
    try:
        rows = check(content)
    except Problem as problem:
        assert problem.code in ("bad-parquet", "bad-values", "bad-keys")  # noqa: PT017
    else:
        assert (which, rows) == ("all", lie)  # a consistent story of fewer rows than there are


NARROW = PortfolioSpec(study="s", features=(Feature(name="age"),), outcome="loss")


def test_a_billion_rows_in_a_small_file(check):
    """A table of contents may list the same pages again and again."""
    rows = 1_000_000
    keys = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), rows, [None, pa.py_buffer(bytes(16 * rows))])
    table = pa.table({"key": keys, "age": np.zeros(rows), "loss": np.ones(rows)})
    content = bytes(parquet(table, compression="zstd"))
    contents = pq.read_metadata(io.BytesIO(content))
    for _ in range(10):
        contents.append_row_groups(contents)
    footer = io.BytesIO()
    contents.write_metadata_file(footer)
    bomb = content[: -8 - int.from_bytes(content[-8:-4], "little")] + footer.getvalue()[4:]
    assert pq.ParquetFile(io.BytesIO(bomb)).metadata.num_rows == 1024 * rows
    assert len(bomb) < 1_000_000
    start = time.perf_counter()
    assert problem_of(check, bomb, NARROW) == ("bad-parquet", "it has more rows or bytes than a part may have")
    assert time.perf_counter() - start < 20
    assert problem_of(check, content, NARROW)[0] == "bad-keys"  # it is read, and has one key


WORD, LITTLE_MEMORY = 150_000_000, 450 << 20


@pytest.fixture(scope="module")
def wide_word() -> bytearray:
    """One row whose category has so many letters, packed into some kilobytes."""
    table = portfolio(1).set_column(3, "region", pa.array(["x" * WORD]))
    content = parquet(table, compression="zstd", use_dictionary=False, write_statistics=False)
    assert len(content) < 100_000
    return content


def test_a_word_that_unpacks_beyond_all_memory(check, checker, wide_word):
    assert problem_of(check, wide_word, limits=ParquetLimits(bytes=WORD)) == (
        "bad-parquet",
        "it has more rows or bytes than a part may have",
    )
    (reader,) = checker._idle
    assert problem_of(check, wide_word, limits=ParquetLimits(memory=LITTLE_MEMORY)) == (
        "bad-parquet",
        "it cannot be read",
    )
    assert checker._idle == [reader]  # it was refused the memory, and lives
    assert peak_memory(reader) < LITTLE_MEMORY
    assert problem_of(check, wide_word) == CATEGORY


def test_a_table_of_contents_that_hides_what_unpacks(check, wide_word):
    bomb = wide_word.copy()
    group = pq.read_metadata(io.BytesIO(bomb)).row_group(0)
    true, false = varint(group.total_byte_size), varint(2**27)
    assert len(true) == len(false)
    start = len(bomb) - 8 - int.from_bytes(bomb[-8:-4], "little")
    place = bomb.index(true, start)
    bomb[place : place + len(true)] = false
    assert pq.read_metadata(io.BytesIO(bomb)).row_group(0).total_byte_size == 2**27
    code, detail = problem_of(check, bomb, limits=ParquetLimits(bytes=2**27, memory=LITTLE_MEMORY))
    assert (code, detail) == ("bad-parquet", "it cannot be read")


def peak_memory(reader) -> int:
    with Path(f"/proc/{reader._process.pid}/status").open() as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))


def test_a_dictionary_of_one_giant_word(check):
    giant = pa.DictionaryArray.from_arrays(pa.array(np.zeros(ROWS, np.int32)), pa.array(["x" * 20_000_000]))
    start = time.perf_counter()
    assert problem_of(check, change("region", giant)) == CATEGORY
    assert time.perf_counter() - start < 20


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32), st.sampled_from(["none", "zstd", "snappy"]), st.booleans())
@example(127, "none", True)  # Arrow 26 ends the process
def test_flipped_bytes_are_a_problem_and_the_next_file_is_read(check, checker, seed, compression, is_in_footer):
    """Either the values still hold, or it is a problem, even where the engine ends its process, as some files do."""
    rng = random.Random(seed)
    content = parquet(portfolio(100), compression=compression)
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    first, last = (footer, len(content) - 8) if is_in_footer else (4, footer)
    for _ in range(rng.choice([1, 2, 10])):
        content[rng.randrange(first, last)] = rng.choice([0, 1, 127, 128, 255, rng.randrange(256)])
    try:
        assert check(content) > 0
    except Problem as problem:
        assert problem.code in ("bad-parquet", "bad-columns", "bad-values", "bad-keys")  # noqa: PT017
    assert check(portfolio(10)) == 10
    assert len(checker._idle) == 1


# --- the reader's process ---


def test_a_file_that_takes_too_long(checker, tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)  # whoever opens it waits for ever
    start = time.perf_counter()
    assert problem_of(check_portfolio_part, path, SPEC, ParquetLimits(seconds=1), checker=checker) == (
        "bad-parquet",
        "it cannot be read within the limits of memory and time",
    )
    assert 1 <= time.perf_counter() - start < 20


def test_a_file_that_kills_every_reader(checker, tmp_path, check):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    killed = set()
    is_over = threading.Event()

    def kill_readers() -> None:
        while not is_over.wait(0.05):
            for reader in list(alive):
                if reader._process.pid not in killed:
                    killed.add(reader._process.pid)
                    reader._process.send_signal(signal.SIGKILL)

    alive: list = []
    take = checker._take

    def remember():
        alive.append(take())
        return alive[-1]

    checker._take = remember
    killer = threading.Thread(target=kill_readers)
    killer.start()
    try:
        assert problem_of(check_portfolio_part, path, SPEC, checker=checker)[0] == "bad-parquet"
    finally:
        is_over.set()
        killer.join()
        checker._take = take
    assert len(killed) == 2
    assert check(portfolio()) == ROWS


def test_a_reader_that_died_meanwhile_is_replaced(check, checker):
    check(portfolio())
    (reader,) = checker._idle
    reader._process.kill()
    reader._process.wait()
    assert check(portfolio()) == ROWS
    assert checker._idle != [reader]


def test_the_reader_cannot_write_files_and_leaves_with_its_parent(check, checker):
    check(portfolio())
    (reader,) = checker._idle
    with Path(f"/proc/{reader._process.pid}/limits").open() as table:
        limits = {line[:26].strip(): line[26:].split()[0] for line in table}
    assert limits["Max file size"] == "0"
    assert limits["Max core file size"] == "0"
    assert limits["Max address space"] == str(ParquetLimits().memory)
    reader._process.stdin.close()
    assert reader._process.wait(120) == 0


def test_many_files_at_a_time(tmp_path):
    path = tmp_path / "part.parquet"
    pq.write_table(portfolio(), path)
    found = []
    with Checker(processes=2) as checker:
        threads = [
            threading.Thread(target=lambda: found.append(check_portfolio_part(path, SPEC, checker=checker)))
            for _ in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(checker._idle) <= 2
    assert found == [ROWS] * 6


def test_without_a_checker_the_process_has_its_own(tmp_path):
    path = tmp_path / "part.parquet"
    pq.write_table(portfolio(), path)
    assert check_portfolio_part(path, SPEC) == ROWS
    assert check_portfolio_part(str(path), SPEC) == ROWS


# --- writing ---


def frames() -> dict:
    table = portfolio()
    return {"arrow": table, "polars": pl.from_arrow(table), "pandas": table.to_pandas()}


@pytest.mark.parametrize("kind", ["arrow", "polars", "pandas"])
def test_what_the_clients_write_is_taken_and_the_same(check, kind):
    part = write_portfolio_part(frames()[kind], SPEC)
    assert part == write_portfolio_part(frames()[kind], SPEC)
    assert check(part) == ROWS
    read = pq.read_table(io.BytesIO(part))
    for name in SPEC.model_dump()["features"]:
        assert read[name["name"]].to_pylist() == portfolio()[name["name"]].to_pylist()
    assert read["key"].to_pylist() == portfolio()["key"].to_pylist()
    assert read["loss"].to_pylist() == portfolio()["loss"].to_pylist()


def test_bool_and_half_become_plain_numbers(check):
    table = change("age", [True, False] * (ROWS // 2))
    table = table.set_column(2, "power", pa.array(np.ones(ROWS, dtype=np.float16)))
    part = write_portfolio_part(table, SPEC)
    assert check(part) == ROWS
    assert pq.read_table(io.BytesIO(part))["age"].to_pylist() == [1, 0] * (ROWS // 2)


def test_other_columns_stay_at_home(check):
    table = portfolio().append_column("name", pa.array(["canary"] * ROWS))
    part = write_portfolio_part(table, SPEC)
    assert b"canary" not in part
    assert check(part) == ROWS


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (portfolio().drop_columns(["age"]), r"expected \['age'\], too"),
        (put("age", None), "'age' cannot be sent: a value is missing"),
        (put("power", float("nan")), "'power' cannot be sent: a number is not finite"),
        (change("region", [1] * ROWS), "'region' cannot be sent: categories are strings"),
        (change("age", ["x"] * ROWS), "'age' cannot be sent: numbers are"),
        (change("age", [2**60] * ROWS), "'age' cannot be sent: an integer is beyond"),
        (put("region", "a\0"), "'region' cannot be sent: a category has a control"),
        (change("key", ["0" * 16] * ROWS), "expected bytes of length 16"),
        (change("key", [b"0"] * ROWS), "expected bytes of length 16"),
        (put("key", None), "expected bytes of length 16"),
    ],
)
def test_clients_hear_what_is_wrong_before_they_send(table, message):
    with pytest.raises(ValueError, match=message):
        write_portfolio_part(table, SPEC)


def test_keys_are_bytes():
    with pytest.raises(ValueError, match="bytes of length 16"):
        as_keys([b"short"])
    with pytest.raises(ValueError, match="bytes of length 16"):
        as_keys(list(string.ascii_letters))


# --- keys of several parts ---


def write_keys(folder, *parts):
    paths = []
    for n, keys in enumerate(parts):
        paths.append(str(folder / f"{n}.parquet"))
        pq.write_table(pa.table({"key": key_column(keys)}), paths[-1])
    return paths


def test_keys_that_are_repeated_in_a_part_are_refused(check):
    keys = [bytes(key) for key in keys_of(ROWS).tolist()]
    assert problem_of(check, change("key", [*keys[:-1], keys[7]], pa.binary(16)))[0] == "bad-keys"


def test_parts_with_a_key_in_common_are_found_by_another_process(tmp_path):
    keys = keys_of(3 * ROWS)
    paths = write_keys(tmp_path, keys[:ROWS], keys[ROWS : 2 * ROWS], keys[2 * ROWS :])
    check_portfolio_keys(paths, "key", 3 * ROWS)
    assert problem_of(check_portfolio_keys, paths, "key", 3 * ROWS - 1)[0] == "bad-parquet"
    paths = write_keys(tmp_path, keys[:ROWS], keys[ROWS : 2 * ROWS], keys[ROWS - 1 : 2 * ROWS - 1])
    assert problem_of(check_portfolio_keys, paths, "key", 3 * ROWS)[0] == "bad-keys"


@pytest.mark.parametrize("begin", [b"", b"12345678"], ids=["keys", "crafted keys"])
def test_keys_are_compared_some_at_a_time(tmp_path, monkeypatch, begin):
    """Each pass has a share of the keys: any repeated one is found, and none is called repeated that is not."""
    monkeypatch.setattr(parquet_check, "_KEYS_AT_ONCE", 300)
    most, real = [], parquet_check.has_repeats
    monkeypatch.setattr(parquet_check, "has_repeats", lambda keys: most.append(len(keys)) or real(keys))
    keys = as_keys([(begin + key)[:16] for key in map(bytes, keys_of(4 * ROWS).tolist())])
    parts = [keys[n * ROWS : (n + 1) * ROWS] for n in range(4)]
    assert parquet_check.check_distinct_keys(write_keys(tmp_path, *parts), "key", 4 * ROWS) == 4 * ROWS
    assert (len(most), sum(most)) == (16, 4 * ROWS)
    assert max(most) < 600
    for row in (0, 500, ROWS - 1):
        repeated = np.concatenate([keys[row : row + 1], parts[3][1:]])
        paths = write_keys(tmp_path, *parts[:3], repeated)
        assert problem_of(parquet_check.check_distinct_keys, paths, "key", 4 * ROWS)[0] == "bad-keys"
    same = write_keys(tmp_path, *[[b"0123456789abcdef"] * ROWS] * 4)
    assert problem_of(parquet_check.check_distinct_keys, same, "key", 4 * ROWS)[0] == "bad-keys"


def test_few_portfolios_wait_for_the_comparison(tmp_path):
    with Checker(processes=1, waiting=0) as checker, checker._places:
        assert problem_of(checker.ask, {}, ParquetLimits())[0] == "too-many"
