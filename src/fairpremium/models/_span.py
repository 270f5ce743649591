"""Which coefficients the groups may have: all, or those that differ between groups by the intercept only.

Coefficients of all groups stand in one vector b, group after group. Common slopes make them a linear subspace, b = Q v
with orthonormal columns Q: one intercept for each group, and one coefficient of each feature. A minimum over the
subspace has gradient Q'g and Hessian Q'HQ, so that a fit needs nothing but these in place of g and H, and the results
are carried back by Q.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fairpremium.arrays import Array


@dataclass(frozen=True)
class Span:
    """A subspace of the coefficients of all groups, group after group; without a basis it is the whole space."""

    basis: Array | None = None  # Q, (K q, dimension), orthonormal columns

    @classmethod
    def of(cls, q: int, groups: int, *, common_slopes: bool) -> Span:
        """Return the coefficients of so many groups with q each, the first of which is the intercept."""
        if not common_slopes or groups == 1:
            return cls()
        basis = np.zeros((groups, q, groups + q - 1))
        k, j = np.arange(groups), np.arange(q - 1)
        basis[k, 0, k] = 1.0
        basis[:, 1 + j, groups + j] = groups**-0.5
        return cls(basis.reshape(groups * q, -1))

    def between(self, before: int, after: int) -> Span:
        """Return the span of these coefficients with other parameters, all free, before and after them."""
        if self.basis is None:
            return self
        size, free = self.basis.shape
        basis = np.zeros((before + size + after, before + free + after))
        basis[:before, :before] = np.eye(before)
        basis[before : before + size, before : before + free] = self.basis
        basis[before + size :, before + free :] = np.eye(after)
        return Span(basis)

    def repeated(self, times: int) -> Span:
        """Return the span of so many such vectors, one after the other."""
        return self if self.basis is None else Span(np.asarray(np.kron(np.eye(times), self.basis), dtype=np.float64))

    def dimension(self, size: int) -> int:
        """Return how many of so many coefficients are free."""
        return size if self.basis is None else int(self.basis.shape[1])

    def restrict(self, full: Array) -> Array:
        """Return Q'v of a vector, or Q'MQ of a matrix."""
        if self.basis is None:
            return full
        return np.asarray(self.basis.T @ full if full.ndim == 1 else self.basis.T @ full @ self.basis)

    def extend(self, free: Array) -> Array:
        """Return Q v of a vector, or Q M Q' of a matrix: the inverse of `restrict` inside the subspace."""
        if self.basis is None:
            return free
        return np.asarray(self.basis @ free if free.ndim == 1 else self.basis @ free @ self.basis.T)

    def inverse(self, matrix: Array) -> Array:
        """Invert a matrix inside the subspace: Q (Q'MQ)^-1 Q'."""
        return self.extend(np.asarray(np.linalg.inv(self.restrict(matrix))))

    def solve(self, matrix: Array, vector: Array) -> Array:
        """Solve Q'MQ v = Q'(vector) and return Q v."""
        return self.extend(np.asarray(np.linalg.solve(self.restrict(matrix), self.restrict(vector))))
