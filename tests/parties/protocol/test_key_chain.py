"""The chain of a service's keys, and the storage key: what is signed or sealed by whom, and what is refused."""

from __future__ import annotations

import json

import pytest

from fairpremium.parties.protocol._checkpoints import sign_root, what_is_wrong
from fairpremium.parties.protocol._invitations import invitation_key, opener_of, read_token, write_token
from fairpremium.parties.protocol._key_chain import (
    KeyChain,
    ServiceKey,
    pack_keys,
    read_trusted_keys,
    unpack_keys,
)
from fairpremium.parties.protocol._keys import new_key, read_public_key
from fairpremium.parties.protocol._storage_key import (
    STORAGE_KEY,
    STORAGE_KEY_FILE,
    StorageKey,
    StorageKeyError,
    open_stored,
    storage_key_of,
    write_storage_key,
)

KEYS = [new_key() for _ in range(4)]
PUBLIC = [key.verify_key for key in KEYS]


def chain_of(*, lost=()):
    chain = KeyChain(PUBLIC[0])
    for i in range(1, 4):
        old = None if i in lost else KEYS[i - 1]
        chain = chain.extend(old, KEYS[i], since=f"2026-0{i}-01T00:00:00+00:00", size=10 * i)
    return chain


CHAIN = chain_of()


def test_trust_in_any_key_is_trust_in_all():
    for key in PUBLIC:
        assert KeyChain(key).follow(CHAIN).keys == tuple(PUBLIC)
    other = KeyChain(new_key().verify_key)
    assert other.follow(CHAIN) is other
    assert not other.contradicts(CHAIN)


def test_trust_does_not_pass_a_lost_key_forwards():
    chain = chain_of(lost={2})  # key 1 did not sign key 2
    assert KeyChain(PUBLIC[0]).follow(chain).keys == tuple(PUBLIC[:2])
    assert KeyChain(PUBLIC[1]).follow(chain).keys == tuple(PUBLIC[:2])
    assert KeyChain(PUBLIC[2]).follow(chain).keys == tuple(PUBLIC)  # but the new one vouches for those before
    assert KeyChain(PUBLIC[0], chain.successions[:2]).follow(chain).keys == tuple(PUBLIC)


def test_the_chain_as_text_as_a_file_and_as_the_service_shows_it(tmp_path):
    assert KeyChain.read(CHAIN.text()).successions == CHAIN.successions
    assert KeyChain.of_public_keys(CHAIN.public_keys()).successions == CHAIN.successions
    shown = CHAIN.public_keys()
    assert [(key.since, key.until_size) for key in shown] == [
        (None, 10), ("2026-01-01T00:00:00+00:00", 20), ("2026-02-01T00:00:00+00:00", 30),
        ("2026-03-01T00:00:00+00:00", None),
    ]  # fmt: skip
    path = tmp_path / "service.key.pub"
    path.write_text(CHAIN.text())
    assert read_trusted_keys(path).keys == tuple(PUBLIC)
    assert read_public_key(path) == PUBLIC[3]
    path.write_text(f"{PUBLIC[0].public_key}\n")  # as 0.1.0 wrote it
    assert read_trusted_keys(path).keys == (PUBLIC[0],)


@pytest.mark.parametrize("field", ["previous", "public_key", "since", "size", "by_previous", "by_next"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_changed_chain_is_refused(field, place):
    head, *lines = CHAIN.text().splitlines()
    change = json.loads(lines[place])
    other = {"size": 99, "since": "2020-01-01T00:00:00+00:00", "by_previous": "AAAA", "by_next": "no base64!"}
    change[field] = other.get(field, new_key().public_key)
    lines[place] = json.dumps(change)
    with pytest.raises(ValueError, match="chain of keys"):
        KeyChain.read("\n".join([head, *lines]))


@pytest.mark.parametrize(
    "lines",
    [
        lambda head, rest: [PUBLIC[0].public_key, *rest],
        lambda head, rest: [head, *rest[1:], rest[0]],
        lambda head, rest: [head, rest[0], rest[2]],
        lambda head, rest: [head, *rest[:2]],
        lambda head, rest: [head, *rest, "{}"],
        lambda head, rest: [head, *rest, rest[2]],
    ],
    ids=["another head", "another order", "a gap", "cut off", "an empty line of JSON", "one twice"],
)
def test_a_chain_that_does_not_hang_together_is_refused(lines):
    head, *rest = CHAIN.text().splitlines()
    with pytest.raises(ValueError, match="chain of keys"):
        KeyChain.read("\n".join(lines(head, rest)))


def test_a_thief_of_an_old_key_cannot_add_a_key_behind_the_new_one():
    """A second change from the same key does not continue the chain that an auditor knows."""
    known = KeyChain(PUBLIC[0], CHAIN.successions[:2])
    forged = KeyChain(PUBLIC[0], CHAIN.successions[:1]).extend(KEYS[1], new_key(), since="x", size=1)
    assert CHAIN.continues(known)
    assert known.continues(known)
    assert not known.continues(CHAIN)
    assert not forged.continues(known)
    assert known.follow(forged) is known
    assert forged.contradicts(known)
    assert known.contradicts(forged)
    assert not known.contradicts(CHAIN)
    assert not CHAIN.contradicts(known)
    assert KeyChain(PUBLIC[0]).follow(forged).keys == forged.keys  # who knows the first key alone cannot tell


def test_a_thief_of_an_old_key_cannot_add_a_key_before_it_that_counts_longer():
    mine = new_key()
    forged = KeyChain(mine.verify_key).extend(mine, KEYS[0], since="x", size=10**6)
    forged = KeyChain(mine.verify_key, [*forged.successions, *CHAIN.successions])
    assert forged.contradicts(CHAIN)
    assert KeyChain(PUBLIC[3]).follow(forged).last_size(mine.verify_key) == 10  # as long as the stolen one


def test_who_may_sign_a_checkpoint_of_which_size():
    root = bytes(32)
    for i, key in enumerate(KEYS):
        assert what_is_wrong(sign_root(key, 10 * (i + 1) if i < 3 else 10**6, root), CHAIN) is None
        assert what_is_wrong(sign_root(key, 1, root), CHAIN) is None  # a new key may sign what was before it
        if i < 3:
            assert "no longer in force" in what_is_wrong(sign_root(key, 10 * (i + 1) + 1, root), CHAIN)
    assert "not in the chain" in what_is_wrong(sign_root(new_key(), 1, root), CHAIN)
    point = sign_root(KEYS[0], 1, root)
    for change in ({"size": 2}, {"root": "11" * 32}, {"signature": "AAAA"}, {"signature": "?"}):
        assert "wrong signature" in what_is_wrong(point.model_copy(update=change), CHAIN)


def test_secrets_as_a_file_and_what_is_left_of_a_former_key():
    old, new, collector = KEYS[0], KEYS[1], new_key()
    keys, openers = unpack_keys(pack_keys([new], [opener_of(old)]))
    assert ([key.public_key for key in keys], openers) == ([new.public_key], [opener_of(old)])
    service = ServiceKey(keys[0], KeyChain(old.verify_key).extend(old, new, since="x", size=1), openers)
    for sealed_to in (old, new, service):
        token = write_token(collector, invitation_key(sealed_to), study="s", key=bytes(16), expires=9)
        assert read_token(token, service).study == "s"
    strange = write_token(collector, invitation_key(new_key()), study="s", key=bytes(16), expires=9)
    assert read_token(strange, service) is None
    for content in (b"", b"-----BEGIN PRIVATE KEY-----\nx\n-----END PRIVATE KEY-----\n", pack_keys([], openers)):
        with pytest.raises(ValueError, match=r"service\.key"):
            unpack_keys(content)


# --- the storage key ---


def test_what_is_sealed_opens_with_the_right_key_and_purpose_alone():
    one, two = bytes(range(32)), bytes(range(1, 33))
    sealed = StorageKey(one).seal(b"secret", b"p")
    assert b"secret" not in sealed
    assert StorageKey(one).seal(b"secret", b"p") != sealed
    assert StorageKey(two, one).open(sealed, b"p") == b"secret"
    assert not StorageKey(two, one).is_current(sealed)
    assert open_stored(None, b"plain", b"p") == b"plain"
    with pytest.raises(StorageKeyError, match="another storage key"):
        StorageKey(two).open(sealed, b"p")
    with pytest.raises(StorageKeyError, match="no storage key"):
        open_stored(None, sealed, b"p")
    with pytest.raises(StorageKeyError, match="was changed"):
        StorageKey(one).open(sealed, b"another purpose")
    for i in (-1, -20, 30):
        changed = bytearray(sealed)
        changed[i] ^= 1
        with pytest.raises(StorageKeyError):
            StorageKey(one).open(bytes(changed), b"p")
    with pytest.raises(StorageKeyError):
        StorageKey(one).open(sealed[:35], b"p")
    assert one.hex() not in repr(StorageKey(one))


def test_the_storage_key_comes_from_a_file_or_the_environment(tmp_path):
    path = tmp_path / "storage.key"
    write_storage_key(path)
    assert path.stat().st_mode & 0o777 == 0o600
    text = path.read_text()
    sealed = storage_key_of({STORAGE_KEY_FILE: str(path)}).seal(b"x", b"p")
    assert storage_key_of({STORAGE_KEY: text.strip()}).open(sealed, b"p") == b"x"
    path.write_text(f"storage-key:{'ab' * 32}\n{text}")  # a new one above it
    assert storage_key_of({STORAGE_KEY_FILE: str(path)}).open(sealed, b"p") == b"x"
    assert storage_key_of({}) is None
    for wrong in ({STORAGE_KEY: "abc"}, {STORAGE_KEY: text, STORAGE_KEY_FILE: str(path)}, {STORAGE_KEY: f"{text} x"}):
        with pytest.raises(ValueError, match="STORAGE_KEY") as caught:
            storage_key_of(wrong)
        assert "abc" not in str(caught.value)
    path.chmod(0o644)
    with pytest.raises(PermissionError, match="chmod 600"):
        storage_key_of({STORAGE_KEY_FILE: str(path)})
