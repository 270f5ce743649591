"""What all released numbers of reports, and of answers, tell together about one report.

The numbers of a study grow by increments, each with noise of one standard deviation. What they cost together follows
from how far one report moves the vector of all exact increments, in Euclidean length: that must be at most what the
noise covers (`CountNoise.most`), whatever else happens and whenever the report comes and goes.
"""

from __future__ import annotations

import dataclasses
import math
from datetime import UTC, datetime

import numpy as np
import pytest
from sqlalchemy import select

from fairpremium.parties import KnownChannel, StudySpec
from fairpremium.parties.protocol import (
    NamedAttribute,
    ReleaseRules,
    Report,
    Retention,
    SeveralAttributes,
    invitation_key,
    write_token,
)
from fairpremium.parties.release import CountNoise
from fairpremium.parties.service._context import Party
from fairpremium.parties.service._housekeeping import clean
from fairpremium.parties.service._third_party import ThirdParty
from fairpremium.parties.service.erasure import enforce_retention
from fairpremium.parties.store.schema import epochs
from helpers import wire

OP, APP = Party("op", "operator"), Party("app", "collector")
EPOCHS = range(1, 5)
REPORT = Report(report="F", channel=wire.CHANNEL.descriptor())
ONE = KnownChannel(channel=wire.CHANNEL.descriptor())
TWO = SeveralAttributes(
    attributes=tuple(NamedAttribute(name=name, channel=wire.CHANNEL.descriptor()) for name in ("sex", "area"))
)


@pytest.fixture
def increments(monkeypatch):
    """The exact increments, and what their noise covers, as they come to it."""
    seen = []

    def add(noise, count, *_):
        seen.append((count, noise.most))
        return round(count / noise.grid)

    monkeypatch.setattr(CountNoise, "add", add)
    return seen


class Study:
    """A study in which time goes by; the others in it report and withdraw as they like."""

    def __init__(self, folder, attribute=ONE, retention=None):
        self.clock = wire.Clock()
        self.party = ThirdParty(folder, clock=self.clock)
        self.names = [None] if attribute is ONE else ["sex", "area"]
        release = ReleaseRules()
        self.party.put_study(OP, "s", StudySpec(title="S", attribute=attribute, collectors=("app",), insurers=(),
                                                release=release, retention=retention))  # fmt: skip
        self.party.open_study(OP, "s")

    def report(self, who):
        for name in self.names:
            self.party.put_report(APP, "s", wire.policy_key(who), REPORT, name)

    def withdraw(self, who):
        self.party.withdraw_report(APP, "s", wire.policy_key(who))

    def rows(self, table):
        return self.party.context.database.read(lambda c: c.execute(select(table)).all())


def history(folder, taken, withdrawn, attribute=ONE, *, cleaned=False):
    """Let a person report before one epoch and withdraw before another (None: never), among others who do as well.

    - `cleaned`: Whether the worker looks for what is withdrawn before each epoch begins.
    """
    study = Study(folder, attribute)
    for number in EPOCHS:
        for i in range(number):
            study.report(f"{number} {i}")
        if number > 1:
            study.withdraw(f"{number - 1} 0")
        if number == taken:
            study.report("target")
        if number == withdrawn:
            study.withdraw("target")
        if cleaned:
            clean(study.party.context)
        study.party.begin_epoch(OP, "s", number)
    return study


@pytest.mark.parametrize("attribute", [ONE, TWO], ids=["one attribute", "two attributes"])
@pytest.mark.parametrize("cleaned", [False, True], ids=["by the epoch", "by the worker"])
def test_a_report_moves_all_numbers_together_no_further_than_their_noise_covers(
    tmp_path, increments, attribute, cleaned
):
    def all_increments(name, *when):
        increments.clear()
        history(tmp_path / name, *when, attribute, cleaned=cleaned).party.close()
        counts, most = zip(*increments, strict=True)
        assert len(counts) == len(EPOCHS)
        assert set(most) == {1 if attribute is ONE else 2}
        return np.array(counts), most[0]

    without, most = all_increments("without", None, None)
    moved = {}
    for taken in EPOCHS:
        for withdrawn in (None, *range(taken, len(EPOCHS) + 1)):
            with_it = all_increments(f"{taken} {withdrawn}", taken, withdrawn)[0]
            moved[taken, withdrawn] = float(np.linalg.norm(with_it - without))
    assert max(moved.values()) == most  # it is sharp: a report that stays is counted once
    assert len(moved) == sum(1 + len(EPOCHS) + 1 - taken for taken in EPOCHS)


def test_what_reports_have_cost_is_not_taken_back_when_all_are_erased(tmp_path, increments):
    """Reports that are deleted at the date of the study, and answers: no increment becomes negative."""
    clock = wire.Clock()
    ends = Retention(reports_until=datetime.fromtimestamp(clock.now + 86_400, UTC))
    study = Study(tmp_path / "third-party", retention=ends)
    for i in range(5):
        study.report(str(i))
    study.party.begin_epoch(OP, "s", 1)
    study.clock.now += 2 * 86_400
    enforce_retention(study.party.context)
    study.party.begin_epoch(OP, "s", 2)
    assert [count for count, _ in increments] == [5, 0]
    assert [row.counted for row in study.rows(epochs)] == [0, 0]
    study.party.close()


def test_no_exact_number_of_reports_stays_behind(tmp_path):
    """A number from which somebody who knows all others could tell that a report was there before it was withdrawn."""
    study = history(tmp_path / "third-party", 1, 3)
    there = sum(EPOCHS) - (len(EPOCHS) - 1)  # all but those who withdrew
    assert [row.counted for row in study.rows(epochs)] == [0, 0, 0, there]
    study.withdraw("4 1")
    clean(study.party.context)
    assert study.rows(epochs)[-1].counted == there - 1
    study.party.close()


def test_answers_are_counted_once_whether_they_are_withdrawn_or_erased(tmp_path, increments):
    ends = Retention(reports_until=datetime.fromtimestamp(wire.Clock().now + 86_400, UTC))
    with wire.World(tmp_path / "third-party") as world:
        world.declare(question=wire.QUESTION, retention=ends)
        ask = lambda: world.ask("app", "GET", "/v1/studies/motor/answers").json()  # noqa: E731
        sealed_to, expires = invitation_key(world.context.key), int(world.clock()) + 3600
        for i in range(4):
            token = write_token(world.keys["app"], sealed_to, study="motor", key=wire.policy_key(i), expires=expires)
            assert world.third_party.take_answer(token, "F", "0" * 64)
        first = ask()
        world.ask("app", "DELETE", f"/v1/studies/motor/reports/{wire.policy_key(0).hex()}")
        clean(world.context)
        world.clock.now += 3600
        ask()
        world.clock.now += 86_400
        enforce_retention(world.context)
        last = ask()
    assert [count for count, _ in increments] == [4, 0, 0]
    assert first["answered"] == last["answered"] == 4


@pytest.mark.parametrize(("most", "epsilon"), [(1, 1.0), (1, 0.5), (3, 1.0)])
def test_the_noise_covers_what_it_says(most, epsilon):
    """mu = most / sigma, up to the slack of the grid, is that of epsilon and delta."""
    from fairpremium.parties.release._accounting import epsilon_of

    noise = CountNoise(epsilon, 1e-6, most=most)
    assert dataclasses.replace(noise, most=1).sigma * most == pytest.approx(noise.sigma)
    assert epsilon_of(most / noise.sigma, 1e-6) == pytest.approx(epsilon, rel=1e-4)
    assert epsilon_of(math.sqrt(2) * most / noise.sigma, 1e-6) > 1.3 * epsilon  # what two increments would cost
