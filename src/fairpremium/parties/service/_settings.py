"""Settings of a service."""

import ipaddress
import os
import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from fairpremium.parties.clock import service_time
from fairpremium.parties.protocol import Problem

from ._context import ServiceLimits
from .operations import LogSettings

_SHORTEST_TOKEN = 20
_TOKEN = re.compile(r"[!-~]+")  # what a header can hold


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
        loopback has the names of this machine with its port, too; another one needs some.
    metrics_token : str or None
        Lets a monitoring server read the metrics (``Authorization: Bearer ...``), 20 letters or more.
    log : LogSettings
        How the operational log is written.
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
    metrics_token: str | None = field(default=None, repr=False)
    log: LogSettings = field(default_factory=LogSettings)
    collect: bool = False
    collect_origins: tuple[str, ...] = ()
    limits: ServiceLimits = field(default_factory=ServiceLimits)
    body_seconds: float = 120.0
    clock: Callable[[], float] = service_time

    def __post_init__(self) -> None:
        if self.metrics_token is not None and len(self.metrics_token) < _SHORTEST_TOKEN:
            raise ValueError(f"Got a short token for the metrics, but expected {_SHORTEST_TOKEN} letters or more.")
        if self.metrics_token is not None and not _TOKEN.fullmatch(self.metrics_token):
            raise ValueError(
                "Got a token for the metrics with spaces or other letters than those of ASCII, which no request can "
                "send. Make one: openssl rand -hex 32."
            )
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
        if self.certificate and self.certificate_key:
            _check_certificate(self.certificate, self.certificate_key)

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

    def check_host(self, host: str, *, is_signed: bool = False) -> None:
        """Refuse a request for another host.

        - `is_signed`: The port counts as well: what was signed for another service of this machine is not taken. A page
          of the console may be reached through a tunnel, whose port is another one.
        """
        is_local = self.is_loopback and not self.proxies and is_loopback_name(host)
        if is_local and is_signed and self.port:  # port 0 is not known yet
            is_local = _port_of(host, self.scheme) == self.port
        if host.lower() not in self.hosts and not is_local:
            raise Problem("not-found")


def _port_of(host: str, scheme: str) -> int | None:
    """Return the port of a host, that of the scheme where it names none."""
    try:
        return urlsplit(f"//{host}").port or {"http": 80, "https": 443}[scheme]
    except ValueError:
        return None


def _check_certificate(certificate: str, key: str) -> None:
    """Insist on files that TLS can use, before anything listens."""
    from cryptography.x509 import load_pem_x509_certificates  # which a service without TLS does not need

    try:
        load_pem_x509_certificates(Path(certificate).read_bytes())
    except ValueError:
        raise ValueError(f"Got --certificate {certificate}, but expected a file with certificates in PEM.") from None
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=lambda: "")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise ValueError(f"Got --certificate-key {key}, but expected the key of {certificate}.") from None
        raise ValueError(f"Got --certificate-key {key}, but expected a key in PEM, without a password.") from None


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
