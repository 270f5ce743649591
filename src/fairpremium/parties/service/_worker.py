"""Workers: each fit is done by a child process, which may die; the worker holds the lease and watches."""

import multiprocessing
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any

from sqlalchemy.exc import DBAPIError

from fairpremium.parties.clock import on_this_machine
from fairpremium.parties.protocol import Problem
from fairpremium.parties.store import is_full_disk
from fairpremium.parties.store.schema import fits

from ._context import ServiceContext, ServiceLimits, open_context
from ._housekeeping import clean
from ._leases import Lease, LeaseLost, acquire_lease, release_lease, renew_lease
from .erasure import delete_drafts, drafts_of
from .operations import Heartbeat, LogSettings, log_event, log_failure, write_log, written_log

_CLEAN_EVERY = 3600.0
_IDLE = 0.3  # seconds between two looks for work
_TROUBLED = 3.0  # seconds before the next look when the database or the disk does not let us work
_FULL = 28  # how a child says that the disk is full


def _run(context: ServiceContext, lease: Lease) -> None:
    from ._run_fit import run_fit  # with all that fits need, which a worker that waits does not

    run_fit(context, lease)


def stop_with_parent() -> None:
    """Ask this process to stop when standard input closes: the system closes it when the other end is gone."""

    def watch() -> None:
        while os.read(0, 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def work_once(context: ServiceContext) -> bool:
    """Do one waiting fit in this process; return whether there was one. For notebooks and tests."""
    lease = context.database.write(lambda c: acquire_lease(c, context))
    if lease is None:
        return False
    stop = threading.Event()
    beat = threading.Thread(target=_beat, args=(context, lease, stop), daemon=True)
    beat.start()
    try:
        _run(context, lease)
    except LeaseLost:
        context.database.write(lambda c: release_lease(c, context, lease))
    finally:
        stop.set()
        beat.join()
    return True


def work(
    folder: str | os.PathLike[str],
    *,
    database: str | None = None,
    limits: ServiceLimits | None = None,
    stop: Callable[[], bool] = lambda: False,
    once: bool = False,
) -> None:
    """Take fits one after the other until told to stop.

    - `folder`, `database`, `limits`: As for `ThirdParty`.
    - `stop`: Asked between fits and while one runs; a fit that runs is then given back.
    - `once`: Return when no fit is waiting.
    """
    reopen = partial(open_context, os.fspath(folder), database=database, limits=limits)
    context = reopen()
    cleaned = float("-inf")
    heartbeat = Heartbeat(context)
    log_event("worker.started", worker=os.getpid())

    def is_told() -> bool:  # asked all the time, while a fit runs too
        heartbeat.beat()
        return stop()

    try:
        while not is_told():
            try:
                if time.monotonic() - cleaned > on_this_machine(_CLEAN_EVERY):
                    clean(context)
                    cleaned = time.monotonic()
                lease = context.database.write(lambda c: acquire_lease(c, context))
                if lease is not None:
                    _supervise(context, lease, reopen, is_told)
                elif once:
                    return
                else:
                    time.sleep(_IDLE)
            except (DBAPIError, Problem, OSError):  # a fit that we held is free when its lease is over
                if once:
                    raise
                log_failure("a look for work")
                _wait(is_told, _TROUBLED)
    finally:
        heartbeat.end()
        context.database.close()
        log_event("worker.stopped", worker=os.getpid())


def _supervise(
    context: ServiceContext, lease: Lease, reopen: Callable[[], ServiceContext], stop: Callable[[], bool]
) -> None:
    """Let a child do the fit; renew_lease the lease while it lives, end it when the lease is gone."""
    forkserver = multiprocessing.get_context("forkserver")  # it imports once, and forks while nothing else runs in it
    forkserver.set_forkserver_preload([__name__, f"{__package__}._run_fit", "altair", "jinja2"])  # what fits need
    child = forkserver.Process(target=_child, args=(reopen, lease, written_log()), daemon=True)
    child.start()
    every = context.limits.lease_seconds / 5
    next_beat = time.monotonic() + every
    stopped = ended_itself = False
    try:
        while child.is_alive():
            child.join(min(_IDLE, every))
            if stop():
                stopped = True
                break
            if time.monotonic() >= next_beat:
                next_beat = time.monotonic() + every
                context.database.write(lambda c: renew_lease(c, context, lease))
        ended_itself = not stopped
    except LeaseLost:
        pass
    finally:
        child.kill()
        child.join()
    fit: dict[str, Any] = {"party": lease.party, "fit": lease.fit, "attempt": lease.attempt}
    if child.exitcode == _FULL:  # no hurry: the fit is tried again when its lease is over
        log_event("storage.full", **fit)
        _wait(stop, _TROUBLED)
        return
    if ended_itself and child.exitcode:
        log_event("fit.died", **fit, exit=child.exitcode)
    # A child that ended well has written the end itself; this frees what one left behind that did not.
    context.database.write(lambda c: release_lease(c, context, lease, tried=not stopped))
    this = (fits.c.party == lease.party, fits.c.id == lease.fit)
    delete_drafts(context, context.database.read(lambda c: drafts_of(c, *this)))


def _child(reopen: Callable[[], ServiceContext], lease: Lease, log: LogSettings | None) -> None:
    with nullcontext() if log is None else write_log(log):
        _work_alone(reopen(), lease)


def _work_alone(context: ServiceContext, lease: Lease) -> None:
    _limit_process(context.limits)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the worker too, which ends this process
    threading.Thread(target=_end_with_parent, daemon=True).start()
    worker = multiprocessing.parent_process()
    pid = None if worker is None else worker.pid
    log_event("fit.started", party=lease.party, fit=lease.fit, attempt=lease.attempt, worker=pid)
    try:
        _run(context, lease)
    except LeaseLost:
        pass
    except Exception as error:  # its text may quote data
        log_failure("a fit")
        sys.exit(_FULL if is_full_disk(error) else 1)


def _limit_process(limits: ServiceLimits) -> None:
    """Bound the memory and the processor time of this process: a request of a few kilobytes may ask for much."""
    resource.setrlimit(resource.RLIMIT_DATA, (limits.fit_memory, limits.fit_memory))
    resource.setrlimit(resource.RLIMIT_CPU, (limits.fit_seconds, limits.fit_seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _wait(stop: Callable[[], bool], seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and not stop():
        time.sleep(_IDLE)


def _end_with_parent() -> None:
    """Die when the worker was killed: nobody renews the lease then."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _beat(context: ServiceContext, lease: Lease, stop: threading.Event) -> None:
    with suppress(LeaseLost):
        while not stop.wait(context.limits.lease_seconds / 5):
            context.database.write(lambda c: renew_lease(c, context, lease))
