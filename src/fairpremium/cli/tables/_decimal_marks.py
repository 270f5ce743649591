"""Numbers that are written with a decimal comma, or with thousands apart: they must not become categories."""

import re
from collections.abc import Collection
from pathlib import Path

import pandas as pd

_PLAIN = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_THOUSANDS = {",": "[. '\u00a0\u202f]", ".": "[,']"}  # what may stand between groups of three digits, by decimal mark
_STYLES = {
    mark: re.compile(rf"[+-]?(?=[.,]?\d)(\d+|[1-9]\d{{0,2}}({apart}\d{{3}})+)?(\{mark}\d+)?([eE][+-]?\d+)?")
    for mark, apart in _THOUSANDS.items()
}


def find_decimal(frame: pd.DataFrame, columns: Collection[str], path: Path, *, in_doubt: str | None) -> str:
    """Return the decimal mark of a table by those of its columns that hold text; raise if it cannot be told.

    - `frame`: Columns that can be read with a decimal point are numbers already.
    - `columns`: Those that may hold numbers.
    - `in_doubt`: The mark of a table in which every comma may also stand between thousands; None to raise then.
    """
    unclear = None
    for name in columns:
        texts = _texts(frame[name])
        if any("," in text for text in texts) and _all(texts, ","):
            if not _all(texts, "."):
                return ","
            unclear = name
    if unclear is not None and in_doubt is None:
        raise ValueError(
            f"Column {unclear!r} of {path} holds numbers whose comma may be a decimal comma or stand between "
            "thousands. Say --decimal , in the first case and --decimal . in the second."
        )
    return in_doubt or "." if unclear is not None else "."


def check_points(raw: pd.DataFrame, path: Path) -> None:
    """Raise if every point in a table without decimal commas may also stand between thousands.

    - `raw`: The columns with points, as they are written.
    """
    columns = {name: _texts(raw[name]) for name in raw}
    pointed = {name: texts for name, texts in columns.items() if any("." in text for text in texts)}
    unclear = [name for name, texts in pointed.items() if _all(texts, ",")]
    if unclear and not any(_all(texts, ".") and name not in unclear for name, texts in pointed.items()):
        raise ValueError(
            f"Column {unclear[0]!r} of {path} holds numbers whose point may be a decimal point or stand between "
            "thousands. Say --decimal . in the first case and --decimal , in the second."
        )


def convert_numbers(
    frame: pd.DataFrame, columns: Collection[str], decimal: str, path: Path, *, given: bool
) -> tuple[pd.DataFrame, list[str]]:
    """Turn columns of text that are numbers with this decimal mark into numbers; raise where that is not clear.

    - `given`: Whether the user said which mark it is.

    Returns the table and, in words, what was found.
    """
    converted, found = {}, [] if decimal == "." else ["numbers have a decimal comma"]
    for name in columns:
        texts = _texts(frame[name])
        if _all(texts, decimal):
            apart = re.compile(_THOUSANDS[decimal])
            if any(apart.search(text) for text in texts):
                found.append(f"column {name!r} has marks between thousands")
            converted[name] = _as_numbers(frame[name], apart, decimal)
        elif texts and decimal == "," and all(_PLAIN.fullmatch(text) for text in texts):
            raise ValueError(
                f"Column {name!r} of {path} holds numbers with a decimal point, but "
                f"{'--decimal says' if given else 'other columns have'} a comma. Write all numbers alike."
            )
        elif decimal == "," or not given:
            _refuse_mixture(texts, name, path)
    return (frame.assign(**converted) if converted else frame), found


def _refuse_mixture(texts: list[str], name: str, path: Path) -> None:
    with_comma = sum("," in text and bool(_STYLES[","].fullmatch(text)) for text in texts)
    numbers = sum(bool(_PLAIN.fullmatch(text) or _STYLES[","].fullmatch(text)) for text in texts)
    if with_comma and numbers > len(texts) / 2:
        raise ValueError(
            f"Column {name!r} of {path} holds numbers with a comma and other text, so that it is neither numbers nor "
            "categories. Correct the other text or leave it empty, or say --decimal . to take all of it as text."
        )


def _as_numbers(column: pd.Series, apart: re.Pattern[str], decimal: str) -> pd.Series:
    def number(cell: object) -> object:
        return apart.sub("", cell.strip()).replace(decimal, ".") if isinstance(cell, str) else cell

    return pd.to_numeric(column.map(number, na_action="ignore"))


def _texts(column: pd.Series) -> list[str]:
    """Return the different texts of a column that holds texts, or texts and numbers; none for other columns."""
    if not (pd.api.types.is_object_dtype(column) or pd.api.types.is_string_dtype(column)):
        return []
    cells = column.dropna().unique().tolist()
    texts = [cell.strip() for cell in cells if isinstance(cell, str)]
    numbers = sum(isinstance(cell, int | float) and not isinstance(cell, bool) for cell in cells)
    return texts if len(texts) + numbers == len(cells) else []


def _all(texts: list[str], decimal: str) -> bool:
    return bool(texts) and all(_STYLES[decimal].fullmatch(text) for text in texts)
