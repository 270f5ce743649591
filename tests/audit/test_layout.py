"""Layout of charts and printed pages: long labels are whole, panels share a scale, pages have no holes."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

from fairpremium import RandomizedResponse
from fairpremium import audit as fa
from fairpremium.audit._plot_functions import draw_panels
from fairpremium.audit.drawing import to_svg, wrap
from fairpremium.audit.report._pdf import lay_out

GROUPS = [f"{sex} / {origin}" for sex in ("female", "male") for origin in ("majority", "minority")]
BODIES = [f"{kind}, private use only, including vans that were converted" for kind in ("Bus", "Coupe", "Sedan", "Van")]


@pytest.fixture(scope="module")
def book():
    """Four groups and levels with long names; the last group is scarce."""
    n, rng = 6000, np.random.default_rng(0)
    D = rng.choice(GROUPS, n, p=[0.4, 0.3, 0.28, 0.02])
    X = pd.DataFrame({"vehicle_body": rng.choice(BODIES, n), "age": rng.uniform(18, 80, n)})
    premium = 300 + X["age"] + 40 * (X["vehicle_body"] == BODIES[0])
    channel = RandomizedResponse(GROUPS, keep=0.8)
    S = channel.privatize(D, rng=1)
    return X, premium.to_numpy(), rng.gamma(2, premium / 2), {"sensitive": S, "channel": channel}


@pytest.fixture(scope="module")
def summary(book):
    X, premium, y, roles = book
    more = {"current": premium * 1.02, "decisions": X["vehicle_body"].to_numpy() == BODIES[0], "favourable": False}
    return fa.summarize_prices(
        premium, y, X=X, by=X["vehicle_body"], unit="EUR a year", controls=X[["age"]], threshold=0.8, **more, **roles
    )


def words_in(svg):
    return [e.text for e in ElementTree.fromstring(svg).iter() if e.text and e.text.strip()]


@pytest.mark.parametrize("text", ["F", "", "an_identifier_without_any_blank_that_is_longer_than_a_line", *BODIES])
def test_a_wrapped_label_has_all_letters_and_few_lines(text):
    lines = wrap(text).split("\n")
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert len(lines) <= 4
    assert max(map(len, lines)) <= max(27, len(text) / 2)


def test_no_word_of_a_label_is_cut(summary):
    for section in summary["sections"]:
        svg = fa.render_chart(section, unit=summary["amounts"])
        if svg is not None:
            assert "…" not in svg, section["id"]
    page = fa.render_report(summary)
    assert "…" not in page
    by_id = {s["id"]: s for s in summary["sections"]}
    said = " ".join(words_in(fa.render_chart(by_id["change_by_factor"])))
    for body in BODIES:
        assert body in said
    pairs = " ".join(words_in(fa.render_chart(by_id["demographic_disparity"])))
    assert "female / majority against female / minority" in pairs


def test_panels_that_are_drawn_apart_have_the_scale_of_the_whole_and_one_legend(book):
    X, premium, y, roles = book
    table = fa.compute_group_means(premium, y, by=X["vehicle_body"], **roles)
    panels = [to_svg(chart) for chart in draw_panels("group_means", table)]
    assert len(panels) == len(BODIES)
    ticks = [[w for w in words_in(svg) if re.fullmatch(r"[\d,.]+", w)] for svg in panels]
    assert len(ticks[0]) > 2
    assert all(each == ticks[0] for each in ticks)
    whole = to_svg(fa.plot_group_means(premium, y, by=X["vehicle_body"], **roles))
    assert set(ticks[0]) == {w for w in words_in(whole) if re.fullmatch(r"[\d,.]+", w)}
    assert ["premium" in words_in(svg) for svg in panels] == [True, False, False, False]


def test_premium_and_loss_ratio_have_colours_of_their_own(book):
    _, premium, y, roles = book
    svg = to_svg(fa.plot_standardized_difference(premium, y, **roles))
    points = [e for e in ElementTree.fromstring(svg).iter() if e.attrib.get("aria-roledescription") == "point"]
    assert len({e.attrib["fill"] for e in points}) == 2


def test_a_line_has_a_gap_where_a_group_has_no_number():
    # Group b has the cheap half alone, but for some in the last tenth: its line may not cross the tenths between.
    n = 4000
    old = np.linspace(100, 200, n)
    D = np.where((old < 150) & (np.arange(n) % 2 == 0) | (old > 195), "b", "a")
    table = fa.compute_premium_change(old, old + 1, sensitive=D, bins=10)
    missing = table[(table["group"] == "b") & table["change"].isna()]
    assert 2 < len(missing) < 8
    svg = to_svg(fa.plot_premium_change(old, old + 1, sensitive=D, bins=10))
    lines = [
        e.attrib["d"]
        for e in ElementTree.fromstring(svg).iter()
        if e.attrib.get("aria-roledescription") == "line mark" and e.attrib.get("d")
    ]
    assert sorted(d.count("M") for d in lines)[-1] == 2


def test_a_panel_without_numbers_says_why(book):
    _, premium, y, roles = book
    table = fa.compute_calibration(premium, y, **roles)
    scarce = table[(table["group"] == GROUPS[-1])]
    assert scarce["loss"].isna().all()
    panels = [" ".join(words_in(to_svg(chart))) for chart in draw_panels("calibration", table)]
    assert ["too few effective reports" in words for words in panels] == [False, False, False, False, True]


def test_a_section_without_any_number_has_no_chart():
    n = 2000
    y = np.linspace(100, 200, n)
    S = np.full(n, None, dtype=object)
    S[:30] = ["a", "b"] * 15
    few = fa.summarize_prices(y, y, sensitive=S, channel=RandomizedResponse(["a", "b"], keep=0.8))
    drawn = {s["id"]: fa.render_chart(s) for s in few["sections"]}
    assert drawn["keep_sensitivity"] is None
    assert drawn["balance"] is not None
    widths = [float(w) for w in re.findall(r'<svg[^>]*? width="([^"]*)"', fa.render_report(few))]
    assert widths
    assert max(widths) < 1000


# --- pages ---


def ends_of(document):
    """Where the content of each page ends, as a share of the height that there is for it."""
    found = []
    for page in document.pages:
        box = page._page_box
        content = next(child for child in box.children if child.element_tag == "html")
        lowest = max(
            child.position_y + child.height
            for child in content.descendants()
            if type(child).__name__ in ("LineBox", "InlineReplacedBox", "BlockReplacedBox")
        )
        found.append((lowest - box.content_box_y()) / box.height)
    return found


def test_printed_pages_have_no_large_holes(summary):
    document = lay_out(fa.render_report(summary))
    ends = ends_of(document)
    assert 5 < len(ends) <= 13
    assert min(ends[:-1]) > 0.4, ends  # the largest piece that stays in one is a little over half a page
    assert np.mean(ends[:-1]) > 0.7, ends
    assert max(ends) <= 1.01, ends  # and nothing runs out of a page


def test_no_page_ends_with_a_heading(summary):
    for page in lay_out(fa.render_report(summary)).pages:
        content = next(child for child in page._page_box.children if child.element_tag == "html")
        seen = [b for b in content.descendants() if type(b).__name__ in ("LineBox", "InlineReplacedBox")]
        last = max(seen, key=lambda box: box.position_y)
        assert last.element_tag not in ("h2", "h3")
