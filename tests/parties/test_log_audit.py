"""The log, checked from outside over HTTP: a service that forks, rewrites, hides or shortens its log is found."""

from __future__ import annotations

import httpx
import pytest
from sqlalchemy import delete, update

from fairpremium.parties.clients._client import Client
from fairpremium.parties.clients._log_audit import AuditState, audit_log
from fairpremium.parties.protocol._checkpoints import sign_root
from fairpremium.parties.protocol._key_chain import KeyChain
from fairpremium.parties.protocol._keys import new_key
from fairpremium.parties.protocol._messages import LogPage, LogProof
from fairpremium.parties.store.log import append
from fairpremium.parties.store.schema import log, log_head
from helpers.old_schema import downgrade, unlock_log

from .conftest import Parties

TREE = "the log up to it is not what the service signed before"


def fill(parties, n, **body):
    for i in range(n):
        parties.context.database.write(lambda c, i=i: append(c, float(i), "acme", "event", i=i, **body))


@pytest.fixture
def outside(parties):
    """A client without a key."""
    fill(parties, 20)
    return Client("http://third.party", None, transport=parties.transport)


def trusted(parties):
    return [parties.context.key.verify_key]


def rewrite(parties, change):
    """Write the log anew from some entry on, with all hashes right, as who has the database in hands can."""
    entries = [entry for page in parties.auditor.log() for entry in page.entries]

    def run(connection):
        unlock_log(connection)
        connection.execute(delete(log))
        connection.execute(update(log_head).values(seq=0, peaks=b""))
        for entry in change(entries):
            append(connection, 0.0, entry.party, entry.event, **entry.body)

    parties.context.database.write(run)


def test_a_log_that_grows_is_intact(parties, outside):
    state = None
    for before in (None, 24, 25, 25, 42):
        found, state = audit_log(outside, trusted=trusted(parties), state=state)
        assert (found.intact, found.before) == (True, before)
        assert found.entries == state.checkpoint.size
        if before is None:
            fill(parties, 1)
        elif found.before == found.entries:
            fill(parties, 17)
    assert AuditState.model_validate_json(state.model_dump_json()) == state


@pytest.mark.parametrize(
    ("change", "first_bad", "reason"),
    [
        (lambda e: [x.model_copy(update={"event": "x"}) if x.seq == 9 else x for x in e], 24, TREE),
        (lambda e: [x.model_copy(update={"event": "x"}) if x.seq == 9 else x for x in e] + e, 24, TREE),
        (lambda e: e[:9] + e[10:] + e[:5], 24, TREE),
        (lambda e: e[:20], 21, "the log is shorter than it was: 24 entries were signed"),
        (lambda e: [], 1, "the log is shorter than it was: 24 entries were signed"),
        (lambda e: e, 24, TREE),  # the same again, with other salts
    ],
    ids=["one entry", "one entry and more", "one left out", "cut off", "empty", "written anew"],
)
def test_a_rewritten_log_contradicts_what_was_kept(parties, outside, change, first_bad, reason):
    _, state = audit_log(outside, trusted=trusted(parties))
    rewrite(parties, change)
    assert parties.third_party.verify_log().intact  # from inside nothing is seen
    found, kept = audit_log(outside, state=state)
    assert (found.intact, found.first_bad, found.reason) == (False, first_bad, reason)
    assert kept is None
    assert found.signed[0] == state.checkpoint.model_dump()  # both are signed by the service: the evidence
    assert len(found.signed) == 2
    assert audit_log(outside, trusted=trusted(parties))[0].intact  # who kept nothing sees nothing


def test_two_auditors_who_were_shown_two_logs_find_out(parties, outside):
    """A fork: each of them sees a log that is right in itself."""
    _, shared = audit_log(outside, trusted=trusted(parties))
    fill(parties, 3, side=1)
    _, one = audit_log(outside, state=shared)
    begun = shared.checkpoint.size
    rewritten = parties.auditor.get("/v1/log", LogPage).entries

    def other_side(connection):
        unlock_log(connection)
        connection.execute(delete(log).where(log.c.seq > begun))
        kept = [e for e in rewritten if e.seq <= begun]
        assert len(kept) == begun
        from fairpremium.parties.protocol._checkpoints import leaf_of
        from fairpremium.parties.protocol._merkle import append_leaf

        peaks = []
        for i, entry in enumerate(kept):
            peaks, _ = append_leaf(i, peaks, leaf_of(entry.model_dump()))
        connection.execute(update(log_head).values(seq=begun, peaks=b"".join(peaks)))
        for i in range(5):
            append(connection, 0.0, "acme", "event", i=i, side=2)

    parties.context.database.write(other_side)
    found, two = audit_log(outside, state=shared)
    assert found.intact
    found, _ = audit_log(outside, state=two, known=[one.checkpoint])
    assert (found.intact, found.first_bad, found.reason) == (False, begun + 3, TREE)


class Lying:
    """A client to whom the service answers something else."""

    def __init__(self, client, **answers):
        self._client, self._answers = client, answers

    def get(self, path, kind, **params):
        right = self._client.get(path, kind, **params)
        answer = self._answers.get(path.rpartition("/")[2])
        return right if answer is None else answer(right, params)

    def send(self, *args):
        answer = self._answers.get("send")
        return self._client.send(*args) if answer is None else answer(*args)

    @property
    def key_id(self):
        return self._client.key_id

    def log(self, after=0):
        change = self._answers.get("pages", lambda page: page)
        return (change(page) for page in self._client.log(after))


def test_checkpoints_and_proofs_that_are_wrong(parties, outside):
    _, state = audit_log(outside, trusted=trusted(parties))
    fill(parties, 7)
    lies = {
        "a checkpoint has a wrong signature": {"checkpoint": lambda p, _: p.model_copy(update={"root": "00" * 32})},
        "a checkpoint is signed by a key that is not in the chain of the service's keys": {
            "checkpoint": lambda p, _: sign_root(new_key(), p.size, bytes(32))
        },
        TREE: {"consistency": lambda p, _: LogProof(hashes=p.hashes[1:])},
        "the service has no proof for what it signed": {"consistency": lambda p, _: LogProof(hashes=("xx",))},
    }
    for reason, answers in lies.items():
        found, kept = audit_log(Lying(outside, **answers), state=state)
        assert (found.intact, found.reason, kept) == (False, reason, None)


# --- entries ---


def test_an_auditor_compares_all_entries_and_a_party_its_own(parties, outside):
    found, _ = audit_log(parties.auditor, trusted=trusted(parties), entries="all")
    assert (found.intact, found.entries, found.read) == (True, 24, 24)
    found, _ = audit_log(parties.insurer, trusted=trusted(parties), entries="own")
    assert (found.intact, found.entries, found.read) == (True, 24, 21)


@pytest.mark.parametrize("seq", [1, 2, 9, 16, 17, 24])
def test_the_first_entry_that_is_shown_otherwise_than_signed_is_named(parties, outside, seq):
    def change(page):
        entries = tuple(e.model_copy(update={"time": "x"}) if e.seq in (seq, 24) else e for e in page.entries)
        return page.model_copy(update={"entries": entries})

    found, _ = audit_log(Lying(parties.auditor, pages=change), trusted=trusted(parties), entries="all")
    assert (found.intact, found.first_bad) == (False, seq)
    assert found.reason == "its content is not what the service signed"


def test_an_entry_that_is_hidden_is_named(parties, outside):
    for seq in (1, 9, 24):

        def hide(page, seq=seq):
            return page.model_copy(update={"entries": tuple(e for e in page.entries if e.seq != seq)})

        found, _ = audit_log(Lying(parties.auditor, pages=hide), trusted=trusted(parties), entries="all")
        assert (found.intact, found.first_bad, found.reason) == (False, seq, "an entry is missing")


def test_a_key_that_does_not_see_all_entries_is_no_fault_of_the_log(parties, outside):
    for client in (parties.insurer, parties.collector):
        with pytest.raises(ValueError, match=r"does not see all entries\. Say --own"):
            audit_log(client, trusted=trusted(parties), entries="all")


def test_a_service_cannot_pass_off_an_auditor_as_another_party(parties, outside):
    """It shows the auditor few entries, without the one that says what it may see, or with another role in it."""

    def hide(page):
        return page.model_copy(update={"entries": tuple(e for e in page.entries if e.party == "acme")})

    def lie(page):
        entries = tuple(
            e.model_copy(update={"body": {**e.body, "role": "insurer"}}) for e in page.entries if e.party == "aud"
        )
        return page.model_copy(update={"entries": entries})

    for pages in (hide, lie):
        found, _ = audit_log(Lying(parties.auditor, pages=pages), trusted=trusted(parties), entries="all")
        assert (found.intact, found.first_bad, found.reason) == (False, 1, "an entry is missing")


def test_a_party_finds_an_own_entry_that_is_not_in_the_log(parties, outside):
    def change(page):
        entries = tuple(e.model_copy(update={"party": "x"}) if e.seq == 9 else e for e in page.entries)
        return page.model_copy(update={"entries": entries})

    found, _ = audit_log(Lying(parties.insurer, pages=change), trusted=trusted(parties), entries="own")
    assert (found.intact, found.first_bad) == (False, 9)


# --- keys ---


def test_a_rotation_is_followed_from_any_key(parties, outside):
    first = trusted(parties)
    _, state = audit_log(outside, trusted=first)
    parties.third_party.rotate_service_key()
    fill(parties, 3)
    parties.third_party.rotate_service_key()
    assert audit_log(outside, trusted=first)[0].intact
    found, kept = audit_log(outside, state=state)
    assert found.intact
    assert len(kept.keys.splitlines()) == 3
    assert audit_log(outside, state=kept, trusted=trusted(parties))[0].intact


def test_another_service_is_not_believed(parties, outside):
    with pytest.raises(ValueError, match="no key that you trust leads to it"):
        audit_log(outside, trusted=[new_key().verify_key])
    with pytest.raises(ValueError, match="Got no key to trust"):
        audit_log(outside)


def test_a_thief_of_a_former_key_cannot_pose_as_the_service(parties, outside):
    """He shows a successor of his own, or the stolen key alone, and signs a log that is right in itself."""
    old = parties.context.key
    new = parties.third_party.rotate_service_key()
    mine = new_key()
    _, state = audit_log(outside, trusted=[new.chain])

    def pose(key, chain):
        shown = [one.model_dump() for one in chain.public_keys()]
        return Lying(
            outside,
            send=lambda *_: httpx.Response(200, json=shown),
            checkpoint=lambda point, _: sign_root(key, point.size, bytes.fromhex(point.root)),
        )

    forged = KeyChain(old.verify_key).extend(old, mine, since="x", size=1)
    assert audit_log(pose(mine, forged), trusted=[old.verify_key])[
        0
    ].intact  # who knows the first key alone cannot tell
    for thief in (pose(mine, forged), pose(old, KeyChain(old.verify_key))):
        for known in ([new.chain], [new.chain, old.verify_key], [old.verify_key, new.chain]):
            with pytest.raises(ValueError, match="do not continue those that you trust"):
                audit_log(thief, trusted=known)
        found, _ = audit_log(thief, trusted=[new.chain], state=state)
        assert (found.intact, found.reason) == (False, "the service shows other keys than those it had")


def test_keys_that_were_rewritten_are_found(parties, outside):
    """The service hides a rotation that an auditor saw."""
    from fairpremium.parties.store.schema import service_keys

    first = trusted(parties)
    parties.third_party.rotate_service_key()
    _, state = audit_log(outside, trusted=first)
    key = parties.context.key
    parties.context.database.write(lambda c: c.execute(delete(service_keys).where(service_keys.c.n == 1)))
    parties.context.database.write(
        lambda c: c.execute(update(service_keys).values(public_key=key.public_key))  # it was always this one
    )
    parties.context.keys._cached = None
    found, _ = audit_log(outside, state=state)
    assert (found.intact, found.reason) == (False, "the service shows other keys than those it had")


# --- folders of 0.1.0 ---


def sign_chain(key, row):
    import base64

    from fairpremium.parties.protocol._messages import ChainCheckpoint

    message = b"fairpremium log checkpoint 1\n" + f"{row.seq} {row.hash}".encode()
    signature = base64.b64encode(key.sign(message)).decode()
    return ChainCheckpoint(seq=row.seq, hash=row.hash, key_id=key.key_id, signature=signature)


@pytest.fixture
def migrated(tmp_path, database_url):
    """Parties whose log began under 0.1.0; checkpoints of that time, one of them stored; `damage` comes before."""
    made = []

    def make(damage=lambda connection: None):
        before = Parties(tmp_path / "third-party", database_url)
        fill(before, 20)
        key = before.context.key
        points = []

        def back(connection):
            downgrade(connection, 4)
            rows = connection.exec_driver_sql("SELECT seq, hash FROM log ORDER BY seq").all()
            points.extend(sign_chain(key, rows[n - 1]) for n in (5, 24))
            columns = "seq, hash, key_id, signature"
            values = tuple(points[0].model_dump()[name] for name in columns.split(", "))
            connection.exec_driver_sql(f"INSERT INTO checkpoints ({columns}) VALUES {values!r}")
            unlock_log(connection)
            damage(connection)
            if connection.dialect.name == "postgresql":
                connection.exec_driver_sql("ALTER TABLE log ENABLE TRIGGER USER")
                return
            for verb in ("UPDATE", "DELETE"):
                connection.exec_driver_sql(
                    f"CREATE TRIGGER log_no_{verb} BEFORE {verb} ON log BEGIN SELECT RAISE(ABORT, 'x'); END"
                )

        before.context.database.write(back)
        before.close()
        after = Parties(tmp_path / "third-party", database_url)
        made.append(after)
        fill(after, 3)
        return after, points

    yield make
    for parties in made:
        parties.close()


def test_a_log_of_0_1_0_stays_verifiable(migrated):
    parties, points = migrated()
    assert parties.third_party.verify_log(tuple(points)).intact
    found, _ = audit_log(parties.auditor, trusted=trusted(parties), known=points, entries="all")
    assert found.intact
    assert found.entries == found.read == 24 + 4 + 3
    with pytest.raises(Exception, match="append-only"):
        parties.context.database.write(lambda c: c.execute(update(log).values(event="x")))


def test_checkpoints_of_0_1_0_contradict_another_log(migrated):
    parties, points = migrated()
    wrong = points[0].model_copy(update={"hash": points[1].hash})
    assert parties.third_party.verify_log((wrong,)).reason == "a checkpoint has a wrong signature"
    rewrite(parties, lambda e: [x.model_copy(update={"event": "x"}) if x.seq == 3 else x for x in e])
    found, _ = audit_log(parties.auditor, trusted=trusted(parties), known=points, entries="all")
    assert (found.intact, found.first_bad) == (False, 5)
    assert not parties.third_party.verify_log(tuple(points)).intact


@pytest.mark.parametrize(
    ("damage", "first_bad", "reason"),
    [
        ("UPDATE log SET party = 'x' WHERE seq = 9", 9, "its content does not match its hash"),
        ("UPDATE log SET body = 'x' WHERE seq = 9", 9, "its content does not match its hash"),
        ("UPDATE log SET previous = hash WHERE seq = 9", 9, "it does not follow the entry before it"),
        ("DELETE FROM log WHERE seq = 9", 9, "an entry is missing"),
        ("DELETE FROM log WHERE seq = 24", 24, "an entry is missing"),
    ],
)
def test_what_was_wrong_before_the_migration_is_named_after_it(migrated, damage, first_bad, reason):
    parties, _ = migrated(lambda connection: connection.exec_driver_sql(damage))
    found = parties.third_party.verify_log()
    assert (found.intact, found.first_bad) == (False, first_bad)
    assert found.reason == reason
