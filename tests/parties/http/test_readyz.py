"""/readyz tells the truth: it is 200 if what is sent could be stored, and 503 if not."""

from __future__ import annotations

import json
import subprocess
from contextlib import contextmanager

import pytest
from sqlalchemy import select

from fairpremium.parties.http import _readiness
from fairpremium.parties.store.schema import meta
from helpers import wire

READY = wire.Wire("GET", b"/readyz", ((b"host", b"third.party"),))
POINTS = ("database.before_commit", "file.created", "file.written", "file.synced")


@pytest.fixture(autouse=True)
def always_look(monkeypatch):
    monkeypatch.setattr(_readiness, "_FRESH", -1.0)


@pytest.fixture
def world(tmp_path, database_url):
    with wire.World(tmp_path / "third-party", database_url) as world:
        yield world


@pytest.mark.parametrize("point", POINTS)
def test_a_full_disk_shows_at_every_point_of_a_write(world, monkeypatch, caplog, point):
    assert world.send(READY).status == 200
    with monkeypatch.context() as patch:
        patch.setenv("FAIRPREMIUM_FULL_AT", point)
        for _ in range(2):
            answer = world.send(READY)
            assert (answer.status, answer.code) == (503, "unavailable")
            assert json.loads(answer.body)["status"] == 503
            assert world.send(wire.Wire("GET", b"/healthz", READY.headers)).status == 200
    assert world.send(READY).status == 200
    lost = [record.fields for record in caplog.records if record.fields["event"] == "ready.lost"]
    assert lost[0] == {"event": "ready.lost", "request": lost[0]["request"], "problem": "storage-full"}
    assert len(lost) == 1  # told once


def test_a_look_leaves_nothing_behind(world):
    for _ in range(3):
        assert world.send(READY).status == 200
    assert [path.name for path in world.context.files.folder.iterdir() if path.name != ".lock"] == []
    rows = world.context.database.read(lambda c: c.execute(select(meta.c.name)).scalars().all())
    assert rows.count("last_probe") == 1
    assert world.third_party.get_log(wire.Party("aud", "auditor")).entries[-1].event == "key.added"


def test_many_probes_look_once(world, monkeypatch):
    looks = []
    check = world.third_party.check_writes
    monkeypatch.setattr(world.third_party, "check_writes", lambda: (looks.append(1), check()))
    monkeypatch.setattr(_readiness, "_FRESH", 60.0)
    assert {answer.status for answer in world.send_together([READY] * 20)} == {200}
    assert world.send(READY).status == 200
    assert len(looks) == 1


def test_a_folder_that_is_gone(world):
    folder = world.context.files.folder
    folder.rename(folder.with_name("away"))
    assert world.send(READY).code == "unavailable"
    folder.with_name("away").rename(folder)
    assert world.send(READY).status == 200


def test_a_sqlite_file_that_is_gone(tmp_path):
    with wire.World(tmp_path / "third-party") as world:
        assert world.send(READY).status == 200
        world.context.database.close()
        path = world.folder / "fairpremium.sqlite"
        path.rename(path.with_name("away"))
        path.mkdir()
        assert world.send(READY).code == "unavailable"
        path.rmdir()
        path.with_name("away").rename(path)
        assert world.send(READY).status == 200


def test_a_database_server_that_takes_no_writes_any_more(tmp_path, postgres):
    with postgres.database() as name, wire.World(tmp_path / "third-party", postgres.url(name)) as world:
        assert world.send(READY).status == 200
        postgres.kill_backends(name)  # connections break: the next ones work
        assert world.send(READY).status == 200
        postgres.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        postgres.kill_backends(name)
        assert world.send(READY).code == "unavailable"
        assert world.ask("op", "GET", "/v1/studies").status in (500, 503)
        postgres.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
        postgres.kill_backends(name)
        assert world.send(READY).status == 200


def test_the_log_tells_the_reasons_apart(world, monkeypatch, caplog):
    folder = world.context.files.folder

    def reason():
        caplog.clear()
        assert world.send(READY).status == 503
        (lost,) = [record.fields["problem"] for record in caplog.records if record.fields["event"] == "ready.lost"]
        return lost

    assert world.send(READY).status == 200
    folder.rename(folder.with_name("away"))
    assert reason() == "folder-missing"
    folder.with_name("away").rename(folder)
    assert world.send(READY).status == 200
    monkeypatch.setattr(_readiness, "_PATIENCE", 0.2)
    with world.context.database._engine.begin() as connection:
        connection.execute(meta.update().values(value=meta.c.value))
        assert reason() == "too-slow"
    monkeypatch.setattr(_readiness, "_PATIENCE", 30.0)
    assert world.send(READY).status == 200
    if world.context.database.dialect == "sqlite":
        with chattr_immutable(folder):
            assert reason() == "folder-not-writable"


@contextmanager
def chattr_immutable(folder):
    """No user, root too, can make a file in it meanwhile."""
    if subprocess.run(["chattr", "+i", folder], capture_output=True, check=False).returncode:
        pytest.skip("no immutable folders here")
    try:
        yield
    finally:
        subprocess.run(["chattr", "-i", folder], check=True)


def test_a_look_that_takes_too_long_is_given_up(world, monkeypatch):
    assert world.send(READY).status == 200
    monkeypatch.setattr(_readiness, "_PATIENCE", 0.2)
    with world.context.database._engine.begin() as connection:  # holds what every write needs
        connection.execute(meta.update().values(value=meta.c.value))
        assert world.send(READY).code == "unavailable"
    monkeypatch.setattr(_readiness, "_PATIENCE", 30.0)
    assert world.send(READY).status == 200


def test_a_database_server_that_is_gone(tmp_path):
    from helpers.postgres import PostgresServer

    server = PostgresServer()
    try:
        with server.database() as name, wire.World(tmp_path / "third-party", server.url(name)) as world:
            assert world.send(READY).status == 200
            server.stop()
            assert world.send(READY).code == "unavailable"
            server.start()
            assert world.send(READY).status == 200
    finally:
        server.close()
