"""The command reports what the library wrote, and answers a mistake with one line."""

from __future__ import annotations

from pathlib import Path


def test_a_figure_that_needs_no_experiment(call_json):
    result = call_json("reproduce", "--quick", "--figure", "parties", "--out", "results")
    assert result["figures"] == {"parties": str(Path("results") / "parties.png")}
    assert Path("results/parties.png").is_file()
    assert result["statements"]["errata/c1"] == "does not hold"
    assert sum(result["verdicts"].values()) == len(result["statements"])


def test_for_people(call):
    text = call("reproduce", "--quick", "--figure", "theory-bounds", "--figure", "parties", "--jobs", 2).stdout
    assert "2 figures in results (2 tables computed, 0 found" in text
    assert "no evidence" in text
    assert "2 found" in call("reproduce", "--quick", "--figure", "theory-bounds").stdout


def test_mistakes(refuse, monkeypatch):
    monkeypatch.delenv("FAIRPREMIUM_DATA", raising=False)
    assert "'health', but expected one of: parties" in refuse("reproduce", "--quick", "--figure", "health")
    assert "jobs=0" in refuse("reproduce", "--quick", "--jobs", 0)
    assert "no folder nowhere" in refuse("reproduce", "--quick", "--data", "nowhere")
    assert "car_insurance_claim.csv" in refuse("reproduce", "--quick", "--figure", "auto-by-keep")
    assert not Path("results/runs").exists()
