"""Read Parquet files from outside, in a process of its own: whatever a file does to the reader, it does it there.

The process is fed lines of JSON and answers with lines of JSON. Its memory, its time and its right to write files are
limited, and it imports no more than it needs.
"""

import json
import os
import resource
import secrets
import sys
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ._policy_keys import KEY, WIDTH, Keys, has_repeats, to_words
from ._problems import Problem

LARGEST_INTEGER = 2**53  # beyond, a float of 64 bits skips integers
LARGEST_NUMBER = 1e100  # beyond, sums of squares overflow

_CELLS_PER_BATCH = 1 << 22
_MAX_BATCH, _MIN_BATCH = 1 << 17, 1 << 10
_MAX_ROW_GROUPS = 10_000
_MAX_THRIFT = 1 << 20
_FOOTER = 8  # length and magic
_HOW = {"memory_map": True, "arrow_extensions_enabled": False}
_KEYS_AT_ONCE = 1 << 22  # that are compared with each other, or twice as many of crafted ones


@dataclass(frozen=True)
class ParquetLimits:
    """What a file may ask for.

    - `rows`, `cells`: Rows, and rows times columns.
    - `bytes`: What all columns take when unpacked.
    - `footer`: Bytes of the table of contents.
    - `levels`, `level_length`: Distinct values of a category column, and the characters of one.
    - `memory`: Address space of the reading process.
    - `seconds`: Time of the reading process.
    """

    rows: int = 5_000_000
    cells: int = 500_000_000
    bytes: int = 1 << 30
    footer: int = 16 << 20
    levels: int = 10_000
    level_length: int = 200
    memory: int = 2 << 30
    seconds: int = 60


# --- portfolios ------------------------------------------------------------------------------------------------------


def check_portfolio(path: str, roles: dict[str, Any], limits: ParquetLimits) -> int:
    """Check every value of a part of a portfolio and return how many rows it has.

    Whether parts have a key in common is asked when the portfolio is sealed (`check_distinct_keys`).

    - `roles` (dict): The names of columns by role: ``key``, ``numbers`` (list), ``categories`` (list), ``weight`` and
      ``exposure``, each one of the numbers or None, and ``claims`` (list of pairs of numbers: count and amount).
    """
    weight = roles["weight"]
    numbers = roles["numbers"]
    file = _open(path, [roles["key"], *numbers, *roles["categories"]], roles["categories"], limits)
    for name in numbers:
        check_number_type(file.schema_arrow.field(name).type)
    for name in roles["categories"]:
        check_category_type(file.schema_arrow.field(name).type)
    levels: dict[str, set[str]] = {name: set() for name in roles["categories"]}
    if file.schema_arrow.field(roles["key"]).type != pa.binary(WIDTH):
        raise Problem("bad-keys")
    total_weight = 0.0
    keys = []
    for batch in _batches(file):
        keys.append(_keys_of(batch.column(roles["key"])))
        values = {name: check_number_column(batch.column(name)) for name in numbers}
        if weight is not None:
            if values[weight].min() < 0:
                raise Problem("bad-values", "a weight is negative")
            total_weight += float(values[weight].sum(dtype=np.float64))
        for count, amount in roles["claims"]:
            check_claim_columns(values[count], values[amount])
        if roles["exposure"] is not None:
            check_exposures(values[roles["exposure"]])
        for name, known in levels.items():
            check_categories(batch.column(name), known, limits)
    if weight is not None and total_weight == 0:
        raise Problem("bad-values", "all weights are zero")
    if has_repeats(np.concatenate(keys)):
        raise Problem("bad-keys")
    return int(file.metadata.num_rows)


def check_distinct_keys(paths: list[str], key: str, rows: int) -> int:
    """Refuse keys that are repeated in or between the parts of a portfolio, and return how many rows they have.

    The files are read several times, each time for some of the keys, so that few are in memory. Which ones is drawn, so
    that nobody can make them more than their share.

    - `rows`: How many rows all parts have.
    """
    passes = count_passes(rows)
    shift = np.uint64(65 - passes.bit_length())
    first, second = (np.uint64(secrets.randbits(64) | 1) for _ in range(2))
    read = 0
    for part in range(passes):
        found, size = [], 0
        for path in paths:
            for keys in _read_keys(path, key):
                read += len(keys)
                if passes > 1:
                    high, low = to_words(keys)
                    keys = keys[(high * first + low * second) >> shift == part]
                found.append(keys)
                size += len(keys)
                if size > 2 * _KEYS_AT_ONCE:  # distinct ones would not be that many
                    raise Problem("bad-keys")
        if has_repeats(np.concatenate(found)):
            raise Problem("bad-keys")
    if read != rows * passes:
        raise Problem("bad-parquet", "its table of contents is wrong")
    return rows


def _read_keys(path: str, key: str) -> Iterator[Keys]:
    """Yield the keys of a part that was checked, some at a time."""
    with _open_unchecked(path) as file:
        for batch in file.iter_batches(batch_size=_MAX_BATCH, columns=[key]):
            yield _keys_of(batch.column(0))


def count_passes(rows: int) -> int:
    """Return how often the keys of so many rows are read to be compared, a power of two."""
    return 1 << max(0, (max(rows, 1) - 1) // _KEYS_AT_ONCE).bit_length()


def _keys_of(column: pa.Array) -> Keys:
    """Return a copy of keys that are all there."""
    if column.type != pa.binary(WIDTH) or column.null_count:
        raise Problem("bad-keys")
    return np.frombuffer(column.buffers()[1], dtype=KEY, count=len(column), offset=WIDTH * column.offset).copy()


def check_claim_columns(counts: npt.NDArray[Any], amounts: npt.NDArray[Any]) -> None:
    """Refuse numbers of claims that are not whole, and amounts without a claim."""
    if counts.min() < 0 or (counts.dtype.kind == "f" and (counts != np.floor(counts)).any()):
        raise Problem("bad-values", "a number of claims is not a whole number from 0 on")
    if amounts[counts == 0].any():
        raise Problem("bad-values", "an amount is not zero where the number of claims is")


def check_exposures(values: npt.NDArray[Any]) -> None:
    """Refuse exposures that nothing can be divided by."""
    if not values.min() > 0:
        raise Problem("bad-values", "an exposure is not above zero")


def check_number_type(kind: pa.DataType) -> None:
    """Refuse what is no plain number."""
    if not (pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind)):
        raise Problem("bad-columns", "numbers are integers or floats of 32 or 64 bits")


def check_category_type(kind: pa.DataType) -> None:
    """Refuse what is no dictionary of strings."""
    if not pa.types.is_dictionary(kind) or not is_string(kind.value_type):
        raise Problem("bad-columns", "categories are strings, plain or as a dictionary")


def is_string(kind: pa.DataType) -> bool:
    """Return whether a type is one of strings."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def check_number_column(column: pa.Array) -> npt.NDArray[Any]:
    """Return the numbers of a column, if all of them are there and can be computed with."""
    values: npt.NDArray[Any] = _without_nulls(column).to_numpy(zero_copy_only=True)
    low, high = values.min(), values.max()  # either is NaN if a value is
    if values.dtype.kind == "f":
        if not (float(low) >= -LARGEST_NUMBER and float(high) <= LARGEST_NUMBER):
            raise Problem("bad-values", "a number is not finite, or beyond 1e100")
    elif int(low) < -LARGEST_INTEGER or int(high) > LARGEST_INTEGER:
        raise Problem("bad-values", "an integer is beyond 2**53")
    return values


def check_categories(column: pa.DictionaryArray, known: set[str], limits: ParquetLimits) -> None:
    """Check the levels of a column and add them to those that are known."""
    for level in _dictionary(column, limits):
        if level not in known:
            if not 0 < len(level) <= limits.level_length:
                raise Problem("bad-values", "a category is empty or too long")
            if any(unicodedata.category(letter) == "Cc" for letter in level):
                raise Problem("bad-values", "a category has a control character")
            known.add(level)
    if len(known) > limits.levels:
        raise Problem("bad-values", "a column has too many categories")


def _dictionary(column: pa.DictionaryArray, limits: ParquetLimits) -> list[str]:
    """Return the levels of a column without gaps, once all of it is known to be sound."""
    _without_nulls(column)
    if len(column.dictionary) > limits.levels:
        raise Problem("bad-values", "a column has too many categories")
    if column.dictionary.nbytes > len(column.dictionary) * (4 * limits.level_length + 16) + 64:  # in UTF-8, at the most
        raise Problem("bad-values", "a category is empty or too long")
    column.validate(full=True)  # indices within the dictionary, strings in UTF-8
    return list(_without_nulls(column.dictionary).to_pylist())


# --- any file --------------------------------------------------------------------------------------------------------


def _open(path: str, names: list[str], texts: list[str], limits: ParquetLimits) -> pq.ParquetFile:
    """Open a file whose table of contents promises the columns; those of text are read as dictionaries."""
    _check_footer(path, limits)
    file = _open_unchecked(path)
    found = file.schema_arrow.names
    if len(set(found)) != len(found):
        raise Problem("bad-columns", "a name is repeated")
    if set(names) - set(found):
        raise Problem("bad-columns", "a declared column is missing")
    if set(found) - set(names):
        raise Problem("bad-columns", "there is a column that was not declared")
    if any(kind.num_fields for kind in file.schema_arrow.types) or len(file.schema) != len(found):
        raise Problem("bad-columns", "a column is nested")
    contents = file.metadata
    if contents.num_rows < 1:
        raise Problem("bad-parquet", "it has no rows")
    groups = [contents.row_group(i) for i in range(min(contents.num_row_groups, _MAX_ROW_GROUPS + 1))]
    if (
        contents.num_rows > limits.rows
        or contents.num_rows * len(found) > limits.cells
        or len(groups) > _MAX_ROW_GROUPS
        or sum(max(group.total_byte_size, 0) for group in groups) > limits.bytes
    ):
        raise Problem("bad-parquet", "it has more rows or bytes than a part may have")
    if sum(group.num_rows for group in groups) != contents.num_rows or any(
        group.column(j).num_values != group.num_rows for group in groups for j in range(group.num_columns)
    ):
        raise Problem("bad-parquet", "its table of contents is wrong")
    dictionaries = [name for name in texts if is_string(file.schema_arrow.field(name).type)]
    return pq.ParquetFile(path, metadata=contents, read_dictionary=dictionaries, **_HOW)


def _open_unchecked(path: str) -> pq.ParquetFile:
    return pq.ParquetFile(path, thrift_string_size_limit=_MAX_THRIFT, thrift_container_size_limit=_MAX_THRIFT, **_HOW)


def _check_footer(path: str, limits: ParquetLimits) -> None:
    size = os.path.getsize(path)  # noqa: PTH202
    with open(path, "rb") as file:  # noqa: PTH123
        file.seek(max(size - _FOOTER, 0))
        end = file.read(_FOOTER)
    length = int.from_bytes(end[:4], "little")
    if end[4:] != b"PAR1" or length > size - _FOOTER:
        raise Problem("bad-parquet", "it has no table of contents")
    if length > limits.footer:
        raise Problem("bad-parquet", "its table of contents is too large")


def _batches(file: pq.ParquetFile) -> Iterator[pa.RecordBatch]:
    """Yield all rows, some at a time; as many as promised, or it is a problem."""
    columns = len(file.schema_arrow)
    size = min(max(_CELLS_PER_BATCH // columns, _MIN_BATCH), _MAX_BATCH)
    rows = 0
    for batch in file.iter_batches(batch_size=size):
        if batch.num_columns != columns or not 0 < batch.num_rows <= file.metadata.num_rows - rows:
            raise Problem("bad-parquet", "its table of contents is wrong")
        rows += batch.num_rows
        yield batch
    if rows != file.metadata.num_rows:
        raise Problem("bad-parquet", "its table of contents is wrong")


def _without_nulls(column: pa.Array) -> pa.Array:
    if column.null_count:
        raise Problem("bad-values", "a value is missing")
    return column


# --- the process -----------------------------------------------------------------------------------------------------


def main() -> None:
    """Answer the questions of the process that started this one, until there are no more."""
    questions, answers = sys.stdin.buffer, sys.stdout.buffer
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    answers.write(b"ready\n")
    answers.flush()
    for line in questions:
        question = json.loads(line)
        limits = ParquetLimits(**question.pop("limits"))
        _limit_process(limits)
        try:
            facts: dict[str, Any] = {"rows": answer_question(question, limits)}
        except Problem as problem:
            facts = {"problem": problem.code, "detail": problem.detail}
        except Exception:  # whatever the engine says, it is about the file
            facts = {"problem": "bad-parquet", "detail": "it cannot be read"}
        answers.write(json.dumps(facts).encode() + b"\n")
        answers.flush()


def answer_question(question: dict[str, Any], limits: ParquetLimits) -> int:
    """Check one part whose columns have roles, or the keys of all parts; return the number of rows."""
    if "paths" in question:
        return check_distinct_keys(question["paths"], question["key"], question["rows"])
    return check_portfolio(question["path"], question["roles"], limits)


def _limit_process(limits: ParquetLimits) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (limits.memory, resource.RLIM_INFINITY))
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime) + 1 + limits.seconds
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.RLIM_INFINITY))
