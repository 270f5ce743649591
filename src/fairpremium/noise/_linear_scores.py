"""Linear scores of the reports: fast, and enough to find the rows where a report is likely."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from fairpremium.blocks import one_blas_thread

_RIDGE = 1.0  # in rows; columns may be collinear


@dataclass
class LinearScores:
    """Least squares of each report's indicator on the columns, which a limit on other rows needs no better than that.

    Columns should be centred and of spread one.
    """

    design: NDArray[np.float64]  # (n_samples, n_columns)
    s: NDArray[np.intp]  # (n_samples,), S as codes
    n_groups: int
    rng: np.random.Generator

    def fit(self, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return the coefficients, one column per report."""
        Z = self._columns(rows)
        indicator = np.eye(self.n_groups)[self.s[rows]]
        with one_blas_thread():  # threads cost more than such matrices
            gram = Z @ Z.T
            gram[np.diag_indices_from(gram)] += _RIDGE
            B: NDArray[np.float64] = cho_solve(cho_factor(gram), Z @ (indicator - indicator.mean(axis=0)))
        return B

    def predict(self, fitted: NDArray[np.float64], rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return the scores, one column per report."""
        with one_blas_thread():
            scores: NDArray[np.float64] = fitted.T @ self._columns(rows)
        return scores.T

    def _columns(self, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return the columns of these rows: shape (n_columns, rows)."""
        return np.take(self.design.T, rows, axis=1)


def standardise(design: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the columns centred and of spread one, stored one after the other; constant ones are zero."""
    return _standardise(np.array(design.T, dtype=np.float64, order="C")).T


def with_outcome(design: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the columns and y, standardised, and their products with y: what y says may depend on x."""
    both = np.empty((2, design.shape[1] + 1, len(y)))
    both[0, :-1], both[0, -1] = design.T, y
    z = _standardise(both[0])
    np.multiply(z, z[-1], out=both[1])
    return both.reshape(-1, len(y)).T


def _standardise(z: NDArray[np.float64]) -> NDArray[np.float64]:
    """Standardise columns in place: shape (n_columns, n_samples)."""
    largest = np.maximum(z.max(axis=1), -z.min(axis=1))
    z /= np.where(largest > 0, largest, 1.0)[:, None]  # squares of very large or small numbers have no float
    z -= z.mean(axis=1)[:, None]
    spread = np.sqrt(np.einsum("ij,ij->i", z, z) / z.shape[1])
    z /= np.where(spread > 0, spread, 1.0)[:, None]
    return z
