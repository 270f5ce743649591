"""Shares of the groups, also when reporting depends on the features."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fairpremium.blocks import Rows
from fairpremium.corrections import sandwich
from fairpremium.corrections._propensity import estimate_shares
from fairpremium.corrections._report_channel import pad_missing
from fairpremium.families import Normal
from fairpremium.models import compute_moments


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("K", [2, 4])
def test_without_missing_reports_it_is_the_mean_of_the_inverse(
    K: int, weights: bool, randomized_response: Callable
) -> None:
    rng = np.random.default_rng(K)
    n = 500
    s, w = rng.integers(K, size=n), rng.uniform(0.1, 3, n) if weights else None
    T = randomized_response(K, 0.6)
    inverse = np.linalg.inv(T)
    moments = compute_moments(Rows(rng.normal(size=(n, 3)), rng.normal(size=n), w, s), K + 1)
    shares = estimate_shares(moments, pad_missing(inverse))
    expected = sum((1.0 if w is None else w[i]) * inverse[:, s[i]] for i in range(n)) / (n if w is None else w.sum())
    np.testing.assert_allclose(shares, expected, atol=1e-10)
    assert shares.sum() == pytest.approx(1)


def test_shares_may_leave_the_simplex_and_are_not_clipped(randomized_response: Callable) -> None:
    moments = compute_moments(Rows(np.arange(10.0)[:, None], np.zeros(10), None, np.zeros(10, int)), 3)
    shares = estimate_shares(moments, pad_missing(np.linalg.inv(randomized_response(2, 0.8))))
    np.testing.assert_allclose(shares, np.array([0.8, -0.2]) / 0.6)


def saturated(n: int, rng: np.random.Generator, T: np.ndarray, report: Callable) -> tuple[Rows, np.ndarray]:
    """Three cells of x; who is in group 1 and who reports depends on the cell, not on D given the cell."""
    cell = rng.choice(3, size=n, p=[0.5, 0.3, 0.2])
    D = (rng.random(n) < np.array([0.2, 0.6, 0.9])[cell]).astype(int)
    s = np.where(rng.random(n) < np.array([0.9, 0.5, 0.2])[cell], report(D, T, rng), 2)
    X = np.column_stack([cell == 1, cell == 2]).astype(float)
    return Rows(X, rng.normal(size=n), rng.uniform(0.5, 1.5, n), s), D


def test_with_cells_it_is_the_post_stratified_mean(randomized_response: Callable, report: Callable) -> None:
    T = randomized_response(2, 0.8)
    rows, _ = saturated(3000, np.random.default_rng(0), T, report)
    inverse, w = np.linalg.inv(T), rows.weight
    expected = np.zeros(2)
    for x in ([0, 0], [1, 0], [0, 1]):
        here = (x == rows.X).all(axis=1)
        told = here & (rows.report < 2)
        within = (w[told] * inverse[:, rows.report[told]]).sum(axis=1) / w[told].sum()
        expected += within * w[here].sum() / w.sum()
    np.testing.assert_allclose(estimate_shares(compute_moments(rows, 3), pad_missing(inverse)), expected, rtol=1e-9)


@pytest.mark.simulation
def test_reporting_that_depends_on_the_features_is_corrected(
    randomized_response: Callable, report: Callable, fit: Callable, sigmas: Callable, repetitions: Callable
) -> None:
    truth = 0.5 * 0.2 + 0.3 * 0.6 + 0.2 * 0.9
    T, rng, m = randomized_response(2, 0.8), np.random.default_rng(1), repetitions(400, 4000)
    estimates, variances, naive = np.empty(m), np.empty(m), np.empty(m)
    for r in range(m):
        rows, _ = saturated(1500, rng, T, report)
        fitted = fit(rows, T, Normal(), 1e4)  # the coefficients do not matter here
        statistics = sandwich(fitted)
        estimates[r] = fitted.shares[1]
        at = statistics.coefficients.size + 1
        variances[r] = statistics.covariance[at, at]
        told = rows.report < 2
        naive[r] = np.average(np.linalg.inv(T)[1, rows.report[told]], weights=rows.weight[told])
    error = estimates.std(ddof=1) / np.sqrt(m)
    assert estimates.mean() == pytest.approx(truth, abs=sigmas() * error)
    assert abs(naive.mean() - truth) > 20 * naive.std(ddof=1) / np.sqrt(m)  # those who reported are others
    # the variance of m nearly normal numbers has relative error sqrt(2 / m); 3 % for terms of order 1 / n
    assert estimates.var(ddof=1) / variances.mean() == pytest.approx(1, abs=sigmas() * np.sqrt(2 / m) + 0.03)
