"""How often passwords may be tried, so that guesses are slow and nobody is kept out by the guesses of others.

There is no limit on an account as such: whoever used it up from elsewhere would lock its person out. Guesses are
limited by network and by account and network together. A device from which the person has logged in before has tries
of its own and a place of its own among the passwords that are being checked.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

from fairpremium.parties.protocol import Problem
from fairpremium.parties.service import RateLimiter, network_of

T = TypeVar("T")

RETRY_SECONDS = 10
_TRIES, _ALL_TRIES, _DEVICE_TRIES = 5, 30, 10  # at once
_WAITING = 8  # passwords that wait to be checked, in each queue


class LoginLimits:
    """Limits tries, and how many passwords are checked at the same time."""

    def __init__(self) -> None:
        rate = 1 / RETRY_SECONDS
        self._by_account = RateLimiter(rate, burst=_TRIES)
        self._by_network = RateLimiter(5 * rate, burst=_ALL_TRIES)
        self._by_device = RateLimiter(rate, burst=_DEVICE_TRIES)
        self._trusted, self._others = _Queue(), _Queue()

    def take(self, account: str, address: str, device: str | None) -> None:
        """Allow one more try, or raise the problem that there were too many."""
        if device is not None:
            self._by_device.take(device)
            return
        network = network_of(address)
        self._by_network.take(network)
        self._by_account.take(f"{network} {account[:64]}")

    async def run(self, check: Callable[..., T], *arguments: Any, is_trusted: bool) -> T:
        """Check a password when it is its turn, or raise the problem that too many wait.

        - `is_trusted`: It comes from a known device, or from this machine itself.
        """
        return await (self._trusted if is_trusted else self._others).run(check, *arguments)


class _Queue:
    """Does one thing at a time; a few more may wait."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="password")
        self._lock = threading.Lock()
        self._taken = 0

    async def run(self, check: Callable[..., T], *arguments: Any) -> T:
        with self._lock:
            if self._taken > _WAITING:
                raise Problem("too-many")
            self._taken += 1
        future = self._thread.submit(check, *arguments)
        future.add_done_callback(self._leave)
        return await asyncio.wrap_future(future)

    def _leave(self, _: Future[Any]) -> None:
        with self._lock:
            self._taken -= 1
