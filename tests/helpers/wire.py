"""A service in one process, and requests to it byte by byte: signed rightly, signed wrongly, sent again."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote

import httpx
import numpy as np
import pandas as pd
from sqlalchemy import select

from fairpremium.parties import Feature, FitSpec, KnownChannel, PortfolioSpec, StudySpec
from fairpremium.parties.clients._client import Client, Operator
from fairpremium.parties.clients._collector import Collector
from fairpremium.parties.clients._insurer import Insurer
from fairpremium.parties.http._app import create_app
from fairpremium.parties.protocol._keys import new_key
from fairpremium.parties.protocol._linkage import make_keys
from fairpremium.parties.protocol._messages import Question, QuestionText, Report
from fairpremium.parties.protocol._portfolio_part import write_portfolio_part
from fairpremium.parties.protocol._report_batch import BATCH_TYPE
from fairpremium.parties.protocol._signatures import sign_request
from fairpremium.parties.service._access import RIGHTS
from fairpremium.parties.service._context import Party
from fairpremium.parties.service._leases import acquire_lease, finish_fit
from fairpremium.parties.service._settings import ServiceSettings
from fairpremium.parties.service._third_party import ThirdParty
from fairpremium.parties.store.schema import metadata
from fairpremium.privacy import RandomizedResponse
from helpers.batches import write_batch
from helpers.quick_fits import AT_ONCE

JSON, PARQUET, PROBLEM = "application/json", "application/vnd.apache.parquet", "application/problem+json"
BATCH = BATCH_TYPE  # of reports
CHANNEL = RandomizedResponse(["F", "M"], keep=0.8)
NAMES = ("third.party", "third.party:8080", "third.party.example", "127.0.0.1", "127.0.0.1:8350")
__all__ = ["Party", "World", "make_keys"]
CLIENTS = {"operator": Operator, "collector": Collector, "insurer": Insurer, "auditor": Client}


class Clock:
    """A clock that moves when told to."""

    def __init__(self, now: float = 1_800_000_000.0):
        self.now = now

    def __call__(self) -> float:
        return self.now


@dataclass(frozen=True)
class Wire:
    """A request as it goes over the wire."""

    method: str
    target: bytes  # path and query
    headers: tuple[tuple[bytes, bytes], ...]
    body: bytes = b""

    def header(self, name: str) -> str:
        return next(v for n, v in self.headers if n == name.encode()).decode()

    def but(self, **headers: str | None) -> Wire:
        """The same with other headers; None leaves one out."""
        changed = {name.replace("_", "-").encode(): value for name, value in headers.items()}
        kept = tuple(pair for pair in self.headers if pair[0] not in changed)
        return replace(self, headers=(*kept, *((n, v.encode()) for n, v in changed.items() if v is not None)))

    def plus(self, name: str, value: str) -> Wire:
        return replace(self, headers=(*self.headers, (name.encode(), value.encode())))


@dataclass(frozen=True)
class Answer:
    """An answer as it comes over the wire; the id of its request is always another one."""

    status: int
    headers: dict[str, str]
    body: bytes
    request_id: str = field(default="", compare=False)

    @property
    def code(self) -> str:
        """The code of the problem; empty if the answer tells of none."""
        if self.headers.get("content-type") != PROBLEM:
            return ""
        return json.loads(self.body)["type"].rpartition(":")[2]

    def json(self) -> Any:
        return json.loads(self.body)


class World(httpx.BaseTransport):
    """A service with two collectors, two insurers, an operator and an auditor.

    `app`, `acme` take part in the study "motor"; `app2`, `other` in "marine".
    """

    def __init__(
        self, folder: Any, database: str | None = None, *, clock: Any = None, limits: Any = None, keys: Any = None,
        **settings: Any,
    ):  # fmt: skip
        self.folder = folder
        self.database = database
        self.clock = clock or Clock()
        self.third_party = ThirdParty(folder, database=database, clock=self.clock, limits=limits or AT_ONCE)
        self.context = self.third_party.context
        settings.setdefault("hosts", NAMES)
        self.settings = ServiceSettings(folder=folder, database=database, limits=self.context.limits, **settings)
        self.app = create_app(self.settings, self.third_party)
        self._runner = asyncio.Runner()
        self._one_at_a_time = threading.Lock()
        self.keys: dict[str, Any] = {}
        self.roles: dict[str, str] = {}
        if keys is None:
            for name, role in (
                ("op", "operator"), ("app", "collector"), ("app2", "collector"), ("acme", "insurer"),
                ("other", "insurer"), ("aud", "auditor"),
            ):  # fmt: skip
                self.add(name, role)
        else:
            self.keys, self.roles = keys

    def add(self, name: str, role: str, party: str | None = None) -> None:
        self.keys[name], self.roles[name] = new_key(), role
        self.third_party.add_key(self.keys[name].public_key, party=party or name, role=role)
        self.forget_keys()

    def forget_keys(self) -> None:
        """Let the app read the table of keys anew, as it does every second."""
        self.app.state.requests._keys_at = float("-inf")

    def second(self, **settings: Any) -> World:
        """Another process's view: a second app on the same folder."""
        options = {"clock": self.clock, "limits": self.context.limits, "keys": (self.keys, self.roles)}
        return World(self.folder, self.database, **options, **settings)

    def close(self) -> None:
        self._runner.close()
        self.third_party.close()

    def __enter__(self) -> World:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- requests ---

    def sign(
        self, name: str, method: str, target: str, body: bytes = b"", kind: str | None = None, *,
        created: float | None = None, nonce: str | None = None, host: str = "third.party",
    ) -> Wire:  # fmt: skip
        at = int(self.clock() if created is None else created)
        sha256 = hashlib.sha256(body).digest()
        fields = sign_request(method, f"http://{host}{target}", {}, sha256, self.keys[name], created=at, nonce=nonce)
        headers = {"host": host, "content-length": str(len(body))}
        if kind is None and method == "PUT":
            kind = JSON
        if kind is not None:
            headers["content-type"] = kind
        headers |= {name.lower(): value for name, value in fields.items()}
        return Wire(method, target.encode(), tuple((n.encode(), v.encode()) for n, v in headers.items()), body)

    def ask(self, name: str, method: str, target: str, body: bytes = b"", kind: str | None = None) -> Answer:
        return self.send(self.sign(name, method, target, body, kind))

    def send(self, wire: Wire, stop_after: int | None = None) -> Answer:
        """Send a request; perhaps no more of its body than some bytes."""
        with self._one_at_a_time:  # clients send parts from several threads
            return self._runner.run(self._call(wire, stop_after))

    def send_together(self, wires: list[Wire]) -> list[Answer]:
        """Send requests at the same time."""

        async def run() -> list[Answer]:
            return list(await asyncio.gather(*(self._call(wire) for wire in wires)))

        return self._runner.run(run())

    async def _call(self, wire: Wire, stop_after: int | None = None) -> Answer:
        path, _, query = wire.target.partition(b"?")
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": wire.method, "scheme": "http",
            "path": unquote(path.decode("latin-1")), "raw_path": path, "query_string": query, "root_path": "",
            "headers": list(wire.headers), "client": ("127.0.0.1", 1), "server": ("third.party", 80), "state": {},
        }  # fmt: skip
        whole = stop_after is None
        sent = iter([{"type": "http.request", "body": wire.body[:stop_after], "more_body": not whole}])
        parts: list[Any] = []

        async def receive() -> Any:
            message = next(sent, None)
            if message is None:
                await asyncio.sleep(3600)
            return message

        async def send(message: Any) -> None:
            parts.append(message)

        await self.app(scope, receive, send)
        headers = {n.decode().lower(): v.decode() for n, v in parts[0]["headers"]}
        name = headers.pop("x-request-id")
        return Answer(parts[0]["status"], headers, b"".join(p.get("body", b"") for p in parts[1:]), name)

    def client(self, name: str) -> Any:
        """The client of a party, as the library has it."""
        return CLIENTS[self.roles[name]]("http://third.party", _TimedKey(self, name), transport=self)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        body = request.read()
        fields = sign_request(
            request.method, str(request.url), {}, hashlib.sha256(body).digest(),
            self.keys[next(n for n, k in self.keys.items() if k.key_id in request.headers["signature-input"])],
            created=int(self.clock()),
        )  # fmt: skip
        request.headers.update(fields)
        headers = tuple((n.lower(), v) for n, v in request.headers.raw)
        answer = self.send(Wire(request.method, request.url.raw_path, headers, body))
        return httpx.Response(answer.status, headers=answer.headers, content=answer.body)

    # --- what is there ---

    def dump(self) -> dict[str, Any]:
        """All rows of all tables, and the names of all files."""

        def rows(connection: Any) -> dict[str, Any]:
            tables = [table for table in metadata.sorted_tables if table.name != "commits"]  # marks of transactions
            return {table.name: sorted(map(repr, connection.execute(select(table)))) for table in tables}

        files = sorted(str(p.relative_to(self.folder)) for p in self.context.files.folder.rglob("*"))
        return {**self.context.database.read(rows), "files": files}

    # --- things ---

    def declare(self, study: str = "motor", collectors: Any = ("app",), insurers: Any = ("acme",), **more: Any) -> None:
        attribute = more.pop("attribute", KnownChannel(channel=CHANNEL.descriptor()))
        spec = StudySpec(title="Motor", attribute=attribute, collectors=collectors, insurers=insurers, **more)
        assert self.ask("op", "PUT", f"/v1/studies/{study}", spec.model_dump_json().encode()).status == 200
        assert self.ask("op", "POST", f"/v1/studies/{study}/open").status == 200

    def portfolio(self, who: str, name: str, study: str = "motor", *, seal: bool = True, rows: int = 8) -> None:
        spec = portfolio_spec(study)
        assert self.ask(who, "PUT", f"/v1/portfolios/{name}", spec.model_dump_json().encode()).status == 200
        part = portfolio_part(spec, rows, seed=len(name))
        assert self.ask(who, "PUT", f"/v1/portfolios/{name}/parts/0", part, PARQUET).status == 200
        if seal:
            assert self.ask(who, "POST", f"/v1/portfolios/{name}/seal").status == 200

    def fit(self, who: str, name: str, portfolio: str, study: str = "motor", **more: Any) -> None:
        spec = FitSpec(study=study, portfolio=portfolio, **more)
        assert self.ask(who, "PUT", f"/v1/fits/{name}", spec.model_dump_json().encode()).status == 200

    def succeed(self, content: bytes = b"a bundle") -> None:
        """Let the oldest fit that waits succeed with some bytes, as a worker would."""
        digest = self.context.files.put(content)
        lease = self.context.database.write(lambda c: acquire_lease(c, self.context))
        self.context.database.write(lambda c: finish_fit(c, self.context, lease, "succeeded", sha256=digest))


class _TimedKey:
    """A party's key for the library's client; `handle_request` signs again by the world's clock."""

    def __init__(self, world: World, name: str):
        self._key = world.keys[name]
        self.key_id = self._key.key_id

    def sign(self, message: bytes) -> bytes:
        return self._key.sign(message)


def portfolio_spec(study: str = "motor") -> PortfolioSpec:
    return PortfolioSpec(study=study, features=(Feature(name="age"),), outcome="y")


def portfolio_part(spec: PortfolioSpec, rows: int = 8, seed: int = 0) -> bytes:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"age": rng.normal(size=rows), "y": rng.normal(size=rows)})
    frame["key"] = [policy_key(seed, i) for i in range(rows)]
    return write_portfolio_part(frame, spec)


def report_part(rows: int = 8, seed: int = 0, channel: Any = CHANNEL) -> bytes:
    rng = np.random.default_rng(seed)
    keys = [policy_key(seed, i) for i in range(rows)]
    return write_batch(keys, rng.choice(["F", "M"], size=rows), ["F", "M"], channel)


def report(value: Any = "F", channel: Any = CHANNEL) -> bytes:
    return Report(report=value, channel=None if channel is None else channel.descriptor()).model_dump_json().encode()


def policy_key(*names: Any) -> bytes:
    return hashlib.sha256(repr(names).encode()).digest()[:16]


# --- one good request for each command ---

MINE = {"operator": "op", "collector": "app", "insurer": "acme", "auditor": "aud"}
KEY = policy_key("a policy").hex()


QUESTION = Question(
    collector="App Ltd",
    texts={"en": QuestionText(question="Your sex?", groups=("Female", "Male"), purpose="Fair prices.")},
)


def study_spec(collectors=("app",), insurers=("acme",), title="Motor", question=QUESTION):
    attribute = KnownChannel(channel=CHANNEL.descriptor())
    return StudySpec(title=title, attribute=attribute, collectors=collectors, insurers=insurers, question=question)


def text(message):
    return message.model_dump_json().encode()


# What each command is asked for with: method, address with names of things, body, its kind.
ASKED = {
    "put_study": ("PUT", "/v1/studies/{study}", lambda: text(study_spec()), JSON),
    "open_study": ("POST", "/v1/studies/{study}/open", bytes, None),
    "begin_epoch": ("POST", "/v1/studies/{study}/epochs/2", bytes, None),
    "close_study": ("POST", "/v1/studies/{study}/close", bytes, None),
    "get_study": ("GET", "/v1/studies/{study}", bytes, None),
    "list_studies": ("GET", "/v1/studies", bytes, None),
    "count_answers": ("GET", "/v1/studies/{study}/answers", bytes, None),
    "put_report": ("PUT", "/v1/studies/{study}/reports/" + KEY, report, JSON),
    "withdraw_report": ("DELETE", "/v1/studies/{study}/reports/" + KEY, bytes, None),
    "withdraw_now": ("POST", "/v1/studies/{study}/withdrawals", bytes, None),
    "put_report_batch": ("PUT", "/v1/studies/{study}/report-parts/7", report_part, BATCH),
    "put_portfolio": ("PUT", "/v1/portfolios/{open}", lambda: text(portfolio_spec()), JSON),
    "get_portfolio": ("GET", "/v1/portfolios/{open}", bytes, None),
    "put_part": (
        "PUT", "/v1/portfolios/{open}/parts/7", lambda: portfolio_part(portfolio_spec(), seed=99),
        PARQUET,
    ),
    "seal_portfolio": ("POST", "/v1/portfolios/{open}/seal", bytes, None),
    "delete_portfolio": ("DELETE", "/v1/portfolios/{open}", bytes, None),
    "put_fit": ("PUT", "/v1/fits/{new}", lambda: text(FitSpec(study="motor", portfolio="sealed", level=0.9)), JSON),
    "get_fit": ("GET", "/v1/fits/{waiting}?wait=0", bytes, None),
    "list_fits": ("GET", "/v1/fits", bytes, None),
    "cancel_fit": ("POST", "/v1/fits/{waiting}/cancel", bytes, None),
    "get_bundle": ("GET", "/v1/fits/{done}/bundle", bytes, None),
    "get_log": ("GET", "/v1/log?after=0", bytes, None),
    "get_inclusion": ("GET", "/v1/log/inclusion?entry=4&size=4", bytes, None),
}  # fmt: skip
THINGS = {"study": "motor", "open": "open", "waiting": "waiting", "done": "done", "new": "new"}
NO_THINGS = dict.fromkeys(THINGS, "no-such-thing")


def fill(world):
    """Put into a world what the requests of `ASKED` need."""
    world.declare(question=QUESTION)
    world.declare("marine", ("app2",), ("other",))
    for who, study in (("acme", "motor"), ("other", "marine")):
        world.portfolio(who, "sealed", study)
        world.portfolio(who, "open", study, seal=False)
        world.fit(who, "done", "sealed", study)
        world.succeed()
        world.fit(who, "waiting", "sealed", study, level=0.8)


def request(world, command, who, things=None, **options):
    method, target, body, kind = ASKED[command]
    return world.sign(who, method, target.format(**(things or THINGS)), body(), kind, **options)


def right_one(command):
    role = next(role for role in ("insurer", "collector", "operator") if role in RIGHTS[command])
    return MINE[role]
