"""audit: any price list in, a report out, in the format that its ending says."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fairpremium import RandomizedResponse
from fairpremium.audit import (
    compute_adverse_impact,
    compute_channel_band,
    compute_group_means,
    compute_list_discrimination,
    compute_loss_ratio_gap,
    limit_changes,
)
from fairpremium.privacy import Channel, write_reports

CHANNEL = RandomizedResponse(["F", "M"], keep=0.8)


@pytest.fixture
def prices(portfolio, tmp_path):
    """prices.csv with a column of reports; reports.csv beside it describes its own channel."""
    n = len(portfolio)
    policy = [f"{i:05d}" for i in range(n)]
    S = CHANNEL.privatize(portfolio.sensitive, rng=0)
    frame = pd.DataFrame(
        {
            "policy": policy, "premium": 300 + 2 * portfolio.X["age"], "y": portfolio.y, "report": S,
            "exposure": np.linspace(0.5, 1.5, n), "smoker": portfolio.X["smoker"], "person": np.arange(n) // 2,
        }
    )  # fmt: skip
    frame.to_csv("prices.csv", index=False)
    frame.drop(columns="report").to_csv("bare.csv", index=False)
    write_reports("reports.csv", frame[["policy", "report"]].head(1900), CHANNEL)
    return frame


BASE = ["audit", "prices.csv", "--premium", "premium", "--outcome", "y"]
JOINED = ["audit", "bare.csv", "--premium", "premium", "--outcome", "y", "--reports", "reports.csv", "--key", "policy"]


def table(summary, name):
    return next(s["records"] for s in summary["sections"] if s["id"] == name)


def test_the_line_of_the_contract(call, prices):
    text = call(*BASE, "--sensitive", "report", "--keep", 0.8, "-o", "report.html").stdout
    assert "Who pays what: On average F pays" in " ".join(text.split())
    assert "Written  report.html" in text
    html = Path("report.html").read_text(encoding="utf-8")
    assert html.count("<figure") == 7
    assert hashlib.sha256(Path("prices.csv").read_bytes()).hexdigest() in html
    assert "<script" not in html


def test_the_numbers_are_those_of_the_library(call_json, prices):
    words = ["--keep", 0.8, "--weight", "exposure", "--cluster", "person", "--by", "smoker", "--level", 0.9]
    summary = call_json(*BASE, *words, "-o", "report.json")
    assert summary.pop("output") == "report.json"
    assert json.loads(Path("report.json").read_text(encoding="utf-8")) == summary
    roles = {
        "sensitive": prices["report"], "channel": CHANNEL, "sample_weight": prices["exposure"],
        "cluster": prices["person"], "level": 0.9,
    }  # fmt: skip
    expected = compute_group_means(prices["premium"], prices["y"], **roles)
    for row, record in zip(expected.to_dict("records"), table(summary, "group_means"), strict=True):
        assert record["premium"] == pytest.approx(row["premium"])
        assert record["loss_high"] == pytest.approx(row["loss_high"])
    by = compute_loss_ratio_gap(prices["premium"], prices["y"], by=prices["smoker"], **roles)
    found = pd.DataFrame(table(summary, "loss_ratio_gap_by_class"))
    assert found["risk_class"].unique().tolist() == ["smoker: False", "smoker: True"]
    assert sorted(found["gap"].dropna()) == pytest.approx(sorted(by["gap"].dropna()))
    assert found["note"].ne("").sum() == by["gap"].isna().sum() == 1  # few men smoke


def test_joined_reports_bring_their_channel(call_json, prices):
    summary = call_json(*JOINED, "-o", "report.md")
    assert summary["missing_reports"] == 100
    assert summary["privacy"]["keep"] == 0.8
    assert summary["privacy"]["source"] == "reports.csv.channel.json"
    assert set(summary["hashes"]) == {"bare.csv", "reports.csv", "audited columns"}
    assert Path("report.md").read_text(encoding="utf-8").startswith("# Who pays what, and is it fair?")


def test_an_unknown_channel_can_be_estimated(call_json, prices, portfolio):
    pd.DataFrame({"true": portfolio.sensitive[:800], "report": prices["report"][:800]}).to_csv("known.csv", index=False)
    summary = call_json(*BASE, "--validation", "known.csv", "-o", "report.json")
    assert summary["privacy"]["source"].startswith("estimated, not declared")
    assert summary["privacy"]["keep"] == pytest.approx(0.8, abs=0.06)


def test_the_true_attribute(call_json, prices):
    summary = call_json(*BASE, "--true-attribute", "-o", "report.json")
    assert summary["privacy"] is None


def test_a_band_over_channels_that_are_possible(call, call_json, refuse, prices):
    words = [*BASE, "--sensitive", "report", "--keep", 0.8]
    pair = (prices["premium"], prices["y"])
    summary = call_json(*words, "--keep-range", "0.75,0.9", "-o", "report.json")
    band = compute_channel_band(*pair, sensitive=prices["report"], channel=CHANNEL, keep=(0.75, 0.9))
    assert table(summary, "channel_band")[0]["loss_lowest"] == pytest.approx(band["loss_lowest"][0])
    assert {row["keep"] for row in table(summary, "keep_sensitivity")} >= {0.75, 0.8, 0.9}
    other = Channel([[0.8, 0.3], [0.2, 0.7]], groups=["F", "M"])
    Path("other.json").write_text(json.dumps(other.descriptor()))
    summary = call_json(*words, "--possible-channel", "other.json", "-o", "report.json")
    band = compute_channel_band(*pair, sensitive=prices["report"], channel=CHANNEL, channels=[other])
    assert table(summary, "channel_band")[1]["loss_high"] == pytest.approx(band["loss_high"][1])
    call(*words, "--possible-channel", "other.json", "-o", "report.html")
    assert "Over the channels that are possible" in Path("report.html").read_text(encoding="utf-8")
    assert "two ends" in refuse(*words, "--keep-range", "0.8", "-o", "report.json")
    assert "keep and channels" in refuse(
        *words, "--keep-range", "0.7,0.9", "--possible-channel", "other.json", "-o", "report.json"
    )


def test_charts_on_request(call, prices):
    call(*BASE, "--keep", 0.8, "--interactive", "--title", "Ours & theirs", "--unit", "EUR", "-o", "report.html")
    html = Path("report.html").read_text(encoding="utf-8")
    assert html.count("<script") == 1
    assert "<title>Ours &amp; theirs</title>" in html


@pytest.mark.parametrize(("premium", "y"), [(1.0, 0.0), (0.0, 1.0), (-1.0, 1.0), (1.0, -1.0), (0.0, 0.0)], ids=str)
def test_totals_that_are_zero_or_negative(call, prices, premium, y):
    prices.assign(premium=premium * prices["premium"], y=y * prices["y"]).to_csv("prices.csv", index=False)
    for ending in ("html", "md"):
        text = call(*BASE, "--keep", 0.8, "-o", f"report.{ending}").stdout
        assert "Written" in text
        assert "nan" not in text.split()
    if premium < 0:
        assert "F pays -" in text


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([*BASE, "-o", "r.html"], "Nothing says how the reports"),
        ([*BASE, "--keep", 0.8, "-o", "r.docx"], "ends in .html or .pdf or .md or .json"),
        ([*BASE, "--keep", 0.8, "--epsilon", 1, "-o", "r.html"], "expected one way to say"),
        ([*BASE, "--keep", 2, "-o", "r.html"], "keep"),
        ([*BASE, "--keep", 0.8, "--by", "town", "-o", "r.html"], "no column 'town'"),
        ([*BASE, "--keep", 0.8, "--by", "person", "-o", "r.html"], "1000 different values"),
        ([*BASE, "--keep", 0.8, "--by", "y", "-o", "r.html"], "'y' is --outcome already"),
        (
            [*BASE, "--keep", 0.8, "--sensitive", "person", "-o", "r.html"],
            "Column 'person' of prices.csv has 1000 different groups; expected at most 20. Merge them first",
        ),
        ([*BASE, "--true-attribute", "--sensitive", "person", "-o", "r.html"], "at most 20"),
        ([*BASE, "--margin", "F=0.7,M=0.3", "--keep", 0.8, "-o", "r.html"], "Got --keep and --margin, but expected"),
        ([*JOINED, "--margin", "F=0.7,M=0.3", "-o", "r.html"], "--margin contradicts reports.csv.channel.json"),
        ([*BASE, "--keep", 0.8, "--level", 95, "-o", "r.html"], "level=95"),
        ([*BASE, "--keep", 0.8, "--family", "cauchy", "-o", "r.html"], "family='cauchy'"),
        ([*BASE, "--keep", 0.8, "--sensitive", "sex", "-o", "r.html"], "no column 'sex'"),
        ([*BASE, "--keep", 0.8, "-o", "none/r.html"], "no folder"),
        ([*JOINED, "--keep", 0.6, "-o", "r.html"], "contradicts"),
        ([*JOINED, "--true-attribute", "-o", "r.html"], "contradicts"),
        (
            ["audit", "prices.csv", "--premium", "policy_no", "--outcome", "y", "--keep", 0.8, "-o", "r.html"],
            "policy_no",
        ),
        (
            ["audit", "prices.csv", "--premium", "report", "--outcome", "y", "--keep", 0.8, "-o", "r.html"],
            "'report' is --sensitive already",
        ),
        (["audit", "none.csv", "--premium", "p", "--outcome", "y", "--keep", 0.8, "-o", "r.html"], "no file none.csv"),
    ],
)
def test_mistakes_are_one_line(refuse, prices, words, expected):
    message = refuse(*words)
    assert expected in message
    assert "--features" not in message
    assert "--noise" not in message
    assert not Path("r.html").exists()


def test_several_attributes_are_refused(refuse, prices):
    product = Channel.product(CHANNEL, RandomizedResponse(["x", "y"], keep=0.9))
    Path("product.json").write_text(json.dumps(product.descriptor()), encoding="utf-8")
    assert "several attributes" in refuse(*BASE, "--channel", "product.json", "-o", "r.html")


def test_with_features_or_a_model_the_list_is_searched_for_proxies(call, call_json, refuse, prices, portfolio):
    prices.assign(age=portfolio.X["age"]).to_csv("prices.csv", index=False)
    words = ["--keep", 0.8, "-o", "report.json"]
    summary = call_json(*BASE, *words, "--features", "age,smoker")
    X = pd.read_csv("prices.csv")[["age", "smoker"]]
    expected = compute_list_discrimination(
        prices["premium"], X, prices["y"], sensitive=prices["report"], channel=CHANNEL
    )
    found = pd.DataFrame(table(summary, "list_discrimination"))
    np.testing.assert_allclose(found["value"].astype(float), expected["value"], rtol=1e-9, atol=1e-12)
    call("fit", "prices.csv", "--outcome", "y", "--keep", 0.8, "--features", "age,smoker", "--random-state", 0, "-o",
         "model.json")  # fmt: skip
    again = call_json(*BASE, *words, "--model", "model.json")
    again = pd.DataFrame(table(again, "list_discrimination"))
    np.testing.assert_allclose(again["value"].astype(float), expected["value"], rtol=1e-6, atol=1e-9)
    assert "expected one of them" in refuse(*BASE, *words, "--model", "model.json", "--features", "age")
    assert "no column 'colour'" in refuse(*BASE, *words, "--features", "colour")
    assert "not a fairpremium model" in refuse(*BASE, *words, "--model", "prices.csv")


def test_the_change_from_the_list_in_force(call, call_json, refuse, prices):
    prices.assign(now=prices["premium"] * np.linspace(0.7, 1.3, len(prices))).to_csv("prices.csv", index=False)
    words = [*BASE, "--keep", 0.8, "--weight", "exposure"]
    limits = ["--current", "now", "--cap", 0.1, "--floor", -0.1]
    summary = call_json(*words, *limits, "--limited", "limited.csv", "-o", "report.json")
    assert table(summary, "dislocation")
    limited, before = (pd.read_csv(name, dtype=str) for name in ("limited.csv", "prices.csv"))
    pd.testing.assert_frame_equal(limited.drop(columns="limited_premium"), before)
    new, now, w = (before[name].astype(float) for name in ("premium", "now", "exposure"))
    expected = limit_changes(now, new, cap=0.1, floor=-0.1, sample_weight=w)
    np.testing.assert_allclose(limited["limited_premium"].astype(float), expected.premiums)
    assert table(summary, "limited_change")[0]["multiplier"] == pytest.approx(expected.multiplier)
    assert "Limits on the change" in call(*words, *limits, "-o", "report.html").stdout
    report = ["-o", "report.html"]
    assert "--cap needs --current" in refuse(*words, "--cap", 0.1, *report)
    assert "--limited needs --cap" in refuse(*words, "--current", "now", "--limited", "l.csv", *report)
    assert "expected a total of" in refuse(*words, "--current", "now", "--cap", 0.0, "--floor", 0.0, *report)
    assert "no column 'then'" in refuse(*words, "--current", "then", *report)
    assert "column 'limited_premium' already" in refuse(
        "audit", "limited.csv", *words[2:], *limits, "--limited", "again.csv", *report
    )


def test_what_supervisors_ask(call, call_json, refuse, prices):
    decision = np.where(prices["premium"] > 420, 0, 1)
    prices.assign(decision=decision).to_csv("prices.csv", index=False)
    words = [*BASE, "--keep", 0.8]
    asked = ["--decision", "decision", "--favourable", 1, "--control", "smoker", "--against", "F", "--threshold", 0.9]
    summary = call_json(*words, *asked, "-o", "report.json")
    expected = compute_adverse_impact(decision, favourable=1, against="F", sensitive=prices["report"], channel=CHANNEL)
    assert table(summary, "adverse_impact")[0]["ratio"] == pytest.approx(expected["ratio"][0])
    assert table(summary, "marginal_effect")[0]["against"] == "F"
    assert {row["at_least"] for row in table(summary, "threshold_check")} == {0.9}
    assert "Ratios between groups" in call(*words, *asked, "-o", "report.html").stdout
    report = ["-o", "r.html"]
    assert "--decision and --favourable need each other" in refuse(*words, "--decision", "decision", *report)
    assert "favourable=['2']" in refuse(*words, "--decision", "decision", "--favourable", 2, *report)
    assert "threshold=2.0" in refuse(*words, "--threshold", 2, *report)
    assert "against='X'" in refuse(*words, "--against", "X", *report)
    assert "no column 'town'" in refuse(*words, "--control", "town", *report)
