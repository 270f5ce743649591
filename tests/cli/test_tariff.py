"""tariff: the file that its suffix says, the numbers of Python, and a line for every mistake."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import openpyxl
import pandas as pd
import pytest

from fairpremium import Tariff
from helpers.tariffs import portfolio as awkward
from helpers.tariffs import pricer_with


@pytest.fixture
def model():
    X = awkward(800)
    pricer = pricer_with(X, own=0.8)
    pricer.candidates_ = pd.DataFrame(
        [{"model": "linear", "correction": "inverse", "detail": "", "chosen": True, "reason": "asked for"}]
    )
    pricer.save("model.json")
    X.assign(exposure=np.linspace(0.5, 1, len(X)), policy=np.arange(len(X))).to_csv("portfolio.csv", index=False)
    return pricer


TARIFF = ["tariff", "model.json", "portfolio.csv", "--exposure", "exposure"]


def test_the_file_is_that_of_python(model, call_json):
    demands = ["--bands", "age=25,40,65", "--bands", "power=4", "--monotone", "age=down", "--fixed", "smoker=True:1.5"]
    demands += ["--rounding", "0.01", "--minimum-premium", "0.1", "--level", "0.9", "--monotone"]
    demands += ['region=rural,city,it\'s,"a ""b""",=1+1']
    result = call_json(*TARIFF, *demands, "-o", "tariff.json")
    frame = pd.read_csv("portfolio.csv")
    expected = model.to_tariff(
        frame,
        exposure=frame["exposure"],
        bands={"age": [25, 40, 65], "power": 4},
        monotone={"age": "down", "region": ["rural", "city", "it's", 'a "b"', "=1+1"]},
        fixed={"smoker": {True: 1.5}},
        rounding=0.01,
        minimum_premium=0.1,
        level=0.9,
    )
    found = Tariff.load("tariff.json")
    pd.testing.assert_frame_equal(found.relativities, expected.relativities, rtol=1e-9)
    assert result["base"] == pytest.approx(expected.base)
    assert result["deviation"] == pytest.approx(expected.deviation)
    assert result["factors"]["age"] == {"kind": "bands", "rows": 4}


def test_the_suffix_decides(model, call):
    text = call(*TARIFF, "--bands", "formula", "-o", "tariff.xlsx").stdout
    assert "age (formula), power (formula), region (5 levels), smoker (2 levels)" in text
    assert "largest" in text
    assert "Quote" in openpyxl.load_workbook("tariff.xlsx").sheetnames
    call(*TARIFF, "--bands", "formula", "-o", "tariff.csv")
    assert pd.read_csv("tariff.csv")["factor"].iloc[0] == "base premium"
    call(*TARIFF, "--bands", "formula", "--table", "risks", "-o", "tariff.sql")
    call(*TARIFF, "--bands", "formula", "-o", "tariff.json")
    with sqlite3.connect(":memory:") as connection:
        frame = pd.read_csv("portfolio.csv").head(20)
        frame.to_sql("risks", connection, index=False)
        premiums = pd.read_sql_query(Path("tariff.sql").read_text(encoding="utf-8"), connection)["premium"]
    np.testing.assert_allclose(premiums, Tariff.load("tariff.json").predict(frame), rtol=1e-9)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["-o", "tariff.pdf"], "expected a name that ends in .xlsx or .csv or .sql or .json"),
        (["-o", "tariff.csv", "--bands", "age=old"], "Got --bands with 'old'"),
        (["-o", "tariff.csv", "--bands", "old"], "Got --bands with 'old'"),
        (["-o", "tariff.csv", "--bands", "sex=3"], "Got bands for ['sex']"),
        (["-o", "tariff.csv", "--bands", "age=3", "--bands", "age=4"], "every name once"),
        (["-o", "tariff.csv", "--monotone", "age"], "such as age=up"),
        (["-o", "tariff.csv", "--monotone", "age=sideways"], 'expected "up" or "down"'),
        (["-o", "tariff.csv", "--fixed", "region=rural"], "region=rural:0.9"),
        (["-o", "tariff.csv", "--fixed", "region=moon:1.1"], "Got fixed for 'moon'"),
        (["-o", "tariff.csv", "--rounding", "0"], "Got rounding=0.0"),
        (["-o", "portfolio.csv"], "would overwrite an input"),
        (["-o", "tariff.csv", "--exposure", "time"], "has no column 'time'"),
        (["-o", "tariff.csv", "--exposure", "region"], "holds text, but expected numbers"),
        (["-o", "tariff.sql", "--table", "a..b", "--bands", "formula"], "the name of a table"),
    ],
)
def test_mistakes_are_one_line(model, refuse, words, line):
    assert line in refuse("tariff", "model.json", "portfolio.csv", *words)


def test_a_file_that_is_no_model(model, refuse):
    assert "not a fairpremium model" in refuse("tariff", "portfolio.csv", "portfolio.csv", "-o", "tariff.xlsx")
    Path("other.json").write_text("{}", encoding="utf-8")
    assert "not a fairpremium model" in refuse("tariff", "other.json", "portfolio.csv", "-o", "tariff.xlsx")
