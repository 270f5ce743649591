"""Linear scores of the reports: fast, and enough to find the rows where a report is likely."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from fairpremium.blocks import blas

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
        Z = self.design[rows]
        indicator = np.eye(self.n_groups)[self.s[rows]]
        with blas().limit(limits=1, user_api="blas"):  # threads cost more than such matrices
            gram = Z.T @ Z
            gram[np.diag_indices_from(gram)] += _RIDGE
            B: NDArray[np.float64] = cho_solve(cho_factor(gram), Z.T @ (indicator - indicator.mean(axis=0)))
        return B

    def predict(self, fitted: NDArray[np.float64], rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return the scores, one column per report."""
        scores: NDArray[np.float64] = self.design[rows] @ fitted
        return scores


def standardise(design: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the columns centred and of spread one; constant ones are zero."""
    largest = np.abs(design).max(axis=0)
    design = design / np.where(largest > 0, largest, 1.0)  # squares of very large or small numbers have no float
    spread = design.std(axis=0)
    z: NDArray[np.float64] = (design - design.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return z


def with_outcome(design: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the columns and y, standardised, and their products with y: what y says may depend on x."""
    z = standardise(np.column_stack([design, y]))
    return np.column_stack([z, z[:, -1:] * z])
