"""How a CSV file is written: encoding and separator, as the options say or as the file shows."""

import codecs
import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from fairpremium.cli._command import option_panel

_SEPARATORS = ",;\t|"
_SAMPLE = 1 << 16  # characters in which the separator is looked for
_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
_BY_NAME = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";"}
_NOT_TEXT = {*map(chr, range(32))} - {"\t", "\n", "\r", "\f", "\v"}

_option = option_panel("Files")


@dataclass(frozen=True)
class TableFormat:
    """The options that say how CSV files are written; what is left out is found in each file."""

    separator: Annotated[
        str | None, _option(help="What separates the fields of a CSV file, such as ; or tab; found if left out.")
    ] = None
    decimal: Annotated[str | None, _option(help="Decimal mark of a CSV file, . or a comma; found if left out.")] = None
    encoding: Annotated[
        str | None, _option(help="Encoding of a CSV file, such as utf-8 or cp1252; found if left out.")
    ] = None

    def __post_init__(self) -> None:
        """Refuse what no file can have."""
        if self.separator is not None and len(self.field_separator or "") != 1:
            raise ValueError(f"Got --separator {self.separator!r}, but expected one character, such as ';', or tab.")
        if self.decimal not in (None, ".", ","):
            raise ValueError(f"Got --decimal {self.decimal!r}, but expected '.' or ','.")
        if self.decimal == "," and self.field_separator == ",":
            raise ValueError("Got --decimal , and --separator , too, but expected two different marks.")
        if self.encoding is not None:
            try:
                codecs.lookup(self.encoding)
            except LookupError:
                raise ValueError(
                    f"Got --encoding {self.encoding!r}, but expected a known one, such as utf-8, cp1252, latin-1 or "
                    "utf-16."
                ) from None

    @property
    def field_separator(self) -> str | None:
        """The separator as a character."""
        return None if self.separator is None else _BY_NAME.get(self.separator.lower(), self.separator)


@dataclass(frozen=True)
class CsvFormat:
    """How one file is written."""

    separator: str
    encoding: str
    header: list[str]
    found: list[str]  # what the file showed that is not usual, in words


def find_format(path: Path, given: TableFormat) -> CsvFormat:
    """Find encoding and separator of a file, unless they are given, and read its header."""
    encoding, found = (given.encoding, []) if given.encoding else _find_encoding(path)
    sample = _check_text(path, encoding)
    separator = given.field_separator
    if separator is None:
        separator = _find_separator(sample)
        if separator != ",":
            found.append(f"fields are separated by {_NAMES[separator]}")
    with path.open(encoding=encoding, newline="") as file:
        try:
            header = next(csv.reader(file, delimiter=separator), [])
        except csv.Error:
            raise ValueError(f"{path} is not a CSV file: its header cannot be read.") from None
    if not header:
        raise ValueError(f"{path} is empty.")
    header[0] = header[0].removeprefix("\ufeff")
    return CsvFormat(separator, encoding, header, found)


def _find_encoding(path: Path) -> tuple[str, list[str]]:
    """Return the encoding, by its first bytes, or UTF-8 if all bytes fit, or what Windows writes in Western Europe."""
    with path.open("rb") as file:
        start = file.read(4096)
        for mark, name in ((codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16")):
            if start.startswith(mark):
                return name, ["its encoding is UTF-16"]
        for first, name in ((1, "utf-16-le"), (0, "utf-16-be")):  # Latin letters: every other byte is zero
            half = start[first::2]
            if len(start) >= 4 and half.count(0) > 0.7 * len(half) and 0 not in start[1 - first :: 2]:
                return name, [f"its encoding is {name.upper()}"]
        decoder = codecs.getincrementaldecoder("utf-8")()
        rare = False
        file.seek(0)
        try:
            while chunk := file.read(1 << 20):
                decoder.decode(chunk)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            file.seek(0)
            while chunk := file.read(1 << 20):
                rare |= any(byte in chunk for byte in (0x81, 0x8D, 0x8F, 0x90, 0x9D))  # which cp1252 does not have
            name = "latin-1" if rare else "cp1252"
            return name, [f"its encoding is not UTF-8, so {name} was taken"]
    return "utf-8-sig", []


def _check_text(path: Path, encoding: str) -> str:
    """Return the start of a file that is text from start to end, or raise."""
    try:
        with path.open(encoding=encoding, newline="") as file:
            sample = chunk = file.read(_SAMPLE)
            while chunk:
                if not _NOT_TEXT.isdisjoint(chunk):
                    raise ValueError(f"{path} is not a CSV file: it holds bytes that are not text.")
                chunk = file.read(1 << 20)
    except UnicodeError:
        raise ValueError(
            f"{path} is not a CSV file in {encoding}. Leave --encoding out, and the encoding is found in the file."
        ) from None
    return sample


def _find_separator(sample: str) -> str:
    """Return the separator that divides header and rows alike, a comma in doubt."""
    lines = sample if len(sample) < _SAMPLE else sample[: sample.rfind("\n") + 1]
    widths: dict[str, list[int]] = {}
    for mark in _SEPARATORS:
        try:
            widths[mark] = [len(row) for row in csv.reader(io.StringIO(lines, newline=""), delimiter=mark) if row]
        except csv.Error:
            continue
    divides = {mark: number for mark, number in widths.items() if number and number[0] > 1}
    for mark, number in divides.items():
        if set(number) == {number[0]}:
            return mark
    return max(divides, key=lambda mark: divides[mark][0], default=",")
