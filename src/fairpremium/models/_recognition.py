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
        if all(_DATE.fullmatch(text) for text in texts):
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
    """Tell whether a column of numbers looks like a key: whole, ascending from row to row, and never twice the same."""
    if len(values) < _LEAST_ROWS or not np.isfinite(values).all():
        return None
    steps = np.diff(values)
    if (steps > 0).all() and values[0] >= 0 and (np.floor(values) == values).all():
        return "a larger whole number in each row than in the one before, which looks like a key and not like a feature"
    return None


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
    """Return the name of a column that is zero in exactly those rows in which the outcome is zero."""
    loss = y != 0
    if len(y) < _LEAST_ROWS or loss.all() or not loss.any():
        return None
    some = np.arange(min(len(y), 1000))  # most columns differ at once
    for name, values in zip(names, columns.T, strict=True):
        if ((values[some] != 0) == loss[some]).all() and ((values != 0) == loss).all():
            return name
    return None


def _unit(texts: list[str]) -> str | None:
    """Return what stands beside the numbers if all texts are numbers with the same unit, or have decimals."""
    found = [_NUMBER.fullmatch(text) for text in texts]
    if not all(found):
        return None
    units = {(match["before"].strip(), match["after"].strip()) for match in found if match is not None}
    before, after = units.pop()
    if units:
        return None
    if before or after:
        return f" with {(before or after)!r}"
    return " with decimals" if any(mark in text for text in texts for mark in ".,") else None


def _quoted(name: str) -> str:
    return name if name.isidentifier() else f"`{name}`"
