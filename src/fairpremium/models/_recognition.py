"""Columns that are no features as they stand: dates, keys, numbers written as text, texts of hundreds of kinds.

Such a column would become one indicator for each of its texts. The library and the command line use the same rules, and
each adds what helps in its own words.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from fairpremium.arrays import Array

_FEW = 10  # so many levels are levels, whatever they look like
_KEY = 20  # levels from which most rows may have one of their own
_MANY = 100  # levels that are too many to be indicators
_LEAST_ROWS = 50  # for a judgement about whole columns
_MOST = 0.8  # of the texts, or of the rows with a loss, decide what a column is
_UNITS = 3  # kinds of units at most; more are codes
_MANY_WITH_UNIT = 0.2  # of the numbers; fewer are codes such as the departments 2A and 2B
_DIFFERENT = 1000  # rows from which whole numbers that are all different look like a key
_DATE = re.compile(r"\s*(\d{4}[-/.]\d{1,2}([-/.]\d{1,2})?([ T].*)?|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2})([ T].*)?)\s*")
_NUMBER = re.compile(r"\s*(?P<before>[€$£¥]?|EUR|USD|GBP|CHF)\s*[-+]?\d[\d.,' ]*(?P<after>\D{0,12}?)\s*")


DATES_HELP = "What helps: make it a number, such as a year, an age or months since a date, or leave the column out."


def describe_texts(counts: Mapping[Any, int]) -> str | None:
    """Tell what speaks against taking a column as levels, given how often each occurs; None if nothing does."""
    levels, rows = len(counts), sum(counts.values())
    texts = [level for level in counts if isinstance(level, str)]
    if levels <= _FEW:
        return None
    if len(texts) == levels:
        if _share(_DATE, texts) >= _MOST:
            return f"{levels} different texts that look like dates"
        unit = _unit(texts)
        if unit is not None:
            return f"{levels} different texts that look like numbers{unit}"
    if levels > _KEY and levels > rows / 2:
        return f"{levels} different texts in {rows} rows, which looks like a key and not like a feature"
    if levels > _MANY:
        return f"{levels} different texts, too many to have a price each"
    return None


def describe_numbers(values: npt.NDArray[Any]) -> str | None:
    """Tell whether a column of numbers looks like a key, or like dates written as whole numbers."""
    if len(values) < _LEAST_ROWS or not np.isfinite(values).all():
        return None
    if values.min() < 0 or not (np.floor(values) == values).all():
        return None
    if (np.diff(values) > 0).all():
        return "a larger whole number in each row than in the one before, which looks like a key and not like a feature"
    day, month = values % 100, values // 100 % 100
    if values.min() >= 19000101 and values.max() <= 21001231 and _within(day, 1, 31) and _within(month, 1, 12):
        return "whole numbers that look like dates, such as 20240131, and not like a feature"
    if len(values) >= _DIFFERENT and len(np.unique(values)) == len(values):
        return "a different whole number in each row, which looks like a key and not like a feature"
    return None


def _within(values: npt.NDArray[Any], low: float, high: float) -> bool:
    return bool(values.min() >= low and values.max() <= high)


def check_texts(name: str, counts: Mapping[Any, int]) -> None:
    """Raise if a column is no feature as it stands."""
    found = describe_texts(counts)
    if found is not None:
        raise ValueError(
            f"Got column {name!r} of X with {found}; expected numbers, or texts of a few kinds. What helps: leave the "
            "column out; make it a number, such as a year or an age; or say what it is in LinearModel(terms=...) or "
            f'--terms, such as "levels({_quoted(name)})", or "rare({_quoted(name)}, 50)" to put rare levels together.'
        )


def find_outcome(names: Collection[str], columns: Array, y: Array) -> str | None:
    """Return the name of a column that is zero where the outcome is, and in nearly no other row."""
    loss = y != 0
    if len(y) < _LEAST_ROWS or loss.all() or not loss.any():
        return None
    for name, values in zip(names, columns.T, strict=True):
        if not values[~loss].any() and np.count_nonzero(values[loss]) >= _MOST * np.count_nonzero(loss):
            return name
    return None


def _unit(texts: list[str]) -> str | None:
    """Return what stands beside the numbers if most texts are numbers, and many have a unit, or some have decimals."""
    if _share(_NUMBER, texts) < _MOST:
        return None
    found = [match for text in texts if (match := _NUMBER.fullmatch(text))]
    beside = [unit for match in found if (unit := (match["before"] or match["after"]).strip())]
    units = sorted(set(beside))
    if 1 <= len(units) <= _UNITS and len(beside) >= _MANY_WITH_UNIT * len(found):
        return f" with {' or '.join(map(repr, units))}"
    return " with decimals" if any(mark in text for text in texts for mark in ".,") else None


def _share(pattern: re.Pattern[str], texts: list[str]) -> float:
    """Return the share of texts that match."""
    return sum(pattern.fullmatch(text) is not None for text in texts) / len(texts)


def _quoted(name: str) -> str:
    return name if name.isidentifier() else f"`{name}`"
