"""Tables as people have them: separators, decimal commas, encodings, Excel, attributes that are missing."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairpremium import DiscriminationFreePricer, RandomizedResponse
from fairpremium.cli.tables import TableFormat, read_table, require_numbers, write_table
from fairpremium.csv_cells import escape_formula, unescape_formula
from fairpremium.privacy import PrivacyLedger, read_reports, write_reports

CHANNEL = RandomizedResponse(["F", "M"], keep=0.8)
FIT = ["--outcome", "y", "--features", "age,town", "--keep", 0.8, "--correction", "inverse", "--pooling", 0]


@pytest.fixture
def book():
    rng = np.random.default_rng(0)
    n = 400
    group = rng.choice(["F", "M"], n)
    frame = pd.DataFrame(
        {
            "age": rng.uniform(18, 80, n).round(1),
            "town": rng.choice(["K\u00f6ln", "\u00c5rhus"], n),
            "y": (100 + 20 * (group == "M") + rng.normal(size=n)).round(2),
            "report": CHANNEL.privatize(group, rng=1),
        }
    )
    frame.to_csv("book.csv", index=False)
    return frame


def prices(name="model.json"):
    return DiscriminationFreePricer.load(name).coefficients_


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "cp1252", "latin-1", "utf-16", "utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("decimal", [",", "."])
def test_every_way_of_writing_a_file_gives_the_same_table(book, encoding, separator, decimal):
    book.to_csv("other.csv", index=False, sep=separator, decimal=decimal, encoding=encoding)
    found = read_table(Path("other.csv"))
    pd.testing.assert_frame_equal(found, read_table(Path("book.csv")))
    given = TableFormat(separator="tab" if separator == "\t" else separator, encoding=encoding)
    pd.testing.assert_frame_equal(read_table(Path("other.csv"), given), found)


def test_fit_says_what_it_found_and_options_say_it_first(call, book):
    call("fit", "book.csv", *FIT, "-o", "model.json")
    expected = prices()
    book.to_csv("german.csv", index=False, sep=";", decimal=",", encoding="cp1252")
    said = call("fit", "german.csv", *FIT, "-o", "model.json")
    assert said.stderr.count("\n") == 1
    for word in ("Note: In german.csv", "cp1252", "semicolons", "decimal comma", "--separator"):
        assert word in said.stderr
    pd.testing.assert_frame_equal(prices(), expected)
    words = ["--separator", ";", "--decimal", ",", "--encoding", "cp1252"]
    assert call("fit", "german.csv", *FIT, *words, "-o", "model.json").stderr == ""
    pd.testing.assert_frame_equal(prices(), expected)
    call("price", "model.json", "german.csv", "-o", "premiums.csv")
    pricer = DiscriminationFreePricer.load("model.json")
    np.testing.assert_allclose(pd.read_csv("premiums.csv")["premium"], pricer.predict(book), rtol=1e-9)


def test_wrong_options_are_one_line(refuse, book):
    for words, expected in (
        (["--separator", "ab"], "one character"),
        (["--decimal", "x"], "expected '.' or ','"),
        (["--encoding", "klingon"], "--encoding 'klingon'"),
        (["--encoding", "ascii"], "not a CSV file in ascii"),
        (["--decimal", ",", "--separator", ","], "two different marks"),
        (["--separator", ";"], "no column"),
        (["--decimal", ","], "decimal point, but --decimal says a comma"),
    ):
        assert expected in refuse("fit", "book.csv", *FIT, *words, "-o", "model.json")


def read_text(text, **given):
    Path("t.csv").write_text(text, encoding="utf-8")
    return read_table(Path("t.csv"), TableFormat(**given))


def test_a_decimal_comma_never_becomes_a_category():
    """The mistake: a column of amounts was taken for categories, one for each amount."""
    assert read_text("a;y\n1;0,5\n2;12,25\n")["y"].tolist() == [0.5, 12.25]
    assert read_text('a,y\n1,"0,5"\n2,"12,25"\n')["y"].tolist() == [0.5, 12.25]
    assert read_text("a;y\n1;1.234,5\n2;12,25\n")["y"].tolist() == [1234.5, 12.25]
    assert read_text("a;y;z\n1;1.234;0,5\n2;12;1,5\n")["y"].tolist() == [1234, 12]  # not 1.234
    assert read_text("a;y\n1;1 234,50\n2;,25\n")["y"].tolist() == [1234.5, 0.25]
    assert read_text("a;y\n1;-1,5e3\n2;\n")["y"].tolist()[0] == -1500
    assert read_text('a,y\n1,"1,234.50"\n2,12\n')["y"].tolist() == [1234.5, 12]
    assert read_text("a;y\n1;1,234\n2;2,345\n")["y"].tolist() == [1.234, 2.345]  # semicolons go with decimal commas


def test_what_cannot_be_told_is_an_error_that_names_the_option():
    ambiguous = 'a,y\n1,"1,234"\n2,"2,345"\n'
    with pytest.raises(ValueError, match=r"'y' of t.csv .*--decimal , in the first case"):
        read_text(ambiguous)
    assert read_text(ambiguous, decimal=",")["y"].tolist() == [1.234, 2.345]
    assert read_text(ambiguous, decimal=".")["y"].tolist() == [1234, 2345]
    with pytest.raises(ValueError, match=r"'y' of t\.csv holds numbers with a comma and other text"):
        read_text("a;y\n1;0,5\n2;1,5\n3;unknown\n")
    with pytest.raises(ValueError, match=r"'z' of t\.csv holds numbers with a decimal point, but other columns"):
        read_text("a;y;z\n1;0,5;1.5\n2;1,5;2.25\n")
    assert read_text("a;y\n1;0,5\n2;1,5\n3;unknown\n", decimal=".")["y"].tolist() == ["0,5", "1,5", "unknown"]


@pytest.mark.parametrize("mark", [";", "\t"])
def test_points_that_may_stand_between_thousands_are_an_error(mark):
    """The mistake: amounts of 1.234 and 12.345 in a file with semicolons were read as 1.234 and 12.345."""
    ambiguous = "a;y\n1;1.234\n2;12.345\n3;999\n".replace(";", mark)
    with pytest.raises(ValueError, match=r"'y' of t.csv .*--decimal \. in the first case"):
        read_text(ambiguous)
    assert read_text(ambiguous, decimal=".")["y"].tolist() == [1.234, 12.345, 999]
    assert read_text(ambiguous, decimal=",")["y"].tolist() == [1234, 12345, 999]


def test_points_that_can_only_be_decimal_points_are_read():
    assert read_text("a;y\n1;1.234\n2;0.345\n")["y"].tolist() == [1.234, 0.345]
    assert read_text("a;y;z\n1;1.234;0.5\n2;12.345;1.5\n")["y"].tolist() == [1.234, 12.345]
    assert read_text("a,y\n1,1.234\n2,12.345\n")["y"].tolist() == [1.234, 12.345]
    assert read_text("a;y\n01.02.2024;1\n03.04.2024;2\n")["a"].tolist() == ["01.02.2024", "03.04.2024"]


def test_text_stays_text():
    frame = read_text("a;b;c\nE5;1,2,3;Smith, J\nE6;4,5;Doe, A\nE7;x,y;12\n")
    assert frame["a"].tolist() == ["E5", "E6", "E7"]
    assert frame["b"].tolist() == ["1,2,3", "4,5", "x,y"]
    assert frame["c"].tolist() == ["Smith, J", "Doe, A", "12"]


def test_a_single_column_may_hold_any_mark():
    assert read_text("name\nDoe; A\nRoe; B\n").columns.tolist() == ["name"]
    with pytest.raises(ValueError, match="not a CSV file: it holds bytes that are not text"):
        read_text("a;b\n1;\x00\n")


# --- Excel ----------------------------------------------------------------------------------------------------------


def test_excel_in_and_out(call, book):
    write_table(book, Path("book.xlsx"))
    call("fit", "book.csv", *FIT, "-o", "csv.json")
    assert call("fit", "book.xlsx", *FIT, "-o", "xlsx.json").stderr == ""
    pd.testing.assert_frame_equal(prices("xlsx.json"), prices("csv.json"))
    call("price", "csv.json", "book.xlsx", "-o", "premiums.xlsx")
    call("price", "csv.json", "book.csv", "-o", "premiums.csv")
    pd.testing.assert_frame_equal(read_table(Path("premiums.xlsx")), pd.read_csv("premiums.csv"), rtol=1e-12)
    book.assign(premium=110.0).pipe(write_table, Path("list.xlsx"))
    call("audit", "list.xlsx", "--premium", "premium", "--outcome", "y", "--keep", 0.8, "-o", "report.json")
    assert json.loads(Path("report.json").read_text(encoding="utf-8"))["rows"] == len(book)


def test_cells_of_a_workbook():
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    sheet = book.active
    rows = [["key", "y", "z", "t"], ["007", "0,5", 1, "x"], ["008", 2, 1.5, None], [9, "1,25", None, "=A1"]]
    for row in rows:
        sheet.append(row)
    sheet["D4"].data_type = "s"
    sheet.append([None, None, None, None])
    book.create_sheet("more")
    book.save("cells.xlsx")
    frame = read_table(Path("cells.xlsx"), text={"key"})
    assert frame["key"].tolist() == ["007", "008", 9]
    assert frame["y"].tolist() == [0.5, 2, 1.25]
    assert frame["t"].fillna("").tolist() == ["x", "", "=A1"]
    assert len(frame) == 3
    sheet["B2"] = "#DIV/0!"
    book.save("cells.xlsx")
    with pytest.raises(ValueError, match=r"'y' of cells\.xlsx holds an error of Excel in row 2"):
        read_table(Path("cells.xlsx"))
    Path("cells.xlsx").write_bytes(b"no workbook")
    with pytest.raises(ValueError, match="not an Excel workbook"):
        read_table(Path("cells.xlsx"))


def test_text_is_never_a_formula():
    frame = pd.DataFrame({"policy": ["=1+1", "http://x", "007"], "premium": [1.5, 2.0, 3.0]})
    write_table(frame, Path("out.xlsx"))
    pd.testing.assert_frame_equal(read_table(Path("out.xlsx"), text={"policy"}), frame.astype({"policy": object}))


def test_numbers_in_text_cells_of_a_workbook_are_numbers(tmp_path):
    frame = pd.DataFrame({"age": ["46", "7", None], "town": ["a", "b", "c"]})
    write_table(frame, tmp_path / "book.xlsx")
    again = read_table(tmp_path / "book.xlsx")
    assert again["age"].tolist()[:2] == [46, 7]
    assert again["town"].tolist() == ["a", "b", "c"]


def test_a_formula_in_a_csv_file_becomes_text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cells = ["=1+1", "+SUM(A1)", "-cmd|' /C calc'!A0", "@x", "plain", "-12.5", "+3", "-1e5", None]
    frame = pd.DataFrame({"text": cells, "premium": -np.arange(9.0), "kind": pd.Categorical(["=a", *"bbbbbbbb"])})
    before = frame.copy()
    write_table(frame, Path("out.csv"))
    again = pd.read_csv("out.csv", dtype=str)
    assert again["text"].tolist()[:8] == ["'=1+1", "'+SUM(A1)", "'-cmd|' /C calc'!A0", "'@x", *cells[4:8]]
    assert pd.isna(again["text"][8])
    assert again["kind"].tolist() == ["'=a", *"bbbbbbbb"]
    assert again["premium"].astype(float).tolist() == frame["premium"].tolist()
    assert read_table(Path("out.csv"), text={"text"})["text"].tolist()[:8] == cells[:8]
    pd.testing.assert_frame_equal(frame, before)
    write_table(frame, Path("out.parquet"))
    assert pd.read_parquet("out.parquet")["text"].tolist()[:4] == cells[:4]


@pytest.mark.parametrize("first", ["\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20"])
def test_other_letters_that_begin_a_formula_are_known(first):
    """Line breaks and tabs before a sign, and the full-width signs of East Asian keyboards."""
    text = f"{first}=1+1" if first.isspace() else f"{first}SUM(A1)"
    assert escape_formula(text) == (text.replace("=", "'=") if first.isspace() else f"'{text}")
    for cell in (text, f"'{text}", f"''{text}", f"{first}5"):
        assert unescape_formula(escape_formula(cell)) == cell


@pytest.mark.parametrize("text", ["=1", "=", "@1", "@", "=1.5e3", "\uff1d12", "a;=1"])
def test_only_plus_and_minus_begin_a_number(text):
    escaped = escape_formula(text)
    assert "'" in escaped
    assert unescape_formula(escaped) == text
    assert [escape_formula(number) for number in ("-12.5", "+1", "-1,5e3")] == ["-12.5", "+1", "-1,5e3"]


@pytest.mark.parametrize("separator", [",", ";", "\t", "\n", "\r\n"])
@pytest.mark.parametrize("quote", ["", '"', '""', "'", "'\"'"], ids=["none", "one", "two", "apostrophe", "mixed"])
@pytest.mark.parametrize("formula", ["=1+1", "=cmd|'/c calc'!A1", "@SUM(A1)", "+1+1", "\uff1dSUM(A1)", "-x;-12.5"])
def test_a_formula_behind_a_separator_is_text(tmp_path, separator, quote, formula):
    """Excel in German takes the semicolon for the end of a cell, wherever quotes are that did not open the cell."""
    cells = ["a", f"a{separator}{quote}{formula}", f"{separator}{quote}{formula}", f"{quote}{formula}"]
    write_table(pd.DataFrame({"policy": "P1", "text": cells}), tmp_path / "out.csv")
    for letters in (";", ",", "\t"):
        for cell in re.split(f"[{letters}\\r\\n]", (tmp_path / "out.csv").read_bytes().decode()):
            shown = cell.lstrip('"')
            assert shown[:1] not in tuple("=+@-\uff1d") or shown.strip('"') == "-12.5", cell
    assert read_table(tmp_path / "out.csv", text={"text"})["text"].tolist() == cells


@settings(max_examples=400, deadline=None)
@given(st.text(st.sampled_from("'\"=+-@;,\t\r\n\uff1d1.ea |"), max_size=12))
def test_escaped_text_is_read_as_it_was(text):
    escaped = escape_formula(text)
    assert unescape_formula(escaped) == text
    assert escape_formula(escaped).replace("'", "") == text.replace("'", "")


def test_without_the_extra_it_says_how_to_get_it(refuse, book, monkeypatch):
    write_table(book, Path("book.xlsx"))
    monkeypatch.setitem(__import__("sys").modules, "openpyxl", None)
    assert 'pip install "fairpremium[tariff]"' in refuse("fit", "book.xlsx", *FIT, "-o", "model.json")


def test_reports_in_a_workbook_describe_their_channel(call, book):
    frame = pd.DataFrame({"policy": ["001", "002", "003"], "report": ["F", None, "M"]})
    write_reports("reports.xlsx", frame, CHANNEL)
    again, channel = read_reports("reports.xlsx")
    assert channel == CHANNEL
    pd.testing.assert_frame_equal(again.astype(object), frame.astype(object))
    people = pd.DataFrame({"policy": [f"{i:03d}" for i in range(len(book))], "sex": ["F", "M"] * (len(book) // 2)})
    write_table(people, Path("people.xlsx"))
    words = ["--column", "sex", "--groups", "F,M", "--keep", 0.8]
    call("privatize", "people.xlsx", *words, "-o", "reports.xlsx")
    assert Path("reports.xlsx.channel.json").exists()
    book.drop(columns="report").assign(policy=people["policy"]).to_csv("bare.csv", index=False)
    joined = ["--reports", "reports.xlsx", "--key", "policy", "--outcome", "y", "--features", "age"]
    call("fit", "bare.csv", *joined, "-o", "model.json")
    folder = Path("bare")
    folder.mkdir()
    book.drop(columns="report").assign(policy=people["policy"]).to_parquet(folder / "0.parquet", index=False)
    call("fit", "bare", *joined, "-o", "model.json")


# --- not reported ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("output", ["out.csv", "out.parquet", "out.xlsx"])
def test_a_missing_attribute_is_not_reported_on_request(call_json, refuse, output):
    people = pd.DataFrame({"policy": [f"P{i}" for i in range(200)], "sex": ["F", "M"] * 100})
    people.loc[[3, 50, 51], "sex"] = None
    people.to_csv("people.csv", index=False)
    words = ["privatize", "people.csv", "--column", "sex", "--groups", "F,M", "--keep", 0.8]
    assert "empty in 3 rows" in (said := refuse(*words, "-o", output))
    assert "--not-reported" in said
    assert not Path(output).exists()
    more = ["--not-reported", "--ledger", "spent.db", "--budget", 5, "--person", "policy"]
    result = call_json(*words, *more, "-o", output)
    assert (result["rows"], result["not_reported"]) == (200, 3)
    reports, channel = read_reports(output)
    assert channel == CHANNEL
    assert reports.index[reports["report"].isna()].tolist() == [3, 50, 51]
    with PrivacyLedger("spent.db", budget=5) as ledger:
        assert ledger.spent("P3", "sex") == 0
        assert ledger.spent("P4", "sex") == pytest.approx(CHANNEL.epsilon)
    people.assign(sex=None).to_csv("people.csv", index=False)
    assert "empty in every row" in refuse(*words, "--not-reported", "-o", output)
    people.assign(gender=people["sex"]).to_csv("people.csv", index=False)
    assert "holds the same values" in refuse(*words, "--not-reported", "-o", output)


def test_text_among_numbers_is_found_by_its_row():
    column = pd.DataFrame({"premium": ["1.5", "2", "n/a", None, "3"], "name": ["a"] * 5})
    with pytest.raises(ValueError, match=r"'premium' of p.csv holds text in 1 of 5 rows, first in row 3, but expected"):
        require_numbers(column, "premium", Path("p.csv"))
    with pytest.raises(ValueError, match=r"'name' of p.csv holds text, but expected numbers"):
        require_numbers(column, "name", Path("p.csv"))
