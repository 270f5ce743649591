"""A tariff outside of Python: other programs calculate it, and get the same premiums."""

from __future__ import annotations

import csv
import sqlite3

import duckdb
import numpy as np
import openpyxl
import pandas as pd
import pytest

from fairpremium import DiscriminationFreePricer, LinearModel, Tariff
from fairpremium.tariffs._workbook import sheet_names
from helpers.spreadsheet import recalculate
from helpers.tariffs import portfolio, pricer_with


@pytest.fixture(scope="module")
def tariffs() -> dict[str, Tariff]:
    X = portfolio()
    pricer = pricer_with(X, own=0.8)
    return {
        "formulas": pricer.to_tariff(X, bands="formula"),
        "bands": pricer.to_tariff(X, bands={"age": [25, 40.5, 65], "power": 6}, minimum_premium=0.08),
        "base": pricer_with(X, own=0.8, unseen_levels="base").to_tariff(
            X, bands={"age": 1, "power": [100]}, rounding=0.01
        ),
    }


def awkward(table: pd.DataFrame) -> pd.DataFrame:
    """Rows with every level, numbers on the edges, numbers outside, a missing value, an unknown level."""
    edges = table.head(6).assign(age=[25, 40, 41, 65, 0, 120], power=[100.0, 99.99999, -5.0, 1000.0, 0.0, 100.00001])
    return pd.concat([table.head(200), edges], ignore_index=True)


# --- SQL -------------------------------------------------------------------------------------------------------------


def priced_by_duckdb(table: pd.DataFrame, query: str) -> pd.DataFrame:
    with duckdb.connect() as connection:
        connection.register("given", table)
        connection.execute("CREATE TABLE quotes AS SELECT * FROM given")
        return connection.execute(query).df()


def priced_by_sqlite(table: pd.DataFrame, query: str) -> pd.DataFrame:
    with sqlite3.connect(":memory:") as connection:
        table.to_sql("quotes", connection, index=False)
        return pd.read_sql_query(query, connection)


ENGINES = {"duckdb": priced_by_duckdb, "sqlite": priced_by_sqlite}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("which", ["formulas", "bands", "base"])
def test_databases_compute_the_premium(tariffs, engine, which):
    tariff, table = tariffs[which], awkward(portfolio())
    found = ENGINES[engine](table, tariff.to_sql("quotes"))
    assert found.columns.tolist() == [*table.columns, "premium"]
    np.testing.assert_allclose(found["premium"], tariff.predict(table), rtol=1e-9)


@pytest.mark.parametrize("engine", ENGINES)
def test_databases_do_not_price_what_the_tariff_does_not_know(tariffs, engine):
    table = portfolio().head(4).astype({"age": float, "smoker": object})
    table.loc[0, "region"] = None
    table.loc[1, "age"] = np.nan
    table.loc[2, "region"] = "City"  # another level than "city"
    price = ENGINES[engine]
    found = price(table.astype({"smoker": bool}), tariffs["bands"].to_sql("quotes"))["premium"]
    assert found.isna().tolist() == [True, True, True, False]
    known = price(table.astype({"smoker": bool}), tariffs["base"].to_sql("quotes"))["premium"]
    assert known.isna().tolist() == [True, True, False, False]
    base = tariffs["base"].predict(table.iloc[2:3].astype({"smoker": bool}))
    assert known[2] == pytest.approx(base[0], rel=1e-12)


@pytest.fixture(scope="module")
def grouped() -> Tariff:
    """A tariff whose regions were grouped where they are rare: a new region is one of the others."""
    rng = np.random.default_rng(0)
    X = portfolio(600)[["age"]].assign(region=rng.choice(["city", "rural", "it's"], 600, p=[0.6, 0.35, 0.05]))
    pricer = DiscriminationFreePricer(
        "poisson", LinearModel(terms="age + rare(region, 100)", slopes="common"), pooling=0, intervals=False
    )
    pricer.fit(X, rng.poisson(1 + (X["region"] == "it's")), sensitive=rng.choice(["F", "M"], 600))
    return pricer.to_tariff(X)


@pytest.mark.parametrize("engine", ENGINES)
def test_databases_price_new_levels_as_rare_ones(grouped, engine):
    table = pd.DataFrame({"age": [30, 30, 30], "region": ["moon", "it's", None]})
    found = ENGINES[engine](table, grouped.to_sql("quotes"))["premium"]
    np.testing.assert_allclose(found[:2], grouped.predict(table.head(2)), rtol=1e-9)
    assert found.isna().tolist() == [False, False, True]
    assert found[0] == pytest.approx(found[1], rel=1e-7)


def test_libreoffice_prices_new_levels_as_rare_ones(grouped, tmp_path):
    grouped.to_excel(tmp_path / "new.xlsx")
    quote_with(tmp_path / "new.xlsx", {"age": 30, "region": "moon"}, tmp_path / "moon.xlsx")
    (book,) = recalculate([tmp_path / "moon.xlsx"], tmp_path)
    expected = grouped.predict(pd.DataFrame({"age": [30], "region": ["moon"]}))[0]
    assert premium_of(openpyxl.load_workbook(book, data_only=True)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_column_that_is_not_there_is_an_error(tariffs, engine):
    with pytest.raises(Exception, match=r"(?i)age"):
        ENGINES[engine](portfolio().head(3).drop(columns="age"), tariffs["bands"].to_sql("quotes"))


def test_text_in_the_place_of_numbers_has_no_price(tariffs):
    table = portfolio().head(3).assign(age=["46 yrs", "46", "100"])
    found = priced_by_sqlite(table, tariffs["bands"].to_sql("quotes"))["premium"]
    expected = tariffs["bands"].predict(table.assign(age=[46, 46, 100]))
    assert np.isnan(found[0])
    np.testing.assert_allclose(found[1:], expected[1:], rtol=1e-9)  # numbers, and compared as such
    with pytest.raises(duckdb.Error):
        priced_by_duckdb(table, tariffs["bands"].to_sql("quotes"))
    endless = portfolio().head(2).assign(power=[np.inf, 100.0])
    assert priced_by_duckdb(endless, tariffs["bands"].to_sql("quotes"))["premium"].isna().tolist() == [True, False]


def test_names_are_quoted(tariffs):
    query = tariffs["bands"].to_sql('motor.my "quotes"; DROP TABLE quotes', name='the "price"')
    assert query.endswith('FROM "motor"."my ""quotes""; DROP TABLE quotes" AS q')
    assert 'AS "the ""price"""' in query
    assert "'it''s'" in query
    with duckdb.connect() as connection:
        connection.execute("CREATE SCHEMA motor")
        connection.register("given", portfolio().head(5))
        connection.execute('CREATE TABLE motor."my ""quotes""; DROP TABLE quotes" AS SELECT * FROM given')
        np.testing.assert_allclose(
            connection.execute(query).df()['the "price"'], tariffs["bands"].predict(portfolio().head(5)), rtol=1e-9
        )
    for wrong in ("", "a..b", None):
        with pytest.raises(ValueError, match="the name of a table"):
            tariffs["bands"].to_sql(wrong)
    with pytest.raises(ValueError, match="zero byte"):
        tariffs["bands"].to_sql("a\0b")


# --- CSV -------------------------------------------------------------------------------------------------------------


def test_the_csv_file_holds_the_tariff_and_no_formula(tariffs, tmp_path):
    tariff = tariffs["bands"]
    tariff.to_csv(tmp_path / "tariff.csv")
    with (tmp_path / "tariff.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert float(rows[0]["relativity"]) == tariff.base
    assert (rows[1]["factor"], float(rows[1]["relativity"])) == ("minimum premium", 0.08)
    table = tariff.relativities
    assert [float(row["relativity"]) for row in rows[2:]] == table["relativity"].tolist()
    assert [row["level"].removeprefix("'") for row in rows[2:]] == [str(level) for level in table["level"]]
    assert "'=1+1" in [row["level"] for row in rows]
    assert not [row for row in rows if row["level"].startswith(("=", "+", "-", "@"))]
    age = [row for row in rows if row["factor"] == "age"]
    assert [(row["from"], row["to"]) for row in age] == [("", "25.0"), ("25.0", "40.5"), ("40.5", "65.0"), ("65.0", "")]


# --- Excel -----------------------------------------------------------------------------------------------------------


def quote_with(path, risk, new):
    """Fill in the quote of a workbook; openpyxl leaves out all values of formulas."""
    book = openpyxl.load_workbook(path)
    page = book["Quote"]
    at = {page.cell(row, 1).value: row for row in range(5, page.max_row + 1)}
    for name, value in risk.items():
        page.cell(at[name], 2).value = value
        if isinstance(value, str) and value.startswith("="):
            page.cell(at[name], 2).data_type = "s"
    book.save(new)


def test_libreoffice_computes_the_premium(tariffs, tmp_path):
    risks = awkward(portfolio()).iloc[[0, 3, 201]]  # levels with signs of their own, a number on an edge
    assert set(risks["region"]) >= {"=1+1", "it's"}
    books = []
    for (name, tariff), (_, risk) in zip(tariffs.items(), risks.iterrows(), strict=True):
        tariff.to_excel(tmp_path / f"{name}-new.xlsx")
        books.append(tmp_path / f"{name}.xlsx")
        quote_with(tmp_path / f"{name}-new.xlsx", risk.to_dict(), books[-1])
    for name, change in (("unknown", {"region": "CITY"}), ("empty", {"age": None})):
        books.append(tmp_path / f"{name}.xlsx")
        quote_with(tmp_path / "bands-new.xlsx", {**risks.iloc[0].to_dict(), **change}, books[-1])
    *found, no_level, no_number = (
        openpyxl.load_workbook(book, data_only=True) for book in recalculate(books, tmp_path)
    )
    for i, (book, tariff) in enumerate(zip(found, tariffs.values(), strict=True)):
        assert premium_of(book) == pytest.approx(tariff.predict(risks.iloc[[i]])[0], rel=1e-9)
        rows = [[cell.value for cell in row] for row in book["Check"].iter_rows(min_row=5)]
        assert len(rows) == len(tariff.relativities)  # a risk for every level and band
        table = pd.DataFrame([row[:-3] for row in rows], columns=risks.columns).astype({"smoker": bool})
        np.testing.assert_allclose([row[-3] for row in rows], tariff.predict(table), rtol=1e-9)
    assert premium_of(no_level) == premium_of(no_number) == "#N/A"


def premium_of(book):
    page = book["Quote"]
    assert page.cell(page.max_row, 1).value == "Premium"
    return page.cell(page.max_row, 3).value


def test_the_workbook_holds_text_as_text_and_its_own_values(tariffs, tmp_path):
    tariffs["bands"].to_excel(tmp_path / "tariff.xlsx")
    formulas = openpyxl.load_workbook(tmp_path / "tariff.xlsx")
    assert formulas.sheetnames == ["Quote", "age", "power", "region", "smoker", "Check", "Notes"]
    page = formulas["region"]
    cells = [page.cell(row, 1) for row in range(5, page.max_row + 1)]
    assert {cell.data_type for cell in cells} == {"s"}
    assert {cell.value for cell in cells} == set(portfolio()["region"])
    validations = formulas["Quote"].data_validations.dataValidation
    assert [each.type for each in validations] == ["decimal", "decimal", "list", "list"]
    values = openpyxl.load_workbook(tmp_path / "tariff.xlsx", data_only=True)
    check = values["Check"]
    assert all(check.cell(row, 5).value == pytest.approx(check.cell(row, 6).value) for row in range(5, check.max_row))
    text = " ".join(str(cell.value) for row in values["Notes"].iter_rows() for cell in row)
    assert "Largest" in text
    assert "at least 0.08" in text


def test_a_quote_begins_with_numbers_that_the_portfolio_has(tariffs, tmp_path):
    """An age of 1 is nobody's: the quote shows the value in the middle, which the tariff's own file keeps."""
    tariffs["formulas"].save(tmp_path / "tariff.json")
    Tariff.load(tmp_path / "tariff.json").to_excel(tmp_path / "tariff.xlsx")
    page = openpyxl.load_workbook(tmp_path / "tariff.xlsx")["Quote"]
    shown = {page.cell(row, 1).value: page.cell(row, 2).value for row in (5, 6)}
    X = portfolio()
    for name in ("age", "power"):
        assert (X[name] < shown[name]).mean() < 0.5 <= (X[name] <= shown[name]).mean()


def test_sheet_names_are_those_that_excel_takes():
    names = ["a" * 40, "A" * 40, "x:y/z", "Notes", "'", "history", "vehicle [kW]"]
    found = list(sheet_names(names).values())
    assert found == ["a" * 31, "A" * 27 + " (2)", "x y z", "Notes (2)", "factor", "history (2)", "vehicle  kW"]
    assert len({name.lower() for name in found}) == len(names)
