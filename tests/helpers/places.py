"""A third party's folder in which something can be done of every kind, and copies of it."""

from __future__ import annotations

import json
import re
import shutil

import httpx
import numpy as np
from sqlalchemy import select

from fairpremium.parties import Feature, FitSpec, KnownChannel, PortfolioSpec, StudySpec
from fairpremium.parties.clients._client import AppTransport
from fairpremium.parties.clients._signed_auth import SignedAuth
from fairpremium.parties.http._app import create_app
from fairpremium.parties.protocol._invitations import invitation_key, write_token
from fairpremium.parties.protocol._keys import new_key, read_key, write_key
from fairpremium.parties.protocol._linkage import LinkageSecret, make_keys
from fairpremium.parties.protocol._messages import Question, QuestionText, Report
from fairpremium.parties.protocol._policy_keys import KEY
from fairpremium.parties.protocol._portfolio_part import write_portfolio_part
from fairpremium.parties.protocol._report_batch import BATCH_TYPE
from fairpremium.parties.service._context import Party
from fairpremium.parties.service._housekeeping import clean
from fairpremium.parties.service._settings import ServiceSettings
from fairpremium.parties.service._third_party import ThirdParty
from fairpremium.parties.store.schema import metadata
from fairpremium.portfolios import zhang_liu_shi_2025
from fairpremium.privacy import RandomizedResponse
from helpers.batches import write_batch
from helpers.quick_fits import AT_ONCE

CHANNEL = RandomizedResponse(["F", "M"], keep=0.8)
ROWS = 600
ROLES = {"op": "operator", "app": "collector", "acme": "insurer"}
APP, ACME, OP = Party("app", "collector"), Party("acme", "insurer"), Party("op", "operator")
ANSWER = "answer.json"
JSON, PARQUET = "application/json", "application/vnd.apache.parquet"
VOLATILE = {"seq", "time", "salt", "nodes", "hash", "created", "ended", "closed", "secret", "signature"}
VOLATILE |= {"lease_until", "lease_token", "erased", "taken"}
DRAWN = {"epochs": {"reports", "steps"}, "answer_counts": {"steps"}}  # with random bytes of the epoch, or of the number
_SEAL = re.compile(r'"sealed":"[0-9a-f]{64}"')


def name_keys(start, stop):
    """Keys of policies."""
    made = make_keys(SECRET, [f"P{i}" for i in range(start, stop)])
    return np.frombuffer(made.buffers()[1], dtype=KEY)


SECRET = LinkageSecret(bytes(range(32)))
TABLE = zhang_liu_shi_2025(n=ROWS, rng=1, age_band=True)
REPORTS = CHANNEL.privatize(TABLE.sensitive, rng=2)
FRAME = TABLE.X.assign(y=TABLE.y, key=[bytes(key) for key in name_keys(0, ROWS)])
SPEC = PortfolioSpec(
    study="motor",
    features=tuple(
        Feature(name=name, kind="number" if FRAME[name].dtype.kind in "bfiu" else "category") for name in TABLE.X
    ),
    outcome="y",
)
QUESTION = Question(
    collector="App Ltd",
    texts={
        "en": QuestionText(question="What is your sex?", groups=("Female", "Male"), purpose="Fair prices."),
        "de": QuestionText(question="Welches Geschlecht?", groups=("Weiblich", "Männlich"), purpose="Faire Preise."),
    },
)
STUDY = StudySpec(
    title="Motor",
    attribute=KnownChannel(channel=CHANNEL.descriptor()),
    collectors=("app",),
    insurers=("acme",),
    question=QUESTION,
)


def batch(start, stop):
    return write_batch(name_keys(start, stop), REPORTS[start:stop], ["F", "M"], CHANNEL)


def fit_spec(**changes):
    return FitSpec(study="motor", portfolio="sealed", **{"release": "randomized", **changes})


def build(folder, database=None):
    """A folder with a study, reports, a sealed and an open portfolio, a fit that waits and one that is over."""
    party = ThirdParty(folder, database=database)
    for name, role in ROLES.items():
        write_key(folder / f"{name}.key", new_key())
        party.add_key(read_key(folder / f"{name}.key").public_key, party=name, role=role)
    party.put_study(OP, "motor", STUDY)
    party.open_study(OP, "motor")
    for n in range(7):  # the eighth run is merged with these
        party.put_report_batch(APP, "motor", n, batch(70 * n, 70 * n + 70))
    party.put_report(APP, "motor", bytes(name_keys(500, 501)[0]), message(500))
    answer = {"token": token(party, folder, 502), "report": REPORTS[502], "attempt": "a" * 22}
    (folder / ANSWER).write_text(json.dumps(answer))
    for name in ("sealed", "open", "full", "old"):
        party.put_portfolio(ACME, name, SPEC)
    for name in ("sealed", "full", "old"):
        party.put_part(ACME, name, 0, write_portfolio_part(FRAME[: ROWS // 2], SPEC))
        party.put_part(ACME, name, 1, write_portfolio_part(FRAME[ROWS // 2 :], SPEC))
    party.put_part(ACME, "old", 2, write_portfolio_part(FRAME[:1].assign(key=[bytes(16)]), SPEC))
    party.seal_portfolio(ACME, "sealed")
    party.put_fit(ACME, "waits", fit_spec())
    party.begin_epoch(OP, "motor", 1)  # takes the snapshot: fits of copies draw the same
    party.put_fit(ACME, "over", fit_spec(level=0.9))
    party.cancel_fit(ACME, "over")
    party.close()


def token(party, folder, i, expires=2**32, study="motor"):
    """The invitation of a policy, for the people of `app`."""
    key = bytes(name_keys(i, i + 1)[0])
    sealed_to = invitation_key(party.context.key)
    return write_token(read_key(folder / "app.key"), sealed_to, study=study, key=key, expires=expires)


def message(i):
    return Report(report=REPORTS[i], channel=CHANNEL.descriptor())


def requests():
    """Every kind of request that changes something: who asks, and what."""
    part = write_portfolio_part(FRAME[:100], SPEC)
    text = {
        "report": message(501),
        "study": STUDY.model_copy(update={"title": "Another"}),
        "fit": fit_spec(level=0.8),
        "portfolio": SPEC,
    }
    body = {name: value.model_dump_json().encode().hex() for name, value in text.items()}
    key, withdrawn = (bytes(name_keys(i, i + 1)[0]).hex() for i in (501, 10))
    return {
        "report": ("app", ["PUT", f"/v1/studies/motor/reports/{key}", JSON, body["report"]]),
        "withdraw": ("app", ["DELETE", f"/v1/studies/motor/reports/{withdrawn}", "", ""]),
        "batch": ("app", ["PUT", "/v1/studies/motor/report-parts/7", BATCH_TYPE, batch(490, 590).hex()]),
        "study": ("op", ["PUT", "/v1/studies/motor-2", JSON, body["study"]]),
        "portfolio": ("acme", ["PUT", "/v1/portfolios/new", JSON, body["portfolio"]]),
        "part": ("acme", ["PUT", "/v1/portfolios/open/parts/0", PARQUET, part.hex()]),
        "seal": ("acme", ["POST", "/v1/portfolios/full/seal", "", ""]),
        "erase": ("acme", ["DELETE", "/v1/portfolios/old", "", ""]),
        "fit": ("acme", ["PUT", "/v1/fits/new", JSON, body["fit"]]),
        "answer": ("app", ["POST", "/collect/v1/report", JSON, ANSWER]),
        "epoch": ("op", ["POST", "/v1/studies/motor/epochs/2", "", ""]),
        "cancel": ("acme", ["POST", "/v1/fits/waits/cancel", "", ""]),
    }  # fmt: skip


REQUESTS = requests()


class Place:
    """A folder and its database, and copies of both."""

    def __init__(self, folder, database=None, postgres=None):
        self.folder = folder
        self.database = database
        self._postgres = postgres

    def copy(self, folder):
        """The same in another place."""
        shutil.copytree(self.folder, folder)
        if self._postgres is None:
            return Place(folder)
        name = f"{self.database.rpartition('/')[2]}_copy"
        self._postgres.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        self._postgres.execute(f"CREATE DATABASE {name} TEMPLATE {self.database.rpartition('/')[2]}")
        return Place(folder, self._postgres.url(name), self._postgres)

    @property
    def options(self):
        return {"folder": str(self.folder), "database": self.database}

    def open(self, **options):
        return ThirdParty(self.folder, database=self.database, **{"limits": AT_ONCE, **options})

    def look(self):
        """What the tables say, but for times and draws, and the files that something refers to."""
        party = self.open()
        try:
            assert party.verify_log().intact
            seen = {}
            with party.context.database.reading() as connection:
                for name, table in metadata.tables.items():
                    if name not in ("nonces", "commits", "log_head"):
                        left_out = VOLATILE | DRAWN.get(name, set())
                        columns = [column for column in table.columns if column.name not in left_out]
                        rows = (_SEAL.sub("", repr(row)) for row in connection.execute(select(*columns)))
                        seen[name] = sorted(rows)
            clean(party.context, older_than=-1.0)  # what was left over may go: it must not be needed
            seen["files"] = sorted(party.context.files)
            rest = {path.name for path in party.context.files.folder.iterdir()} - set(seen["files"])
            assert rest <= {".lock"}
            return seen
        finally:
            party.close()


def resolve(place, request):
    """A request with its body, which may be in a file of the place."""
    *head, body = request
    return [*head, (place.folder / ANSWER).read_bytes().hex() if body == ANSWER else body]


def send(place, who, request):
    """The status and the body of an answer."""
    method, path, kind, body = resolve(place, request)
    content = {"content": bytes.fromhex(body), "headers": {"Content-Type": kind}} if kind else {}
    party = place.open()
    app = create_app(
        ServiceSettings(folder=place.folder, database=place.database, collect=True, hosts=("third.party",)), party
    )
    transport = AppTransport(app)
    key = read_key(place.folder / f"{who}.key")
    with httpx.Client(base_url="http://third.party", auth=SignedAuth(key), transport=transport) as client:
        response = client.request(method, path, **content)
    party.close()
    return [response.status_code, response.text]


def plain(answers):
    """Answers without times, and without the drawn numbers of reports."""
    left_out = r'"(created|ended|closed|ends)":"[^"]*"|"reports":\d+'
    return [[status, re.sub(left_out, "", text)] for status, text in answers]
