"""The pages of the console: each is a template and values that are read from the database."""

import os
import shlex
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode

from fastapi import Request
from sqlalchemy import Connection

from fairpremium.parties.protocol import ID
from fairpremium.parties.service import LogMonitor, ServiceContext, ServiceSettings, count_workers

from ._fit_views import FitView, read_fits, read_queue
from ._key_views import read_keys, read_service_keys
from ._log_views import EVENTS, read_log
from ._operation_views import read_insurer_queues, read_matches, read_storage
from ._study_views import StudyView, read_parties, read_studies, read_study
from ._templates import show_comparison

T = TypeVar("T")

_IDLE_WORKERS = 20.0  # seconds after which a waiting fit means that no worker is there
_DEFAULT_SERVICE = "http://127.0.0.1:8350"


class Page(NamedTuple):
    """A template, its values, and a status."""

    template: str
    values: dict[str, Any]
    status: int = 200


def _message(title: str, text: str, status: int, commands: tuple[str, ...] = ()) -> Page:
    return Page("message.html", {"title": title, "text": text, "commands": commands}, status)


NOT_FOUND = _message("There is no such page", "The study or fit may have another name. Look through the list.", 404)
FAILED = _message(
    "This page cannot be shown now", "The service has noted why in its own log. Nothing was changed. Try again.", 503
)
FOREIGN = _message("That did not come from here", "Forms are taken from the console's own pages only.", 403)
CLOSED = _message(
    "The console is closed from here",
    "Without accounts it opens only on the machine that the service runs on, under http://127.0.0.1. To open it for "
    "others, make an account for each person, on that machine.",
    403,
    ("fairpremium account add NAME --role auditor",),
)


class Pages:
    """Reads what the pages show."""

    def __init__(self, context: ServiceContext, settings: ServiceSettings, monitor: LogMonitor):
        self._context = context
        self._settings = settings
        self._monitor = monitor

    def _read(self, command: Callable[[Connection], T]) -> T:
        return self._context.database.read(command)

    def studies(self, request: Request) -> Page:
        """Show all studies, or what to do when there is none."""
        context = self._context
        found = self._read(lambda c: read_studies(c, context))
        queue = self._read(lambda c: read_queue(c, context))
        since = queue.waiting_since
        self._monitor.start_if_due()
        folder, service = self._options(request)
        values = {
            "studies": found,
            "queue": queue,
            "is_stuck": since is not None and not queue.running and context.now() - since > _IDLE_WORKERS,
            "is_live": queue.running + queue.waiting > 0,
            "parties": self._read(read_parties),
            "folder": folder,
            "service": service,
        }
        return Page("studies.html" if found else "empty.html", values)

    def study(self, request: Request) -> Page:
        """Show one study with its fits."""
        study, fits = self._study(request)
        if study is None:
            return NOT_FOUND
        latest = next((fit for fit in fits if fit.summary), None)
        values = {"study": study, "fits": fits, "latest": latest, "is_live": any(not fit.has_ended for fit in fits)}
        options = f"{study.id} --key operator.key{self._options(request)[1]}"
        values |= {"opening": f"fairpremium study open {options}"}
        values |= {"beginning": f"fairpremium study begin-epoch {options}"}
        return Page("study.html", values | (show_comparison(latest.summary, latest.spec.level) if latest else {}))

    def fit(self, request: Request) -> Page:
        """Show one fit."""
        study, fits = self._study(request)
        wanted = request.path_params["party"], request.path_params["fit"]
        fit = next((fit for fit in fits if (fit.party, fit.id) == wanted), None)
        if fit is None:
            return NOT_FOUND
        values = {"study": study, "fit": fit, "is_live": not fit.has_ended}
        return Page("fit.html", values | show_comparison(fit.summary, fit.spec.level))

    def _study(self, request: Request) -> tuple[StudyView | None, list[FitView]]:
        """Read the study that a request names, and its fits."""
        name = request.path_params["study"]
        if not ID.fullmatch(name):
            return None, []
        study = self._read(lambda c: read_study(c, self._context, name))
        return study, [] if study is None else self._read(lambda c: read_fits(c, self._context, study))

    def budgets(self, request: Request) -> Page:
        """Show what insurers have spent in all studies, and the epochs."""
        return Page("budgets.html", {"studies": self._read(lambda c: read_studies(c, self._context))})

    def keys(self, request: Request) -> Page:
        """Show the keys of the service and of all parties."""
        values = {
            "service_keys": self._read(lambda c: read_service_keys(c, self._context)),
            "keys": self._read(lambda c: read_keys(c, self._context)),
            "folder": self._options(request)[0],
        }
        return Page("keys.html", values)

    def operation(self, request: Request) -> Page:
        """Show the queue, the storage, and the matched shares of the newest results."""
        queues = self._read(lambda c: read_insurer_queues(c, self._context))
        values = {
            "queues": queues,
            "queue": self._read(lambda c: read_queue(c, self._context)),
            "storage": self._read(lambda c: read_storage(c, self._context)),
            "workers": count_workers(self._context),
            "matches": self._read(read_matches),
            "is_live": bool(queues),
        }
        return Page("operation.html", values)

    def log(self, request: Request) -> Page:
        """Show a page of the log."""
        asked = request.query_params
        parties = self._read(read_parties)
        party = asked.get("party", "") if asked.get("party") in parties else ""
        event = asked.get("event", "") if asked.get("event") in EVENTS else ""
        text = asked.get("before", "")
        before = int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None
        page = self._read(lambda c: read_log(c, party=party, event=event, before=before))
        self._monitor.start_if_due()

        def link(to: int | None) -> str:
            chosen = {"party": party, "event": event, "before": to}
            return "/console/log?" + urlencode({name: value for name, value in chosen.items() if value})

        values = {
            "page": page,
            "parties": parties,
            "events": EVENTS,
            "chosen": (party, event),
            "older": page.older and link(page.older),
            "newer": page.newer and link(page.newer if page.newer <= page.last else None),
            "command": f"fairpremium log verify --bundle bundle.zip{self._options(request)[0]}",
        }
        return Page("log.html", values)

    def _options(self, request: Request) -> tuple[str, str]:
        """Return the options with which a command finds the folder, and the service."""
        service = f"{self._settings.scheme}://{request.headers.get('host', '')}"
        at = "" if service == _DEFAULT_SERVICE else f" --service {shlex.quote(service)}"
        return f" --folder {shlex.quote(os.fspath(self._settings.folder))}", at
