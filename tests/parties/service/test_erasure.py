"""Erasure: what is left of a portfolio, a report or a bundle when it is gone, found by a search of all bytes."""

from __future__ import annotations

import hashlib
import io
import json
import struct
import zipfile
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from sqlalchemy import select, update

from fairpremium.parties.protocol._batch_file import NO_MEANING, sort_batch
from fairpremium.parties.protocol._invitations import invitation_key, write_token
from fairpremium.parties.protocol._linkage import make_keys, new_secret
from fairpremium.parties.protocol._messages import ReportSpec, Retention
from fairpremium.parties.service import _run_fit, open_context
from fairpremium.parties.service._housekeeping import clean
from fairpremium.parties.service._leases import acquire_lease
from fairpremium.parties.service._studies import count_reports
from fairpremium.parties.service._worker import work_once
from fairpremium.parties.service.erasure import _reports, workspace_prefix
from fairpremium.parties.store import Database, dump_database, store_batch
from fairpremium.parties.store.schema import (
    answers,
    batch_files,
    epochs,
    fits,
    log,
    metadata,
    portfolios,
    releases,
    reports,
    withdrawals,
)
from helpers import byte_search, wire
from helpers.old_schema import downgrade

ROWS, REPORTED = 600, 500
CANARY = 0.1234567890123456  # a value of a feature that no other row has


@pytest.fixture
def world(tmp_path, database_url, request):
    with wire.World(tmp_path / "third-party", database_url) as world:
        world.server = None if database_url.startswith("sqlite") else request.getfixturevalue("postgres")
        world.declare()
        world.secret = new_secret()
        rng = np.random.default_rng(5)
        group = rng.choice(["F", "M"], ROWS)
        world.frame = pd.DataFrame({"age": rng.uniform(-1, 1, ROWS), "policy": [f"P{i}" for i in range(ROWS)]})
        world.frame["y"] = 3 + world.frame["age"] + (group == "F") + rng.normal(size=ROWS)
        world.frame.loc[ROWS - 1, "age"] = CANARY
        world.reports = wire.CHANNEL.privatize(group)
        world.key_of = make_keys(world.secret, world.frame["policy"]).to_pylist()
        batch = wire.write_batch(world.key_of[:REPORTED], world.reports[:REPORTED], ["F", "M"], wire.CHANNEL)
        assert world.ask("app", "PUT", "/v1/studies/motor/report-parts/0", batch, wire.BATCH).status == 200
        yield world


def upload(world, name, rows=slice(None)):
    roles = {"study": "motor", "secret": world.secret, "policy": "policy", "outcome": "y"}
    world.client("acme").upload(world.frame.iloc[rows], portfolio=name, **roles)


def fit(world, name, portfolio):
    world.fit("acme", name, portfolio, release="randomized")
    assert work_once(world.context)
    return world.ask("acme", "GET", f"/v1/fits/{name}").json()


def premiums(world, name):
    body = world.ask("acme", "GET", f"/v1/fits/{name}/bundle").body
    with zipfile.ZipFile(io.BytesIO(body)) as archive:
        return pq.read_table(io.BytesIO(archive.read("premiums.parquet")))


def rows_of(world, table, **which):
    conditions = [table.c[name] == value for name, value in which.items()]
    return world.context.database.read(lambda c: c.execute(select(table).where(*conditions)).all())


def search(world, keys, others=()):
    """Where keys or other bytes are found: in the folder, in the database's files, in SQLite's write-ahead log.

    The write-ahead log of PostgreSQL is left out: the server keeps it as it is set up to.
    """
    found = byte_search.find(world.folder.parent, keys, others)  # with the database, and whatever lies beside it
    if world.server is not None:
        world.server.execute("CHECKPOINT")
        found |= byte_search.find(world.server.folder / "data" / "base", keys, others)
    return {name.removeprefix(f"{world.folder.name}/") for name in found}


def test_the_search_finds_what_is_there():
    rng = np.random.default_rng(0)
    for _ in range(300):
        needles = [rng.bytes(n) for n in rng.choice([2, 4, 5, 16], size=rng.integers(1, 6))]
        content = rng.bytes(int(rng.integers(0, 40)))
        if rng.random() < 0.5:
            content += needles[0] + rng.bytes(int(rng.integers(0, 3)))
        assert byte_search.Search(needles).is_in(content) == any(needle in content for needle in needles)


# --- portfolios ------------------------------------------------------------------------------------------------------


def test_of_an_erased_portfolio_digests_are_left(world):
    """Rows without a report are looked for: those of people who reported are among the reports, which stay."""
    upload(world, "p1")
    done = fit(world, "f1", "p1")
    assert done["state"] == "succeeded"
    killed = world.context.files.folder / f"{workspace_prefix('acme', 'f1')}x"  # of an attempt that was killed
    killed.mkdir()
    (killed / "premiums.parquet").write_bytes(world.key_of[-1])
    cut_off = world.context.files.folder / ".incoming-cut-off"
    cut_off.write_bytes(struct.pack("<d", CANARY))
    without_report, canary = world.key_of[REPORTED:], [struct.pack("<d", CANARY)]
    found = search(world, without_report, canary)
    assert len(found) >= 4  # the part, the premiums in the bundle, what the killed ones left
    assert f"files/{done['sha256']}/premiums.parquet" in found
    assert world.ask("acme", "DELETE", "/v1/portfolios/p1").status == 204
    assert search(world, without_report, canary) == set()
    asked = world.ask("acme", "GET", "/v1/fits/f1/bundle")
    assert (asked.status, asked.code) == (410, "bundle-erased")
    assert world.ask("acme", "GET", "/v1/fits/f1").json() == done | {"matched": None}  # with its digest
    (batch,) = search(world, world.key_of[:REPORTED])
    assert world.context.open_batch(batch.removeprefix("files/")).meaning != NO_MEANING  # that of the reports
    assert world.third_party.verify_log().intact


TOWNS = (b"CANARYTOWN-A", b"CANARYTOWN-B")  # levels of a category, which an audit by town names


def fit_by_town(world, name, study="motor"):
    """Fit a portfolio of its own with an audit by town."""
    frame = world.frame.assign(town=np.array([town.decode() for town in TOWNS])[np.arange(ROWS) % 2])
    roles = {"study": study, "secret": world.secret, "policy": "policy", "outcome": "y"}
    world.client("acme").upload(frame, portfolio=name, **roles)
    world.fit("acme", name, name, study, release="randomized", report=ReportSpec(by="town"))
    assert work_once(world.context)
    assert world.ask("acme", "GET", f"/v1/fits/{name}").json()["state"] == "succeeded"
    (row,) = rows_of(world, fits, id=name)
    assert all(town.decode() in row.summary for town in TOWNS)
    assert row.matched is not None


def is_cleared(world, name):
    (row,) = rows_of(world, fits, id=name)
    return (row.summary, row.matched) == (None, None)


def test_levels_and_numbers_of_rows_of_an_erased_portfolio_are_gone(world, tmp_path):
    """They are in the comparison of groups that the console shows."""
    fit_by_town(world, "p1")
    assert world.ask("acme", "DELETE", "/v1/portfolios/p1").status == 204
    assert is_cleared(world, "p1")
    clean(world.context)
    assert search(world, [], TOWNS) == set()
    dump_database(world.context.database.url, tmp_path / "copy.sqlite")  # what a backup copies
    assert not any(town in (tmp_path / "copy.sqlite").read_bytes() for town in TOWNS)


def test_levels_and_numbers_of_rows_go_with_a_bundle_on_a_date(world):
    world.declare("dated", retention=Retention(bundles_days=10))
    batch = wire.write_batch(world.key_of[:REPORTED], world.reports[:REPORTED], ["F", "M"], wire.CHANNEL)
    assert world.ask("app", "PUT", "/v1/studies/dated/report-parts/0", batch, wire.BATCH).status == 200
    fit_by_town(world, "p1", "dated")
    world.clock.now += 10 * DAY
    clean(world.context)
    assert is_cleared(world, "p1")
    (part,) = search(world, [], TOWNS)  # the rows, which stay
    assert part.startswith("files/")


def test_an_upgrade_deletes_what_an_older_version_left_of_erased_portfolios(world):
    fit_by_town(world, "p1")
    (row,) = rows_of(world, fits, id="p1")
    assert world.ask("acme", "DELETE", "/v1/portfolios/p1").status == 204
    left = update(fits).where(fits.c.id == "p1").values(summary=row.summary, matched=row.matched)
    world.context.database.write(lambda c: c.execute(left))
    with world.context.database._engine.begin() as connection:
        downgrade(connection, 5)
    Database(world.context.database.url).close()
    assert is_cleared(world, "p1")
    clean(world.context)
    assert search(world, [], TOWNS) == set()


def test_what_another_portfolio_has_too_stays(world):
    upload(world, "p1")
    upload(world, "p2")  # the same bytes
    first, second = fit(world, "f1", "p1"), fit(world, "f2", "p2")
    assert world.ask("acme", "DELETE", "/v1/portfolios/p1").status == 204
    assert world.ask("acme", "GET", "/v1/fits/f1/bundle").code == "bundle-erased"
    assert world.ask("acme", "GET", "/v1/fits/f2/bundle").headers["etag"] == f'"{second["sha256"]}"'
    assert first["sha256"] != second["sha256"]
    assert fit(world, "f3", "p2")["state"] == "succeeded"


def test_an_erasure_that_was_cut_off_is_finished_by_the_worker(world, monkeypatch):
    upload(world, "p1")
    fit(world, "f1", "p1")
    with monkeypatch.context() as patched:
        patched.setattr("fairpremium.parties.service.erasure.finish_erasures", lambda *_: None)
        assert world.ask("acme", "DELETE", "/v1/portfolios/p1").status == 204
    assert search(world, world.key_of[REPORTED:])
    clean(world.context)
    assert search(world, world.key_of[REPORTED:]) == set()


def test_bundles_of_portfolios_that_an_older_version_erased_are_erased(world):
    for name in ("kept", "gone"):
        world.portfolio("acme", name)
        world.fit("acme", name, name)
        world.succeed(name.encode())
    gone, deleted = portfolios.c.id == "gone", {"state": "deleted"}
    world.context.database.write(lambda c: c.execute(update(portfolios).where(gone).values(deleted)))
    with world.context.database._engine.begin() as connection:
        downgrade(connection, 5)
    again = Database(world.context.database.url)
    marks = {row.id: row.erased for row in again.read(lambda c: c.execute(select(fits)).all())}
    again.close()
    assert marks == {"kept": None, "gone": world.clock.now}
    clean(world.context)
    assert world.ask("acme", "GET", "/v1/fits/kept/bundle").body == b"kept"
    assert world.ask("acme", "GET", "/v1/fits/gone/bundle").code == "bundle-erased"
    assert hashlib.sha256(b"gone").hexdigest() not in world.context.files


def test_files_of_an_older_version_with_keys_and_reports_become_hashes(world):
    upload(world, "p1")
    fit(world, "f1", "p1")
    keys = np.frombuffer(b"".join(world.key_of), dtype="V16")
    old = store_batch(world.context.files, sort_batch(keys, np.r_[np.ones(REPORTED), np.zeros(ROWS - REPORTED)]))
    (new,) = [row.keys_sha256 for row in rows_of(world, releases)]
    world.context.database.write(lambda c: c.execute(update(releases).values(keys_sha256=old)))
    world.context.files.delete(new)
    upload(world, "one-less", slice(1, None))
    assert fit(world, "f2", "one-less")["refusal"]["rule"] == 5  # it is understood as it is
    clean(world.context)
    assert [row.keys_sha256 for row in rows_of(world, releases)] == [new]
    assert old not in world.context.files
    assert fit(world, "f3", "one-less")["refusal"]["rule"] == 5
    clean(world.context)
    assert [row.keys_sha256 for row in rows_of(world, releases)] == [new]


# --- withdrawals -----------------------------------------------------------------------------------------------------

DAY = 86_400.0
EPOCH = 30 * DAY


def withdraw(world, who, i):
    return world.ask(who, "DELETE", f"/v1/studies/motor/reports/{world.key_of[i].hex()}")


def single(world, i):
    body = wire.Report(report=str(world.reports[i]), channel=wire.CHANNEL.descriptor()).model_dump_json().encode()
    return world.ask("app", "PUT", f"/v1/studies/motor/reports/{world.key_of[i].hex()}", body)


def places_of(world, *rows):
    """Where the keys of people are found."""
    return search(world, [world.key_of[i] for i in rows])


def in_tables(world, i):
    """The names of tables in which a key is."""
    found = set()
    for table in metadata.sorted_tables:
        for row in rows_of(world, table):
            if world.key_of[i] in [bytes(value) for value in row if isinstance(value, bytes | memoryview)]:
                found.add(table.name)
    return found


def count(world):
    return world.context.database.read(lambda c: count_reports(c, "motor"))


def test_a_withdrawn_report_is_gone_with_the_next_epoch(world):
    """One report in a file, one that waits in the table; an epoch that began before has both, to its end."""
    upload(world, "p1", slice(0, 400))  # those who withdraw are not in it: a portfolio is the insurer's
    single(world, 550)
    first = fit(world, "f1", "p1")
    single(world, 551)
    before = count(world)
    for i in (450, 550, 551):
        assert withdraw(world, "app", i).status == 204
    clean(world.context)
    assert count(world) == before - 3  # from now on no epoch begins with them
    assert places_of(world, 450, 550)  # the snapshot of the present one has them
    again = fit(world, "f2", "p1")
    assert again["epoch"] == first["epoch"] == 1
    assert premiums(world, "f1").equals(premiums(world, "f2"))
    world.clock.now += EPOCH - 1
    clean(world.context)
    assert places_of(world, 450, 550)
    world.clock.now += 1
    clean(world.context)
    for i in (450, 550, 551):
        assert places_of(world, i) == in_tables(world, i) == set()
    assert rows_of(world, withdrawals) == []
    assert fit(world, "f3", "p1")["epoch"] == 2  # as without a withdrawal
    assert withdraw_entries(world) == []


def test_no_digest_of_a_file_with_a_withdrawn_report_is_left_where_it_was_deleted(world):
    """Whoever knows the other reports of a file could try which one its digest was computed with."""
    upload(world, "p1", slice(0, 400))
    before = {row.sha256 for row in rows_of(world, batch_files)}
    for i in range(520, 530):
        single(world, i)
    fit(world, "f1", "p1")  # with the snapshot they become a file
    (digest,) = {row.sha256 for row in rows_of(world, batch_files)} - before
    assert search(world, [], [digest.encode()])
    withdraw(world, "app", 525)
    world.clock.now += EPOCH
    clean(world.context)
    assert places_of(world, 525) == set()
    assert search(world, [], [digest.encode()]) == set()


def withdraw_entries(world):
    return [row.event for row in rows_of(world, log) if "withdr" in row.event or "erased" in row.event]


@pytest.mark.parametrize("who", ["app", "op"])
def test_what_a_withdrawal_does_does_not_tell_whether_there_was_a_report(world, who):
    """Not even after housekeeping: the withdrawal of a report that never was waits as long as any other."""
    upload(world, "p1", slice(0, 400))
    fit(world, "f1", "p1")
    seen = []
    for i in (450, 552):  # one with a report, one without
        assert (places_of(world, i) != set()) == (i < REPORTED)
        before = len(rows_of(world, log))
        withdraw(world, who, i)
        clean(world.context)
        after = world.ask("op", "POST", "/v1/studies/motor/withdrawals").json()
        seen.append(len(rows_of(world, log)) - before)
        assert len(after["epochs"]) == len(seen) + 1
    assert seen[0] == seen[1] > 0


def test_an_epoch_that_begins_first_begins_without_what_was_withdrawn(world):
    upload(world, "p1", slice(0, 400))
    withdraw(world, "app", 450)
    fit(world, "f1", "p1")  # no housekeeping in between
    assert places_of(world, 450) != set()  # the old file, and the table of withdrawals
    clean(world.context)
    assert places_of(world, 450) == in_tables(world, 450) == set()


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_the_present_epoch_stays_while_a_fit_needs_it(world):
    upload(world, "p1", slice(0, 400))
    fit(world, "f1", "p1")
    world.fit("acme", "f2", "p1", release="randomized")
    withdraw(world, "app", 450)
    world.clock.now += 2 * EPOCH
    clean(world.context)
    assert places_of(world, 450)
    assert work_once(world.context)
    assert world.ask("acme", "GET", "/v1/fits/f2").json()["state"] == "succeeded"
    clean(world.context)
    assert places_of(world, 450) == set()


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_an_epoch_whose_snapshot_is_not_taken_keeps_nothing(world):
    upload(world, "p1", slice(0, 400))
    world.fit("acme", "f1", "p1", release="randomized")
    withdraw(world, "app", 450)
    clean(world.context)
    assert places_of(world, 450) == in_tables(world, 450) == set()
    assert work_once(world.context)
    assert world.ask("acme", "GET", "/v1/fits/f1").json()["state"] == "succeeded"
    assert places_of(world, 450) == set()


def test_nothing_that_is_left_of_a_batch_tells_what_a_withdrawn_report_was(world):
    """Whoever knows all other rows can write the batch with each possible report, and look for its digest."""
    body = wire.write_batch(world.key_of[:REPORTED], world.reports[:REPORTED], ["F", "M"], wire.CHANNEL)
    digest = hashlib.sha256(body).digest()
    shown = [digest.hex().encode(), digest]
    assert search(world, [], shown)  # the name of its file
    withdraw(world, "app", 450)
    clean(world.context)
    assert search(world, [], shown) == set()
    assert world.ask("app", "PUT", "/v1/studies/motor/report-parts/0", body, wire.BATCH).status == 200  # known still
    assert places_of(world, 450) == set()
    other = wire.write_batch(world.key_of[:2], ["F", "F"], ["F", "M"], wire.CHANNEL)
    assert world.ask("app", "PUT", "/v1/studies/motor/report-parts/0", other, wire.BATCH).status == 409


@pytest.fixture
def raw(world):
    """A connection of somebody else to the same PostgreSQL database."""
    import psycopg

    url = sa.make_url(world.context.database.url)
    with psycopg.connect(host=url.host, port=url.port, user=url.username, dbname=url.database) as connection:
        yield connection


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
@pytest.mark.parametrize("how", ["at once", "with the next epoch"])
def test_statistics_of_the_planner_have_no_withdrawn_key(world, raw, how):
    """The server samples columns by itself, as ANALYZE does, and keeps the values when their rows are gone."""
    raw.autocommit = True
    upload(world, "p1", slice(0, 400))
    for i in range(500, 560):
        single(world, i)
    raw.execute("ANALYZE")
    fit(world, "f1", "p1")
    rows = [450, *range(500, 560)]
    for i in rows:
        withdraw(world, "op", i)
    raw.execute("ANALYZE")
    world.server.execute("CHECKPOINT")
    statistics = "SELECT pg_relation_filepath(reltoastrelid), pg_relation_filepath(oid) FROM pg_class"
    files = raw.execute(f"{statistics} WHERE relname = 'pg_statistic'").fetchone()
    held = b"".join((world.server.folder / "data" / name).read_bytes() for name in files)
    assert any(world.key_of[i] in held for i in rows)
    if how == "at once":
        world.ask("op", "POST", "/v1/studies/motor/withdrawals")
    else:
        world.clock.now += EPOCH
        clean(world.context)
    assert places_of(world, *rows) == set()
    raw.execute("ANALYZE")
    sampled = "SELECT count(*) FROM pg_stats WHERE tablename = 'report_runs' AND attname = %s"
    assert raw.execute(sampled, ["sha256"]).fetchone() == (0,)  # from now on none is sampled
    assert raw.execute(sampled, ["rows"]).fetchone() == (1,)


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_withdrawal_is_not_finished_while_a_transaction_still_sees_the_rows(world, raw):
    """PostgreSQL copies such rows when it writes a table anew: they are taken out at a later look."""
    upload(world, "p1", slice(0, 400))
    single(world, 550)
    raw.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    raw.execute("SELECT 1 FROM studies")  # it has never looked at what is withdrawn
    withdraw(world, "app", 550)
    clean(world.context)
    assert places_of(world, 550) != set()
    raw.rollback()
    clean(world.context)
    assert places_of(world, 550) == set()


def test_the_operator_can_withdraw_at_once(world):
    upload(world, "p1", slice(0, 400))
    fit(world, "f1", "p1")
    world.fit("acme", "waits", "p1", release="randomized", level=0.9)
    assert withdraw(world, "op", 450).status == 204
    seen = world.ask("op", "POST", "/v1/studies/motor/withdrawals").json()
    assert [epoch["number"] for epoch in seen["epochs"]] == [1, 2]
    assert places_of(world, 450) == in_tables(world, 450) == set()
    assert world.ask("acme", "GET", "/v1/fits/waits").json()["state"] == "cancelled"
    assert withdraw_entries(world) == ["reports.withdrawn"]
    again = world.ask("op", "POST", "/v1/studies/motor/withdrawals").json()  # nothing is withdrawn: nothing happens
    assert again == seen
    assert world.third_party.verify_log().intact
    assert fit(world, "f2", "p1")["epoch"] == 2


def test_what_others_reported_stays_and_nobody_learns_whether_there_was_a_report(world):
    world.declare("other", ("app2", "app"), ("acme",))
    batch = wire.write_batch(world.key_of[:20], world.reports[:20], ["F", "M"], wire.CHANNEL)
    for who in ("app", "app2"):
        assert world.ask(who, "PUT", "/v1/studies/other/report-parts/0", batch, wire.BATCH).status == 200
    answers = [
        world.ask("app", "DELETE", f"/v1/studies/other/reports/{world.key_of[i].hex()}") for i in (3, REPORTED + 3)
    ]
    assert answers[0] == answers[1]
    assert answers[0].status == 204
    clean(world.context)
    left = {row.collector: row.rows for row in rows_of(world, batch_files, study="other")}
    assert left == {"app": 19, "app2": 20}
    assert world.ask("op", "DELETE", f"/v1/studies/other/reports/{world.key_of[3].hex()}").status == 204
    clean(world.context)
    left = {row.collector: row.rows for row in rows_of(world, batch_files, study="other")}
    assert left == {"app": 19, "app2": 19}
    assert count(world) == REPORTED  # another study
    assert world.ask("app2", "DELETE", f"/v1/studies/motor/reports/{world.key_of[3].hex()}").code == "not-found"
    assert world.ask("acme", "DELETE", f"/v1/studies/motor/reports/{world.key_of[3].hex()}").code == "not-found"


def test_many_withdrawals_are_finished_with_few_statements(world):
    """They hold the lock that every write needs."""
    keys = [wire.policy_key("many", i) for i in range(1200)]
    rows = [
        {"study": "motor", "party": party, "key": key, "removed": 1, "epoch": 0}
        for key in keys
        for party in ("app", "")
    ]
    counted = []

    def forget(connection):
        connection.execute(sa.insert(withdrawals), rows)
        sa.event.listen(connection, "before_cursor_execute", lambda *_: counted.append(1))
        _reports._forget_withdrawn(connection)
        return connection.execute(sa.select(sa.func.count()).select_from(withdrawals)).scalar_one()

    assert world.context.database.write(forget) == 0
    assert len(counted) < 20


def test_a_worker_lets_go_of_files_that_another_process_may_delete(sqlite_base, tmp_path):
    """A deleted file is on the disk as long as a process has it open."""
    context = open_context(sqlite_base.copy(tmp_path / "third-party").folder)
    digest = context.database.read(lambda c: c.execute(select(batch_files.c.sha256)).scalar())
    context.open_batch(digest)
    assert digest in Path("/proc/self/maps").read_text()
    clean(context)
    assert digest not in Path("/proc/self/maps").read_text()
    context.database.close()


def test_the_last_report_of_a_file(world):
    for i in range(550, 554):
        batch = wire.write_batch(world.key_of[i : i + 1], world.reports[i : i + 1], ["F", "M"], wire.CHANNEL)
        assert world.ask("app", "PUT", f"/v1/studies/motor/report-parts/{i}", batch, wire.BATCH).status == 200
    before = count(world)
    withdraw(world, "app", 551)
    clean(world.context)
    assert count(world) == before - 1
    assert single(world, 551).status == 200  # reported again, it is a report again
    assert count(world) == before
    clean(world.context)
    assert count(world) == before


def test_a_withdrawn_answer_leaves_its_invitation_used(world):
    """And the number of answers as it was: it must not tell that somebody withdrew."""
    sex = wire.Question(
        collector="App",
        texts={"en": wire.QuestionText(question="Sex?", groups=("Female", "Male"), purpose="Fair prices.")},
    )
    world.declare("asks", question=sex)
    sealed_to = invitation_key(world.context.key)

    def token(i):
        return write_token(world.keys["app"], sealed_to, study="asks", key=world.key_of[i], expires=2**32)

    party = world.third_party
    for i in (550, 551):
        assert party.take_answer(token(i), "F", f"{i}".zfill(64))
    answered = len(rows_of(world, answers))
    party.rotate_study_secret("asks")
    assert world.ask("app", "DELETE", f"/v1/studies/asks/reports/{world.key_of[550].hex()}").status == 204
    clean(world.context)
    assert places_of(world, 550) == in_tables(world, 550) == set()
    assert [bytes(row.key) for row in rows_of(world, reports, study="asks")] == [world.key_of[551]]
    assert len(rows_of(world, answers)) == answered
    assert not rows_of(world, epochs, study="asks")
    with pytest.raises(ValueError, match="links of withdrawn answers are used"):  # a new one would open them again
        party.rotate_study_secret("asks")
    assert party.find_invitation(token(550)) is None
    assert not party.take_answer(token(550), "F", "550".zfill(64))  # not even the same again
    assert party.take_answer(token(551), "F", "551".zfill(64))


def send(world, n, *rows):
    keys, said = [world.key_of[i] for i in rows], [str(world.reports[i]) for i in rows]
    body = wire.write_batch(keys, said, ["F", "M"], wire.CHANNEL)
    return world.ask("app", "PUT", f"/v1/studies/motor/report-parts/{n}", body, wire.BATCH)


def begin(world, number):
    return world.ask("op", "POST", f"/v1/studies/motor/epochs/{number}")


def test_what_is_left_of_a_file_may_be_another_file(world):
    """A single report that is in a batch, too: without the rest of the batch the two files are the same."""
    assert single(world, 510).status == 200
    assert send(world, 1, 510, 511).status == 200
    assert count(world) == REPORTED + 2
    assert withdraw(world, "app", 511).status == 204
    assert begin(world, 1).status == 200
    assert count(world) == REPORTED + 1
    assert single(world, 512).status == 200
    assert begin(world, 2).status == 200
    assert count(world) == REPORTED + 2


def test_the_number_of_reports_is_right_after_withdrawals_from_files_that_overlap(world):
    for first, second, gone in (((510, 520), (511, 521), 3), ((530, 540), (529, 539), 4)):
        assert send(world, first[0], *range(*first)).status == 200
        assert send(world, second[0], *range(*second)).status == 200
        before = count(world)
        for i in range(first[0] + 2, first[0] + 2 + gone):
            withdraw(world, "app", i)
        clean(world.context)
        assert count(world) == before - gone


def test_the_number_of_reports_is_right_when_the_file_that_counted_a_report_is_gone(world):
    """Four people in two files that overlap, and again in another order of the digests; each withdraws in turn."""
    for begin, order in ((510, (1, 0, 2, 3)), (520, (1, 3, 0, 2)), (530, (2, 3, 1, 0)), (540, (3, 2, 0, 1))):
        assert send(world, begin, begin, begin + 1, begin + 2).status == 200
        assert send(world, begin + 1, begin + 1, begin + 2, begin + 3).status == 200
        before = count(world)
        for gone, person in enumerate(order, 1):
            withdraw(world, "app", begin + person)
            clean(world.context)
            assert count(world) == before - gone


def test_no_report_that_is_taken_is_lost_to_a_withdrawal_that_waits(world):
    for i in (450, 550):
        withdraw(world, "app", i)
        assert single(world, i).code == "withdrawal-waits"
    assert send(world, 1, 550, 551).code == "withdrawal-waits"
    assert single(world, 551).status == 200
    clean(world.context)
    before = count(world)
    for i in (450, 550):
        assert single(world, i).status == 200
    clean(world.context)
    assert count(world) == before + 2


@pytest.mark.parametrize("when", ["before", "during"])
def test_a_fit_that_is_to_stop_publishes_nothing(world, when, monkeypatch):
    upload(world, "p1", slice(0, 400))
    world.fit("acme", "f1", "p1", release="randomized")
    lease = world.context.database.write(lambda c: acquire_lease(c, world.context))
    assert world.ask("op", "POST", "/v1/studies/motor/epochs/1").status == 200  # takes the snapshot
    files, price = set(world.context.files), _run_fit.price_rows

    def withdraw_now(*args):
        withdraw(world, "app", 450)
        assert world.ask("op", "POST", "/v1/studies/motor/withdrawals").status == 200
        return price(*args) if args else None

    if when == "before":
        withdraw_now()
    else:
        monkeypatch.setattr(_run_fit, "price_rows", withdraw_now)
    _run_fit.run_fit(world.context, lease)  # as a worker that has not heard of it
    seen = world.ask("acme", "GET", "/v1/fits/f1").json()
    assert (seen["state"], seen["sha256"]) == ("cancelled", None)
    clean(world.context)
    assert places_of(world, 450) == set()
    assert not [name for name in set(world.context.files) - files if zipfile.is_zipfile(world.context.files.path(name))]


# --- dates -----------------------------------------------------------------------------------------------------------


def date(world, days):
    return datetime.fromtimestamp(world.clock.now + days * DAY, UTC)


def test_what_a_study_keeps_for_a_time_is_erased_then(world):
    """Bundles after 10 days, portfolios after 20, reports on a date: each is gone, and the log says that alone."""
    dates = Retention(reports_until=date(world, 30), portfolios_days=20, bundles_days=10)
    world.declare("dated", retention=dates)
    batch = wire.write_batch(world.key_of[:REPORTED], world.reports[:REPORTED], ["F", "M"], wire.CHANNEL)
    assert world.ask("app", "PUT", "/v1/studies/dated/report-parts/0", batch, wire.BATCH).status == 200
    other = set(world.context.files)  # the same bytes as those of the other study
    roles = {"study": "dated", "secret": world.secret, "policy": "policy", "outcome": "y"}
    world.client("acme").upload(world.frame, portfolio="p1", **roles)
    world.fit("acme", "f1", "p1", "dated", release="randomized")
    assert work_once(world.context)
    clean(world.context)
    assert world.ask("acme", "GET", "/v1/fits/f1/bundle").status == 200
    world.clock.now += 10 * DAY
    clean(world.context)
    assert world.ask("acme", "GET", "/v1/fits/f1/bundle").code == "bundle-erased"
    found = search(world, world.key_of[REPORTED:])
    assert len(found) == 1  # the part of the portfolio, no premiums
    world.clock.now += 10 * DAY
    world.fit("acme", "f2", "p1", "dated", release="randomized", level=0.9)
    clean(world.context)
    assert world.ask("acme", "GET", "/v1/fits/f2").json()["state"] == "cancelled"
    assert search(world, world.key_of[REPORTED:]) == set()
    world.clock.now += 10 * DAY
    clean(world.context)
    assert rows_of(world, batch_files, study="dated") == []
    assert {row.files for row in rows_of(world, epochs, study="dated")} == {None}
    assert world.ask("app", "PUT", "/v1/studies/dated/report-parts/1", batch, wire.BATCH).code == "study-not-open"
    assert other <= set(world.context.files)
    assert count(world) == REPORTED
    asked = wire.FitSpec(study="dated", portfolio="p1").model_dump_json().encode()
    assert world.ask("acme", "PUT", "/v1/fits/f3", asked).code == "reports-erased"
    entries = [(row.event, json.loads(row.body)) for row in rows_of(world, log) if "erased" in row.event]
    assert [event for event, _ in entries] == ["bundle.erased", "portfolio.erased", "reports.erased"]
    assert all(body["because"] == "retention" for _, body in entries)
    clean(world.context)
    assert len([row for row in rows_of(world, log) if "erased" in row.event]) == 3


def test_the_log_tells_of_the_date_whether_there_were_reports_or_not(world):
    for study in ("empty", "dated"):
        world.declare(study, retention=Retention(reports_until=date(world, 1)))
    batch = wire.write_batch(world.key_of[:10], world.reports[:10], ["F", "M"], wire.CHANNEL)
    assert world.ask("app", "PUT", "/v1/studies/dated/report-parts/0", batch, wire.BATCH).status == 200
    world.clock.now += DAY
    for _ in range(2):
        clean(world.context)
        told = [json.loads(row.body)["study"] for row in rows_of(world, log) if row.event == "reports.erased"]
        assert sorted(told) == ["dated", "empty"]


def test_reports_that_are_erased_on_a_date_are_gone(world):
    other = new_secret()
    keys = make_keys(other, world.frame["policy"]).to_pylist()
    world.declare("dated", retention=Retention(reports_until=date(world, 1)))
    batch = wire.write_batch(keys[:10], world.reports[:10], ["F", "M"], wire.CHANNEL)
    assert world.ask("app", "PUT", "/v1/studies/dated/report-parts/0", batch, wire.BATCH).status == 200
    body = wire.Report(report="F", channel=wire.CHANNEL.descriptor()).model_dump_json().encode()
    assert world.ask("app", "PUT", f"/v1/studies/dated/reports/{keys[11].hex()}", body).status == 200
    assert search(world, keys[:10])
    world.clock.now += DAY
    clean(world.context)
    assert search(world, keys) == set()
    assert rows_of(world, reports, study="dated") == []
