"""card and record: the documents of Python, from a model, a bundle and an audit; a line for every mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fairpremium import DiscriminationFreePricer
from fairpremium.model_documents import model_card, model_record


@pytest.fixture
def model(portfolio):
    pricer = DiscriminationFreePricer(pooling=0).fit(portfolio.X, portfolio.y, sensitive=portfolio.sensitive)
    pricer.save("model.json")
    return pricer


@pytest.mark.parametrize(("name", "make"), [("card", model_card), ("record", model_record)])
def test_the_document_is_that_of_python(name, make, model, call_json, call):
    found = call_json(name, "model.json", "-o", "out.md", "--insurer", "Example Mutual", "--tariff", "Motor 7")
    expected = make(model, source="model.json", insurer="Example Mutual", tariff="Motor 7")
    assert Path("out.md").read_text() == expected.to_markdown()
    assert found["sections"] == [section.heading for section in expected.sections]
    assert "sign-off" in call(name, "model.json", "-o", "out.html").stdout
    assert Path("out.html").read_text().startswith("<!doctype html>")


def test_the_findings_of_an_audit_are_added(model, call):
    found = [{"heading": "Who pays what", "text": "All the same."}]
    Path("audit.json").write_text(json.dumps({"findings": found, "groups": list(model.groups_)}))
    call("card", "model.json", "-o", "card.md", "--audit", "audit.json")
    assert "All the same." in Path("card.md").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["card", "none.json", "-o", "x.md"], "There is no file none.json"),
        (["card", "model.json", "-o", "x.pdf"], "ends in .md or .html"),
        (["record", "model.json", "-o", "x.md", "--trust", "key.pub"], "belongs to a bundle"),
        (["record", "bundle.zip", "-o", "x.md"], "expected --trust"),
        (["card", "model.json", "-o", "x.md", "--audit", "model.json"], "is not an audit report"),
        (["card", "model.json", "-o", "x.md", "--audit", "other.json"], "audits the groups ['a', 'b'], but the model"),
        (["card", "audit.txt", "-o", "x.md"], "is not a fairpremium model"),
    ],
)
def test_a_mistake_is_one_line(words, message, model, refuse):
    Path("bundle.zip").write_bytes(b"PK")
    Path("audit.txt").write_text("x")
    Path("other.json").write_text(json.dumps({"findings": [], "groups": ["a", "b"]}))
    assert message in refuse(*words)
