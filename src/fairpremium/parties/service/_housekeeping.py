"""Deletes what is not needed any more: nonces, old logins, marks of transactions, files of killed uploads and fits."""

import shutil
import time
from contextlib import suppress

from sqlalchemy import Connection, delete, select

from fairpremium.parties.store.schema import batch_files, commits, fits, releases

from ._access import delete_old_nonces
from ._context import ServiceContext
from ._portfolios import files_in_use
from .accounts import delete_old_logins
from .erasure import enforce_retention, finish_erasures, finish_withdrawals
from .reports import files_of_epochs, forget_old_snapshots

_RETENTION = 24 * 3600.0  # seconds that a file without a reference may still be in use
_MARK_RETENTION = 3600.0  # seconds before the mark of a transaction is deleted


def clean(context: ServiceContext, older_than: float = _RETENTION) -> int:
    """Delete what is not needed any more, and return the number of files deleted."""
    context.database.write(lambda c: delete_old_nonces(c, context))
    context.database.write(lambda c: c.execute(delete(commits).where(commits.c.at < context.now() - _MARK_RETENTION)))
    context.database.write(lambda c: delete_old_logins(c, context.now()))
    context.database.write(forget_old_snapshots)
    enforce_retention(context)
    finish_erasures(context)
    finish_withdrawals(context, referenced)
    context.forget_batches()  # another process may have deleted them
    removed = context.files.sweep(lambda: context.database.read(referenced), older_than)
    for draft in context.files.folder.glob(".fit-*"):
        with suppress(FileNotFoundError):
            if draft.stat().st_mtime <= time.time() - older_than:
                shutil.rmtree(draft, ignore_errors=True) if draft.is_dir() else draft.unlink()
                removed += 1
    return removed


def referenced(connection: Connection) -> set[str]:
    """Return the digests of all files that something refers to."""
    queries = [
        files_in_use(),
        select(batch_files.c.sha256),
        select(releases.c.keys_sha256),
        select(fits.c.sha256).where(fits.c.sha256.is_not(None), fits.c.erased.is_(None)),
    ]
    return {row[0] for query in queries for row in connection.execute(query)} | files_of_epochs(connection)
