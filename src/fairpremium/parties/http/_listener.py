"""The socket that accepts connections: how many an address may have, counted before anything is spent on them.

asyncio tells a protocol of a connection after the TLS handshake. Connections that never begin one must be counted here.
"""

import asyncio
import contextlib
import resource
import socket
from typing import Any

from fairpremium.parties.service import ServiceLimits, network_of

_AT_ONCE = 100  # connections that are refused, or being ended, before others get their turn


class Listener(socket.socket):
    """Accepts connections within the limits, and closes all others.

    When all places are taken, a network without a connection, or with fewer than another one, gets the place of that
    one's oldest: a few addresses cannot keep everybody else out.

    - `listening`: The socket, which this one replaces.
    - `proxies`: Addresses of the proxies in front. Where there are some, nobody else may connect, and the number of
      their connections is their own affair.
    - `is_encrypted`: Does a handshake follow? Then few connections of an address may be within it.
    """

    def __init__(
        self,
        listening: socket.socket,
        limits: ServiceLimits,
        proxies: tuple[str, ...] = (),
        *,
        is_encrypted: bool = False,
    ):
        super().__init__(listening.family, listening.type, listening.proto, fileno=listening.detach())
        self._limits = limits
        self._proxies = proxies
        self._is_encrypted = is_encrypted
        self._open: _Connections = {}
        self._ending: set[_Connection] = set()  # that gave up their place, until they are closed
        self._total = 0
        self._in_handshake: dict[Any, _Connection] = {}  # by the address at the other end
        self._handshakes: _Connections = {}

    def accept(self) -> tuple[socket.socket, Any]:
        """Return the next connection that is within the limits."""
        for _ in range(_AT_ONCE):
            taken, address = super().accept()
            network = network_of(address[0])
            if self._has_room(address[0], network):
                return self._add(taken, address, network), address
            taken.close()
        raise BlockingIOError  # the event loop comes again when it has served others

    def end_handshake(self, address: Any) -> None:
        """Learn that the handshake with the other end has succeeded."""
        if connection := self._in_handshake.get(address):
            self._leave_handshake(connection)

    def remove(self, connection: "_Connection") -> None:
        """Learn that a connection is closed."""
        self._leave_handshake(connection)
        self._ending.discard(connection)
        self._total -= 1
        _take_out(self._open, connection)

    def _leave_handshake(self, connection: "_Connection") -> None:
        if connection.stop_timer():
            _take_out(self._handshakes, connection)
            if self._in_handshake.get(connection.address) is connection:  # its port may have been taken again
                del self._in_handshake[connection.address]

    def _has_room(self, address: str, network: str) -> bool:
        limits, is_full = self._limits, self._total - len(self._ending) >= self._limits.connections
        if self._proxies:
            return address in self._proxies and not is_full
        if (
            len(self._open.get(network, ())) >= limits.connections_per_address
            or len(self._handshakes.get(network, ())) >= limits.handshakes_per_address
        ):
            return False
        full = [self._open] if is_full else []
        if len(self._in_handshake) >= limits.handshakes:
            full.append(self._handshakes)
        gone = [self._find_place(network, among) for among in full]
        if None in gone or len(self._ending) + len(gone) > _AT_ONCE:
            return False
        for connection in gone:  # only now that all places are found
            if connection is not None and connection not in self._ending:
                self._leave_handshake(connection)
                self._ending.add(connection)
                connection.end()
        return True

    def _find_place(self, network: str, among: "_Connections") -> "_Connection | None":
        """Return the oldest connection of the network that has most, if this one has none, or fewer by two."""
        staying = ([each for each in of_network if each not in self._ending] for of_network in among.values())
        largest = max(staying, key=len, default=[])
        own = len(among.get(network, ()))
        return None if not largest or (own and own + 1 >= len(largest)) else largest[0]

    def _add(self, taken: socket.socket, address: Any, network: str) -> "_Connection":
        connection = _Connection(taken, self, address, network)
        self._open.setdefault(network, {})[connection] = None
        self._total += 1
        if self._is_encrypted:
            self._in_handshake[address] = connection
            self._handshakes.setdefault(network, {})[connection] = None
            connection.start_timer(self._limits.handshake_seconds)
        return connection


class _Connection(socket.socket):
    """One accepted connection, which tells its listener when it is closed."""

    def __init__(self, taken: socket.socket, listener: Listener, address: Any, network: str):
        super().__init__(taken.family, taken.type, taken.proto, fileno=taken.detach())
        self.address, self.network = address, network
        self._listener: Listener | None = listener
        self._timer: asyncio.TimerHandle | None = None

    def start_timer(self, seconds: float) -> None:
        """Close the connection after a while."""
        self._timer = asyncio.get_running_loop().call_later(seconds, self.end)

    def stop_timer(self) -> bool:
        """Let it stay open, and return whether it would have been closed."""
        if self._timer is None:
            return False
        self._timer.cancel()
        self._timer = None
        return True

    def end(self) -> None:
        """Let the event loop close it."""
        with contextlib.suppress(OSError):  # the other end was faster
            self.shutdown(socket.SHUT_RDWR)  # the event loop reads the end, and closes

    def close(self) -> None:
        """Close, and be counted no longer."""
        if self._listener is not None:
            self._listener.remove(self)
            self._listener = None
        super().close()


def fit_connections(connections: int) -> int:
    """Return how many connections this process can hold; it may open as many files as the system allows from now on."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return connections if most == resource.RLIM_INFINITY else min(connections, most // 2)  # files need some as well


_Connections = dict[str, dict[_Connection, None]]  # by network, the oldest first


def _take_out(connections: _Connections, connection: _Connection) -> None:
    del connections[connection.network][connection]
    if not connections[connection.network]:
        del connections[connection.network]
