"""The API is what its OpenAPI document says: no other status is ever seen, and every documented one is."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from datetime import timedelta

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from sqlalchemy import update

from fairpremium.parties import FitSpec
from fairpremium.parties.http import _readiness
from fairpremium.parties.service._access import RIGHTS
from fairpremium.parties.service._context import ServiceLimits
from fairpremium.parties.service.operations._rate_limit import RateLimiter
from fairpremium.parties.store.schema import fits
from helpers import wire

CHECKS = [
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
PARTIES = ["op", "app", "app2", "acme", "other", "aud"]
KNOWN = {
    "study": ["motor", "marine", "draft"],
    "portfolio": ["open", "sealed", "erased"],
    "fit": ["done", "waiting"],
    "key": [wire.KEY],
    "n": [0, 7],
    "number": [1, 2, 7],
}


@schemathesis.serializer(wire.PARQUET, wire.BATCH)
def _as_bytes(_, value):
    return value if isinstance(value, bytes) else str(value).encode()


class Recorder:
    """Sends requests to a world, and keeps the statuses of every operation."""

    def __init__(self, world):
        self.world = world
        self.document = world.send(wire.Wire("GET", b"/v1/openapi.json", ((b"host", b"third.party"),))).json()
        self.seen = defaultdict(set)
        self.requests = 0

    @property
    def documented(self):
        return {
            f"{method.upper()} {path}": {int(status) for status in operation["responses"]}
            for path, operations in self.document["paths"].items()
            for method, operation in operations.items()
        }

    def send(self, operation, sent):
        answer = self.world.send(sent)
        self.requests += 1
        assert answer.status != 500, (operation, sent)
        assert answer.status in self.documented[operation], (operation, sent, answer)
        self.seen[operation].add(answer.status)
        return answer

    def command(self, name, who=None, things=None, change=lambda sent: sent):
        """Send the good request of a command, changed or not."""
        route = next(r for r in self.world.app.routes if r.name == name)
        sent = wire.request(self.world, name, who or wire.right_one(name), things)
        return self.send(f"{next(iter(route.methods))} {route.path}", change(sent)).status


@pytest.fixture
def recorder(tmp_path):
    with wire.World(
        tmp_path / "third-party", limits=ServiceLimits(requests_per_second=1e9, part_bytes=200_000)
    ) as world:
        wire.fill(world)
        body = wire.study_spec(title="Draft").model_dump_json().encode()
        assert world.ask("op", "PUT", "/v1/studies/draft", body).status == 200
        world.portfolio("acme", "erased")
        assert world.ask("acme", "DELETE", "/v1/portfolios/erased").status == 204
        yield Recorder(world)


def test_the_document_holds_together(recorder):
    """Every reference leads to something, every operation has a name, and bodies are described in full."""
    document = recorder.document
    registry = Registry().with_resource("", Resource(document, DRAFT202012))
    references = [value for key, value in _walk(document) if key == "$ref"]
    assert len(references) > 30
    for reference in references:
        registry.resolver().lookup(reference)
    for operations in document["paths"].values():
        for operation in operations.values():
            for status in operation["responses"].values():
                assert status["description"]
    sent = document["components"]["schemas"]["SentStudySpec"]
    assert set(sent["required"]) == {"title", "attribute", "collectors", "insurers"}
    assert document["components"]["schemas"]["SentRules"]["additionalProperties"] is False


def _walk(value):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key, inner
            yield from _walk(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _walk(inner)


def test_only_documented_statuses_and_all_of_them(recorder, monkeypatch, repetitions):
    explore(recorder, repetitions(10, 300))
    found = sum(map(len, recorder.seen.values()))
    direct(recorder, monkeypatch)
    missing = {name: sorted(d - recorder.seen[name]) for name, d in recorder.documented.items()}
    assert not {name: statuses for name, statuses in missing.items() if statuses}
    print(f"{recorder.requests} requests; schemathesis saw {found} of {sum(map(len, recorder.seen.values()))} pairs")


# --- schemathesis ---


def explore(recorder, examples):
    """Requests from the document, that fit it and that do not, signed by every party."""
    schema = schemathesis.openapi.from_dict(recorder.document)
    for result in schema.get_all_operations():
        operation = result.ok()
        _explore(recorder, operation, operation.as_strategy(generation_mode=GenerationMode.POSITIVE), examples)
        if operation.body or operation.path_parameters or operation.query:
            _explore(recorder, operation, operation.as_strategy(generation_mode=GenerationMode.NEGATIVE), examples)


def _explore(recorder, operation, strategy, examples):
    @given(case=strategy, data=st.data())
    @settings(
        max_examples=examples, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    def run(case, data):
        for name in case.path_parameters or {}:
            if data.draw(st.booleans()):
                case.path_parameters[name] = data.draw(st.sampled_from(KNOWN[name]))
        raw = case.as_transport_kwargs(base_url="http://third.party")
        names = ("method", "url", "params", "data", "json", "headers", "files", "cookies")
        ready = requests.Request(**{name: raw[name] for name in names if raw.get(name) is not None}).prepare()
        body = ready.body or b""
        body = body.encode() if isinstance(body, str) else body
        target = ready.path_url
        who = data.draw(st.sampled_from([*PARTIES, None]))
        kind = ready.headers.get("content-type", "")
        kind = kind if kind.isascii() else ""
        sent = recorder.world.sign(who or "op", ready.method, target, body, kind)
        if who is None:
            sent = sent.but(signature=None)
        answer = recorder.send(operation.label, sent)
        made = httpx.Request(ready.method, ready.url, headers={"content-type": kind}, content=body)
        response = httpx.Response(answer.status, headers=answer.headers, content=answer.body, request=made)
        response.elapsed = timedelta()
        case.validate_response(response, checks=CHECKS)

    run()


# --- what it cannot reach ---


def direct(recorder, monkeypatch):
    """For every route, the answers that need a state of the world or a broken request."""
    world = recorder.world
    assert world.ask("op", "POST", "/v1/studies/motor/open").status == 200
    open_routes = [r for r in world.app.routes if r.path in recorder.document["paths"] and r.name not in RIGHTS]
    host, query = ((b"host", b"third.party"),), {"get_consistency": "?from=1&to=2"}
    plain = {f"GET {r.path}": wire.Wire("GET", f"{r.path}{query.get(r.name, '')}".encode(), host) for r in open_routes}
    local = ((b"host", b"127.0.0.1"),)  # as those who may open the console
    recorder.send("GET /metrics", plain["GET /metrics"])
    plain["GET /metrics"] = wire.Wire("GET", b"/metrics", local)
    monkeypatch.setattr(_readiness, "_FRESH", -1.0)
    first_of_all = (set_limits, lose_database, fill_disk, other_host)
    for trouble in first_of_all:
        with monkeypatch.context() as patch:
            undo = trouble(world, patch)
            for name in RIGHTS:
                for _ in range(2):
                    recorder.command(name)
            for operation, sent in plain.items():
                recorder.send(operation, sent)
            undo()
    for operation, sent in plain.items():
        assert recorder.send(operation, sent).status == 200
    for name in RIGHTS:
        method = wire.ASKED[name][0]
        recorder.command(name, change=lambda sent: sent.but(signature=None, signature_input=None))
        recorder.command(name, things=wire.NO_THINGS)
        longer = lambda sent: replace(sent, body=sent.body + b"x").but(content_length=str(len(sent.body) + 1))  # noqa: E731
        assert recorder.command(name, change=longer) == 400
        if "{" in wire.ASKED[name][1]:
            bad = lambda sent: replace(sent, target=sent.target.replace(b"motor", b"%21").replace(b"s/", b"s/%21"))  # noqa: E731
            assert recorder.command(name, change=bad) == 422
        if method == "PUT":
            assert recorder.command(name, change=lambda sent: sent.but(content_length=None)) == 411
            assert recorder.command(name, change=lambda sent: sent.but(content_length="999999999")) == 413
        if wire.ASKED[name][3] in (wire.PARQUET, wire.BATCH):
            assert recorder.command(name, change=lambda sent: sent.but(content_type="text/csv")) == 415
    conflicts(recorder)
    assert world.ask("op", "POST", "/v1/studies/motor/open").status == 200
    for name in RIGHTS:
        recorder.command(name, things={**wire.THINGS, "open": "declared"})


def set_limits(world, patch):
    patch.setattr(world.app.state.requests, "limiter", RateLimiter(0.01))  # less than one at a time
    return lambda: None


def lose_database(world, patch):
    """The database cannot be opened any more."""
    world.context.database.close()
    path = world.folder / "fairpremium.sqlite"
    path.rename(path.with_name("away"))
    path.mkdir()
    world.forget_keys()

    def undo():
        path.rmdir()
        path.with_name("away").rename(path)

    return undo


def fill_disk(world, patch):
    patch.setenv("FAIRPREMIUM_FULL_AT", "database.before_commit")
    return lambda: None


def other_host(world, patch):
    patch.setattr(world.app.state.requests, "settings", replace(world.settings, hosts=("else.where",)))
    return lambda: None


def conflicts(recorder):
    """409 and 410 of every route that has them."""
    world = recorder.world
    key = wire.policy_key("conflict").hex()
    assert world.ask("op", "POST", "/v1/studies/motor/open").status == 200
    world.portfolio("acme", "declared", seal=False)
    world.portfolio("acme", "busy")
    world.fit("acme", "busy", "busy")

    def send(who, method, path, body=b"", kind=None, of=None):
        return recorder.send(f"{method} {of or path}", world.sign(who, method, path, body, kind)).status

    study, report = "/v1/studies/{study}", "/v1/studies/{study}/reports/{key}"
    assert (
        send("op", "PUT", "/v1/studies/motor", wire.study_spec(title="X").model_dump_json().encode(), of=study) == 409
    )
    for value, status in (("F", 200), ("M", 409)):
        target = f"/v1/studies/motor/reports/{key}"
        assert send("app", "PUT", target, wire.report(value), of=report) == status
    parts = "/v1/studies/{study}/report-parts/{n}"
    for seed, status in ((1, 200), (2, 409)):
        body = wire.report_part(seed=seed)
        assert send("app", "PUT", "/v1/studies/motor/report-parts/0", body, wire.BATCH, of=parts) == status
    portfolio = "/v1/portfolios/{portfolio}"
    spec = wire.portfolio_spec()
    other = spec.model_copy(update={"outcome": "z"}).model_dump_json().encode()
    assert send("acme", "PUT", "/v1/portfolios/declared", other, of=portfolio) == 409
    world.ask("acme", "PUT", "/v1/portfolios/empty", spec.model_dump_json().encode())
    assert send("acme", "POST", "/v1/portfolios/empty/seal", of=f"{portfolio}/seal") == 409
    assert send("acme", "POST", "/v1/portfolios/erased/seal", of=f"{portfolio}/seal") == 410
    assert send("acme", "DELETE", "/v1/portfolios/busy", of=portfolio) == 409
    part = wire.portfolio_part(spec, seed=5)
    for name, status in (("busy", 409), ("erased", 410)):
        target = f"/v1/portfolios/{name}/parts/3"
        assert send("acme", "PUT", target, part, wire.PARQUET, of=f"{portfolio}/parts/{{n}}") == status
    for name, status in (("busy", 200), ("declared", 409), ("erased", 410)):
        body = FitSpec(study="motor", portfolio=name).model_dump_json().encode()
        assert send("acme", "PUT", f"/v1/fits/{name}", body, of="/v1/fits/{fit}") == status
    for fit, status in (("busy", 409), ("done", 410)):
        world.context.database.write(lambda c: c.execute(update(fits).values(erased=1.0)))
        assert send("acme", "GET", f"/v1/fits/{fit}/bundle", of="/v1/fits/{fit}/bundle") == status
        world.context.database.write(lambda c: c.execute(update(fits).values(erased=None)))
    assert send("aud", "GET", "/v1/log?after=-1", of="/v1/log") == 422
    for path in ("/v1/log/inclusion", "/v1/log/consistency"):
        assert send("aud", "GET", path, of=path) == 422
