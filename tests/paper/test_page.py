"""The published results: complete, from the full size, and said in the guide as they are."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path

import pytest

from fairpremium.paper import FULL
from fairpremium.paper._reproduce import read_figure_table
from fairpremium.paper._setup import CHOICES
from fairpremium.paper.figures import FIGURES
from fairpremium.paper.statements import STATEMENTS, judge_errata, statements_page

DOCS = Path(__file__).resolve().parents[2] / "docs"
RESULTS = DOCS / "reproduction"
GUIDE = DOCS / "guide" / "reproduction.md"
EXPERIMENTS = ("synthetic", "health", "auto")


@pytest.fixture(scope="module")
def statements():
    return json.loads((RESULTS / "statements.json").read_text(encoding="utf-8"))["statements"]


def test_the_results_are_those_of_a_full_run():
    metadata = json.loads((RESULTS / "metadata.json").read_text(encoding="utf-8"))
    assert metadata["settings"] == asdict(FULL)
    assert metadata["choices"] == CHOICES
    assert set(metadata["figures"]) == set(FIGURES)


def test_every_statement_is_there_and_the_page_says_the_same(statements):
    assert [statement["id"] for statement in statements] == [c.id for c in STATEMENTS] + [
        e["id"] for e in judge_errata()
    ]
    assert (RESULTS / "statements.md").read_text(encoding="utf-8") == statements_page(statements, FULL)


def test_statements_of_the_paper_rest_on_twenty_seeds(statements):
    for statement in statements:
        for case in statement["cases"]:
            assert case["seeds"] + case["without_number"] >= 20


@pytest.mark.parametrize("figure", FIGURES)
def test_every_figure_is_published_and_shown(figure):
    assert (RESULTS / f"{figure}.svg").is_file()
    assert len(read_figure_table(RESULTS / f"{figure}.csv"))
    assert f"(../reproduction/{figure}.svg)" in GUIDE.read_text(encoding="utf-8")


def test_the_verdicts_in_the_guide_are_the_measured_ones(statements):
    verdicts = {statement["id"]: statement["verdict"] for statement in statements}
    rows = re.findall(r"^\| `([\w.-]+)` \|[^|]*\| ([^|]*) \| ([^|]*) \| ([^|]*) \|$", GUIDE.read_text("utf-8"), re.M)
    said = {
        f"{experiment}/{name}": cell
        for name, *cells in rows
        for experiment, cell in zip(EXPERIMENTS, cells, strict=True)
        if cell != "-"
    }
    expected = {name: verdict for name, verdict in verdicts.items() if name.split("/")[0] in EXPERIMENTS}
    assert said == expected
