"""Around every request: an id, limits, the headers that all answers have, an answer to every error, a record."""

import re
import secrets
import time
from typing import Any

from fastapi import Request
from sqlalchemy.exc import DBAPIError

from fairpremium.parties.protocol import ID, Problem
from fairpremium.parties.service import log_failure, request_id

from ._answers import answer_problem
from ._openapi import KEY_TEXT
from ._reports import answer_report
from ._request_record import RequestRecord
from ._requests import Requests

_HEADERS = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
_ENCRYPTED = (b"strict-transport-security", b"max-age=63072000; includeSubDomains")
# Single reports come a thousand times a second: they bypass the router
# unless they name one of several attributes. Their route is documented in `_reports`.
_SINGLE = re.compile(f"/v1/studies/(?P<study>{ID.pattern})/reports/(?P<key>{KEY_TEXT})")


class Guard:
    """Middleware around all routes."""

    def __init__(self, app: Any, requests: Requests, record: RequestRecord):
        self.app = app
        self.requests = requests
        self._record = record
        is_encrypted = requests.settings.scheme == "https"
        self._headers = (*_HEADERS, _ENCRYPTED) if is_encrypted else _HEADERS

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        name, began, status = secrets.token_hex(8), time.monotonic(), 0

        async def send_guarded(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                names = {name for name, _ in message["headers"]}
                state["sets_cookie"] = b"set-cookie" in names
                message["headers"] += [(name, value) for name, value in self._headers if name not in names]
                message["headers"].append((b"x-request-id", name.encode()))
            await send(message)

        token = request_id.set(name)
        answer = self.app
        try:
            self.requests.check_caller(scope)
            is_plain = scope["method"] == "PUT" and not scope["query_string"]
            if is_plain and (place := _SINGLE.fullmatch(scope["path"])):
                answer = await answer_report(self.requests, Request(scope, receive), place["study"], place["key"])
            await answer(scope, receive, send_guarded)
        except Problem as problem:
            await answer_problem(problem, scope)(scope, receive, send_guarded)
        except Exception as error:
            log_failure("a request")
            if status:
                raise
            code = "unavailable" if isinstance(error, (DBAPIError, TimeoutError)) else "internal"
            await answer_problem(Problem(code), scope)(scope, receive, send_guarded)
        finally:
            await self._record.add(scope, status, time.monotonic() - began)
            request_id.reset(token)
