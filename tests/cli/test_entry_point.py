"""The installed command itself: exit codes, the two output streams, missing dependencies."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

import fairpremium
from fairpremium.cli import _app
from fairpremium.portfolios import zhang_liu_shi_2025
from fairpremium.privacy import RandomizedResponse

COMMAND = Path(sys.executable).parent / "fairpremium"


def run(*words, code=0):
    result = subprocess.run([str(COMMAND), *words], capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == code, result.stderr
    assert "Traceback" not in result.stderr
    return result


def test_version():
    assert run("--version").stdout == f"fairpremium {fairpremium.__version__}\n"


def test_json_alone_on_stdout():
    result = run("plan", "--groups", "F,M", "--epsilon", "1", "--rows", "1000", "--json")
    assert [row["group"] for row in json.loads(result.stdout)["groups"]] == ["F", "M"]
    assert result.stderr == ""


@pytest.mark.parametrize(
    "words",
    [
        ["plan", "--groups", "4"],
        ["plan", "--groups", "F,M", "--keep", "much"],
        ["price", "nothing.json", "nothing.csv", "-o", "x.csv"],
        ["prise"],
        ["fit"],
    ],
    ids=lambda words: " ".join(words),
)
def test_a_mistake_is_one_line_on_stderr(words):
    result = run(*words, code=2)
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_its_dependencies_it_says_how_to_get_them(missing):
    code = (
        "import importlib.util as u, sys; found = u.find_spec\n"
        f"u.find_spec = lambda name, *rest: None if name == {missing!r} else found(name, *rest)\n"
        "from fairpremium.cli import main; main()"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr == 'The command line needs typer and rich: pip install "fairpremium[cli]"\n'


def test_importing_fairpremium_and_its_cli_package_loads_no_extra():
    # rich is not in the list: scikit-learn imports it by itself where it is installed.
    code = "import sys, fairpremium.cli, fairpremium.audit\n"
    code += "print(*{'typer', 'altair', 'jinja2'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == ""


TABLES = ("numpy", "pandas", "pyarrow")
LAWS = (
    "scipy.stats.distributions"  # what makes scipy.stats large; the name scipy.stats may stand for what is not loaded
)
ESTIMATES = ("sklearn", LAWS, "scipy.optimize", "scipy.interpolate", "pyarrow.dataset", "altair", "jinja2")
MODELS = ("sklearn.linear_model", "sklearn.metrics", "sklearn.ensemble", "torch", "lightgbm", "altair", "jinja2")
SERVICE = ("fastapi", "httpx", "sqlalchemy", "cryptography", "argon2")


@pytest.mark.parametrize(
    ("commands", "not_loaded"),
    [
        ((), (*TABLES, *ESTIMATES, *MODELS, *SERVICE)),
        (("keys", "log", "account", "backup", "restore"), (*TABLES, *ESTIMATES, *MODELS, *SERVICE)),
        (
            ("privatize", "price", "plan", "serve", "worker", "study", "collector", "insurer"),
            (*ESTIMATES, *MODELS, *SERVICE),
        ),
        (("fit", "tariff", "audit", "monitor", "card", "spectrum", "alternatives"), (*MODELS, *SERVICE)),
    ],
    ids=["list", "keys and files", "tables", "estimates"],
)
def test_a_command_starts_without_what_others_need(commands, not_loaded):
    """What is loaded before a command does anything, so before its help; loading is most of what it takes to start."""
    help_of = [[command, "--help"] for command in commands] or [["--help"], ["--version"], ["prise"]]
    assert loaded_by(help_of, not_loaded) == []


def test_a_plan_needs_no_estimates():
    words = ["plan", "--groups", "F,M", "--epsilon", "1", "--rows", "1000", "--outcome-sd", "2"]
    assert loaded_by([words], (*ESTIMATES, *MODELS, *SERVICE)) == []
    assert loaded_by([[*words, "--json"]], TABLES) == sorted(TABLES)  # the check sees what is loaded


SPLINES = ("scipy.optimize", "scipy.interpolate", "scipy.ndimage")  # for learned laws
NUMERICS = (LAWS, *SPLINES, "sklearn.linear_model", "sklearn.metrics")
DRAWING = ("altair", "vl_convert", "jinja2")
PRICER = ("sklearn", "fairpremium.models._linear", "fairpremium.corrections._choice", "fairpremium.pricing._pricer")
AUDIT = ("fairpremium.audit._summary",)
SERVER = ("fastapi", "uvicorn", "httpx", "http_message_signatures", "prometheus_client", "cryptography.x509")
STORE = ("sqlalchemy", "argon2")
REPORTED = "--outcome y --sensitive report"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files of a few rows, and the model and keys that commands read."""
    folder = tmp_path_factory.mktemp("files")
    portfolio = zhang_liu_shi_2025(n=400, rng=0)
    reports = RandomizedResponse(portfolio.groups, keep=0.8).privatize(portfolio.sensitive, rng=1)
    pd.DataFrame({"sex": portfolio.sensitive}).to_csv(folder / "people.csv", index=False)
    rows = portfolio.X.assign(y=portfolio.y, report=reports)
    rows.to_csv(folder / "portfolio.csv", index=False)
    rows.assign(premium=rows["y"].mean(), policy=range(400)).to_csv(folder / "prices.csv", index=False)
    channel = RandomizedResponse(portfolio.groups, keep=0.8)
    pricer = fairpremium.DiscriminationFreePricer(channel=channel, correction="inverse", pooling=0)
    pricer.fit(portfolio.X, portfolio.y, sensitive=reports).save(folder / "model.json")
    return folder


@pytest.mark.parametrize(
    ("calls", "not_loaded"),
    [
        (
            ["privatize people.csv --column sex --groups F,M --keep 0.8 -o reports.csv"],
            (*NUMERICS, *DRAWING, *PRICER, *AUDIT, *SERVER, *STORE),
        ),
        (
            [
                f"fit portfolio.csv {REPORTED} --keep 0.8 --correction inverse -o fitted.json",
                "price model.json portfolio.csv -o p.csv",
            ],
            (*NUMERICS, *DRAWING, *AUDIT, *SERVER, *STORE),
        ),
        (
            [
                "tariff model.json portfolio.csv -o tariff.json",
                f"spectrum model.json portfolio.csv {REPORTED} -o spectrum.csv",
                "card model.json -o card.md",
            ],
            (*NUMERICS, *DRAWING, *AUDIT, *SERVER, *STORE),
        ),
        (
            [f"audit prices.csv --premium premium {REPORTED} --keep 0.8 -o audit.json"],
            (*NUMERICS, *DRAWING, *SERVER, *STORE),
        ),
        (
            [f"audit prices.csv --premium premium {REPORTED} --keep 0.8 -o audit.html"],
            (*NUMERICS, *SERVER, *STORE),
        ),
        (
            [
                f"monitor prices.csv --period 2026-Q1 --state m.json --premium premium --person policy {REPORTED} "
                "--keep 0.8"
            ],
            (*NUMERICS, *DRAWING, *PRICER[1:], *AUDIT, *SERVER, *STORE),
        ),
        (
            [
                "keys new ops.key",
                "keys add ops.key.pub --party ops --role operator",
                "account list",
                "worker --once",
                "backup -o backup",
                "restore backup --folder restored",
                "log verify",
            ],
            (*NUMERICS, *DRAWING, *PRICER, *AUDIT, *SERVER),
        ),
        (
            ["collector page -o page --service https://third.party"],
            (*NUMERICS, *DRAWING, *PRICER, *AUDIT, *SERVER, *STORE),
        ),
    ],
    ids=["privatize", "fit and price", "model", "audit", "audit report", "monitor", "third party", "page"],
)
def test_a_command_ends_without_what_others_need(folder, calls, not_loaded):
    assert loaded_by([call.split() for call in calls], not_loaded, folder) == []


def loaded_by(calls, modules, folder=None):
    """Run commands in one process, in a folder if they must succeed, and return which modules are loaded then."""
    code = (
        "import contextlib, io, sys\n"
        "from fairpremium.cli import main\n"
        f"for words in {calls!r}:\n"
        "    sys.argv = ['fairpremium', *words]\n"
        "    try:\n"
        "        with contextlib.redirect_stdout(io.StringIO()):\n"
        "            main()\n"
        "    except SystemExit as end:\n"
        f"        assert {folder is None} or end.code == 0, words\n"
        f"print(*sorted(set({modules!r}) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_a_command_collects_garbage_seldom_and_not_at_its_end():
    code = (
        "import atexit, gc\n"
        "atexit.register(lambda: print(gc.get_threshold()[0] > 10_000, gc.get_freeze_count() > 10_000))\n"  # runs last
        "from fairpremium.cli import main; main()"
    )
    words = ["plan", "--groups", "F,M", "--epsilon", "1", "--rows", "1000"]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "True True"


@pytest.mark.parametrize(("lasts", "times"), [(False, 1), (True, 0)])
def test_services_look_for_garbage_as_usual(monkeypatch, lasts, times):
    told = []
    monkeypatch.setattr("gc.set_threshold", told.append)
    monkeypatch.setattr("atexit.register", lambda _: None)
    _app._collect_seldom(lasts=lasts)
    assert len(told) == times
    assert {"serve", "worker"} == _app._LASTING <= set(_app._COMMANDS)


def test_a_bug_shows_its_traceback(call, monkeypatch):
    def broken(*_, **__):
        raise KeyError("a bug")

    monkeypatch.setattr("fairpremium.cli._plan.pricing.plan", broken)
    with pytest.raises(KeyError, match="a bug"):
        call("plan", "--groups", "2", "--epsilon", "1")
