"""Where every number comes from that leaves the third party: a table of all fields, and who may read stored reports.

The origin of a field is one of:

- "public": declared by a party, an id, the time or the state of a request, a digest or signature of such things.
- "own": what the party that sees it has sent itself, or counts of it.
- "released": computed by `parties.release` from noised sums or randomized reports, or a count with noise.
- "machine": what the disk of the third party's machine shows to whoever runs it, in steps of 0.1 GB; on one page, for
  the operator alone.

A field without an entry here fails: whoever adds one says where it comes from.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import typing
from collections import defaultdict

import numpy as np
import pandas as pd
import pytest
from pydantic import BaseModel

from benchmarks._service_attacks import LOOSE, Service
from fairpremium.parties.console import _fit_views, _key_views, _log_views, _operation_views, _study_views
from fairpremium.parties.console._rights import RIGHTS
from fairpremium.parties.protocol._messages import Question, QuestionText, ReleaseRules
from fairpremium.parties.service._context import Party
from fairpremium.parties.service.accounts import _accounts, _logins
from fairpremium.parties.service.operations import EVENTS, ServiceMeasures

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

# Messages that a party sends, and sees again as it sent them: nothing in them is computed from reports.
DECLARED = {
    "StudySpec", "KnownChannel", "EstimatedChannel", "DeclaredAnchor", "TrueAttribute", "SeveralAttributes",
    "NamedAttribute", "Retention", "Rules", "ReleaseRules", "Question", "QuestionText", "PortfolioSpec", "Feature",
    "PerilColumns", "FitSpec", "ClaimFit", "ReportSpec",
}  # fmt: skip

_STUDY = {"id": "public", "title": "public", "attribute": "public", "state": "public"}
_EPOCH = {"number": "public", "closed": "public", "ends": "public"}
ANSWERS = {
    "OperatorStudy": {**_STUDY, "spec": "public", "epochs": "released", "fits": "public"},
    "CollectorStudy": {**_STUDY, "accepted": "own", "accepted_by_attribute": "own", "invitation_key": "public"},
    "InsurerStudy": {
        **_STUDY, "families": "public", "models": "public", "fits_left": "own", "rules": "public", "release": "public",
        "spent": "own", "epoch": "public",
    },
    "Spent": {"epsilon": "own", "by_attribute": "own", "with_other_studies": "own"},  # by what was asked for
    "Epoch": _EPOCH,
    "CountedEpoch": {**_EPOCH, "counted": "public", "reports": "released", "standard_error": "public"},
    "Answered": {
        "study": "public", "answered": "released", "standard_error": "public", "releases": "public",
        "released": "public", "epsilon": "public", "delta": "public",
    },
    "ReportsTaken": {"rows": "own", "sha256": "own"},
    "Portfolio": {"id": "own", "spec": "own", "state": "own", "parts": "own", "rows": "own", "sha256": "own"},
    "PartTaken": {"n": "own", "rows": "own", "sha256": "own"},
    "Fit": {
        "id": "own", "spec": "own", "epoch": "public", "state": "released", "phase": "released", "progress": "released",
        "refusal": "released", "problem": "released", "matched": "released", "created": "public", "ended": "public",
        "sha256": "released",
    },
    # The column comes from the insurer's rows, which have no reports where it is looked for (`_public_data`).
    "Refusal": {"rule": "released", "title": "public", "limit": "public", "column": "own"},
    "LogPage": {"entries": "public", "checkpoint": "public", "more": "public"},
    "Entry": {
        "seq": "public", "time": "public", "party": "public", "event": "released", "body": "released",
        "salt": "public",
    },
    "Checkpoint": {"size": "public", "root": "public", "key_id": "public", "signature": "public"},
    "LogProof": {"hashes": "public"},
    "PublicKey": {
        "key_id": "public", "algorithm": "public", "public_key": "public", "since": "public", "until": "public",
        "until_size": "public", "by_previous": "public", "by_next": "public",
    },
}  # fmt: skip

# Answers without a message: what they are.
PLAIN = {
    "put_report": "nothing", "withdraw_report": "nothing", "delete_portfolio": "nothing", "get_bundle": "MANIFEST",
    "metrics": "MEASURES, and counts of requests that are no reports", "healthz": "public", "readyz": "public",
    "openapi": "public",
}  # fmt: skip

CONSOLE = {
    "InsurerView": {
        "name": "public", "has_key": "public", "fits": "public", "spent": "public", "by_attribute": "public",
        "with_other_studies": "public", "budget": "public",
    },
    "StudyView": {
        "id": "public", "spec": "public", "status": "public", "groups": "public", "attributes": "public",
        "channel": "public", "epsilon": "public", "collectors": "public", "insurers": "public", "epochs": "released",
        "answered": "released", "created": "public",
    },
    "FitView": {
        "party": "public", "id": "public", "epoch": "public", "state": "released", "phase": "released",
        "progress": "released", "attempt": "public", "matched": "released", "sha256": "released", "created": "public",
        "ended": "public", "erased": "public", "attempts": "public", "spec": "public", "is_cancelling": "public",
        "is_silent": "public", "refusal": "released", "problem": "released", "summary": "released", "cost": "public",
    },
    "KeyView": {
        "party": "public", "role": "public", "key_id": "public", "since": "public", "ends": "public", "now": "public",
    },
    "InsurerQueueView": {
        "insurer": "public", "waiting": "public", "allowed": "public", "running": "public", "waited": "public",
        "ran": "public",
    },
    "QuotaView": {"insurer": "public", "stored": "own", "allowed": "public"},
    "StorageView": {
        "database": "machine", "files": "machine", "free": "machine", "disk": "machine", "insurers": "own",
    },
    "MatchView": {
        "study": "public", "insurer": "public", "portfolio": "own", "fit": "own", "ended": "public",
        "matched": "released", "rows": "own",
    },
    "Account": {"name": "public", "role": "public", "created": "public", "disabled": "public"},
    "Login": {
        "id": "public", "account": "public", "role": "public", "address": "public", "created": "public",
        "seen": "public", "expires": "public",
    },
    "QueueView": {"waiting": "public", "running": "public", "silent": "public", "waiting_since": "public"},
    "EntryView": {
        "seq": "public", "time": "public", "party": "public", "event": "released", "facts": "released",
        "more": "released",
    },
    "LogView": {"entries": "public", "older": "public", "newer": "public", "last": "public"},
}  # fmt: skip

# Keys of the manifest; a name that ends with a dot stands for all keys below it, which a party declared as a whole.
MANIFEST = {
    "format": "public", "version": "public", "key_id": "public", "versions.fairpremium": "public",
    "study.id": "public", "study.title": "public", "study.attribute.": "public", "true_attribute": "public",
    "channel.": "public", "epsilon": "public", "fit.id": "own", "fit.spec.": "own", "details.": "own",
    "epoch.number": "public", "epoch.closed": "public", "portfolio.sha256": "own", "portfolio.rows": "own",
    "columns[]": "own", "features[].name": "own", "features[].kind": "own", "groups[]": "public", "level": "own",
    "matched": "released",
    "disclosure.mechanism": "public", "disclosure.epsilon": "public", "disclosure.delta": "public",
    "disclosure.statement": "public", "disclosure.report_epsilon": "public", "disclosure.rules.": "public",
    "disclosure.passed[].rule": "public", "disclosure.passed[].title": "public", "disclosure.passed[].limit": "public",
    "disclosure.noise.keep": "public", "disclosure.noise.epsilon": "public", "disclosure.noise.mu": "public",
    "disclosure.noise.sums[].sum": "public", "disclosure.noise.sums[].numbers": "public",
    "disclosure.noise.sums[].mu": "public", "disclosure.noise.sums[].sigma": "released",
    "panel[].id": "public", "panel[].number": "public", "panel[].question": "public", "panel[].decide": "public",
    "panel[].answer": "released", "panel[].value": "released", "panel[].low": "released", "panel[].high": "released",
    "panel[].tone": "released", "panel[].verdict": "released",
    "findings[].heading": "released", "findings[].text": "released", "findings[].tone": "released",
    "log.size": "public", "log.root": "public", "log.key_id": "public", "log.signature": "public",
    **{f"members.{name}.{what}": "released" for what in ("sha256", "size")
       for name in ("model.json", "premiums.parquet", "report.html", "selftest.parquet")},
}  # fmt: skip

_PART = {"portfolio": "own", "sha256": "own"}
LOG = {
    "key.added": {"key_id": "public", "role": "public"},
    "key.ends": {"key_id": "public", "ends": "public"},
    "key.revoked": {"key_id": "public"},
    "service.restored": {},
    "service.key.rotated": {"key_id": "public", "previous": "public", "lost": "public"},
    "study.secret.rotated": {"study": "public"},
    "study.declared": {"study": "public", "spec": "public"},
    "study.open": {"study": "public"},
    "study.closed": {"study": "public"},
    "epoch.begun": {"study": "public", "epoch": "public"},
    "epoch.sealed": {"study": "public", "epoch": "public", "sealed": "released"},  # another one in every epoch
    "answers.released": {"study": "public", "answered": "released"},
    "reports.withdrawn": {"study": "public", "epoch": "public"},  # by the operator, at once
    "reports.erased": {"study": "public", "because": "public"},  # at a date that the study declares
    "portfolio.declared": {"portfolio": "own", "study": "own", "features": "own"},
    "portfolio.part": {**_PART, "part": "own", "rows": "own"},
    "portfolio.sealed": {**_PART, "rows": "own"},
    "portfolio.erased": _PART,
    "fit.requested": {"fit": "own", "epoch": "public", "spec": "own"},
    "fit.started": {"fit": "own", "attempt": "public"},
    "fit.cancel": {"fit": "own"},
    "fit.succeeded": {"fit": "own", "sha256": "released"},
    "fit.refused": {"fit": "own", "refusal": "released"},
    "fit.failed": {"fit": "own", "problem": "released"},
    "fit.cancelled": {"fit": "own"},
    "bundle.fetched": {"fit": "own", "sha256": "released"},
    "bundle.erased": {"fit": "own", "sha256": "released", "because": "public"},
    "account.added": {"account": "public", "role": "public"},
    "account.disabled": {"account": "public"},
    "account.password": {"account": "public"},
    "login.opened": {"account": "public", "login": "public"},
    "login.ended": {"account": "public", "login": "public", "by": "public"},
    "login.failed": {"account": "public", "guesses": "public"},  # people who guess; nobody who reports
    # At most a few in an hour, whoever sends how many requests.
    "security.bad-signature": {"key_id": "public", "hour": "public"},
    "security.key-refused": {"key_id": "public", "hour": "public"},
}

# Lines of the operational log, which is for whoever runs the service: an event has the fields that `EVENTS` lists.
LINE_FIELDS = {
    **dict.fromkeys(("version", "database", "worker", "exit", "file", "what", "error", "where", "name"), "the process"),
    "text": "the process",  # a fixed text of the web server, without the values that it puts in
    **dict.fromkeys(("method", "route", "status", "duration", "problem"), "a request that is no report and no answer"),
    **dict.fromkeys(("party", "key_id", "account"), "public"),
    **dict.fromkeys(("fit", "attempt"), "public"),
    **dict.fromkeys(("rule", "seconds"), "released"),
}

# Metrics, for whoever may open the console or has the token.
MEASURES = {
    "fits": "released", "oldest_wait": "public", "workers": "public", "leases_held": "public",
    "leases_expired": "public", "attempts": "public", "attempts_lost": "public", "epochs": "public",
    "key_seconds": "public", "portfolio_bytes": "own", "database_bytes": "in steps", "file_bytes": "in steps",
    "free_bytes": "in steps",
}  # fmt: skip


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    """Everything that the log tells of has happened, and two fits have a bundle."""
    with Service(tmp_path_factory.mktemp("origins") / "third-party") as service:
        text = QuestionText(question="Your sex?", groups=("Female", "Male"), purpose="Fair prices.")
        question = Question(collector="App Ltd", texts={"en": text})
        release = ReleaseRules(epsilon=30.0, randomized_epsilon=10.0)
        service.declare(rules=LOOSE, release=release, question=question)
        frame, rng = _rows(2100), np.random.default_rng(1)
        service.submit(frame["policy"], rng.choice(["F", "M"], len(frame)))
        service.report(["one more"], ["F"])
        service.upload(frame, "p1")
        service.upload(frame.assign(y=1.0), "p2")
        service.upload(_rows(5), "small")
        service.collector.send("GET", "/v1/studies/motor/answers")
        fits = {"gaussian": {}, "randomized": {}, "cannot": {"reference": {"F": 1.0}}}
        for name, more in fits.items():
            kind = "gaussian" if name == "gaussian" else "randomized"
            service.fit(name, "p1", release=kind, correction="inverse", **more)
        service.declare("strict")
        service.upload(frame.assign(planted=np.arange(len(frame)) < 2), "p3", "strict")
        service.fit("refused", "p3", "strict", release="gaussian", correction="inverse")
        service.insurer.fit("cancelled", service.insurer.watch("gaussian").spec)
        service.insurer.cancel("cancelled")
        service.manifests = [json.loads(service.bundle(name)["manifest.json"]) for name in ("gaussian", "randomized")]
        service.insurer.erase("small")
        service.operator.set_state("motor", "close")
        service.third_party.revoke_key(service.third_party.list_keys()[-1].key_id)
        service.entries = service.third_party.get_log(Party("aud", "auditor")).entries
        yield service


def _rows(count):
    rng = np.random.default_rng(3)
    x = rng.normal(size=count)
    return pd.DataFrame({"policy": [f"P{i}" for i in range(count)], "x": x, "y": 3 + x + rng.normal(size=count)})


def fields_of(kind, found):
    """Collect the fields of all messages in a type, by their names."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        if kind.__name__ not in found:
            found[kind.__name__] = set(kind.model_fields)
            for field in kind.model_fields.values():
                fields_of(field.annotation, found)
    elif isinstance(kind, type) and dataclasses.is_dataclass(kind):
        found[kind.__name__] = {field.name for field in dataclasses.fields(kind)}
    for part in typing.get_args(kind):
        fields_of(part, found)
    return found


def paths(value, name=""):
    """All keys of a document, with those above them."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from paths(inner, f"{name}.{key}" if name else key)
    elif isinstance(value, list) and value:
        for inner in value:
            yield from paths(inner, f"{name}[]")
    else:
        yield name


def test_every_field_of_every_answer_has_an_origin(story):
    found, plain = {}, set()
    for route in story.app.routes:
        if route.path == "/" or route.path.startswith("/console"):
            continue
        model = getattr(route, "response_model", None)
        if not fields_of(model, {}):
            plain.add(route.name)
        fields_of(model, found)
    assert plain == set(PLAIN)
    assert set(found) >= DECLARED
    assert {name: fields for name, fields in found.items() if name not in DECLARED} == {
        name: set(fields) for name, fields in ANSWERS.items()
    }
    assert {origin for fields in ANSWERS.values() for origin in fields.values()} == {"public", "own", "released"}


def test_every_field_of_every_page_has_an_origin():
    found = {}
    for module in (_fit_views, _key_views, _log_views, _operation_views, _study_views, _accounts, _logins):
        for name, kind in vars(module).items():
            is_shown = isinstance(kind, type) and kind.__module__ == module.__name__
            if is_shown and name not in ("Accounts", "Logins"):  # which read, and are shown nowhere
                found[name] = set(kind.__annotations__)
    assert found == {name: set(fields) for name, fields in CONSOLE.items()}


def test_what_the_machine_shows_is_on_one_page_of_the_operator(project_root):
    shown = {field for fields in CONSOLE.values() for field, origin in fields.items() if origin == "machine"}
    folder = project_root / "src" / "fairpremium" / "parties" / "console" / "templates"
    pages = {
        path.name for path in folder.glob("*.html") if any(f"storage.{name}" in path.read_text() for name in shown)
    }
    assert pages == {"operation.html"}
    assert RIGHTS["/console/operation"] == {"operator"}


def test_every_key_of_the_manifest_has_an_origin(story):
    found = {path for manifest in story.manifests for path in paths(manifest)}
    below = tuple(name for name in MANIFEST if name.endswith("."))
    named = {path for path in found if path not in MANIFEST and not path.startswith(below)}
    assert not named, "keys without an origin"
    unused = {name for name in MANIFEST if name not in found and not any(p.startswith(name) for p in found)}
    assert not unused, "origins of keys that are not there"


def test_every_key_of_every_entry_of_the_log_has_an_origin(story):
    found = defaultdict(set)
    for entry in story.entries:
        found[entry.event] |= set(entry.body)
    assert set(found) >= {name for name in LOG if name.startswith(("fit", "study", "portfolio"))} - ELSEWHERE
    assert dict(found) == {event: set(LOG[event]) for event in found}


ELSEWHERE = {"fit.cancel", "study.secret.rotated"}  # of a fit that runs, and before the first epoch


def test_every_event_that_the_sources_write_is_in_the_table(project_root):
    """`append(connection, now, party, event, **body)`; an event that is put together names its beginning."""
    written = set()
    for path in (project_root / "src" / "fairpremium" / "parties").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "append" and len(node.args) == 4:
                event = node.args[3]
                if isinstance(event, ast.Constant):
                    written.add(event.value)
                    body = {keyword.arg for keyword in node.keywords}
                    assert None in body or body == set(LOG[event.value]), event.value
                else:
                    assert isinstance(event, ast.JoinedStr), path
                    written |= {name for name in LOG if name.startswith(event.values[0].value)}
    assert written == set(LOG)
    assert written == set(_log_views.EVENTS) - {"report.taken", "reports.taken"}  # which 0.1 wrote


def test_every_field_of_every_line_and_every_measure_has_an_origin():
    assert {name for event in EVENTS.values() for name in event.fields} == set(LINE_FIELDS)
    assert {field.name for field in dataclasses.fields(ServiceMeasures)} == set(MEASURES)


# --- who may read stored reports ---

# Names by which stored reports are reached, and the modules of `parties` that may use them.
READERS = {
    "batches_of": {"service/reports/_reports.py"},
    "singles_of": {"service/reports/_reports.py", "service/reports/_compaction.py"},
    # `_row_sets` opens sets of keys that an insurer sent, for rule 5.
    "open_batch": {
        "service/_context.py", "service/_row_sets.py", "service/erasure/_reports.py", "service/reports/_compaction.py",
        "service/reports/_reports.py", "service/reports/_snapshots.py", "service/reports/_withdrawals.py",
        "store/__init__.py", "protocol/__init__.py",
    },
    "open_snapshot": {
        "service/_fit_inputs.py", "service/reports/__init__.py", "service/reports/_snapshots.py",
    },
    "find_reports": {"service/_fit_inputs.py", "service/_run_fit.py"},
    # `_withdrawals` counts what it deletes, so that no released number goes down for it.
    "count_reports": {"service/_studies.py", "service/reports/_snapshots.py", "service/reports/_withdrawals.py"},
}  # fmt: skip

# Modules that may name the tables with stored reports.
TABLES = {
    "reports": {
        "service/_studies.py", "service/answers/_answers.py", "service/erasure/_reports.py",
        "service/erasure/_retention.py", "service/reports/_compaction.py", "service/reports/_reports.py",
        "service/reports/_withdrawals.py",
    },
    "batch_files": {
        "service/_housekeeping.py", "service/_studies.py", "service/erasure/_reports.py",
        "service/erasure/_retention.py", "service/reports/_compaction.py", "service/reports/_reports.py",
        "service/reports/_snapshots.py", "service/reports/_withdrawals.py",
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def sources(project_root):
    folder = project_root / "src" / "fairpremium" / "parties"
    return {str(path.relative_to(folder)): ast.parse(path.read_text()) for path in sorted(folder.rglob("*.py"))}


def test_only_few_modules_read_stored_reports(sources):
    found = defaultdict(set)
    for path, tree in sources.items():
        if path.startswith(("protocol/", "store/")) and not path.endswith("__init__.py"):
            continue  # these read files and tables as they are told, and know of no answer
        for node in ast.walk(tree):
            names = []
            if isinstance(node, ast.ImportFrom):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.Attribute):
                names = [node.attr]
            elif isinstance(node, ast.FunctionDef):
                names = [node.name]
            elif isinstance(node, ast.Constant) and path.endswith("__init__.py"):
                names = [node.value]
            for name in names:
                if name in READERS:
                    found[name].add(path)
    assert {name: found[name] - READERS[name] for name in READERS if found[name] - READERS[name]} == {}
    assert set(found) == set(READERS)


def test_only_few_modules_know_the_tables_of_reports(sources):
    found = {name: set() for name in TABLES}
    for path, tree in sources.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").endswith("schema"):
                for alias in node.names:
                    if alias.name in TABLES:
                        found[alias.name].add(path)
            if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") in ("schema", "metadata"):
                assert node.attr not in TABLES, path
    assert found == TABLES


def test_whether_rows_match_is_asked_of_randomized_reports_only(sources):
    """`JoinedReports.count_matches` sees what the second draw gives, and no stored code."""
    functions = [node for node in ast.walk(sources["service/_fit_inputs.py"]) if isinstance(node, ast.FunctionDef)]
    (count,) = (node for node in functions if node.name == "count_matches")
    of_self = {n.attr for n in ast.walk(count) if isinstance(n, ast.Attribute) and getattr(n.value, "id", "") == "self"}
    assert of_self == {"_show_one"}


# Who makes reports that may leave (`ReleasedReports`), and who takes stored ones for such where rule 9 is off.
MAKERS = {
    "DRAWN": {"release/_randomized.py", "release/_released_reports.py", "release/_several_attributes.py"},
    "randomize_reports": {"release/_randomized.py", "release/_release.py", "service/_fit_inputs.py"},
    "without_protection": {"release/_released_reports.py", "service/_fit_inputs.py"},
}


def test_only_few_modules_make_reports_that_may_leave(sources):
    found = {name: set() for name in MAKERS}
    for path, tree in sources.items():
        for node in ast.walk(tree):
            names = {getattr(node, "id", None), getattr(node, "name", None)}
            names |= {alias.name for alias in node.names} if isinstance(node, ast.ImportFrom) else set()
            for name in names & set(MAKERS):
                found[name].add(path)
    assert found == MAKERS


def test_stored_reports_are_shown_only_where_the_study_says_so(sources):
    """Every call of `without_protection` stands below the condition that the study has no rule 9."""
    tree = sources["service/_fit_inputs.py"]
    branches = [node for node in ast.walk(tree) if isinstance(node, ast.If)]
    below = [branch for branch in branches if ast.unparse(branch.test) == "job.study.release is None"]
    guarded = {call for branch in below for node in branch.body for call in _calls(node)}
    assert len(guarded) == 2
    assert set(_calls(tree)) == guarded


def _calls(tree):
    return [n for n in ast.walk(tree) if isinstance(n, ast.Call) and getattr(n.func, "id", "") == "without_protection"]


def test_stored_reports_of_a_fit_go_to_noised_sums_only(sources):
    """`JoinedReports.reports()` are stored ones: where sums of them get noise, and where the study has no rule 9."""
    calls = defaultdict(list)
    for path, tree in sources.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "reports":
                calls[path].append(ast.unparse(node))
    assert {path: found for path, found in calls.items() if path.startswith("service/")} == {
        "service/_fit_inputs.py": ["self.reports(rows)"],
        "service/_run_fit.py": ["joined.reports()"],
    }
