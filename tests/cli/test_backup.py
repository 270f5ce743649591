"""``fairpremium backup`` and ``fairpremium restore``: what they print, exit codes, mistakes in one line."""

from __future__ import annotations

import json

import pytest
from sqlalchemy import text
from typer.testing import CliRunner

from fairpremium.cli._app import make_app
from fairpremium.parties.service import ThirdParty

APP = make_app(["backup", "restore", "log"])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.delenv("FAIRPREMIUM_DATABASE", raising=False)
    monkeypatch.chdir(tmp_path)
    ThirdParty("third-party").close()
    return tmp_path


def run(*words, code=0):
    result = CliRunner().invoke(APP, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result


def test_a_backup_comes_back(folder):
    said = run("backup", "--folder", "third-party", "-o", "backup")
    assert "Log             intact, 0 entries" in said.stdout
    assert "protect it like the folder" in said.stderr
    said = run("restore", "backup", "--folder", "restored")
    assert "Log       intact, 0 entries" in said.stdout
    assert "What was erased, withdrawn or revoked since is back" in said.stderr
    assert "1 entries" in run("log", "verify", "--folder", "restored").stdout
    assert json.loads(run("backup", "--folder", "restored", "-o", "again", "--json").stdout)["log"]["entries"] == 1


def test_a_log_that_is_not_intact_is_said_and_copied(folder):
    party = ThirdParty("third-party")
    party.context.database.write(lambda c: c.execute(text("UPDATE log_head SET seq = 3")))
    party.close()
    said = run("backup", "--folder", "third-party", "-o", "backup", code=1)
    assert "NOT intact: entry 1: the end of the log is missing" in said.stdout
    assert "NOT intact" in run("restore", "backup", "--folder", "restored", code=1).stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("backup --folder nowhere -o new", "There is no third party in nowhere."),
        ("backup --folder third-party -o third-party", "exists and is not overwritten"),
        ("backup --folder third-party -o a/b", "There is no folder"),
        ("backup --folder third-party -o third-party/files/new", "expected a place outside of"),
        ("restore strange --folder new", "fairpremium.sqlite, which is not a file"),
        ("restore third-party --folder new", "expected a folder that `fairpremium backup` wrote"),
        ("restore nowhere --folder new", "expected a folder that `fairpremium backup` wrote"),
        ("restore backup --folder third-party", "is not empty, and nothing is overwritten"),
        ("restore backup --folder new --database postgresql://127.0.0.1:1/none", "The database cannot be used"),
        ("backup --folder third-party -o new --database postgresql://127.0.0.1:1/none", "The database cannot be used"),
    ],
)
def test_mistakes_are_one_line(folder, words, message):
    run("backup", "--folder", "third-party", "-o", "backup")
    run("backup", "--folder", "third-party", "-o", "strange")
    (folder / "strange" / "fairpremium.sqlite").unlink()
    (folder / "strange" / "fairpremium.sqlite").mkdir()
    said = run(*words.split(), code=2)
    assert said.stderr.startswith("Error: ")
    assert said.stderr.count("\n") == 1
    assert message in said.stderr
    assert not list(folder.rglob("*new*"))
