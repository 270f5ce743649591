"""Compaction: the table of single reports stays short and the files of reports stay few.

Nothing here adds, changes or loses a report. It can run at any time or not at all. The last transaction of a step
checks that the files which it replaces are still there.
"""

import threading

from sqlalchemy import Connection, delete, func, select

from fairpremium.parties.protocol import Problem
from fairpremium.parties.store import Extent, Write, merge_batches, plan_merge, store_batch
from fairpremium.parties.store.schema import batch_files, reports

from .._context import ServiceContext
from .._studies import lock_study
from ..operations import log_failure
from ._reports import add_file, singles_of

SINGLES = 1 << 14  # single reports of a collector that wait in the table for a file
_busy = threading.Lock()


def compact(context: ServiceContext, study: str, collector: str, write: Write, *, wait: bool = False) -> None:
    """Make files of single reports, and few files of many.

    - `write`: Runs a command in a transaction.
    - `wait`: Whether to wait for another thread that compacts; otherwise what is left waits for the next call.
    """
    if not _busy.acquire(blocking=wait):
        return
    try:
        with context.files.hold():
            while _step(context, study, collector, write):
                pass
    except Exception as error:  # all reports are where they were, and who sent some must hear that they were taken
        if not isinstance(error, Problem) or error.code not in ("storage-full", "unavailable"):
            log_failure("the compaction")
    finally:
        _busy.release()


def _step(context: ServiceContext, study: str, collector: str, write: Write) -> bool:
    """Compact once, and return whether there was something to compact."""
    mine = (reports.c.study == study, reports.c.collector == collector)
    count = select(func.count()).select_from(reports).where(*mine)
    singles, sizes = context.database.read(lambda c: (c.execute(count).scalar_one(), _sizes(c, study, collector)))
    batches = {sha256: context.open_batch(sha256) for sha256 in sizes}
    extents = {sha256: Extent(len(batch), int(batch.high[0]), int(batch.high[-1])) for sha256, batch in batches.items()}
    chosen = plan_merge(extents)
    if singles >= SINGLES:
        write(lambda c: write_singles(c, context, study, collector))
    if chosen:
        merged = merge_batches(context.files, [batches[sha256] for sha256 in chosen])
        write(lambda c: _replace(c, study, collector, chosen, merged))
    return bool(singles >= SINGLES or chosen)


def write_singles(connection: Connection, context: ServiceContext, study: str, collector: str) -> None:
    """Make a file of the single reports of a source; meanwhile none comes."""
    lock_study(connection, study)
    batch = singles_of(connection, study, collector)
    if len(batch):
        add_file(connection, study, collector, store_batch(context.files, batch), len(batch))
        connection.execute(delete(reports).where(reports.c.study == study, reports.c.collector == collector))


def _sizes(connection: Connection, study: str, collector: str) -> dict[str, int]:
    """Read the number of reports in each file."""
    mine = (batch_files.c.study == study, batch_files.c.collector == collector)
    return {row.sha256: row.rows for row in connection.execute(select(batch_files).where(*mine))}


def _replace(connection: Connection, study: str, collector: str, old: tuple[str, ...], new: str) -> None:
    """Replace files by one, if all of them are still there."""
    lock_study(connection, study)
    sizes = _sizes(connection, study, collector)
    if sizes.keys() >= set(old):
        mine = (batch_files.c.study == study, batch_files.c.collector == collector)
        connection.execute(delete(batch_files).where(*mine, batch_files.c.sha256.in_(old)))
        add_file(connection, study, collector, new, sum(sizes[sha256] for sha256 in old))
