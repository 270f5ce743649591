"""How many threads there are, and functions that are called at once."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from threading import Event
from typing import TypeVar

from threadpoolctl import ThreadpoolController

from fairpremium.progress import quiet

T = TypeVar("T")

_share: ContextVar[int | None] = ContextVar("share", default=None)  # of the workers, for one of several functions
_given_up: ContextVar[Event | None] = ContextVar("given_up", default=None)


def count_workers() -> int:
    """Return how many threads or processes to use: FAIRPREMIUM_WORKERS, or the processors this process may use.

    A function that is called at once with others has its share of them.
    """
    share = _share.get()
    if share is not None:
        return share
    given = os.environ.get("FAIRPREMIUM_WORKERS", "")
    if given:
        if not given.isdecimal() or int(given) < 1:
            raise ValueError(f"Got FAIRPREMIUM_WORKERS={given!r}, but expected an integer >= 1.")
        return int(given)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else (os.cpu_count() or 1)


def has_share() -> bool:
    """Tell whether this function is called at once with others."""
    return _share.get() is not None


def at_once(
    functions: Sequence[Callable[[], T]], before: Callable[[int], None] = lambda _: None, several: bool = True
) -> list[T]:
    """Call functions in as many threads as there are workers, and return their results in order.

    `before` is called in this thread before the result of each is waited for; the functions tell nothing themselves,
    and their linear algebra has one thread. The first error, here or in one of them, ends them all: those that run
    end at their next `checkpoint`. Without `several` they are called one after the other.
    """
    workers = count_workers()
    together = min(workers, len(functions)) if several else 1
    given_up = Event()

    def call(function: Callable[[], T]) -> T:
        _given_up.set(given_up)
        _share.set(workers // together)
        with quiet():
            return function()

    found: list[T] = []
    with one_blas_thread():
        if together < 2:
            for i, function in enumerate(functions):
                before(i)
                with quiet():
                    found.append(function())
            return found
        with ThreadPoolExecutor(together) as pool:
            futures = [pool.submit(copy_context().run, call, function) for function in functions]
            try:
                for i, future in enumerate(futures):
                    before(i)
                    found.append(future.result())
            finally:
                given_up.set()
                pool.shutdown(wait=False, cancel_futures=True)
    return found


def checkpoint() -> None:
    """End a function that is called at once with others, if they are given up."""
    given_up = _given_up.get()
    if given_up is not None and given_up.is_set():
        raise CancelledError


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Let the linear algebra library use one thread: for small matrices others come later than the result."""
    with thread_pools().limit(limits=1, user_api="blas"):
        yield


@functools.cache
def thread_pools() -> ThreadpoolController:
    """Return the controller of the threads of numerical libraries."""
    return ThreadpoolController()
