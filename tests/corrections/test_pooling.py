"""The choice of the pooling strength against brute force refits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fairpremium.blocks import Rows
from fairpremium.corrections import ReportChannel, fit_inverse
from fairpremium.corrections._pooling import cross_validate_strengths, strengths
from fairpremium.corrections._report_channel import pad_missing
from fairpremium.errors import RiskUnboundedError
from fairpremium.families import Family, Normal, Poisson
from fairpremium.models import LinearModel, LinearProblem, minimise, prepare


def portfolio(family: Family, n: int, T: np.ndarray, report: Callable, seed: int = 0, folds: int = 4) -> Rows:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    D = rng.integers(len(T), size=n)
    eta = 0.2 + 0.3 * X[:, 0] + 0.4 * D
    y = eta + rng.normal(size=n) if family == Normal() else rng.poisson(np.exp(eta)).astype(float)
    s = np.where(rng.random(n) < 0.1, len(T), report(D, T, rng))
    return Rows(X, y, rng.uniform(0.5, 2, n), s, np.arange(n) % folds)


def problem_of(rows: Rows, K: int, family: Family) -> LinearProblem:
    assert rows.fold is not None
    return prepare(rows, K + 1, int(rows.fold.max()) + 1, family, LinearModel(), ["a", "b"])


def brute_force(problem: LinearProblem, table: np.ndarray, strength: float) -> tuple[float, np.ndarray]:
    """Refit without each fold and judge it there, row by row."""
    rows, family, K = problem.rows, problem.family, len(table)
    Z = problem.moments.coordinates.matrix(rows.X)
    a = table.T[rows.report] * rows.weight[:, None]
    per_part = []
    for fold in range(int(rows.fold.max()) + 1):
        train = rows.fold != fold
        if family == Normal():  # the joint normal equations of all groups
            q = Z.shape[1]
            A = np.kron(np.eye(K) - 1 / K, strength * problem.metric)
            c = np.zeros(K * q)
            for k in range(K):
                at = slice(k * q, (k + 1) * q)
                A[at, at] += (Z[train] * a[train][:, [k]]).T @ Z[train]
                c[at] = Z[train].T @ (a[train, k] * rows.y[train])
            B = np.linalg.solve(A, c).reshape(K, q).T
        else:
            kept = LinearProblem(
                rows.take(train).with_folds(None),
                family,
                problem.model,
                problem.moments,
                problem.metric,
                problem.unaware,
            )
            risk = kept.risk(table)
            B = minimise(risk, kept.penalty(strength), kept.start(K), tuple(range(K)), tol=1e-10).B
        mu = family.link.mean_of(Z[~train] @ B)
        per_part.append((a[~train] * family.unit_deviance(rows.y[~train, None], mu)).sum())
    volume = rows.weight[rows.report < K].sum()
    return float(np.sum(per_part) / volume), np.array(per_part) / (volume / len(per_part))


@pytest.mark.parametrize("K", [2, 3])
def test_squared_loss_equals_refitting_every_fold_and_strength(
    K: int, randomized_response: Callable, report: Callable
) -> None:
    T = randomized_response(K, 0.8)
    table = pad_missing(np.linalg.inv(T))
    problem = problem_of(portfolio(Normal(), 800, T, report), K, Normal())
    channel = ReportChannel(T, table, tuple(range(K)))
    risks = cross_validate_strengths(problem, channel, np.random.default_rng(0))
    assert [r.strength for r in risks] == strengths(problem.moments.total_weight).tolist()
    slow = [brute_force(problem, table, r.strength) for r in risks]
    assert not any(r.problem for r in risks)
    np.testing.assert_allclose([r.risk for r in risks], [risk for risk, _ in slow], rtol=1e-9)
    for r, (_, folds) in zip(risks, slow, strict=True):
        assert r.standard_error == pytest.approx(folds.std(ddof=1) / 2, rel=1e-7)


def test_poisson_is_close_to_refitting(randomized_response: Callable, report: Callable) -> None:
    T = randomized_response(2, 0.8)
    table = pad_missing(np.linalg.inv(T))
    problem = problem_of(portfolio(Poisson(), 3000, T, report, folds=10), 2, Poisson())
    risks = cross_validate_strengths(problem, ReportChannel(T, table, (0, 1)), np.random.default_rng(0))
    slow = np.array([brute_force(problem, table, r.strength)[0] for r in risks])
    fast = np.array([r.risk for r in risks])
    # an error of second order in the fold's influence: far below what tells strengths apart
    np.testing.assert_allclose(fast, slow, rtol=1e-3)
    np.testing.assert_allclose(fast - fast.min(), slow - slow.min(), atol=0.1 * np.ptp(slow) + 1e-4)


def test_the_smallest_risk_is_chosen_and_solved_for(
    randomized_response: Callable, report: Callable, fit: Callable
) -> None:
    T = randomized_response(2, 0.7)
    rows = portfolio(Normal(), 600, T, report, seed=3)
    chosen = fit(rows, T, Normal(), None)
    best = min(chosen.strength_risks, key=lambda r: r.risk)
    assert chosen.strength == best.strength
    np.testing.assert_array_equal(chosen.B, fit(rows, T, Normal(), best.strength).B)
    assert fit(rows, T, Normal(), 3.0).strength_risks == []


def test_equal_groups_are_pooled_and_different_ones_are_not(
    randomized_response: Callable, report: Callable, fit: Callable
) -> None:
    T, rng, n = randomized_response(2, 0.7), np.random.default_rng(0), 4000
    D, X = rng.integers(2, size=n), rng.normal(size=(n, 1))
    folds = np.arange(n) % 10
    s = report(D, T, rng)
    noise = rng.normal(size=n)
    same = fit(Rows(X, X[:, 0] + noise, None, s, folds), T, Normal(), None)
    apart = fit(Rows(X, X[:, 0] + 3 * D + noise, None, s, folds), T, Normal(), None)
    assert same.strength > apart.strength
    assert apart.strength < 0.01 * n


def test_strengths_without_a_minimum_are_reported_and_not_chosen(
    randomized_response: Callable, report: Callable, fit: Callable
) -> None:
    T = randomized_response(2, 0.55)
    found = False
    for seed in range(20):
        rows = portfolio(Normal(), 60, T, report, seed=seed)
        try:
            fitted = fit(rows, T, Normal(), None)
        except RiskUnboundedError:
            continue
        bad = [r for r in fitted.strength_risks if r.problem]
        for r in bad:
            assert "no minimum" in r.problem
            assert np.isnan([r.risk, r.standard_error]).all()
            assert r.strength != fitted.strength
        found = found or bool(bad)
    assert found


def test_a_part_without_reports_harms_nothing(randomized_response: Callable, report: Callable, fit: Callable) -> None:
    T = randomized_response(2, 0.9)
    rows = portfolio(Normal(), 400, T, report)
    silent = np.where(rows.fold == 0, 2, rows.report)
    fitted = fit(Rows(rows.X, rows.y, rows.weight, silent, rows.fold), T, Normal(), None)
    assert all(np.isfinite(r.risk) for r in fitted.strength_risks)


def test_a_sample_chooses_the_strength_of_a_large_portfolio(
    randomized_response: Callable, report: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    from fairpremium.corrections import _pooling

    T = randomized_response(2, 0.8)
    table = pad_missing(np.linalg.inv(T))
    problem = problem_of(portfolio(Poisson(), 5000, T, report, folds=5), 2, Poisson())
    monkeypatch.setattr(_pooling, "MAX_ROWS", 2500)
    risks = cross_validate_strengths(problem, ReportChannel(T, table, (0, 1)), np.random.default_rng(0))
    assert risks[-1].strength == pytest.approx(1e6 * problem.moments.total_weight)
    assert all(np.isfinite(r.risk) for r in risks)
    # the risk is a mean: on half of the rows it estimates the same number
    monkeypatch.setattr(_pooling, "MAX_ROWS", 10**9)
    whole = cross_validate_strengths(problem, ReportChannel(T, table, (0, 1)), np.random.default_rng(0))
    for a, b in zip(risks, whole, strict=True):
        assert a.risk == pytest.approx(b.risk, abs=6 * np.hypot(a.standard_error, b.standard_error))


def test_fit_inverse_says_which_group_has_no_minimum(randomized_response: Callable) -> None:
    rng = np.random.default_rng(0)
    T = randomized_response(2, 0.51)
    rows = Rows(rng.normal(size=(24, 3)), rng.normal(size=24), None, rng.integers(2, size=24))
    problem = prepare(rows, 3, 1, Normal(), LinearModel(), list("abc"))
    with pytest.raises(RiskUnboundedError) as caught:
        fit_inverse(problem, ReportChannel(T, pad_missing(np.linalg.inv(T)), ("F", "M")), 0.0, rng)
    assert caught.value.group in ("F", "M")
    assert caught.value.effective_rows < 24


@pytest.mark.parametrize("seed", range(6))
def test_some_strength_on_the_grid_always_has_a_minimum(seed: int, randomized_response: Callable) -> None:
    """Endless pooling is the unaware fit, which exists: however large the noise, `pooling="auto"` must find a price.

    The joint Hessian is definite once strength > W |T^-1|^2 or so, far beyond 10 W when the noise is large.
    """
    rng = np.random.default_rng(seed)
    n, T = 100, randomized_response(2, 0.55)
    X, D = rng.normal(size=(n, 2)), rng.integers(2, size=n)
    y = rng.normal(size=n) + D
    s = np.where(rng.random(n) < 0.55, D, 1 - D)
    table = pad_missing(np.linalg.inv(T))
    problem = problem_of(Rows(X, y, None, s, np.arange(n) % 5), 2, Normal())
    pooled = problem.solve(table, 1e5 * n, (0, 1))
    assert np.isfinite(pooled.B).all()
    assert np.isfinite(fit_inverse(problem, ReportChannel(T, table, (0, 1)), None, rng).coefficients).all()
