from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from fairpremium.cli._app import make_app
from fairpremium.portfolios import zhang_liu_shi_2025

APP = make_app()


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def call():
    """Run the command line in this process; bugs surface as exceptions."""

    def run(*words, code=0):
        result = CliRunner().invoke(APP, [str(word) for word in words], catch_exceptions=False)
        assert result.exit_code == code, result.output
        if code == 2:
            assert result.stdout == ""
            assert result.stderr.count("\n") == 1
            assert result.stderr.startswith("Error: ")
        return result

    return run


@pytest.fixture
def call_json(call):
    """Run with --json and return what stdout holds, which is JSON and nothing else."""

    def run(*words):
        result = call(*words, "--json")
        assert result.stderr == ""
        return json.loads(result.stdout)

    return run


@pytest.fixture
def refuse(call):
    """Run something wrong and return the one line on stderr."""
    return lambda *words: call(*words, code=2).stderr


@pytest.fixture(scope="session")
def portfolio():
    return zhang_liu_shi_2025(n=2000, rng=0, age_band=True)


@pytest.fixture
def files(portfolio, tmp_path):
    """people.csv for the policyholders, portfolio.csv for the insurer; keys with leading zeros."""
    policy = [f"{i:05d}" for i in range(len(portfolio))]
    pd.DataFrame({"policy": policy, "sex": portfolio.sensitive, "town": "x"}).to_csv("people.csv", index=False)
    frame = portfolio.X.assign(policy=policy, y=portfolio.y, exposure=np.linspace(0.5, 1.5, len(policy)))
    frame.to_csv("portfolio.csv", index=False)
    return tmp_path


class Processes:
    """Looks at the processes of this machine."""

    def below(self, pid):
        """All processes that a process started, and those that they started."""
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            if (fields := self._fields(stat)) and int(fields[1]) == pid:
                found += [int(stat.parent.name), *self.below(int(stat.parent.name))]
        return found

    def wait_until_gone(self, pids):
        self.wait_until(lambda: not any(self._is_alive(pid) for pid in pids))

    def wait_until(self, what, seconds=240):
        end = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < end, "it did not happen"
            time.sleep(0.1)

    def _is_alive(self, pid):
        fields = self._fields(Path(f"/proc/{pid}/stat"))
        return fields is not None and fields[0] != "Z"

    def _fields(self, stat):
        try:
            return stat.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            return None


@pytest.fixture(scope="session")
def processes():
    return Processes()
