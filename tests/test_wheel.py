"""The wheel that users install: what is in it, that its types reach their type checker, and that its demo runs."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

import fairpremium

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = """
from fairpremium import DiscriminationFreePricer, RandomizedResponse
from fairpremium.portfolios import zhang_liu_shi_2025

portfolio = zhang_liu_shi_2025(n=500, rng=0)
channel = RandomizedResponse(["F", "M"], keep=0.8)
pricer = DiscriminationFreePricer(family="normal", channel=channel)
pricer.fit(portfolio.X, portfolio.y, sensitive=channel.privatize(portfolio.sensitive))
premiums = pricer.predict(portfolio.X)
epsilon: float = channel.epsilon
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built by its own backend."""
    folder = tmp_path_factory.mktemp("dist")
    build = f"from hatchling.build import build_wheel; print(build_wheel({str(folder)!r}))"
    done = subprocess.run([sys.executable, "-c", build], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel; its dependencies come from the one that runs the tests."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    packages = next(folder.glob("lib/*/site-packages"))
    with zipfile.ZipFile(wheel) as file:
        file.extractall(packages)
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    return folder / "bin" / "python"


def run(python: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [str(python), *arguments], cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=600
    )


def test_the_wheel_has_all_files_of_the_package(wheel):
    with zipfile.ZipFile(wheel) as file:
        packed = {name for name in file.namelist() if name.startswith("fairpremium/")}
    tracked = subprocess.run(["git", "ls-files", "src"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    expected = {name.removeprefix("src/") for name in tracked.split()} or {"fairpremium/py.typed"}
    assert "fairpremium/py.typed" in packed
    assert expected <= packed
    assert f"-{fairpremium.__version__}-" in wheel.name


def test_types_reach_a_user(python, tmp_path):
    """A strict check of a small program passes, and the same check finds a mistake in it."""
    (tmp_path / "right.py").write_text(PROGRAM, encoding="utf-8")
    (tmp_path / "wrong.py").write_text(PROGRAM.replace("epsilon: float", "epsilon: str"), encoding="utf-8")
    words = ["-m", "mypy", "--strict", "--python-executable", str(python), "right.py", "wrong.py"]
    done = run(Path(sys.executable), *words, cwd=tmp_path)
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert done.returncode == 1
    assert len(errors) == 1, done.stdout
    assert errors[0].startswith("wrong.py:")
    assert "Incompatible types in assignment" in errors[0]


def test_the_demo_runs_from_the_wheel(python, tmp_path):
    where = run(python, "-c", "import fairpremium; print(fairpremium.__file__)", cwd=tmp_path)
    assert str(python.parents[1]) in where.stdout
    demo = run(python, "-m", "fairpremium", "demo", "--out", "demo", cwd=tmp_path)
    assert demo.returncode == 0, demo.stderr
    assert (tmp_path / "demo" / "premiums.csv").stat().st_size > 1000
    assert "<svg" in (tmp_path / "demo" / "report.html").read_text(encoding="utf-8")
