"""The pages about running the service say what the code has: routes, messages, events and metrics."""

from __future__ import annotations

import logging
import re
import runpy
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fairpremium.parties.http._metrics import Metrics
from fairpremium.parties.service._access import RIGHTS
from fairpremium.parties.service._third_party import ThirdParty
from fairpremium.parties.service.operations import EVENTS

DOCS = Path(__file__).resolve().parents[1] / "docs"
BUILD = runpy.run_path(str(DOCS / "reference" / "build_http_api.py"))
GUIDE = DOCS / "guide" / "operations-logs.md"


@pytest.fixture(scope="module")
def document():
    return BUILD["read_document"]()


def test_the_page_of_the_api_is_written_from_the_service(document):
    page = (DOCS / "reference" / "http-api.md").read_text(encoding="utf-8")
    assert page == BUILD["page"](document), "the page is old; write it with: make reference"


def test_the_page_has_all_routes_with_the_roles_that_may_call_them(document):
    page = BUILD["page"](document)
    rows = dict(re.findall(r"^\| `([A-Z]+ /[^`]*)` \| ([^|]*) \|", page, re.MULTILINE))
    assert len(rows) == sum(len(operations) for operations in document["paths"].values())
    assert rows["PUT /v1/fits/{fit}"] == "insurer"
    assert rows["GET /v1/keys"] == "anybody"
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            name = operation["operationId"]
            roles = next((roles for command, roles in RIGHTS.items() if name.startswith(f"{command}_v1")), set())
            if "report_part" not in name:  # whose name is that of 0.1
                assert operation["x-roles"] == sorted(roles), f"{method} {path}"
            assert operation["description"].endswith((".", ">"))


def test_links_of_the_page_lead_somewhere(document):
    page = BUILD["page"](document)
    headings = {line.strip("# ").lower() for line in page.splitlines() if line.startswith("#")}
    links = set(re.findall(r"\]\(#([^)]*)\)", page))
    assert len(links) > 30
    assert links <= headings


def table(heading: str) -> list[list[str]]:
    """The rows of the first table of the guide with this heading."""
    lines = GUIDE.read_text(encoding="utf-8").partition(f"| {heading} |")[2].splitlines()[2:]
    rows = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def test_the_guide_lists_all_events():
    found = {row[0].strip("`"): (row[1], tuple(re.findall("`([^`]*)`", row[2])), row[3]) for row in table("event")}
    assert found == {
        name: (logging.getLevelName(event.level).lower(), event.fields, event.says) for name, event in EVENTS.items()
    }


def test_the_guide_lists_all_metrics(tmp_path):
    party = ThirdParty(tmp_path / "third-party")
    metrics = Metrics(party)
    metrics.count("GET", "/healthz", 200, 0.1)
    families = list(text_string_to_metric_families(metrics.write().decode()))
    party.close()
    found = {}
    for family in families:
        name = f"{family.name}_total" if family.type == "counter" else family.name
        found[name] = {label for sample in family.samples for label in sample.labels} - {"le"}
    found["fairpremium_epoch"] = {"study"}  # of which there is none
    assert {row[0].strip("`"): set(re.findall("`([^`]*)`", row[1])) for row in table("metric")} == found
