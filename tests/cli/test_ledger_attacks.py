"""Small versions of the attacks in benchmarks/_ledger_attacks.py: no vote over draws beats what the ledger says.

A rate of right guesses may exceed its bound by four and a half standard errors (probability 4e-6 for each attack).
"""

from __future__ import annotations

import math
import stat
from pathlib import Path

import pandas as pd
import pytest

from benchmarks import _ledger_attacks as attacks
from fairpremium.privacy import PrivacyLedger

FREE = {  # what costs nothing, because the same draw comes out again
    "reports lost", "reports lost, no column for the person", "ledger lost", "three policies of each person",
    "other policies every year", "file in another folder",
}  # fmt: skip
EPSILON = math.log(4)
WORDS = ["--column", "sex", "--groups", "F,M", "--keep", 0.8]


def beats(result):
    """Whether the guesses are certainly better than the ledger permits."""
    error = math.sqrt(result["bound"] * (1 - result["bound"]) / result["people"])
    return result["rate"] > result["bound"] + 4.5 * error


@pytest.mark.parametrize("name", attacks.ATTACKS)
def test_a_vote_learns_no_more_than_was_charged(name):
    result = attacks.run(name, runs=41 if name == "memo key lost" else 7, people=200, seed=1)
    assert not beats(result)
    if name == "another campaign, confirmed":
        assert (result["refused"], result["spent"]) == (0, pytest.approx(7 * EPSILON))
    else:
        assert result["refused"] == (0 if name in FREE else result["runs"] - 1)
        assert result["spent"] == pytest.approx(EPSILON)


def test_the_vote_wins_where_nothing_is_remembered(monkeypatch):
    """The attack is real: who loses ledger and memo key together between the runs is found out."""

    def lose_all(collector, k):
        for path in collector.home.glob("*"):
            path.unlink()
        collector.privatize(collector.table(), "--person", "holder")

    monkeypatch.setitem(attacks.ATTACKS, "all lost", lose_all)
    result = attacks.run("all lost", runs=15, people=200)
    assert beats(result)
    assert result["rate"] > 0.95


@pytest.fixture
def people():
    table = pd.DataFrame({"policy": range(6), "holder": list("aaabbc"), "sex": list("FFFMMF")})
    table.to_csv("people.csv", index=False)
    return table


def test_policies_of_a_person_share_a_report(call_json, call, people):
    words = ["privatize", "people.csv", *WORDS, "--person", "holder", "-o", "out.csv"]
    for k in range(10):  # a draw for each policy would agree with probability 0.31, ten times 7e-6
        said = call_json(*words, "--campaign", k, "--confirm-new-draw")
        assert (said["persons"], said["persons_charged"], said["rows"]) == (3, 3, 6)
        assert pd.read_csv("out.csv").groupby("holder")["report"].nunique().eq(1).all()
    assert "3, each with one report" in call(*words, "--campaign", 1).stdout


def test_contradicting_values_are_refused_and_not_named(refuse, people):
    people.assign(sex=list("FMFMMF")).to_csv("people.csv", index=False)
    said = refuse("privatize", "people.csv", *WORDS, "--person", "holder", "-o", "out.csv")
    assert "several values of 'sex' for 1 of 3 persons" in said
    assert not Path("out.csv").exists()


def test_a_row_without_the_attribute_has_no_report_and_is_no_contradiction(call_json, people):
    people.assign(sex=["F", None, "F", "M", None, None]).to_csv("people.csv", index=False)
    words = ["--person", "holder", "--not-reported", "-o", "out.csv", "--ledger", "spent.sqlite"]
    said = call_json("privatize", "people.csv", *WORDS, *words)
    assert (said["persons"], said["persons_charged"], said["not_reported"]) == (2, 2, 3)
    assert pd.read_csv("out.csv")["report"].isna().tolist() == [False, True, False, False, True, True]
    with PrivacyLedger("spent.sqlite") as ledger:
        assert [ledger.spent(person, "sex") for person in "abc"] == pytest.approx([EPSILON, EPSILON, 0])


def test_next_year_somebody_joins_and_somebody_answers_otherwise(call_json, refuse, people):
    words = ["privatize", "people.csv", *WORDS, "--person", "holder", "-o", "out.csv"]
    call_json(*words)
    before = pd.read_csv("out.csv").set_index("policy")["report"]
    joined = pd.concat([people, pd.DataFrame({"policy": [7, 8], "holder": ["d", "a"], "sex": ["M", "F"]})])
    joined.rename(columns={"sex": "gender"}).to_csv("people.csv", index=False)
    renamed = ["--column", "gender", *WORDS[2:], "--person", "holder", "-o", "out.csv"]
    assert "knows 3 of these people with 'sex'" in refuse("privatize", "people.csv", *renamed)
    said = call_json("privatize", "people.csv", *renamed, "--attribute", "sex")
    assert said["persons_charged"] == 1
    after = pd.read_csv("out.csv").set_index("policy")["report"]
    assert after[:6].equals(before)
    assert after[8] == before[0]
    people.assign(sex=list("MMMMMF")).to_csv("people.csv", index=False)
    said = refuse(*words)
    assert "for 1 person who reported it before, or may have. It would cost each of them epsilon 1.386 more" in said


def test_files_of_the_collector_are_for_their_owner(call_json, people, monkeypatch, tmp_path):
    home = tmp_path / "data"
    home.mkdir(mode=0o755)
    for path in ("memo.key", "out.csv"):
        target = home / path if path == "memo.key" else Path(path)
        target.write_bytes(b"a secret that others could read")
        target.chmod(0o644)
    monkeypatch.setenv("FAIRPREMIUM_COLLECTOR", str(home))
    said = call_json("privatize", "people.csv", *WORDS, "-o", "out.csv")
    assert (said["ledger"], said["memo_key"]) == (str(home / "ledger.sqlite"), str(home / "memo.key"))
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    for path in (home / "memo.key", home / "ledger.sqlite", Path("out.csv"), Path("out.csv.channel.json")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    (home / "memo.key").unlink()
    monkeypatch.setenv("FAIRPREMIUM_COLLECTOR", str(home / "new" / "one"))
    call_json("privatize", "people.csv", *WORDS, "-o", "out.csv")
    assert stat.S_IMODE((home / "new" / "one").stat().st_mode) == 0o700
    assert stat.S_IMODE((home / "new" / "one" / "memo.key").stat().st_mode) == 0o600


def test_a_folder_that_cannot_be_used_is_said_in_a_line(refuse, people, monkeypatch):
    monkeypatch.setenv("FAIRPREMIUM_COLLECTOR", "people.csv")
    said = refuse("privatize", "people.csv", *WORDS, "-o", "out.csv")
    assert "The collector's folder cannot be used" in said
    assert "FAIRPREMIUM_COLLECTOR" in said


def test_without_the_variable_the_folder_is_the_same_from_anywhere(call_json, people, monkeypatch, tmp_path):
    monkeypatch.delenv("FAIRPREMIUM_COLLECTOR")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    said = [call_json("privatize", tmp_path / "people.csv", *WORDS, "-o", tmp_path / f"{k}.csv") for k in "ab"]
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")
    said.append(call_json("privatize", tmp_path / "people.csv", *WORDS, "-o", "c.csv"))
    assert {one["ledger"] for one in said} == {str(tmp_path / "share" / "fairpremium" / "ledger.sqlite")}
    assert [one["persons_charged"] for one in said] == [6, 0, 0]
