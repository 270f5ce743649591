"""The procedure of docs/guide/upgrading.md with real processes: stop, back up, start, and back again."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest
from sqlalchemy import create_engine, text

from fairpremium.parties.clients._client import ServiceUnreachable
from fairpremium.parties.clients._collector import Collector
from fairpremium.parties.protocol import Problem, as_keys
from fairpremium.parties.protocol._keys import read_key
from fairpremium.parties.service.reports import open_snapshot
from fairpremium.parties.store import schema, sqlite_url
from helpers.old_schema import downgrade
from helpers.places import ACME, CHANNEL, OP, Place, message, name_keys
from helpers.postgres import USER, find_programs
from helpers.processes import wait_until

OLD = 2  # what 0.1.0 wrote
FIRST = 100_000  # number of the first policy that is reported here


class PatientCollector:
    """Sends reports one by one, each until it is acknowledged, whatever happens to the service."""

    def __init__(self, url, key):
        self.url = url
        self.told, self.errors = [], []
        self._key = key
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def _run(self):
        try:
            for i in range(10**6):
                key = bytes(name_keys(FIRST + i, FIRST + i + 1)[0])
                while not self._stop.is_set() and not self._send(key, message(i % 400)):
                    time.sleep(0.05)
                if self._stop.is_set():
                    return
                self.told.append((key, message(i % 400).report))
        except Exception as error:  # shown by the test
            self.errors.append(error)

    def _send(self, key, report):
        content = {"content": report.model_dump_json().encode(), "headers": {"Content-Type": "application/json"}}
        try:
            with Collector(self.url, self._key, timeout=10.0) as client:
                client.send("PUT", f"/v1/studies/motor/reports/{key.hex()}", **content)
        except (ServiceUnreachable, OSError):
            return False
        except Problem as problem:
            if problem.status < 500:
                raise
            return False
        return True

    def wait_for_more(self):
        goal = len(self.told) + 15
        wait_until(lambda: len(self.told) >= goal or self.errors)
        assert self.errors == []


def version_of(place):
    engine = create_engine(place.database or sqlite_url(place.folder / "fairpremium.sqlite"))
    with engine.connect() as connection:
        found = connection.execute(text("SELECT value FROM meta WHERE name = 'schema_version'")).scalar()
    engine.dispose()
    return int(found)


def stored_in(place):
    """The reports that the patient collector sent, and that are there."""
    party = place.open()
    assert party.verify_log().intact
    newest = max((epoch.number for epoch in party.get_study(OP, "motor").epochs), default=0)
    party.begin_epoch(OP, "motor", newest + 1)
    find = party.context.database.read(lambda c: open_snapshot(c, party.context, "motor", newest + 1, "app"))
    keys = [bytes(key) for key in name_keys(FIRST, FIRST + 3000)]
    codes = find(as_keys(keys))
    party.close()
    return {(key, CHANNEL.reports[code]) for key, code in zip(keys, codes, strict=True) if code >= 0}


class Copies:
    """A backup of a place by the means of its version, and a new place from it."""

    def __init__(self, tmp_path, postgres, new_database):
        self._folder = tmp_path
        self._postgres = postgres
        self._new = new_database

    def _run(self, *words):
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=True)
        return done.stdout

    def take(self, place):
        if place.database is None:
            command = [sys.executable, "-P", "-m", "fairpremium", "backup", "--folder", place.folder, "--json"]
            said = json.loads(self._run(*command, "-o", self._folder / "backup"))
            assert (said["schema_version"], said["log"]["intact"]) == (OLD, True)
            return
        dump = [find_programs() / "pg_dump", "-Fc", "-f", self._folder / "backup.dump"]
        self._run(*dump, place.database.replace("postgresql+psycopg", "postgresql"))
        shutil.copytree(place.folder, self._folder / "backup")

    def restore(self):
        folder = self._folder / "restored"
        if self._postgres is None:
            command = [sys.executable, "-P", "-m", "fairpremium", "restore", self._folder / "backup", "--json"]
            said = json.loads(self._run(*command, "--folder", folder))
            assert (said["schema_version"], said["log"]["intact"]) == (OLD, True)
            return Place(folder)
        name = self._new
        where = ["-h", "127.0.0.1", "-p", self._postgres.port, "-U", USER, "-d", name]
        self._run(find_programs() / "pg_restore", *where, self._folder / "backup.dump")
        shutil.copytree(self._folder / "backup", folder)
        return Place(folder, self._postgres.url(name), self._postgres)


@pytest.fixture
def copies(base, tmp_path, request):
    if base.database is None:
        yield Copies(tmp_path, None, None)
        return
    postgres = request.getfixturevalue("postgres")
    with postgres.database() as name:
        yield Copies(tmp_path, postgres, name)


def test_an_upgrade_under_load_with_kills_and_a_rollback(base, zygote, tmp_path, copies):
    place = base.copy(tmp_path / "third-party")
    web = zygote.start("web", tmp_path / "url", **place.options)
    port = int(web.said().rpartition(":")[2])
    with PatientCollector(web.said(), read_key(place.folder / "app.key")) as collector:
        collector.wait_for_more()
        web.kill(signal.SIGTERM)
        assert web.wait() == 0
        acknowledged = set(collector.told)
        party = place.open()
        party.context.database.write(lambda c: downgrade(c, OLD))  # now it is what an earlier version left
        party.close()

        copies.take(place)
        for at in range(1, schema.SCHEMA_VERSION - OLD + 1):
            faults = {"kill": f"schema.migrated:{at}"}
            killed = zygote.start("web", tmp_path / "killed", faults, **place.options)
            assert killed.wait() == -signal.SIGKILL
            assert version_of(place) == OLD
        started = [zygote.start("work", tmp_path / f"worker-{i}", **place.options) for i in range(2)]
        web = zygote.start("web", tmp_path / "url", port=port, **place.options)  # all at once: one of them migrates
        web.said()
        collector.wait_for_more()
        for task in (web, *started):
            task.kill(signal.SIGTERM)
        assert [task.wait() for task in (web, *started)] == [0, 0, 0]
    assert version_of(place) == schema.SCHEMA_VERSION
    assert acknowledged < set(collector.told) <= stored_in(place)
    party = place.open()
    party.work()
    assert party.get_fit(ACME, "waits").state == "succeeded"
    party.close()

    rolled_back = copies.restore()
    assert version_of(rolled_back) == OLD  # for the version that wrote it
    assert acknowledged <= stored_in(rolled_back)
    assert not set(collector.told) <= stored_in(rolled_back)  # what came after the backup is lost
