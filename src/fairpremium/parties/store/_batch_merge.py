"""Files of reports in the store: written as they come, and merged in the background so that they stay few."""

import contextlib
import tempfile
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from fairpremium.parties.faults import point
from fairpremium.parties.protocol import NO_MEANING, ReportBatch, batch_header, batch_pieces, plain_bytes, sort_words

from ._files import FileStore, full_disk_as_problem

_MERGED_ROWS = 1 << 18  # rows of all batches together that are merged at a time
_TIER = 8  # so many batches of a size over each other become one, which is then of the next size
_MANY = 64  # and so many anyway
_SMALL = 1 << 12  # rows below which all batches count as equally small


def store_batch(store: FileStore, batch: ReportBatch) -> str:
    """Write a batch into a store and return its digest."""
    with store.receive() as incoming:
        for piece in batch_pieces(batch):
            incoming.write(piece)
        return incoming.commit()


class Extent(NamedTuple):
    """How many rows a batch has, and from where to where: the first eight bytes of its first and last key."""

    rows: int
    first: int
    last: int


def plan_merge(batches: Mapping[str, Extent]) -> tuple[str, ...]:
    """Choose which batches to merge now; none when a key can be in few of them only.

    - `batches`: The current batches of a study, by digest.

    Returns all batches of a size, within a factor of eight or below 4096 rows, of which eight or more overlap
    somewhere, or that are more than sixty-four; the smallest such size. Or nothing.

    Notes
    -----
    With N rows a key is looked for in at most 7 (1 + log8(N / 4096)) batches, and each row is written about
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
    for digest, extent in batches.items():
        tiers.setdefault(_tier(extent.rows), []).append(digest)
    for _, digests in sorted(tiers.items()):
        if len(digests) > _MANY or _depth([batches[digest] for digest in digests]) >= _TIER:
            return tuple(digests)
    return ()


def _depth(extents: Sequence[Extent]) -> int:
    """Return the largest number of batches that overlap in one place."""
    starts, ends = sorted(extent.first for extent in extents), sorted(extent.last for extent in extents)
    return max((i + 1 - bisect_left(ends, start) for i, start in enumerate(starts)), default=0)


def _tier(rows: int) -> int:
    tier = 0
    while rows >= _SMALL:
        rows //= _TIER
        tier += 1
    return tier


def merge_batches(store: FileStore, batches: Sequence[ReportBatch]) -> str:
    """Write the union of batches as one batch, piece by piece, and return its digest.

    - `batches`: Where several have a key, they have the same code, which is stored once. All have the same meaning.
    """
    meanings = {batch.meaning for batch in batches} or {NO_MEANING}
    if len(meanings) > 1:
        raise ValueError("Got batches of several meanings, but expected one meaning.")
    width = max((batch.codes.dtype.itemsize for batch in batches), default=1)
    rows = 0
    with contextlib.ExitStack() as stack:
        stack.enter_context(full_disk_as_problem())
        columns = [stack.enter_context(tempfile.TemporaryFile(dir=store.folder)) for _ in range(3)]
        incoming = stack.enter_context(store.receive())
        for piece in _merged(batches):
            for column, values in zip(columns, (piece.high, piece.low, piece.codes.astype(f"<u{width}")), strict=True):
                column.write(plain_bytes(values))
            rows += len(piece)
            point("batch.merging")
        incoming.write(batch_header(width, rows, *meanings))
        for column in columns:
            column.seek(0)
            while chunk := column.read(1 << 20):
                incoming.write(chunk)
        return incoming.commit()


def drop_rows(store: FileStore, batch: ReportBatch, positions: Sequence[int]) -> str:
    """Write a batch without some of its rows, and return its digest.

    - `positions`: In order, none twice.
    """
    starts, stops = [0, *(position + 1 for position in positions)], [*positions, len(batch)]
    with store.receive() as incoming:
        incoming.write(batch_header(batch.codes.dtype.itemsize, len(batch) - len(positions), batch.meaning))
        for column in (batch.high, batch.low, batch.codes):
            for start, stop in zip(starts, stops, strict=True):
                if start < stop:
                    incoming.write(plain_bytes(column[start:stop]))
        return incoming.commit()


def _merged(batches: Sequence[ReportBatch]) -> Iterator[ReportBatch]:
    """Yield the union of batches as batches whose keys follow each other."""
    starts = [0] * len(batches)
    while any(start < len(batch) for start, batch in zip(starts, batches, strict=True)):
        stops = _next_stops(batches, starts)
        slices = [
            (batch.high[start:stop], batch.low[start:stop], batch.codes[start:stop])
            for batch, start, stop in zip(batches, starts, stops, strict=True)
        ]
        high, low, codes = (np.concatenate(columns) for columns in zip(*slices, strict=True))
        order = sort_words(high, low)
        high, low, codes = high[order], low[order], codes[order]
        is_new = np.ones(len(high), dtype=bool)
        is_new[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
        if np.any(codes[1:][~is_new[1:]] != codes[:-1][~is_new[1:]]):
            raise ValueError("Got a key with different codes in two batches, but expected one code per key.")
        yield ReportBatch(high[is_new], low[is_new], codes[is_new])
        starts = stops


def _next_stops(batches: Sequence[ReportBatch], starts: list[int]) -> list[int]:
    """Return how far each batch goes in the next piece: to a common key, and some rows of each at the most.

    The key is the least of those that end the next some rows of a batch, so that no batch passes its share.
    """
    share = max(1, _MERGED_ROWS // len(batches))
    last = min(
        (int(batch.high[min(start + share, len(batch)) - 1]), int(batch.low[min(start + share, len(batch)) - 1]))
        for batch, start in zip(batches, starts, strict=True)
        if start < len(batch)
    )
    return [
        start + _count_up_to(batch, start, min(start + share, len(batch)), last)
        for batch, start in zip(batches, starts, strict=True)
    ]


def _count_up_to(batch: ReportBatch, start: int, stop: int, last: tuple[int, int]) -> int:
    """Count the keys of a batch between two positions that are not after a key."""
    high, low = (np.uint64(word) for word in last)
    piece = batch.high[start:stop]
    below = int(np.searchsorted(piece, high))
    upto = int(np.searchsorted(piece, high, side="right"))
    return below + int(np.searchsorted(batch.low[start + below : start + upto], low, side="right"))
