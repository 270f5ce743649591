"""An epoch begins with a request and has its snapshot from the process of its first fit."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from sqlalchemy import event, select

from benchmarks._service_attacks import LOOSE
from fairpremium.parties.protocol import ReleaseRules, Retention, as_keys
from fairpremium.parties.service import _run_fit
from fairpremium.parties.service._epochs import released_number
from fairpremium.parties.service._housekeeping import clean
from fairpremium.parties.service._leases import acquire_lease
from fairpremium.parties.service._worker import work_once
from fairpremium.parties.service.operations import LogSettings, write_log
from fairpremium.parties.service.reports import open_snapshot, waits_for_snapshot
from fairpremium.parties.store.schema import epochs, log
from helpers import wire

EPOCH = 30 * 86_400.0
ROWS = 155  # enough for a fit


@pytest.fixture
def world(tmp_path, database_url):
    with wire.World(tmp_path / "third-party", database_url) as world:
        world.declare()
        world.portfolio("acme", "p1", rows=ROWS)
        yield world


def report(world, *which):
    for i in which:
        key = wire.policy_key(2, i).hex()  # of the portfolio p1
        assert world.ask("app", "PUT", f"/v1/studies/motor/reports/{key}", wire.report()).status == 200


def ask(world, name, **more):
    """Ask for a fit, and return the statements and the files that this took."""
    world.app.state.requests._keys_at = float("inf")  # no look at the keys in between
    statements, files = [], set(world.context.files)
    listen = lambda *args: statements.append(args[2])  # noqa: E731
    engine = world.context.database._engine
    event.listen(engine, "before_cursor_execute", listen)
    try:
        world.fit("acme", name, "p1", release="randomized", **more)
    finally:
        event.remove(engine, "before_cursor_execute", listen)
    return statements, set(world.context.files) - files


def epochs_of(world):
    query = select(epochs).order_by(epochs.c.number)
    return world.context.database.read(lambda c: c.execute(query).all())


def events_of(world):
    rows = world.context.database.read(lambda c: c.execute(select(log).order_by(log.c.seq)).all())
    return [row.event for row in rows if row.event.startswith("epoch.")]


def test_a_request_that_begins_an_epoch_does_the_same_whatever_waits_for_its_snapshot(world):
    """Its time told whether somebody had reported or withdrawn: files were written, and written anew."""
    report(world, *range(100))
    ask(world, "f1", level=0.55)
    assert work_once(world.context)
    world.clock.now += EPOCH
    nothing = ask(world, "f2", level=0.6)
    assert work_once(world.context)
    world.clock.now += EPOCH
    report(world, *range(100, 150))
    for i in range(3):
        world.ask("app", "DELETE", f"/v1/studies/motor/reports/{wire.policy_key(2, i).hex()}")
    much = ask(world, "f3", level=0.7)
    assert [row.taken is None for row in epochs_of(world)] == [False, False, True]
    assert nothing == much
    assert nothing[1] == set()
    assert work_once(world.context)
    assert epochs_of(world)[-1].taken is not None
    assert events_of(world) == ["epoch.begun", "epoch.sealed"] * 3


def take_snapshot(world, limits):
    """Take the snapshot of the next fit, and return how long that took."""
    context = replace(world.context, limits=limits)
    lease = world.context.database.write(lambda c: acquire_lease(c, world.context))
    started = time.monotonic()
    _run_fit._take_snapshot(context, lease)
    return time.monotonic() - started


def test_a_snapshot_takes_a_time_that_follows_from_released_numbers(world):
    """It told the insurer of the first fit whether reports or withdrawals waited."""
    limits = replace(world.context.limits, snapshot_seconds=0.5)
    assert limits.snapshot_step(1, 1_000_000) == 3 * limits.snapshot_step(1, 0)  # as more may be written anew
    assert limits.snapshot_step(3, 0) == 3 * limits.snapshot_step(1, 0)  # as more sources have single reports
    for name, reported, withdrawn in [("f1", 150, 0), ("f2", 0, 0), ("f3", 50, 30)]:
        report(world, *range(reported))
        for i in range(withdrawn):
            world.ask("app", "DELETE", f"/v1/studies/motor/reports/{wire.policy_key(2, i).hex()}")
        ask(world, name)
        took = take_snapshot(world, limits)
        number = world.context.database.read(lambda c: released_number(c, "motor"))
        assert 0 <= took - limits.snapshot_step(1, number) < 0.4  # a step more is 0.5
        world.clock.now += EPOCH


def test_a_snapshot_that_is_too_slow_is_logged(world, capsys):
    report(world, *range(100))
    ask(world, "f1")
    with write_log(LogSettings("json")):
        take_snapshot(world, replace(world.context.limits, snapshot_seconds=1e-4))
    line = json.loads(capsys.readouterr().err.splitlines()[-1])
    assert (line["event"], line["level"]) == ("snapshot.slow", "warning")
    assert line["fit"] == "f1"
    assert 1e-4 <= line["seconds"] < 2e-4


def test_only_the_first_fit_of_an_epoch_waits_for_a_snapshot(world):
    ask(world, "f1", level=0.55)
    assert work_once(world.context)
    ask(world, "f2", level=0.6)
    assert not world.context.database.read(lambda c: waits_for_snapshot(c, "motor"))
    assert take_snapshot(world, replace(world.context.limits, snapshot_seconds=3600.0)) < 60


@pytest.mark.parametrize("wanted", ["randomized", "gaussian"])
def test_an_insurer_sees_its_fit_go_on_at_whole_steps(world, monkeypatch, wanted):
    """How long the work between takes depends on single reports, however little."""
    world.declare("loose", rules=LOOSE, release=ReleaseRules(epsilon=30.0, randomized_epsilon=10.0))
    world.portfolio("acme", "p22", "loose", rows=2000)
    batch = wire.report_part(rows=1800, seed=3)  # of its keys
    assert world.ask("app", "PUT", "/v1/studies/loose/report-parts/0", batch, wire.BATCH).status == 200
    world.fit("acme", "f1", "p22", "loose", release=wanted, correction="inverse")
    steps = replace(world.context, limits=replace(world.context.limits, step_seconds=0.2))
    seen = []

    def watch(name):
        known = getattr(_run_fit, name)

        def do(connection, *args, **more):
            seen.append(time.monotonic())
            return known(connection, *args, **more)

        monkeypatch.setattr(_run_fit, name, do)

    watch("record_progress")
    watch("finish_fit")
    lease = world.context.database.write(lambda c: acquire_lease(c, world.context))
    begun = time.monotonic()
    _run_fit.run_fit(steps, lease)
    assert world.ask("acme", "GET", "/v1/fits/f1").json()["state"] == "succeeded"
    assert len(seen) > 7
    assert all((moment - begun) % 0.2 < 0.1 for moment in seen)


def test_the_number_of_reports_is_told_when_the_snapshot_is_taken(world):
    report(world, 0)
    ask(world, "f1")
    before = world.ask("op", "GET", "/v1/studies/motor").json()["epochs"][0]
    assert (before["counted"], before["reports"], before["standard_error"]) == (False, None, 0.0)
    assert work_once(world.context)
    after = world.ask("op", "GET", "/v1/studies/motor").json()["epochs"][0]
    assert after["counted"]
    assert after["standard_error"] > 0
    assert after["closed"] == before["closed"]


def test_all_epochs_that_begun_get_their_snapshots_in_order(world):
    """The fit of an earlier epoch can run after that of a later one: no report is in two increments of the count."""
    report(world, *range(100))
    ask(world, "f1", level=0.55)
    world.ask("acme", "POST", "/v1/fits/f1/cancel")
    world.clock.now += EPOCH
    ask(world, "f2", level=0.6)
    assert [row.taken for row in epochs_of(world)] == [None, None]
    assert work_once(world.context)
    first, second = epochs_of(world)
    assert first.taken is not None
    assert second.taken is not None
    assert (first.counted, second.counted) == (0, 100)  # exact numbers but the newest are forgotten
    assert first.files == second.files
    assert first.salt != second.salt


@pytest.mark.parametrize("reported", [0, 1])
def test_a_fit_that_waits_when_reports_are_erased_is_cancelled_whoever_reported(world, reported):
    until = datetime.fromtimestamp(world.clock.now + 3600, UTC)
    world.declare("dated", retention=Retention(reports_until=until))
    key = wire.policy_key(2, 0).hex()
    for _ in range(reported):
        assert world.ask("app", "PUT", f"/v1/studies/dated/reports/{key}", wire.report()).status == 200
    world.portfolio("acme", "p2", "dated", rows=ROWS)
    world.fit("acme", "f1", "p2", "dated", release="randomized")
    world.clock.now += 7200
    clean(world.context)
    assert world.ask("acme", "GET", "/v1/fits/f1").json()["state"] == "cancelled"


def test_a_snapshot_after_the_date_until_which_reports_are_kept_has_none(world):
    until = datetime.fromtimestamp(world.clock.now + 3600, UTC)
    world.declare("dated", retention=Retention(reports_until=until))
    key = wire.policy_key(2, 0)
    assert world.ask("app", "PUT", f"/v1/studies/dated/reports/{key.hex()}", wire.report()).status == 200
    world.portfolio("acme", "p2", "dated", rows=ROWS)
    world.fit("acme", "f1", "p2", "dated", release="randomized")
    world.clock.now += 7200
    assert work_once(world.context)
    find = world.context.database.read(lambda c: open_snapshot(c, world.context, "dated", 1, "app"))
    assert find(as_keys([key])).tolist() == [-1]


def test_the_operator_takes_the_snapshot_at_once(world):
    assert world.ask("op", "POST", "/v1/studies/motor/epochs/2").status == 409
    ask(world, "f1")
    told = world.ask("op", "POST", "/v1/studies/motor/epochs/1").json()["epochs"]
    assert [epoch["counted"] for epoch in told] == [True]
    assert events_of(world) == ["epoch.begun", "epoch.sealed"]
