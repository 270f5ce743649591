"""Measures of disparity by name, each as a number with the influence of every row on it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from fairpremium.arrays import Array
from fairpremium.tariffs import proxy_residual

# A measure takes the price, signed weights a_ik = w_i T^-1[k, s_i], volumes, and the best estimates.
Measure = Callable[[Array, Array, Array, Array], tuple[float, Array]]


def proxy_discrimination(price: Array, signed: Array, weight: Array, best: Array) -> tuple[float, Array]:
    """PD: distance to the prices that infer nothing, as a share of the price's variance [Lindholm2026]."""
    w = weight / weight.sum()
    centered = price - w @ price
    variance = float(w @ centered**2)
    if not variance > 0:
        return 0.0, 0 * w
    squares = proxy_residual(price, best, weight) ** 2
    value = float(w @ squares) / variance
    return value, w * (squares - value * centered**2) / variance


def standardized_mean_difference(price: Array, signed: Array, weight: Array, best: Array) -> tuple[float, Array]:
    """Largest difference between the mean prices of two groups, over the standard deviation of the price."""
    w = weight / weight.sum()
    centered = price - w @ price
    deviation = float(np.sqrt(w @ centered**2))
    if not deviation > 0:
        return 0.0, 0 * w
    share = signed / signed.sum(axis=0)
    mean = price @ share
    high, low = int(mean.argmax()), int(mean.argmin())
    value = float(mean[high] - mean[low]) / deviation
    moved = share[:, high] * (price - mean[high]) - share[:, low] * (price - mean[low])
    return value, moved / deviation - value * w * (centered**2 / deviation**2 - 1) / 2


def kolmogorov(price: Array, signed: Array, weight: Array, best: Array) -> tuple[float, Array]:
    """Largest difference between the distribution functions of two groups; see `compute_parity_distance`."""
    _, code, functions, share = _functions(price, signed)
    (k, m), difference = max(_pairs(functions), key=lambda pair: float(np.abs(pair[1]).max()))
    at = int(np.abs(difference).argmax())
    below, sign = code <= at, np.sign(difference[at])
    moved = share[:, k] * (below - functions[k, at]) - share[:, m] * (below - functions[m, at])
    return float(np.abs(difference[at])), np.asarray(sign * moved)


def wasserstein(price: Array, signed: Array, weight: Array, best: Array) -> tuple[float, Array]:
    """Largest area between the distribution functions of two groups; see `compute_parity_distance`."""
    points, code, functions, share = _functions(price, signed)
    steps = np.diff(points, append=points[-1])
    (k, m), difference = max(_pairs(functions), key=lambda pair: float(np.abs(pair[1]) @ steps))
    signs = np.sign(difference) * steps
    beyond = np.cumsum(signs[::-1])[::-1][code]  # the integral of the sign from the row's price on
    moved = share[:, k] * (beyond - signs @ functions[k]) - share[:, m] * (beyond - signs @ functions[m])
    return float(np.abs(difference) @ steps), np.asarray(moved)


MEASURES: dict[str, Measure] = {
    measure.__name__: measure
    for measure in (proxy_discrimination, standardized_mean_difference, kolmogorov, wasserstein)
}


def _functions(price: Array, signed: Array) -> tuple[Array, Any, Array, Array]:
    points, code = np.unique(price, return_inverse=True)
    share = signed / signed.sum(axis=0)
    functions = np.stack([np.cumsum(np.bincount(code, weights=own)) for own in share.T])
    return points, code, functions.astype(np.float64), share


def _pairs(functions: Array) -> list[tuple[tuple[int, int], Array]]:
    return [((k, m), functions[k] - functions[m]) for k, m in itertools.combinations(range(len(functions)), 2)]
