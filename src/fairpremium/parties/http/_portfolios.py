"""Routes of portfolios."""

from anyio.to_thread import run_sync
from fastapi import FastAPI, Request, Response

from fairpremium.parties.protocol import PORTFOLIO_TYPE, PartTaken, Portfolio, PortfolioSpec

from ._openapi import NAMED, SENT, Id, Number, route, takes_file, takes_message
from ._requests import Requests


def add_portfolios(app: FastAPI, requests: Requests) -> None:
    """Add the routes that declare, fill, seal, show and erase portfolios."""
    party = requests.party

    @route(app, "PUT", "/v1/portfolios/{portfolio}", SENT, openapi_extra=takes_message(PortfolioSpec))
    async def put_portfolio(request: Request, portfolio: Id) -> Portfolio:
        who = await requests.verify(request, "put_portfolio")
        spec = await requests.read_message(request, who, PortfolioSpec)
        return await run_sync(party.put_portfolio, who, portfolio, spec)

    @route(app, "GET", "/v1/portfolios/{portfolio}", NAMED)
    async def get_portfolio(request: Request, portfolio: Id) -> Portfolio:
        return await run_sync(party.get_portfolio, await requests.verify(request, "get_portfolio"), portfolio)

    codes = (*SENT, "unsupported-media", "portfolio-deleted")

    @route(app, "PUT", "/v1/portfolios/{portfolio}/parts/{n}", codes, openapi_extra=takes_file(PORTFOLIO_TYPE))
    async def put_part(request: Request, portfolio: Id, n: Number) -> PartTaken:
        who = await requests.verify(request, "put_part")
        async with requests.receive_file(request, who, PORTFOLIO_TYPE) as incoming:
            return await run_sync(party.put_part, who, portfolio, n, incoming)

    @route(app, "POST", "/v1/portfolios/{portfolio}/seal", (*NAMED, "conflict", "portfolio-deleted"))
    async def seal_portfolio(request: Request, portfolio: Id) -> Portfolio:
        return await run_sync(party.seal_portfolio, await requests.verify(request, "seal_portfolio"), portfolio)

    @route(app, "DELETE", "/v1/portfolios/{portfolio}", (*NAMED, "portfolio-busy"), status_code=204)
    async def delete_portfolio(request: Request, portfolio: Id) -> Response:
        await run_sync(party.delete_portfolio, await requests.verify(request, "delete_portfolio"), portfolio)
        return Response(status_code=204)
