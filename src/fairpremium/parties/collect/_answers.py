"""The page over HTTP, and the two requests that it sends: is my invitation open, and this is my answer.

Nobody signs here: the token in the body is all that a person has. Whatever is wrong with a token, the answer has the
same bytes and comes at the same beat of a clock. Nothing of a request is logged.
"""

import asyncio
import hashlib
import json
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

from anyio.to_thread import run_sync
from fastapi import FastAPI, Request, Response
from pydantic import Field

from fairpremium.parties.protocol import TOKEN_BYTES, Message, Problem, descriptor_of
from fairpremium.parties.service import OpenInvitation, RateLimiter, ServiceSettings, ThirdParty, network_of

from ._page import INDEX, PAGE_HEADERS, load_page

M = TypeVar("M", bound=Message)

_BODY_BYTES = 4096
_BODY_SECONDS = 20.0
_BEAT = 0.05  # seconds; an answer leaves at a multiple of it after its request came
_BURST = 5  # seconds' worth of requests that an address may send at once
_ATTEMPT = 22  # characters: 128 random bits in base64
_CLOSED, _REFUSED, _ACCEPTED = b'{"open":false}', b'{"accepted":false}', b'{"accepted":true}'

Token = Annotated[str, Field(max_length=TOKEN_BYTES)]


class OpenRequest(Message):
    """Is the invitation with this token still open?"""

    token: Token


class AnswerRequest(Message):
    """A person's answer: a report that the person's device has drawn, or None for no report.

    `attempt` is a random text that the device makes together with the report and sends with every repetition. Without
    it, somebody else who has the token could repeat the request with each possible report and see which one is known.
    `channel` is the hash of the channel that drew the report; one of another channel than the study's is refused.
    """

    token: Token
    report: Annotated[str, Field(max_length=1000)] | bool | int | None
    attempt: Annotated[str, Field(min_length=_ATTEMPT, max_length=64)]
    channel: Annotated[str, Field(max_length=64)] | None = None


def add_collect(app: FastAPI, party: ThirdParty, settings: ServiceSettings) -> None:
    """Add the page and its two requests to an app."""
    answers = Answers(party, settings)
    for path, take in (("/collect/v1/open", answers.open), ("/collect/v1/report", answers.report)):
        app.add_route(path, answers.shared(take), methods=["POST", "OPTIONS"], include_in_schema=False)
    page = load_page()

    async def send_file(request: Request) -> Response:
        file = page.get(request.path_params.get("name", "") or INDEX)
        if file is None:
            raise Problem("not-found")
        headers = {**PAGE_HEADERS, "ETag": f'"{file.sha256}"'}
        if headers["ETag"] in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(file.content, headers=headers, media_type=file.kind)

    async def send_to_page(_: Request) -> Response:
        return Response(status_code=308, headers={"Location": "collect/"})  # browsers take the fragment along

    app.add_route("/collect", send_to_page, methods=["GET"], include_in_schema=False)
    app.add_route("/collect/{name:path}", send_file, methods=["GET"], include_in_schema=False)


class Answers:
    """Answers the requests of the page."""

    def __init__(self, party: ThirdParty, settings: ServiceSettings):
        self._party = party
        self._origins = frozenset(settings.collect_origins)
        rate = party.context.limits.answers_per_second
        self._limiter = RateLimiter(rate, burst=_BURST * rate)

    def shared(self, handler: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """Add what both requests have: the limit of an address, and pages of other origins that the operator named."""

        async def answer(request: Request) -> Response:
            self._limiter.take(network_of(request.client.host) if request.client else "")
            sent = Response(status_code=204) if request.method == "OPTIONS" else await handler(request)
            sent.headers["Vary"] = "Origin"
            origin = request.headers.get("origin", "")
            if origin in self._origins:
                sent.headers["Access-Control-Allow-Origin"] = origin
                if request.method == "OPTIONS":
                    sent.headers["Access-Control-Allow-Methods"] = "POST"
                    sent.headers["Access-Control-Allow-Headers"] = "content-type"
                    sent.headers["Access-Control-Max-Age"] = "600"
            return sent

        return answer

    async def open(self, request: Request) -> Response:
        """Say whether an invitation is open and, if so, what is asked."""
        message, _ = await _read(request, OpenRequest)
        async with _on_beat():
            found = await run_sync(self._party.find_invitation, message.token)
        return _json(_CLOSED if found is None else json.dumps(_asked(found)).encode())

    async def report(self, request: Request) -> Response:
        """Take an answer."""
        message, sha256 = await _read(request, AnswerRequest)
        async with _on_beat():
            taken = await run_sync(self._party.take_answer, message.token, message.report, sha256, message.channel)
        return _json(_ACCEPTED if taken else _REFUSED)


def _asked(found: OpenInvitation) -> dict[str, Any]:
    """Return what a page needs to ask, to draw and to explain."""
    question, spec = found.question, found.spec
    texts = {language: text.model_dump(mode="json") for language, text in question.texts.items()}
    expires = datetime.fromtimestamp(found.expires, UTC)
    closes = expires if spec.closes is None else min(expires, spec.closes)
    return {
        "open": True,
        "study": found.study,
        "question": {"language": question.language, "texts": texts},
        "channel": descriptor_of(spec.attribute),
        "purpose": texts[question.language]["purpose"],
        "collector": question.collector,
        "closes": closes.astimezone(UTC).isoformat(timespec="seconds"),
    }


async def _read(request: Request, kind: type[M]) -> tuple[M, str]:
    """Read a short body, and return its SHA-256 too."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise Problem("unsupported-media")
    body = bytearray()
    async with asyncio.timeout(_BODY_SECONDS):
        async for chunk in request.stream():
            body += chunk
            if len(body) > _BODY_BYTES:
                raise Problem("too-large")
    return kind.parse(bytes(body)), hashlib.sha256(body).hexdigest()


@asynccontextmanager
async def _on_beat() -> AsyncIterator[None]:
    """Leave at the next beat after what is done inside: how long it took tells nothing finer than that."""
    start = time.monotonic()
    try:
        yield
    finally:
        beats = max(math.ceil((time.monotonic() - start) / _BEAT), 1)
        await asyncio.sleep(start + beats * _BEAT - time.monotonic())


def _json(body: bytes) -> Response:
    return Response(body, media_type="application/json")
