"""Prices and audits from sets of groups: six groups whose means are known."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest

from fairpremium import DiscriminationFreePricer, SubsetSelection
from fairpremium.audit import compute_group_means, render_markdown, summarize_prices

GROUPS = list("abcdef")
LEVELS = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 9.0])
N = 12_000


@pytest.fixture(scope="module")
def book():
    rng = np.random.default_rng(7)
    D = rng.choice(6, size=N, p=[0.3, 0.2, 0.2, 0.1, 0.1, 0.1])
    x = rng.normal(size=N) + 0.3 * D
    y = LEVELS[D] + 0.5 * x + rng.normal(size=N)
    channel = SubsetSelection(GROUPS, epsilon=2.0, size=2)
    S = channel.privatize(np.array(GROUPS)[D], rng=rng)
    return pd.DataFrame({"x": x}), y, D, S, channel


def test_the_inverse_fit_is_the_hand_computed_one(book):
    X, y, _, S, channel = book
    fitted = DiscriminationFreePricer(channel=channel, correction="inverse", pooling=0).fit(X, y, sensitive=S)
    P1 = 5 * channel.a / channel.total
    P0 = (channel.a + 4 * channel.b) / channel.total
    Z = np.column_stack([np.ones(N), X["x"]])
    grid = pd.DataFrame({"x": [-1.0, 0.0, 2.0]})
    best = np.asarray(fitted.predict_best_estimate(grid))
    share = np.zeros(6)
    for k, group in enumerate(GROUPS):
        named = np.array([group in json.loads(report) for report in S])
        w = np.where(named, 1 - P0, -P0) / (P1 - P0)
        share[k] = w.mean()
        beta = np.linalg.solve(Z.T @ (w[:, None] * Z), Z.T @ (w * y))
        np.testing.assert_allclose(best[:, k], beta[0] + beta[1] * grid["x"], rtol=1e-8)
    np.testing.assert_allclose(fitted.group_distribution_, share, rtol=1e-9)
    np.testing.assert_allclose(fitted.predict(grid), best @ share, rtol=1e-8)


def test_the_default_fit_covers_the_truth_and_travels(book, tmp_path):
    X, y, D, S, channel = book
    rows = slice(0, 5000)
    fitted = DiscriminationFreePricer(channel=channel, random_state=0).fit(X[rows], y[rows], sensitive=S[rows])
    grid = pd.DataFrame({"x": [0.0, 1.0]})
    share = np.bincount(D) / N
    truth = share @ LEVELS + 0.5 * grid["x"].to_numpy()
    low, high = fitted.predict_interval(grid, level=0.9999)
    assert (low <= truth).all()
    assert (truth <= high).all()
    assert (high - low < 1).all()
    fitted.save(tmp_path / "model.json")
    again = DiscriminationFreePricer.load(tmp_path / "model.json")
    assert again.channel_ == channel
    np.testing.assert_allclose(again.predict(grid), fitted.predict(grid))


def test_the_audit_recovers_the_means_of_the_groups(book):
    X, y, truth, S, channel = book
    premiums = 4.0 + 0.5 * X["x"].to_numpy()
    table = compute_group_means(premiums, y, sensitive=S, channel=channel, level=0.9999)
    for k, row in table.iterrows():
        assert row["loss_low"] <= y[truth == k].mean() <= row["loss_high"]
        assert row["premium_low"] <= premiums[truth == k].mean() <= row["premium_high"]
    assert table["group"].tolist() == GROUPS
    known = [y[truth == k].std() / math.sqrt((truth == k).sum()) for k in range(6)]
    width = (table["loss_high"] - table["loss_low"]) / (2 * 3.89)
    assert (width > known).all()


def test_the_audit_report_is_made(book):
    _, y, _, S, channel = book
    summary = summarize_prices(np.full(4000, 4.0), y[:4000], sensitive=S[:4000], channel=channel, title="Six groups")
    assert summary["privacy"]["epsilon"] == channel.epsilon
    assert "Six groups" in render_markdown(summary)
