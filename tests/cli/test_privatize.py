"""privatize: the attribute goes in, and only reports of it come out."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from fairpremium.cli.tables import read_table
from fairpremium.privacy import PrivacyLedger, RandomizedResponse, SubsetSelection, read_reports
from helpers.privacy_audit import audit

WORDS = ["--column", "sex", "--groups", "F,M", "--keep", "0.8"]
SETS = ["--column", "sex", "--groups", "F,M", "--epsilon", 1, "--mechanism", "subset-selection"]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("groups", ["F,M", 'F,M,"not said, or unknown"'])
def test_black_box_audit(call, suffix, groups):
    labels = ["F", "M", "not said, or unknown"][: 2 if groups == "F,M" else 3]
    channel = RandomizedResponse(labels, epsilon=1.0)

    def draw(values):
        pd.DataFrame({"policy": range(len(values)), "sex": values}).to_csv("in.csv", index=False)
        words = ["--column", "sex", "--groups", groups, "--epsilon", 1, "--confirm-new-draw", "-o", f"out.{suffix}"]
        call("privatize", "in.csv", *words)
        frame, described = read_reports(f"out.{suffix}")
        assert described == channel
        assert frame["policy"].astype(int).tolist() == list(range(len(values)))
        return frame["report"]

    assert audit(draw, channel, n=10_000) == {"privacy": [], "channel": []}


def test_formulas_are_text_in_a_csv_file_and_themselves_when_it_is_read(call):
    people = pd.DataFrame({"=policy": ["=cmd|' /C calc'!A1", "@SUM(1)", "-12", "007"], "sex": ["F", "M", "+x", "F"]})
    people.to_csv("people.csv", index=False)
    said = call("privatize", "people.csv", "--column", "sex", "--groups", "F,M,+x", "--keep", "0.8", "-o", "out.csv")
    assert "cells of out.csv have text that a spreadsheet would run as a formula" in " ".join(said.stderr.split())
    written = pd.read_csv("out.csv", dtype=str)
    assert written.columns.tolist() == ["'=policy", "report"]
    assert written["'=policy"].tolist() == ["'=cmd|' /C calc'!A1", "'@SUM(1)", "-12", "007"]
    assert not any(cell.startswith(("=", "+", "@")) for cell in written["report"])
    for again in (read_reports("out.csv")[0], read_table(Path("out.csv"), require=["=policy"], text={"=policy"})):
        assert again["=policy"].tolist() == people["=policy"].tolist()
        assert set(again["report"]) <= {"F", "M", "+x"}


def test_sets_of_groups(call, call_json):
    groups = ["a", "b, or c", 'd "quoted"', "e", "f"]
    channel = SubsetSelection(groups, epsilon=1.0, size=2)
    written = 'a,"b, or c","d ""quoted""",e,f'
    words = ["--column", "origin", "--groups", written, "--epsilon", 1, "--mechanism", "subset-selection"]

    def draw(values):
        pd.DataFrame({"policy": range(len(values)), "origin": values}).to_csv("in.csv", index=False)
        said = call_json("privatize", "in.csv", *words, "--subset-size", 2, "--confirm-new-draw", "-o", "out.csv")
        assert said["channel"]["subset_size"] == 2
        frame, described = read_reports("out.csv")
        assert described == channel
        return frame["report"]

    assert audit(draw, channel, n=5_000) == {"privacy": [], "channel": []}
    more = ["--confirm-new-draw", "-o", "best.csv"]
    assert "subset selection, 1 of 5 groups in a report" in call("privatize", "in.csv", *words, *more).stdout
    Path("secret").write_bytes(b"a secret of the tests")
    words += ["--subset-size", 2, "--person", "policy", "--memo-key", "secret", "--ledger", "new.sqlite"]
    for name in ("one.csv", "two.csv"):
        call("privatize", "in.csv", *words, "-o", name)
    assert Path("one.csv").read_bytes() == Path("two.csv").read_bytes()


def test_black_box_audit_of_memoized_reports(call):
    Path("secret").write_bytes(b"a secret of the tests")
    channel = RandomizedResponse(["F", "M"], epsilon=1.0)
    words = ["--column", "sex", "--groups", "F,M", "--epsilon", 1, "--memo-key", "secret", "--person", "policy"]
    start = 0

    def draw(values):
        nonlocal start
        frame = pd.DataFrame({"policy": range(start, start + len(values)), "sex": values})
        start += len(values)
        frame.to_csv("in.csv", index=False)
        call("privatize", "in.csv", *words, "-o", "out.csv")
        return read_reports("out.csv")[0]["report"]

    assert audit(draw, channel, n=4_000) == {"privacy": [], "channel": []}


def test_the_output_holds_the_report_in_place_of_the_attribute(call, files, portfolio):
    call("privatize", "people.csv", *WORDS, "-o", "reports.csv")
    people = pd.read_csv("people.csv", dtype=str)
    out = pd.read_csv("reports.csv", dtype=str)
    assert out.columns.tolist() == ["policy", "report", "town"]
    pd.testing.assert_frame_equal(out[["policy", "town"]], people[["policy", "town"]])  # "00007" stays "00007"
    assert 0.7 < (out["report"] == people["sex"]).mean() < 0.9  # 0.8 with standard error 0.009


def test_no_trace_of_a_true_value_that_was_not_reported(call):
    # One person of 200 has a rare label; in most runs its report is another label, and then no file knows it.
    seen = 0
    for k in range(12):
        frame = pd.DataFrame({"policy": range(200), "sex": ["common"] * 199 + ["zebra"]})
        frame.to_parquet("in.parquet")
        words = ["--column", "sex", "--groups", "common,zebra,other", "--keep", "0.34"]
        call("privatize", "in.parquet", *words, "-o", "out.parquet", "--confirm-new-draw", "--campaign", k)
        reports = pd.read_parquet("out.parquet")
        assert "sex" not in Path("out.parquet").read_bytes().decode("latin-1")
        if reports["report"].iloc[-1] != "zebra":
            seen += 1
            assert "zebra" not in reports.iloc[-1].tolist()
    assert seen > 0  # fails with probability 0.34 ** 12


def test_two_calls_give_the_same_reports_and_another_memo_key_others(call, files, monkeypatch):
    for name in ("a.csv", "b.csv"):
        call("privatize", "people.csv", *WORDS, "-o", name)
    monkeypatch.setenv("FAIRPREMIUM_COLLECTOR", "elsewhere")
    call("privatize", "people.csv", *WORDS, "-o", "c.csv")
    assert Path("a.csv").read_text() == Path("b.csv").read_text() != Path("c.csv").read_text()


def test_json_and_text_tell_the_same(call, call_json, files):
    result = call_json("privatize", "people.csv", *WORDS, "-o", "reports.csv")
    assert result["rows"] == 2000
    assert result["channel"]["keep"] == 0.8
    assert json.loads(Path(result["descriptor"]).read_text())["columns"] == ["report"]
    text = call("privatize", "people.csv", *WORDS, "-o", "reports.csv").stdout
    assert "keep 0.8, epsilon 1.386" in text
    assert "reports.csv.channel.json" in text


def test_labels_and_fields_are_text(call):
    Path("in.csv").write_text('policy,code,amount\n007,01,1.50\n008,1,\n"a,b",NA,2\n')
    call("privatize", "in.csv", "--column", "code", "--groups", "01,1,NA", "--keep", "0.9999999", "-o", "out.csv")
    assert Path("out.csv").read_text() == 'policy,report,amount\n007,01,1.50\n008,1,\n"a,b",NA,2\n'


def test_parquet_of_whole_numbers(call):
    pd.DataFrame({"policy": [1, 2], "code": [0, 1]}).to_parquet("in.parquet")
    call("privatize", "in.parquet", "--column", "code", "--groups", "0,1", "--epsilon", 1, "-o", "out.parquet")
    frame, channel = read_reports("out.parquet")
    assert set(frame["report"]) <= {"0", "1"}
    assert channel.groups == ("0", "1")


def test_another_campaign_is_another_draw(call, refuse, files):
    Path("secret").write_bytes(b"sixteen bytes or more")
    words = ["privatize", "people.csv", *WORDS, "--memo-key", "secret", "--person", "policy"]
    for name in ("a.csv", "b.csv"):
        call(*words, "--campaign", "2025", "-o", name)
    said = refuse(*words, "--campaign", "2026", "-o", "c.csv")
    assert "for 2,000 persons" in said
    assert "epsilon 1.386 more, up to 2.773 in all" in said
    assert not Path("c.csv").exists()
    call(*words, "--campaign", "2026", "-o", "c.csv", "--confirm-new-draw")
    a, b, c = (pd.read_csv(name)["report"] for name in ("a.csv", "b.csv", "c.csv"))
    assert a.equals(b)
    assert not a.equals(c)


def test_the_ledger_charges_and_refuses(call, refuse, files):
    words = ["privatize", "people.csv", *WORDS, "--ledger", "spent.db", "--budget", 2.0, "--person", "policy"]
    call(*words, "-o", "a.csv")
    call(*words, "-o", "again.csv")
    assert Path("a.csv").read_text() == Path("again.csv").read_text()
    with PrivacyLedger("spent.db", budget=2.0) as ledger:
        assert ledger.spent("00007", "sex") == pytest.approx(1.3862943611)
    assert "beyond the budget" in refuse(*words, "-o", "b.csv", "--campaign", "2", "--confirm-new-draw")
    assert not Path("b.csv").exists()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([*WORDS, "--epsilon", 1], "exactly one of epsilon and keep"),
        (["--column", "sex", "--groups", "F,M"], "exactly one of epsilon and keep"),
        (["--column", "sex", "--groups", "F,M", "--keep", 0.3], "1/2 < keep < 1"),
        (["--column", "sex", "--groups", "F,M", "--keep", 1], "no privacy mechanism"),
        (["--column", "sex", "--groups", "F,M", "--epsilon", "nan"], "positive finite number"),
        (["--column", "sex", "--groups", "F", "--keep", 0.8], "at least two labels"),
        (["--column", "sex", "--groups", "F,,M", "--keep", 0.8], "empty name"),
        (["--column", "gender", "--groups", "F,M", "--keep", 0.8], "Its columns are 'policy', 'sex', 'town'"),
        ([*WORDS, "--report-column", "town"], "already has a column 'town'"),
        ([*WORDS, "--subset-size", 1], "--subset-size needs --mechanism subset-selection"),
        ([*WORDS, "--mechanism", "subset-selection"], "needs --epsilon and has no --keep"),
        (["--column", "sex", "--groups", "F,M", "--mechanism", "subset-selection"], "needs --epsilon"),
        ([*SETS, "--subset-size", 2], "a whole number from 1 to 1"),
        ([*WORDS, "--memo-key", "secret"], "There is no file secret"),
        ([*WORDS, "--budget", 0], "budget"),
        ([*WORDS, "--budget", 1], "beyond the budget of epsilon=1"),
        ([*WORDS, "--attribute", ""], "attribute"),
        ([*WORDS, "--ledger", "spent.db", "--budget", 2, "--person", "key"], "no column 'key'"),
    ],
)
def test_mistakes(refuse, files, words, expected):
    assert expected in refuse("privatize", "people.csv", *words, "-o", "out.csv")
    assert not Path("out.csv").exists()


def test_the_input_is_never_overwritten(refuse, files):
    before = Path("people.csv").read_bytes()
    Path("link.csv").hardlink_to("people.csv")
    for output in ("people.csv", "./people.csv", "link.csv"):
        assert "would overwrite" in refuse("privatize", "people.csv", *WORDS, "-o", output)
    assert Path("people.csv").read_bytes() == before


@pytest.mark.parametrize("output", ["nowhere/out.csv", "out.ods", "out"])
def test_outputs_that_cannot_be_are_named(refuse, files, output):
    assert output.split("/")[0] in refuse("privatize", "people.csv", *WORDS, "-o", output)
    assert not Path(output).exists()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "is empty"),
        (b"sex\n", "has no rows"),
        (b"sex,sex\nF,SECRET\n", "several columns named 'sex'"),
        (b"policy,sex\n1,F\n2,SECRET\n", "1 row of 2 that are not among"),
        (b"policy,sex\n1,F\n2,\n", "is empty in 1 rows; expected a group in each. Say --not-reported"),
        (b"sex\nF\n\nM\n", "is empty in 1 rows; expected a group in each. Say --not-reported"),
        (b"policy,sex\n1,F\n2,M,SECRET\n", "more fields than the header"),
        (b"policy,sex\n1,F,SECRET\n2,M,SECRET\n", "more fields than the header"),
        (b"policy;sex\n1;F\n2;SECRET\n", "1 row of 2 that are not among"),
        (b"sex\nF\n\xff\xfe\n", "1 row of 2 that are not among"),
        (b"sex\nF\n\0\n", "not a CSV file"),
        (b"sex,gender\nF,F\nM,M\n", "holds the same values as 'sex'"),
        (b"sex\n F\n", "not among the declared labels"),
        ("sex\nＦ\n".encode(), "not among the declared labels"),
    ],
)
def test_hostile_files_are_refused_and_not_quoted(refuse, content, expected):
    Path("in.csv").write_bytes(content)
    message = refuse("privatize", "in.csv", *WORDS, "-o", "out.csv")
    assert expected in message
    assert "SECRET" not in message
    assert "Ｆ" not in message
    assert not Path("out.csv").exists()


def test_a_parquet_file_that_is_none(refuse):
    Path("in.parquet").write_bytes(b"sex\nF\n")
    assert "not a Parquet file" in refuse("privatize", "in.parquet", *WORDS, "-o", "out.csv")


def test_a_byte_order_mark_is_not_part_of_a_name(call):
    Path("in.csv").write_bytes("\ufeffsex\nF\nM\n".encode())
    call("privatize", "in.csv", *WORDS, "-o", "out.csv")
    assert Path("out.csv").read_text().splitlines()[0] == "report"
