"""plan prints what the library computes; demo writes the files of all parties."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
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


@pytest.mark.parametrize(("typed", "epsilon"), [("1,2,4", [1, 2, 4]), ("1=0.5,2=0.3,4=0.2", {1: 0.5, 2: 0.3, 4: 0.2})])
def test_people_choose_their_epsilon(call, call_json, typed, epsilon):
    words = ["plan", "--groups", "F,M", "--epsilon", typed, "--rows", 10_000, "--standard-error", 0.02]
    assert call_json(*words) == plan(["F", "M"], epsilon=epsilon, rows=10_000, standard_error=0.02).to_dict()
    text = call(*words).stdout
    assert "What each choice is worth" in text
    assert "chosen: share of the people who choose this epsilon" in text


def test_the_recommended_mechanism(call, call_json):
    assert "subset selection with 3 groups in a report" in call("plan", "--groups", 12, "--epsilon", 1).stdout
    assert "Recommended: randomized response" in call("plan", "--groups", 3, "--epsilon", 1).stdout
    said = call_json("plan", "--groups", 12, "--epsilon", 1, "--mechanism", "subset-selection")
    assert said == plan(12, epsilon=1, mechanism="subset-selection").to_dict()


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
        (["--groups", "F,M", "--epsilon", 1, "--shares", "0.5,x"], "Got --shares with 'x', but expected numbers"),
        (["--groups", "F,M", "--epsilon", 1, "--shares", "0.5,0.6"], "sum to one"),
        (["--groups", "F,M", "--epsilon", 1, "--rows", 0], "rows=0"),
        (["--channel", "none.json"], "no file none.json"),
    ],
)
def test_plan_mistakes(refuse, words, expected):
    assert expected in refuse("plan", *words)


def test_the_demo_and_what_it_says_to_try_next(call, call_json):
    text = call("demo", "--out", "demo").stdout
    names = ("people.csv", "reports.csv", "portfolio.csv", "new.csv", "bundle.zip", "model.json", "premiums.csv")
    for name in (*names, "prices.csv", "report.html"):
        assert (Path("demo") / name).is_file()
    assert not Path("demo/serve.log").exists()  # the service had nothing to complain about
    assert "The log is intact" in text
    assert "differ a little from run to run" in " ".join(text.split())
    premiums = pd.read_csv("demo/premiums.csv")
    assert premiums.columns.tolist() == ["policy", "premium", "low", "high"]
    assert premiums["policy"].tolist() == pd.read_csv("demo/new.csv")["policy"].tolist()
    assert "sex" not in pd.read_csv("demo/portfolio.csv").columns
    page = Path("demo/report.html").read_text(encoding="utf-8")  # tells its own story on its first screen
    panel = page[page.index('id="panel"') : page.index('id="summary"')]
    assert "Acme Insurance" in panel
    assert re.search(r"F pays \d+ EUR a year \(\d+ to \d+\) more than M through proxies", panel)
    assert "1.39-differentially private where it was collected; the third party added noise of epsilon 2" in panel
    assert "smoker: 1" in page  # by the factor that carries most
    assert re.search(r"[Aa]bout (4,9\d\d|5,000) of 5,000 policies", page)
    told = re.findall(r"^  \$ fairpremium (\S+ \S+)", text, re.MULTILINE)
    assert told[:4] == ["keys new", "keys secret", "keys add", "keys add"]
    assert {"collector submit", "insurer upload", "insurer fit", "insurer fetch", "log verify"} <= set(told)
    commands = re.findall(r"^  fairpremium (.*)$", text, re.MULTILINE)
    assert len(commands) == 5
    for command in commands:
        call(*command.split())
    again = call_json("demo", "--out", "demo", "--browser")  # in the same place
    assert again["log"]["intact"]
    answered = again["answered"]  # all that were invited but the one who reads the screen
    assert abs(answered["answered"] - 149) < 6 * answered["standard_error"]
    assert len(pd.read_csv("demo/people.csv")) == 5000 - 150
    assert "sex" not in pd.read_csv("demo/invited.csv").columns
    for risk_class in again["classes"]:
        h = risk_class["discrimination_free"]
        width = (h["high"] - h["low"]) / 2
        assert abs(h["mean"] - h["truth"]) < 3 * width  # six standard errors
    assert "2-differentially private" in again["noise"]


def test_a_demo_without_a_place(refuse):
    Path("taken").write_text("")
    assert "taken" in refuse("demo", "--out", "taken")


def test_a_demo_leaves_a_real_third_party_alone(refuse):
    Path("third-party").mkdir()
    Path("third-party/service.key").write_text("precious")
    assert "was not made by a demo" in refuse("demo", "--out", ".")
    assert Path("third-party/service.key").read_text() == "precious"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_demo_that_is_ended_leaves_no_process_behind(number, tmp_path, processes):
    command = [sys.executable, "-P", "-m", "fairpremium", "demo", "--out", str(tmp_path / "demo")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as demo:
        for line in demo.stdout:
            if "fairpremium collector submit" in line:
                break
        children = processes.below(demo.pid)
        assert len(children) >= 2  # the service and a command or a worker
        demo.send_signal(number)
        demo.wait(240)
        assert demo.returncode == (130 if number == signal.SIGINT else -number)
    processes.wait_until_gone(children)
