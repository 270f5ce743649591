"""Card and record: every number is that of the file, nothing is left to fill in but the sign-off, text stays text."""

from __future__ import annotations

import copy
import json
import re

import numpy as np
import pandas as pd
import pytest

from fairpremium import DiscriminationFreePricer, FrequencySeverityPricer, RandomizedResponse
from fairpremium.model_documents import ModelDocument, Section, Table, model_card, model_record

MANIFEST = {
    "study": {"id": "motor", "title": "Motor 2026"},
    "fit": {"id": "first"},
    "key_id": "abc123",
    "matched": 1400,
    "portfolio": {"sha256": "f" * 64, "rows": 1500},
    "versions": {"fairpremium": "0.2.0"},
    "disclosure": {"statement": "Noise was added.", "passed": [{"title": "Smallest group", "limit": "50"}]},
    "findings": [{"heading": "Balance", "text": "Premiums are 100.2 % of losses."}],
    "log": {"seq": 12, "key_id": "abc123"},
    "members": {"model.json": {"sha256": "e" * 64, "size": 1}},
}


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"age": rng.uniform(20, 70, 1500), "region": rng.choice(["<north>", "so|uth"], 1500)})
    channel = RandomizedResponse(["F", "M"], keep=0.8)
    sensitive = channel.privatize(rng.choice(["F", "M"], 1500), rng=1).astype(object)
    sensitive[:100] = None
    counts = rng.poisson(0.5 * np.exp(0.01 * (X["age"] - 45)))
    return X, counts, counts * rng.gamma(2.0, 500.0, 1500), sensitive, channel


@pytest.fixture(scope="module")
def pricer(rows):
    X, counts, _, sensitive, channel = rows
    return DiscriminationFreePricer(family="poisson", channel=channel).fit(X, counts, sensitive=sensitive)


@pytest.mark.parametrize("make", [model_card, model_record])
def test_it_says_what_the_file_says(make, pricer, tmp_path):
    pricer.save(tmp_path / "model.json")
    sha256 = json.loads((tmp_path / "model.json").read_text())["sha256"]
    loaded = DiscriminationFreePricer.load(tmp_path / "model.json")
    found = make(loaded, source="model.json", insurer="Example Mutual", tariff="Motor 7")
    assert found == make(pricer, source="model.json", insurer="Example Mutual", tariff="Motor 7")
    text = found.to_markdown()
    for words in (
        sha256, "model.json", "Example Mutual", "Motor 7", "1,500", "100 (6.7%)", "poisson", pricer.correction_,
        "keep 0.8",
        "epsilon 1.386", "at most 4", pricer.channel_.descriptor()["sha256"], "empirical Bayes", "deviance explained",
        *[f"{share:.4g}" for share in pricer.reference_distribution_], "Sign-off", "confidence intervals",
        "region", "age",
    ):  # fmt: skip
        assert words in text, words
    tables = [block for section in found.sections for block in section.blocks if isinstance(block, Table)]
    candidates = [block for block in tables if "chosen" in block.columns]
    assert len(candidates[0].rows) == len(pricer.candidates_)


def test_a_sample_is_named(pricer):
    """A class beyond the linear one is fitted to a sample of data larger than memory."""
    assert "sample" not in model_card(pricer).to_markdown()
    sampled = copy.copy(pricer)
    sampled.n_sampled_rows_ = 1200
    assert "a random sample of 1,200" in model_card(sampled).to_markdown()


def test_a_number_stands_with_its_standard_error(pricer):
    found = pricer.candidates_.dropna(subset=["corrected_risk_se"]).iloc[0]
    text = model_card(pricer).to_markdown()
    written = re.search(r"\| ([\d.,]+) ± ([\d.,]+) \|", text)
    assert written is not None
    value, error = (float(number.replace(",", "")) for number in written.groups())
    assert error == pytest.approx(found["corrected_risk_se"], rel=0.05)  # two digits
    assert abs(value - found["corrected_risk"]) <= 0.05 * error
    assert "standard error" not in text


@pytest.mark.parametrize("make", [model_card, model_record])
def test_the_loss_of_privacy_is_that_of_the_reports_that_were_collected(make, pricer):
    collected = RandomizedResponse(["F", "M"], keep=0.9)  # the third party made keep 0.8 of it
    text = make(pricer, manifest={**MANIFEST, "channel": collected.descriptor()}).to_markdown()
    assert "by at most 9 (local" in text
    assert "4 for whoever sees only the reports that the model was fitted to" in text
    assert "without bias" not in text


@pytest.mark.parametrize("make", [model_card, model_record])
def test_insurer_tariff_and_period_come_from_the_bundle(make, pricer):
    details = {"insurer": "Example Mutual", "tariff_version": "Motor 7", "period": "2025"}
    text = make(pricer, manifest={**MANIFEST, "details": details}).to_markdown()
    assert all(words in text for words in details.values())
    assert (
        "Other Mutual" in make(pricer, manifest={**MANIFEST, "details": details}, insurer="Other Mutual").to_markdown()
    )


@pytest.mark.parametrize("make", [model_card, model_record])
def test_nothing_is_left_to_fill_in_but_the_sign_off(make, pricer):
    found = make(pricer, manifest=MANIFEST)
    text = found.to_markdown()
    assert not re.search(r"\b(TODO|TBD|fill in|nan|None)\b", text)
    *sections, last = found.sections
    assert last.heading == "Sign-off"
    for section in sections:
        assert section.blocks
        assert all(block.rows if isinstance(block, Table) else block.strip() for block in section.blocks), (
            section.heading
        )


@pytest.mark.parametrize("make", [model_card, model_record])
def test_a_bundle_adds_what_its_manifest_says(make, pricer):
    text = make(pricer, manifest=MANIFEST).to_markdown()
    for words in ("Motor 2026 (motor)", "abc123", "about 1,400", "f" * 64, "e" * 64, "fairpremium 0.2.0",
                  "Noise was added", "Smallest group", "Premiums are 100.2 % of losses", "12, signed"):  # fmt: skip
        assert words in text, words
    own = make(pricer, manifest=MANIFEST, findings=[{"heading": "Other", "text": "Audit of my own"}]).to_markdown()
    assert "Audit of my own" in own
    assert "100.2" not in own


def test_noise_of_the_third_party_is_told_from_that_of_the_person(pricer, rows):
    asked = RandomizedResponse(["F", "M"], keep=0.9).descriptor()
    text = model_card(pricer, manifest={**MANIFEST, "channel": asked}).to_markdown()
    assert "keep 0.9" in text
    assert "randomized them once more" in text
    same = model_card(pricer, manifest={**MANIFEST, "channel": rows[4].descriptor()}).to_markdown()
    assert "once more" not in same


def test_the_record_has_the_headings_of_eiopa_in_order(pricer):
    headings = [s.heading for s in model_record(pricer).sections]
    numbers = [int(h.split(".")[0]) for h in headings if h[0].isdigit()]
    assert numbers == list(range(1, 11))


def test_claims_have_a_row_for_each_part(rows):
    X, counts, amounts, sensitive, channel = rows
    claims = FrequencySeverityPricer(channel=channel, correction="inverse", pooling=0, intervals=False)
    claims.fit(X, counts, amounts, sensitive=sensitive)
    text = model_card(claims).to_markdown()
    for words in ("frequency times severity", "Candidates of the frequency", "Candidates of the severity", "gamma"):
        assert words in text
    assert "fitted without intervals" in text


def test_the_true_attribute_is_named_as_such(rows):
    X, counts, _, sensitive, _ = rows
    pricer = DiscriminationFreePricer(family="poisson", pooling=0).fit(X, counts, sensitive=sensitive)
    assert "fitted to the true attribute" in model_card(pricer).to_markdown()


def test_text_of_others_stays_text(pricer, tmp_path):
    page = model_card(pricer, insurer="<script>alert(1)</script>").to_html()
    assert "<script" not in page
    assert "&lt;north&gt;" in page
    assert "http" not in page  # it loads nothing from elsewhere
    markdown = model_card(pricer, insurer="a | b *c*").to_markdown()
    assert "a \\| b \\*c\\*" in markdown
    assert "so\\|uth" in markdown


def test_it_is_written_by_the_ending_of_its_name(tmp_path):
    document = ModelDocument("T", (Section("H", ("words", Table(("a", "b"), (("1", ""),)))),))
    document.save(tmp_path / "x.md")
    document.save(tmp_path / "x.html")
    assert (tmp_path / "x.md").read_text() == "# T\n\n## H\n\nwords\n\n| a | b |\n| --- | --- |\n| 1 |  |\n"
    assert (
        "<table class=form>\n<tr><th>a</th><th>b</th></tr>\n<tr><td>1</td><td></td></tr>"
        in (tmp_path / "x.html").read_text()
    )
    with pytest.raises(ValueError, match=r"\.md or \.html"):
        document.save(tmp_path / "x.pdf")
    with pytest.raises(TypeError, match="Got pricer of type int"):
        model_card(3)
