"""Compaction moves reports, and nobody can tell: not by an answer, not by a count, not by a fit."""

from __future__ import annotations

import itertools
import threading
import time

import numpy as np
import pytest
from sqlalchemy import func, select

from fairpremium.parties.protocol import match
from fairpremium.parties.protocol._policy_keys import as_keys
from fairpremium.parties.service._context import Party
from fairpremium.parties.service._studies import count_reports
from fairpremium.parties.service.reports import _compaction, _queue
from fairpremium.parties.service.reports._compaction import compact
from fairpremium.parties.service.reports._reports import batches_of, singles_of
from fairpremium.parties.store.schema import batch_files, reports
from helpers import wire
from helpers.batches import write_batch

APP = Party("app", "collector")
KEYS = [wire.policy_key("compact", i) for i in range(60)]


@pytest.fixture
def world(tmp_path, database_url):
    with wire.World(tmp_path / "third-party", database_url) as world:
        world.declare()
        yield world


def send_one(world, i: int, value: str) -> int:
    return world.ask("app", "PUT", f"/v1/studies/motor/reports/{KEYS[i].hex()}", wire.report(value)).status


def send_batch(world, n: int, values: dict[int, str]) -> int:
    keys, labels = [KEYS[i] for i in values], list(values.values())
    body = write_batch(keys, labels, ["F", "M"], wire.CHANNEL)
    return world.ask("app", "PUT", f"/v1/studies/motor/report-parts/{n}", body, wire.BATCH).status


def state(world) -> tuple[int, int, int]:
    """Single reports in the table, files, and reports in all."""

    def look(connection):
        singles = connection.execute(select(func.count()).select_from(reports)).scalar_one()
        files = connection.execute(select(func.count()).select_from(batch_files)).scalar_one()
        return singles, files, count_reports(connection, "motor", "app")

    return world.context.database.read(look)


def codes(world) -> list[int]:
    """What a snapshot would have."""

    def look(connection):
        return [*batches_of(connection, world.context, "motor", "app"), singles_of(connection, "motor", "app")]

    return match(as_keys(KEYS), world.context.database.read(look)).tolist()


def compact_now(world) -> None:
    compact(world.context, "motor", "app", world.context.database.write)


def test_single_reports_become_a_file_and_nothing_else_changes(world, monkeypatch):
    monkeypatch.setattr(_compaction, "SINGLES", 10)
    for i in range(9):
        assert send_one(world, i, "FM"[i % 2]) == 200
    compact_now(world)
    assert state(world) == (9, 0, 9)  # too few
    assert send_one(world, 9, "M") == 200
    before = codes(world)
    compact_now(world)
    assert state(world) == (0, 1, 10)
    assert codes(world) == before == [i % 2 for i in range(10)] + [-1] * 50
    assert send_one(world, 3, "M") == 200  # the same again
    assert send_one(world, 3, "F") == 409
    assert send_batch(world, 0, {3: "F", 20: "M"}) == 409
    assert send_batch(world, 0, {3: "M", 20: "M"}) == 200
    assert send_one(world, 20, "F") == 409
    assert state(world) == (0, 2, 11)
    assert world.third_party.verify_log().intact


def test_the_service_compacts_by_itself(world, monkeypatch):
    for module in (_compaction, _queue):
        monkeypatch.setattr(module, "SINGLES", 10)
    for i in range(35):
        assert send_one(world, i, "F") == 200
    deadline = time.monotonic() + 30
    while state(world)[0] >= 20:  # ten may have come since it looked, and ten more before it looks again
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert state(world)[2] == 35
    assert codes(world) == [0] * 35 + [-1] * 25


def test_files_that_lie_over_each_other_become_one(world):
    values = {i: "FM"[i % 3 == 0] for i in range(60)}
    for n in range(9):  # every batch brings six new reports and repeats six
        some = range(6 * n, min(6 * n + 12, 60))
        assert send_batch(world, n, {i: values[i] for i in some}) == 200
    singles, files, total = state(world)
    assert (singles, total) == (0, 60)
    assert files <= 2
    assert codes(world) == [int(values[i] == "M") for i in range(60)]
    for n in range(9):  # who sends a batch again hears the same
        some = range(6 * n, min(6 * n + 12, 60))
        assert send_batch(world, n, {i: values[i] for i in some}) == 200
        assert send_batch(world, n, {i: values[i] for i in list(some)[1:]}) == 409
    assert state(world) == (singles, files, total)


def test_batches_without_news_leave_no_file(world):
    assert send_batch(world, 0, dict.fromkeys(range(10), "F")) == 200
    files = set(world.context.files)
    assert send_batch(world, 1, dict.fromkeys(range(5), "F")) == 200
    assert send_batch(world, 2, {0: "M", 50: "F"}) == 409
    assert send_batch(world, 0, dict.fromkeys(range(10), "F")) == 200
    assert set(world.context.files) == files
    assert state(world) == (0, 1, 10)


def test_a_full_disk_stops_the_compaction_and_nothing_else(world, monkeypatch):
    monkeypatch.setattr(_compaction, "SINGLES", 5)
    for i in range(6):
        assert send_one(world, i, "F") == 200
    monkeypatch.setenv("FAIRPREMIUM_FULL_AT", "file.created")
    compact_now(world)
    assert state(world) == (6, 0, 6)
    monkeypatch.delenv("FAIRPREMIUM_FULL_AT")
    compact_now(world)
    assert state(world) == (0, 1, 6)


def test_reports_that_come_during_the_compaction(world, monkeypatch):
    """Threads report the same keys with two values while another one compacts; each key keeps its first answer."""
    monkeypatch.setattr(_compaction, "SINGLES", 1)
    stop = threading.Event()
    taken: dict[int, set[str]] = {i: set() for i in range(60)}

    def report(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(60):
            i, value = int(rng.integers(60)), str(rng.choice(["F", "M"]))
            status = send_one(world, i, value)
            assert status in (200, 409)
            if status == 200:
                taken[i].add(value)

    def compact_on() -> None:
        while not stop.is_set():
            compact_now(world)

    compactor = threading.Thread(target=compact_on)
    compactor.start()
    reporters = [threading.Thread(target=report, args=(seed,)) for seed in range(4)]
    for thread in reporters:
        thread.start()
    for thread in reporters:
        thread.join()
    stop.set()
    compactor.join()
    assert all(len(values) <= 1 for values in taken.values())
    expected = [{"F": 0, "M": 1}[next(iter(taken[i]))] if taken[i] else -1 for i in range(60)]
    assert codes(world) == expected
    assert state(world)[2] == sum(code >= 0 for code in expected)


def test_a_file_that_another_one_merged_already_stays_merged(world):
    """Two who merge the same files: the second one finds them gone and changes nothing."""
    for n, start in enumerate(range(0, 56, 7)):
        some = itertools.islice(itertools.cycle(range(60)), start, start + 60, 9)
        values = dict.fromkeys(some, "F")
        world.third_party.put_report_batch(
            APP, "motor", n, write_batch([KEYS[i] for i in values], ["F"] * len(values), ["F", "M"], wire.CHANNEL)
        )
    before = state(world)
    sizes = world.context.database.read(lambda c: _compaction._sizes(c, "motor", "app"))
    gone = ("0" * 64, *sizes)
    world.context.database.write(lambda c: _compaction._replace(c, "motor", "app", gone, "1" * 64))
    assert state(world) == before
