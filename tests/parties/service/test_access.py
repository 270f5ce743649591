"""Who may do what, by enumeration: every route, every role, every signed part, every replay."""

from __future__ import annotations

import contextlib
import inspect
import json
from dataclasses import replace
from typing import get_args

import pytest
from fastapi.routing import APIRoute
from pydantic import TypeAdapter
from sqlalchemy import event, select

from fairpremium.parties import FitSpec
from fairpremium.parties.protocol._messages import Role
from fairpremium.parties.protocol._problems import PROBLEMS, Problem
from fairpremium.parties.service._access import RIGHTS
from fairpremium.parties.service._context import Party, ServiceLimits
from fairpremium.parties.service._fits import cancel_fit
from fairpremium.parties.service._third_party import ThirdParty
from fairpremium.parties.service.operations import _log
from fairpremium.parties.service.operations._rate_limit import RateLimiter
from fairpremium.parties.store.schema import log
from helpers import wire
from helpers.places import Place

ASKED, KEY, MINE, NO_THINGS, THINGS = wire.ASKED, wire.KEY, wire.MINE, wire.NO_THINGS, wire.THINGS
request, right_one, study_spec, text = wire.request, wire.right_one, wire.study_spec, wire.text

OPEN_TO_ALL = {"openapi", "get_keys", "get_checkpoint", "get_consistency", "healthz", "readyz", "metrics"}
NOTHING = json.dumps(Problem("not-found").to_dict(), separators=(",", ":")).encode()


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def filled(request, tmp_path_factory):
    """A place with all that, and the keys of the parties; every test gets a copy."""
    folder = tmp_path_factory.mktemp("filled") / "third-party"
    with contextlib.ExitStack() as stack:
        place = Place(folder)
        if request.param == "postgresql":
            postgres = request.getfixturevalue("postgres")
            name = stack.enter_context(postgres.database())
            stack.callback(postgres.execute, f"DROP DATABASE IF EXISTS {name}_copy WITH (FORCE)")
            place = Place(folder, postgres.url(name), postgres)
        with wire.World(folder, place.database) as world:
            wire.fill(world)
            keys = (world.keys, world.roles)
        yield place, keys


@pytest.fixture
def world(tmp_path, filled):
    place, (keys, roles) = filled
    copy = place.copy(tmp_path / "third-party")
    with wire.World(copy.folder, copy.database, keys=(dict(keys), dict(roles))) as world:
        yield world


# --- the tables ---


def test_every_route_has_rights_and_every_right_a_route(world):
    routes = {r.name for r in world.app.routes if not r.path.startswith("/console") and r.path != "/"}
    assert routes == set(RIGHTS) | OPEN_TO_ALL
    assert set(RIGHTS) == set(ASKED)
    for route in world.app.routes:
        if route.name in ASKED:
            method, target, *_ = ASKED[route.name]
            assert route.methods == {method}
            assert route.path.count("/") == target.partition("?")[0].count("/")


@pytest.mark.parametrize("command", sorted(RIGHTS))
def test_what_a_role_may_not_do_does_not_exist(world, command):
    """Neither with a good body nor with a bad one: no body is read before the right is checked."""
    before = world.dump()
    for role in set(get_args(Role)) - RIGHTS[command]:
        good = [request(world, command, MINE[role], things) for things in (THINGS, NO_THINGS)]
        too_long = str(world.context.limits.part_bytes + 1)
        bad = [
            replace(good[0], body=b"{"), good[0].but(content_length=too_long), good[0].but(content_length=None),
            good[0].but(content_type="text/plain"),
        ]  # fmt: skip
        if good[0].method == "PUT":
            bad.append(world.sign(MINE[role], "PUT", good[0].target.decode(), b"{", ASKED[command][3]))
        for sent in (*good, *bad):
            answer = world.send(sent)
            assert (answer.status, answer.body) == (404, NOTHING)
            assert set(answer.headers) == {"content-type", "content-length", "cache-control", "x-content-type-options"}
        assert world.send(good[0], stop_after=0).body == NOTHING  # an answer without waiting for the body
    assert world.dump() == before


def test_commands_in_process_check_rights_and_show_their_arguments(world):
    shown = {name: list(inspect.signature(getattr(ThirdParty, name)).parameters) for name in RIGHTS}
    assert shown["put_study"] == ["self", "who", "study", "spec"]
    assert shown["put_report"] == ["self", "who", "study", "key", "report", "attribute"]
    for name, (_, _, *others) in shown.items():
        assert shown[name][:2] == ["self", "who"]
        for role in set(get_args(Role)) - RIGHTS[name]:
            with pytest.raises(Problem) as problem:
                getattr(world.third_party, name)(Party(MINE[role], role), *others)
            assert problem.value.code == "not-found"


@pytest.mark.parametrize(
    "command",
    sorted(name for name, (_, target, *_) in ASKED.items() if "{" in target and RIGHTS[name] != {"operator"}),
)  # operators share all studies
def test_another_partys_thing_is_no_thing(world, command):
    """The answer, its headers and the work of the database are those for a thing that does not exist."""
    strangers = [name for role, name in (("collector", "app2"), ("insurer", "other")) if role in RIGHTS[command]]
    assert strangers
    # what is theirs under the names of ours must not stand for ours
    world.ask("other", "DELETE", "/v1/portfolios/open")
    for stranger in strangers:
        things = {name: f"{value}-of-acme" for name, value in THINGS.items()} | {"study": "motor"}
        for kind in ("sealed", "open"):
            world.portfolio("acme", f"{kind}-of-acme", seal=kind == "sealed")
        world.fit("acme", "done-of-acme", "sealed-of-acme", level=0.7)
        world.fit("acme", "waiting-of-acme", "sealed-of-acme", level=0.75)
        assert world.send(request(world, command, right_one(command), things)).status < 500
        before = world.dump()
        world.app.state.requests._keys_at = float("inf")  # no look at the keys in between
        seen, statements = [], []
        listen = lambda *args, s=statements: s.append(args[2])  # noqa: E731
        event.listen(world.context.database._engine, "before_cursor_execute", listen)
        for names in (things, NO_THINGS):
            statements.clear()
            seen.append((world.send(request(world, command, stranger, names)), list(statements)))
        event.remove(world.context.database._engine, "before_cursor_execute", listen)
        (theirs, work), (nobodys, no_work) = seen
        assert (theirs.status, theirs.body) == (404, NOTHING)
        assert theirs == nobodys
        assert work == no_work
        after = world.dump()
        assert {name: rows for name, rows in after.items() if name != "nonces"} == {
            name: rows for name, rows in before.items() if name != "nonces"
        }


def test_the_same_id_at_two_insurers_means_two_things(world):
    spec = wire.portfolio_spec("marine").model_copy(update={"outcome": "loss"})
    mine = world.ask("acme", "PUT", "/v1/portfolios/twin", text(wire.portfolio_spec())).json()
    theirs = world.ask("other", "PUT", "/v1/portfolios/twin", text(spec)).json()
    assert (mine["spec"]["outcome"], theirs["spec"]["outcome"]) == ("y", "loss")
    assert world.ask("acme", "GET", "/v1/portfolios/twin").json() == mine
    assert world.ask("other", "DELETE", "/v1/portfolios/twin").status == 204
    assert world.ask("acme", "GET", "/v1/portfolios/twin").json()["state"] == "open"


def test_lists_and_logs_hold_what_is_ones_own(world):
    assert [s["id"] for s in world.ask("acme", "GET", "/v1/studies").json()] == ["motor"]
    assert [s["id"] for s in world.ask("app2", "GET", "/v1/studies").json()] == ["marine"]
    assert {f["spec"]["study"] for f in world.ask("other", "GET", "/v1/fits").json()} == {"marine"}
    for name in ("acme", "app2", "other"):
        assert {e["party"] for e in world.ask(name, "GET", "/v1/log").json()["entries"]} == {name}
    for name in ("op", "aud"):
        entries = world.ask(name, "GET", "/v1/log").json()["entries"]
        assert {e["party"] for e in entries} >= {"acme", "other", "op"}
    spec = FitSpec(study="marine", portfolio="sealed")  # theirs under the name of mine
    assert world.ask("acme", "PUT", "/v1/fits/x", text(spec)).status == 404
    spec = FitSpec(study="motor", portfolio="no-such-thing")
    assert world.ask("acme", "PUT", "/v1/fits/x", text(spec)).body == NOTHING


def test_a_party_has_one_role(world):
    with pytest.raises(ValueError, match="one role"):
        world.third_party.add_key(wire.new_key().public_key, party="acme", role="operator")
    with pytest.raises(ValueError, match="another party"):
        world.third_party.add_key(world.keys["acme"].public_key, party="else", role="operator")


# --- success and errors have one shape ---


@pytest.mark.parametrize("command", sorted(RIGHTS))
def test_success_has_the_documented_shape(world, command, monkeypatch):
    route = next(r for r in world.app.routes if r.name == command)
    assert isinstance(route, APIRoute)
    checked = []
    monkeypatch.setattr(world.third_party, "check_right", lambda who, name: checked.append((who.name, name)))
    answer = world.send(request(world, command, right_one(command)))
    assert checked == [(right_one(command), command)]  # once, by the name of the route
    if command in ("delete_portfolio", "withdraw_report"):
        assert (answer.status, answer.body) == (204, b"")
    elif command == "get_bundle":
        assert (answer.status, answer.headers["content-type"], answer.body) == (200, "application/zip", b"a bundle")
    elif command == "put_report":
        assert (answer.status, answer.json()) == (200, {})
    else:
        assert (answer.status, answer.headers["content-type"]) == (200, wire.JSON)
        TypeAdapter(route.response_model).validate_json(answer.body)
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"


def check_problem(answer):
    assert answer.headers["content-type"] == wire.PROBLEM
    document = answer.json()
    assert set(document) == {"type", "title", "status"}
    kind = PROBLEMS[answer.code]
    assert document["status"] == answer.status == kind.status
    before, _, after = kind.title.partition("{}")
    assert document["title"].startswith(before)
    assert document["title"].endswith(after)
    assert answer.headers["cache-control"] == "no-store"


# --- flips ---


def flip(value, at=0):
    """Change one character of base64, hexadecimal or a number, and keep its form."""
    other = "B" if value[at] != "B" else "C"
    return value[:at] + ("1" if value[at].isdigit() and value[at] != "1" else other) + value[at + 1 :]


def flips(world, sent, who):
    """Every signed part changed, one at a time."""
    path, _, query = sent.target.partition(b"?")
    signed, signature, digest = (sent.header(n) for n in ("signature-input", "signature", "content-digest"))
    for method in ("GET", "PUT", "POST", "DELETE", "PATCH", "HEAD"):
        if method != sent.method:
            yield f"method {method}", replace(sent, method=method)
    for name, target in {
        "path": path[:-1] + (b"x" if path[-1:] != b"x" else b"y"),
        "path in capitals": path.replace(b"/v1/", b"/V1/"),
        "path longer": path + b"/",
        "path with two slashes": b"/" + path,
        "path spelled otherwise": path[:-1] + b"%%%02x" % path[-1],
        "path up and down": b"/v1/x/.." + path[3:],
    }.items():
        yield name, replace(sent, target=target + (b"?" + query if query else b""))
    yield "query", replace(sent, target=path + b"?" + (query + b"&a=1" if query else b"after=1"))
    yield "no query" if query else "a query", replace(sent, target=path if query else path + b"?x")
    yield "host", sent.but(host="third.party.example")
    yield "port", sent.but(host="third.party:8080")
    yield "two hosts", sent.plus("host", "third.party.example")
    yield "no digest", sent.but(content_digest=None)
    yield "another digest", sent.but(content_digest=flip(digest, 12))
    yield "two digests", sent.plus("content-digest", digest)
    yield "a weaker digest", sent.but(content_digest=digest.replace("sha-256", "md5"))
    yield "a longer body", replace(sent, body=sent.body + b" ").but(content_length=str(len(sent.body) + 1))
    if sent.body:
        middle = len(sent.body) // 2
        changed = sent.body[:middle] + bytes([sent.body[middle] ^ 1]) + sent.body[middle + 1 :]
        yield "another body", replace(sent, body=changed)
        yield "a shorter body", replace(sent, body=sent.body[:-1]).but(content_length=str(len(sent.body) - 1))
        yield "no body", replace(sent, body=b"").but(content_length="0")
        other = sent.but(
            content_digest=wire.sign_request("GET", "http://a/", {}, None, world.keys[who])["Content-Digest"]
        )
        yield "no body, and its digest", replace(other, body=b"").but(content_length="0")
    created = int(signed.partition("created=")[2].partition(";")[0])
    for other in (created + 1, created - 1, created + 301, created - 301, 0):
        yield f"created {other - created}", sent.but(signature_input=signed.replace(str(created), str(other)))
    nonce = signed.partition('nonce="')[2].partition('"')[0]
    yield "nonce", sent.but(signature_input=signed.replace(nonce, flip(nonce)))
    yield "a short nonce", sent.but(signature_input=signed.replace(nonce, nonce[:8]))
    for name in ("acme-2", "other", "op"):
        if name != who:
            key_id = world.keys[name].key_id
            yield f"key of {name}", sent.but(signature_input=signed.replace(world.keys[who].key_id, key_id))
    yield (
        "unknown key",
        sent.but(signature_input=signed.replace(world.keys[who].key_id, flip(world.keys[who].key_id, -1))),
    )
    yield "algorithm", sent.but(signature_input=signed.replace("ed25519", "hmac-sha256"))
    yield "fewer parts", sent.but(signature_input=signed.replace(' "content-digest"', ""))
    yield "other order", sent.but(signature_input=signed.replace('"@path" "@query"', '"@query" "@path"'))
    yield "expires", sent.but(signature_input=signed + ";expires=9999999999")
    yield "label", sent.but(signature=signature.replace("fp=", "fq="))
    yield "no signature", sent.but(signature=None)
    yield "no input", sent.but(signature_input=None)
    yield "neither", sent.but(signature=None, signature_input=None)
    yield "two signatures", sent.plus("signature", signature)
    yield "empty signature", sent.but(signature="fp=::")
    for at in (4, 30, 60, 88):
        yield f"signature at {at}", sent.but(signature=flip(signature, at))


def _entries(world):
    """Events and bodies of the log, in its order."""
    query = select(log.c.event, log.c.body).order_by(log.c.seq)
    return world.context.database.read(lambda c: [tuple(row) for row in c.execute(query)])


@pytest.mark.parametrize("command", sorted(RIGHTS))
def test_every_signed_part_counts(world, command):
    who = right_one(command)
    world.add("acme-2", "insurer", "acme")
    sent = request(world, command, who)
    before = world.dump()
    tried = 0
    for name, changed in flips(world, sent, who):
        answer = world.send(changed)
        allowed = {401, 400}
        if name.startswith("method"):
            allowed |= {405}  # no such method there
        if name == "two hosts":
            allowed |= {404}  # it may be for another service
        if name.startswith("path"):
            allowed |= {404, 405, 422}  # no such address at all, whoever asks
        if (name, command) == ("no query", "get_inclusion"):
            allowed |= {422}  # it has no default
        assert answer.status in allowed, (name, answer)
        if answer.status in (404, 405, 422) and answer.status != 404:
            assert answer.code in ("method-not-allowed", "bad-id", "bad-key", "bad-query"), name
        check_problem(answer)
        tried += 1
    assert tried > 40
    told = _entries(world)[len(before["log"]) :]
    assert {event for event, _ in told} <= {"security.bad-signature"}
    assert len(told) == len(set(told))  # one for each key that was named, in an hour
    others = before.keys() - {"log", "log_head"}
    assert {k: v for k, v in world.dump().items() if k in others} == {k: before[k] for k in others}
    assert world.send(sent).status in (200, 204)  # and it was good all the time
    answer = world.send(sent)
    assert (answer.status, answer.code) == (401, "replayed")


# --- replays ---


def test_nothing_is_accepted_twice_here_there_or_later(world, tmp_path):
    """Every kind of request again: at once, at a second service, and after a restart."""
    with world.second() as second:
        sent = {command: request(world, command, right_one(command)) for command in sorted(RIGHTS)}
        first = {}
        for i, (command, one) in enumerate(sent.items()):
            first[command] = (world if i % 2 else second).send(one)
        assert all(answer.status in (200, 204, 409, 410) for answer in first.values()), first
        before = world.dump()
        for service in (world, second):
            for command, one in sent.items():
                answer = service.send(one)
                assert (answer.status, answer.code) == (401, "replayed"), command
        assert world.dump() == before
    with world.second() as restarted:
        for command, one in sent.items():
            assert restarted.send(one).code == "replayed", command
        assert restarted.dump() == before
        world.clock.now += 299  # at the end of the window, after the housekeeping
        from fairpremium.parties.service._access import delete_old_nonces

        world.context.database.write(lambda c: delete_old_nonces(c, world.context))
        for command, one in sent.items():
            assert restarted.send(one).code == "replayed", command
        world.clock.now += 2
        for one in sent.values():
            assert restarted.send(one).code == "stale"


@pytest.mark.parametrize(
    "command", ["put_study", "open_study", "close_study", "put_portfolio", "put_fit", "cancel_fit", "get_bundle"]
)
def test_a_command_and_its_nonce_are_one_commit(world, command):
    """A command that is refused has used up its nonce all the same, and changed nothing else."""
    assert world.send(request(world, "list_studies", right_one(command))).status == 200
    world.app.state.requests._keys_at = float("inf")  # no look at the keys in between
    commits = []
    count = lambda connection: commits.append(connection.get_execution_options().get("reads_only"))  # noqa: E731
    event.listen(world.context.database._engine, "commit", count)
    try:
        for things in (THINGS, NO_THINGS):
            sent, before = request(world, command, right_one(command), things), world.dump()
            commits.clear()
            answer = world.send(sent)
            assert [only_read for only_read in commits if not only_read] == [None]  # reading costs no disk
            after = world.dump()
            assert len(after["nonces"]) == len(before["nonces"]) + 1
            if answer.status >= 400:
                names = set(before) - {"nonces", "commits"}
                assert {name: after[name] for name in names} == {name: before[name] for name in names}
            assert world.send(sent).code == "replayed"
    finally:
        event.remove(world.context.database._engine, "commit", count)
    assert answer.status == (200 if command.startswith("put_") else 404)  # a new name may be put


def test_nonces_live_as_long_as_their_requests(world):
    """A request from the future lives longest; no moment comes at which it is neither replayed nor stale."""
    from fairpremium.parties.service._access import delete_old_nonces

    window = int(world.context.limits.signature_window)
    sent = world.sign("acme", "GET", "/v1/fits", created=world.clock() + window)
    assert world.send(sent).status == 200
    start = world.clock.now
    for later in (1, window, 2 * window - 1, 2 * window, 2 * window + 1, 3 * window):
        world.clock.now = start + later
        world.context.database.write(lambda c: delete_old_nonces(c, world.context))
        assert world.send(sent).code == ("replayed" if later <= 2 * window else "stale"), later


@pytest.mark.parametrize("command", ["put_report", "put_study", "get_fit"])
def test_the_web_process_deletes_old_nonces_every_hour(world, command, monkeypatch):
    """No worker is needed for that, whatever is sent."""
    old = world.dump()["nonces"]
    world.clock.now += 3 * world.context.limits.signature_window
    assert world.send(request(world, "list_fits", "acme")).status == 200
    assert len(world.dump()["nonces"]) == len(old) + 1
    monkeypatch.setattr(world.app.state.requests, "_cleaned_at", float("-inf"))
    for sent in range(2):
        world.send(request(world, command, right_one(command)))
        left = world.dump()["nonces"]
        assert len(left) == sent + 2
        assert not set(left) & set(old)


def test_reports_sent_twice_in_one_commit(world):
    """Single reports wait for a common commit: one of equal requests is taken, and equal keys follow the first."""
    one = request(world, "put_report", "app")
    answers = world.send_together([one] * 20)
    assert sorted(a.status for a in answers) == [200] + [401] * 19
    target = f"/v1/studies/motor/reports/{wire.policy_key('b').hex()}"
    many = [world.sign("app", "PUT", target, wire.report(value)) for value in "FMFMFM"]
    answers = world.send_together(many)
    assert {a.status for a in answers} == {200, 409}
    assert sum(a.status == 200 for a in answers) == 3
    assert {a.code for a in world.send_together(many)} == {"replayed"}
    rows = [row for row in world.dump()["reports"] if "motor" in row]
    assert len(rows) == 2


def test_a_bad_report_does_not_harm_those_of_the_same_commit(world):
    deep = b'{"report": "F", "channel": ' + b'{"a":' * 150 + b"1" + b"}" * 150 + b"}"
    bodies = [
        wire.report("F"), wire.report("X"), b'{"report": "F", "channel": {"a": NaN}}', b'{"report": "F"',
        b'{"report": "F", "channel": {"a": 1e999}}', b'{"report": "\\ud800", "channel": null}', deep,
        wire.report("F", None), wire.report("M"),
        b'{"report": 100000000000000000000000000000000000000, "channel": null}',
    ]  # fmt: skip
    wires = [
        world.sign("app", "PUT", f"/v1/studies/motor/reports/{wire.policy_key(i).hex()}", body)
        for i, body in enumerate(bodies)
    ]
    wires.append(world.sign("app", "PUT", f"/v1/studies/marine/reports/{KEY}", wire.report()))
    answers = world.send_together(wires)
    assert [a.status for a in answers] == [200, 422, 422, 422, 422, 422, 409, 409, 200, 409, 404]
    for answer in answers:
        if answer.status != 200:
            check_problem(answer)


# --- clocks and keys ---


@pytest.mark.parametrize("command", sorted(RIGHTS))
def test_clocks_and_keys(world, command):
    who = right_one(command)
    before = world.dump()
    now, window = world.clock(), world.context.limits.signature_window
    for created in (now - window - 1, now + window + 2, 1, now * 1000):
        assert world.send(request(world, command, who, created=created)).code == "stale"
    stranger = wire.new_key()
    world.keys["nobody"] = stranger
    answer = world.send(request(world, command, "nobody"))
    assert (answer.status, answer.code) == (401, "bad-signature")
    assert world.dump() == before
    world.third_party.revoke_key(world.keys[who].key_id)
    world.forget_keys()
    revoked = world.send(request(world, command, who))
    assert revoked == answer  # a revoked key is like none
    without_nonce = {k: v for k, v in world.dump().items() if k not in ("keys", "log", "log_head")}
    assert without_nonce == {k: v for k, v in before.items() if k not in ("keys", "log", "log_head")}


def test_a_revoked_key_is_refused_within_seconds_and_others_of_the_party_go_on(world):
    import time

    world.add("acme-2", "insurer", "acme")
    assert world.ask("acme-2", "GET", "/v1/fits/done").status == 200
    world.third_party.revoke_key(world.keys["acme"].key_id)
    end = time.monotonic() + 3
    while world.ask("acme", "GET", "/v1/fits/done").status != 401:
        assert time.monotonic() < end
        time.sleep(0.1)
    assert world.ask("acme-2", "GET", "/v1/fits/done").status == 200


# --- limits ---


def test_other_names_of_the_service(tmp_path):
    with wire.World(tmp_path / "third-party", hosts=("third.party",)) as world:
        assert world.ask("acme", "GET", "/v1/studies").status == 200
        other = world.sign("acme", "GET", "/v1/studies", host="else.where")
        assert (world.send(other).status, world.send(other).body) == (404, NOTHING)
    with wire.World(tmp_path / "third-party-2", hosts=("third.party",), proxies=("127.0.0.1",)) as world:
        # a proxy that hands on what it was told does not make us believe a request for another service
        there = world.sign("acme", "GET", "/v1/studies", host="else.where")
        assert world.send(there.but(host="third.party").plus("x-forwarded-host", "else.where")).status == 404
        here = world.sign("acme", "GET", "/v1/studies", host="third.party")
        assert world.send(here.but(host="inside:80").plus("x-forwarded-host", "third.party")).status == 200


def test_rates_are_those_of_a_party_and_of_an_address(tmp_path):
    with wire.World(tmp_path / "third-party", limits=ServiceLimits(requests_per_second=5)) as world:
        world.app.state.requests.limiter._clock = lambda: 0.0
        statuses = [world.ask("acme", "GET", "/v1/studies").status for _ in range(12)]
        assert statuses == [200] * 10 + [429] * 2
        assert world.ask("aud", "GET", "/v1/studies").status == 429  # the address they share
        check_problem(world.ask("acme", "GET", "/v1/studies"))


def test_a_party_cannot_occupy_the_service_by_waiting(tmp_path):
    import time

    with wire.World(tmp_path / "third-party", limits=ServiceLimits(waits=3, wait_seconds=60.0)) as world:
        wire.fill(world)
        waits = world.app.state.fit_waiter.waiting
        waits["acme"] = 3  # so many wait
        begun = time.monotonic()
        assert world.ask("acme", "GET", "/v1/fits/waiting?wait=60").status == 200
        assert time.monotonic() - begun < 30
        assert waits["acme"] == 3
        waits["acme"] = 0
        assert {a.status for a in world.send_together([_wait(world, 0.3) for _ in range(5)])} == {200}
        assert not +waits  # whoever waited is counted out again


def _wait(world, seconds):
    return world.sign("acme", "GET", f"/v1/fits/waiting?wait={seconds}")


# --- values that were sent do not come back ---

CANARY = "canary7f3a"


def test_no_error_repeats_what_was_sent(world, caplog, monkeypatch):
    """Canaries in all places of all requests; no error, header or line of the operational log holds one."""
    monkeypatch.setattr(_log, "_limiter", RateLimiter(1e9))
    caplog.set_level("DEBUG", "fairpremium")
    spec = json.loads(text(study_spec()))
    bodies = [
        f'{{"{CANARY}": 1}}', f'"{CANARY}"', CANARY, f'{{"title": "{CANARY}"', json.dumps(spec | {CANARY: CANARY}),
        json.dumps(spec | {"title": [CANARY]}), json.dumps(spec | {"families": [CANARY]}),
        json.dumps(spec | {"rules": {CANARY: 1}}), json.dumps(spec | {"rules": {"n_min": CANARY}}),
        json.dumps(spec | {"attribute": {"kind": CANARY}}), json.dumps(spec | {"opens": CANARY}),
        json.dumps(spec | {"attribute": {"kind": "known", "channel": {"scheme": CANARY}}}),
        json.dumps({"report": CANARY, "channel": wire.CHANNEL.descriptor()}),
        json.dumps({"report": "F", "channel": {CANARY: CANARY}}),
        json.dumps({"study": f"{CANARY}!", "features": [], "outcome": CANARY}),
        json.dumps({"study": CANARY, "portfolio": CANARY, "family": CANARY}),
        json.dumps({"study": "motor", "portfolio": "sealed", "reference": {CANARY: CANARY}}),
        json.dumps({"study": "motor", "portfolio": "sealed", CANARY: 1, "level": CANARY}),
    ]  # fmt: skip
    answers = []
    for command, (method, target, _, kind) in ASKED.items():
        who = right_one(command)
        if method == "PUT":
            for body in bodies:
                for media in (kind, f"text/{CANARY}"):
                    answers.append(world.ask(who, "PUT", target.format(**NO_THINGS), body.encode(), media))
        for name in (f"{CANARY}%20", f"{CANARY}!", CANARY.upper(), CANARY * 20):
            answers.append(world.ask(who, method, target.format(**dict.fromkeys(THINGS, name)), b""))
        for query in (f"after={CANARY}", f"wait={CANARY}", f"{CANARY}={CANARY}"):
            answers.append(world.ask(who, method, f"{target.partition('?')[0].format(**NO_THINGS)}?{query}"))
        plain = request(world, command, who)
        answers += [world.send(plain.but(**{name: CANARY})) for name in ("signature", "signature_input", "host")]
        answers.append(world.send(plain.but(content_length=CANARY, content_type=CANARY)))
        answers.append(world.ask(who, "PATCH", f"/v1/{CANARY}"))
    assert {a.status for a in answers} <= {200, 204, 400, 401, 404, 405, 409, 411, 415, 422}
    for answer in answers:
        if answer.status >= 400:
            check_problem(answer)
            assert CANARY not in answer.body.decode() + json.dumps(answer.headers), answer
    lines = [json.dumps(record.fields).lower() for record in caplog.records]
    assert len(lines) > 300
    assert not [line for line in lines if CANARY in line]


def test_a_cancelled_fit_of_another_insurer_stays(world):
    with pytest.raises(Problem, match="not yours"):
        world.context.database.write(lambda c: cancel_fit(c, world.context, Party("third", "insurer"), "waiting"))
