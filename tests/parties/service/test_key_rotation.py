"""Keys that change: the service's own, those of parties, secrets of studies, and the key that encrypts them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from sqlalchemy import LargeBinary, insert, select, type_coerce

from fairpremium.parties.protocol._invitations import invitation_key, read_token, write_token
from fairpremium.parties.protocol._key_chain import KeyChain, read_trusted_keys, unpack_keys
from fairpremium.parties.protocol._keys import new_key
from fairpremium.parties.protocol._problems import Problem
from fairpremium.parties.protocol._storage_key import (
    STORAGE_KEY,
    STORAGE_KEY_FILE,
    StorageKeyError,
    is_sealed,
    write_storage_key,
)
from fairpremium.parties.service._context import replace_lost_key
from fairpremium.parties.service._third_party import ThirdParty
from fairpremium.parties.service.keys._key_ring import ServiceKeyError
from fairpremium.parties.store.schema import fits, keys, sent_batches, studies
from helpers import byte_search
from helpers.places import ACME, APP, OP, STUDY
from helpers.wire import Clock


@pytest.fixture(autouse=True)
def no_storage_key(monkeypatch):
    for name in (STORAGE_KEY, STORAGE_KEY_FILE):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def opened(tmp_path, database_url, clock):
    """Opens the same third party again and again."""
    open_ones = []

    def open_it(**options):
        party = ThirdParty(tmp_path / "third-party", database=database_url, clock=clock, **options)
        open_ones.append(party)
        return party

    yield open_it
    for party in open_ones:
        party.close()


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "third-party"


# --- the service's key ---


def test_old_checkpoints_and_the_log_stay_verifiable(opened, folder):
    party = opened()
    first = party.context.key
    before = party.get_checkpoint()
    party.put_study(OP, "motor", STUDY)
    second = party.rotate_service_key()
    between = party.get_checkpoint()
    third = party.rotate_service_key()
    after = party.get_checkpoint()
    assert [point.key_id for point in (before, between, after)] == [first.key_id, second.key_id, third.key_id]
    assert party.verify_log((before, between, after)).intact
    assert opened().verify_log((before, between, after)).intact
    assert [key.key_id for key in party.public_keys()] == [first.key_id, second.key_id, third.key_id]
    assert read_trusted_keys(folder / "service.key.pub").keys == third.chain.keys
    events = [entry.event for entry in party.get_log(OP).entries]
    assert events == ["study.declared", "service.key.rotated", "service.key.rotated"]


def test_the_old_secret_is_gone_and_other_processes_take_up_the_new_key(opened, folder):
    first, other = opened(), opened()
    old = other.context.key
    new = first.rotate_service_key()
    kept, openers = unpack_keys((folder / "service.key").read_bytes())
    assert [key.public_key for key in kept] == [new.public_key]
    assert len(openers) == 1
    assert other.context.key.public_key == new.public_key != old.public_key
    assert other.get_checkpoint().key_id == new.key_id
    assert other.get_log(OP).checkpoint.key_id == new.key_id


def test_invitations_that_are_out_stay_open(opened):
    party = opened()
    collector = new_key()
    token = write_token(collector, invitation_key(party.context.key), study="motor", key=bytes(16), expires=9)
    for _ in range(3):
        party.rotate_service_key()
    assert read_token(token, party.context.key).study == "motor"
    assert read_token(token, opened().context.key).study == "motor"


def test_a_checkpoint_by_an_old_key_of_a_later_log_is_not_believed(opened):
    from fairpremium.parties.store.log import sign_checkpoint

    party = opened()
    old = party.context.key
    party.rotate_service_key()
    party.put_study(OP, "motor", STUDY)
    forged = party.context.database.read(lambda c: sign_checkpoint(c, old))
    found = party.verify_log((forged,))
    assert (found.intact, found.reason) == (False, "a checkpoint is signed by a key that was no longer in force")


ROTATE = (
    "import sys; from fairpremium.parties.service._third_party import ThirdParty; "
    "ThirdParty(sys.argv[1], database=sys.argv[2]).rotate_service_key()"
)


@pytest.mark.parametrize(
    ("point", "is_new"),
    [("service_key.written", False), ("database.before_commit:2", None), ("service_key.rotated", True)],
)
def test_a_rotation_that_is_killed_leaves_one_key_in_force(opened, folder, database_url, point, is_new):
    party = opened()
    old = party.context.key
    environment = {**os.environ, "FAIRPREMIUM_KILL_AT": point}
    done = subprocess.run([sys.executable, "-c", ROTATE, folder, database_url], env=environment, check=False)
    assert done.returncode == -9
    again = opened()
    kept, openers = unpack_keys((folder / "service.key").read_bytes())
    assert [key.public_key for key in kept] == [again.context.key.public_key]
    if is_new is not None:
        assert (again.context.key.public_key != old.public_key) == is_new
        assert len(openers) == is_new
    assert read_trusted_keys(folder / "service.key.pub").current == again.context.key.verify_key
    assert again.verify_log().intact
    again.rotate_service_key()
    assert again.verify_log((again.get_checkpoint(),)).intact


def test_a_lost_key_is_named_and_can_be_replaced(opened, folder, database_url, clock):
    party = opened()
    old, before = party.context.key, party.get_checkpoint()
    with pytest.raises(ServiceKeyError, match="rotate it without --lost"):
        replace_lost_key(folder, database=database_url, clock=clock)
    (folder / "service.key").unlink()
    with pytest.raises(ServiceKeyError, match=rf"{old.key_id}, is not in service.key.*--lost"):
        opened()
    assert not (folder / "service.key").exists()
    new = replace_lost_key(folder, database=database_url, clock=clock)
    again = opened()
    assert again.context.key.public_key == new.public_key
    assert again.verify_log((before, again.get_checkpoint())).intact  # the new key vouches for the old one
    assert KeyChain(old.verify_key).follow(new.chain).keys == (old.verify_key,)  # and not the other way round


# --- keys of parties ---


def test_two_keys_of_a_party_overlap_until_a_date(opened, clock):
    party = opened()
    old, new = new_key(), new_key()
    party.add_key(old.public_key, party="acme", role="insurer")
    with pytest.raises(ValueError, match="expected a party with a key in force"):
        party.rotate_party_key(new.public_key, party="nobody", ends=clock() + 10)
    found = party.rotate_party_key(new.public_key, party="acme", ends=clock() + 10)
    assert {key.key_id: key.ends for key in found} == {old.key_id: clock() + 10, new.key_id: None}
    assert active(party) == {old.key_id, new.key_id}
    clock.now += 9.9
    assert active(party) == {old.key_id, new.key_id}
    clock.now += 0.1
    assert active(party) == {new.key_id}
    assert party.known_keys()[new.key_id][:2] == ("acme", "insurer")
    assert [entry.event for entry in party.get_log(ACME).entries] == ["key.added", "key.added", "key.ends"]
    with pytest.raises(ValueError, match="Got a revoked key"):
        party.add_key(old.public_key, party="acme", role="insurer")


def test_an_end_only_comes_closer_and_a_key_that_ends_can_be_revoked_before(opened, clock):
    party = opened()
    first, second, third = new_key(), new_key(), new_key()
    party.add_key(first.public_key, party="acme", role="insurer")
    party.rotate_party_key(second.public_key, party="acme", ends=clock() + 10)
    found = party.rotate_party_key(third.public_key, party="acme", ends=clock() + 100)
    ends = {key.key_id: key.ends for key in found}
    assert ends == {first.key_id: clock() + 10, second.key_id: clock() + 100, third.key_id: None}
    party.revoke_key(second.key_id)
    assert active(party) == {first.key_id, third.key_id}
    again = party.rotate_party_key(third.public_key, party="acme", ends=clock() + 5)  # the same key: others end sooner
    assert {key.key_id: key.ends for key in again} == {first.key_id: clock() + 5, third.key_id: None}


# --- secrets of studies ---


def secret_of(party, study="motor", *, raw=False):
    column = type_coerce(studies.c.secret, LargeBinary) if raw else studies.c.secret
    return bytes(party.context.database.read(lambda c: c.execute(select(column).where(studies.c.id == study)).scalar()))


def test_a_secret_changes_while_nothing_was_drawn(opened):
    party = opened()
    party.put_study(OP, "motor", STUDY)
    before = secret_of(party)
    party.rotate_study_secret("motor")
    assert secret_of(party) != before
    with pytest.raises(ValueError, match="expected the id of a study"):
        party.rotate_study_secret("absent")


def test_a_secret_stays_as_soon_as_something_may_have_been_drawn(opened):
    party = opened()
    party.put_study(OP, "motor", STUDY)
    before = secret_of(party)
    row = {"party": "acme", "id": "f", "study": "motor", "portfolio": "p", "spec": "{}", "state": "queued"}

    def ask(connection):
        from fairpremium.parties.store.schema import portfolios

        values = {"party": "acme", "id": "p", "study": "motor", "spec": "{}", "state": "sealed", "created": 0.0}
        connection.execute(insert(portfolios).values(**values))
        connection.execute(insert(fits).values(**row, log_seq=1, created=0.0))

    party.context.database.write(ask)
    with pytest.raises(ValueError, match=r"would draw it a second time.*declare another"):
        party.rotate_study_secret("motor")
    assert secret_of(party) == before


def test_a_secret_stays_once_a_batch_of_reports_was_taken(opened):
    party = opened()
    party.put_study(OP, "motor", STUDY)
    before = secret_of(party)
    row = {"study": "motor", "collector": "app", "n": 0, "sha256": "0" * 64, "rows": 1}
    party.context.database.write(lambda c: c.execute(insert(sent_batches).values(**row)))
    with pytest.raises(ValueError, match="sent again was taken"):
        party.rotate_study_secret("motor")
    assert secret_of(party) == before


# --- encrypted at rest ---


def contents(folder):
    """All bytes of a folder but those of the collected files."""
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


@pytest.fixture
def storage(tmp_path, monkeypatch):
    """Two storage keys; the first one is given."""
    paths = [tmp_path / name for name in ("one.key", "two.key")]
    for path in paths:
        write_storage_key(path)

    def give(*which):
        text = "".join(paths[i].read_text() for i in which)
        if text:
            monkeypatch.setenv(STORAGE_KEY, text)
        else:
            monkeypatch.delenv(STORAGE_KEY, raising=False)

    give(0)
    return give


def test_nothing_plain_is_stored(opened, folder, storage):
    party = opened()
    party.put_study(OP, "motor", STUDY)
    secret = secret_of(party)
    assert len(secret) == 32
    assert is_sealed(secret_of(party, raw=True))
    party.rotate_service_key()
    assert is_sealed((folder / "service.key").read_bytes())
    assert b"PRIVATE KEY" not in contents(folder)
    assert secret not in contents(folder)
    again = opened()
    assert secret_of(again) == secret
    assert again.verify_log((party.get_checkpoint(),)).intact


def test_a_plain_folder_is_encrypted_at_the_next_start(opened, folder, storage, request):
    storage()
    party = opened()
    for i in range(5):
        party.put_study(OP, f"study-{i}", STUDY)
    key, secrets = party.context.key, [secret_of(party, f"study-{i}") for i in range(5)]
    is_sqlite = party.context.database.dialect == "sqlite"
    if not is_sqlite:  # the server keeps samples of columns
        party.context.database.write(lambda c: c.exec_driver_sql("ANALYZE"))
    party.close()
    if is_sqlite:
        database = (folder.parent / "test.sqlite").read_bytes()
        assert all(secret in database for secret in secrets)
    storage(0)
    again = opened()
    assert [secret_of(again, f"study-{i}") for i in range(5)] == secrets
    assert again.context.key.public_key == key.public_key
    assert b"PRIVATE KEY" not in contents(folder)
    assert all(is_sealed(secret_of(again, f"study-{i}", raw=True)) for i in range(5))
    if is_sqlite:  # neither in free pages nor in the write-ahead log
        files = b"".join(path.read_bytes() for path in folder.parent.glob("test.sqlite*"))
        assert not any(secret in files for secret in secrets)
    else:
        server = request.getfixturevalue("postgres")
        server.execute("CHECKPOINT")
        assert byte_search.find(server.folder / "data" / "base", [], secrets) == set()


@pytest.mark.parametrize(("given", "why"), [((), "no storage key was given"), ((1,), "another storage key")])
def test_without_the_right_storage_key_nothing_opens_and_nothing_changes(opened, folder, storage, given, why):
    party = opened()
    party.put_study(OP, "motor", STUDY)
    party.close()
    before = contents(folder)
    storage(*given)
    with pytest.raises(StorageKeyError, match=why):
        opened()
    assert contents(folder) == before
    (folder / "service.key").rename(folder.parent / "elsewhere")  # the database tells it, too
    with pytest.raises(StorageKeyError, match=why):
        opened()
    assert not (folder / "service.key").exists()


def test_the_storage_key_is_changed_by_a_line_above_the_old_one(opened, folder, storage):
    party = opened()
    party.put_study(OP, "motor", STUDY)
    secret, key = secret_of(party), party.context.key
    party.close()
    storage(1, 0)
    opened().close()
    storage(1)
    again = opened()
    assert (secret_of(again), again.context.key.public_key) == (secret, key.public_key)
    storage(0)
    with pytest.raises(StorageKeyError, match="another storage key"):
        opened()


def test_ends_of_keys_hold_for_invitations_too(opened, clock):
    """A token of a collector whose key has ended opens nothing."""
    party = opened()
    old, new = new_key(), new_key()
    party.add_key(old.public_key, party="app", role="collector")
    party.put_study(OP, "motor", STUDY)
    party.open_study(OP, "motor")
    sealed_to = party.get_study(APP, "motor").invitation_key
    expires = int(clock()) + 1000
    token = write_token(old, sealed_to, study="motor", key=bytes(16), expires=expires)
    party.rotate_party_key(new.public_key, party="app", ends=clock() + 100)
    assert party.find_invitation(token) is not None
    clock.now += 101
    assert party.find_invitation(token) is None
    assert party.find_invitation(write_token(new, sealed_to, study="motor", key=bytes(16), expires=expires)) is not None


def test_a_party_cannot_read_proofs_of_entries_of_others(opened):
    party = opened()
    key = new_key()
    party.add_key(key.public_key, party="acme", role="insurer")
    party.put_study(OP, "motor", STUDY)
    assert party.get_inclusion(ACME, 1, 2).hashes
    for entry, size in ((2, 2), (1, 3), (2, 1), (9, 9)):
        with pytest.raises(Problem, match="no such thing"):
            party.get_inclusion(ACME, entry, size)
    assert party.get_inclusion(OP, 2, 2).hashes
    assert party.context.database.read(lambda c: c.execute(select(keys.c.ends)).scalar()) is None


def active(party):
    """The ids of the keys in force."""
    return {key_id for key_id, known in party.known_keys().items() if known.is_active}
