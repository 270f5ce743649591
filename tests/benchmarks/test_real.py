"""The benchmark of real portfolios, small: the default does not lose to the simple answers beyond noise."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from benchmarks import real
from fairpremium.portfolios import load_health

SPLITS = 4
METHODS = (*real.SIMPLE, "auto")


def splits_of(portfolio, keep=0.8):
    return [real.split_results(portfolio, {"keep": keep}, METHODS, seed) for seed in range(SPLITS)]


def assert_no_loss(splits):
    """At most the best simple answer plus two standard errors of the paired difference and .05 percentage points."""
    assert real.figure(splits, "failed")["auto"].sum() == 0
    mean, error = real.over_best_simple(splits)
    assert mean <= 2 * error + 0.05


def test_health():
    assert_no_loss(splits_of(load_health()))


@pytest.mark.parametrize("name", ["auto", "crossed"])
def test_the_papers_auto_data(name, shared_data, monkeypatch):
    monkeypatch.setenv("FAIRPREMIUM_DATA", str(shared_data))
    assert_no_loss(splits_of(real.PORTFOLIOS[name]()))


@pytest.mark.parametrize("share", [None, 0.02], ids=["as it is", "2 % women"])
def test_motor_claims(share, shared_data, monkeypatch):
    monkeypatch.setenv("FAIRPREMIUM_DATA", str(shared_data))
    whole = real.belgian_motor() if share is None else real.thinned(share)
    rows = np.sort(np.random.default_rng(0).choice(len(whole), 20_000, replace=False))
    assert_no_loss(splits_of(real.some_rows(whole, rows, whole.name)))


def test_the_figures_of_a_split():
    """The unaware price and the fit that knows D, computed here again."""
    p = load_health()
    found = real.split_results(p, {"epsilon": 1.0}, ("unaware", "auto", "no such correction"), 0)
    assert found["no such correction"] == {"seconds": pytest.approx(0, abs=1), "failed": 1.0}
    train = np.random.default_rng(0).random(len(p)) < 0.7
    columns = p.X.assign(
        smoker=p.X["smoker"] == "yes", **{r: p.X["region"] == r for r in sorted(set(p.X["region"]))[1:]}
    )
    Z = np.column_stack([np.ones(len(p)), columns.drop(columns="region").to_numpy(float)])
    women = p.sensitive == "female"

    def prices(rows):
        return Z @ np.linalg.lstsq(Z[rows & train], p.y[rows & train], rcond=None)[0]

    by_group = {True: prices(women), False: prices(~women)}
    known = np.where(women, by_group[True], by_group[False])
    unaware = prices(np.ones(len(p), dtype=bool))
    share = women[train].mean()
    h = share * by_group[True] + (1 - share) * by_group[False]
    excess = 100 * (np.mean((p.y - unaware)[~train] ** 2) / np.mean((p.y - known)[~train] ** 2) - 1)
    distance = 100 * np.sqrt(np.mean((unaware - h)[~train] ** 2)) / np.mean(h[~train])
    assert found["unaware"]["excess"] == pytest.approx(excess, abs=0.01)  # the benchmark has a ridge of .001 rows
    assert found["unaware"]["distance"] == pytest.approx(distance, rel=0.01)


def test_the_program_writes_its_tables(project_root, tmp_path):
    command = [
        sys.executable, str(project_root / "benchmarks" / "real.py"), "--portfolios", "health", "--splits", "2",
        "--keeps", "0.8", "--epsilons", "", "--methods", "unaware,paper", "--json", str(tmp_path / "real.json"),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (result,) = json.loads((tmp_path / "real.json").read_text())["results"]
    assert (result["portfolio"], result["noise"], result["splits"]) == ("health", "keep 0.8", 2)
    cell = f"{result['table']['paper']['excess']:.3f} ± {result['table']['paper']['excess_se']:.3f}"
    assert f"| {cell} |" in (tmp_path / "real.md").read_text(encoding="utf-8")
