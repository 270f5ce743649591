"""The console over HTTP: who gets in, what the pages say and never say, and that nothing breaks them."""

from __future__ import annotations

import html
import json
import re

import httpx
import pytest
from sqlalchemy import text, update

from fairpremium import RandomizedResponse
from fairpremium.audit.drawing import format_percent
from fairpremium.parties import EstimatedChannel, FitSpec, KnownChannel, StudySpec, TrueAttribute
from fairpremium.parties.backup import make_backup, restore_backup
from fairpremium.parties.clients._collector import draw_reports
from fairpremium.parties.console._templates import show_comparison
from fairpremium.parties.protocol._keys import VerifyKey, new_key
from fairpremium.parties.protocol._linkage import make_keys
from fairpremium.parties.release._accounting import epsilon_of, mu_of
from fairpremium.parties.service import Party, ThirdParty, used_bytes
from fairpremium.parties.service._leases import acquire_lease, record_progress
from fairpremium.parties.service._worker import work_once
from fairpremium.parties.store.schema import fits, keys
from fairpremium.portfolios import zhang_liu_shi_2025
from fairpremium.privacy import MemoizedReports, PrivacyLedger

CHANNEL = RandomizedResponse(["F", "M"], keep=0.8)
OWN = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture
def console(parties):
    return httpx.Client(base_url="http://127.0.0.1:8350", transport=parties.transport)


def declare(parties, name="motor", title="Motor 2026", attribute=None, **changes):
    attribute = attribute or KnownChannel(channel=CHANNEL.descriptor())
    spec = StudySpec(title=title, attribute=attribute, collectors=("app",), insurers=("acme",), **changes)
    parties.operator.put_study(name, spec)
    parties.operator.set_state(name, "open")


def prepare(parties, tmp_path, reported=1893, n=2000):
    p = zhang_liu_shi_2025(n=n, rng=1, age_band=True)
    table = p.X.assign(policy=[f"CANARY-POLICY-{i}" for i in range(n)], y=p.y, sex=p.sensitive)
    path = tmp_path / "reports.parquet"
    people = table[:reported]
    memo = MemoizedReports(CHANNEL, b"a secret of the tests", attribute="sex")
    with PrivacyLedger(":memory:") as ledger:
        reports, _ = draw_reports(people, path, policy="policy", column="sex", memo=memo, ledger=ledger)
    parties.collector.submit(reports, study="motor", secret=parties.secret, channel=CHANNEL)
    parties.insurer.upload(
        table.drop(columns="sex"), study="motor", portfolio="book", secret=parties.secret, policy="policy", outcome="y"
    )
    return table


def words(response):
    """The text of a page, without its tags."""
    return " ".join(html.unescape(re.sub("<[^>]+>", " ", response.text)).split())


PAGES = ("/", "/console/log", "/console/studies/motor", "/console/studies/motor/fits/acme/first")
OVERVIEWS = ("/console/operation", "/console/budgets", "/console/keys", "/console/logins")


# --- who gets in ---


def test_this_machine_gets_in_without_an_account(open_console):
    visit = open_console()
    for host in ("127.0.0.1:8350", "localhost:8350", "[::1]:8350", "127.8.0.1"):
        assert "No study yet" in visit(host=host).get("/").text
    assert visit(client="::1").get("/").status_code == 200
    assert visit(client="::ffff:127.0.0.1").get("/").status_code == 200


@pytest.mark.parametrize("host", ["evil.example:8350", "127.0.0.1.evil.example", "localhost.evil.example"])
@pytest.mark.parametrize("path", [*PAGES, "/console/nothing", "/healthz"])
def test_a_name_that_somebody_points_at_this_machine_gets_nothing(open_console, host, path):
    answer = open_console()(host=host).get(path)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("settings", "visitor"),
    [
        ({}, {"client": "10.0.0.9"}),
        ({}, {"client": ""}),
        ({}, {"X-Forwarded-For": "127.0.0.1"}),
        ({}, {"Forwarded": "for=127.0.0.1"}),
        ({"proxies": ("127.0.0.1",), "hosts": ("127.0.0.1:8350",)}, {}),
        ({"host": "0.0.0.0", "certificate": "c", "certificate_key": "k", "hosts": ("127.0.0.1:8350",)}, {}),
    ],
)
@pytest.mark.parametrize("path", [*PAGES, *OVERVIEWS, "/console/nothing"])
def test_others_do_not_without_an_account(open_console, settings, visitor, path):
    visit = open_console(**settings)
    client = visit(**visitor)
    answer = client.get(path)
    assert answer.status_code == 403
    assert "The console is closed from here" in answer.text
    assert visit.app.state.requests.party.context.key.key_id not in answer.text
    assert client.post("/console/log/verify", headers=OWN).status_code == 403
    assert visit.app.state.console.log_monitor.state.found is None


@pytest.mark.parametrize(
    ("headers", "is_own"),
    [
        ({"Sec-Fetch-Site": "same-origin"}, True),
        ({"Origin": "http://127.0.0.1:8350"}, True),
        ({}, False),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "same-site"}, False),
        ({"Sec-Fetch-Site": "cross-site", "Origin": "http://127.0.0.1:8350"}, False),
        ({"Origin": "http://evil.example"}, False),
        ({"Origin": "http://127.0.0.1:9999"}, False),
        ({"Origin": "null"}, False),
    ],
)
def test_forms_are_taken_from_our_own_pages_only(open_console, headers, is_own):
    visit = open_console()
    answer = visit().post("/console/log/verify", headers=headers)
    assert answer.status_code == (303 if is_own else 403)
    visit.app.state.console.log_monitor.wait()
    assert (visit.app.state.console.log_monitor.state.found is not None) is is_own


# --- headers ---


def test_every_page_is_fenced_in(parties, console):
    declare(parties)
    for path in [*PAGES, *OVERVIEWS, "/console/nothing", "/console/static/console.css", "/console/static/none.css"]:
        headers = console.get(path).headers
        policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
        assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["form-action"] == "'self'"
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-frame-options"] == "DENY"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
        assert headers["cache-control"] == ("no-store" if "console.css" not in path else headers["cache-control"])
    for path in (*PAGES, *OVERVIEWS):
        page = console.get(path).text
        assert not re.search(r"<script(?![^>]* src=)|\son\w+=|\sstyle=|<style|javascript:", page), path


def test_pages_ask_for_nothing_from_elsewhere(console):
    page = console.get("/").text
    addresses = re.findall(r'(?:href|src|action)="([^"]*)"', page)
    assert addresses
    assert all(address.startswith(("/", "#")) and not address.startswith("//") for address in addresses)
    for address in set(re.findall(r'"(/console/static/[^"]*)"', page)):
        answer = console.get(address)
        assert answer.status_code == 200
        assert answer.headers["content-type"].partition(";")[0] in ("text/css", "text/javascript", "image/svg+xml")


def test_the_console_is_no_part_of_the_documented_routes(parties, console):
    paths = console.get("/v1/openapi.json").json()["paths"]
    assert not [path for path in paths if not path.startswith(("/v1/", "/healthz", "/readyz", "/metrics"))]


# --- what pages say ---


def test_an_empty_service_says_what_to_do(open_console):
    visit = open_console()
    page = visit().get("/")
    assert "No study yet" in page.text
    for command in ("fairpremium keys new", "fairpremium study create", "fairpremium study open"):
        assert command in words(page)


def test_reports_are_told_with_an_epoch_as_a_released_number(parties, console):
    declare(parties)
    pages = ("/", "/console/studies/motor")
    for i in range(113):
        parties.collector.report("motor", parties.secret, f"P{i}", "F", CHANNEL)
        if i in (0, 112):
            assert all("told with the first epoch" in words(console.get(path)) for path in pages)
    seen = parties.operator.begin_epoch("motor").epochs
    assert [epoch.number for epoch in seen] == [1]
    assert abs(seen[0].reports - 113) < 5 * seen[0].standard_error
    told = f"about {seen[0].reports:,} standard error {seen[0].standard_error:.0f}"
    for path in pages:
        assert told in words(console.get(path))
    parties.collector.report("motor", parties.secret, "P113", "F", CHANNEL)
    assert told in words(console.get("/"))  # one report more changes nothing
    assert [epoch.number for epoch in parties.operator.begin_epoch("motor").epochs] == [1, 2]
    page = words(console.get("/console/studies/motor"))
    assert "study begin-epoch motor" in page
    assert told in page  # the first one stays as it was told


def test_without_rule_9_counts_are_rounded_as_the_study_says(parties, console):
    from fairpremium.parties.release._disclosure import Rules

    declare(parties, rules=Rules(round_to=20, suppress_up_to=30), release=None)
    parties.operator.begin_epoch("motor")
    assert "few or none" in words(console.get("/"))
    for i in range(33):
        parties.collector.report("motor", parties.secret, f"P{i}", "F", CHANNEL)
    parties.operator.begin_epoch("motor")
    assert "about 40" in words(console.get("/console/studies/motor"))


@pytest.mark.parametrize(
    ("attribute", "says"),
    [
        (None, "truth kept with probability 0.8; epsilon 1.39"),
        (TrueAttribute(groups=("F", "M")), "True attribute, without noise no epsilon"),
        (EstimatedChannel(groups=("F", "M")), "Noise unknown, estimated at each fit (anchor) no epsilon"),
    ],
)
def test_how_reports_come_about_is_told(parties, console, attribute, says):
    declare(parties, attribute=attribute)
    for path in ("/", "/console/studies/motor"):
        page = words(console.get(path))
        assert says in page
        assert "F, M" in page


def test_a_participant_without_a_key_is_pointed_out(parties, console):
    spec = StudySpec(
        title="T", attribute=KnownChannel(channel=CHANNEL.descriptor()), collectors=("app",), insurers=("nobody",)
    )
    parties.operator.put_study("motor", spec)
    page = words(console.get("/"))
    assert "nobody no key in force" in page
    assert "app no key in force" not in page


def test_a_party_whose_key_was_revoked_has_none_in_force(parties, console):
    declare(parties)
    assert "no key in force" not in words(console.get("/"))
    for key in parties.third_party.list_keys():
        if key.party == "acme":
            parties.third_party.revoke_key(key.key_id)
    assert "acme no key in force" in words(console.get("/console/studies/motor")) + words(console.get("/"))


def test_an_epoch_that_stands_for_those_lost_with_a_restore_is_not_shown(open_console, tmp_path):
    attribute = KnownChannel(channel=CHANNEL.descriptor())
    operator = Party("op", "operator")
    party = ThirdParty(tmp_path / "service")
    for name in ("motor", "home"):
        spec = StudySpec(title=name, attribute=attribute, collectors=("app",), insurers=("acme",))
        party.put_study(operator, name, spec)
        party.open_study(operator, name)
    party.begin_epoch(operator, "motor", 1)
    party.close()
    make_backup(tmp_path / "service", tmp_path / "backup")
    restore_backup(tmp_path / "backup", tmp_path / "restored")
    console = open_console("restored")()
    for path in ("/", "/console/budgets", "/console/studies/motor", "/console/studies/home"):
        page = words(console.get(path))
        assert "1001" not in page, path
        assert "1000" not in page, path


def test_outcomes_that_the_family_does_not_have_are_named_before_anything_is_paid(parties, tmp_path):
    declare(parties)
    table = prepare(parties, tmp_path)
    table["y"] = table["y"] - table["y"].max()
    options = {"study": "motor", "secret": parties.secret, "policy": "policy", "outcome": "y"}
    parties.insurer.upload(table.drop(columns="sex"), portfolio="negative", **options)
    parties.insurer.fit("first", FitSpec(study="motor", portfolio="negative", family="gamma"))
    assert work_once(parties.context)
    fit = parties.insurer.watch("first")
    assert fit.state == "failed"
    assert "an outcome of the family gamma must be greater than 0" in str(fit.problem)
    assert parties.insurer.study("motor").spent.epsilon == 0


def test_a_fit_from_waiting_to_its_comparison(parties, console, tmp_path):
    declare(parties)
    prepare(parties, tmp_path)
    parties.insurer.fit("first", FitSpec(study="motor", portfolio="book", release="gaussian"))
    assert "waits for a worker" in words(console.get("/console/studies/motor"))
    lease = parties.context.database.write(lambda c: acquire_lease(c, parties.context))
    parties.context.database.write(lambda c: record_progress(c, lease, "fitting", 0.437))
    for path in PAGES[2:]:
        page = console.get(path)
        assert "43 %" in words(page)
        assert "fitting" in words(page)
        assert '<noscript><meta http-equiv="refresh"' in page.text
    parties.context.database.write(lambda c: c.execute(update(fits).values(lease_until=0.0)))
    assert "its worker went silent" in words(console.get("/console/studies/motor"))
    assert "1 fit has lost its worker" in words(console.get("/"))
    assert work_once(parties.context)
    done = parties.insurer.watch("first")
    assert done.state == "succeeded"
    study, fit = (console.get(path) for path in PAGES[2:])
    assert "at attempt 2" in words(study)
    assert f"Policies with a report about {done.matched:,}" in words(fit)
    assert "Epoch 1" in words(fit)
    assert "1,893" not in study.text + fit.text
    stored = parties.context.database.read(
        lambda c: json.loads(c.execute(text("SELECT summary FROM fits")).scalar_one())
    )
    means = next(s for s in stored["sections"] if s["id"] == "group_means")["records"]
    for page in (study, fit):
        assert page.text.count("<figure") == 2
        assert "refresh" not in page.text
        for row in means:
            assert f"{row['premium']:,.0f} {row['premium_low']:,.0f} to {row['premium_high']:,.0f}" in words(page)
    # Rule 9: the second randomization once, and one Gaussian fit.
    rule = parties.third_party.context.database.read(
        lambda c: c.execute(text("SELECT epsilon, delta FROM releases")).one()
    )
    spent = 2.0 + epsilon_of(mu_of(rule.epsilon, rule.delta), rule.delta)
    assert f"{spent:.2f} of 4" in words(study)
    assert "1 and 2 once per epoch" in words(study)
    # The same again costs nothing.
    parties.insurer.fit("again", FitSpec(study="motor", portfolio="book", release="gaussian"))
    assert work_once(parties.context)
    page = words(console.get("/console/studies/motor"))
    assert "nothing more, it equals first" in page
    assert f"{spent:.2f} of 4" in page
    assert "1 of 20" in page


def test_a_fit_whose_bundle_was_erased_shows_that_and_no_numbers(parties, console, tmp_path):
    declare(parties)
    prepare(parties, tmp_path)
    parties.insurer.fit("first", FitSpec(study="motor", portfolio="book", release="randomized"))
    assert work_once(parties.context)
    matched = f"about {parties.insurer.watch('first').matched:,}"
    study, fit = PAGES[2:]
    assert matched in words(console.get(fit))
    parties.insurer.send("DELETE", "/v1/portfolios/book")
    shown = words(console.get(fit))
    assert "Bundle erased" in shown
    assert "What the fit took from the privacy budget: 2 once per epoch" in shown
    for page in (shown, words(console.get(study))):
        assert not any(text in page for text in (matched, "or fewer", "Comparison of groups"))


def test_a_refusal_names_its_rule_and_a_failure_its_problem(parties, console, tmp_path):
    declare(parties)
    prepare(parties, tmp_path, reported=150, n=200)
    parties.insurer.fit("first", FitSpec(study="motor", portfolio="book"))
    parties.insurer.fit("second", FitSpec(study="motor", portfolio="book", reference={"F": 0.5, "X": 0.5}))
    while work_once(parties.context):
        pass
    refusal = parties.insurer.watch("first").refusal
    page = words(console.get(PAGES[3]))
    assert f"Refused by rule {refusal.rule}: {refusal.title}" in page
    assert refusal.limit in page
    problem = parties.insurer.watch("second").problem
    assert problem["title"] in words(console.get("/console/studies/motor/fits/acme/second"))
    page = words(console.get("/console/studies/motor"))
    assert f"rule {refusal.rule}" in page
    assert problem["title"] in page


def test_a_fit_that_nobody_takes_is_noticed(parties, console, tmp_path):
    declare(parties)
    prepare(parties, tmp_path, reported=20, n=30)
    parties.insurer.fit("first", FitSpec(study="motor", portfolio="book"))
    assert "no worker takes it" not in words(console.get("/"))
    parties.context.database.write(lambda c: c.execute(update(fits).values(created=fits.c.created - 60)))
    assert "A fit waits and no worker takes it" in words(console.get("/"))


def test_the_operator_sees_queue_storage_matched_shares_budgets_and_keys(parties, console, tmp_path):
    for path in OVERVIEWS:
        assert console.get(path).status_code == 200  # of an empty service
    declare(parties)
    prepare(parties, tmp_path)
    page = words(console.get("/console/operation"))
    assert "No fit waits or runs" in page
    assert "No result yet" in page
    parties.insurer.fit("first", FitSpec(study="motor", portfolio="book"))
    waits = update(fits).values(created=fits.c.created - 7300)
    parties.context.database.write(lambda c: c.execute(waits))
    assert "acme 1 30 allowed 2 h 1 min 0 –" in words(console.get("/console/operation"))
    assert work_once(parties.context)
    done = parties.insurer.watch("first")
    page = words(console.get("/console/operation"))
    share = " ".join(format_percent(min(done.matched / 2000, 1.0)).split())
    assert f"book motor acme 2,000 about {done.matched:,} {share}" in page
    stored = parties.context.database.read(lambda c: used_bytes(c, parties.context, "acme"))
    assert f"acme {stored / 1000:.0f} KB of 107.4 GB" in page
    assert "Database less than 0.1 GB" in page
    parties.insurer.erase("book")
    page = words(console.get("/console/operation"))
    assert "acme 0 KB of 107.4 GB" in page
    assert "No result yet" in page
    page = words(console.get("/console/budgets"))
    assert "motor acme 1 of 20 2.00 of 4 at delta 1e-06 one attribute: F, M" in page
    assert f"about {parties.operator.get_study('motor').epochs[0].reports:,}" in page


def test_keys_that_are_old_or_end_are_pointed_out(parties, console):
    day = 86400.0
    now = parties.context.now()
    change = update(keys).where(keys.c.party == "op").values(added=now - 400 * day)
    parties.context.database.write(lambda c: c.execute(change))
    newer = new_key()
    parties.third_party.rotate_party_key(newer.public_key, party="acme", ends=now + 10 * day)
    parties.third_party.revoke_key(parties.keys["aud"].key_id)
    before = parties.third_party.public_key
    parties.third_party.rotate_service_key()
    page = words(console.get("/console/keys"))

    def row(key_id):
        return page.partition(key_id + " 20")[2].partition("ed25519-")[0]

    assert "400 days no end older than a year" in row(parties.keys["op"].key_id)
    assert "ends soon" in row(parties.keys["acme"].key_id)
    assert "ended" in row(parties.keys["aud"].key_id)
    assert "in force" in row(newer.key_id)
    assert "less than an hour no end in force" in row(parties.context.key.key_id)
    assert "ended" in row(VerifyKey(before).key_id)


# --- what pages never say ---


def test_hostile_names_are_text(parties, console):
    title = "<script>alert('x')</script><img src=x onerror=alert(1)>\" onload=\"x"
    channel = RandomizedResponse(["<b>F</b>", "M\"'>"], keep=0.8)
    declare(parties, title=title, attribute=KnownChannel(channel=channel.descriptor()))
    for path in ("/", "/console/studies/motor", "/console/log", *OVERVIEWS):
        page = console.get(path)
        assert page.status_code == 200
        assert "<script>alert" not in page.text
        assert "<img" not in page.text
        assert "<b>F</b>" not in page.text
    assert title in html.unescape(console.get("/").text)


def test_no_page_shows_a_key_a_policy_a_row_or_an_exact_count(parties, console, tmp_path):
    declare(parties)
    table = prepare(parties, tmp_path, reported=893, n=1000)
    table_keys = make_keys(parties.secret, table["policy"])
    parties.collector.report("motor", parties.secret, "CANARY-SINGLE", "F", CHANNEL)
    parties.insurer.fit("first", FitSpec(study="motor", portfolio="book"))
    assert work_once(parties.context)
    pages = "".join(console.get(path).text for path in (*PAGES, *OVERVIEWS))
    pages += "".join(console.get("/console/log", params={"before": seq}).text for seq in range(1, 20, 5))
    assert "CANARY" not in pages
    keys = {bytes(key).hex() for key in table_keys}
    assert len(keys) == 1000
    assert not keys & set(re.findall(r"[0-9a-f]{32}", pages))
    seen = words(httpx.Response(200, text=pages))
    released = {str(epoch.reports) for epoch in parties.operator.get_study("motor").epochs}  # by chance one of them
    assert not set(re.findall(r"\b89[34]\b", seen)) - released
    losses = {f"{y:.6f}" for y in table["y"]} | {repr(float(y)) for y in table["y"]}
    assert not losses & set(re.findall(r"\d+\.\d+", pages))


# --- nothing breaks a page ---


@pytest.mark.parametrize(
    "path",
    [
        "/console/nothing",
        "/console/studies/none",
        "/console/studies/No%20Id%3Cscript%3E",
        "/console/studies/motor/fits/acme/none",
        "/console/studies/motor/fits/none/first",
        "/console/studies/motor/fits/%00/first",
        "/console/studies/" + "a" * 3000,
        "/console/static/..%2f..%2f_console.py",
        "/console/static/parts.html",
    ],
)
def test_what_is_not_there_is_a_friendly_page(parties, console, path):
    declare(parties)
    answer = console.get(path)
    assert answer.status_code == 404
    assert "There is no such page" in answer.text
    assert "<script>" not in answer.text


@pytest.mark.parametrize("query", ["before=x", "before=-1", "before=99999999999999999999", "party=%00", "event=<b>",
                                   "party=a&party=b", "before=0"])  # fmt: skip
def test_strange_queries_show_a_page(parties, console, query):
    assert console.get(f"/console/log?{query}").status_code == 200


def test_a_failure_is_a_page_without_its_reason(parties, console, monkeypatch, caplog):
    def fail(*_):
        raise RuntimeError("CANARY of the database")

    monkeypatch.setattr(parties.app.state.console.context.database, "read", fail)
    for path in (*PAGES, *OVERVIEWS):
        answer = console.get(path)
        assert answer.status_code == 503
        assert "cannot be shown now" in answer.text
        assert "CANARY" not in answer.text
    assert console.post("/console/log/verify", headers=OWN).status_code == 503
    parties.app.state.console.log_monitor.start()
    parties.app.state.console.log_monitor.wait()
    assert parties.app.state.console.log_monitor.state.has_failed
    assert "RuntimeError" in caplog.text
    assert "CANARY" not in caplog.text


def test_a_page_with_broken_records_is_still_a_page(parties, console, tmp_path):
    declare(parties)
    prepare(parties, tmp_path, reported=20, n=30)
    parties.insurer.fit("first", FitSpec(study="motor", portfolio="book"))
    for content in ("{", "[]", "null", '{"sections": [1, {"id": "group_means"}]}', "{}"):
        change = update(fits).values(state="succeeded", summary=content, refusal=content, problem=content)
        parties.context.database.write(lambda c, change=change: c.execute(change))
        for path in PAGES[2:]:
            assert console.get(path).status_code == 200, content


def test_the_head_of_a_page_can_be_asked_for(console):
    assert console.head("/").status_code == 200
    assert console.put("/").status_code == 405


# --- the log ---


def test_the_log_in_pages_and_by_party_and_event(parties, console):
    declare(parties)
    for _ in range(35):  # two entries each
        parties.operator.begin_epoch("motor")
    first = console.get("/console/log")
    numbers = [int(n) for n in re.findall(r'id="entry-(\d+)"', first.text)]
    assert len(numbers) == 50
    assert numbers == sorted(numbers, reverse=True)
    older = html.unescape(re.search(r'href="([^"]*)" rel="next"', first.text)[1])
    second = console.get(older)
    rest = [int(n) for n in re.findall(r'id="entry-(\d+)"', second.text)]
    assert numbers + rest == list(range(numbers[0], 0, -1))
    newer = html.unescape(re.search(r'href="([^"]*)" rel="prev"', second.text)[1])
    assert re.findall(r'id="entry-(\d+)"', console.get(newer).text) == [str(n) for n in numbers]
    chosen = console.get("/console/log", params={"party": "op", "event": "study.open"})
    assert re.findall(r"<code>([a-z.]+)</code>", chosen.text.partition("<tbody>")[2]) == ["study.open"]
    assert "No entry of this kind" in console.get("/console/log", params={"event": "fit.failed"}).text


def check(parties, console):
    assert console.post("/console/log/verify", headers=OWN).status_code == 303
    parties.app.state.console.log_monitor.wait()
    return words(console.get("/console/log"))


@pytest.mark.parametrize(
    ("change", "bad", "reason"),
    [
        ("UPDATE log SET party = 'x' WHERE seq = 3", 3, "its content does not match its hash"),
        ("UPDATE log SET body = '{' WHERE seq = 4", 4, "its content does not match its hash"),
        ("UPDATE log SET body = '[NaN]' WHERE seq = 4", 4, "its content does not match its hash"),
        ("DELETE FROM log WHERE seq = 2", 2, "an entry is missing"),
        ("DELETE FROM log WHERE seq = (SELECT max(seq) FROM log)", 6, "the end of the log is missing"),
    ],
)
def test_the_state_of_the_log_names_the_first_bad_entry(parties, console, change, bad, reason):
    declare(parties)
    entries = parties.third_party.verify_log().entries
    assert f"Verified up to entry {entries} at" in check(parties, console)

    def tamper(connection):
        if connection.dialect.name == "postgresql":
            connection.execute(text("ALTER TABLE log DISABLE TRIGGER USER"))
        else:
            for verb in ("UPDATE", "DELETE"):
                connection.execute(text(f"DROP TRIGGER log_no_{verb}"))
        connection.execute(text(change))

    parties.context.database.write(tamper)
    page = check(parties, console)
    assert f"Broken at entry {bad}: {reason}" in page
    assert f"The log is broken at entry {bad}" in words(console.get("/"))


def test_a_bad_signature_of_a_checkpoint_is_found(parties, console):
    declare(parties)
    parties.context.database.write(
        lambda c: c.execute(text("INSERT INTO checkpoints VALUES (3, :hash, :key, 'not base64 at all', 2)"),
                            {"hash": "0" * 64, "key": parties.context.key.key_id})
    )  # fmt: skip
    assert "Broken at entry 3: a checkpoint has a wrong signature" in check(parties, console)


def test_the_log_is_checked_when_somebody_looks(parties, console):
    declare(parties)
    console.get("/console/log")
    parties.app.state.console.log_monitor.wait()
    assert parties.app.state.console.log_monitor.state.found.intact


# --- drawings ---


CHARTS = {
    "sections": [
        {"id": "group_means", "measure": "group_means", "records": [
            {"group": None, "premium": 5.0, "premium_low": 4.0, "premium_high": 6.0, "loss": 5.5, "loss_low": 5.0,
             "loss_high": 6.5, "note": ""},
            {"group": "<b>a</b>", "premium": 1.0, "premium_low": 0.5, "premium_high": 2.0, "loss": 9.0,
             "loss_low": 8.0, "loss_high": 10.0, "note": ""},
        ]},
    ],
}  # fmt: skip


def test_charts_are_those_of_the_audit_and_need_no_style():
    shown = show_comparison(CHARTS, 0.9)
    svg = shown["charts"]["group_means"]
    assert svg.startswith("<svg")
    assert "style=" not in svg
    assert "<script" not in svg
    assert "<b>" not in svg  # names of groups are text
    assert shown["means"] == CHARTS["sections"][0]["records"]
    assert show_comparison(CHARTS, 0.9)["charts"]["group_means"] is svg  # drawn once


@pytest.mark.parametrize("summary", [None, {}, {"sections": [None, {"id": "group_means"}]}])
def test_nothing_to_draw_is_no_drawing(summary):
    shown = show_comparison(summary, 0.95)
    assert not any(shown["charts"].values())
    assert (shown["means"], shown["classes"], shown["findings"]) == ([], [], [])
