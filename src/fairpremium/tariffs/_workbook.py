"""A tariff as a workbook whose formulas price: a quote, one sheet per factor, checks, notes.

Levels are compared with EXACT inside SUMPRODUCT, because MATCH takes "A" for "a" and "*" for anything. All text is
written as text, so that a level such as "=1+1" is never a formula. Every formula also carries its value, for programs
that do not calculate.
"""

from __future__ import annotations

import re
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from fairpremium.errors import MissingExtraError
from fairpremium.tariffs._factors import BandFactor, Factor, FormulaFactor, LevelFactor

if TYPE_CHECKING:
    from fairpremium.tariffs._tariff import Tariff

_ACCENT, _INPUT = "#00695C", "#FFF8E1"
_FIRST = 4  # row of the first relativity in the sheet of a factor, from zero
_RESERVED = {"quote", "check", "notes", "history"}
_MEASURES = {
    "median": ("Median relative deviation from h*", "0.000%"),
    "p99": ("99th percentile of it", "0.000%"),
    "largest": ("Largest", "0.000%"),
    "deviance": ("Mean Poisson deviance of h* about the tariff", "0.000000"),
    "deviance_explained": ("Share of the deviance that the tariff explains", "0.000%"),
    "proxy_discrimination_before": ("Proxy discrimination of h*", "0.000000"),
    "proxy_discrimination_after": ("Proxy discrimination of the tariff", "0.000000"),
    "proxy_discrimination_unaware": ("Proxy discrimination of the unaware price", "0.000000"),
}


def write_workbook(tariff: Tariff, path: str | PathLike[str]) -> None:
    """Write the workbook; see `Tariff.to_excel`."""
    try:
        import xlsxwriter
    except ImportError as error:
        raise MissingExtraError(
            'A workbook needs XlsxWriter. Install it with: pip install "fairpremium[tariff]"'
        ) from error
    options = {"strings_to_formulas": False, "strings_to_urls": False, "strings_to_numbers": False}
    with xlsxwriter.Workbook(str(path), options) as book:
        _Writer(tariff, book).write()


class _Writer:
    """One workbook while it is written."""

    def __init__(self, tariff: Tariff, book: Any) -> None:
        self.tariff, self.book = tariff, book
        self.sheets = sheet_names([factor.name for factor in tariff.factors])
        styles = {
            "title": {"bold": True, "font_size": 16, "font_color": _ACCENT},
            "head": {"bold": True, "font_color": "white", "bg_color": _ACCENT, "border": 1, "border_color": "#B0BEC5"},
            "text": {"border": 1, "border_color": "#CFD8DC"},
            "number": {"border": 1, "border_color": "#CFD8DC", "num_format": "0.0000"},
            "edge": {"border": 1, "border_color": "#CFD8DC", "num_format": "General"},
            "exposure": {"border": 1, "border_color": "#CFD8DC", "num_format": "#,##0.00"},
            "input": {"border": 1, "bg_color": _INPUT, "locked": False},
            "input_text": {"border": 1, "bg_color": _INPUT, "locked": False, "num_format": "@"},
            "premium": {"bold": True, "border": 1, "num_format": "#,##0.0000", "font_size": 13},
            "quiet": {"font_color": "#607D8B", "italic": True},
            "wrap": {"text_wrap": True, "valign": "top"},
        }
        self.style = {name: book.add_format(style) for name, style in styles.items()}

    def write(self) -> None:
        quote = self.book.add_worksheet("Quote")
        pages = [self.book.add_worksheet(self.sheets[factor.name]) for factor in self.tariff.factors]
        check, notes = self.book.add_worksheet("Check"), self.book.add_worksheet("Notes")
        for factor, page in zip(self.tariff.factors, pages, strict=True):
            self._write_factor(page, factor)
        self._write_quote(quote)
        self._write_check(check)
        self._write_notes(notes)
        for page in (quote, *pages, check, notes):
            page.hide_gridlines(2)
            page.set_landscape()
            page.fit_to_pages(1, 0)

    def _write_factor(self, page: Any, factor: Factor) -> None:
        page.write_string(0, 0, factor.name, self.style["title"])
        page.write_string(1, 0, _EXPLANATION[factor.kind], self.style["quiet"])
        bands = isinstance(factor, BandFactor)
        heads = ["Level", *(["From", "To (below)"] if bands else []), "Relativity", "Low", "High", "Exposure"]
        self._heads(page, _FIRST - 1, heads)
        starts = (None, *factor.edges) if isinstance(factor, BandFactor) else ()
        ends = (*factor.edges, None) if isinstance(factor, BandFactor) else ()
        for i, label in enumerate(factor.labels):
            row = _FIRST + i
            self._cell(page, row, 0, label, "text")
            if bands:
                self._cell(page, row, 1, starts[i], "edge")
                self._cell(page, row, 2, ends[i], "edge")
            at = 3 if bands else 1
            for j, value in enumerate((factor.relativity[i], factor.low[i], factor.high[i])):
                self._cell(page, row, at + j, float(value), "number")
            self._cell(page, row, at + 3, float(factor.exposure[i]), "exposure")
        page.set_column(0, 0, 28)
        page.set_column(1, len(heads) - 1, 13)
        page.freeze_panes(_FIRST, 0)

    def _write_quote(self, page: Any) -> None:
        tariff = self.tariff
        page.write_string(0, 0, "Quote", self.style["title"])
        page.write_string(1, 0, "Fill in the coloured cells; the premium is per unit of exposure.", self.style["quiet"])
        self._heads(page, 3, ["Factor", "Value", "Relativity"])
        first, start = 4, _typical(tariff)
        for i, (factor, value) in enumerate(zip(tariff.factors, start, strict=True)):
            row, cell = first + i, f"$B${first + i + 1}"
            self._cell(page, row, 0, factor.name, "text")
            words = isinstance(factor, LevelFactor) and isinstance(factor.levels[0], str)
            self._cell(page, row, 1, value, "input_text" if words else "input")
            self._formula(page, row, 2, self._relativity(factor, cell), "number", _value(factor, value))
            self._validate(page, row, factor)
        last = first + len(tariff.factors)
        self._cell(page, last, 0, "Base premium", "text")
        self._cell(page, last, 1, None, "text")
        self._cell(page, last, 2, tariff.base, "number")
        product = f"C{last + 1}*PRODUCT(C{first + 1}:C{last})"
        row = last + 1
        if tariff.minimum_premium is not None:
            self._cell(page, row, 0, "Minimum premium", "text")
            self._cell(page, row, 1, None, "text")
            self._cell(page, row, 2, tariff.minimum_premium, "number")
            product = f"MAX(C{row + 1},{product})"
            row += 1
        page.write_string(row, 0, "Premium", self.style["head"])
        page.write_blank(row, 1, None, self.style["head"])
        self._formula(page, row, 2, product, "premium", self._premium(start))
        page.set_column(0, 0, 28)
        page.set_column(1, 2, 22)

    def _write_check(self, page: Any) -> None:
        """Write one risk per row of each factor: typical, but for this one value."""
        tariff, typical = self.tariff, _typical(self.tariff)
        page.write_string(0, 0, "Check", self.style["title"])
        explanation = "One risk per level: the premium of the formulas, the one that the tariff gave, and the error."
        page.write_string(1, 0, explanation, self.style["quiet"])
        names = [factor.name for factor in tariff.factors]
        self._heads(page, 3, [*names, "Premium", "Expected", "Relative error"])
        row, width = _FIRST, len(names)
        base = f"'Quote'!$C${_FIRST + width + 1}"
        for j, factor in enumerate(tariff.factors):
            for value in _representatives(factor):
                risk = [*typical[:j], value, *typical[j + 1 :]]
                for k, each in enumerate(risk):
                    self._cell(page, row, k, each, "text")
                parts = [self._relativity(f, f"${_column(k)}{row + 1}") for k, f in enumerate(tariff.factors)]
                product = "*".join([base, *parts])
                if tariff.minimum_premium is not None:
                    product = f"MAX('Quote'!$C${_FIRST + width + 2},{product})"
                expected = self._premium(risk)
                self._formula(page, row, width, product, "number", expected)
                self._cell(page, row, width + 1, expected, "number")
                error = f"{_column(width)}{row + 1}/{_column(width + 1)}{row + 1}-1"
                self._formula(page, row, width + 2, error, "edge", 0.0)
                row += 1
        page.set_column(0, width + 2, 16)
        page.freeze_panes(_FIRST, 0)

    def _write_notes(self, page: Any) -> None:
        page.write_string(0, 0, "Notes", self.style["title"])
        row = 2
        self._heads(page, row, ["Measured on the portfolio of the tariff", "Value"])
        for name, (words, form) in _MEASURES.items():
            row += 1
            self._cell(page, row, 0, words, "text")
            value = self.tariff.deviation[name]
            style = self.book.add_format({"border": 1, "border_color": "#CFD8DC", "num_format": form})
            page.write_number(row, 1, value, style) if np.isfinite(value) else page.write_string(row, 1, "", style)
        row += 2
        limits = f"Low and High are {100 * self.tariff.level:g} % confidence limits of a relativity, if it has any."
        for sentence in (*self.tariff.notes, limits, _UNKNOWN[self.tariff.unseen_levels]):
            page.merge_range(row, 0, row, 1, "", self.style["wrap"])
            page.write_string(row, 0, sentence, self.style["wrap"])
            page.set_row(row, 15 * (1 + len(sentence) // 95))
            row += 1
        page.set_column(0, 0, 60)
        page.set_column(1, 1, 20)

    def _relativity(self, factor: Factor, cell: str) -> str:
        """Return the formula of a relativity, without the equals sign."""
        sheet = "'" + self.sheets[factor.name].replace("'", "''") + "'"
        first, last = _FIRST + 1, _FIRST + len(factor.labels)
        if isinstance(factor, LevelFactor):
            levels = f"{sheet}!$A${first}:$A${last}"
            match = f"EXACT({levels},{cell})" if isinstance(factor.levels[0], str) else f"({levels}={cell})"
            found = f"SUMPRODUCT({match}*{sheet}!$B${first}:$B${last})"
            priced = factor.rest is not None or self.tariff.unseen_levels == "base"
            at = first if factor.rest is None else first + factor.levels.index(factor.rest)
            other = f"{sheet}!$B${at}" if priced else "NA()"
            return f"IF(ISBLANK({cell}),NA(),IF(SUMPRODUCT(--{match})=0,{other},{found}))"
        if isinstance(factor, FormulaFactor):
            return f"IF(ISNUMBER({cell}),{sheet}!$B${first}^{cell},NA())"
        table = f"{sheet}!$D${first}:$D${last}"
        if len(factor.labels) == 1:
            return f"IF(ISNUMBER({cell}),{sheet}!$D${first},NA())"
        band = f"1+SUMPRODUCT(--({sheet}!$B${first + 1}:$B${last}<={cell}))"
        return f"IF(ISNUMBER({cell}),INDEX({table},{band}),NA())"

    def _validate(self, page: Any, row: int, factor: Factor) -> None:
        if isinstance(factor, LevelFactor):
            sheet = "'" + self.sheets[factor.name].replace("'", "''") + "'"
            source = f"={sheet}!$A${_FIRST + 1}:$A${_FIRST + len(factor.labels)}"
            page.data_validation(row, 1, row, 1, {"validate": "list", "source": source})
        else:
            page.data_validation(
                row,
                1,
                row,
                1,
                {"validate": "decimal", "criteria": "between", "minimum": -1e15, "maximum": 1e15,
                 "error_message": "Enter a number."},
            )  # fmt: skip

    def _premium(self, risk: list[Any]) -> float:
        premium = self.tariff.base
        for factor, value in zip(self.tariff.factors, risk, strict=True):
            premium = premium * _value(factor, value)
        least = self.tariff.minimum_premium
        return float(premium if least is None else max(premium, least))

    def _heads(self, page: Any, row: int, heads: list[str]) -> None:
        for column, head in enumerate(heads):
            page.write_string(row, column, head, self.style["head"])

    def _formula(self, page: Any, row: int, column: int, formula: str, style: str, value: float) -> None:
        page.write_formula(row, column, f"={formula}", self.style[style], value)

    def _cell(self, page: Any, row: int, column: int, value: Any, style: str) -> None:
        form = self.style[style]
        if value is None or (isinstance(value, float) and np.isnan(value)):
            page.write_blank(row, column, None, form)
        elif isinstance(value, bool):
            page.write_boolean(row, column, value, form)
        elif isinstance(value, str):
            page.write_string(row, column, value, form)
        else:
            page.write_number(row, column, value, form)


_EXPLANATION = {
    "levels": "The relativity of the base level is one.",
    "bands": "A number that equals a limit belongs to the band above it.",
    "formula": "A number x multiplies the premium by relativity ^ x.",
}
_UNKNOWN = {
    "error": "Unless said otherwise, a level that the tariff does not know gives #N/A, and so does an empty cell.",
    "base": "Unless said otherwise, a level that the tariff does not know has the relativity of the base level; an "
    "empty cell gives #N/A.",
}


def sheet_names(names: list[str]) -> dict[str, str]:
    """Return a sheet name for each factor: at most 31 characters, none forbidden, distinct in any case.

    Examples
    --------
    >>> sheet_names(["age", "AGE", "a/b", "quote"])
    {'age': 'age', 'AGE': 'AGE (2)', 'a/b': 'a b', 'quote': 'quote (2)'}
    """
    found: dict[str, str] = {}
    used = set(_RESERVED)
    for name in names:
        clean = re.sub(r"[\[\]:*?/\\\x00-\x1f]", " ", name).strip(" '")[:31].strip(" '") or "factor"
        trial, count = clean, 1
        while trial.lower() in used:
            count += 1
            end = f" ({count})"
            trial = clean[: 31 - len(end)] + end
        used.add(trial.lower())
        found[name] = trial
    return found


def _typical(tariff: Tariff) -> list[Any]:
    """Return the value of each factor that has the most exposure."""
    return [_representatives(factor)[int(np.argmax(factor.exposure))] for factor in tariff.factors]


def _representatives(factor: Factor) -> list[Any]:
    """Return one value for each row of a factor."""
    if isinstance(factor, LevelFactor):
        return list(factor.levels)
    if isinstance(factor, BandFactor) and factor.edges:
        return [factor.edges[0] - 1.0, *factor.edges]
    return [factor.typical if isinstance(factor, FormulaFactor) else 1.0]


def _value(factor: Factor, value: Any) -> float:
    """Return the relativity of one value."""
    cell = factor.levels.index(value) if isinstance(factor, LevelFactor) else value
    return float(factor.apply(np.array([cell]))[0])


def _column(index: int) -> str:
    """Return the letters of a column, from zero."""
    letters = ""
    index += 1
    while index:
        index, rest = divmod(index - 1, 26)
        letters = chr(65 + rest) + letters
    return letters
