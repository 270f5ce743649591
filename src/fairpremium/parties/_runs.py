"""Reports at rest: sorted, immutable runs of (key, code) that are searched where they lie and merged in the background.

A run is a file named by its SHA-256: a header, then the first eight bytes of all keys, the last eight bytes, and the
codes, each a plain array. The database lists the runs of a study that are alive; new reports come as a new run, and now
and then some runs of about the same size become one.

The file, all numbers little-endian:

======  =======================================================================
 bytes  content
======  =======================================================================
     8  ``fprun``, carriage return, line feed, zero
     4  version, 2
     4  width of a code in bytes, 1 or 2
     8  n, the number of rows
    32  what the codes mean: a digest, or zeros (`_report_parts.meaning`)
     8  zeros
   8 n  the first eight bytes of each key as a number, key by key in order
   8 n  the last eight bytes of each key as a number
 w * n  the codes
======  =======================================================================
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
import tempfile
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ._blobs import BlobStore, full_is_a_problem
from ._faults import point
from ._policy_keys import Keys, Words, find_words, from_words, is_sorted, sort_words, to_words

_MAGIC = b"fprun\r\n\0"
_VERSION = 2
_HEADER = struct.Struct("<8sIIQ32sQ")  # magic, version, bytes per code, rows, meaning, zero
_NO_MEANING = bytes(32)
_MERGED_ROWS = 1 << 18  # rows of all runs together that are merged at a time
_TIER = 8  # so many runs of a size over each other become one, which is then of the next size
_MANY = 64  # and so many anyway
_SMALL = 1 << 12  # rows below which all runs count as equally small

Codes = npt.NDArray[np.unsignedinteger[Any]]


@dataclass(frozen=True, eq=False)
class Run:
    """Reports in the order of their keys.

    Attributes
    ----------
    high, low : ndarray of uint64, shape (rows,)
        The first and the last eight bytes of the keys, as numbers that sort as the bytes do.
    codes : ndarray of uint8 or uint16, shape (rows,)
    meaning : bytes of length 32
        Runs with the same meaning can be merged.
    """

    high: Words
    low: Words
    codes: Codes
    meaning: bytes = _NO_MEANING

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def keys(self) -> Keys:
        """The keys, dtype V16."""
        return from_words(self.high, self.low)

    def lookup(self, keys: Keys) -> npt.NDArray[np.int32]:
        """Return the codes of keys, -1 for those that are not here."""
        return match(keys, [self])


def code_width(codes: int) -> int:
    """Return the bytes that a code takes when there are so many."""
    return 1 if codes <= 256 else 2


def sort_run(keys: Keys, codes: npt.ArrayLike, meaning: bytes = _NO_MEANING) -> Run:
    """Sort reports by key; keys that are sorted already cost one look.

    Parameters
    ----------
    keys : ndarray of dtype V16
        None repeated.
    codes : array-like of int, shape (n,)
        From 0 to 65535.
    meaning : bytes of length 32
    """
    numbers = np.asarray(codes)
    if numbers.shape != keys.shape:
        raise ValueError(f"codes must have one code per key. Got shapes {numbers.shape} and {keys.shape}.")
    if numbers.dtype not in (np.uint8, np.uint16):
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < 2**16:
            raise ValueError("codes must lie between 0 and 65535.")
        numbers = numbers.astype(f"u{code_width(int(numbers.max()) + 1 if len(numbers) else 0)}")
    high, low = to_words(keys)
    if not is_sorted(high, low, distinct=True):
        order = sort_words(high, low)
        high, low, numbers = high[order], low[order], numbers[order]
        if not is_sorted(high, low, distinct=True):
            raise ValueError("keys must be distinct.")
    return Run(high, low, numbers, meaning)


def pack_run(run: Run) -> bytes:
    """Return the bytes of a run's file."""
    return b"".join(_pieces(run))


def write_run(store: BlobStore, run: Run) -> str:
    """Write a run into a store and return its digest."""
    with store.receive() as incoming:
        for piece in _pieces(run):
            incoming.write(piece)
        return incoming.keep()


def _pieces(run: Run) -> Iterator[bytes | memoryview]:
    yield _header(run.codes.dtype.itemsize, len(run), run.meaning)
    for column in (run.high, run.low, run.codes):
        yield _plain(column)


def _header(width: int, rows: int, meaning: bytes) -> bytes:
    return _HEADER.pack(_MAGIC, _VERSION, width, rows, meaning, 0)


def open_run(path: str | os.PathLike[str], *, verify: bool = False) -> Run:
    """Open a run where it lies: its columns are memory-mapped.

    Parameters
    ----------
    path : str or Path
    verify : bool
        Whether to read it all and compare its SHA-256 with its name.
    """
    path = Path(path)
    size = path.stat().st_size
    with path.open("rb") as file:
        header = file.read(_HEADER.size)
        if verify:
            file.seek(0)
            if hashlib.file_digest(file, "sha256").hexdigest() != path.name:
                raise ValueError("A run is damaged: its content does not match its name.")
    if len(header) < _HEADER.size:
        raise ValueError("A run is damaged: it has no header.")
    magic, version, width, rows, meaning, rest = _HEADER.unpack(header)
    if magic != _MAGIC or version != _VERSION or width not in (1, 2) or rest != 0:
        raise ValueError(f"Expected a run of version {_VERSION}. Install a version that reads it.")
    if size != _HEADER.size + rows * (16 + width):
        raise ValueError("A run is damaged: its size is not the one of its rows.")
    if rows == 0:
        return Run(np.empty(0, np.uint64), np.empty(0, np.uint64), np.empty(0, f"<u{width}"), meaning)
    words = np.memmap(path, dtype="<u8", mode="r", offset=_HEADER.size, shape=(2, rows))
    codes = np.memmap(path, dtype=f"<u{width}", mode="r", offset=_HEADER.size + 16 * rows, shape=(rows,))
    return Run(np.asarray(words[0]), np.asarray(words[1]), np.asarray(codes), meaning)


def match(keys: Keys, runs: Iterable[Run], singles: Run | None = None, *, missing: int = -1) -> npt.NDArray[np.int32]:
    """Return the reports of keys: the join of a portfolio with a study.

    Parameters
    ----------
    keys : ndarray of dtype V16, shape (n,)
        In any order, repeated or not.
    runs : iterable of Run
        Where several have a key, they have the same code.
    singles : Run, optional
        Reports that came one by one; see `sort_run`.
    missing : int
        What stands for keys without a report.

    Returns
    -------
    codes : ndarray of int32, shape (n,)
    """
    high, low = to_words(keys)
    order = None
    if not is_sorted(high, low):
        order = sort_words(high, low)
        high, low = high[order], low[order]
    codes = find_codes(high, low, [*runs, *([] if singles is None else [singles])], missing=missing)
    if order is None:
        return codes
    result = np.empty_like(codes)
    result[order] = codes
    return result


def find_codes(high: Words, low: Words, runs: Iterable[Run], *, missing: int = -1) -> npt.NDArray[np.int32]:
    """Return the reports of keys that are sorted and given as words; see `match`."""
    codes = np.full(len(high), missing, dtype=np.int32)
    for run in runs:
        if len(run) and len(codes):  # only keys between the first and the last one of the run can be there
            start, stop = np.searchsorted(high, run.high[0]), np.searchsorted(high, run.high[-1], side="right")
            place = find_words(run.high, run.low, high[start:stop], low[start:stop])
            is_here = place >= 0
            codes[start:stop][is_here] = run.codes[place[is_here]]
    return codes


class Extent(NamedTuple):
    """How many rows a run has, and from where to where: the first eight bytes of its first and last key."""

    rows: int
    first: int
    last: int


def plan_merge(runs: Mapping[str, Extent]) -> tuple[str, ...]:
    """Choose which runs to merge now; none when a key can be in few of them only.

    Parameters
    ----------
    runs : dict of str to Extent
        The runs of a study that are alive, by digest.

    Returns
    -------
    digests : tuple of str
        All runs of a size, within a factor of eight or below 4096 rows, of which eight or more lie over each other
        somewhere, or that are more than sixty-four; the smallest such size. Or nothing.

    Notes
    -----
    With N rows a key is looked for in at most 7 (1 + log8(N / 4096)) runs, and each row is written about
    1 + log8(N / 4096) times at the most.

    Examples
    --------
    >>> over_each_other = {str(i): Extent(1000, 0, 99) for i in range(8)}
    >>> plan_merge({**over_each_other, "large": Extent(5_000_000, 0, 99)})
    ('0', '1', '2', '3', '4', '5', '6', '7')
    >>> plan_merge({str(i): Extent(1000, 10 * i, 10 * i + 9) for i in range(8)})
    ()
    """
    tiers: dict[int, list[str]] = {}
    for digest, extent in runs.items():
        tiers.setdefault(_tier(extent.rows), []).append(digest)
    for _, digests in sorted(tiers.items()):
        if len(digests) > _MANY or _depth([runs[digest] for digest in digests]) >= _TIER:
            return tuple(digests)
    return ()


def _depth(extents: Sequence[Extent]) -> int:
    """Return how many runs lie over each other where most do."""
    starts, ends = sorted(extent.first for extent in extents), sorted(extent.last for extent in extents)
    return max((i + 1 - bisect_left(ends, start) for i, start in enumerate(starts)), default=0)


def _tier(rows: int) -> int:
    tier = 0
    while rows >= _SMALL:
        rows //= _TIER
        tier += 1
    return tier


def merge_runs(store: BlobStore, runs: Sequence[Run]) -> str:
    """Write the union of runs as one run, piece by piece, and return its digest.

    Parameters
    ----------
    store : BlobStore
    runs : sequence of Run
        Where several have a key, they have the same code, which is kept once. All have the same meaning.
    """
    meanings = {run.meaning for run in runs} or {_NO_MEANING}
    if len(meanings) > 1:
        raise ValueError("runs must have the same meaning.")
    width = max((run.codes.dtype.itemsize for run in runs), default=1)
    rows = 0
    with contextlib.ExitStack() as stack:
        stack.enter_context(full_is_a_problem())
        columns = [stack.enter_context(tempfile.TemporaryFile(dir=store.folder)) for _ in range(3)]
        incoming = stack.enter_context(store.receive())
        for piece in _merged(runs):
            for column, values in zip(columns, (piece.high, piece.low, piece.codes.astype(f"<u{width}")), strict=True):
                column.write(_plain(values))
            rows += len(piece)
            point("run.merging")
        incoming.write(_header(width, rows, *meanings))
        for column in columns:
            column.seek(0)
            while chunk := column.read(1 << 20):
                incoming.write(chunk)
        return incoming.keep()


def _merged(runs: Sequence[Run]) -> Iterator[Run]:
    """Yield the union of runs as runs whose keys follow each other."""
    starts = [0] * len(runs)
    while any(start < len(run) for start, run in zip(starts, runs, strict=True)):
        stops = _next_stops(runs, starts)
        parts = [
            (run.high[start:stop], run.low[start:stop], run.codes[start:stop])
            for run, start, stop in zip(runs, starts, stops, strict=True)
        ]
        high, low, codes = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        order = sort_words(high, low)
        high, low, codes = high[order], low[order], codes[order]
        is_new = np.ones(len(high), dtype=bool)
        is_new[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
        if np.any(codes[1:][~is_new[1:]] != codes[:-1][~is_new[1:]]):
            raise ValueError("Two runs have a key with different codes.")
        yield Run(high[is_new], low[is_new], codes[is_new])
        starts = stops


def _next_stops(runs: Sequence[Run], starts: list[int]) -> list[int]:
    """Return how far each run goes in the next piece: to a common key, and some rows of each at the most.

    The key is the least of those that end the next some rows of a run, so that no run passes its share.
    """
    share = max(1, _MERGED_ROWS // len(runs))
    last = min(
        (int(run.high[min(start + share, len(run)) - 1]), int(run.low[min(start + share, len(run)) - 1]))
        for run, start in zip(runs, starts, strict=True)
        if start < len(run)
    )
    return [
        start + _count_up_to(run, start, min(start + share, len(run)), last)
        for run, start in zip(runs, starts, strict=True)
    ]


def _count_up_to(run: Run, start: int, stop: int, last: tuple[int, int]) -> int:
    """Count the keys of a run between two positions that are not after a key."""
    high, low = (np.uint64(word) for word in last)
    part = run.high[start:stop]
    below = int(np.searchsorted(part, high))
    upto = int(np.searchsorted(part, high, side="right"))
    return below + int(np.searchsorted(run.low[start + below : start + upto], low, side="right"))


def _plain(column: npt.NDArray[Any]) -> memoryview:
    """Return the bytes of an array as files hold them: contiguous, little-endian."""
    return memoryview(np.ascontiguousarray(column, dtype=column.dtype.newbyteorder("<")).data).cast("B")
