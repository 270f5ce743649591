"""What all tests share: one BLAS thread per process, bytecode, real data, sizes of simulations, the list of skips."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
# Tests start hundreds of processes. Where bytecode is not kept, as in many containers, each compiles the library again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

ROOT = Path(__file__).resolve().parents[1]

# Files whose fixtures take minutes. They come first in the queue of one process: others take from the end of a queue,
# so that no second process makes such a fixture, and nobody waits for a long test at the end.
FIRST = (
    "tests/deploy/test_clean_root.py",
    "tests/paper/test_reproduce.py",
    "tests/test_wheel.py",
    "tests/pricing/test_large_data.py",
    "tests/pricing/test_large_options.py",
)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays to the end: searching it for garbage, again and again, finds nothing."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files of FIRST before all others, which keep their order."""
    ranks = {ROOT / name: rank for rank, name in enumerate(FIRST)}
    items.sort(key=lambda item: ranks.get(item.path, len(ranks)))


@pytest.fixture(autouse=True)
def collector_folder_of_its_own(tmp_path_factory, monkeypatch) -> None:
    """No test draws from, or charges, what another one left in the collector's folder."""
    monkeypatch.setenv("FAIRPREMIUM_COLLECTOR", str(tmp_path_factory.mktemp("collector")))


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    """A command closes its files to others for the rest of its process, which tests share."""
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.fixture(scope="session")
def project_root() -> Path:
    """The folder that holds pyproject.toml."""
    return ROOT


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with the real portfolios: FAIRPREMIUM_DATA, or ../shared/data beside the project."""
    folder = Path(os.environ.get("FAIRPREMIUM_DATA") or ROOT.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(
            f"no real portfolios in {folder}: put car_insurance_claim.csv and ausprivauto0405.csv "
            "into a folder and name it in FAIRPREMIUM_DATA"
        )
    return folder


@pytest.fixture(scope="session")
def repetitions() -> Callable[[int, int], int]:
    """``repetitions(short, full)``: how often a simulation repeats; `make simulations` takes the full number."""
    full_size = os.environ.get("FAIRPREMIUM_SIMULATIONS") == "full"

    def choose(short: int, full: int) -> int:
        return full if full_size else short

    return choose


def _skips(config: pytest.Config) -> list[tuple[str, str]]:
    """Every skipped test or module with its reason, in order, once."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(config, "workerinput"):
        return []
    found = {}
    for report in reporter.stats.get("skipped", []):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        found[report.nodeid] = reason.removeprefix("Skipped: ")
    return list(found.items())


def _skips_are_failures() -> bool:
    return os.environ.get("FAIRPREMIUM_NO_SKIPS", "") not in ("", "0")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Turn success into failure when something was skipped and FAIRPREMIUM_NO_SKIPS is set."""
    if exitstatus == pytest.ExitCode.OK and _skips_are_failures() and _skips(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_unconfigure(config: pytest.Config) -> None:
    """Say last, after the counts, what was skipped and how to get it."""
    skips = _skips(config)
    if not skips:
        return
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    note = ", and FAIRPREMIUM_NO_SKIPS makes that a failure" if _skips_are_failures() else ""
    reporter.write_line("")
    reporter.write_sep("!", f"{len(skips)} NOT RUN{note}", red=True, bold=True)
    for name, reason in skips:
        reporter.write_line(f"  {name}\n      {reason}")
    reporter.write_line("`make test` installs missing Python packages, and as root missing system programs too.")
