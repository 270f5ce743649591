"""Erasure that is killed: at every point, what was to go is gone when it has run again, and all else is there."""

from __future__ import annotations

import shutil
import signal

from fairpremium.parties.service._housekeeping import clean
from helpers import byte_search
from helpers.places import ACME, APP, OP, name_keys, plain, send

NOW = ["POST", "/v1/studies/motor/withdrawals", "", ""]
IN_A_FILE, SINGLE, LATER = (bytes(name_keys(i, i + 1)[0]) for i in (10, 500, 20))


def withdraw(place, *keys, epoch=None):
    """Withdraw reports, and perhaps begin an epoch without them; no fit waits for the one before."""
    party = place.open()
    party.cancel_fit(ACME, "waits")
    for key in keys:
        party.withdraw_report(APP, "motor", key)
    if epoch:
        party.begin_epoch(OP, "motor", epoch)
    party.close()


def found(place, *keys):
    """Where keys are found; portfolios, whose keys are the insurer's, are left out."""
    hits = byte_search.find(place.folder, keys)
    return {name for name in hits if not (place.folder / name).read_bytes().startswith(b"PAR1")}


def clean_here(place):
    party = place.open()
    clean(party.context)
    party.close()


def test_housekeeping_that_is_killed_anywhere_finishes_the_next_time(base, zygote, tmp_path):
    """Two reports are out of the next epoch already, one is withdrawn after its beginning and waits for its end."""

    def prepare(name):
        place = base.copy(tmp_path / name)
        withdraw(place, IN_A_FILE, SINGLE, epoch=2)
        withdraw(place, LATER)
        return place

    undisturbed = prepare("undisturbed")
    assert found(undisturbed, IN_A_FILE)
    clean_here(undisturbed)
    assert found(undisturbed, IN_A_FILE, SINGLE) == set()
    assert found(undisturbed, LATER)
    expected = undisturbed.look()
    kills = 0
    while True:
        place = prepare(f"killed-{kills}")
        options = {"arm": {"kill": f"*:{kills + 1}"}, **place.options}
        code, _ = zygote.run("clean", tmp_path / "answer", **options)
        if code == 0:
            break  # it passed all points
        assert code == -signal.SIGKILL
        kills += 1
        clean_here(place)
        assert found(place, IN_A_FILE, SINGLE) == set()
        assert place.look() == expected
        shutil.rmtree(place.folder)
    assert kills >= 10


def test_a_withdrawal_at_once_that_is_killed_anywhere_can_be_asked_for_again(base, zygote, tmp_path):
    def prepare(name):
        place = base.copy(tmp_path / name)
        withdraw(place, IN_A_FILE, SINGLE)
        return place

    undisturbed = prepare("undisturbed")
    status, _ = said = send(undisturbed, "op", NOW)
    assert status == 200
    assert found(undisturbed, IN_A_FILE, SINGLE) == set()
    expected = undisturbed.look()
    kills = 0
    while True:
        place = prepare(f"killed-{kills}")
        options = {"key": str(place.folder / "op.key"), "request": NOW, **place.options}
        code, _ = zygote.run("request", tmp_path / "answer", arm={"kill": f"*:{kills + 1}"}, **options)
        if code == 0:
            break
        assert code == -signal.SIGKILL
        kills += 1
        for _ in range(2):
            assert plain([send(place, "op", NOW)]) == plain([said])
        assert found(place, IN_A_FILE, SINGLE) == set()
        assert place.look() == expected
        shutil.rmtree(place.folder)
    assert kills >= 10
