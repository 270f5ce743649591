"""Connections: how long and large a request may be beside its body.

A proxy in front has such limits of its own; these hold without one.
"""

import asyncio
from asyncio.sslproto import SSLProtocol
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from fairpremium.parties.service import ServiceLimits

from ._listener import Listener

_WAITING = 1 << 16  # bytes of answers that may wait in this process for the other end to read
SSLProtocol.max_size = 1 << 14  # each encrypted connection has a buffer of this size: one record of TLS, not 256 KB
_ANSWER = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


def limit_requests(limits: ServiceLimits, listener: Listener) -> type[HttpToolsProtocol]:
    """Return uvicorn's protocol with limits, for the connections of a listener."""

    class LimitedProtocol(HttpToolsProtocol):
        """One connection."""

        _overhead = 0  # bytes of the present request that are not its body: head, marks of chunks, trailers
        _head_timer: asyncio.TimerHandle | None = None
        _read_timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            transport.set_write_buffer_limits(high=_WAITING)
            super().connection_made(transport)
            listener.end_handshake(transport.get_extra_info("peername"))
            self._start_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_head()
            self._stop_read()
            super().connection_lost(exc)

        def pause_writing(self) -> None:
            """Give up who does not read on for a while: an answer that waits keeps its place and its memory."""
            self._read_timer = self._read_timer or self.loop.call_later(limits.read_seconds, self.transport.abort)
            super().pause_writing()

        def resume_writing(self) -> None:
            self._stop_read()
            super().resume_writing()

        def data_received(self, data: bytes) -> None:
            if self.transport.is_closing():
                return
            if self._head_timer is None and (self.cycle is None or self.cycle.response_complete):
                self._start_head()
            self._overhead += len(data)
            super().data_received(data)
            if self.pipeline:  # a request before the answer to the last one: any number of them would wait in memory
                self.transport.abort()
            elif self._overhead > limits.head_bytes:
                self._stop_head()
                self.transport.write(_ANSWER)
                self.transport.close()

        def on_body(self, body: bytes) -> None:
            if not self.cycle.response_complete:
                self._overhead -= 2 * len(body)  # a body may have as many bytes of marks beside it
            super().on_body(body)

        def on_message_complete(self) -> None:
            self._overhead = 0
            super().on_message_complete()

        def on_headers_complete(self) -> None:
            self._stop_head()
            super().on_headers_complete()

        def _unsupported_upgrade_warning(self) -> None:
            """Answer a request for another protocol as if it had not asked, and close: the parser reads no more."""
            if self.cycle is not None:
                self.cycle.keep_alive = False

        def _stop_read(self) -> None:
            if self._read_timer is not None:
                self._read_timer.cancel()
                self._read_timer = None

        def _start_head(self) -> None:
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
