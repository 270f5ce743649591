"""Deletes the files of portfolios and bundles that the database calls erased; it can be run again at any time."""

from functools import partial
from typing import Any

from sqlalchemy import Connection, select, tuple_

from fairpremium.parties.faults import point
from fairpremium.parties.store.schema import fits, portfolio_parts, portfolios

from .._context import ServiceContext
from .._portfolios import is_needed
from .._row_sets import hash_old_row_sets
from ._drafts import delete_drafts, drafts_of


def finish_erasures(context: ServiceContext, *which: tuple[str, str]) -> None:
    """Delete the rows, premiums and drafts of what was erased, and what remains of uploads that were cut off.

    - `which`: Portfolios, as insurer and id; by default all.
    """
    hash_old_row_sets(context)
    doomed, drafts = context.database.read(lambda c: (_erased_files(c, which), _drafts(c, which)))
    for digest in doomed:
        if digest in context.files:
            point("erasure.deleting", writes=False)
            context.files.delete(digest, partial(context.database.read, partial(is_needed, sha256=digest)))
    delete_drafts(context, drafts)
    context.files.delete_abandoned()


def _erased_files(connection: Connection, which: tuple[tuple[str, str], ...]) -> list[str]:
    """Return the digests of the parts of erased portfolios, and of erased bundles."""
    same = (portfolios.c.party == portfolio_parts.c.party) & (portfolios.c.id == portfolio_parts.c.portfolio)
    parts = select(portfolio_parts.c.sha256).join_from(portfolio_parts, portfolios, same)
    parts = parts.where(portfolios.c.state == "deleted", *_among(portfolios.c.party, portfolios.c.id, which))
    bundles = select(fits.c.sha256).where(fits.c.erased.is_not(None), *_among(fits.c.party, fits.c.portfolio, which))
    return sorted({row[0] for query in (parts, bundles) for row in connection.execute(query)})


def _drafts(connection: Connection, which: tuple[tuple[str, str], ...]) -> list[str]:
    same = (portfolios.c.party == fits.c.party) & (portfolios.c.id == fits.c.portfolio)
    is_erased = select(portfolios.c.id).where(same, portfolios.c.state == "deleted").exists()
    return drafts_of(connection, is_erased, *_among(fits.c.party, fits.c.portfolio, which))


def _among(party: Any, name: Any, which: tuple[tuple[str, str], ...]) -> list[Any]:
    return [tuple_(party, name).in_(which)] if which else []
