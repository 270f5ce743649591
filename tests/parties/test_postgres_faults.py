"""PostgreSQL that breaks off: connections cut around a commit, backends killed, a restart; and two web processes."""

from __future__ import annotations

import hashlib
import random
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import httpx
import pytest
from sqlalchemy import func, insert, select, update

from fairpremium.parties import Problem
from fairpremium.parties.clients._collector import Collector
from fairpremium.parties.protocol._keys import new_key, read_key
from fairpremium.parties.protocol._messages import Report, ReportsTaken
from fairpremium.parties.protocol._report_batch import BATCH_TYPE
from fairpremium.parties.protocol._signatures import sign_request
from fairpremium.parties.service._leases import acquire_lease
from fairpremium.parties.service._worker import work_once
from fairpremium.parties.store._database import Database, Writer
from fairpremium.parties.store.log import append, verify_log
from fairpremium.parties.store.schema import fits, log, meta, reports, sent_batches
from helpers.places import ACME, ANSWER, CHANNEL, REQUESTS, Place, batch, fit_spec, name_keys, plain, send


class Wire:
    """A way to a server that can lose a commit, or the answer to it."""

    def __init__(self, port):
        self._target = port
        self._lock = threading.Lock()
        self.mode = None
        self.commits = self.cuts = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._open = []
        threading.Thread(target=self._accept, daemon=True).start()

    def url(self, url, postgres):
        """The address of a database by this way."""
        return url.replace(f":{postgres.port}/", f":{self.port}/")

    def _accept(self):
        while True:
            try:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                return
            self._open += [near, far]
            lost = threading.Event()
            threading.Thread(target=self._up, args=(near, far, lost), daemon=True).start()
            threading.Thread(target=self._down, args=(near, far, lost), daemon=True).start()

    def _up(self, near, far, lost):
        with suppress(OSError):
            while data := near.recv(1 << 16):
                if b"COMMIT" in data and self.mode and self._choose():
                    if self.mode == "before":
                        break
                    lost.set()  # it is done, and nobody hears of it
                far.sendall(data)
        self._cut(near, far)

    def _down(self, near, far, lost):
        with suppress(OSError):
            while data := far.recv(1 << 16):
                if lost.is_set():
                    break
                near.sendall(data)
        self._cut(near, far)

    def _choose(self):
        with self._lock:
            self.commits += 1
            self.cuts += self.commits % 2
            return self.commits % 2 == 1

    @staticmethod
    def _cut(near, far):
        for end in (near, far):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self):
        self._listener.close()
        for end in self._open:
            end.close()


@pytest.fixture
def wire(postgres):
    wire = Wire(postgres.port)
    yield wire
    wire.close()


@pytest.fixture
def base(postgres_base):
    return postgres_base


def count_up(connection):
    """Not idempotent: done twice, it shows."""
    connection.execute(update(meta).where(meta.c.name == "count").values(value=func.concat(meta.c.value, "x")))
    append(connection, 0.0, "somebody", "counted")


@pytest.mark.parametrize("mode", ["before", "after"])
def test_a_transaction_is_done_once_whatever_is_lost(postgres, postgres_url, wire, mode):
    database = Database(wire.url(postgres_url, postgres))
    database.write(lambda c: c.execute(insert(meta).values(name="count", value="")))
    wire.mode = mode
    for _ in range(20):
        database.write(count_up)
    results = database.write_all([count_up] * 5)
    assert results == [None] * 5
    writer = Writer(database)
    for future in [writer.submit(count_up) for _ in range(20)]:
        assert future.result(timeout=240) is None
    writer.close()
    wire.mode = None
    assert database.read(lambda c: c.execute(select(meta.c.value).where(meta.c.name == "count")).scalar()) == "x" * 45
    assert database.read(lambda c: c.execute(select(func.count()).select_from(log)).scalar()) == 45
    assert wire.cuts >= 20
    database.close()


@pytest.mark.parametrize("mode", ["before", "after"])
def test_requests_whose_commits_are_lost_are_answered_once(base, wire, tmp_path, mode):
    """A request must not be told that it was replayed because its own first try was committed."""
    for name, (who, request) in REQUESTS.items():
        undisturbed = base.copy(tmp_path / f"undisturbed-{name}")
        said = send(undisturbed, who, request)
        expected = undisturbed.look()
        place = base.copy(tmp_path / name)
        wire.mode = mode
        cut = Place(place.folder, wire.url(place.database, base._postgres))
        answer = send(cut, who, request)
        wire.mode = None
        assert plain([answer]) == plain([said]), name
        assert place.look() == expected, name
    assert wire.cuts >= 2 * len(REQUESTS)


@pytest.mark.parametrize("mode", ["before", "after"])
def test_a_fit_whose_commits_are_lost_ends_once(base, wire, tmp_path, mode):
    place = base.copy(tmp_path / "third-party")
    party = Place(place.folder, wire.url(place.database, base._postgres)).open()
    wire.mode = mode
    assert work_once(party.context)
    wire.mode = None
    with party.context.database.reading() as connection:
        row = connection.execute(select(fits).where(fits.c.id == "waits")).one()
        events = list(connection.execute(select(log.c.event).where(log.c.event.like("fit.%"))).scalars())
    party.close()
    assert (row.state, row.attempt) == ("succeeded", 1)
    assert events.count("fit.started") == events.count("fit.succeeded") == 1


def test_backends_that_are_killed_lose_and_double_nothing(base, tmp_path, zygote):
    """Reports, batches and polls while connections are broken off at random."""
    place = base.copy(tmp_path / "third-party")
    web = zygote.start("web", tmp_path / "url", **place.options)
    url, key = web.said(), read_key(place.folder / "app.key")
    stop, kills = threading.Event(), []

    def kill():
        rng = random.Random(3)
        while not stop.wait(rng.uniform(0.02, 0.2)):
            kills.append(base._postgres.kill_backends(place.database.rpartition("/")[2]))

    def report(start):
        with Collector(url, key) as collector:
            for i in range(start, start + 60):
                body = Report(report="FM"[i % 2], channel=CHANNEL.descriptor()).model_dump_json().encode()
                path = f"/v1/studies/motor/reports/{bytes(name_keys(i, i + 1)[0]).hex()}"
                collector.send("PUT", path, content=body, headers={"Content-Type": "application/json"})

    def send_batches(_):
        with Collector(url, key) as collector:
            for n in range(10, 20):
                collector.put_file(f"/v1/studies/motor/report-parts/{n}", batch(0, 100 + n), BATCH_TYPE, ReportsTaken)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        with ThreadPoolExecutor(6) as pool:
            jobs = [pool.submit(report, 10_000 + 1000 * i) for i in range(5)] + [pool.submit(send_batches, 0)]
            for job in jobs:
                job.result()
    finally:
        stop.set()
        killer.join()
    web.kill(signal.SIGTERM)
    assert web.wait() == 0
    assert sum(kills) >= 5
    party = place.open()
    with party.context.database.reading() as connection:
        assert connection.execute(select(func.count()).select_from(reports)).scalar() == 5 * 60
        assert connection.execute(select(func.count()).select_from(sent_batches)).scalar() == 7 + 10
        assert verify_log(connection, party.context.key.verify_key).intact
    party.close()


def test_a_server_that_restarts_is_waited_for(postgres, postgres_url):
    database = Database(postgres_url)
    database.write(lambda c: c.execute(insert(meta).values(name="count", value="")))
    postgres.stop(signal.SIGQUIT)
    late = threading.Timer(1.0, postgres.start)
    late.start()
    database.write(count_up)
    late.join()
    assert database.read(lambda c: c.execute(select(meta.c.value).where(meta.c.name == "count")).scalar()) == "x"
    database.close()


def test_each_fit_is_leased_once(base, tmp_path):
    place = base.copy(tmp_path / "third-party")
    party = place.open()
    for i in range(15):
        party.put_fit(ACME, f"f{i}", fit_spec(level=0.6 + i / 100))
    others = [place.open() for _ in range(6)]
    begin = threading.Barrier(6)

    def take(other):
        begin.wait()
        found = []
        while (lease := other.context.database.write(lambda c: acquire_lease(c, other.context))) is not None:
            found.append(lease.fit)
        return found

    with ThreadPoolExecutor(6) as pool:
        taken = [name for found in pool.map(take, others) for name in found]
    # A fit that another one is just taking is skipped, and whoever skipped it last may have left: look again.
    while (lease := party.context.database.write(lambda c: acquire_lease(c, party.context))) is not None:
        taken.append(lease.fit)
    assert sorted(taken) == sorted(["waits", *(f"f{i}" for i in range(15))])
    for other in (party, *others):
        other.close()


def test_two_web_processes_agree_on_every_key(base, zygote, tmp_path):
    """The same key at both at once with different values: one is taken, the other is told."""
    place = base.copy(tmp_path / "third-party")
    webs = [zygote.start("web", tmp_path / f"url-{i}", **place.options) for i in range(2)]
    urls = [web.said() for web in webs]  # one thread talks to the zygote
    key = read_key(place.folder / "app.key")
    begin = threading.Barrier(2)

    def send_all(i):
        answers = []
        with Collector(urls[i], key) as collector:
            for j in range(60):
                body = Report(report="FM"[i], channel=CHANNEL.descriptor()).model_dump_json().encode()
                path = f"/v1/studies/motor/reports/{bytes(name_keys(50_000 + j, 50_001 + j)[0]).hex()}"
                begin.wait(240)
                try:
                    collector.send("PUT", path, content=body, headers={"Content-Type": "application/json"})
                    answers.append("taken")
                except Problem as problem:
                    answers.append(problem.code)
        return answers

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(send_all, range(2))
    assert {frozenset(pair) for pair in zip(first, second, strict=True)} == {frozenset({"taken", "report-conflict"})}
    party = place.open()
    with party.context.database.reading() as connection:
        rows = {bytes(row.key): row.code for row in connection.execute(select(reports))}
    for j in range(60):
        assert rows[bytes(name_keys(50_000 + j, 50_001 + j)[0])] == (0 if first[j] == "taken" else 1)
    assert party.verify_log().intact
    party.close()
    for web in webs:
        web.kill(signal.SIGTERM)
        assert web.wait() == 0


def test_a_request_is_a_replay_at_every_web_process_and_after_a_restart(base, zygote, tmp_path):
    place = base.copy(tmp_path / "third-party")
    host = "third.party"  # of all web processes, as behind a proxy
    webs = [zygote.start("web", tmp_path / f"url-{i}", name=host, **place.options) for i in range(2)]
    authority = f"http://{host}"
    signed = {name: each for name, each in REQUESTS.items() if each[1][3] != ANSWER}  # a page signs nothing
    for name, (who, (method, path, kind, body)) in signed.items():
        content = bytes.fromhex(body)
        key = read_key(place.folder / f"{who}.key")
        headers = sign_request(method, authority + path, {}, hashlib.sha256(content).digest(), key)
        headers |= {"Host": host, **({"Content-Type": kind} if kind else {})}
        answers = []
        for url in (webs[0].said(), webs[0].said(), webs[1].said()):
            answers.append(httpx.request(method, url + path, headers=headers, content=content).status_code)
        assert answers[0] // 100 == 2, name
        assert answers[1:] == [401, 401], name
    place.look()  # housekeeping finishes what was withdrawn
    before = place.look()
    webs[0].kill()
    webs[0].wait()
    again = zygote.start("web", tmp_path / "url-again", name=host, **place.options)
    assert httpx.request(method, again.said() + path, headers=headers, content=content).status_code == 401
    assert place.look() == before
    for web in (webs[1], again):
        web.kill(signal.SIGTERM)
        assert web.wait() == 0


def test_a_log_that_grows_is_not_taken_for_a_broken_one(postgres_url):
    database, stop = Database(postgres_url), threading.Event()

    def grow():
        while not stop.is_set():
            database.write(lambda c: append(c, 0.0, "somebody", "something"))

    key = new_key()
    threads = [threading.Thread(target=grow) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(60):
            assert database.read(lambda c: verify_log(c, key.verify_key)).intact
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    database.close()
