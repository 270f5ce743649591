"""The database and the log: nothing half written, nobody in each other's way, tampering located."""

from __future__ import annotations

import threading

import pytest
from sqlalchemy import delete, func, insert, select, update

from fairpremium.parties.protocol._checkpoints import leaf_of
from fairpremium.parties.protocol._key_chain import KeyChain
from fairpremium.parties.protocol._keys import new_key
from fairpremium.parties.protocol._merkle import check_consistency, check_inclusion
from fairpremium.parties.protocol._problems import Problem
from fairpremium.parties.service import ThirdParty
from fairpremium.parties.store import _database
from fairpremium.parties.store._database import Database, Writer, sqlite_url
from fairpremium.parties.store.log import (
    append,
    read_consistency,
    read_inclusion,
    read_page,
    sign_checkpoint,
    store_checkpoint,
    verify_log,
)
from fairpremium.parties.store.schema import UnknownSchemaError, log, log_head, meta, nonces
from helpers.old_schema import unlock_log


def add_nonce(name):
    return lambda c: c.execute(insert(nonces).values(key_id="k", nonce=name, expires=0.0))


def count(database):
    return database.read(lambda c: c.execute(select(func.count()).select_from(nonces)).scalar())


def test_a_transaction_that_fails_leaves_nothing(database):
    def fails(connection):
        add_nonce("a")(connection)
        raise Problem("conflict")

    with pytest.raises(Problem):
        database.write(fails)
    assert count(database) == 0


def test_one_command_of_a_batch_may_fail_alone(database):
    def fails(connection):
        add_nonce("b")(connection)
        raise Problem("conflict")

    results = database.write_all([add_nonce("a"), fails, add_nonce("a"), add_nonce("c")])
    assert isinstance(results[1], Problem)
    assert isinstance(results[2], Exception)  # the nonce is there already
    assert count(database) == 2


def test_the_writer_commits_what_many_threads_ask_for(database):
    writer = Writer(database)
    futures = []

    def ask(i):
        futures.append(writer.submit(add_nonce(f"n{i}")))

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for future in futures:
        future.result(timeout=120)
    with pytest.raises(Exception, match=r"UNIQUE|unique"):
        writer.submit(add_nonce("n1")).result(timeout=120)
    writer.close()
    assert count(database) == 100


def test_eight_writers_on_one_database_lose_nothing(database_url, tmp_path):
    databases = [Database(database_url) for _ in range(8)]
    failures = []

    def work(database, w):
        try:
            for i in range(25):
                database.write(add_nonce(f"{w}-{i}"))
                database.write(lambda c: append(c, 0.0, "p", "event"))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(database, w)) for w, database in enumerate(databases)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert count(databases[0]) == 200
    key = new_key()
    assert databases[0].read(lambda c: verify_log(c, KeyChain(key.verify_key))) == (200, True, None, "")
    for database in databases:
        database.close()


def test_a_database_of_another_version_is_refused(database_url):
    database = Database(database_url)
    database.write(lambda c: c.execute(update(meta).values(value="99")))
    database.close()
    with pytest.raises(UnknownSchemaError, match="99"):
        Database(database_url)


def test_files_without_their_database_are_refused(tmp_path):
    party = ThirdParty(tmp_path)
    party.context.files.put(b"rows")
    party.close()
    ThirdParty(tmp_path).close()
    for path in tmp_path.glob("fairpremium.sqlite*"):
        path.write_bytes(b"")  # as after a disk that broke
    for _ in range(2):  # the refusal makes no tables
        with pytest.raises(UnknownSchemaError, match="restore a backup"):
            ThirdParty(tmp_path)


# --- the log ---


@pytest.fixture
def filled(database):
    for i in range(1, 8):
        database.write(lambda c, i=i: append(c, float(i), "insurer" if i % 2 else "collector", "event", i=i))
    return database


def chain_of(key):
    return KeyChain(key.verify_key)


NOBODY = chain_of(new_key())


@pytest.mark.parametrize(
    "change",
    [lambda: update(log).where(log.c.seq == 3).values(event="x"), lambda: delete(log).where(log.c.seq == 3)],
    ids=["update", "delete"],
)
def test_the_database_refuses_to_change_the_log(filled, change):
    with pytest.raises(Exception, match="append-only"):
        filled.write(lambda c: c.execute(change()))
    assert filled.read(lambda c: verify_log(c, NOBODY)).intact


@pytest.mark.parametrize("column", ["time", "party", "event", "body", "salt", "nodes"])
def test_a_changed_entry_is_named(filled, column):
    values = {"body": '{"i": 99}', "salt": bytes(16), "nodes": bytes(96)}
    filled.write(unlock_log)
    filled.write(lambda c: c.execute(update(log).where(log.c.seq == 4).values({column: values.get(column, "x")})))
    found = filled.read(lambda c: verify_log(c, NOBODY))
    assert not found.intact
    assert found.first_bad == 4


@pytest.mark.parametrize(("seq", "named"), [(1, 1), (4, 4), (7, 7)])
def test_a_missing_entry_is_named(filled, seq, named):
    filled.write(unlock_log)
    filled.write(lambda c: c.execute(delete(log).where(log.c.seq == seq)))
    found = filled.read(lambda c: verify_log(c, NOBODY))
    assert (found.intact, found.first_bad) == (False, named)


def test_a_log_that_was_rewritten_as_a_whole_contradicts_a_signed_checkpoint(filled):
    key = new_key()
    before = filled.read(lambda c: sign_checkpoint(c, key))
    filled.write(unlock_log)
    filled.write(lambda c: c.execute(delete(log)))
    filled.write(lambda c: c.execute(update(log_head).values(seq=0, peaks=b"")))
    for i in range(1, 8):
        filled.write(lambda c, i=i: append(c, float(i), "insurer", "another", i=i))
    assert filled.read(lambda c: verify_log(c, chain_of(key))).intact  # the tree alone cannot tell
    found = filled.read(lambda c: verify_log(c, chain_of(key), [before]))
    assert (found.intact, found.first_bad) == (False, 7)


def test_a_cut_off_end_contradicts_a_stored_checkpoint(filled):
    key = new_key()
    filled.write(lambda c: store_checkpoint(c, key, 6))
    filled.write(unlock_log)
    filled.write(lambda c: c.execute(delete(log).where(log.c.seq >= 5)))
    peak = filled.read(lambda c: c.execute(select(log.c.nodes).where(log.c.seq == 4)).scalar())[64:]
    filled.write(lambda c: c.execute(update(log_head).values(seq=4, peaks=peak)))
    found = filled.read(lambda c: verify_log(c, chain_of(key)))
    assert (found.intact, found.first_bad) == (False, 6)


def test_a_checkpoint_of_another_key_is_not_believed(filled):
    strange = filled.read(lambda c: sign_checkpoint(c, new_key()))
    assert not filled.read(lambda c: verify_log(c, NOBODY, [strange])).intact


def test_a_party_reads_its_own_entries_and_an_auditor_all(filled):
    key = new_key()
    own = filled.read(lambda c: read_page(c, 0, "collector", key))
    assert [entry.seq for entry in own.entries] == [2, 4, 6]
    everything = filled.read(lambda c: read_page(c, 2, None, key))
    assert [entry.seq for entry in everything.entries] == [3, 4, 5, 6, 7]
    assert everything.checkpoint.size == 7


def test_an_entry_that_was_changed_with_its_hashes_is_named_by_the_tree_above(filled):
    """Somebody changes entry 3 and its leaf; the nodes above, in later entries, tell."""

    def change(connection):
        page = read_page(connection, 2, None, new_key())
        entry = {**page.entries[0].model_dump(), "party": "nobody"}
        connection.execute(update(log).where(log.c.seq == 3).values(party="nobody", nodes=leaf_of(entry)))

    filled.write(unlock_log)
    filled.write(change)
    found = filled.read(lambda c: verify_log(c, NOBODY))
    assert (found.intact, found.first_bad, found.entries) == (False, 3, 3)


def test_a_last_entry_that_was_changed_with_its_hashes_is_named_by_the_end(filled):
    def change(connection):
        (entry,) = read_page(connection, 6, None, new_key()).entries
        changed = leaf_of({**entry.model_dump(), "event": "x"})
        connection.execute(update(log).where(log.c.seq == 7).values(event="x", nodes=changed))

    filled.write(unlock_log)
    filled.write(change)
    found = filled.read(lambda c: verify_log(c, NOBODY))
    assert (found.intact, found.first_bad) == (False, 7)


def test_proofs_hold_for_every_pair_and_read_few_entries(database):
    n = 70
    database.write(lambda c: [append(c, float(i), "p", "event", i=i) for i in range(n)])
    key = new_key()
    points = [None, *(database.read(lambda c, i=i: sign_checkpoint(c, key, i)) for i in range(1, n + 1))]
    assert points[n] == database.read(lambda c: sign_checkpoint(c, key))
    roots = [b"", *(bytes.fromhex(point.root) for point in points[1:])]
    page = database.read(lambda c: read_page(c, 0, None, key))
    for i in (1, 2, 31, 32, 33, 64, 69, 70):
        proof = database.read(lambda c, i=i: read_consistency(c, i, n))
        assert check_consistency(i, n, roots[i], roots[n], proof)
        path = database.read(lambda c, i=i: read_inclusion(c, i, n))
        assert check_inclusion(leaf_of(page.entries[i - 1].model_dump()), i - 1, n, roots[n], path)
        assert len(path) <= 7


def test_equal_entries_have_different_hashes(database):
    """Who sees the hash of another party's entry in a proof cannot find by trying what it says."""
    database.write(lambda c: [append(c, 0.0, "p", "event") for _ in range(2)])
    first, second = database.read(lambda c: c.execute(select(log.c.salt, log.c.nodes).order_by(log.c.seq)).all())
    assert len(first.salt) == 16
    assert first.salt != second.salt
    assert first.nodes != second.nodes[:32]


def test_nothing_that_was_deleted_is_left_on_disk(tmp_path):
    """In the file and in the write-ahead log of SQLite; without `scrub` it would be in the log."""
    database = Database(sqlite_url(tmp_path / "test.sqlite"))
    rows = [{"name": f"canary {i:06}", "value": "x" * 50} for i in range(2000)]
    database.write(lambda c: c.execute(insert(meta), rows))
    database.write(lambda c: c.execute(delete(meta).where(meta.c.name.like("canary%"), meta.c.name != "canary 000777")))

    def found():
        return {p.name for p in tmp_path.iterdir() if b"canary 000778" in p.read_bytes()}

    assert found()
    assert database.scrub(meta)
    assert found() == set()
    kept = database.read(lambda c: c.execute(select(meta.c.name).where(meta.c.name.like("canary%"))).scalars().all())
    assert kept == ["canary 000777"]
    database.close()


def test_a_busy_database_is_not_scrubbed_but_later(tmp_path, monkeypatch):
    monkeypatch.setattr(_database, "_BUSY_MS", 50)
    database = Database(sqlite_url(tmp_path / "test.sqlite"))
    with database._engine.begin() as connection:
        connection.execute(insert(meta).values(name="x", value="y"))
        assert database.scrub(meta) is False
    assert database.scrub(meta) is True
    database.close()
