"""TLS end to end: parties through a real nginx with the configuration of deploy/, and TLS by the service itself."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import httpx
import pandas as pd
import pytest

from fairpremium import RandomizedResponse
from fairpremium.parties import (
    Collector,
    FitSpec,
    Insurer,
    KnownChannel,
    Operator,
    StudySpec,
    ThirdParty,
    VerifyKey,
    new_key,
    new_secret,
)
from fairpremium.parties.clients import ServiceUnreachable
from fairpremium.parties.protocol import write_key
from fairpremium.portfolios import zhang_liu_shi_2025
from helpers.certificates import Authority
from helpers.ports import free_port
from helpers.processes import PATIENCE, Command, run_command, wait_until
from helpers.proxy import find_nginx, running_proxy, write_configuration

CHANNEL = RandomizedResponse(["F", "M"], keep=0.8)
ROLES = {"op": "operator", "app": "collector", "acme": "insurer"}
HSTS = "max-age=63072000; includeSubDomains"
ROWS = 1200


@contextmanager
def serving(folder, *options):
    """Run the service as an operator does; yield its port."""
    words = ["serve", "--folder", str(folder), "--port", "0", "--with-parent", "--json", *options]
    with Command(*words, stdin=subprocess.PIPE, stderr=None) as process:
        try:
            yield int(json.loads(process.stdout.readline())["service"].rpartition(":")[2])
        finally:
            process.stdin.close()
            process.wait(PATIENCE)


def register(folder):
    """Make a third party that knows the three parties; return their keys."""
    party = ThirdParty(folder)
    keys = {name: new_key() for name in ROLES}
    for name, key in keys.items():
        party.add_key(key.public_key, party=name, role=ROLES[name])
    party.close()
    return keys


@pytest.fixture(scope="module")
def proxied(tmp_path_factory):
    """A service behind nginx, both real."""
    find_nginx()
    folder = tmp_path_factory.mktemp("proxied")
    authority = Authority(folder / "tls")
    authority.issue("localhost")
    keys = register(folder / "third-party")
    port = free_port()
    names = ("--proxy", "127.0.0.1", "--names", f"localhost:{port}", "--collect")
    with (
        serving(folder / "third-party", *names) as inner,
        running_proxy(folder / "tls", f"127.0.0.1:{inner}", port) as proxy,
    ):
        yield SimpleNamespace(folder=folder, authority=authority.path, keys=keys, proxy=proxy, inner=inner)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Nginx in front of a server that tells which headers it got, and answers slowly if asked to."""
    find_nginx()
    folder = tmp_path_factory.mktemp("recorded")
    authority = Authority(folder)
    authority.issue("localhost")

    class Echo(BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path == "/slow":
                time.sleep(4)
            body = json.dumps([[name.lower(), value] for name, value in self.headers.items()]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_PUT(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def log_message(self, *_):
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 256

    with Server(("127.0.0.1", 0), Echo) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with running_proxy(folder, f"127.0.0.1:{server.server_port}") as proxy:
            yield SimpleNamespace(authority=authority.path, proxy=proxy)
        server.shutdown()


def browse(place, **options):
    context = ssl.create_default_context(cafile=place.authority)
    return httpx.Client(base_url=place.proxy.url, verify=context, trust_env=False, timeout=30, **options)


def connect(place):
    """A connection with TLS, to write to by hand."""
    context = ssl.create_default_context(cafile=place.authority)
    raw = socket.create_connection(("127.0.0.1", place.proxy.port), timeout=60)
    return context.wrap_socket(raw, server_hostname="localhost")


# --- the parties ---


def play(url, keys, authority, folder, public_key):
    """All three parties over https, from the declaration of a study to the bundle."""
    who = {
        name: kind(url, keys[name], authority=authority)
        for name, kind in (("op", Operator), ("app", Collector), ("acme", Insurer))
    }
    study = StudySpec(
        title="Motor",
        attribute=KnownChannel(channel=CHANNEL.descriptor()),
        collectors=("app",),
        insurers=("acme",),
    )
    who["op"].put_study("motor", study)
    who["op"].set_state("motor", "open")
    book, secret = zhang_liu_shi_2025(n=ROWS, rng=1, age_band=True), new_secret()
    policy = [f"P{i}" for i in range(ROWS)]
    reports = pd.DataFrame({"policy": policy, "report": CHANNEL.privatize(book.sensitive, rng=2)})
    who["app"].submit(reports, study="motor", secret=secret, channel=CHANNEL)
    rows = book.X.assign(policy=policy, y=book.y)
    who["acme"].upload(rows, study="motor", portfolio="p", secret=secret, policy="policy", outcome="y")
    who["acme"].fit("first", FitSpec(study="motor", portfolio="p", release="randomized"))
    assert who["acme"].watch("first").state == "succeeded"
    bundle = who["acme"].fetch("first", folder / "bundle.zip", trusted=[VerifyKey(public_key)])
    assert len(bundle.pricer.predict(book.X.head())) == 5
    for each in who.values():
        each.close()


def test_all_parties_work_through_the_proxy(proxied):
    party = ThirdParty(proxied.folder / "third-party")
    play(proxied.proxy.url, proxied.keys, proxied.authority, proxied.folder, party.public_key)
    assert party.verify_log().intact
    party.close()


def test_commands_accept_a_private_authority(proxied, tmp_path):
    write_key(tmp_path / "op.key", proxied.keys["op"])
    public = proxied.folder / "third-party" / "service.key.pub"
    words = ["log", "verify", "--service", proxied.proxy.url, "--trust", public, "--key", tmp_path / "op.key"]
    done = run_command(*words, "--authority", proxied.authority)
    assert done.returncode == 0, done.stderr
    done = run_command(*words)
    assert done.returncode == 2
    assert "is not trusted" in done.stderr
    assert "--authority" in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 4


def test_a_certificate_of_others_is_not_trusted(proxied, tmp_path):
    key = proxied.keys["op"]
    stranger = Authority(tmp_path).path
    for authority in (None, stranger):
        with (
            pytest.raises(ServiceUnreachable, match="is not trusted"),
            Operator(proxied.proxy.url, key, authority=authority) as operator,
        ):
            operator.get_study("motor")


def test_a_file_without_certificates_is_no_authority(tmp_path):
    (tmp_path / "empty.pem").write_text("nothing", encoding="utf-8")
    for name, why in (("nowhere.pem", "Cannot read"), ("empty.pem", "without a certificate")):
        with pytest.raises(ValueError, match=why):
            Operator("https://localhost", new_key(), authority=tmp_path / name)


def test_the_service_does_tls_itself(tmp_path):
    authority = Authority(tmp_path / "tls")
    certificate, secret = authority.issue("localhost")
    keys = register(tmp_path / "third-party")
    tls = ("--certificate", str(certificate), "--certificate-key", str(secret))
    with serving(tmp_path / "third-party", *tls) as port:
        party = ThirdParty(tmp_path / "third-party")
        play(f"https://localhost:{port}", keys, authority.path, tmp_path, party.public_key)
        party.close()
        context = ssl.create_default_context(cafile=authority.path)
        answer = httpx.get(f"https://localhost:{port}/healthz", verify=context, trust_env=False)
        assert answer.headers["strict-transport-security"] == HSTS
        with pytest.raises(httpx.TransportError):
            httpx.get(f"http://localhost:{port}/healthz", trust_env=False)
        for host, trusted, why in (("localhost", None, "issuer"), ("127.0.0.1", authority.path, "mismatch")):
            with (
                pytest.raises(ServiceUnreachable, match=why),
                Operator(f"https://{host}:{port}", keys["op"], authority=trusted) as operator,
            ):
                operator.get_study("motor")
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        assert httpx.get(f"https://localhost:{port}/healthz", verify=context, trust_env=False).is_success


def test_files_that_tls_cannot_use_are_named_before_anything_starts(tmp_path):
    authority = Authority(tmp_path / "tls")
    authority.issue("localhost")
    good = tmp_path / "tls" / "certificate.pem"
    other = Authority(tmp_path / "other")
    other.issue("localhost")
    table = tmp_path / "people.csv"
    table.write_text("policy,sex\nP1,F\n")
    for certificate, its_key, why in (
        (table, table, f"Got --certificate {table}, but expected a file with certificates in PEM."),
        (good, table, f"Got --certificate-key {table}, but expected a key in PEM, without a password."),
        (good, tmp_path / "other" / "certificate.key", "but expected the key of"),
    ):
        words = ["serve", "--folder", tmp_path / "tp", "--port", "0", "--workers", "0", "--names", "localhost"]
        done = run_command(*words, "--certificate", certificate, "--certificate-key", its_key)
        assert (done.returncode, done.stdout) == (2, "")
        assert why in done.stderr
        assert "service.started" not in done.stderr


# --- what the proxy says and does ---


def test_nothing_goes_without_tls(proxied):
    plain = f"http://127.0.0.1:{proxied.proxy.plain_port}"
    answer = httpx.get(f"{plain}/v1/keys?x=1", headers={"Host": "evil.example"}, trust_env=False)
    assert (answer.status_code, answer.headers["location"]) == (301, "https://localhost/v1/keys?x=1")
    for method in ("PUT", "POST", "DELETE"):
        assert httpx.request(method, f"{plain}/v1/studies/motor", content=b"x", trust_env=False).status_code == 403
    answer = httpx.get(f"http://localhost:{proxied.proxy.port}/v1/keys", trust_env=False)
    assert answer.status_code == 400


def test_an_unknown_name_gets_no_certificate(proxied):
    context = ssl.create_default_context(cafile=proxied.authority)
    with (
        socket.create_connection(("127.0.0.1", proxied.proxy.port), timeout=30) as raw,
        pytest.raises(ssl.SSLError),
    ):
        context.wrap_socket(raw, server_hostname="other.example")


def test_old_versions_of_tls_are_refused(proxied):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(proxied.authority)
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with socket.create_connection(("127.0.0.1", proxied.proxy.port), timeout=30) as raw, pytest.raises(ssl.SSLError):
        context.wrap_socket(raw, server_hostname="localhost")


def test_every_answer_insists_on_tls(proxied):
    with browse(proxied) as client:
        answers = [client.get(path) for path in ("/healthz", "/v1/keys", "/collect/", "/nowhere", "/" + "x" * 20_000)]
    assert [answer.status_code for answer in answers][-2:] == [404, 414]
    for answer in answers:
        assert answer.headers.get_list("strict-transport-security") == [HSTS]
        assert answer.headers["server"] == "nginx"  # without its version


def test_what_a_client_says_about_itself_does_not_count(recorded):
    forged = {"X-Forwarded-For": "1.2.3.4", "X-Forwarded-Host": "evil.example", "Forwarded": "for=1.2.3.4"}
    forged |= {"X-Real-IP": "1.2.3.4", "X-Forwarded-Proto": "http"}
    with browse(recorded) as client:
        got = client.get("/", headers=forged).json()
    assert [value for name, value in got if "forwarded" in name or "real-ip" in name] == ["127.0.0.1", "https"]
    assert ["host", f"localhost:{recorded.proxy.port}"] in got


def test_a_forged_address_does_not_escape_a_limit(proxied):
    """The page takes so many requests of an address; another one in a header gives no more of them."""
    with browse(proxied) as client:
        body = {"token": "x"}
        headers = [{"X-Forwarded-For": f"10.0.{i // 250}.{i % 250}"} for i in range(300)]
        with ThreadPoolExecutor(8) as pool:
            statuses = list(
                pool.map(lambda h: client.post("/collect/v1/open", json=body, headers=h).status_code, headers)
            )
    assert statuses.count(429) > 20
    assert statuses.count(429) < 280


def test_large_heads_and_bodies_are_refused(recorded):
    with browse(recorded) as client:
        assert client.get("/", headers={"X": "x" * 9_000}).status_code == 400
        assert client.get("/", headers={f"X-{i}": "x" * 6_000 for i in range(8)}).status_code == 400
        assert client.get("/" + "x" * 9_000).status_code == 414
        assert client.get("/", headers={"X": "x" * 6_000}).status_code == 200
    for path, size in (("/v1/portfolios/p/parts/1", 64 << 20), ("/collect/v1/report", 64 << 10)):
        with connect(recorded) as sock:
            sock.sendall(f"PUT {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {size + 1}\r\n\r\n".encode())
            assert b" 413 " in sock.recv(4096).splitlines()[0]


def test_slow_clients_are_sent_away(recorded):
    """Half a head, half a body, no handshake at all: none of them holds a connection for long."""
    started = time.monotonic()
    with (
        connect(recorded) as head,
        connect(recorded) as body,
        socket.create_connection(("127.0.0.1", recorded.proxy.port), timeout=60) as silent,
    ):
        head.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\n")
        body.sendall(b"PUT /v1/fits/f HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\nhalf")
        ends = {}

        def wait(name, sock):
            try:
                while sock.recv(4096):
                    pass
            except OSError:
                pass
            ends[name] = time.monotonic() - started

        threads = [
            threading.Thread(target=wait, args=pair) for pair in (("head", head), ("body", body), ("silent", silent))
        ]
        for thread in threads:
            thread.start()
        for _ in range(4):  # a few letters now and then do not help
            time.sleep(2)
            head.sendall(b"x")
        for thread in threads:
            thread.join(50)
    assert 9 < ends["head"] < 20
    assert 9 < ends["silent"] < 20
    assert 19 < ends["body"] < 40


def test_an_address_has_so_many_requests_at_a_time(recorded):
    def ask(_):
        with browse(recorded) as client:
            return client.get("/slow").status_code

    with ThreadPoolExecutor(150) as pool:
        statuses = list(pool.map(ask, range(150)))
    assert set(statuses) == {200, 429}
    assert statuses.count(200) <= 128 + 10  # the first of them may have ended before the last one began


def test_guesses_of_a_password_are_rare(recorded):
    with browse(recorded) as client:
        statuses = [client.get("/console/login").status_code for _ in range(20)]
    assert statuses[:5] == [200] * 5
    assert statuses.count(429) >= 5


def test_guesses_from_the_address_of_the_operator_do_not_keep_the_operator_out(proxied, tmp_path):
    """A device that is known has tries of its own at the proxy too; made-up cookies have none."""
    (tmp_path / "password").write_text("correct horse battery staple\n")
    words = ["account", "add", "ada", "--role", "operator", "--password-file", str(tmp_path / "password")]
    assert run_command(*words, "--folder", proxied.folder / "third-party").returncode == 0
    form = {"name": "ada", "password": "correct horse battery staple"}
    own = {"Origin": proxied.proxy.url}

    def guess(client, **cookies):
        wrong = form | {"password": "wrong"}
        headers = own | {"Cookie": "; ".join(f"{name}={value}" for name, value in cookies.items())}
        return client.post("/console/login", data=wrong, headers=headers)

    with browse(proxied) as operator, browse(proxied) as attacker:
        assert operator.post("/console/login", data=form, headers=own).status_code == 303
        assert "__Secure-fairpremium-device" in operator.cookies
        answers = [guess(attacker) for _ in range(100)]
        assert answers[-1].status_code == 429
        assert "<html" in answers[-1].text  # of the proxy, before the service
        assert "Too many tries" not in answers[-1].text
        assert operator.post("/console/login", data=form, headers=own).status_code == 303
        made_up = [f"{i}.{i:032x}.{i:064x}" for i in range(60)]
        answers = [guess(attacker, **{"a": "b", "__Secure-fairpremium-device": value}) for value in made_up]
        assert sum(answer.status_code != 429 for answer in answers) < 20  # the service limits them itself
        assert operator.post("/console/login", data=form, headers=own).status_code == 303


def test_the_proxy_writes_no_address_down(proxied):
    """Not who asked for what, also where it refused: an address may hold the key of a policy."""
    secret = "7d1c0e0a5b7f4a3c9f6e2d8b1a4c5e70"
    with browse(proxied) as client:
        client.get(f"/v1/studies/motor/reports/{secret}")
        client.get(f"/v1/studies/motor/reports/{secret}", headers={"X": "x" * 40_000})
        for _ in range(150):
            client.post(f"/collect/{secret}", json={})
    wait_until(lambda: proxied.proxy.log.exists())
    assert secret not in proxied.proxy.log.read_text()


def test_the_configuration_is_valid(tmp_path):
    authority = Authority(tmp_path)
    authority.issue("localhost")
    path = write_configuration(tmp_path, "127.0.0.1:8350", 8443, 8080)
    done = subprocess.run([find_nginx(), "-t", "-c", path, "-e", "stderr"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "warn" not in done.stderr
