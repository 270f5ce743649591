"""plan prints what the library computes; demo leaves a story in files."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from fairpremium.pricing import plan


def test_plan_is_the_library_function(call_json):
    result = call_json("plan", "--groups", 4, "--epsilon", 1, "--rows", 100_000)
    assert result == plan(4, epsilon=1, rows=100_000).to_dict()


@pytest.mark.parametrize("shares", ["0.7,0.2,0.1", "a=0.7,b=0.2,c=0.1"])
def test_plan_with_everything(call_json, shares):
    words = ["--groups", "a,b,c", "--keep", 0.8, "--standard-error", 0.05, "--shares", shares]
    result = call_json("plan", *words, "--outcome-sd", "1,2,3", "--outcome-means", "0,1,2")
    expected = plan(
        ["a", "b", "c"], keep=0.8, standard_error=0.05, shares=[0.7, 0.2, 0.1], outcome_sd=[1, 2, 3],
        outcome_means=[0, 1, 2],
    )  # fmt: skip
    assert result == expected.to_dict()


def test_plan_for_people(call):
    text = call("plan", "--groups", 4, "--epsilon", 1, "--rows", 100_000, "--standard-error", 0.05).stdout
    assert "epsilon 1, 100,000 rows" in text
    assert "…" not in text  # no number is cut at 80 columns
    assert re.search(r"rows_needed: ", text)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--groups", 4], "epsilon"),
        (["--epsilon", 1], "neither groups nor channel"),
        (["--groups", 1, "--epsilon", 1], "group"),
        (["--groups", "F,M", "--epsilon", 1, "--shares", "0.5,x"], "--shares expects numbers"),
        (["--groups", "F,M", "--epsilon", 1, "--shares", "0.5,0.6"], "sum to one"),
        (["--groups", "F,M", "--epsilon", 1, "--rows", 0], "rows=0"),
        (["--channel", "none.json"], "no file none.json"),
    ],
)
def test_plan_mistakes(refuse, words, expected):
    assert expected in refuse("plan", *words)


def test_the_demo_and_what_it_says_to_try_next(call, call_json):
    text = call("demo", "--out", "story").stdout
    for name in ("people.csv", "reports.csv", "portfolio.csv", "model.json", "premiums.csv", "report.html"):
        assert (Path("story") / name).is_file()
    assert "differ a little from run to run" in " ".join(text.split())
    premiums = pd.read_csv("story/premiums.csv")
    assert premiums.columns.tolist() == ["policy", "premium", "low", "high"]
    assert len(premiums) == 5000
    assert "sex" not in pd.read_csv("story/portfolio.csv").columns
    commands = re.findall(r"^  fairpremium (.*)$", text, re.MULTILINE)
    assert len(commands) == 5
    for command in commands:
        call(*command.split())


def test_the_demo_as_json_covers_the_truth(call_json):
    result = call_json("demo")
    for risk_class in result["classes"]:
        h = risk_class["discrimination_free"]
        width = (h["high"] - h["low"]) / 2
        assert abs(h["mean"] - h["truth"]) < 3 * width  # six standard errors
    assert Path("demo/report.html").is_file()


def test_a_demo_without_a_place(refuse):
    Path("taken").write_text("")
    assert "taken" in refuse("demo", "--out", "taken")
