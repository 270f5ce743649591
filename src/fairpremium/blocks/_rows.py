"""Rows in memory, and the one operation that estimators need: a sum of a function over blocks of rows."""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from fairpremium.arrays import Array
from fairpremium.blocks._threads import count_workers, one_blas_thread

Codes = npt.NDArray[np.integer[Any]]
Sums = tuple[Array, ...]
RowFunction = Callable[["Block"], Array]

_TASK_ROWS = 65_536  # rows that one thread sums before the partial sums are put in order
_FEW_CODES = 12
_MANY_CELLS = 2**22  # numbers from which on a look at all takes longer than threads need to start


class Block(NamedTuple):
    """Some consecutive rows.

    `report` holds codes into the reports of a channel, with the number of reports as the code of a
    missing one, so that a table with one more column serves every row.
    """

    X: npt.NDArray[Any]  # (rows, features)
    y: Array  # (rows,)
    weight: Array | None  # (rows,) volumes, or None for ones
    report: Codes  # (rows,)
    share: Array | None = None  # (rows, K) weight of the row for each group, where a correction gives one row by row


@dataclass(frozen=True)
class Rows:
    """A portfolio in memory.

    Parameters
    ----------
    X : array of shape (n, features)
    y : array of shape (n,)
    weight : array of shape (n,), optional
        Volumes; None stands for ones.
    report : integer array of shape (n,)
        Codes of the reports; see `Block`.
    share : array of shape (n, K), optional
        Weight of each row for each group, where a correction gives one row by row.
    cluster : integer array of shape (n,), optional
        Code of the person, if one person has several rows.
    """

    X: npt.NDArray[Any]
    y: Array
    weight: Array | None
    report: Codes
    share: Array | None = None
    cluster: Codes | None = None

    def __len__(self) -> int:
        return len(self.y)

    @property
    def n_features(self) -> int:
        """Number of columns of X."""
        return int(self.X.shape[1])

    def block(self, start: int, stop: int) -> Block:
        """Return the rows start to stop."""
        return Block(*self._fields(slice(start, stop))[:-1])

    def take(self, index: npt.NDArray[Any] | slice) -> Rows:
        """Return a copy of the rows with these positions, or where a mask is true; a slice copies nothing."""
        return Rows(*self._fields(index))

    def _fields(self, index: npt.NDArray[Any] | slice) -> list[Any]:
        fields = (self.X, self.y, self.weight, self.report, self.share, self.cluster)
        return [None if field is None else field[index] for field in fields]

    def draw_folds(self, n_folds: int, rng: np.random.Generator) -> npt.NDArray[np.uint8]:
        """Divide the rows at random into folds of equal size, all rows of a person into the same."""
        if self.cluster is None:
            return rng.permutation(np.arange(len(self), dtype=np.uint32) % n_folds).astype(np.uint8)
        code, persons = pd.factorize(self.cluster)  # numbered as they appear, whatever their codes
        return np.asarray(rng.permutation(np.arange(len(persons)) % n_folds).astype(np.uint8)[code])

    @property
    def clustered(self) -> bool:
        """Whether it is known that persons have several rows."""
        return self.cluster is not None

    def without_persons(self) -> Rows:
        """Return the same rows, each as a person of its own."""
        return replace(self, cluster=None)

    def with_shares(self, function: RowFunction) -> Rows:
        """Return the same rows with a weight for each group, a function of the row."""
        return replace(self, share=replace(self, share=None).map(function))

    def spaced(self, size: int) -> Rows:
        """Return evenly spaced rows, at least `size` of them (all, if there are fewer), without a copy."""
        return self.take(slice(None, None, max(1, len(self) // size)))

    def draw(self, size: int) -> Rows:
        """Return a copy of so many rows, one at random from each of equally long parts; always the same."""
        return self.take(draw_places(len(self), size))

    def glance(self, size: int) -> Rows:
        """Return some rows from all over the portfolio, cheaply: enough to know the scale of the columns."""
        return self.spaced(size)

    def reported(self, missing: int) -> Rows:
        """Return the rows whose report is not the code of a missing one."""
        absent = self.report == missing
        return self.take(~absent) if absent.any() else self

    def map(self, function: Callable[[Block], Array], *, block_rows: int = 8192) -> Array:
        """Compute a function of each row: the blocks' results one below the other."""
        starts = range(0, len(self), block_rows)
        with one_blas_thread(), ThreadPoolExecutor(count_workers()) as pool:
            pieces = pool.map(lambda start: function(self.block(start, min(start + block_rows, len(self)))), starts)
            return np.concatenate(list(pieces))

    def reduce(self, function: Callable[[Block], Sums], *, block_rows: int = 8192) -> Sums:
        """Sum a function over blocks of rows.

        Parameters
        ----------
        function : callable
            Takes a `Block` and returns a tuple of arrays whose sums over all blocks are wanted. It
            runs in several threads at once and must not share what it writes to. Its matrix products are
            ``np.dot``: ``@`` keeps the interpreter's lock (NumPy 2.4), so that threads would wait for each other.
        block_rows : int
            Rows per block: small enough for the intermediate results to stay in the processor's cache.

        Notes
        -----
        Blocks are cut and partial sums are added in an order that depends on the number of rows
        alone, so the result does not depend on the number of threads.
        """
        n = len(self)

        def task(first: int) -> Sums:
            return self.reduce_here(function, first, min(first + _TASK_ROWS, n), block_rows)

        starts = range(0, n, _TASK_ROWS)
        with one_blas_thread():  # our threads share the cores
            if len(starts) == 1:
                return task(0)
            with ThreadPoolExecutor(count_workers()) as pool:
                return functools.reduce(add, pool.map(task, starts))

    def reduce_here(self, function: Callable[[Block], Sums], start: int, stop: int, block_rows: int) -> Sums:
        """Sum a function over the rows start to stop in this thread."""
        blocks = (self.block(first, min(first + block_rows, stop)) for first in range(start, stop, block_rows))
        return functools.reduce(add, map(function, blocks))


def count_codes(codes: Codes, n_codes: int) -> npt.NDArray[np.intp]:
    """Count how often each code occurs; comparing all rows with a few codes is faster than `np.bincount`."""
    if n_codes > _FEW_CODES:
        return np.bincount(codes, minlength=n_codes)
    return np.array([np.count_nonzero(codes == code) for code in range(n_codes)])


def draw_places(n: int, size: int) -> npt.NDArray[np.int64]:
    """Draw a place at random from each of `size` equally long parts of n rows, in ascending order."""
    place = np.arange(size) + np.random.default_rng(0).random(size)
    return (n / size * place).astype(np.int64)


def add(a: Sums, b: Sums) -> Sums:
    """Add two results of a reduction."""
    return tuple(x + y for x, y in zip(a, b, strict=True))


def all_finite(values: npt.NDArray[Any]) -> bool:
    """Tell whether no number is missing or infinite."""

    def are_finite(first: int) -> bool:
        return bool(np.isfinite(values[first : first + _TASK_ROWS]).all())

    starts = range(0, len(values), _TASK_ROWS)
    if values.size < _MANY_CELLS:
        return all(map(are_finite, starts))
    with ThreadPoolExecutor(count_workers()) as pool:
        return all(pool.map(are_finite, starts))
