"""Folders and large Parquet files give the same model and the same premiums as a table that is read at once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fairpremium import DiscriminationFreePricer
from fairpremium.cli import _large_portfolio
from fairpremium.pricing import _model_selection, _source_portfolio
from fairpremium.privacy import read_reports

WORDS = ["--outcome", "y", "--features", "age,smoker,age_20_40", "--random-state", 0, "-o"]
REPORTS = ["--sensitive", "report", "--keep", 0.8, "--correction", "inverse"]


@pytest.fixture
def stored(call, files, monkeypatch):
    """The portfolio as CSV, as a folder of Parquet files and as one of them, with and without the reports."""
    monkeypatch.setattr(_source_portfolio, "_SMALL_ROWS", 0)
    monkeypatch.setattr(_source_portfolio, "_SMALL_CELLS", 0)
    call("privatize", "people.csv", "--column", "sex", "--groups", "F,M", "--keep", 0.8, "-o", "reports.csv")
    frame = pd.read_csv("portfolio.csv", dtype={"policy": str}).assign(report=read_reports("reports.csv")[0]["report"])
    frame.to_csv("both.csv", index=False)
    for name, table in {"both": frame, "bare": frame.drop(columns="report")}.items():
        Path(name).mkdir()
        for i, start in enumerate(range(0, len(frame), 900)):
            table.iloc[start : start + 900].to_parquet(f"{name}/{i}.parquet", index=False)
    frame.to_parquet("both.parquet", index=False)
    return frame


def assert_same(one: str, other: str) -> None:
    a, b = (DiscriminationFreePricer.load(name) for name in (one, other))
    np.testing.assert_allclose(a.coefficients_, b.coefficients_, rtol=1e-9)
    np.testing.assert_allclose(a.reference_distribution_, b.reference_distribution_, rtol=1e-9)


def test_a_folder_and_a_large_file_give_the_same_model(call, call_json, stored, monkeypatch):
    call("fit", "both.csv", *WORDS, "csv.json", *REPORTS)
    found = call_json("fit", "both", *WORDS, "folder.json", *REPORTS, "--key", "policy")
    assert found["rows"] == len(stored)
    assert found["features"] == ["age", "smoker", "age_20_40"]
    assert_same("csv.json", "folder.json")
    monkeypatch.setattr(_large_portfolio, "LARGE_BYTES", 0)
    call("fit", "both.parquet", *WORDS, "large.json", *REPORTS)
    assert_same("csv.json", "large.json")


def test_boosted_trees_are_fitted_to_a_sample_that_is_named(call, call_json, stored, monkeypatch):
    monkeypatch.setattr(_model_selection, "_SAMPLE_ROWS", 700)
    words = [
        "--sensitive",
        "report",
        "--keep",
        0.8,
        "--model",
        "boosted",
        "--correction",
        "posterior",
        "--no-intervals",
    ]
    found = call_json("fit", "both", *WORDS, "model.json", *words)
    assert (found["rows"], found["rows_sampled"]) == (len(stored), 700)
    assert f"700 random rows of {len(stored):,} rows" in call("fit", "both", *WORDS, "again.json", *words).output
    assert DiscriminationFreePricer.load("model.json").n_sampled_rows_ == 700


def test_reports_are_joined_on_disk(call, call_json, stored):
    words = ["--reports", "reports.csv", "--key", "policy", "--correction", "inverse"]
    call("fit", "portfolio.csv", *WORDS, "csv.json", *words)
    found = call_json("fit", "bare", *WORDS, "folder.json", *words)
    assert found["join"] == {"rows": len(stored), "matched": len(stored), "unused_reports": 0}
    assert "reports.csv" in found["channel_source"]
    assert_same("csv.json", "folder.json")
    assert not list(Path().glob(".fairpremium-*"))


def test_numbers_as_reports(call, stored):
    frame = pd.read_parquet("both.parquet")
    frame.assign(report=(frame["report"] == "M").astype(int)).to_parquet("both/0.parquet", index=False)
    for path in Path("both").glob("[1-9].parquet"):
        path.unlink()
    call("fit", "both", *WORDS, "folder.json", *REPORTS, "--groups", "0,1", "--key", "policy")
    call("fit", "both.csv", *WORDS, "csv.json", *REPORTS)
    assert DiscriminationFreePricer.load("folder.json").groups_ == (0, 1)
    assert_same("csv.json", "folder.json")


def test_premiums_of_a_folder(call, call_json, stored):
    call("fit", "both", *WORDS, "model.json", *REPORTS)
    call("price", "model.json", "both.csv", "--key", "policy", "-o", "premiums.csv")
    expected = pd.read_csv("premiums.csv", dtype={"policy": str})
    for output in ("premiums.parquet", "premiums"):
        found = call_json("price", "model.json", "bare", "--key", "policy", "-o", output)
        assert found["rows"] == len(stored)
        assert found["columns"] == ["policy", "premium", "low", "high"]
        assert found["premium"]["mean"] == pytest.approx(expected["premium"].mean(), rel=1e-12)
        pd.testing.assert_frame_equal(pd.read_parquet(output), expected, rtol=1e-9)


def test_mistakes_are_one_line(refuse, call, stored):
    call("fit", "both", *WORDS, "model.json", *REPORTS)
    assert "has no column 'nix'" in refuse("fit", "both", "--outcome", "nix", "-o", "m.json", *REPORTS)
    for name, role in (("y", "outcome"), ("report", "sensitive"), ("age", "weight"), ("policy", "key")):
        words = ["--outcome", "y", "--key", "policy", "--weight", "age", "--features", f"smoker,{name}", "-o", "m.json"]
        expected = f"Column '{name}' is --{role} already"
        assert expected in refuse("fit", "both", *words, *REPORTS)
        assert expected in refuse("fit", "bare", *words, "--reports", "reports.csv")
        assert expected in refuse("fit", "both.csv", *words, *REPORTS)
    for folder in ("both", "both.csv"):
        words = ["--outcome", "y", "--weight", "y", "-o", "m.json"]
        assert "'y' cannot be both --outcome and --weight" in refuse("fit", folder, *words, *REPORTS)
    assert not Path("m.json").exists()
    assert "--reports needs --key" in refuse("fit", "bare", *WORDS, "m.json", "--reports", "reports.csv")
    assert "--all needs a table" in refuse("price", "model.json", "both", "--all", "-o", "p.parquet")
    assert "a .parquet file or a folder" in refuse("price", "model.json", "both", "-o", "p.csv")
    assert "exists already" in refuse("price", "model.json", "both", "-o", "both")
    Path("both/0.parquet").write_bytes(b"no Parquet")
    assert "0.parquet is not a Parquet file" in refuse("fit", "both", *WORDS, "m.json", *REPORTS)
    Path("empty").mkdir()
    assert "no Parquet file in empty" in refuse("fit", "empty", *WORDS, "m.json", *REPORTS)
