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
_STEP = 1 << 13
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


def find_words(high: Words, low: Words, wanted_high: Words, wanted_low: Words) -> npt.NDArray[np.int64]:
    """Return the positions of wanted keys among sorted, distinct ones, both as words; -1 where one is not there.

    Parameters
    ----------
    high, low : ndarray of uint64, shape (n,)
        Sorted; they may be memory-mapped.
    wanted_high, wanted_low : ndarray of uint64, shape (m,)
        Sorted, so that neighbours are looked for in the same few pages.
    """
    place = np.empty(len(wanted_high), dtype=np.int64)
    for start in range(0, len(place), _STEP):
        wanted = wanted_high[start : start + _STEP]
        first = np.searchsorted(high, wanted[0])
        last = np.searchsorted(high, wanted[-1], side="right")
        place[start : start + _STEP] = first + np.searchsorted(high[first:last], wanted)
    place[place == len(high)] = -1
    here = np.flatnonzero(place >= 0)
    here = here[high[place[here]] == wanted_high[here]]  # the first eight bytes are there
    found = np.full(len(place), -1, dtype=np.int64)
    is_same = low[place[here]] == wanted_low[here]
    found[here[is_same]] = place[here[is_same]]
    rest = here[~is_same]
    if len(rest):  # others may begin alike: search the last eight bytes among these
        lower = place[rest] + 1
        upper = np.searchsorted(high, wanted_high[rest], side="right")
        end = upper.copy()
        while np.any(lower < upper):
            middle = np.minimum((lower + upper) // 2, len(low) - 1)
            is_left = low[middle] < wanted_low[rest]
            is_open = lower < upper
            lower = np.where(is_open & is_left, middle + 1, lower)
            upper = np.where(is_open & ~is_left, middle, upper)
        inside = lower < end
        inside[inside] = low[lower[inside]] == wanted_low[rest[inside]]
        found[rest[inside]] = lower[inside]
    return found
