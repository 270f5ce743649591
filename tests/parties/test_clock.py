"""The clock that tests let run faster: what follows it, and what stays with the machine."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from sqlalchemy import select

from fairpremium.parties import Problem, ThirdParty
from fairpremium.parties.clients._client import AppTransport, Client
from fairpremium.parties.clock import in_service_time, on_this_machine, service_time
from fairpremium.parties.http._app import create_app
from fairpremium.parties.protocol import LogPage
from fairpremium.parties.protocol._keys import read_key
from fairpremium.parties.service._leases import acquire_lease
from fairpremium.parties.service._settings import ServiceSettings
from fairpremium.parties.store.schema import fits, log

SPEED = 1000.0


@pytest.fixture
def fast(monkeypatch):
    monkeypatch.setenv("FAIRPREMIUM_CLOCK_SPEED", f"{SPEED:g}:{int(time.time()) - 100}")


def test_without_the_variable_it_is_the_machine_s():
    before = time.time()
    assert before <= service_time() <= time.time()
    assert in_service_time(30.0) == on_this_machine(30.0) == 30.0


def test_all_processes_with_the_variable_have_the_same_time(fast):
    before = service_time()
    assert before - time.time() > 100 * (SPEED - 1) - SPEED
    code = "from fairpremium.parties.clock import service_time; print(service_time())"
    other = float(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout)
    assert before <= other <= service_time()
    assert in_service_time(30.0) == 30.0 * SPEED
    assert on_this_machine(3600.0) == 3.6


def test_dates_follow_it_and_leases_last_as_long_as_ever(sqlite_base, tmp_path, fast):
    party = sqlite_base.copy(tmp_path / "third-party").open()
    context, before = party.context, service_time()
    lease = context.database.write(lambda c: acquire_lease(c, context))
    until = context.database.read(
        lambda c: c.execute(select(fits.c.lease_until).where(fits.c.id == lease.fit)).scalar()
    )
    assert before + 30.0 * SPEED <= until <= service_time() + 30.0 * SPEED
    said = context.database.read(lambda c: c.execute(select(log.c.time).order_by(log.c.seq.desc())).scalar())
    assert said > time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(time.time() + 80_000))
    party.close()


def test_a_signature_is_good_for_five_minutes_of_the_machine(sqlite_base, tmp_path, fast, monkeypatch):
    place = sqlite_base.copy(tmp_path / "third-party")
    party = ThirdParty(place.folder)
    transport = AppTransport(create_app(ServiceSettings(folder=place.folder, hosts=("third.party",)), party))
    signed_at = "fairpremium.parties.protocol._signatures.service_time"
    with Client("http://third.party", read_key(place.folder / "acme.key"), transport=transport) as client:
        monkeypatch.setattr(signed_at, lambda: service_time() - 290.0 * SPEED)
        assert client.get("/v1/log", LogPage).entries
        monkeypatch.setattr(signed_at, lambda: service_time() - 301.0 * SPEED)
        with pytest.raises(Problem, match="more than 300 seconds"):
            client.get("/v1/log", LogPage)
    party.close()
