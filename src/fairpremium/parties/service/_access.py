"""Who may do what: one table of rights, and used nonces."""

from collections.abc import Sequence

from sqlalchemy import Connection, delete

from fairpremium.parties.clock import in_service_time
from fairpremium.parties.protocol import Problem, Role, Verified
from fairpremium.parties.store.log import upsert
from fairpremium.parties.store.schema import nonces

from ._context import Party, ServiceContext

_COMMANDS: dict[tuple[Role, ...], str] = {
    ("operator",): "put_study open_study close_study begin_epoch withdraw_now",
    ("operator", "collector"): "withdraw_report",
    ("collector",): "put_report put_report_batch count_answers",
    ("insurer",): (
        "put_portfolio get_portfolio put_part seal_portfolio delete_portfolio "
        "put_fit get_fit list_fits cancel_fit get_bundle"
    ),
    ("operator", "collector", "insurer", "auditor"): "get_study list_studies get_log get_inclusion",
}
# The one table of rights: command -> roles. What a role may not do does not exist for it.
RIGHTS = {name: frozenset(roles) for roles, names in _COMMANDS.items() for name in names.split()}


def check_right(who: Party, command: str) -> None:
    """Insist that a role may use a command."""
    if who.role not in RIGHTS[command]:
        raise Problem("not-found")


def use_nonces(connection: Connection, context: ServiceContext, used: Sequence[Verified]) -> list[bool]:
    """Store the nonces of signatures; the answer to each is whether it is new. One that is not new is a replay.

    So may be what was signed before a restore: the nonces that were used since the backup are lost.
    """
    window = in_service_time(2 * context.limits.signature_window)
    rows = [{"key_id": v.key_id, "nonce": v.nonce, "expires": v.created + window} for v in used]
    # Not every driver counts the rows of an insert; those that it returns are there.
    fresh = connection.execute(upsert(connection, nonces).returning(nonces.c.key_id, nonces.c.nonce), rows)
    new = {(row.key_id, row.nonce) for row in fresh}
    answers = []
    for v in used:
        answers.append((v.key_id, v.nonce) in new and v.created >= context.restored)
        new.discard((v.key_id, v.nonce))  # twice in one batch is a replay too
    return answers


def delete_old_nonces(connection: Connection, context: ServiceContext) -> None:
    """Delete nonces whose requests would be too old to be accepted."""
    connection.execute(delete(nonces).where(nonces.c.expires < context.now()))
