"""Parts of portfolios as Parquet: written by insurers, checked by the one that learns."""

from __future__ import annotations

import atexit
import contextlib
import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ._messages import PortfolioSpec
from ._parquet_check import (
    ParquetLimits,
    check_categories,
    check_category_type,
    check_claim_columns,
    check_exposures,
    check_number_column,
    check_number_type,
    count_passes,
)
from ._policy_keys import WIDTH, as_keys
from ._problems import Problem

PORTFOLIO_TYPE = "application/vnd.apache.parquet"
_PACKAGE = Path(__file__).resolve().parents[2]
# The packages are made by hand: their own `__init__` would load models and solvers that a reader does not need.
_START = """
import sys, types
sys.path[:] = sys.argv[4:]
for name, folder in zip(("fairpremium", "fairpremium.parties", "fairpremium.parties.protocol"), sys.argv[1:4]):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [folder]
from fairpremium.parties.protocol._parquet_check import main
main()
"""
_SMALL = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "2",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
_ROWS_PER_GROUP = 1 << 20
_WAITING = 4  # portfolios whose keys wait to be compared; each of them holds a thread of the web process
_PATIENCE = 5  # times the processor time that a file may take, on a machine that has other things to do


# --- checking --------------------------------------------------------------------------------------------------------


def check_portfolio_part(
    path: str | os.PathLike[str],
    spec: PortfolioSpec,
    limits: ParquetLimits | None = None,
    *,
    checker: Checker | None = None,
) -> int:
    """Check every value of a part of a portfolio that came from outside; all that can be wrong is a `Problem`.

    - `path`: A Parquet file that nobody changes meanwhile.
    - `checker`: Whose processes read the file; those of this process by default.
    """
    roles = {
        "key": spec.key,
        "numbers": [column.name for column in spec.columns if column.kind == "number"],
        "categories": [column.name for column in spec.columns if column.kind == "category"],
        "weight": spec.weight,
        "claims": [[peril.count, peril.amount] for peril in spec.claims],
        "exposure": spec.exposure,
    }
    question = {"roles": roles, "path": str(Path(path).absolute())}
    return (checker or _shared_checker("parts", processes=2)).ask(question, limits or ParquetLimits())


def check_portfolio_keys(paths: Sequence[str | os.PathLike[str]], key: str, rows: int) -> None:
    """Refuse keys that are repeated in or between parts of a portfolio, which were checked one by one.

    One portfolio is read at a time, in a process with the limits of `ParquetLimits`: that is all the memory it takes.

    - `key`: The column of keys.
    - `rows`: How many rows the parts have.
    """
    limits = ParquetLimits(rows=rows, seconds=ParquetLimits.seconds * count_passes(rows))
    question = {"key": key, "rows": rows, "paths": [str(Path(path).absolute()) for path in paths]}
    _shared_checker("keys", processes=1, waiting=_WAITING).ask(question, limits)


class Checker(contextlib.AbstractContextManager["Checker"]):
    """A few processes that read files from outside; one that a file kills is replaced.

    - `processes`: How many questions are answered at a time; further ones wait.
    - `waiting`: How many may wait before there is the problem "too-many"; None for any number.
    """

    def __init__(self, processes: int = 2, waiting: int | None = None):
        self._owner = os.getpid()
        self._free = threading.BoundedSemaphore(processes)
        self._places = contextlib.nullcontext() if waiting is None else _Places(processes + waiting)
        self._idle: list[_Reader] = []  # threads append and pop, each of which is atomic

    def ask(self, question: dict[str, Any], limits: ParquetLimits) -> int:
        """Have files read (`answer_question`); return how many rows they have."""
        line = json.dumps({**question, "limits": asdict(limits)}).encode() + b"\n"
        with self._places, self._free:
            for _ in range(2):  # what kills a reader twice is the file
                reader = self._take()
                try:
                    result = reader.ask(line, limits)
                except _ReaderDiedError as death:
                    reader.close()
                    if death.took_too_long:
                        break
                    continue
                except Problem:
                    self._idle.append(reader)
                    raise
                except BaseException:
                    reader.close()
                    raise
                self._idle.append(reader)
                return result
        raise Problem("bad-parquet", "it cannot be read within the limits of memory and time")

    def _take(self) -> _Reader:
        try:
            return self._idle.pop()
        except IndexError:
            return _Reader()

    def close(self) -> None:
        """End the processes."""
        if os.getpid() != self._owner:  # a fork must not end its parent's processes
            return
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().close()

    def __exit__(self, *_: object) -> None:
        self.close()


class _Places(contextlib.AbstractContextManager[None]):
    """A number of places, of which each caller has one meanwhile."""

    def __init__(self, number: int):
        self._free = threading.BoundedSemaphore(number)

    def __enter__(self) -> None:
        if not self._free.acquire(blocking=False):
            raise Problem("too-many")

    def __exit__(self, *_: object) -> None:
        self._free.release()


class _ReaderDiedError(Exception):
    """The process ended, or was ended because it took too long."""

    took_too_long = False


class _Reader:
    """One process that runs `_parquet_check`."""

    def __init__(self) -> None:
        arguments = [str(_PACKAGE), str(_PACKAGE / "parties"), str(_PACKAGE / "parties" / "protocol"), *sys.path]
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", _START, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=_SMALL,  # no secret of ours, and nothing that could change what it does
        )
        if self._process.stdout.readline() != b"ready\n":  # type: ignore[union-attr]
            self.close()
            raise Problem("unavailable")

    def ask(self, line: bytes, limits: ParquetLimits) -> int:
        questions, answers = self._process.stdin, self._process.stdout
        assert questions is not None
        assert answers is not None
        alarm = threading.Timer(_PATIENCE * limits.seconds, self._process.kill)
        alarm.start()
        try:
            questions.write(line)
            questions.flush()
            facts = json.loads(answers.readline() or b"null")
            if not isinstance(facts, dict):
                raise _ReaderDiedError
            if "problem" in facts:
                raise Problem(facts["problem"], facts["detail"])
            rows = facts["rows"]
            if type(rows) is not int or not 0 < rows <= limits.rows:
                raise _ReaderDiedError
            return rows
        except (OSError, ValueError, KeyError):
            raise _ReaderDiedError from None
        except _ReaderDiedError as death:
            death.took_too_long = not alarm.is_alive()
            raise
        finally:
            alarm.cancel()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                pipe.close()  # type: ignore[union-attr]


_checkers: dict[tuple[int, str], Checker] = {}  # by process, for a fork must not share the pipes, and use
_checkers_lock = threading.Lock()


def _shared_checker(use: str, processes: int, waiting: int | None = None) -> Checker:
    place = (os.getpid(), use)
    with _checkers_lock:
        if place not in _checkers:
            _checkers[place] = checker = Checker(processes, waiting)
            atexit.register(checker.close)
        return _checkers[place]


# --- writing ---------------------------------------------------------------------------------------------------------


def write_portfolio_part(frame: Any, spec: PortfolioSpec) -> bytes:
    """Write a portfolio as one part: Parquet, the same bytes for the same rows.

    - `frame` (data frame): pandas, polars or Arrow, with the columns of ``spec``; others are left out. Keys are bytes
      of length 16.
    """
    table = nw.from_native(frame, eager_only=True)
    kinds = {column.name: column.kind for column in spec.columns}
    missing = [name for name in (spec.key, *kinds) if name not in table.columns]
    if missing:
        raise ValueError(f"Got a table with columns {table.columns}, but expected {missing}, too.")
    columns = {spec.key: _keys_of(_arrow(table, spec.key))}
    for name, kind in kinds.items():
        try:
            columns[name] = (_numbers if kind == "number" else _texts)(_arrow(table, name))
        except Problem as problem:
            raise ValueError(f"Column {name!r} cannot be sent: {problem.detail}.") from None
    fields = [pa.field(name, column.type, nullable=False) for name, column in columns.items()]
    _check_losses(columns, spec)
    sink = io.BytesIO()
    pq.write_table(
        pa.Table.from_arrays(list(columns.values()), schema=pa.schema(fields)),
        sink,
        row_group_size=_ROWS_PER_GROUP,
        compression="lz4",  # it costs next to nothing where it does not help; ZSTD saves less time than it takes
        use_dictionary=[name for name, kind in kinds.items() if kind == "category"],
        write_statistics=False,
    )
    return sink.getvalue()


def _check_losses(columns: dict[str, pa.Array], spec: PortfolioSpec) -> None:
    """Check claims and exposures as the service does, naming the column."""
    numbers = {name: columns[name].to_numpy() for name in spec.losses}
    for peril in spec.claims:
        try:
            check_claim_columns(numbers[peril.count], numbers[peril.amount])
        except Problem as problem:
            raise ValueError(
                f"Columns {peril.count!r} and {peril.amount!r} cannot be sent: {problem.detail}. Expected the number "
                "of claims of each row, not divided by the exposure, and their amount, zero where there is no claim."
            ) from None
    if spec.exposure is not None:
        try:
            check_exposures(numbers[spec.exposure])
        except Problem as problem:
            raise ValueError(f"Column {spec.exposure!r} cannot be sent: {problem.detail}.") from None


def _arrow(table: Any, name: str) -> pa.Array:
    column = table.get_column(name).to_arrow()
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _keys_of(array: pa.Array) -> pa.Array:
    if array.null_count or not (
        array.type == pa.binary(WIDTH) or pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type)
    ):
        raise ValueError(f"Got other keys, but expected bytes of length {WIDTH}. Make them with the study's secret.")
    if array.type == pa.binary(WIDTH):
        return array
    keys = as_keys(array.to_pylist())
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(WIDTH), len(keys), [None, pa.py_buffer(keys.view(np.uint8))])


def _numbers(column: pa.Array) -> pa.Array:
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    elif pa.types.is_float16(column.type):
        column = column.cast(pa.float32())
    check_number_type(column.type)
    check_number_column(column)
    return column


def _texts(column: pa.Array) -> pa.Array:
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    check_category_type(column.type)
    check_categories(column, set(), ParquetLimits())
    return column
