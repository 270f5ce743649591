"""Backups that are killed, that find no room, or that are made while the service works."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time

import pytest
from sqlalchemy import select

from fairpremium.parties.backup import make_backup, restore_backup
from fairpremium.parties.protocol import as_keys
from fairpremium.parties.protocol._portfolio_part import write_portfolio_part
from fairpremium.parties.service.reports import open_snapshot
from fairpremium.parties.store.schema import fits, reports
from helpers.places import ACME, APP, CHANNEL, FRAME, OP, SPEC, batch, message, name_keys
from helpers.processes import descendants, state_of, wait_until

INCOMPLETE = ".fairpremium-incomplete"


def left_in(folder, name):
    """What is there of a name, but for what is marked as incomplete."""
    return {path.name for path in folder.iterdir() if name in path.name and not path.name.endswith(INCOMPLETE)}


def test_a_backup_that_is_killed_anywhere_is_not_there(base, zygote, tmp_path):
    place = base.copy(tmp_path / "third-party")
    target, step, at = tmp_path / "backup", 4 if base.database else 1, 1
    kills = 0
    while True:
        options = {"target": str(target), **place.options}
        code, entries = zygote.run("backup", tmp_path / "answer", arm={"kill": f"*:{at}"}, **options)
        if code == 0:
            break  # it passed all points, and removed what the killed ones had left
        assert code == -signal.SIGKILL
        kills += 1
        at += step
        if not left_in(tmp_path, "backup"):
            continue
        assert restore_backup(target, tmp_path / f"restored-{at}").log.intact  # killed when all was done
        shutil.rmtree(target)
    assert {path.name for path in tmp_path.iterdir() if "backup" in path.name} == {"backup"}
    assert entries == restore_backup(target, tmp_path / "restored").manifest.entries
    assert kills >= 20 // step


def test_a_restore_that_is_killed_anywhere_is_not_there(base, zygote, tmp_path, fresh):
    make_backup(base.folder, tmp_path / "backup", database=base.database)
    expected = fresh("undisturbed")
    restore_backup(tmp_path / "backup", expected.folder, database=expected.database)
    expected = {**expected.look(), "meta": None}  # which has the time of the restore
    step, at, kills = 4 if base.database else 1, 1, 0
    while True:
        place = fresh("third-party")
        options = {"backup": str(tmp_path / "backup"), **place.options}
        code, _ = zygote.run("restore", tmp_path / "answer", arm={"kill": f"*:{at}"}, **options)
        if code == 0:
            break
        assert code == -signal.SIGKILL
        kills += 1
        at += step
        if left_in(tmp_path, "third-party"):  # killed when all was done
            assert {**place.look(), "meta": None} == expected
            shutil.rmtree(place.folder)
    assert {**place.look(), "meta": None} == expected
    assert not list(tmp_path.glob(f"*{INCOMPLETE}"))
    assert kills >= 20 // step


@pytest.mark.parametrize("task", ["backup", "restore"])
def test_a_full_disk_is_said_and_nothing_is_left(sqlite_base, zygote, tmp_path, task):
    make_backup(sqlite_base.folder, tmp_path / "made")
    options = {
        "backup": {"target": str(tmp_path / "new"), **sqlite_base.options},
        "restore": {"backup": str(tmp_path / "made"), "folder": str(tmp_path / "new"), "database": None},
    }[task]
    full, at = 0, 1
    while True:
        code, said = zygote.run(task, tmp_path / "answer", arm={"full": f"*:{at}"}, **options)
        assert code == 0
        if not isinstance(said, str):
            break
        assert said == f"There is no room for new in {tmp_path}. Nothing is left of it."
        assert {path.name for path in tmp_path.iterdir()} == {"made", "answer"}
        full += 1
        at += 2
    assert full >= 10


def test_what_a_killed_backup_left_is_removed_by_the_next_one_of_any_name(sqlite_base, zygote, tmp_path):
    options = {"arm": {"kill": "backup.manifest"}, **sqlite_base.options}
    code, _ = zygote.run("backup", tmp_path / "answer", target=str(tmp_path / "monday"), **options)
    assert code == -signal.SIGKILL
    assert (tmp_path / f".monday{INCOMPLETE}" / "service.key").exists()
    (tmp_path / ".another.incomplete").mkdir()  # not ours
    make_backup(sqlite_base.folder, tmp_path / "tuesday")
    assert {path.name for path in tmp_path.iterdir()} == {"tuesday", ".another.incomplete"}


def test_two_backups_of_one_name_do_not_mix(sqlite_base, zygote, tmp_path):
    options = {"target": str(tmp_path / "backup"), "arm": {}, **sqlite_base.options}
    first = zygote.start("backup", tmp_path / "first", {"stop": "backup.file"}, **options)
    wait_until(lambda: (tmp_path / f".backup{INCOMPLETE}").exists())
    wait_until(lambda: state_of(first.pid) == "T")
    _, said = zygote.run("backup", tmp_path / "second", **options)
    assert "Another process is writing" in said
    first.kill(signal.SIGCONT)
    assert first.wait() == 0
    assert restore_backup(tmp_path / "backup", tmp_path / "restored").log.intact


# --- under load ------------------------------------------------------------------------------------------------------


class Load:
    """A collector that sends reports and batches, and an insurer that sends and erases portfolios and asks for fits."""

    def __init__(self, place):
        self.place = place
        self.told, self.errors = [], []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._guard, args=(job,)) for job in (self._report, self._erase)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _guard(self, job):
        party = self.place.open()
        try:
            for i in range(10**6):
                if self._stop.is_set():
                    return
                job(party, i)
        except Exception as error:  # shown by the test
            self.errors.append(error)
        finally:
            party.close()

    def _report(self, party, i):
        key = bytes(name_keys(100_000 + i, 100_001 + i)[0])
        party.put_report(APP, "motor", key, message(i % 400))
        self.told.append((key, message(i % 400).report))
        if i % 20 == 0:
            party.put_report_batch(APP, "motor", 100 + i, batch(0, 50 + i % 500))

    def _erase(self, party, i):
        name = f"short-{i}"
        party.put_portfolio(ACME, name, SPEC)
        party.put_part(ACME, name, 0, write_portfolio_part(FRAME[:100].assign(y=float(i)), SPEC))
        time.sleep(0.02)
        party.delete_portfolio(ACME, name)


def test_a_backup_under_load_has_all_that_was_acknowledged_before(base, zygote, tmp_path, fresh):
    place = base.copy(tmp_path / "third-party")
    worker = zygote.start("work", tmp_path / "worker", {"stop": "fit.pricing"}, lease_seconds=2.0, **place.options)
    wait_until(lambda: fit_row(place).state == "running")
    backups = []
    with Load(place) as load:
        for n in range(3):
            wait_until(lambda n=n: len(load.told) > 20 * (n + 1) or load.errors)
            known = list(load.told)
            made = make_backup(place.folder, tmp_path / f"backup-{n}", database=place.database)
            assert made.log.intact
            backups.append((known, list(load.told)))
    assert load.errors == []
    for pid in (*descendants(worker.pid), worker.pid):
        os.kill(pid, signal.SIGKILL)
    everything = set(load.told)
    for n, (before, after) in enumerate(backups):
        restored = fresh(f"restored-{n}")
        assert restore_backup(tmp_path / f"backup-{n}", restored.folder, database=restored.database).log.intact
        stored = stored_reports(restored)
        assert set(before) <= stored <= everything
        assert len(stored) <= len(after) + 1
    contents = []
    for each in (place, restored):
        wait_until(lambda each=each: time.time() > fit_row(each).lease_until)
        party = each.open()
        assert party.work() == 1  # the fit that ran, when its lease was over
        contents.append(party.get_bundle(ACME, "waits")[0].read_bytes())
        assert party.verify_log().intact
        party.close()
    assert contents[0] == contents[1]


def fit_row(place):
    party = place.open()
    row = party.context.database.read(lambda c: c.execute(select(fits).where(fits.c.id == "waits")).one())
    party.close()
    return row


def stored_reports(place):
    """All reports of the collector's single requests that are in the tables or files of a place."""
    party = place.open()
    newest = party.get_study(OP, "motor").epochs[-1].number
    party.begin_epoch(OP, "motor", newest + 1)
    find = party.context.database.read(lambda c: open_snapshot(c, party.context, "motor", newest + 1, "app"))
    keys = [bytes(key) for key in name_keys(100_000, 103_000)]
    codes = find(as_keys(keys))
    assert not party.context.database.read(lambda c: c.execute(select(reports)).all())
    party.close()
    return {(key, CHANNEL.reports[code]) for key, code in zip(keys, codes, strict=True) if code >= 0}
