"""The service over HTTP: a route checks who asks, reads what is sent, runs one command, and answers."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, Any, NamedTuple, TypeVar

import anyio.to_thread
from fastapi import FastAPI, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse
from sqlalchemy import Connection, func, select
from sqlalchemy.exc import DBAPIError
from starlette.exceptions import HTTPException

from fairpremium import __version__
from fairpremium.parties.console import add_console
from fairpremium.parties.protocol import (
    BATCH_TYPE,
    ENDED,
    ID,
    PORTFOLIO_TYPE,
    PROBLEMS,
    Checkpoint,
    CollectorStudy,
    Fit,
    FitSpec,
    InsurerStudy,
    LogPage,
    Message,
    OperatorStudy,
    PartTaken,
    Portfolio,
    PortfolioSpec,
    Problem,
    PublicKey,
    Report,
    ReportsTaken,
    StudySpec,
    Verified,
    VerifyKey,
    request_url,
    verify_request,
)
from fairpremium.parties.service import (
    Party,
    RateLimiter,
    ReportQueue,
    ServiceContext,
    ServiceSettings,
    ThirdParty,
    _fits,
    _portfolios,
    _reports,
    _studies,
    all_keys,
    check_right,
    forget_old_nonces,
    log_failure,
    use_nonce,
)
from fairpremium.parties.store import Writer
from fairpremium.parties.store import log as _log
from fairpremium.parties.store.schema import fits

__all__ = ["create_app"]

T = TypeVar("T")
M = TypeVar("M", bound=Message)

_PROBLEM_TYPE = "application/problem+json"
_KEYS_FOR = 1.0  # seconds that the table of keys is remembered
_LOOK_EVERY = 0.25  # seconds between two looks at the fits that somebody waits for
_HOUSEKEEPING = 3600.0
_TOGETHER, _PIECES = 1 << 20, 256  # bytes of a file that are written at a time, and in how many pieces they may come
_LARGEST = 2**53  # number of an entry of the log

_KEY_TEXT = "[0-9a-f]{32}"
# What is asked for a thousand times a second does not take the long way to its route below, where it is documented.
_SINGLE = re.compile(f"/v1/studies/(?P<study>{ID.pattern})/reports/(?P<key>{_KEY_TEXT})")

Id = Annotated[str, Path(pattern=f"^{ID.pattern}$")]
Number = Annotated[int, Path(ge=0, le=999_999)]
KeyText = Annotated[str, Path(pattern=f"^{_KEY_TEXT}$")]

# What may answer every request, every signed one, one that names a thing, one that brings a body.
_ANY = ("not-found", "too-many")  # also under a name that is not this service's
_ASKED = (*_ANY, "unsigned", "digest-mismatch", "unavailable", "storage-full")
_NAMED = (*_ASKED, "bad-id")
_SENT = (*_NAMED, "malformed", "too-large", "length-required", "conflict")


class Asked(NamedTuple):
    """A request whose signature holds."""

    who: Party
    verified: Verified


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
    service = _Service(party, settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        service.writer.close()

    app = FastAPI(
        title="fairpremium third party",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url="/v1/openapi.json",
        redirect_slashes=False,
    )
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    app.state.service = service
    app.add_exception_handler(Problem, lambda _, problem: _answer(problem))
    app.add_exception_handler(HTTPException, _http_problem)  # type: ignore[arg-type]
    app.add_exception_handler(RequestValidationError, _validation_problem)  # type: ignore[arg-type]
    app.add_middleware(_Guard, service=service)
    _add_routes(app, service)
    add_console(app, party, settings)
    return app


class _Service:
    """What the routes share: the commands, the writer, the keys, the limits."""

    def __init__(self, party: ThirdParty, settings: ServiceSettings):
        self.party = party
        self.settings = settings
        self.context: ServiceContext = party.context
        self.writer = Writer(self.context.store)
        self.reports = ReportQueue(self.context, self.writer)
        self.limiter = RateLimiter(self.context.limits.requests_per_second)
        self.counts: dict[int, int] = {}
        self._keys: dict[str, tuple[Party, VerifyKey]] = {}
        self._keys_at = float("-inf")
        self._refreshing = asyncio.Lock()
        self._fits: dict[tuple[str, str], tuple[Any, ...]] = {}
        self._fits_at = float("-inf")
        self._looking = asyncio.Lock()
        self._waits: Counter[str] = Counter()
        self._cleaned_at = time.monotonic()

    # --- every request ---

    def check_caller(self, scope: Any) -> None:
        """Limit the rate of an address, and insist on our own host name."""
        self.limiter.take(f"address {scope['client'][0] if scope.get('client') else ''}")
        if self.settings.hosts:
            try:
                url = request_url(scope, behind_proxy=self.settings.behind_proxy)
            except Problem:
                raise Problem("not-found") from None
            self.settings.check_host(url.partition("://")[2].partition("/")[0])

    async def ask(self, request: Request, command: str) -> Asked:
        """Check the signature and the right to use a command; only PUT has a body."""
        await self._refresh_keys()
        verified = verify_request(
            request.method,
            request_url(request.scope, behind_proxy=self.settings.behind_proxy),
            request.headers.raw,
            lambda key_id: self._keys[key_id][1] if key_id in self._keys else None,
            self.context.now(),
            self.context.limits.signature_window,
        )
        who = self._keys[verified.key_id][0]
        self.limiter.take(f"party {who.name}")
        check_right(who, command)
        if request.method != "PUT":
            await _no_body(request, verified)
        return Asked(who, verified)

    async def _refresh_keys(self) -> None:
        if time.monotonic() - self._keys_at > _KEYS_FOR:
            async with self._refreshing:  # those who waited meanwhile find it done
                if time.monotonic() - self._keys_at > _KEYS_FOR:
                    self._keys = await _in_thread(lambda: self.context.store.read(all_keys))
                    self._keys_at = time.monotonic()

    async def spend(self, asked: Asked) -> None:
        """Remember the nonce of a request, by itself."""
        await self.write(asked, lambda _: None)

    async def write(self, asked: Asked, command: Callable[[Connection], T]) -> T:
        """Remember the nonce and run a command, in one transaction; a command that fails leaves the nonce used."""
        context, (key_id, nonce, created) = self.context, asked.verified[:3]

        def run(connection: Connection) -> T | Problem:
            use_nonce(connection, context, key_id, nonce, created)
            try:
                with connection.begin_nested():
                    return command(connection)
            except Problem as problem:
                return problem

        result = await asyncio.wrap_future(self.writer.submit(run))
        if isinstance(result, Problem):
            raise result
        if time.monotonic() - self._cleaned_at > _HOUSEKEEPING:
            self._cleaned_at = time.monotonic()
            self.writer.submit(lambda c: forget_old_nonces(c, context))
        return result

    async def put_report(self, request: Request, study: str, key: str) -> Response:
        """Take a report together with all others that wait for the next commit."""
        asked = await self.ask(request, "put_report")
        report = _reports.read_report(await self._body(request, asked))
        sent = _reports.Sent(asked.who, study, bytes.fromhex(key), report)
        problem = await asyncio.wrap_future(self.reports.put(asked.verified, sent))
        if problem is not None:
            raise problem
        return Response(status_code=200, media_type="application/json", content=b"{}")

    async def read(self, asked: Asked, command: Callable[[], T]) -> T:
        """Remember the nonce and run a command that reads."""
        await self.spend(asked)
        return await _in_thread(command)

    # --- bodies ---

    async def json(self, request: Request, asked: Asked, kind: type[M]) -> M:
        """Read a message."""
        return kind.parse(await self._body(request, asked))

    async def _body(self, request: Request, asked: Asked) -> bytes:
        """Read a short body and check its digest."""
        limit = self.context.limits.json_bytes
        _check_length(request, limit)
        body = bytearray()
        async with asyncio.timeout(self.settings.body_seconds):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limit:
                    raise Problem("too-large")
        if hashlib.sha256(body).digest() != asked.verified.body_sha256:
            raise Problem("digest-mismatch")
        return bytes(body)

    async def part(self, request: Request, asked: Asked, kind: str, take: Callable[..., T]) -> T:
        """Receive a file of a media type, check its digest, and hand it to a command of the third party."""
        limit = self.context.limits.part_bytes
        _check_length(request, limit)
        if request.headers.get("content-type", "").partition(";")[0] != kind:
            raise Problem("unsupported-media")
        with self.context.blobs.receive(limit) as incoming:
            async with asyncio.timeout(self.settings.body_seconds):
                async for pieces in _gathered(request.stream()):  # hashed and written while others are served
                    await _in_thread(partial(incoming.write, *pieces))
            if bytes.fromhex(incoming.sha256) != asked.verified.body_sha256:
                raise Problem("digest-mismatch")
            await self.spend(asked)
            return await _in_thread(lambda: take(incoming, self.writer.write))

    # --- waiting ---

    async def wait_for(self, who: Party, fit: str, seconds: float) -> None:
        """Return when a fit ended, moved on, or the time is over; at once if the party waits too often already."""
        if self._waits[who.name] >= self.context.limits.waits:
            return
        self._waits[who.name] += 1
        try:
            deadline = time.monotonic() + seconds
            first = (await self._look()).get((who.name, fit))
            while time.monotonic() < deadline:
                await asyncio.sleep(_LOOK_EVERY)
                now = (await self._look()).get((who.name, fit))
                if now is None or now[0] in ENDED or now != first:
                    return
        finally:
            self._waits[who.name] -= 1

    async def _look(self) -> dict[tuple[str, str], tuple[Any, ...]]:
        """Read the states of all fits, once for all that wait."""
        async with self._looking:
            if time.monotonic() - self._fits_at > _LOOK_EVERY:
                columns = (fits.c.party, fits.c.id, fits.c.state, fits.c.phase, func.round(fits.c.progress * 20))

                def read(connection: Connection) -> dict[tuple[str, str], tuple[Any, ...]]:
                    return {(row[0], row[1]): tuple(row[2:]) for row in connection.execute(select(*columns))}

                self._fits = await _in_thread(lambda: self.context.store.read(read))
                self._fits_at = time.monotonic()
            return self._fits


class _Guard:
    """Around every request: limits, the headers that all answers have, a count, and no error without an answer."""

    def __init__(self, app: Any, service: _Service):
        self.app = app
        self.service = service

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        counts, started = self.service.counts, False

        async def send_guarded(message: Any) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                counts[message["status"]] = counts.get(message["status"], 0) + 1
                names = {name for name, _ in message["headers"]}
                message["headers"] += [(name, value) for name, value in _HEADERS if name not in names]
            await send(message)

        try:
            self.service.check_caller(scope)
            if scope["method"] == "PUT" and (place := _SINGLE.fullmatch(scope["path"])):
                answer = await self.service.put_report(Request(scope, receive), place["study"], place["key"])
                await answer(scope, receive, send_guarded)
            else:
                await self.app(scope, receive, send_guarded)
        except Problem as problem:
            await _answer(problem)(scope, receive, send_guarded)
        except Exception as error:
            log_failure("a request")
            if started:
                raise
            code = "unavailable" if isinstance(error, (DBAPIError, TimeoutError)) else "internal"
            await _answer(Problem(code))(scope, receive, send_guarded)


_HEADERS = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))


class _WholeFile(FileResponse):
    """A file that is sent as a whole: a range is not signed, and half a bundle proves nothing."""

    media_type = "application/zip"

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = [(name, value) for name, value in scope["headers"] if name not in (b"range", b"if-range")]
        await super().__call__({**scope, "headers": headers}, receive, send)


def is_local(scope: Any) -> bool:
    """Did this machine itself send the request, and no proxy on it?"""
    forwarded = {b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip"}
    if not scope.get("client") or any(name in forwarded for name, _ in scope["headers"]):
        return False
    try:
        return ipaddress.ip_address(scope["client"][0]).is_loopback
    except ValueError:
        return False


def _add_routes(app: FastAPI, service: _Service) -> None:
    context, party = service.context, service.party

    def route(method: str, path: str, codes: tuple[str, ...], **options: Any) -> Callable[..., Any]:
        statuses = sorted({PROBLEMS[code].status for code in codes})
        responses: dict[int | str, Any] = dict.fromkeys(statuses, _PROBLEM_SCHEMA)
        return app.api_route(path, methods=[method], responses=responses, **options)

    @route("PUT", "/v1/studies/{study}", _SENT, openapi_extra=_body(StudySpec))
    async def put_study(request: Request, study: Id) -> OperatorStudy:
        asked = await service.ask(request, "put_study")
        spec = await service.json(request, asked, StudySpec)
        return await service.write(asked, lambda c: _studies.put_study(c, context, asked.who, study, spec))

    @route("POST", "/v1/studies/{study}/open", _NAMED)
    async def open_study(request: Request, study: Id) -> OperatorStudy:
        asked = await service.ask(request, "open_study")
        return await service.write(asked, lambda c: _studies.set_state(c, context, asked.who, study, "open"))

    @route("POST", "/v1/studies/{study}/close", _NAMED)
    async def close_study(request: Request, study: Id) -> OperatorStudy:
        asked = await service.ask(request, "close_study")
        return await service.write(asked, lambda c: _studies.set_state(c, context, asked.who, study, "closed"))

    @route("GET", "/v1/studies", _ASKED)
    async def list_studies(request: Request) -> list[OperatorStudy | CollectorStudy | InsurerStudy]:
        asked = await service.ask(request, "list_studies")
        return await service.read(asked, lambda: party.list_studies(asked.who))

    @route("GET", "/v1/studies/{study}", _NAMED)
    async def get_study(request: Request, study: Id) -> OperatorStudy | CollectorStudy | InsurerStudy:
        asked = await service.ask(request, "get_study")
        return await service.read(asked, lambda: party.get_study(asked.who, study))

    @route("PUT", "/v1/studies/{study}/reports/{key}", _SENT, openapi_extra=_body(Report))
    async def put_report(request: Request, study: Id, key: KeyText) -> Response:
        return await service.put_report(request, study, key)

    @route("PUT", "/v1/studies/{study}/report-parts/{n}", (*_SENT, "unsupported-media"),
           openapi_extra=_file(BATCH_TYPE))  # fmt: skip
    async def put_report_part(request: Request, study: Id, n: Number) -> ReportsTaken:
        asked = await service.ask(request, "put_report_part")
        return await service.part(
            request, asked, BATCH_TYPE,
            lambda incoming, write: party.take_report_part(asked.who, study, n, incoming, write),
        )  # fmt: skip

    @route("PUT", "/v1/portfolios/{portfolio}", _SENT, openapi_extra=_body(PortfolioSpec))
    async def put_portfolio(request: Request, portfolio: Id) -> Portfolio:
        asked = await service.ask(request, "put_portfolio")
        spec = await service.json(request, asked, PortfolioSpec)
        return await service.write(asked, lambda c: _portfolios.put_portfolio(c, context, asked.who, portfolio, spec))

    @route("GET", "/v1/portfolios/{portfolio}", _NAMED)
    async def get_portfolio(request: Request, portfolio: Id) -> Portfolio:
        asked = await service.ask(request, "get_portfolio")
        return await service.read(asked, lambda: party.get_portfolio(asked.who, portfolio))

    @route("PUT", "/v1/portfolios/{portfolio}/parts/{n}",
           (*_SENT, "unsupported-media", "portfolio-deleted"),
           openapi_extra=_file(PORTFOLIO_TYPE))  # fmt: skip
    async def put_part(request: Request, portfolio: Id, n: Number) -> PartTaken:
        asked = await service.ask(request, "put_part")
        return await service.part(
            request, asked, PORTFOLIO_TYPE,
            lambda incoming, write: party.take_part(asked.who, portfolio, n, incoming, write),
        )  # fmt: skip

    @route("POST", "/v1/portfolios/{portfolio}/seal", (*_NAMED, "conflict", "portfolio-deleted"))
    async def seal_portfolio(request: Request, portfolio: Id) -> Portfolio:
        asked = await service.ask(request, "seal_portfolio")
        return await service.read(asked, lambda: party.seal_portfolio(asked.who, portfolio))

    @route("DELETE", "/v1/portfolios/{portfolio}", (*_NAMED, "portfolio-busy"), status_code=204)
    async def delete_portfolio(request: Request, portfolio: Id) -> Response:
        asked = await service.ask(request, "delete_portfolio")
        await service.read(asked, lambda: party.delete_portfolio(asked.who, portfolio))
        return Response(status_code=204)

    @route("PUT", "/v1/fits/{fit}", (*_SENT, "portfolio-deleted"), openapi_extra=_body(FitSpec))
    async def put_fit(request: Request, fit: Id) -> Fit:
        asked = await service.ask(request, "put_fit")
        spec = await service.json(request, asked, FitSpec)
        return await service.write(asked, lambda c: _fits.put_fit(c, context, asked.who, fit, spec))

    @route("GET", "/v1/fits", _ASKED)
    async def list_fits(request: Request) -> list[Fit]:
        asked = await service.ask(request, "list_fits")
        return await service.read(asked, lambda: party.list_fits(asked.who))

    @route("GET", "/v1/fits/{fit}", _NAMED)
    async def get_fit(request: Request, fit: Id, wait: Annotated[float, Query(ge=0, le=60)] = 0) -> Fit:
        asked = await service.ask(request, "get_fit")
        seen = await service.read(asked, lambda: party.get_fit(asked.who, fit))
        if wait and seen.state not in ENDED:
            await service.wait_for(asked.who, fit, min(wait, context.limits.wait_seconds))
            seen = await _in_thread(lambda: party.get_fit(asked.who, fit))
        return seen

    @route("POST", "/v1/fits/{fit}/cancel", _NAMED)
    async def cancel_fit(request: Request, fit: Id) -> Fit:
        asked = await service.ask(request, "cancel_fit")
        return await service.write(asked, lambda c: _fits.cancel_fit(c, context, asked.who, fit))

    @route("GET", "/v1/fits/{fit}/bundle", (*_NAMED, "not-finished"), response_class=_WholeFile)
    async def get_bundle(request: Request, fit: Id) -> Response:
        asked = await service.ask(request, "get_bundle")
        path, digest = await service.write(asked, lambda c: _fits.bundle_of(c, context, asked.who, fit))
        return _WholeFile(path, media_type="application/zip", headers={"ETag": f'"{digest}"'})

    @route("GET", "/v1/log", (*_ASKED, "bad-query"))
    async def get_log(request: Request, after: Annotated[int, Query(ge=0, le=_LARGEST)] = 0) -> LogPage:
        asked = await service.ask(request, "get_log")
        return await service.read(asked, lambda: party.get_log(asked.who, after))

    # --- open to all ---

    @route("GET", "/v1/keys", _ANY)
    async def get_keys() -> list[PublicKey]:
        return [PublicKey(key_id=context.key.key_id, public_key=context.key.public_key)]

    @route("GET", "/v1/checkpoint", (*_ANY, "unavailable"))
    async def get_checkpoint() -> Checkpoint:
        return await _in_thread(lambda: context.store.read(lambda c: _log.sign_checkpoint(c, context.key)))

    @route("GET", "/healthz", _ANY)
    async def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @route("GET", "/readyz", (*_ANY, "unavailable"))
    async def readyz() -> dict[str, str]:
        try:
            await _in_thread(lambda: context.store.read(lambda c: c.execute(select(1)).scalar()))
        except Exception:
            raise Problem("unavailable") from None
        return {"status": "ready"}

    @route("GET", "/metrics", (*_ANY, "unavailable"), response_class=PlainTextResponse)
    async def metrics(request: Request) -> Response:
        if not is_local(request.scope):  # how many requests there were tells when somebody reported
            raise Problem("not-found")
        states = await _in_thread(lambda: context.store.read(_count_states))
        lines = ["# TYPE fairpremium_requests_total counter"]
        lines += [f'fairpremium_requests_total{{status="{s}"}} {n}' for s, n in sorted(service.counts.items())]
        lines.append("# TYPE fairpremium_fits gauge")
        lines += [f'fairpremium_fits{{state="{state}"}} {n}' for state, n in sorted(states.items())]
        return PlainTextResponse("\n".join(lines) + "\n")


def _count_states(connection: Connection) -> dict[str, int]:
    rows = connection.execute(select(fits.c.state, func.count()).group_by(fits.c.state))
    return {row[0]: row[1] for row in rows}


async def _gathered(chunks: AsyncIterator[bytes]) -> AsyncIterator[list[bytes]]:
    """Yield chunks some at a time: a thread for each of them would take longer than its work."""
    pieces, size = [], 0
    async for chunk in chunks:
        pieces.append(chunk)
        size += len(chunk)
        if size >= _TOGETHER or len(pieces) >= _PIECES:
            yield pieces
            pieces, size = [], 0
    yield pieces


async def _in_thread(work: Callable[[], T]) -> T:
    return await anyio.to_thread.run_sync(work)


def _check_length(request: Request, limit: int) -> None:
    length = request.headers.get("content-length")
    if length is None or not length.isdigit():
        raise Problem("length-required")
    if int(length) > limit:
        raise Problem("too-large")


async def _no_body(request: Request, verified: Verified) -> None:
    """Insist on an empty body, as the signature says."""
    async for chunk in request.stream():
        if chunk:
            raise Problem("digest-mismatch")
    if verified.body_sha256 != hashlib.sha256(b"").digest():
        raise Problem("digest-mismatch")


# --- problems ---


def _answer(problem: Problem) -> JSONResponse:
    headers = {"Retry-After": "1"} if problem.status in (429, 503) else None
    return JSONResponse(problem.to_dict(), problem.status, media_type=_PROBLEM_TYPE, headers=headers)


async def _http_problem(_: Request, error: HTTPException) -> JSONResponse:
    code = {404: "not-found", 405: "method-not-allowed"}.get(error.status_code, "malformed")
    answer = _answer(Problem(code))
    if error.headers:
        answer.headers.update(error.headers)
    return answer


async def _validation_problem(_: Request, error: RequestValidationError) -> JSONResponse:
    where = {(e["loc"][0], e["loc"][1]) for e in error.errors() if len(e["loc"]) > 1}
    if ("path", "key") in where:
        return _answer(Problem("bad-key"))
    return _answer(Problem("bad-query" if any(place == "query" for place, _ in where) else "bad-id"))


_PROBLEM_SCHEMA = {
    "description": "A problem document (RFC 9457).",
    "content": {
        _PROBLEM_TYPE: {
            "schema": {
                "type": "object",
                "required": ["type", "title", "status"],
                "properties": {
                    "type": {"type": "string", "enum": [f"urn:fairpremium:problem:{code}" for code in PROBLEMS]},
                    "title": {"type": "string"},
                    "status": {"type": "integer"},
                },
                "additionalProperties": False,
            }
        }
    },
}


def _file(kind: str) -> dict[str, Any]:
    content = {kind: {"schema": {"type": "string", "format": "binary"}}}
    return {"requestBody": {"required": True, "content": content}}


def _body(kind: type[Message]) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{_sent(kind.__name__)}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _sent(name: str) -> str:
    """Name the form in which a message is sent; what comes back under its plain name has all fields."""
    return f"Sent{name}"


def _openapi(app: FastAPI) -> dict[str, Any]:
    """Describe the service, with the forms of all bodies."""
    if app.openapi_schema is None:
        document = FastAPI.openapi(app)
        for kind in (StudySpec, Report, PortfolioSpec, FitSpec):
            schema = kind.model_json_schema(ref_template=f"#/components/schemas/{_sent('{model}')}")
            nested = schema.pop("$defs", {})
            forms = {_sent(name): form for name, form in {**nested, kind.__name__: schema}.items()}
            document["components"]["schemas"].update(forms)
    return app.openapi_schema  # type: ignore[return-value]
