"""Parts of portfolios and batches of reports as Parquet: written by the parties, checked by the one that learns."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import io
import itertools
import json
import math
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from fairpremium.privacy import Channel, attach_descriptor

from .._labels import encode_labels, infer_labels
from ._checker import (
    ENVELOPE,
    Limits,
    check_categories,
    check_category_type,
    check_number_type,
    check_numbers,
    is_string,
)
from ._messages import PortfolioSpec
from ._policy_keys import KEY, WIDTH, Keys, as_keys, sort_words, to_words
from ._problems import Problem

__all__ = [
    "Checker",
    "Limits",
    "PartFacts",
    "check_portfolio_part",
    "check_report_part",
    "write_portfolio_part",
    "write_portfolio_parts",
    "write_report_part",
]

_PACKAGE = Path(__file__).resolve().parents[1]
# The packages are entered by the back door: their front doors load models and solvers that a reader does not need.
_START = """
import sys, types
sys.path[:] = sys.argv[3:]
for name, folder in zip(("fairpremium", "fairpremium.parties"), sys.argv[1:3]):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [folder]
from fairpremium.parties._checker import main
main()
"""
_SMALL = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "2",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
_PIPE = 1 << 20
_ROWS_PER_GROUP = 1 << 20
_PATIENCE = 5  # times the processor time that a file may take, on a machine that has other things to do


@dataclass(frozen=True)
class PartFacts:
    """What is known of a part whose every value was checked.

    Attributes
    ----------
    rows : int
    keys : ndarray of dtype V16
        The keys, sorted; none is repeated.
    """

    rows: int
    keys: Keys


# --- checking --------------------------------------------------------------------------------------------------------


def check_portfolio_part(
    path: str | os.PathLike[str], spec: PortfolioSpec, limits: Limits | None = None, *, checker: Checker | None = None
) -> PartFacts:
    """Check every value of a part of a portfolio that came from outside; all that can be wrong is a `Problem`.

    Parameters
    ----------
    path : str or Path
        A Parquet file that nobody changes meanwhile.
    spec : PortfolioSpec
    limits : Limits, optional
    checker : Checker, optional
        Whose processes read the file; those of this process by default.
    """
    features = (*spec.features, *spec.x_star)
    roles = {
        "key": spec.key,
        "numbers": [feature.name for feature in features if feature.kind == "number"],
        "categories": [feature.name for feature in features if feature.kind == "category"],
        "outcome": spec.outcome,
        "weight": spec.weight,
    }
    keys, _ = (checker or _shared_checker()).ask({"kind": "portfolio", "roles": roles}, path, limits or Limits())
    return PartFacts(rows=len(keys), keys=keys)


def check_report_part(
    path: str | os.PathLike[str],
    labels: Sequence[Any],
    descriptor: Mapping[str, Any] | None,
    limits: Limits | None = None,
    *,
    checker: Checker | None = None,
) -> tuple[Keys, npt.NDArray[np.unsignedinteger[Any]]]:
    """Check a batch of reports that came from outside; all that can be wrong is a `Problem`.

    Parameters
    ----------
    path : str or Path
        A Parquet file with the columns ``key`` and ``report`` that nobody changes meanwhile.
    labels : sequence of str, of int or of bool
        The reports that the study knows.
    descriptor : dict or None
        The description of the study's channel, which the file must carry; None if it must carry none.
    limits : Limits, optional
    checker : Checker, optional

    Returns
    -------
    keys : ndarray of dtype V16
        Sorted; none is repeated.
    codes : ndarray of uint8, or of uint16 for more than 256 labels
        Positions in ``labels``, in the order of the keys.
    """
    question = {"kind": "reports", "labels": list(labels), "envelope": _envelope(descriptor)}
    keys, codes = (checker or _shared_checker()).ask(question, path, limits or Limits())
    return keys, codes


def _envelope(descriptor: Mapping[str, Any] | None) -> str | None:
    if descriptor is None:
        return None
    import pyarrow as pa

    described = attach_descriptor(pa.schema([]).empty_table(), Channel.from_descriptor(dict(descriptor)))
    return json.dumps(json.loads(described.schema.metadata[ENVELOPE]), sort_keys=True)


class Checker:
    """A few processes that read files from outside; one that a file kills is replaced.

    Parameters
    ----------
    processes : int
        How many files are read at a time; further ones wait.
    """

    def __init__(self, processes: int = 2):
        self._owner = os.getpid()
        self._free = threading.BoundedSemaphore(processes)
        self._idle: list[_Reader] = []
        self._lock = threading.Lock()

    def ask(self, question: dict[str, Any], path: str | os.PathLike[str], limits: Limits) -> tuple[Keys, Any]:
        """Have a file read; return its keys and, for reports, their codes."""
        line = json.dumps({**question, "path": str(Path(path).absolute()), "limits": asdict(limits)}).encode() + b"\n"
        labels = question.get("labels")
        with self._free:
            for _ in range(2):  # what kills a reader twice is the file
                reader = self._take()
                try:
                    result = reader.ask(line, limits, labels)
                except _ReaderDiedError as death:
                    reader.close()
                    if death.took_too_long:
                        break
                    continue
                except Problem:
                    self._give(reader)
                    raise
                except BaseException:
                    reader.close()
                    raise
                self._give(reader)
                return result
        raise Problem("bad-parquet", "it cannot be read within the limits of memory and time")

    def _take(self) -> _Reader:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return _Reader()

    def _give(self, reader: _Reader) -> None:
        with self._lock:
            self._idle.append(reader)

    def close(self) -> None:
        """End the processes."""
        if os.getpid() != self._owner:  # a fork has no say in its parent's processes
            return
        with self._lock:
            idle, self._idle = self._idle, []
        for reader in idle:
            reader.close()

    def __enter__(self) -> Checker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _ReaderDiedError(Exception):
    """The process ended, or was ended because it took too long."""

    took_too_long = False


class _Reader:
    """One process; see `_checker`."""

    def __init__(self) -> None:
        arguments = [str(_PACKAGE), str(_PACKAGE / "parties"), *sys.path]
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-c", _START, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **_SMALL},
        )
        fcntl.fcntl(self._process.stdout, fcntl.F_SETPIPE_SZ, _PIPE)  # type: ignore[arg-type]
        if self._process.stdout.readline() != b"ready\n":  # type: ignore[union-attr]
            self.close()
            raise Problem("unavailable")

    def ask(self, line: bytes, limits: Limits, labels: list[Any] | None) -> tuple[Keys, Any]:
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
            keys = _read_array(answers, np.empty(rows, dtype=KEY))
            if labels is None:
                return keys, None
            codes = _read_array(answers, np.empty(rows, dtype=np.uint8 if len(labels) <= 256 else np.uint16))
            if codes.max() >= len(labels):
                raise _ReaderDiedError
            return keys, codes
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


def _read_array(answers: Any, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if answers.readinto(array.view(np.uint8).data) != array.nbytes:
        raise _ReaderDiedError
    return array


_checkers: dict[int, Checker] = {}  # by process, for a fork must not share the pipes
_checkers_lock = threading.Lock()


def _shared_checker() -> Checker:
    with _checkers_lock:
        if os.getpid() not in _checkers:
            _checkers[os.getpid()] = checker = Checker()
            atexit.register(checker.close)
        return _checkers[os.getpid()]


# --- writing ---------------------------------------------------------------------------------------------------------


def write_portfolio_part(frame: Any, spec: PortfolioSpec) -> bytes:
    """Write a portfolio as one part: Parquet, the same bytes for the same rows.

    Parameters
    ----------
    frame : data frame
        pandas, polars or Arrow, with the columns of ``spec``; others are left out. Keys are bytes of length 16.
    spec : PortfolioSpec

    Returns
    -------
    part : bytes
    """
    return _write(_portfolio_table(frame, spec), _categories(spec))


def write_portfolio_parts(frame: Any, spec: PortfolioSpec, part_bytes: int = 32 << 20) -> Iterator[bytes]:
    """Write a portfolio as parts of about equal size.

    Parameters
    ----------
    frame : data frame
        See `write_portfolio_part`.
    spec : PortfolioSpec
    part_bytes : int
        How large a part may become, roughly: what its rows take unpacked.

    Yields
    ------
    part : bytes
    """
    table = _portfolio_table(frame, spec)
    count = max(1, math.ceil(table.nbytes / part_bytes))
    cuts = [table.num_rows * i // count for i in range(count + 1)]
    for start, stop in itertools.pairwise(cuts):
        if stop > start:
            yield _write(table.slice(start, stop - start), _categories(spec))


def write_report_part(keys: Any, reports: Any, channel: Channel | None = None) -> bytes:
    """Write a batch of reports: Parquet with the columns ``key`` and ``report``, the same bytes for the same rows.

    The rows are sorted by key: the order in which people reported stays at home, and the receiver need not sort.

    Parameters
    ----------
    keys : sequence of bytes of length 16, or array of dtype V16
    reports : sequence of shape (n,)
    channel : Channel, optional
        The channel that drew the reports; its description goes with them.

    Returns
    -------
    part : bytes
    """
    import pyarrow as pa

    labels = infer_labels(reports, "reports") if channel is None else channel.reports
    codes = encode_labels(reports, labels, name="reports")
    if any(isinstance(label, tuple) for label in labels):
        raise ValueError("reports must be single values. Reports of several attributes cannot be sent as a part.")
    rows = as_keys(keys)
    if len(rows) != len(codes):
        raise ValueError(f"keys must have one key per report. Got {len(rows)} keys and {len(codes)} reports.")
    order = sort_words(*to_words(rows))
    rows, codes = rows[order], codes[order]
    column = pa.DictionaryArray.from_arrays(pa.array(codes, type=pa.int32()), pa.array(labels))
    if not is_string(column.type.value_type):
        column = column.dictionary_decode()
    table = _table({"key": _key_array(rows), "report": column})
    return _write(table if channel is None else attach_descriptor(table, channel), ["report"])


def _portfolio_table(frame: Any, spec: PortfolioSpec) -> Any:
    import narwhals as nw

    table = nw.from_native(frame, eager_only=True)
    kinds = {feature.name: feature.kind for feature in (*spec.features, *spec.x_star)}
    numbers = [name for name, kind in kinds.items() if kind == "number"] + [spec.outcome]
    numbers += [] if spec.weight is None else [spec.weight]
    wanted = [spec.key, *kinds, spec.outcome, *([] if spec.weight is None else [spec.weight])]
    missing = [name for name in wanted if name not in table.columns]
    if missing:
        raise ValueError(f"The table has no column {missing}. Its columns are {table.columns}.")
    columns = {spec.key: _keys_of(table.get_column(spec.key))}
    for name in wanted[1:]:
        column = _combine(table.get_column(name).to_arrow())
        try:
            columns[name] = _numbers(column) if name in numbers else _texts(column)
        except Problem as problem:
            raise ValueError(f"Column {name!r} cannot be sent: {problem.detail}.") from None
    return _table({name: columns[name] for name in wanted})


def _keys_of(column: Any) -> Any:
    import pyarrow as pa

    array = _combine(column.to_arrow())
    if array.null_count or not (
        array.type == pa.binary(WIDTH) or pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type)
    ):
        raise ValueError(f"keys must be bytes of length {WIDTH}. Make them with the secret of the study.")
    if array.type == pa.binary(WIDTH):
        return array
    return _key_array(as_keys(array.to_pylist()))


def _key_array(keys: Keys) -> Any:
    import pyarrow as pa

    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(WIDTH), len(keys), [None, pa.py_buffer(keys.view(np.uint8))])


def _combine(column: Any) -> Any:
    import pyarrow as pa

    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _numbers(column: Any) -> Any:
    import pyarrow as pa

    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    elif pa.types.is_float16(column.type):
        column = column.cast(pa.float32())
    check_number_type(column.type)
    check_numbers(column)
    return column


def _texts(column: Any) -> Any:
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    check_category_type(column.type)
    check_categories(column, set(), Limits())
    return column


def _table(columns: dict[str, Any]) -> Any:
    import pyarrow as pa

    fields = [pa.field(name, column.type, nullable=False) for name, column in columns.items()]
    return pa.Table.from_arrays(list(columns.values()), schema=pa.schema(fields))


def _categories(spec: PortfolioSpec) -> list[str]:
    return [feature.name for feature in (*spec.features, *spec.x_star) if feature.kind == "category"]


def _write(table: Any, dictionaries: list[str], compression: str = "lz4") -> bytes:
    """Write Parquet; LZ4 costs next to nothing where it does not help, ZSTD saves less time than it takes."""
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(
        table,
        sink,
        row_group_size=_ROWS_PER_GROUP,
        compression=compression,
        use_dictionary=dictionaries,
        write_statistics=False,
    )
    return sink.getvalue()
