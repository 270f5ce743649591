"""Routes of the log, its signed end, and the service's public keys."""

from typing import Annotated

from anyio.to_thread import run_sync
from fastapi import FastAPI, Query, Request

from fairpremium.parties.protocol import Checkpoint, LogPage, LogProof, PublicKey

from ._openapi import ANY, SIGNED, route
from ._requests import Requests

_LARGEST = 2**53  # number of an entry of the log
_Number = Annotated[int, Query(ge=1, le=_LARGEST)]


def add_log(app: FastAPI, requests: Requests) -> None:
    """Add the routes that show the log and what verifies it."""
    party = requests.party

    @route(app, "GET", "/v1/log", (*SIGNED, "bad-query"))
    async def get_log(request: Request, after: Annotated[int, Query(ge=0, le=_LARGEST)] = 0) -> LogPage:
        return await run_sync(party.get_log, await requests.verify(request, "get_log"), after)

    @route(app, "GET", "/v1/log/inclusion", (*SIGNED, "bad-query"))
    async def get_inclusion(request: Request, entry: _Number, size: _Number) -> LogProof:
        return await run_sync(party.get_inclusion, await requests.verify(request, "get_inclusion"), entry, size)

    @route(app, "GET", "/v1/log/consistency", (*ANY, "bad-query", "unavailable"))
    async def get_consistency(
        first: Annotated[int, Query(alias="from", ge=1, le=_LARGEST)],
        second: Annotated[int, Query(alias="to", ge=1, le=_LARGEST)],
    ) -> LogProof:
        return await run_sync(party.get_consistency, first, second)

    @route(app, "GET", "/v1/keys", (*ANY, "unavailable"))
    async def get_keys() -> list[PublicKey]:
        """Return the keys by which the service signs or signed, the oldest first."""
        return await run_sync(party.public_keys)

    @route(app, "GET", "/v1/checkpoint", (*ANY, "unavailable"))
    async def get_checkpoint() -> Checkpoint:
        return await run_sync(party.get_checkpoint)
