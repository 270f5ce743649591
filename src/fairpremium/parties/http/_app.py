"""The service over HTTP: a route checks the signature, reads what is sent, calls one command, and answers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from fairpremium import __version__
from fairpremium.parties.collect import add_collect
from fairpremium.parties.console import add_console
from fairpremium.parties.service import SecurityEvents, ServiceSettings, ThirdParty

from ._answers import add_problem_answers
from ._fits import add_fits
from ._guard import Guard
from ._log import add_log
from ._metrics import Metrics
from ._openapi import add_description, describe
from ._operations import add_operations
from ._portfolios import add_portfolios
from ._reports import add_reports
from ._request_record import RequestRecord
from ._requests import Requests
from ._studies import add_studies


def create_app(settings: ServiceSettings, third_party: ThirdParty | None = None) -> FastAPI:
    """Build the service.

    Parameters
    ----------
    settings : ServiceSettings
    third_party : ThirdParty or None
        One that is open already; None opens the folder of the settings.
    """
    party = third_party or ThirdParty(
        settings.folder, database=settings.database, clock=settings.clock, limits=settings.limits
    )
    party.start_writer()
    requests = Requests(party, settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        app.state.console.stop()
        party.stop_writer()

    app = FastAPI(
        title="fairpremium third party",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,  # our own route sends stored bytes
        redirect_slashes=False,
    )
    app.openapi = lambda: describe(app)  # type: ignore[method-assign]
    add_description(app)
    app.state.requests = requests
    add_problem_answers(app)
    metrics = Metrics(party)
    app.add_middleware(Guard, requests=requests, record=RequestRecord(app, metrics, SecurityEvents(party.context)))
    for add_routes in (add_studies, add_reports, add_portfolios, add_fits, add_log):
        add_routes(app, requests)
    add_operations(app, requests, metrics)
    if settings.collect:
        add_collect(app, party, settings)
    add_console(app, party, settings)
    return app
