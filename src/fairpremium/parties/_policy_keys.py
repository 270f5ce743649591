"""Keys of 16 bytes as arrays: sorted, compared and searched as pairs of 64-bit words.

A column of keys is a one-dimensional array of dtype ``V16``. Keys sort as bytes do. The first eight bytes of honest
keys, parts of an HMAC, practically never agree; those of crafted ones may. Both are sorted and searched exactly.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import numpy.typing as npt

WIDTH = 16
KEY = np.dtype(f"V{WIDTH}")

Keys = npt.NDArray[np.void]
Words = npt.NDArray[np.uint64]


def as_keys(values: Any) -> Keys:
    """Return keys as an array of dtype ``V16``.

    Parameters
    ----------
    values : sequence of bytes, or array of dtype V16 or of shape (n, 16) and dtype uint8

    Examples
    --------
    >>> as_keys([b"0123456789abcdef"]).tobytes()
    b'0123456789abcdef'
    """
    if isinstance(values, np.ndarray) and values.dtype == KEY and values.ndim == 1:
        return values
    if isinstance(values, np.ndarray) and values.dtype == np.uint8 and values.shape[1:] == (WIDTH,):
        return np.ascontiguousarray(values).view(KEY).reshape(len(values))
    parts = list(values)
    if not all(isinstance(part, bytes) and len(part) == WIDTH for part in parts):
        raise ValueError(f"keys must be bytes of length {WIDTH}. Make them with the secret of the study.")
    return np.frombuffer(b"".join(parts), dtype=KEY)


def to_words(keys: Keys) -> tuple[Words, Words]:
    """Return the first and the last eight bytes of each key as numbers that sort as the bytes do."""
    words = np.ascontiguousarray(keys).view(">u8").reshape(len(keys), 2)
    return words[:, 0].astype(np.uint64), words[:, 1].astype(np.uint64)


def from_words(high: Words, low: Words) -> Keys:
    """Undo `to_words`."""
    words = np.empty((len(high), 2), dtype=">u8")
    words[:, 0] = high
    words[:, 1] = low
    return words.view(KEY).reshape(len(high))


def sort_words(high: Words, low: Words) -> npt.NDArray[np.int64]:
    """Return the order that sorts keys, given as words; equal keys keep their order.

    One word per row, the first bits of its key and then the row's number, is sorted in place, twice as fast as an
    `argsort`. Rows whose first bits agree are then sorted among themselves: a handful in millions, unless somebody
    crafted them.
    """
    bits = np.uint64(max(len(high) - 1, 1).bit_length())
    packed = high >> bits << bits
    packed |= np.arange(len(high), dtype=np.uint64)
    packed.sort()
    order = (packed & ((np.uint64(1) << bits) - np.uint64(1))).view(np.int64)
    packed >>= bits
    tied = np.flatnonzero(packed[1:] == packed[:-1])
    if len(tied):
        places = np.union1d(tied, tied + 1)
        rows = order[places]
        order[places] = rows[np.lexsort((low[rows], high[rows]))]
    return order


def has_repeats(high: Words, low: Words) -> bool:
    """Return whether sorted keys, given as words, repeat one."""
    same = np.flatnonzero(high[1:] == high[:-1])
    return bool(np.any(low[same] == low[same + 1]))


def is_sorted(high: Words, low: Words) -> bool:
    """Return whether keys, given as words, are in order."""
    if not np.all(high[1:] >= high[:-1]):
        return False
    same = np.flatnonzero(high[1:] == high[:-1])
    return bool(np.all(low[same] <= low[same + 1]))


def read_keys(path: str | os.PathLike[str], column: str) -> Keys:
    """Read the keys of a checked Parquet file, in order."""
    import pyarrow.parquet as pq

    values = pq.read_table(path, columns=[column]).column(0).combine_chunks()
    return np.frombuffer(values.buffers()[1], dtype=KEY, count=len(values), offset=WIDTH * values.offset)
