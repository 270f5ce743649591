"""The operational log: what happens in the processes of the service, a line for each event, on standard error.

It is for whoever runs the service, and is not the log that the parties audit (`fairpremium.parties.store.log`). Events
and their fields are a closed list. A field holds a name, a number or a word from a list of this project: never a
value of a request, a key of a policy, a report, or the message of another library.
"""

import json
import logging
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple, TextIO

from fairpremium.parties.protocol import Problem

from ._rate_limit import RateLimiter

LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]

_logger = logging.getLogger("fairpremium.service")
_OURS = f"{Path(__file__).resolve().parents[3]}/"  # files of this project
_LINES_PER_SECOND, _LINES_AT_ONCE = 2.0, 40  # of an event that strangers can cause

request_id: ContextVar[str | None] = ContextVar("request_id", default=None)  # of the request that is answered here


class Event(NamedTuple):
    """A kind of line: its level, its fields, what it says, and whether strangers can cause it."""

    level: int
    fields: tuple[str, ...]
    says: str
    by_strangers: bool = False


_I, _W, _E = logging.INFO, logging.WARNING, logging.ERROR
_FIT = ("party", "fit", "attempt")
_REQUEST = ("method", "route", "status", "duration", "party", "problem")

EVENTS = {
    "service.started": Event(_I, ("version", "database"), "the web process accepts connections"),
    "service.stopped": Event(_I, (), "the web process has ended in order"),
    "worker.started": Event(_I, ("worker",), "a worker looks for fits; its process id"),
    "worker.stopped": Event(_I, ("worker",), "a worker has ended in order"),
    "worker.died": Event(_E, ("worker", "exit"), "a worker of `serve` ended by itself; another one is started"),
    "request": Event(_I, _REQUEST, "a request was answered; probes at the level debug; see below"),
    "request.replayed": Event(_W, ("key_id", "party", "route"), "a signed request came a second time", True),
    "signature.bad": Event(_W, ("key_id", "party", "route"), "a registered key, but not its signature", True),
    "key.unknown": Event(_W, ("key_id", "route"), "a key that is not registered", True),
    "key.refused": Event(_W, ("key_id", "party", "route"), "signed with a key that was revoked or has ended", True),
    "login": Event(_I, ("account",), "somebody logged in to the console"),
    "login.failed": Event(_W, (), "a wrong password for the console", True),
    "login.limited": Event(_W, (), "too many tries of a password; this one was not looked at", True),
    "fit.queued": Event(_I, ("party", "fit"), "an insurer asked for a fit"),
    "fit.lost": Event(_W, _FIT, "the lease of an attempt ended without a result: its worker is gone or silent"),
    "fit.leased": Event(_I, _FIT, "a worker has taken the fit"),
    "fit.started": Event(_I, (*_FIT, "worker"), "the process of the attempt runs, for this worker"),
    "snapshot.slow": Event(_W, (*_FIT, "seconds"), "a snapshot took longer than planned, and its insurer can see it"),
    "fit.succeeded": Event(_I, _FIT, "there is a bundle"),
    "fit.refused": Event(_W, (*_FIT, "rule"), "a disclosure rule refused the fit; the number of the rule"),
    "fit.failed": Event(_W, (*_FIT, "problem"), "the fit ended without a result"),
    "fit.cancelled": Event(_I, _FIT, "the insurer cancelled the fit"),
    "fit.died": Event(_E, (*_FIT, "exit"), "the process of the attempt died; minus the number of a signal"),
    "fit.returned": Event(_I, _FIT, "the worker was told to stop; the fit waits again and loses no attempt"),
    "storage.full": Event(_E, (*_FIT, "route"), "there is no room for a write; nothing was stored", True),
    "ready.lost": Event(_E, ("problem",), "/readyz began to answer 503"),
    "ready.back": Event(_I, (), "/readyz answers 200 again"),
    "file.restricted": Event(_W, ("file",), "others could read a file of the folder; its mode was changed"),
    "failure": Event(_E, ("what", "error", "where"), "something failed that should not; the place in the code", True),
    "library": Event(_W, ("name", "text"), "the web server says something, without the values in it", True),
}


class LogSettings(NamedTuple):
    """How the operational log is written."""

    format: LogFormat = "text"
    level: LogLevel = "info"


_limiter = RateLimiter(_LINES_PER_SECOND, burst=_LINES_AT_ONCE)
_suppressed: Counter[str] = Counter()
_lock = threading.Lock()
_written: LogSettings | None = None


def log_event(event: str, *, level: int | None = None, **fields: Any) -> None:
    """Write a line; None is no field. Events that strangers can cause are limited, and tell how many were left out.

    - `event`: One of `EVENTS`.
    - `level`: Another level than the usual one.
    """
    kind, fields = EVENTS[event], {name: value for name, value in fields.items() if value is not None}
    assert set(fields) <= set(kind.fields), f"{event} has no field {set(fields) - set(kind.fields)}"
    level = kind.level if level is None else level
    if not _logger.isEnabledFor(level):
        return
    found = {"event": event, **({"request": name} if (name := request_id.get()) else {}), **fields}
    if (kind.by_strangers or (event == "request" and "party" not in fields)) and not _take_line(event, found):
        return
    _logger.log(level, "%s", _as_text(found), extra={"fields": found})


def _take_line(kind: str, fields: dict[str, Any]) -> bool:
    """Return whether one more line of a kind may be written; its fields tell how many were left out before it."""
    with _lock:
        try:
            _limiter.take(kind)
        except Problem:
            _suppressed[kind] += 1
            return False
        if left_out := _suppressed.pop(kind, 0):
            fields["suppressed"] = left_out
        return True


def log_failure(what: str) -> None:
    """Log that something of ours failed: where, but no value of a request and no message of a library."""
    kind, _, trace = sys.exc_info()
    frames = traceback.extract_tb(trace)[::-1]
    ours = [frame for frame in frames if frame.filename.startswith(_OURS)]
    frames = [*[frame for frame in frames[:1] if frame not in ours], *ours][:8] if ours else frames[:8]
    where = " < ".join(f"{frame.name} ({Path(frame.filename).name}:{frame.lineno})" for frame in frames)
    log_event("failure", what=what, error=kind.__name__ if kind else "error", where=where)


# --- writing ---------------------------------------------------------------------------------------------------------


@contextmanager
def write_log(settings: LogSettings) -> Iterator[None]:
    """Write the lines of this process to standard error meanwhile, with those of the web server."""
    global _written
    handler = _StandardError()
    handler.setFormatter(_LineFormatter(settings.format))
    handler.addFilter(_limit_library)
    loggers = [logging.getLogger(name) for name in ("fairpremium", "uvicorn", "asyncio")]
    before, levels = _written, [logger.level for logger in loggers]
    try:
        _written = settings
        for logger, level in zip(loggers, (settings.level, "warning", "warning"), strict=True):
            logger.addHandler(handler)
            logger.setLevel(level.upper())
        yield
    finally:
        _written = before
        for logger, number in zip(loggers, levels, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(number)


def written_log() -> LogSettings | None:
    """Return how this process writes its log, for a process that it starts; None if it does not."""
    return _written


def _limit_library(record: logging.LogRecord) -> bool:
    """Give a record of a library the fields of its line: anybody can cause some, so that they are limited.

    What a library puts into its message may be data, and so may its lines after the first; both are left out.
    """
    if not hasattr(record, "fields"):
        text = str(record.msg).strip().partition("\n")[0]
        fields = {"event": "library", "name": record.name, "text": text}
        record.__dict__["fields"] = fields
        return _take_line(f"library {record.levelname}", fields)
    return True


class _StandardError(logging.StreamHandler[TextIO]):
    """Writes to what is standard error when a line comes."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:  # type: ignore[override]
        return sys.stderr


class _LineFormatter(logging.Formatter):
    """Makes a line of a record, of JSON or of text."""

    def __init__(self, form: LogFormat):
        super().__init__()
        self._form = form

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = record.fields  # type: ignore[attr-defined]
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        head = {"time": time, "level": record.levelname.lower()}
        if self._form == "json":
            return json.dumps(head | fields)
        return f"{head['time']} {head['level']:<7} {_as_text(fields)}"


def _as_text(fields: dict[str, Any]) -> str:
    named = [f"{name}={_word(value)}" for name, value in fields.items() if name != "event"]
    return " ".join([fields["event"], *named])


def _word(value: Any) -> str:
    text = str(value)
    is_plain = text.isprintable() and not any(letter in text for letter in ' "=')
    return text if is_plain and text else json.dumps(text)
