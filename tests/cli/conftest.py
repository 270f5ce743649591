from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from fairpremium.cli._app import app
from fairpremium.portfolios import zhang_liu_shi_2025


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def call():
    """Run the command line in this process; bugs surface as exceptions."""

    def run(*words, code=0):
        result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
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
