"""monitor: the looks of Python, a state that schedulers can rely on, exit codes, and a line for every mistake."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fairpremium import RandomizedResponse
from fairpremium.monitoring import Monitor

CHANNEL = RandomizedResponse(["F", "M"], keep=0.8)


@pytest.fixture
def book():
    rng, n = np.random.default_rng(0), 4000
    sex = rng.choice(["F", "M"], n)
    rows = pd.DataFrame(
        {
            "policy": [f"{i:06d}" for i in range(n)],
            "report": CHANNEL.privatize(sex, rng=1),
            "premium": 300 + 20.0 * (sex == "M"),
            "y": rng.gamma(1.0, 250.0, n),
            "decision": np.where(rng.random(n) < 0.9, "accepted", "declined"),
        }
    )
    rows.to_csv("q1.csv", index=False)
    rows.assign(y=rng.gamma(1.0, 250.0, n)).to_csv("q2.csv", index=False)
    rows.assign(premium=rows["premium"] + 40 * (sex == "M")).to_csv("q3.csv", index=False)
    return rows


def words(number, *more):
    return [
        "monitor", f"q{number}.csv", "--period", f"2026-Q{number}", "--state", "monitor.json", "--premium", "premium",
        "--outcome", "y", "--person", "policy", "--keep", "0.8", "--against", "F", *more,
    ]  # fmt: skip


DECISIONS = ["--decision", "decision", "--favourable", "accepted"]


def test_it_is_the_monitor_of_python(book, call_json):
    expected = Monitor(channel=CHANNEL, against="F")
    for number in (1, 2):
        found = call_json(*words(number, *DECISIONS))
        rows = pd.read_csv(f"q{number}.csv", dtype={"policy": str})
        look = expected.append(
            f"2026-Q{number}", rows["premium"], rows["y"], sensitive=rows["report"], person=rows["policy"],
            favourable=(rows["decision"] == "accepted").astype(float),
        )  # fmt: skip
        np.testing.assert_allclose([row["low"] for row in found["measures"]], look["low"], rtol=1e-9)
    assert found["periods"] == 2
    assert found["alarms"] == []
    assert Monitor.load("monitor.json").periods == ["2026-Q1", "2026-Q2"]


def test_an_alarm_has_its_exit_code_and_again_when_the_period_comes_again(book, call):
    assert "Alarm" in call(*words(1)).stdout
    call(*words(2))
    text = call(*words(3, "-o", "chart.svg", "--unit", "EUR a year"), code=3).stdout
    assert "premium_difference of M: changed" in text
    assert not re.search(r"\de[-+]\d", text)  # a share of reports that does not move is zero, not 1e-10
    assert "<svg" in Path("chart.svg").read_text()
    before = Path("monitor.json").read_bytes()
    assert "(seen before" in call(*words(3), code=3).stdout
    assert "none" in call(*words(2)).stdout  # its own look, not the last one
    assert Path("monitor.json").read_bytes() == before
    result = call(*words(3, "--json"), code=3)
    assert json.loads(result.stdout)["known_already"] is True


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--keep", "0.9"], "another channel"),
        (["--against", "M"], "began with F"),
        (["--level", "0.9"], "began with 0.95"),
        (["--limit", "loss_ratio=0.9:1.1"], "What is watched cannot change"),
        (["--limit", "loss_ratio=0.9"], "a lower and an upper limit"),
        (["--limit", "nothing=0:1"], "expected some of"),
        (["--decision", "decision"], "both --decision"),
        ([*DECISIONS[:3], "maybe"], "has the decision 'maybe'"),
        (DECISIONS, "the monitor began with"),
        (["--state", "q2.csv"], "ends in .json"),
        (["--person", "nobody"], "no column 'nobody'"),
        (["--margin", "F=0.5,M=0.5"], "one way to say how"),
        (["--measures", "loss_ratio"], "began with"),
    ],
)
def test_a_mistake_is_one_line(book, call, refuse, more, message):
    call(*words(1))
    before = Path("monitor.json").read_bytes()
    line = refuse(*words(2, *more))
    assert message in line
    assert Path("monitor.json").read_bytes() == before


def test_periods_are_in_order_and_final(book, call, refuse):
    call(*words(2))
    assert "expected a later one" in refuse(*words(1))
    book.assign(premium=1.0).to_csv("q2.csv", index=False)
    assert "other rows than before" in refuse(*words(2))


def test_limits_can_be_open_on_a_side(book, call_json):
    found = call_json(*words(1, "--limit", "premium_difference=:500", "--measures", "premium_difference"))
    (row,) = found["measures"]
    assert (row["limit_low"], row["limit_high"]) == (None, 500.0)


def test_the_four_fifths_rule_stays_beside_other_limits_and_losses_are_not_needed(book, call, call_json):
    given = [
        word for word in words(1, *DECISIONS, "--limit", "premium_difference=:200") if word not in ("--outcome", "y")
    ]
    found = call_json(*given)
    assert {row["measure"] for row in found["measures"]}.isdisjoint({"loss_ratio"})
    limits = {row["measure"]: (row["limit_low"], row["limit_high"]) for row in found["measures"]}
    assert limits["adverse_impact_ratio"] == (0.8, 1.25)
    assert Monitor.load("monitor.json").limits["premium_difference"] == (None, 200.0)
    again = call(*given)
    assert "against nan" not in again.output
    assert "seen before: nothing was added" in again.output
    changed = call(*[word.replace(":200", ":100") for word in given], code=2)
    assert "--limit premium_difference=:100" in changed.output
    assert "{" not in changed.output


def test_several_decisions_are_favourable(book, call_json):
    found = call_json(*words(1, "--decision", "decision", "--favourable", "accepted,declined"))
    assert {row["value"] for row in found["measures"] if row["measure"] == "adverse_impact_ratio"} == {1.0}


def test_a_limit_of_an_unknown_measure_is_named(book, call):
    assert "Got limits of 'lossratio'" in call(*words(1, "--limit", "lossratio=1:2"), code=2).output
