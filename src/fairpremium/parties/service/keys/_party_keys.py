"""Registered keys of parties. A party may have several at a time; each may have an end."""

from typing import NamedTuple

from sqlalchemy import ColumnElement, Connection, insert, or_, select, update

from fairpremium.parties.protocol import Role, VerifyKey, check_id
from fairpremium.parties.store.log import append, iso
from fairpremium.parties.store.schema import keys


class RegisteredKey(NamedTuple):
    """A key as it was registered; the times are in seconds. From `ends` on it is refused."""

    party: str
    role: Role
    key_id: str
    added: float
    ends: float | None


def in_force(now: float) -> ColumnElement[bool]:
    """Return the condition that a key has not ended."""
    return or_(keys.c.ends.is_(None), keys.c.ends > now)


class KnownKey(NamedTuple):
    """A key that was registered, and whether it is in force."""

    party: str
    role: Role
    key: VerifyKey
    is_active: bool


def known_keys(connection: Connection, now: float) -> dict[str, KnownKey]:
    """Return all keys by their id."""
    rows = connection.execute(select(keys, in_force(now).label("is_active")))
    return {row.key_id: KnownKey(row.party, row.role, VerifyKey(row.public_key), bool(row.is_active)) for row in rows}


def list_keys(connection: Connection) -> list[RegisteredKey]:
    """Return all keys, those that have ended too."""
    columns = (keys.c.party, keys.c.role, keys.c.key_id, keys.c.added, keys.c.ends)
    return [RegisteredKey(*row) for row in connection.execute(select(*columns).order_by(keys.c.added, keys.c.key_id))]


def add_key(connection: Connection, now: float, key: VerifyKey, party: str, role: Role) -> None:
    """Register a public key of a party. All keys of a party have one role."""
    check_id(party)
    other = connection.execute(select(keys.c.role).where(keys.c.party == party, keys.c.role != role).limit(1)).scalar()
    if other is not None:
        raise ValueError(f"Got role {role} for {party}, but expected its one role, {other}. Choose another name.")
    known = connection.execute(select(keys).where(keys.c.key_id == key.key_id)).one_or_none()
    if known is not None:
        if (known.party, known.role, known.ends) != (party, role, None):
            raise ValueError("Got a revoked key or that of another party, but expected a new one. Make one: keys new.")
        return
    values = {"key_id": key.key_id, "public_key": key.public_key, "party": party, "role": role}
    connection.execute(insert(keys).values(**values, added=now))
    append(connection, now, party, "key.added", key_id=key.key_id, role=role)


def revoke_key(connection: Connection, now: float, key_id: str) -> None:
    """Refuse a key from now on."""
    row = connection.execute(select(keys).where(keys.c.key_id == key_id)).one_or_none()
    if row is None:
        raise ValueError("Got an unknown id, but expected that of a registered key. They are listed by: keys show.")
    if row.ends is None or row.ends > now:
        connection.execute(update(keys).where(keys.c.key_id == key_id).values(ends=now))
        append(connection, now, row.party, "key.revoked", key_id=key_id)


def rotate_party_key(
    connection: Connection, now: float, key: VerifyKey, party: str, ends: float
) -> list[RegisteredKey]:
    """Register a new key of a party and give its other keys an end; return all its keys that are in force.

    - `ends`: When the other keys end, in seconds; until then both sign. A key that ends before stays so.
    """
    rows = connection.execute(select(keys).where(keys.c.party == party, in_force(now))).all()
    others = [row for row in rows if row.key_id != key.key_id]
    if rows and not others:
        raise ValueError(f"Got the key that {party} has already, but expected a new one. Make one: keys new.")
    if not others:
        raise ValueError(f"Got {party}, but expected a party with a key in force. Register its first one: keys add.")
    add_key(connection, now, key, party, others[0].role)
    for row in others:
        if row.ends is None or row.ends > ends:
            connection.execute(update(keys).where(keys.c.key_id == row.key_id).values(ends=ends))
            append(connection, now, party, "key.ends", key_id=row.key_id, ends=iso(ends))
    return [row for row in list_keys(connection) if row.party == party and (row.ends is None or row.ends > now)]
