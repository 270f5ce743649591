"""Accounts from the command line: under a running service, at two web processes, and over a restart."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from fairpremium.parties.service import Party, ThirdParty
from helpers.processes import Command, run_command

COMMAND = [sys.executable, "-P", "-m", "fairpremium"]
PASSWORD = "an owl at noon and a cat"
OWN = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch):
    for name in ("DATABASE", "STORAGE_KEY", "STORAGE_KEY_FILE", "CONSOLE_PASSWORD"):
        monkeypatch.delenv(f"FAIRPREMIUM_{name}", raising=False)


@contextmanager
def serving():
    """A web process on the folder ``third-party``."""
    words = ("serve", "--folder", "third-party", "--port", "0", "--workers", "0", "--with-parent", "--json")
    with Command(*words, stdin=subprocess.PIPE, stderr=None) as process:
        try:
            with httpx.Client(base_url=json.loads(process.stdout.readline())["service"], headers=OWN) as client:
                yield client
        finally:
            process.terminate()
            process.communicate(timeout=240)


def log_in(client, password=PASSWORD):
    return client.post("/console/login", data={"name": "ada", "password": password}).status_code


@pytest.fixture
def third_party():
    ThirdParty("third-party").close()


def test_a_wrong_folder_does_not_become_a_third_party(call, refuse, third_party):
    Path("password").write_text(f"{PASSWORD}\n")
    words = ("account", "add", "ada", "--role", "operator", "--password-file", "password")
    assert "There is no third party in typo." in refuse(*words, "--folder", "typo")
    assert not Path("typo").exists()
    assert "third-party" in call(*words).stdout


def test_accounts_under_running_services(call, call_json, refuse):
    Path("password").write_text(f"{PASSWORD}\n")
    Path("other").write_text("another owl at noon\r\n")
    with serving() as first:
        assert first.get("/").status_code == 200  # on this machine, as long as there is no account
        with serving() as second:
            call("account", "add", "ada", "--role", "operator", "--password-file", "password")
            assert first.get("/").status_code == second.get("/").status_code == 303
            assert log_in(first) == 303
            token = first.cookies["fairpremium-console"]
            second.cookies.set("fairpremium-console", token)
            assert first.get("/").status_code == second.get("/").status_code == 200
    with serving() as later:
        later.cookies.set("fairpremium-console", token)
        assert later.get("/").status_code == 200
        (login,) = call_json("account", "logins")["logins"]
        assert (login["account"], login["role"], login["address"]) == ("ada", "operator", "127.0.0.1")
        assert login["login"] in call("account", "logins").stdout
        call("account", "end-login", login["login"])
        assert later.get("/").status_code == 303
        assert "unknown id" in refuse("account", "end-login", login["login"])
        assert call("account", "logins").stdout == "Nobody is logged in.\n"
        assert log_in(later) == 303
        call("account", "password", "ada", "--password-file", "other")
        assert later.get("/").status_code == 303
        assert log_in(later) == 401
        assert log_in(later, "another owl at noon") == 303
        call("account", "disable", "ada")
        assert later.get("/").status_code == 303
        assert log_in(later, "another owl at noon") == 401
    (listed,) = call_json("account", "list")["accounts"]
    assert (listed["account"], listed["role"]) == ("ada", "operator")
    assert listed["disabled"] > listed["created"]
    assert "ada" in call("account", "list").stdout
    call("log", "verify")


def test_the_end_of_a_service_writes_the_last_guesses(call, third_party):
    Path("password").write_text(PASSWORD)
    call("account", "add", "ada", "--role", "auditor", "--password-file", "password")
    with serving() as service:
        assert [log_in(service, f"guess {i}") for i in range(3)] == [401] * 3
    party = ThirdParty("third-party")
    entries = party.get_log(Party("aud", "auditor")).entries
    party.close()
    assert [one.body["guesses"] for one in entries if one.event == "login.failed"] == [1, 2]


def type_at_prompts(*lines):
    """Run ``account add`` on a terminal; return its exit code and all that the terminal showed."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [*COMMAND, "account", "add", "ada", "--role", "auditor"])
    shown = b""
    for prompt, line in zip((b"Password: ", b"again: "), lines, strict=True):
        while prompt not in shown:
            shown += os.read(terminal, 1000)
        os.write(terminal, line.encode() + b"\n")
    try:
        while piece := os.read(terminal, 1000):
            shown += piece
    except OSError:  # the terminal closes with the process
        pass
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown.decode()


def test_a_password_is_typed_twice_and_not_shown(call_json, third_party):
    code, shown = type_at_prompts(PASSWORD, PASSWORD + "s")
    assert (code, "two different passwords" in shown) == (2, True)
    code, shown = type_at_prompts(PASSWORD, PASSWORD)
    assert code == 0
    assert "owl" not in shown
    assert [one["account"] for one in call_json("account", "list")["accounts"]] == ["ada"]


def test_mistakes(call, refuse, monkeypatch, third_party):
    add = ("account", "add", "ada", "--role", "auditor")
    assert "no terminal" in refuse(*add)
    assert "No such file" in refuse(*add, "--password-file", "none")
    Path("short").write_text("short\n")
    assert "Got a password of 5 letters, but expected 12 or more." in refuse(*add, "--password-file", "short")
    Path("latin").write_bytes("an öwl at nöön and a cat\n".encode("latin-1"))
    said = refuse(*add, "--password-file", "latin")
    assert "Got a password that is not UTF-8, but expected text." in said
    assert "0xf6" not in said
    assert "No such option" in refuse(*add, "--password", PASSWORD)
    assert "expected 1 to 64" in refuse("account", "add", "Ada", "--role", "auditor", "--password-file", "short")
    assert call("account", "list").stdout == "No account: account add.\n"
    assert "unknown name" in refuse("account", "disable", "eve")
    monkeypatch.setenv("FAIRPREMIUM_CONSOLE_PASSWORD", PASSWORD)
    said = refuse("serve", "--folder", "third-party", "--port", "0")
    assert "fairpremium account add NAME --role operator --folder third-party" in said
    assert PASSWORD not in said


def test_a_password_from_standard_input(third_party):
    words = ("account", "add", "ada", "--role", "auditor", "--password-file", "-")
    assert run_command(*words, input=f"{PASSWORD}\n").returncode == 0
