"""A tariff as one SELECT, in the SQL that DuckDB, SQLite and PostgreSQL share.

Each choice below prevents a wrong price without an error. Columns are qualified, because SQLite takes an unknown
``"name"`` for text. Numbers are checked with ``x + 0 = x`` (text in a column of SQLite) and ``x - x = 0`` (NaN,
infinity). Literals have an exponent, which makes them floating-point numbers in DuckDB. The minimum premium is a CASE,
because functions for the larger of two numbers ignore NULL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairpremium.models import Unseen
from fairpremium.tariffs._factors import BandFactor, Factor, FormulaFactor, LevelFactor

if TYPE_CHECKING:
    from fairpremium.tariffs._tariff import Tariff

_ROW = "q"  # alias of the table


def select_expression(tariff: Tariff, table: str, name: str) -> str:
    """Return the query; see `Tariff.to_sql`."""
    parts = table.split(".") if isinstance(table, str) else [""]
    if not all(parts):
        raise ValueError(f"Got table={table!r}, but expected the name of a table, or schema.table.")
    factors = [_number(tariff.base), *(_factor(factor, tariff.unseen_levels) for factor in tariff.factors)]
    premium = "\n  * ".join(factors)
    if tariff.minimum_premium is not None:
        least = _number(tariff.minimum_premium)
        premium = f"CASE WHEN {premium}\n  < {least} THEN {least}\n  ELSE {premium}\n  END"
    source = ".".join(quote_name(part) for part in parts)
    return f"SELECT {_ROW}.*,\n  {premium}\n  AS {quote_name(name)}\nFROM {source} AS {_ROW}"


def quote_name(name: str) -> str:
    """Quote the name of a table or column."""
    _check_text(name, "a name")
    return '"' + name.replace('"', '""') + '"'


def _factor(factor: Factor, unseen: Unseen) -> str:
    column = f"{_ROW}.{quote_name(factor.name)}"
    if isinstance(factor, LevelFactor):
        cases = " ".join(
            f"WHEN {column} = {_literal(level)} THEN {_number(relativity)}"
            for level, relativity in zip(factor.levels, factor.relativity, strict=True)
        )
        unknown = factor.relativity_of_unknown(unseen)
        other = "" if unknown is None else f" WHEN {column} IS NOT NULL THEN {_number(unknown)}"
        return f"CASE {cases}{other} END"
    number = f"({column} + 0)"
    if isinstance(factor, FormulaFactor):
        value = f"EXP({_number(factor.slope)} * {number})"
    else:
        assert isinstance(factor, BandFactor)
        cases = " ".join(
            f"WHEN {number} < {_number(edge)} THEN {_number(relativity)}"
            for edge, relativity in zip(factor.edges, factor.relativity[:-1], strict=True)
        )
        last = _number(factor.relativity[-1])
        value = f"CASE {cases} ELSE {last} END" if cases else last
    return f"CASE WHEN {column} + 0 = {column} AND {column} - {column} = 0 THEN {value} END"


def _number(value: float) -> str:
    text = repr(float(value))
    return text if "e" in text else f"{text}e0"


def _literal(level: str | bool | int) -> str:
    if isinstance(level, bool):
        return "TRUE" if level else "FALSE"
    if isinstance(level, int):
        return str(level)
    _check_text(level, "a level")
    return "'" + level.replace("'", "''") + "'"


def _check_text(text: str, what: str) -> None:
    if not isinstance(text, str) or "\0" in text:
        raise ValueError(f"Got {text!r} as {what}, but expected text without a zero byte, which SQL can hold.")
