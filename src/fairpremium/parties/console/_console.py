"""The console: pages for the operator and the auditor, from the same app, without scripts from elsewhere.

A small script asks for the same page again and puts in what has changed; without scripts the page reloads itself while
a fit runs.
"""

import asyncio
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qs, urlencode

from anyio.to_thread import run_sync
from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from fairpremium.parties.protocol import Problem
from fairpremium.parties.service import LogMonitor, ServiceSettings, ThirdParty, log_failure

from ._access import SESSION_SECONDS, Access
from ._pages import CLOSED, FAILED, FOREIGN, NOT_FOUND, Page, Pages
from ._templates import load_static, load_templates

_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # with none at all a form would not tell where it comes from
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_KINDS = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
_FORM_BYTES = 4096

Handler = Callable[[Request], Awaitable[Response]]


def add_console(app: FastAPI, party: ThirdParty, settings: ServiceSettings) -> None:
    """Add the pages of the console to an app."""
    app.state.console = console = Console(party, settings)
    pages = console.pages

    def get(path: str, handler: Callable[[Request], Page | Response]) -> None:
        app.add_route(path, console.restricted(handler), methods=["GET"], include_in_schema=False)

    def take(path: str, handler: Handler, methods: list[str]) -> None:
        app.add_route(path, console.answering_failures(handler), methods=methods, include_in_schema=False)

    get("/", pages.studies)
    get("/console", lambda _: RedirectResponse("/", 303))
    get("/console/", lambda _: RedirectResponse("/", 303))
    get("/console/studies/{study}", pages.study)
    get("/console/studies/{study}/fits/{party}/{fit}", pages.fit)
    get("/console/log", pages.log)
    take("/console/log/verify", console.verify_log, ["POST"])
    take("/console/login", console.login, ["GET", "POST"])
    take("/console/logout", console.logout, ["POST"])
    app.add_route("/console/static/{name}", console.static, methods=["GET"], include_in_schema=False)
    get("/console/{rest:path}", lambda _: NOT_FOUND)


class Console:
    """Answers requests for pages: who may look, what a form changes, and what all pages have."""

    def __init__(self, party: ThirdParty, settings: ServiceSettings):
        self.context = party.context
        self.settings = settings
        self.access = Access(self.context, settings)
        self.log_monitor = LogMonitor(self.context)
        self.pages = Pages(self.context, settings, self.log_monitor)
        self._static = load_static()
        self._templates = load_templates({name: digest for name, (_, digest) in self._static.items()})

    # --- forms and files ---

    async def verify_log(self, request: Request) -> Response:
        """Begin a check of the log."""
        refused = await self._refuse(request) or self._refuse_foreign(request)
        if refused is not None:
            return refused
        self.log_monitor.start()
        await run_sync(self.log_monitor.wait, 2.0)  # most logs are checked by then
        return self._finish(RedirectResponse("/console/log", 303))

    async def login(self, request: Request) -> Response:
        """Show the form for the password, or take it."""
        if not self.access.has_password:
            return self._finish(RedirectResponse("/", 303))
        to = _own_path(request.query_params.get("to", "/"))

        def form(error: str = "", status: int = 200) -> Response:
            return self._render(Page("login.html", {"to": to, "error": error}, status), known=False)

        if request.method != "POST":
            return form()
        refused = self._refuse_foreign(request)
        if refused is not None:
            return refused
        try:
            self.access.take_try(_client(request))
        except Problem:
            answer = form("Too many tries. Wait ten seconds and try again.", 429)
            answer.headers["Retry-After"] = "10"
            return answer
        password = await _read_form(request, "password", self.settings.body_seconds)
        if not await run_sync(self.access.knows, password):
            return form("That is not the password.", 401)
        return self._send_to(to, self.access.new_session(), int(SESSION_SECONDS))

    async def logout(self, request: Request) -> Response:
        """End the session."""
        refused = self._refuse_foreign(request)
        if refused is not None:
            return refused
        if self.access.has_password:
            await run_sync(self.access.end_session, request.cookies.get(self.access.cookie, ""))
        return self._send_to("/console/login" if self.access.has_password else "/", "", 0)

    def _send_to(self, to: str, session: str, seconds: int) -> Response:
        """Send a browser to a page, with the cookie of a session."""
        answer = RedirectResponse(to, 303)
        access = self.access
        answer.set_cookie(
            access.cookie, session, seconds, path="/", httponly=True, samesite="strict", secure=access.is_encrypted
        )
        return self._finish(answer)

    async def static(self, request: Request) -> Response:
        """Send the stylesheet, the script or the icon; they are the same for everybody."""
        name = request.path_params["name"]
        if name not in self._static:
            return self._render(NOT_FOUND, known=False)
        answer = Response(self._static[name][0], media_type=_KINDS[name.rpartition(".")[2]])
        answer.headers["Cache-Control"] = "public, max-age=31536000, immutable"  # its address has its digest
        return self._finish(answer)

    # --- what all pages have ---

    def restricted(self, handler: Callable[[Request], Page | Response]) -> Handler:
        """Let a handler answer those who may look."""

        async def answer(request: Request) -> Response:
            refused = await self._refuse(request)
            if refused is not None:
                return refused
            page = await run_sync(handler, request)
            return self._render(page) if isinstance(page, Page) else self._finish(page)

        return self.answering_failures(answer)

    def answering_failures(self, handler: Handler) -> Handler:
        """Turn what fails in a handler into a page."""

        async def answer(request: Request) -> Response:
            try:
                return await handler(request)
            except Exception:
                log_failure("a page")
                return self._render(FAILED, known=False)

        return answer

    async def _refuse(self, request: Request) -> Response | None:
        """Return the answer to somebody who may not look, or None."""
        if self.access.has_password:
            if await run_sync(self.access.is_session, request.cookies.get(self.access.cookie, "")):
                return None
            to = "" if request.url.path == "/" else "?" + urlencode({"to": _own_path(request.url.path)})
            return self._finish(RedirectResponse(f"/console/login{to}", 303))
        if self.access.is_local(_client(request), request.headers):
            return None
        return self._render(CLOSED, known=False)

    def _refuse_foreign(self, request: Request) -> Response | None:
        """Return the answer to a form that was not sent from our own pages, or None."""
        return None if self.access.is_own_form(request.headers) else self._render(FOREIGN, known=False)

    def _render(self, page: Page, *, known: bool = True) -> Response:
        """Fill a template; to those who are not known it tells nothing of the service."""
        common = {
            "is_live": False,
            "log_state": self.log_monitor.state if known else None,
            "has_password": self.access.has_password,
            "is_known": known,
            "key_id": self.context.keys.last_seen.key_id,
        }
        text = self._templates.get_template(page.template).render(common | page.values)
        return self._finish(HTMLResponse(text, page.status))

    def _finish(self, answer: Response) -> Response:
        answer.headers.update(_HEADERS)
        answer.headers.setdefault("Cache-Control", "no-store")
        return answer


def _client(request: Request) -> str:
    return request.client.host if request.client else ""


def _own_path(to: str) -> str:
    """Return a page of the console to go to after the login; any other address becomes the first page."""
    is_ours = to.startswith("/console/") and all(c.isalnum() or c in "/._-" for c in to) and "//" not in to
    return to if is_ours and to.isascii() else "/"


async def _read_form(request: Request, name: str, seconds: float) -> str:
    """Return a field of a form; one that is too large has none."""
    body = bytearray()
    async with asyncio.timeout(seconds):
        async for chunk in request.stream():
            body += chunk
            if len(body) > _FORM_BYTES:
                return ""
    try:
        return parse_qs(bytes(body).decode(), max_num_fields=10).get(name, [""])[0]
    except ValueError:
        return ""
