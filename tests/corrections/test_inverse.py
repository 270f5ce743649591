"""The inverse correction against constructed truth, slow loops and scikit-learn; signed weights are not clipped."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import LinearRegression, PoissonRegressor

from fairpremium.blocks import Rows
from fairpremium.corrections import GroupFit, TableScores, fit_inverse, sandwich
from fairpremium.corrections._report_channel import pad_missing
from fairpremium.errors import RiskUnboundedError
from fairpremium.families import Bernoulli, Family, Gamma, Normal, Poisson
from fairpremium.models import LinearModel, prepare

KS = [2, 3, 4, 5]
LOSSES = {  # of the outcome y and the linear predictor, up to a constant; written here, not taken from the package
    "poisson": lambda y, eta: np.exp(eta) - y * eta,
    "gamma": lambda y, eta: y * np.exp(-eta) + eta,
    "bernoulli": lambda y, eta: np.logaddexp(0, eta) - y * eta,
}


def truth(K: int) -> np.ndarray:
    """Coefficients of (1, x0, x1), one column per group."""
    k = np.arange(K)
    return np.array([0.3 * k - 0.2, 0.4 - 0.15 * k, 0.1 * (-1.0) ** k])


def unbalanced(K: int) -> np.ndarray:
    """Shares of the groups, each about half of the one before; the smallest of five is 3 per cent."""
    return 0.5 ** np.arange(K) / (0.5 ** np.arange(K)).sum()


def draw(
    family: Family, T: np.ndarray, report: Callable, n: int, seed: int, *, weighted: bool = False, missing: float = 0.0
) -> tuple[Rows, np.ndarray]:
    """Draw a portfolio of unbalanced groups, and return it with the true groups."""
    rng = np.random.default_rng(seed)
    K = T.shape[1]
    X, D = rng.uniform(-1, 1, (n, 2)), rng.choice(K, n, p=unbalanced(K))
    w = rng.uniform(0.5, 2.0, n) if weighted else np.ones(n)
    eta = np.einsum("ij,ji->i", np.column_stack([np.ones(n), X]), truth(K)[:, D])
    y = {
        "normal": lambda: eta + 0.5 * rng.normal(size=n) / np.sqrt(w),
        "poisson": lambda: rng.poisson(w * np.exp(eta)) / w,
        "gamma": lambda: rng.gamma(3 * w, np.exp(eta) / (3 * w)),
        "bernoulli": lambda: (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(float),
    }[family.name]()
    S = np.where(rng.random(n) < missing, len(T), report(D, T, rng))
    return Rows(X, y, w if weighted else None, S), D


def signed_weights(rows: Rows, inverse: np.ndarray, *, clip: bool = False) -> np.ndarray:
    """w_i T^-1[k, s_i] by an explicit loop, zero without a report: shape (n, K)."""
    a = np.zeros((len(rows), len(inverse)))
    for i in range(len(rows)):
        if rows.report[i] == inverse.shape[1]:
            continue
        for k in range(len(inverse)):
            entry = inverse[k, rows.report[i]]
            a[i, k] = (1.0 if rows.weight is None else rows.weight[i]) * (max(entry, 0.0) if clip else entry)
    return a


def slow_fit(rows: Rows, family: Family, a: np.ndarray) -> np.ndarray:
    """One fit per group with signed weights: the normal equations, or a minimum of the signed loss by scipy."""
    Z = np.column_stack([np.ones(len(rows)), rows.X])
    columns = []
    for k in range(a.shape[1]):
        if family.name == "normal":
            gram, cross = (Z * a[:, [k]]).T @ Z, (Z * a[:, [k]]).T @ rows.y
            columns.append(np.linalg.solve(gram, cross))
            continue
        risk = lambda b, k=k: float(a[:, k] @ LOSSES[family.name](rows.y, Z @ b)) / len(rows)  # noqa: E731
        found = minimize(risk, np.zeros(3), method="BFGS", options={"gtol": 1e-7})
        polished = minimize(risk, found.x, method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-15})
        columns.append(polished.x)
    return np.column_stack(columns)


def assert_recovers(fit: GroupFit, sigmas: Callable) -> None:
    """Assert that every coefficient is within its standard error of the truth, false alarm 1e-6 in all."""
    beta = truth(len(fit.shares))
    error = np.sqrt(np.diag(sandwich(fit).covariance))[: beta.size]
    z = (fit.coefficients - beta).T.ravel() / error
    assert np.abs(z).max() < sigmas(beta.size)


@pytest.mark.parametrize("K", KS)
@pytest.mark.parametrize("family", [Normal(), Poisson()], ids=repr)
def test_coefficients_and_shares_are_the_constructed_ones(
    family: Family, K: int, randomized_response: Callable, report: Callable, fit: Callable, sigmas: Callable
) -> None:
    T = randomized_response(K, 0.85)
    rows, _ = draw(family, T, report, 20_000, seed=K, weighted=True, missing=0.1)
    fitted = fit(rows, T, family)
    assert_recovers(fitted, sigmas)
    covariance = sandwich(fitted).covariance
    error = np.sqrt(np.diag(covariance))[3 * K : 4 * K]
    assert np.abs((fitted.shares - unbalanced(K)) / error).max() < sigmas(K)
    # the test has power: a fit that takes the reports for the groups fails it
    with pytest.raises(AssertionError):
        assert_recovers(fit(rows, np.eye(K), family), sigmas)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("K", KS)
def test_squared_loss_equals_the_signed_normal_equations(
    K: int, weighted: bool, randomized_response: Callable, report: Callable, fit: Callable
) -> None:
    T = randomized_response(K, 0.8)
    rows, _ = draw(Normal(), T, report, 3000, seed=10 + K, weighted=weighted, missing=0.2)
    slow = slow_fit(rows, Normal(), signed_weights(rows, np.linalg.inv(T)))
    np.testing.assert_allclose(fit(rows, T, Normal()).coefficients, slow, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize("family", [Poisson(), Gamma(), Bernoulli()], ids=repr)
def test_other_losses_equal_the_minimum_that_scipy_finds(
    family: Family, K: int, randomized_response: Callable, report: Callable, fit: Callable
) -> None:
    T = randomized_response(K, 0.85)
    rows, _ = draw(family, T, report, 4000, seed=20 + K, weighted=True, missing=0.1)
    slow = slow_fit(rows, family, signed_weights(rows, np.linalg.inv(T)))
    np.testing.assert_allclose(fit(rows, T, family).coefficients, slow, atol=1e-5)


def test_more_reports_than_groups_use_the_given_left_inverse(report: Callable, channel_of: Callable) -> None:
    T = np.array([[0.7, 0.1], [0.2, 0.2], [0.1, 0.7]])
    inverse = np.linalg.pinv(T)
    rows, _ = draw(Normal(), T, report, 2000, seed=30, missing=0.2)
    problem = prepare(rows, 4, Normal(), LinearModel(), ["x0", "x1"])
    channel = replace(channel_of(T), table=pad_missing(inverse))
    fitted = fit_inverse(problem, channel, 0.0)
    np.testing.assert_allclose(fitted.coefficients, slow_fit(rows, Normal(), signed_weights(rows, inverse)), rtol=1e-8)


@pytest.mark.parametrize("K", KS)
def test_without_noise_it_is_one_regression_per_group(K: int, report: Callable, fit: Callable) -> None:
    """The identity channel against scikit-learn, fitted to the rows of each group alone."""
    for family, regression in (
        (Normal(), LinearRegression()),
        (Poisson(), PoissonRegressor(alpha=0, solver="newton-cholesky", tol=1e-10)),
    ):
        rows, D = draw(family, np.eye(K), report, 3000, seed=40 + K, weighted=True)
        np.testing.assert_array_equal(rows.report, D)
        fitted = fit(rows, np.eye(K), family)
        for k in range(K):
            here = k == D
            regression.fit(rows.X[here], rows.y[here], sample_weight=rows.weight[here])
            np.testing.assert_allclose(fitted.coefficients[1:, k], regression.coef_, atol=1e-6)
            np.testing.assert_allclose(fitted.coefficients[0, k], regression.intercept_, atol=1e-6)


@pytest.mark.parametrize("family", [Normal(), Poisson(), Gamma()], ids=repr)
def test_weights_are_repeated_rows(
    family: Family, randomized_response: Callable, report: Callable, fit: Callable
) -> None:
    T = randomized_response(3, 0.8)
    rows, _ = draw(family, T, report, 2000, seed=50, missing=0.1)
    times = np.random.default_rng(51).integers(1, 4, len(rows))
    weighted = fit(replace(rows, weight=times.astype(float)), T, family)
    repeated = fit(rows.take(np.repeat(np.arange(len(rows)), times)), T, family)
    np.testing.assert_allclose(weighted.coefficients, repeated.coefficients, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(weighted.shares, repeated.shares, rtol=1e-9)


@pytest.mark.parametrize("family", [Normal(), Poisson()], ids=repr)
def test_rows_without_a_report_count_for_no_group(
    family: Family, randomized_response: Callable, report: Callable, fit: Callable
) -> None:
    """They change the unaware price and the shares, whatever their outcomes are, and no group price."""
    T = randomized_response(3, 0.8)
    rows, _ = draw(family, T, report, 3000, seed=60, weighted=True, missing=0.3)
    reported = rows.report < 3
    wild = replace(rows, y=np.where(reported, rows.y, rows.y + 50))
    alone, with_missing = fit(rows.take(reported), T, family), fit(wild, T, family)
    np.testing.assert_allclose(with_missing.coefficients, alone.coefficients, rtol=1e-6, atol=1e-8)
    assert np.abs(with_missing.unaware_coefficients - alone.unaware_coefficients).max() > 0.1


@pytest.mark.parametrize("family", [Normal(), Poisson()], ids=repr)
def test_the_order_of_rows_and_of_groups_does_not_matter(
    family: Family, randomized_response: Callable, report: Callable, fit: Callable
) -> None:
    T = randomized_response(4, 0.8)
    rows, _ = draw(family, T, report, 3000, seed=70, weighted=True, missing=0.1)
    fitted = fit(rows, T, family)
    rng = np.random.default_rng(71)
    shuffled = fit(rows.take(rng.permutation(len(rows))), T, family)
    np.testing.assert_allclose(shuffled.coefficients, fitted.coefficients, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(shuffled.shares, fitted.shares, rtol=1e-10)
    order = np.array([2, 0, 3, 1])
    renamed = fit(replace(rows, report=np.append(np.argsort(order), 4)[rows.report]), T[np.ix_(order, order)], family)
    np.testing.assert_allclose(renamed.coefficients, fitted.coefficients[:, order], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("family", [Normal(), Poisson(), Bernoulli()], ids=repr)
@pytest.mark.parametrize("K", [2, 3])
def test_the_mean_of_its_equations_over_all_reports_is_that_of_the_true_groups(
    K: int, family: Family, randomized_response: Callable, report: Callable
) -> None:
    """Lemma 4.2, exactly: every report vector of a population of five, weighted with its probability."""
    T = randomized_response(K, 0.6)
    rows, D = draw(family, T, report, 5, seed=84 + K)
    problem = prepare(rows, K + 1, family, LinearModel(ridge=1.0), ["x0", "x1"])
    B = np.random.default_rng(81).normal(size=(3, K))
    noisy, exact = TableScores(problem, B, np.linalg.inv(T).T), TableScores(problem, B, np.eye(K))
    expected = exact(replace(rows, report=D).block(0, 5)).sum(axis=0)
    mean = np.zeros_like(expected)
    for vector in itertools.product(range(K), repeat=5):
        s = np.array(vector)
        mean += np.prod(T[s, D]) * noisy(replace(rows, report=s).block(0, 5)).sum(axis=0)
    np.testing.assert_allclose(mean, expected, rtol=1e-10, atol=1e-12)


def test_estimates_scatter_around_the_truth(
    randomized_response: Callable, report: Callable, fit: Callable, sigmas: Callable
) -> None:
    """The mean over draws of portfolio and reports, within its standard error.

    A quotient of means of 2,000 rows has a bias of order 1/n: a tenth of the tolerance, which is 0.4 of the scatter.
    """
    T, R = randomized_response(3, 0.8), 200
    found = np.array([fit(draw(Normal(), T, report, 2000, 900 + r)[0], T, Normal()).coefficients for r in range(R)])
    error = found.std(axis=0, ddof=1) / np.sqrt(R)
    assert np.abs((found.mean(axis=0) - truth(3)) / error).max() < sigmas(9)


@pytest.mark.parametrize("family", [Normal(), Poisson()], ids=repr)
def test_negative_weights_are_not_clipped(
    family: Family, randomized_response: Callable, report: Callable, channel_of: Callable, sigmas: Callable
) -> None:
    """The mutant that clips T^-1 at zero ends elsewhere, and both tests above would see it."""
    T = randomized_response(3, 0.75)
    rows, _ = draw(family, T, report, 20_000, seed=90)
    problem = prepare(rows, 4, family, LinearModel(), ["x0", "x1"])
    channel = channel_of(T)
    assert (channel.table < 0).any()
    mutant = replace(channel, table=np.maximum(channel.table, 0))
    right, clipped = fit_inverse(problem, channel, 0.0), fit_inverse(problem, mutant, 0.0)
    assert_recovers(right, sigmas)
    with pytest.raises(AssertionError):
        assert_recovers(clipped, sigmas)
    assert np.abs(right.coefficients - clipped.coefficients).max() > 0.05
    if family == Normal():
        inverse = np.linalg.inv(T)
        for fitted, clip in ((right, False), (clipped, True)):
            slow = slow_fit(rows, family, signed_weights(rows, inverse, clip=clip))
            np.testing.assert_allclose(fitted.coefficients, slow, rtol=1e-7)


@pytest.mark.parametrize("family", [Normal(), Poisson()], ids=repr)
def test_an_unbounded_risk_names_its_group(family: Family, randomized_response: Callable, channel_of: Callable) -> None:
    """With two reports of M among forty, the weights of M sum to less than zero: its risk has no minimum.

    For M the weights are -(1 - pi) / (2 pi - 1) = -4.5 for a report of F and 5.5 for one of M.
    """
    rng = np.random.default_rng(0)
    S = np.repeat([1, 0], [2, 38])
    rows = Rows(rng.normal(size=(40, 1)), rng.poisson(2.0, 40).astype(float), None, S)
    T = randomized_response(2, 0.55)
    channel = channel_of(T, ("F", "M"))
    assert signed_weights(rows, channel.table[:, :-1])[:, 1].sum() < 0
    problem = prepare(rows, 3, family, LinearModel(), ["x0"])
    with pytest.raises(RiskUnboundedError) as caught:
        fit_inverse(problem, channel, 0.0)
    assert caught.value.group == "M"
    assert "M" in str(caught.value)
    # strongly pooled groups have one price, and that has a minimum; empirical Bayes needs none
    pooled = fit_inverse(problem, channel, 1e6 * len(rows)).coefficients
    np.testing.assert_allclose(pooled[:, 0], pooled[:, 1], atol=1e-2)
    assert np.isfinite(fit_inverse(problem, channel, None).coefficients).all()


def test_an_unbounded_risk_tells_the_effective_rows(randomized_response: Callable, channel_of: Callable) -> None:
    rng = np.random.default_rng(0)
    rows = Rows(rng.normal(size=(24, 3)), rng.normal(size=24), None, rng.integers(2, size=24))
    problem = prepare(rows, 3, Normal(), LinearModel(), list("abc"))
    with pytest.raises(RiskUnboundedError) as caught:
        fit_inverse(problem, channel_of(randomized_response(2, 0.51), ("F", "M")), 0.0)
    assert caught.value.group in ("F", "M")
    assert caught.value.effective_rows < 24
