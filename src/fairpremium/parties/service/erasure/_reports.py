"""Finishes withdrawals: nothing of a report is left once no epoch needs its snapshot any more.

It can be run again at any time. The key of a withdrawn report is in the table of withdrawals until the last file with
it is deleted. Then the database is written anew, so that the key is not among what it has deleted either.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, delete, select, update

from fairpremium.parties.faults import point
from fairpremium.parties.protocol import ENDED, NO_MEANING, OperatorStudy, open_batch
from fairpremium.parties.store.log import append
from fairpremium.parties.store.schema import (
    SCRUB,
    answers,
    batch_files,
    epochs,
    fits,
    mark_for_scrub,
    meta,
    reports,
    sent_batches,
    withdrawals,
)

from .._context import Party, ServiceContext
from .._epochs import end_of, newest_epoch
from .._leases import end_fit, is_fit
from .._row_sets import MEANING
from .._studies import describe_to_operator, find_study, lock_study, spec_of, study_row
from ..reports import apply_withdrawals, begin_epoch
from ._drafts import delete_drafts, drafts_of

_RETENTION = 24 * 3600.0  # seconds for which files of other kinds may still be in use
# Tables that had something of a report or a bundle: keys, codes, or plain digests of files with them.
_SCRUBBED = (reports, answers, withdrawals, fits, batch_files, sent_batches, epochs)

Referenced = Callable[[Connection], set[str]]


def withdraw_now(connection: Connection, context: ServiceContext, who: Party, study: str) -> OperatorStudy:
    """Take out at once what was withdrawn: fits that have not ended are cancelled, and the next epoch begins.

    An epoch that began after the last withdrawal does not end: asked for again, nothing more happens.
    """
    row = find_study(connection, who, study)
    lock_study(connection, study)
    asked = connection.execute(select(withdrawals).where(withdrawals.c.study == study)).all()
    newest = newest_epoch(connection, study)
    if newest is None or not asked:
        return describe_to_operator(connection, row)
    number = newest.number
    if any(each.epoch == newest.number for each in asked):
        number += 1
        begin_epoch(connection, context, who, study, number)
        append(connection, context.now(), who.name, "reports.withdrawn", study=study, epoch=number)
    cancel_fits(connection, context, fits.c.study == study, fits.c.epoch < number)
    forget_snapshots(connection, study, epochs.c.number < number)
    return describe_to_operator(connection, row)


def cancel_fits(connection: Connection, context: ServiceContext, *which: Any) -> bool:
    """Cancel fits that have not ended, and return whether one of them is still running."""
    rows = connection.execute(select(fits).where(*which, fits.c.state.not_in(ENDED)).with_for_update()).all()
    for row in rows:
        if row.state == "queued":
            end_fit(connection, context, row, "cancelled")
        else:
            connection.execute(update(fits).where(is_fit(row)).values(cancel=1))
    return any(row.state == "running" for row in rows)


def forget_snapshots(connection: Connection, study: str, *which: Any) -> None:
    """Let go of the files of snapshots, for good."""
    connection.execute(update(epochs).where(epochs.c.study == study, *which).values(files=None))


def finish_withdrawals(context: ServiceContext, referenced: Referenced) -> None:
    """Take out what was withdrawn, and delete all that is left of what no epoch needs any more.

    - `referenced`: Returns the digests of all files that something refers to.
    """
    asked = select(withdrawals.c.study).distinct()
    studies = context.database.read(lambda c: list(c.execute(asked).scalars()))
    for study in studies:
        with context.files.hold():
            context.database.write(partial(apply_withdrawals, context=context, study=study))
        context.database.write(partial(_forget_ended, context=context, study=study))
        point("withdrawal.applied", writes=False)
    delete_drafts(context, context.database.read(lambda c: drafts_of(c, fits.c.study.in_(studies))))
    if not studies and not context.database.read(_is_pending):
        return
    context.files.sweep(lambda: context.database.read(referenced), _RETENTION, _is_report_file)
    context.forget_batches()
    point("withdrawal.swept", writes=False)
    context.database.write(_forget_withdrawn)
    point("withdrawal.forgotten", writes=False)
    if context.database.read(_is_pending) and context.database.scrub(*_SCRUBBED):
        context.database.write(lambda c: c.execute(delete(meta).where(meta.c.name == SCRUB)))


def _forget_ended(connection: Connection, context: ServiceContext, study: str) -> None:
    """Let go of snapshots that no fit needs or can need: those of epochs that are over."""
    lock_study(connection, study)
    spec, newest = spec_of(study_row(connection, study)), newest_epoch(connection, study)
    if newest is None:
        return
    last = newest.number if context.now() >= end_of(newest, spec) else newest.number - 1
    needs = select(fits.c.id).where(fits.c.study == epochs.c.study, fits.c.epoch == epochs.c.number)
    is_free = ~needs.where(fits.c.state.not_in(ENDED)).exists()
    forget_snapshots(connection, study, epochs.c.number <= last, is_free)


def _is_report_file(path: Path) -> bool:
    """Is this a file of reports? Such a file is put and referred to while the store is held."""
    try:
        return open_batch(path).meaning not in (NO_MEANING, MEANING)
    except (ValueError, OSError):
        return False


def _forget_withdrawn(connection: Connection) -> None:
    """Delete the withdrawals of epochs whose snapshots are gone, and all that fits read from them.

    Whether a snapshot has the withdrawn report does not matter: a withdrawal that were deleted earlier because there
    was none would tell so, by what `withdraw_now` then does.
    """
    asked = select(withdrawals.c.study, withdrawals.c.epoch).where(withdrawals.c.removed == 1).distinct()
    for study, epoch in connection.execute(asked).all():
        running = select(fits.c.id).where(fits.c.study == study, fits.c.epoch <= epoch, fits.c.state.not_in(ENDED))
        kept = select(epochs.c.number).where(
            epochs.c.study == study, epochs.c.number <= epoch, epochs.c.files.is_not(None)
        )
        if any(connection.execute(query.limit(1)).first() is not None for query in (running, kept)):
            continue
        mine = (withdrawals.c.study == study, withdrawals.c.epoch == epoch, withdrawals.c.removed == 1)
        connection.execute(delete(withdrawals).where(*mine))
        mark_for_scrub(connection)


def _is_pending(connection: Connection) -> bool:
    return connection.execute(select(meta.c.name).where(meta.c.name == SCRUB)).first() is not None
