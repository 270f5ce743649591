"""Routes for those who run the service: is it alive, is it ready, and what has it done."""

from collections import Counter
from typing import Any

from anyio.to_thread import run_sync
from fastapi import FastAPI, Request, Response
from fastapi.responses import PlainTextResponse

from fairpremium.parties.protocol import Problem
from fairpremium.parties.service import is_loopback

from ._openapi import ANY, route
from ._requests import Requests

_FORWARDED = {b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip"}


def add_operations(app: FastAPI, requests: Requests) -> None:
    """Add the probes and the metrics."""
    party = requests.party

    @route(app, "GET", "/healthz", ANY)
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @route(app, "GET", "/readyz", (*ANY, "unavailable"))
    async def readyz() -> dict[str, str]:
        try:
            await run_sync(party.check_database)
        except Exception:
            raise Problem("unavailable") from None
        return {"status": "ready"}

    @route(app, "GET", "/metrics", (*ANY, "unavailable"), response_class=PlainTextResponse)
    async def metrics(request: Request) -> Response:
        if not _is_local(request.scope):  # how many requests there were tells when somebody reported
            raise Problem("not-found")
        states = Counter(state for state, _, _ in (await run_sync(party.fit_states)).values())
        lines = ["# TYPE fairpremium_requests_total counter"]
        lines += [f'fairpremium_requests_total{{status="{s}"}} {n}' for s, n in sorted(requests.answers.items())]
        lines.append("# TYPE fairpremium_fits gauge")
        lines += [f'fairpremium_fits{{state="{state}"}} {n}' for state, n in sorted(states.items())]
        return PlainTextResponse("\n".join(lines) + "\n")


def _is_local(scope: Any) -> bool:
    """Did this machine itself send the request, and no proxy on it?"""
    is_forwarded = any(name in _FORWARDED for name, _ in scope["headers"])
    return bool(scope.get("client")) and not is_forwarded and is_loopback(scope["client"][0])
