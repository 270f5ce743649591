"""The published results: complete, from the full settings, and said in the guide as they are."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path

import pytest

from fairpremium.paper import FULL
from fairpremium.paper._claims import CLAIMS, judge_errata
from fairpremium.paper._claims_page import claims_page
from fairpremium.paper._figures import FIGURES
from fairpremium.paper._reproduce import read_table
from fairpremium.paper._settings import CHOICES

DOCS = Path(__file__).resolve().parents[2] / "docs"
RESULTS = DOCS / "reproduction"
GUIDE = DOCS / "guide" / "reproduction.md"
STUDIES = ("synthetic", "health", "auto")


@pytest.fixture(scope="module")
def claims():
    return json.loads((RESULTS / "claims.json").read_text(encoding="utf-8"))["claims"]


def test_the_results_are_those_of_a_full_run():
    metadata = json.loads((RESULTS / "metadata.json").read_text(encoding="utf-8"))
    assert metadata["settings"] == asdict(FULL)
    assert metadata["choices"] == CHOICES
    assert set(metadata["figures"]) == set(FIGURES)


def test_every_claim_is_there_and_the_page_says_the_same(claims):
    assert [claim["id"] for claim in claims] == [c.id for c in CLAIMS] + [e["id"] for e in judge_errata()]
    assert (RESULTS / "claims.md").read_text(encoding="utf-8") == claims_page(claims, FULL)


def test_statements_of_the_paper_rest_on_twenty_seeds(claims):
    for claim in claims:
        for case in claim["cases"]:
            least = FULL.ours_seeds if claim["id"].endswith(("/ours-better", "/ours-beats-naive")) else 20
            assert case["seeds"] + case["without_number"] >= least


@pytest.mark.parametrize("figure", FIGURES)
def test_every_figure_is_published_and_shown(figure):
    assert (RESULTS / f"{figure}.svg").is_file()
    assert len(read_table(RESULTS / f"{figure}.csv"))
    assert f"(../reproduction/{figure}.svg)" in GUIDE.read_text(encoding="utf-8")


def test_the_verdicts_in_the_guide_are_the_measured_ones(claims):
    verdicts = {claim["id"]: claim["verdict"] for claim in claims}
    rows = re.findall(r"^\| `([\w.-]+)` \|[^|]*\| ([^|]*) \| ([^|]*) \| ([^|]*) \|$", GUIDE.read_text("utf-8"), re.M)
    said = {
        f"{study}/{name}": cell
        for name, *cells in rows
        for study, cell in zip(STUDIES, cells, strict=True)
        if cell != "-"
    }
    expected = {name: verdict for name, verdict in verdicts.items() if name.split("/")[0] in STUDIES}
    assert said == expected
