"""Routes for those who run the service: is it alive, is it ready, and what does it do."""

import hmac

from anyio.to_thread import run_sync
from fastapi import FastAPI, Request, Response
from fastapi.responses import PlainTextResponse
from prometheus_client import CONTENT_TYPE_LATEST

from fairpremium.parties.protocol import Problem

from ._metrics import Metrics
from ._openapi import ANY, route
from ._readiness import Readiness
from ._requests import Requests


def add_operations(app: FastAPI, requests: Requests, written: Metrics) -> None:
    """Add the probes and the metrics."""
    readiness = Readiness(requests.party)

    @route(app, "GET", "/healthz", ANY)
    async def healthz() -> dict[str, str]:
        """Say that the web process answers."""
        return {"status": "ok"}

    @route(app, "GET", "/readyz", (*ANY, "unavailable"))
    async def readyz() -> dict[str, str]:
        """Say whether database and disk take writes; looked at once a second at most."""
        await readiness.check()
        return {"status": "ready"}

    @route(app, "GET", "/metrics", (*ANY, "unavailable"), response_class=PlainTextResponse)
    async def metrics(request: Request) -> Response:
        """Return metrics for Prometheus: to an operator of the console, or who has the token for metrics."""
        if not (_has_token(request, requests.settings.metrics_token) or await _may_look(app, request)):
            raise Problem("not-found")
        return Response(await run_sync(written.write), media_type=CONTENT_TYPE_LATEST)


def _has_token(request: Request, token: str | None) -> bool:
    kind, _, sent = request.headers.get("authorization", "").partition(" ")
    return token is not None and kind.lower() == "bearer" and hmac.compare_digest(sent.encode(), token.encode())


async def _may_look(app: FastAPI, request: Request) -> bool:
    """Ask the console whether it would show this caller the page on its operation."""
    passed = Response()
    return await app.state.console.restricted("/console/operation", lambda _: passed)(request) is passed
