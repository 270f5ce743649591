"""Routes of studies."""

from anyio.to_thread import run_sync
from fastapi import FastAPI, Request

from fairpremium.parties.protocol import Answered, CollectorStudy, InsurerStudy, OperatorStudy, StudySpec

from ._openapi import NAMED, SENT, SIGNED, Id, Number, route, takes_message
from ._requests import Requests


def add_studies(app: FastAPI, requests: Requests) -> None:
    """Add the routes that declare, open, close and show studies."""
    party = requests.party

    @route(app, "PUT", "/v1/studies/{study}", SENT, openapi_extra=takes_message(StudySpec))
    async def put_study(request: Request, study: Id) -> OperatorStudy:
        who = await requests.verify(request, "put_study")
        return await run_sync(party.put_study, who, study, await requests.read_message(request, who, StudySpec))

    @route(app, "POST", "/v1/studies/{study}/open", NAMED)
    async def open_study(request: Request, study: Id) -> OperatorStudy:
        return await run_sync(party.open_study, await requests.verify(request, "open_study"), study)

    @route(app, "POST", "/v1/studies/{study}/close", NAMED)
    async def close_study(request: Request, study: Id) -> OperatorStudy:
        return await run_sync(party.close_study, await requests.verify(request, "close_study"), study)

    @route(app, "POST", "/v1/studies/{study}/epochs/{number}", (*NAMED, "epoch-over"))
    async def begin_epoch(request: Request, study: Id, number: Number) -> OperatorStudy:
        return await run_sync(party.begin_epoch, await requests.verify(request, "begin_epoch"), study, number)

    @route(app, "GET", "/v1/studies", SIGNED)
    async def list_studies(request: Request) -> list[OperatorStudy | CollectorStudy | InsurerStudy]:
        return await run_sync(party.list_studies, await requests.verify(request, "list_studies"))

    @route(app, "GET", "/v1/studies/{study}", NAMED)
    async def get_study(request: Request, study: Id) -> OperatorStudy | CollectorStudy | InsurerStudy:
        return await run_sync(party.get_study, await requests.verify(request, "get_study"), study)

    @route(app, "GET", "/v1/studies/{study}/answers", (*NAMED, "not-allowed-here"))
    async def count_answers(request: Request, study: Id) -> Answered:
        return await run_sync(party.count_answers, await requests.verify(request, "count_answers"), study)
