"""The report: the same numbers as the tables, in words, as a page that stands alone, as Markdown and as JSON."""

from __future__ import annotations

import copy
import inspect
import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.tree import DecisionTreeRegressor

from fairpremium import BoostedModel, Channel, DiscriminationFreePricer, RandomizedResponse, ValidationNoise
from fairpremium import audit as fa
from fairpremium.audit import _summary
from fairpremium.audit._audit_report import _FORMS
from fairpremium.audit._findings import _calibrated, _thresholds
from fairpremium.audit._plot_functions import _DRAWINGS, draw
from fairpremium.audit.drawing import format_percent, to_svg
from fairpremium.errors import MissingExtraError
from fairpremium.portfolios import unbalanced_poisson, zhang_liu_shi_2025


@pytest.fixture(scope="module")
def portfolio():
    return zhang_liu_shi_2025(n=3000, rng=0, age_band=True)


@pytest.fixture(scope="module")
def reports(portfolio):
    return RandomizedResponse(portfolio.groups, keep=0.8).privatize(portfolio.sensitive, rng=0)


@pytest.fixture(scope="module")
def pricer(portfolio, reports):
    channel = RandomizedResponse(portfolio.groups, keep=0.8)
    return DiscriminationFreePricer(channel=channel, random_state=0).fit(portfolio.X, portfolio.y, sensitive=reports)


@pytest.fixture(scope="module")
def summary(pricer, portfolio, reports):
    return fa.summarize_pricer(
        pricer, portfolio.X, portfolio.y, sensitive=reports, by="smoker", truth=portfolio, title="A <b>title</b>",
        unit="EUR", notes=("A & B",), hashes={"x.csv": "ab" * 32},
    )  # fmt: skip


@pytest.fixture(scope="module")
def list_summary(portfolio, reports):
    return fa.summarize_prices(
        portfolio.y.mean() + 0 * portfolio.y, portfolio.y, sensitive=reports, channel=RandomizedResponse(
            portfolio.groups, keep=0.8
        ), by=np.where(portfolio.X["smoker"], "smoker", "other"),
    )  # fmt: skip


@pytest.fixture(scope="module")
def page(summary):
    return fa.render_report(summary)


def section(summary, name):
    return next(s for s in summary["sections"] if s["id"] == name)


# --- the numbers ---


def test_the_summary_is_plain_data(summary, list_summary, pricer):
    for content in (summary, list_summary):
        assert json.loads(json.dumps(content, allow_nan=False)) == content
    assert summary["privacy"]["epsilon"] == pricer.channel_.epsilon
    assert summary["privacy"]["odds"] == pytest.approx(4)
    assert summary["rows"] == 3000
    assert summary["groups"] == ["F", "M"]
    assert list_summary["model"] is None


def test_the_tables_are_those_of_the_functions(summary, pricer, portfolio, reports):
    roles = {"sensitive": reports, "channel": pricer.channel_}
    premiums = pricer.predict(portfolio.X)
    means = fa.compute_group_means(premiums, portfolio.y, **roles)
    found = pd.DataFrame(section(summary, "group_means")["records"])
    pd.testing.assert_frame_equal(found, means, check_dtype=False)
    change = fa.compute_premium_change(pricer.predict_unaware(portfolio.X), premiums, **roles)
    assert section(summary, "premium_change")["records"][1]["change"] == pytest.approx(change["change"].iloc[1])
    classes = section(summary, "price_comparison")["classes"]
    smoker = portfolio.X["smoker"].to_numpy()
    by_name = {c["risk_class"]: c for c in classes}
    mean = by_name["smoker: True"]["discrimination_free"]["mean"]
    assert mean == pytest.approx(premiums[smoker].mean())


def test_each_of_several_attributes_has_tables_of_its_own(pricer, portfolio, reports):
    channel = RandomizedResponse(["no", "yes"], keep=0.7)
    other = channel.privatize(np.where(portfolio.X["smoker"], "yes", "no"), rng=1).astype(object)
    other[:500] = None  # rows that told the one and not the other
    each = {"sex": (reports, pricer.channel_), "smoker": (other, channel)}
    summary = fa.summarize_pricer(pricer, portfolio.X, portfolio.y, sensitive=reports, by_attribute=each)
    premiums = pricer.predict(portfolio.X)
    found = {}
    for name, (told, its_channel) in each.items():
        table = fa.compute_group_means(premiums, portfolio.y, sensitive=told, channel=its_channel)
        found |= {f"{name}: {row['group']}": row for row in table.to_dict("records")}
    records = {row["group"]: row for row in section(summary, "group_means_by_attribute")["records"]}
    assert [group.replace("everyone", "None") for group in records] == list(found)
    for group in ("sex: F", "smoker: no", "smoker: yes"):
        assert records[group]["premium_low"] == pytest.approx(found[group]["premium_low"])
    rows = section(summary, "demographic_disparity_by_attribute")["records"]
    pairs = {(row["group"], row["against"]) for row in rows}
    assert {("sex: F", "sex: M"), ("smoker: no", "smoker: yes"), ("smoker: no", "smoker: everyone")} <= pairs
    assert {row["group"].partition(":")[0] for row in section(summary, "loss_ratio_gap_by_attribute")["records"]} == {
        "sex", "smoker"
    }  # fmt: skip
    assert "Loss ratio by attribute" in fa.render_report(summary)


def test_everything_that_was_promised_is_there(summary, list_summary):
    wanted = [
        "price_comparison", "prices_by_group", "discrimination", "premium_change", "premium_change_by_decile",
        "premium_change_by_class", "adverse_selection", "group_means", "demographic_disparity", "loss_ratio_gap",
        "calibration", "balance", "lorenz", "gini", "group_deviance", "group_means_by_class",
        "loss_ratio_gap_by_class", "keep_sensitivity",
    ]  # fmt: skip
    assert [s["id"] for s in summary["sections"]] == wanted
    assert [s["id"] for s in list_summary["sections"]] == wanted[7:]
    assert len(summary["model"]["candidates"]) > 1


def test_a_band_of_the_premium_is_printed(portfolio, reports):
    channel = RandomizedResponse(portfolio.groups, keep=0.8)
    pricer = DiscriminationFreePricer(channel=channel, correction="inverse", pooling=0)
    pricer.fit(portfolio.X, portfolio.y, sensitive=reports)
    band = pricer.sensitivity(portfolio.X, portfolio.y, sensitive=reports, rows=[3, 4], keeps=[0.75, 0.9])
    more = {"sensitive": reports, "band": band, "keep": (0.75, 0.9)}
    summary = fa.summarize_pricer(pricer, portfolio.X, portfolio.y, **more)
    assert [row["row"] for row in section(summary, "premium_band")["records"]] == [3, 4]
    assert section(summary, "premium_band")["records"][0]["premium_highest"] == pytest.approx(
        band[band["row"] == 3]["premium"].max()
    )
    text = fa.render_markdown(summary)
    assert "Over the channels that are possible: premiums" in text
    assert "Over the channels that are possible: groups" in text


def test_the_fingerprints_change_with_the_data(portfolio, reports):
    channel = RandomizedResponse(portfolio.groups, keep=0.8)

    def digest(y):
        return fa.summarize_prices(portfolio.y, y, sensitive=reports, channel=channel)["hashes"]["audited columns"]

    assert digest(portfolio.y) == digest(portfolio.y.copy())
    assert digest(portfolio.y) != digest(portfolio.y + 1e-9)


def test_the_model_file_is_the_one_that_is_saved(summary, pricer, tmp_path):
    pricer.save(tmp_path / "model.json")
    inside = json.loads((tmp_path / "model.json").read_text())["sha256"]
    assert summary["hashes"]["content of the model file (its field sha256)"] == inside


# --- the words ---


def finding(summary, heading):
    return next(f for f in summary["findings"] if f["heading"] == heading)


def test_the_summary_says_what_the_tables_say(summary, list_summary):
    pays = finding(summary, "Who pays what")["text"]
    for row in section(summary, "group_means")["records"]:
        assert f"{row['group']} pays {row['premium']:.0f}" in pays
    same = finding(list_summary, "Who pays what")["text"]
    assert "chance alone could explain it" in same
    costs = finding(list_summary, "Who costs what")
    assert costs["tone"] == "attention"  # one price for all, and women cost more
    assert "F pays less" in costs["text"]
    assert "intends this" in finding(summary, "Who costs what")["text"]
    assert "probability 80.0" in finding(summary, "Privacy")["text"]


@pytest.mark.parametrize("part", ["findings", "build_panel"])
@pytest.mark.parametrize("book", ["model", "list"])
def test_numbers_and_limits_that_are_not_known_are_left_out(monkeypatch, portfolio, reports, pricer, part, book):
    """A ratio has no limits where its denominator is not told apart from zero: any of them may be missing."""
    asked, tell = [], getattr(_summary, part)
    monkeypatch.setattr(_summary, part, lambda *a, **more: asked.append((a, more)) or tell(*a, **more))
    y, roles = portfolio.y, {"sensitive": reports, "channel": RandomizedResponse(portfolio.groups, keep=0.8)}
    if book == "model":
        fa.summarize_pricer(pricer, portfolio.X, y, sensitive=reports, by="smoker")
    else:
        fa.summarize_prices(pricer.predict(portfolio.X), y, **roles)
    ((tables, *others), more) = asked[0]
    for name, rows in tables.items():
        for i, row in enumerate(rows):
            for column in (c for c, value in row.items() if isinstance(value, float)):
                blank = {c: None for c in row if c == column or c.startswith(f"{column}_")}
                changed = [*rows[:i], {**row, **blank}, *rows[i + 1 :]]
                said = json.dumps(tell({**tables, name: changed}, *others, **more), default=str)
                assert not re.search(r"\b(None|nan)\b", said), (name, column)


def test_combinations_without_limits_are_not_counted(summary):
    tables = {section["id"]: copy.deepcopy(section["records"]) for section in summary["sections"]}
    rows = [row for row in tables["calibration"] if row["group"] is not None and row["difference_low"] is not None]
    before = _calibrated(tables, summary, True)["text"]
    rows[0]["difference_low"] = rows[0]["difference_high"] = None
    after = _calibrated(tables, summary, True)["text"]
    assert f"Of {len(rows)} combinations" in before
    assert f"Of {len(rows) - 1} combinations" in after


def test_a_calibrated_price_is_in_order():
    rng = np.random.default_rng(0)
    D = rng.choice(["a", "b"], 5000)
    mu = np.where(D == "a", 1.0, 2.0) * rng.uniform(0.5, 1.5, 5000)
    channel = RandomizedResponse(["a", "b"], keep=0.9)
    S, error = channel.privatize(D, rng=1), rng.normal(size=5000)
    y = np.concatenate([mu + error, mu - error])  # of two equal people one costs as much more as the other less
    summary = fa.summarize_prices(np.tile(mu, 2), y, sensitive=np.tile(S, 2), channel=channel)
    assert finding(summary, "Who costs what")["tone"] == "good"
    assert finding(summary, "Are premiums calibrated?")["tone"] == "good"
    assert "which is balance to within 5" in finding(summary, "Do premiums add up to losses?")["text"]


def test_small_groups_are_named_and_not_numbered():
    rng = np.random.default_rng(0)
    D = np.where(rng.random(4000) < 0.01, "rare", np.where(rng.random(4000) < 0.5, "a", "b"))
    channel = RandomizedResponse(["a", "b", "rare"], keep=0.7)
    summary = fa.summarize_prices(
        rng.random(4000), rng.random(4000), sensitive=channel.privatize(D, rng=0), channel=channel
    )
    assert "rare" in finding(summary, "What cannot be said")["text"]
    text = fa.render_markdown(summary)
    assert text.count("too few effective reports") > 5
    assert "rare pays" not in text


def test_the_true_attribute_and_a_channel_without_privacy_are_called_so(portfolio):
    true = fa.summarize_prices(portfolio.y, portfolio.y, sensitive=portfolio.sensitive)
    assert "no privacy guarantee" in fa.render_markdown(true)
    assert "keep_sensitivity" not in [s["id"] for s in true["sections"]]
    open_channel = Channel([[0.8, 0.0], [0.2, 1.0]], groups=["F", "M"])
    S = open_channel.privatize(portfolio.sensitive, rng=0)
    summary = fa.summarize_prices(portfolio.y, portfolio.y, sensitive=S, channel=open_channel)
    assert summary["privacy"]["epsilon"] is None
    assert "rules a group out" in fa.render_markdown(summary)


def test_an_estimated_channel_is_called_so(portfolio, reports):
    noise = ValidationNoise(portfolio.sensitive[:400], reports[:400])
    pricer = DiscriminationFreePricer(channel=noise, correction="inverse", pooling=0)
    pricer.fit(portfolio.X, portfolio.y, sensitive=reports)
    summary = fa.summarize_pricer(pricer, portfolio.X, portfolio.y, sensitive=reports)
    assert summary["privacy"]["source"].startswith("estimated, not declared")
    assert any("too narrow by its error" in limit for limit in summary["limits"])


def test_another_family_exposure_missing_reports_and_no_intervals():
    p = unbalanced_poisson(n=6000, rng=0)
    S = np.where(np.arange(6000) % 7 == 0, None, p.sensitive)
    pricer = DiscriminationFreePricer(family="poisson", intervals=False, pooling=10)
    pricer.fit(p.X, p.y, sensitive=S, sample_weight=p.sample_weight)
    summary = fa.summarize_pricer(pricer, p.X, p.y, sensitive=S, sample_weight=p.sample_weight, truth=p)
    assert summary["missing_reports"] == 858
    text = fa.render_markdown(summary)
    assert "weighted by volume" in text
    assert "Its interval" not in text
    assert "Error of the premium as a forecast" in text


# --- the page ---


class Page(HTMLParser):
    def __init__(self):
        super().__init__()
        self.sources, self.tags, self.ids, self.targets = [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        for key, value in attrs:
            if key == "id":
                self.ids.append(value)
            if key in ("src", "href", "xlink:href"):
                (self.targets if value.startswith("#") else self.sources).append(value)


def parse(html):
    parser = Page()
    parser.feed(html)
    return parser


def test_the_page_stands_alone(page):
    parser = parse(page)
    assert parser.sources == []
    assert not {"script", "link", "iframe", "img"} & set(parser.tags)
    assert "url(http" not in page
    assert {t[1:] for t in parser.targets if not t.startswith("#clip")} <= set(parser.ids)


def test_the_page_says_what_it_must(page, summary):
    assert all(f["text"] in page.replace("&#39;", "'").replace("&amp;", "&") for f in summary["findings"])
    text = re.sub(r"\s+", " ", page)
    for piece in (
        "epsilon", "1.386", summary["version"], "ab" * 32, "A &amp; B", "A &lt;b&gt;title", "Candidates, and why",
        "What is not guaranteed", "Definitions", "declared when the prices were fitted", "chosen: ",
    ):  # fmt: skip
        assert piece in text
    assert not {"nan", "none", "inf"} & set(re.sub(r"<[^>]*>", " ", text).lower().split()) - {"none"}
    assert page.count("<figure") == 16
    assert page.count("<svg") > 16  # one for each panel
    assert len(page) < 600_000


def test_columns_of_words_are_aligned_like_words(page):
    cells = re.findall(r'<td data-label="Group"( class="word")?>', page)
    assert cells
    assert all(cells)
    assert '<th scope="col" class="word">Group</th>' in page
    assert not re.search(r'<td data-label="(?:Premium|Loss|Share|Its interval)" class="word"', page)


def test_text_is_escaped_in_classes_too(summary):
    hostile = copy.deepcopy(summary)
    section(hostile, "price_comparison")["classes"][0]["risk_class"] = "<script>alert(1)</script>"
    section(hostile, "group_means_by_class")["records"][0]["risk_class"] = "<script>alert(2)</script>"
    hostile["sections"] = [section(hostile, name) for name in ("price_comparison", "group_means_by_class")]
    assert "<script" not in fa.render_report(hostile)


def test_scripts_only_on_request(summary):
    short = {**summary, "sections": [section(summary, "group_means")]}
    html = fa.render_report(short, interactive=True)
    parser = parse(html)
    assert parser.tags.count("script") == 1
    assert parser.sources == []
    assert html.count("</script") == 1
    assert 0.5e6 < len(html) - len(fa.render_report(short)) < 1.5e6  # the drawing library, about a megabyte


def test_json_and_markdown_hold_the_same(pricer, portfolio, reports, tmp_path):
    settings = {"sensitive": reports, "by": "smoker"}
    returned = fa.write_report(pricer, portfolio.X, portfolio.y, path=tmp_path / "report.json", **settings)
    assert json.loads((tmp_path / "report.json").read_text(encoding="utf-8")) == returned
    fa.save_report(returned, tmp_path / "report.md")
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert f"{section(returned, 'group_means')['records'][0]['premium']:.0f}" in text
    for finding in returned["findings"]:
        assert finding["text"] in text
    assert sum(line.startswith("|") for line in text.splitlines()) > 60
    assert "<" not in text


def test_markdown_has_the_shares_of_the_groups(summary):
    text = fa.render_markdown(summary)
    for group in summary["model"]["groups"]:
        assert f"{group['group']}: {format_percent(group['share'])} of the portfolio (estimated), weight" in text


def test_labels_open_no_cell_tag_or_line_in_markdown():
    rng = np.random.default_rng(0)
    groups = ["a|b", "<i>c\n# d", "e\\"]
    S = np.array(groups, dtype=object)[rng.integers(0, 3, 900)]
    summary = fa.summarize_prices(
        rng.random(900), rng.random(900), sensitive=S, by=np.where(rng.random(900) < 0.5, "p|q", "<b>\nr"),
        title="Ours |\n<script>", unit="EUR | <year>",
    )  # fmt: skip
    text = fa.render_markdown(summary)
    lines = text.splitlines()
    assert "<" not in text
    assert lines[0] == "# Ours \\| &lt;script>"
    assert "# d" not in lines
    assert r"a\|b" in text
    assert r"e\\" in text
    tables = [[]]
    for line in lines:
        if line.startswith("|"):
            tables[-1].append(len(re.findall(r"(?<!\\)(?:\\\\)*\|", line)))
        elif tables[-1]:
            tables.append([])
    assert len(tables) > 5
    assert all(len(set(counts)) == 1 for counts in tables if counts)


def test_more_groups_than_a_report_can_show():
    rng = np.random.default_rng(0)
    h, y = rng.random(4000), rng.random(4000)
    many = np.arange(4000) % 21
    with pytest.raises(ValueError, match="21 groups, but an audit report shows at most 20; merge them first"):
        fa.summarize_prices(h, y, sensitive=many)
    assert len(fa.compute_group_means(h, y, sensitive=many)) == 21  # the tables have no limit
    most = fa.render_report(fa.summarize_prices(h, y, sensitive=np.arange(4000) % 20))
    assert most.count("<svg") > 4


def test_another_ending_is_refused_before_any_work(pricer, portfolio, reports, tmp_path):
    with pytest.raises(ValueError, match=r"\.html, \.pdf, \.md or \.json"):
        fa.write_report(pricer, None, None, sensitive=reports, path=tmp_path / "report.docx")


def test_polars_features(portfolio, reports, pricer):
    X = pl.from_pandas(portfolio.X)
    summary = fa.summarize_pricer(pricer, X, portfolio.y, sensitive=reports, by="smoker")
    assert {c["risk_class"] for c in section(summary, "price_comparison")["classes"]} == {
        "smoker: True",
        "smoker: False",
    }


@pytest.mark.parametrize(
    ("value", "text"), [(0.00004, "0.0 %"), (-0.00004, "0.0 %"), (0.0123, "+1.2 %"), (-0.2, "-20.0 %"), (None, "none")]
)
def test_a_change_of_zero_has_no_sign(value, text):
    assert _FORMS["change"](value).replace("\N{NO-BREAK SPACE}", " ") == text


def test_ratios_are_counted_and_only_those_beyond_are_named():
    def rows(answer, number):
        pair = {"quantity": "premium", "against": "x", "at_least": 0.8, "at_most": 1.25, "answer": answer}
        return [{**pair, "group": f"{answer} {i}"} for i in range(number)]

    found = _thresholds({"threshold_check": rows("within", 1) + rows("beyond", 4) + rows("cannot tell", 2)})
    assert found["text"] == (
        "Of 7 ratios between groups, 1 is within 0.8 to 1.25 and 4 beyond: beyond 0 against x (premium); "
        "beyond 1 against x (premium); beyond 2 against x (premium); and 1 more. For 2 these reports cannot tell; the "
        "table says how many would."
    )
    assert found["tone"] == "attention"
    assert _thresholds({"threshold_check": rows("within", 2)})["tone"] == "plain"


# --- the drawings ---


def test_every_table_has_its_drawing():
    tables = {n.removeprefix("compute_") for n in fa.__all__ if n.startswith("compute_")}
    drawings = {n.removeprefix("plot_") for n in fa.__all__ if n.startswith("plot_")} - {"sensitivity"}
    assert drawings == tables - {"propensities"}
    assert set(_DRAWINGS) == drawings - {"price_comparison"}


def test_a_plot_is_the_drawing_of_its_table(portfolio, reports):
    roles = {"sensitive": reports, "channel": RandomizedResponse(portfolio.groups, keep=0.8)}
    chart = fa.plot_group_means(portfolio.y, portfolio.y, unit="EUR", **roles)
    same = draw("group_means", fa.compute_group_means(portfolio.y, portfolio.y, **roles), unit="EUR")
    assert chart.to_dict() == same.to_dict()
    svg = to_svg(chart)
    words = " ".join(ElementTree.fromstring(svg).itertext())
    assert {"F", "M", "premium", "loss", "mean, EUR"} <= set(re.split(r"\s{2,}|(?<=\S) (?=[A-Z]\b)", words)) | set(
        words.split()
    ) | {"mean, EUR"}
    assert "EUR" in words
    assert "http" not in svg.replace("http://www.w3.org/", "")


@pytest.mark.parametrize("name", sorted(_DRAWINGS))
def test_a_plot_shows_the_arguments_of_its_table_by_name(name):
    compute, plot = getattr(fa, f"compute_{name}"), getattr(fa, f"plot_{name}")
    assert plot.__name__ == f"plot_{name}"
    assert list(inspect.signature(plot).parameters) == [*inspect.signature(compute).parameters, "unit"]
    assert f"As in `compute_{name}`" in plot.__doc__


def test_writing_an_audit_report_shows_its_settings_by_name():
    shown = inspect.signature(fa.write_report).parameters
    assert set(shown) == {*inspect.signature(fa.summarize_pricer).parameters, "path", "interactive"}


def test_a_chart_for_another_page_needs_no_style_and_no_script(summary):
    charts = {s["id"]: fa.render_chart(s, level=summary["level"], unit="EUR") for s in summary["sections"]}
    assert [name for name, svg in charts.items() if svg is None] == ["gini", "group_deviance"]
    for name in ("group_means", "price_comparison"):
        elements = list(ElementTree.fromstring(charts[name]).iter())
        assert len(elements) > 20
        assert not any("style" in e.attrib or "script" in e.tag for e in elements)
        assert "EUR" in charts[name]


@pytest.mark.parametrize("name", sorted(_DRAWINGS))
def test_every_drawing_can_be_made_with_scarce_groups(name, benchmark):
    population = benchmark.Population.with_groups(4)
    data = population.sample(1500, 0.6, np.random.default_rng(0))
    roles = benchmark.roles(data)
    X = pd.DataFrame({"price": data["free"], "kind": np.where(data["free"] > np.median(data["free"]), "high", "low")})
    pair = (data["unaware"], data["free"])
    fit = {**roles, "family": "gamma"}
    arguments = {
        "change_by_factor": ((*pair, X), roles),
        "list_discrimination": ((data["unaware"], X, data["y"]), fit),
        "limit_effect": ((*pair, X, data["y"]), {**fit, "cap": 0.05}),
        "balance": (({"unaware": data["unaware"]}, data["y"]), {}),
        "prices_by_group": (({"unaware": data["unaware"], "mine": data["free"]},), roles),
        "premium_change": ((data["unaware"], data["free"]), {**roles, "bins": 10}),
        "demographic_disparity": ((data["unaware"],), roles),
        "adverse_selection": ((data["unaware"], data["y"], data["mu"]), roles),
        "discrimination": ((data["unaware"],), {**roles, "best_estimate": data["mu"]}),
        "adverse_impact": ((X["kind"],), {**roles, "favourable": "low"}),
        "marginal_effect": ((data["unaware"], X), roles),
        "disparity_drivers": ((data["unaware"], X), roles),
        "threshold_check": ((fa.compute_demographic_disparity(data["unaware"], **roles),), {}),
    }.get(name, ((data["unaware"], data["y"]), roles))
    chart = getattr(fa, f"plot_{name}")(*arguments[0], **arguments[1])
    assert "<svg" in to_svg(chart)


def test_too_many_classes_for_a_drawing(portfolio, reports):
    roles = {"sensitive": portfolio.sensitive, "by": portfolio.X["age"]}
    with pytest.raises(ValueError, match="at most 24"):
        fa.plot_group_means(portfolio.y, portfolio.y, **roles)


@pytest.mark.parametrize(("package", "call"), [("altair", "plot"), ("jinja2", "render"), ("vl_convert", "render")])
def test_without_a_package_it_says_how_to_get_it(package, call, summary, portfolio, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, package, None)
    run = {
        "plot": lambda: fa.plot_balance({"a": portfolio.y}, portfolio.y),
        "render": lambda: fa.render_report({**summary, "sections": [section(summary, "balance")]}),
    }[call]
    with pytest.raises(MissingExtraError, match=r"fairpremium\[report\]"):
        run()


# --- model classes other than linear: nothing is asked of a pricer but its public methods ---


@pytest.mark.parametrize(
    ("model", "is_saved"),
    [(BoostedModel(max_rounds=10, patience=3), True), (DecisionTreeRegressor(max_depth=3, random_state=0), False)],
    ids=["boosted", "tree"],
)
def test_other_model_classes(model, is_saved, portfolio, reports):
    rows = slice(0, 1500)
    X, y, S = portfolio.X.iloc[rows], portfolio.y[rows], reports[rows]
    channel = RandomizedResponse(portfolio.groups, keep=0.8)
    pricer = DiscriminationFreePricer(
        model=model, channel=channel, correction="posterior", intervals=False, random_state=0
    )
    summary = fa.summarize_pricer(pricer.fit(X, y, sensitive=S), X, y, sensitive=S)
    assert {s["id"] for s in summary["sections"]} >= {"price_comparison", "discrimination", "adverse_selection"}
    assert (
        any("model file" in name for name in summary["hashes"]) is is_saved
    )  # a tree of scikit-learn has no model file
    assert json.loads(fa.render_json(summary)) == summary
    assert "How the prices were made" in fa.render_markdown(summary)
