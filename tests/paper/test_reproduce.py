"""A quick run of everything: files, tables, verdicts; the same bytes again, and nothing computed twice."""

from __future__ import annotations

import json
import math
import xml.etree.ElementTree as ET
from dataclasses import replace

import pandas as pd
import pytest

from fairpremium.paper import QUICK, reproduce
from fairpremium.paper._setup import CHOICES
from fairpremium.paper.figures import FIGURES
from fairpremium.paper.statements import STATEMENTS

CURVES = {"features", "sample", "keep", "assumed", "method", "epoch", "loss", "standard_error", "seeds"}
PRICES = {
    "keep",
    "assumed",
    "method",
    "price",
    "age",
    "smoker",
    "group",
    "mean",
    "low",
    "high",
    "error",
    "truth",
    "seeds",
}
COLUMNS = {
    "parties": {"from", "to", "what", "where"},
    "estimated-keep": {"portfolio", "sample", "parts", "keep", "estimate", "sd", "seeds"},
    "theory-bounds": {"theorem", "what", "groups", "keep", "n", "value", "standard_error", "seeds"},
}
KINDS = ("by-keep", "by-size", "perturbed", "estimated", "estimated-by-size", "splits")
TINY = replace(QUICK, synthetic_rows=300, net_epochs=2, theorem_runs=20, lemma_rows=1000)


@pytest.fixture(scope="module")
def done(tmp_path_factory, shared_data):
    calls = []
    run = reproduce(
        tmp_path_factory.mktemp("quick"), size=QUICK, jobs=2, data=shared_data, report=lambda *c: calls.append(c)
    )
    return run, calls


def test_the_figures_are_those_of_the_paper():
    expected = {"parties", "synthetic-direct", "synthetic-indirect", "synthetic-known", "synthetic-perturbed-0.9"}
    expected |= {"synthetic-perturbed-0.8", "estimated-keep", "theory-bounds"}
    expected |= {f"{experiment}-{kind}" for experiment in ("health", "auto") for kind in KINDS}
    assert set(FIGURES) == expected


def test_every_figure_has_a_table_and_two_pictures(done):
    folder = done[0].folder
    for figure in FIGURES:
        assert (folder / f"{figure}.png").read_bytes().startswith(b"\x89PNG")
        ET.parse(folder / f"{figure}.svg")
        table = pd.read_csv(folder / f"{figure}.csv")
        expected = COLUMNS.get(figure, PRICES if figure.startswith("synthetic") else CURVES)
        assert set(table.columns) == expected
        assert len(table)


@pytest.mark.parametrize("experiment", ["health", "auto"])
def test_curves_have_every_method_for_raw_and_learned_columns(done, experiment):
    for kind in KINDS:
        table = pd.read_csv(done[0].folder / f"{experiment}-{kind}.csv")
        for features in ("X", "X~"):
            part = table[table["features"] == features]
            assert set(part["method"]) == {"true D", "naive", "paper", "ours"}
            assert set(part.loc[part["method"] == "ours", "epoch"]) == {0}
            assert part.loc[part["method"] == "true D", "epoch"].max() == QUICK.descent_epochs
        assert (table["seeds"] <= QUICK.seeds).all()
    by_keep = pd.read_csv(done[0].folder / f"{experiment}-by-keep.csv")
    assert set(by_keep["keep"]) == {0.0, 0.7, 0.8, 0.9}
    by_size = pd.read_csv(done[0].folder / f"{experiment}-by-size.csv")
    assert set(by_size["sample"]) == {"full", "half"}


def test_statements_have_numbers_and_verdicts(done):
    folder = done[0].folder
    statements = json.loads((folder / "statements.json").read_text())["statements"]
    assert {statement.id for statement in STATEMENTS} <= {statement["id"] for statement in statements}
    page = (folder / "statements.md").read_text()
    assert "its verdicts are no evidence" in " ".join(page.split())
    for statement in statements:
        assert statement["verdict"] in {"holds", "does not hold", "depends"}
        assert f"### {statement['id']}" in page
        assert statement["criterion"]
        for case in statement["cases"]:
            assert case["verdict"] in {"yes", "no", "open"}
            assert case["seeds"] + case["without_number"] == QUICK.seeds
            assert case["seeds"] < 1 or math.isfinite(case["mean"])
    for what in CHOICES:
        assert what in page


def test_metadata_say_how_it_was_made(done):
    metadata = json.loads((done[0].folder / "metadata.json").read_text())
    assert metadata["settings"]["seeds"] == QUICK.seeds
    assert metadata["packages"]["numpy"]
    assert metadata["runtime"]["tables_computed"] == 4 * QUICK.seeds
    cost = metadata["runtime"]["cost"]
    assert set(cost) == {"synthetic", "health", "auto", "theory"}
    assert all(of["tables"] == QUICK.seeds and of["cpu_seconds"] > 0 for of in cost.values())
    assert set(metadata["figures"]) == set(FIGURES)


def test_progress_counts_every_table(done):
    run, calls = done
    assert [call[1] for call in calls] == list(range(4 * QUICK.seeds + 1))
    assert {call[2] for call in calls} == {4 * QUICK.seeds}
    assert run.effort.found == 0


def test_a_second_run_computes_only_what_is_missing(done, shared_data):
    folder = done[0].folder
    figures = ["theory-bounds", "estimated-keep"]  # they need all four experiments, and are quickly drawn
    names = [f"{figure}.{kind}" for figure in figures for kind in ("csv", "svg")] + ["statements.md", "statements.json"]
    before = {name: (folder / name).read_bytes() for name in names}
    lost = next((folder / "runs").glob("theory-*/seed-001.csv"))
    lost.unlink()
    again = reproduce(folder, figures=figures, size=QUICK, jobs=1, data=shared_data)
    assert (again.effort.computed, again.effort.found) == (1, 4 * QUICK.seeds - 1)
    assert {name: (folder / name).read_bytes() for name in names} == before
    more = reproduce(folder, figures=["theory-bounds"], size=replace(QUICK, seeds=3), jobs=1)
    assert (more.effort.computed, more.effort.found) == (1, 2)  # one further seed, not three


def test_the_number_of_jobs_does_not_change_a_byte(tmp_path):
    figures = ["synthetic-indirect", "theory-bounds"]
    for jobs in (1, 2):
        reproduce(tmp_path / str(jobs), figures=figures, size=TINY, jobs=jobs)
    one, two = ({p.relative_to(tmp_path / n): p.read_bytes() for p in (tmp_path / n).rglob("*.csv")} for n in "12")
    assert len(one) == 2 + 4
    assert one == two
    assert (tmp_path / "1" / "statements.json").read_bytes() == (tmp_path / "2" / "statements.json").read_bytes()


def test_only_what_a_figure_needs_is_run(tmp_path):
    run = reproduce(tmp_path, figures=["parties"], size=QUICK)
    assert run.effort.computed == 0
    assert "Not measured in this run" in (tmp_path / "statements.md").read_text()
    assert {p.name for p in tmp_path.iterdir()} == {
        "parties.csv", "parties.svg", "parties.png", "statements.md", "statements.json", "metadata.json"
    }  # fmt: skip


def test_mistakes(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="'nonsense', but expected one of: parties"):
        reproduce(tmp_path, figures=["nonsense"])
    with pytest.raises(ValueError, match="jobs=0"):
        reproduce(tmp_path, jobs=0)
    monkeypatch.delenv("FAIRPREMIUM_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match=r"car_insurance_claim\.csv"):
        reproduce(tmp_path, figures=["auto-by-keep"], size=QUICK)
    assert not (tmp_path / "runs").exists()
