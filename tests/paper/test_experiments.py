"""Splits, reports, tables and measures of the experiments, each against a direct computation."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from fairpremium.paper._real import COLUMNS, Split, assumptions, raw_table
from fairpremium.paper._synthetic import AGES, BEST, FITS, TRUTH, class_shares, risk_grid
from fairpremium.paper.statements._measures import Real, Synthetic, percent
from fairpremium.portfolios import Portfolio, zhang_liu_shi_2025


def test_a_split_divides_the_rows():
    split = Split.draw(1000, None, 3)
    assert len(split.train) == 800
    assert len(split.half) == 400
    assert set(split.half) <= set(split.train)
    assert sorted([*split.train, *split.test]) == list(range(1000))
    again, other = Split.draw(1000, None, 3), Split.draw(1000, None, 4)
    np.testing.assert_array_equal(split.train, again.train)
    assert not np.array_equal(split.train, other.train)


def test_reports_are_kept_with_their_probability_and_share_their_luck():
    split, group = Split.draw(200_000, None, 0), np.zeros(200_000, dtype=np.intp)
    true = {keep: split.reports(group, keep) == group for keep in (0.9, 0.7)}
    for keep, kept in true.items():
        assert abs(kept.mean() - keep) < 4 * np.sqrt(keep * (1 - keep) / len(kept))
    assert (true[0.9] | ~true[0.7]).all()  # true at 0.7 implies true at 0.9


def test_raw_columns_are_standardised_with_the_training_rows():
    X = pd.DataFrame({"a": np.arange(10.0), "b": list("xyxyxyxyxy"), "c": 1.0})
    portfolio = Portfolio(
        name="p", X=X, y=np.arange(10.0), sensitive=np.array(["F", "M"] * 5, dtype=object), groups=("F", "M"),
        family="normal",
    )  # fmt: skip
    train, test = np.arange(8), np.array([8, 9])
    table = raw_table(portfolio, np.arange(10) % 2, train, test)
    np.testing.assert_allclose(table.train[:, :2].mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(table.train[:, :2].std(axis=0), 1)
    np.testing.assert_allclose(table.test[:, 0], (np.array([8, 9]) - 3.5) / np.arange(8).std())
    assert np.isfinite(table.train).all()  # the constant column is zero, not nan


def test_the_assumed_keeps_are_those_of_the_paper():
    estimates = [("keep", "", "full", keep, f"n1 = {n}", "", 0, keep - 0.1) for keep in (0.9, 0.8, 0.7) for n in (2, 4)]
    found = {(keep, name): value for keep, name, value in assumptions("full", estimates)}
    assert len(found) == 15
    assert found[0.9, "+10 %"] == pytest.approx(0.99)
    assert found[0.7, "-10 %"] == pytest.approx(0.63)
    assert found[0.8, "n1 = 2"] == pytest.approx(0.7)
    assert [(k, n) for k, n, _ in assumptions("half", estimates)] == [(0.9, "exact"), (0.9, "n1 = 4")]


def real_runs(curves):
    """A table of two seeds with the given test losses of X and X~ by epoch."""
    rows = [
        ("loss", features, "full", 0.9, "exact", "paper", epoch, value, seed)
        for (features, seed), losses in curves.items()
        for epoch, value in losses.items()
    ]
    return pd.DataFrame(rows, columns=[*COLUMNS, "seed"])


def test_convergence_is_the_first_epoch_from_which_the_loss_stays_near_its_end():
    runs = real_runs(
        {
            ("X", 0): {1: 9.0, 2: 1.02, 4: 3.0, 8: 1.04, 16: 1.0},  # near at 2, away at 4, near from 8 on
            ("X", 1): {1: 9.0, 2: 8.0, 4: 7.0, 8: 6.0, 16: 1.0},
            ("X~", 0): {1: 1.0, 2: 1.0, 4: 1.0, 8: 1.0, 16: 1.0},
            ("X~", 1): {1: 2.0, 2: 1.0, 4: 1.0, 8: 1.0, 16: 1.0},
        }
    )
    real = Real(runs)
    assert real.epochs_to_converge("X", 0.9).tolist() == [8, 16]
    assert real.epochs_to_converge("X~", 0.9).tolist() == [1, 2]
    assert real.epochs_to_reach("X", 0.9).tolist() == [2, 16]
    assert real.epochs_to_reach("X~", 0.9).tolist() == [1, 2]
    assert real.loss("X").tolist() == [1.0, 1.0]


def test_percent_is_a_difference_of_logarithms():
    assert percent(np.array([2.0]), np.array([1.0]))[0] == pytest.approx(69.31, abs=0.01)


def test_errors_are_taken_over_the_true_distribution_of_risks():
    portfolio = zhang_liu_shi_2025(10, rng=0)
    grid = risk_grid()
    truth = portfolio.best_estimate(grid)
    parts = []
    for method, shift in ((TRUTH, 0.0), ("true D", 3.0)):
        for group in portfolio.groups:
            wrong = shift if group == "F" else 0.0  # women are priced 3 too high, men exactly
            parts.append(grid.assign(price=BEST, keep=0.0, assumed=0.0, method=method, group=group,
                                     value=truth[group].to_numpy() + wrong, seed=0))  # fmt: skip
    measured = Synthetic(pd.concat(parts, ignore_index=True))
    assert measured.error("true D")[0] == pytest.approx(np.sqrt(0.45 * 9))  # P(F) = 0.45
    by_class = measured.class_errors("true D")
    assert by_class["women, smokers"][0] == pytest.approx(3)
    assert by_class["men, smokers"][0] == pytest.approx(0)
    assert measured.class_means()["men, non-smokers"] == pytest.approx(100 + 4 * AGES.mean())


def test_class_shares_are_a_distribution():
    shares = class_shares()
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["women, smokers"] == pytest.approx(0.24)


def test_every_fit_of_the_synthetic_experiment_is_planned_once():
    assert len(FITS) == len(set(FITS)) == 18
