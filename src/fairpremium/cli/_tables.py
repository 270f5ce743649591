"""Tables in and out, CSV or Parquet by suffix, with a sentence for everything that can be wrong with a file."""

import csv
import warnings
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq

TABLES = (".csv", ".parquet")


def read_table(
    path: Path,
    *,
    require: Iterable[str | None] = (),
    text: Collection[str | None] = (),
    words: Collection[str] = (),
    all_text: bool = False,
) -> pd.DataFrame:
    """Read a CSV or Parquet file.

    - `require`: Columns that must be there; this is checked before the rows are read.
    - `text`: Columns of a CSV file to take literally: "01" and "NA" stay what they are, an empty field is missing.
    - `words`: Columns of a CSV file that hold text even if all of it looks like numbers.
    - `all_text`: Take all columns of a CSV file literally, so that they can be written back unchanged.

    Returns with at least one row and distinct column names.
    """
    kind = check_suffix(path, TABLES)
    require_file(path)
    header = _parquet_header(path) if kind == ".parquet" else _csv_header(path)
    _check_header(header, path)
    require_columns(header, require, path)
    frame = _read_parquet(path) if kind == ".parquet" else _read_csv(path, header, text, words, all_text)
    if not len(frame):
        raise ValueError(f"{path} has no rows.")
    return frame


def write_table(frame: pd.DataFrame, path: Path) -> None:
    """Write a CSV or Parquet file."""
    if check_suffix(path, TABLES) == ".parquet":
        frame.to_parquet(path, index=False)
    else:
        frame.to_csv(path, index=False)


def require_file(path: Path) -> Path:
    """Return the path of a file that exists, or raise."""
    if not path.is_file():
        raise ValueError(f"There is no file {path}.")
    return path


def require_columns(found: Collection[str], names: Iterable[str | None], path: Path) -> None:
    """Raise if a column is not there, with a list of those that are."""
    absent = [name for name in names if name is not None and name not in found]
    if absent:
        hint = ""
        if len(found) == 1 and any(mark in next(iter(found)) for mark in ";\t|"):
            hint = " (the fields of a CSV file are separated by commas here)"
        raise ValueError(f"{path} has no column {_listed(absent)}. Its columns are {_listed(found)}{hint}.")


def require_filled(column: pd.Series, path: Path, what: str) -> pd.Series:
    """Return a column without empty fields, or raise; `what` is expected in each row."""
    missing = int((column.isna() | (column == "")).sum())
    if missing:
        raise ValueError(f"Column {column.name!r} of {path} is empty in {missing} rows; expected {what} in each.")
    return column


def require_numbers(frame: pd.DataFrame, name: str, path: Path) -> pd.Series:
    """Return a column of numbers, or raise; the message does not show what it holds."""
    column = frame[name]
    if not (pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column)):
        raise ValueError(f"Column {name!r} of {path} holds text, but expected numbers.")
    return column


def as_text(column: pd.Series, path: Path) -> pd.Series:
    """Return a column of labels as text, whole numbers and booleans as Python writes them."""
    values = column.astype(object).where(column.notna(), None)
    kinds = {type(value) for value in values.dropna()}
    if not kinds <= {str, int, bool}:
        raise ValueError(
            f"Column {column.name!r} of {path} holds {' and '.join(sorted(k.__name__ for k in kinds))} values, but "
            "expected text, whole numbers or booleans."
        )
    return values.map(str, na_action="ignore")


def as_labels(texts: pd.Series, labels: Iterable[Any], path: Path, wrong: str, *, missing: bool = True) -> pd.Series:
    """Return a column of `as_text` in the type of its labels, or raise; the message does not show what it holds."""
    known = {str(label): label for label in labels}
    unknown = int((~texts.isin(list(known)) & (texts.notna() | (not missing))).sum())
    if unknown:
        raise ValueError(f"Column {texts.name!r} of {path} has {unknown} of {len(texts)} rows {wrong}.")
    return texts.map(known, na_action="ignore")


def check_output(path: Path, *, suffixes: Collection[str] = TABLES, inputs: Iterable[Path | None] = ()) -> None:
    """Raise before any work is done if the output cannot be written or would overwrite an input."""
    check_suffix(path, suffixes)
    if path.is_dir():
        raise ValueError(f"{path} is a folder, but expected a file name.")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"There is no folder {path.parent}. Create it first, or choose another output.")
    for source in inputs:
        if source is not None and source.exists() and path.exists() and path.samefile(source):
            raise ValueError(f"The output {path} would overwrite an input. Choose another name.")


def check_suffix(path: Path, suffixes: Collection[str]) -> str:
    """Return the suffix in lower case, or raise."""
    suffix = path.suffix.lower()
    if suffix not in suffixes:
        raise ValueError(f"Got {str(path)!r}, but expected a name that ends in {' or '.join(suffixes)}.")
    return suffix


def _parquet_header(path: Path) -> list[str]:
    try:
        return list(pq.read_schema(path).names)
    except (ValueError, OSError) as error:
        raise ValueError(f"{path} is not a Parquet file that can be read.") from error


def _read_parquet(path: Path) -> pd.DataFrame:
    try:
        frame = pq.read_table(path).to_pandas()
    except (ValueError, OSError) as error:
        raise ValueError(f"{path} is not a Parquet file that can be read.") from error
    frame = frame.reset_index(level=[name for name in frame.index.names if name is not None]).reset_index(drop=True)
    frame.attrs = {}
    return frame


def _read_csv(
    path: Path, header: list[str], text: Collection[str | None], words: Collection[str], all_text: bool
) -> pd.DataFrame:
    literal = [name for name in header if name in text]
    typed = [name for name in header if (all_text or name in words) and name not in literal]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # a row that is longer than the header
            return pd.read_csv(
                path,
                encoding="utf-8-sig",
                index_col=False,
                skip_blank_lines=len(header) > 1,  # a blank line is a missing value of a single column
                na_filter=not all_text,
                dtype=dict.fromkeys(typed, str),
                converters=dict.fromkeys(literal, lambda field: field or None),
            )
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        raise ValueError(
            f"{path} is not a CSV file that can be read: some row has more fields than the header."
        ) from error


def _csv_header(path: Path) -> list[str]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            header = next(csv.reader(file), [])
            while chunk := file.read(1 << 20):  # the rest must be text as well
                if "\0" in chunk:
                    raise ValueError(f"{path} is not a CSV file: it holds bytes that are not text.")
    except (UnicodeDecodeError, csv.Error):
        raise ValueError(f"{path} is not a CSV file in UTF-8.") from None
    if not header:
        raise ValueError(f"{path} is empty.")
    return header


def _check_header(header: list[str], path: Path) -> None:
    repeated = sorted({name for name in header if header.count(name) > 1})
    if repeated:
        raise ValueError(f"{path} has several columns named {_listed(repeated)}; expected each name once.")
    if "" in header:
        raise ValueError(f"{path} has a column without a name; expected a name for every column.")


def _listed(names: Iterable[Any]) -> str:
    return ", ".join(repr(str(name)) for name in names)
