"""Reports at rest: sorted, immutable batches of (key, code) that are searched on disk and merged in the background.

A batch is a file named by its SHA-256: a header, then the first eight bytes of all keys, the last eight bytes, and the
codes, each a plain array. The database lists the current batches of a study. New reports come as a new batch, and now
and then some batches of about the same size become one.

The file, all numbers little-endian:

======  =======================================================================
 bytes  content
======  =======================================================================
     8  ``fprun``, carriage return, line feed, zero
     4  version, 2
     4  width of a code in bytes, 1 or 2
     8  n, the number of rows
    32  what the codes mean: a digest, or zeros (`_report_batch.meaning`)
     8  zeros
   8 n  the first eight bytes of each key as a number, key by key in order
   8 n  the last eight bytes of each key as a number
 w * n  the codes
======  =======================================================================
"""

import os
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ._policy_keys import Keys, Words, find_words, from_words, is_sorted, sort_words, to_words

_MAGIC = b"fprun\r\n\0"
_VERSION = 2
_HEADER = struct.Struct("<8sIIQ32sQ")  # magic, version, bytes per code, rows, meaning, zero
NO_MEANING = bytes(32)

Codes = npt.NDArray[np.unsignedinteger[Any]]


@dataclass(frozen=True, eq=False)
class ReportBatch:
    """Reports in the order of their keys.

    - `high`, `low`: The first and the last eight bytes of the keys, as numbers that sort as the bytes do.
    - `meaning`: Batches with the same meaning can be merged.
    """

    high: Words
    low: Words
    codes: Codes
    meaning: bytes = NO_MEANING

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def keys(self) -> Keys:
        """The keys, dtype V16."""
        return from_words(self.high, self.low)


def code_width(codes: int) -> int:
    """Return the bytes that a code takes when there are so many."""
    return 1 if codes <= 256 else 2


def sort_batch(keys: Keys, codes: npt.ArrayLike, meaning: bytes = NO_MEANING) -> ReportBatch:
    """Sort reports by key; keys that are sorted already cost one look.

    - `keys`: None repeated.
    - `codes`: From 0 to 65535.
    """
    numbers = np.asarray(codes)
    if numbers.shape != keys.shape:
        raise ValueError(f"Got codes of shape {numbers.shape}, but expected one code per key: {keys.shape}.")
    if numbers.dtype not in (np.uint8, np.uint16):
        if len(numbers) and not 0 <= numbers.min() <= numbers.max() < 2**16:
            raise ValueError(f"Got codes from {numbers.min()} to {numbers.max()}, but expected 0 to 65535.")
        numbers = numbers.astype(f"u{code_width(int(numbers.max()) + 1 if len(numbers) else 0)}")
    high, low = to_words(keys)
    if not is_sorted(high, low, distinct=True):
        order = sort_words(high, low)
        high, low, numbers = high[order], low[order], numbers[order]
        if not is_sorted(high, low, distinct=True):
            raise ValueError("Got keys that are repeated, but expected distinct ones.")
    return ReportBatch(high, low, numbers, meaning)


def batch_pieces(batch: ReportBatch) -> Iterator[bytes | memoryview]:
    """Yield the bytes of a batch's file, piece by piece."""
    yield batch_header(batch.codes.dtype.itemsize, len(batch), batch.meaning)
    for column in (batch.high, batch.low, batch.codes):
        yield plain_bytes(column)


def batch_header(width: int, rows: int, meaning: bytes) -> bytes:
    """Return the first bytes of a batch's file."""
    return _HEADER.pack(_MAGIC, _VERSION, width, rows, meaning, 0)


def open_batch(path: str | os.PathLike[str]) -> ReportBatch:
    """Open a batch without reading it: its columns are memory-mapped."""
    path = Path(path)
    size = path.stat().st_size
    with path.open("rb") as file:
        header = file.read(_HEADER.size)
    if len(header) < _HEADER.size:
        raise ValueError("Got a batch without a header, but expected a whole file. Send it again.")
    magic, version, width, rows, meaning, rest = _HEADER.unpack(header)
    if magic != _MAGIC or version != _VERSION or width not in (1, 2) or rest != 0:
        raise ValueError(f"Got another file, but expected a batch of version {_VERSION}. Install what reads it.")
    if size != _HEADER.size + rows * (16 + width):
        raise ValueError("Got a batch of another size than its rows have, but expected a whole file. Send it again.")
    if rows == 0:
        return ReportBatch(np.empty(0, np.uint64), np.empty(0, np.uint64), np.empty(0, f"<u{width}"), meaning)
    words = np.memmap(path, dtype="<u8", mode="r", offset=_HEADER.size, shape=(2, rows))
    codes = np.memmap(path, dtype=f"<u{width}", mode="r", offset=_HEADER.size + 16 * rows, shape=(rows,))
    return ReportBatch(np.asarray(words[0]), np.asarray(words[1]), np.asarray(codes), meaning)


def match(keys: Keys, batches: Iterable[ReportBatch]) -> npt.NDArray[np.int32]:
    """Return the reports of keys, -1 for keys without one: the join of a portfolio with a study.

    - `keys`: In any order, repeated or not.
    - `batches`: Where several have a key, they have the same code.
    """
    high, low = to_words(keys)
    order = None
    if not is_sorted(high, low):
        order = sort_words(high, low)
        high, low = high[order], low[order]
    codes = find_codes(high, low, batches)
    if order is None:
        return codes
    result = np.empty_like(codes)
    result[order] = codes
    return result


def find_codes(high: Words, low: Words, batches: Iterable[ReportBatch]) -> npt.NDArray[np.int32]:
    """Return the reports of keys that are sorted and given as words; see `match`."""
    codes = np.full(len(high), -1, dtype=np.int32)
    for batch in batches:
        if len(batch) and len(codes):  # only keys between the first and the last one of the batch can be there
            start, stop = np.searchsorted(high, batch.high[0]), np.searchsorted(high, batch.high[-1], side="right")
            place = find_words(batch.high, batch.low, high[start:stop], low[start:stop])
            is_here = place >= 0
            codes[start:stop][is_here] = batch.codes[place[is_here]]
    return codes


def plain_bytes(column: npt.NDArray[Any]) -> memoryview:
    """Return the bytes of an array as files hold them: contiguous, little-endian."""
    return memoryview(np.ascontiguousarray(column, dtype=column.dtype.newbyteorder("<")).data).cast("B")
