"""How a collector draws and stores reports: from the memo, once per person, and truthfully charged."""

from __future__ import annotations

import stat
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fairpremium import RandomizedResponse
from fairpremium.errors import BudgetExceededError, NewDrawError
from fairpremium.parties import charge_invitations, draw_reports
from fairpremium.privacy import MemoizedReports, PrivacyLedger, write_reports

CHANNEL = RandomizedResponse(["F", "M"], keep=0.8)
OTHER = RandomizedResponse(["F", "M"], keep=0.7)
EPSILON = CHANNEL.epsilon


def memo(channel=CHANNEL, secret=b"a secret of the tests", attribute="sex"):
    return MemoizedReports(channel, secret, attribute=attribute)


@pytest.fixture
def ledger():
    with PrivacyLedger(":memory:") as ledger:
        yield ledger


@pytest.fixture
def people():
    holders = np.repeat([f"person {i}" for i in range(60)], 3)
    return pd.DataFrame({"policy": np.arange(180), "holder": holders, "sex": np.repeat(["F", "M"] * 30, 3)})


@pytest.fixture
def draw(ledger, tmp_path):
    def run(people, name="reports.csv", **more):
        options = {"policy": "policy", "column": "sex", "memo": memo(), "ledger": ledger, **more}
        return draw_reports(people, tmp_path / name, **options)

    return run


def test_the_memo_is_the_only_origin_of_a_report(draw, people):
    reports, charged = draw(people, person="holder")
    assert charged == 60
    assert reports["report"].tolist() == memo().privatize(people["holder"], people["sex"]).tolist()
    shuffled = people.sample(frac=1, random_state=0)
    elsewhere, charged = draw(shuffled, "elsewhere.parquet", person="holder")
    assert charged == 0
    pd.testing.assert_frame_equal(
        elsewhere.sort_values("policy", ignore_index=True), reports.sort_values("policy", ignore_index=True)
    )


@pytest.mark.parametrize(
    "changed", [memo(secret=b"another secret, too"), memo(channel=OTHER)], ids=["secret", "channel"]
)
def test_another_memo_is_a_new_draw(draw, ledger, people, changed, tmp_path):
    draw(people, person="holder")
    with pytest.raises(NewDrawError, match="for 60 persons"):
        draw(people, "new.csv", person="holder", memo=changed)
    assert not (tmp_path / "new.csv").exists()
    assert ledger.spent("person 0", "sex") == EPSILON
    draw(people, "new.csv", person="holder", memo=changed, confirm_new_draw=True)
    assert ledger.spent("person 0", "sex") == pytest.approx(EPSILON + changed.channel.epsilon)


def test_stored_reports_stay_and_hold_for_all_policies_of_a_person(draw, people):
    some, _ = draw(people[::3], person="holder")
    changed = memo(secret=b"another secret, too")  # it is not needed: everybody has a report
    reports, charged = draw(people, person="holder", memo=changed)
    assert charged == 0
    assert reports["report"].tolist() == np.repeat(some["report"].to_numpy(), 3).tolist()


def test_reports_of_an_earlier_version_are_charged_once_the_ledger_is_there(draw, ledger, people, tmp_path):
    """Version 0.1.0 drew every policy by itself; without a ledger nobody had paid."""
    drawn = pd.DataFrame({"policy": people["policy"].astype(str), "report": CHANNEL.privatize(people["sex"], rng=0)})
    write_reports(tmp_path / "reports.csv", drawn, CHANNEL)
    reports, charged = draw(people)
    assert charged == 180
    assert reports["report"].tolist() == drawn["report"].tolist()
    assert ledger.spent("0", "sex") == EPSILON
    (tmp_path / "reports.csv").unlink()
    with pytest.raises(NewDrawError, match="for 180 persons"):
        draw(people)
    with pytest.raises(NewDrawError, match=r"for 60 persons .* up to 5.545 in all"):  # three policies, and once more
        draw(people, person="holder")


def test_without_a_column_for_the_person_a_policy_counts_as_one(draw, ledger, people):
    _, charged = draw(people)
    assert charged == 180
    with pytest.raises(NewDrawError, match=r"for 60 persons .* up to 5.545 in all"):
        draw(people, "persons.csv", person="holder")
    draw(people, "persons.csv", person="holder", confirm_new_draw=True)
    assert ledger.spent("person 3", "sex") == pytest.approx(4 * EPSILON)
    assert draw(people, "policies.csv").charged == 0  # the ledger knows whose they are now


def test_a_changed_answer_is_a_new_draw(draw, people):
    draw(people, person="holder")
    changed = people.assign(sex=np.where(people["holder"] == "person 0", "M", people["sex"]))
    assert draw(changed, person="holder").charged == 0  # the stored report stays
    with pytest.raises(NewDrawError, match="for 1 person"):
        draw(changed, "new.csv", person="holder")


@pytest.mark.parametrize("column", ["policy", "holder", "sex"])
def test_tables_that_are_wrong(draw, ledger, people, column, tmp_path):
    wrong = people.astype(object)
    wrong.loc[1, column] = {"policy": 0, "holder": None, "sex": "M"}[column]
    expected = {"policy": "repeated", "holder": "missing values in column 'holder'", "sex": "for 1 of 60 persons"}
    with pytest.raises(ValueError, match=expected[column]):
        draw(wrong, person="holder")
    with pytest.raises(ValueError, match="expected a column 'who'"):
        draw(people, person="who")
    assert not list(tmp_path.iterdir())
    assert ledger.spent("person 0", "sex") == 0


def test_the_budget_holds_for_the_person(people, tmp_path):
    with PrivacyLedger(":memory:", budget=2 * EPSILON) as ledger:
        options = {"policy": "policy", "column": "sex", "ledger": ledger, "confirm_new_draw": True, "person": "holder"}
        for k in range(2):
            draw_reports(people, tmp_path / f"{k}.csv", memo=memo(secret=b"0123456789abcde%d" % k), **options)
        with pytest.raises(BudgetExceededError, match="60 of 60 balances"):
            draw_reports(people, tmp_path / "2.csv", memo=memo(), **options)


@pytest.mark.parametrize("name", ["r.csv", "r.parquet"])
def test_reports_are_for_their_owner(draw, people, name, tmp_path):
    (tmp_path / name).touch(mode=0o644)
    (tmp_path / name).unlink()
    draw(people, name)
    for path in tmp_path.iterdir():
        assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600, path


def test_an_invitation_and_a_draw_are_two_reports(draw, ledger, people):
    options = {"study": "motor", "attribute": "sex", "channel": CHANNEL}
    numbers = people["policy"].astype(str).tolist()
    invited = charge_invitations(ledger, numbers, persons=people["holder"], **options)
    assert (len(invited.policies), invited.charged) == (60, 60)
    assert charge_invitations(ledger, numbers, persons=people["holder"], **options).charged == 0
    with pytest.raises(NewDrawError, match="for 60 persons"):
        charge_invitations(ledger, numbers, persons=people["holder"], **{**options, "study": "another"})
    with pytest.raises(NewDrawError, match="for 60 persons"):
        draw(people, person="holder")
