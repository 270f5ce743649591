"""The console over HTTP: who gets in, what the pages say and never say, and that nothing breaks them."""

from __future__ import annotations

import html
import json
import re
import time

import httpx
import pytest
from sqlalchemy import text, update

from fairpremium import RandomizedResponse
from fairpremium.parties import EstimatedChannel, FitSpec, KnownChannel, StudySpec, TrueAttribute
from fairpremium.parties.clients._client import AppTransport
from fairpremium.parties.clients._collector import draw_reports
from fairpremium.parties.console._access import SESSION_SECONDS
from fairpremium.parties.console._templates import show_comparison
from fairpremium.parties.http._app import create_app
from fairpremium.parties.protocol._linkage import make_keys
from fairpremium.parties.release._accounting import epsilon_of, mu_of
from fairpremium.parties.service._leases import acquire_lease, record_progress
from fairpremium.parties.service._settings import ServiceSettings
from fairpremium.parties.service._third_party import ThirdParty
from fairpremium.parties.service._worker import work_once
from fairpremium.parties.store.schema import fits
from fairpremium.portfolios import zhang_liu_shi_2025
from fairpremium.privacy import MemoizedReports, PrivacyLedger

CHANNEL = RandomizedResponse(["F", "M"], keep=0.8)
OWN = {"Sec-Fetch-Site": "same-origin"}
PASSWORD = "correct horse battery staple"


class From(AppTransport):
    """Requests that come from another address."""

    def __init__(self, app, client="127.0.0.1"):
        super().__init__(app)
        self._inner = httpx.ASGITransport(app=app, client=(client, 50000), raise_app_exceptions=False)


class Clock:
    def __init__(self):
        self.now = time.time()

    def __call__(self):
        return self.now


@pytest.fixture
def open_console(tmp_path):
    """Build a service with settings; return a function that opens its console from an address."""
    closing = []

    def build(folder="service", **settings):
        clock = settings.pop("clock", None)
        party = ThirdParty(tmp_path / folder, clock=clock)
        app = create_app(ServiceSettings(folder=tmp_path / folder, **settings), party)
        closing.append(party.close)

        def visit(client="127.0.0.1", host="127.0.0.1:8350", **headers):
            transport = From(app, client)
            closing.append(transport.close)
            return httpx.Client(base_url=f"http://{host}", transport=transport, headers=headers)

        visit.app, visit.party = app, party
        return visit

    yield build
    for close in reversed(closing):
        close()


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


# --- who gets in ---


def test_this_machine_gets_in_without_a_password(open_console):
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
@pytest.mark.parametrize("path", [*PAGES, "/console/nothing"])
def test_others_do_not_without_a_password(open_console, settings, visitor, path):
    visit = open_console(**settings)
    client = visit(**visitor)
    answer = client.get(path)
    assert answer.status_code == 403
    assert "The console is closed from here" in answer.text
    assert visit.app.state.requests.party.context.key.key_id not in answer.text
    assert client.post("/console/log/verify", headers=OWN).status_code == 403
    assert visit.app.state.console.log_monitor.state.found is None


def test_a_password_is_asked_for_everywhere(open_console):
    visit = open_console(console_password=PASSWORD)
    client = visit()
    for path in PAGES:
        answer = client.get(path)
        assert (answer.status_code, answer.headers["location"].partition("?")[0]) == (303, "/console/login")
    assert client.post("/console/log/verify", headers=OWN).status_code == 303
    assert visit.app.state.console.log_monitor.state.found is None
    page = client.get("/console/login")
    assert page.status_code == 200
    assert visit.app.state.requests.party.context.key.key_id not in page.text


def log_in(client, password=PASSWORD, path="/console/login"):
    return client.post(path, data={"password": password}, headers=OWN)


def test_the_password_opens_a_session_that_ends(open_console):
    clock = Clock()
    visit = open_console(console_password=PASSWORD, clock=clock)
    client = visit()
    wrong = log_in(client, PASSWORD + "r")
    assert wrong.status_code == 401
    assert "That is not the password" in wrong.text
    assert PASSWORD not in wrong.text
    assert not wrong.cookies
    right = log_in(client)
    assert (right.status_code, right.headers["location"]) == (303, "/")
    cookie = right.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "path=/" in cookie
    assert f"max-age={SESSION_SECONDS:.0f}" in cookie
    assert "secure" not in cookie  # a browser would not send it back over http
    assert "No study yet" in client.get("/").text
    clock.now += SESSION_SECONDS - 1
    assert client.get("/").status_code == 200
    clock.now += 2
    assert client.get("/").status_code == 303


def test_logging_out_ends_the_session_itself(open_console):
    visit = open_console(console_password=PASSWORD)
    client, thief = visit(), visit()
    log_in(client)
    thief.cookies = httpx.Cookies(client.cookies)
    assert thief.get("/").status_code == 200
    assert client.post("/console/logout", headers=OWN).headers["location"] == "/console/login"
    assert not client.cookies
    assert client.get("/").status_code == 303
    assert thief.get("/").status_code == 303


def test_sessions_hold_at_another_process_and_end_with_the_password(open_console):
    first = open_console(console_password=PASSWORD)
    client = first()
    log_in(client)
    for password, status in ((PASSWORD, 200), ("another password", 303)):
        other = open_console(console_password=password)()
        other.cookies = httpx.Cookies(client.cookies)
        assert other.get("/").status_code == status


def test_a_short_password_is_refused_and_none_is_printed():
    for password in ("", "seven 7"):
        with pytest.raises(ValueError, match="short password"):
            ServiceSettings(folder="x", console_password=password)
    settings = ServiceSettings(folder="x", console_password=PASSWORD, database="postgresql://me:CANARY@host/name")
    assert PASSWORD not in repr(settings)
    assert "CANARY" not in repr(settings)


def test_a_forged_cookie_is_worth_nothing(open_console):
    visit = open_console(console_password=PASSWORD)
    client = visit()
    log_in(client)
    name, value = next(iter(client.cookies.items()))
    expires, session, signature = value.split(".")
    forged = [
        f"{int(expires) + 9999}.{session}.{signature}",
        f"{expires}.{'0' * 32}.{signature}",
        f"{expires}.{session}.{'0' * 64}",
        f"{expires}.{session}",
        "..",
        "",
        "nan.x.y",
        "é",
    ]
    for content in forged:
        answer = visit(Cookie=f"{name}={content}".encode()).get("/")
        assert answer.status_code == 303, content


def test_the_cookie_of_https_is_held_to_https(open_console):
    client = open_console(console_password=PASSWORD, proxies=("127.0.0.1",), hosts=("127.0.0.1:8350",))()
    cookie = log_in(client).headers["set-cookie"]
    assert cookie.startswith("__Host-")
    assert "secure" in cookie.lower()


def test_guessing_the_password_is_slow(open_console):
    visit = open_console(console_password=PASSWORD)
    client = visit()
    answers = [log_in(client, f"guess {i}").status_code for i in range(8)]
    assert answers == [401] * 5 + [429] * 3
    assert log_in(client).status_code == 429  # even the right one
    assert log_in(visit(client="127.0.0.2")).status_code == 303  # others still get in
    start = time.perf_counter()
    assert not visit.app.state.console.access.knows("x")
    assert time.perf_counter() - start > 0.02


@pytest.mark.parametrize("body", [b"", b"password", b"password=%ff%fe", b"x" * 100_000, b"password=" + b"a=" * 50])
def test_a_strange_login_is_a_wrong_one(open_console, body):
    client = open_console(console_password=PASSWORD)()
    answer = client.post("/console/login", content=body, headers=OWN)
    assert answer.status_code == 401
    assert "not the password" in answer.text


@pytest.mark.parametrize(
    ("to", "leads"),
    [
        ("/console/studies/motor", "/console/studies/motor"),
        ("https://evil.example/", "/"),
        ("//evil.example/", "/"),
        ("/console//evil.example", "/"),
        ("/console/../v1", "/console/../v1"),
        ("/\\evil.example", "/"),
        ("/console/log\r\nX: y", "/"),
    ],
)
def test_after_the_login_nobody_is_led_away(open_console, to, leads):
    client = open_console(console_password=PASSWORD)()
    answer = client.post("/console/login", params={"to": to}, data={"password": PASSWORD}, headers=OWN)
    assert answer.headers["location"] == leads


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
    locked = open_console("other", console_password=PASSWORD)()
    answer = locked.post("/console/login", data={"password": PASSWORD}, headers=headers)
    assert answer.status_code == (303 if is_own else 403)
    assert locked.post("/console/logout", headers=headers).status_code == (303 if is_own else 403)


# --- headers ---


def test_every_page_is_fenced_in(parties, console):
    declare(parties)
    for path in [*PAGES, "/console/nothing", "/console/static/console.css", "/console/static/none.css"]:
        headers = console.get(path).headers
        policy = dict(part.split(" ", 1) for part in headers["content-security-policy"].split("; "))
        assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["form-action"] == "'self'"
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-frame-options"] == "DENY"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
        assert headers["cache-control"] == ("no-store" if "console.css" not in path else headers["cache-control"])
    for path in PAGES:
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
    assert "nobody no key yet" in page
    assert "app no key yet" not in page


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


# --- what pages never say ---


def test_hostile_names_are_text(parties, console):
    title = "<script>alert('x')</script><img src=x onerror=alert(1)>\" onload=\"x"
    channel = RandomizedResponse(["<b>F</b>", "M\"'>"], keep=0.8)
    declare(parties, title=title, attribute=KnownChannel(channel=channel.descriptor()))
    for path in ("/", "/console/studies/motor", "/console/log"):
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
    pages = "".join(console.get(path).text for path in PAGES)
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
    for path in PAGES:
        answer = console.get(path)
        assert answer.status_code == 503
        assert "cannot be shown now" in answer.text
        assert "CANARY" not in answer.text
    assert console.post("/console/log/verify", headers=OWN).status_code == 303  # the check itself says that it failed
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
    for _ in range(70):
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
