"""An upload that failed does not use up its id; what was sealed or accepted stays as it is."""

import hashlib

import numpy as np
import pandas as pd
import pytest

from fairpremium.parties.protocol import Portfolio, Problem, new_secret
from helpers import wire

ROWS = 40


@pytest.fixture
def world(tmp_path, database_url):
    with wire.World(tmp_path / "third-party", database_url) as world:
        world.declare()
        world.secret = new_secret()
        yield world


@pytest.fixture
def frame():
    rng = np.random.default_rng(1)
    return pd.DataFrame(
        {"policy": [f"P{i}" for i in range(ROWS)], "age": rng.normal(size=ROWS), "y": rng.normal(size=ROWS)}
    )


def upload(world, frame, name="p", **more):
    roles = {"study": "motor", "policy": "policy", "outcome": "y", "rows_per_part": 10}
    return world.client("acme").upload(frame, portfolio=name, secret=world.secret, **{**roles, **more})


def put(world, spec):
    return world.ask("acme", "PUT", "/v1/portfolios/p", spec.model_dump_json().encode())


def see(world):
    return Portfolio.model_validate_json(world.ask("acme", "GET", "/v1/portfolios/p").body)


def rows_of(world, sent):
    """What the service has of a portfolio, as digests of its parts."""
    stored = see(world)
    assert set(world.context.files) == {part.sha256 for part in stored.parts}  # and nothing of what failed
    return (stored.state, stored.rows, len(stored.parts)) == ("sealed", len(sent), -(-len(sent) // 10))


def stop_after(monkeypatch, parts):
    """Let the network fail after some parts."""
    from fairpremium.parties.clients import _client

    real, sent = _client.Client.put_file, []

    def put_file(self, path, body, media, kind):
        if len(sent) == parts:
            raise _client.ServiceUnreachable("gone")
        sent.append(path)
        return real(self, path, body, media, kind)

    monkeypatch.setattr(_client.Client, "put_file", put_file)
    monkeypatch.setattr(_client, "_AT_ONCE", 1)


@pytest.mark.parametrize(
    "correct",
    [
        lambda f: f,  # nothing was wrong but the network
        lambda f: f.assign(age=f["age"].round(2)),  # other values, in parts that were taken as well
        lambda f: f.iloc[:15],  # fewer parts than were taken
        lambda f: f.assign(region="a"),  # another column
        lambda f: f.assign(age=np.where(f["age"] > 0, "high", "low")),  # another kind
    ],
    ids=["same", "values", "fewer", "column", "kind"],
)
def test_the_same_id_again_after_an_upload_that_failed(world, frame, monkeypatch, correct):
    with monkeypatch.context() as patched:
        stop_after(patched, 3)
        with pytest.raises(OSError, match="gone"):
            upload(world, frame)
    assert (see(world).state, len(see(world).parts)) == ("open", 3)
    corrected = correct(frame)
    assert upload(world, corrected).rows == len(corrected)
    assert rows_of(world, corrected)
    assert upload(world, corrected).state == "sealed"  # once more, which changes nothing


def test_a_table_that_the_service_refuses_is_corrected(world, frame):
    twice = pd.concat([frame, frame.iloc[:1].assign(policy="P40")])
    spoiled = twice.assign(y=[*frame["y"], np.nan])
    with pytest.raises((Problem, ValueError)):
        upload(world, spoiled)
    assert see(world).state == "open"
    assert upload(world, frame).state == "sealed"
    assert rows_of(world, frame)


def test_a_sealed_portfolio_stays(world, frame):
    sealed = upload(world, frame)
    for other in (frame.assign(age=0.5 + frame["age"]), frame.iloc[:10], frame.assign(region="a")):
        with pytest.raises(Problem, match="another content"):
            upload(world, other)
    assert see(world) == sealed
    world.client("acme").erase("p")
    with pytest.raises(Problem):  # what was sealed once never comes back
        upload(world, frame)
    assert see(world).state == "deleted"


def test_without_a_word_the_same_id_with_another_content_is_refused(world):
    """The rule of all ids: only who erases an open portfolio can declare it anew."""
    spec = wire.portfolio_spec("motor")
    other = spec.model_copy(update={"outcome": "z"})
    assert put(world, spec).status == 200
    part = wire.portfolio_part(spec, 4, 1)
    assert world.ask("acme", "PUT", "/v1/portfolios/p/parts/0", part, wire.PARQUET).status == 200
    assert put(world, other).code == "conflict"
    another = wire.portfolio_part(spec, 4, 2)
    assert world.ask("acme", "PUT", "/v1/portfolios/p/parts/0", another, wire.PARQUET).code == "conflict"
    assert world.ask("acme", "DELETE", "/v1/portfolios/p").status == 204
    assert world.ask("acme", "PUT", "/v1/portfolios/p/parts/0", part, wire.PARQUET).code == "portfolio-deleted"
    assert not list(world.context.files)
    assert put(world, other).json()["parts"] == []
    assert see(world).spec.outcome == "z"
    digest = hashlib.sha256(part).hexdigest()
    entries = world.ask("acme", "GET", "/v1/log").json()["entries"]
    told = [(e["event"], e["body"].get("sha256")) for e in entries if e["event"].startswith("portfolio")]
    assert told == [
        ("portfolio.declared", None), ("portfolio.part", digest), ("portfolio.erased", None),
        ("portfolio.declared", None),
    ]  # fmt: skip


def test_files_of_a_dropped_upload_go_even_if_its_erasure_was_killed(world, monkeypatch):
    from fairpremium.parties.service import erasure

    spec = wire.portfolio_spec("motor")
    put(world, spec)
    world.ask("acme", "PUT", "/v1/portfolios/p/parts/0", wire.portfolio_part(spec, 4, 1), wire.PARQUET)
    with monkeypatch.context() as patched:
        patched.setattr(erasure, "finish_erasures", lambda *args: None)  # killed after the commit
        assert world.ask("acme", "DELETE", "/v1/portfolios/p").status == 204
    assert len(list(world.context.files)) == 1
    assert put(world, spec).status == 200
    assert not list(world.context.files)


def test_a_part_of_somebody_else_is_not_sealed(world, frame, monkeypatch):
    """Two uploads of different files under one id: neither is sealed as a mixture."""
    from fairpremium.parties.clients._client import Client

    real = Client.put_files

    def put_files(self, *args):
        yield from real(self, *args)
        spec = see(world).spec
        late = wire.portfolio_part(spec, 4, 7)
        assert world.ask("acme", "PUT", "/v1/portfolios/p/parts/9", late, wire.PARQUET).status == 200

    monkeypatch.setattr(Client, "put_files", put_files)
    with pytest.raises(Problem, match="another content"):
        upload(world, frame)
    assert see(world).state == "open"
