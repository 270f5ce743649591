"""Cross-validation folds of any number of rows, decided by a row's position alone.

Up to a million rows the folds are a random permutation of a balanced list, one byte per row. With more rows, permuting
would take nearly as long as a pass. Consecutive rows then form sets, each with one row per fold. One of 4,096 random
permutations, chosen by a hash of the set's number, assigns the folds of a set. The folds are balanced and random, none
is stored, and whoever reads a row computes its fold. Where a row is stored does not matter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

FoldNumbers = npt.NDArray[np.uint8]

_STORED_ROWS = 1_000_000
_TABLE = 4096


@dataclass(frozen=True)
class Folds:
    """The fold of each row of a portfolio: stored, or chosen from a table by a hash."""

    first: int = 0  # position of the row that the first entry of `stored` belongs to
    stored: FoldNumbers | None = None  # (rows,) the folds themselves
    table: FoldNumbers | None = None  # (4096, folds) the permutations of which a hash chooses
    salt: int = 0  # makes the hash different from one fit to the next

    @classmethod
    def draw(cls, n: int, n_folds: int, rng: np.random.Generator) -> Folds:
        """Divide n rows at random into folds of equal size (up to one row)."""
        if n <= _STORED_ROWS:
            return cls(stored=rng.permutation(np.arange(n, dtype=np.uint32) % n_folds).astype(np.uint8))
        table = rng.permuted(np.tile(np.arange(n_folds, dtype=np.uint8), (_TABLE, 1)), axis=1)
        return cls(table=table, salt=int(rng.integers(2**63)))

    def cut(self, start: int, stop: int) -> Folds:
        """Return what is needed for the rows start to stop."""
        if self.stored is None:
            return self
        return Folds(start, self.stored[start - self.first : stop - self.first])

    def of(self, start: int, stop: int) -> FoldNumbers:
        """Return the folds of the rows start to stop."""
        if self.stored is not None:
            return self.stored[start - self.first : stop - self.first]
        assert self.table is not None
        n_folds = self.table.shape[1]
        sets = np.arange(start // n_folds, (stop - 1) // n_folds + 1 if stop > start else start // n_folds)
        flat = self.table[_hash(sets, self.salt) % _TABLE].ravel()
        begin = start % n_folds
        return np.asarray(flat[begin : begin + stop - start])


def _hash(numbers: npt.NDArray[np.int64], salt: int) -> npt.NDArray[Any]:
    """Mix integers (the finaliser of splitmix64)."""
    with np.errstate(over="ignore"):
        h = (numbers.astype(np.uint64) + np.uint64(salt)) * np.uint64(0x9E3779B97F4A7C15)
        h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return h ^ (h >> np.uint64(31))
