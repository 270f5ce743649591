"""How a collector draws and stores reports: from the memo, once per person, and truthfully charged."""

from __future__ import annotations

import hashlib
import shutil
import stat
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fairpremium import RandomizedResponse
from fairpremium.errors import BudgetExceededError, NewDrawError
from fairpremium.parties import charge_invitations, draw_reports
from fairpremium.parties.clients import plan_batches, read_drawn
from fairpremium.parties.protocol._linkage import new_secret
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


def write_old(path, people, rng):
    """Write reports as version 0.1.0 drew and stored them: every policy by itself."""
    drawn = pd.DataFrame({"policy": people["policy"].astype(str), "report": CHANNEL.privatize(people["sex"], rng=rng)})
    write_reports(path, drawn, CHANNEL)
    return drawn


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_each_file_of_an_earlier_version_is_charged(draw, ledger, people, tmp_path, kind):
    """Two studies of 0.1.0 drew the same people independently."""
    for k in (1, 2):
        write_old(tmp_path / f"{k}.{kind}", people, rng=k)
    shutil.copy(tmp_path / f"1.{kind}", tmp_path / f"copy.{kind}")
    if kind == "csv":
        shutil.copy(tmp_path / "1.csv.channel.json", tmp_path / "copy.csv.channel.json")
    assert [draw(people, f"{k}.{kind}").charged for k in (1, 2, 1, 2)] == [180, 180, 0, 0]
    assert ledger.spent("0", "sex") == pytest.approx(2 * EPSILON)
    assert draw(people, f"copy.{kind}").charged == 0  # the same draws
    joined = pd.concat([people, people.assign(policy=people["policy"] + 1000)])
    assert [draw(joined, f"{k}.{kind}").charged for k in (1, 2, 1, 2)] == [180, 0, 0, 0]  # those who joined, once
    assert ledger.spent("0", "sex") == pytest.approx(2 * EPSILON)
    assert draw(people, f"copy.{kind}").charged == 0


def test_independent_reports_of_one_person_are_all_charged(draw, ledger, people, tmp_path):
    old = write_old(tmp_path / "reports.csv", people, rng=0)
    more = pd.concat([people, people.drop_duplicates("holder").assign(policy=lambda t: t["policy"] + 1000)])
    assert draw(people, person="holder").charged == 60
    assert ledger.spent("person 0", "sex") == pytest.approx(3 * EPSILON)
    reports, charged = draw(more, person="holder")  # a fourth policy has the first report
    assert charged == 0
    assert reports["report"].tolist() == [*old["report"], *old["report"][::3]]
    assert draw(more, person="holder").charged == 0
    assert ledger.spent("person 0", "sex") == pytest.approx(3 * EPSILON)


def test_a_draw_of_the_memo_does_not_pay_for_an_independent_report(draw, ledger, people, tmp_path):
    draw(people, person="holder")
    write_old(tmp_path / "old.csv", people[::3], rng=0)
    assert draw(people, "old.csv", person="holder").charged == 60
    assert ledger.spent("person 0", "sex") == pytest.approx(2 * EPSILON)


def test_what_an_earlier_version_charged_is_paid(draw, ledger, people, tmp_path):
    """0.1.0 named a charge by study, path and the policies that it drew, and the plan of batches has the studies."""
    target = tmp_path / "reports.csv"
    write_old(target, people, rng=0)
    write_old(tmp_path / "unpaid.csv", people, rng=1)
    numbers = people["policy"].astype(str).tolist()
    plan_batches(target, "motor", 120)
    for part in (numbers[:120], numbers[120:]):
        once = hashlib.sha256("\n".join(["motor", str(target.resolve()), *part]).encode()).hexdigest()
        ledger.charge_many([(number, "sex", EPSILON) for number in part], charge_id=once)
    plan_batches(target, "motor", 180)
    more = pd.concat([people, people.drop_duplicates("holder").assign(policy=lambda t: t["policy"] + 1000)])
    assert [draw(more, person="holder").charged for _ in range(2)] == [0, 0]
    assert ledger.spent("person 0", "sex") == pytest.approx(3 * EPSILON)
    assert draw(people, "unpaid.csv", person="holder").charged == 60
    assert ledger.spent("person 0", "sex") == pytest.approx(6 * EPSILON)


def test_a_charge_of_an_earlier_version_pays_for_one_file(draw, ledger, people, tmp_path):
    """It names study, path and policies: independent draws at the same place would all have been paid by it."""
    target = tmp_path / "reports.csv"
    numbers = people["policy"].astype(str).tolist()
    once = hashlib.sha256("\n".join(["motor", str(target.resolve()), *numbers]).encode()).hexdigest()
    ledger.charge_many([(number, "sex", EPSILON) for number in numbers], charge_id=once)
    plan_batches(target, "motor", 180)
    charged = []
    for rng in (0, 0, 1, 1, 2, 0):
        write_old(target, people, rng=rng)
        charged.append(draw(people, person="holder").charged)
    assert charged == [0, 0, 60, 0, 60, 0]
    assert ledger.spent("person 0", "sex") == pytest.approx(9 * EPSILON)


def test_a_lost_ledger_learns_the_draws_again_from_the_file(draw, people):
    draw(people, person="holder")
    with PrivacyLedger(":memory:") as new:
        assert draw(people, person="holder", ledger=new).charged == 60
        assert new.spent("person 0", "sex") == EPSILON
        assert draw(people, "elsewhere.csv", person="holder", ledger=new).charged == 0  # the memo's own draws
    with PrivacyLedger(":memory:") as new:
        assert draw(people, ledger=new).charged == 180  # nothing says whose the policies are
        assert new.spent("1", "sex") == EPSILON


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


@pytest.mark.parametrize("name", ["r.csv", "r.parquet"])
def test_a_file_that_others_could_read_is_closed_to_them(draw, people, name, tmp_path):
    draw(people, name)
    plan_batches(tmp_path / name, "motor", len(people))
    for path in tmp_path.iterdir():
        path.chmod(0o644)
    draw(people, name)  # draws nothing, and writes nothing
    for path in tmp_path.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_policy_numbers_that_look_like_formulas(draw, ledger, people, tmp_path):
    """A spreadsheet program runs none of them, and each is what it was when the file is read again."""
    numbers = ["=cmd|' /C calc'!A1", "@SUM(1)", "+49 1", "-x", "'=1+1", "'plain", "-12", "007"]
    some = people[: len(numbers)].assign(policy=numbers)
    first = draw(some)
    assert first.charged == len(numbers)
    written = pd.read_csv(tmp_path / "reports.csv", dtype=str)["policy"].tolist()
    assert written == ["'=cmd|' /C calc'!A1", "'@SUM(1)", "'+49 1", "'-x", "''=1+1", "'plain", "-12", "007"]
    assert read_drawn(tmp_path / "reports.csv", CHANNEL)["policy"].tolist() == numbers
    again = draw(pd.concat([some, people[-3:].assign(policy=["=2", "P1", "P2"])]))
    assert again.charged == 3
    assert again.reports["policy"].tolist()[: len(numbers)] == numbers
    assert again.reports["report"].tolist()[: len(numbers)] == first.reports["report"].tolist()


def test_an_invitation_and_a_draw_are_two_reports(draw, ledger, people):
    options = {
        "study": "motor", "secret": new_secret(), "attribute": "sex", "channel": CHANNEL, "named_by": "holder",
    }  # fmt: skip
    numbers = people["policy"].astype(str).tolist()
    invited = charge_invitations(ledger, numbers, persons=people["holder"], **options)
    assert (len(invited.policies), invited.charged) == (60, 60)
    assert charge_invitations(ledger, numbers, persons=people["holder"], **options).charged == 0
    elsewhere = {**options, "secret": new_secret()}  # a study of the same name at another third party
    for other in ({**options, "study": "another"}, elsewhere):
        with pytest.raises(NewDrawError, match="for 60 persons"):
            charge_invitations(ledger, numbers, persons=people["holder"], **other)
    with pytest.raises(NewDrawError, match="for 60 persons"):
        draw(people, person="holder")


def invite(ledger, table, secret, named_by="policy", **more):
    options = {"study": "motor", "secret": secret, "attribute": "sex", "channel": CHANNEL, "named_by": named_by}
    return charge_invitations(ledger, table["policy"].astype(str).tolist(), **options, **more)


def test_policies_of_another_column_are_not_other_people(draw, ledger, people):
    """Without a column for the person the ledger knows by which column people are named."""
    draw(people)
    other = people.assign(contract=people["policy"] + 1000)
    with pytest.raises(NewDrawError, match="named by 'contract', but the ledger knows people by 'policy', and 0 of"):
        draw(other, "new.csv", policy="contract")
    with pytest.raises(NewDrawError, match="named by 'contract', but the ledger knows people by 'policy', and 0 of"):
        invite(ledger, people.assign(policy=other["contract"]), new_secret(), "contract")
    joined = pd.concat([people, people.assign(policy=people["policy"] + 2000)])
    assert draw(joined, "joined.csv").charged == 180
    assert draw(people.assign(policy=people["policy"] + 3000), "new.csv").charged == 180  # people who have joined
    assert draw(people.rename(columns={"policy": "number"}), "renamed.csv", policy="number").charged == 0


def test_other_keys_of_people_with_the_same_policies_are_asked_about(draw, ledger, people):
    draw(people, person="holder")
    other = people.assign(holder=people["holder"].str.upper())
    with pytest.raises(NewDrawError, match="for 60 persons whom the ledger may know by another key"):
        draw(other, "new.csv", person="holder")
    assert draw(other, person="holder").charged == 0  # the stored reports stay
    with pytest.raises(NewDrawError, match="for 60 persons whom the ledger may know by another key"):
        draw(other, "new.csv", person="holder")
    with pytest.raises(NewDrawError, match="for 60 persons whom the ledger may know by another key"):
        invite(ledger, other, new_secret(), "holder", persons=other["holder"])


def test_an_invitation_remembers_all_policies_of_a_person(ledger, people):
    assert invite(ledger, people, new_secret(), "holder", persons=people["holder"]).charged == 60
    later = people[people["policy"] % 3 == 2].assign(holder=lambda t: t["holder"].str.upper())  # not the one invited
    with pytest.raises(NewDrawError, match="for 60 persons whom the ledger may know by another key"):
        invite(ledger, later, new_secret(), "holder", persons=later["holder"])


def test_a_new_ledger_is_told_by_stored_reports_what_names_people(draw, ledger, people, tmp_path):
    write_old(tmp_path / "reports.csv", people[:30], rng=0)
    assert draw(people).charged == 180  # those who have joined are no question
    other = people.assign(contract=people["policy"] + 1000)
    with pytest.raises(NewDrawError, match="the ledger knows people by 'policy'"):
        draw(other, "new.csv", policy="contract")
