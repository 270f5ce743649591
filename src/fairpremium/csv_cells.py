"""Text in CSV files that a spreadsheet program would run as a formula gets an apostrophe in front.

Every writer of the project uses `escape_formulas`, every reader `unescape_formulas`: what the project reads back is
what was there before. Text with apostrophes in front of a formula gets one more, so that nothing is ambiguous.

A program may take a separator inside a text for the end of a cell: Excel in German does so with a semicolon, and knows
only quotes that open a cell. So a formula behind a separator or a line break gets an apostrophe, too.

Examples
--------
>>> [escape_formula(text) for text in ("=1+1", "'=1+1", "a;=1+1", "-12.5", "it's")]
["'=1+1", "''=1+1", "a;'=1+1", '-12.5', "it's"]
>>> [unescape_formula(text) for text in ("'=1+1", "''=1+1", "a;'=1+1", "'quoted'")]
['=1+1', "'=1+1", 'a;=1+1', "'quoted'"]
"""

import re
from collections.abc import Callable
from typing import Any

import pandas as pd

_START = r"(?:^|(?<=[;,\t\r\n]))"
_NUMBER = r"[\d.,]*(?:[eE][+-]?\d+)?\Z"  # -12.5 is no formula
_FORMULA = rf"(?=['\"]*(?:[=@\uff1d\uff20]|[+\-\uff0b\uff0d](?!{_NUMBER})))"
_UNESCAPED, _ESCAPED = re.compile(_START + _FORMULA), re.compile(f"{_START}'{_FORMULA}")


def escape_formula(text: str) -> str:
    """Return text that no spreadsheet program runs."""
    return _UNESCAPED.sub("'", text)


def unescape_formula(text: str) -> str:
    """Return what `escape_formula` was given."""
    return _ESCAPED.sub("", text)


def escape_formulas(frame: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """Return a table whose cells and names of columns no spreadsheet program runs, and how many of them changed."""
    return _change(frame, escape_formula)


def unescape_formulas(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the table that `escape_formulas` was given."""
    return _change(frame, unescape_formula)[0]


def _change(frame: pd.DataFrame, change: Callable[[str], str]) -> tuple[pd.DataFrame, int]:
    changed, count = frame.copy(deep=False), 0
    for position in range(frame.shape[1]):
        column = frame.iloc[:, position]
        if pd.api.types.is_numeric_dtype(column):
            continue
        cells, different = _change_texts(column.astype(object).tolist(), change)
        if different:
            count += different
            changed.isetitem(position, pd.Series(cells, index=frame.index, dtype=object))
    names, different = _change_texts(list(frame.columns), change)
    if different:
        changed.columns = pd.Index(names)
    return changed, count + different


def _change_texts(values: list[Any], change: Callable[[str], str]) -> tuple[list[Any], int]:
    changed = [change(value) if isinstance(value, str) else value for value in values]
    return changed, sum(isinstance(old, str) and new != old for new, old in zip(changed, values, strict=True))
