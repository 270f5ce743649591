"""Keys of 16 bytes as arrays: sorted, compared and searched as pairs of 64-bit words.

A column of keys is a one-dimensional array of dtype ``V16``. Keys sort as bytes do. The first eight bytes of honest
keys, parts of an HMAC, practically never agree; those of crafted ones may. Both are sorted and searched exactly.
"""

import os
from typing import Any

import numpy as np
import numpy.typing as npt

WIDTH = 16
KEY = np.dtype(f"V{WIDTH}")
_BLOCK = 1 << 18  # keys that are compared at a time
_AT_A_TIME = 20  # bits: a million keys are sorted at a time, or the work would take several times their memory

Keys = npt.NDArray[np.void]
Words = npt.NDArray[np.uint64]


def as_keys(values: Any) -> Keys:
    """Return keys as an array of dtype ``V16``.

    - `values` (sequence of bytes, or array of dtype V16)

    Examples
    --------
    >>> as_keys([b"0123456789abcdef"]).tobytes()
    b'0123456789abcdef'
    """
    if isinstance(values, np.ndarray) and values.dtype == KEY and values.ndim == 1:
        return values
    keys = list(values)
    if not all(isinstance(key, bytes) and len(key) == WIDTH for key in keys):
        raise ValueError(f"Got other keys, but expected bytes of length {WIDTH}. Make them with the study's secret.")
    return np.frombuffer(b"".join(keys), dtype=KEY)


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
    """Return the order that sorts keys, given as words; equal keys stay in their order.

    Two stable sorts of 16 bits, which numpy does by counting, order the first 32 bits, more than twice as fast as an
    `argsort` of the words. Rows whose first bits agree are then sorted among themselves: a few in a million, unless
    somebody crafted them.
    """
    order = np.argsort((high >> np.uint64(32)).astype(np.uint16), kind="stable")
    order = order[np.argsort((high >> np.uint64(48)).astype(np.uint16)[order], kind="stable")]
    first = (high >> np.uint64(32)).astype(np.uint32)[order]
    tied = np.flatnonzero(first[1:] == first[:-1])
    if len(tied):
        places = np.union1d(tied, tied + 1)
        rows = order[places]
        order[places] = rows[np.lexsort((low[rows], high[rows]))]
    return order


def has_repeats(keys: Keys) -> bool:
    """Return whether a key is repeated; fastest when they are sorted."""
    high, low = to_words(keys)
    if is_sorted(high, low, distinct=True):
        return False
    bits = max(0, len(keys).bit_length() - _AT_A_TIME)  # keys that begin alike are compared, some at a time
    first = high >> np.uint64(64 - bits) if bits else np.zeros(len(keys), dtype=np.uint64)
    for part in range(1 << bits):
        rows = np.flatnonzero(first == part)
        order = rows[sort_words(high[rows], low[rows])]
        if not is_sorted(high[order], low[order], distinct=True):
            return True
    return False


def is_sorted(high: Words, low: Words, *, distinct: bool = False) -> bool:
    """Return whether keys, given as words, are in order, and perhaps whether none is repeated."""
    compare = np.less if distinct else np.less_equal
    for start in range(0, len(high) - 1, _BLOCK):
        stop = min(start + _BLOCK, len(high) - 1)
        is_later = high[start + 1 : stop + 1] > high[start:stop]
        if not np.all(is_later):
            rest = start + np.flatnonzero(~is_later)
            if not np.all((high[rest] == high[rest + 1]) & compare(low[rest], low[rest + 1])):
                return False
    return True


def read_keys(path: str | os.PathLike[str], column: str) -> Keys:
    """Read the keys of a checked Parquet file, in order."""
    import pyarrow.parquet as pq

    values = pq.read_table(path, columns=[column]).column(0).combine_chunks()
    return np.frombuffer(values.buffers()[1], dtype=KEY, count=len(values), offset=WIDTH * values.offset)


def find_words(high: Words, low: Words, wanted_high: Words, wanted_low: Words) -> npt.NDArray[np.int64]:
    """Return the positions of wanted keys among sorted, distinct ones, both as words; -1 where one is not there.

    - `high`, `low`: Sorted; they may be memory-mapped.
    - `wanted_high`, `wanted_low`: Sorted, so that neighbours are looked for in the same few pages.
    """
    found = np.full(len(wanted_high), -1, dtype=np.int64)
    if not len(high):
        return found
    rows = _maybe_among(high, wanted_high)
    place = np.minimum(np.searchsorted(high, wanted_high[rows]), len(high) - 1)
    is_there = high[place] == wanted_high[rows]
    rows, place = rows[is_there], place[is_there]  # the first eight bytes are there
    is_same = low[place] == wanted_low[rows]
    found[rows[is_same]] = place[is_same]
    rows, place = rows[~is_same], place[~is_same]
    if len(rows):  # other keys may begin alike: search the last eight bytes among these
        wanted = wanted_low[rows]
        lower, end = place, np.searchsorted(high, wanted_high[rows], side="right")
        upper = end
        while np.any(lower < upper):
            middle = np.minimum((lower + upper) // 2, len(low) - 1)
            is_before = low[middle] < wanted
            lower, upper = np.where(is_before & (lower < upper), middle + 1, lower), np.where(is_before, upper, middle)
        is_same = lower < end
        is_same[is_same] = low[lower[is_same]] == wanted[is_same]
        found[rows[is_same]] = lower[is_same]
    return found


def _maybe_among(high: Words, wanted: Words) -> npt.NDArray[np.int64]:
    """Return the rows of wanted keys that may be there, by their first bits; only these are worth a search."""
    if len(wanted) < len(high) // 8:
        return np.arange(len(wanted))
    bits = min(len(high).bit_length() + 3, 24)
    shift = np.uint64(64 - bits)
    is_taken = np.zeros(1 << bits, dtype=bool)
    is_taken[(high >> shift).view(np.int64)] = True
    return np.flatnonzero(is_taken[(wanted >> shift).view(np.int64)])
