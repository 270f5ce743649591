"""The service against a model of it: any order of requests, worker steps, failures, restarts, replays and hours."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import select

from fairpremium.parties import FitSpec
from fairpremium.parties.protocol import as_keys
from fairpremium.parties.protocol._messages import Refusal
from fairpremium.parties.release._disclosure import Rules
from fairpremium.parties.service._context import ServiceLimits
from fairpremium.parties.service._housekeeping import clean
from fairpremium.parties.service._leases import (
    LeaseLost,
    acquire_lease,
    finish_fit,
    record_progress,
    release_lease,
    renew_lease,
)
from fairpremium.parties.service._studies import count_reports
from fairpremium.parties.service.reports import _compaction, open_snapshot, take_snapshots
from fairpremium.parties.service.reports._reports import batches_of, singles_of
from fairpremium.parties.store import _batch_merge
from fairpremium.parties.store.schema import epochs, fits, log, portfolio_parts, portfolios, studies, withdrawals
from helpers import byte_search, wire
from helpers.batches import write_batch

LIMITS = ServiceLimits(attempts=3, requests_per_second=1e9)
LEASE = LIMITS.lease_seconds
MOST_FITS, EPOCH = 4, 5 * LEASE
KEYS = [wire.policy_key("m", side, i) for side in range(2) for i in range(3)]
STUDIES, PORTFOLIOS, FITS = ("s1", "s2"), ("p1", "p2", "p3"), ("f1", "f2", "f3", "f4")
NEXT = {  # what may follow what
    "study": {None: {"draft"}, "draft": {"open", "closed"}, "open": {"closed"}, "closed": {"open"}},
    "portfolio": {None: {"open"}, "open": {"sealed", "deleted"}, "sealed": {"deleted"}, "deleted": {"open"}},
    "fit": {
        None: {"queued"},
        "queued": {"running", "cancelled", "failed"},
        "running": {"running", "queued", "succeeded", "refused", "failed", "cancelled"},
        "succeeded": set(), "refused": set(), "failed": set(), "cancelled": set(),
    },
}  # fmt: skip
FAILURES = (
    "database.before_commit",
    "file.created",
    "file.written",
    "file.synced",
    "file.renamed",
    "file.folder_synced",
)


def batch(seed):
    """Reports of three people: one of two sides, with values of this seed."""
    keys = KEYS[3 * (seed % 2) : 3 * (seed % 2) + 3]
    values = [str(v) for v in np.random.default_rng(seed).choice(["F", "M"], size=3)]
    return dict(zip(keys, values, strict=True)), write_batch(keys, values, ["F", "M"], wire.CHANNEL)


BATCHES = {seed: batch(seed) for seed in range(4)}
PARTS = {seed: wire.portfolio_part(wire.portfolio_spec(), 4, seed) for seed in range(3)}


class Service(RuleBasedStateMachine):
    """What the service should hold, in plain dicts, beside what it holds."""

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="machine-"))
        self.clock = wire.Clock()
        self.rest = contextlib.ExitStack()
        self.world = wire.World(self.folder / "third-party", self.database(), clock=self.clock, limits=LIMITS)
        self.events = [("key.added", name) for name in self.world.roles]
        self.studies, self.reports, self.report_parts = {}, {}, {}
        self.portfolios, self.fits, self.epochs = {}, {}, {}
        self.withdrawals, self.gone = {}, set()
        self.leases, self.sent, self.bundles = [], [], {}
        self.before = {"study": {}, "portfolio": {}, "fit": {}}

    def database(self):
        """The address of a fresh database; None for a SQLite file."""

    def teardown(self):
        os.environ.pop("FAIRPREMIUM_FULL_AT", None)
        self.world.close()
        self.rest.close()
        shutil.rmtree(self.folder)

    # --- sending ---

    def ask(self, who, method, target, body=b"", kind=None, *, full=None):
        """Send a request; where the disk is full on the way, see that nothing changed, and send it again."""
        sent = self.world.sign(who, method, target, body, kind)
        if full is not None:
            before = self.world.dump()
            os.environ["FAIRPREMIUM_FULL_AT"] = full
            answer = self.world.send(sent)
            del os.environ["FAIRPREMIUM_FULL_AT"]
            if answer.status != 507:  # the request did not come to that place
                return self.done(sent, answer)
            after = self.world.dump()
            assert {k: v for k, v in after.items() if k not in ("nonces", "files")} == {
                k: v for k, v in before.items() if k not in ("nonces", "files")
            }
            assert not [name for name in after["files"] if ".incoming" in name]
            if len(after["nonces"]) > len(before["nonces"]):
                self.sent.append(sent)
                sent = self.world.sign(who, method, target, body, kind)
        return self.done(sent, self.world.send(sent))

    def done(self, sent, answer):
        assert answer.status < 500, answer
        self.sent.append(sent)
        return answer

    def tell(self, event, party):
        self.events.append((event, party))

    # --- studies ---

    @initialize()
    def begin(self):
        """Most examples should come to fits."""
        self.declare("s1", "A", None)
        self.switch("s1", "open")
        self.put_portfolio("p1", "s1", "y")

    @rule(study=st.sampled_from(STUDIES), title=st.sampled_from("AB"), full=st.sampled_from([None, *FAILURES[:1]]))
    def declare(self, study, title, full):
        spec = wire.study_spec(title=title).model_copy(
            update={"rules": Rules(fits=MOST_FITS), "epoch_seconds": int(EPOCH)}
        )
        status = self.ask("op", "PUT", f"/v1/studies/{study}", spec.model_dump_json().encode(), full=full).status
        known = self.studies.get(study)
        if known is not None and known["title"] == title:
            assert status == 200
        elif known is not None and known["state"] != "draft":
            assert status == 409
        else:
            assert status == 200
            self.studies[study] = {"title": title, "state": "draft"}
            self.tell("study.declared", "op")

    @rule(study=st.sampled_from(STUDIES), to=st.sampled_from(["open", "open", "close"]))
    def switch(self, study, to):
        status = self.ask("op", "POST", f"/v1/studies/{study}/{to}").status
        if study not in self.studies:
            assert status == 404
            return
        assert status == 200
        state = "open" if to == "open" else "closed"
        if self.studies[study]["state"] != state:
            self.studies[study]["state"] = state
            self.tell(f"study.{state}", "op")

    # --- reports ---

    def expected(self, study, values):
        """The status that reports should get, and those of them that are new."""
        if study not in self.studies:
            return 404, {}
        if self.studies[study]["state"] != "open":
            return 409, {}
        known = self.reports.get(study, {})
        if any(known.get(key, value) != value for key, value in values.items()):
            return 409, {}
        if not self.waiting(study).isdisjoint(values):
            return 409, {}  # it would be deleted with the one before
        return 200, {key: value for key, value in values.items() if key not in known}

    @rule(study=st.sampled_from(STUDIES), key=st.sampled_from(KEYS), value=st.sampled_from("FM"),
          full=st.sampled_from([None, None, *FAILURES[:1]]))  # fmt: skip
    def report(self, study, key, value, full):
        expected, new = self.expected(study, {key: value})
        target = f"/v1/studies/{study}/reports/{key.hex()}"
        assert self.ask("app", "PUT", target, wire.report(value), full=full).status == expected
        if new:
            self.reports.setdefault(study, {}).update(new)

    @rule(
        study=st.sampled_from(STUDIES), values=st.dictionaries(st.sampled_from(KEYS), st.sampled_from("FM"), min_size=2)
    )
    def report_together(self, study, values):
        """Requests at the same time, one of them twice."""
        wires = [
            self.world.sign("app", "PUT", f"/v1/studies/{study}/reports/{key.hex()}", wire.report(value))
            for key, value in values.items()
        ]
        answers = self.world.send_together([*wires, wires[0]])
        assert sorted(a.code == "replayed" for a in (answers[0], answers[-1])) == [False, True]
        entries = self.read_events()[len(self.events) :]
        answers[0] = answers[0] if answers[0].code != "replayed" else answers[-1]
        for (key, value), answer in zip(values.items(), answers, strict=False):
            expected, new = self.expected(study, {key: value})
            assert answer.status == expected
            self.reports.setdefault(study, {}).update(new)
        assert not entries  # the log does not tell that somebody reported
        self.sent += wires

    @rule(study=st.sampled_from(STUDIES), n=st.integers(0, 1), seed=st.sampled_from(sorted(BATCHES)),
          full=st.sampled_from([None, None, *FAILURES]))  # fmt: skip
    def report_part(self, study, n, seed, full):
        values, body = BATCHES[seed]
        status = self.ask("app", "PUT", f"/v1/studies/{study}/report-parts/{n}", body, wire.BATCH, full=full).status
        before = self.report_parts.get((study, n))
        if study in self.studies and self.studies[study]["state"] == "open" and before is not None:
            assert status == (200 if before == seed else 409)
            return
        expected, new = self.expected(study, values)
        assert status == expected
        if status == 200:
            self.report_parts[study, n] = seed
            self.reports.setdefault(study, {}).update(new)

    @rule(study=st.sampled_from(STUDIES), full=st.sampled_from([None, "file.created", "batch.merging"]))
    def compact(self, study, full):
        """Single reports become a file and two files one; nobody can tell."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_compaction, "SINGLES", 1)
            patch.setattr(_batch_merge, "_TIER", 2)
            if full is not None:
                patch.setenv("FAIRPREMIUM_FULL_AT", full)
            _compaction.compact(self.world.context, study, "app", self.world.context.database.write)

    # --- withdrawals ---

    def waiting(self, study):
        """The keys whose reports are about to be taken out."""
        return {key for (where, _, key), each in self.withdrawals.items() if where == study and not each["removed"]}

    def take_out(self, study):
        for key in self.waiting(study):
            gone = self.reports.get(study, {}).pop(key, None)
            newest = self.newest_snapshot(study)
            if gone is not None and newest:
                self.epochs[study][newest - 1]["counted"] -= 1
        for (where, _, _), each in self.withdrawals.items():
            each["removed"] |= where == study

    def needed(self, study, up_to):
        """The snapshots up to a number that a fit, which has not ended, is of."""
        alive = [f for f in self.fits.values() if f["what"][0] == study and f["state"] in ("queued", "running")]
        return {f["epoch"] for f in alive if f["epoch"] <= up_to}

    def forget_snapshots(self, study, up_to, *, needed=frozenset()):
        for number, epoch in enumerate(self.epochs.get(study, ())[:up_to], 1):
            epoch["kept"] &= number in needed

    def finish_withdrawals(self):
        """What housekeeping leaves of withdrawals: those of which a snapshot, or a fit, may still have something."""
        for study in {study for study, _, _ in self.withdrawals}:
            self.take_out(study)
            newest = len(self.epochs.get(study, ()))
            last = newest - (not self.is_over(study))
            self.forget_snapshots(study, last, needed=self.needed(study, last))
        for (study, party, key), each in list(self.withdrawals.items()):
            before = self.epochs.get(study, ())[: each["epoch"]]
            if self.needed(study, each["epoch"]) or any(e["kept"] for e in before):
                continue
            del self.withdrawals[study, party, key]
            self.gone.add(key)

    def is_nowhere(self, key):
        kept = [e["reports"] for taken in self.epochs.values() for e in taken if e["kept"]]
        asked = {key for _, _, key in self.withdrawals}
        return not any(key in some for some in (asked, *self.reports.values(), *kept))

    def search(self):
        """No byte is left of the reports whose withdrawal is complete."""
        assert not byte_search.find(self.folder, [key for key in self.gone if self.is_nowhere(key)])

    @rule(study=st.sampled_from(STUDIES), key=st.sampled_from(KEYS), who=st.sampled_from(["app", "op"]),
          full=st.sampled_from([None, None, *FAILURES[:1]]))  # fmt: skip
    def withdraw(self, study, key, who, full):
        """The answer is the same whether there is a report or not, and the log tells nothing."""
        status = self.ask(who, "DELETE", f"/v1/studies/{study}/reports/{key.hex()}", full=full).status
        if study not in self.studies:
            assert status == 404
            return
        assert status == 204
        self.withdrawals[study, who, key] = {"removed": False, "epoch": self.newest_snapshot(study)}

    @rule(study=st.sampled_from(STUDIES), full=st.sampled_from([None, None, *FAILURES]))
    def withdraw_now(self, study, full):
        status = self.ask("op", "POST", f"/v1/studies/{study}/withdrawals", full=full).status
        if study not in self.studies:
            assert status == 404
            return
        assert status == 200
        newest = len(self.epochs.get(study, ()))
        asked = [each["epoch"] for (where, _, _), each in self.withdrawals.items() if where == study]
        if newest and asked:
            if newest in asked:
                newest += 1
                self.begin_epoch_of(study, "op")
                self.take_snapshots_of(study, "op")
                self.tell("reports.withdrawn", "op")
            self.cancel_before(study, newest)
            self.forget_snapshots(study, newest - 1)
        self.finish_withdrawals()
        self.search()

    def cancel_before(self, study, number):
        for fit in self.fits.values():
            if fit["what"][0] == study and fit["epoch"] < number:
                if fit["state"] == "queued":
                    self.end(fit, "cancelled")
                elif fit["state"] == "running":
                    fit["cancel"] = True

    @rule()
    def clean(self):
        """The worker looks for what is not needed any more."""
        clean(self.world.context)
        for study, taken in self.epochs.items():
            self.forget_snapshots(study, len(taken) - 1, needed=self.needed(study, len(taken)))
        self.finish_withdrawals()
        self.search()

    # --- portfolios ---

    @rule(
        name=st.sampled_from(PORTFOLIOS), study=st.sampled_from(STUDIES), outcome=st.sampled_from(["y", "y", "y", "z"])
    )
    def put_portfolio(self, name, study, outcome):
        spec = wire.portfolio_spec(study).model_copy(update={"outcome": outcome})
        status = self.ask("acme", "PUT", f"/v1/portfolios/{name}", spec.model_dump_json().encode()).status
        if study not in self.studies:
            assert status == 404
        elif name in self.portfolios and not self.portfolios[name].get("dropped"):
            assert status == (200 if self.portfolios[name]["spec"] == (study, outcome) else 409)
        else:
            assert status == 200
            self.portfolios[name] = {"spec": (study, outcome), "state": "open", "parts": {}}
            self.tell("portfolio.declared", "acme")

    @rule(name=st.sampled_from(PORTFOLIOS), n=st.integers(0, 1), seed=st.sampled_from(sorted(PARTS)),
          full=st.sampled_from([None, None, *FAILURES]))  # fmt: skip
    def put_part(self, name, n, seed, full):
        target = f"/v1/portfolios/{name}/parts/{n}"
        status = self.ask("acme", "PUT", target, PARTS[seed], wire.PARQUET, full=full).status
        known = self.portfolios.get(name)
        if known is None:
            assert status == 404
        elif known["state"] == "deleted":
            assert status == 410
        elif known["spec"][1] != "y":
            assert status == 422  # not the columns that were declared
        elif n in known["parts"]:
            assert status == (200 if known["parts"][n] == seed else 409)
        elif known["state"] == "sealed":
            assert status == 409
        else:
            assert status == 200
            known["parts"][n] = seed
            self.tell("portfolio.part", "acme")

    @rule(name=st.sampled_from(PORTFOLIOS), full=st.sampled_from([None, *FAILURES[:1]]))
    def seal(self, name, full):
        status = self.ask("acme", "POST", f"/v1/portfolios/{name}/seal", full=full).status
        known = self.portfolios.get(name)
        if known is None:
            assert status == 404
        elif known["state"] == "deleted":
            assert status == 410
        elif known["state"] == "sealed":
            assert status == 200
        elif not known["parts"]:
            assert status == 409
        elif len(set(known["parts"].values())) < len(known["parts"]):
            assert status == 422  # the same keys twice
        else:
            assert status == 200
            known["state"] = "sealed"
            self.tell("portfolio.sealed", "acme")

    @rule(name=st.sampled_from(PORTFOLIOS))
    def delete(self, name):
        status = self.ask("acme", "DELETE", f"/v1/portfolios/{name}").status
        known = self.portfolios.get(name)
        if known is None:
            assert status == 404
        elif known["state"] == "deleted":
            assert status == 204
        elif any(f["portfolio"] == name and f["state"] in ("queued", "running") for f in self.fits.values()):
            assert status == 409
        else:
            assert status == 204
            known["dropped"] = known["state"] == "open"  # its id can be used again
            known["state"] = "deleted"
            self.tell("portfolio.erased", "acme")

    # --- epochs ---

    def is_over(self, study):
        """Does the next fit begin an epoch?"""
        epochs = self.epochs.get(study)
        return not epochs or self.clock() >= epochs[-1]["begun"] + EPOCH

    def newest_snapshot(self, study):
        """The number of the newest epoch whose snapshot was taken."""
        return max((n for n, epoch in enumerate(self.epochs.get(study, ()), 1) if epoch["taken"]), default=0)

    def begin_epoch_of(self, study, who):
        begun = {"begun": self.clock(), "taken": False, "reports": {}, "counted": 0, "kept": False}
        self.epochs.setdefault(study, []).append(begun)
        self.tell("epoch.begun", who)

    def take_snapshots_of(self, study, who):
        for epoch in self.epochs[study]:
            if not epoch["taken"]:
                self.take_out(study)
                taken = dict(self.reports.get(study, {}))
                epoch.update(taken=True, reports=taken, counted=len(taken), kept=True)
                self.tell("epoch.sealed", who)

    @rule(study=st.sampled_from(STUDIES), ahead=st.integers(-1, 2), full=st.sampled_from([None, *FAILURES]))
    def begin_epoch(self, study, ahead, full):
        newest = len(self.epochs.get(study, ()))
        number = max(newest + ahead, 0)
        status = self.ask("op", "POST", f"/v1/studies/{study}/epochs/{number}", full=full).status
        if study not in self.studies:
            assert status == 404
        elif number == newest + 1:
            assert status == 200
            self.begin_epoch_of(study, "op")
            self.take_snapshots_of(study, "op")
        else:
            assert status == (200 if number == newest > 0 else 409)
            if status == 200:
                self.take_snapshots_of(study, "op")

    # --- fits ---

    @rule(name=st.sampled_from(FITS), portfolio=st.sampled_from(PORTFOLIOS), level=st.sampled_from([0.8, 0.9, 0.95]),
          full=st.sampled_from([None, *FAILURES[:1]]))  # fmt: skip
    def ask_for_fit(self, name, portfolio, level, full):
        known = self.portfolios.get(portfolio)
        study = known["spec"][0] if known else "s1"
        spec = FitSpec(study=study, portfolio=portfolio, level=level)
        status = self.ask("acme", "PUT", f"/v1/fits/{name}", spec.model_dump_json().encode(), full=full).status
        what = (study, portfolio, level)
        number = len(self.epochs.get(study, ())) + self.is_over(study)
        asked = {(f["epoch"], f["what"]) for f in self.fits.values() if f["what"][0] == study}
        if name in self.fits:
            assert status == (200 if self.fits[name]["what"] == what else 409)
        elif known is None:
            assert status == 404
        elif known["state"] == "deleted":
            assert status == 410
        elif known["state"] == "open" or ((number, what) not in asked and len(asked) >= MOST_FITS):
            assert status == 409
        else:
            assert status == 200
            if self.is_over(study):
                self.begin_epoch_of(study, "acme")
            self.fits[name] = {
                "epoch": number, "what": what,
                "portfolio": portfolio, "state": "queued", "attempt": 0, "cancel": False, "lease": None,
                "until": None, "created": self.clock(),
            }  # fmt: skip
            self.tell("fit.requested", "acme")

    @rule(name=st.sampled_from(FITS))
    def cancel(self, name):
        status = self.ask("acme", "POST", f"/v1/fits/{name}/cancel").status
        fit = self.fits.get(name)
        assert status == (404 if fit is None else 200)
        if fit is None:
            return
        if fit["state"] == "queued":
            self.end(fit, "cancelled")
        elif fit["state"] == "running" and not fit["cancel"]:
            fit["cancel"] = True
            self.tell("fit.cancel", "acme")

    @rule(name=st.sampled_from(FITS))
    def fetch(self, name):
        answer = self.ask("acme", "GET", f"/v1/fits/{name}/bundle")
        fit = self.fits.get(name)
        if fit is None:
            assert answer.status == 404
        elif fit["state"] != "succeeded":
            assert answer.status == 409
        else:
            assert answer.body == self.bundles[name]
            self.tell("bundle.fetched", "acme")

    def end(self, fit, state):
        fit.update(state=state, lease=None, until=None)
        self.tell(f"fit.{state}", "acme")

    # --- workers ---

    def run(self, command):
        return self.world.context.database.write(command)

    @rule()
    def acquire_lease(self):
        lease = self.run(lambda c: acquire_lease(c, self.world.context))
        while True:
            free = [
                (fit["created"], name)
                for name, fit in self.fits.items()
                if fit["state"] == "queued" or (fit["state"] == "running" and fit["until"] < self.clock())
            ]
            if not free:
                assert lease is None
                return
            name = min(free)[1]
            fit = self.fits[name]
            if fit["cancel"]:
                self.end(fit, "cancelled")
            elif fit["attempt"] >= LIMITS.attempts:
                self.end(fit, "failed")
            else:
                break
        assert (lease.party, lease.fit, lease.attempt) == ("acme", name, fit["attempt"] + 1)
        assert lease.token not in {old.token for old in self.leases}
        fit.update(state="running", attempt=lease.attempt, lease=lease.token, until=self.clock() + LEASE)
        self.leases.append(lease)
        self.tell("fit.started", "acme")

    def holds(self, lease):
        return self.fits[lease.fit]["lease"] == lease.token

    @precondition(lambda self: self.leases)
    @rule(
        data=st.data(),
        what=st.sampled_from(["snapshot", "renew", "progress", "give back", "succeed", "succeed", "refuse"]),
    )
    def work(self, data, what):
        """A worker does something with its lease, which it may have lost."""
        lease = data.draw(st.sampled_from(self.leases[-4:]))
        fit, context = self.fits[lease.fit], self.world.context
        holds = self.holds(lease)
        content = f"{lease.fit} {lease.token}".encode()
        refusal = Refusal(rule=2, title="t", limit="l").model_dump_json()
        if what == "snapshot":
            with context.files.hold():
                self.run(lambda c: take_snapshots(c, context, "acme", fit["what"][0]))
            self.take_snapshots_of(fit["what"][0], "acme")
            return
        commands = {
            "renew": lambda c: renew_lease(c, context, lease),
            "progress": lambda c: record_progress(c, lease, "fitting", 0.5),
            "give back": lambda c: release_lease(c, context, lease),
            "succeed": lambda c: finish_fit(c, context, lease, "succeeded", sha256=digest),
            "refuse": lambda c: finish_fit(c, context, lease, "refused", refusal=refusal),
        }
        digest = context.files.put(content) if what == "succeed" else None
        try:
            self.run(commands[what])
            lost = False
        except LeaseLost:
            lost = True
        if what == "give back":
            assert not lost
        else:
            assert lost == (not holds or (what == "renew" and fit["cancel"]))
        if not holds or lost:
            return
        if what == "renew":
            fit["until"] = self.clock() + LEASE
        elif what == "give back" and fit["cancel"]:
            self.end(fit, "cancelled")
        elif what == "give back":
            fit.update(state="queued", lease=None, until=None)
        elif what in ("succeed", "refuse") and fit["cancel"]:
            self.end(fit, "cancelled")
        elif what == "succeed":
            self.bundles[lease.fit] = content
            self.end(fit, "succeeded")
        elif what == "refuse":
            self.end(fit, "refused")

    # --- the world ---

    @rule(seconds=st.sampled_from([1.0, LEASE - 1, LEASE + 1, 10 * LEASE, 86400.0]))
    def wait(self, seconds):
        self.clock.now += seconds

    @rule()
    def restart(self):
        """The process is gone, and another one opens the folder."""
        old, self.world = self.world, self.world.second()
        old.close()

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def replay(self, data):
        sent = data.draw(st.sampled_from(self.sent))
        before = self.world.dump()
        answer = self.world.send(sent)
        assert answer.code in ("replayed", "stale"), answer
        assert self.world.dump() == before

    # --- what always holds ---

    def read_events(self):
        rows = self.world.context.database.read(lambda c: c.execute(select(log).order_by(log.c.seq)).all())
        return [(row.event, row.party) for row in rows]

    @invariant()
    def each_change_is_told_once_in_an_intact_log(self):
        assert self.read_events() == self.events
        assert self.world.third_party.verify_log().intact

    @invariant()
    def what_was_acknowledged_is_there_and_nothing_else(self):
        def states(connection, table):
            return {row.id: row.state for row in connection.execute(select(table))}

        with self.world.context.database.reading() as c:
            found = {kind: states(c, t) for kind, t in (("study", studies), ("portfolio", portfolios), ("fit", fits))}
            leases = {r.id: (r.lease_token, r.lease_until, r.attempt) for r in c.execute(select(fits))}
            parts = {(r.portfolio, r.n): r.sha256 for r in c.execute(select(portfolio_parts))}
            reports = {study: self.stored(c, study) for study in found["study"]}
            counts = {study: count_reports(c, study) for study in found["study"]}
        model = {"study": self.studies, "portfolio": self.portfolios, "fit": self.fits}
        for kind, things in model.items():
            assert found[kind] == {name: thing["state"] for name, thing in things.items()}
            for name, state in found[kind].items():
                before = self.before[kind].get(name)
                assert before == state or state in NEXT[kind][before] or self.is_quick(kind, before, state)
            self.before[kind] = found[kind]
        assert leases == {name: (f["lease"], f["until"], f["attempt"]) for name, f in self.fits.items()}
        assert set(parts) == {(name, n) for name, p in self.portfolios.items() for n in p["parts"]}
        assert reports == {study: self.reports.get(study, {}) for study in self.studies}
        assert counts == {study: len(self.reports.get(study, {})) for study in self.studies}
        alive = {digest for (name, _), digest in parts.items() if self.portfolios[name]["state"] != "deleted"}
        erased = set(parts.values()) - alive
        there = set(self.world.context.files)
        assert alive <= there
        assert not erased & there

    @invariant()
    def snapshots_stay_as_they_were_taken(self):
        with self.world.context.database.reading() as c:
            rows = {(r.study, r.number): r for r in c.execute(select(epochs))}
            assert set(rows) == {(study, n) for study, taken in self.epochs.items() for n in range(1, len(taken) + 1)}
            for (study, number), row in rows.items():
                epoch = self.epochs[study][number - 1]
                counted = epoch["counted"] if number == self.newest_snapshot(study) else 0
                assert (row.taken is not None, row.files is not None) == (epoch["taken"], epoch["kept"])
                assert row.counted == counted
                if epoch["kept"]:
                    codes = open_snapshot(c, self.world.context, study, number, "app")(as_keys(KEYS))
                    found = {key: "FM"[k] for key, k in zip(KEYS, codes, strict=True) if k >= 0}
                    assert found == epoch["reports"]

    @invariant()
    def withdrawals_wait_until_nothing_is_left(self):
        rows = self.world.context.database.read(lambda c: c.execute(select(withdrawals)).all())
        found = {(r.study, r.party or "op", bytes(r.key)): {"removed": r.removed, "epoch": r.epoch} for r in rows}
        assert found == self.withdrawals

    def stored(self, connection, study):
        batches = batches_of(connection, self.world.context, study, "app")
        found = []
        for batch in (*batches, singles_of(connection, study, "app")):
            found += [(bytes(key), "FM"[code]) for key, code in zip(batch.keys, batch.codes, strict=True)]
        assert len(set(found)) == len(dict(found))  # files may repeat a report, never with another value
        return dict(found)

    @staticmethod
    def is_quick(kind, before, state):
        """Two steps between two looks: what begins an example."""
        return before is None and kind == "study" and state == "open"


_FULL = os.environ.get("FAIRPREMIUM_SIMULATIONS") == "full"
HOW = settings(
    max_examples=400 if _FULL else 15,
    stateful_step_count=60 if _FULL else 40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, *([Phase.shrink] if _FULL else [])],
)


def test_the_service_is_what_the_model_says():
    run_state_machine_as_test(Service, settings=HOW)


def test_the_service_on_postgresql_is_what_the_model_says(postgres):
    class OnPostgres(Service):
        def database(self):
            return postgres.url(self.rest.enter_context(postgres.database()))

    run_state_machine_as_test(OnPostgres, settings=settings(HOW, max_examples=100 if _FULL else 8))
