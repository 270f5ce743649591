"""The operational log: a line for each event, with the fields of a closed list, and never data."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
from datetime import datetime

import httpx
import pytest

from fairpremium.parties.clients._client import AppTransport
from fairpremium.parties.console._login_limits import LoginLimits
from fairpremium.parties.protocol._keys import new_key
from fairpremium.parties.service import Accounts, operations
from fairpremium.parties.service._context import Party, ServiceLimits
from fairpremium.parties.service._leases import acquire_lease, finish_fit, release_lease
from fairpremium.parties.service._third_party import ThirdParty
from fairpremium.parties.service.operations import EVENTS, LogSettings, _log, log_event, log_failure, write_log
from helpers import processes, wire
from helpers.ports import free_port

PASSWORD = "correct horse battery staple"
OWN = {"Sec-Fetch-Site": "same-origin"}
AUDITOR = Party("aud", "auditor")


@pytest.fixture
def lines(capfd, monkeypatch):
    """Write lines of JSON, and return those that were written since the last call."""
    monkeypatch.setattr(_log, "_limiter", operations._log.RateLimiter(1e9))
    with write_log(LogSettings("json", "debug")):
        yield lambda: [json.loads(line) for line in capfd.readouterr().err.splitlines()]


@pytest.fixture
def world(tmp_path):
    with wire.World(tmp_path / "third-party", collect=True) as world:
        world.declare()
        yield world


def events(found, *names):
    return [line for line in found if line["event"] in names]


def check_forms(found):
    """Each line has the fields of its event, and no others."""
    for line in found:
        common = {"time", "level", "event", "request", "suppressed"}
        assert set(line) - common <= set(EVENTS[line["event"]].fields), line
        assert set(line) >= {"time", "level", "event"}
        assert datetime.fromisoformat(line["time"]).utcoffset().total_seconds() == 0


# --- lines ---


def test_a_line_of_json_and_one_of_text_say_the_same(capfd):
    fields = {"party": "acme", "fit": "f1", "attempt": 2, "rule": 4}
    for form in ("json", "text"):
        with write_log(LogSettings(form)):
            log_event("fit.refused", **fields)
    as_json, as_text = capfd.readouterr().err.splitlines()
    found = json.loads(as_json)
    assert {name: found[name] for name in fields} == fields
    assert (found["level"], found["event"]) == ("warning", "fit.refused")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]{12}Z warning fit.refused party=acme fit=f1 attempt=2 rule=4", as_text)


def test_a_value_cannot_begin_a_line_or_a_field(capfd):
    with write_log(LogSettings("text")):
        log_event("file.restricted", file="a\nb level=error")
    assert capfd.readouterr().err.splitlines()[0].endswith('file.restricted file="a\\nb level=error"')


def test_only_lines_of_the_level_are_written(capfd):
    with write_log(LogSettings("text", "warning")):
        log_event("worker.started", worker=1)
        log_event("worker.died", worker=1, exit=-9)
    log_event("worker.stopped", worker=1)  # outside: nobody writes it
    assert re.findall(r"worker\.\w+", capfd.readouterr().err) == ["worker.died"]


def test_events_and_fields_are_a_closed_list():
    with pytest.raises(KeyError):
        log_event("something.else")
    with pytest.raises(AssertionError):
        log_event("login.failed", account="what somebody typed")


def test_a_failure_says_where_but_not_what(lines):
    try:
        int("valuecanary")
    except ValueError:
        log_failure("a test")
    (line,) = lines()
    assert (line["event"], line["what"], line["error"]) == ("failure", "a test", "ValueError")
    assert re.search(r"test_a_failure_says_where_but_not_what \(test_operational_log.py:\d+\)", line["where"])
    assert "valuecanary" not in json.dumps(line)


def test_a_failure_in_a_library_names_our_own_code(lines, tmp_path):
    """With PostgreSQL down, all of the innermost frames are of libraries."""
    address = f"postgresql://fair@127.0.0.1:{free_port()}/fair?connect_timeout=5"
    try:
        ThirdParty(tmp_path / "third-party", database=address)
    except Exception:
        log_failure("a test")
    (line,) = lines()
    assert line["error"] == "OperationalError"
    assert "(_context.py:" in line["where"]
    assert "(_third_party.py:" in line["where"]
    assert sum(name in line["where"] for name in ("base.py", "default.py", "pool", "create.py")) <= 1


def test_lines_of_the_web_server_lose_their_values(lines):
    logging.getLogger("uvicorn.error").warning("Invalid request: %s", "valuecanary")
    try:
        raise ValueError("valuecanary")
    except ValueError:
        logging.getLogger("uvicorn.error").exception("Exception in ASGI application\n")
    logging.getLogger("asyncio").error("Fatal error on transport\ntransport: valuecanary")
    found = lines()
    said = ["Invalid request: %s", "Exception in ASGI application", "Fatal error on transport"]
    assert [line["text"] for line in found] == said
    check_forms(found)


def test_strangers_cannot_fill_the_disk(capfd, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(_log, "_limiter", _log.RateLimiter(2.0, lambda: now[0], burst=40))
    with write_log(LogSettings("json")):
        for _ in range(1000):
            log_event("key.unknown", key_id="ed25519-0000000000000000")
            log_event("fit.queued", party="acme", fit="f")  # not by strangers: all are written
            logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")
        logging.getLogger("uvicorn.error").error("Exception in ASGI application")  # has lines of its own
        now[0] += 0.6
        log_event("key.unknown", key_id="ed25519-0000000000000000")
        logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")
    found = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    refused = events(found, "key.unknown")
    assert (len(refused), len(events(found, "fit.queued"))) == (41, 1000)
    assert [line.get("suppressed") for line in refused[-2:]] == [None, 960]
    said = events(found, "library")
    assert [line["level"] for line in said] == [*["warning"] * 40, "error", "warning"]
    assert said[-1]["suppressed"] == 960
    check_forms(found)


# --- requests ---


def test_a_request_has_a_line_with_its_route_and_an_id(world, lines):
    asked = world.sign("op", "GET", "/v1/studies/motor").plus("x-request-id", "valuecanary")
    answer = world.send(asked)
    (line,) = lines()
    check_forms([line])
    assert line["request"] == answer.request_id
    assert re.fullmatch("[0-9a-f]{16}", line["request"])
    assert line["duration"] in (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)  # in steps
    known = {name: line[name] for name in ("level", "event", "method", "route", "status", "party")}
    assert known == {
        "level": "info", "event": "request", "method": "GET", "route": "/v1/studies/{study}", "status": 200,
        "party": "op",
    }  # fmt: skip
    assert world.send(world.sign("op", "GET", "/v1/studies/motor")).request_id != line["request"]


def test_a_refused_request_names_its_problem(world, lines):
    world.ask("acme", "GET", "/v1/fits/none")
    world.send(wire.Wire("VALUECANARY", b"/valuecanary", ((b"host", b"third.party"),)))
    found = lines()
    assert [(line.get("route"), line["status"], line["problem"]) for line in found] == [
        ("/v1/fits/{fit}", 404, "not-found"), (None, 404, "not-found"),
    ]  # fmt: skip
    assert "valuecanary" not in json.dumps(found).lower()


def test_probes_are_debug(world, lines):
    for path in (b"/healthz", b"/readyz", b"/metrics"):
        world.send(wire.Wire("GET", path, ((b"host", b"127.0.0.1"),)))
    assert [(line["level"], line["route"]) for line in lines()] == [
        ("debug", "/healthz"), ("debug", "/readyz"), ("debug", "/metrics"),
    ]  # fmt: skip


def test_reports_and_answers_of_people_leave_no_line(world, lines):
    """Neither those that are taken nor those that are not."""
    target = f"/v1/studies/motor/reports/{wire.KEY}"
    asked = [
        world.sign("app", "PUT", target, wire.report()),
        world.sign("app", "PUT", target, wire.report("M")),
        world.sign("app", "PUT", f"{target}?attribute=sex", wire.report()),
        world.sign("app", "PUT", "/v1/studies/motor/reports/none", wire.report()),
        world.sign("app", "DELETE", target),
        world.sign("app", "GET", "/v1/studies/motor"),  # which a collector does before it reports
        world.sign("app", "GET", "/v1/studies"),
        world.sign("app", "GET", "/v1/log"),
        world.sign("app", "GET", "/v1/studies/none"),
        world.sign("app", "PUT", "/v1/studies/motor/report-parts/0", wire.report_part(), wire.BATCH),
        world.sign("app", "PUT", "/v1/studies/motor/report-parts/x", wire.report_part(), wire.BATCH),
        wire.Wire("PUT", target.encode(), ((b"host", b"else.where"),)),
        wire.Wire("GET", b"/collect/", ((b"host", b"third.party"),)),
        wire.Wire("POST", b"/collect/v1/open", ((b"host", b"third.party"),), b'{"token":"x"}'),
        wire.Wire("POST", b"/collect/v1/report", ((b"host", b"third.party"),), b"{}"),
    ]
    statuses = [world.send(one).status for one in asked]
    assert {200, 204, 404, 409, 422} <= set(statuses)
    assert lines() == []
    world.send(asked[0])  # sent again: this is about the key of the collector
    (line,) = lines()
    assert (line["event"], line["party"]) == ("request.replayed", "app")
    assert not {"route", "status", "duration"} & set(line)


# --- keys ---


def test_keys_that_are_refused_are_told_apart_in_the_log_only(world, lines):
    world.add("late", "insurer", party="acme")
    world.third_party.revoke_key(world.keys["late"].key_id)
    world.forget_keys()
    world.keys["nobody"], world.roles["nobody"] = new_key(), "insurer"
    forged = world.sign("acme", "GET", "/v1/fits")
    changed = forged.but(signature=world.sign("acme", "GET", "/v1/log").header("signature"))
    odd = re.sub('keyid="[^"]*"', 'keyid="valuecanary"', forged.header("signature-input"))
    answers = [
        world.ask("late", "GET", "/v1/fits"),
        world.ask("nobody", "GET", "/v1/fits"),
        world.send(changed),
        world.send(forged.but(signature_input=odd)),
    ]
    assert {(answer.status, answer.body) for answer in answers} == {(401, answers[0].body)}
    found = events(lines(), "key.refused", "key.unknown", "signature.bad")
    check_forms(found)
    assert [(line["event"], line.get("party"), line["key_id"]) for line in found] == [
        ("key.refused", "acme", world.keys["late"].key_id),
        ("key.unknown", None, world.keys["nobody"].key_id),
        ("signature.bad", "acme", world.keys["acme"].key_id),
        ("key.unknown", None, "of another form"),
    ]


def security_entries(party):
    entries = party.get_log(AUDITOR).entries
    return [(e.event, e.party, e.body) for e in entries if e.event.startswith("security.")]


def test_the_audit_log_names_refused_keys_once_an_hour(world):
    world.add("late", "collector", party="app")
    key = world.keys["late"].key_id
    world.third_party.revoke_key(key)
    world.forget_keys()
    target = f"/v1/studies/motor/reports/{wire.KEY}"
    forged = world.sign("acme", "GET", "/v1/fits").but(signature=world.sign("op", "GET", "/v1/log").header("signature"))
    with world.second() as second:
        for one in (world, second) * 3:
            assert one.send(one.sign("late", "PUT", target, wire.report())).status == 401
            assert one.send(forged).status == 401
    world.keys["nobody"] = new_key()
    assert world.ask("nobody", "GET", "/v1/fits").status == 401
    hour = "2027-01-15T08:00:00.000+00:00"  # of the clock of the tests
    assert security_entries(world.third_party) == [
        ("security.key-refused", "app", {"hour": hour, "key_id": key}),
        ("security.bad-signature", "acme", {"hour": hour, "key_id": world.keys["acme"].key_id}),
    ]
    world.clock.now += 3600
    world.ask("late", "PUT", target, wire.report())
    assert len(security_entries(world.third_party)) == 3
    assert world.third_party.verify_log().intact


def test_a_security_event_that_cannot_be_written_does_not_change_the_answer(world, lines, monkeypatch):
    forged = world.sign("acme", "GET", "/v1/fits").but(signature=world.sign("op", "GET", "/v1/log").header("signature"))
    world.send(wire.Wire("GET", b"/healthz", ((b"host", b"third.party"),)))
    with monkeypatch.context() as patch:
        patch.setenv("FAIRPREMIUM_FULL_AT", "database.before_commit")
        assert world.send(forged).code == "bad-signature"
    assert [line["what"] for line in events(lines(), "failure")] == ["a security event"]
    assert security_entries(world.third_party) == []
    assert world.send(forged).code == "bad-signature"
    assert len(security_entries(world.third_party)) == 1  # the next one is written


# --- the console ---


def test_logins_have_lines_and_wrong_ones_one_entry(tmp_path, lines, monkeypatch):
    with wire.World(tmp_path / "third-party") as world:
        Accounts(world.context).add("ann", "operator", PASSWORD)
        monkeypatch.setattr(LoginLimits, "take", lambda *_: None)  # many tries in a moment
        client = httpx.Client(base_url="http://127.0.0.1:8350", transport=AppTransport(world.app), headers=OWN)
        for _ in range(5):
            wrong = {"name": "ann", "password": "valuecanary"}
            assert client.post("/console/login", data=wrong).status_code == 401
        assert client.post("/console/login", data={"name": "ann", "password": PASSWORD}).status_code == 303
        found = lines()
        assert len(events(found, "login.failed")) == 5
        assert [line["account"] for line in events(found, "login")] == ["ann"]
        check_forms(found)
        assert "valuecanary" not in json.dumps(found)
        assert PASSWORD not in json.dumps(found)
        assert security_entries(world.third_party) == []  # the console itself adds up what failed


def test_too_many_tries_of_a_password_are_told(tmp_path, lines):
    with wire.World(tmp_path / "third-party") as world:
        Accounts(world.context).add("ann", "operator", PASSWORD)
        client = httpx.Client(base_url="http://127.0.0.1:8350", transport=AppTransport(world.app), headers=OWN)
        wrong = {"name": "ann", "password": "x"}
        statuses = [client.post("/console/login", data=wrong).status_code for _ in range(12)]
        assert 429 in statuses
        assert len(events(lines(), "login.limited")) == statuses.count(429)


# --- the life of a fit ---


def test_a_fit_tells_its_life(world, lines):
    world.portfolio("acme", "p1", rows=40)
    database, context = world.context.database, world.context
    for name in ("f1", "f2", "f3"):
        world.fit("acme", name, "p1", level=0.9 if name == "f1" else 0.8)
    world.fit("acme", "f1", "p1", level=0.9)  # the same again is not queued again
    found = lines()
    lines_of_start = events(found, "fit.queued")
    by_request = {line["request"]: line for line in events(found, "request")}
    assert [by_request[line["request"]]["route"] for line in lines_of_start] == ["/v1/fits/{fit}"] * 3
    assert len({line["request"] for line in lines_of_start}) == 3
    assert [(line["party"], line["fit"]) for line in lines_of_start] == [("acme", "f1"), ("acme", "f2"), ("acme", "f3")]
    database.write(lambda c: acquire_lease(c, context))
    world.clock.now += context.limits.lease_seconds + 1  # its worker is silent
    lease = database.write(lambda c: acquire_lease(c, context))
    database.write(lambda c: release_lease(c, context, lease, tried=False))
    lease = database.write(lambda c: acquire_lease(c, context))
    refusal = {"refusal": '{"rule": 2, "title": "t", "limit": 1.0}'}
    database.write(lambda c: finish_fit(c, context, lease, "refused", **refusal))
    world.ask("acme", "POST", "/v1/fits/f2/cancel")
    found = [line for line in lines() if line["event"].startswith("fit.")]
    check_forms(found)
    assert [(line["event"], line["fit"], line["attempt"]) for line in found] == [
        ("fit.leased", "f1", 1), ("fit.lost", "f1", 1), ("fit.leased", "f1", 2), ("fit.returned", "f1", 2),
        ("fit.leased", "f1", 2), ("fit.refused", "f1", 2), ("fit.cancelled", "f2", 0),
    ]  # fmt: skip
    assert found[-2]["rule"] == 2


def test_what_was_not_committed_has_no_line(world, lines, monkeypatch):
    world.portfolio("acme", "p1")
    lines()
    with monkeypatch.context() as patch:
        patch.setenv("FAIRPREMIUM_FULL_AT", "database.before_commit")
        spec = wire.FitSpec(study="motor", portfolio="p1").model_dump_json().encode()
        assert world.ask("acme", "PUT", "/v1/fits/f1", spec).code == "storage-full"
    found = lines()
    assert not events(found, "fit.queued")
    assert [line["route"] for line in events(found, "storage.full")] == ["/v1/fits/{fit}"]
    world.fit("acme", "f1", "p1")
    assert len(events(lines(), "fit.queued")) == 1


def test_a_fit_that_is_tried_too_often_tells_that_it_failed(tmp_path, lines):
    with wire.World(tmp_path / "third-party", limits=ServiceLimits(attempts=1)) as world:
        world.declare()
        world.portfolio("acme", "p1")
        world.fit("acme", "f1", "p1")
        for _ in range(2):
            world.context.database.write(lambda c: acquire_lease(c, world.context))
            world.clock.now += 100
        (line,) = events(lines(), "fit.failed")
        assert (line["fit"], line["problem"], line["level"]) == ("f1", "gave-up", "warning")


def log_of_worker(world, **variables):
    """Let a worker do what there is to do, and return its log.

    It is a process of its own: one that forks fits here would write to the standard error of whichever test began it.
    """
    command = [sys.executable, "-P", "-m", "fairpremium", "worker", "--folder", str(world.folder), "--once"]
    options = ["--log-format", "json", "--log-level", "debug"]
    done = subprocess.run(
        [*command, *options], capture_output=True, text=True, env={**os.environ, **variables}, check=True
    )
    found = [json.loads(line) for line in done.stderr.splitlines()]
    check_forms(found)
    return found


def test_a_worker_and_the_process_of_its_fit_write_to_one_log(world):
    world.declare("plain", release=None)  # no draws, by which another rule may be the first one to refuse
    world.portfolio("acme", "p1", "plain", rows=40)
    world.fit("acme", "f1", "p1", "plain")
    found = log_of_worker(world)
    names = [line["event"] for line in found]
    assert names == ["worker.started", "fit.leased", "fit.started", "fit.refused", "worker.stopped"]
    assert found[2]["worker"] == found[0]["worker"] != os.getpid()
    assert found[3]["rule"] == 1


def test_a_process_of_a_fit_that_dies_is_told(world):
    world.portfolio("acme", "p1", rows=40)
    world.fit("acme", "f1", "p1")
    found = log_of_worker(world, FAIRPREMIUM_KILL_AT="fit.joining")
    assert [(line["attempt"], line["exit"]) for line in events(found, "fit.died")] == [(n, -9) for n in range(1, 6)]
    assert [line["problem"] for line in events(found, "fit.failed")] == ["gave-up"]


# --- processes ---


def test_a_service_and_its_worker_tell_of_start_death_and_stop(tmp_path):
    command = [sys.executable, "-P", "-m", "fairpremium", "serve", "--folder", str(tmp_path / "third-party")]
    variables = {**os.environ, "FAIRPREMIUM_LOG_FORMAT": "json"}
    with (tmp_path / "err").open("w") as err:
        service = subprocess.Popen(
            [*command, "--port", "0", "--json"], stdout=subprocess.PIPE, stderr=err, env=variables
        )

    def found(*names):
        return events(map(json.loads, (tmp_path / "err").read_text().splitlines()), *names)

    try:
        assert json.loads(service.stdout.readline())["service"].startswith("http://127.0.0.1:")
        processes.wait_until(lambda: found("worker.started"))
        os.kill(found("worker.started")[0]["worker"], signal.SIGKILL)
        processes.wait_until(lambda: len(found("worker.started")) == 2)
        (died,) = found("worker.died")
        assert (died["worker"], died["exit"]) == (found("worker.started")[0]["worker"], -9)
        service.terminate()
        assert service.wait(processes.PATIENCE) == 0
    finally:
        service.kill()
        service.communicate()
    assert [line["database"] for line in found("service.started")] == ["sqlite"]
    assert len(found("service.stopped")) == len(found("worker.stopped")) == 1
    check_forms(found(*EVENTS))


def test_a_file_that_others_could_read_is_told(tmp_path, lines):
    folder = tmp_path / "third-party"
    folder.mkdir(mode=0o755)
    ThirdParty(folder).close()
    assert [line["file"] for line in events(lines(), "file.restricted")] == ["third-party"]
