"""The ledger: durable, atomic, safe under many writers, and silent about persons."""

from __future__ import annotations

import math
import sqlite3
import stat
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairpremium.errors import BudgetExceededError
from fairpremium.privacy import PrivacyLedger, RandomizedResponse


@pytest.fixture
def ledger():
    with PrivacyLedger(":memory:", budget=1.0) as ledger:
        yield ledger


def test_charges_add_up(ledger):
    assert ledger.charge("p", "sex", 0.25) == 0.75
    assert ledger.charge("p", "sex", 0.5) == 0.25
    assert ledger.spent("p", "sex") == 0.75
    assert ledger.remaining("p", "sex") == 0.25


def test_people_and_attributes_have_accounts_of_their_own(ledger):
    ledger.charge("p", "sex", 1.0)
    assert ledger.charge("p", "smoker", 1.0) == 0
    assert ledger.charge("q", "sex", 0.5) == 0.5
    assert ledger.spent("nobody", "sex") == 0


def test_beyond_the_budget(ledger):
    ledger.charge("secret person", "sex", 0.75)
    with pytest.raises(BudgetExceededError, match="budget of epsilon=1 ") as caught:
        ledger.charge("secret person", "sex", 0.5)
    assert "secret person" not in str(caught.value)
    assert ledger.spent("secret person", "sex") == 0.75
    ledger.charge("secret person", "sex", 0.25)
    with pytest.raises(BudgetExceededError):
        ledger.charge("secret person", "sex", 1e-9)


def test_budgets_of_whole_charges_are_exhausted_exactly():
    channel = RandomizedResponse(["F", "M"], keep=0.8)
    for epsilon in (0.1, 0.3, channel.epsilon, 1e-6):
        for count in (1, 3, 7, 10):
            with PrivacyLedger(":memory:", budget=count * epsilon) as ledger:
                for _ in range(count):
                    ledger.charge("p", "sex", epsilon)
                with pytest.raises(BudgetExceededError):
                    ledger.charge("p", "sex", epsilon)


def test_many_charges_are_one_or_none(ledger):
    ledger.charge("b", "sex", 0.5)
    with pytest.raises(BudgetExceededError, match="1 of 3 balances"):
        ledger.charge_many([("a", "sex", 0.5), ("b", "sex", 0.75), ("c", "sex", 0.5)])
    assert [ledger.spent(p, "sex") for p in "abc"] == [0, 0.5, 0]
    ledger.charge_many([("a", "sex", 0.5), ("b", "sex", 0.25), ("c", "sex", 0.5)])
    assert [ledger.spent(p, "sex") for p in "abc"] == [0.5, 0.75, 0.5]
    ledger.charge_many([])


def test_one_batch_may_not_hide_two_charges(ledger):
    with pytest.raises(BudgetExceededError):
        ledger.charge_many([("a", "sex", 0.75), ("a", "sex", 0.75)])
    assert ledger.spent("a", "sex") == 0


def test_retries_are_not_charged_twice(ledger):
    for _ in range(3):
        assert ledger.charge("p", "sex", 0.75, charge_id="order 1") == 0.25
    with pytest.raises(ValueError, match="used before for another charge"):
        ledger.charge("p", "sex", 0.25, charge_id="order 1")
    with pytest.raises(BudgetExceededError):
        ledger.charge("p", "sex", 0.75, charge_id="order 2")
    ledger.charge("p", "sex", 0.25, charge_id="order 2")  # a refused charge leaves no receipt
    batch = [("a", "sex", 0.5), ("b", "sex", 0.5)]
    for _ in range(2):
        ledger.charge_many(batch, charge_id="batch")
    assert ledger.spent("a", "sex") == 0.5


@pytest.mark.parametrize("epsilon", [0, -1.0, math.nan, math.inf, -0.0])
def test_epsilon_fails_closed(ledger, epsilon):
    with pytest.raises(ValueError, match="positive finite"):
        ledger.charge("p", "sex", epsilon)
    assert ledger.spent("p", "sex") == 0


@pytest.mark.parametrize("epsilon", [True, "1", None])
def test_epsilon_of_the_wrong_type(ledger, epsilon):
    with pytest.raises(TypeError, match="Got epsilon of type"):
        ledger.charge("p", "sex", epsilon)


@pytest.mark.parametrize("budget", [0, -1, math.nan, math.inf, True, "1", None])
def test_budget_fails_closed(budget):
    with pytest.raises((ValueError, TypeError), match="budget"):
        PrivacyLedger(":memory:", budget=budget)


@pytest.mark.parametrize("key", [None, "", 1, b"p", math.nan, True])
def test_keys_are_text(ledger, key):
    with pytest.raises(TypeError, match="Got person of type"):
        ledger.charge(key, "sex", 0.1)
    with pytest.raises(TypeError, match="Got attribute of type"):
        ledger.spent("p", key)


def test_hostile_keys(ledger):
    for key in ("'; DROP TABLE charges; --", "p\0q", "é", "e\u0301", "%", "x" * 10_000):
        ledger.charge(key, "sex", 0.5)
    assert ledger.spent("p", "sex") == 0
    assert ledger.spent("e\u0301", "sex") == 0.5
    assert ledger.charge("p", "sex", np.float64(0.5)) == 0.5


def test_a_failing_iterator_charges_nothing(ledger):
    def charges():
        yield ("a", "sex", 0.5)
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        ledger.charge_many(charges())
    assert ledger.spent("a", "sex") == 0


# --- the file ---


def test_the_file_remembers(tmp_path):
    path = tmp_path / "ledger.db"
    with PrivacyLedger(path, budget=1.0) as ledger:
        ledger.charge("p", "sex", 0.75)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with PrivacyLedger(str(path), budget=1.0) as ledger:
        assert ledger.spent("p", "sex") == 0.75
        with pytest.raises(BudgetExceededError):
            ledger.charge("p", "sex", 0.5)
    with PrivacyLedger(path, budget=2.0) as ledger:
        assert ledger.charge("p", "sex", 0.5) == 0.75
    with pytest.raises(ValueError, match="closed"):
        ledger.spent("p", "sex")


def test_a_charge_survives_a_crash(tmp_path):
    code = (
        "import os, sys; from fairpremium.privacy import PrivacyLedger\n"
        "ledger = PrivacyLedger(sys.argv[1], budget=1.0); ledger.charge('p', 'sex', 0.75); os._exit(9)"
    )
    path = tmp_path / "ledger.db"
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == 9
    with PrivacyLedger(path, budget=1.0) as ledger:
        assert ledger.spent("p", "sex") == 0.75


def test_the_settings_of_the_file(tmp_path):
    with PrivacyLedger(tmp_path / "ledger.db", budget=1.0) as ledger, ledger._connected() as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,)


def test_other_files_are_refused(tmp_path):
    text = tmp_path / "text.db"
    text.write_text("not a database, but long enough to have a header" * 10)
    with pytest.raises(ValueError, match="is not a ledger"):
        PrivacyLedger(text, budget=1.0)
    other = tmp_path / "other.db"
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE people (name TEXT)")
    connection.close()
    with pytest.raises(ValueError, match="not a ledger"):
        PrivacyLedger(other, budget=1.0)


def test_an_unknown_schema_is_refused(tmp_path):
    path = tmp_path / "ledger.db"
    PrivacyLedger(path, budget=1.0).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    with pytest.raises(ValueError, match="schema version 2, but this fairpremium knows 1"):
        PrivacyLedger(path, budget=1.0)


# --- many writers ---


def test_threads_never_overspend(tmp_path):
    for path in (tmp_path / "ledger.db", ":memory:"):
        with PrivacyLedger(path, budget=10.0) as ledger:
            granted = []

            def work(ledger=ledger, granted=granted):
                for _ in range(10):
                    try:
                        ledger.charge("p", "sex", 1.0)
                        granted.append(1)
                    except BudgetExceededError:
                        pass

            threads = [threading.Thread(target=work) for _ in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(granted) == 10
            assert ledger.spent("p", "sex") == 10.0


WRITER = """
import sys
from fairpremium.errors import BudgetExceededError
from fairpremium.privacy import PrivacyLedger
sys.stdin.readline()
granted = 0
for i in range(20):  # opens anew every time: the first ones race for the creation of the file
    with PrivacyLedger(sys.argv[1], budget=15.0) as ledger:
        try:
            ledger.charge("p", "sex", 1.0)
            granted += 1
        except BudgetExceededError:
            pass
print(granted)
"""


def test_processes_never_overspend(tmp_path):
    path = tmp_path / "ledger.db"
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(3)
    ]
    for writer in writers:  # all at once
        writer.stdin.write("go\n")
        writer.stdin.flush()
    granted = [int(writer.communicate(timeout=60)[0]) for writer in writers]
    assert sum(granted) == 15
    with PrivacyLedger(path, budget=15.0) as ledger:
        assert ledger.spent("p", "sex") == 15.0


FORK = """
import os, sys
from fairpremium.privacy import PrivacyLedger
ledger = PrivacyLedger(sys.argv[1], budget=10.0)
ledger.charge("p", "sex", 1.0)
child = os.fork()
for _ in range(4):
    ledger.charge("p", "sex", 1.0)
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print(ledger.spent("p", "sex"))
memory = PrivacyLedger(":memory:", budget=1.0)
child = os.fork()
if child == 0:
    try:
        memory.charge("p", "sex", 1.0)
    except RuntimeError:
        os._exit(7)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="needs fork: run on Linux or macOS")
def test_a_fork_opens_its_own_connection(tmp_path):
    result = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK, str(tmp_path / "ledger.db")],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert result.stdout.split() == ["9.0", "7"]


# --- a model of the ledger ---

charges = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from(["sex", "age"]), st.sampled_from([0.125, 0.25, 0.5])),
    max_size=4,
)


@settings(max_examples=60, deadline=None)
@given(st.lists(charges, max_size=12))
def test_against_a_dictionary(batches):
    spent: dict[tuple[str, str], float] = {}
    with PrivacyLedger(":memory:", budget=1.0) as ledger:
        for batch in batches:
            after = dict(spent)
            for person, attribute, epsilon in batch:
                after[person, attribute] = after.get((person, attribute), 0.0) + epsilon
            if max(after.values(), default=0.0) > 1.0:
                with pytest.raises(BudgetExceededError):
                    ledger.charge_many(batch)
            else:
                ledger.charge_many(batch)
                spent = after
            for key, value in spent.items():
                assert ledger.spent(*key) == value


# --- charges with names of their own ---


def test_each_charge_is_made_once_under_its_name():
    with PrivacyLedger(":memory:", budget=2.0) as ledger:
        assert ledger.charge_each((f"i{p}", (p, "sex", 1.5)) for p in "ab") == 2
        assert ledger.charge_each((f"i{p}", (p, "sex", 1.5)) for p in "abc") == 1
        assert [ledger.spent(p, "sex") for p in "abcd"] == [1.5, 1.5, 1.5, 0.0]
        with pytest.raises(BudgetExceededError, match="1 of 2 balances; nothing was charged"):
            ledger.charge_each([("new", ("d", "sex", 1.5)), ("other", ("a", "sex", 1.5))])
        assert ledger.spent("d", "sex") == 0.0
        assert ledger.charge_each([("new", ("d", "sex", 1.5))]) == 1  # its name was not used up by the refusal
        with pytest.raises(ValueError, match="charge_id"):
            ledger.charge_each([("ia", ("a", "sex", 0.5))])
