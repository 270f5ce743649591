"""A service in a process of its own, and callers that open many connections, are slow, or send too much."""

import asyncio
import re
import signal
import socket
import ssl
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from fairpremium.parties.http._listener import Listener
from fairpremium.parties.service import ServiceLimits
from fairpremium.parties.service._settings import ServiceSettings
from helpers import wire
from helpers.certificates import Authority


@pytest.fixture
def running(zygote, tmp_path):
    """Run a service and yield its port and its number; its log is written into a file or to standard error."""

    @contextmanager
    def run(folder, limits=None, log=None, open_files=None, **settings):
        options = {"log": log and str(log), "open_files": open_files, "limits": limits or {}}
        task = zygote.start("listen", tmp_path / "url", **options, settings={"folder": str(folder), **settings})
        try:
            yield int(task.said().rpartition(":")[2]), task.pid
        finally:
            task.kill(signal.SIGTERM)
            task.wait()

    return run


def connect(port, source="127.0.0.1"):
    return socket.create_connection(("127.0.0.1", port), timeout=60, source_address=(source, 0))


def encrypted(sock):
    """Do the TLS handshake, whoever is at the other end."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(sock)


def ask(port, source="127.0.0.1", head=b"", path=b"/healthz", host=b"127.0.0.1", *, tls=False):
    """Send a request by hand; return the status, 0 if the connection was closed."""
    with connect(port, source) as plain, encrypted(plain) if tls else plain as sock:
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


def test_half_open_connections_of_one_address_leave_room_for_others(running, tmp_path):
    with running(tmp_path / "service") as (port, pid), ExitStack() as stack:
        assert ask(port, "127.0.0.3") == 200
        before = memory(pid)
        for _ in range(2000):
            stack.enter_context(connect(port, "127.0.0.2")).sendall(b"GET /healthz HTTP/1.1\r\nx: ")
        assert ask(port, "127.0.0.3") == 200
        assert memory(pid) - before < 100e6


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    """Settings of a service that does TLS itself."""
    certificate, key = Authority(tmp_path_factory.mktemp("authority")).issue("127.0.0.1")
    return {"certificate": str(certificate), "certificate_key": str(key)}


@pytest.mark.parametrize(
    ("begin", "open_files"),
    [(b"", None), (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", (1024, 1024))],
    ids=["silent", "begun, few files"],
)
def test_handshakes_that_are_not_finished_leave_room_for_others(running, tmp_path, tls, begin, open_files):
    with running(tmp_path / "service", open_files=open_files, **tls) as (port, pid), ExitStack() as stack:
        assert ask(port, "127.0.0.3", tls=True) == 200
        before = memory(pid)
        for _ in range(2000):
            sock = stack.enter_context(connect(port, "127.0.0.2"))
            with suppress(ConnectionError):
                sock.sendall(begin)
        assert ask(port, "127.0.0.3", tls=True) == 200
        assert memory(pid) - before < 100e6
        assert len(list(Path(f"/proc/{pid}/fd").iterdir())) < 200


def test_handshakes_of_many_addresses_leave_room_and_memory(running, tmp_path, tls):
    """Each of them stays within its limit; the oldest handshakes of the largest make room."""
    with running(tmp_path / "service", **tls) as (port, pid), ExitStack() as stack:
        assert ask(port, "127.0.0.3", tls=True) == 200
        before = memory(pid)
        for n in range(31 * 64):
            sock = stack.enter_context(connect(port, f"127.0.4.{n % 31 + 1}"))
            with suppress(ConnectionError):
                sock.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
        assert ask(port, "127.0.0.3", tls=True) == 200
        assert memory(pid) - before < 100e6


def test_few_open_files_leave_room_for_connections_of_many_addresses(running, tmp_path):
    with running(tmp_path / "service", open_files=(256, 512)) as (port, pid), ExitStack() as stack:
        for n in range(600):
            stack.enter_context(connect(port, f"127.0.1.{n % 100}"))
        assert ask(port, "127.0.0.3") == 200  # 256 are open, and what the service opens itself still works
        assert len(list(Path(f"/proc/{pid}/fd").iterdir())) < 300


def test_few_addresses_do_not_take_all_places(running, tmp_path):
    """Each of them stays within its limit, and together they have all 2,000 places."""
    with running(tmp_path / "service") as (port, pid), ExitStack() as stack:
        assert ask(port, "127.0.0.3") == 200
        before = memory(pid)
        for n in range(2080):
            sock = stack.enter_context(connect(port, f"127.0.1.{n % 8}"))
            with suppress(ConnectionError):
                sock.sendall(b"GET /healthz HTTP/1.1\r\nx: ")
        for _ in range(5):
            assert ask(port, "127.0.0.3") == 200
        assert memory(pid) - before < 100e6


def test_a_place_is_given_to_the_network_with_fewer_connections(monkeypatch):
    addresses = iter([*["10.0.0.1"] * 3, "10.0.0.2", "10.0.0.1", "10.0.0.3", "10.0.0.4"])
    ends = []

    def accept(_):
        mine, theirs = socket.socketpair()
        ends.append(theirs)
        return mine, (next(addresses), 1)

    monkeypatch.setattr(socket.socket, "accept", accept)
    with ExitStack() as stack, Listener(socket.socket(), ServiceLimits(connections=4)) as listener:
        taken = [stack.enter_context(listener.accept()[0]) for _ in range(5)]  # the second 10.0.0.1 is refused
        assert [sock.network for sock in taken] == [*["10.0.0.1"] * 3, "10.0.0.2", "10.0.0.3"]
        assert ends[0].recv(1) == b""  # the oldest of the network that has most
        for end in (ends[1], ends[3], ends[5]):
            end.settimeout(0.1)
            with pytest.raises(TimeoutError):
                end.recv(1)
        taken[0].close()
        stack.enter_context(listener.accept()[0])
        assert ends[1].recv(1) == b""
        for end in ends:
            end.close()


def test_nobody_gives_a_place_up_for_a_connection_that_is_refused(monkeypatch):
    """All places are taken and so are the handshakes, by networks that have no more than the one that comes."""
    addresses = iter(["10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.2"])
    ends = []

    def accept(_):
        if (address := next(addresses, None)) is None:
            raise BlockingIOError
        mine, theirs = socket.socketpair()
        ends.append(theirs)
        return mine, (address, len(ends))

    monkeypatch.setattr(socket.socket, "accept", accept)
    limits = ServiceLimits(connections=3, handshakes=1)

    async def run():
        with ExitStack() as stack, Listener(socket.socket(), limits, is_encrypted=True) as listener:
            for _ in range(2):
                taken, address = listener.accept()
                stack.enter_context(taken)
                listener.end_handshake(address)
            stack.enter_context(listener.accept()[0])  # its handshake takes the only place for one
            with pytest.raises(BlockingIOError):  # the other connection of its network is refused
                listener.accept()
            for end in ends[:3]:
                end.settimeout(0.1)
                with pytest.raises(TimeoutError):
                    end.recv(1)
            for end in ends:
                end.close()

    asyncio.run(run())


LARGEST = b"GET /v1/openapi.json HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"


def unread(stack, port, source="127.0.0.2", *, tls=False):
    """Ask for the largest answer that everybody gets, and do not read it."""
    plain = stack.enter_context(socket.socket())
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    plain.bind((source, 0))
    plain.settimeout(60)
    plain.connect(("127.0.0.1", port))
    sock = stack.enter_context(encrypted(plain)) if tls else plain
    sock.sendall(LARGEST)
    return sock


def test_encrypted_answers_that_nobody_reads_take_little_memory(running, tmp_path, tls):
    """256 of them took 208 MB, of which 66 MB were buffers for what the other end might send."""
    with running(tmp_path / "service", **tls) as (port, pid), ExitStack() as stack:
        assert ask(port, path=b"/v1/openapi.json", tls=True) == 200
        before = memory(pid)
        for _ in range(256):
            unread(stack, port, tls=True)
        assert ask(port, "127.0.0.3", tls=True) == 200
        assert memory(pid) - before < 60e6


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_an_answer_that_nobody_reads_is_given_up(running, tmp_path, tls, is_encrypted):
    settings = tls if is_encrypted else {}
    with running(tmp_path / "service", {"read_seconds": 2.0}, **settings) as (port, _), ExitStack() as stack:
        sock = unread(stack, port, tls=is_encrypted)
        deadline = time.monotonic() + 60
        with suppress(ConnectionError, ssl.SSLError):
            while True:  # what the system holds for both ends fills up, then what waits here
                sock.sendall(LARGEST)
                assert time.monotonic() < deadline
                time.sleep(0.1)


def test_handshakes_are_counted_until_they_end_and_given_up_after_a_while(running, tmp_path, tls):
    limits = {"handshakes_per_address": 2, "handshake_seconds": 4.0}
    with running(tmp_path / "service", limits, **tls) as (port, _):
        with ExitStack() as stack:  # those that are finished are no matter
            for _ in range(5):
                sock = stack.enter_context(encrypted(stack.enter_context(connect(port))))
                sock.sendall(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
                assert sock.recv(4096).startswith(b"HTTP/1.1 200")
            begun = time.monotonic()
            first, second = stack.enter_context(connect(port)), stack.enter_context(connect(port))
            with connect(port) as third:
                assert is_closed(third)
                assert time.monotonic() - begun < 3.9
            assert ask(port, "127.0.0.2", tls=True) == 200
            assert is_closed(first)
            assert is_closed(second)
            assert 3.5 < time.monotonic() - begun < 60
        for _ in range(3):  # they are counted no longer
            time.sleep(0.5)
            assert ask(port, tls=True) == 200


def test_addresses_of_one_ipv6_network_are_one(monkeypatch):
    addresses = iter(["2001:db8::1", "2001:db8::2", "2001:db8::3", "2001:db8:0:1::1"])
    ends = []

    def accept(_):
        mine, theirs = socket.socketpair()
        ends.append(theirs)
        return mine, (next(addresses), 1, 0, 0)

    monkeypatch.setattr(socket.socket, "accept", accept)
    with ExitStack() as stack, Listener(socket.socket(), ServiceLimits(connections_per_address=2)) as listener:
        found = []
        for _ in range(3):
            sock, address = listener.accept()
            stack.enter_context(sock)
            found.append(address[0])
        for end in ends:
            end.close()
    assert found == ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"]


def test_endless_headers_are_cut_off(running, tmp_path):
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


ANSWER = b"POST /collect/v1/report HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
CHUNKED = ANSWER + b"transfer-encoding: chunked\r\n\r\n1"
ASKED = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\nx: " + b"a" * 20_000 + b"\r\n\r\n"


@pytest.mark.parametrize(
    ("begin", "piece"),
    [
        (b"", ASKED),  # each as large as a request may be, and none waits for its answer
        (CHUNKED + b"\r\n{\r\n0\r\nx: ", b"a" * 60_000),
        (CHUNKED + b"\r\n{\r\n0\r\n", b"a: b\r\n" * 10_000),
        (CHUNKED + b";", b"a" * 60_000),
    ],
    ids=["requests", "trailer", "trailers", "mark of a chunk"],
)
def test_what_comes_beside_a_body_is_cut_off_as_well(running, tmp_path, begin, piece):
    with running(tmp_path / "service", collect=True) as (port, pid):
        assert ask(port) == 200
        before = memory(pid)
        sent = 0
        with connect(port, "127.0.0.2") as sock:
            try:
                sock.sendall(begin)
                while sent < 70e6:
                    sock.sendall(piece)
                    sent += len(piece)
            except (ConnectionError, TimeoutError):
                pass
        assert sent < 70e6
        assert ask(port, "127.0.0.3") == 200
        assert memory(pid) - before < 30e6


def test_a_body_in_many_chunks_is_read(running, tmp_path):
    """Marks of chunks may have as many bytes as the body."""
    with running(tmp_path / "service", {"head_bytes": 250}, collect=True) as (port, _), connect(port) as sock:
        sock.sendall(ANSWER + b"connection: close\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(30):
            sock.sendall(b"40\r\n" + b" " * 64 + b"\r\n")
        time.sleep(0.5)  # they have been read before the end comes
        sock.sendall(b"0\r\n\r\n")
        assert sock.recv(4096).startswith(b"HTTP/1.1 422")  # it is no JSON


UPGRADE = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n"


def test_requests_that_are_none_or_ask_for_another_protocol_do_not_fill_the_log(running, tmp_path):
    with running(tmp_path / "service", log=tmp_path / "log") as (port, _):
        for request, status in ((b"\x16\x03\x01 garbage\r\n\r\n", 400), (UPGRADE, 200)):
            for _ in range(300):
                with connect(port) as sock:
                    sock.sendall(request)
                    assert sock.recv(4096).startswith(b"HTTP/1.1 %d" % status)
                    assert is_closed(sock)
    lines = (tmp_path / "log").read_text().splitlines()
    assert 40 <= sum("Invalid HTTP request" in line for line in lines) < 100
    assert not any("pgrade" in line or "WebSocket" in line for line in lines)


def test_a_head_that_is_too_large_is_refused_and_one_within_the_limit_is_not(running, tmp_path):
    with running(tmp_path / "service") as (port, _):
        assert ask(port, head=b"x: " + b"a" * 20_000 + b"\r\n") == 200
        assert ask(port, head=b"x: " + b"a" * 40_000 + b"\r\n") in (0, 431)
        assert ask(port, path=b"/" + b"a" * 40_000) in (0, 431)


def test_a_head_that_never_ends_is_given_up(running, tmp_path):
    with running(tmp_path / "service", {"head_seconds": 2.0}) as (port, _):
        begun = time.monotonic()
        with connect(port) as silent, connect(port) as slow, connect(port) as again:
            slow.sendall(b"GET /healthz HTTP/1.1\r\nx: ")
            again.sendall(b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
            assert again.recv(4096).startswith(b"HTTP/1.1 200")
            again.sendall(b"\r\n")  # as if a second request came
            assert is_closed(silent)
            assert is_closed(slow)
            assert is_closed(again)
        assert time.monotonic() - begun < 60


def test_connections_are_counted_while_they_are_open(running, tmp_path):
    with running(tmp_path / "service", {"connections_per_address": 3}) as (port, _):
        for _ in range(10):  # one after the other is no matter
            assert ask(port) == 200
        with connect(port), connect(port), connect(port):
            with connect(port) as fourth:
                assert is_closed(fourth)
            assert ask(port, "127.0.0.2") == 200
        deadline = time.monotonic() + 60
        while ask(port) != 200:
            assert time.monotonic() < deadline


def test_only_a_named_proxy_may_connect(running, tmp_path):
    named = {"proxies": ["127.0.0.2"], "hosts": ["fair.example"]}
    with running(tmp_path / "service", {"connections_per_address": 2}, **named) as (port, _):
        told = b"x-forwarded-for: 10.1.1.1\r\n"
        assert ask(port, "127.0.0.2", told, host=b"fair.example") == 200
        assert ask(port, "127.0.0.3", told, host=b"fair.example") == 0
        with ExitStack() as stack:  # its connections are those of many people
            for _ in range(20):
                stack.enter_context(connect(port, "127.0.0.2"))
            assert ask(port, "127.0.0.2", told, host=b"fair.example") == 200


def test_a_forwarded_address_is_not_believed_without_a_named_proxy(running, tmp_path):
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
