"""What is kept of a request once it was answered: a line of the operational log, counts, security events.

Of reports, their withdrawal and the answers of people nothing is kept, since that would tell when somebody reported.
Nor is anything of what collectors ask, for they look at the study before they report. A bad signature on such a request
has its line, without the route.
"""

import logging
import math
import re
from typing import Any, NamedTuple

from anyio.to_thread import run_sync
from fastapi import FastAPI
from starlette.routing import Route

from fairpremium.parties.service import SecurityEvents, log_event, log_failure

from ._metrics import BUCKETS, Metrics

_PRIVATE = re.compile(r"/v1/studies/[^/]*/(reports|report-parts)(/.*)?|/collect(/.*)?", re.DOTALL)
_PROBES = frozenset({"/healthz", "/readyz", "/metrics"})
_LOGIN = "/console/login"


class RefusedKey(NamedTuple):
    """The key that a refused request named: the event of the operational log, its id, its party where it has one."""

    event: str
    key_id: str
    party: str | None = None


class RequestRecord:
    """Keeps what may be kept of requests."""

    def __init__(self, app: FastAPI, metrics: Metrics, security: SecurityEvents):
        self._app = app
        self._metrics = metrics
        self._security = security
        self._paths: dict[Any, str] = {}  # templates of routes, by what answers

    async def add(self, scope: Any, status: int, seconds: float) -> None:
        """Keep what may be kept of a request that was answered."""
        state = scope["state"]
        is_private = _PRIVATE.fullmatch(scope["path"]) is not None or state.get("role") == "collector"
        route = None if is_private else self._route(scope)
        party, problem = state.get("party"), state.get("problem")
        if not is_private:
            self._metrics.count(scope["method"], route, status, seconds)
            log_event(
                "request",
                level=logging.DEBUG if route in _PROBES else None,
                method=scope["method"] if route else None,
                route=route,
                status=status,
                duration=_coarse(seconds),
                party=party,
                problem=problem,
            )
        refused: RefusedKey | None = state.get("refused_key")
        if refused is not None:
            log_event(refused.event, key_id=refused.key_id, party=refused.party, route=route)
        elif problem == "replayed":
            log_event("request.replayed", key_id=state.get("key_id"), party=party, route=route)
        elif problem == "storage-full":
            log_event("storage.full", route=route)
        if route == _LOGIN and scope["method"] == "POST":
            _log_login(status, state)
        if refused is not None and refused.party is not None:
            is_old = refused.event == "key.refused"
            add = self._security.add_refused_key if is_old else self._security.add_bad_signature
            try:
                await run_sync(add, refused.key_id, refused.party)
            except Exception:
                log_failure("a security event")

    def _route(self, scope: Any) -> str | None:
        """Return the template of the route that a request took; None if it took none."""
        if not self._paths:
            self._paths = {route.endpoint: route.path for route in self._app.routes if isinstance(route, Route)}
        return self._paths.get(scope.get("endpoint"))


def _log_login(status: int, state: dict[str, Any]) -> None:
    if status == 303 and state.get("sets_cookie"):
        log_event("login", account=state.get("account"))
    elif status in (401, 429):
        log_event("login.failed" if status == 401 else "login.limited")


def _coarse(seconds: float) -> float:
    """Return a time in the steps of the histogram, the next one above."""
    return next((step for step in BUCKETS if seconds <= step), math.ceil(seconds / 60) * 60.0)
