"""The page in a real browser: every chart is drawn, nothing leaves it, nothing sticks out, and it prints."""

from __future__ import annotations

import pytest

from fairpremium import DiscriminationFreePricer, RandomizedResponse
from fairpremium import audit as fa
from fairpremium.portfolios import zhang_liu_shi_2025
from helpers import browser as browser_tools

LIVE = {"price_comparison", "group_means", "calibration", "keep_sensitivity"}
DRAWN = """figures => figures.map(f => {
  const marks = [...f.querySelectorAll('svg path, svg line, svg rect, svg text')];
  const pictures = [...f.querySelectorAll('svg.marks')];
  const boxes = pictures.map(svg => svg.getBoundingClientRect());
  return {name: f.dataset.chart, marks: marks.length, height: Math.min(...boxes.map(box => box.height)),
          right: Math.max(...boxes.map(box => box.right)), live: f.dataset.live || '',
          scale: Math.min(...pictures.map((svg, i) => boxes[i].width / svg.viewBox.baseVal.width))};
})"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    p = zhang_liu_shi_2025(n=3000, rng=0, age_band=True)
    channel = RandomizedResponse(p.groups, keep=0.8)
    S = channel.privatize(p.sensitive, rng=0)
    pricer = DiscriminationFreePricer(channel=channel, random_state=0).fit(p.X, p.y, sensitive=S)
    summary = fa.write_report(pricer, p.X, p.y, sensitive=S, path=folder / "model.html", by="smoker", unit="EUR a year")
    some = [s for s in summary["sections"] if s["id"] in LIVE]
    fa.save_report({**summary, "sections": some}, folder / "live.html", interactive=True)
    prices = fa.summarize_prices(pricer.predict_unaware(p.X), p.y, sensitive=S, channel=channel)
    fa.save_report(prices, folder / "prices.html")
    return folder


@pytest.fixture(scope="module")
def browser():
    with browser_tools.open_browser() as found:
        yield found


@pytest.mark.parametrize(
    ("name", "charts", "size"),
    [("model", 16, "desktop"), ("model", 16, "phone"), ("prices", 7, "phone"), ("live", 4, "desktop")],
)
def test_every_chart_is_drawn_and_nothing_is_asked_of_a_network(pages, browser, name, charts, size):
    page, away, problems = browser_tools.open_page(browser, pages / f"{name}.html", size)
    if name == "live":
        page.wait_for_function("() => document.querySelectorAll('figure[data-live=yes]').length === 4")
    browser_tools.keep_screenshot(page, f"audit-{name}-{size}")
    width = browser_tools.SIZES[size][0]
    drawn = page.eval_on_selector_all("figure[data-chart]", DRAWN)
    assert len(drawn) == charts
    for chart in drawn:
        assert chart["marks"] > 10, chart
        assert chart["scale"] > 0.7, chart  # letters of 13 pixels stay readable
        assert chart["height"] > 40, chart
        assert chart["right"] <= width, chart
    assert away == []
    assert problems == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width  # nothing to scroll sideways
    assert page.locator("text=NaN").count() == 0
    page.context.close()


def test_a_live_chart_answers_to_the_mouse(pages, browser):
    page, _, problems = browser_tools.open_page(browser, pages / "live.html", "desktop")
    page.wait_for_function("() => document.querySelectorAll('figure[data-live=yes]').length === 4")
    figure = page.locator("figure[data-chart=group_means]")
    figure.scroll_into_view_if_needed()
    figure.locator("path[aria-roledescription=point]").first.hover()
    page.wait_for_selector("#vg-tooltip-element.visible")
    assert "premium" in page.locator("#vg-tooltip-element").inner_text()
    assert problems == []
    page.context.close()


def test_it_prints_with_folded_tables_open(pages, browser):
    page, _, _ = browser_tools.open_page(browser, pages / "model.html", "desktop")
    folded = page.locator("#calibration details table")
    assert not folded.is_visible()
    page.emulate_media(media="print")
    assert folded.is_visible()
    assert not page.locator("nav").is_visible()
    pdf = page.pdf(format="A4")
    assert pdf.startswith(b"%PDF")
    page.context.close()


def test_a_page_that_asks_a_network_would_be_seen(browser, tmp_path):
    path = tmp_path / "page.html"
    path.write_text('<img src="http://127.0.0.1:9/x.png"><script>console.error("broken")</script>', encoding="utf-8")
    _, away, problems = browser_tools.open_page(browser, path, "desktop")
    assert away == ["http://127.0.0.1:9/x.png"]
    assert "broken" in problems
