"""Commands on portfolios: declare, add parts, seal, erase."""

import hashlib
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, delete, func, insert, select, update

from fairpremium.documents import canonical_json
from fairpremium.parties.protocol import ENDED, PartTaken, Portfolio, PortfolioSpec, Problem
from fairpremium.parties.store.log import append
from fairpremium.parties.store.schema import fits, mark_for_scrub, portfolio_parts, portfolios

from ._context import Party, ServiceContext, as_json, find_row
from ._studies import find_study


def put_portfolio(
    connection: Connection, context: ServiceContext, who: Party, portfolio: str, spec: PortfolioSpec
) -> Portfolio:
    """Declare a portfolio: its study, its columns and their roles.

    One that was erased before it was sealed begins anew, so that an upload that failed does not use up its id. Its
    files are gone by then (`is_dropped`); the log keeps the digests of its parts.
    """
    find_study(connection, who, spec.study)
    query = select(portfolios).where(*_mine(who, portfolio)).with_for_update()
    row = connection.execute(query).one_or_none()
    text = as_json(spec)
    if row is None or _is_dropped(row):
        _forget(connection, who, portfolio)
        values = {"party": who.name, "id": portfolio, "study": spec.study, "spec": text, "state": "open"}
        connection.execute(insert(portfolios).values(**values, created=context.now()))
        known = {"portfolio": portfolio, "study": spec.study, "features": len(spec.features)}
        append(connection, context.now(), who.name, "portfolio.declared", **known)
    elif row.spec != text:
        raise Problem("conflict")
    return get_portfolio(connection, context, who, portfolio)


def is_dropped(connection: Connection, who: Party, portfolio: str) -> bool:
    """Was a portfolio of this insurer erased before it was sealed?"""
    row = connection.execute(select(portfolios).where(*_mine(who, portfolio))).one_or_none()
    return row is not None and _is_dropped(row)


def _is_dropped(row: Any) -> bool:
    return bool(row.state == "deleted" and row.sha256 is None)


def _forget(connection: Connection, who: Party, portfolio: str) -> None:
    mine = (portfolio_parts.c.party == who.name, portfolio_parts.c.portfolio == portfolio)
    connection.execute(delete(portfolio_parts).where(*mine))
    connection.execute(delete(portfolios).where(*_mine(who, portfolio)))


def get_portfolio(connection: Connection, context: ServiceContext, who: Party, portfolio: str) -> Portfolio:
    """Return a portfolio of this insurer."""
    row = find_portfolio(connection, who, portfolio)
    parts = parts_of(connection, who.name, portfolio)
    return Portfolio(
        id=row.id,
        spec=PortfolioSpec.model_validate_json(row.spec),
        state=row.state,
        parts=tuple(PartTaken(n=part.n, rows=part.rows, sha256=part.sha256) for part in parts),
        rows=sum(part.rows for part in parts),
        sha256=row.sha256,
    )


def put_part(
    connection: Connection, context: ServiceContext, who: Party, portfolio: str, part: PartTaken, size: int
) -> PartTaken:
    """Take a part whose file is in its place already."""
    row = find_portfolio(connection, who, portfolio, lock=True)
    if row.state == "deleted":
        raise Problem("portfolio-deleted")
    mine = (portfolio_parts.c.party == who.name, portfolio_parts.c.portfolio == portfolio)
    digest = select(portfolio_parts.c.sha256).where(*mine, portfolio_parts.c.n == part.n)
    before = connection.execute(digest).scalar_one_or_none()
    if before == part.sha256:
        return part
    if before is not None:
        raise Problem("conflict")
    if row.state != "open":
        raise Problem("portfolio-sealed")
    if part.n >= context.limits.parts:
        raise Problem("quota", f"{context.limits.parts} parts of a portfolio; send more rows in each")
    rows = select(func.coalesce(func.sum(portfolio_parts.c.rows), 0)).where(*mine)
    if connection.execute(rows).scalar_one() + part.rows > context.limits.portfolio_rows:
        raise Problem("quota", f"{context.limits.portfolio_rows} rows of a portfolio; send the others as another one")
    check_storage(connection, context, who, size)
    values = {"party": who.name, "portfolio": portfolio, **part.model_dump(), "bytes": size}
    connection.execute(insert(portfolio_parts).values(**values))
    known = {"portfolio": portfolio, "part": part.n, "sha256": part.sha256, "rows": part.rows}
    append(connection, context.now(), who.name, "portfolio.part", **known)
    return part


def stored_bytes(connection: Connection, party: str) -> int:
    """Add up the sizes of the parts that an insurer has stored, as it sent them."""
    stored = select(func.coalesce(func.sum(portfolio_parts.c.bytes), 0)).select_from(_undeleted_parts)
    return int(connection.execute(stored.where(portfolio_parts.c.party == party)).scalar_one())


def used_bytes(connection: Connection, context: ServiceContext, party: str) -> int:
    """Add up what an insurer has stored: the parts of its portfolios, and the bundles of its fits."""
    bundles = select(fits.c.sha256).where(fits.c.party == party, fits.c.sha256.is_not(None), fits.c.erased.is_(None))
    sizes = map(context.files.size, connection.execute(bundles.distinct()).scalars())
    return stored_bytes(connection, party) + sum(sizes)


def check_storage(connection: Connection, context: ServiceContext, who: Party, size: int) -> None:
    """Refuse to store so many more bytes of an insurer than it may have."""
    if used_bytes(connection, context, who.name) + size > context.limits.stored_bytes:
        raise Problem("quota", "storage; erase a portfolio that is no longer needed, which erases its bundles as well")


class Unsealed(NamedTuple):
    """What is to be sealed: the digest of spec and parts, the digests of the files to check, their rows and keys."""

    digest: str
    files: list[str]
    rows: int
    key: str


def see_before_sealing(connection: Connection, context: ServiceContext, who: Party, portfolio: str) -> Unsealed:
    """Return what is checked before a portfolio is sealed; no files where it is sealed or erased already."""
    row = find_portfolio(connection, who, portfolio)
    parts = parts_of(connection, who.name, portfolio)
    rows = sum(part.rows for part in parts)
    if row.state == "open" and not rows:
        raise Problem("portfolio-empty")
    files = [part.sha256 for part in parts] if row.state == "open" else []
    return Unsealed(_digest(row, parts), files, rows, PortfolioSpec.model_validate_json(row.spec).key)


def seal_portfolio(
    connection: Connection, context: ServiceContext, who: Party, portfolio: str, checked: str
) -> Portfolio:
    """Make a portfolio immutable; `checked` is the digest of `see_before_sealing`."""
    row = find_portfolio(connection, who, portfolio, lock=True)
    if row.state == "deleted":
        raise Problem("portfolio-deleted")
    if row.state == "open":
        parts = parts_of(connection, who.name, portfolio)
        if _digest(row, parts) != checked:
            raise Problem("conflict")  # a part came while the keys were checked
        change = update(portfolios).where(*_mine(who, portfolio))
        connection.execute(change.values(state="sealed", sha256=checked))
        rows = sum(part.rows for part in parts)
        append(connection, context.now(), who.name, "portfolio.sealed", portfolio=portfolio, sha256=checked, rows=rows)
    return get_portfolio(connection, context, who, portfolio)


def delete_portfolio(connection: Connection, context: ServiceContext, who: Party, portfolio: str) -> None:
    """Erase the rows and the bundles of a portfolio's fits; digests and log stay. The files go afterwards."""
    row = find_portfolio(connection, who, portfolio, lock=True)
    if row.state == "deleted":  # the first request may have been killed before the files were gone
        return
    mine = (fits.c.party == who.name, fits.c.portfolio == portfolio)
    if connection.execute(select(fits.c.id).where(*mine, fits.c.state.not_in(ENDED)).limit(1)).first():
        raise Problem("portfolio-busy")
    erase_portfolio(connection, context, row)


def erase_portfolio(connection: Connection, context: ServiceContext, row: Any, **why: str) -> None:
    """Call a portfolio erased, and the bundles of its fits, which have ended; the files go afterwards.

    - `row`: That of the portfolio.
    - `why`: What the log says besides.
    """
    this = (portfolios.c.party == row.party, portfolios.c.id == row.id)
    connection.execute(update(portfolios).where(*this).values(state="deleted"))
    erase_bundles(connection, context, fits.c.party == row.party, fits.c.portfolio == row.id)
    append(connection, context.now(), row.party, "portfolio.erased", portfolio=row.id, sha256=row.sha256, **why)


def erase_bundles(connection: Connection, context: ServiceContext, *which: ColumnElement[bool]) -> None:
    """Call bundles of fits erased, and delete what the console shows of them: it has levels and numbers of rows.

    - `which`: Conditions on `fits`.
    """
    there = (fits.c.sha256.is_not(None), fits.c.erased.is_(None))
    gone = {"erased": context.now(), "summary": None, "matched": None}
    if connection.execute(update(fits).where(*which, *there).values(gone)).rowcount:
        mark_for_scrub(connection)


def find_portfolio(connection: Connection, who: Party, portfolio: str, *, lock: bool = False) -> Any:
    """Return the row of one of the insurer's portfolios; otherwise there is no such portfolio."""
    return find_row(connection, select(portfolios).where(*_mine(who, portfolio)), lock=lock)


def parts_of(connection: Connection, party: str, portfolio: str) -> list[Any]:
    """Return the rows of the parts, in order."""
    mine = (portfolio_parts.c.party == party, portfolio_parts.c.portfolio == portfolio)
    return list(connection.execute(select(portfolio_parts).where(*mine).order_by(portfolio_parts.c.n)))


_undeleted_parts = portfolio_parts.join(
    portfolios,
    (portfolios.c.party == portfolio_parts.c.party)
    & (portfolios.c.id == portfolio_parts.c.portfolio)
    & (portfolios.c.state != "deleted"),
)


def _mine(who: Party, portfolio: str) -> tuple[Any, Any]:
    return portfolios.c.party == who.name, portfolios.c.id == portfolio


def _digest(row: Any, parts: list[Any]) -> str:
    content = {"spec": row.spec, "parts": [[part.n, part.sha256] for part in parts]}
    return hashlib.sha256(canonical_json(content)).hexdigest()


def files_in_use() -> Select[tuple[str]]:
    """Select the digests of all parts of portfolios that were not erased."""
    same = (portfolios.c.party == portfolio_parts.c.party) & (portfolios.c.id == portfolio_parts.c.portfolio)
    parts = select(portfolio_parts.c.sha256).select_from(portfolio_parts.join(portfolios, same))
    return parts.where(portfolios.c.state != "deleted")


def is_needed(connection: Connection, sha256: str) -> bool:
    """Is this file a part of a portfolio, or a bundle, that was not erased?"""
    part = files_in_use().where(portfolio_parts.c.sha256 == sha256)
    bundle = select(fits.c.sha256).where(fits.c.sha256 == sha256, fits.c.erased.is_(None))
    return any(connection.execute(query.limit(1)).first() is not None for query in (part, bundle))
