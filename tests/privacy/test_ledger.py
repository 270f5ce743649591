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

from fairpremium.errors import BudgetExceededError, NewDrawError
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


@pytest.mark.parametrize("budget", [0, -1, math.nan, math.inf, True, "1"])
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
    connection.execute("PRAGMA user_version = 3")
    connection.close()
    with pytest.raises(ValueError, match="schema version 3, but this fairpremium knows 2"):
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
from fairpremium.errors import BudgetExceededError, NewDrawError
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
    granted = [int(writer.communicate(timeout=240)[0]) for writer in writers]
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
        capture_output=True, text=True, timeout=240, check=True,
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


# --- draws, each charged once ---


def draws(ledger, who, ids, attribute="sex", epsilon=1.0, **more):
    names = None if who is None else list(who)
    ids = [None if i is None else i.encode() for i in ids]
    return ledger.charge_draws(names, ids, attribute=attribute, epsilon=epsilon, **more)


def test_a_draw_is_charged_once(ledger):
    assert draws(ledger, "ab", ["1", "2"], epsilon=0.5) == 2
    assert draws(ledger, "abc", ["1", "2", "3"], epsilon=0.5) == 1
    assert draws(ledger, "aac", ["1", "1", "3"], epsilon=0.5) == 0  # three policies, two people
    assert [ledger.spent(p, "sex") for p in "abcd"] == [0.5, 0.5, 0.5, 0.0]
    assert ledger.find_draws([b"1", b"9"]) == {b"1"}


def test_a_new_draw_is_said_before_and_confirmed(ledger):
    draws(ledger, "ab", ["1", "2"], epsilon=0.25)
    with pytest.raises(NewDrawError, match=r"for 1 person .* epsilon 0.25 more, up to 0.5 in all; nothing was drawn"):
        draws(ledger, "bc", ["other", "3"], epsilon=0.25)
    assert [ledger.spent(p, "sex") for p in "abc"] == [0.25, 0.25, 0]
    assert draws(ledger, "bc", ["other", "3"], epsilon=0.25, confirm_new_draw=True) == 2
    assert [ledger.spent(p, "sex") for p in "abc"] == [0.25, 0.5, 0.25]
    with pytest.raises(BudgetExceededError, match="1 of 2 balances; nothing was charged"):  # not to be confirmed away
        draws(ledger, "bc", ["5", "6"], epsilon=0.6, confirm_new_draw=True)
    assert draws(ledger, "c", ["6"], epsilon=0.6, confirm_new_draw=True) == 1  # its name was not used up


def test_another_name_of_the_attribute_is_confirmed(ledger):
    draws(ledger, "ab", ["1", "2"])
    with pytest.raises(NewDrawError, match=r"knows 2 of these people with 'sex'.*--attribute"):
        draws(ledger, "abc", ["4", "5", "6"], attribute="gender")
    assert draws(ledger, "ab", ["4", "5"], attribute="town", declared=["sex", "town"]) == 2  # one study has both
    assert draws(ledger, "c", ["6"], attribute="gender") == 1
    assert draws(ledger, "ab", ["7", "8"], attribute="gender", confirm_new_draw=True) == 2
    assert [ledger.spent("a", name) for name in ("sex", "town", "gender")] == [1, 1, 1]


def test_people_who_are_not_named_may_be_anybody(ledger):
    draws(ledger, None, ["table"], epsilon=0.25)
    assert draws(ledger, None, ["table"], epsilon=0.25) == 0
    with pytest.raises(NewDrawError, match=r"for people who were not named, .* up to 0.5 in all"):
        draws(ledger, None, ["another table"], epsilon=0.25)
    with pytest.raises(NewDrawError, match=r"for 2 persons .* up to 0.5 in all"):
        draws(ledger, "ab", ["1", "2"], epsilon=0.25)
    draws(ledger, "ab", ["1", "2"], epsilon=0.25, confirm_new_draw=True)
    assert ledger.spent("a", "sex") == 0.5
    with pytest.raises(NewDrawError, match=r"up to 0.75 in all"):  # 0.25 without a name, 0.25 of a, and now
        draws(ledger, None, ["another table"], epsilon=0.25)
    with pytest.raises(NewDrawError, match="'sex'"):
        draws(ledger, None, ["another table"], attribute="gender", epsilon=0.25)
    with pytest.raises(BudgetExceededError):
        draws(ledger, None, ["another table"], epsilon=0.51, confirm_new_draw=True)


def test_what_was_charged_under_policies_belongs_to_their_person(ledger):
    draws(ledger, ["P1", "P2", "P3"], ["1", "2", "3"], epsilon=0.25)  # each policy counted as a person
    three = {"policies": ["P1", "P2"], "epsilon": 0.25}
    with pytest.raises(NewDrawError, match=r"for 1 person .* up to 0.75 in all"):
        draws(ledger, ["ann", "ann"], ["4", "4"], **three)
    assert ledger.spent("ann", "sex") == 0  # nothing was learned from a refusal
    assert draws(ledger, ["ann", "ann"], ["4", "4"], **three, confirm_new_draw=True) == 1
    assert [ledger.spent(name, "sex") for name in ("ann", "P1", "P2", "P3")] == [0.75, 0.75, 0.75, 0.25]
    assert ledger.find_persons(["P1", "P2"], policies=True) == ["ann", "ann"]
    assert ledger.find_persons(["P1", "new", "ann"], policies=False) == ["ann", "new", "ann"]
    with pytest.raises(ValueError, match=r"to whom 1 of these policies belong. Name that column with --person"):
        ledger.find_persons(["P1", "P9"], policies=True)


def test_numbers_of_persons_and_of_policies_may_be_alike(ledger):
    draws(ledger, ["1", "2"], ["a", "b"], policies=["2", "3"])
    assert draws(ledger, ["3"], ["c"], policies=["1"]) == 1  # policy 1 is not person 1
    assert [ledger.spent(name, "sex") for name in ("1", "2", "3")] == [1, 1, 1]
    assert ledger.find_persons(["1", "2", "3"], policies=True) == ["3", "1", "2"]
    assert ledger.find_persons(["1", "2", "3"], policies=False) == ["1", "2", "3"]


def test_a_report_that_is_paid_for_costs_nothing_and_its_policy_is_remembered(ledger):
    draws(ledger, ["P1"], ["1"], epsilon=0.5)
    assert draws(ledger, ["ann", "ann"], [None, "1"], epsilon=0.5, policies=["P1", "P2"]) == 0
    assert [ledger.spent(name, "sex") for name in ("ann", "P1", "P2")] == [0.5, 0.5, 0.5]
    with pytest.raises(NewDrawError):
        draws(ledger, ["ann"], ["2"], epsilon=0.5)


def test_a_draw_beside_several_people_is_charged_to_each(ledger):
    """A ledger that was lost does not know that two policies are one person's."""
    assert draws(ledger, ["P1", "P2"], ["1", "1"], epsilon=0.25) == 2
    assert [ledger.spent(name, "sex") for name in ("P1", "P2")] == [0.25, 0.25]
    assert draws(ledger, ["P1", "P2", "P3"], ["1", "1", "1"], epsilon=0.25) == 0


def test_people_who_are_not_named_may_be_the_owner_of_policies():
    """The highest account is a person's with all policies, not the highest of single names."""
    with PrivacyLedger(":memory:", budget=4.0) as ledger:
        draws(ledger, ["P1", "B"], ["1", "2"], epsilon=1.4)
        draws(ledger, ["A"], ["3"], epsilon=1.4, policies=["P1"], confirm_new_draw=True)
        assert ledger.spent("A", "sex") == 2.8
        with pytest.raises(NewDrawError, match="up to 4 in all"):
            draws(ledger, None, ["table"], epsilon=1.2)
        with pytest.raises(BudgetExceededError):
            draws(ledger, None, ["table"], epsilon=1.4, confirm_new_draw=True)
        assert ledger.spent("A", "sex") == 2.8
        draws(ledger, None, ["table"], epsilon=1.2, confirm_new_draw=True)
        assert ledger.spent("A", "sex") == pytest.approx(4.0)


def test_an_owner_without_charges_of_the_own_counts_too():
    with PrivacyLedger(":memory:", budget=2.0) as ledger:
        draws(ledger, ["P1", "P2"], ["1", "2"], epsilon=0.75)
        draws(ledger, ["A", "A"], ["1", "2"], epsilon=0.75, policies=["P1", "P2"])  # known draws: free
        assert ledger.spent("A", "sex") == 1.5
        with pytest.raises(BudgetExceededError):
            draws(ledger, None, ["table"], epsilon=0.75, confirm_new_draw=True)


def test_all_policies_of_a_person(ledger):
    draws(ledger, ["a", "a", "b", "b", "c"], ["1", "1", "2", "2", "3"], policies=["P2", "P1", "P3", "P4", "P4"])
    assert ledger.find_policies(["P2"]) == ["P2", "P1"]
    assert ledger.find_policies(["P9", "P1", "P3"]) == ["P9", "P1", "P3", "P2", "P4"]
    assert ledger.find_policies(["P4"]) == ["P4"]  # of two persons: of whom else is not known


def test_a_charge_is_known_by_its_name(ledger):
    ledger.charge("a", "sex", 0.5, charge_id="first")
    assert [ledger.knows_charge(name) for name in ("first", "second")] == [True, False]
    asked = [("second", "a"), ("first", "a"), ("first", "b"), ("first", "a")]
    assert [ledger.bind_charge(*each) for each in asked] == [False, True, False, True]


def test_without_a_budget_there_is_no_limit():
    with PrivacyLedger(":memory:") as ledger:
        for k in range(50):
            draws(ledger, "a", [f"{k}"], epsilon=2.0, confirm_new_draw=True)
        assert ledger.spent("a", "sex") == 100
        assert ledger.remaining("a", "sex") == math.inf
        ledger.charge("a", "sex", 5.0)


DRAWERS = """
import sys
from fairpremium.privacy import MemoizedReports, PrivacyLedger, RandomizedResponse
channel = RandomizedResponse(["F", "M"], keep=0.8)
memo = MemoizedReports(channel, b"a secret of the tests", attribute="sex")
people = [str(i) for i in range(2000)]
with PrivacyLedger(sys.argv[1]) as ledger:
    print("ready", flush=True); sys.stdin.read(1)
    reports, charged = memo.draw(people, ["F", "M"] * 1000, ledger)
print(charged, "".join(reports))
"""


def test_two_processes_draw_the_same_reports_and_charge_once(tmp_path):
    words = [sys.executable, "-c", DRAWERS, str(tmp_path / "ledger.db")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    running = [subprocess.Popen(words, **pipes) for _ in range(3)]
    for process in running:
        assert process.stdout.readline() == "ready\n"
    for process in running:
        process.stdin.write("!")
        process.stdin.flush()
    answers = [process.communicate(timeout=120)[0].split() for process in running]
    assert sorted(int(charged) for charged, _ in answers) == [0, 0, 2000]
    assert len({reports for _, reports in answers}) == 1


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from([("a", "P1"), ("a", "P2"), ("b", "P3"), ("c", "P4")]), min_size=1, max_size=4),
            st.booleans(), st.sampled_from("xy"), st.booleans(),
        ),
        max_size=8,
    )
)  # fmt: skip
def test_accounts_are_never_below_the_independent_draws_of_a_person(steps):
    """Whatever is named, confirmed or refused: no person has more draws than the account says."""
    drawn = {"a": set(), "b": set(), "c": set()}
    with PrivacyLedger(":memory:") as ledger:
        for rows, by_person, secret, confirm in steps:
            people = [person for person, _ in rows]
            numbers = [policy for _, policy in rows]
            try:
                names = people if by_person else ledger.find_persons(numbers, policies=True)
                more = {"policies": numbers} if by_person else {}
                ids = [f"{name}{secret}" for name in names]
                draws(ledger, names, ids, confirm_new_draw=confirm, **more)
            except ValueError:  # NewDrawError is one
                continue
            for person, name in zip(people, ids, strict=True):
                drawn[person].add(name)
        for person, numbers in {"a": ["P1", "P2"], "b": ["P3"], "c": ["P4"]}.items():
            names = {person, *numbers}
            own = sum(ledger.spent(name, "sex") for name in names)
            assert own >= len(drawn[person])
            if set(ledger.find_persons(list(names), policies=False)) == {person}:  # the ledger knows all policies
                assert ledger.spent(person, "sex") == len(drawn[person])


def test_people_of_whom_none_is_known_may_be_those_that_are_known_by_another_name(ledger):
    draws = {"attribute": "sex", "epsilon": 1.0}
    ledger.charge_draws(["ann", "bob"], [b"1", b"2"], named_by="holder", **draws)
    assert ledger.charge_draws(["cleo"], [b"3"], named_by="holder", **draws) == 1  # people who have joined
    with pytest.raises(NewDrawError, match="named by 'policy', but the ledger knows people by 'holder'"):
        ledger.charge_draws(["17", "18"], [b"4", b"5"], named_by="policy", **draws)
    assert ledger.spent("17", "sex") == 0
    with pytest.raises(NewDrawError, match="1 of these 3"):  # one who is known does not vouch for the others
        ledger.charge_draws(["ann", "17", "18"], [b"1", b"4", b"5"], named_by="policy", **draws)
    assert ledger.charge_draws([], [], named_by="policy", **draws) == 0  # nor does nobody
    for _ in range(2):  # nor does a policy that belongs to somebody else
        with pytest.raises(NewDrawError, match="0 of these 2"):
            ledger.charge_draws(["17", "18"], [b"4", b"5"], named_by="policy", policies=["P1", "P2"], **draws)
        ledger.charge_draws(["ann", "bob"], [b"1", b"2"], named_by="holder", policies=["P1", "P2"], **draws)
    assert ledger.charge_draws(["ann", "dan"], [b"1", b"6"], named_by="name", **draws) == 1  # the column was renamed
    assert ledger.charge_draws(["eve"], [b"7"], named_by="name", **draws) == 1
    assert ledger.charge_draws(["17"], [b"4"], named_by="policy", confirm_new_draw=True, **draws) == 1
    assert ledger.charge_draws(["18"], [b"5"], named_by="policy", **draws) == 1


def test_a_policy_that_is_known_with_somebody_else_is_asked_about(ledger):
    """The same person under another key, or a policy that has passed on: the user knows, the ledger does not."""
    draws(ledger, ["ann"], ["1"], policies=["P1"])
    with pytest.raises(NewDrawError, match=r"for 1 person whom .* a policy has passed on .* --confirm-new-draw"):
        draws(ledger, ["bob", "cleo"], ["2", "3"], policies=["P1", "P2"])
    assert ledger.find_persons(["P1"], policies=True) == ["ann"]  # nothing was learned from a refusal
    assert draws(ledger, ["bob", "cleo"], ["2", "3"], policies=["P1", "P2"], confirm_new_draw=True) == 2
    assert [ledger.spent(who, "sex") for who in ("ann", "bob", "cleo")] == [1, 1, 1]  # each has an account of the own
    assert draws(ledger, ["bob", "cleo"], ["2", "3"], policies=["P1", "P2"]) == 0  # the question comes once
    assert draws(ledger, ["ann", "bob"], ["4", "5"], "town", policies=["P9", "P1"], declared=["sex", "town"]) == 2
    with pytest.raises(NewDrawError, match="'sex' for 1 person whom"):
        draws(ledger, ["dan"], ["6"], policies=["P1"])


def test_a_policy_may_pass_on_within_the_budget():
    with PrivacyLedger(":memory:", budget=1.0) as ledger:
        draws(ledger, ["ann"], ["1"], policies=["P1"])
        assert draws(ledger, ["bob"], ["2"], policies=["P1"], confirm_new_draw=True) == 1


def test_new_policies_of_known_people_and_new_people_are_no_question(ledger):
    draws(ledger, ["ann", "bob"], ["1", "2"], policies=["P1", "P2"])
    assert draws(ledger, ["ann", "ann", "bob"], ["1", "1", "2"], policies=["Q1", "Q3", "Q2"]) == 0
    assert draws(ledger, ["ann", "bob", "cleo"], ["1", "2", "3"], policies=["Q1", "R2", "R3"]) == 1
    assert draws(ledger, ["ann", "dan"], ["5", "6"], "town", policies=["P1", "S1"], declared=["sex", "town"]) == 2


def test_a_policy_that_two_people_have_from_the_first_is_no_question(ledger):
    assert draws(ledger, ["ann", "bob"], ["1", "2"], policies=["P1", "P1"]) == 2


@pytest.mark.parametrize("first", ["charged by the person", "charged by the policy"])
def test_who_may_be_the_same_is_found_over_all_policies(ledger, first):
    if first == "charged by the person":
        draws(ledger, ["ann"], ["1"], policies=["P1"])
    else:
        draws(ledger, ["P1"], ["1"])
        draws(ledger, ["ann"], ["1"], policies=["P1"])
    draws(ledger, ["anne", "anne"], [None, None], policies=["P1", "P2"])  # reports that are stored and paid for
    with pytest.raises(NewDrawError, match="for 1 person whom"):
        draws(ledger, ["anna"], ["2"], policies=["P2"])


@pytest.mark.parametrize(
    "other", ["7", " 7", "7 ", "007", "7.0", "007.00", "\uff17", "7\u200b", "\ufeff7", "\u00a07"], ids=ascii
)
def test_a_key_that_is_written_otherwise_is_asked_about(ledger, other):
    draws(ledger, ["0007"], ["1"], named_by="id")
    with pytest.raises(NewDrawError, match=r"for 1 person whom .* written otherwise, as 7, 007 and 7.0 are"):
        draws(ledger, ["0007", other], ["1", "2"], named_by="id")
    assert draws(ledger, ["0007", other], ["1", "2"], named_by="id", confirm_new_draw=True) == 1
    assert draws(ledger, ["0007", other], ["1", "2"], named_by="id") == 0


@pytest.mark.parametrize(("policy", "other"), [("007", "7"), ("p-7", "P7"), ("7", "7.0")])
def test_other_people_with_policies_that_are_written_otherwise_are_asked_about(ledger, policy, other):
    draws(ledger, ["ann"], ["1"], policies=[policy])
    with pytest.raises(NewDrawError, match="for 1 person whom"):
        draws(ledger, ["a17"], ["2"], policies=[other])
    assert draws(ledger, ["bob"], ["3"], policies=["8"]) == 1


def test_accents_in_two_forms_are_one_spelling(ledger):
    draws(ledger, ["Ren\u00e9"], ["1"])
    with pytest.raises(NewDrawError, match="for 1 person whom"):
        draws(ledger, ["Rene\u0301"], ["2"])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("ab-12", "AB-12"),
        ("ab-12", "ab\u201312"),
        ("ab-12", "ab/12"),
        ("ab-12", "AB12"),
        ("P7", "P07"),
        ("12345", "12.345"),
        ("12345", "12,345"),
        ("12000000", "1.2E+07"),
        ("7", "7,0"),
        ("7", "'7"),
        ("12", "\u0661\u0662"),
        ("a1", "a1\ufe0f"),
        ("\u00e91", "E1"),
        ("2020-01-02", "2020-01-02 00:00:00"),
        ("2020-01-02", "2020/01/02T00:00:00Z"),
    ],
    ids=ascii,
)
def test_case_separators_and_other_ways_to_write_a_key_are_asked_about(ledger, one, other):
    draws(ledger, [one], ["1"])
    with pytest.raises(NewDrawError, match="for 1 person whom"):
        draws(ledger, [other], ["2"])


@pytest.mark.parametrize(
    ("one", "other"), [("7", "70"), ("a1", "b1"), ("0-1", "1-1"), ("1.05", "1.5"), ("1-23", "12-3"), ("-", ".")]
)
def test_other_keys_are_other_people(ledger, one, other):
    draws(ledger, [one], ["1"])
    assert draws(ledger, [other], ["2"]) == 1


def test_a_ledger_that_did_not_note_what_names_people_asks(ledger):
    """As in version 0.1.0."""
    ledger.charge_many([("17", "sex", 0.5), ("18", "sex", 0.5)])
    with pytest.raises(NewDrawError, match="by a column that it did not note, and 0 of these 2"):
        draws(ledger, ["ann", "bob"], ["1", "2"], epsilon=0.5, named_by="holder")
    with pytest.raises(NewDrawError, match="for 2 persons who reported it before"):
        draws(ledger, ["17", "18", "19"], ["1", "2", "3"], epsilon=0.5, named_by="policy")
    draws(ledger, ["17", "18", "19"], ["1", "2", "3"], epsilon=0.5, named_by="policy", confirm_new_draw=True)
    assert draws(ledger, ["20"], ["4"], named_by="policy") == 1
