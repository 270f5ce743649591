"""Columns of numbers as text: all with the same number of decimal places, none in powers of ten."""

import math
from collections.abc import Iterable


def write_column(values: Iterable[float | None], digits: int, *, signed: bool = False) -> list[str]:
    """Write numbers that stand below each other, with so many digits of the largest; without a number nothing.

    Examples
    --------
    >>> write_column([412.18, 412.0], 4), write_column([0.97, 0.000016], 3), write_column([-0.002, 0.0], 2, signed=True)
    (['412.2', '412.0'], ['0.970', '0.000'], ['-0.0020', '0.0000'])
    """
    values = list(values)
    known = [abs(value) for value in values if value is not None and math.isfinite(value)]
    largest = max(known, default=0.0)
    places = max(digits - 1 - math.floor(math.log10(largest)), 0) if largest > 0 else digits - 1
    return [_write(value, places, "+" if signed else "") for value in values]


def _write(value: float | None, places: int, sign: str) -> str:
    if value is None or not math.isfinite(value):
        return ""
    text = f"{value:{sign},.{places}f}"
    return text if text.strip("+-0.,") else text.lstrip("+-")
