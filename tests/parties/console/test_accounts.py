"""Accounts of the console: who logs in, how long that holds, what each role gets, and that guesses keep nobody out."""

from __future__ import annotations

import asyncio
import re
import threading
import time

import httpx
import pytest
from argon2 import PasswordHasher
from sqlalchemy import text

from fairpremium.parties.console._login_limits import LoginLimits
from fairpremium.parties.console._rights import OPEN_TO_ALL, RIGHTS
from fairpremium.parties.http._app import create_app
from fairpremium.parties.protocol import Problem
from fairpremium.parties.service import IDLE_SECONDS, LOGIN_SECONDS, Accounts, Logins, ServiceSettings, ThirdParty
from fairpremium.parties.service._housekeeping import clean
from fairpremium.parties.service.accounts import _passwords
from helpers.visits import From

OWN = {"Sec-Fetch-Site": "same-origin"}
PASSWORD = "correct horse battery staple"
NEWEST = "correct horse battery stapler"
WRONG = "That is not the name and the password of an account in use."


class Clock:
    def __init__(self):
        self.now = time.time()

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def quick_passwords(monkeypatch):
    """Hashes that take a thousandth of the work, for tests of what happens around them."""
    quick, slow = PasswordHasher(time_cost=1, memory_cost=64, parallelism=1), _passwords._HASHER
    cost = "m={0.memory_cost},t={0.time_cost},p={0.parallelism}".format
    monkeypatch.setattr(_passwords, "_NOBODY", _passwords._NOBODY.replace(cost(slow), cost(quick)))
    monkeypatch.setattr(_passwords, "_HASHER", quick)
    assert cost(quick) in _passwords._NOBODY


@pytest.fixture
def visit(open_console, clock, quick_passwords):
    """A service with two accounts."""
    visit = open_console(clock=clock)
    for name, role in (("ada", "operator"), ("bob", "auditor")):
        Accounts(visit.party.context).add(name, role, PASSWORD)
    limits = visit.app.state.console.access._limits
    for limiter in (limits._by_account, limits._by_network, limits._by_device):
        limiter._clock = clock  # on a slow machine time must not give tries back
    return visit


def log_in(client, name="ada", password=PASSWORD, headers=OWN, **query):
    return client.post("/console/login", params=query, data={"name": name, "password": password}, headers=headers)


def entries(party, event):
    rows = party.context.database.read(lambda c: c.execute(text("SELECT event, body FROM log ORDER BY seq")).all())
    return [row.body for row in rows if row.event == event]


# --- logging in ---


def test_an_account_is_asked_for_everywhere(visit):
    client = visit()
    for path in ("/", "/console/log", "/console/logins", "/console/keys", "/console/nothing"):
        answer = client.get(path)
        assert (answer.status_code, answer.headers["location"].partition("?")[0]) == (303, "/console/login")
    assert client.post("/console/log/verify", headers=OWN).status_code == 303
    assert visit.app.state.console.log_monitor.state.found is None
    page = client.get("/console/login")
    assert page.status_code == 200
    assert visit.party.context.key.key_id not in page.text


def test_the_first_account_closes_the_open_console_of_a_running_service(open_console):
    visit = open_console()
    assert visit().get("/").status_code == 200
    Accounts(visit.party.context).add("ada", "operator", PASSWORD)
    assert visit().get("/").status_code == 303
    Accounts(visit.party.context).disable("ada")  # nobody is left, and it stays closed
    assert visit().get("/").status_code == 303


class Counted:
    """Counts the slow hashes."""

    def __init__(self, hasher):
        self.hasher, self.calls = hasher, 0

    def verify(self, *arguments):
        self.calls += 1
        return self.hasher.verify(*arguments)

    def hash(self, password):
        self.calls += 1
        return self.hasher.hash(password)


def test_wrong_unknown_and_disabled_are_one_answer_and_the_same_work(visit, monkeypatch):
    Accounts(visit.party.context).add("eve", "operator", PASSWORD)
    Accounts(visit.party.context).disable("eve")
    counted = Counted(_passwords._HASHER)
    monkeypatch.setattr(_passwords, "_HASHER", counted)
    pages = set()
    for i, (name, password) in enumerate([
        ("ada", NEWEST), ("nobody", PASSWORD), ("eve", PASSWORD), ("", ""), ("ada", ""), ("x" * 3000, "y"),
        ("' OR 1=1 --", PASSWORD), ("ada\x00", PASSWORD),
    ]):  # fmt: skip
        answer = log_in(visit(f"10.0.0.{i}"), name, password)
        assert answer.status_code == 401
        assert "set-cookie" not in answer.headers
        pages.add(answer.text)
    assert len(pages) == 1
    assert WRONG in pages.pop()
    assert counted.calls == 8
    assert log_in(visit()).status_code == 303
    assert counted.calls == 9


def test_a_hash_that_nobody_has_costs_what_others_cost():
    real = _passwords.hash_password(PASSWORD)
    assert real.rpartition("$")[0].rpartition("$")[0] == _passwords._NOBODY.rpartition("$")[0].rpartition("$")[0]
    assert len(real) == len(_passwords._NOBODY)
    assert not _passwords.check_password(None, PASSWORD)
    assert not _passwords.check_password("not a hash", PASSWORD)
    assert _passwords.check_password(_passwords.hash_password("ﬁve small letters é"), "five small letters e\u0301")


def test_a_login_ends_after_eight_hours_or_an_hour_without_a_visit(visit, clock):
    client = visit()
    right = log_in(client)
    assert (right.status_code, right.headers["location"]) == (303, "/")
    login, device = right.headers.get_list("set-cookie")
    for cookie in (login.lower(), device.lower()):
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert "secure" not in cookie  # a browser would not send it back over http
    assert f"max-age={LOGIN_SECONDS:.0f}" in login.lower()
    assert "path=/console/login" in device.lower()
    for _ in range(7):
        clock.now += IDLE_SECONDS - 1
        assert client.get("/").status_code == 200
    clock.now += IDLE_SECONDS - 1
    assert client.get("/").status_code == 200
    clock.now += 60
    assert client.get("/").status_code == 303  # eight hours
    log_in(client)
    clock.now += IDLE_SECONDS - 100
    assert client.get("/", headers={"Sec-Fetch-Dest": "empty"}).status_code == 200  # a page that asks by itself
    clock.now += 200
    assert client.get("/").status_code == 303


def test_logging_out_ends_the_login_itself(visit):
    client, thief = visit(), visit()
    log_in(client)
    thief.cookies = httpx.Cookies(client.cookies)
    assert thief.get("/").status_code == 200
    assert client.post("/console/logout", headers=OWN).headers["location"] == "/console/login"
    assert "fairpremium-console" not in client.cookies
    assert client.get("/").status_code == 303
    assert thief.get("/").status_code == 303


def test_logins_hold_at_another_process_and_end_with_account_and_password(tmp_path, database_url):
    """Two apps with a database connection each, as two web processes have; and one that starts later."""
    folder = tmp_path / "service"
    parties = [ThirdParty(folder, database=database_url) for _ in range(3)]
    accounts = Accounts(parties[0].context)
    accounts.add("ada", "operator", PASSWORD)
    accounts.add("bob", "auditor", PASSWORD)
    clients = []
    for party in parties:
        transport = From(create_app(ServiceSettings(folder=folder), party))
        clients.append(httpx.Client(base_url="http://127.0.0.1:8350", transport=transport))
    first, second, third = clients

    def statuses():
        second.cookies = third.cookies = httpx.Cookies(first.cookies)
        return [client.get("/").status_code for client in clients]

    log_in(first)
    assert statuses() == [200, 200, 200]
    second.post("/console/logout", headers=OWN)
    assert statuses() == [303, 303, 303]
    log_in(first)
    assert statuses() == [200, 200, 200]
    Accounts(parties[1].context).set_password("ada", NEWEST)
    assert statuses() == [303, 303, 303]
    assert log_in(first).status_code == 401
    assert log_in(first, password=NEWEST).status_code == 303
    Accounts(parties[1].context).disable("ada")
    assert statuses() == [303, 303, 303]
    assert log_in(first, password=NEWEST).status_code == 401
    with pytest.raises(ValueError, match="disabled"):
        accounts.set_password("ada", PASSWORD)
    assert log_in(first, "bob").status_code == 303
    assert statuses() == [200, 200, 200]
    assert parties[0].verify_log().intact
    for client, party in zip(clients, parties, strict=True):
        client.close()
        party.close()


def test_a_password_that_changes_while_it_is_checked_opens_nothing(visit):
    accounts, logins = Accounts(visit.party.context), Logins(visit.party.context)
    checked = accounts.check("ada", PASSWORD)
    accounts.set_password("ada", NEWEST)
    assert logins.open("ada", checked, "10.0.0.1") is None
    checked = accounts.check("ada", NEWEST)
    accounts.disable("ada")
    assert logins.open("ada", checked, "10.0.0.1") is None
    assert logins.list() == []


def test_a_forged_token_is_worth_nothing(visit):
    client = visit()
    log_in(client)
    name, value = next((n, v) for n, v in client.cookies.items() if "console" in n)
    stored = visit.party.context.database.read(lambda c: c.execute(text("SELECT id, token_sha256 FROM logins")).one())
    for content in (value[:-1], value + "A", stored.id, stored.token_sha256, "", "é", "'"):
        assert visit(Cookie=f"{name}={content}".encode()).get("/").status_code == 303, content
    assert visit(Cookie=f"{name}={value}".encode()).get("/").status_code == 200


def test_the_cookies_of_https_are_held_to_https(open_console):
    visit = open_console(proxies=("127.0.0.1",), hosts=("127.0.0.1:8350",))
    Accounts(visit.party.context).add("ada", "operator", PASSWORD)
    login, device = log_in(visit()).headers.get_list("set-cookie")
    assert login.startswith("__Host-")
    assert device.startswith("__Secure-")
    assert "secure" in login.lower().partition(";")[2]
    assert "secure" in device.lower().partition(";")[2]


@pytest.mark.parametrize("body", [b"", b"password", b"name=ada&password=%ff%fe", b"x" * 100_000, b"name=ada&" * 50])
def test_a_strange_form_is_a_wrong_one(visit, body):
    answer = visit().post("/console/login", content=body, headers=OWN)
    assert answer.status_code == 401
    assert WRONG in answer.text


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
def test_after_the_login_nobody_is_led_away(visit, to, leads):
    assert log_in(visit(), to=to).headers["location"] == leads


@pytest.mark.parametrize(
    ("headers", "is_own"),
    [
        ({"Sec-Fetch-Site": "same-origin"}, True),
        ({"Origin": "http://127.0.0.1:8350"}, True),
        ({}, False),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Sec-Fetch-Site": "same-site", "Origin": "http://127.0.0.1:8350"}, False),
        ({"Origin": "http://127.0.0.1:9999"}, False),
        ({"Origin": "null"}, False),
    ],
)
def test_forms_of_logins_are_taken_from_our_own_pages_only(visit, headers, is_own):
    client = visit()
    assert log_in(client, headers=headers).status_code == (303 if is_own else 403)
    log_in(client)
    before = len(Logins(visit.party.context).list())
    answer = client.post("/console/logins/end", data={"login": "0" * 12}, headers=headers)
    assert answer.status_code == (404 if is_own else 403)
    assert client.post("/console/logout", headers=headers).status_code == (303 if is_own else 403)
    assert len(Logins(visit.party.context).list()) == before - is_own


def test_accounts_that_cannot_be_made(visit):
    accounts = Accounts(visit.party.context)
    for password in ("", "eleven lett", "x" * 1001):
        with pytest.raises(ValueError, match="letters, but expected 12 or more"):
            accounts.add("eve", "operator", password)
    for name in ("", "Ada", "a b", "x" * 65, "../x"):
        with pytest.raises(ValueError, match="Got another name for an account, but expected 1 to 64"):
            accounts.add(name, "operator", PASSWORD)
    with pytest.raises(ValueError, match="no account has or had"):
        accounts.add("ada", "auditor", PASSWORD)
    for change in (accounts.disable, lambda name: accounts.set_password(name, PASSWORD)):
        with pytest.raises(ValueError, match="unknown name"):
            change("eve")
    assert [one.name for one in accounts.list()] == ["ada", "bob"]


# --- guesses ---


def test_guesses_from_elsewhere_keep_nobody_out(visit, clock):
    attacker, person = visit("203.0.113.9"), visit("192.0.2.7")
    answers = [log_in(attacker, password=f"guess number {i}").status_code for i in range(8)]
    assert answers == [401] * 5 + [429] * 3
    assert log_in(attacker).status_code == 429  # even the right one
    for i in range(6):  # from many addresses at once
        assert log_in(visit(f"203.0.113.{i + 10}"), password="guess").status_code == 401
    assert log_in(person).status_code == 303


def test_a_known_device_has_tries_of_its_own(visit, clock):
    """An attacker behind the same address, such as that of an office or a proxy, uses up only what others have."""
    person, attacker, colleague = visit("192.0.2.7"), visit("192.0.2.7"), visit("192.0.2.7")
    assert log_in(person).status_code == 303
    assert 429 in [log_in(attacker, password=f"guess number {i}").status_code for i in range(6)]
    person.post("/console/logout", headers=OWN)
    assert log_in(person).status_code == 303
    colleague.cookies = httpx.Cookies(person.cookies)
    assert log_in(colleague, "bob").status_code == 303  # another account, which nobody guessed at
    assert log_in(attacker).status_code == 429
    # The device is known for one account, and cannot be made up.
    value = next(v for n, v in person.cookies.items() if "device" in n)
    since, device, signature = value.split(".")
    find = visit.app.state.console.access._devices.find
    assert find(value, "ada") == f"{since}.{device}"
    forged = (f"{int(since) + 1}.{device}.{signature}", f"{since}.{device}.{'0' * 64}", "..", "é", "nan.x.y", "")
    assert [find(value, "bob"), *(find(cookie, "ada") for cookie in forged)] == [None] * 7
    assert not re.search(r"\bada\b", value)
    # Its own tries have an end, too.
    answers = [log_in(person, password=f"guess number {i}").status_code for i in range(11)]
    assert answers == [401] * 10 + [429]
    clock.now += 10
    assert log_in(person).status_code == 303


def test_a_device_is_forgotten_after_a_year(visit, clock):
    devices = visit.app.state.console.access._devices
    cookie = devices.sign("ada")
    clock.now += 364 * 86400
    assert devices.find(cookie, "ada")
    clock.now += 2 * 86400
    assert devices.find(cookie, "ada") is None


def test_one_address_cannot_try_all_names(visit):
    attacker = visit("203.0.113.9")
    limits = visit.app.state.console.access._limits
    for i in range(30):
        limits.take(f"name{i}", "2001:db8::1", None)
    with pytest.raises(Problem, match="Too many"):
        limits.take("ada", "2001:db8::1", None)
    assert log_in(attacker, "nobody", "guess").status_code == 401  # another network
    with pytest.raises(Problem, match="Too many"):
        limits.take("ada", "2001:db8::ffff", None)  # another address of the same subscriber
    limits.take("ada", "2001:db8:0:1::1", None)


def test_few_passwords_are_checked_at_once_and_known_devices_do_not_wait_behind_others():
    limits, going = LoginLimits(), threading.Event()
    running = []

    def check(n):
        running.append(n)
        going.wait(120)
        running.remove(n)
        return n

    async def attack():
        waiting = [asyncio.create_task(limits.run(check, n, is_trusted=False)) for n in range(9)]
        await asyncio.sleep(0.1)
        with pytest.raises(Problem, match="Too many"):
            await limits.run(check, 9, is_trusted=False)
        known = asyncio.create_task(limits.run(check, 10, is_trusted=True))
        while len(running) < 2:
            await asyncio.sleep(0.01)
        assert sorted(running) == [0, 10]
        waiting[5].cancel()  # who goes away frees a place
        await asyncio.sleep(0.05)
        late = asyncio.create_task(limits.run(check, 11, is_trusted=False))
        await asyncio.sleep(0.05)
        going.set()
        assert await known == 10
        done = await asyncio.gather(*waiting, late, return_exceptions=True)
        assert [n for n in done if isinstance(n, int)] == [0, 1, 2, 3, 4, 6, 7, 8, 11]

    asyncio.run(attack())


def test_failed_logins_are_added_up_in_the_log(visit, clock):
    client = visit()
    log_in(client, password="guess number 1")
    assert entries(visit.party, "login.failed") == ['{"account":"ada","guesses":1}']
    for i in range(3):
        log_in(client, password=f"guess number {i}")
    log_in(client, "CANARY-typed-here", "CANARY-too")
    assert len(entries(visit.party, "login.failed")) == 1
    clock.now += 601
    client.get("/")
    assert entries(visit.party, "login.failed")[1:] == [
        '{"account":"(no such account)","guesses":1}',
        '{"account":"ada","guesses":3}',
    ]
    log_in(client, password="guess number 9")
    visit.app.state.console.stop()
    assert entries(visit.party, "login.failed")[3:] == ['{"account":"ada","guesses":1}']


# --- roles ---


def fill(path):
    """A path of a route with something in the place of each name."""
    return re.sub(r"{[^}]*}", "x", path)


def console_routes(app):
    return {
        route.path: route.methods - {"HEAD"} for route in app.routes if route.path == "/" or "/console" in route.path
    }


def test_every_route_of_the_console_is_in_the_table(visit):
    routes = console_routes(visit.app)
    assert set(routes) == set(RIGHTS) | OPEN_TO_ALL
    assert not set(RIGHTS) & OPEN_TO_ALL
    assert {path for path, roles in RIGHTS.items() if "auditor" not in roles} == {"/console/operation"}


def test_every_role_gets_what_the_table_says_at_every_route(visit):
    clients = {"operator": visit(), "auditor": visit(), None: visit()}
    log_in(clients["operator"])
    log_in(clients["auditor"], "bob")
    for path, methods in console_routes(visit.app).items():
        if path in OPEN_TO_ALL:
            continue
        for method in methods:
            nobody = clients[None].request(method, fill(path), headers=OWN)
            assert nobody.status_code == 303, path
            assert nobody.headers["location"].startswith("/console/login")
            missing = clients["auditor"].get("/console/nothing").text
            for role in ("operator", "auditor"):
                answer = clients[role].request(method, fill(path), headers=OWN)
                is_missing = answer.status_code == 404 and "There is no such page" in answer.text
                if role not in RIGHTS[path]:
                    assert answer.text == missing
                elif "{" not in path and path != "/console/logins/end":
                    assert not is_missing, (path, role)


def test_pages_offer_what_the_role_may_open(visit):
    operator, auditor = visit(), visit()
    log_in(operator)
    log_in(auditor, "bob")
    for client, may in ((operator, True), (auditor, False)):
        page = client.get("/").text
        assert ('href="/console/operation"' in page) is may
        for path in ("/console/budgets", "/console/keys", "/console/log", "/console/logins"):
            assert f'href="{path}"' in page
        assert ("keys rotate service" in client.get("/console/keys").text) is may
        for path in re.findall(r'<a href="(/[^"]*)"', page):
            assert client.get(path).status_code == 200


# --- open logins ---


def test_the_operator_ends_any_login_and_an_auditor_its_own(visit):
    operator, auditor, other = visit(), visit("192.0.2.7"), visit("192.0.2.8")
    log_in(operator)
    log_in(auditor, "bob")
    log_in(other, "bob")
    logins = {login.address: login.id for login in Logins(visit.party.context).list()}
    assert set(logins) == {"127.0.0.1", "192.0.2.7", "192.0.2.8"}
    seen = operator.get("/console/logins").text
    assert all(login in seen for login in logins.values())
    assert seen.count("this one") == 1
    assert "account --help" in seen
    seen = auditor.get("/console/logins").text
    assert [login in seen for login in logins.values()] == [a != "127.0.0.1" for a in logins]
    assert not re.search(r"\bada\b", seen)  # an id may hold these three digits

    def end(client, address):
        return client.post("/console/logins/end", data={"login": logins[address]}, headers=OWN).status_code

    assert end(auditor, "127.0.0.1") == 404
    assert operator.get("/").status_code == 200
    assert end(auditor, "192.0.2.8") == 303
    assert end(auditor, "192.0.2.8") == 404  # it has ended
    assert other.get("/").status_code == 303
    assert end(operator, "192.0.2.7") == 303
    assert auditor.get("/").status_code == 303
    assert end(operator, "127.0.0.1") == 303
    assert operator.get("/").status_code == 303
    assert Logins(visit.party.context).list() == []
    assert len(entries(visit.party, "login.opened")) == 3
    assert [re.findall('"(?:account|by)":"([a-z]+)"', body) for body in entries(visit.party, "login.ended")] == [
        ["bob", "bob"],
        ["bob", "ada"],
        ["ada", "ada"],
    ]


def test_without_accounts_the_page_of_logins_says_how_to_make_one(open_console):
    page = open_console()().get("/console/logins").text
    assert "fairpremium account add" in page


# --- what is stored ---


def test_no_password_and_no_token_is_stored_or_told(visit, tmp_path, clock):
    operator, auditor = visit(), visit()
    log_in(operator, password="CANARY of a wrong one")
    log_in(operator)
    log_in(auditor, "bob")
    Accounts(visit.party.context).set_password("bob", NEWEST)
    secrets = [PASSWORD, NEWEST, "CANARY"]
    secrets += [value for client in (operator, auditor) for value in client.cookies.values()]
    assert len(secrets) == 7
    pages = [operator.get(path).text for path in ("/", "/console/logins", "/console/log", "/console/operation")]
    stored = b"".join(path.read_bytes() for path in (tmp_path / "service").glob("fairpremium.sqlite*"))
    assert b"argon2id" in stored
    for secret in secrets:
        assert secret not in "".join(pages)
        assert secret.encode() not in stored
    assert "argon2" not in "".join(pages)
    assert "127.0.0.1" in pages[1]
    assert "127.0.0.1" not in pages[2]  # no address in the log, which nobody can erase


def test_logins_whose_time_is_over_are_deleted(visit, clock):
    log_in(visit())
    count = text("SELECT count(*) FROM logins")
    clean(visit.party.context)
    assert visit.party.context.database.read(lambda c: c.execute(count).scalar()) == 1
    clock.now += LOGIN_SECONDS + 1
    clean(visit.party.context)
    assert visit.party.context.database.read(lambda c: c.execute(count).scalar()) == 0


def test_a_full_disk_does_not_close_the_console(visit, clock, monkeypatch):
    client = visit()
    log_in(client)
    log_in(visit("10.0.0.1"), password="guess")
    log_in(visit("10.0.0.1"), password="guess")
    clock.now += 700

    def full(*_):
        raise Problem("storage-full")

    with monkeypatch.context() as patch:
        patch.setattr(visit.party.context.database, "write", full)
        assert client.get("/").status_code == 200
    clock.now += 700
    client.get("/")
    assert entries(visit.party, "login.failed")[1:] == ['{"account":"ada","guesses":1}']
