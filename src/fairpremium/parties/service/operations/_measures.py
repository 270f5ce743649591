"""Numbers for whoever runs the service: fits, leases, storage, epochs, the age of its key.

All come from the database and the disk, so that every web process tells the same. None is computed from reports. But
the bytes of database, files and disk change with every report, so they are told in steps.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, case, func, select

from fairpremium.parties.protocol import ENDED
from fairpremium.parties.store.schema import epochs, fits, log, portfolio_parts, portfolios

from ._heartbeats import count_workers

if TYPE_CHECKING:
    from .._context import ServiceContext

_STEP = 1 << 26  # bytes, in which storage is told: 64 MiB
_STATES = ("queued", "running", *ENDED)


@dataclass(frozen=True)
class ServiceMeasures:
    """What the service has and does at one moment.

    - `fits`: Number of fits by state.
    - `oldest_wait`: Seconds that the oldest waiting fit has waited; 0 where none does.
    - `workers`: Workers that gave a sign of life within the last minute.
    - `leases_held`, `leases_expired`: Fits that run, whose worker renews its lease or has not done so in time.
    - `attempts`, `attempts_lost`: Of all fits together; an attempt is lost if another one had to begin.
    - `epochs`: The number of the present epoch, by study.
    - `key_seconds`: How long the key of the service has been in force; of the first key, since the log began.
    - `portfolio_bytes`: Of the parts of portfolios that are not erased.
    - `database_bytes`, `file_bytes`, `free_bytes`: In steps of 64 MiB.
    """

    fits: dict[str, int]
    oldest_wait: float
    workers: int
    leases_held: int
    leases_expired: int
    attempts: int
    attempts_lost: int
    epochs: dict[str, int]
    key_seconds: float
    portfolio_bytes: int
    database_bytes: int
    file_bytes: int
    free_bytes: int


def measure_service(context: ServiceContext) -> ServiceMeasures:
    """Read all numbers."""
    folder = context.files.folder
    used, free = _count_bytes(folder), shutil.disk_usage(folder).free

    workers = count_workers(context)

    def measure(connection: Connection) -> ServiceMeasures:
        now = context.now()
        held = case((fits.c.lease_until >= now, 1), else_=0)
        tried = case((fits.c.attempt > 0, 1), else_=0)
        columns = (func.count(), func.sum(fits.c.attempt), func.sum(tried), func.sum(held), func.min(fits.c.created))
        rows = connection.execute(select(fits.c.state, *columns).group_by(fits.c.state))
        by_state = {row[0]: tuple(row[1:]) for row in rows}
        running, attempts = by_state.get("running"), sum(int(row[1]) for row in by_state.values())
        newest = select(epochs.c.study, func.max(epochs.c.number)).group_by(epochs.c.study).order_by(epochs.c.study)
        kept = portfolio_parts.join(portfolios)
        stored = select(func.coalesce(func.sum(portfolio_parts.c.bytes), 0)).select_from(kept)
        return ServiceMeasures(
            fits={state: int(by_state[state][0]) if state in by_state else 0 for state in _STATES},
            oldest_wait=max(0.0, now - by_state["queued"][4]) if "queued" in by_state else 0.0,
            workers=workers,
            leases_held=int(running[3]) if running else 0,
            leases_expired=int(running[0] - running[3]) if running else 0,
            attempts=attempts,
            attempts_lost=attempts - sum(int(row[2]) for row in by_state.values()),
            epochs={row[0]: int(row[1]) for row in connection.execute(newest)},
            key_seconds=max(0.0, now - _key_since(connection, context)),
            portfolio_bytes=int(connection.execute(stored.where(portfolios.c.state != "deleted")).scalar_one()),
            database_bytes=_next_step(context.database.count_bytes(connection)),
            file_bytes=_next_step(used),
            free_bytes=free // _STEP * _STEP,
        )

    return context.database.read(measure)


def _key_since(connection: Connection, context: ServiceContext) -> float:
    """Return when the key in force came; the first one has no date, but is as old as the log."""
    since = context.keys.current(connection).chain.public_keys()[-1].since
    since = since or connection.execute(select(log.c.time).where(log.c.seq == 1)).scalar()
    return context.now() if since is None else datetime.fromisoformat(since).timestamp()


def _count_bytes(folder: Path) -> int:
    """Add up the sizes of the files of a folder; some may go meanwhile."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += (Path(place) / name).stat().st_size
    return total


def _next_step(size: int) -> int:
    return (size // _STEP + 1) * _STEP  # never 0: the first report must not show
