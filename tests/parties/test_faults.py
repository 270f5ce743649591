"""Faults at every point: a process is killed or the disk is full there, and nothing is lost, doubled or half done."""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections import Counter

import httpx
import pytest
from sqlalchemy import event, func, insert, select

from fairpremium.parties import Problem
from fairpremium.parties.clients._client import Client, ServiceUnreachable
from fairpremium.parties.service._studies import count_reports
from fairpremium.parties.service._third_party import ThirdParty
from fairpremium.parties.service._worker import work_once
from fairpremium.parties.store.schema import fits, log, meta, releases, reports
from helpers.places import CHANNEL, REQUESTS, fit_spec, name_keys, plain, resolve, send
from helpers.processes import PATIENCE


@pytest.fixture
def ask(zygote, tmp_path):
    """Send a request to a place: from a process of its own, in which faults can be, or from this one."""

    def ask(place, name, faults=None):
        who, request = REQUESTS[name]
        if faults is None:
            return 0, [send(place, who, request)]
        key = str(place.folder / f"{who}.key")
        request = resolve(place, request)
        return zygote.run("request", tmp_path / "answer", key=key, request=request, arm=faults, **place.options)

    return ask


# --- requests --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_that_is_killed_anywhere_can_be_sent_again(base, ask, tmp_path, name):
    undisturbed = base.copy(tmp_path / "undisturbed")
    _, said = ask(undisturbed, name)
    assert said[0][0] // 100 == 2, said
    expected = undisturbed.look()
    kills = 0
    while True:
        place = base.copy(tmp_path / f"killed-{kills}")
        code, _ = ask(place, name, {"kill": f"*:{kills + 1}"})
        if code == 0:
            break  # it passed all points
        assert code == -signal.SIGKILL
        kills += 1
        for _ in range(2):  # once more is harmless, too
            assert plain(ask(place, name)[1]) == plain(said)
        assert place.look() == expected
        shutil.rmtree(place.folder)
    assert kills >= 2


@pytest.mark.parametrize("name", REQUESTS)
def test_a_full_disk_is_said_and_nothing_is_kept(base, ask, tmp_path, name):
    untouched = base.copy(tmp_path / "untouched").look()
    undisturbed = base.copy(tmp_path / "undisturbed")
    ask(undisturbed, name)
    expected = undisturbed.look()
    full, step = 0, 4 if base.database else 1  # the points are the same ones
    while True:
        place = base.copy(tmp_path / f"full-{full}")
        code, said = ask(place, name, {"full": f"*:{full + 1}"})
        assert code == 0
        if said[0][0] != 507:
            assert said[0][0] // 100 == 2, said
            break
        assert json.loads(said[0][1])["type"].endswith("storage-full")
        if full == 0:  # the same process works again when there is room
            assert said[1][0] // 100 == 2, said
        else:
            assert len(said) == 1
            assert place.look() == untouched
            assert ask(place, name)[1][0][0] // 100 == 2
        assert place.look() == expected
        shutil.rmtree(place.folder)
        full += step
    assert full >= 1


def test_a_database_without_room_is_a_problem_and_recovers(tmp_path):
    """SQLite itself runs out of pages."""
    party = ThirdParty(tmp_path / "third-party")
    database, pages = party.context.database, [0]

    @event.listens_for(database._engine, "checkout")
    def limit(connection, *_):
        connection.execute(f"PRAGMA max_page_count={pages[0] or 2**30}")

    def fill(connection):
        rows = [{"name": f"{i}", "value": "x" * 1000} for i in range(200)]
        connection.execute(insert(meta), rows)

    pages[0] = database.read(lambda c: c.exec_driver_sql("PRAGMA page_count").scalar()) + 2
    with pytest.raises(Problem) as caught:
        database.write(fill)
    assert caught.value.code == "storage-full"
    pages[0] = 0
    database.write(fill)
    party.close()


# --- fits ------------------------------------------------------------------------------------------------------------


def outcome(place, fit="waits"):
    """How a fit ended: state, bytes of the bundle, releases, and its events."""
    party = place.open()
    with party.context.database.reading() as connection:
        row = connection.execute(select(fits).where(fits.c.id == fit)).one()
        made = connection.execute(select(func.count()).select_from(releases).where(releases.c.fit == fit)).scalar()
        entries = connection.execute(select(log.c.event, log.c.body)).all()
    events = Counter(entry.event for entry in entries if json.loads(entry.body).get("fit") == fit)
    content = party.context.files.path(row.sha256).read_bytes() if row.sha256 else None
    assert party.verify_log().intact
    party.close()
    return row.state, content, made, events


def finish_later(place):
    """Do what is left of a fit when all leases are over."""
    party = place.open(clock=lambda: time.time() + 3600)
    work_once(party.context)
    party.close()


@pytest.fixture(scope="module")
def undisturbed_fit(base, zygote, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fit")
    place = base.copy(folder / "third-party")
    assert zygote.run("fit", folder / "answer", arm={}, charts=False, **place.options) == (0, 1)
    return outcome(place)


@pytest.mark.simulation
@pytest.mark.parametrize("fault", ["kill", "full"])
def test_a_fit_that_breaks_off_anywhere_ends_the_same(base, zygote, tmp_path, undisturbed_fit, repetitions, fault):
    state, content, made, events = undisturbed_fit
    assert (state, made, events["fit.started"], events["fit.succeeded"]) == ("succeeded", 1, 1, 1)
    step = repetitions(24 if base.database else 12, 1)  # `make simulations` breaks off at each single point
    at = 1
    broken = 0
    while True:
        place = base.copy(tmp_path / f"{fault}-{at}")
        code, _ = zygote.run("fit", tmp_path / "answer", arm={fault: f"*:{at}"}, charts=False, **place.options)
        if code == 0:
            break
        assert code == (-signal.SIGKILL if fault == "kill" else 1)
        finish_later(place)
        again = outcome(place)
        assert again[:3] == ("succeeded", content, 1)
        assert again[3]["fit.succeeded"] == 1
        assert again[3]["fit.started"] <= 2
        shutil.rmtree(place.folder)
        broken += 1
        at += step
    assert broken >= 30 // step


@pytest.mark.parametrize("where", ["fitting", "before_publish", "after_publish"])
def test_a_fit_killed_between_its_phases_ends_the_same(base, zygote, tmp_path, undisturbed_fit, where):
    place = base.copy(tmp_path / "third-party")
    code, _ = zygote.run("fit", tmp_path / "answer", arm={"kill": f"fit.{where}"}, charts=False, **place.options)
    assert code == -signal.SIGKILL
    finish_later(place)
    assert outcome(place)[:3] == undisturbed_fit[:3]


# --- the first start -------------------------------------------------------------------------------------------------


def test_a_first_start_that_is_killed_anywhere_is_made_up_for(zygote, tmp_path):
    kills = 0
    while True:
        folder = tmp_path / f"third-party-{kills}"
        options = {"folder": str(folder), "database": None}
        code, _ = zygote.run("open", tmp_path / "answer", {"kill": f"*:{kills + 1}"}, **options)
        if code == 0:
            break
        kills += 1
        code, key = zygote.run("open", tmp_path / "answer", **options)
        assert code == 0
        assert (folder / "service.key.pub").read_text().strip() == key
    assert kills == 6  # two commits, and between them a key that is written and linked


def test_many_processes_open_a_new_folder_at_once(zygote, tmp_path, database_url):
    database = None if database_url.startswith("sqlite") else database_url
    options = {"folder": str(tmp_path / "third-party"), "database": database}
    tasks = [zygote.start("open", tmp_path / f"answer-{i}", **options) for i in range(8)]
    assert [task.wait() for task in tasks] == [0] * 8
    assert len({task.said() for task in tasks}) == 1


# --- many writers ----------------------------------------------------------------------------------------------------


def test_eight_processes_write_at_once(base, zygote, tmp_path):
    place = base.copy(tmp_path / "third-party")
    shared = [bytes(key).hex() for key in name_keys(10_000, 10_030)]
    tasks = []
    for i in range(8):
        own = [bytes(key).hex() for key in name_keys(20_000 + 100 * i, 20_000 + 100 * i + 30)]
        values = [[key, "F"] for key in own] + [[key, "F" if i % 2 else "M"] for key in shared]
        tasks.append(
            zygote.start(
                "report", tmp_path / f"answer-{i}", study="motor", collector="app", reports=values,
                descriptor=CHANNEL.descriptor(), **place.options,
            )
        )  # fmt: skip
    answers = []
    for task in tasks:
        assert task.wait() == 0
        answers.append(task.said())
    assert all(answer[:30] == ["taken"] * 30 for answer in answers)
    for j in range(30):  # each key has one value: those who sent it were told so, the others not
        taken = {i % 2 for i in range(8) if answers[i][30 + j] == "taken"}
        refused = {i % 2 for i in range(8) if answers[i][30 + j] == "report-conflict"}
        assert len(taken) == 1
        assert refused == {0, 1} - taken
    party = place.open()
    count = party.context.database.read(lambda c: c.execute(select(func.count()).select_from(reports)).scalar())
    assert count == 8 * 30 + 30
    assert party.verify_log().intact
    party.close()


# --- what gets lost on the way ---------------------------------------------------------------------------------------


class Cutting(httpx.BaseTransport):
    """Loses every request twice: once before the service sees it, once after it has acted."""

    def __init__(self, inner):
        self.inner = inner
        self.seen = Counter()

    def handle_request(self, request):
        what = (request.method, str(request.url))
        self.seen[what] += 1
        if self.seen[what] % 3 == 1:
            raise httpx.ConnectError("cut before")
        response = self.inner.handle_request(request)
        if self.seen[what] % 3 == 2:
            response.read()
            raise httpx.ReadError("cut after")
        return response


def test_lost_requests_and_lost_answers_change_nothing(parties, tmp_path):
    from fairpremium.parties.protocol._keys import VerifyKey
    from helpers.places import FRAME, REPORTS, STUDY

    cut = Cutting(parties.transport)
    for client in (parties.operator, parties.collector, parties.insurer):
        client._http._transport = cut
        client._pause = lambda seconds: None
    parties.operator.put_study("motor", STUDY)
    parties.operator.set_state("motor", "open")
    table = FRAME.drop(columns="key").assign(policy=[f"P{i}" for i in range(len(FRAME))])
    told = table[["policy"]].assign(report=REPORTS)
    parties.collector.submit(told[:-1], study="motor", secret=parties.secret, channel=CHANNEL, rows_per_batch=100)
    parties.collector.report("motor", parties.secret, told["policy"].iloc[-1], told["report"].iloc[-1], CHANNEL)
    options = {"study": "motor", "secret": parties.secret, "policy": "policy", "outcome": "y"}
    parties.insurer.upload(table, portfolio="sealed", rows_per_part=200, **options)
    parties.insurer.fit("f1", fit_spec())
    assert work_once(parties.context)
    assert parties.insurer.watch("f1").state == "succeeded"
    trusted = [VerifyKey(parties.third_party.public_key)]
    bundle = parties.insurer.fetch("f1", tmp_path / "bundle.zip", trusted=trusted)
    assert bundle.manifest["epoch"]["number"] == 1
    assert [path.name for path in tmp_path.glob("*bundle*")] == ["bundle.zip"]
    parties.insurer.fit("f2", fit_spec(level=0.9))
    assert parties.insurer.cancel("f2").state == "cancelled"
    parties.insurer.erase("sealed")
    with parties.context.database.reading() as connection:
        events = Counter(connection.execute(select(log.c.event)).scalars())
    once = {"study.declared": 1, "study.open": 1, "epoch.begun": 1, "portfolio.declared": 1}
    once |= {"portfolio.part": 3, "portfolio.sealed": 1, "fit.requested": 2, "fit.succeeded": 1, "fit.cancelled": 1}
    assert {name: events[name] for name in once} == once
    assert events["portfolio.erased"] == 1
    assert parties.context.database.read(lambda c: count_reports(c, "motor")) == len(table)
    assert events["bundle.fetched"] == 2  # it was sent twice
    assert parties.third_party.verify_log().intact
    assert sum(cut.seen.values()) > 50


def test_a_client_gives_up_in_the_end(parties):
    class Dead(httpx.BaseTransport):
        def handle_request(self, request):
            raise httpx.ConnectError("nobody there")

    waits = []
    client = Client("http://third.party", parties.keys["acme"], transport=Dead(), pause=waits.append)
    with pytest.raises(ServiceUnreachable, match="did not answer"):
        client.send("GET", "/v1/fits")
    assert len(waits) == 5
    assert sum(waits) < PATIENCE
