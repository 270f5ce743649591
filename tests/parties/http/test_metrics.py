"""The metrics: what they tell, in the form of Prometheus, to whom, and what they leave out."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from fairpremium import __version__
from fairpremium.parties.clients._client import AppTransport
from fairpremium.parties.service import Accounts
from fairpremium.parties.service._leases import acquire_lease
from fairpremium.parties.service._settings import ServiceSettings
from helpers import wire
from helpers.processes import wait_until

LOCAL = wire.Wire("GET", b"/metrics", ((b"host", b"127.0.0.1:8350"),))
TOKEN = "a-token-for-the-tests-0123456789"
PASSWORD = "correct horse battery staple"
OWN = {"Sec-Fetch-Site": "same-origin"}
STEP = 64 * 1024**2
FAMILIES = {
    "fairpremium_build": "gauge", "fairpremium_fits": "gauge", "fairpremium_queue_length": "gauge",
    "fairpremium_queue_oldest_seconds": "gauge", "fairpremium_workers": "gauge",
    "fairpremium_leases": "gauge", "fairpremium_fit_attempts": "gauge",
    "fairpremium_fit_attempts_lost": "gauge", "fairpremium_epoch": "gauge",
    "fairpremium_service_key_age_seconds": "gauge", "fairpremium_storage_bytes": "gauge",
    "fairpremium_disk_free_bytes": "gauge", "fairpremium_requests": "counter",
    "fairpremium_request_seconds": "histogram",
}  # fmt: skip


@pytest.fixture
def world(tmp_path):
    with wire.World(tmp_path / "third-party", collect=True) as world:
        world.declare()
        yield world


def read(world, asked=LOCAL):
    """The samples of an answer, by name and labels."""
    answer = world.send(asked)
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain")
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.body.decode())
        for sample in family.samples
    }


def value(found, name, **labels):
    return found[f"fairpremium_{name}", *sorted(labels.items())]


def test_every_metric_has_a_help_and_a_type(world):
    assert world.ask("op", "POST", "/v1/studies/motor/epochs/1").status == 200
    text = world.send(LOCAL).body.decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert {name.removesuffix("_info"): family.type for name, family in families.items()} == FAMILIES
    for family in families.values():
        assert family.documentation.endswith(".")
        assert family.samples
    assert "_created" not in text


def test_fits_and_leases(world):
    world.portfolio("acme", "p1")
    found = read(world)
    assert [value(found, "fits", state=state) for state in ("queued", "running", "succeeded")] == [0, 0, 0]
    assert value(found, "queue_oldest_seconds") == 0
    for n in range(3):
        world.fit("acme", f"f{n}", "p1", level=0.9 + n / 100)
        world.clock.now += 10
    found = read(world)
    assert (value(found, "queue_length"), value(found, "queue_oldest_seconds")) == (3, 30)
    world.context.database.write(lambda c: acquire_lease(c, world.context))
    found = read(world)
    assert (value(found, "leases", state="held"), value(found, "leases", state="expired")) == (1, 0)
    assert (value(found, "fit_attempts"), value(found, "fit_attempts_lost")) == (1, 0)
    world.clock.now += world.context.limits.lease_seconds + 1
    found = read(world)
    assert (value(found, "leases", state="held"), value(found, "leases", state="expired")) == (0, 1)
    world.context.database.write(lambda c: acquire_lease(c, world.context))
    found = read(world)
    assert (value(found, "fit_attempts"), value(found, "fit_attempts_lost")) == (2, 1)
    world.clock.now += world.context.limits.lease_seconds + 1
    world.succeed()
    found = read(world)
    assert [value(found, "fits", state=state) for state in ("queued", "running", "succeeded")] == [2, 0, 1]


def test_epochs_keys_storage_and_version(world):
    found = read(world)
    assert value(found, "build_info", version=__version__, database="sqlite") == 1
    assert not [key for key in found if key[0] == "fairpremium_epoch"]
    assert value(found, "service_key_age_seconds") == 0
    assert value(found, "storage_bytes", what="portfolios") == 0
    world.portfolio("acme", "p1")
    (size,) = (world.context.files.path(digest).stat().st_size for digest in world.context.files)
    assert world.ask("op", "POST", "/v1/studies/motor/epochs/1").status == 200
    world.clock.now += 100
    found = read(world)
    assert value(found, "epoch", study="motor") == 1
    assert value(found, "service_key_age_seconds") == 100
    assert value(found, "storage_bytes", what="portfolios") == size
    world.third_party.rotate_service_key()
    world.clock.now += 7
    assert value(read(world), "service_key_age_seconds") == pytest.approx(7, abs=0.01)
    assert world.ask("acme", "DELETE", "/v1/portfolios/p1").status == 204
    assert value(read(world), "storage_bytes", what="portfolios") == 0


def test_storage_is_told_in_steps(world):
    """Or each report would show as some bytes."""
    before = read(world)
    for i in range(5):
        key = wire.policy_key(i).hex()
        assert world.ask("app", "PUT", f"/v1/studies/motor/reports/{key}", wire.report()).status == 200
    body = wire.report_part(rows=2000)
    assert world.ask("app", "PUT", "/v1/studies/motor/report-parts/0", body, wire.BATCH).status == 200
    after = read(world)
    for what in ("database", "files"):
        assert value(before, "storage_bytes", what=what) == value(after, "storage_bytes", what=what) == STEP
    assert value(after, "disk_free_bytes") % STEP == 0


def test_requests_are_counted_by_route(world):
    for _ in range(3):
        world.ask("acme", "GET", "/v1/fits/none")
    world.ask("op", "GET", "/v1/studies/motor")
    for method, path in (("GET", b"/valuecanary"), ("VALUECANARY", b"/healthz")):
        world.send(wire.Wire(method, path, ((b"host", b"third.party"),)))
    found = read(world)
    assert value(found, "requests_total", method="GET", route="/v1/fits/{fit}", status="404") == 3
    assert value(found, "requests_total", method="GET", route="/v1/studies/{study}", status="200") == 1
    assert value(found, "requests_total", method="GET", route="unmatched", status="404") == 1
    assert value(found, "requests_total", method="other", route="/healthz", status="405") == 1
    labels = {"method": "GET", "route": "/v1/fits/{fit}", "status": "4xx"}
    assert value(found, "request_seconds_count", **labels) == 3
    assert value(found, "request_seconds_bucket", le="+Inf", **labels) == 3
    assert 0 < value(found, "request_seconds_sum", **labels) < 30
    assert b"valuecanary" not in world.send(LOCAL).body.lower()


def test_reports_and_answers_of_people_are_not_counted(world):
    """The metrics before and after them are the same, but for those of the metrics themselves."""

    def others():
        return {key: number for key, number in read(world).items() if ("route", "/metrics") not in key}

    others()
    before = others()
    target = f"/v1/studies/motor/reports/{wire.KEY}"
    for asked, status in (
        (world.sign("app", "PUT", target, wire.report()), 200),
        (world.sign("app", "PUT", target, wire.report("M")), 409),
        (world.sign("app", "GET", "/v1/studies/motor"), 200),
        (world.sign("app", "GET", "/v1/studies/none"), 404),
        (world.sign("app", "PUT", f"{target}?attribute=x", wire.report()), 422),
        (world.sign("app", "DELETE", target), 204),
        (world.sign("app", "PUT", "/v1/studies/motor/report-parts/0", wire.report_part(), wire.BATCH), 200),
        (wire.Wire("PUT", target.encode(), ((b"host", b"else.where"),)), 404),
        (wire.Wire("GET", b"/collect/", ((b"host", b"third.party"),)), 200),
        (wire.Wire("POST", b"/collect/v1/report", ((b"host", b"third.party"),), b"{}"), 415),
    ):
        assert world.send(asked).status == status
    after = others()
    before.pop(("fairpremium_disk_free_bytes",))  # others write to the disk, too
    after.pop(("fairpremium_disk_free_bytes",))
    assert after == before


def test_every_process_tells_the_same_of_the_database(world):
    world.portfolio("acme", "p1")
    world.fit("acme", "f1", "p1")
    with world.second() as second:
        first, other = read(world), read(second)
    own = ("fairpremium_request", "fairpremium_disk")
    assert {k: v for k, v in first.items() if not k[0].startswith(own)} == {
        k: v for k, v in other.items() if not k[0].startswith(own)
    }


def test_metrics_of_postgresql(tmp_path, postgres_url):
    with wire.World(tmp_path / "third-party", postgres_url) as world:
        world.declare()
        world.portfolio("acme", "p1")
        world.fit("acme", "f1", "p1")
        found = read(world)
        assert value(found, "build_info", version=__version__, database="postgresql") == 1
        assert value(found, "queue_length") == 1
        assert value(found, "storage_bytes", what="database") >= STEP


# --- who may read them ---


def test_metrics_are_for_who_may_open_the_console(world):
    """On this machine, straight, and by a name of this machine."""
    read(world)
    for name in ("x-forwarded-for", "forwarded", "x-real-ip"):
        assert world.send(LOCAL.plus(name, "1.2.3.4")).code == "not-found"
    assert world.send(LOCAL.but(host="third.party")).code == "not-found"
    assert world.send(LOCAL.plus("authorization", "Bearer ")).status == 200
    elsewhere = httpx.ASGITransport(app=world.app, client=("10.0.0.9", 1))
    assert _ask(elsewhere, "http://127.0.0.1:8350").status_code == 404


def _ask(transport, base, **headers):
    with AppTransport(transport.app) as one:
        one._inner = transport
        return httpx.Client(base_url=base, transport=one, headers=headers).get("/metrics")


def test_with_accounts_they_want_the_login_of_an_operator_or_the_token(tmp_path):
    with wire.World(tmp_path / "third-party", metrics_token=TOKEN) as world:
        for name, role in (("ann", "operator"), ("bob", "auditor")):
            Accounts(world.context).add(name, role, PASSWORD)
        assert world.send(LOCAL).code == "not-found"
        for wrong in ("Bearer", "Bearer x", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x", "Bearer \xff"):
            headers = (*LOCAL.headers, (b"authorization", wrong.encode("latin-1")))
            assert world.send(wire.Wire("GET", b"/metrics", headers)).code == "not-found"
        for host in ("127.0.0.1", "third.party"):
            read(world, LOCAL.but(host=host).plus("authorization", f"Bearer {TOKEN}"))
        with AppTransport(world.app) as transport:
            for name, status in (("ann", 200), ("bob", 404)):
                client = httpx.Client(base_url="http://127.0.0.1:8350", transport=transport, headers=OWN)
                assert client.get("/metrics").status_code == 404
                given = {"name": name, "password": PASSWORD}
                assert client.post("/console/login", data=given).status_code == 303
                assert client.get("/metrics").status_code == status
        assert TOKEN not in repr(world.settings)


def test_workers_are_counted_while_they_live(world):
    """Two real processes: one is killed, one is told to stop."""
    assert value(read(world), "workers") == 0
    command = [sys.executable, "-P", "-m", "fairpremium", "worker", "--folder", str(world.folder)]
    workers = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(2)]
    try:
        wait_until(lambda: value(read(world), "workers") == 2)
        workers[0].terminate()
        workers[0].wait(240)
        assert value(read(world), "workers") == 1
        workers[1].kill()
        workers[1].wait(240)
        (left,) = (world.folder / "workers").iterdir()
        assert left.stat().st_mode & 0o777 == 0o600
        silent = time.time() - 2 * world.context.limits.lease_seconds - 1
        os.utime(left, (silent, silent))
        assert value(read(world), "workers") == 0
    finally:
        for worker in workers:
            worker.kill()
            worker.wait(240)


@pytest.mark.parametrize("token", ["a-token-with-a-ümlaut-0123456789", "a token with spaces in it 0123456789"])
def test_a_token_that_no_request_can_send_is_refused(tmp_path, token):
    with pytest.raises(ValueError, match="which no request can send"):
        ServiceSettings(folder=tmp_path, metrics_token=token)


def test_a_short_token_is_refused(tmp_path):
    with pytest.raises(ValueError, match="short token for the metrics"):
        wire.World(tmp_path / "third-party", metrics_token="short")


def test_a_database_that_is_gone_is_a_problem(world):
    world.context.database.close()
    path = world.folder / "fairpremium.sqlite"
    path.rename(path.with_name("away"))
    path.mkdir()
    assert world.send(LOCAL).code == "unavailable"
    path.rmdir()
    path.with_name("away").rename(path)
