"""The first page of the report: answers on portfolios whose truth is known, digits, classes, and the printed form."""

from __future__ import annotations

import json
import re
import zlib

import numpy as np
import pandas as pd
import pytest

from fairpremium import DiscriminationFreePricer, RandomizedResponse
from fairpremium import audit as fa
from fairpremium.audit.drawing import choose_places, format_price
from fairpremium.audit.report import choose_classes, measure_proxy_effect
from fairpremium.errors import MissingExtraError
from fairpremium.portfolios import zhang_liu_shi_2025

CHANNEL = RandomizedResponse(["a", "b"], keep=0.8)


def book(n, link, seed=0, keep=0.8):
    """Two features, the second of which tells the group with the probability `link`; costs differ by 20 of 110."""
    rng = np.random.default_rng(seed)
    D = rng.choice(["a", "b"], n)
    told = np.where(rng.random(n) < link, D == "a", rng.random(n) < 0.5)
    X = pd.DataFrame({"power": rng.uniform(0, 1, n), "colour": np.where(told, "red", "blue")})
    mu = 100 + 20 * X["power"].to_numpy() + 20 * (D == "a")
    channel = RandomizedResponse(["a", "b"], keep=keep)
    return X, mu + rng.normal(0, 5, n), channel.privatize(D, rng=seed + 1), channel


def panel_of(n, link, **settings):
    X, y, S, channel = book(n, link, **settings)
    pricer = DiscriminationFreePricer(channel=channel, random_state=0).fit(X, y, sensitive=S)
    summary = fa.summarize_pricer(pricer, X, y, sensitive=S)
    return {row["id"]: row for row in summary["panel"]}, summary


# --- answers ---


def test_a_proxy_effect_that_is_there_is_found_with_its_size():
    panel, _ = panel_of(6000, link=0.8)
    row = panel["proxy_effect"]
    # The unaware price of red minus blue is 20 * 0.8 too much; groups differ in red by 0.8: 12.8 between the groups.
    assert row["low"] < 20 * 0.8 * 0.8 < row["high"]
    assert row["verdict"] == "beyond"
    assert row["answer"].startswith("Yes")
    assert row["tone"] == "attention"
    assert "a pays" in row["number"]
    assert panel["removed"]["value"] == 0


def test_no_proxy_effect_is_said_so():
    panel, _ = panel_of(6000, link=0.0)
    row = panel["proxy_effect"]
    assert row["verdict"] == "within"
    assert row["answer"].startswith("No")
    assert row["high"] < 0.01 * 120


def test_few_and_noisy_reports_cannot_tell_and_say_how_many_would():
    panel, _ = panel_of(800, link=0.3, keep=0.7)
    row = panel["proxy_effect"]
    assert row["verdict"] == "cannot tell"
    assert row["tone"] == "unclear"
    assert re.search(r"About [\d,]+ policies|larger epsilon", row["decide"])


def test_the_effect_of_a_list_and_of_the_list_in_force():
    X, y, S, channel = book(5000, link=0.8)
    roles = {"sensitive": S, "channel": channel}
    pricer = DiscriminationFreePricer(channel=channel, random_state=0).fit(X, y, sensitive=S)
    free, unaware = pricer.predict(X), pricer.predict_unaware(X)
    summary = fa.summarize_prices(1.2 * free, y, X=X, pricer=pricer, current=1.2 * unaware, **roles)
    rows = {row["id"]: row for row in summary["panel"]}
    assert rows["proxy_effect"]["verdict"] == "beyond"  # the list in force
    assert rows["proxy_effect_of_list"]["verdict"] == "within"  # the new list is h* with a loading
    assert rows["proxy_effect_of_list"]["value"] == pytest.approx(0, abs=1e-9)
    assert rows["balance"]["answer"].startswith("No, they are higher")
    assert rows["balance"]["tone"] == "plain"  # expenses may explain it
    without = fa.summarize_prices(free, y, **roles)
    assert {row["id"]: row["answer"] for row in without["panel"]}["proxy_effect_of_list"] == "Not measured"


@pytest.mark.parametrize("is_alike", [True, False])
def test_a_list_that_charges_a_part_of_the_cost_does_not_charge_for_the_group(is_alike):
    n = 8000
    rng = np.random.default_rng(0)
    D = rng.choice(["F", "M"], n)
    age, power = rng.normal(40 + 8 * (D == "M"), 10), rng.normal(0, 10, n)
    X = pd.DataFrame({"age": age} if is_alike else {"age": age, "power": power})
    cost = 100 + 2 * (age - 44) + (0 if is_alike else 2 * power)  # the group costs nothing
    y = cost + rng.normal(0, 10, n)
    lists = {
        "flat": np.full(n, y.mean()),
        "half": 100 + (cost - 100) / 2,
        "cost": cost,
        "group": cost + 20 * (D == "M"),
    }
    rows = {}
    for name, prices in lists.items():
        summary = fa.summarize_prices(prices, y, sensitive=D, X=X)
        rows[name] = answers(summary)["proxy_effect_of_list"]
        if name == "flat":
            records = next(s for s in summary["sections"] if s["id"] == "list_discrimination")["records"]
            shares = [r for r in records if r["price"] == "premiums" and r["measure"].startswith("proxy_")][:2]
            assert {(r["value"], r["note"]) for r in shares} == {(None, "the price is the same for all")}
    assert rows["flat"]["verdict"] == rows["cost"]["verdict"] == "within"
    assert rows["flat"]["high"] == 0
    assert rows["half"]["verdict"] in (("cannot tell", "within") if is_alike else ("within",))
    assert rows["group"]["verdict"] == "beyond"


def test_the_interval_of_the_effect_holds_the_truth():
    """Coverage over samples is at least the level: the two sources of error are added."""
    truth, inside, samples = 20 * 0.5 * 0.5, 0, 60
    for seed in range(samples):
        X, y, S, channel = book(1500, link=0.5, seed=10 * seed)
        pricer = DiscriminationFreePricer(channel=channel, correction="inverse", pooling=0).fit(X, y, sensitive=S)
        effect = measure_proxy_effect(
            pricer.predict_unaware(X), pricer.predict(X), X, pricer=pricer, sensitive=S, channel=channel
        )
        inside += effect.low < truth < effect.high
    assert inside >= samples * 0.95 - 3 * np.sqrt(samples * 0.95 * 0.05)


def test_disparity_is_tested_and_the_factor_that_carries_it_is_named():
    panel, _ = panel_of(6000, link=0.8)
    assert panel["premium_ratio"]["verdict"] == "within"
    row = panel["standardized_difference"]
    assert row["verdict"] in ("within", "beyond", "cannot tell")
    X, y, S, channel = book(6000, link=0.8)
    prices = np.where(X["colour"] == "red", 200.0, 100.0)
    summary = fa.summarize_prices(prices, y, sensitive=S, channel=channel, X=X)
    rows = {r["id"]: r for r in summary["panel"]}
    assert rows["premium_ratio"]["verdict"] == "beyond"  # 190 against 110
    assert rows["standardized_difference"]["verdict"] == "beyond"
    assert "the factor colour carries" in rows["standardized_difference"]["number"]


def test_decisions_come_from_their_table():
    from fairpremium.audit.report._panel import _decision_row

    record = {"group": "a", "against": "b", "ratio": 0.6, "ratio_low": 0.5, "ratio_high": 0.7}
    row = _decision_row([record], {"rows": 1000}, 0.8)
    assert row["verdict"] == "beyond"
    assert "0.60 (0.50 to 0.70)" in row["number"]
    assert _decision_row([{**record, "ratio": None}], {"rows": 1000}, 0.8)["verdict"] == "cannot tell"


def answers(summary):
    return {row["id"]: row for row in summary["panel"]}


@pytest.mark.parametrize("channel", [None, CHANNEL], ids=["true attribute", "reports"])
@pytest.mark.parametrize("seed", [0, 4, 7])
def test_a_group_without_favourable_decisions_is_beyond(channel, seed):
    D = np.tile(np.repeat(["a", "b"], 500), 5)
    decisions = np.where((D == "b") & (np.arange(5000) % 5 > 0), "yes", "no")
    S = D if channel is None else channel.privatize(D, rng=seed)
    prices = 100.0 + np.arange(5000) % 7
    roles = {"sensitive": S, "channel": channel, "decisions": decisions, "favourable": "yes", "against": "b"}
    summary = fa.summarize_prices(prices, prices, **roles)
    row = answers(summary)["adverse_impact"]
    assert (row["verdict"], row["low"]) == ("beyond", 0.0)
    assert row["high"] < 0.1
    fa.render_report(summary)


def test_decisions_and_premiums_are_judged_in_all_pairs():
    n = 20000
    rng = np.random.default_rng(0)
    D = rng.choice(["a", "b", "c"], n, p=[0.3, 0.4, 0.3])
    chance = pd.Series(D).map({"a": 0.70, "b": 0.80, "c": 0.96}).to_numpy()
    decisions = np.where(rng.random(n) < chance, "yes", "no")
    prices = 100 + pd.Series(D).map({"a": -1.5, "b": 0.0, "c": 1.5}).to_numpy() + rng.normal(0, 10, n)
    summary = fa.summarize_prices(prices, prices, sensitive=D, decisions=decisions, favourable="yes")
    row = answers(summary)["adverse_impact"]
    assert row["verdict"] == "beyond"  # 0.70 of 0.96; both keep four fifths of the largest group
    assert "a against c" in row["number"]
    checks = next(s for s in summary["sections"] if s["id"] == "threshold_check")["records"]
    assert [r["answer"] for r in checks if (r["quantity"], r["group"], r["against"]) == ("decision", "a", "c")] == [
        "beyond"
    ]
    row = answers(summary)["standardized_difference"]
    assert row["verdict"] == "beyond"  # 0.3, though both are 0.15 from the largest group
    assert "than c" in row["number"]


def test_a_group_without_numbers_is_not_cleared_but_named():
    rng = np.random.default_rng(0)
    D = rng.permutation(np.repeat(["a", "b", "c"], [1800, 1160, 40]))
    prices = pd.Series(D).map({"a": 100.0, "b": 97.0, "c": 300.0}).to_numpy() + rng.normal(0, 20, 3000)
    found = answers(fa.summarize_prices(prices, prices, sensitive=D))
    for name in ("premium_ratio", "standardized_difference"):
        assert found[name]["verdict"] == "cannot tell"
        assert "c: too few effective reports (40" in found[name]["number"]
        assert "epsilon" not in found[name]["answer"] + found[name]["decide"]  # the true attribute was used


def test_privacy_names_what_was_collected_and_what_was_added():
    X, y, S, _ = book(2000, link=0.5)
    twice = RandomizedResponse(["a", "b"], keep=0.75)
    pricer = DiscriminationFreePricer(channel=twice, correction="inverse", pooling=0).fit(X, y, sensitive=S)
    release = {"epsilon": 2.0, "delta": 0.0, "reports": 1990}
    summary = fa.summarize_pricer(pricer, X, y, sensitive=S, collected=CHANNEL, release=release, count_in=5)
    row = next(row for row in summary["panel"] if row["id"] == "privacy")
    assert "1.39-differentially private" in row["number"]
    assert "epsilon 2" in row["number"]
    text = fa.render_markdown(summary)
    assert "1.386, of the channel through which reports were collected" in text
    assert "a report as this audit sees it, after both, has epsilon 1.099" in text
    assert "About 1,990 of 2,000 policies" in text
    noised = {**release, "epsilon": 1.0, "delta": 1e-6, "audit_epsilon": 2.0}
    summary = fa.summarize_pricer(pricer, X, y, sensitive=S, collected=CHANNEL, release=noised, count_in=5)
    said = (
        "added noise of epsilon 1, delta 1.0e-06 to the prices, and randomized the reports of this audit once more, "
        "with epsilon 2; a report as this audit sees it, after both randomizations, has epsilon 1.099"
    )
    assert said in fa.render_markdown(summary)
    assert said in fa.render_report(summary)
    true = fa.summarize_prices(y, y, sensitive=np.where(S == "a", "a", "b"))
    assert next(r for r in true["panel"] if r["id"] == "privacy")["answer"] == "No"


def test_panel_and_findings_agree():
    _, summary = panel_of(6000, link=0.0)
    panel = {row["id"]: row for row in summary["panel"]}
    balance = next(f for f in summary["findings"] if f["heading"] == "Do premiums add up to losses?")
    assert ("which is balance" in balance["text"]) is (panel["balance"]["verdict"] == "within")


# --- amounts ---


def test_places_follow_the_standard_error():
    assert choose_places([434.2, 389.1], [2.8, 3.1]) == 0
    assert choose_places([43.5], [0.28]) == 1
    assert choose_places([0.00429], [0.00011]) == 4
    assert choose_places([], []) == 0
    assert choose_places([0.0], [0.02]) == 2
    assert choose_places([12345.6], [0.001]) == 0  # four digits are enough
    assert [format_price(v, places=1) for v in (-0.04, -0.06, 1234.56)] == ["0.0", "-0.1", "1,234.6"]


def test_a_frequency_is_shown_per_thousand():
    _, y, S, channel = book(3000, link=0.5)
    roles = {"sensitive": S, "channel": channel, "unit": "claims a year"}
    small = fa.summarize_prices(y / 1e5, y / 1e5, **roles)
    assert small["scale"] == 1000
    assert small["amounts"] == "claims a year per 1,000 policies"
    mean = next(s for s in small["sections"] if s["id"] == "group_means")["records"][0]["premium"]
    assert mean == pytest.approx(0.00118, rel=0.2)  # plain data stay in the unit
    text = fa.render_markdown(small)
    assert "0.001" not in text.split("## Difference")[0].split("## Premium and loss by group")[1]
    assert "per 1,000 policies" in fa.render_report(small)
    weighted = fa.summarize_prices(y / 1e5, y / 1e5, sample_weight=np.full(3000, 0.5), **roles)
    assert weighted["amounts"].endswith("per 1,000 units of volume")
    assert fa.summarize_prices(y, y, **roles)["scale"] == 1


# --- classes ---


def test_classes_are_those_of_the_factors_that_proxies_act_through():
    X, *_ = book(2000, link=0.5)
    shift = np.where(X["colour"] == "red", 5.0, -5.0)
    classes = choose_classes(X, shift, np.ones(2000))
    assert all(name.startswith("colour: ") for name in classes.cat.categories)
    assert len(classes.cat.categories) <= 8
    assert {name.split(",")[0] for name in classes.cat.categories} == {"colour: red", "colour: blue"}
    constant = pd.DataFrame({"one": np.ones(100)})
    assert choose_classes(constant, np.zeros(100), np.ones(100)) is None
    rare = X.assign(rare=np.arange(2000) < 10)  # ten rows are too few for classes of their own
    assert not any("rare" in name for name in choose_classes(rare, shift, np.ones(2000)).cat.categories)


def test_the_comparison_has_classes_by_default():
    p = zhang_liu_shi_2025(n=2000, rng=0, age_band=True)
    pricer = DiscriminationFreePricer(pooling=0).fit(p.X, p.y, sensitive=p.sensitive)
    summary = fa.summarize_pricer(pricer, p.X, p.y, sensitive=p.sensitive)
    classes = next(s for s in summary["sections"] if s["id"] == "price_comparison")["classes"]
    assert len(classes) == 4
    assert all("smoker" in c["risk_class"] for c in classes)
    assert not any(s["id"].endswith("_by_class") for s in summary["sections"])


# --- who it is about ---


def test_details_are_shown_and_what_is_missing_is_called_so(tmp_path):
    _, y, S, channel = book(2000, link=0.5)
    details = fa.ReportDetails(insurer="A <b> & Co", tariff_version="Motor 1", prepared_by="P. Doe, actuary")
    summary = fa.summarize_prices(y, y, sensitive=S, channel=channel, details=details)
    page = fa.render_report(summary)
    assert "A &lt;b&gt; &amp; Co" in page
    assert "Motor 1" in page
    assert "P. Doe, actuary" in page
    assert page.count("not given") >= 3  # period, unit, approval
    fa.save_report(summary, tmp_path / "r.json")
    read = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    assert read["panel"] == summary["panel"]
    assert read["details"]["insurer"] == "A <b> & Co"
    with pytest.raises(ValueError, match="insurer='xxx"):
        fa.ReportDetails(insurer="x" * 201)
    assert page.index('id="panel"') < page.index('id="summary"') < page.index('id="group_means"')


# --- PDF ---


def pages_of(pdf):
    """The number of pages, from the tree of pages."""
    texts = [pdf, *(_inflated(part) for part in re.findall(rb"stream\r?\n(.*?)endstream", pdf, re.S))]
    return max(int(n) for text in texts for n in re.findall(rb"/Type\s*/Pages[^>]*?/Count (\d+)", text) or [0])


def _inflated(data):
    try:
        return zlib.decompressobj().decompress(data)
    except zlib.error:
        return b""


def everything_in(pdf):
    return b"\n".join([pdf, *(_inflated(part) for part in re.findall(rb"stream\r?\n(.*?)endstream", pdf, re.S))])


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    p = zhang_liu_shi_2025(n=5000, rng=2025, age_band=True)
    channel = RandomizedResponse(p.groups, keep=0.8)
    S = channel.privatize(p.sensitive, rng=0)
    pricer = DiscriminationFreePricer(channel=channel, random_state=0).fit(p.X, p.y, sensitive=S)
    path = tmp_path_factory.mktemp("pdf") / "report.pdf"
    details = fa.ReportDetails("Acme Insurance", "Motor 2026")
    summary = fa.write_report(
        pricer, p.X, p.y, sensitive=S, path=path, title="Motor", unit="EUR a year", details=details
    )
    return path.read_bytes(), summary


def test_the_pdf_has_text_fonts_and_at_most_ten_pages(printed):
    pdf, _ = printed
    assert pdf.startswith(b"%PDF")
    assert 4 <= pages_of(pdf) <= 10
    content = everything_in(pdf)
    assert b"/FontFile" in content  # fonts are embedded
    assert b"/ToUnicode" in content  # and text can be searched
    assert b"/StructTreeRoot" in content  # and read aloud
    assert b"/Image" not in content.replace(b"/ImageB", b"").replace(b"/ImageC", b"").replace(b"/ImageI", b"")


def test_a_page_that_asks_for_something_else_is_not_printed(tmp_path):
    outside = tmp_path / "secret.png"
    outside.write_bytes(b"")
    for address in ("http://127.0.0.1:9/x.png", outside.as_uri()):
        with pytest.raises(ValueError, match="stands alone"):
            fa.render_pdf(f'<img src="{address}">')


def test_without_weasyprint_it_says_so_before_any_work(monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "weasyprint", None)
    with pytest.raises(MissingExtraError, match=r"fairpremium\[pdf\]"):
        fa.write_report(None, None, None, sensitive=None, path=tmp_path / "report.pdf")


def test_without_pango_it_names_the_package(monkeypatch):
    import importlib

    def broken(name):
        raise OSError("cannot load library 'libpango-1.0-0'")

    monkeypatch.setattr(importlib, "import_module", broken)
    with pytest.raises(MissingExtraError, match="apt-get install libpango"):
        fa.check_pdf()
