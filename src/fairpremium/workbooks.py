"""Tables in Excel workbooks: the first sheet, one header row, values and no formulas."""

import importlib
from collections.abc import Collection
from os import PathLike
from typing import Any

import pandas as pd

from fairpremium.errors import MissingExtraError

MAX_ROWS = 1_048_575  # rows of a sheet below its header
_ERRORS = {"#NULL!", "#DIV/0!", "#VALUE!", "#REF!", "#NAME?", "#NUM!", "#N/A", "#GETTING_DATA", "#SPILL!", "#CALC!"}


def read_workbook(path: str | PathLike[str], text: Collection[str | None] = ()) -> tuple[pd.DataFrame, list[str]]:
    """Read the first sheet of a workbook.

    - `text`: Columns to take literally: numbers that are stored as text stay text. In other columns, a column of
      cells that all hold numbers is one of numbers.

    Returns the table, in which an empty cell is missing, and the names of all sheets.
    """
    openpyxl = _import("openpyxl")
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        sheet = book.worksheets[0]
        sheet.reset_dimensions()  # programs write wrong ones
        rows = [list(row) for row in sheet.iter_rows(values_only=True)]
        names = list(book.sheetnames)
        book.close()
    except Exception as error:  # a damaged archive, XML that is none, a workbook without a sheet
        raise ValueError(f"{path} is not an Excel workbook that can be read.") from error
    while rows and all(cell is None for cell in rows[-1]):
        rows.pop()
    header, *body = rows or [[]]
    while header and header[-1] is None and all(len(row) < len(header) or row[len(header) - 1] is None for row in body):
        header.pop()
    width = len(header)
    for number, row in enumerate(body, start=2):
        if any(cell is not None for cell in row[width:]):
            raise ValueError(f"{path} has a cell in row {number} beyond the columns that its first row names.")
    columns = ["" if name is None else str(name) for name in header]
    cells = [[*row[:width], *[None] * (width - len(row))] for row in body]
    frame = pd.DataFrame(cells, columns=columns, dtype=object)
    for position, name in enumerate(columns):
        bad = frame.iloc[:, position].isin(_ERRORS)
        if bad.any():
            raise ValueError(
                f"Column {name!r} of {path} holds an error of Excel in row {int(bad.to_numpy().argmax()) + 2}; "
                "expected a value. Correct the formula, or leave the cell empty."
            )
    typed = [name for name in dict.fromkeys(columns) if name not in text]
    frame[typed] = frame[typed].infer_objects()
    return frame, names


def write_workbook(frame: pd.DataFrame, path: str | PathLike[str]) -> None:
    """Write a table as the only sheet of a workbook; text stays text, also where it begins like a formula."""
    _import("xlsxwriter")
    if len(frame) > MAX_ROWS:
        raise ValueError(f"Got {len(frame):,} rows, but a sheet holds {MAX_ROWS:,}. Write .csv or .parquet instead.")
    options = {"strings_to_formulas": False, "strings_to_urls": False, "strings_to_numbers": False}
    with pd.ExcelWriter(path, engine="xlsxwriter", engine_kwargs={"options": options}) as writer:
        frame.to_excel(writer, index=False)


def _import(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f'Excel workbooks need {module}. Install it with: pip install "fairpremium[tariff]"'
        ) from error
