"""Routes of the log, its signed end, and the service's public keys."""

from typing import Annotated

from anyio.to_thread import run_sync
from fastapi import FastAPI, Query, Request

from fairpremium.parties.protocol import Checkpoint, LogPage, PublicKey

from ._openapi import ANY, SIGNED, route
from ._requests import Requests

_LARGEST = 2**53  # number of an entry of the log


def add_log(app: FastAPI, requests: Requests) -> None:
    """Add the routes that show the log and what verifies it."""
    party = requests.party

    @route(app, "GET", "/v1/log", (*SIGNED, "bad-query"))
    async def get_log(request: Request, after: Annotated[int, Query(ge=0, le=_LARGEST)] = 0) -> LogPage:
        return await run_sync(party.get_log, await requests.verify(request, "get_log"), after)

    @route(app, "GET", "/v1/keys", ANY)
    async def get_keys() -> list[PublicKey]:
        return party.public_keys()

    @route(app, "GET", "/v1/checkpoint", (*ANY, "unavailable"))
    async def get_checkpoint() -> Checkpoint:
        return await run_sync(party.get_checkpoint)
