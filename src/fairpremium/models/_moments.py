"""Second moments of the rows, per report: all that squared loss needs, from one pass.

With z = (1, standardised features) and the outcome y the pass collects, for each report s,

    M_s = sum over rows with report s of  w (z, y)(z, y)'.

The signed normal equations of group k are then sum_s T^-1[k, s] M_s, for any channel, any pooling
strength and any cross-validation split without looking at a row again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from fairpremium.arrays import Array
from fairpremium.blocks import Block, Rows, Stream, count_codes

_SAMPLE_ROWS = 4096
_SORTED_ROWS = 65_536  # rows that are sorted at once where columns are stored one by one
_BLOCK_CELLS = 16_384 * 20  # numbers in one block where rows are stored one by one
_PRODUCT_ROWS = 4096  # rows in one matrix product, so that they are in the cache
_FEW_SPREADS = 4.0  # a center this many spreads from zero costs one digit in sixteen
_COLLINEAR = 1e-10  # a feature is redundant if the others explain all but this share of its variance


@dataclass(frozen=True)
class Coordinates:
    """Features on a scale of their own, z = (1, (x - center) / spread), redundant ones left out.

    The scale only makes the arithmetic accurate: every result is reported on the caller's scale.
    """

    center: Array  # (features,)
    spread: Array  # (features,)
    used: npt.NDArray[np.intp]  # positions of the features in use

    @cached_property
    def is_near_zero(self) -> bool:
        """Whether sums of (1, x) can be moved to the center afterwards, because that cancels few digits."""
        center, spread = self.center[self.used], self.spread[self.used]
        return bool((np.abs(center) <= _FEW_SPREADS * spread).all())

    def features(self, X: npt.NDArray[Any]) -> Array:
        """Return the features in use for sums over rows, as they are or moved to their center: (rows, features in use).

        What is left to do for z, a pass applies to its small results: see `from_features`.
        """
        X = np.asarray(X if len(self.used) == X.shape[1] else X[:, self.used], dtype=np.float64)
        return X if self.is_near_zero else X - self.center[self.used]

    @cached_property
    def from_features(self) -> Array:
        """Matrix A with z = A (1, features): shape (1 + features in use, 1 + features in use)."""
        A = np.diag(self.scale)
        if self.is_near_zero:
            A[1:, 0] = -self.center[self.used] * self.scale[1:]
        return A

    @property
    def scale(self) -> Array:
        """Factors that turn (1, x - center) into z: shape (1 + features in use,)."""
        return np.concatenate([[1.0], 1 / self.spread[self.used]])

    def matrix(self, X: npt.NDArray[Any]) -> Array:
        """Compute z for each row, stored column by column: shape (rows, 1 + features in use)."""
        Z = np.empty((1 + len(self.used), len(X)))
        Z[0] = 1.0
        Z[1:] = X.T if len(self.used) == X.shape[1] else X.T[self.used]
        Z[1:] -= self.center[self.used, None]
        Z[1:] *= self.scale[1:, None]
        return Z.T

    def to_raw(self, B: Array) -> Array:
        """Turn coefficients of z, shape (1 + features in use, K), into those of (1, x): (1 + features, K)."""
        raw = np.zeros((1 + len(self.center), B.shape[1]))
        raw[1 + self.used] = B[1:] / self.spread[self.used, None]
        raw[0] = B[0] - self.center @ raw[1:]
        return raw

    def jacobian(self) -> Array:
        """Matrix that turns one group's coefficients of z into those of (1, x)."""
        return self.to_raw(np.eye(1 + len(self.used)))


@dataclass(frozen=True)
class Moments:
    """Sums over the rows; the last index of the first two axes of `second` is the missing report."""

    coordinates: Coordinates
    y_center: float
    by_report: Array  # (codes, q + 1, q + 1), of (z, y - y_center)
    weights: Array  # (codes,), sums of w
    squared_weights: Array  # (codes,), sums of w^2
    counts: Array  # (codes,)

    @property
    def q(self) -> int:
        """Number of coefficients of one group: the intercept and the features in use."""
        return int(self.by_report.shape[-1]) - 1

    @cached_property
    def gram(self) -> Array:
        """Sum of w z z' over all rows."""
        return np.asarray(self.by_report.sum(axis=0)[: self.q, : self.q])

    @property
    def total_weight(self) -> float:
        """Sum of all weights."""
        return float(self.weights.sum())

    def effective_rows(self, table: Array) -> Array:
        """Compute (sum_i a_i)^2 / sum_i a_i^2 with a_i = table[k, s_i] w_i, for each group k."""
        total = table @ self.weights
        squares = table**2 @ self.squared_weights
        return np.asarray(np.divide(total**2, squares, out=np.zeros_like(total), where=squares > 0))

    def without(self, redundant: npt.NDArray[np.intp]) -> Moments:
        """Return the moments without the features at these positions of z."""
        stay = np.setdiff1d(np.arange(self.q + 1), redundant)
        used = self.coordinates.used
        coordinates = replace(self.coordinates, used=used[np.setdiff1d(np.arange(len(used)), redundant - 1)])
        return replace(self, coordinates=coordinates, by_report=self.by_report[:, stay[:, None], stay])


def compute_moments(
    rows: Rows | Stream, n_codes: int, *, collinear: bool = False, like: Moments | None = None
) -> Moments:
    """Collect the moments of the rows in one pass, for each report code.

    Features that are linear combinations of others go, unless `collinear` says that they may stay, which a ridge can
    handle; constant ones go in any case. With `like`, its coordinates (scale and features in use) are taken over.
    """
    if like is None:
        coordinates, y_center = _scale(rows)
    else:
        coordinates, y_center = replace(like.coordinates, used=np.arange(rows.n_features)), like.y_center
    sums = _BlockMoments(coordinates, y_center, n_codes)
    in_memory = int(np.clip(_BLOCK_CELLS // max(rows.n_features, 1), 1024, 16_384))
    block_rows = _SORTED_ROWS if isinstance(rows, Stream) else in_memory
    by_report, weights, squares, counts = rows.reduce(sums, block_rows=block_rows)
    A = np.eye(len(by_report[0]))
    A[:-1, :-1] = coordinates.from_features
    moments = Moments(coordinates, y_center, A @ by_report @ A.T, weights, squares, counts)
    if like is not None:
        redundant = 1 + np.setdiff1d(np.arange(rows.n_features), like.coordinates.used)
    else:
        redundant = find_redundant(moments.gram, collinear=collinear)
    return moments.without(redundant) if len(redundant) else moments


@dataclass(frozen=True)
class _BlockMoments:
    """Sums of w, w^2, 1 and w (1, features, y - y_center)(...)' over a block, for each report.

    The rows of a report are put together first, so that each needs few matrix products.
    """

    coordinates: Coordinates
    y_center: float
    n_codes: int

    def __call__(self, block: Block) -> tuple[Array, Array, Array, Array]:
        n_codes = self.n_codes
        kind: Any = np.uint16 if n_codes <= 2**16 else np.int64  # small integers sort in linear time
        code = block.report.astype(kind, copy=False)
        counts = count_codes(code, n_codes)
        order = np.argsort(code, kind="stable")
        if block.weight is None:
            root, weights, squares = None, counts.astype(float), counts.astype(float)
        else:
            root = np.sqrt(block.weight)
            weights = np.bincount(code, weights=block.weight, minlength=n_codes)
            squares = np.bincount(code, weights=block.weight**2, minlength=n_codes)
        by_column = block.X.strides[0] == block.X.itemsize and block.X.shape[1] > 1
        second = (self._by_column if by_column else self._by_row)(block, root, order, counts)
        return second, weights, squares, counts.astype(float)

    def _by_row(
        self, block: Block, root: Array | None, order: npt.NDArray[np.intp], counts: npt.NDArray[np.intp]
    ) -> Array:
        q = 1 + block.X.shape[1]
        # built from the first row to the last, which brings them into the cache, where single rows are found quickly
        V = np.empty((len(order), q + 1))
        V[:, 0] = 1.0
        V[:, 1:q] = self.coordinates.features(block.X)
        np.subtract(block.y, self.y_center, out=V[:, q])
        if root is not None:
            V *= root[:, None]
        V = np.take(V, order, axis=0)
        second = np.zeros((self.n_codes, q + 1, q + 1))
        for code, cut in _cut_by_report(counts):
            second[code] += np.dot(V[cut].T, V[cut])
        return second

    def _by_column(
        self, block: Block, root: Array | None, order: npt.NDArray[np.intp], counts: npt.NDArray[np.intp]
    ) -> Array:
        q = 1 + block.X.shape[1]
        X, y = block.X.T, block.y[order]
        root = None if root is None else root[order]
        center = None if self.coordinates.is_near_zero else self.coordinates.center[:, None]
        buffer = np.empty((q + 1) * _PRODUCT_ROWS)
        second = np.zeros((self.n_codes, q + 1, q + 1))
        for code, cut in _cut_by_report(counts):
            rows = cut.stop - cut.start
            v = buffer[: (q + 1) * rows].reshape(q + 1, rows)
            v[0] = 1.0
            v[1:q] = np.take(X, order[cut], axis=1)  # column by column, in their own type
            if center is not None:
                v[1:q] -= center
            np.subtract(y[cut], self.y_center, out=v[q])
            if root is not None:
                v *= root[cut]
            second[code] += np.dot(v, v.T)
        return second


def _cut_by_report(counts: npt.NDArray[np.intp]) -> Iterator[tuple[int, slice]]:
    """Cut rows that are in the order of their reports into pieces of one report, each for one matrix product."""
    stop = 0
    for code, count in enumerate(counts.tolist()):
        start, stop = stop, stop + count
        for first in range(start, stop, _PRODUCT_ROWS):
            yield code, slice(first, min(first + _PRODUCT_ROWS, stop))


def find_redundant(gram: Array, *, collinear: bool = False) -> npt.NDArray[np.intp]:
    """Find the features that are linear combinations of those before them, or with `collinear` the constant ones.

    `gram` holds second moments, shape (q, q); its first column is the intercept. Greedy Gauss elimination on the
    correlation scale: a column is redundant when what is left of its variance is below 1e-10 of it.
    """
    scale = np.sqrt(np.diag(gram))
    scale[scale == 0] = 1.0
    left = gram / np.outer(scale, scale)
    redundant = []
    for j in range(len(left)):
        pivot = left[j, j]
        if pivot <= _COLLINEAR:
            redundant.append(j)
            continue
        if collinear and j > 0:
            continue
        row = left[j] / np.sqrt(pivot)
        left = left - np.outer(row, row)
    return np.asarray(redundant, dtype=np.intp)


def _scale(rows: Rows | Stream) -> tuple[Coordinates, float]:
    """Take center and spread from some rows: close enough for accurate arithmetic."""
    some = rows.glance(_SAMPLE_ROWS)
    sample = np.asarray(some.X, dtype=np.float64)
    center = sample.mean(axis=0)
    spread = sample.std(axis=0)
    tiny = 1e-12 * np.maximum(np.abs(center), np.finfo(float).tiny)
    # of a constant nothing must be left: it is moved to its center before it is summed, see `is_near_zero`
    constant = np.where(center == 0, 1.0, np.abs(center) / (2 * _FEW_SPREADS))
    spread = np.where(spread > tiny, spread, constant)
    return Coordinates(center, spread, np.arange(rows.n_features)), float(some.y.mean())
