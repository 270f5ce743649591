"""The parties of `soak.py`: each does its work without giving up, and remembers what it was told."""

from __future__ import annotations

import hashlib
import itertools
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import httpx
import numpy as np
from _soak_service import Node, Service

from fairpremium.parties import (
    AuditState,
    Client,
    Collector,
    Fit,
    FitSpec,
    Insurer,
    KnownChannel,
    Operator,
    Party,
    Problem,
    ServiceUnreachable,
    StudySpec,
    ThirdParty,
    audit_log,
    new_key,
    new_secret,
    read_key,
    read_trusted_keys,
    write_key,
)
from fairpremium.parties.clock import service_time
from fairpremium.parties.protocol import (
    BATCH_TYPE,
    KEY,
    ReleaseRules,
    Report,
    ReportsTaken,
    Rules,
    make_keys,
    write_batches,
)
from fairpremium.portfolios import zhang_liu_shi_2025
from fairpremium.privacy import RandomizedResponse

T = TypeVar("T")
CHANNEL = RandomizedResponse(["F", "M"], keep=0.8)
SECRET = new_secret()
ROWS = 600
TABLE = zhang_liu_shi_2025(n=ROWS, rng=1, age_band=True)
FRAME = TABLE.X.assign(y=TABLE.y, policy=[f"P{i}" for i in range(ROWS)])
REPORTED = [CHANNEL.reports.index(report) for report in CHANNEL.privatize(TABLE.sensitive, rng=2)]
COLLECTORS, INSURERS = ("app", "broker"), ("acme", "beta")
ROLES: dict[str, Any] = {"op": "operator", "aud": "auditor"}
ROLES |= dict.fromkeys(COLLECTORS, "collector") | dict.fromkeys(INSURERS, "insurer")
STUDY_SECONDS, EPOCH_SECONDS = 7200.0, 1800  # of simulated time
BATCH = 50
WAIT = 3.0  # seconds of a long poll
PENDING = 3  # fits of an insurer at a time

Reports = dict[tuple[str, str], dict[bytes, int]]  # by study and collector: the code of each key


def keys_of(policies: list[str]) -> list[bytes]:
    made = np.frombuffer(make_keys(SECRET, policies).buffers()[1], dtype=KEY)
    return [bytes(key) for key in made]


class Recorder(httpx.BaseTransport):
    """A connection to one web process that remembers all answers."""

    def __init__(self, load: Load, node: Node):
        self._load, self._node, self._inner = load, node, httpx.HTTPTransport()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        begin = time.monotonic()
        try:
            response = self._inner.handle_request(request)
        except httpx.TransportError:
            self._load.record(self._node, begin, 0)
            raise
        self._load.record(self._node, begin, response.status_code)
        return response

    def close(self) -> None:
        self._inner.close()


class Load:
    """All parties, and what they were told."""

    def __init__(self, home: Path, service: Service, seed: int):
        self.home, self.service = home, service
        self.answers: Counter[int] = Counter()  # by status; 0 for none
        self.excused: Counter[int] = Counter()  # those of an outage
        self.errors: list[str] = []  # what must not be
        self.study = ""  # the one that takes reports
        self.ready = threading.Event()  # its first reports are there
        self.stop = threading.Event()
        self.lock = threading.Lock()
        self.handed_over: deque[tuple[str, str, bytes]] = deque()  # that the operator is to withdraw
        self.collectors = [CollectorLoad(self, name, random.Random(f"{seed} {name}")) for name in COLLECTORS]
        self.insurers = [InsurerLoad(self, name, random.Random(f"{seed} {name}")) for name in INSURERS]
        self.operator = OperatorLoad(self, "op", random.Random(f"{seed} op"))
        self.auditor = AuditorLoad(self, "aud", random.Random(f"{seed} aud"))
        self.actors: list[Actor] = [*self.collectors, *self.insurers, self.operator, self.auditor]

    def register(self) -> None:
        """Make the folder, and register the keys of all parties."""
        party = ThirdParty(self.service.folder)
        for name, role in ROLES.items():
            write_key(self.home / f"{name}.key", new_key())
            party.add_key(read_key(self.home / f"{name}.key").public_key, party=name, role=role)
        spec, who = self.operator.study_spec(0), Party("op", "operator")
        party.put_study(who, "study-0", spec)
        party.open_study(who, "study-0")
        party.close()
        self.study = "study-0"

    def start(self) -> None:
        for actor in self.actors:
            actor.start()

    def finish(self) -> None:
        """Let all parties finish what they are doing."""
        self.stop.set()
        for actor in self.actors:
            actor.join(300.0)
            if actor.is_alive():
                self.errors.append(f"{actor.name} does not end")

    def trusted(self) -> list[Any]:
        return [read_trusted_keys(self.service.folder / "service.key.pub")]

    def record(self, node: Node, at: float, status: int) -> None:
        with self.lock:
            self.answers[status] += 1
            if status == 0 or status >= 500:
                if node.may_fail(at) or node.may_fail(time.monotonic()):
                    self.excused[status] += 1
                else:
                    self.errors.append(f"{node.name}: {status or 'no answer'}")

    def acknowledged(self) -> Reports:
        """The reports that were acknowledged and not withdrawn."""
        with self.lock:
            return {place: dict(told) for actor in self.collectors for place, told in actor.told.items()}

    def rotate_key(self) -> None:
        """Give a collector another key; the old one ends after some hours."""
        actor = self.collectors[0]
        path = self.home / f"{actor.name}-{actor.changes + 1}.key"
        write_key(path, new_key())
        public = path.with_name(f"{path.name}.pub")
        self.service.run(
            "keys", "rotate", "party", public, "--party", actor.name, "--days", "0.1", "--folder", self.service.folder
        )
        time.sleep(2.0)  # until all processes know it
        actor.key, actor.changes = path, actor.changes + 1


class Actor(threading.Thread):
    """A party: what it asks for, it asks for until there is an answer, now here, now there."""

    kind: type[Client] = Client
    pace = 0.1  # seconds between two things that it does

    def __init__(self, load: Load, name: str, rng: random.Random):
        super().__init__(name=name, daemon=True)
        self.load, self.rng = load, rng
        self.key, self.changes = load.home / f"{name}.key", 0
        self.done: Counter[str] = Counter()
        self._clients: dict[tuple[Path, str], Any] = {}

    def run(self) -> None:
        try:
            while not self.load.stop.is_set():
                self.act()
                time.sleep(self.pace * self.rng.uniform(0.5, 1.5))
            self.end()
        except Exception as error:
            self.load.errors.append(f"{self.name}: {type(error).__name__}: {error}")
        finally:
            for client in self._clients.values():
                client.close()

    def act(self) -> None:
        raise NotImplementedError

    def end(self) -> None:
        """What is left to do when the load is over."""

    def ask(self, request: Callable[[Any], T]) -> T:
        """Ask one of the web processes, and another one if it does not answer."""
        until = time.monotonic() + 240.0
        while True:
            try:
                return request(self._client())
            except ServiceUnreachable:
                if time.monotonic() > until:
                    raise
            except Problem as problem:
                if problem.status < 500 or time.monotonic() > until:
                    raise
            time.sleep(0.05)

    def _client(self) -> Any:
        node = self.rng.choice(self.load.service.webs)
        place = (self.key, node.url)
        if place not in self._clients:
            self._clients[place] = self.kind(
                node.url,
                read_key(self.key),
                transport=Recorder(self.load, node),
                timeout=60.0,
                pause=lambda seconds: time.sleep(min(seconds, 0.3)),
            )
        return self._clients[place]


class CollectorLoad(Actor):
    """Sends reports one by one and in batches, some of them again, and withdraws some."""

    kind = Collector

    def __init__(self, *args: Any):
        super().__init__(*args)
        self.told: Reports = {}
        self.tried: dict[tuple[str, str], set[bytes]] = {}  # also those that got no answer before the study closed
        self.withdrawn: dict[tuple[str, str], set[bytes]] = {}
        self._numbers = itertools.count()
        self._batches: dict[str, list[bytes]] = {}

    def act(self) -> None:
        study = self.load.study
        place = (study, self.name)
        if place not in self.told:
            with self.load.lock:
                self.told[place], self.tried[place], self.withdrawn[place] = {}, set(), set()
            self._batches[study] = []
            self._begin(study)
        told = self.told[place]
        what = self.rng.choices(["single", "again", "batch", "batch again", "withdraw"], [80, 8, 5, 3, 4])[0]
        try:
            if what == "single":
                self._send_single(study, self._new_keys(1)[0], self.rng.randrange(2))
            elif what == "again" and told:
                key = self.rng.choice(list(told))
                self._send_single(study, key, told[key])
            elif what == "batch":
                self._send_batch(study, dict.fromkeys(self._new_keys(BATCH), self.rng.randrange(2)))
            elif what == "batch again" and self._batches[study]:
                n = self.rng.randrange(len(self._batches[study]))
                self._put_batch(study, n, self._batches[study][n])
            elif what == "withdraw" and told:
                self._withdraw(study, self.rng.choice(list(told)))
            else:
                return
            self.done[what] += 1
        except Problem as problem:
            if problem.code != "study-not-open":
                raise
            if self.load.study == study and not self.load.stop.is_set():
                time.sleep(0.2)  # the next one opens

    def _begin(self, study: str) -> None:
        """Send what the insurers' policies reported; the other collector has nothing of them."""
        if self.name == COLLECTORS[0]:
            self._send_batch(study, dict(zip(keys_of(list(FRAME["policy"])), REPORTED, strict=True)))
            self.load.ready.set()

    def _new_keys(self, count: int) -> list[bytes]:
        return keys_of([f"{self.name} {next(self._numbers)}" for _ in range(count)])

    def _send_single(self, study: str, key: bytes, code: int) -> None:
        message = Report(report=CHANNEL.reports[code], channel=CHANNEL.descriptor())
        self.tried[study, self.name].add(key)
        self.ask(lambda client: client.send_message(f"/v1/studies/{study}/reports/{key.hex()}", message))
        with self.load.lock:
            self.told[study, self.name][key] = code

    def _send_batch(self, study: str, reports: dict[bytes, int]) -> None:
        keys = np.frombuffer(b"".join(reports), dtype=KEY)
        labels = [CHANNEL.reports[code] for code in reports.values()]
        body = next(write_batches(keys, labels, CHANNEL.reports, CHANNEL, batches=1))
        self.tried[study, self.name] |= set(reports)
        n = len(self._batches[study])
        self._batches[study].append(body)
        self._put_batch(study, n, body)
        with self.load.lock:
            self.told[study, self.name] |= reports

    def _put_batch(self, study: str, n: int, body: bytes) -> None:
        path = f"/v1/studies/{study}/report-parts/{n}"
        self.ask(lambda client: client.put_file(path, body, BATCH_TYPE, ReportsTaken))

    def _withdraw(self, study: str, key: bytes) -> None:
        """Withdraw a report, or let the operator do so; whichever it is, it is never sent again."""
        with self.load.lock:
            del self.told[study, self.name][key]
            self.withdrawn[study, self.name].add(key)
        if self.rng.random() < 0.2:
            self.load.handed_over.append((study, self.name, key))
        else:
            self.ask(lambda client: client.send("DELETE", f"/v1/studies/{study}/reports/{key.hex()}"))


class InsurerLoad(Actor):
    """Uploads portfolios, asks for fits, waits for them, fetches and checks bundles, cancels and erases."""

    kind = Insurer
    pace = 0.5

    def __init__(self, *args: Any):
        super().__init__(*args)
        self.asked: set[str] = set()
        self.states: Counter[str] = Counter()
        self._portfolio = ("", "")  # study and id
        self._numbers, self._uploads = itertools.count(), itertools.count()
        self._pending: deque[tuple[str, str]] = deque()  # fit and portfolio
        self._bundles: dict[str, str] = {}  # digests of fits of the present portfolio

    def act(self) -> None:
        if not self.load.ready.is_set():
            return
        if self._portfolio[0] != self.load.study:
            self._upload(self.load.study)
        if len(self._pending) < PENDING:
            self._ask_for_fit()
        self._look()
        what = self.rng.random()
        if what < 0.1 and self._bundles:
            self._fetch(self.rng.choice(list(self._bundles)))
        elif what < 0.13 and self._bundles:
            self._erase()

    def end(self) -> None:
        while self._pending:
            self._look()

    def _upload(self, study: str) -> None:
        portfolio = f"portfolio-{next(self._uploads)}"
        options: dict[str, Any] = {"study": study, "portfolio": portfolio, "policy": "policy", "outcome": "y"}
        self.ask(lambda client: client.upload(FRAME, secret=SECRET, rows_per_part=ROWS // 3, **options))
        self._portfolio, self._bundles = (study, portfolio), {}
        self.done["portfolio"] += 1

    def _ask_for_fit(self) -> None:
        study, portfolio = self._portfolio
        n = next(self._numbers)
        spec = FitSpec(study=study, portfolio=portfolio, release="randomized", level=0.6 + 0.001 * (n % 390))
        try:
            self.ask(lambda client: client.fit(f"fit-{n}", spec))
        except Problem as problem:
            if problem.code != "quota":
                raise
            self.done["quota"] += 1
            return
        self.asked.add(f"fit-{n}")
        self._pending.append((f"fit-{n}", portfolio))
        if self.rng.random() < 0.1:
            self.ask(lambda client: client.cancel(f"fit-{n}"))
            self.done["cancel"] += 1

    def _look(self) -> None:
        """Wait a little for the oldest fit, and fetch its bundle if there is one."""
        if not self._pending:
            return
        fit, portfolio = self._pending[0]
        seen = self.ask(lambda client: client.get(f"/v1/fits/{fit}", Fit, wait=WAIT))
        self.done["long poll"] += 1
        if seen.ended is None:
            self._pending.rotate(-1)
            return
        self._pending.popleft()
        self.states[seen.state] += 1
        if seen.state == "succeeded" and portfolio == self._portfolio[1]:
            self._bundles[fit] = str(seen.sha256)
            self._fetch(fit)
        elif seen.state not in ("succeeded", "refused", "cancelled"):
            self.load.errors.append(f"{self.name}: {fit} {seen.state}: {seen.problem}")

    def _fetch(self, fit: str) -> None:
        path = self.load.home / f"{self.name}.bundle"
        self.ask(lambda client: client.fetch(fit, path, trusted=self.load.trusted()))  # raises what is wrong with it
        if hashlib.sha256(path.read_bytes()).hexdigest() != self._bundles[fit]:
            self.load.errors.append(f"{self.name}: {fit} has another bundle than before")
        self.done["bundle"] += 1

    def _erase(self) -> None:
        """Erase the portfolio; its fits must have ended."""
        portfolio = self._portfolio[1]
        for fit, of in list(self._pending):
            if of == portfolio:
                self.ask(lambda client, fit=fit: client.cancel(fit))  # type: ignore[misc]
        self.end()
        self.ask(lambda client: client.erase(portfolio))
        self._portfolio, self._bundles = ("", ""), {}
        self.done["erasure"] += 1


class OperatorLoad(Actor):
    """Opens a study every other hour and closes the one before; begins epochs, and withdraws at once."""

    kind = Operator
    pace = 2.0

    def __init__(self, *args: Any):
        super().__init__(*args)
        self.studies = 1
        self._next = service_time() + STUDY_SECONDS

    def study_spec(self, number: int) -> StudySpec:
        return StudySpec(
            title=f"Study {number}",
            attribute=KnownChannel(channel=CHANNEL.descriptor()),
            collectors=COLLECTORS,
            insurers=INSURERS,
            rules=Rules(fits=500),
            release=ReleaseRules(epsilon=100.0),
            epoch_seconds=EPOCH_SECONDS,
        )

    def act(self) -> None:
        if service_time() >= self._next:
            self._next += STUDY_SECONDS
            self._open()
        elif self.load.handed_over:
            self._withdraw(now=self.rng.random() < 0.3)
        elif self.rng.random() < 0.05:
            try:
                self.ask(lambda client: client.begin_epoch(self.load.study))
                self.done["epoch"] += 1
            except Problem as problem:
                if problem.code != "epoch-over":  # a fit was faster
                    raise

    def end(self) -> None:
        while self.load.handed_over:
            self._withdraw(now=False)

    def _open(self) -> None:
        old, new = self.load.study, f"study-{self.studies}"
        self.ask(lambda client: client.put_study(new, self.study_spec(self.studies)))
        self.ask(lambda client: client.set_state(new, "open"))
        self.studies += 1
        self.load.ready.clear()
        self.load.study = new
        self.ask(lambda client: client.set_state(old, "close"))

    def _withdraw(self, *, now: bool) -> None:
        study, _, key = self.load.handed_over.popleft()
        self.ask(lambda client: client.withdraw(study, key, now=now))
        self.done["withdrawal at once" if now else "withdrawal"] += 1


class AuditorLoad(Actor):
    """Reads the log, and checks that each checkpoint continues the one before."""

    pace = 3.0

    def __init__(self, *args: Any):
        super().__init__(*args)
        self.state: AuditState | None = None
        self.checkpoints: list[Any] = []

    def act(self) -> None:
        entries = "all" if self.done["check"] % 5 == 0 else "none"
        trusted = self.load.trusted() if self.state is None else ()
        found, state = self.ask(lambda client: audit_log(client, trusted=trusted, state=self.state, entries=entries))
        self.done["check"] += 1
        if state is None:
            raise RuntimeError(f"entry {found.first_bad}: {found.reason}")
        self.state = state
        self.checkpoints.append(state.checkpoint)
