"""The comparison of the three prices: numbers first, then the drawing and the page."""

from __future__ import annotations

import copy
import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from fairpremium import DiscriminationFreePricer, RandomizedResponse
from fairpremium.audit import (
    compute_price_comparison,
    plot_price_comparison,
    render_report,
    summarize_comparison,
    write_report,
)
from fairpremium.audit._plots import to_svg
from fairpremium.errors import MissingExtraError
from fairpremium.portfolios import unbalanced_poisson, zhang_liu_shi_2025


@pytest.fixture(scope="module")
def portfolio():
    return zhang_liu_shi_2025(n=3000, rng=0, age_band=True)


@pytest.fixture(scope="module")
def pricer(portfolio):
    channel = RandomizedResponse(portfolio.groups, keep=0.8)
    reports = channel.privatize(portfolio.sensitive, rng=0)
    return DiscriminationFreePricer(channel=channel, random_state=0).fit(portfolio.X, portfolio.y, sensitive=reports)


@pytest.fixture(scope="module")
def comparison(pricer, portfolio):
    return compute_price_comparison(pricer, portfolio.X, by="smoker", truth=portfolio)


@pytest.fixture(scope="module")
def summary(pricer, comparison):
    return summarize_comparison(
        pricer, comparison, title="A <b>title</b>", unit="EUR", notes=("A & B",), hashes={"x.csv": "ab" * 32}
    )


@pytest.fixture(scope="module")
def page(summary):
    return render_report(summary)


# --- the table ---


def test_means_are_those_of_the_rows(comparison, pricer, portfolio):
    smoker = portfolio.X["smoker"].to_numpy()
    part = comparison[comparison["risk_class"] == True].set_index("price")  # noqa: E712
    X = portfolio.X[smoker]
    best = part.loc["best_estimate"].set_index("group")["mean"]
    np.testing.assert_allclose(best[["F", "M"]], pricer.predict_best_estimate(X).mean())
    assert part.loc["unaware", "mean"] == pytest.approx(pricer.predict_unaware(X).mean())
    assert part.loc["discrimination_free", "mean"] == pytest.approx(pricer.predict(X).mean())
    assert part.loc["discrimination_free", "low"] == pytest.approx(pricer.predict_interval(X).lower.mean())
    assert part.loc["discrimination_free", "truth"] == pytest.approx(portfolio.discrimination_free(X).mean())
    assert part["rows"].unique().tolist() == [smoker.sum()]


def test_the_premium_is_the_weighted_mean_of_the_best_estimates(comparison, pricer):
    for _, part in comparison.groupby("risk_class"):
        values = part.set_index("price")["mean"]
        assert values["discrimination_free"] == pytest.approx(
            values["best_estimate"].to_numpy() @ pricer.reference_distribution_
        )


def test_weights_equal_repeated_rows(pricer, portfolio):
    X = portfolio.X.head(200)
    weight = np.arange(200) % 3
    repeated = X.loc[X.index.repeat(weight)]
    by = np.where(X["age"] > 50, "old", "young")
    a = compute_price_comparison(pricer, X, by=by, sample_weight=weight)
    b = compute_price_comparison(pricer, repeated, by=np.repeat(by, weight))
    columns = ["share", "mean", "low", "high"]
    a, b = (t.set_index(["risk_class", "price", "group"])[columns].sort_index() for t in (a, b))
    pd.testing.assert_frame_equal(a, b)


def test_one_class_by_default(pricer, portfolio):
    table = compute_price_comparison(pricer, portfolio.X)
    assert table["risk_class"].unique().tolist() == ["all"]
    assert "truth" not in table
    assert table["share"].unique().tolist() == [1.0]


def test_classes_keep_the_order_of_their_categories(pricer, portfolio):
    by = pd.Categorical(np.where(portfolio.X["age"] > 50, "old", "young"), ["young", "old", "absent"])
    table = compute_price_comparison(pricer, portfolio.X, by=pd.Series(by))
    assert table["risk_class"].unique().tolist() == ["young", "old"]
    assert compute_price_comparison(pricer, portfolio.X, by=by)["risk_class"].unique().tolist() == ["young", "old"]


def test_many_groups_another_family_and_no_intervals():
    p = unbalanced_poisson(n=4000, rng=0)
    pricer = DiscriminationFreePricer(family="poisson", intervals=False, pooling=10)
    pricer.fit(p.X, p.y, sensitive=p.sensitive, sample_weight=p.sample_weight)
    table = compute_price_comparison(pricer, p.X, truth=p, sample_weight=p.sample_weight)
    assert len(table) == len(p.groups) + 2
    assert table["low"].isna().all()
    to_svg(plot_price_comparison(pricer, p.X, truth=p))
    html = render_report(summarize_comparison(pricer, table, title="Poisson"))
    assert "There is no privacy guarantee" in html
    assert "% interval" not in html


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"by": "town"}, "X has the columns"),
        ({"by": ["a"]}, "by with 1 rows"),
        ({"by": [None] * 3000}, "3000 missing"),
        ({"sample_weight": [1.0]}, "3000 finite volumes"),
        ({"sample_weight": [-1.0] * 3000}, "volumes >= 0"),
        ({"level": 2}, "level=2"),
    ],
)
def test_wrong_arguments(pricer, portfolio, arguments, expected):
    with pytest.raises(ValueError, match=re.escape(expected)):
        compute_price_comparison(pricer, portfolio.X, **arguments)


# --- the drawing ---


def test_the_drawing_holds_every_number(pricer, portfolio, comparison):
    svg = to_svg(plot_price_comparison(pricer, portfolio.X, by="smoker", truth=portfolio, unit="EUR"))
    root = ElementTree.fromstring(svg)
    words = " ".join(text for text in root.itertext())
    for mean in comparison["mean"]:
        assert f"{mean:,.0f}" in words
    for word in ("discrimination-free", "unaware", "best estimate", "EUR", "95 % interval", "the truth"):
        assert word in words
    assert "http" not in svg.replace("http://www.w3.org/", "")


def test_without_altair_it_says_how_to_get_it(pricer, portfolio, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "altair", None)
    with pytest.raises(MissingExtraError, match=r"fairpremium\[report\]"):
        plot_price_comparison(pricer, portfolio.X)


# --- the page ---


def test_the_summary_is_plain_data(summary, pricer):
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    assert summary["channel"]["epsilon"] == pricer.channel_.epsilon
    assert summary["channel"]["odds"] == pytest.approx(4)
    assert summary["rows"] == 3000
    assert [g["group"] for g in summary["groups"]] == ["F", "M"]


def test_the_page_stands_alone(page):
    class Sources(HTMLParser):
        found: list[str] = []  # noqa: RUF012

        def handle_starttag(self, tag, attrs):
            self.found += [v for k, v in attrs if k in ("src", "href", "xlink:href") and not v.startswith("#")]
            assert tag not in ("script", "link", "iframe", "img")

    parser = Sources()
    parser.feed(page)
    assert parser.found == []
    assert "url(http" not in page


def test_the_page_says_what_it_must(page, summary):
    text = re.sub(r"\s+", " ", page)
    for piece in ("epsilon", "1.386", summary["version"], "ab" * 32, "A &amp; B", "A &lt;b&gt;title", "<svg", "not"):
        assert piece in text
    assert "nan" not in re.sub(r"<[^>]*>", " ", text).lower().split()


def test_text_is_escaped_in_classes_too(summary):
    hostile = copy.deepcopy(summary)
    hostile["classes"][0]["risk_class"] = "<script>alert(1)</script>"
    assert "<script" not in render_report(hostile)


def test_the_page_is_written_as_it_is(page, tmp_path):
    write_report(page, tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == page
