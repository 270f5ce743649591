"""How far a price is from those that infer nothing about the attribute."""

import itertools

import numpy as np

from fairpremium.arrays import Array
from fairpremium.privacy import project_to_simplex

_MAX_SUBSETS = 12  # up to so many groups all faces of the simplex are tried


def proxy_residual(price: Array, best_estimate: Array, weight: Array) -> Array:
    """Compute what is left of a price after the nearest one that infers nothing: shape (n,).

    The prices that infer nothing are c + sum_d v_d mu(x, d) with a number c and weights v >= 0 that sum to one. The
    nearest one in weighted mean square is subtracted. `best_estimate` holds mu(x, d), shape (n, K).
    """
    pi, mu, w = price, best_estimate, weight / weight.sum()
    centered = mu - w @ mu
    v = simplex_minimum(centered.T @ (centered * w[:, None]), centered.T @ ((pi - w @ pi) * w))
    return np.asarray(pi - (w @ pi + centered @ v))


def proxy_discrimination(price: Array, best_estimate: Array, weight: Array) -> float:
    """Compute PD [Lindholm2026]: the mean square of `proxy_residual` over the variance of the price.

    Zero if and only if the price avoids proxy discrimination; a price that is the same for all has none.
    """
    w = weight / weight.sum()
    variance = float(w @ (price - w @ price) ** 2)
    if not variance > 0:
        return 0.0
    return float(w @ proxy_residual(price, best_estimate, weight) ** 2) / variance


def simplex_minimum(A: Array, b: Array) -> Array:
    """Minimise v'Av - 2 b'v over the simplex: exactly over all faces, or by projected gradients if there are many."""
    K = len(b)
    if K > _MAX_SUBSETS:
        v = np.full(K, 1 / K)
        step = 1 / max(float(np.linalg.eigvalsh(A)[-1]), 1e-300)
        for _ in range(20_000):
            v = np.asarray(project_to_simplex(v - step * (A @ v - b)))
        return v
    best, lowest = np.full(K, 1 / K), np.inf
    for size in range(1, K + 1):
        for face in itertools.combinations(range(K), size):
            ix = list(face)
            system = np.block([[A[np.ix_(ix, ix)], np.ones((size, 1))], [np.ones((1, size)), np.zeros((1, 1))]])
            weights = np.linalg.lstsq(system, np.append(b[ix], 1.0), rcond=None)[0][:size]
            if (weights >= -1e-12).all() and abs(weights.sum() - 1) < 1e-9:
                v = np.zeros(K)
                v[ix] = weights
                value = float(v @ A @ v - 2 * b @ v)
                if value < lowest:
                    best, lowest = v, value
    return best
