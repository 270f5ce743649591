"""What the insurer knows anyway: features, outcomes and volumes of its rows, and the price that needs no report.

Disclosure control may depend on these freely. To be sure that nothing else slips in, not even through the rounding of
a sum whose order follows the reports, the rows here carry no report at all.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from fairpremium.arrays import Array
from fairpremium.blocks import Block, Reader, RowFunction, Rows, Stream
from fairpremium.families import Family
from fairpremium.models import Design, LinearModel, LinearProblem, check_outcome, check_weight, prepare

_NULL = 1e-12  # a direction with less than this part of the largest spread is none


@dataclass(frozen=True)
class PublicRows:
    """Rows without reports, with the unaware price that they give.

    Parameters
    ----------
    problem : LinearProblem
        Rows whose reports are all one code, the unaware price and the metric of its curvature.
    design : Design
        From the caller's columns to the features.
    """

    problem: LinearProblem
    design: Design

    @property
    def rows(self) -> Rows | Stream:
        """The rows."""
        return self.problem.rows

    @property
    def parameters(self) -> int:
        """Coefficients of one group's linear predictor."""
        return self.problem.moments.q

    @property
    def effective_rows(self) -> float:
        """(sum of w)^2 / sum of w^2."""
        moments = self.problem.moments
        return float(moments.weights.sum() ** 2 / moments.squared_weights.sum())


def public_rows(rows: Rows | Stream, design: Design, family: Family, model: LinearModel | None = None) -> PublicRows:
    """Leave the reports out and fit the unaware price.

    Parameters
    ----------
    rows : Rows or Stream
        With or without reports.
    design : Design
    family : Family
    model : LinearModel, optional
        With its ridge; for another model class leave it out, a small ridge then keeps rare levels in.
    """
    blind = without_reports(rows)
    with warnings.catch_warnings():  # that features are redundant is said where prices are fitted
        warnings.filterwarnings("ignore", message="The features", category=UserWarning)
        problem = prepare(blind, 1, 1, family, LinearModel(ridge=1.0) if model is None else model, design.features)
    return PublicRows(problem, design)


def read_rows(
    X: Any, y: Any, sample_weight: Any, family: Family, codes: npt.NDArray[Any] | None = None
) -> tuple[Rows, Design]:
    """Turn a table into rows, after the checks of every fit; reports only if their codes are given."""
    design, matrix = Design.learn_transform(X)
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
    return replace(rows, report=np.zeros(len(rows), dtype=np.uint16), fold=None, share=None)


def without_reports(rows: Rows | Stream) -> Rows | Stream:
    """Return the same rows with one and the same code in place of every report."""
    if isinstance(rows, Rows):
        return _forget(rows)
    return replace(rows, reader=_Blind(rows.reader), fold=None, share=None, missing=None, _known={})


# --- the largest value over rows ---


@dataclass(frozen=True)
class _Largest:
    """The task of finding the largest value of a function of rows."""

    function: RowFunction

    def __call__(self, rows: Rows, start: int) -> float:
        return float(rows.map(self.function).max())

    def join(self, a: float, b: float) -> float:
        return max(a, b)


def largest(rows: Rows | Stream, function: RowFunction) -> float:
    """Compute the largest value that a function of a row takes."""
    task = _Largest(function)
    return task(rows, 0) if isinstance(rows, Rows) else max(rows.apply(task))


# --- how much a single row can move ---


def _design_rows(block: Block, problem: LinearProblem) -> Array:
    """Rows of the design, sqrt(w) z."""
    Z = problem.moments.coordinates.matrix(block.X)
    return Z if block.weight is None else Z * np.sqrt(block.weight)[:, None]


def _scores(block: Block, problem: LinearProblem) -> Array:
    """Scores w loss'(y, z'b) z at the unaware price."""
    Z = problem.moments.coordinates.matrix(block.X)
    _, slope, _ = problem.family.loss_terms(block.y, Z @ problem.unaware[:, 0])
    return np.asarray(Z * (slope if block.weight is None else slope * block.weight)[:, None])


def _squares(block: Block, vectors: RowFunction) -> tuple[Array, ...]:
    V = vectors(block)
    return (V.T @ V,)


def _shares(block: Block, vectors: RowFunction, root: Array) -> Array:
    return np.asarray(((vectors(block) @ root) ** 2).sum(axis=1))


def largest_leverage(public: PublicRows) -> float:
    """Compute the largest w z' (sum of w z z')^-1 z over the rows."""
    return _largest_share(public, partial(_design_rows, problem=public.problem))


def largest_score_share(public: PublicRows) -> float:
    """Compute the largest u'(sum of u u')^-1 u over the rows, with u = w loss'(y, mu(x)) z at the unaware price.

    It is the largest part of the sum of squared scores, in any direction, that one row contributes.
    """
    return _largest_share(public, partial(_scores, problem=public.problem))


def _largest_share(public: PublicRows, vectors: RowFunction) -> float:
    total = public.rows.reduce(partial(_squares, vectors=vectors))[0]
    scale = np.sqrt(np.diag(total))
    scale[scale == 0] = 1.0
    values, directions = np.linalg.eigh(total / np.outer(scale, scale))
    seen = values > _NULL * values[-1]
    if not seen.any():
        return 0.0
    root = directions[:, seen] / np.sqrt(values[seen]) / scale[:, None]
    return largest(public.rows, partial(_shares, vectors=vectors, root=root))
