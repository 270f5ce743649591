"""What a restore changes, because the world has gone on since the backup.

- Requests that were signed before are not taken any more: nonces that were used since the backup are lost, so that the
  requests could be replayed.
- Logins to the console are gone: some of them may have been ended since the backup.
- The next epoch of each study has a number that none of the lost epochs had, unless the same backup was restored twice.
  Draws do not rely on that: they depend on random bytes of each epoch (`epoch_key`).
- The log says so.

Leases need nothing: those of the backup expire, and another worker does the fit.

A database of an earlier version is marked only, so that the version that wrote it can open it. The rest is done when
this version opens it for the first time, after the migration.
"""

from sqlalchemy import Connection, delete, insert, select, update

from fairpremium.parties.protocol import ENDED
from fairpremium.parties.store.log import append
from fairpremium.parties.store.schema import epochs, fits, logins, meta, studies

from ._context import RESTORED, ServiceContext
from ._epochs import forget_counts, newest_epoch, newest_snapshot
from ._studies import spec_of

RESTORED_EARLIER = "restored-earlier-version"  # in `meta`, until all is done; tells whether the log was intact
INTACT = "intact log"
EPOCH_LEAP = 1000  # epochs that may have begun since a backup


def begin_again(context: ServiceContext, *, is_intact: bool) -> None:
    """Mark a database as restored now.

    - `is_intact`: Whether the log is; a broken one gets no entry, which would only move its end.
    """

    def mark(connection: Connection) -> None:
        connection.execute(delete(meta).where(meta.c.name == RESTORED))
        connection.execute(insert(meta).values(name=RESTORED, value=repr(context.now())))
        _change(connection, context, is_intact)

    context.database.write(mark)


def finish_restore(context: ServiceContext) -> None:
    """Do what a restore left to the version that migrates the database; nothing, if nothing is left."""
    left = select(meta.c.value).where(meta.c.name == RESTORED_EARLIER)
    if context.database.read(lambda c: c.execute(left).scalar()) is None:
        return

    def finish(connection: Connection) -> None:
        # Of several processes that start, one deletes the mark; the others wait for it and find none.
        gone = delete(meta).where(meta.c.name == RESTORED_EARLIER).returning(meta.c.value)
        said = connection.execute(gone).scalar()
        if said is not None:
            _change(connection, context, said == INTACT)

    context.database.write(finish)


def _change(connection: Connection, context: ServiceContext, is_intact: bool) -> None:
    now = context.now()
    connection.execute(delete(logins))
    # An epoch without a snapshot would get another one in each copy: fits that wait for it begin one of their own.
    waits = select(epochs.c.number).where(epochs.c.study == fits.c.study, epochs.c.number == fits.c.epoch)
    of_none = (waits.where(epochs.c.taken.is_(None)).exists(), fits.c.state.not_in(ENDED))
    connection.execute(update(fits).where(*of_none).values(epoch=0))
    connection.execute(delete(epochs).where(epochs.c.taken.is_(None)))
    for study in connection.execute(select(studies.c.id, studies.c.spec)).all():
        _end_epoch(connection, study.id, now - spec_of(study).epoch_seconds)
    if is_intact:
        append(connection, now, "service", "service.restored")


def _end_epoch(connection: Connection, study: str, closed: float) -> None:
    """Let an epoch without a snapshot, which is over, stand for those that are lost."""
    last, counted = newest_epoch(connection, study), newest_snapshot(connection, study)
    same = {"reports": 0, "standard_error": 0.0, "counted": 0, "steps": 0}
    if counted is not None:
        same = {name: getattr(counted, name) for name in same}
    number = EPOCH_LEAP + (0 if last is None else last.number)
    values = {"study": study, "number": number, "closed": closed, "taken": closed, **same}
    connection.execute(insert(epochs).values(**values))
    forget_counts(connection, study, before=number)
