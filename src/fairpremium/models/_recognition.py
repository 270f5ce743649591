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
from scipy.special import gammaln

from fairpremium.arrays import Array

_FEW = 10  # so many levels are levels, whatever they look like
_KEY = 20  # levels from which most rows may have one of their own
_MANY = 100  # levels that are too many to be indicators
_LEAST_ROWS = 50  # for a judgement about whole columns
_MOST = 0.8  # of the texts decide what a column is
_HALF = 0.5  # of the rows with a loss
_CHANCE = 1e-4  # that a feature is taken for a part of the outcome
_RARER = 50  # times: how much rarer a row without a loss may be among the values of a feature
_SHOWN = 3  # texts that a message names
_UNITS = 3  # kinds of units at most; more are codes
_MANY_WITH_UNIT = 0.2  # of the numbers; fewer are codes such as the departments 2A and 2B
_DIFFERENT = 1000  # rows from which whole numbers that are all different look like a key
_DATE = re.compile(r"\s*(\d{4}[-/.]\d{1,2}([-/.]\d{1,2})?([ T].*)?|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2})([ T].*)?)\s*")
_MONTH = (  # in the languages of Western Europe, by how they begin
    r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|mär|mai|okt|dez|fév|avr|jui|aoû|déc|ene|abr|ago|dic|gen|mag|"
    r"giu|lug|set|ott|mrt|maa|mei)[^\W\d_]{0,7}\.?"
)
_NAMED_DATE = re.compile(
    rf"\s*([^\W\d_]+,?\s+)?(\d{{1,2}}(st|nd|rd|th)?[-/. ]*{_MONTH}([-/., ]*\d{{2,4}})?"
    rf"|{_MONTH}[-/. ]*\d{{1,2}}(st|nd|rd|th)?(,? +\d{{4}})?"
    rf"|{_MONTH}[-/. ]*\d{{4}}|\d{{4}}[-/. ]*{_MONTH}([-/. ]*\d{{1,2}})?)([ T,].*)?\s*",
    re.IGNORECASE,
)
_PLAIN = re.compile(r"\s*[-+]?(\d+)([.,]\d+)?\s*")
_CODE = re.compile(r"\s*[^\W\d_]{0,2}\d+[^\W\d_]?\s*")  # such as 2A
_NUMBER = re.compile(r"\s*(?P<before>[€$£¥]?|EUR|USD|GBP|CHF)\s*[-+]?\d[\d.,' ]*(?P<after>\D{0,12}?)\s*")


DATES_HELP = "What helps: make it a number, such as a year, an age or months since a date, or leave the column out."


def describe_texts(counts: Mapping[Any, int]) -> str | None:
    """Tell what speaks against taking a column as levels, given how often each occurs; None if nothing does."""
    levels, rows = len(counts), sum(counts.values())
    texts = [level for level in counts if isinstance(level, str)]
    if levels <= _FEW:
        return None
    if len(texts) == levels:
        if _share(_DATE, texts) + _share(_NAMED_DATE, texts) >= _MOST:
            return f"{levels} different texts that look like dates"
        unit = _unit(texts)
        if unit is not None:
            return f"{levels} different texts that look like numbers{unit}"
        stray = _stray(texts)
        if stray:
            return f"{levels} different texts that look like numbers, but for {', '.join(map(repr, stray[:_SHOWN]))}"
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
            f'fit --terms, such as "levels({_quoted(name)})", or "rare({_quoted(name)}, 50)" to put rare levels '
            "together."
        )


def find_outcome(columns: Mapping[str, npt.NDArray[Any]], y: Array, levels: Collection[str] = ()) -> str | None:
    """Return the name of a column some of whose values never occur where the outcome is zero, beyond chance.

    These are the values above zero of a claim amount, and "yes" of a column that tells whether there was a claim. They
    must be those of half the rows with a loss; or of so many rows that even values which make a row without a loss much
    rarer than it is elsewhere would have one.

    - `columns`: Numbers by name, or codes of levels for those that `levels` names.
    """
    loss = y != 0
    n, losses = len(y), int(np.count_nonzero(loss))
    if n < _LEAST_ROWS or losses in (0, n):
        return None
    for name, values in columns.items():
        for rows, choices in _never_without_loss(values, loss, name in levels):
            chance = choices * np.log(2) + _log_chance(rows, losses, n)
            if chance > np.log(_CHANCE / len(columns)):
                continue
            if rows >= _HALF * losses or rows * np.log1p(-(1 - losses / n) / _RARER) < np.log(_CHANCE):
                return name
    return None


def _never_without_loss(values: npt.NDArray[Any], loss: npt.NDArray[np.bool_], levels: bool) -> list[tuple[int, int]]:
    """Count the rows with values that no row without a loss has, and in how many ways (as bits) values were chosen."""
    if levels:
        with_loss, without = np.unique(values[loss]), np.unique(values[~loss])
        every = len(np.union1d(with_loss, without))
        return [(int(np.count_nonzero(np.isin(values, np.setdiff1d(with_loss, without)))), every)]
    found, quiet = [], values[~loss]
    if not quiet.any():  # an amount
        found.append((int(np.count_nonzero(values)), 1))
    if quiet.all():  # whether there was no claim
        found.append((int(np.count_nonzero(values == 0)), 1))
    return found


def _log_chance(rows: int, losses: int, n: int) -> float:
    """Compute the logarithm of the chance that so many rows, drawn at random, all have a loss."""
    return float(gammaln(losses + 1) - gammaln(losses - rows + 1) - gammaln(n + 1) + gammaln(n - rows + 1))


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


def _stray(texts: list[str]) -> list[str]:
    """Return the texts that are no numbers, if most are; none if all texts are codes: whole numbers, 07, 2A."""
    plain = [match[1] for text in texts if (match := _PLAIN.fullmatch(text))]
    if _share(_NUMBER, texts) < _MOST or len(plain) < _MOST * len(texts):
        return []
    if any(digits.startswith("0") and digits != "0" for digits in plain):
        return []
    return [text for text in texts if not _PLAIN.fullmatch(text) and not _CODE.fullmatch(text)]


def _share(pattern: re.Pattern[str], texts: list[str]) -> float:
    """Return the share of texts that match."""
    return sum(pattern.fullmatch(text) is not None for text in texts) / len(texts)


def _quoted(name: str) -> str:
    return name if name.isidentifier() else f"`{name}`"
