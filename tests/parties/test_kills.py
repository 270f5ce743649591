"""Processes that are killed, stopped and told to stop while they serve and fit."""

from __future__ import annotations

import hashlib
import json
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from sqlalchemy import func, select

from fairpremium.parties import Problem
from fairpremium.parties.clients._client import ServiceUnreachable
from fairpremium.parties.clients._collector import Collector
from fairpremium.parties.clients._insurer import Insurer
from fairpremium.parties.protocol._keys import read_key
from fairpremium.parties.protocol._messages import Report, ReportsTaken
from fairpremium.parties.protocol._report_batch import BATCH_TYPE
from fairpremium.parties.protocol._signatures import sign_request
from fairpremium.parties.store.schema import fits, log, reports
from helpers.places import ACME, CHANNEL, OP, STUDY, batch, fit_spec, name_keys
from helpers.processes import PATIENCE, descendants, state_of, wait_until

LEASE = 3.0


def row_of(place, fit="waits"):
    """The row of a fit."""
    party = place.open()
    with party.context.database.reading() as connection:
        row = connection.execute(select(fits).where(fits.c.id == fit)).one()
    party.close()
    return row


def events_of(place, fit="waits"):
    """How often what happened to a fit."""
    party = place.open()
    with party.context.database.reading() as connection:
        entries = connection.execute(select(log.c.event, log.c.body)).all()
    assert party.verify_log().intact
    party.close()
    return Counter(entry.event for entry in entries if json.loads(entry.body).get("fit") == fit)


def content_of(place, fit="waits"):
    """The bytes of a fit's bundle."""
    party = place.open()
    content = party.context.files.path(row_of(place, fit).sha256).read_bytes()
    party.close()
    return content


def stopped_below(pid):
    """A process below another one that is stopped, or None."""
    return next((below for below in descendants(pid) if state_of(below) == "T"), None)


@pytest.fixture
def worker(zygote, tmp_path):
    """Start workers; those that are left at the end are killed with all that they started."""
    tasks = []

    def start(place, faults=None, **limits):
        options = {**place.options, "lease_seconds": LEASE, **limits}
        tasks.append(zygote.start("work", tmp_path / f"worker-{len(tasks)}", faults, **options))
        return tasks[-1]

    yield start
    for task in tasks:
        left = [*descendants(task.pid), task.pid]
        task.kill()
        for pid in left:
            if state_of(pid):
                os.kill(pid, signal.SIGKILL)


# --- leases ----------------------------------------------------------------------------------------------------------


def test_a_worker_stopped_past_its_lease_changes_nothing_when_it_wakes(base, worker, tmp_path):
    place = base.copy(tmp_path / "third-party")
    slow = worker(place, {"stop": "fit.before_publish"})
    wait_until(lambda: stopped_below(slow.pid))  # all is computed, nothing is published
    child = stopped_below(slow.pid)
    os.kill(slow.pid, signal.SIGSTOP)
    other = worker(place)
    wait_until(lambda: row_of(place).state == "succeeded")
    before = row_of(place)
    assert before.attempt == 2
    content = content_of(place)
    os.kill(child, signal.SIGCONT)  # it still wants to publish
    wait_until(lambda: not state_of(child))
    os.kill(slow.pid, signal.SIGCONT)
    time.sleep(1.0)
    assert row_of(place) == before
    assert content_of(place) == content
    assert events_of(place) == {"fit.requested": 1, "fit.started": 2, "fit.succeeded": 1}
    other.kill(signal.SIGTERM)
    assert other.wait() == 0
    party = place.open()  # and the one that was stopped goes on working
    party.put_fit(ACME, "next", fit_spec(level=0.7))
    party.close()
    wait_until(lambda: stopped_below(slow.pid))
    os.kill(stopped_below(slow.pid), signal.SIGCONT)
    wait_until(lambda: row_of(place, "next").state == "succeeded")


def give_up(child):
    """Let an allocation of a process fail."""
    size = int(Path(f"/proc/{child}/statm").read_text().split()[0]) * resource.getpagesize()
    resource.prlimit(child, resource.RLIMIT_AS, (size, size))
    os.kill(child, signal.SIGCONT)


DEATHS = {
    "killed": lambda child: os.kill(child, signal.SIGKILL),
    "crashed": lambda child: (os.kill(child, signal.SIGSEGV), os.kill(child, signal.SIGCONT)),
    "out of memory": give_up,
}


@pytest.mark.parametrize("death", DEATHS)
def test_a_fit_whose_process_dies_is_tried_again(sqlite_base, worker, tmp_path, death):
    place = sqlite_base.copy(tmp_path / "third-party")
    task = worker(place, {"stop": "fit.fitting"}, lease_seconds=60.0)
    wait_until(lambda: stopped_below(task.pid))
    child = stopped_below(task.pid)
    DEATHS[death](child)
    wait_until(lambda: not state_of(child))
    wait_until(lambda: stopped_below(task.pid))  # the second try
    os.kill(stopped_below(task.pid), signal.SIGCONT)
    wait_until(lambda: row_of(place).state == "succeeded")
    assert row_of(place).attempt == 2


def test_a_fit_that_always_dies_is_given_up(sqlite_base, worker, tmp_path):
    place = sqlite_base.copy(tmp_path / "third-party")
    worker(place, {"kill": "fit.pricing"})
    wait_until(lambda: row_of(place).state not in ("queued", "running"))
    row = row_of(place)
    assert (row.state, row.attempt) == ("failed", 5)
    assert json.loads(row.problem)["type"].endswith("gave-up")
    assert events_of(place) == {"fit.requested": 1, "fit.started": 5, "fit.failed": 1}


def test_cancelling_ends_the_process_of_a_fit(sqlite_base, worker, tmp_path):
    place = sqlite_base.copy(tmp_path / "third-party")
    task = worker(place, {"stop": "fit.fitting"})
    wait_until(lambda: stopped_below(task.pid))
    child = stopped_below(task.pid)
    party = place.open()
    assert party.cancel_fit(ACME, "waits").state == "running"
    wait_until(lambda: not state_of(child))
    wait_until(lambda: party.get_fit(ACME, "waits").state == "cancelled")
    party.close()
    assert events_of(place)["fit.cancelled"] == 1


# --- the whole service -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_service_that_ends_leaves_no_process_behind(sqlite_base, tmp_path, how):
    place = sqlite_base.copy(tmp_path / "third-party")
    command = [sys.executable, "-m", "fairpremium", "serve", "--folder", str(place.folder), "--port", "0", "--json"]
    variables = {**os.environ, "FAIRPREMIUM_STOP_AT": "fit.fitting"}
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE) as service:
        assert json.loads(service.stdout.readline())["service"].startswith("http://127.0.0.1:")
        wait_until(lambda: stopped_below(service.pid))
        below = descendants(service.pid)
        assert len(below) >= 3  # the worker, the process that forks, the fit
        service.send_signal(how)
        wait_until(lambda: not any(state_of(pid) for pid in below))
        assert service.wait(PATIENCE) == (0 if how == signal.SIGTERM else -how)
    row = row_of(place)
    assert (row.state, row.attempt) == ("queued", 0)  # being told to stop is not a failed try


def test_a_body_that_breaks_off_leaves_nothing(sqlite_base, zygote, tmp_path):
    place = sqlite_base.copy(tmp_path / "third-party")
    web = zygote.start("web", tmp_path / "url", **place.options)
    url = web.said()
    before = place.look()
    host, port = url.removeprefix("http://").split(":")
    body = batch(490, 590)
    path = "/v1/studies/motor/report-parts/7"
    key = read_key(place.folder / "app.key")
    files = place.folder / "files"
    for length in (0, 1, len(body) // 2, len(body) - 1):
        headers = sign_request("PUT", url + path, {}, hashlib.sha256(body).digest(), key)
        head = f"PUT {path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: {len(body)}\r\n"
        head += f"Content-Type: {BATCH_TYPE}\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in headers.items()) + "\r\n"
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
            connection.sendall(head.encode() + body[:length])
            if length:
                wait_until(lambda: list(files.glob(".incoming-*")))
        wait_until(lambda: not list(files.glob(".incoming-*")))
    assert place.look() == before
    with Collector(url, key) as collector:
        collector.put_file(path, body, BATCH_TYPE, ReportsTaken)
    web.kill(signal.SIGTERM)
    assert web.wait() == 0


# --- soak ------------------------------------------------------------------------------------------------------------


class Clients:
    """A collector and an insurer that do not give up, and remember what they were told."""

    def __init__(self, place, url_of):
        self.place = place
        self.url_of = url_of
        self.stop = threading.Event()
        self.told = []
        self.errors = []
        jobs = (self._report, self._send, self._watch)
        self.threads = [threading.Thread(target=self._guard, args=(job,)) for job in jobs]

    def _guard(self, job):
        try:
            job()
        except Exception as error:  # shown by the test
            self.errors.append(error)

    def _insist(self, kind, who, request):
        """Ask until there is an answer, whatever address the service has now."""
        while True:
            try:
                with kind(self.url_of(), read_key(self.place.folder / f"{who}.key"), timeout=30.0) as client:
                    return request(client)
            except (ServiceUnreachable, OSError):
                time.sleep(0.05)
            except Problem as problem:
                if problem.status < 500:
                    raise
                time.sleep(0.05)

    def _report(self):
        for i in range(10**6):
            if self.stop.is_set():
                return
            key = bytes(name_keys(100_000 + i, 100_001 + i)[0])
            value = "FM"[i % 2]
            body = Report(report=value, channel=CHANNEL.descriptor()).model_dump_json().encode()
            path = f"/v1/studies/other/reports/{key.hex()}"
            content = {"content": body, "headers": {"Content-Type": "application/json"}}
            self._insist(Collector, "app", lambda client, p=path, c=content: client.send("PUT", p, **c))
            self.told.append((key, value))

    def _send(self):
        for n in range(10**6):
            if self.stop.is_set():
                return
            body = batch(0, 50 + n % 500)
            path = f"/v1/studies/other/report-parts/{n}"
            self._insist(Collector, "app", lambda c, p=path, b=body: c.put_file(p, b, BATCH_TYPE, ReportsTaken))
            time.sleep(0.1)

    def _watch(self):
        while not self.stop.is_set():
            self._insist(Insurer, "acme", lambda c: c.send("GET", "/v1/fits"))
            time.sleep(0.05)


@pytest.mark.simulation
def test_a_soak_of_kills(base, zygote, tmp_path, repetitions):
    """Web process, workers and fits are killed at random while clients report and fits run."""
    number, kills = (
        (repetitions(3, 30), repetitions(8, 100)) if base.database else (repetitions(9, 30), repetitions(20, 200))
    )
    place = base.copy(tmp_path / "third-party")
    party = place.open()
    party.put_study(OP, "other", STUDY)
    party.open_study(OP, "other")
    names = [f"fit-{i:02d}" for i in range(number)]
    for i, name in enumerate(names):
        party.put_fit(ACME, name, fit_spec(level=0.6 + 0.02 * (i % 15)))
    names.append("waits")
    party.close()
    reference = undisturbed(place, zygote, tmp_path)
    rng = random.Random(7)
    options = {**place.options, "lease_seconds": LEASE, "attempts": 10**6}
    web = zygote.start("web", tmp_path / "url-0", **options)
    workers = [zygote.start("work", tmp_path / f"worker-{i}", **options) for i in range(3)]
    current = [web.said()]
    clients = Clients(place, lambda: current[0])
    for thread in clients.threads:
        thread.start()
    done = Counter()
    try:
        while sum(done.values()) < kills or left(place, names):
            time.sleep(rng.uniform(0.05, 0.4))
            if sum(done.values()) >= kills:
                continue
            what = rng.choice(["web", "worker", "fit", "fit"])
            if what == "web":
                web.kill()
                web.wait()
                web = zygote.start("web", tmp_path / f"url-{done['web'] + 1}", **options)
                current[0] = web.said()
            elif what == "worker":
                i = rng.randrange(3)
                workers[i].kill()
                workers[i].wait()
                workers[i] = zygote.start("work", tmp_path / f"worker-{i}", **options)
            else:
                below = [pid for task in workers for pid in descendants(task.pid)[2:]]
                if not below:
                    continue
                victim = rng.choice(below)
                if state_of(victim):
                    os.kill(victim, signal.SIGKILL)
            done[what] += 1
    finally:
        clients.stop.set()
        for thread in clients.threads:
            thread.join(PATIENCE)
        for task in (web, *workers):
            task.kill(signal.SIGTERM)
        for task in (web, *workers):
            task.wait()
    assert clients.errors == []
    for name in names:
        assert events_of(place, name)["fit.succeeded"] == 1
        assert content_of(place, name) == reference[name]
    party = place.open()
    with party.context.database.reading() as connection:
        stored = {
            (bytes(row.key), CHANNEL.reports[row.code])
            for row in connection.execute(select(reports).where(reports.c.study == "other"))
        }
    party.close()
    assert set(clients.told) <= stored
    assert len(stored) <= len(clients.told) + 1  # the last one may have had no answer
    assert done["web"] >= 1
    assert done["worker"] >= 1


def left(place, names):
    """How many fits have not ended."""
    party = place.open()
    with party.context.database.reading() as connection:
        ended = connection.execute(select(func.count()).select_from(fits).where(fits.c.state == "succeeded")).scalar()
    party.close()
    return len(names) - ended


def undisturbed(place, zygote, tmp_path):
    """The bundles of all fits of a copy on which nobody is killed."""
    twin = place.copy(tmp_path / "twin")
    code, count = zygote.run("fit", tmp_path / "answer", arm={}, most=10**6, **twin.options)
    assert code == 0
    party = twin.open()
    with party.context.database.reading() as connection:
        rows = connection.execute(select(fits).where(fits.c.state == "succeeded")).all()
    party.close()
    assert len(rows) == count
    return {row.id: twin.folder.joinpath("files", row.sha256).read_bytes() for row in rows}
