"""Best estimates that reproduce the portfolio's total, by one shift of the linear predictors."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from fairpremium import RandomizedResponse
from fairpremium.blocks import Rows
from fairpremium.corrections import ReportChannel, balance_shift
from fairpremium.families import get_family

CHANNEL = ReportChannel.of(RandomizedResponse(["a", "b", "c"], keep=0.8))


def make(family: str, n: int = 3000, seed: int = 0) -> tuple[Rows, np.ndarray]:
    """Rows with reports, some missing, whose linear predictors are .3 too high."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    D = rng.integers(0, 3, n)
    eta = 0.3 * X[:, [0]] + np.array([-0.5, 0.0, 0.5])
    mu = get_family(family).link.mean_of(eta)[np.arange(n), D]
    y = {
        "normal": lambda: mu + rng.normal(size=n),
        "bernoulli": lambda: (rng.random(n) < mu).astype(float),
        "poisson": lambda: rng.poisson(mu).astype(float),
        "gamma": lambda: rng.gamma(2.0, mu / 2.0),
    }[family]()
    report = np.array(CHANNEL.channel.privatize(np.array(["a", "b", "c"])[D], rng=seed))
    codes = np.array([{"a": 0, "b": 1, "c": 2}[r] for r in report])
    codes[rng.random(n) < 0.1] = 3
    return Rows(X, y, rng.uniform(0.5, 2.0, n), codes), eta + 0.3


def gap(family: str, rows: Rows, eta: np.ndarray, table: np.ndarray) -> float:
    """The signed total of best estimates less that of outcomes, relative to the latter, by a slow loop."""
    mu = get_family(family).link.mean_of(eta)
    prices = losses = 0.0
    for i in range(len(rows)):
        for k in range(3):
            weight = rows.weight[i] * table[k, rows.report[i]]
            prices += weight * mu[i, k]
            losses += weight * rows.y[i]
    return (prices - losses) / abs(losses)


@pytest.mark.parametrize("family", ["normal", "bernoulli", "poisson", "gamma"])
def test_the_total_is_reproduced(family: str) -> None:
    rows, eta = make(family)
    shift = balance_shift(get_family(family), rows, eta, CHANNEL.table)
    assert abs(gap(family, rows, eta, CHANNEL.table)) > 0.01
    assert_allclose(gap(family, rows, eta + shift, CHANNEL.table), 0.0, atol=1e-10)
    assert -0.6 < shift < 0.0


@pytest.mark.parametrize("family", ["normal", "bernoulli", "gamma"])
def test_predictors_may_be_a_function_of_the_rows(family: str) -> None:
    rows, eta = make(family)

    def predictor(block) -> np.ndarray:
        return 0.3 * block.X[:, [0]] + np.array([-0.5, 0.0, 0.5]) + 0.3

    expected = balance_shift(get_family(family), rows, eta, CHANNEL.table)
    assert_allclose(balance_shift(get_family(family), rows, predictor, CHANNEL.table), expected, rtol=1e-10)


def test_rows_without_a_report_count_with_the_shares_of_the_table() -> None:
    rows, eta = make("gamma")
    table = CHANNEL.table.copy()
    table[:, -1] = [0.2, 0.3, 0.5]
    shift = balance_shift(get_family("gamma"), rows, eta, table)
    assert_allclose(gap("gamma", rows, eta + shift, table), 0.0, atol=1e-10)
    assert shift != balance_shift(get_family("gamma"), rows, eta, CHANNEL.table)


def test_where_no_shift_gives_balance_there_is_none() -> None:
    rows, eta = make("bernoulli")
    none = Rows(rows.X, np.zeros(len(rows)), rows.weight, rows.report)
    assert balance_shift(get_family("bernoulli"), none, eta, CHANNEL.table) == 0.0
    assert balance_shift(get_family("poisson"), none, eta, CHANNEL.table) == 0.0
