"""How many requests a caller may make, a bucket of tokens for each, and what counts as one caller."""

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache

from fairpremium.parties.protocol import Problem

_REMEMBERED = 10_000
_IPV6_NETWORK = 64  # bits; one subscriber has all addresses below


class RateLimiter:
    """Let each caller make so many requests a second, and a few more at once.

    - `rate`: Requests a second.
    - `clock`: Returns the time in seconds; it never goes back.
    - `burst`: Requests at once after a pause; None for twice the rate.
    """

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic, burst: float | None = None):
        self._rate = rate
        self._burst = 2 * rate if burst is None else burst
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, caller: str) -> None:
        """Take a token, or raise the problem that there is none."""
        now, full = self._clock(), self._burst
        tokens, then = self._buckets.pop(caller, (full, now))
        tokens = min(full, tokens + (now - then) * self._rate)
        allowed = tokens >= 1
        self._buckets[caller] = (tokens - 1 if allowed else tokens, now)
        if len(self._buckets) > _REMEMBERED:
            self._buckets.popitem(last=False)
        if not allowed:
            raise Problem("too-many")


@lru_cache(maxsize=4096)
def network_of(address: str) -> str:
    """Return the network of an address: an IPv4 address is one, and IPv6 addresses of one subscriber are one.

    Examples
    --------
    >>> network_of("192.0.2.7"), network_of("2001:db8:1:2:3:4:5:6"), network_of("::ffff:192.0.2.7")
    ('192.0.2.7', '2001:db8:1:2::/64', '192.0.2.7')
    """
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return ""
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is None:
            return str(ipaddress.ip_network((found, _IPV6_NETWORK), strict=False))
        found = found.ipv4_mapped
    return str(found)
