"""Standard errors: against a slow reference row by row, and against the scatter of simulated portfolios."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fairpremium.blocks import Rows
from fairpremium.corrections import GroupFit, portfolio_means, sandwich
from fairpremium.families import Family, Gamma, Normal, Poisson


def portfolio(
    family: Family, n: int, T: np.ndarray, report: Callable, rng: np.random.Generator, missing: float = 0.15
) -> Rows:
    """Unbalanced groups that depend on x, different slopes, weights, reports missing by x."""
    K = len(T)
    X = np.column_stack([rng.normal(size=n), rng.random(n) < 0.4])
    tilt = np.cumsum(np.column_stack([0.35 + 0.15 * X[:, 1], *[np.full(n, 0.3)] * (K - 2)]), axis=1)
    D = (rng.random(n)[:, None] > tilt).sum(axis=1)
    eta = 0.1 + 0.3 * D + (0.3 - 0.2 * D) * X[:, 0] + 0.2 * X[:, 1]
    w = rng.uniform(0.5, 2, n)
    if family == Normal():
        y = eta + rng.normal(size=n) * (1 + 0.5 * X[:, 1]) / np.sqrt(w)
    elif family == Poisson():
        y = rng.poisson(w * np.exp(eta)) / w
    else:
        y = rng.gamma(2 * w, np.exp(eta) / (2 * w))
    s = report(D, T, rng)
    return Rows(X, y, w, np.where(rng.random(n) < missing * (1 + X[:, 1]), K, s))


def slow_means(fit: GroupFit) -> tuple[np.ndarray, float]:
    rows, link = fit.problem.rows, fit.problem.family.link
    K = len(fit.channel.table)
    H, loss, total = np.zeros(K), 0.0, 0.0
    for i in range(len(rows)):
        w = 1.0 if rows.weight is None else rows.weight[i]
        eta = fit.coefficients[0] + rows.X[i] @ fit.coefficients[1:]
        H += w * link.mean_of(eta)
        loss += w * rows.y[i]
        total += w
    return H / total, loss / total


@pytest.mark.parametrize("family", [Normal(), Poisson(), Gamma()], ids=repr)
def test_portfolio_means_equal_the_loop(
    family: Family, randomized_response: Callable, report: Callable, fit: Callable
) -> None:
    T = randomized_response(2, 0.85)
    fitted = fit(portfolio(family, 1500, T, report, np.random.default_rng(0)), T, family)
    H, gradient, loss = portfolio_means(fitted)
    slow, slow_loss = slow_means(fitted)
    np.testing.assert_allclose(H, slow, rtol=1e-9)
    assert loss == pytest.approx(slow_loss, rel=1e-12)
    Z = fitted.problem.moments.coordinates.matrix(fitted.problem.rows.X)
    w, B, h = fitted.problem.rows.weight, fitted.B, 1e-6
    for k in range(2):
        for j in range(3):
            up, down = B[:, k].copy(), B[:, k].copy()
            up[j] += h
            down[j] -= h
            change = family.link.mean_of(Z @ up) - family.link.mean_of(Z @ down)
            assert np.average(change, weights=w) / (2 * h) == pytest.approx(gradient[k, j], rel=1e-6, abs=1e-7)


def slow_covariance(fit: GroupFit, strength: float) -> np.ndarray:
    """Influences of every row on the caller's scale, one row after the other, straight from the docstring."""
    rows, family, table = fit.problem.rows, fit.problem.family, fit.channel.table
    K, n = len(table), len(rows)
    Z = np.column_stack([np.ones(n), rows.X])
    q = Z.shape[1]
    w = np.ones(n) if rows.weight is None else rows.weight
    W, b, link = w.sum(), fit.coefficients, family.link
    told = rows.report < K
    J = np.zeros((K * q, K * q))
    unaware = np.zeros((q, q))
    psi = np.zeros((n, K * q))
    for i in range(n):
        unaware += w[i] * family.loss_terms(rows.y[[i]], Z[i] @ fit.unaware_coefficients)[2] * np.outer(Z[i], Z[i])
        _, slope, curvature = family.loss_terms(rows.y[i], Z[i] @ b)
        for k in range(K):
            at = slice(k * q, (k + 1) * q)
            J[at, at] += table[k, rows.report[i]] * w[i] * curvature[k] * np.outer(Z[i], Z[i])
            psi[i, at] = table[k, rows.report[i]] * w[i] * slope[k] * Z[i]
    J += np.kron(np.eye(K) - 1 / K, strength * unaware / W)
    G = (Z[told] * w[told, None]).T @ Z[told]
    gamma = np.linalg.solve(G, (Z[told] * w[told, None]).T @ table.T[rows.report[told]])
    c = np.linalg.solve(G, Z.T @ w)
    H, loss = slow_means(fit)
    dH = np.array([((Z * w[:, None]).T @ link.slope(Z @ b[:, k])) / W for k in range(K)])
    covariance = 0.0
    for i in range(n):
        coefficients = -np.linalg.solve(J, psi[i])
        q_x = Z[i] @ gamma
        share = w[i] / W * (q_x - fit.shares + told[i] * (c @ Z[i]) * (table[:, rows.report[i]] - q_x))
        means = w[i] / W * (link.mean_of(Z[i] @ b) - H)
        means += [dH[k] @ coefficients[k * q : (k + 1) * q] for k in range(K)]
        u = np.concatenate([coefficients, share, means, [w[i] / W * (rows.y[i] - loss)]])
        covariance = covariance + np.outer(u, u)
    return covariance


@pytest.mark.parametrize("strength", [0.0, 50.0])
@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize(("family", "tolerance"), [(Normal(), 1e-7), (Poisson(), 0.02)], ids=["normal", "poisson"])
def test_covariance_equals_the_slow_reference(
    family: Family,
    tolerance: float,
    K: int,
    strength: float,
    randomized_response: Callable,
    report: Callable,
    fit: Callable,
) -> None:
    """The Hessian of a generalised linear fit may be that of a step before: two per cent."""
    T = randomized_response(K, 0.85)
    fitted = fit(portfolio(family, 1200, T, report, np.random.default_rng(K)), T, family, strength)
    fast, slow = sandwich(fitted).covariance, slow_covariance(fitted, strength)
    scale = np.sqrt(np.outer(np.diag(slow), np.diag(slow)))
    np.testing.assert_allclose(fast / scale, slow / scale, atol=tolerance)


def test_statistics_hold_the_estimates(randomized_response: Callable, report: Callable, fit: Callable) -> None:
    T = randomized_response(2, 0.85)
    fitted = fit(portfolio(Poisson(), 1000, T, report, np.random.default_rng(0)), T, Poisson())
    statistics = sandwich(fitted)
    np.testing.assert_array_equal(statistics.coefficients, fitted.coefficients)
    np.testing.assert_array_equal(statistics.shares, fitted.shares)
    H, loss = slow_means(fitted)
    np.testing.assert_allclose(statistics.group_means, H)
    assert statistics.mean_loss == pytest.approx(loss)
    assert np.linalg.eigvalsh(statistics.covariance)[0] > -1e-12


def test_rows_of_weight_zero_change_no_standard_error(
    randomized_response: Callable, report: Callable, fit: Callable
) -> None:
    T = randomized_response(2, 0.85)
    rows = portfolio(Poisson(), 1000, T, report, np.random.default_rng(0))
    extra = rows.take(np.r_[np.arange(1000), np.arange(50)])
    weight = np.r_[rows.weight, np.zeros(50)]
    padded = Rows(extra.X, extra.y, weight, extra.report)
    np.testing.assert_allclose(
        sandwich(fit(padded, T, Poisson())).covariance,
        sandwich(fit(rows, T, Poisson())).covariance,
        rtol=1e-4,
        atol=1e-9,
    )


def test_a_redundant_feature_has_no_variance_and_changes_no_other(
    randomized_response: Callable, report: Callable, fit: Callable
) -> None:
    T = randomized_response(2, 0.85)
    rows = portfolio(Normal(), 1000, T, report, np.random.default_rng(0))
    wide = Rows(np.column_stack([rows.X, rows.X.sum(axis=1)]), rows.y, rows.weight, rows.report)
    with pytest.warns(UserWarning, match="x2"):
        covariance = sandwich(fit(wide, T, Normal())).covariance
    plain = sandwich(fit(rows, T, Normal())).covariance
    keep = np.setdiff1d(np.arange(len(covariance)), [3, 7])
    np.testing.assert_allclose(covariance[np.ix_(keep, keep)], plain, rtol=1e-6, atol=1e-12)
    np.testing.assert_array_equal(covariance[[3, 7]], 0)


@pytest.mark.simulation
@pytest.mark.parametrize(
    ("family", "K", "pooling"),
    [(Normal(), 2, 0.0), (Normal(), 3, 0.0), (Poisson(), 2, 0.0), (Poisson(), 3, 0.0), (Normal(), 2, 300.0)],
    ids=lambda v: repr(v),
)
def test_covariance_is_the_scatter_over_portfolios(
    family: Family,
    K: int,
    pooling: float,
    randomized_response: Callable,
    report: Callable,
    fit: Callable,
    sigmas: Callable,
    repetitions: Callable,
) -> None:
    """Distances in the metric of the mean estimated covariance: p on average, correlations included."""
    m, n = repetitions(300, 3000), 4000
    rng = np.random.default_rng(11)
    T = randomized_response(K, 0.85)
    estimates, covariances = [], []
    for _ in range(m):
        statistics = sandwich(fit(portfolio(family, n, T, report, rng), T, family, pooling))
        estimates.append(
            np.concatenate(
                [statistics.coefficients.T.ravel(), statistics.shares, statistics.group_means, [statistics.mean_loss]]
            )
        )
        covariances.append(statistics.covariance)
    last_share = 4 * K - 1  # the shares sum to one: leave one out
    keep = np.setdiff1d(np.arange(5 * K + 1), [last_share])
    theta = np.array(estimates)[:, keep]
    covariance = np.mean(covariances, axis=0)[np.ix_(keep, keep)]
    centred = theta - theta.mean(axis=0)
    p = len(keep)
    distance = np.einsum("ri,ij,rj->r", centred, np.linalg.inv(covariance), centred)
    ratio = distance.sum() / ((m - 1) * p)
    # a mean of m p squared standard normals; 6 % for terms of order 1 / n that the sandwich leaves out
    assert ratio == pytest.approx(1, abs=sigmas(1) * np.sqrt(2 / (m * p)) + 0.06)
    single = centred.var(axis=0, ddof=1) / np.diag(covariance)
    np.testing.assert_allclose(single, 1, atol=sigmas(p) * np.sqrt(2 / m) + 0.1)
