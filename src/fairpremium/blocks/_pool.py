"""Worker processes on this machine that outlive a pass, and start again if one of them dies."""

import multiprocessing
import os
import signal
import sys
import threading
import types
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import wait
from typing import Any

import pyarrow as pa

from fairpremium.blocks._threads import count_workers, thread_pools

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_RESTARTS = 2  # how often workers are restarted in one pass


class WorkerPool:
    """A process pool that is started on first use.

    Workers are not forks of this process, whose threads they would not survive. Where it can, a server process that
    has imported what passes need and started no thread forks them, so that all pools but the first start at once. Each
    worker has one thread for linear algebra and one for Arrow.
    """

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None

    def map(self, function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
        """Call the function with each tuple of arguments and yield the results in order.

        Few calls are under way at a time, so that neither arguments nor results pile up. If a worker dies (killed,
        out of memory), the calls that were lost are made again.
        """
        todo = deque(arguments)
        running: deque[tuple[tuple[Any, ...], Future[Any]]] = deque()
        restarts = 0
        while todo or running:
            try:
                while todo and len(running) < 2 * count_workers() + 2:
                    running.append((todo[0], self._started().submit(function, *todo[0])))
                    todo.popleft()
                result = running[0][1].result()
            except BrokenProcessPool as error:
                restarts += 1
                self.close()
                if restarts > _RESTARTS:
                    raise RuntimeError(
                        "Worker processes died three times in one pass over the rows, probably for lack of memory. "
                        "What helps: fewer workers (FAIRPREMIUM_WORKERS=1), or smaller row groups in the files."
                    ) from error
                todo.extendleft(given for given, _ in reversed(running))
                running.clear()
                continue
            running.popleft()
            yield result

    def close(self) -> None:
        """Stop the workers."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            self._pool = start_processes(count_workers())
        return self._pool


def start_processes(workers: int) -> ProcessPoolExecutor:
    """Start worker processes with one thread each, which end with this process, however it ends."""
    context: Any = multiprocessing.get_context("spawn")
    if "forkserver" in multiprocessing.get_all_start_methods():
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["fairpremium.pricing._pricer"])  # what passes need
    with _without_main(), _one_thread():
        pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_begin)
        for _ in range(workers):
            pool.submit(os.getpid)  # starts a worker each
    return pool


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let new processes start no threads for linear algebra."""
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _begin() -> None:
    """Limit a worker to one thread, and let it end with the process that it works for.

    Ctrl-C reaches every process of a terminal. The one that has workers decides what it means; they say nothing.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    thread_pools().limit(limits=1)
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)


def _end_with(sentinel: int) -> None:
    """Wait for the end of a process, however it comes, and end this one."""
    wait([sentinel])
    os._exit(1)


@contextmanager
def _without_main() -> Iterator[None]:
    """Hide the caller's script from new workers.

    A new worker imports the main module of its parent, which would run a script that has no ``if __name__ ==
    "__main__"`` once more. Jobs are made of this package's own functions, so that the workers do without.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
