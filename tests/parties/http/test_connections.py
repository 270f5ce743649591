"""A service in a process of its own, and callers that open many connections, are slow, or send too much."""

import json
import re
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from fairpremium.parties.service._settings import ServiceSettings
from helpers import wire

_SERVE = """
import sys
from fairpremium.parties.http._serve import serve
from fairpremium.parties.service import ServiceLimits, ServiceSettings
folder, limits, settings = sys.argv[1], *map(__import__("json").loads, sys.argv[2:])
settings = {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}
serve(
    ServiceSettings(folder=folder, port=0, limits=ServiceLimits(**limits), **settings),
    workers=0,
    tell=lambda url: print(url, flush=True),
)
"""


@contextmanager
def running(folder, limits=None, **settings):
    """Yield the port and the process of a service."""
    command = [sys.executable, "-c", _SERVE, str(folder), json.dumps(limits or {}), json.dumps(settings)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield int(process.stdout.readline().strip().rpartition(":")[2]), process.pid
        finally:
            process.terminate()


def connect(port, source="127.0.0.1"):
    return socket.create_connection(("127.0.0.1", port), timeout=10, source_address=(source, 0))


def ask(port, source="127.0.0.1", head=b"", path=b"/healthz", host=b"127.0.0.1"):
    """Send a request by hand; return the status, 0 if the connection was closed."""
    with connect(port, source) as sock:
        try:
            sock.sendall(b"GET " + path + b" HTTP/1.1\r\nhost: " + host + b"\r\nconnection: close\r\n" + head + b"\r\n")
            answer = sock.recv(4096)
        except ConnectionError:
            return 0
    return int(answer.split()[1]) if answer else 0


def is_closed(sock):
    """Wait for the other side to close."""
    try:
        while sock.recv(4096):
            pass
    except ConnectionError:
        pass
    except TimeoutError:
        return False
    return True


def memory(pid):
    """Return the resident memory of a process in bytes."""
    return int(re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())[1]) * 1024


def test_half_open_connections_of_one_address_leave_room_for_others(tmp_path):
    with running(tmp_path / "service") as (port, pid), ExitStack() as stack:
        assert ask(port, "127.0.0.3") == 200
        before = memory(pid)
        for _ in range(2000):
            stack.enter_context(connect(port, "127.0.0.2")).sendall(b"GET /healthz HTTP/1.1\r\nx: ")
        assert ask(port, "127.0.0.3") == 200
        assert memory(pid) - before < 100e6


def test_endless_headers_are_cut_off(tmp_path):
    with running(tmp_path / "service") as (port, pid):
        assert ask(port) == 200
        before = memory(pid)
        for begin in (b"GET /healthz HTTP/1.1\r\nx: ", b"GET /", b"GET /healthz HTTP/1.1\r\n"):
            piece = (b"a: b\r\n" if begin.endswith(b"\r\n") else b"abcdef") * 10_000
            with connect(port, "127.0.0.2") as sock:
                sock.sendall(begin)
                sent = 0
                try:
                    while sent < 70e6:
                        sock.sendall(piece)
                        sent += len(piece)
                except (ConnectionError, TimeoutError):
                    pass
                assert sent < 70e6
        assert ask(port, "127.0.0.3") == 200
        assert memory(pid) - before < 100e6


def test_a_head_that_is_too_large_is_refused_and_one_within_the_limit_is_not(tmp_path):
    with running(tmp_path / "service") as (port, _):
        assert ask(port, head=b"x: " + b"a" * 20_000 + b"\r\n") == 200
        assert ask(port, head=b"x: " + b"a" * 40_000 + b"\r\n") in (0, 431)
        assert ask(port, path=b"/" + b"a" * 40_000) in (0, 431)


def test_a_head_that_never_ends_is_given_up(tmp_path):
    with running(tmp_path / "service", {"head_seconds": 0.5}) as (port, _):
        begun = time.monotonic()
        with connect(port) as silent, connect(port) as slow, connect(port) as again:
            slow.sendall(b"GET /healthz HTTP/1.1\r\nx: ")
            again.sendall(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            assert again.recv(4096).startswith(b"HTTP/1.1 200")
            again.sendall(b"\r\n")  # as if a second request came
            assert is_closed(silent)
            assert is_closed(slow)
            assert is_closed(again)
        assert time.monotonic() - begun < 5


def test_connections_are_counted_while_they_are_open(tmp_path):
    with running(tmp_path / "service", {"connections_per_address": 3}) as (port, _):
        for _ in range(10):  # one after the other is no matter
            assert ask(port) == 200
        with connect(port), connect(port), connect(port):
            with connect(port) as fourth:
                assert is_closed(fourth)
            assert ask(port, "127.0.0.2") == 200
        deadline = time.monotonic() + 5
        while ask(port) != 200:
            assert time.monotonic() < deadline


def test_only_a_named_proxy_may_connect(tmp_path):
    named = {"proxies": ["127.0.0.2"], "hosts": ["fair.example"]}
    with running(tmp_path / "service", {"connections_per_address": 2}, **named) as (port, _):
        told = b"x-forwarded-for: 10.1.1.1\r\n"
        assert ask(port, "127.0.0.2", told, host=b"fair.example") == 200
        assert ask(port, "127.0.0.3", told, host=b"fair.example") == 0
        with ExitStack() as stack:  # its connections are those of many people
            for _ in range(20):
                stack.enter_context(connect(port, "127.0.0.2"))
            assert ask(port, "127.0.0.2", told, host=b"fair.example") == 200


def test_a_forwarded_address_is_not_believed_without_a_named_proxy(tmp_path):
    """Wrong passwords count for the address that they come from, whatever the headers say."""
    limits = {"requests_per_second": 1.0}
    with running(tmp_path / "service", limits) as (port, _):
        statuses = [ask(port, head=f"x-forwarded-for: 10.0.0.{n}\r\n".encode()) for n in range(20)]
        assert 429 in statuses
        assert ask(port, "127.0.0.9") == 200


def test_encrypted_answers_say_so_for_long(tmp_path):
    with wire.World(tmp_path / "service", proxies=("127.0.0.1",)) as world:
        answer = world.send(wire.Wire("GET", b"/healthz", ((b"host", b"third.party"),)))
        assert "max-age=63072000" in answer.headers["strict-transport-security"]
    with wire.World(tmp_path / "service-2") as world:
        answer = world.send(wire.Wire("GET", b"/healthz", ((b"host", b"third.party"),)))
        assert "strict-transport-security" not in answer.headers


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"host": "10.0.0.5", "certificate": "c", "certificate_key": "k"}, "--names"),
        ({"host": "10.0.0.5", "proxies": ("10.0.0.2",)}, "--names"),
        ({"proxies": ("10.0.0.2",)}, "--names"),
        ({"host": "10.0.0.5", "hosts": ("a.example",)}, "--proxy"),
    ],
)
def test_the_world_needs_encryption_and_names(settings, says):
    with pytest.raises(ValueError, match=says):
        ServiceSettings(folder="x", **settings).check()


def test_a_proxy_is_an_address():
    with pytest.raises(ValueError, match=r"'proxy\.example' as a proxy"):
        ServiceSettings(folder="x", proxies=("proxy.example",))
