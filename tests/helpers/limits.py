"""Limits of an estimate from the influences of its rows, slowly: Hall's equation by root finding."""

from __future__ import annotations

import numpy as np
from scipy import stats
from scipy.optimize import brentq


def shape(psi: np.ndarray) -> tuple[float, float]:
    """Return skewness and degrees of freedom of a sum of rows."""
    second = np.sum(psi**2)
    freedom = 1 / (np.sum(psi**4) / second**2 - 1 / np.count_nonzero(psi))
    return float(np.sum(psi**3) / second**1.5), float(freedom)


def transform(T: float, skewness: float) -> float:
    return T + skewness * T**2 / 3 + skewness**2 * T**3 / 27 + skewness / 6


def critical(psi: np.ndarray, level: float = 0.95) -> tuple[float, float]:
    skewness, freedom = shape(psi)
    x = stats.t.ppf(0.5 + level / 2, freedom)
    low, high = (brentq(lambda T, end=end: transform(T, skewness) - end, -100, 100, xtol=1e-14) for end in (-x, x))
    return low, high


def limits(value: float, psi: np.ndarray, level: float = 0.95) -> tuple[float, float]:
    low, high = critical(psi, level)
    error = np.sqrt(np.sum(psi**2))
    return value - high * error, value - low * error


def difference(
    first: float, psi: np.ndarray, second: float, phi: np.ndarray, level: float = 0.95
) -> tuple[float, float]:
    """Return limits of first - second from those of both and their correlation."""
    (low, high), (other_low, other_high) = limits(first, psi, level), limits(second, phi, level)
    r = np.sum(psi * phi) / np.sqrt(np.sum(psi**2) * np.sum(phi**2))
    below = [first - low, other_high - second]
    above = [high - first, second - other_low]
    length = [np.sqrt(a**2 + b**2 - 2 * r * a * b) for a, b in (below, above)]
    return first - second - length[0], first - second + length[1]


def p_value(value: float, psi: np.ndarray) -> float:
    skewness, freedom = shape(psi)
    return float(2 * stats.t.sf(abs(transform(value / np.sqrt(np.sum(psi**2)), skewness)), freedom))


def fieller(a: np.ndarray, numerator: np.ndarray, denominator: np.ndarray, level: float = 0.95) -> tuple[float, float]:
    """Return the two limits of sum a n / sum a d, each by its own root."""
    z = stats.norm.ppf(0.5 + level / 2)
    N, D = np.sum(a * numerator), np.sum(a * denominator)
    ratio = N / D
    psi = a * (numerator - ratio * denominator) / D
    error = np.sqrt(np.sum(psi**2))

    def outside(t: float) -> float:
        return (N - t * D) ** 2 - z**2 * np.sum((a * (numerator - t * denominator)) ** 2)

    low, high = (brentq(outside, ratio, ratio + side * 20 * error, xtol=1e-15) for side in (-1, 1))
    c = critical(psi, level)
    return low - (c[1] - z) * error, high - (c[0] + z) * error
