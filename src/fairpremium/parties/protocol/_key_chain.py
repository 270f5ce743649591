"""The keys of a service, one after the other: each new key is signed by the one before it, and signs that one.

So whoever trusts any of them can check what any other one signed; whoever knows a chain believes only those that
continue it, because a former key may be stolen and sign another successor. The chain is text, the same in the file
``service.key.pub``, in bundles, and at the service: the key in force on the first line, then one line of JSON for each
change of keys, the oldest first. Without a change it is the public key alone.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from fairpremium.documents import canonical_json

from ._keys import SigningKey, VerifyKey
from ._messages import Message, PublicKey
from ._safe_files import Path_

LARGEST_CHAIN = 1 << 16  # bytes
_PREFIX = b"fairpremium service key 1\n"
_PEM = re.compile(rb"-----BEGIN [A-Z ]+-----.*?-----END [A-Z ]+-----\n?", re.DOTALL)


class Succession(Message):
    """A change of the service's key.

    - `since`: When, in UTC.
    - `size`: Entries of the log until then; the previous key signs no longer log.
    - `by_previous`: Signature by the previous key; None if it was lost. Then trust in it does not lead to the new one.
    - `by_next`: Signature by the new key.
    """

    previous: str
    public_key: str
    since: str
    size: int
    by_previous: str | None
    by_next: str


class KeyChain:
    """The keys of a service, the oldest first; each signature in it was checked.

    - `first`: The first key.
    - `successions`: The changes since then.

    Examples
    --------
    >>> from fairpremium.parties import new_key
    >>> old, new = new_key(), new_key()
    >>> chain = KeyChain(old.verify_key).extend(old, new, since="2026-01-01T00:00:00+00:00", size=7)
    >>> KeyChain.read(chain.text()).keys == (old.verify_key, new.verify_key)
    True
    """

    def __init__(self, first: VerifyKey, successions: Iterable[Succession] = ()) -> None:
        self.successions = tuple(successions)
        found = [first]
        for number, change in enumerate(self.successions, 1):
            following = VerifyKey(change.public_key)
            said, old = _said(change), found[-1]
            is_right = change.previous == old.public_key and following not in found
            is_right = is_right and _is_signed(following, change.by_next, said)
            if not is_right or (change.by_previous is not None and not _is_signed(old, change.by_previous, said)):
                raise ValueError(
                    f"Got a chain of keys whose change {number} does not fit or is not signed by both keys, but "
                    "expected that of a service: the content of its file service.key.pub."
                )
            found.append(following)
        self.keys = tuple(found)

    @property
    def current(self) -> VerifyKey:
        """The key in force."""
        return self.keys[-1]

    def find(self, key_id: str) -> VerifyKey | None:
        """Return the key with an id."""
        return next((key for key in self.keys if key.key_id == key_id), None)

    def last_size(self, key: VerifyKey) -> int | None:
        """Return how long the log may be that a key signed; None for the key in force.

        A key that ended later does not vouch for more than it may sign itself.
        """
        return min((change.size for change in self.successions[self.keys.index(key) :]), default=None)

    def follow(self, shown: KeyChain) -> KeyChain:
        """Return what follows from trust in this chain if another one is shown: that one up to a key that was lost.

        It does not count if this one is no part of it: then this chain is returned.
        """
        if not shown.contains(self):
            return self
        last = shown.keys.index(self.current)
        while last < len(shown.successions) and shown.successions[last].by_previous is not None:
            last += 1
        return KeyChain(shown.keys[0], shown.successions[:last])

    def contains(self, earlier: KeyChain) -> bool:
        """Does this continue an earlier chain, or is that one a single key which is anywhere in this?"""
        return self.continues(earlier) or (not earlier.successions and earlier.current in self.keys)

    def contradicts(self, other: KeyChain) -> bool:
        """Do both have a key in common, and neither contains the other? Then a key was given two successors."""
        return not (set(self.keys).isdisjoint(other.keys) or self.contains(other) or other.contains(self))

    def continues(self, earlier: KeyChain) -> bool:
        """Is this an earlier chain, perhaps with newer keys?"""
        n = len(earlier.successions)
        return self.keys[0] == earlier.keys[0] and self.successions[:n] == earlier.successions

    def extend(self, old: SigningKey | None, new: SigningKey, *, since: str, size: int) -> KeyChain:
        """Return the chain with one key more; `old` signs, if it was not lost."""
        plain = Succession(
            previous=self.current.public_key,
            public_key=new.public_key,
            since=since,
            size=size,
            by_previous=None,
            by_next="",
        )
        said = _said(plain)
        signed = {"by_previous": None if old is None else _sign(old, said), "by_next": _sign(new, said)}
        return KeyChain(self.keys[0], [*self.successions, plain.model_copy(update=signed)])

    def public_keys(self) -> list[PublicKey]:
        """Return the keys as the service shows them to everybody, the oldest first."""
        changes = [None, *self.successions, None]  # that began the time of a key, and that ended it
        return [
            PublicKey(
                key_id=key.key_id,
                public_key=key.public_key,
                since=None if begin is None else begin.since,
                until=None if end is None else end.since,
                until_size=None if end is None else end.size,
                by_previous=None if begin is None else begin.by_previous,
                by_next=None if begin is None else begin.by_next,
            )
            for key, begin, end in zip(self.keys, changes[:-1], changes[1:], strict=True)
        ]

    @classmethod
    def of_public_keys(cls, shown: Sequence[PublicKey]) -> KeyChain:
        """Read what `public_keys` shows, and check it."""
        if not shown:
            raise ValueError("Got no keys of the service, but expected at least one.")
        changes = [
            Succession(
                previous=old.public_key,
                public_key=new.public_key,
                since=new.since or "",
                size=-1 if old.until_size is None else old.until_size,
                by_previous=new.by_previous,
                by_next=new.by_next or "",
            )
            for old, new in pairwise(shown)
        ]
        return cls(VerifyKey(shown[0].public_key), changes)

    def text(self) -> str:
        """Write the chain; see the head of this module."""
        changes = [canonical_json(change.model_dump()).decode() for change in self.successions]
        return "".join(f"{line}\n" for line in (self.current.public_key, *changes))

    @classmethod
    def read(cls, text: str) -> KeyChain:
        """Read what `text` wrote, and check it."""
        head, *lines = text.strip().split("\n")
        current = VerifyKey(head.strip())
        try:
            changes = [Succession.model_validate(json.loads(line)) for line in lines]
        except (ValueError, RecursionError):
            raise ValueError(
                "Got a chain of keys with a line that is none, but expected the content of a file service.key.pub."
            ) from None
        chain = cls(VerifyKey(changes[0].previous) if changes else current, changes)
        if chain.current != current:
            raise ValueError("Got a chain of keys that does not end with the key on its first line.")
        return chain


class ServiceKey(SigningKey):
    """The service's key in force, the chain that leads to it, and what opens invitations sealed to former keys.

    - `openers`: 32 bytes for each former key (see `opener_of`): enough to open, not to sign.
    """

    __slots__ = ("chain", "openers")

    chain: KeyChain
    openers: tuple[bytes, ...]

    def __init__(self, key: SigningKey, chain: KeyChain, openers: Iterable[bytes] = ()) -> None:
        super().__init__(key._private())
        object.__setattr__(self, "chain", chain)
        object.__setattr__(self, "openers", tuple(openers))


def pack_keys(keys: Iterable[SigningKey], openers: Iterable[bytes] = ()) -> bytes:
    """Write keys, and openers of former keys, as PEM (PKCS 8), one after the other."""
    private = [key._private() for key in keys] + [X25519PrivateKey.from_private_bytes(raw) for raw in openers]
    return b"".join(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) for key in private)


def unpack_keys(content: bytes) -> tuple[list[SigningKey], list[bytes]]:
    """Read what `pack_keys` wrote; a file with the one key of an earlier version is the same with one key."""
    keys: list[SigningKey] = []
    openers: list[bytes] = []
    try:
        for block in _PEM.findall(content):
            key = load_pem_private_key(block, password=None)
            if isinstance(key, X25519PrivateKey):
                openers.append(key.private_bytes_raw())
            elif isinstance(key, Ed25519PrivateKey):
                keys.append(SigningKey(key))
            else:
                raise ValueError("another kind of key")
    except (ValueError, TypeError, UnsupportedAlgorithm):
        keys = []
    if not keys:
        raise ValueError(
            "Got a file service.key without an Ed25519 key in PEM (PKCS 8), but expected the service's key. Restore it "
            "from a backup."
        )
    return keys, openers


def read_trusted_keys(path: Path_) -> KeyChain:
    """Read the keys of a service whose signatures count, from its file ``service.key.pub``: those before it, too.

    `load_bundle`, `audit_log` and `Insurer.fetch` take the chain among the keys to trust.
    """
    with Path(path).open("rb") as file:
        content = file.read(LARGEST_CHAIN + 1)
    try:
        if len(content) > LARGEST_CHAIN:
            raise ValueError(f"Got more than {LARGEST_CHAIN} bytes, but expected the keys of a service.")
        return KeyChain.read(content.decode("latin-1"))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def as_chains(trusted: Iterable[VerifyKey | KeyChain]) -> list[KeyChain]:
    """Return keys to trust as chains: that of a single key has no change."""
    return [KeyChain(one) if isinstance(one, VerifyKey) else one for one in trusted]


def _said(change: Succession) -> bytes:
    return _PREFIX + canonical_json(change.model_dump(include={"previous", "public_key", "since", "size"}))


def _sign(key: SigningKey, said: bytes) -> str:
    return base64.b64encode(key.sign(said)).decode()


def _is_signed(key: VerifyKey, signature: str, said: bytes) -> bool:
    try:
        return key.verify(base64.b64decode(signature, validate=True), said)
    except ValueError:
        return False
