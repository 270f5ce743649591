"""Routes of fits and their bundles."""

import asyncio
import time
from collections import Counter
from typing import Annotated, Any

from anyio.to_thread import run_sync
from fastapi import FastAPI, Query, Request, Response
from fastapi.responses import FileResponse

from fairpremium.parties.protocol import ENDED, Fit, FitSpec
from fairpremium.parties.service import Party, ThirdParty

from ._openapi import NAMED, SENT, SIGNED, Id, route, takes_message
from ._requests import Requests

_LOOK_EVERY = 0.25  # seconds between two looks at the fits that somebody waits for


class WholeFile(FileResponse):
    """A file that is sent as a whole: a range is not signed, and half a bundle proves nothing."""

    media_type = "application/zip"

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = [(name, value) for name, value in scope["headers"] if name not in (b"range", b"if-range")]
        await super().__call__({**scope, "headers": headers}, receive, send)


def add_fits(app: FastAPI, requests: Requests) -> None:
    """Add the routes that ask for fits, show and cancel them, and send their bundles."""
    party = requests.party
    app.state.fit_waiter = waiter = FitWaiter(party)

    @route(
        app,
        "PUT",
        "/v1/fits/{fit}",
        (*SENT, "portfolio-deleted", "reports-erased"),
        openapi_extra=takes_message(FitSpec),
    )
    async def put_fit(request: Request, fit: Id) -> Fit:
        who = await requests.verify(request, "put_fit")
        return await run_sync(party.put_fit, who, fit, await requests.read_message(request, who, FitSpec))

    @route(app, "GET", "/v1/fits", SIGNED)
    async def list_fits(request: Request) -> list[Fit]:
        return await run_sync(party.list_fits, await requests.verify(request, "list_fits"))

    @route(app, "GET", "/v1/fits/{fit}", NAMED)
    async def get_fit(request: Request, fit: Id, wait: Annotated[float, Query(ge=0, le=60)] = 0) -> Fit:
        who = await requests.verify(request, "get_fit")
        seen = await run_sync(party.get_fit, who, fit)
        if wait and seen.state not in ENDED:
            await waiter.wait(who, fit, min(wait, requests.limits.wait_seconds))
            seen = await run_sync(party.get_fit, who._replace(signed=None), fit)  # its nonce is used
        return seen

    @route(app, "POST", "/v1/fits/{fit}/cancel", NAMED)
    async def cancel_fit(request: Request, fit: Id) -> Fit:
        return await run_sync(party.cancel_fit, await requests.verify(request, "cancel_fit"), fit)

    @route(app, "GET", "/v1/fits/{fit}/bundle", (*NAMED, "not-finished", "bundle-erased"), response_class=WholeFile)
    async def get_bundle(request: Request, fit: Id) -> Response:
        path, digest = await run_sync(party.get_bundle, await requests.verify(request, "get_bundle"), fit)
        return WholeFile(path, media_type="application/zip", headers={"ETag": f'"{digest}"'})


class FitWaiter:
    """Lets requests wait for fits; the states of all fits are read once for all that wait."""

    def __init__(self, party: ThirdParty):
        self.waiting: Counter[str] = Counter()  # requests that wait, by party
        self._party = party
        self._states: dict[tuple[str, str], tuple[str, str, float]] = {}
        self._read_at = float("-inf")
        self._reading = asyncio.Lock()

    async def wait(self, who: Party, fit: str, seconds: float) -> None:
        """Return when a fit ended, moved on, or the time is over; at once if the party waits too often already."""
        if self.waiting[who.name] >= self._party.context.limits.waits:
            return
        self.waiting[who.name] += 1
        try:
            deadline = time.monotonic() + seconds
            first = (await self._look()).get((who.name, fit))
            while time.monotonic() < deadline:
                await asyncio.sleep(_LOOK_EVERY)
                now = (await self._look()).get((who.name, fit))
                if now is None or now[0] in ENDED or now != first:
                    return
        finally:
            self.waiting[who.name] -= 1

    async def _look(self) -> dict[tuple[str, str], tuple[str, str, float]]:
        async with self._reading:
            if time.monotonic() - self._read_at > _LOOK_EVERY:
                self._states = await run_sync(self._party.fit_states)
                self._read_at = time.monotonic()
            return self._states
