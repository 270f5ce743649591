"""The console in a real browser, from an empty service to a broken log: on a desk, on a phone, by keyboard alone."""

from __future__ import annotations

import shlex
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
from sqlalchemy import text

from fairpremium import RandomizedResponse
from fairpremium.audit.drawing import format_percent
from fairpremium.parties import FitSpec, KnownChannel, StudySpec
from fairpremium.parties.clients._collector import draw_reports
from fairpremium.parties.http._app import create_app
from fairpremium.parties.protocol._keys import new_key
from fairpremium.parties.service import Accounts
from fairpremium.parties.service._leases import acquire_lease, record_progress
from fairpremium.parties.service._run_fit import run_fit
from fairpremium.parties.service._settings import ServiceSettings
from fairpremium.parties.service._third_party import ThirdParty
from fairpremium.parties.service._worker import work_once
from fairpremium.portfolios import zhang_liu_shi_2025
from fairpremium.privacy import MemoizedReports, PrivacyLedger
from helpers import browser as browser_tools
from helpers.browser import served

CHANNEL = RandomizedResponse(["F", "M"], keep=0.8)
SOON = 60_000  # milliseconds within which a page that is open must show what happened


@pytest.fixture(scope="module")
def browser():
    with browser_tools.open_browser() as found:
        yield found


class Window:
    """A page that records what it asks for and what goes wrong in it."""

    def __init__(self, browser, address, size="desktop", **context):
        width, height = browser_tools.SIZES[size]
        self.size, self.width, self.address = size, width, address
        self.context = browser.new_context(viewport={"width": width, "height": height}, **context)
        self.page = self.context.new_page()
        self.away, self.problems = [], []
        self.page.on("request", lambda r: r.url.startswith(address) or self.away.append(r.url))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("console", lambda m: self.problems.append(m.text) if m.type in ("error", "warning") else None)

    def open(self, path="/"):
        response = self.page.goto(self.address + path)
        assert self.page.evaluate("document.documentElement.scrollWidth") <= self.width, f"{path} is too wide"
        return response

    def wait(self, words):
        self.page.get_by_text(words).first.wait_for(timeout=SOON)

    def keep(self, name):
        browser_tools.keep_screenshot(self.page, f"console-{name}-{self.size}")
        assert self.page.evaluate("document.documentElement.scrollWidth") <= self.width, f"{name} is too wide"

    def close(self):
        self.context.close()
        assert self.away == []
        assert self.problems == []


@pytest.fixture
def table():
    p = zhang_liu_shi_2025(n=2000, rng=1, age_band=True)
    return p.X.assign(policy=[f"P{i}" for i in range(2000)], y=p.y, sex=p.sensitive)


def declare(parties, name="motor", title="Motor 2026", **changes):
    attribute = KnownChannel(channel=CHANNEL.descriptor())
    spec = StudySpec(title=title, attribute=attribute, collectors=("app",), insurers=("acme",), **changes)
    parties.operator.put_study(name, spec)


def collect(parties, table, tmp_path):
    memo = MemoizedReports(CHANNEL, b"a secret of the tests", attribute="sex")
    path = tmp_path / "r.parquet"
    with PrivacyLedger(":memory:") as ledger:
        reports, _ = draw_reports(table, path, policy="policy", column="sex", memo=memo, ledger=ledger)
    parties.collector.submit(reports, study="motor", secret=parties.secret, channel=CHANNEL)


def upload(parties, table, name="book"):
    parties.insurer.upload(
        table.drop(columns="sex"), study="motor", portfolio=name, secret=parties.secret, policy="policy", outcome="y"
    )


def tamper(parties, seq):
    """Change an entry of the log, past the triggers that forbid it."""

    def change(connection):
        on_postgres = connection.dialect.name == "postgresql"
        unlock = "ALTER TABLE log DISABLE TRIGGER USER" if on_postgres else "DROP TRIGGER log_no_UPDATE"
        connection.execute(text(unlock))
        connection.execute(text("UPDATE log SET party = 'nobody' WHERE seq = :seq"), {"seq": seq})

    parties.context.database.write(change)


def test_the_whole_story(parties, browser, table, tmp_path):
    with served(parties.app) as address:
        desk, phone = Window(browser, address), Window(browser, address, "phone")
        # An empty service says what to do.
        for window in (desk, phone):
            window.open()
            window.wait("No study yet")
            window.keep("1-empty")
        # The first study appears in the open page.
        declare(parties)
        desk.wait("Motor 2026")
        assert desk.page.locator("td[data-label='Reports taken']").inner_text() == "told with the first epoch"
        desk.page.get_by_role("link", name="Motor 2026").click()
        desk.wait("The study takes no reports yet")
        desk.keep("2-draft")
        # Reports come in, and their number is told with an epoch.
        parties.operator.set_state("motor", "open")
        collect(parties, table[:1893], tmp_path)
        told = parties.operator.begin_epoch("motor").epochs[0].reports
        desk.wait(f"about {told:,}")
        # A fit waits, runs with a bar that moves, and ends, without a reload.
        upload(parties, table)
        parties.insurer.fit("first", FitSpec(study="motor", portfolio="book"))
        desk.wait("waits for a worker")
        desk.page.evaluate("window.untouched = true")
        lease = parties.context.database.write(lambda c: acquire_lease(c, parties.context))
        seen = []
        for progress in (0.2, 0.35, 0.55):
            parties.context.database.write(lambda c, p=progress: record_progress(c, lease, "fitting", p))
            desk.wait(f"{100 * progress:.0f} %")
            seen.append(desk.page.locator("progress").first.evaluate("bar => bar.value"))
            if progress == 0.35:
                desk.keep("3-running")
                assert desk.page.locator("#announce").inner_text() == "fit first: fitting"
        assert seen == [20, 35, 55]
        phone.open("/console/studies/motor")
        phone.keep("3-running")
        run_fit(parties.context, lease)
        desk.wait("The newest result: first of acme")
        assert desk.page.evaluate("window.untouched")
        assert parties.insurer.watch("first").state == "succeeded"
        desk.keep("4-study")
        phone.open("/console/studies/motor")
        phone.keep("4-study")
        for window in (desk, phone):
            window.open("/console/studies/motor/fits/acme/first")
            check_charts(window)
            window.keep("5-fit")
        # A portfolio with one row that stands out is refused, and the rule is named.
        spike = np.zeros(len(table))
        spike[5] = 1.0
        upload(parties, table.assign(spike=spike), "other")
        parties.insurer.fit("second", FitSpec(study="motor", portfolio="other"))
        assert work_once(parties.context)
        for window in (desk, phone):
            window.open("/console/studies/motor/fits/acme/second")
            window.wait("Refused by rule")
            window.keep("6-refused")
        desk.open("/console/studies/motor")
        desk.wait("rule 2: no row may have a large leverage in a reported group")
        desk.keep("7-fits")
        # The log is verified, then broken.
        entries = parties.third_party.verify_log().entries
        for window in (desk, phone):
            window.open("/console/log")
            window.wait(f"Verified up to entry {entries}")
            window.keep("8-log")
        tamper(parties, 6)
        desk.page.get_by_role("button", name="Check now").click()
        desk.wait("Broken at entry 6")
        assert desk.page.locator("#entry-6.bad").count() == 1
        desk.keep("9-broken")
        phone.open()
        phone.wait("The log is broken at entry 6")
        phone.keep("10-studies")
        desk.open()
        desk.keep("10-studies")
        desk.close()
        phone.close()


def check_charts(window):
    """Both charts are drawn, inside the page, with letters that can be read."""
    figures = window.page.locator("figure[data-chart]")
    assert figures.count() == 2
    for k in range(2):
        box = figures.nth(k).locator("> svg").bounding_box()
        assert box["width"] > 330
        assert box["x"] + box["width"] <= window.width
        assert figures.nth(k).locator("g circle, g rect, g path").count() >= 4
    assert window.page.locator("text=NaN").count() == 0


def test_the_first_steps_lead_to_a_study(tmp_path, browser):
    """The commands of an empty service's page, run as they stand there, make a study that the page then shows."""
    party = ThirdParty(tmp_path / "a folder")
    app = create_app(ServiceSettings(folder=tmp_path / "a folder", port=0), party)
    run = partial(subprocess.run, shell=True, cwd=tmp_path, check=True, capture_output=True, text=True)
    me = f"{shlex.quote(sys.executable)} -m fairpremium"
    with served(app) as address:
        window = Window(browser, address)
        window.open()
        commands = window.page.locator(".command code").all_inner_texts()
        assert len(commands) == 6
        run(f"{me} keys new collector.key insurer.key")  # what the others do
        for command in commands:
            assert command.startswith("fairpremium ")
            run(command.replace("fairpremium", me, 1))
        window.wait("Motor")
        window.page.get_by_role("link", name="Motor").click()
        window.page.locator(".tag.open").first.wait_for(timeout=SOON)
        assert window.page.get_by_text("no key in force").count() == 0
        window.close()
    party.close()


def focus(page):
    """What has the focus, in words."""
    return page.evaluate(
        "() => { const e = document.activeElement; return (e.getAttribute('aria-label') || e.innerText || e.name || "
        "e.tagName).trim(); }"
    )


def test_by_keyboard_alone(parties, browser):
    declare(parties)
    with served(parties.app) as address:
        window = Window(browser, address)
        page = window.page
        window.open()
        page.keyboard.press("Tab")
        assert focus(page) == "To the content"
        assert page.locator(".skip").bounding_box()["y"] >= 0  # seen while it has the focus
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "content"
        for _ in range(2):
            page.keyboard.press("Tab")  # the table that scrolls, then the link in it
        assert focus(page) == "Motor 2026"
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid"
        window.keep("keyboard")
        page.keyboard.press("Enter")
        page.wait_for_url("**/console/studies/motor")
        for _ in range(40):
            page.keyboard.press("Tab")
            if focus(page) == "Limits of every fit":
                break
        page.keyboard.press("Enter")
        assert page.get_by_text("Rule 1, size").is_visible()
        # What is opened, and where the focus is, survives news from the service.
        parties.operator.set_state("motor", "open")
        window.page.locator("#facts .tag.open").wait_for(timeout=SOON)
        assert page.get_by_text("Rule 1, size").is_visible()
        assert focus(page) == "Limits of every fit"
        window.open("/console/log")
        page.locator("select[name=event]").focus()
        page.keyboard.type("study.d")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.wait_for_url("**event=study.declared")
        assert page.locator("tbody tr").count() == 1
        page.locator("summary").focus()
        page.keyboard.press("Enter")
        assert page.locator("pre").is_visible()
        window.keep("filtered")
        window.close()


def test_without_scripts_the_page_reloads_itself(parties, browser, table, tmp_path):
    declare(parties)
    parties.operator.set_state("motor", "open")
    collect(parties, table[:50], tmp_path)
    upload(parties, table[:60])
    parties.insurer.fit("first", FitSpec(study="motor", portfolio="book"))
    with served(parties.app) as address:
        window = Window(browser, address, java_script_enabled=False)
        window.page.goto(address + "/console/studies/motor")
        window.wait("waits for a worker")
        lease = parties.context.database.write(lambda c: acquire_lease(c, parties.context))
        parties.context.database.write(lambda c: record_progress(c, lease, "checking", 0.1))
        window.page.locator("progress").wait_for(timeout=SOON)
        assert window.page.locator(".command button").count() == 0  # no button that does nothing
        window.context.close()
        assert window.away == []


def test_a_login_from_the_first_page_to_the_last(parties, browser):
    declare(parties)
    accounts = Accounts(parties.context)
    accounts.add("ada", "operator", "an owl at noon and a cat")
    accounts.add("bob", "auditor", "an owl at noon and a cat")
    with served(parties.app) as address:
        for size, name in (("desktop", "ada"), ("phone", "bob")):
            window = Window(browser, address, size)
            page = window.page
            window.open("/console/studies/motor")
            assert "/console/login" in page.url
            assert page.evaluate("document.activeElement.id") == "name"
            page.keyboard.type(name.capitalize())  # as a phone writes it
            page.keyboard.press("Tab")
            page.keyboard.type("an owl at night")
            page.keyboard.press("Enter")
            window.wait("That is not the name and the password of an account in use.")
            window.keep("login")
            page.locator("#name").fill(name)
            page.locator("#password").fill("an owl at noon and a cat")
            page.keyboard.press("Enter")
            page.wait_for_url(f"{address}/console/studies/motor")
            assert page.evaluate("document.cookie") == ""  # no script can read it
            assert page.get_by_role("link", name="Operation").count() == (1 if name == "ada" else 0)
            page.get_by_role("button", name="Log out").click()
            page.wait_for_url(f"{address}/console/login")
            window.open("/")
            assert "/console/login" in page.url
            window.problems = [p for p in window.problems if "401" not in p]  # the browser notes the wrong password
            window.close()


def test_a_login_is_ended_from_another_one(parties, browser):
    Accounts(parties.context).add("ada", "operator", "an owl at noon and a cat")
    with served(parties.app) as address:
        mine, stolen = Window(browser, address), Window(browser, address, "phone")
        for window in (mine, stolen):
            window.open("/console/logins")
            window.page.locator("#name").fill("ada")
            window.page.locator("#password").fill("an owl at noon and a cat")
            window.page.keyboard.press("Enter")
            window.page.wait_for_url(f"{address}/console/logins")
        mine.open("/console/logins")
        mine.keep("logins")
        stolen.keep("logins")
        assert mine.page.get_by_role("button", name="End login").count() == 2
        mine.page.locator("tr:not(:has-text('this one'))").get_by_role("button", name="End login").click()
        mine.page.wait_for_load_state()
        assert mine.page.get_by_role("button", name="End login").count() == 1
        stolen.page.goto(address + "/")
        assert "/console/login" in stolen.page.url
        mine.close()
        stolen.close()


def test_the_pages_of_the_operator(parties, browser, table, tmp_path):
    declare(parties)
    declare(parties, "home", "Household contents")
    parties.operator.set_state("motor", "open")
    collect(parties, table[:1893], tmp_path)
    upload(parties, table)
    parties.insurer.fit("first", FitSpec(study="motor", portfolio="book"))
    assert work_once(parties.context)
    done = parties.insurer.watch("first")
    parties.insurer.fit("second", FitSpec(study="motor", portfolio="book", release="gaussian"))
    parties.context.database.write(lambda c: c.execute(text("UPDATE fits SET created = created - 4000")))
    key = new_key()
    parties.third_party.rotate_party_key(key.public_key, party="acme", ends=parties.context.now() + 12 * 86400)
    parties.third_party.rotate_service_key()
    with served(parties.app) as address:
        for size in ("desktop", "phone"):
            window = Window(browser, address, size)
            window.open("/console/operation")
            seen = window.page.locator("main").inner_text()
            assert f"about {done.matched:,}" in seen
            assert format_percent(min(done.matched / 2000, 1.0)) in seen
            assert "1 h 6 min" in seen
            assert "2,000" in seen
            assert "1,893" not in seen
            window.keep("operation")
            assert browser_tools.find_barriers(window.page) == []
            window.open("/console/budgets")
            assert "2.00 of 4" in window.page.locator("main").inner_text()
            window.keep("budgets")
            assert browser_tools.find_barriers(window.page) == []
            window.open("/console/keys")
            seen = window.page.locator("main").inner_text()
            assert key.key_id in seen
            assert "ends soon" in seen
            assert parties.context.key.key_id in seen
            window.keep("keys")
            assert browser_tools.find_barriers(window.page) == []
            window.close()


def test_in_the_dark_and_with_three_groups(parties, browser, tmp_path):
    p = zhang_liu_shi_2025(n=2000, rng=1, age_band=True)
    groups = np.array(["north", "centre of the country", "south"])[np.random.default_rng(0).integers(0, 3, 2000)]
    table = p.X.assign(policy=[f"P{i}" for i in range(2000)], y=p.y, region=groups)
    channel = RandomizedResponse(["north", "centre of the country", "south"], keep=0.85)
    spec = StudySpec(
        title="Household contents: a study with a rather long title that has to be broken somewhere <script>",
        attribute=KnownChannel(channel=channel.descriptor()), collectors=("app",), insurers=("acme",),
    )  # fmt: skip
    parties.operator.put_study("motor", spec)
    parties.operator.set_state("motor", "open")
    memo = MemoizedReports(channel, b"a secret of the tests", attribute="region")
    path = tmp_path / "r.parquet"
    with PrivacyLedger(":memory:") as ledger:
        reports, _ = draw_reports(table, path, policy="policy", column="region", memo=memo, ledger=ledger)
    parties.collector.submit(reports, study="motor", secret=parties.secret, channel=channel)
    upload(parties, table.assign(sex="").drop(columns="region"))
    parties.insurer.fit("first", FitSpec(study="motor", portfolio="book", release="randomized"))
    assert work_once(parties.context)
    assert parties.insurer.watch("first").state == "succeeded"
    with served(parties.app) as address:
        for size in ("desktop", "phone"):
            window = Window(browser, address, size, color_scheme="dark")
            window.open("/console/studies/motor")
            check_charts(window)
            window.keep("dark")
            check_contrast(window.page)
            window.open("/console/log")
            check_contrast(window.page)
            window.close()


CONTRAST = r"""() => {
  const luminance = c => {
    const [r, g, b] = c.map(v => v / 255).map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const numbers = text => text.match(/[\d.]+/g).map(Number);
  const behind = element => {
    for (let e = element; e; e = e.parentElement) {
      const c = numbers(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] === 1) return c.slice(0, 3);
    }
    return [255, 255, 255];
  };
  const low = [];
  for (const e of document.querySelectorAll("main *, footer *, header a")) {
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim())) continue;
    const style = getComputedStyle(e);
    const front = numbers(e instanceof SVGElement ? style.fill : style.color).slice(0, 3);
    const [a, b] = [luminance(front), luminance(behind(e))].sort((x, y) => y - x);
    if ((a + .05) / (b + .05) < 4.5 && e.tagName !== "title") low.push(`${e.tagName} ${e.textContent.trim()}`);
  }
  return low;
}"""


def check_contrast(page):
    """All text can be read: 4.5 to 1, the AA of the accessibility guidelines."""
    assert page.evaluate(CONTRAST) == []


def test_text_can_be_read_in_the_light(parties, browser):
    declare(parties)
    with served(parties.app) as address:
        window = Window(browser, address)
        pages = (
            "/",
            "/console/studies/motor",
            "/console/log",
            "/console/keys",
            "/console/operation",
            "/console/logins",
        )
        for path in pages:
            window.open(path)
            check_contrast(window.page)
        window.page.goto("about:blank")  # where a style may stand in the page
        window.page.set_content("<main><p style='color: #aaa; background: #fff'>pale</p></main>")
        assert window.page.evaluate(CONTRAST) == ["P pale"]
        window.context.close()
