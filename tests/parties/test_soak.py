"""The soak runs, and finds nothing wrong, at a small size; what it looks for, it finds."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from benchmarks import soak
from fairpremium.parties.service._housekeeping import clean
from helpers.places import CHANNEL, REPORTS, name_keys

PLACE = ("motor", "app")


@pytest.fixture
def party(sqlite_base, tmp_path):
    party = sqlite_base.copy(tmp_path / "third-party").open()
    yield party
    party.close()


def test_half_an_hour(project_root):
    command = [sys.executable, str(project_root / "benchmarks" / "soak.py"), "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| every acknowledged report is there once, or withdrawn | yes |" in done.stdout
    assert "| kill of the web process | 1 |" in done.stdout
    assert "| backup and restore | 1 |" in done.stdout


def loads(told, withdrawn=()):
    """What a collector remembers."""
    actor = SimpleNamespace(told={PLACE: told}, tried={PLACE: set(told)}, withdrawn={PLACE: set(withdrawn)})
    return SimpleNamespace(collectors=[actor])


def test_lost_and_changed_reports_are_found(party):
    numbers = [*range(490), 500]
    there = {bytes(name_keys(i, i + 1)[0]): CHANNEL.reports.index(REPORTS[i]) for i in numbers}
    first, *others = there
    assert soak.check_reports(party, loads(there)).holds
    faults = {
        "1 lost": loads(there | {bytes(16): 0}),
        "1 changed": loads(there | {first: 1 - there[first]}),
        "1 not withdrawn": loads({key: there[key] for key in others}, [first]),
        "1 never sent": loads({key: there[key] for key in others}),
    }
    for said, load in faults.items():
        check = soak.check_reports(party, load)
        assert not check.holds
        assert said in check.found


def test_fits_that_nobody_asked_for_or_that_do_not_end_are_found(party):
    load = SimpleNamespace(insurers=[SimpleNamespace(name="acme", asked={"waits", "over"})])
    check = soak.check_fits(party, load, True)
    assert not check.holds
    assert "1 not ended" in check.found
    party.work()
    assert soak.check_fits(party, load, True).holds
    load.insurers[0].asked = {"waits", "another"}
    assert "1 lost, 1 never asked for" in soak.check_fits(party, load, True).found


def test_growth_is_found():
    flat = [(float(i), 200_000_000 + i % 7, 40) for i in range(400)]
    grows = [(float(i), 200_000_000 + 400_000 * i, 40 + i) for i in range(400)]
    assert [check.holds for check in soak.check_growth(SimpleNamespace(samples={"web": flat}))] == [True, True]
    assert [check.holds for check in soak.check_growth(SimpleNamespace(samples={"web": grows}))] == [False, False]


def test_files_that_nothing_refers_to_are_found(party):
    clean(party.context, older_than=-1.0)
    folder = party.context.files.folder
    assert all(check.holds for check in soak.check_sizes(party, folder.parent))
    (folder / ("0" * 64)).write_bytes(b"left over")
    assert [check.holds for check in soak.check_sizes(party, folder.parent)] == [False, True]
