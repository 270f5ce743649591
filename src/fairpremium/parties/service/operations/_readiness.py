"""Whether the service can do its work: it can if the database and the folder of files take a write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import update

from fairpremium.parties.store.log import iso, upsert
from fairpremium.parties.store.schema import meta

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from fairpremium.parties.store import Write

    from .._context import ServiceContext

_NAME = "last_probe"  # of the row that a probe writes
_BYTES = bytes(1 << 16)  # that a probe writes to a file, which is gone afterwards


def check_writes(context: ServiceContext, write: Write) -> None:
    """Write to the database and to the folder of files as requests do, to the disk, or raise why that fails."""
    now = iso(context.now())

    def mark(connection: Connection) -> None:
        connection.execute(upsert(connection, meta).values(name=_NAME, value=now))
        connection.execute(update(meta).where(meta.c.name == _NAME).values(value=now))

    write(mark)
    with context.files.receive() as incoming:
        incoming.write(_BYTES)
        incoming.sync()
