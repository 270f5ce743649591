"""The parties on the command line: real processes, a service that is killed, mistakes in one line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zipfile
from contextlib import contextmanager
from pathlib import Path

import httpx
import numpy as np
import pandas as pd
import pytest
from sqlalchemy import update
from typer.testing import CliRunner

from fairpremium import DiscriminationFreePricer, FrequencySeverityPricer, RandomizedResponse
from fairpremium.cli._app import make_app
from fairpremium.parties.protocol._keys import read_public_key
from fairpremium.parties.protocol._linkage import LinkageSecret, make_key, read_secret, write_secret
from fairpremium.parties.service._context import Party
from fairpremium.parties.service._studies import count_reports
from fairpremium.parties.service._third_party import ThirdParty
from fairpremium.parties.store.schema import epochs, studies
from fairpremium.portfolios import zhang_liu_shi_2025
from fairpremium.privacy import PrivacyLedger
from helpers.ports import free_port
from helpers.processes import Command, run_command

COMMAND = [sys.executable, "-P", "-m", "fairpremium"]
OURS = ("FAIRPREMIUM_SERVICE", "FAIRPREMIUM_KEY", "FAIRPREMIUM_SECRET", "FAIRPREMIUM_DATABASE")
APP = make_app()
ROLES = {"ops": "operator", "app": "collector", "acme": "insurer", "aud": "auditor"}
ROWS = 2000


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch):
    for name in OURS:
        monkeypatch.delenv(name, raising=False)


def run(*words, code=0):
    """Run a command in a process of its own and return what it printed."""
    with Command(*words) as process:
        out, err = process.communicate(timeout=240)
    assert process.returncode == code, (words, out, err)
    assert "Traceback" not in err
    return out if code != 2 else err


def run_json(*words, code=0):
    return json.loads(run(*words, "--json", code=code))


def quick(*words, code=0):
    """Run a command in this process, where a process of its own would show nothing more."""
    result = CliRunner().invoke(APP, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == code, (words, result.output)
    return result.stdout if code != 2 else result.stderr


def quick_json(*words, code=0):
    return json.loads(quick(*words, "--json", code=code))


@contextmanager
def serving(processes, folder, port=0, workers=1, stop=signal.SIGTERM):
    """A service process and its worker; checks that it ends in order and leaves no process behind."""
    words = ("serve", "--folder", folder, "--port", port, "--workers", workers, "--with-parent", "--collect", "--json",
             "--log-level", "error")  # fmt: skip
    with Command(*words, stdin=subprocess.PIPE) as process:
        try:
            yield json.loads(process.stdout.readline()), process
        finally:
            children = processes.below(process.pid)
            if process.poll() is None:
                process.send_signal(stop)
            err = process.communicate(timeout=240)[1]
        if stop != signal.SIGKILL:
            assert process.returncode == 0, err
            assert err == ""
        processes.wait_until_gone(children)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """A folder with keys, data and a registered operator, collector, insurer and auditor."""
    folder = tmp_path_factory.mktemp("parties")
    portfolio = zhang_liu_shi_2025(n=ROWS, rng=3, age_band=True)
    policy = [f"{i:05d}" for i in range(ROWS)]  # leading zeros
    pd.DataFrame({"policy": policy, "sex": portfolio.sensitive}).to_csv(folder / "people.csv", index=False)
    table = portfolio.X.assign(policy=policy, y=portfolio.y.round(2), town=np.where(np.arange(ROWS) % 3, "a", "b"))
    table.to_csv(folder / "portfolio.csv", index=False)
    quick("keys", "new", *(folder / f"{name}.key" for name in ROLES))
    quick("keys", "secret", folder / "motor.secret")
    register(folder, folder / "third-party")
    return folder


def register(folder, third_party):
    """Tell a third party the keys in a folder."""
    service = ThirdParty(third_party)
    for name, role in ROLES.items():
        service.add_key(read_public_key(folder / f"{name}.key.pub").public_key, party=name, role=role)
    service.close()


class Parties:
    """Commands of the parties against a service that runs."""

    def __init__(self, folder, url, run=quick_json):
        self.folder, self.url, self.run = folder, url, run

    def __call__(self, who, *words, code=0):
        return self.run(*words, "--key", self.folder / f"{who}.key", "--service", self.url, code=code)

    def start(self, study, *words):
        common = ("--groups", "F,M", "--keep", 0.8, "--collector", "app", "--insurer", "acme", "--open")
        return self("ops", "study", "create", study, *common, *words)

    def submit(self, study, *words, people="people.csv", reports="reports.csv", code=0):
        return self(
            "app", "collector", "submit", self.folder / people, "--study", study, "--policy", "policy", "--column",
            "sex", "--secret", self.folder / "motor.secret", "--reports", reports, *words, code=code,
        )  # fmt: skip

    def run_wrong(self, who, *words):
        return quick(*words, "--key", self.folder / f"{who}.key", "--service", self.url, code=2)

    def upload_words(self, study, portfolio, table="portfolio.csv"):
        return (
            "insurer", "upload", self.folder / table, "--study", study, "--portfolio", portfolio, "--policy", "policy",
            "--outcome", "y", "--secret", self.folder / "motor.secret", "--key", self.folder / "acme.key",
        )  # fmt: skip

    def upload(self, study, portfolio, *words, table="portfolio.csv"):
        return self.run(*self.upload_words(study, portfolio, table), "--service", self.url, *words)


@pytest.fixture(scope="module")
def parties(workspace, processes):
    with serving(processes, workspace / "third-party") as (ready, _):
        assert ready["service"].startswith("http://127.0.0.1:")
        yield Parties(workspace, ready["service"])


def test_all_parties_from_keys_to_prices(parties, workspace):
    """Every command in a process of its own."""
    parties = Parties(workspace, parties.url, run_json)
    assert parties.start("motor")["state"] == "open"
    sent = parties.submit("motor", "--ledger", "ledger.sqlite", "--budget", 2)
    assert (sent["reports"], sent["drawn"], sent["parts"]) == (ROWS, ROWS, 1)
    assert sent["charged"] == sent["epsilon"] == pytest.approx(np.log(4))
    again = parties.submit("motor", "--ledger", "ledger.sqlite", "--budget", 2)
    assert (again["reports"], again["drawn"], again["charged"]) == (ROWS, 0, None)
    assert parties("app", "study", "show", "motor")["accepted"] == ROWS

    uploaded = parties.upload("motor", "p1", "--rows-per-part", 900)
    assert (uploaded["state"], uploaded["rows"], uploaded["parts"]) == ("sealed", ROWS, 3)
    assert parties.upload("motor", "p1", "--rows-per-part", 900) == uploaded
    secret = read_secret(workspace / "motor.secret").fingerprint
    assert sent["linkage_secret"] == uploaded["linkage_secret"] == secret  # which the two compare by telephone
    fit = ("insurer", "fit", "first", "--study", "motor", "--portfolio", "p1")
    assert parties("acme", *fit, "--no-wait")["state"] in ("queued", "running", "succeeded")
    done = parties("acme", *fit)
    assert (done["state"], done["epoch"]) == ("succeeded", 1)
    assert [f["id"] for f in parties("acme", "insurer", "show")["fits"]] == ["first"]

    trust = ("--trust", workspace / "third-party" / "service.key.pub")
    fetched = parties(
        "acme",
        "insurer",
        "fetch",
        "first",
        "-o",
        "bundle.zip",
        *trust,
        "--report",
        "report.html",
        "--model",
        "model.json",
    )
    assert fetched["matched"] == done["matched"]
    assert Path("report.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    priced = run_json(
        "insurer", "price", "bundle.zip", workspace / "portfolio.csv", "-o", "p.csv", *trust, "--policy", "policy"
    )
    assert priced["columns"] == ["policy", "premium", "low", "high"]
    premiums = pd.read_csv("p.csv", dtype={"policy": str})
    assert premiums["policy"].tolist() == [f"{i:05d}" for i in range(ROWS)]
    X = pd.read_csv(workspace / "portfolio.csv", dtype={"policy": str})
    np.testing.assert_allclose(premiums["premium"], DiscriminationFreePricer.load("model.json").predict(X), rtol=1e-12)

    events = [entry["event"] for entry in parties("acme", "log", "show")["entries"]]
    assert events[-1] == "bundle.fetched"
    assert "epoch.begun" in events
    assert "study.open" not in events  # another party's
    assert "study.open" in [entry["event"] for entry in parties("aud", "log", "show")["entries"]]
    checked = run_json("log", "verify", "--folder", workspace / "third-party", "--bundle", "bundle.zip")
    assert checked["intact"]
    assert checked["bundles"] == 1


def test_another_linkage_secret_is_said_to_be_the_likely_cause(parties, workspace):
    parties.start("unmatched")
    write_secret(workspace / "other.secret", LinkageSecret(bytes(range(32))))
    sent = parties.submit("unmatched")
    service = ThirdParty(workspace / "third-party")
    service.begin_epoch(Party("ops", "operator"), "unmatched", 1)

    def fix_draws(connection):  # or one run in 740 takes rows without a report for some that have one
        connection.execute(update(studies).where(studies.c.id == "unmatched").values(secret=bytes(32)))
        connection.execute(update(epochs).where(epochs.c.study == "unmatched").values(salt=bytes(32)))

    service.context.database.write(fix_draws)
    service.close()
    words = [str(word).replace("motor.secret", "other.secret") for word in parties.upload_words("unmatched", "u1")]
    uploaded = quick_json(*words, "--service", parties.url)
    assert sent["linkage_secret"] != uploaded["linkage_secret"]
    fit = ("insurer", "fit", "unmatched", "--study", "unmatched", "--portfolio", "u1")
    acme = ("--key", workspace / "acme.key", "--service", parties.url)
    told = quick(*fit, *acme, code=1)
    for part in ("no rows of the portfolio have a report", "linkage secret", "keys show FILE", "leading zeros"):
        assert part in told
    assert "Matched" not in told
    assert quick_json(*fit, *acme, code=1)["problem"]["type"] == "urn:fairpremium:problem:no-match"


def test_a_refusal_names_the_column(parties, workspace):
    parties.start("column")
    parties.submit("column")
    table = pd.read_csv(workspace / "portfolio.csv", dtype={"policy": str})
    table.assign(fleet=(table.index < 2).astype(float)).to_csv(workspace / "fleet.csv", index=False)
    parties.upload("column", "f1", table="fleet.csv")
    fit = ("insurer", "fit", "fleet", "--study", "column", "--portfolio", "f1", "--correction", "inverse")
    acme = ("--key", workspace / "acme.key", "--service", parties.url)
    told = quick(*fit, *acme, code=1)
    assert "rule 2" in told
    assert "a row, most by fleet" in told


def test_a_file_that_was_refused_is_corrected_and_sent_again(parties, workspace):
    parties.start("again")
    table = pd.read_csv(workspace / "portfolio.csv", dtype={"policy": str})
    table["power"] = np.arange(ROWS) % 7 + 50.0
    words = (*parties.upload_words("again", "a1", "again.csv"), "--rows-per-part", 900, "--service", parties.url)
    spoiled = table.assign(power=table["power"].astype(str).where(table.index != 3, "?"))  # a column of text
    spoiled.assign(y=table["y"].where(table.index != 1500)).to_csv(workspace / "again.csv", index=False)
    assert "y" in quick(*words, code=2)  # of three parts the second one lacks a value
    assert "portfolio.part" in [e["event"] for e in parties("acme", "log", "show")["entries"]][-2:]
    table.to_csv(workspace / "again.csv", index=False)
    done = quick_json(*words)
    assert (done["state"], done["rows"], done["parts"]) == ("sealed", ROWS, 3)
    assert "power" in done["features"]
    table.assign(power=1.0 + table["power"]).to_csv(workspace / "again.csv", index=False)
    assert "used before with another content" in quick(*words, code=2)  # it is sealed


def test_claims_from_a_file_to_prices(parties, workspace):
    """Numbers and amounts of claims are sent, and the bundle prices and makes a tariff."""
    rng = np.random.default_rng(4)
    table = pd.read_csv(workspace / "portfolio.csv", dtype={"policy": str}).drop(columns="y")
    table["n"] = rng.poisson(0.8, ROWS)
    table = table.assign(paid=rng.gamma(2.0 * table["n"], 200.0).round(2), years=rng.uniform(0.5, 1, ROWS).round(3))
    table.to_csv(workspace / "claims.csv", index=False)
    parties.start("claims")
    parties.submit("claims")
    upload = (
        "insurer", "upload", workspace / "claims.csv", "--study", "claims", "--portfolio", "c1", "--policy", "policy",
        "--claims", "n", "--amount", "paid", "--exposure", "years", "--secret", workspace / "motor.secret",
    )  # fmt: skip
    sent = parties("acme", *upload)
    assert sent["state"] == "sealed"
    assert not {"n", "paid", "years"} & set(sent["features"])
    fit = ("insurer", "fit", "claims", "--study", "claims", "--portfolio", "c1", "--claims", "--cap", 900)
    done = parties("acme", *fit, "--correction", "inverse", "--terms", "bands(age, 30, 50) + town")
    assert done["state"] == "succeeded"
    assert done["spec"]["claims"] == {"frequency": "poisson", "severity": "gamma", "cap": 900}
    trust = ("--trust", workspace / "third-party" / "service.key.pub")
    parties("acme", "insurer", "fetch", "claims", "-o", "c.zip", *trust, "--model", "c.json", "--report", "c.html")
    assert "frequency times severity" in Path("c.html").read_text(encoding="utf-8")
    quick_json("insurer", "price", "c.zip", workspace / "claims.csv", "-o", "c.csv", *trust, "--policy", "policy")
    pricer = FrequencySeverityPricer.load("c.json")
    np.testing.assert_allclose(pd.read_csv("c.csv")["premium"], pricer.predict(table), rtol=1e-9)
    assert pricer.excess_.loc["all", "loading"] > 1
    quick_json("tariff", "c.json", workspace / "claims.csv", "--exposure", "years", "-o", "tariff.json")
    said = quick("insurer", "show", "claims", "--key", workspace / "acme.key", "--service", parties.url)
    assert "poisson frequency, gamma severity, linear" in said


def test_several_attributes_from_their_study_to_prices(parties, workspace):
    people = pd.read_csv(workspace / "people.csv", dtype=str)
    people["town"] = np.where(np.arange(ROWS) % 5 < 2, "a", "b")
    people.loc[people.index[:300], "town"] = None
    people.to_csv("people.csv", index=False)
    attributes = ("--attribute", "sex=F,M", "--attribute", "town=a,b", "--keep", 0.8)
    who = ("--collector", "app", "--insurer", "acme", "--open", "--release-epsilon", 6)
    assert parties("ops", "study", "create", "several", *attributes, *who)["attribute"]["kind"] == "several"
    key = ("--key", workspace / "app.key", "--service", parties.url)
    submit = (
        "collector", "submit", "people.csv", "--study", "several", "--policy", "policy", "--secret",
        workspace / "motor.secret", "--reports", "r.csv", "--ledger", "several.sqlite", "--budget", 2, "--not-reported",
    )  # fmt: skip
    assert "expected attributes of study several: sex, town" in quick(*submit, "--column", "sex,age", *key, code=2)
    twice = quick(*submit, "--column", "sex=sex,town=sex", *key, code=2)
    assert "Got --column with 'sex' for 'sex' and for 'town', but expected a column of its own" in twice
    assert not Path("several.sqlite").exists()  # nothing was drawn
    sent = quick_json(*submit, "--column", "sex,town=town", *key)
    assert [(one["attribute"], one["reports"], one["drawn"]) for one in sent["attributes"]] == [
        ("sex", ROWS, ROWS), ("town", ROWS - 300, ROWS - 300)
    ]  # fmt: skip
    assert sent["epsilon"] == pytest.approx(2 * np.log(4))
    with PrivacyLedger("several.sqlite", budget=2.0) as ledger:  # an account for each attribute
        spent = [ledger.spent(people["policy"][i], name) for i in (0, 299, 300) for name in ("sex", "town")]
    assert spent == pytest.approx([np.log(4), 0, np.log(4), 0, np.log(4), np.log(4)])
    assert pd.read_csv("r-town.csv")["report"].isin(["a", "b"]).all()
    again = quick(*submit, "--column", "sex,town", *key)
    assert "Spent in all" in again
    assert "0 reports now" in again
    shown = parties("app", "study", "show", "several")
    assert shown["accepted_by_attribute"] == {"sex": ROWS, "town": ROWS - 300}

    parties.upload("several", "ps", "--features", "age,smoker")
    fit = ("insurer", "fit", "town", "--study", "several", "--portfolio", "ps", "--correction", "inverse")
    assert "does not name" in quick(
        *fit, "--attributes", "job", "--key", workspace / "acme.key", "--service", parties.url, code=2
    )
    done = parties("acme", *fit, "--attributes", "town", "--pooling", 0, "--release", "randomized")
    assert done["state"] == "succeeded"
    assert done["spec"]["attributes"] == ["town"]
    insurer = ("--key", workspace / "acme.key", "--service", parties.url)
    assert "(sex 0, town 2)" in quick("study", "show", "several", *insurer)
    assert "Attribute town" in quick("study", "show", "several", *insurer)


def test_attributes_have_channels_of_their_own(parties, workspace):
    for name, channel in (
        ("sex", RandomizedResponse(["F", "M"], keep=0.9)),
        ("age", RandomizedResponse(range(3), keep=0.7)),
    ):
        Path(f"{name}.channel.json").write_text(json.dumps(channel.descriptor()))
    words = ("study", "create", "own", "--attribute", "sex=sex.channel.json", "--attribute", "age=age.channel.json")
    declared = parties("ops", *words, "--collector", "app")["attribute"]["attributes"]
    assert [(one["name"], one["channel"]["groups"]) for one in declared] == [("sex", ["F", "M"]), ("age", [0, 1, 2])]


QUESTION = {
    "collector": "App Ltd",
    "texts": {"en": {"question": "Your sex?", "groups": ["Female", "Male"], "purpose": "Fair prices."}},
}


def test_people_are_invited_answer_once_and_are_counted(parties, workspace):
    Path("question.json").write_text(json.dumps(QUESTION))
    Path("wrong.json").write_text(json.dumps({**QUESTION, "texts": {}}))
    parties.run = quick
    assert "wrong.json: texts" in parties("ops", "study", "create", "asked", "--groups", "F,M", "--keep", 0.8,
                                          "--question", "wrong.json", code=2)  # fmt: skip
    parties.run = quick_json
    assert parties.start("asked", "--question", "question.json")["spec"]["question"]["collector"] == "App Ltd"
    people = pd.read_csv(workspace / "people.csv", dtype=str)[:40]
    people.loc[1, "policy"] = "=cmd|' /C calc'!A1"
    people[["policy"]].to_csv("invited.csv", index=False)

    def invite(output, *words, code=0):
        parties.run = quick_json if code == 0 else quick
        words = ("--budget", 2, "--attribute", "sex", *words)
        return parties("app", "collector", "invite", "invited.csv", "--study", "asked", "--secret",
                       workspace / "motor.secret", "-o", output, *words, code=code)  # fmt: skip

    made = invite("links.csv")
    assert (made["people"], made["charged"], made["page"]) == (40, 40, f"{parties.url}/collect/")
    links = pd.read_csv("links.csv", dtype=str)
    assert links.columns.tolist() == ["policy", "link", "expires"]
    assert Path("links.csv").stat().st_mode & 0o077 == 0
    assert links["policy"][1] == "'=cmd|' /C calc'!A1"  # which no spreadsheet program runs
    assert links["policy"].drop(1).tolist() == people["policy"].drop(1).tolist()
    again = invite("again.csv", "--days", 2, "--page", "https://app.example/answer/")
    assert (again["people"], again["charged"]) == (40, 0)  # one report can come of both, and it is charged once
    assert pd.read_csv("again.csv")["link"].str.startswith("https://app.example/answer/#").all()
    assert not set(links["link"]) & set(pd.read_csv("again.csv")["link"])
    assert "not overwritten" in invite("links.csv", code=2)
    assert "an address such as https" in invite("more.csv", "--page", "http://app.example/", code=2)

    tokens = [link.partition("#")[2] for link in links["link"]]
    with httpx.Client(base_url=f"{parties.url}/collect/v1", trust_env=False) as client:
        post = lambda path, **body: client.post(path, json=body).json()  # noqa: E731
        assert post("open", token=tokens[0])["collector"] == "App Ltd"
        assert post("report", token=tokens[0], report="F", attempt="a" * 22) == {"accepted": True}
        other = pd.read_csv("again.csv")["link"][0].partition("#")[2]
        assert post("open", token=other) == {"open": False}
        assert post("report", token=other, report="M", attempt="b" * 22) == {"accepted": False}
    parties.run = quick_json
    first = parties("app", "collector", "status", "--study", "asked")
    assert abs(first["answered"] - 1) < 6 * first["standard_error"]
    assert parties("app", "collector", "status", "--study", "asked") == first
    parties.run = quick
    assert "about" in parties("app", "collector", "status", "--study", "asked")
    assert "Question" in parties("ops", "study", "show", "asked")
    parties.run = quick_json


def test_mistakes_with_invitations(parties, workspace):
    parties.start("unasked")
    parties.run = quick
    words = ("collector", "invite", workspace / "people.csv", "--study", "unasked", "--secret",
             workspace / "motor.secret", "-o", "links.csv", "--attribute", "sex")  # fmt: skip
    assert "study create --question" in parties("app", *words, code=2)
    assert "Missing option '--attribute'" in parties("app", *words[:-2], code=2)
    assert "asks nobody on a page" in parties("app", "collector", "status", "--study", "unasked", code=2)
    parties.run = quick_json
    assert not Path("links.csv").exists()
    page = ("collector", "page", "-o", "public", "--service")
    assert "without a path" in quick(*page, "https://third.example/path", code=2)
    assert "such as https://third.example" in quick(*page, "http://third.example", code=2)
    assert "origin of a page" in quick("serve", "--folder", "x", "--collect", "--collect-origin", "app.example", code=2)
    assert "expected them with collect" in quick(
        "serve", "--folder", "x", "--collect-origin", "https://a.example", code=2
    )


def test_people_who_join_are_added_and_nobody_is_drawn_twice(parties, workspace):
    parties.start("growing")
    people = pd.read_csv(workspace / "people.csv", dtype=str)
    people[:500].to_csv(workspace / "some.csv", index=False)
    parties.submit("growing", people="some.csv", reports="growing.csv")
    first = pd.read_csv("growing.csv", dtype=str)
    people[::-1].to_csv(workspace / "all.csv", index=False)  # in another order
    more = parties.submit("growing", people="all.csv", reports="growing.csv")
    assert (more["reports"], more["drawn"], more["parts"]) == (ROWS, ROWS - 500, 2)
    pd.testing.assert_frame_equal(pd.read_csv("growing.csv", dtype=str)[:500], first)
    (epoch,) = parties("ops", "study", "begin-epoch", "growing")["epochs"]
    assert abs(epoch["reports"] - ROWS) < 5 * epoch["standard_error"]
    Path("growing.csv").write_text(Path("growing.csv").read_text().rpartition("\n0")[0] + "\n")
    spoiled = quick(*_submit_words(workspace, "growing", "some.csv", "growing.csv"), "--service", parties.url, code=2)
    assert "fewer reports than were sent" in spoiled


def test_people_without_the_attribute_send_no_report_on_request(parties, workspace):
    parties.start("silent")
    people = pd.read_csv(workspace / "people.csv", dtype=str)
    people.loc[[3, 7, 11], "sex"] = None
    people.to_csv(workspace / "gaps.csv", index=False, sep=";")
    words = _submit_words(workspace, "silent", "gaps.csv", "silent.csv")
    said = quick(*words, "--service", parties.url, code=2)
    assert "empty in 3 rows" in said
    assert "--not-reported" in said
    sent = parties.submit("silent", "--not-reported", "--separator", ";", people="gaps.csv", reports="silent.csv")
    assert (sent["people"], sent["not_reported"], sent["reports"]) == (ROWS, 3, ROWS - 3)
    assert not set(pd.read_csv("silent.csv", dtype=str)["policy"]) & set(people.loc[[3, 7, 11], "policy"])


def _submit_words(folder, study, people, reports):
    return (
        "collector", "submit", folder / people, "--study", study, "--policy", "policy", "--column", "sex", "--secret",
        folder / "motor.secret", "--reports", reports, "--key", folder / "app.key",
    )  # fmt: skip


def test_the_true_attribute_needs_as_is(parties, workspace):
    parties("ops", "study", "create", "truth", "--groups", "F,M", "--true", "--collector", "app", "--open")
    said = quick(*_submit_words(workspace, "truth", "people.csv", "truth.csv"), "--service", parties.url, code=2)
    assert "asks for the true attribute" in said
    assert not Path("truth.csv").exists()
    sent = parties.submit("truth", "--as-is", reports="truth.csv")
    assert (sent["reports"], sent["epsilon"]) == (ROWS, None)
    assert Path("truth.csv").stat().st_mode & 0o077 == 0
    Path("truth.csv").chmod(0o644)
    assert parties.submit("truth", "--as-is", reports="truth.csv")["drawn"] == 0
    assert Path("truth.csv").stat().st_mode & 0o077 == 0


def test_a_refused_fit_names_its_rule_and_ends_with_1(parties, workspace):
    parties.start("refusing")
    parties.submit("refusing", reports="refusing.csv")
    table = pd.read_csv(workspace / "portfolio.csv", dtype={"policy": str})
    table["spike"] = (table.index == 7).astype(float)
    table.to_csv(workspace / "spiked.csv", index=False)
    parties.upload("refusing", "spiked", table="spiked.csv")
    words = ("insurer", "fit", "spiked", "--study", "refusing", "--portfolio", "spiked")
    seen = parties("acme", *words, code=1)
    assert (seen["state"], seen["refusal"]["rule"]) == ("refused", 2)
    text = quick(*words, "--key", workspace / "acme.key", "--service", parties.url, code=1)
    assert "rule 2: no row may have a large leverage" in text


def test_a_service_that_is_killed_during_an_upload(workspace, processes):
    """The upload fails in one line; run again it sends what is missing, and nothing is doubled."""
    port = free_port()
    table = pd.read_csv(workspace / "portfolio.csv", dtype={"policy": str})
    with serving(processes, workspace / "third-party", port, stop=signal.SIGKILL) as (ready, process):
        there = Parties(workspace, ready["service"])
        there.start("killed")
        words = (*there.upload_words("killed", "p9"), "--rows-per-part", 20, "--service", there.url)
        with Command(*words) as upload:
            processes.wait_until(lambda: count_parts(workspace, "p9") >= 3)
            process.kill()
            out, err = upload.communicate(timeout=240)
    assert upload.returncode == 2
    assert out == ""
    assert err.startswith("Error: The service at ")
    assert err.count("\n") == 1
    sent = count_parts(workspace, "p9")
    assert 3 <= sent < ROWS // 20
    with serving(processes, workspace / "third-party", port):
        done = there.upload("killed", "p9", "--rows-per-part", 20)
        events = there("aud", "log", "show")["entries"]
    assert (done["state"], done["rows"], done["parts"]) == ("sealed", ROWS, ROWS // 20)
    parts = [
        entry["body"]["part"]
        for entry in events
        if entry["body"].get("portfolio") == "p9" and entry["event"] == "portfolio.part"
    ]
    assert sorted(parts) == list(range(ROWS // 20))  # three are on their way at a time
    assert len(table) == done["rows"]
    assert quick_json("log", "verify", "--folder", workspace / "third-party")["intact"]


def count_parts(workspace, portfolio):
    import sqlite3

    connection = sqlite3.connect(
        f"file:{workspace / 'third-party' / 'fairpremium.sqlite'}?mode=ro", uri=True, timeout=30
    )
    try:
        query = "SELECT count(*) FROM portfolio_parts WHERE portfolio = ?"
        return connection.execute(query, (portfolio,)).fetchone()[0]
    finally:
        connection.close()


def test_a_service_whose_parent_is_killed_leaves_nothing_behind(tmp_path, processes):
    """The parent cannot tell it to stop; its end of standard input closes."""
    words = [*COMMAND, "serve", "--folder", str(tmp_path / "third-party"), "--port", "0", "--with-parent", "--json"]
    code = f"import subprocess, time\nsubprocess.Popen({words!r}, stdin=subprocess.PIPE)\ntime.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert "service" in json.loads(parent.stdout.readline())
        processes.wait_until(lambda: len(processes.below(parent.pid)) >= 2)  # the service and its worker
        children = processes.below(parent.pid)
        parent.kill()
    processes.wait_until_gone(children)


def test_ctrl_c_ends_the_service_in_order(tmp_path, processes):
    with serving(processes, tmp_path / "third-party", stop=signal.SIGINT) as (ready, _):
        assert "service" in ready  # and `serving` asserts how it ended


def test_a_worker_of_its_own_does_a_waiting_fit(workspace, processes):
    register(workspace, "apart")
    with serving(processes, "apart", workers=0) as (ready, _):
        there = Parties(workspace, ready["service"])
        there.start("worker")
        there.submit("worker", reports="worker.csv")
        there.upload("worker", "pw")
        words = ("insurer", "fit", "by-worker", "--study", "worker", "--portfolio", "pw")
        assert there("acme", *words, "--no-wait")["state"] == "queued"
        run("worker", "--folder", "apart", "--once")
        assert there("acme", "insurer", "show", "by-worker")["state"] == "succeeded"
        assert there("acme", "insurer", "cancel", "by-worker")["state"] == "succeeded"
        assert there("acme", "insurer", "erase", "pw") == {"erased": "pw"}


def test_a_log_that_was_changed_is_found(workspace, tmp_path):
    import shutil
    import sqlite3

    shutil.copytree(workspace / "third-party", tmp_path / "copy")
    connection = sqlite3.connect(tmp_path / "copy" / "fairpremium.sqlite")
    for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
        connection.execute(f"DROP TRIGGER {name}")
    connection.execute("UPDATE log SET party = 'nobody' WHERE seq = 3")
    connection.commit()
    connection.close()
    checked = quick_json("log", "verify", "--folder", tmp_path / "copy", code=1)
    assert (checked["intact"], checked["first_bad"]) == (False, 3)
    assert "entry 3" in quick("log", "verify", "--folder", tmp_path / "copy", code=1)


# --- keys ---


def test_keys(call, call_json, refuse):
    made = call_json("keys", "new", "a.key", "b.key")["keys"]
    assert Path("a.key").stat().st_mode & 0o777 == 0o600
    assert call_json("keys", "show", "a.key")["key_id"] == made[0]["key_id"]
    assert call_json("keys", "show", "a.key.pub")["public_key"] == made[0]["public_key"]
    assert "exists and is not overwritten" in refuse("keys", "new", "a.key")
    secret = call_json("keys", "secret", "motor.secret")
    assert call_json("keys", "show", "motor.secret")["fingerprint"] == secret["fingerprint"]
    call("keys", "add", "a.key.pub", "--party", "acme", "--role", "insurer")
    call("keys", "add", "a.key.pub", "--party", "acme", "--role", "insurer")  # again is welcome
    assert "its one role, insurer" in refuse("keys", "add", "b.key.pub", "--party", "acme", "--role", "operator")
    (listed,) = call_json("keys", "show")["keys"]
    assert (listed["party"], listed["role"], listed["ends"]) == ("acme", "insurer", None)
    call("keys", "revoke", listed["key_id"])
    assert call_json("keys", "show")["keys"][0]["ends"] is not None
    assert "Got a revoked key" in refuse("keys", "add", "a.key.pub", "--party", "acme", "--role", "insurer")
    assert "Got an unknown id" in refuse("keys", "revoke", "ed25519-0")
    assert "-----" not in call("keys", "show", "a.key").stdout
    Path("a.key").chmod(0o644)
    assert "chmod 600 a.key" in refuse("keys", "show", "a.key")


# --- mistakes: one line, exit code 2, nothing on stdout (`refuse` checks it) ---


@pytest.fixture
def mine():
    """Files of a party whose service does not answer."""
    quick("keys", "new", "me.key")
    quick("keys", "secret", "s.secret")
    pd.DataFrame({"policy": ["1", "2"], "sex": ["F", "M"], "x": [1.0, 2.0], "y": [1.0, 2.0]}).to_csv(
        "t.csv", index=False
    )
    return {"nowhere": f"http://127.0.0.1:{free_port()}"}


SUBMIT = "collector submit t.csv --study s --policy policy --column sex --secret s.secret --reports r.csv"
UPLOAD = "insurer upload t.csv --study s --portfolio p --policy policy --outcome y --secret s.secret"
CLAIMS = UPLOAD.replace("--outcome y", "--claims x --amount y")
FIT = "insurer fit f --study s --portfolio p"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("study show --key me.key", "did not answer"),
        (SUBMIT + " --key me.key", "did not answer"),
        (UPLOAD + " --key me.key", "did not answer"),
        ("study show", "--key with the file of your party's key"),
        ("study show --key none.key", "none.key: No such file"),
        ("study show --key t.csv", "t.csv"),
        ("study show --key me.key --service nonsense", "expected an address such as"),
        ("study show a/b --key me.key", "the id of a study"),
        ("study create s --key me.key", "expected one way to say how reports are drawn"),
        ("study create s --keep 0.8 --key me.key", "needs --groups"),
        ("study create s --groups F,M --keep 0.8 --epsilon 1 --key me.key", "Got --keep and --epsilon"),
        ("study create s --groups F,M --keep 0.8 --family nornal --key me.key", "families.0: Input should be"),
        ("study create s --groups F,M --keep 0.8 --collector a --insurer a --key me.key", "collector and insurer"),
        ("study create s --groups F,M --true --release-epsilon -1 --key me.key", "release.epsilon"),
        ("study create s --groups F,M --estimated anchor --key me.key", "needs --anchor-group"),
        ("study create s --groups F,M --true --anchor-share 0.1 --key me.key", "belong to --estimated anchor"),
        ("study create s --spec t.csv --keep 0.8 --key me.key", "--spec or the options"),
        ("study create s --spec t.csv --attribute a=b,c --key me.key", "--spec or the options"),
        ("study create s --attribute sex=F,M --keep 0.8 --key me.key", "once, but expected several"),
        ("study create s --attribute sex=F,M --attribute age=1,2 --key me.key", "without --keep or --epsilon"),
        ("study create s --attribute sex --attribute age=1,2 --keep 0.8 --key me.key", "every name once"),
        ("study create s --attribute a=F,M --attribute b=1,2 --keep 0.8 --true --key me.key", "Got --true with"),
        ("study create s --attribute a=F,M --attribute b=1,2 --keep 0.8 --question q --key me.key", "one attribute"),
        ("study create s --attribute a=F,M --attribute b=1,2 --attribute c=1,2 --keep 0.8 --key me.key", "the budget"),
        ("study create s --spec t.csv --key me.key", "t.csv: "),
        (SUBMIT.replace("s.secret", "t.csv") + " --key me.key", "t.csv"),
        (SUBMIT.replace("r.csv", "t.csv") + " --key me.key", "overwrite an input"),
        (UPLOAD.replace("--outcome y", "--outcome z") + " --key me.key", "no column 'z'"),
        (UPLOAD.replace("t.csv", "none.csv") + " --key me.key", "no file none.csv"),
        (UPLOAD.replace("--outcome y", "") + " --key me.key", "Got neither --outcome nor --claims with --amount"),
        (UPLOAD + " --claims y --key me.key", "Got one of --claims and --amount"),
        (UPLOAD + " --claims y --amount y --key me.key", "Got --outcome with --claims"),
        (CLAIMS.replace("--amount y", "--amount b") + " --key me.key", "no column 'b'"),
        (CLAIMS + " --weight sex --key me.key", "Got --weight with --claims"),
        (CLAIMS + " --exposure policy --key me.key", "Got column 'policy' with two roles"),
        (CLAIMS.replace("--amount y", "--amount x") + " --key me.key", "Got column 'x' with two roles"),
        (CLAIMS + " --key me.key", "did not answer"),
        (FIT + " --claims --family gamma --key me.key", "expected --frequency and --severity"),
        (FIT + " --claims --severity gama --key me.key", "gama"),
        (FIT + " --claims --cap -3 --key me.key", "claims.cap"),
        (FIT + " --claims --cap much --key me.key", "--cap"),
        (FIT + " --cap 3 --key me.key", "Got --cap without --claims"),
        (FIT + " --frequency normal --key me.key", "Got --frequency without --claims"),
        (FIT + " --terms band(y) --key me.key", "terms: Got terms with 'band' at position 1"),
        (FIT + " --terms y --model neural --key me.key", "terms belong to a linear model"),
        (FIT + " --family nornal --key me.key", "family: Input should be"),
        (FIT + " --reference best --key me.key", "Got --reference best, but expected"),
        (FIT + " --pooling much --key me.key", "Got --pooling much, but expected auto or a number"),
        ("insurer fetch f -o b.tar --trust me.key.pub --key me.key", ".zip"),
        ("insurer fetch f -o b.zip --trust t.csv --key me.key", "not a public key"),
        ("insurer price t.csv t.csv -o p.csv --trust me.key.pub", "bundle"),
        ("insurer price none.zip t.csv -o p.csv --trust me.key.pub", "no file none.zip"),
        ("log verify", "There is no third party in third-party"),
        ("log verify --folder t.csv", "t.csv is a file"),
        ("worker", "There is no third party in third-party"),
        ("serve --host 0.0.0.0", "without encryption"),
        ("serve --certificate none.pem --certificate-key none.key", "no file none.pem"),
        ("keys add t.csv --party a --role insurer", "not a public key"),
        ("keys add me.key.pub --party A/B --role insurer", "expected 1 to 64"),
        ("keys add me.key.pub --party a --role boss", "role"),
        ("keys add me.key.pub --party a --role insurer --database mysql://x:secret@y/z", "postgresql://"),
        ("insurer", ""),
    ],
    ids=lambda value: value if " " in value else None,
)  # fmt: skip
def test_a_mistake_is_one_line(mine, call, refuse, monkeypatch, line, expected):
    monkeypatch.setenv("FAIRPREMIUM_SERVICE", mine["nowhere"])
    monkeypatch.setattr("fairpremium.parties.clients._client._TRIES", 1)
    if not expected:
        assert "upload" in call(*line.split()).stdout  # a group alone explains itself
        return
    said = refuse(*line.split())
    assert expected in said
    assert "secret@" not in said
    assert not Path("third-party").exists() or "keys add" in line


def test_a_key_that_nobody_registered(parties, workspace):
    quick("keys", "new", "stranger.key")
    said = quick("study", "show", "--key", "stranger.key", "--service", parties.url, code=2)
    assert said == "Error: The signature does not fit the request, or its key is not registered.\n"


def test_a_port_that_is_taken(parties, workspace):
    port = parties.url.rpartition(":")[2]
    assert f"Cannot listen on 127.0.0.1:{port}" in quick("serve", "--folder", "other", "--port", port, code=2)


def test_a_bundle_that_another_key_signed(parties, workspace):
    quick("keys", "new", "other.key")
    with zipfile.ZipFile("b.zip", "w") as archive:
        archive.writestr("manifest.json", "{}")
    said = quick(
        "insurer", "price", "b.zip", workspace / "portfolio.csv", "-o", "p.csv", "--trust", "other.key.pub", code=2
    )
    assert said.count("\n") == 1


@pytest.mark.filterwarnings("always")
def test_an_address_without_encryption_is_warned_of(mine, monkeypatch):
    monkeypatch.setattr("fairpremium.parties.clients._client._TRIES", 1)
    said = quick("study", "show", "--key", "me.key", "--service", "http://fair.invalid:1", code=2)
    assert said.startswith("Warning: http://fair.invalid:1 is not encrypted")


def test_without_the_extra_it_says_how_to_get_it(refuse, monkeypatch):
    import importlib.util

    found = importlib.util.find_spec
    monkeypatch.setattr(
        "fairpremium.cli.parties._service.find_spec", lambda name: None if name in ("fastapi", "httpx") else found(name)
    )
    for line in ("keys new a.key", "serve", "worker", "study show", "log verify", "demo", FIT):
        said = refuse(*line.split())
        assert 'needs fastapi, httpx. Install what the parties use with: pip install "fairpremium[service]"' in said
    assert list(Path().iterdir()) == []


def test_two_processes_do_not_draw_into_the_same_file(parties, workspace):
    import fcntl

    parties.start("alone")
    with Path(".alone.csv.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        said = quick(*_submit_words(workspace, "alone", "people.csv", "alone.csv"), "--service", parties.url, code=2)
    assert "Another process is drawing" in said


def lose(*paths):
    for path in paths:
        for found in Path(path).parent.glob(f"{Path(path).name}*"):
            found.unlink()


def test_lost_files_and_other_places_draw_nobody_twice(parties, workspace):
    """Reports lost, a second study, a column renamed, a file moved: the same reports, or a refusal with the cost."""
    for study in ("again", "twin"):
        parties.start(study)
    first = parties.submit("again")
    assert (first["drawn"], first["persons_charged"]) == (ROWS, ROWS)
    reports = Path("reports.csv").read_text()
    for _ in range(3):
        lose("reports.csv")
        sent = parties.submit("again")
        assert (sent["drawn"], sent["charged"]) == (ROWS, None)
        assert Path("reports.csv").read_text() == reports
    Path("moved").mkdir()
    people = pd.read_csv(workspace / "people.csv", dtype=str).rename(columns={"sex": "gender"})
    people.to_csv("moved/next.csv", index=False)
    words = ("collector", "submit", "moved/next.csv", "--study", "twin", "--policy", "policy", "--column", "gender",
             "--secret", workspace / "motor.secret", "--reports", "moved/r.csv")  # fmt: skip
    parties.run = quick
    said = parties("app", *words, code=2)
    assert f"knows {ROWS:,} of these people with 'sex'" in said
    assert said.count("\n") == 1
    parties.run = quick_json
    assert parties("app", *words, "--attribute", "sex")["persons_charged"] == 0
    assert Path("moved/r.csv").read_text() == reports

    Path(os.environ["FAIRPREMIUM_COLLECTOR"], "memo.key").unlink()
    lose("moved/r.csv", "reports.csv")
    parties.run = quick
    for _ in range(2):
        said = parties("app", *words, "--attribute", "sex", code=2)
        assert f"for {ROWS:,} persons" in said
        assert "epsilon 1.386 more, up to 2.773 in all; nothing was drawn" in said
        assert said.count("\n") == 1
    assert not Path("moved/r.csv").exists()
    parties.run = quick_json
    parties.start("third")
    drawn = parties.submit("third", "--confirm-new-draw")
    assert drawn["persons_charged"] == ROWS
    assert Path("reports.csv").read_text() != reports
    with PrivacyLedger(drawn["ledger"]) as ledger:
        assert ledger.spent("00007", "sex") == pytest.approx(2 * np.log(4))


def test_policies_of_a_person_share_a_report_and_an_account(parties, workspace):
    for study in ("persons", "later"):
        parties.start(study)
    people = pd.DataFrame(
        {"policy": range(300), "holder": np.arange(300) // 3, "sex": ["F", "F", "F", "M", "M", "M"] * 50}
    )
    people.to_csv("people.csv", index=False)
    words = ("collector", "submit", "people.csv", "--policy", "policy", "--column", "sex", "--secret",
             workspace / "motor.secret", "--reports", "r.parquet")  # fmt: skip
    sent = parties("app", *words, "--study", "persons", "--person", "holder", "--budget", 1.4)
    assert (sent["reports"], sent["persons_charged"]) == (300, 100)
    reports = pd.read_parquet("r.parquet")["report"].to_numpy()
    assert (reports.reshape(100, 3) == reports[::3, None]).all()
    assert (reports != people["sex"]).any()
    again = parties("app", *words[:-1], "s.parquet", "--study", "later")  # the ledger knows whose the policies are
    assert again["persons_charged"] == 0
    assert (pd.read_parquet("s.parquet")["report"] == reports).all()

    parties.run = quick
    more = pd.concat([people, pd.DataFrame({"policy": [300], "holder": [0], "sex": ["F"]})])
    more.to_csv("people.csv", index=False)
    said = parties("app", *words, "--study", "persons", code=2)
    assert "does not know to whom 1 of these policies belong. Name that column with --person" in said
    parties.run = quick_json
    sent = parties("app", *words, "--study", "persons", "--person", "holder")
    assert (sent["drawn"], sent["persons_charged"]) == (1, 0)
    assert pd.read_parquet("r.parquet")["report"].iloc[-1] == reports[0]
    for path in (Path("r.parquet"), Path("r.parquet.parts.json"), Path(sent["ledger"])):
        assert path.stat().st_mode & 0o077 == 0, path

    parties.run = quick
    more.assign(sex=["M", *more["sex"][1:]]).to_csv("people.csv", index=False)
    said = parties("app", *words, "--study", "persons", "--person", "holder", code=2)
    assert "several values of 'sex' for 1 of 100 persons" in said
    parties.run = quick_json


def test_a_person_is_invited_once_and_not_for_every_policy(parties, workspace):
    Path("question.json").write_text(json.dumps(QUESTION))
    parties.start("holders", "--question", "question.json")
    parties.start("unasked-holders")
    people = pd.DataFrame({"policy": [f"P{i:02d}" for i in range(30)], "holder": np.arange(30) // 3, "sex": "F"})

    def invite(table, output, *words, code=0):
        table.to_csv("invited.csv", index=False)
        parties.run = quick_json if code == 0 else quick
        return parties("app", "collector", "invite", "invited.csv", "--study", "holders", "--attribute", "sex",
                       "--secret", workspace / "motor.secret", "-o", output, "--person", "holder", *words,
                       code=code)  # fmt: skip

    made = invite(people, "links.csv")
    assert (made["people"], made["charged"]) == (10, 10)
    links = pd.read_csv("links.csv", dtype=str)["policy"].tolist()
    assert links == [f"P{i:02d}" for i in range(0, 30, 3)]
    other_order = pd.concat([people[::-1], pd.DataFrame({"policy": ["A1"], "holder": [0]})])
    again = invite(other_order, "again.csv")  # whoever has more policies keeps the one that was invited
    assert again["charged"] == 0
    assert sorted(pd.read_csv("again.csv", dtype=str)["policy"]) == sorted(links)
    said = invite(people[1:], "lapsed.csv", code=2)  # the link would be for another policy: a second report
    assert "for 1 person who reported it before" in said
    assert not Path("lapsed.csv").exists()
    assert invite(people[1:], "lapsed.csv", "--confirm-new-draw")["charged"] == 1

    words = ("collector", "submit", "invited.csv", "--study", "unasked-holders", "--policy", "policy", "--column",
             "sex", "--secret", workspace / "motor.secret", "--reports", "r.csv", "--person", "holder")  # fmt: skip
    parties.run = quick
    assert "for 10 persons who reported it before" in parties("app", *words, code=2)
    parties.run = quick_json


def test_people_under_other_names_are_asked_about(parties, workspace, monkeypatch):
    """Other keys beside the same policies, other policies, keys without their zeros: by submit and by invite."""
    Path("question.json").write_text(json.dumps(QUESTION))
    studies = [f"named-{k}" for k in range(5)]
    for study in studies:
        parties.start(study, "--question", "question.json")
    people = pd.DataFrame({"policy": [f"{i:03d}" for i in range(40)], "sex": ["F", "M"] * 20})
    people = people.assign(holder="H" + people["policy"], insured="I" + people["policy"], number="N" + people["policy"])
    common = ("--secret", workspace / "motor.secret", "--budget", 2)
    parties.run = quick

    def submit(table, *words, code=2):
        table.to_csv("people.csv", index=False)
        lose("r.csv")
        reports = ("--column", "sex", "--reports", "r.csv", "--study", studies[0] if code else studies.pop())
        return parties("app", "collector", "submit", "people.csv", *reports, *common, *words, code=code)

    def invite(table, *words):
        table.to_csv("people.csv", index=False)
        rest = ("--attribute", "sex", "-o", "links.csv", "--study", studies[0])
        return parties("app", "collector", "invite", "people.csv", *rest, *common, *words, code=2)

    monkeypatch.setenv("FAIRPREMIUM_COLLECTOR", "by-person")
    by_person = ("--policy", "policy", "--person", "holder")
    submit(people, *by_person, code=0)
    respelled = people.assign(holder=people["insured"])
    for ask in (submit, invite):
        assert "for 40 persons whom the ledger may know by another key" in ask(respelled, *by_person)
    moved = people.assign(holder=["somebody else", *people["holder"][1:]])
    assert "for 1 person whom the ledger may know by another key" in submit(moved, *by_person)
    assert not Path("r.csv").exists()
    submit(moved, *by_person, "--confirm-new-draw", code=0)
    assert submit(moved, *by_person, code=0).count("Charged") == 0

    monkeypatch.setenv("FAIRPREMIUM_COLLECTOR", "by-policy")
    submit(people, "--policy", "policy", code=0)
    for ask in (submit, invite):
        said = ask(people, "--policy", "number")
        assert "named by 'number', but the ledger knows people by 'policy', and 0 of these 40" in said
        said = ask(people.assign(policy=people["policy"].astype(int)), "--policy", "policy")
        assert "for 40 persons whom the ledger may know by another key" in said
    assert not Path("links.csv").exists()
    parties.run = quick_json


def test_a_study_that_is_closed_costs_no_epsilon(parties, workspace):
    parties.start("closed")
    parties("ops", "study", "close", "closed")
    words = (*_submit_words(workspace, "closed", "people.csv", "closed.csv"), "--ledger", "l.sqlite", "--budget", 2)
    assert "does not take reports now" in quick(*words, "--service", parties.url, code=2)
    assert not Path("closed.csv").exists()
    assert not Path("l.sqlite").exists()


def test_reports_are_withdrawn_and_kept_for_a_time(parties, workspace):
    """By policy number, by a table, and by key; those of a person who reported and of one who did not."""
    kept = ("--reports-until", "2099-01-01T00:00:00Z", "--portfolios-days", 365, "--bundles-days", 90)
    declared = parties.start("withdrawn", *kept)
    dates = {"reports_until": "2099-01-01T00:00:00Z", "portfolios_days": 365, "bundles_days": 90}
    assert declared["spec"]["retention"] == dates
    words = ("study", "show", "withdrawn", "--key", workspace / "ops.key", "--service", parties.url)
    assert "reports until 2099-01-01T00:00:00Z, portfolios 365 days, bundles 90 days" in quick(*words)
    people = pd.read_csv(workspace / "people.csv", dtype=str)
    parties.submit("withdrawn", reports="withdrawn.csv")
    people[3:5].to_csv("gone.csv", index=False)
    word = ("collector", "withdraw", "--study", "withdrawn", "--secret", workspace / "motor.secret")
    assert parties("app", *word, people["policy"][0], "nobody")["policies"] == 2
    assert parties("app", *word, "--people", "gone.csv")["policies"] == 2
    assert "in one way" in parties.run_wrong("app", *word)
    key = make_key(read_secret(workspace / "motor.secret"), people["policy"][7])
    wrong = parties.run_wrong("ops", "study", "withdraw", "withdrawn", "P7")
    assert "32 hexadecimal digits" in wrong
    done = parties("ops", "study", "withdraw", "withdrawn", key.hex(), "--now")
    assert (done["keys"], done["now"]) == (1, True)
    third_party = ThirdParty(workspace / "third-party")
    left = third_party.context.database.read(lambda c: count_reports(c, "withdrawn"))
    third_party.close()
    assert left == ROWS - 4


def test_a_withdrawal_holds_for_all_policies_of_the_person(parties, workspace):
    """The ledger knows them. Afterwards the collector goes on without the person, with its file of reports as it is."""
    parties.start("households")
    people = pd.read_csv(workspace / "people.csv", dtype=str)[:60]
    people["holder"] = [f"H{i // 3}" for i in range(60)]
    people["sex"] = people.groupby("holder")["sex"].transform("first")
    people.to_csv("households.csv", index=False)
    options = {"people": Path("households.csv").resolve(), "reports": "households-reports.csv"}
    parties.submit("households", "--person", "holder", **options)
    word = ("collector", "withdraw", "--study", "households", "--secret", workspace / "motor.secret")
    assert "There is no file none.sqlite" in parties.run_wrong(
        "app", *word, people["policy"][0], "--ledger", "none.sqlite"
    )
    assert not Path("none.sqlite").exists()
    done = parties("app", *word, people["policy"][0], people["policy"][1], people["policy"][3])
    assert (done["policies"], done["not_named"]) == (6, 3)
    people[6:].to_csv("households.csv", index=False)
    again = parties.submit("households", "--person", "holder", **options)
    assert (again["drawn"], again["persons_charged"], again["reports"]) == (0, 0, 60)
    key = make_key(read_secret(workspace / "motor.secret"), "nobody")
    parties("ops", "study", "withdraw", "households", key.hex(), "--now")
    third_party = ThirdParty(workspace / "third-party")
    left = third_party.context.database.read(lambda c: count_reports(c, "households"))
    third_party.close()
    assert left == 54


def test_a_terminal_shows_how_far_a_fit_is(tmp_path):
    """On a terminal there is a bar with phase and percentage, on stderr; elsewhere nothing."""
    import os
    import pty

    code = (
        "import time\nfrom fairpremium.cli._terminal import progress\n"
        "with progress('Fitting', bar=True) as tell:\n    tell(0.25, 'joining')\n    time.sleep(0.5)\nprint('done')"
    )
    master, slave = pty.openpty()
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=slave, check=True, timeout=120)
    os.close(slave)
    shown = os.read(master, 65536).decode()
    os.close(master)
    assert done.stdout == b"done\n"
    assert "Fitting: joining" in shown
    assert "25%" in shown
    quiet = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=120)
    assert (quiet.stdout, quiet.stderr) == (b"done\n", b"")


@pytest.mark.parametrize(
    ("mode", "content", "says"),
    [
        (0o644, "a-token-of-32-letters-0123456789", "can be read or changed by others"),
        (0o600, "short", "short token for the metrics, but expected 20 letters or more"),
        (None, "", "metrics.token"),
    ],
)
def test_a_token_for_metrics_is_long_and_for_its_owner_alone(tmp_path, mode, content, says):
    path = tmp_path / "metrics.token"
    if mode is not None:
        path.write_text(content)
        path.chmod(mode)
    words = ["serve", "--folder", str(tmp_path / "third-party"), "--port", "0", "--metrics-token-file", str(path)]
    done = run_command(*words)
    assert done.returncode == 2
    assert says in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert not content or content not in done.stderr.replace("short token", "")
