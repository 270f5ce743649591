"""Tables in and out, by suffix CSV, Parquet or Excel, with a sentence for everything that can be wrong with a file."""

import warnings
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq

from fairpremium.cli._terminal import add_note
from fairpremium.cli.tables._decimal_marks import check_points, convert_numbers, find_decimal
from fairpremium.cli.tables._format import CsvFormat, TableFormat, find_format
from fairpremium.csv_cells import escape_formulas, unescape_formula, unescape_formulas
from fairpremium.documents import whole_file
from fairpremium.workbooks import read_workbook, write_workbook

TABLES = (".csv", ".parquet", ".xlsx")


def read_table(
    path: Path,
    files: TableFormat = TableFormat(),  # noqa: B008, it cannot change
    *,
    require: Iterable[str | None] = (),
    text: Collection[str | None] = (),
    words: Collection[str] = (),
    all_text: bool = False,
) -> pd.DataFrame:
    """Read a CSV, Parquet or Excel file; of a workbook the first sheet.

    - `files`: How CSV files are written; what it leaves open is found in the file, and a note says what was found.
    - `require`: Columns that must be there; this is checked before the rows are read.
    - `text`: Columns of a CSV file to take literally: "01" and "NA" stay what they are, an empty field is missing. Only
      the apostrophe that `write_table` puts in front of a formula is taken away, in all columns.
    - `words`: Columns of a CSV file that hold text even if all of it looks like numbers.
    - `all_text`: Take all columns of a CSV file literally, so that they can be written back unchanged.

    Returns with at least one row and distinct column names.
    """
    kind = check_suffix(path, TABLES)
    require_file(path)
    if kind == ".parquet":
        _check_header(_parquet_header(path), path, require)
        frame = _read_parquet(path)
    elif kind == ".xlsx":
        frame = _read_workbook(path, files, require, {*text, *words}, all_text)
    else:
        written = find_format(path, files)
        written = replace(written, header=[unescape_formula(name) for name in written.header])
        _check_header(written.header, path, require)
        frame = _read_csv(path, files, written, text, words, all_text)
    if not len(frame):
        raise ValueError(f"{path} has no rows.")
    return frame


def write_table(frame: pd.DataFrame, path: Path) -> None:
    """Write a CSV, Parquet or Excel file."""
    kind = check_suffix(path, TABLES)
    with whole_file(path) as draft:
        if kind == ".parquet":
            frame.to_parquet(draft, index=False)
        elif kind == ".xlsx":
            write_workbook(frame, draft)
        else:
            safe, count = escape_formulas(frame)
            safe.to_csv(draft, index=False)
            note_formulas(count, path)


def note_formulas(count: int, path: Path) -> None:
    """Say how many cells of a CSV file got an apostrophe, if any did."""
    if count:
        add_note(
            f"{count:,} cells of {path} have text that a spreadsheet would run as a formula (= + - @): it got an "
            "apostrophe in front. Commands that read the file take it away again; Parquet and Excel files have the "
            "cells as they are."
        )


def require_file(path: Path) -> Path:
    """Return the path of a file that exists, or raise."""
    if not path.is_file():
        raise ValueError(f"There is no file {path}.")
    return path


def require_columns(found: Collection[str], names: Iterable[str | None], path: Path) -> None:
    """Raise if a column is not there, with a list of those that are."""
    absent = [name for name in names if name is not None and name not in found]
    if absent:
        raise ValueError(f"{path} has no column {_listed(absent)}. Its columns are {_listed(found)}.")


def require_filled(column: pd.Series, path: Path, what: str) -> pd.Series:
    """Return a column without empty fields, or raise; `what` is expected in each row."""
    missing = int((column.isna() | (column == "")).sum())
    if missing:
        raise ValueError(f"Column {column.name!r} of {path} is empty in {missing} rows; expected {what} in each.")
    return column


def find_told(column: pd.Series, path: Path, not_reported: bool) -> pd.Series:
    """Tell which rows have an attribute to report; raise if some have none and `not_reported` does not allow it."""
    told = column.notna() & (column != "")
    if not told.all() and not not_reported:
        raise ValueError(
            f"Column {column.name!r} of {path} is empty in {int((~told).sum())} rows; expected a group in each. Say "
            "--not-reported to make no report for these rows."
        )
    if not told.any():
        raise ValueError(f"Column {column.name!r} of {path} is empty in every row; expected an attribute in some.")
    return told


def require_numbers(frame: pd.DataFrame, name: str, path: Path) -> pd.Series:
    """Return a column of numbers, or raise; the message does not show what it holds."""
    column = frame[name]
    if not (pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column)):
        text = (pd.to_numeric(column, errors="coerce").isna() & column.notna()).to_numpy()
        where = "" if text.all() else f" in {text.sum():,} of {len(text):,} rows, first in row {text.argmax() + 1:,}"
        raise ValueError(f"Column {name!r} of {path} holds text{where}, but expected numbers.")
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


def _read_workbook(
    path: Path, files: TableFormat, require: Iterable[str | None], text: Collection[str | None], all_text: bool
) -> pd.DataFrame:
    frame, sheets = read_workbook(path, text)
    header = [str(name) for name in frame.columns]
    if not header:
        raise ValueError(f"{path} is empty.")
    _check_header(header, path, require)
    several = [f"the table is the first of {len(sheets)} sheets, {sheets[0]!r}"] if len(sheets) > 1 else []
    if all_text:
        _say_found(path, several)
        return frame
    free = [name for name in header if name not in text]
    decimal = files.decimal or find_decimal(frame, free, path, in_doubt=None)
    frame, found = convert_numbers(frame, free, decimal, path, given=files.decimal is not None)
    _say_found(path, [*several, *(found if files.decimal is None else [])])
    return frame


def _read_csv(
    path: Path,
    files: TableFormat,
    written: CsvFormat,
    text: Collection[str | None],
    words: Collection[str],
    all_text: bool,
) -> pd.DataFrame:
    header = written.header
    literal = [name for name in header if name in text]
    typed = [name for name in header if (all_text or name in words) and name not in literal]
    free = [name for name in header if name not in literal and name not in typed]

    def read(decimal: str, raw: list[str] | None = None) -> pd.DataFrame:
        return pd.read_csv(
            path,
            usecols=raw,
            sep=written.separator,
            decimal=decimal,
            encoding=written.encoding,
            header=0,
            names=header,  # without apostrophes in front of formulas
            index_col=False,
            low_memory=False,  # the type of a column depends on all of it
            skip_blank_lines=len(header) > 1,  # a blank line is a missing value of a single column
            na_filter=not all_text,
            dtype=dict.fromkeys(raw or typed, str),
            converters={} if raw else dict.fromkeys(literal, lambda field: field or None),
        )

    decimal = files.decimal or "."
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pd.errors.ParserWarning)  # a row that is longer than the header
            frame = read(decimal)
            if files.decimal is None:
                in_doubt = "," if written.separator == ";" else None
                decimal = find_decimal(frame, free, path, in_doubt=in_doubt)
                if decimal != ".":
                    frame = read(decimal)  # a point is no decimal point then
                elif written.separator != ",":  # such files often have decimal commas, and points between thousands
                    pointed = [name for name in free if not pd.api.types.is_integer_dtype(frame[name])]
                    if pointed:
                        check_points(read(decimal, pointed), path)
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        raise ValueError(
            f"{path} is not a CSV file that can be read: some row has more fields than the header."
        ) from error
    frame = unescape_formulas(frame).set_axis(frame.columns, axis=1)
    frame, found = convert_numbers(frame, free, decimal, path, given=files.decimal is not None)
    _say_found(path, [*written.found, *(found if files.decimal is None else [])])
    return frame


def _say_found(path: Path, found: list[str]) -> None:
    """Say how a file is written, if that is not as usual."""
    if found:
        add_note(f"In {path} {', '.join(found)}. If this is wrong, say --separator, --decimal or --encoding.")


def _check_header(header: list[str], path: Path, require: Iterable[str | None]) -> None:
    repeated = sorted({name for name in header if header.count(name) > 1})
    if repeated:
        raise ValueError(f"{path} has several columns named {_listed(repeated)}; expected each name once.")
    if "" in header:
        raise ValueError(f"{path} has a column without a name; expected a name for every column.")
    require_columns(header, require, path)


def _listed(names: Iterable[Any]) -> str:
    return ", ".join(repr(str(name)) for name in names)
