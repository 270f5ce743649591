"""Keeping the table of single reports short and the files of reports few.

Nothing here adds, changes or loses a report. It can be done at any time and left undone; only what one step reads and
the next one replaces must be alive still, which the last transaction checks.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from functools import partial

from sqlalchemy import Connection, delete, func, insert, select

from fairpremium.parties.protocol import Problem
from fairpremium.parties.store import Extent, Write, merge_runs, plan_merge, write_run
from fairpremium.parties.store.schema import report_runs, reports

from ._context import ServiceContext
from ._reports import singles_of
from ._settings import log_failure
from ._studies import lock_study

__all__ = ["SINGLES", "compact"]

SINGLES = 1 << 14  # single reports of a collector that wait in the table for a file
_busy = threading.Lock()


def compact(context: ServiceContext, study: str, collector: str, write: Write, *, wait: bool = False) -> None:
    """Make files of single reports, and few files of many.

    Parameters
    ----------
    context : ServiceContext
    study, collector : str
    write : callable
        Runs a command in a transaction.
    wait : bool
        Whether to wait for another thread that is at it, and go on then; otherwise what is left waits for the next one.
    """
    if not _busy.acquire(blocking=wait):
        return
    try:
        with context.blobs.hold():
            while _step(context, study, collector, write):
                pass
    except Exception as error:  # all reports are where they were, and who sent some must hear that they were taken
        if not isinstance(error, Problem) or error.code not in ("storage-full", "unavailable"):
            log_failure("the compaction")
    finally:
        _busy.release()


def _step(context: ServiceContext, study: str, collector: str, write: Write) -> bool:
    """Do what is to be done, and return whether there was something."""
    singles, sizes = context.store.read(lambda c: _look(c, study, collector))
    chosen = plan_merge(_extents(context, sizes))
    if singles >= SINGLES:
        write(lambda c: _settle(c, context, study, collector))
    if chosen:
        merged = merge_runs(context.blobs, [context.run(sha256) for sha256 in chosen])
        write(partial(_replace, study=study, collector=collector, old=chosen, new=merged))
    return bool(singles >= SINGLES or chosen)


def _look(connection: Connection, study: str, collector: str) -> tuple[int, dict[str, int]]:
    """Count the single reports in the table, and the rows of each file."""
    mine = (reports.c.study == study, reports.c.collector == collector)
    singles = connection.execute(select(func.count()).select_from(reports).where(*mine)).scalar_one()
    return int(singles), _sizes(connection, study, collector)


def _settle(connection: Connection, context: ServiceContext, study: str, collector: str) -> None:
    """Make a file of the single reports; meanwhile none comes."""
    lock_study(connection, study)
    run = singles_of(connection, study, collector)
    if len(run):
        _add(connection, study, collector, write_run(context.blobs, run), len(run))
        connection.execute(delete(reports).where(reports.c.study == study, reports.c.collector == collector))


def _sizes(connection: Connection, study: str, collector: str) -> dict[str, int]:
    mine = (report_runs.c.study == study, report_runs.c.collector == collector)
    return {row.sha256: row.rows for row in connection.execute(select(report_runs).where(*mine))}


def _extents(context: ServiceContext, digests: Iterable[str]) -> dict[str, Extent]:
    runs = {sha256: context.run(sha256) for sha256 in digests}
    return {sha256: Extent(len(run), int(run.high[0]), int(run.high[-1])) for sha256, run in runs.items()}


def _replace(connection: Connection, study: str, collector: str, old: tuple[str, ...], new: str) -> None:
    """Let one file stand for others, if all of them are there still."""
    lock_study(connection, study)
    sizes = _sizes(connection, study, collector)
    if sizes.keys() >= set(old):
        mine = (report_runs.c.study == study, report_runs.c.collector == collector)
        connection.execute(delete(report_runs).where(*mine, report_runs.c.sha256.in_(old)))
        _add(connection, study, collector, new, sum(sizes[sha256] for sha256 in old))


def _add(connection: Connection, study: str, collector: str, sha256: str, rows: int) -> None:
    values = {"study": study, "collector": collector, "sha256": sha256, "rows": rows}
    connection.execute(insert(report_runs).values(**values))
