"""--exposure: outcomes that are totals, in every command that takes an outcome."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fairpremium import DiscriminationFreePricer, MarginNoise, RandomizedResponse
from fairpremium.audit import compute_group_means
from fairpremium.errors import ExposureWarning

CHANNEL = RandomizedResponse(["F", "M"], keep=0.8)
FIT = ["fit", "book.csv", "--outcome", "count", "--features", "age", "--keep", 0.8, "--family", "poisson"]
FIT += ["--correction", "inverse", "--pooling", 0, "-o", "model.json"]
AUDIT = ["audit", "book.csv", "--premium", "premium", "--outcome", "count", "--keep", 0.8, "-o", "report.json"]


@pytest.fixture
def book():
    rng = np.random.default_rng(0)
    n = 3000
    group = rng.choice(["F", "M"], n, p=[0.25, 0.75])
    age, exposure = rng.uniform(18, 80, n), rng.uniform(0.2, 1, n)
    counts = rng.poisson(exposure * np.where(group == "F", 0.3, 0.5))
    report = CHANNEL.privatize(group, rng=1)
    frame = pd.DataFrame({"age": age, "exposure": exposure, "count": counts, "report": report, "premium": 0.4})
    frame.to_csv("book.csv", index=False)
    return frame


def test_fit_from_a_csv_and_from_a_folder(call, book):
    call(*FIT, "--exposure", "exposure")
    expected = DiscriminationFreePricer("poisson", channel=CHANNEL, correction="inverse", pooling=0.0)
    expected.fit(book[["age"]], book["count"], sensitive=book["report"], exposure=book["exposure"])
    found = DiscriminationFreePricer.load("model.json")
    np.testing.assert_allclose(found.predict(book[["age"]]), expected.predict(book[["age"]]), rtol=1e-9)
    Path("folder").mkdir()
    book.to_parquet("folder/0.parquet", index=False)
    call("fit", "folder", *FIT[2:], "--exposure", "exposure")
    again = DiscriminationFreePricer.load("model.json")
    np.testing.assert_allclose(again.predict(book[["age"]]), expected.predict(book[["age"]]), rtol=1e-9)


def test_audit(call, book):
    call(*AUDIT, "--exposure", "exposure")
    sections = {each["id"]: each for each in json.loads(Path("report.json").read_text(encoding="utf-8"))["sections"]}
    found = pd.DataFrame(sections["group_means"]["records"])
    expected = compute_group_means(
        book["premium"], book["count"], sensitive=book["report"], channel=CHANNEL, exposure=book["exposure"]
    )
    np.testing.assert_allclose(found["loss"], expected["loss"], rtol=1e-9)


def test_an_exposure_is_the_volume_of_an_estimated_channel(call, book):
    words = [word for word in AUDIT if word not in ("--keep", 0.8)]
    call(*words, "--margin", "F=0.25,M=0.75", "--exposure", "exposure")
    found = json.loads(Path("report.json").read_text(encoding="utf-8"))["privacy"]
    estimated = MarginNoise({"F": 0.25, "M": 0.75}).fit(
        book[["premium"]], book["count"] / book["exposure"], sensitive=book["report"], sample_weight=book["exposure"]
    )
    assert found["keep"] == pytest.approx(estimated.keep_)


@pytest.mark.parametrize("words", [FIT, AUDIT])
def test_counts_with_a_weight_warn(call, book, words):
    with warnings.catch_warnings():
        warnings.simplefilter("default", ExposureWarning)
        said = call(*words, "--weight", "exposure").stderr
    assert said.startswith("Warning: ")
    assert said.count("--exposure") == 1


@pytest.mark.parametrize("words", [FIT, AUDIT])
def test_mistakes_are_one_line(refuse, book, words):
    assert "expected one of them" in refuse(*words, "--weight", "exposure", "--exposure", "exposure2")
    assert "cannot be both --outcome and --exposure" in refuse(*words, "--exposure", "count")
    assert "no column 'years'" in refuse(*words, "--exposure", "years")
    book.assign(exposure=book["exposure"].where(book.index != 12, 0.0)).to_csv("book.csv", index=False)
    assert "0 in row 12 (counted from 0)" in refuse(*words, "--exposure", "exposure")


@pytest.mark.parametrize("words", [["fit"], ["audit"], ["insurer", "upload"]])
def test_the_help_says_what_the_outcome_holds(call, words, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    text = call(*words, "--help").stdout
    (line,) = [line for line in text.splitlines() if "--outcome" in line and "Example" not in line]
    assert "per unit of volume; with --exposure their totals" in line
