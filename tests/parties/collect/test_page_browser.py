"""The page in a real browser, against the real service: the answer stays, and every disturbance ends in one report."""

from __future__ import annotations

import base64
import json
import re
import threading
import urllib.parse
from contextlib import contextmanager

import pytest
from sqlalchemy import inspect, select, text

from fairpremium import Channel, RandomizedResponse
from fairpremium.parties import KnownChannel, StudySpec
from fairpremium.parties.collect._page import load_page, script_integrity, write_page
from fairpremium.parties.http._app import create_app
from fairpremium.parties.protocol._invitations import invitation_key, write_token
from fairpremium.parties.protocol._keys import new_key
from fairpremium.parties.protocol._messages import Question, QuestionText
from fairpremium.parties.service._context import Party, ServiceLimits
from fairpremium.parties.service._settings import ServiceSettings
from fairpremium.parties.service._third_party import ThirdParty
from fairpremium.parties.store.schema import answers, reports
from helpers import browser as browser_tools
from helpers import scripts

SOON = 60_000  # milliseconds
OPERATOR = Party("op", "operator")
CHANNEL = RandomizedResponse(["F", "M"], keep=0.8)
QUESTION = Question(
    collector="Alpina Insurance",
    texts={
        "en": QuestionText(
            question="What is your sex?",
            groups=("Female", "Male"),
            purpose="The law forbids that sex moves a premium. We want to show that our motor tariff keeps to it, also "
            "indirectly. For this we need to know how premiums and claims differ on average, and of nobody alone.",
        ),
        "de": QuestionText(
            question="Welches Geschlecht haben Sie?",
            groups=("weiblich", "männlich"),
            purpose="Das Geschlecht darf die Prämie nicht beeinflussen. Wir möchten zeigen, dass sich unser Tarif "
            "daran hält, auch mittelbar. Dafür müssen wir wissen, wie Prämien und Schäden im Mittel verteilt sind.",
        ),
    },
)
MARKS = (
    "D0 plover-züm", "D1 quince-qax", "D2 wombat-vyl", "answer of plövers", "answer of quinces", "answer of wombats",
)  # fmt: skip
MARKED = Channel([[0.7, 0.2, 0.1], [0.2, 0.7, 0.1], [0.1, 0.1, 0.8]], groups=MARKS[:3], reports=["r0", "r1", "r2"])
MARKED_QUESTION = Question(
    collector="App", texts={"en": QuestionText(question="Which?", groups=MARKS[3:], purpose="A test.")}
)
# Counts the integers that are drawn for reports: 32-bit words, one at a time.
COUNT_DRAWS = """
const original = crypto.getRandomValues.bind(crypto);
window.draws = 0;
crypto.getRandomValues = array => {
  if (array instanceof Uint32Array) window.draws += 1;
  return original(array);
};
"""


@pytest.fixture(scope="module")
def browser():
    with browser_tools.open_browser() as found:
        yield found


class Recorder:
    """All bytes of requests that reach an app."""

    def __init__(self, app):
        self.app = app
        self.seen = []

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        request = {"method": scope["method"], "path": scope["raw_path"], "query": scope["query_string"],
                   "headers": scope["headers"], "body": b""}  # fmt: skip
        self.seen.append(request)

        async def listen():
            message = await receive()
            request["body"] += message.get("body", b"")
            return message

        return await self.app(scope, listen, send)

    def bodies(self, name):
        return [r["body"] for r in self.seen if r["path"] == f"/collect/v1/{name}".encode() and r["method"] == "POST"]


class Service:
    """A third party with one study that asks people, served on this machine."""

    def __init__(self, folder, channel=CHANNEL, question=QUESTION, **settings):
        self.folder = folder
        self.party = ThirdParty(folder, limits=ServiceLimits(answers_per_second=1000.0))
        self.key = new_key()
        for name, role, key in (("op", "operator", new_key()), ("app", "collector", self.key)):
            self.party.add_key(key.public_key, party=name, role=role)
        self.spec = StudySpec(
            title="Motor", attribute=KnownChannel(channel=channel.descriptor()), collectors=("app",),
            insurers=("acme",), question=question,
        )  # fmt: skip
        self.party.put_study(OPERATOR, "motor", self.spec)
        self.party.open_study(OPERATOR, "motor")
        self.recorder = Recorder(create_app(ServiceSettings(folder=folder, collect=True, **settings), self.party))
        self.people = 0

    def token(self, expires=2**32):
        self.people += 1
        key = self.people.to_bytes(16, "big")
        return write_token(self.key, invitation_key(self.party.context.key), study="motor", key=key, expires=expires)

    def rows(self, table):
        return self.party.context.database.read(lambda c: c.execute(select(table)).all())

    def everything(self):
        """All that the third party has written: every table, every file."""

        def dump(connection):
            names = inspect(connection).get_table_names()
            return repr([connection.execute(text(f'SELECT * FROM "{name}"')).all() for name in names])

        tables = self.party.context.database.read(dump).encode()
        return tables, b"".join(f.read_bytes() for f in sorted(self.folder.rglob("*")) if f.is_file())


@contextmanager
def serve(folder, **options):
    service = Service(folder, **options)
    with browser_tools.served(service.recorder) as address:
        service.address = address
        yield service
    service.party.close()


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with serve(tmp_path_factory.mktemp("collect") / "third-party") as service:
        yield service


def open_answer(**changes):
    question = {"language": "en", "texts": {"en": {"question": "?", "groups": ["A", "B"], "purpose": "."}}}
    return {"open": True, "channel": CHANNEL.descriptor(), "question": question, "collector": "C", **changes}


def always(answer):
    return lambda route: route.fulfill(json=answer)


class Device:
    """A browser of a person; it notes what it asks for and what goes wrong."""

    def __init__(self, browser, address, token, size="desktop", *, is_open=True, path="/collect/", **context):
        width, height = browser_tools.SIZES[size]
        self.size, self.width = size, width
        self.address, self.token = address, token
        self.context = browser.new_context(
            viewport={"width": width, "height": height}, **{"locale": "en-GB", **context}
        )
        self.page = self.context.new_page()
        self.page.add_init_script(COUNT_DRAWS)
        self.requests, self.problems = [], []
        self.page.on("request", lambda r: self.requests.append(r))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("console", lambda m: self.problems.append(m.text) if m.type in ("error", "warning") else None)
        self.page.goto(f"{address}{path}#{token}")
        self.wait("ask" if is_open else "closed")

    def wait(self, view):
        self.page.locator(f".view.{view}").wait_for(timeout=SOON)

    def choose(self, value=0, *, consent=True):
        self.page.locator(f"input[name=answer][value='{value}']").check()
        if consent and value != "declined":
            self.page.locator("input[name=consent]").check()

    def send(self):
        self.page.locator("form button").click()

    def answer(self, value=0):
        self.choose(value)
        self.send()
        self.wait("sent")

    @property
    def draws(self):
        return self.page.evaluate("window.draws")

    def storage(self):
        return self.page.evaluate("({...sessionStorage})")

    def keep(self, name):
        browser_tools.keep_screenshot(self.page, f"collect-{name}-{self.size}")
        assert self.page.evaluate("document.documentElement.scrollWidth") <= self.width, f"{name} is too wide"

    def close(self, problems=()):
        """End; nothing was asked for elsewhere, and nothing went wrong but what was to be expected."""
        away = [r.url for r in self.requests if not r.url.startswith(self.address)]
        others = [p for p in self.problems if not any(expected in p for expected in problems)]
        self.context.close()
        assert (away, others) == ([], [])


FAILED = ("net::ERR_", "status of 500", "status of 503")


# --- one person ---


@pytest.mark.parametrize("size", browser_tools.SIZES)
def test_a_person_answers_by_keyboard_alone(service, browser, size):
    token = service.token()
    device = Device(browser, service.address, token, size)
    page = device.page
    assert page.locator("h1").inner_text() == "One question. Your answer stays with you."
    assert "at most 80% sure" in page.locator("figcaption").inner_text()
    assert "chance of 80%" in page.locator(".steps").inner_text()
    assert page.locator("#sender").inner_text() == "Alpina Insurance"
    device.keep("1-question")

    def press(key, *, until):
        for _ in range(12):
            page.keyboard.press(key)
            if page.evaluate(f"document.activeElement.matches({until!r})"):
                return
        pytest.fail(f"{until} is out of reach")

    press("Tab", until="#language")
    press("Tab", until="input[name=answer]")
    press("Tab", until="input[name=consent]")
    press("Tab", until="form button")
    page.keyboard.press("Enter")  # too early: it is said what is missing, and the focus is there
    assert page.locator("#answer-error").inner_text() == "Please choose one of the answers."
    assert page.evaluate("document.activeElement.name") == "answer"
    page.keyboard.press("ArrowDown")
    press("Tab", until="form button")
    page.keyboard.press("Enter")
    assert page.locator("#answer-error").inner_text() == ""
    assert "tick this box" in page.locator("#consent-error").inner_text()
    assert page.evaluate("document.activeElement.name") == "consent"
    device.keep("2-consent")
    assert device.draws == 0
    page.keyboard.press("Space")
    page.keyboard.press("Enter")  # sends from any field
    device.wait("sent")
    assert page.evaluate("document.activeElement.tagName") == "H1"
    page.locator(".sent summary").click()
    assert "drawn at random" in page.locator(".sent details").inner_text()
    device.keep("3-sent")
    assert device.draws >= 1
    sent = json.loads(service.recorder.bodies("report")[-1])
    assert (sent["token"], sent["report"] in ("F", "M")) == (token, True)
    assert device.storage() == {f"fairpremium-report {token}": '{"sent":true}'}
    asked = len(device.requests)
    page.reload()
    device.wait("sent")
    assert not [r for r in device.requests[asked:] if "/v1/" in r.url]
    device.close()
    other = Device(browser, service.address, token, size, is_open=False)
    other.keep("4-closed")
    other.close()


def test_prefer_not_to_say_is_a_missing_report(service, browser):
    before = len(service.rows(answers)), len(service.rows(reports))
    device = Device(browser, service.address, service.token())
    device.choose("declined")
    device.send()
    device.wait("sent")
    assert device.draws == 0
    assert json.loads(service.recorder.bodies("report")[-1])["report"] is None
    assert (len(service.rows(answers)), len(service.rows(reports))) == (before[0] + 1, before[1])
    device.close()


@pytest.mark.parametrize("kind", ["nothing", "rubbish", "expired", "forged"])
def test_a_link_that_is_not_open_is_answered_alike_and_nothing_is_drawn(service, browser, kind):
    forged = list(service.token())
    forged[-10] = "A" if forged[-10] != "A" else "B"
    token = {"nothing": "", "rubbish": "x<y>", "expired": service.token(expires=1), "forged": "".join(forged)}[kind]
    device = Device(browser, service.address, token, is_open=False)
    assert "This link is not open" in device.page.locator("h1").inner_text()
    assert (device.draws, device.storage()) == (0, {})
    device.close()


def test_another_link_in_the_same_window_is_another_person(service, browser):
    device = Device(browser, service.address, service.token())
    device.answer()
    device.page.evaluate("token => { location.hash = token; }", service.token())
    device.wait("ask")
    device.answer(1)
    assert len(device.storage()) == 2
    device.close()


# --- barriers, languages, sizes ---


LANGUAGES = ("de", "en", "es", "fr")


def test_every_language_says_everything():
    texts = {name: json.loads(load_page()[f"texts/{name}.json"].content) for name in LANGUAGES}
    assert sorted(n for n in load_page() if n.startswith("texts/")) == [f"texts/{name}.json" for name in LANGUAGES]

    def shape(value):
        if isinstance(value, str):
            assert value.strip()
            return sorted(set(re.findall(r"\{\w+\}", value)))
        return [shape(v) for v in value] if isinstance(value, list) else {k: shape(v) for k, v in value.items()}

    english = shape(texts["en"])
    for name in LANGUAGES:
        assert shape(texts[name]) == english, name
        assert len({str(v) for v in texts[name].values()}) == len(texts[name])
    used = set(re.findall(r"\bt\.(\w+)|texts\.(\w+)|tell\(\"(\w+)\"", "".join(
        load_page()[name].content.decode() for name in ("private-answer.js", "page.js"))))  # fmt: skip
    named = {name for names in used for name in names if name}
    assert named - {"json"} <= set(texts["en"])


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_barriers_in_any_language_or_state(service, browser, language):
    """axe-core finds nothing against WCAG 2.1 AA, in the light and in the dark, on a desk and on a phone."""
    sizes = {"desktop": "light", "phone": "dark"} if language == "en" else {"phone": "light"}
    for size, scheme in sizes.items():
        device = Device(browser, service.address, service.token(), size, locale=language, color_scheme=scheme)
        page = device.page
        assert page.evaluate("document.documentElement.lang") == language

        def look(name, device=device, scheme=scheme):
            if language != "en" and name not in ("ask", "missing"):
                return  # the others have a heading, texts and a button
            device.page.locator("#about summary").wait_for()
            device.keep(f"{name}-{language}-{scheme}")
            assert browser_tools.find_barriers(device.page) == [], f"{name}, {language}, {scheme}"

        look("ask")
        if language == "es":  # the study does not speak Spanish
            assert page.locator("legend h2[lang=en]").count() == 1
        device.send()
        device.choose(1, consent=False)
        device.send()
        look("missing")
        device.choose(1)
        page.route("**/v1/report", lambda route: route.abort())
        page.evaluate("Object.defineProperty(navigator, 'onLine', {value: false, configurable: true})")
        device.send()
        device.wait("waiting")
        look("waiting")
        page.unroute("**/v1/report")
        page.locator("button").click()
        device.wait("sent")
        page.locator(".sent summary").click()
        page.locator("#about summary").click()
        look("sent")
        device.close(FAILED)
        other = Device(
            browser, service.address, device.token, size, is_open=False, locale=language, color_scheme=scheme
        )
        look("closed", other)
        other.page.route("**/v1/open", lambda route: route.abort())
        other.page.reload()
        other.wait("unreachable")
        look("unreachable", other)
        other.close(FAILED)


def test_the_barrier_check_sees_a_barrier(browser):
    page = browser.new_page()
    page.set_content("<main><img src='x'><input></main>")
    assert {"image-alt", "label"} <= {name for name, _ in browser_tools.find_barriers(page)}
    page.close()


def test_another_language_keeps_what_was_chosen(service, browser):
    device = Device(browser, service.address, service.token())
    device.choose(1)
    device.page.locator("#language").select_option("de")
    device.page.get_by_text("Welches Geschlecht haben Sie?").wait_for()
    assert device.page.locator("input[value='1']").is_checked()
    assert device.page.locator("input[name=consent]").is_checked()
    assert "höchstens 80 %" in device.page.locator("figcaption").inner_text().replace("\xa0", " ")
    assert device.page.title().startswith("Eine Frage")
    device.page.reload()
    device.wait("ask")
    assert device.page.evaluate("document.documentElement.lang") == "de"
    device.close()


def test_all_files_together_are_small(service, browser):
    assert sum(len(file.content) for file in load_page().values()) < 60_000
    sizes = []
    page = browser.new_page()
    page.on("response", lambda r: sizes.append(len(r.body())))
    page.goto(f"{service.address}/collect/#{service.token()}")
    page.locator(".view.ask").wait_for()
    page.wait_for_load_state("networkidle")
    assert sum(sizes) < 60_000
    page.close()


def test_without_scripts_the_page_says_so(service, browser):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{service.address}/collect/#token")
    assert page.locator("noscript h1").is_visible()
    assert not page.locator("#language").is_visible()
    context.close()


# --- the answer stays ---


def forms(mark):
    """What a value may look like in bytes that were sent or stored."""
    raw = mark.encode()
    return {
        raw, mark.encode("latin-1"), mark.encode("utf-16-le"), mark.encode("utf-16-be"), raw.hex().encode(),
        json.dumps(mark)[1:-1].encode(), urllib.parse.quote(mark).encode(), urllib.parse.quote_plus(mark).encode(),
        *(base64.b64encode(b"." * shift + raw)[4:-4] for shift in range(3)), raw[::-1],
        mark.encode("ascii", "xmlcharrefreplace"), mark.encode("ascii", "ignore"), mark.split()[-1].encode(),
    }  # fmt: skip


ALL_FORMS = set().union(*map(forms, MARKS))


def found_in(*places):
    return {form for place in places for form in ALL_FORMS if form in place or form.lower() in place.lower()}


@pytest.mark.parametrize("server", ["third party", "collector"])
def test_the_answer_is_in_no_request_no_storage_and_no_log(browser, tmp_path, capfd, caplog, server):
    assert all(found_in(form) for mark in MARKS for form in forms(mark))
    assert min(map(len, ALL_FORMS)) > 6
    with (
        scripts.serve_folder(tmp_path / "web") as web,
        serve(tmp_path / "third-party", channel=MARKED, question=MARKED_QUESTION, collect_origins=(web,)) as service,
    ):
        declared = service.everything()
        write_page(tmp_path / "web" / "survey", service.address)
        address = {"third party": f"{service.address}/collect/", "collector": f"{web}/survey/index.html"}[server]
        profile = tmp_path / "profile"
        with browser_tools.open_profile(browser, profile) as context:
            outgoing = []
            context.on(
                "request",
                lambda r: outgoing.append(
                    repr([r.method, r.url, r.all_headers() if r.method == "POST" else r.headers, r.post_data]).encode()
                ),
            )
            for value in (0, 1, 2):
                page = context.new_page()
                page.goto(f"{address}#{service.token()}")
                page.locator(f"input[value='{value}']").check()
                page.locator("input[name=consent]").check()
                page.locator("form button").click()
                page.locator(".view.sent").wait_for(timeout=SOON)
                stored = page.evaluate(
                    """async () => JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie,
                        await indexedDB.databases(), await caches.keys(), history.state, window.name, location.href])"""
                )
                assert not found_in(stored.encode())
            assert len(outgoing) >= 3 * 9
            assert not found_in(*outgoing)
            assert context.cookies() == []
        received = [repr(sorted(r.items())).encode() for r in service.recorder.seen]
        assert not found_in(*received, *(r["body"] for r in service.recorder.seen))
        for body in service.recorder.bodies("report"):  # nothing else either: no position, no trace of the choice
            sent = json.loads(body)
            assert sorted(sent) == ["attempt", "channel", "report", "token"]
            assert sent["channel"] == MARKED.descriptor()["sha256"]
            assert sent["report"] in MARKED.reports
            assert re.fullmatch("[0-9a-f]{32}", sent["attempt"])
        on_disk = {
            str(f.relative_to(profile)): found
            for f in profile.rglob("*") if f.is_file() and (found := found_in(f.read_bytes()))
        }  # fmt: skip
        assert on_disk == {}
        # The study names its groups. Nothing more of them is anywhere after the answers than before.
        count = lambda places: {form: [place.count(form) for place in places] for form in ALL_FORMS}  # noqa: E731
        assert count(service.everything()[:1]) == count(declared[:1])
    out, err = capfd.readouterr()
    assert not found_in(out.encode(), err.encode(), caplog.text.encode())


def without_hashes(page):
    """Let a changed script run, as it would if whoever serves it changed the page, too."""

    def change(route):
        answer = route.fetch()
        route.fulfill(response=answer, body=re.sub(r' integrity="[^"]*"', "", answer.text()))

    page.route("**/collect/", change)


def transcript(browser, address, value, word, change=("", ""), **said):
    """All that leaves the page or is stored by it when an answer is given and a word drawn; a script may be changed."""
    context = browser.new_context(locale="en-GB")
    page = context.new_page()
    page.add_init_script(f"""
        crypto.getRandomValues = a => a.fill(a instanceof Uint32Array ? {word} : 7);
        window.stored = [];
        const set = Storage.prototype.setItem;
        Storage.prototype.setItem = function (k, v) {{ stored.push([k, v]); set.call(this, k, v); }};
    """)
    seen = []
    page.on("request", lambda r: seen.append(r))
    page.route("**/v1/open", always(open_answer(**said)))
    page.route("**/v1/report", always({"accepted": True}))
    without_hashes(page)
    script = load_page()["private-answer.js"].content.decode()
    assert change[0] in script
    changed = script.replace(*change, 1)
    page.route("**/private-answer.js", lambda route: route.fulfill(body=changed, content_type="text/javascript"))
    page.goto(f"{address}/collect/#token")
    page.locator(f"input[value='{value}']").check()
    page.locator("input[name=consent]").check()
    page.locator("form button").click()
    page.locator(".view.sent").wait_for(timeout=SOON)
    asked = [[r.method, r.url, sorted(r.all_headers().items()), r.post_data] for r in seen if "/v1/" in r.url]
    found = (asked, page.evaluate("stored"), page.locator("main").inner_html())
    context.close()
    return found


def test_what_leaves_the_device_depends_on_the_report_alone(service, browser):
    """Two answers with the same report: the same bytes in the same requests, and the same is stored."""
    true, lie = (transcript(browser, service.address, *draw) for draw in ((0, 0), (1, 4)))  # of N = 5, 4 is a lie
    assert len(true[0]) == 3
    assert '"report":"F"' in true[0][-1][-1]
    assert true == lie


def test_the_length_of_a_request_does_not_tell_the_report(service, browser):
    """Who sees encrypted requests sees how long they are: every report, and none, has as many bytes."""
    channel = RandomizedResponse(["F", "männlich, oder anders", "Ω"], keep=0.5).descriptor()
    texts = {"en": {"question": "?", "groups": ["A", "B", "C"], "purpose": "."}}
    said = {"channel": channel, "question": {"language": "en", "texts": texts}}
    sent = [transcript(browser, service.address, value, 0, **said)[0][-1] for value in (0, 1, 2, "declined")]
    bodies = [body.encode() for *_, body in sent]
    assert [json.loads(body)["report"] for body in bodies] == [*channel["reports"], None]
    assert {len(body) for body in bodies} == {1024}
    assert len({repr(headers) for _, _, headers, _ in sent}) == 1


@pytest.mark.parametrize(
    "change",
    [
        ("{ token: this.token, ...this.kept }", "{ token: this.token, ...this.kept, n: globalThis.chosen }"),
        ("form.reset();", "sessionStorage.setItem('n', globalThis.chosen);"),
        ("form.reset();", "if (globalThis.chosen === '1') await this.#link.open();"),
    ],
    ids=["sent", "stored", "one more request"],
)
def test_a_script_that_lets_the_answer_out_is_found(service, browser, change):
    old, new = change
    remember = "this.#busy = true;\n    this.#wait(form, true);"
    draws = []
    for draw in ((0, 0), (1, 4)):
        script = load_page()["private-answer.js"].content.decode()
        assert remember in script
        changed = script.replace(remember, f"globalThis.chosen = chosen; {remember}").replace(old, new, 1)
        draws.append(transcript(browser, service.address, *draw, change=(script, changed)))
    assert draws[0] != draws[1]


# --- every disturbance ends in one report ---


@pytest.fixture
def one(service):
    """A person, and a check afterwards: the third party has one report, that of the first request it took."""

    class One:
        token = service.token()
        before = len(service.rows(answers)), len(service.rows(reports))

        def bodies(self):
            return [b for b in service.recorder.bodies("report") if json.loads(b)["token"] == self.token]

    one = One()
    yield one
    assert (len(service.rows(answers)), len(service.rows(reports))) == (one.before[0] + 1, one.before[1] + 1)
    assert len({json.loads(b)["report"] for b in one.bodies()}) <= 2


def test_double_clicks(service, browser, one):
    device = Device(browser, service.address, one.token)
    device.choose(0)
    device.page.evaluate(
        """() => {
            const form = document.querySelector("form");
            for (let i = 0; i < 5; i++) form.requestSubmit();
            form.querySelector("button").click();
        }"""
    )
    device.wait("sent")
    assert len(one.bodies()) == 1
    device.close()


def test_clicks_while_the_service_is_slow(service, browser, one):
    device = Device(browser, service.address, one.token)
    held = []
    device.page.route("**/v1/*", lambda route: held.append(route))
    device.choose(0)
    for name in ("open", "report"):
        device.page.locator("form button, h1").last.dblclick()
        while not held:
            device.page.wait_for_timeout(20)
        assert "Your report is being sent" in device.page.locator("[role=status]").inner_text()
        if name == "open":
            assert device.page.locator("input[value='1']").is_disabled()
        assert [route.request.url.rpartition("/")[2] for route in held] == [name]
        held.pop().continue_()
        if name == "open":
            device.wait("sending")
    device.wait("sent")
    assert len(one.bodies()) == 1
    device.close()


def test_without_a_connection_nothing_is_drawn_and_the_choice_stays(service, browser, one):
    device = Device(browser, service.address, one.token)
    device.choose(1)
    device.context.set_offline(True)
    device.send()
    device.page.get_by_text("Nothing was drawn and nothing was sent").wait_for()
    assert (device.draws, device.storage()) == (0, {})
    assert device.page.locator("input[value='1']").is_checked()
    assert device.page.evaluate("document.activeElement.tagName") == "BUTTON"
    device.context.set_offline(False)
    device.send()
    device.wait("sent")
    device.close(FAILED)


def test_a_connection_that_breaks_after_the_draw(service, browser, one):
    """The report waits, survives reloads, is drawn once, and leaves by itself when the connection is back."""
    device = Device(browser, service.address, one.token)
    page = device.page
    page.route("**/v1/report", lambda route: (device.context.set_offline(True), route.abort()))
    device.choose(1)
    device.send()
    device.wait("waiting")
    draws, kept = device.draws, device.storage()
    assert draws >= 1
    page.unroute("**/v1/report")
    device.context.set_offline(False)
    device.wait("sent")
    assert device.draws == draws
    assert [json.loads(b)["report"] for b in one.bodies()] == [
        json.loads(kept[f"fairpremium-report {one.token}"])["report"]
    ]
    device.close(FAILED)


def test_reloads_while_the_report_waits(service, browser, one):
    device = Device(browser, service.address, one.token)
    page = device.page
    tried = []
    page.route("**/v1/report", lambda route: (tried.append(route.request.post_data), route.abort()))
    device.choose(0)
    device.send()
    device.wait("sending")
    for _ in range(3):
        page.reload()
        page.locator(".view.sending").wait_for()
        assert device.draws == 0  # since the reload
    page.unroute("**/v1/report")
    page.reload()
    device.wait("sent")
    assert {*tried, one.bodies()[0].decode()} == {tried[0]}
    device.close(FAILED)


def test_an_answer_of_the_service_that_is_lost(service, browser, one):
    """The report has arrived, and the page does not know: it sends the same again and is told so."""
    device = Device(browser, service.address, one.token)
    lost = []

    def lose(route):
        if lost:
            return route.continue_()
        lost.append(route.fetch())
        return route.abort()

    device.page.route("**/v1/report", lose)
    device.choose(0)
    device.send()
    device.wait("sent")
    assert len(one.bodies()) == 2
    assert len(set(one.bodies())) == 1
    device.close(FAILED)


def test_a_service_that_is_busy(service, browser, one):
    device = Device(browser, service.address, one.token)
    refused = []
    device.page.route(
        "**/v1/report", lambda r: r.continue_() if len(refused) == 2 else (refused.append(1), r.fulfill(status=503))
    )
    device.choose(0)
    device.send()
    device.wait("sent")
    assert len(refused) == 2
    device.close(FAILED)


def test_a_window_that_is_closed_before_the_report_left(service, browser, one):
    device = Device(browser, service.address, one.token)
    device.page.route("**/v1/report", lambda route: route.abort())
    device.choose(0)
    device.send()
    device.wait("sending")
    device.close(FAILED)
    again = Device(browser, service.address, one.token)
    again.answer(0)
    again.close()


def test_a_link_that_was_used_on_another_device_meanwhile(service, browser, one):
    desk, phone = (Device(browser, service.address, one.token, size) for size in ("desktop", "phone"))
    desk.choose(0)
    phone.choose(0)
    desk.send()
    desk.wait("sent")
    phone.send()
    phone.wait("closed")
    assert (phone.draws, phone.storage()) == (0, {})
    desk.close()
    phone.close()


def test_two_devices_at_the_same_moment(service, browser, one):
    """Both were told that the link is open: the first report counts, the other is forgotten."""
    desk, phone = (Device(browser, service.address, one.token, size) for size in ("desktop", "phone"))
    held = []
    phone.page.route("**/v1/report", lambda route: held.append(route))
    phone.choose(1)
    phone.send()
    phone.wait("sending")
    desk.answer(0)
    while not held:
        phone.page.wait_for_timeout(20)
    held[0].continue_()
    phone.wait("closed")
    assert phone.storage() == {}
    first, second = one.bodies()
    tables, files = service.everything()
    assert json.loads(second)["attempt"].encode() not in tables + files
    assert json.loads(first)["attempt"] != json.loads(second)["attempt"]
    desk.close()
    phone.close()


def test_a_hundred_requests_at_once_are_one_report(service, one):
    """Without a browser: what many devices would send at the same time."""
    import httpx

    with httpx.Client(base_url=service.address) as client:
        taken = []

        def send(i):
            body = {"token": one.token, "report": "FM"[i % 2], "attempt": f"{i:032x}"}
            taken.append(client.post("/collect/v1/report", json=body).json()["accepted"])

        threads = [threading.Thread(target=send, args=(i,)) for i in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(taken) == [False] * 19 + [True]


# --- what would not protect is not used ---


def test_a_channel_that_protects_nobody_is_not_used(service, browser):
    page = browser.new_page()
    for broken in ({"a": 5}, {"scheme": "subset-selection/1"}, {"epsilon": 0.1}):
        answer = open_answer(channel={**CHANNEL.descriptor(), **broken})
        page.route("**/v1/open", always(answer))
        page.goto(f"{service.address}/collect/#{json.dumps(broken)}")
        page.locator(".view.unprotected").wait_for(timeout=SOON)
        page.unroute("**/v1/open")
    page.close()


STRICT = RandomizedResponse(["F", "M"], keep=0.6).descriptor()
OTHER_TEXTS = {"en": {"question": "?", "groups": ["B", "A"], "purpose": "Another purpose."}}


@pytest.mark.parametrize(
    ("changes", "place", "words"),
    [
        ({"channel": STRICT}, "figcaption", "at most 60%"),
        ({"question": {"language": "en", "texts": OTHER_TEXTS}}, ".view", "Another purpose."),
        ({"collector": "Somebody else"}, ".lead", "Somebody else"),
    ],
)
def test_what_has_changed_is_shown_before_anything_is_drawn(service, browser, changes, place, words):
    """Nobody agrees to a purpose, or answers with words, that they have not read."""
    page = browser.new_page()
    given = [open_answer(), open_answer(**changes), open_answer(**changes)]
    sent = []
    page.route("**/v1/open", lambda route: route.fulfill(json=given.pop(0)))
    page.route("**/v1/report", lambda route: (sent.append(1), route.fulfill(json={"accepted": True})))
    page.goto(f"{service.address}/collect/#token")
    for message in ("has changed meanwhile", None):
        page.locator("input[value='0']").check()
        page.locator("input[name=consent]").check()
        page.locator("form button").click()
        if message:
            page.get_by_text(message).wait_for()
            assert words in page.locator(place).inner_text()
            assert not page.locator("input[name=consent]").is_checked()
            assert page.evaluate("document.activeElement.tagName") == "BUTTON"
            assert not sent
    page.locator(".view.sent").wait_for()
    page.close()


SCRIPTS = ("report.js", "private-answer.js", "page.js")


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_with_another_hash_is_not_run(service, browser, name):
    page = browser.new_page()
    altered = load_page()[name].content + b"globalThis.altered = true;\n"
    page.route(f"**/{name}", lambda route: route.fulfill(body=altered, content_type="text/javascript"))
    page.goto(f"{service.address}/collect/#{service.token()}")
    page.wait_for_load_state("networkidle")
    assert page.locator("form").count() == 0
    assert page.evaluate("globalThis.altered") is None
    page.close()


def test_the_hashes_are_published_and_shown(service, browser, project_root):
    index = load_page()["index.html"].content.decode()
    guide = (project_root / "docs" / "guide" / "asking.md").read_text(encoding="utf-8")
    device = Device(browser, service.address, service.token())
    device.page.locator("#about summary").click()
    shown = device.page.locator("#about").inner_text()
    assert sorted(name for name in load_page() if name.endswith(".js")) == sorted(SCRIPTS)
    for name in SCRIPTS:
        integrity = script_integrity(name)
        assert f'"{name}" integrity="{integrity}"' in index, integrity
        line = f"| `{name}` | `{load_page()[name].sha256}` | `{integrity}` |"
        assert line in guide, f"docs/guide/asking.md: {line}"
        assert f"{name} SHA-256 {load_page()[name].sha256}" in shown
    assert "Whoever serves a script could change it" in shown
    device.close()


def test_the_policy_is_strict(service):
    import httpx

    for name in load_page():
        headers = httpx.get(f"{service.address}/collect/{'' if name == 'index.html' else name}").headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "trusted-types 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
    assert httpx.get(f"{service.address}/collect/package.json").status_code == 404


# --- elsewhere ---


def test_the_page_of_a_collector_sends_to_the_third_party(tmp_path, browser):
    public = tmp_path / "web"
    with (
        scripts.serve_folder(public) as web,
        scripts.serve_folder(public) as stranger,  # another origin, which the third party does not know
        serve(tmp_path / "third-party", collect_origins=(web,)) as service,
    ):
        write_page(public / "survey", service.address)
        token = service.token()
        other = browser.new_context().new_page()
        other.goto(f"{stranger}/survey/index.html#{token}")
        other.locator(".view.unreachable").wait_for(timeout=SOON)
        other.context.close()
        device = Device(browser, web, token, path="/survey/index.html")
        assert service.address.removeprefix("http://") in device.page.locator("dl").inner_text()
        device.answer(1)
        assert len(service.rows(reports)) == 1
        asked = {r.url for r in device.requests if "/v1/" in r.url}
        assert asked == {f"{service.address}/collect/v1/{name}" for name in ("open", "report")}
        device.requests = [r for r in device.requests if r.url not in asked]
        device.close()


@pytest.mark.parametrize("address", ["http://third.example", "https://third.example/x", "https://a; script-src *", ""])
def test_an_address_that_is_none_is_refused(address, tmp_path):
    with pytest.raises(ValueError, match="expected an address"):
        write_page(tmp_path, address)
    assert not list(tmp_path.iterdir())


def test_an_app_embeds_the_element(service, browser):
    """One script and one element in another page of the same origin; an event tells when the report has arrived."""
    page = browser.new_page()
    body = """<!DOCTYPE html><title>App</title><script type="module" src="/collect/private-answer.js"></script>
        <private-answer lang="de"></private-answer>"""
    body = body.replace("<private-answer ", f'<private-answer token="{service.token()}" ')
    page.route("**/app", lambda route: route.fulfill(body=body, content_type="text/html"))
    page.goto(f"{service.address}/app")
    page.evaluate("document.addEventListener('sent', () => { window.arrived = true; })")
    page.get_by_text("Welches Geschlecht haben Sie?").wait_for()
    page.locator("input[value='1']").check()
    page.locator("input[name=consent]").check()
    page.locator("form button").click()
    page.locator(".view.sent").wait_for()
    assert page.evaluate("window.arrived")
    page.close()


def test_the_package_for_npm(project_root):
    package = json.loads((scripts.STATIC / "package.json").read_text(encoding="utf-8"))
    assert package["type"] == "module"
    assert "dependencies" not in package
    assert package["license"] == "Apache-2.0"
    version = re.search(r'__version__ = "(.*)"', (project_root / "src/fairpremium/__init__.py").read_text("utf-8"))
    assert package["version"] == version[1].partition(".dev")[0]
    for path in [*package["exports"].values(), *package["files"]]:
        assert (scripts.STATIC / path.replace("*", "en.json")).exists(), path
    assert "import" not in re.sub(r"//.*|/\*[\s\S]*?\*/", "", (scripts.STATIC / "report.js").read_text("utf-8"))
