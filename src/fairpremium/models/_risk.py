"""The signed risk of K linear predictors, and its local quadratic models.

    R(b_1, ..., b_K) = sum_i sum_k  table[k, s_i] w_i loss(y_i, z_i' b_k)

where table[k, s] is the weight that a row with report s has for group k (the inverse channel for the
paper's estimator, an indicator for the true attribute, ones for the unaware price). Weights may be
negative. Two implementations give the same `Expansion`: squared loss from the moments, without a pass,
and any other family by one pass over the rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from fairpremium.arrays import Array
from fairpremium.blocks import Block, Rows, Stream
from fairpremium.families import Family, Normal
from fairpremium.models._moments import Moments


@dataclass(frozen=True)
class Expansion:
    """Value, gradient and Hessian of the risk at one point, per cross-validation fold and group."""

    value: Array  # (folds, K)
    gradient: Array  # (folds, q, K)
    hessian: Array  # (folds, K, q, q); empty if it was not asked for

    def select(self, folds: npt.NDArray[np.bool_]) -> Expansion:
        """Sum over some of the folds."""
        return Expansion(
            self.value[folds].sum(axis=0, keepdims=True),
            self.gradient[folds].sum(axis=0, keepdims=True),
            self.hessian[folds].sum(axis=0, keepdims=True),
        )


class SignedRisk(ABC):
    """The risk of K linear predictors under signed row weights."""

    moments: Moments
    table: Array  # (K, codes)
    family: Family

    @property
    def n_groups(self) -> int:
        """Number of linear predictors."""
        return len(self.table)

    @property
    def q(self) -> int:
        """Number of coefficients of one predictor."""
        return self.moments.q

    @abstractmethod
    def expand(self, B: Array, *, hessian: bool = True) -> Expansion:
        """Expand the risk at coefficients B of shape (q, K), for all groups in one pass."""

    @abstractmethod
    def deviance(self, B: Array) -> Array:
        """Compute sum_i sum_k table[k, s_i] w_i d(y_i, mu_k(x_i)) per fold for many coefficients: (folds, candidates).

        B, of shape (folds, candidates, q, K), holds the coefficients to be tried on each fold.
        """


class SquaredRisk(SignedRisk):
    """Half the squared error; a quadratic function, so that one expansion is exact everywhere."""

    def __init__(self, moments: Moments, table: Array):
        self.moments, self.table, self.family = moments, table, Normal()
        q = moments.q
        weighted = np.einsum("ks,fsij->fkij", table, moments.second)
        self._gram = weighted[:, :, :q, :q]  # (folds, K, q, q)
        self._cross = weighted[:, :, :q, q]  # (folds, K, q)
        self._square = weighted[:, :, q, q]  # (folds, K)

    def expand(self, B: Array, *, hessian: bool = True) -> Expansion:
        """Expand the risk at B."""
        b = self._shifted(B).T  # (K, q)
        product = np.einsum("fkij,kj->fki", self._gram, b)
        value = 0.5 * (self._square + np.einsum("ki,fki->fk", b, product - 2 * self._cross))
        return Expansion(value, np.swapaxes(product - self._cross, 1, 2), self._gram)

    def deviance(self, B: Array) -> Array:
        """Compute the signed sums of squared errors per fold."""
        b = np.swapaxes(self._shifted(B), 2, 3)  # (folds, candidates, K, q)
        product = np.einsum("fkij,fckj->fcki", self._gram, b) - 2 * self._cross[:, None]
        return np.asarray(self._square.sum(axis=1)[:, None] + np.einsum("fcki,fcki->fc", b, product))

    def _shifted(self, B: Array) -> Array:
        b = np.array(B, dtype=np.float64)
        b[..., 0, :] -= self.moments.y_center  # the moments hold y - y_center
        return b


class GlmRisk(SignedRisk):
    """Half the deviance of any family, summed over the rows."""

    def __init__(self, rows: Rows | Stream, moments: Moments, table: Array, family: Family):
        self.rows, self.moments, self.table, self.family = rows, moments, table, family
        self.coordinates = moments.coordinates
        self._row_table = np.ascontiguousarray(table.T)  # (codes, K)
        self._folds = len(moments.second) if rows.fold is not None else 1

    def row_weights(self, block: Block) -> Array:
        """Compute table[k, s_i] w_i, or the rows' own shares times w_i: shape (rows, K)."""
        weights = self._row_table[block.report] if block.share is None else block.share
        return weights if block.weight is None else weights * block.weight[:, None]

    def expand(self, B: Array, *, hessian: bool = True) -> Expansion:
        """Expand the risk at B."""
        scale = self.coordinates.scale
        sums = partial(self._expansion, b=B * scale[:, None], hessian=hessian)
        value, gradient, second = self.rows.reduce(sums, block_rows=2048)
        return Expansion(value, gradient * scale[:, None], second * np.outer(scale, scale))

    def _expansion(self, block: Block, b: Array, hessian: bool) -> tuple[Array, ...]:
        K, q = self.n_groups, self.q
        Z = self.coordinates.centered(block.X)
        a = self.row_weights(block)
        loss, slope, curvature = self.family.loss_terms(block.y[:, None], Z @ b)
        value = np.empty((self._folds, K))
        gradient = np.empty((self._folds, q, K))
        second = np.empty((self._folds, K if hessian else 0, q, q))
        for f, rows in enumerate(_segments(block, self._folds)):
            z, weight = Z[rows], a[rows]
            value[f] = np.einsum("ik,ik->k", weight, loss[rows])
            gradient[f] = z.T @ (weight * slope[rows])
            if hessian:
                bent = weight * curvature[rows]
                for k in range(K):
                    second[f, k] = (z * bent[:, k, None]).T @ z
        return value, gradient, second

    def deviance(self, B: Array) -> Array:
        """Compute the signed sums of unit deviances per fold."""
        _folds, candidates, q, K = B.shape
        b = B * self.coordinates.scale[:, None]
        flat = np.ascontiguousarray(b.transpose(0, 2, 1, 3).reshape(len(B), q, candidates * K))
        return self.rows.reduce(partial(self._deviances, flat=flat), block_rows=2048)[0]

    def _deviances(self, block: Block, flat: Array) -> tuple[Array, ...]:
        K = self.n_groups
        candidates = flat.shape[2] // K
        Z = self.coordinates.centered(block.X)
        a = self.row_weights(block)
        out = np.empty((self._folds, candidates))
        for fold, rows in enumerate(_segments(block, self._folds)):
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                mu = self.family.link.mean_of(Z[rows] @ flat[fold]).reshape(-1, candidates, K)
                deviance = self.family.unit_deviance(block.y[rows, None, None], mu)
            out[fold] = np.einsum("ick,ik->c", deviance, a[rows])
        return (out,)


def make_risk(rows: Rows | Stream, moments: Moments, table: Array, family: Family) -> SignedRisk:
    """Choose the implementation: squared loss needs the moments alone."""
    if isinstance(family, Normal):
        return SquaredRisk(moments, table)
    return GlmRisk(rows, moments, table, family)


def _segments(block: Block, folds: int) -> list[slice | npt.NDArray[np.intp]]:
    if block.fold is None or folds == 1:
        return [slice(None)]
    return [np.flatnonzero(block.fold == fold) for fold in range(folds)]
