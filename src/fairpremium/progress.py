"""What a long computation says about itself: how much of it is done, and what it does now.

A computation says so by `tell`, and `section` puts what is said inside it between two fractions of the whole. Whoever
begins the computation listens. Nobody has to hand a function down to where something is worth saying.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

Progress = Callable[[float, str], Any]  # takes how much is done, as a fraction of one, and a few words


class _Listening(NamedTuple):
    hear: Progress
    start: float = 0.0
    stop: float = 1.0


_listening: ContextVar[_Listening | None] = ContextVar("listening", default=None)


@contextmanager
def listening(verbose: bool | Progress) -> Iterator[None]:
    """Hear what is told inside: True prints it on stderr, False leaves it to who listens outside, if anybody does.

    Examples
    --------
    >>> heard = []
    >>> with listening(lambda fraction, words: heard.append((fraction, words))):
    ...     with section(0.5, 1.0):
    ...         tell(0.5, "adding up")
    >>> heard
    [(0.75, 'adding up')]
    """
    if not isinstance(verbose, bool) and not callable(verbose):
        raise TypeError(
            f"Got verbose={verbose!r}, but expected True, False or a function of a fraction and a few words."
        )
    if verbose is False:
        yield
        return
    token = _listening.set(_Listening(_printer() if verbose is True else verbose))
    try:
        yield
    finally:
        _listening.reset(token)


@contextmanager
def quiet() -> Iterator[None]:
    """Let nothing be heard of what is inside: the steps of one of many fits."""
    token = _listening.set(None)
    try:
        yield
    finally:
        _listening.reset(token)


@contextmanager
def section(start: float, stop: float) -> Iterator[None]:
    """Put what is told inside between two fractions of what is told outside."""
    now = _listening.get()
    if now is None:
        yield
        return
    width = now.stop - now.start
    token = _listening.set(_Listening(now.hear, now.start + start * width, now.start + stop * width))
    try:
        yield
    finally:
        _listening.reset(token)


def tell(fraction: float, words: str) -> None:
    """Say what is done next, and how much is done by now of the part that runs."""
    now = _listening.get()
    if now is not None:
        now.hear(now.start + fraction * (now.stop - now.start), words)


def _printer() -> Progress:
    start = time.monotonic()

    def show(fraction: float, words: str) -> None:
        print(f"{100 * fraction:3.0f} %  {time.monotonic() - start:6.1f} s  {words}", file=sys.stderr, flush=True)

    return show
