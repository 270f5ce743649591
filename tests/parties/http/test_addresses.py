"""Under which address a service takes requests, and the document that describes them."""

import json
from contextlib import closing

import pytest

from fairpremium.parties import AppTransport, ServiceSettings, ThirdParty, create_app
from fairpremium.parties.clients import Operator
from fairpremium.parties.http import _openapi
from fairpremium.parties.protocol import Problem, new_key
from helpers import wire


@pytest.fixture
def served(tmp_path):
    """A function that sends a signed request to a service, under the address that it was signed for."""
    key = new_key()
    with closing(ThirdParty(tmp_path / "third-party")) as party:
        party.add_key(key.public_key, party="op", role="operator")

        def send(url, **settings):
            with AppTransport(create_app(ServiceSettings(folder="unused", **settings), party)) as transport:
                return Operator(url, key, transport=transport).send("GET", "/v1/studies").status_code

        yield send


@pytest.mark.parametrize(
    ("url", "settings"),
    [
        ("http://127.0.0.1:9999", {}),
        ("http://localhost:1", {}),
        ("http://localhost", {}),  # which is port 80
        ("http://[::1]:9999", {}),
        ("http://127.0.0.1:8350", {"port": 9999}),
        ("http://fair.example:8350", {"hosts": ("fair.example",)}),
        ("http://fair.example", {"hosts": ("fair.example:8350",)}),
    ],
)
def test_a_request_that_was_signed_for_another_port_is_not_taken(served, url, settings):
    with pytest.raises(Problem, match="no such thing"):
        served(url, **settings)


@pytest.mark.parametrize(
    ("url", "settings"),
    [
        ("http://127.0.0.1:8350", {}),
        ("http://localhost:8350", {}),
        ("http://[::1]:8350", {}),
        ("http://localhost", {"port": 80}),
        ("http://localhost:9000", {"hosts": ("localhost:9000",)}),  # through a tunnel
        ("http://fair.example", {"hosts": ("fair.example",)}),
        ("http://fair.example:8350", {"hosts": ("fair.example:8350",)}),
    ],
)
def test_a_request_that_was_signed_for_this_service_is_taken(served, url, settings):
    assert served(url, **settings) == 200


def test_a_page_can_be_reached_through_a_tunnel(tmp_path):
    with wire.World(tmp_path / "third-party", hosts=()) as world:
        for host in (b"localhost:9000", b"127.0.0.1", b"127.0.0.1:8350"):
            assert world.send(wire.Wire("GET", b"/healthz", ((b"host", host),))).status == 200
        assert world.send(wire.Wire("GET", b"/healthz", ((b"host", b"fair.example"),))).status == 404


def test_the_document_of_the_api_is_written_once(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(_openapi, "describe", lambda app, real=_openapi.describe: calls.append(1) or real(app))
    with wire.World(tmp_path / "third-party") as world:
        answers = [world.send(wire.Wire("GET", b"/v1/openapi.json", ((b"host", b"third.party"),))) for _ in range(3)]
        assert json.loads(answers[0].body) == world.app.openapi()
    assert len({answer.body for answer in answers}) == 1
    assert {answer.headers["content-type"] for answer in answers} == {"application/json"}
    assert len(calls) == 1
