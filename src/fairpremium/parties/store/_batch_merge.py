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

_MERGED_ROWS = 1 << 18  # rows of all runs together that are merged at a time
_TIER = 8  # so many runs of a size over each other become one, which is then of the next size
_MANY = 64  # and so many anyway
_SMALL = 1 << 12  # rows below which all runs count as equally small


def store_batch(store: FileStore, run: ReportBatch) -> str:
    """Write a run into a store and return its digest."""
    with store.receive() as incoming:
        for piece in batch_pieces(run):
            incoming.write(piece)
        return incoming.commit()


class Extent(NamedTuple):
    """How many rows a run has, and from where to where: the first eight bytes of its first and last key."""

    rows: int
    first: int
    last: int


def plan_merge(runs: Mapping[str, Extent]) -> tuple[str, ...]:
    """Choose which runs to merge now; none when a key can be in few of them only.

    - `runs`: The runs of a study that are alive, by digest.

    Returns all runs of a size, within a factor of eight or below 4096 rows, of which eight or more overlap somewhere,
    or that are more than sixty-four; the smallest such size. Or nothing.

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
    """Return the largest number of runs that overlap in one place."""
    starts, ends = sorted(extent.first for extent in extents), sorted(extent.last for extent in extents)
    return max((i + 1 - bisect_left(ends, start) for i, start in enumerate(starts)), default=0)


def _tier(rows: int) -> int:
    tier = 0
    while rows >= _SMALL:
        rows //= _TIER
        tier += 1
    return tier


def merge_batches(store: FileStore, runs: Sequence[ReportBatch]) -> str:
    """Write the union of runs as one run, piece by piece, and return its digest.

    - `runs`: Where several have a key, they have the same code, which is stored once. All have the same meaning.
    """
    meanings = {run.meaning for run in runs} or {NO_MEANING}
    if len(meanings) > 1:
        raise ValueError("runs must have the same meaning.")
    width = max((run.codes.dtype.itemsize for run in runs), default=1)
    rows = 0
    with contextlib.ExitStack() as stack:
        stack.enter_context(full_disk_as_problem())
        columns = [stack.enter_context(tempfile.TemporaryFile(dir=store.folder)) for _ in range(3)]
        incoming = stack.enter_context(store.receive())
        for piece in _merged(runs):
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


def _merged(runs: Sequence[ReportBatch]) -> Iterator[ReportBatch]:
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
        yield ReportBatch(high[is_new], low[is_new], codes[is_new])
        starts = stops


def _next_stops(runs: Sequence[ReportBatch], starts: list[int]) -> list[int]:
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


def _count_up_to(run: ReportBatch, start: int, stop: int, last: tuple[int, int]) -> int:
    """Count the keys of a run between two positions that are not after a key."""
    high, low = (np.uint64(word) for word in last)
    part = run.high[start:stop]
    below = int(np.searchsorted(part, high))
    upto = int(np.searchsorted(part, high, side="right"))
    return below + int(np.searchsorted(run.low[start + below : start + upto], low, side="right"))
