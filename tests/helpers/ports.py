"""Ports for servers that tests start."""

from __future__ import annotations

import secrets
import socket

# Below the ports that systems give to connections: none of these takes a port between its choice and its use.
_FIRST, _LAST = 10_000, 32_000


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    while True:
        port = _FIRST + secrets.randbelow(_LAST - _FIRST)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
