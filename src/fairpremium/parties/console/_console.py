"""The console: pages for the operator and the auditor, from the same app, without scripts from elsewhere.

A page is a function of the database (`_overview`) and a template. A small script asks for the same page again and puts
in what has changed; without scripts the page reloads itself while a fit runs.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shlex
import shutil
import threading
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any, NamedTuple
from urllib.parse import parse_qs, quote, urlencode

import anyio.to_thread
import jinja2
from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from sqlalchemy import Connection

from fairpremium import __version__
from fairpremium.audit._plots import format_price
from fairpremium.audit._words import percent
from fairpremium.parties.protocol import ID, Problem
from fairpremium.parties.service import LogMonitor, ServiceSettings, log_failure

from ._access import SESSION_SECONDS, Access
from ._charts import WIDTH, draw_group_means, draw_prices
from ._overview import (
    EVENTS,
    FitView,
    StudyView,
    read_fit,
    read_fits,
    read_log,
    read_parties,
    read_queue,
    read_studies,
    read_study,
)

__all__ = ["add_console"]

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
_IDLE_WORKERS = 20.0  # seconds after which a waiting fit means that no worker is there

_DEFAULT_SERVICE = "http://127.0.0.1:8350"


Handler = Callable[[Request], Awaitable[Response]]


class _Page(NamedTuple):
    """What a handler returns: a template, its values, and a status."""

    template: str
    values: dict[str, Any]
    status: int = 200


def add_console(app: FastAPI, party: Any, settings: ServiceSettings) -> None:
    """Add the pages of the console to an app.

    Parameters
    ----------
    app : FastAPI
    party : ThirdParty
    settings : ServiceSettings
    """
    console = _Console(party, settings)
    app.state.console = console

    def get(path: str, handler: Callable[[Request], Any]) -> None:
        app.add_route(path, console.guarded(handler), methods=["GET"], include_in_schema=False)

    get("/", console.studies)
    get("/console", lambda _: RedirectResponse("/", 303))
    get("/console/", lambda _: RedirectResponse("/", 303))
    get("/console/studies/{study}", console.study)
    get("/console/studies/{study}/fits/{party}/{fit}", console.fit)
    get("/console/log", console.log)
    app.add_route("/console/log/verify", console.careful(console.verify_log), methods=["POST"], include_in_schema=False)
    app.add_route("/console/login", console.careful(console.login), methods=["GET", "POST"], include_in_schema=False)
    app.add_route("/console/logout", console.careful(console.logout), methods=["POST"], include_in_schema=False)
    app.add_route("/console/static/{name}", console.static, methods=["GET"], include_in_schema=False)
    get("/console/{rest:path}", lambda _: _NOT_FOUND)


class _Console:
    """The pages and what they share."""

    def __init__(self, party: Any, settings: ServiceSettings):
        self.context = party.context
        self.settings = settings
        self.access = Access(self.context, settings)
        self.watch = LogMonitor(self.context)
        self._remembered = _Remembered()
        self._static = _read_static()
        self._environment = _environment({name: digest for name, (_, digest) in self._static.items()})

    # --- pages ---

    def studies(self, request: Request) -> _Page:
        """Show all studies, or what to do when there is none."""
        found = self._remembered("studies", lambda: self._read(lambda c: read_studies(c, self.context)))
        queue = self._read(lambda c: read_queue(c, self.context))
        is_stuck = (
            queue.waiting_since is not None
            and not queue.running
            and self.context.now() - queue.waiting_since > _IDLE_WORKERS
        )
        self.watch.start_if_due()
        values = {
            "studies": found,
            "queue": queue,
            "is_stuck": is_stuck,
            "is_live": queue.running + queue.waiting > 0,
            "free": shutil.disk_usage(self.context.blobs.folder).free,
            "parties": self._read(read_parties),
            "steps": _first_steps(*self._where(request)),
            "worker": f"fairpremium worker{self._where(request)[0]}",
        }
        return _Page("studies.html" if found else "empty.html", values)

    def study(self, request: Request) -> _Page:
        """Show one study with its fits."""
        study = self._study(request)
        if study is None:
            return _NOT_FOUND
        fits = self._read(lambda c: read_fits(c, self.context, study))
        latest = next((fit for fit in fits if fit.summary), None)
        values = {"study": study, "fits": fits, "latest": latest, "is_live": any(not fit.has_ended for fit in fits)}
        values["opening"] = f"fairpremium study open {study.id} --key operator.key{self._where(request)[1]}"
        return _Page("study.html", values | _comparison(latest))

    def fit(self, request: Request) -> _Page:
        """Show one fit."""
        study = self._study(request)
        party, fit = _id(request, "party"), _id(request, "fit")
        found = study and party and fit and self._read(lambda c: read_fit(c, self.context, study, party, fit))
        if not found:
            return _NOT_FOUND
        return _Page("fit.html", {"study": study, "fit": found, "is_live": not found.has_ended} | _comparison(found))

    def log(self, request: Request) -> _Page:
        """Show a page of the log."""
        asked = request.query_params
        parties = self._read(read_parties)
        party = asked.get("party", "") if asked.get("party") in parties else ""
        event = asked.get("event", "") if asked.get("event") in EVENTS else ""
        before = _whole(asked.get("before"))
        found = self._read(lambda c: read_log(c, party=party, event=event, before=before))
        self.watch.start_if_due()

        def link(to: int | None) -> str:
            chosen = {"party": party, "event": event, "before": to}
            return "/console/log?" + urlencode({name: value for name, value in chosen.items() if value})

        return _Page(
            "log.html",
            {
                "page": found,
                "entries": [_entry(row) for row in found.entries],
                "parties": parties,
                "events": EVENTS,
                "chosen": (party, event),
                "older": found.older and link(found.older),
                "command": f"fairpremium log verify --bundle bundle.zip{self._where(request)[0]}",
                "newer": found.newer and link(found.newer if found.newer <= found.last else None),
                "is_live": False,
            },
        )

    # --- what changes something ---

    async def verify_log(self, request: Request) -> Response:
        """Begin a check of the log."""
        refused = await self._refuse(request) or self._refuse_foreign(request)
        if refused is not None:
            return refused
        self.watch.start()
        await _in_thread(lambda: self.watch.wait(2.0))  # most logs are checked by then
        return self._finish(RedirectResponse("/console/log", 303))

    async def login(self, request: Request) -> Response:
        """Show the form for the password, or take it."""
        if not self.access.has_password:
            return self._finish(RedirectResponse("/", 303))
        to = _path(request.query_params.get("to", "/"))
        if request.method != "POST":
            return self._render(_Page("login.html", {"to": to, "error": ""}))
        refused = self._refuse_foreign(request)
        if refused is not None:
            return refused
        try:
            self.access.take_try(_client(request))
        except Problem:
            error = "Too many tries. Wait ten seconds and try again."
            answer = self._render(_Page("login.html", {"to": to, "error": error}, 429))
            answer.headers["Retry-After"] = "10"
            return answer
        password = await _read_form(request, "password", self.settings.body_seconds)
        if not await _in_thread(lambda: self.access.knows(password)):
            return self._render(_Page("login.html", {"to": to, "error": "That is not the password."}, 401))
        answer = RedirectResponse(to, 303)
        self._set_cookie(answer, self.access.new_session(), int(SESSION_SECONDS))
        return self._finish(answer)

    async def logout(self, request: Request) -> Response:
        """End the session."""
        refused = self._refuse_foreign(request)
        if refused is not None:
            return refused
        value = request.cookies.get(self.access.cookie, "")
        if self.access.has_password:
            await _in_thread(lambda: self.access.end_session(value))
        answer = RedirectResponse("/console/login" if self.access.has_password else "/", 303)
        self._set_cookie(answer, "", 0)
        return self._finish(answer)

    async def static(self, request: Request) -> Response:
        """Send the stylesheet, the script or the icon; they are the same for everybody."""
        name = request.path_params["name"]
        if name not in self._static:
            return self._render(_NOT_FOUND, known=False)
        content, _ = self._static[name]
        answer = Response(content, media_type=_KINDS[name.rpartition(".")[2]])
        answer.headers["Cache-Control"] = "public, max-age=31536000, immutable"  # its address has its digest
        return self._finish(answer)

    # --- what all pages have ---

    def guarded(self, handler: Callable[[Request], _Page | Response]) -> Handler:
        """Let a handler answer those who may look."""

        async def answer(request: Request) -> Response:
            refused = await self._refuse(request)
            if refused is not None:
                return refused
            page = await _in_thread(lambda: handler(request))
            return self._render(page) if isinstance(page, _Page) else self._finish(page)

        return self.careful(answer)

    def careful(self, handler: Handler) -> Handler:
        """Turn what fails in a handler into a page."""

        async def answer(request: Request) -> Response:
            try:
                return await handler(request)
            except Exception:
                log_failure("a page")
                return self._render(_FAILED, known=False)

        return answer

    async def _refuse(self, request: Request) -> Response | None:
        """Return the answer to somebody who may not look, or None."""
        if self.access.has_password:
            value = request.cookies.get(self.access.cookie, "")
            if await _in_thread(lambda: self.access.is_session(value)):
                return None
            to = urlencode({"to": _path(request.url.path)}) if request.url.path != "/" else ""
            return self._finish(RedirectResponse("/console/login" + (f"?{to}" if to else ""), 303))
        if self.access.is_local(_client(request), request.headers):
            return None
        return self._render(_CLOSED, known=False)

    def _refuse_foreign(self, request: Request) -> Response | None:
        """Return the answer to a form that was not sent from our own pages, or None."""
        return None if self.access.is_own_form(request.headers) else self._render(_FOREIGN, known=False)

    def _render(self, page: _Page, *, known: bool = True) -> Response:
        """Fill a template; to those who are not known it tells nothing of the service."""
        known = known and page.template != "login.html"
        common = {
            "is_live": False,
            "log_state": self.watch.state if known else None,
            "has_password": self.access.has_password,
            "is_known": known,
            "key_id": self.context.key.key_id,
            "now": self.context.now(),
        }
        text = self._environment.get_template(page.template).render(common | page.values)
        return self._finish(HTMLResponse(text, page.status))

    def _finish(self, answer: Response) -> Response:
        answer.headers.update(_HEADERS)
        answer.headers.setdefault("Cache-Control", "no-store")
        return answer

    def _set_cookie(self, answer: Response, value: str, seconds: int) -> None:
        secure = self.access.is_encrypted
        answer.set_cookie(
            self.access.cookie, value, max_age=seconds, path="/", httponly=True, samesite="strict", secure=secure
        )

    def _where(self, request: Request) -> tuple[str, str]:
        """Return the options with which a command finds the folder, and the service."""
        service = f"{self.settings.scheme}://{request.headers.get('host', '')}"
        folder = os.fspath(self.settings.folder)
        return f" --folder {shlex.quote(folder)}", "" if service == _DEFAULT_SERVICE else (
            f" --service {shlex.quote(service)}"
        )

    def _read(self, command: Callable[[Connection], Any]) -> Any:
        return self.context.store.read(command)

    def _study(self, request: Request) -> StudyView | None:
        study = _id(request, "study")
        if study is None:
            return None
        found: StudyView | None = self._remembered(
            f"study {study}", lambda: self._read(lambda c: read_study(c, self.context, study))
        )
        return found


class _Remembered:
    """Keeps what was slow to read for ten times as long as it took, so that looking costs a tenth of a core at most."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Any, float]] = {}
        self._lock = threading.Lock()

    def __call__(self, name: str, read: Callable[[], Any]) -> Any:
        with self._lock:
            value, until = self._kept.get(name, (None, 0.0))
        start = time.monotonic()
        if start < until:
            return value
        value = read()
        end = time.monotonic()
        if value is not None:
            with self._lock:
                self._kept[name] = (value, end + 10 * (end - start))
        return value


# --- pages that say why there is nothing to see ---


def _message(title: str, text: str, status: int, commands: tuple[str, ...] = ()) -> _Page:
    return _Page("message.html", {"title": title, "text": text, "commands": commands}, status)


_NOT_FOUND = _message("There is no such page", "The study or fit may have another name. Look through the list.", 404)
_FAILED = _message(
    "This page cannot be shown now", "The service has noted why in its own log. Nothing was changed. Try again.", 503
)
_FOREIGN = _message("That did not come from here", "Forms are taken from the console's own pages only.", 403)
_CLOSED = _message(
    "The console is closed from here",
    "Without a password it opens only on the machine that the service runs on, under http://127.0.0.1. To open it for "
    "others, give the service a password for the console and start it again.",
    403,
    ("FAIRPREMIUM_CONSOLE_PASSWORD=... fairpremium serve",),
)


# --- values for the templates ---


def _first_steps(folder: str, service: str) -> list[tuple[str, tuple[str, ...]]]:
    """Return what an operator does first, with the commands to copy."""
    add = "fairpremium keys add"
    return [
        (
            "Make a key for yourself and register it.",
            ("fairpremium keys new operator.key", f"{add} operator.key.pub --party op --role operator{folder}"),
        ),
        (
            "Register the others. Each party makes a key of its own in the same way and sends you the file that ends "
            "in .pub, never the key.",
            (
                f"{add} collector.key.pub --party app --role collector{folder}",
                f"{add} insurer.key.pub --party acme --role insurer{folder}",
            ),
        ),
        (
            "Declare a study and open it for reports.",
            (
                "fairpremium study create motor --title 'Motor' --groups F,M --keep 0.8 --collector app "
                f"--insurer acme --key operator.key{service}",
                f"fairpremium study open motor --key operator.key{service}",
            ),
        ),
    ]


def _comparison(fit: FitView | None) -> dict[str, Any]:
    """Return charts and tables of a finished fit, from what was released of it."""
    empty: dict[str, Any] = {"means": [], "means_chart": None, "prices": None, "prices_chart": None, "findings": []}
    if fit is None or not fit.summary:
        return empty
    sections = {s.get("id"): s for s in fit.summary.get("sections") or () if isinstance(s, dict)}
    means = (sections.get("group_means") or {}).get("records") or []
    classes = (sections.get("price_comparison") or {}).get("classes") or [None]
    return {
        "means": means,
        "means_chart": draw_group_means(means),
        "prices": classes[0],
        "prices_chart": classes[0] and draw_prices(classes[0]),
        "findings": fit.summary.get("findings") or [],
    }


class _Entry(NamedTuple):
    """An entry of the log: short facts beside each other, longer ones folded."""

    seq: int
    time: str
    party: str
    event: str
    facts: list[tuple[str, str, str]]
    more: str
    hash: str


def _entry(row: Any) -> _Entry:
    try:
        body = json.loads(row.body)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        body = {"content": "cannot be read"}
    facts, more = [], {}
    for name, value in body.items():
        if isinstance(value, dict | list):
            more[name] = value
        else:
            text = str(value)
            is_digest = len(text) == 64 and " " not in text
            facts.append((name, f"{text[:12]}…" if is_digest else text, text if is_digest else ""))
    for name in ("refusal", "problem"):
        inner = more.pop(name, None)
        if isinstance(inner, dict):
            facts += [(key, str(inner[key]), "") for key in ("rule", "title", "limit") if key in inner]
    folded = json.dumps(more, indent=1, ensure_ascii=False) if more else ""
    return _Entry(row.seq, str(row.time), row.party, row.event, facts, folded, row.hash)


def _when(seconds: float | None) -> str:
    return "" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _lasted(seconds: float) -> str:
    """Write a duration.

    Examples
    --------
    >>> _lasted(0.4), _lasted(75), _lasted(7300)
    ('less than a second', '1 min 15 s', '2 h 1 min')
    """
    whole = int(seconds)
    if whole < 1:
        return "less than a second"
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _count(value: int | None, suppressed: int) -> str:
    """Write a rounded count.

    Examples
    --------
    >>> _count(1900, 7), _count(None, 7)
    ('about 1,900', '7 or fewer')
    """
    return f"{suppressed} or fewer" if value is None else f"about {value:,}"


def _environment(digests: dict[str, str]) -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fairpremium.parties.console"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "price": format_price,
        "percent": percent,
        "count": _count,
        "when": _when,
        "lasted": _lasted,
        "place": lambda part: quote(str(part), safe=""),
        "size": lambda size: f"{size / 1e9:,.0f} GB" if size >= 1e10 else f"{size / 1e9:.1f} GB",
    }
    environment.globals |= {
        "version": __version__,
        "static": lambda name: f"/console/static/{name}?{digests[name][:12]}",
        "chart_width": WIDTH,
    }
    return environment


def _read_static() -> dict[str, tuple[bytes, str]]:
    """Return what the pages need beside their text, with digests."""
    found = {}
    for file in files("fairpremium.parties.console").joinpath("static").iterdir():
        if file.name.rpartition(".")[2] in _KINDS:
            content = file.read_bytes()
            found[file.name] = (content, hashlib.sha256(content).hexdigest())
    return found


# --- requests ---


async def _in_thread(work: Callable[[], Any]) -> Any:
    return await anyio.to_thread.run_sync(work)


def _client(request: Request) -> str:
    return request.client.host if request.client else ""


def _id(request: Request, name: str) -> str | None:
    """Return an id from the address, if it is one."""
    value = request.path_params.get(name, "")
    return value if ID.fullmatch(value) else None


def _whole(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 16 else None


def _path(to: str) -> str:
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
