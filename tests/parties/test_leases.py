"""Leases: one worker at a time, a silent one is replaced, and a late one changes nothing."""

from __future__ import annotations

import pytest
from sqlalchemy import insert, select

from fairpremium.parties import FitSpec, KnownChannel, StudySpec
from fairpremium.parties.service._context import Party, open_house
from fairpremium.parties.service._fits import (
    LeaseLost,
    cancel_fit,
    claim,
    finish,
    get_fit,
    give_back,
    put_fit,
    renew,
    show_progress,
)
from fairpremium.parties.service._studies import put_study
from fairpremium.parties.store.schema import fits, portfolios
from fairpremium.privacy import RandomizedResponse

OPERATOR, INSURER = Party("op", "operator"), Party("acme", "insurer")


class Clock:
    now = 1_000_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def house(tmp_path, database_url, clock):
    house = open_house(tmp_path / "house", database=database_url, clock=clock)
    channel = RandomizedResponse(["F", "M"], keep=0.8).descriptor()
    spec = StudySpec(title="t", attribute=KnownChannel(channel=channel), collectors=(), insurers=("acme",))
    house.store.write(lambda c: put_study(c, house, OPERATOR, "s", spec))
    row = {"party": "acme", "id": "p", "study": "s", "spec": "{}", "state": "sealed", "sha256": "0" * 64}
    house.store.write(lambda c: c.execute(insert(portfolios).values(**row, created=0.0)))
    yield house
    house.store.close()


def ask(house, name, **changes):
    spec = FitSpec(study="s", portfolio="p", **changes)
    return house.store.write(lambda c: put_fit(c, house, INSURER, name, spec))


def take(house):
    return house.store.write(lambda c: claim(c, house))


def see(house, name):
    return house.store.read(lambda c: get_fit(c, INSURER, name))


def test_the_oldest_waits_least_and_each_is_taken_once(house, clock):
    for name in ("a", "b"):
        ask(house, name)
        clock.now += 1
    assert [take(house).fit, take(house).fit, take(house)] == ["a", "b", None]


def test_a_renewed_lease_stays_and_an_expired_one_is_free(house, clock):
    ask(house, "a")
    first = take(house)
    for _ in range(10):
        clock.now += house.limits.lease_seconds - 1
        house.store.write(lambda c: renew(c, house, first))
        assert take(house) is None
    clock.now += house.limits.lease_seconds + 1
    second = take(house)
    assert (second.fit, second.attempt) == ("a", 2)
    for late in (
        lambda c: renew(c, house, first),
        lambda c: show_progress(c, first, "late", 0.5),
        lambda c: finish(c, house, first, "succeeded", sha256="1" * 64),
    ):
        with pytest.raises(LeaseLost):
            house.store.write(late)
    house.store.write(lambda c: give_back(c, house, first))  # nothing to give back
    assert see(house, "a").state == "running"
    house.store.write(lambda c: finish(c, house, second, "succeeded", sha256="2" * 64))
    assert (see(house, "a").state, see(house, "a").sha256) == ("succeeded", "2" * 64)
    with pytest.raises(LeaseLost):
        house.store.write(lambda c: finish(c, house, second, "failed"))


def test_a_fit_is_tried_five_times(house, clock):
    ask(house, "a")
    for attempt in range(1, 6):
        assert take(house).attempt == attempt
        clock.now += house.limits.lease_seconds + 1
    assert take(house) is None
    seen = see(house, "a")
    assert seen.state == "failed"
    assert seen.problem["type"].endswith("gave-up")


def test_a_fit_given_back_waits_again(house):
    ask(house, "a")
    lease = take(house)
    house.store.write(lambda c: give_back(c, house, lease))
    assert see(house, "a").state == "queued"
    assert take(house).attempt == 2


def test_cancelling(house, clock):
    ask(house, "waits")
    assert house.store.write(lambda c: cancel_fit(c, house, INSURER, "waits")).state == "cancelled"
    ask(house, "runs", level=0.9)
    lease = take(house)
    house.store.write(lambda c: cancel_fit(c, house, INSURER, "runs"))
    with pytest.raises(LeaseLost):
        house.store.write(lambda c: renew(c, house, lease))
    house.store.write(lambda c: give_back(c, house, lease))
    assert see(house, "runs").state == "cancelled"
    ask(house, "dies", level=0.8)
    take(house)
    house.store.write(lambda c: cancel_fit(c, house, INSURER, "dies"))
    clock.now += house.limits.lease_seconds + 1
    assert take(house) is None  # a worker that died cannot give back: the next look ends the fit
    assert see(house, "dies").state == "cancelled"
    assert house.store.write(lambda c: cancel_fit(c, house, INSURER, "dies")).state == "cancelled"


def test_every_step_is_in_the_log(house):
    ask(house, "a")
    lease = take(house)
    house.store.write(lambda c: finish(c, house, lease, "succeeded", sha256="2" * 64))
    from fairpremium.parties.store.schema import log

    events = [row.event for row in house.store.read(lambda c: c.execute(select(log).order_by(log.c.seq)).all())]
    assert events == ["study.declared", "fit.requested", "fit.started", "fit.succeeded"]
    assert house.store.read(lambda c: c.execute(select(fits.c.lease_token)).scalar()) is None


def test_at_most_twenty_distinct_fits(house):
    from fairpremium.parties import Problem

    for i in range(20):
        ask(house, f"f{i}", level=0.6 + i / 100)
    ask(house, "again", level=0.6)  # a fit that was asked for before is not a new one
    with pytest.raises(Problem, match="distinct fits"):
        ask(house, "one-more", level=0.99)
