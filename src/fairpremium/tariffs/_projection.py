"""The multiplicative tariff that is closest to given premiums: a log-linear model with them as its response.

With premiums h_i and volumes w_i the tariff t_i = exp(z_i' theta) solves

    minimise  sum_i w_i (t_i - h_i z_i' theta)   subject to   A theta >= b   and some theta fixed,

the quasi-likelihood of a Poisson mean. Its equations, sum_i w_i z_i (h_i - t_i) = 0, say that without constraints the
tariff has the total of h in every level. If h is multiplicative, the tariff is h.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy import sparse

from fairpremium.arrays import Array
from fairpremium.errors import ConvergenceError

_STEPS = 100
_CLOSE = 1e-13  # largest change of a log premium in the last step
_CLOSE_AT_LIMITS = 1e-9  # the same where constraints hold, which the steps meet less exactly
_SAME = 1e-10  # share of a column's length that others leave unexplained if it repeats them
_RANK = 1e-13  # smaller eigenvalues of the scaled information are rounding

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Projection:
    """A problem: columns z_i, volumes, and what is known about theta."""

    Z: sparse.csr_array  # (n, q)
    weight: Array  # (n,), sums to one
    fixed: Array  # (q,), values of theta that are given; NaN: free
    lower: Array  # (rows, q), A with A theta >= 0

    def without_repeats(self, h: Array) -> Projection:
        """Fix parameters at zero whose columns the ones before them explain: the rows do not tell these apart."""
        free = np.flatnonzero(self.free)
        H = self._information(self.weight * h)
        length, repeated = np.diag(H).copy(), np.zeros(len(H), dtype=bool)
        for j in range(len(H)):  # elimination in the order of the columns
            if H[j, j] <= _SAME * length[j]:
                repeated[j] = True
                continue
            column = H[j + 1 :, j] / H[j, j]
            H[j + 1 :, j + 1 :] -= np.outer(column, H[j, j + 1 :])
        fixed = self.fixed.copy()
        fixed[free[repeated]] = 0.0
        return replace(self, fixed=fixed)

    @property
    def free(self) -> Mask:
        """Which parameters are to be found."""
        return np.isnan(self.fixed)

    def solve(self, h: Array) -> Array:
        """Find theta: shape (q,)."""
        theta = self._step(np.where(self.free, 0.0, self.fixed), self.weight * h, np.log(h))  # least squares of log h
        value, close = self._value(theta, h), _CLOSE_AT_LIMITS if self.lower.shape[0] else _CLOSE
        for _ in range(_STEPS):
            t = np.exp(self.Z @ theta)
            target = self._step(theta, self.weight * t, self.Z @ theta + h / t - 1)
            change = target - theta
            for _ in range(40):
                found = self._value(theta + change, h)
                if found <= value + 1e-14 * abs(value):
                    break
                change = change / 2
            theta, value = theta + change, found
            if np.abs(self.Z @ change).max() <= close * (1 + np.abs(theta).max()):
                return theta
        raise ConvergenceError("The closest multiplicative tariff was not found. Fewer bands or constraints may help.")

    def response(self, theta: Array, moved: Array) -> Array:
        """Compute how theta moves with sums over the rows of w_i z_i dh_i, without the constraints: shape (q, ...)."""
        t = np.exp(self.Z @ theta)
        found = np.zeros_like(moved)
        found[self.free] = self._inverse(self._information(self.weight * t)) @ moved[self.free]
        return found

    def _value(self, theta: Array, h: Array) -> float:
        eta = self.Z @ theta
        with np.errstate(over="ignore"):
            return float(self.weight @ (np.exp(eta) - h * eta))

    def _information(self, weight: Array) -> Array:
        free = self.Z[:, np.flatnonzero(self.free)]
        return np.asarray((free.T @ (sparse.diags_array(weight) @ free)).toarray())

    @staticmethod
    def _inverse(H: Array) -> Array:
        scale = 1 / np.sqrt(np.where(np.diag(H) > 0, np.diag(H), 1.0))
        values, vectors = np.linalg.eigh(H * scale[:, None] * scale)
        keep = values > _RANK * max(values[-1], 0.0) * len(values)
        inverse = (vectors[:, keep] / values[keep]) @ vectors[:, keep].T
        return np.asarray(inverse * scale[:, None] * scale)

    def _step(self, theta: Array, weight: Array, response: Array) -> Array:
        """Solve the weighted least-squares problem of one step, under the constraints: shape (q,)."""
        free, found = self.free, theta.copy()
        if not free.any():
            return found
        H = self._information(weight)
        moved = (self.Z.T @ (weight * (response - self.Z @ theta)))[free]
        change = self._inverse(H) @ moved
        if self.lower.shape[0]:
            A = self.lower[:, free]
            change = change + _nearest_allowed(H, A, -(self.lower @ theta) - A @ change)
        found[free] += change
        return found


def _nearest_allowed(H: Array, A: Array, b: Array) -> Array:
    """Find the shortest d in the metric H with A d >= b.

    Least distance programming [LawsonHanson1995, chapter 23]: with H = L L' and z = L'd the residual r of the
    nonnegative least-squares problem (L^-1 A' stacked on b') u = (0, ..., 0, 1) gives z = -r / r_last.
    """
    scale = np.sqrt(np.where(np.diag(H) > 0, np.diag(H), 1.0))
    L = np.linalg.cholesky(H / scale[:, None] / scale + 1e-11 * np.eye(len(H)))
    G = np.linalg.solve(L, (A / scale).T)  # (free, rows)
    size = np.abs(b).max(initial=0.0)
    if (b <= 1e-15 * (1 + size)).all():
        return np.zeros(len(H))
    from scipy.optimize import nnls

    E = np.vstack([G, b / size])
    u, _ = nnls(E, np.append(np.zeros(len(H)), 1.0), maxiter=50 * E.shape[1] + 1000)
    r = E @ u - np.append(np.zeros(len(H)), 1.0)
    if abs(r[-1]) < 1e-12:
        raise ValueError("Got fixed relativities that contradict monotone, but expected both to be possible at once.")
    z = -r[:-1] / r[-1] * size
    return np.asarray(np.linalg.solve(L.T, z) / scale)
