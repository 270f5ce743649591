"""Around every request: rate limits, the headers that all answers have, a count, and an answer to every error."""

import re
from typing import Any

from fastapi import Request
from sqlalchemy.exc import DBAPIError

from fairpremium.parties.protocol import ID, Problem
from fairpremium.parties.service import log_failure

from ._answers import answer_problem
from ._openapi import KEY_TEXT
from ._reports import answer_report
from ._requests import Requests

_HEADERS = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
_ENCRYPTED = (b"strict-transport-security", b"max-age=63072000; includeSubDomains")
# Single reports come a thousand times a second: they bypass the router
# unless they name one of several attributes. Their route is documented in `_reports`.
_SINGLE = re.compile(f"/v1/studies/(?P<study>{ID.pattern})/reports/(?P<key>{KEY_TEXT})")


class Guard:
    """Middleware around all routes."""

    def __init__(self, app: Any, requests: Requests):
        self.app = app
        self.requests = requests
        is_encrypted = requests.settings.scheme == "https"
        self._headers = (*_HEADERS, _ENCRYPTED) if is_encrypted else _HEADERS

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = False

        async def send_guarded(message: Any) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                self.requests.answers[message["status"]] += 1
                names = {name for name, _ in message["headers"]}
                message["headers"] += [(name, value) for name, value in self._headers if name not in names]
            await send(message)

        answer = self.app
        try:
            self.requests.check_caller(scope)
            is_plain = scope["method"] == "PUT" and not scope["query_string"]
            if is_plain and (place := _SINGLE.fullmatch(scope["path"])):
                answer = await answer_report(self.requests, Request(scope, receive), place["study"], place["key"])
            await answer(scope, receive, send_guarded)
        except Problem as problem:
            await answer_problem(problem)(scope, receive, send_guarded)
        except Exception as error:
            log_failure("a request")
            if started:
                raise
            code = "unavailable" if isinstance(error, (DBAPIError, TimeoutError)) else "internal"
            await answer_problem(Problem(code))(scope, receive, send_guarded)
