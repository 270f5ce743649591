"""Small versions of the attacks in benchmarks/_attacks.py: each wins where its defence is off, not where it is on.

A rate of right guesses may exceed the bound of the guarantee by four standard errors.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from scipy.stats import binom

from benchmarks import _attacks as attacks

PATH = Path(__file__).parents[2] / "benchmarks" / "_attacks.py"

WORLDS = {name: 3 if worlds < 60 else 20 for name, (_, _, worlds) in attacks.ATTACKS.items()}
REFUSED_BY_RULES = (
    "planted indicator per target",
    "spike hidden in a column",
    "planted outcome in a cell of 40",
    "with and without one row",
)
BEATS_THE_RULES = (
    "coded outcomes, from coefficients",
    "coded outcomes, from premiums",
    "the same, padded with weightless rows",
    "same rows, one outcome changed",
    "whether a key reported",
    "the refusal, all other reports known",
    "last bits of the unaware price",
    "standard errors, all other reports known",
)
SAME_READING = ("standard errors, all other reports known",)  # under noise: by the likelihood ratio of all sums
ATTRIBUTE = "the true attribute, from decoded reports"

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def run(name, defence, worlds=None):
    return attacks.run(name, attacks.DEFENCES[defence], worlds or WORLDS[name])


@pytest.mark.parametrize("name", REFUSED_BY_RULES)
def test_an_attack_that_rules_stop_wins_without_them(name):
    assert run(name, "nothing").rate == 1.0
    stopped = run(name, "rules alone")
    assert stopped.refused == WORLDS[name]


@pytest.mark.parametrize("name", BEATS_THE_RULES)
def test_rules_alone_are_beaten_which_is_why_there_is_noise(name):
    assert run(name, "rules alone").rate > 0.95


@pytest.mark.parametrize("name", [n for n in attacks.ATTACKS if "5 times" not in n and n not in SAME_READING])
def test_with_noise_no_attack_is_better_than_the_guarantee_allows(name):
    outcome = run(name, "noised sums alone")
    allowed = attacks.bound(name, attacks.DEFENCES["noised sums alone"])
    assert outcome.right <= binom.ppf(1 - 1e-5, outcome.guesses, allowed)


@pytest.mark.parametrize("name", [n for n in attacks.ATTACKS if "5 times" not in n])
def test_with_randomized_reports_no_attack_is_better_than_the_guarantee_allows(name):
    outcome = run(name, "randomized alone")
    allowed = attacks.bound(name, attacks.DEFENCES["randomized alone"])
    assert outcome.right <= binom.ppf(1 - 1e-5, outcome.guesses, allowed)


def test_decoding_reads_the_new_reports_whatever_the_rules_say():
    """The bound of the second randomization is attained up to those whose report it hides: it is not loose."""
    outcome = run("coded outcomes, from coefficients", "randomized and rules", 12)
    assert outcome.right >= binom.ppf(1e-5, outcome.guesses, 0.62)


def test_the_true_attribute_stays_at_the_bound_of_randomized_response():
    outcome = run(ATTRIBUTE, "nothing", 12)
    assert binom.ppf(1e-5, outcome.guesses, 0.8) <= outcome.right <= binom.ppf(1 - 1e-5, outcome.guesses, 0.8)


def test_asking_again_gives_the_same_answer():
    world = attacks.World(0, attacks.DEFENCES["noised sums alone"])
    answers = [world.ask(world.X, world.y).predict(world.X.iloc[:5]).tolist() for _ in range(2)]
    assert answers[0] == answers[1]
    assert world.ask(world.X, world.y + 1e-9).predict(world.X.iloc[:5]).tolist() != answers[0]
