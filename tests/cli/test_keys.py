"""Keys that change under a running service, secrets that are encrypted, and a log that is checked from outside."""

from __future__ import annotations

import ast
import hashlib
import json
import re
import shutil
import sqlite3
import subprocess
import zipfile
from contextlib import contextmanager
from pathlib import Path

import pytest

from fairpremium.parties.clients._insurer import Insurer
from fairpremium.parties.protocol import read_secret
from fairpremium.parties.protocol._keys import fingerprint, read_key, read_public_key
from fairpremium.parties.protocol._storage_key import STORAGE_KEY, STORAGE_KEY_FILE
from helpers import places
from helpers.processes import Command


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch):
    for name in ("SERVICE", "KEY", "SECRET", "DATABASE", "STORAGE_KEY", "STORAGE_KEY_FILE"):
        monkeypatch.delenv(f"FAIRPREMIUM_{name}", raising=False)


@contextmanager
def serving(folder):
    words = ("serve", "--folder", folder, "--port", "0", "--with-parent", "--json")
    with Command(*words, stdin=subprocess.PIPE) as process:
        try:
            yield json.loads(process.stdout.readline())["service"]
        finally:
            process.terminate()
            process.communicate(timeout=240)


def fit_and_fetch(call, url, name, spec, trust):
    with Insurer(url, read_key("third-party/acme.key")) as insurer:
        if spec is not None:
            insurer.fit(name, spec)
        assert insurer.watch(name).state == "succeeded"
    call(
        "insurer", "fetch", name, "-o", f"{name}.zip", "--trust", trust, "--service", url,
        "--key", "third-party/acme.key",
    )  # fmt: skip


def test_a_rotation_under_a_running_service(call, call_json, refuse, monkeypatch):
    call("keys", "storage", "storage.key")
    assert call_json("keys", "show", "storage.key") == {"kind": "storage key"}
    monkeypatch.setenv(STORAGE_KEY_FILE, str(Path("storage.key").resolve()))
    places.build(Path("third-party"))
    shutil.copy("third-party/service.key.pub", "old.pub")
    with serving("third-party") as url:
        outside = ("log", "verify", "--service", url)
        fit_and_fetch(call, url, "waits", None, "old.pub")
        assert "Got no key to trust" in refuse(*outside, "--state", "audit.json")
        first = call_json(*outside, "--state", "audit.json", "--trust", "old.pub")
        assert (first["intact"], first["before"], first["bundles"]) == (True, None, 0)

        rotated = call_json("keys", "rotate", "service", "--folder", "third-party")
        assert [key["until"] is None for key in rotated["keys"]] == [False, True]
        shutil.copy("third-party/service.key.pub", "new.pub")
        fit_and_fetch(call, url, "after", places.fit_spec(level=0.8), "old.pub")  # trust in the old key is enough
        manifest = call_json(
            "insurer", "fetch", "after", "-o", "again.zip", "--trust", "new.pub", "--service", url,
            "--key", "third-party/acme.key",
        )  # fmt: skip
        assert manifest["log"]["key_id"] == rotated["key_id"]

        bundles = ("--bundle", "waits.zip", "--bundle", "after.zip")
        again = call_json(*outside, "--state", "audit.json", *bundles, "--key", "third-party/op.key")
        assert (again["intact"], again["before"], again["bundles"]) == (True, first["entries"], 2)
        assert again["read"] == again["entries"] > first["entries"]
        own = call_json(*outside, "--trust", "new.pub", "--key", "third-party/acme.key", "--own")
        assert own["intact"]
        assert 0 < own["read"] < own["entries"]
        wrong = refuse(*outside, "--trust", "new.pub", "--key", "third-party/acme.key")
        assert "does not see all entries. Say --own" in wrong
        assert call_json("log", "verify", "--folder", "third-party", *bundles)["intact"]
        assert "continues the log of" in call(*outside, "--state", "audit.json").stdout
        shown = call_json("keys", "show", "--folder", "third-party")
        assert [key["key_id"] for key in shown["service_keys"]] == [key["key_id"] for key in rotated["keys"]]

        kept = Path("audit.json").read_bytes()
        rewrite(Path("third-party/fairpremium.sqlite"))
        found = json.loads(call(*outside, "--state", "audit.json", "--json", code=1).stdout)
        assert (found["intact"], len(found["signed"])) == (False, 2)
        assert Path("audit.json").read_bytes() == kept
        assert "NOT intact" in call(*outside, "--trust", "new.pub", "--bundle", "after.zip", code=1).stdout


def rewrite(path):
    """Write the log anew with right hashes: the last entry tells something else."""
    from fairpremium.parties.protocol._checkpoints import leaf_of
    from fairpremium.parties.protocol._merkle import append_leaf

    connection = sqlite3.connect(path)
    for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        connection.execute(f"DROP TRIGGER {name}")
    peaks = []
    query = "SELECT seq, time, party, event, body, salt FROM log ORDER BY seq"
    for seq, time, party, event, body, salt in connection.execute(query).fetchall():
        event = "nothing" if seq == 9 else event
        entry = {"seq": seq, "time": time, "party": party, "event": event, "body": json.loads(body), "salt": salt.hex()}
        peaks, nodes = append_leaf(seq - 1, peaks, leaf_of(entry))
        connection.execute("UPDATE log SET event = ?, nodes = ? WHERE seq = ?", (event, b"".join(nodes), seq))
    connection.execute("UPDATE log_head SET peaks = ?", (b"".join(peaks),))
    connection.commit()
    connection.close()


def test_without_the_right_storage_key_nothing_starts(call, refuse, monkeypatch):
    call("keys", "storage", "storage.key")
    call("keys", "storage", "other.key")
    call("keys", "new", "a.key")
    monkeypatch.setenv(STORAGE_KEY_FILE, str(Path("storage.key").resolve()))
    call("keys", "add", "a.key.pub", "--party", "acme", "--role", "insurer")
    before = {path: path.read_bytes() for path in Path("third-party").rglob("*") if path.is_file()}
    cases = (
        ({}, "no storage key was given"),
        ({STORAGE_KEY_FILE: "other.key"}, "another storage key"),
        ({STORAGE_KEY: "nonsense"}, "Got another text in FAIRPREMIUM_STORAGE_KEY"),
        ({STORAGE_KEY_FILE: "absent.key"}, "absent.key"),
        ({STORAGE_KEY: "x", STORAGE_KEY_FILE: "other.key"}, "expected one of them"),
    )
    for settings, why in cases:
        for name in (STORAGE_KEY, STORAGE_KEY_FILE):
            monkeypatch.delenv(name, raising=False)
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        for command in ("serve --port 0", "worker --once", "keys show", "log verify", "keys rotate service"):
            line = refuse(*command.split())
            assert why in line
            assert "nonsense" not in line
    assert {path: path.read_bytes() for path in Path("third-party").rglob("*") if path.is_file()} == before


def test_keys_of_a_party_and_a_study(call, call_json, refuse):
    call("keys", "new", "a.key", "b.key")
    call("keys", "add", "a.key.pub", "--party", "acme", "--role", "insurer")
    assert "Got the key that acme has already" in refuse("keys", "rotate", "party", "a.key.pub", "--party", "acme")
    found = call_json("keys", "rotate", "party", "b.key.pub", "--party", "acme", "--days", "7")["keys"]
    assert [key["ends"] is None for key in sorted(found, key=lambda key: key["ends"] is None)] == [False, True]
    assert "ends 20" in call("keys", "rotate", "party", "b.key.pub", "--party", "acme").stdout
    assert len(call_json("keys", "show")["keys"]) == 2
    for words, why in (
        ("party b.key.pub", "without --party"),
        ("party --party acme", "without PUBLIC"),
        ("party b.key.pub --party nobody", "expected a party with a key in force"),
        ("service --study motor", "with --study"),
        ("study", "without --study"),
        ("study --study motor", "expected the id of a study"),
        ("study --study motor --lost", "with --lost"),
        ("service --lost", "rotate it without --lost"),
    ):
        assert why in refuse("keys", "rotate", *words.split())
    assert "There is no folder" in refuse("keys", "rotate", "service", "--lost", "--folder", "absent")


def test_a_lost_key(call, call_json, refuse):
    call("keys", "new", "a.key")
    call("keys", "add", "a.key.pub", "--party", "acme", "--role", "insurer")
    Path("third-party/service.key").unlink()
    assert "There is no third party" in refuse("keys", "show")
    assert "--lost" in refuse("serve", "--port", "0")
    assert len(call_json("keys", "rotate", "service", "--lost")["keys"]) == 2
    assert call_json("log", "verify")["intact"]


def test_options_of_a_check_from_outside_want_its_address(refuse):
    for words in ("--state a.json", "--trust a.pub", "--key a.key", "--own"):
        assert "without --service" in refuse("log", "verify", *words.split())
    assert "expected an address" in refuse("log", "verify", "--service", "nowhere")
    assert "without --key" in refuse("log", "verify", "--service", "http://127.0.0.1:1", "--own")


# --- fingerprints look the same wherever they are printed ---

FORM = re.compile(r"(ed25519|linkage)-[0-9a-f]{16}(?![0-9a-f])")


def names_only(text, *prints):
    """Is a key named by its whole fingerprint, and never by less or more of the digest?"""
    assert "key id" not in text.lower()
    for shown in prints:
        digits = shown.partition("-")[2]
        assert FORM.fullmatch(shown)
        assert shown in text, text
        found = [match.start() for match in re.finditer(digits[:8], text)]
        assert all(FORM.match(text, text.rfind("-", 0, at) - len(shown.partition("-")[0])) for at in found), text


def test_every_command_that_names_a_key_names_it_so(call, call_json, refuse):
    call("keys", "new", "a.key", "b.key")
    a, b = (read_key(path).key_id for path in ("a.key", "b.key"))
    names_only(call("keys", "new", "c.key").stdout, read_key("c.key").key_id)
    secret = call("keys", "secret", "motor.secret").stdout
    shared = read_secret("motor.secret")
    names_only(secret, shared.fingerprint)
    names_only(call("keys", "show", "motor.secret").stdout, shared.fingerprint)
    names_only(call("keys", "show", "a.key").stdout, a)
    names_only(call("keys", "show", "a.key.pub").stdout, a)
    assert call_json("keys", "show", "a.key")["key_id"] == a
    assert call_json("keys", "show", "motor.secret")["fingerprint"] == shared.fingerprint

    places.build(Path("third-party"))
    folder = ("--folder", "third-party")
    first = read_public_key("third-party/service.key.pub").key_id
    names_only(call("keys", "add", "a.key.pub", "--party", "new", "--role", "insurer", *folder).stdout, a)
    names_only(call("keys", "show", *folder).stdout, first, a)
    names_only(call("keys", "rotate", "party", "b.key.pub", "--party", "new", *folder).stdout, a, b)
    names_only(call("keys", "revoke", a, *folder).stdout, a)
    with serving("third-party") as url:
        acme = ("--key", "third-party/acme.key", "--service", url)
        with Insurer(url, read_key("third-party/acme.key")) as insurer:
            assert insurer.watch("waits").state == "succeeded"
        trust = ("--trust", "third-party/service.key.pub")
        names_only(call("insurer", "fetch", "waits", "-o", "b.zip", *trust, *acme).stdout, first)
        names_only(call("log", "show", "--key", "third-party/op.key", "--service", url).stdout, first, a, b)
        names_only(refuse("log", "verify", "--service", url, "--trust", "a.key.pub"), first)
        second = call("keys", "rotate", "service", *folder).stdout
    names_only(second, first, read_public_key("third-party/service.key.pub").key_id)
    with zipfile.ZipFile("b.zip") as bundle:
        names_only(bundle.read("manifest.json").decode().replace("key_id", ""), first)


def test_the_fingerprint_of_a_secret_is_sent_to_nobody(project_root):
    """Commands print it; clients, messages and the service do not know the word."""
    for path in (project_root / "src" / "fairpremium" / "parties").rglob("*.py"):
        used = [n for n in ast.walk(ast.parse(path.read_text())) if getattr(n, "attr", "") == "fingerprint"]
        assert not used or path.name == "_linkage.py", path


def test_one_function_makes_all_fingerprints(project_root):
    """No other place shortens a digest of a key."""
    found = set()
    for package in ("parties", "cli"):
        for path in (project_root / "src" / "fairpremium" / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                is_slice = isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice)
                if is_slice and re.search(r"hexdigest\(\)$|\.hex\(\)$|key_id$|fingerprint$", ast.unparse(node.value)):
                    found.add((path.name, ast.unparse(node)))
    assert {name for name, _ in found} == {"_keys.py", "_collector.py"}, found  # the latter names a person
    assert fingerprint("linkage", b"x") == f"linkage-{hashlib.sha256(b'x').hexdigest()[:16]}"
