"""Exact arithmetic of channels: integer weights, logarithms with a known side, inverses in fractions."""

import decimal
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

MAX_TOTAL = 2**32  # the most that the integer weights of a group may sum to
Rows = tuple[tuple[Fraction, ...], ...]


def log_rounded_up(ratio: Fraction) -> float:
    """Return the smallest float that is not below ln(ratio), for ratio >= 1.

    Rounding up never understates a guarantee, and cannot pass a request that is itself a float at or above
    the exact value.

    Examples
    --------
    >>> log_rounded_up(Fraction(4))
    1.3862943611198908
    """
    if ratio == 1:
        return 0.0
    with decimal.localcontext() as context:
        context.prec = 60
        # The logarithm of a ratio near one loses digits to cancellation: add as many as the ratio has bits.
        context.prec += len(str(ratio.numerator)) + len(str(ratio.denominator))
        exact = (decimal.Decimal(ratio.numerator) / decimal.Decimal(ratio.denominator)).ln()
        nearest = float(exact)
        return nearest if decimal.Decimal(nearest) >= exact else math.nextafter(nearest, math.inf)


def floor_times_exp(b: int, exponent: float) -> int:
    """Return floor(b e^exponent) exactly, for a float exponent > 0.

    e^x is irrational for rational x other than 0, so that enough digits always decide.

    Examples
    --------
    >>> floor_times_exp(1000, 1.0)
    2718
    """
    digits = 40
    while True:
        with decimal.localcontext() as context:
            context.prec = digits
            power = decimal.Decimal(exponent).exp()  # correctly rounded, so that the truth lies between these:
            below, above = Fraction(power.next_minus()), Fraction(power.next_plus())
        low, high = math.floor(b * below), math.floor(b * above)
        if low == high:
            return low
        digits *= 2


def integer_weights(matrix: Sequence[Sequence[Fraction]]) -> tuple[tuple[tuple[int, ...], ...], int]:
    """Turn columns of probabilities into rows of integer weights, with one total N <= 2**32 for all columns.

    The decimal fractions stay as they are when they have a common denominator up to 2**32 (0.8 and 0.2
    become 4 and 1 of 5). Else N = 2**32 and each column is rounded by largest remainder; a zero stays zero
    and a positive probability stays positive.

    Examples
    --------
    >>> integer_weights([[Fraction("0.8"), Fraction("0.3")], [Fraction("0.2"), Fraction("0.7")]])
    (((8, 3), (2, 7)), 10)
    """
    columns = list(zip(*matrix, strict=True))
    common = math.lcm(*(p.denominator for column in columns for p in column))
    if common <= MAX_TOTAL and all(sum(column) == 1 for column in columns):
        weights = [[int(p * common) for p in column] for column in columns]
    else:
        weights = [_largest_remainder(column, MAX_TOTAL) for column in columns]
    divisor = math.gcd(*(w for column in weights for w in column))
    reduced = [[w // divisor for w in column] for column in weights]
    return tuple(zip(*reduced, strict=True)), sum(reduced[0])


def _largest_remainder(column: Sequence[Fraction], total: int) -> list[int]:
    mass = sum(column)
    shares = [p * total / mass for p in column]
    weights = [max(math.floor(x), 1) if x > 0 else 0 for x in shares]
    order = sorted(range(len(shares)), key=lambda i: (math.floor(shares[i]) - shares[i], i))
    positive = [i for i in order if shares[i] > 0]
    missing = total - sum(weights)
    for i in positive[: max(missing, 0)]:
        weights[i] += 1
    for _ in range(max(-missing, 0)):  # the floor of one took more than there was: the largest gives way
        weights[weights.index(max(weights))] -= 1
    return weights


def left_inverse(weights: Sequence[Sequence[int]], total: int) -> Rows:
    """Return (T'WT)^-1 T'W with T = weights / total and W = diag(1 / P(S)), P(S) = T 1 / K, in fractions.

    It equals T^-1 when T is square. Its columns sum to one.

    Examples
    --------
    >>> left_inverse([[4, 1], [1, 4]], 5)
    ((Fraction(4, 3), Fraction(-1, 3)), (Fraction(-1, 3), Fraction(4, 3)))
    """
    T = np.array([[Fraction(w, total) for w in row] for row in weights], dtype=object)  # (reports, groups)
    if len(T) == len(T[0]):
        return _solve(T, np.array([[Fraction(int(i == j)) for j in range(len(T))] for i in range(len(T))]))
    WT = T * (Fraction(len(T[0])) / T.sum(axis=1))[:, None]
    return _solve(T.T @ WT, WT.T)


def _solve(A: npt.NDArray[np.object_], B: npt.NDArray[np.object_]) -> Rows:
    """Solve A X = B by Gauss-Jordan elimination; A is square and regular."""
    n = len(A)
    rows = np.hstack([A, B])
    for j in range(n):
        pivot = next(i for i in range(j, n) if rows[i, j])
        rows[[j, pivot]] = rows[[pivot, j]]
        rows[j] /= rows[j, j]
        for i in range(n):
            if i != j and rows[i, j]:
                rows[i] -= rows[i, j] * rows[j]
    return tuple(tuple(row) for row in rows[:, n:])


def read_only(values: Any) -> npt.NDArray[np.float64]:
    """Round fractions to the nearest floats, in an array that cannot be written to."""
    array = np.array(values, dtype=np.float64)
    array.setflags(write=False)
    return array
