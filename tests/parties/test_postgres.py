"""The server that tests talk to is a real one, and a test leaves nothing in it."""

from __future__ import annotations

import os
import signal
import time

import psycopg
import pytest


def connect(url: str) -> psycopg.Connection:
    return psycopg.connect(url.replace("+psycopg", ""), autocommit=True)


def names(postgres) -> set[str]:
    return {name for (name,) in postgres.execute("SELECT datname FROM pg_database") if name.startswith("test_")}


def test_a_database_is_fresh_and_gone_afterwards(postgres):
    before = names(postgres)
    with postgres.database() as name:
        with connect(postgres.url(name)) as connection:
            connection.execute("CREATE TABLE t (i int)")
            connection.execute("INSERT INTO t VALUES (1)")
        assert names(postgres) == before | {name}
        forgotten = connect(postgres.url(name))
    assert names(postgres) == before
    with pytest.raises(psycopg.OperationalError):
        forgotten.execute("SELECT 1")
    forgotten.close()


def test_backends_are_killed_and_others_live(postgres, postgres_url):
    with postgres.database() as other, connect(postgres.url(other)) as bystander, connect(postgres_url) as victim:
        assert postgres.kill_backends(postgres_url.rpartition("/")[2]) == 1
        with pytest.raises(psycopg.OperationalError):
            victim.execute("SELECT 1")
        assert bystander.execute("SELECT 1").fetchone() == (1,)
        assert postgres.kill_backends() == 1


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
def test_a_server_that_went_away_comes_back_with_its_data(postgres, postgres_url, how):
    with connect(postgres_url) as connection:
        connection.execute("CREATE TABLE t (i int)")
        connection.execute("INSERT INTO t VALUES (7)")
    postgres.stop(how)
    with pytest.raises(psycopg.OperationalError):
        connect(postgres_url)
    postgres.start()
    with connect(postgres_url) as connection:
        assert connection.execute("SELECT i FROM t").fetchone() == (7,)


def test_the_server_listens_to_this_machine_only(postgres):
    assert postgres.execute("SHOW listen_addresses") == [("127.0.0.1",)]
    assert postgres.execute("SHOW fsync") == [("off",)]


def test_a_durable_server_and_its_end(postgres):
    server = type(postgres)(durable=True)
    process = server._process
    try:
        assert server.execute("SHOW fsync") == [("on",)]
        assert server.port != postgres.port
    finally:
        server.close()
    assert process.poll() is not None
    assert not server.folder.exists()


def test_without_a_server_it_is_said_how_to_get_one(postgres, monkeypatch, tmp_path):
    monkeypatch.setenv("FAIRPREMIUM_POSTGRES", str(tmp_path))
    with pytest.raises(pytest.skip.Exception, match="apt-get install postgresql"):
        type(postgres)()


def test_programs_are_found_outside_of_the_path(postgres, monkeypatch):
    monkeypatch.setenv("PATH", os.fspath("/nowhere"))
    start = time.monotonic()
    server = type(postgres)()
    server.close()
    assert time.monotonic() - start < 60
