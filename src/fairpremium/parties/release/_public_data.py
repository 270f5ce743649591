"""What the insurer knows anyway: features, outcomes and volumes of its rows, and the price that needs no report.

Disclosure control may depend on these freely. To be sure that nothing else slips in, not even through the rounding of
a sum whose order follows the reports, the rows here carry no report at all.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fairpremium.arrays import Array
from fairpremium.blocks import Block, Reader, RowFunction, Rows, Stream
from fairpremium.families import Family
from fairpremium.models import Design, LinearModel, LinearProblem, check_outcome, check_weight, prepare

_NULL = 1e-12  # a direction with less than this part of the largest spread is none


def public_problem(rows: Rows | Stream, design: Design, family: Family, model: LinearModel | None) -> LinearProblem:
    """Leave the reports out, so that all rows have the same code, and fit the unaware price.

    - `rows`: With or without reports.
    - `model`: With its ridge. None stands for another model class: a small ridge then lets rare levels stay.
    """
    model = model or LinearModel(ridge=1.0)
    # that features are redundant is said where prices are fitted
    return prepare(without_reports(rows), 1, family, model, design.features, redundant_told=False)


def read_rows(
    X: Any,
    y: Any,
    sample_weight: Any,
    family: Family,
    codes: npt.NDArray[Any] | None = None,
    terms: str | None = None,
) -> tuple[Rows, Design]:
    """Turn a table into rows, after the checks of every fit; reports only if their codes are given."""
    design, matrix = Design.learn_transform(X, terms=terms)
    n = len(matrix)
    if n < 2:
        raise ValueError(f"Got X with {n} row, but expected at least two.")
    outcome = check_outcome(y, n, family)
    weight = check_weight(sample_weight, n)
    if codes is not None and len(codes) != n:
        raise ValueError(f"Got reports with {len(codes)} rows, but X has {n}; expected the same number.")
    report = np.zeros(n, dtype=np.uint16) if codes is None else codes.astype(np.uint16)
    return Rows(matrix, outcome, weight, report), design


@dataclass(frozen=True)
class _Blind:
    """A reader that forgets the reports."""

    reader: Reader

    @property
    def columns(self) -> tuple[str, ...]:
        return self.reader.columns

    @property
    def n_features(self) -> int:
        return self.reader.n_features

    def __call__(self, table: Any) -> Rows:
        return _forget(self.reader(table))


def _forget(rows: Rows) -> Rows:
    return replace(rows, report=np.zeros(len(rows), dtype=np.uint16), share=None)


def without_reports(rows: Rows | Stream) -> Rows | Stream:
    """Return the same rows with one and the same code in place of every report."""
    if isinstance(rows, Rows):
        return _forget(rows)
    return replace(rows, reader=_Blind(rows.reader), share=None, missing=None, _known={})


# --- the largest value over rows ---


@dataclass(frozen=True)
class _Largest:
    """The task of finding the largest values of a function of rows; what is no number stays so."""

    function: RowFunction

    def __call__(self, rows: Rows, start: int) -> Array:
        return np.asarray(rows.map(partial(_largest_of_block, function=self.function)).max(axis=0))

    @staticmethod
    def join(a: Array, b: Array) -> Array:
        """Return the larger values."""
        return np.asarray(np.maximum(a, b))


def _largest_of_block(block: Block, function: RowFunction) -> Array:
    return np.asarray(function(block).max(axis=0, keepdims=True))


def largest_values(rows: Rows | Stream, function: RowFunction) -> Array:
    """Compute the largest value of each number that a function gives for a row."""
    task = _Largest(function)
    return task(rows, 0) if isinstance(rows, Rows) else functools.reduce(task.join, rows.apply(task))


def largest(rows: Rows | Stream, function: RowFunction) -> float:
    """Compute the largest value that a function of a row takes."""
    return float(largest_values(rows, function))


def row_lengths(V: Array) -> Array:
    """Compute the Euclidean length of each row; no square underflows or overflows on the way.

    Examples
    --------
    >>> [f"{length:.3g}" for length in row_lengths(np.array([[3e-200, 4e-200], [0.0, 0.0], [3e200, -4e200]]))]
    ['5e-200', '0', '5e+200']
    """
    size = np.abs(V).max(axis=1)
    unit = np.where(size > 0, size, 1.0)[:, None]
    return np.asarray(size * np.linalg.norm(V / unit, axis=1))


def part_within(lengths: Array, limit: float) -> Array:
    """Return the factors that make lengths at most a limit."""
    return np.divide(limit, lengths, out=np.ones_like(lengths), where=lengths > limit)


@dataclass(frozen=True)
class _Furthest:
    """The task of finding the row with the largest value of a function, and the vector of that row."""

    function: RowFunction
    vectors: RowFunction

    def __call__(self, rows: Rows, start: int) -> tuple[float, Array]:
        values = rows.map(self.function)
        i = int(values.argmax())
        return float(values[i]), self.vectors(rows.block(i, i + 1))[0]

    @staticmethod
    def join(a: tuple[float, Array], b: tuple[float, Array]) -> tuple[float, Array]:
        """Return the larger one, the first of equal ones."""
        return b if b[0] > a[0] else a


# --- how much a single row can move ---


class LargestShare(NamedTuple):
    """The row that stands out most.

    - `share`: Its share of a sum of squares, in the direction in which that is largest.
    - `column`: The column, or term, that contributes most to it; None if there is no feature.
    - `without`: The share of the same row if the features of the coefficient in question were left out.
    """

    share: float
    column: str | None
    without: float


def weight_of(block: Block) -> Array:
    """Return the volumes of the rows of a block."""
    return np.ones(len(block.y)) if block.weight is None else block.weight


def _design_rows(block: Block, problem: LinearProblem) -> Array:
    """Rows of the design, sqrt(w) z."""
    return problem.moments.coordinates.matrix(block.X) * np.sqrt(weight_of(block))[:, None]


def unaware_slope(block: Block, problem: LinearProblem) -> tuple[Array, Array]:
    """Compute z and loss'(y, z'b) of each row at the unaware price."""
    Z = problem.moments.coordinates.matrix(block.X)
    return Z, problem.family.loss_terms(block.y, Z @ problem.unaware[:, 0])[1]


def _scores(block: Block, problem: LinearProblem) -> Array:
    """Scores w loss'(y, z'b) z at the unaware price."""
    Z, slope = unaware_slope(block, problem)
    return np.asarray(Z * (slope * weight_of(block))[:, None])


def _magnitudes(block: Block, vectors: RowFunction) -> Array:
    return np.abs(vectors(block))


def _in_units(block: Block, vectors: RowFunction, units: Array) -> Array:
    return vectors(block) / units


def _squares(block: Block, vectors: RowFunction) -> tuple[Array, ...]:
    V = vectors(block)
    return (V.T @ V,)


def _shares(block: Block, vectors: RowFunction, root: Array) -> Array:
    return np.asarray(((vectors(block) @ root) ** 2).sum(axis=1))


def largest_leverage(problem: LinearProblem, design: Design) -> LargestShare:
    """Compute the largest w z' (sum of w z z')^-1 z over the rows."""
    return _largest_share(problem, design, _design_rows)


def largest_score_share(problem: LinearProblem, design: Design) -> LargestShare:
    """Compute the largest u'(sum of u u')^-1 u over the rows, with u = w loss'(y, mu(x)) z at the unaware price.

    It is the largest part of the sum of squared scores, in any direction, that one row contributes.
    """
    return _largest_share(problem, design, _scores)


def _largest_share(problem: LinearProblem, design: Design, function: Callable[..., Array]) -> LargestShare:
    """Find the row that stands out most, and the column by which it does.

    With G the sum of v v' a row v has the share v' G^-1 v. Leaving out coordinate j takes (G^-1 v)_j^2 / (G^-1)_jj from
    it: the column of the coordinate that takes most is named, but never the intercept, which is no column. No share
    depends on the units of the coordinates: their largest values are taken, so that no square underflows or overflows.
    """
    vectors = partial(function, problem=problem)
    units = largest_values(problem.rows, partial(_magnitudes, vectors=vectors))
    units[units == 0] = 1.0
    vectors = partial(_in_units, vectors=vectors, units=units)
    root = whitening(problem.rows.reduce(partial(_squares, vectors=vectors))[0], _NULL)
    task, rows = _Furthest(partial(_shares, vectors=vectors, root=root), vectors), problem.rows
    share, v = task(rows, 0) if isinstance(rows, Rows) else functools.reduce(task.join, rows.apply(task))
    used = problem.moments.coordinates.used
    if not len(used):
        return LargestShare(share, None, share)
    spread = np.maximum((root**2).sum(axis=1), np.finfo(float).tiny)
    taken = ((root @ (v @ root)) ** 2 / spread)[1:]
    j = int(taken.argmax())
    return LargestShare(share, design.origins[used[j]], share - float(taken[j]))


def whitening(gram: Array, null: float) -> Array:
    """Return R with R' G R = I, without the directions that have less than a part of the largest spread."""
    scale = np.sqrt(np.diag(gram))
    scale[scale == 0] = 1.0
    values, directions = np.linalg.eigh(gram / np.outer(scale, scale))
    seen = values > null * values[-1]
    return np.asarray(directions[:, seen] / np.sqrt(values[seen]) / scale[:, None])
