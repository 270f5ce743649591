"""Connections: how many an address may have, and how long and large the head of a request may be.

A proxy in front has such limits of its own; these hold without one.
"""

import asyncio
from collections import Counter
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from fairpremium.parties.service import ServiceLimits

_ANSWER = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


def limit_connections(limits: ServiceLimits, proxies: tuple[str, ...] = ()) -> type[HttpToolsProtocol]:
    """Return uvicorn's protocol with limits.

    - `proxies`: Addresses of the proxies in front. Where there are some, nobody else may connect, and the number of
      their connections is their own affair.
    """
    opened: Counter[str] = Counter()  # connections by address

    class LimitedProtocol(HttpToolsProtocol):
        """One connection."""

        _address = ""
        _head_bytes = 0  # of the request whose head is not complete
        _head_timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._address = self.client[0] if self.client else ""
            opened[self._address] += 1
            most = limits.connections if proxies else limits.connections_per_address
            is_known = not proxies or self._address in proxies
            if not is_known or opened[self._address] > most or len(self.connections) > limits.connections:
                transport.abort()
            else:
                self._start_head()

        def connection_lost(self, exc: Exception | None) -> None:
            opened[self._address] -= 1
            if not opened[self._address]:
                del opened[self._address]
            self._stop_head()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self.transport.is_closing():
                return
            if self._head_timer is None and (self.cycle is None or self.cycle.response_complete):
                self._start_head()
            super().data_received(data)
            if self._head_timer is not None:
                self._head_bytes += len(data)
                if self._head_bytes > limits.head_bytes:
                    self._stop_head()
                    self.transport.write(_ANSWER)
                    self.transport.close()

        def on_headers_complete(self) -> None:
            self._stop_head()
            super().on_headers_complete()

        def _start_head(self) -> None:
            self._head_bytes = 0
            self._head_timer = self.loop.call_later(limits.head_seconds, self.transport.abort)

        def _stop_head(self) -> None:
            if self._head_timer is not None:
                self._head_timer.cancel()
                self._head_timer = None

    return LimitedProtocol


def head_bytes(scope: Any) -> int:
    """Count the bytes of the head of a request that has arrived whole."""
    return (
        len(scope["raw_path"])
        + len(scope["query_string"])
        + sum(len(name) + len(value) + 4 for name, value in scope["headers"])
    )
