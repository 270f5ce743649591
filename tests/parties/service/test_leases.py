"""Leases: one worker at a time, a silent one is replaced, and a late one changes nothing."""

from __future__ import annotations

from functools import partial

import pytest
from sqlalchemy import insert, select

from fairpremium.parties import FitSpec, KnownChannel, StudySpec
from fairpremium.parties.protocol import Problem
from fairpremium.parties.service._context import Party, open_context
from fairpremium.parties.service._fits import cancel_fit, get_fit, put_fit
from fairpremium.parties.service._leases import (
    LeaseLost,
    acquire_lease,
    finish_fit,
    record_progress,
    release_lease,
    renew_lease,
)
from fairpremium.parties.service._studies import put_study
from fairpremium.parties.store.schema import fits, portfolios
from fairpremium.privacy import RandomizedResponse
from helpers import wire

PORTFOLIO = wire.portfolio_spec("s").model_dump_json()
OPERATOR, INSURER = Party("op", "operator"), Party("acme", "insurer")


class Clock:
    now = 1_000_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def context(tmp_path, database_url, clock):
    context = open_context(tmp_path / "third-party", database=database_url, clock=clock)
    channel = RandomizedResponse(["F", "M"], keep=0.8).descriptor()
    spec = StudySpec(title="t", attribute=KnownChannel(channel=channel), collectors=(), insurers=("acme",))
    context.database.write(lambda c: put_study(c, context, OPERATOR, "s", spec))
    row = {"party": "acme", "id": "p", "study": "s", "spec": PORTFOLIO, "state": "sealed", "sha256": "0" * 64}
    context.database.write(lambda c: c.execute(insert(portfolios).values(**row, created=0.0)))
    yield context
    context.database.close()


def ask(context, name, **changes):
    spec = FitSpec(study="s", portfolio="p", **changes)
    return context.database.write(lambda c: put_fit(c, context, INSURER, name, spec))


def take(context):
    return context.database.write(lambda c: acquire_lease(c, context))


def see(context, name):
    return context.database.read(lambda c: get_fit(c, context, INSURER, name))


def test_the_oldest_waits_least_and_each_is_taken_once(context, clock):
    for name in ("a", "b"):
        ask(context, name)
        clock.now += 1
    assert [take(context).fit, take(context).fit, take(context)] == ["a", "b", None]


def test_insurers_take_turns_however_many_fits_one_of_them_has(context, clock):
    for party, count in (("acme", 5), ("late", 2)):
        for n in range(count):
            row = {"party": party, "id": f"f{n}", "study": "s", "portfolio": "p", "spec": "{}", "state": "queued"}
            if n == 0 and party != "acme":
                copy = {"party": party, "id": "p", "study": "s", "spec": PORTFOLIO, "state": "sealed"}
                copy["sha256"] = "0" * 64
                context.database.write(lambda c, v=copy: c.execute(insert(portfolios).values(**v, created=0.0)))
            values = {**row, "log_seq": 1, "created": clock.now}
            context.database.write(lambda c, v=values: c.execute(insert(fits).values(**v)))
            clock.now += 1
    order = []
    while (lease := take(context)) is not None:  # one worker
        clock.now += 1
        order.append(lease.party)
        context.database.write(lambda c, lease=lease: finish_fit(c, context, lease, "failed"))
    assert order == ["acme", "late", "acme", "late", "acme", "acme", "acme"]


def test_an_attempt_that_dies_is_a_turn(context, clock):
    """A fit that kills its process five times does not keep another insurer waiting until it is given up."""
    row = {"party": "late", "id": "p", "study": "s", "spec": PORTFOLIO, "state": "sealed", "sha256": "0" * 64}
    context.database.write(lambda c: c.execute(insert(portfolios).values(**row, created=0.0)))
    ask(context, "deadly")
    clock.now += 1
    for n in range(2):
        values = {"party": "late", "id": f"f{n}", "study": "s", "portfolio": "p", "spec": "{}", "state": "queued"}
        context.database.write(lambda c, v=values: c.execute(insert(fits).values(**v, log_seq=1, created=clock.now)))
    order = []
    while (lease := take(context)) is not None and len(order) < 9:
        clock.now += 1
        order.append(lease.party)
        ends = release_lease if lease.party == "acme" else partial(finish_fit, state="failed")
        context.database.write(lambda c, ends=ends, lease=lease: ends(c, context, lease))
    assert order[:4] == ["acme", "late", "acme", "late"]
    assert order[4:] == ["acme"] * (context.limits.attempts - 2)


def test_two_workers_serve_two_insurers(context, clock):
    row = {"party": "late", "id": "p", "study": "s", "spec": PORTFOLIO, "state": "sealed", "sha256": "0" * 64}
    context.database.write(lambda c: c.execute(insert(portfolios).values(**row, created=0.0)))
    for name in ("a", "b"):
        ask(context, name, level=0.8 if name == "a" else 0.9)
        clock.now += 1
    values = {"party": "late", "id": "c", "study": "s", "portfolio": "p", "spec": "{}", "state": "queued"}
    context.database.write(lambda c: c.execute(insert(fits).values(**values, log_seq=1, created=clock.now)))
    assert [take(context).party, take(context).party, take(context).party] == ["acme", "late", "acme"]


def test_an_insurer_has_a_few_fits_waiting(context):
    for n in range(context.limits.queued_fits):
        ask(context, f"f{n}")
    with pytest.raises(Problem, match="fits that wait"):
        ask(context, "more")
    assert ask(context, "f0").state == "queued"  # the same again is no further one
    take(context)
    assert ask(context, "more").state == "queued"


def test_a_renewed_lease_stays_and_an_expired_one_is_free(context, clock):
    ask(context, "a")
    first = take(context)
    for _ in range(10):
        clock.now += context.limits.lease_seconds - 1
        context.database.write(lambda c: renew_lease(c, context, first))
        assert take(context) is None
    clock.now += context.limits.lease_seconds + 1
    second = take(context)
    assert (second.fit, second.attempt) == ("a", 2)
    for late in (
        lambda c: renew_lease(c, context, first),
        lambda c: record_progress(c, first, "late", 0.5),
        lambda c: finish_fit(c, context, first, "succeeded", sha256="1" * 64),
    ):
        with pytest.raises(LeaseLost):
            context.database.write(late)
    context.database.write(lambda c: release_lease(c, context, first))  # nothing to give back
    assert see(context, "a").state == "running"
    context.database.write(lambda c: finish_fit(c, context, second, "succeeded", sha256="2" * 64))
    assert (see(context, "a").state, see(context, "a").sha256) == ("succeeded", "2" * 64)
    with pytest.raises(LeaseLost):
        context.database.write(lambda c: finish_fit(c, context, second, "failed"))


def test_a_fit_is_tried_five_times(context, clock):
    ask(context, "a")
    for attempt in range(1, 6):
        assert take(context).attempt == attempt
        clock.now += context.limits.lease_seconds + 1
    assert take(context) is None
    seen = see(context, "a")
    assert seen.state == "failed"
    assert seen.problem["type"].endswith("gave-up")


def test_a_fit_given_back_waits_again(context):
    ask(context, "a")
    lease = take(context)
    context.database.write(lambda c: release_lease(c, context, lease))
    assert see(context, "a").state == "queued"
    assert take(context).attempt == 2


def test_cancelling(context, clock):
    ask(context, "waits")
    assert context.database.write(lambda c: cancel_fit(c, context, INSURER, "waits")).state == "cancelled"
    ask(context, "runs", level=0.9)
    lease = take(context)
    context.database.write(lambda c: cancel_fit(c, context, INSURER, "runs"))
    with pytest.raises(LeaseLost):
        context.database.write(lambda c: renew_lease(c, context, lease))
    context.database.write(lambda c: release_lease(c, context, lease))
    assert see(context, "runs").state == "cancelled"
    ask(context, "dies", level=0.8)
    take(context)
    context.database.write(lambda c: cancel_fit(c, context, INSURER, "dies"))
    clock.now += context.limits.lease_seconds + 1
    assert take(context) is None  # a worker that died cannot give back: the next look ends the fit
    assert see(context, "dies").state == "cancelled"
    assert context.database.write(lambda c: cancel_fit(c, context, INSURER, "dies")).state == "cancelled"


def test_every_step_is_in_the_log(context):
    ask(context, "a")
    lease = take(context)
    context.database.write(lambda c: finish_fit(c, context, lease, "succeeded", sha256="2" * 64))
    from fairpremium.parties.store.schema import log

    events = [row.event for row in context.database.read(lambda c: c.execute(select(log).order_by(log.c.seq)).all())]
    assert events == ["study.declared", "epoch.begun", "fit.requested", "fit.started", "fit.succeeded"]
    assert context.database.read(lambda c: c.execute(select(fits.c.lease_token)).scalar()) is None


def test_at_most_twenty_distinct_fits(context):
    from fairpremium.parties import Problem

    for i in range(20):
        ask(context, f"f{i}", level=0.6 + i / 100)
    ask(context, "again", level=0.6)  # a fit that was asked for before is not a new one
    with pytest.raises(Problem, match="distinct fits"):
        ask(context, "one-more", level=0.99)
