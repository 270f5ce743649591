"""A real nginx with the configuration of deploy/, on free ports."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from helpers.ports import free_port
from helpers.processes import wait_until

CONFIGURATION = Path(__file__).resolve().parents[2] / "deploy" / "nginx.conf"


@dataclass(frozen=True)
class Proxy:
    """Where it listens, and what it wrote to its log."""

    port: int  # https
    plain_port: int  # http
    log: Path

    @property
    def url(self) -> str:
        """Its address."""
        return f"https://localhost:{self.port}"


def find_nginx() -> str:
    """The path of nginx, which Debian keeps out of the PATH of users; the test is skipped where there is none."""
    found = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if found is None:
        pytest.skip("no nginx: apt-get install nginx-light")
    return found


def write_configuration(folder: Path, upstream: str, port: int, plain_port: int) -> Path:
    """Write the configuration with other ports and places; certificate.pem and certificate.key lie in the folder."""
    text = CONFIGURATION.read_text(encoding="utf-8")
    places = {
        "172.30.8.10:8350": upstream,
        "listen 8443": f"listen 127.0.0.1:{port}",
        "listen 8080": f"listen 127.0.0.1:{plain_port}",
        "fair.example": "localhost",
        "/run/secrets/": f"{folder}/",
        "/tmp/nginx": f"{folder}/nginx",
    }
    for old, new in places.items():
        assert old in text, old
        text = text.replace(old, new)
    path = folder / "nginx.conf"
    path.write_text(text, encoding="utf-8")
    return path


@contextmanager
def running_proxy(folder: Path, upstream: str, port: int = 0) -> Iterator[Proxy]:
    """Run it in front of a server."""
    proxy = Proxy(port or free_port(), free_port(), folder / "nginx.log")
    path = write_configuration(folder, upstream, proxy.port, proxy.plain_port)
    with proxy.log.open("wb") as log:
        command = [find_nginx(), "-c", str(path), "-e", "stderr", "-g", "daemon off;"]
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_until(lambda: process.poll() is not None or _listens(proxy.port))
        assert process.poll() is None, proxy.log.read_text()
        yield proxy
    finally:
        process.terminate()
        process.wait(120)


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
