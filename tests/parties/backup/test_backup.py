"""Backups: what is restored is what there was, nothing that was signed or drawn counts twice, damage is named."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import sqlite3
import stat
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import httpx
import numpy as np
import pytest
from sqlalchemy import LargeBinary, select, text, type_coerce

from fairpremium.parties import load_bundle
from fairpremium.parties.backup import BackupError, _backup, make_backup, restore_backup
from fairpremium.parties.backup._manifest import _PREFIX
from fairpremium.parties.clients._client import AppTransport, Client
from fairpremium.parties.clients._log_audit import audit_log
from fairpremium.parties.http._app import create_app
from fairpremium.parties.protocol import STORAGE_KEY, STORAGE_KEY_FILE, StorageKeyError, new_key, write_storage_key
from fairpremium.parties.protocol._keys import read_key
from fairpremium.parties.protocol._signatures import sign_request
from fairpremium.parties.service import Accounts, Logins
from fairpremium.parties.service._housekeeping import clean
from fairpremium.parties.service._settings import ServiceSettings
from fairpremium.parties.store import DatabaseCopyError
from fairpremium.parties.store.schema import SCHEMA_VERSION, epochs, log, metadata, studies
from helpers import byte_search
from helpers.old_schema import downgrade
from helpers.places import ACME, APP, OP, Place, build, fit_spec, message, name_keys

CHANGED = ("meta", "epochs", "log")  # by a restore, on purpose


def back_up(place, target, **options):
    return make_backup(place.folder, target, database=place.database, **options)


def restore(backup, place):
    return restore_backup(backup, place.folder, database=place.database)


def secrets_of(place):
    """The secrets of studies, as they are stored."""
    party = place.open()
    query = select(studies.c.id, type_coerce(studies.c.secret, LargeBinary))
    found = {row[0]: bytes(row[1]) for row in party.context.database.read(lambda c: c.execute(query).all())}
    party.close()
    return found


def rows_of(place, *names):
    party = place.open()
    tables = {name: metadata.tables[name] for name in names}
    found = party.context.database.read(lambda c: {n: c.execute(select(t)).all() for n, t in tables.items()})
    party.close()
    return found


@pytest.fixture
def place(base, tmp_path):
    return base.copy(tmp_path / "third-party")


@pytest.fixture
def backup(place, tmp_path):
    made = back_up(place, tmp_path / "backup")
    assert made.log.intact
    return tmp_path / "backup"


# --- what comes back -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("reports_with_charts")
def test_all_is_restored_and_a_fit_ends_with_the_same_bytes(place, backup, fresh):
    restored = fresh()
    done = restore(backup, restored)
    assert done.log.intact
    assert done.is_complete
    assert done.log.entries == done.manifest.entries == done.manifest.checkpoint.size
    assert secrets_of(restored) == secrets_of(place)
    logs = [rows_of(each, "log")["log"] for each in (place, restored)]
    assert logs[1][:-1] == logs[0]
    assert (logs[1][-1].party, logs[1][-1].event, logs[1][-1].body) == ("service", "service.restored", "{}")
    before, after = place.look(), restored.look()
    for name in before.keys() - CHANGED:
        assert after[name] == before[name], name
    contents = []
    for each in (place, restored):
        party = each.open()
        assert party.work() == 1
        contents.append(party.get_bundle(ACME, "waits")[0].read_bytes())
        assert party.verify_log().intact
        party.close()
    assert contents[0] == contents[1]


def test_a_backup_moves_between_databases(sqlite_base, postgres_base, postgres_url, tmp_path):
    back_up(sqlite_base, tmp_path / "of-sqlite")
    back_up(postgres_base, tmp_path / "of-postgres")
    moved = Place(tmp_path / "to-postgres", postgres_url)
    back = Place(tmp_path / "to-sqlite")
    for backup, base, place in (("of-sqlite", sqlite_base, moved), ("of-postgres", postgres_base, back)):
        assert restore(tmp_path / backup, place).log.intact
        before, after = base.copy(tmp_path / f"copy-{backup}").look(), place.look()
        for name in before.keys() - CHANGED:
            assert after[name] == before[name], name
        party = place.open()
        with pytest.raises(Exception, match="append-only"):
            party.context.database.write(lambda c: c.execute(text("DELETE FROM log WHERE seq = 1")))
        assert party.work() == 1
        party.close()


def test_nobody_else_can_read_a_backup_or_what_is_restored(backup, fresh):
    restored = fresh()
    restore(backup, restored)
    for folder in (backup, restored.folder):
        for path in (folder, *folder.rglob("*")):
            open_to_all = 0o644 if path.name == "service.key.pub" else 0
            assert not stat.S_IMODE(path.stat().st_mode) & 0o077 & ~open_to_all, path


def test_a_file_that_is_erased_meanwhile_is_not_in_the_backup(place, tmp_path, fresh, monkeypatch):
    real, copies = _backup.dump_database, []

    def erase_after(url, path):
        version = real(url, path)
        if not copies:
            party = place.open()
            party.delete_portfolio(ACME, "old")
            party.close()
        copies.append(version)
        return version

    monkeypatch.setattr(_backup, "dump_database", erase_after)
    back_up(place, tmp_path / "backup")
    assert len(copies) == 2
    restored = fresh()
    restore(tmp_path / "backup", restored)
    party = restored.open()
    assert party.get_portfolio(ACME, "old").state == "deleted"
    party.close()
    assert sorted(path.name for path in (tmp_path / "backup" / "files").iterdir()) == restored.look()["files"]


def test_a_key_that_is_rotated_meanwhile_is_in_the_backup(place, tmp_path, fresh, monkeypatch):
    real, keys = _backup.dump_database, []

    def rotate_before(url, path):
        if not keys:
            party = place.open()
            keys.append(party.rotate_service_key().key_id)
            party.close()
        return real(url, path)

    monkeypatch.setattr(_backup, "dump_database", rotate_before)
    back_up(place, tmp_path / "backup")
    restored = fresh()
    assert restore(tmp_path / "backup", restored).log.intact
    party = restored.open()
    assert party.context.key.key_id == keys[0]
    party.close()


def test_a_folder_that_is_not_whole_is_named(place, tmp_path):
    path = next(path for path in (place.folder / "files").iterdir() if len(path.name) == 64)
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(BackupError, match=f"the content of files/{path.name} has changed"):
        back_up(place, tmp_path / "backup")
    path.unlink()
    with pytest.raises(BackupError, match=f"files/{path.name} is missing"):
        back_up(place, tmp_path / "backup")
    assert not list(tmp_path.glob("*backup*"))


def test_secrets_stay_encrypted(place, tmp_path, fresh, monkeypatch):
    plain = set(secrets_of(place).values())
    write_storage_key(tmp_path / "storage.key")
    monkeypatch.setenv(STORAGE_KEY_FILE, str(tmp_path / "storage.key"))
    stored = secrets_of(place)  # encrypted by the first start with the key
    assert not plain & set(stored.values())
    back_up(place, tmp_path / "backup")
    assert byte_search.find(tmp_path / "backup", [], [*plain, b"PRIVATE KEY"]) == set()
    with monkeypatch.context() as without:
        without.delenv(STORAGE_KEY_FILE)
        without.delenv(STORAGE_KEY, raising=False)
        with pytest.raises(StorageKeyError):
            restore(tmp_path / "backup", fresh("refused"))
        with pytest.raises(StorageKeyError):
            back_up(place, tmp_path / "another")
    assert not (tmp_path / "refused").exists()
    restored = fresh()
    restore(tmp_path / "backup", restored)
    assert secrets_of(restored) == stored


# --- a restore into a world that went on -----------------------------------------------------------------------------


def put_report(place, i, headers=None):
    """Send a report over HTTP, perhaps with an earlier signature, and return status and headers."""
    settings = ServiceSettings(folder=place.folder, database=place.database, hosts=("third.party",))
    party = place.open()
    transport = AppTransport(create_app(settings, party))
    path = f"/v1/studies/motor/reports/{bytes(name_keys(i, i + 1)[0]).hex()}"
    body = message(i).model_dump_json().encode()
    key = read_key(place.folder.parent / "app.key")
    if headers is None:
        headers = sign_request("PUT", "http://third.party" + path, {}, hashlib.sha256(body).digest(), key)
    with httpx.Client(base_url="http://third.party", transport=transport) as client:
        said = client.put(path, content=body, headers={**headers, "Content-Type": "application/json"})
    party.close()
    return said, headers


def test_no_request_is_replayed_after_a_restore(place, tmp_path, fresh):
    (tmp_path / "app.key").write_bytes((place.folder / "app.key").read_bytes())
    (tmp_path / "app.key").chmod(0o600)
    said, before = put_report(place, 550)
    assert said.status_code // 100 == 2
    back_up(place, tmp_path / "backup")
    said, after = put_report(place, 551)
    assert said.status_code // 100 == 2
    restored = fresh()
    restore(tmp_path / "backup", restored)
    for i, headers in ((550, before), (551, after)):
        said, _ = put_report(restored, i, headers)
        assert (said.status_code, said.json()["type"]) == (401, "urn:fairpremium:problem:replayed")
    time.sleep(1.0 - time.time() % 1.0)  # signatures count whole seconds
    assert put_report(restored, 551)[0].status_code // 100 == 2


def test_a_login_that_was_ended_does_not_come_back(place, tmp_path, fresh):
    party = place.open()
    Accounts(party.context).add("ann", "operator", "a long password")
    checked = Accounts(party.context).check("ann", "a long password")
    token = Logins(party.context).open("ann", checked, "127.0.0.1")
    back_up(place, tmp_path / "backup")
    found = Logins(party.context).find(token, is_visit=True)
    assert Logins(party.context).end(found.id)
    party.close()
    restored = fresh()
    restore(tmp_path / "backup", restored)
    again = restored.open()
    assert Logins(again.context).find(token, is_visit=True) is None
    assert [account.name for account in Accounts(again.context).list()] == ["ann"]
    again.close()


def test_no_epoch_has_the_number_of_one_that_is_lost(place, backup, fresh):
    restored = fresh()
    restore(backup, restored)
    shown = {}
    for name, each in (("lost", place), ("restored", restored)):
        party = each.open()
        party.put_report(APP, "motor", bytes(name_keys(560, 561)[0]), message(560))
        newest = party.get_study(OP, "motor").epochs[-1].number
        party.begin_epoch(OP, "motor", newest + 1)
        party.put_fit(ACME, "later", fit_spec(level=0.85))
        shown[name] = party.get_study(OP, "motor").epochs
        assert party.get_fit(ACME, "later").epoch == shown[name][-1].number
        party.close()
    assert {each.number for each in shown["lost"]} & {each.number for each in shown["restored"]} == {1}
    assert shown["restored"][-1].standard_error == pytest.approx(shown["lost"][-1].standard_error)


def next_epoch(place, party=None):
    """Begin the next epoch, ask for two fits of the same in it, and return its row, the seal in the log, the prices."""
    party = party or place.open()
    study = party.get_study(OP, "motor")
    party.begin_epoch(OP, "motor", study.epochs[-1].number + 1 if study.epochs else 1)
    for name in ("later", "again"):
        party.put_fit(ACME, name, fit_spec(level=0.85, release="randomized"))
    while party.work():
        pass
    trusted = [party.context.key.verify_key]
    prices = [
        load_bundle(party.get_bundle(ACME, name)[0], keys=trusted).premiums.to_pandas()["premium"].to_numpy()
        for name in ("later", "again")
    ]
    newest = select(epochs).order_by(epochs.c.number.desc()).limit(1)
    seal = select(log.c.body).where(log.c.event == "epoch.sealed").order_by(log.c.seq.desc()).limit(1)
    row, body = party.context.database.read(lambda c: (c.execute(newest).one(), c.execute(seal).scalar_one()))
    party.close()
    np.testing.assert_array_equal(*prices)  # within an epoch the same question has the same answer
    return row, body, prices[0]


def test_two_restores_of_a_backup_draw_independently(backup, fresh):
    """With equal draws, two results would tell who reported in between."""
    shown = []
    for name in ("restored-1", "restored-2"):
        place = fresh(name)
        restore(backup, place)
        shown.append(next_epoch(place))
    (one, one_seal, one_prices), (two, two_seal, two_prices) = shown
    assert (one.number, one.counted) == (two.number, two.counted)
    assert one.steps != two.steps  # the noise of the number of reports, of which the same are there
    assert one_seal != two_seal
    assert (one_prices != two_prices).mean() > 0.9


def test_a_fit_whose_snapshot_is_not_taken_begins_an_epoch_in_each_restored_copy(tmp_path, fresh):
    """Two snapshots under one number would be two draws for one charge."""
    build(tmp_path / "third-party")
    place = Place(tmp_path / "third-party")
    party = place.open(clock=lambda: time.time() + 40 * 86_400)
    party.put_fit(ACME, "later", fit_spec(level=0.85))
    number = party.get_fit(ACME, "later").epoch
    assert not party.get_study(OP, "motor").epochs[-1].counted
    party.close()
    back_up(place, tmp_path / "backup")
    restored = fresh("restored-1")
    restore(tmp_path / "backup", restored)
    party = restored.open(clock=lambda: time.time() + 40 * 86_400)
    while party.work():
        pass
    seen = party.get_fit(ACME, "later")
    assert (seen.state, seen.epoch > number) == ("succeeded", True)
    taken = party.get_study(OP, "motor").epochs
    assert number not in {epoch.number for epoch in taken}
    assert all(epoch.counted for epoch in taken)
    party.close()


def test_two_restores_of_a_backup_count_answers_with_noise_of_their_own(backup, fresh):
    steps = []
    for name in ("restored-1", "restored-2"):
        place = fresh(name)
        restore(backup, place)
        party = place.open()
        told = party.count_answers(APP, "motor")
        assert party.count_answers(APP, "motor") == told
        party.close()
        steps.append(rows_of(place, "answer_counts")["answer_counts"][0].steps)
    assert steps[0] != steps[1]


def test_a_monitor_who_saw_more_notices(place, tmp_path, fresh):
    back_up(place, tmp_path / "backup")
    party = place.open()
    party.put_fit(ACME, "more", fit_spec(level=0.85))
    seen = party.get_checkpoint()
    trusted = [party.context.key.verify_key]
    restored = fresh()
    restore(tmp_path / "backup", restored)
    again = restored.open()
    assert again.verify_log().intact
    assert not again.verify_log((seen,)).intact  # while it is shorter
    states = []
    for each in (party, again):
        settings = ServiceSettings(folder=place.folder, hosts=("third.party",))
        transport = AppTransport(create_app(settings, each))
        client = Client("http://third.party", None, transport=transport)
        found, state = audit_log(client, trusted=trusted, state=states[0] if states else None)
        states.append(state)
        assert found.intact == (each is party)
        transport.close()
    again.put_fit(ACME, "another", fit_spec(level=0.86))
    assert not again.verify_log((seen,)).intact  # and when it is as long again
    again.close()
    party.close()


def test_a_backup_after_an_erasure_has_nothing_of_it(place, tmp_path):
    withdrawn, row = (bytes(name_keys(i, i + 1)[0]) for i in (500, 10))
    back_up(place, tmp_path / "before")

    def found(backup, key):
        hits = byte_search.find(tmp_path / backup, [key])
        return {name for name in hits if not (tmp_path / backup / name).read_bytes().startswith(b"PAR1")}

    assert found("before", withdrawn)
    assert found("before", row)
    assert byte_search.find(tmp_path / "before", [bytes(16)], [b"PAR1"])
    party = place.open()
    party.cancel_fit(ACME, "waits")
    for key in (withdrawn, row):
        party.withdraw_report(APP, "motor", key)
    party.withdraw_now(OP, "motor")
    for name in ("sealed", "open", "full", "old"):
        party.delete_portfolio(ACME, name)
    clean(party.context)
    party.close()
    back_up(place, tmp_path / "after")
    assert found("after", withdrawn) == found("after", row) == set()
    assert byte_search.find(tmp_path / "after", [], [b"PAR1"]) == set()


# --- older versions --------------------------------------------------------------------------------------------------


def test_a_database_of_an_earlier_version_is_left_as_it_is(sqlite_base, tmp_path):
    place = sqlite_base.copy(tmp_path / "third-party")
    party = place.open()
    party.context.database.write(lambda c: downgrade(c, 4))
    party.close()
    before = (place.folder / "fairpremium.sqlite").read_bytes()
    made = back_up(place, tmp_path / "backup")
    assert (made.manifest.schema_version, made.manifest.checkpoint) == (4, None)
    assert (place.folder / "fairpremium.sqlite").read_bytes() == before
    restored = Place(tmp_path / "restored")
    done = restore(tmp_path / "backup", restored)
    assert done.log.intact
    assert not done.is_complete
    copies = [folder / "fairpremium.sqlite" for folder in (tmp_path / "backup", restored.folder)]
    kept, marked = (list(sqlite3.connect(path).iterdump()) for path in copies)
    assert {line.split("'")[1] for line in set(marked) - set(kept)} == {"restored", "restored-earlier-version"}
    assert set(kept) <= set(marked)
    party = restored.open()
    assert party.context.restored > 0.0
    assert party.work() == 1
    party.close()


def test_a_restored_database_of_an_earlier_version_goes_on_as_any_other(tmp_path):
    """What 0.1.0 wrote: original and copy have the same secret, and both begin their first epochs."""
    place = Place(tmp_path / "third-party")
    with zipfile.ZipFile(Path(__file__).parents[2] / "data" / "0.1.0" / "third-party.zip") as archive:
        archive.extractall(place.folder)
    for key in place.folder.glob("*.key"):
        key.chmod(0o600)
    back_up(place, tmp_path / "backup")
    shown = []
    for name in ("restored-1", "restored-2"):
        restored = Place(tmp_path / name)
        assert not restore(tmp_path / "backup", restored).is_complete
        shown.append(next_epoch(restored))
        for _ in range(2):  # the second start finds nothing left to do
            party = restored.open()
            assert party.verify_log().intact
            assert party.context.restored > 0.0
            party.close()
        told = [row.event for row in rows_of(restored, "log")["log"]]
        assert told.count("service.restored") == 1
    (one, _, one_prices), (two, _, two_prices) = shown
    assert (one.number, one.counted) == (two.number, two.counted) == (1001, one.counted)
    assert one.steps != two.steps
    assert (one_prices != two_prices).mean() > 0.9


def test_an_older_postgresql_is_refused(postgres_base, tmp_path):
    place = postgres_base.copy(tmp_path / "third-party")
    party = place.open()
    party.context.database.write(lambda c: downgrade(c, 4))
    party.close()
    with pytest.raises(DatabaseCopyError, match=f"schema version 4, but expected version {SCHEMA_VERSION}"):
        back_up(place, tmp_path / "backup")
    assert not list(tmp_path.glob("*backup*"))


# --- damage and hostile backups --------------------------------------------------------------------------------------


@pytest.fixture
def made(sqlite_base, tmp_path):
    """A backup, and a function that tries to restore it."""
    back_up(sqlite_base, tmp_path / "backup")

    def refuse(match):
        with pytest.raises(BackupError, match=match):
            restore(tmp_path / "backup", Place(tmp_path / "restored"))
        assert {path.name for path in tmp_path.iterdir()} - {"backup"} == set()

    return tmp_path / "backup", refuse


def test_every_file_that_was_changed_is_named(made):
    backup, refuse = made
    names = json.loads((backup / "manifest.json").read_bytes())["files"]
    assert len(names) > 8
    for name in names:
        path = backup / name
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        refuse(f"damaged: {name}")
        path.write_bytes(content + b" ")
        refuse(f"damaged: {name}")
        path.unlink()
        refuse(f"{name} is missing")
        path.symlink_to("/etc/hostname")
        refuse(f"link in the place of {name}")
        path.unlink()
        path.write_bytes(content)


def rewrite(backup, change, key=None):
    """Change the manifest, perhaps with a signature."""
    path = backup / "manifest.json"
    document = json.loads(path.read_bytes())
    change(document)
    path.write_bytes(json.dumps(document).encode())
    if key is not None:
        signature = base64.b64encode(key.sign(_PREFIX + path.read_bytes()))
        (backup / "manifest.sig").write_bytes(signature)


def test_a_manifest_that_the_service_did_not_sign_is_refused(made):
    backup, refuse = made
    rewrite(backup, lambda d: d.update(entries=3))
    refuse("not signed by the key of its service")
    rewrite(backup, lambda d: None, new_key())
    refuse("not signed by the key of its service")
    (backup / "manifest.sig").unlink()
    refuse("not signed by the key of its service")
    (backup / "manifest.json").write_bytes(b"{")
    refuse("was changed or is of another version")
    (backup / "manifest.json").unlink()
    refuse("expected a folder that `fairpremium backup` wrote")


@pytest.mark.parametrize("name", ["../evil", "files/../evil", "/evil", "files/" + "a" * 63, "files/" + "A" * 64, ""])
def test_a_name_that_leads_elsewhere_is_refused_even_if_it_is_signed(made, sqlite_base, name):
    backup, refuse = made
    content = {"sha256": "a" * 64, "size": 0}
    rewrite(backup, lambda d: d["files"].update({name: content}), read_key(sqlite_base.folder / "service.key"))
    refuse("names a file that no backup has")


@pytest.mark.parametrize("name", ["fairpremium.sqlite", "service.key"])
def test_a_manifest_without_database_or_key_is_refused(made, sqlite_base, name):
    backup, refuse = made
    rewrite(backup, lambda d: d["files"].pop(name), read_key(sqlite_base.folder / "service.key"))
    refuse(f"does not name {name}")


def test_a_manifest_that_leaves_out_a_file_is_refused(made, sqlite_base):
    backup, refuse = made
    name = max(json.loads((backup / "manifest.json").read_bytes())["files"], key=len)
    rewrite(backup, lambda d: d["files"].pop(name), read_key(sqlite_base.folder / "service.key"))
    refuse(f"lacks {name}")


def test_a_log_that_was_changed_is_found(made, sqlite_base, tmp_path):
    """By somebody who has the key, too: the checkpoint is what the service signed."""
    backup, _ = made
    key = read_key(sqlite_base.folder / "service.key")
    rewrite(backup, lambda d: d["checkpoint"].update(root="0" * 64), key)
    found = restore(backup, Place(tmp_path / "restored")).log
    assert (found.intact, found.first_bad) == (False, found.entries)


# --- places ----------------------------------------------------------------------------------------------------------


def test_nothing_is_overwritten(place, backup, fresh, tmp_path):
    with pytest.raises(BackupError, match="exists and is not overwritten"):
        back_up(place, backup)
    taken = fresh("taken")
    taken.folder.mkdir()
    restore(backup, taken)  # an empty folder is fresh
    with pytest.raises(BackupError, match="is not empty"):
        restore(backup, taken)
    if place.database:
        with pytest.raises(DatabaseCopyError, match="expected an empty one"):
            restore(backup, Place(tmp_path / "another", taken.database))
        assert not (tmp_path / "another").exists()
    with pytest.raises(BackupError, match="There is no folder"):
        back_up(place, tmp_path / "nowhere" / "backup")
    with pytest.raises(BackupError, match=r"There is no service\.key"):
        make_backup(tmp_path / "empty", tmp_path / "another")


def test_what_another_user_left_does_not_stop_a_backup():
    """A folder of root beside the target, half made, which the service's user cannot even open."""
    if os.geteuid() != 0:
        pytest.skip("only root can be two users: run the tests as root")
    script = """
import os, sys
from pathlib import Path
from fairpremium.parties.backup._new_folder import new_folder
os.setgid(65534)
os.setuid(65534)
with new_folder(Path(sys.argv[1]) / "new") as draft:
    (draft / "x").touch()
"""
    with tempfile.TemporaryDirectory() as folder:
        os.chown(folder, 65534, 65534)
        left = Path(folder) / ".old.fairpremium-incomplete"
        left.mkdir(mode=0o700)
        done = subprocess.run([sys.executable, "-c", script, folder], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert (Path(folder) / "new" / "x").exists()
        assert left.exists()
