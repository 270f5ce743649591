"""What the tests of the console share: a service whose console is opened from any address."""

from __future__ import annotations

import httpx
import pytest

from fairpremium.parties.http._app import create_app
from fairpremium.parties.service._settings import ServiceSettings
from fairpremium.parties.service._third_party import ThirdParty
from helpers.visits import From


@pytest.fixture
def open_console(tmp_path):
    """Build a service with settings; return a function that opens its console from an address."""
    closing = []

    def build(folder="service", **settings):
        clock, database = settings.pop("clock", None), settings.pop("database", None)
        party = ThirdParty(tmp_path / folder, database=database, clock=clock)
        app = create_app(ServiceSettings(folder=tmp_path / folder, **settings), party)
        closing.append(party.close)

        def visit(client="127.0.0.1", host="127.0.0.1:8350", **headers):
            transport = From(app, client)
            closing.append(transport.close)
            return httpx.Client(base_url=f"http://{host}", transport=transport, headers=headers)

        visit.app, visit.party = app, party
        return visit

    yield build
    for close in reversed(closing):
        close()
