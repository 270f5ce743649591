"""Routes of reports, one by one and in batches, and of their withdrawal."""

import asyncio

from anyio.to_thread import run_sync
from fastapi import FastAPI, Request, Response

from fairpremium.parties.protocol import BATCH_TYPE, OperatorStudy, Report, ReportsTaken
from fairpremium.parties.service import read_report

from ._openapi import NAMED, SENT, AttributeName, Id, KeyText, Number, route, takes_file, takes_message
from ._requests import Requests


async def answer_report(
    requests: Requests, request: Request, study: str, key: str, attribute: str | None = None
) -> Response:
    """Take a report together with all others that wait for the next commit."""
    who = await requests.verify(request, "put_report")
    report = read_report(await requests.read_body(request, who))
    problem = await asyncio.wrap_future(requests.party.queue_report(who, study, bytes.fromhex(key), report, attribute))
    if problem is not None:
        raise problem
    return Response(status_code=200, media_type="application/json", content=b"{}")


def add_reports(app: FastAPI, requests: Requests) -> None:
    """Add the routes that take reports, and withdraw them."""
    party = requests.party

    @route(app, "PUT", "/v1/studies/{study}/reports/{key}", (*SENT, "bad-query"), openapi_extra=takes_message(Report))
    async def put_report(request: Request, study: Id, key: KeyText, attribute: AttributeName = None) -> Response:
        return await answer_report(requests, request, study, key, attribute)

    @route(app, "DELETE", "/v1/studies/{study}/reports/{key}", NAMED, status_code=204)
    async def withdraw_report(request: Request, study: Id, key: KeyText) -> Response:
        who = await requests.verify(request, "withdraw_report")
        await run_sync(party.withdraw_report, who, study, bytes.fromhex(key))
        return Response(status_code=204)

    @route(app, "POST", "/v1/studies/{study}/withdrawals", NAMED)
    async def withdraw_now(request: Request, study: Id) -> OperatorStudy:
        return await run_sync(party.withdraw_now, await requests.verify(request, "withdraw_now"), study)

    extra = takes_file(BATCH_TYPE) | {"operationId": "put_report_part_v1_studies__study__report_parts__n__put"}

    codes = (*SENT, "bad-query", "unsupported-media")

    @route(app, "PUT", "/v1/studies/{study}/report-parts/{n}", codes, openapi_extra=extra)
    async def put_report_batch(request: Request, study: Id, n: Number, attribute: AttributeName = None) -> ReportsTaken:
        who = await requests.verify(request, "put_report_batch")
        async with requests.receive_file(request, who, BATCH_TYPE) as incoming:
            return await run_sync(party.put_report_batch, who, study, n, incoming, attribute)
