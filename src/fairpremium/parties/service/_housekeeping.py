"""What nobody needs any more: used nonces, marks of transactions, files of killed uploads, drafts of killed fits."""

from __future__ import annotations

import shutil
import time
from contextlib import suppress

from sqlalchemy import Connection, delete, select

from fairpremium.parties.store.schema import commits, fits, portfolio_parts, portfolios, releases, report_runs

from ._access import forget_old_nonces
from ._context import ServiceContext

__all__ = ["clean"]

_KEEP = 24 * 3600.0  # seconds that a file without a reference may belong to something that goes on
_MARKED = 3600.0  # seconds that the marks of transactions are kept


def clean(context: ServiceContext, older_than: float = _KEEP) -> int:
    """Remove what is left over, and return how many files that were."""
    context.store.write(lambda c: forget_old_nonces(c, context))
    context.store.write(lambda c: c.execute(delete(commits).where(commits.c.at < context.now() - _MARKED)))
    removed = context.blobs.sweep(lambda: context.store.read(referenced), older_than)
    for draft in context.blobs.folder.glob(".fit-*"):
        with suppress(FileNotFoundError):
            if draft.stat().st_mtime <= time.time() - older_than:
                shutil.rmtree(draft, ignore_errors=True) if draft.is_dir() else draft.unlink()
                removed += 1
    return removed


def referenced(connection: Connection) -> set[str]:
    """Return the digests of all files that something refers to."""
    alive = portfolio_parts.join(
        portfolios, (portfolios.c.party == portfolio_parts.c.party) & (portfolios.c.id == portfolio_parts.c.portfolio)
    )
    queries = [
        select(portfolio_parts.c.sha256).select_from(alive).where(portfolios.c.state != "deleted"),
        select(report_runs.c.sha256),
        select(releases.c.keys_sha256),
        select(fits.c.sha256).where(fits.c.sha256.is_not(None)),
    ]
    return {row[0] for query in queries for row in connection.execute(query)}
