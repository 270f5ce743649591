"""What the tests of the parties share: draws that are the same in every run, and a database of each kind."""

from __future__ import annotations

import hashlib
import itertools
import os
import secrets
from types import SimpleNamespace

import pytest

from fairpremium.audit import render_report
from fairpremium.parties.clients._client import AppTransport, Client, Operator
from fairpremium.parties.clients._collector import Collector
from fairpremium.parties.clients._insurer import Insurer
from fairpremium.parties.http._app import create_app
from fairpremium.parties.protocol._keys import new_key
from fairpremium.parties.protocol._linkage import new_secret
from fairpremium.parties.service._settings import ServiceSettings
from fairpremium.parties.service._third_party import ThirdParty
from fairpremium.parties.store._database import Database, sqlite_url
from helpers import places, processes
from helpers import postgres as database_server
from helpers.quick_fits import AT_ONCE, RENDER_REPORT, numbers_alone

postgres, postgres_url = database_server.postgres, database_server.postgres_url

# Modules that draw the bytes from which reports are drawn once more, and noise is.
_DRAWERS = (
    "protocol._linkage",
    "service._studies",
    "service.answers._counts",
    "service.keys._study_secret",
    "service.reports._snapshots",
)


# Modules whose tests read the report in a bundle. To draw its charts is half of what a fit takes: in other modules a
# fit of this process writes the numbers of the report alone, unless a test of the module starts processes that fit.
# Those of test_faults leave the charts out, too.
READ_REPORTS = {"test_content", "test_origins", "test_story"}


@pytest.fixture(autouse=True, scope="module")
def reports_without_charts(request):
    with pytest.MonkeyPatch.context() as patch:
        reads = request.module.__name__.rpartition(".")[2] in READ_REPORTS
        # Other processes write whole reports, and tests compare their bundles with those of this process.
        others = request.module.__name__.rpartition(".")[2] != "test_faults" and any(
            "zygote" in getattr(item, "fixturenames", ()) for item in request.session.items if item.path == request.path
        )
        if not (reads or others):
            patch.setattr(RENDER_REPORT, numbers_alone)
        yield


@pytest.fixture
def reports_with_charts(monkeypatch):
    """Fits of this test write whole reports, whatever its module does."""
    monkeypatch.setattr(RENDER_REPORT, render_report)


def _repeat_draws(patch, name):
    """Let all that decides what is released in this process follow from a name, instead of the operating system."""
    calls = itertools.count()

    def draw(size):
        return hashlib.shake_256(f"{name} {next(calls)}".encode()).digest(size)

    for module in _DRAWERS:
        patch.setattr(f"fairpremium.parties.{module}.secrets", SimpleNamespace(**vars(secrets) | {"token_bytes": draw}))
    patch.setattr("fairpremium.privacy._sampling.os", SimpleNamespace(**vars(os) | {"urandom": draw}))
    # Noise of fits is another one on another kind of processor, and with other versions of libraries.
    patch.setattr("fairpremium.parties.service._run_fit.describe_arithmetic", dict)


@pytest.fixture(autouse=True, scope="module")
def draws_of_the_module(request):
    """What is made once for a module is the same in every run."""
    with pytest.MonkeyPatch.context() as patch:
        _repeat_draws(patch, request.node.name)
        yield


@pytest.fixture(autouse=True)
def draws_of_the_test(request, monkeypatch):
    """And so is what a test makes, whichever tests run before it. Other processes draw as they always do."""
    _repeat_draws(monkeypatch, f"{request.module.__name__} {request.node.name}")


@pytest.fixture(scope="session")
def zygote():
    """The process that starts others, for tests that kill them."""
    return processes.shared_zygote()


@pytest.fixture(scope="module")
def sqlite_base(tmp_path_factory):
    """A place in which something can be done of every kind; work on copies of it."""
    folder = tmp_path_factory.mktemp("base") / "third-party"
    places.build(folder)
    return places.Place(folder)


@pytest.fixture(scope="module")
def postgres_base(tmp_path_factory, postgres):
    """The same with PostgreSQL."""
    folder = tmp_path_factory.mktemp("base") / "third-party"
    with postgres.database() as name:
        place = places.Place(folder, postgres.url(name), postgres)
        places.build(folder, place.database)
        yield place
        postgres.execute(f"DROP DATABASE IF EXISTS {name}_copy WITH (FORCE)")


@pytest.fixture(scope="module", params=["sqlite_base", "postgres_base"], ids=["sqlite", "postgresql"])
def base(request):
    """Each of the two."""
    return request.getfixturevalue(request.param)


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request, tmp_path):
    """The address of a fresh database of each kind."""
    return (
        sqlite_url(tmp_path / "test.sqlite") if request.param == "sqlite" else request.getfixturevalue("postgres_url")
    )


@pytest.fixture
def database(database_url):
    database = Database(database_url)
    yield database
    database.close()


class Parties:
    """Three parties and an auditor around one app, in one process."""

    def __init__(self, folder, database=None, **settings):
        self.third_party = ThirdParty(folder, database=database, limits=AT_ONCE)
        self.context = self.third_party.context
        self.app = create_app(
            ServiceSettings(folder=folder, database=database, hosts=("third.party", "127.0.0.1"), **settings),
            self.third_party,
        )
        self.transport = AppTransport(self.app)
        self.secret = new_secret()
        self.keys = {}
        self.operator = self.add("op", "operator", new_key())
        self.collector = self.add("app", "collector", new_key())
        self.insurer = self.add("acme", "insurer", new_key())
        self.auditor = self.add("aud", "auditor", new_key())

    def add(self, name, role, key):
        self.third_party.add_key(key.public_key, party=name, role=role)
        self.app.state.requests._keys_at = float("-inf")
        self.keys[name] = key
        kind = {"operator": Operator, "collector": Collector, "insurer": Insurer}.get(role, Client)
        return kind("http://third.party", key, transport=self.transport)

    def close(self):
        self.transport.close()
        self.app.state.console.log_monitor.wait()  # its connection goes back before the database closes
        self.third_party.close()


@pytest.fixture
def parties(tmp_path, database_url):
    parties = Parties(tmp_path / "third-party", database_url)
    yield parties
    parties.close()
