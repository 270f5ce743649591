"""The console: pages for the operator and the auditor, from the same app, without scripts from elsewhere.

A small script asks for the same page again and puts in what has changed; without scripts the page reloads itself while
a fit runs.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from urllib.parse import parse_qs, urlencode

from anyio.to_thread import run_sync
from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from fairpremium.parties.protocol import Problem
from fairpremium.parties.service import LOGIN_SECONDS, LogMonitor, ServiceSettings, ThirdParty, log_failure

from ._access import Access
from ._devices import DEVICE_SECONDS
from ._login_limits import RETRY_SECONDS
from ._pages import CLOSED, FAILED, FOREIGN, NOT_FOUND, Page, Pages
from ._rights import Viewer
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
    """Add the pages of the console to an app; `RIGHTS` says for whom they are."""
    app.state.console = console = Console(party, settings)
    pages = console.pages

    def add(path: str, handler: Handler, *methods: str) -> None:
        app.add_route(path, console.answering_failures(handler), methods=list(methods), include_in_schema=False)

    def get(path: str, show: Callable[[Request], Page | Response]) -> None:
        add(path, console.restricted(path, show), "GET")

    def take(path: str, act: Handler) -> None:
        add(path, console.own_form(path, act), "POST")

    get("/", pages.studies)
    get("/console", lambda _: RedirectResponse("/", 303))
    get("/console/", lambda _: RedirectResponse("/", 303))
    get("/console/studies/{study}", pages.study)
    get("/console/studies/{study}/fits/{party}/{fit}", pages.fit)
    get("/console/budgets", pages.budgets)
    get("/console/keys", pages.keys)
    get("/console/operation", pages.operation)
    get("/console/log", pages.log)
    take("/console/log/verify", console.verify_log)
    get("/console/logins", console.show_logins)
    take("/console/logins/end", console.end_login)
    add("/console/login", console.login, "GET", "POST")
    add("/console/logout", console.logout, "POST")
    add("/console/static/{name}", console.static, "GET")
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

    def stop(self) -> None:
        """Write into the log what was not written yet."""
        try:
            self.access.failures.write()
        except Exception:
            log_failure("writing down failed logins")

    # --- forms and files ---

    async def verify_log(self, request: Request) -> Response:
        """Begin a check of the log."""
        self.log_monitor.start()
        await run_sync(self.log_monitor.wait, 2.0)  # most logs are checked by then
        return RedirectResponse("/console/log", 303)

    def show_logins(self, request: Request) -> Page:
        """Show the logins that have not ended: all to the operator, the own ones to others."""
        viewer = request.state.viewer
        found = self.access.logins.list(viewer.seen_account)
        accounts = self.access.accounts.list() if viewer.role == "operator" else []
        return Page("logins.html", {"logins": found, "accounts": accounts, "now": self.context.now()})

    async def end_login(self, request: Request) -> Response:
        """End a login, which may be the own one."""
        viewer = request.state.viewer
        login = (await self._read_form(request)).get("login", "")
        end = partial(self.access.logins.end, login, account=viewer.seen_account, by=viewer.account)
        if not await run_sync(end):
            return self._render(NOT_FOUND, viewer)
        return RedirectResponse("/console/logins", 303)

    async def login(self, request: Request) -> Response:
        """Show the form for name and password, or take them."""
        if not await run_sync(self.access.has_accounts):
            return self._finish(RedirectResponse("/", 303))
        to = _own_path(request.query_params.get("to", "/"))
        if request.method != "POST":
            return self._show_login(to)
        if not self.access.is_own_form(request.headers):
            return self._render(FOREIGN)
        fields = await self._read_form(request)
        name = fields.get("name", "").strip().lower()
        device = request.cookies.get(self.access.device_cookie, "")
        try:
            opened = await self.access.log_in(
                name, fields.get("password", ""), _client(request), request.headers, device
            )
        except Problem as problem:
            if problem.code != "too-many":
                raise
            answer = self._show_login(to, "Too many tries. Wait ten seconds and try again.", 429)
            answer.headers["Retry-After"] = str(RETRY_SECONDS)
            return answer
        if opened is None:
            return self._show_login(to, "That is not the name and the password of an account in use.", 401)
        request.state.account = name  # for the operational log
        answer = RedirectResponse(to, 303)
        self._set_cookie(answer, self.access.cookie, opened.token, LOGIN_SECONDS, "/")
        self._set_cookie(answer, self.access.device_cookie, opened.device, DEVICE_SECONDS, "/console/login")
        return self._finish(answer)

    def _show_login(self, to: str, error: str = "", status: int = 200) -> Response:
        return self._render(Page("login.html", {"to": to, "error": error}, status))

    async def logout(self, request: Request) -> Response:
        """End the login."""
        if not self.access.is_own_form(request.headers):
            return self._render(FOREIGN)
        await run_sync(self.access.log_out, request.cookies.get(self.access.cookie, ""))
        answer = RedirectResponse("/console/login" if await run_sync(self.access.has_accounts) else "/", 303)
        self._set_cookie(answer, self.access.cookie, "", 0, "/")
        return self._finish(answer)

    def _set_cookie(self, answer: Response, name: str, value: str, seconds: float, path: str) -> None:
        """Give a browser a cookie that no script reads and no other site makes it send."""
        secure = self.access.is_encrypted
        answer.set_cookie(name, value, int(seconds), path=path, httponly=True, samesite="strict", secure=secure)

    async def _read_form(self, request: Request) -> dict[str, str]:
        return await _read_form(request, self.settings.body_seconds)

    async def static(self, request: Request) -> Response:
        """Send the stylesheet, the script or the icon; they are the same for everybody."""
        name = request.path_params["name"]
        if name not in self._static:
            return self._render(NOT_FOUND)
        answer = Response(self._static[name][0], media_type=_KINDS[name.rpartition(".")[2]])
        answer.headers["Cache-Control"] = "public, max-age=31536000, immutable"  # its address has its digest
        return self._finish(answer)

    # --- what all pages have ---

    def restricted(self, path: str, show: Callable[[Request], Page | Response]) -> Handler:
        """Let a page be shown to those who may see it."""

        async def answer(request: Request) -> Response:
            viewer = await self._find_viewer(request, path)
            if isinstance(viewer, Response):
                return viewer
            page = await run_sync(show, request)
            return self._render(page, viewer) if isinstance(page, Page) else self._finish(page)

        return answer

    def own_form(self, path: str, act: Handler) -> Handler:
        """Let a form of our own pages be taken from those who may send it."""

        async def answer(request: Request) -> Response:
            viewer = await self._find_viewer(request, path)
            if isinstance(viewer, Response):
                return viewer
            if not self.access.is_own_form(request.headers):
                return self._render(FOREIGN)
            return self._finish(await act(request))

        return answer

    def answering_failures(self, handler: Handler) -> Handler:
        """Turn what fails in a handler into a page."""

        async def answer(request: Request) -> Response:
            try:
                return await handler(request)
            except Exception:
                log_failure("a page")
                return self._render(FAILED)

        return answer

    async def _find_viewer(self, request: Request, path: str) -> Viewer | Response:
        """Return who asks for a route, or the answer to somebody who may not."""
        token = request.cookies.get(self.access.cookie, "")
        viewer = await run_sync(self.access.find_viewer, _client(request), request.headers, token)
        if viewer is not None:
            request.state.viewer = viewer
            return viewer if viewer.may(path) else self._render(NOT_FOUND, viewer)
        if not self.access.has_accounts():
            return self._render(CLOSED)
        to = "" if request.url.path == "/" else "?" + urlencode({"to": _own_path(request.url.path)})
        return self._finish(RedirectResponse(f"/console/login{to}", 303))

    def _render(self, page: Page, viewer: Viewer | None = None) -> Response:
        """Fill a template; to those who are not known it tells nothing of the service."""
        common = {
            "is_live": False,
            "log_state": None if viewer is None else self.log_monitor.state,
            "viewer": viewer,
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


async def _read_form(request: Request, seconds: float) -> dict[str, str]:
    """Return the fields of a form; one that is too large or strange has none."""
    body = bytearray()
    async with asyncio.timeout(seconds):
        async for chunk in request.stream():
            body += chunk
            if len(body) > _FORM_BYTES:
                return {}
    try:
        return {name: found[0] for name, found in parse_qs(bytes(body).decode(), max_num_fields=10).items()}
    except ValueError:
        return {}
