"""Who may do what: registered keys, used nonces, and one table of rights."""

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Connection, delete, insert, select, update

from fairpremium.parties.protocol import Problem, Role, Verified, VerifyKey, check_id
from fairpremium.parties.store.log import append, upsert
from fairpremium.parties.store.schema import keys, nonces

from ._context import Party, ServiceContext

_COMMANDS: dict[tuple[Role, ...], str] = {
    ("operator",): "put_study open_study close_study begin_epoch withdraw_now",
    ("operator", "collector"): "withdraw_report",
    ("collector",): "put_report put_report_batch count_answers",
    ("insurer",): (
        "put_portfolio get_portfolio put_part seal_portfolio delete_portfolio "
        "put_fit get_fit list_fits cancel_fit get_bundle"
    ),
    ("operator", "collector", "insurer", "auditor"): "get_study list_studies get_log",
}
# The one table of rights: command -> roles. What a role may not do does not exist for it.
RIGHTS = {name: frozenset(roles) for roles, names in _COMMANDS.items() for name in names.split()}


def check_right(who: Party, command: str) -> None:
    """Insist that a role may use a command."""
    if who.role not in RIGHTS[command]:
        raise Problem("not-found")


def add_key(connection: Connection, context: ServiceContext, key: VerifyKey, party: str, role: Role) -> None:
    """Register a public key of a party. All keys of a party have one role."""
    check_id(party)
    other = connection.execute(select(keys.c.role).where(keys.c.party == party, keys.c.role != role).limit(1)).scalar()
    if other is not None:
        raise ValueError(f"Got role {role} for {party}, but expected its one role, {other}. Choose another name.")
    known = connection.execute(select(keys).where(keys.c.key_id == key.key_id)).one_or_none()
    if known is not None:
        if (known.party, known.role, known.revoked) != (party, role, None):
            raise ValueError("Got a revoked key or that of another party, but expected a new one. Make one: keys new.")
        return
    values = {"key_id": key.key_id, "public_key": key.public_key, "party": party, "role": role}
    connection.execute(insert(keys).values(**values, added=context.now()))
    append(connection, context.now(), party, "key.added", key_id=key.key_id, role=role)


def revoke_key(connection: Connection, context: ServiceContext, key_id: str) -> None:
    """Refuse a key from now on."""
    row = connection.execute(select(keys).where(keys.c.key_id == key_id)).one_or_none()
    if row is None:
        raise ValueError("Got an unknown id, but expected that of a registered key. They are listed by: keys show.")
    if row.revoked is None:
        connection.execute(update(keys).where(keys.c.key_id == key_id).values(revoked=context.now()))
        append(connection, context.now(), row.party, "key.revoked", key_id=key_id)


def active_keys(connection: Connection) -> dict[str, tuple[Party, VerifyKey]]:
    """Return the keys that are in force."""
    rows = connection.execute(select(keys).where(keys.c.revoked.is_(None)))
    return {row.key_id: (Party(row.party, row.role), VerifyKey(row.public_key)) for row in rows}


class RegisteredKey(NamedTuple):
    """A key as it was registered; the times are in seconds."""

    party: str
    role: Role
    key_id: str
    added: float
    revoked: float | None


def list_keys(connection: Connection) -> list[RegisteredKey]:
    """Return all keys, those that were revoked too."""
    columns = (keys.c.party, keys.c.role, keys.c.key_id, keys.c.added, keys.c.revoked)
    return [RegisteredKey(*row) for row in connection.execute(select(*columns).order_by(keys.c.added, keys.c.key_id))]


def use_nonces(connection: Connection, context: ServiceContext, used: Sequence[Verified]) -> list[bool]:
    """Store the nonces of signatures; the answer to each is whether it is new. One that is not new is a replay."""
    window = 2 * context.limits.signature_window
    rows = [{"key_id": v.key_id, "nonce": v.nonce, "expires": v.created + window} for v in used]
    # Not every driver counts the rows of an insert; those that it returns are there.
    fresh = connection.execute(upsert(connection, nonces).returning(nonces.c.key_id, nonces.c.nonce), rows)
    new = {(row.key_id, row.nonce) for row in fresh}
    answers = []
    for v in used:
        answers.append((v.key_id, v.nonce) in new)
        new.discard((v.key_id, v.nonce))  # twice in one batch is a replay too
    return answers


def delete_old_nonces(connection: Connection, context: ServiceContext) -> None:
    """Delete nonces whose requests would be too old to be accepted."""
    connection.execute(delete(nonces).where(nonces.c.expires < context.now()))
