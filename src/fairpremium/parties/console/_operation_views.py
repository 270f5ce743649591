"""What the operator may see of how the service is doing: its queue, its storage, and the matched shares of results.

Nothing here is computed from reports: a matched share is a released number over the rows that an insurer declared. The
sizes on the disk are what the machine shows to whoever runs it; they are for the operator alone.
"""

import os
import shutil
from dataclasses import dataclass

from sqlalchemy import Connection, func, select, text

from fairpremium.parties.service import ServiceContext, used_bytes
from fairpremium.parties.store.schema import fits, keys, portfolio_parts, portfolios


@dataclass(frozen=True)
class InsurerQueueView:
    """The fits of an insurer that wait and that run, how many may wait, and seconds since the oldest were asked for."""

    insurer: str
    waiting: int
    allowed: int
    running: int
    waited: float | None
    ran: float | None


@dataclass(frozen=True)
class QuotaView:
    """What an insurer has stored, of what it may store, in bytes as it sent them."""

    insurer: str
    stored: int
    allowed: int

    @property
    def share(self) -> float:
        """The part of its storage that an insurer has used."""
        return min(self.stored / self.allowed, 1.0)


@dataclass(frozen=True)
class StorageView:
    """Sizes on the disk of this machine, in bytes, and the storage of each insurer."""

    database: int
    files: int
    free: int
    disk: int
    insurers: tuple[QuotaView, ...]

    @property
    def is_short(self) -> bool:
        """Is less than a tenth of the disk free?"""
        return self.free < 0.1 * self.disk


@dataclass(frozen=True)
class MatchView:
    """How many policies of a portfolio have a report, as released with its newest result, and how many it has."""

    study: str
    insurer: str
    portfolio: str
    fit: str
    ended: float
    matched: int
    rows: int

    @property
    def share(self) -> float:
        """The matched share; noise can take it over 1."""
        return min(self.matched / self.rows, 1.0)


def read_insurer_queues(connection: Connection, context: ServiceContext) -> list[InsurerQueueView]:
    """Read the fits that wait and that run, by insurer."""
    now = context.now()
    query = select(fits.c.party, fits.c.state, func.count(), func.min(fits.c.created)).group_by(
        fits.c.party, fits.c.state
    )
    rows = connection.execute(query.where(fits.c.state.in_(("queued", "running")))).all()
    found = {(party, state): (count, max(now - since, 0.0)) for party, state, count, since in rows}
    none = (0, None)
    return [
        InsurerQueueView(
            insurer=name,
            waiting=found.get((name, "queued"), none)[0],
            allowed=context.limits.queued_fits,
            running=found.get((name, "running"), none)[0],
            waited=found.get((name, "queued"), none)[1],
            ran=found.get((name, "running"), none)[1],
        )
        for name in sorted({party for party, _ in found})
    ]


def read_storage(connection: Connection, context: ServiceContext) -> StorageView:
    """Read how much the disk holds, and what each insurer has stored."""
    insurers = connection.execute(
        select(keys.c.party).where(keys.c.role == "insurer").distinct().order_by(keys.c.party)
    )
    most = context.limits.stored_bytes
    used = tuple(QuotaView(name, used_bytes(connection, context, name), most) for name in list(insurers.scalars()))
    usage = shutil.disk_usage(context.files.folder)
    return StorageView(
        database=_database_bytes(connection),
        files=_file_bytes(context.files.folder),
        free=usage.free,
        disk=usage.total,
        insurers=used,
    )


def _database_bytes(connection: Connection) -> int:
    if connection.dialect.name == "postgresql":
        return int(connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one())
    pages, size = (int(connection.execute(text(f"PRAGMA {what}")).scalar_one()) for what in ("page_count", "page_size"))
    return pages * size


def _file_bytes(folder: os.PathLike[str]) -> int:
    """Add up the files of a folder; some may be gone by the time they are looked at."""
    total = 0
    for entry in os.scandir(folder):
        try:
            total += entry.stat().st_size if entry.is_file() else 0
        except FileNotFoundError:
            continue
    return total


def read_matches(connection: Connection) -> list[MatchView]:
    """Read the released matched share of each portfolio: that of its newest result."""
    same = (portfolio_parts.c.party == fits.c.party) & (portfolio_parts.c.portfolio == fits.c.portfolio)
    rows = select(func.coalesce(func.sum(portfolio_parts.c.rows), 0)).where(same).scalar_subquery()
    columns = (fits.c.study, fits.c.party, fits.c.portfolio, fits.c.id, fits.c.ended, fits.c.matched, rows)
    is_released = (fits.c.state == "succeeded") & fits.c.matched.is_not(None)
    there = (portfolios.c.party == fits.c.party) & (portfolios.c.id == fits.c.portfolio)
    query = select(*columns).join(portfolios, there).where(is_released, portfolios.c.state != "deleted")
    newest: dict[tuple[str, str], MatchView] = {}
    for row in connection.execute(query.order_by(fits.c.ended, fits.c.id)):
        view = MatchView(*row)
        if view.rows:
            newest[view.insurer, view.portfolio] = view
    return sorted(newest.values(), key=lambda view: (view.study, view.insurer, view.portfolio))
