"""Settings of a service, and how it logs its own failures."""

import ipaddress
import logging
import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from fairpremium.parties.protocol import Problem

from ._context import ServiceLimits

_SHORTEST = 8  # letters of a password
_logger = logging.getLogger("fairpremium.service")


@dataclass(frozen=True)
class ServiceSettings:
    """How a service is run: where it listens, who may reach it, what it accepts.

    Parameters
    ----------
    folder : str or path
        The third party's folder.
    database : str or None
        Address of a PostgreSQL database; None for the SQLite file in the folder.
    host, port : str, int
        Where to listen.
    certificate, certificate_key : path or None
        Files for TLS.
    proxies : tuple of str
        Addresses of proxies in front that do TLS. Then nobody else can connect, and what they say in X-Forwarded-For
        and X-Forwarded-Host is believed.
    hosts : tuple of str
        Names under which clients reach the service, with port where it is not the usual one. A service on
        loopback has the names of this machine, too; another one needs some.
    console_password : str or None
        For the console, 8 letters or more; without one the console answers on loopback only.
    collect : bool
        Serve the page on which people with an invitation answer, and take their answers.
    collect_origins : tuple of str
        Origins of other web servers whose copies of that page may send answers, such as https://app.example.
    limits : ServiceLimits
    body_seconds : float
        How long a body may take to arrive.
    clock : callable
    """

    folder: str | os.PathLike[str] | Path
    database: str | None = field(default=None, repr=False)  # its address may hold a password
    host: str = "127.0.0.1"
    port: int = 8350
    certificate: str | None = None
    certificate_key: str | None = None
    proxies: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    console_password: str | None = field(default=None, repr=False)
    collect: bool = False
    collect_origins: tuple[str, ...] = ()
    limits: ServiceLimits = field(default_factory=ServiceLimits)
    body_seconds: float = 120.0
    clock: Callable[[], float] = time.time

    def __post_init__(self) -> None:
        if self.console_password is not None and len(self.console_password) < _SHORTEST:
            raise ValueError(f"Got a short password for the console, but expected {_SHORTEST} letters or more.")
        for origin in self.collect_origins:
            _check_origin(origin)
        for proxy in self.proxies:
            _check_address(proxy)
        if self.collect_origins and not self.collect:
            raise ValueError("Got origins of pages, but no page; expected them with collect (--collect).")

    def check(self) -> None:
        """Refuse to listen to the world without encryption."""
        if not (self.is_loopback or self.certificate or self.behind_proxy):
            raise ValueError(
                f"Got host={self.host!r} without encryption, but expected TLS. Give a certificate (--certificate, "
                "--certificate-key), name the proxy that does TLS (--proxy), or listen on 127.0.0.1."
            )
        if bool(self.certificate) != bool(self.certificate_key):
            raise ValueError("Got one of certificate and certificate-key, but expected both or none.")
        if not self.hosts and not (self.is_loopback and not self.proxies):
            raise ValueError(
                "Got no host names, but expected those under which clients reach the service (--names fair.example): "
                "a request that was signed for another service must not be taken."
            )

    @property
    def behind_proxy(self) -> bool:
        """Does a proxy in front do TLS?"""
        return bool(self.proxies)

    @property
    def is_loopback(self) -> bool:
        """Can only this machine reach the service?"""
        return self.host == "localhost" or is_loopback(self.host)

    @property
    def scheme(self) -> str:
        """How clients reach the service."""
        return "https" if self.certificate or self.behind_proxy else "http"

    def check_host(self, host: str) -> None:
        """Refuse a request for another host."""
        is_local = self.is_loopback and not self.proxies and is_loopback_name(host)
        if host.lower() not in self.hosts and not is_local:
            raise Problem("not-found")


def _check_origin(origin: str) -> None:
    """Insist on an origin as browsers send it, encrypted unless it is this machine."""
    try:
        parts = urlsplit(origin)
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:
        parts, port = urlsplit(""), ""
    host = parts.hostname or ""
    shown = f"[{host}]" if ":" in host else host
    is_secure = parts.scheme == "https" or (parts.scheme == "http" and (host == "localhost" or is_loopback(host)))
    if not host or not is_secure or origin != f"{parts.scheme}://{shown}{port}":
        raise ValueError(
            f"Got {origin!r} as the origin of a page, but expected one such as https://app.example: encrypted, in "
            "lower case, without a path."
        )


def _check_address(address: str) -> None:
    """Insist on the address of one machine."""
    try:
        ipaddress.ip_address(address)
    except ValueError:
        raise ValueError(f"Got {address!r} as a proxy, but expected an address such as 10.0.0.2.") from None


def is_loopback_name(host: str) -> bool:
    """Is this a name of this machine itself, with or without a port?"""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    return name == "localhost" or is_loopback(name)


def is_loopback(address: str) -> bool:
    """Is this an address of this machine itself?"""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    return bool((getattr(found, "ipv4_mapped", None) or found).is_loopback)


def log_failure(what: str) -> None:
    """Log that something of ours failed: where, but no value of a request and no message of a library."""
    kind, _, trace = sys.exc_info()
    where = " < ".join(f"{f.name} ({Path(f.filename).name}:{f.lineno})" for f in traceback.extract_tb(trace)[:-9:-1])
    _logger.error("%s failed: %s in %s", what, kind.__name__ if kind else "error", where)
