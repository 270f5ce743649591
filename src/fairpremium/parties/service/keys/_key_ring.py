"""The service's own keys: the file with their secrets, and the chain in the database that says which one is in force.

The file ``service.key`` holds the key in force, and of former keys what opens invitations that are still out: after a
rotation nobody can sign with the old key any more. It is encrypted where there is a storage key. A new key is in the
file before the database names it, so that a rotation that is cut off leaves the old key in force.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, insert, select

from fairpremium.documents import canonical_json
from fairpremium.errors import FairPremiumError
from fairpremium.parties.faults import point
from fairpremium.parties.protocol import (
    KeyChain,
    ServiceKey,
    SigningKey,
    StorageKey,
    Succession,
    VerifyKey,
    new_key,
    open_stored,
    opener_of,
    pack_keys,
    read_private,
    replace_file,
    unpack_keys,
    write_private,
)
from fairpremium.parties.store import Database
from fairpremium.parties.store.log import append, iso, upsert
from fairpremium.parties.store.schema import log_head, service_keys

_PURPOSE = b"keys of the service"


class ServiceKeyError(FairPremiumError):
    """The file of the service's keys does not hold the key in force."""


class KeyRing:
    """The keys of a service.

    - `path`: The file ``service.key``.
    - `storage_key`: Encrypts the file, where there is one.

    Raises `StorageKeyError` where the file is encrypted with another key.
    """

    def __init__(self, path: Path, storage_key: StorageKey | None):
        self._path = path
        self._storage_key = storage_key
        self._database: Database | None = None
        self._cached: ServiceKey | None = None
        if path.exists():
            self._read()

    def open(self, database: Database) -> None:
        """Make the first key of a new service; otherwise check that the key in force is here."""
        self._database = database
        if not database.read(_rows):
            with suppress(FileExistsError):  # another process was faster
                if not self._path.exists():
                    write_private(self._path, self._seal(pack_keys([new_key()])))
            first = self._read()[0][0].public_key
            database.write(lambda c: c.execute(upsert(c, service_keys).values(n=0, public_key=first)))
        self.current()
        self._tidy(database)

    def current(self, connection: Connection | None = None) -> ServiceKey:
        """Return the key in force, now or in a transaction."""
        assert self._database is not None
        if connection is None:
            return self._database.read(self.current)
        newest = select(service_keys.c.public_key).order_by(service_keys.c.n.desc()).limit(1)
        public = connection.execute(newest).scalar_one()
        key = self._cached
        if key is None or key.public_key != public:
            key = self._cached = self._load(_chain(_rows(connection)))
        return key

    @property
    def last_seen(self) -> ServiceKey:
        """The key in force when this process looked last, without a look at the database."""
        assert self._cached is not None
        return self._cached

    def rotate(self) -> ServiceKey:
        """Put a new key in the place of the one in force, which signs it."""
        return self._replace(lost=False)

    def replace_lost(self, database: Database) -> ServiceKey:
        """Put a new key in the place of one that is lost. Whoever trusts only the old one must be given the new one."""
        self._database = database
        return self._replace(lost=True)

    def _replace(self, *, lost: bool) -> ServiceKey:
        assert self._database is not None
        new, now = new_key(), self._database.clock()

        def change(connection: Connection) -> None:
            rows = _rows(connection, lock=True)
            if not rows:
                raise ServiceKeyError("The service has no key yet: its first start makes one.")
            chain = _chain(rows)
            keys, openers = self._read() if self._path.exists() else ([], [])
            old = next((key for key in keys if key.verify_key == chain.current), None)
            if lost != (old is None):
                raise ServiceKeyError(
                    f"The key in force, {chain.current.key_id}, is in {self._path.name}: rotate it without --lost."
                    if lost
                    else self._missing(chain)
                )
            about = {"key_id": new.key_id, "previous": chain.current.key_id, "lost": lost}
            size = append(connection, now, "service", "service.key.rotated", **about)
            chain = chain.extend(old, new, since=iso(now), size=size)
            self._write(pack_keys([new] if old is None else [old, new], openers))
            point("service_key.written")
            n, text = len(chain.successions), canonical_json(chain.successions[-1].model_dump()).decode()
            connection.execute(insert(service_keys).values(n=n, public_key=new.public_key, succession=text))

        self._database.write(change)
        point("service_key.rotated", writes=False)
        self._tidy(self._database)
        return self.current()

    # --- the file ---

    def _read(self) -> tuple[list[SigningKey], list[bytes]]:
        return unpack_keys(open_stored(self._storage_key, read_private(self._path), _PURPOSE))

    def _seal(self, content: bytes) -> bytes:
        return content if self._storage_key is None else self._storage_key.seal(content, _PURPOSE)

    def _write(self, content: bytes) -> None:
        replace_file(self._path, self._seal(content), 0o600)

    def _load(self, chain: KeyChain) -> ServiceKey:
        keys, openers = self._read() if self._path.exists() else ([], [])
        key = next((key for key in keys if key.verify_key == chain.current), None)
        if key is None:
            raise ServiceKeyError(self._missing(chain))
        former = [opener_of(other) for other in keys if other.verify_key in chain.keys[:-1]]
        return ServiceKey(key, chain, [*openers, *former])

    def _missing(self, chain: KeyChain) -> str:
        return (
            f"The key in force, {chain.current.key_id}, is not in {self._path.name}. Restore the file from a backup; "
            "if it is lost: fairpremium keys rotate service --lost."
        )

    def _tidy(self, database: Database) -> None:
        """Leave no secret in the file that is not needed or not encrypted, and write the public keys beside it."""

        def rewrite(connection: Connection) -> None:
            connection.execute(select(log_head.c.seq).with_for_update())  # no rotation meanwhile
            key = self._load(_chain(_rows(connection)))
            self._write(pack_keys([key], key.openers))

        is_sealed = self._storage_key is None or self._storage_key.is_current(read_private(self._path))
        if len(self._read()[0]) > 1 or not is_sealed:
            database.write(rewrite)
        public = self._path.with_name(f"{self._path.name}.pub")
        text = self.current().chain.text().encode()
        if not public.exists() or public.read_bytes() != text:
            replace_file(public, text, 0o644)


def _rows(connection: Connection, *, lock: bool = False) -> Sequence[Any]:
    if lock:
        connection.execute(select(log_head.c.seq).with_for_update())
    return connection.execute(select(service_keys).order_by(service_keys.c.n)).all()


def _chain(rows: Sequence[Any]) -> KeyChain:
    changes = [Succession.model_validate(json.loads(row.succession)) for row in rows[1:]]
    return KeyChain(VerifyKey(rows[0].public_key), changes)
