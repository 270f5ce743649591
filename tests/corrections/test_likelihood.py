"""Correction by likelihood: it recovers constructed truths within its own standard errors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import norm

from fairpremium.blocks import Rows
from fairpremium.corrections import GroupFit, ReportChannel, Statistics, fit_correction, sandwich
from fairpremium.corrections._likelihood import mixture_likelihood, naive_start
from fairpremium.corrections._report_channel import pad_missing
from fairpremium.families import Bernoulli, Family, Gamma, NegativeBinomial, Normal, Poisson, Tweedie, law_of
from fairpremium.models import LinearModel, prepare
from fairpremium.privacy import Channel


def truth(K: int) -> np.ndarray:
    """Coefficients of shape (3, K): the groups differ in every one of them."""
    k = np.arange(K)
    return np.array([0.2 + 0.6 * k, 0.3 - 0.2 * k, 0.1 * k])


def propensity(X: np.ndarray, K: int, base: float) -> np.ndarray:
    """Softmax with linear logits; a negative base makes the first group the largest one."""
    logits = base * np.arange(K) + 0.5 * X[:, :1] * np.arange(K)
    weight = np.exp(logits)
    return weight / weight.sum(axis=1, keepdims=True)


def draw(
    family: Family,
    T: np.ndarray,
    report: Callable,
    n: int,
    seed: int,
    base: float = -0.3,
    weighted: bool = True,
    missing: float = 0.0,
) -> tuple[Rows, np.ndarray]:
    """A portfolio for which law and propensity are right. Reports are missing more often where x1 is large."""
    rng = np.random.default_rng([seed, T.shape[1]])
    K = T.shape[1]
    X = rng.normal(size=(n, 2))
    D = (rng.random(n)[:, None] > np.cumsum(propensity(X, K, base), axis=1)[:, :-1]).sum(axis=1)
    eta = np.einsum("ij,ji->i", np.column_stack([np.ones(n), X]), truth(K)[:, D])
    w = rng.uniform(0.5, 2.0, n) if weighted and family != Bernoulli() else np.ones(n)
    if family == Normal():
        y = rng.normal(eta, 0.8 / np.sqrt(w))
    elif family == Bernoulli():
        y = (rng.random(n) < 1 / (1 + np.exp(-(eta - 0.5)))).astype(float)
    elif family == Gamma():
        y = rng.gamma(w / 0.4, np.exp(eta) * 0.4 / w)
    elif isinstance(family, Tweedie):
        p, phi = family.power, 0.8 / w
        claims = rng.poisson(np.exp(eta * (2 - p)) / ((2 - p) * phi))
        scale = phi * (p - 1) * np.exp(eta * (p - 1))
        y = np.where(claims > 0, rng.gamma((2 - p) / (p - 1) * np.maximum(claims, 1), scale), 0.0)
    elif isinstance(family, NegativeBinomial):
        y = rng.poisson(rng.gamma(1 / 0.7, 0.7 * w * np.exp(eta))) / w
    else:
        y = rng.poisson(w * np.exp(eta)) / w
    S = report(D, T, rng)
    if missing:
        S = np.where(rng.random(n) < missing * (1 + (X[:, 0] > 0)), len(T), S)
    return Rows(X, y, w if weighted else None, S), D


def fit_with(
    rows: Rows, T: np.ndarray, family: Family, correction: str = "likelihood", pooling: float | None = 0.0
) -> GroupFit:
    problem = prepare(rows, len(T) + 1, family, LinearModel(), ["x0", "x1"])
    W = np.diag(1 / T.mean(axis=1))
    inverse = np.linalg.solve(T.T @ W @ T, T.T @ W)
    groups = tuple(range(T.shape[1]))
    channel = ReportChannel(T, pad_missing(inverse), groups, Channel(T, groups=groups, reports=range(len(T))))
    return fit_correction(problem, channel, correction, pooling).fit


def z_values(statistics: Statistics, family: Family, X: np.ndarray, base: float) -> np.ndarray:
    """Errors of all coefficients and shares in their own standard errors."""
    beta = truth(len(statistics.shares))
    if family == Bernoulli():
        beta = beta - np.array([[0.5], [0.0], [0.0]])
    error = np.sqrt(np.diag(statistics.covariance))
    K, size = len(statistics.shares), beta.size
    grid = np.random.default_rng(123).normal(size=(400_000, 2))  # P(D) by simulation, without error to speak of
    shares = propensity(grid, K, base).mean(axis=0)
    return np.concatenate(
        [
            (statistics.coefficients.T.ravel() - beta.T.ravel()) / error[:size],
            (statistics.shares - shares) / error[size : size + K],
        ]
    )


CASES = [
    pytest.param(Normal(), 2, 3000, id="normal, 2"),
    pytest.param(Normal(), 3, 4000, id="normal, 3"),
    pytest.param(Normal(), 4, 6000, id="normal, 4"),
    pytest.param(Normal(), 5, 8000, id="normal, 5"),
    pytest.param(Poisson(), 2, 6000, id="poisson, 2"),
    pytest.param(Poisson(), 3, 12_000, id="poisson, 3"),
    pytest.param(Gamma(), 2, 3000, id="gamma, 2"),
    pytest.param(Gamma(), 3, 6000, id="gamma, 3"),
    pytest.param(Tweedie(1.5), 2, 3000, id="tweedie, 2"),
    pytest.param(Bernoulli(), 2, 20_000, id="bernoulli, 2"),
    pytest.param(NegativeBinomial(), 2, 6000, id="negative binomial, 2"),
    pytest.param(NegativeBinomial(), 3, 12_000, id="negative binomial, 3"),
]


@pytest.mark.parametrize(("family", "K", "n"), CASES)
def test_recovers_truth_within_its_standard_errors(
    family: Family, K: int, n: int, randomized_response: Callable, report: Callable, sigmas: Callable
) -> None:
    """Volumes, unequal groups, and reports that are missing by x."""
    T = randomized_response(K, 0.75)
    rows, _ = draw(family, T, report, n, seed=11, missing=0.15)
    z = z_values(sandwich(fit_with(rows, T, family)), family, rows.X, -0.3)
    assert np.abs(z).max() < sigmas(len(z))
    assert np.sqrt(np.mean(z**2)) > 0.25  # nor are the standard errors far too long


def test_a_rare_group(randomized_response: Callable, report: Callable, sigmas: Callable) -> None:
    T = randomized_response(2, 0.75)
    rows, D = draw(Normal(), T, report, 6000, seed=2, base=-2.8)
    assert 0.04 < D.mean() < 0.09
    z = z_values(sandwich(fit_with(rows, T, Normal())), Normal(), rows.X, -2.8)
    assert np.abs(z).max() < sigmas(len(z))


def test_more_reports_than_groups(report: Callable, sigmas: Callable) -> None:
    """Four reports of two groups, one of which says nothing."""
    T = np.array([[0.4, 0.1], [0.3, 0.1], [0.1, 0.6], [0.2, 0.2]])
    rows, _ = draw(Poisson(), T, report, 8000, seed=3)
    for correction in ("likelihood", "score", "posterior"):
        fit = fit_with(rows, T, Poisson(), correction)
        z = z_values(sandwich(fit), Poisson(), rows.X, -0.3)
        assert np.abs(z[:6]).max() < sigmas(6), correction


def test_overdispersed_counts_need_the_negative_binomial_law(randomized_response: Callable, report: Callable) -> None:
    """The Poisson likelihood takes what is heterogeneity for group differences; the right law does not."""
    T = randomized_response(2, 0.75)
    rows, D = draw(NegativeBinomial(), T, report, 6000, seed=4)
    Z = np.column_stack([np.ones(6000), rows.X])

    def error(family: Family) -> float:
        fit = fit_with(rows, T, family)
        gap = (Z @ (fit.coefficients - truth(2)))[np.arange(6000), D]
        return float(np.sqrt(np.mean(gap**2)))

    assert 3 * error(NegativeBinomial()) < error(Poisson())


def test_exposure_belongs_inside_the_law(randomized_response: Callable, report: Callable) -> None:
    """Ten times the volume makes the outcome tell the groups apart, and the standard errors know it."""
    T = randomized_response(2, 0.7)
    rows, _ = draw(Normal(), T, report, 3000, seed=5, weighted=False)
    rng = np.random.default_rng(1)
    means = np.column_stack([np.ones(3000), rows.X])
    _, D = draw(Normal(), T, report, 3000, seed=5, weighted=False)
    own = np.einsum("ij,ji->i", means, truth(2)[:, D])
    heavy = rng.random(3000) < 0.5
    w = np.where(heavy, 25.0, 1.0)
    mixed = Rows(rows.X, rng.normal(own, 1.5 / np.sqrt(w)), w, rows.report)
    fit = fit_with(mixed, T, Normal())
    error = np.sqrt(np.diag(sandwich(fit).covariance))[:6]
    assert np.abs((fit.coefficients - truth(2)).T.ravel() / error).max() < norm.isf(1e-6 / 12)
    light = fit_with(mixed.take(~heavy), T, Normal())
    assert np.all(error < 0.5 * np.sqrt(np.diag(sandwich(light).covariance))[:6])


@pytest.mark.parametrize("family", [Normal(), Poisson()], ids=repr)
def test_equals_a_slow_reference_on_the_caller_scale(
    family: Family, randomized_response: Callable, report: Callable
) -> None:
    """The likelihood written row by row from the docstring, by BFGS; P(D given x) bends in x by squares and products.

    The ridge of one row on the propensity is the only difference, worth less than a thirtieth of a standard error.
    """
    T = randomized_response(2, 0.8)
    rows, _ = draw(family, T, report, 1500, seed=6)
    Z = np.column_stack([np.ones(1500), rows.X])
    t = T[rows.report]
    short = np.clip((rows.X - rows.X.mean(axis=0)) / rows.X.std(axis=0), -3, 3)
    bent = np.column_stack([rows.weight, short**2, short[:, 0] * short[:, 1]])  # exposure may depend on the group

    def minus(theta: np.ndarray) -> float:
        q = 1 / (1 + np.exp(-Z @ theta[:3] - bent @ theta[9:13]))
        phi = float(np.exp(theta[13])) if family.has_dispersion else 1.0
        total = 0.0
        for k, share in enumerate([1 - q, q]):
            mu = family.link.mean_of(Z @ theta[3 + 3 * k : 6 + 3 * k])
            total = total + t[:, k] * share * np.exp(family.log_likelihood(rows.y, mu, phi, rows.weight))
        return -float(np.log(total).sum()) / 1500

    start = np.concatenate([[-0.3, 0.5, 0.0], truth(2).T.ravel(), [0.0] * 4, [-0.4] * family.has_dispersion])
    twin = minimize(minus, start, method="BFGS", options={"gtol": 1e-6})
    fit = fit_with(rows, T, family)
    error = np.sqrt(np.diag(sandwich(fit).covariance))[:6]
    assert np.abs((fit.coefficients.T.ravel() - twin.x[3:9]) / error).max() < 1 / 30


def test_pooling_pulls_the_groups_together(randomized_response: Callable, report: Callable) -> None:
    T = randomized_response(2, 0.75)
    rows, _ = draw(Normal(), T, report, 2000, seed=7)
    spread = [
        np.ptp(fit_with(rows, T, Normal(), pooling=strength).coefficients, axis=1).sum() for strength in (0, 300, 1e7)
    ]
    assert spread[0] > spread[1] > spread[2]
    assert spread[2] < 1e-2 * spread[0]


def test_standard_errors_equal_those_of_the_true_attribute_when_the_outcome_reveals_it(
    randomized_response: Callable, report: Callable
) -> None:
    """Groups far apart: the report hardly matters, so the fit with the true attribute is reached."""
    T = randomized_response(2, 0.6)
    rng = np.random.default_rng(8)
    n = 2000
    X = rng.normal(size=(n, 2))
    D = (rng.random(n) < propensity(X, 2, -0.3)[:, 1]).astype(int)
    y = 20.0 * D + X[:, 0] * (1 + D) + rng.normal(size=n)
    fit = fit_with(Rows(X, y, None, report(D, T, rng)), T, Normal())
    Z = np.column_stack([np.ones(n), X])
    error = np.sqrt(np.diag(sandwich(fit).covariance))[:6].reshape(2, 3)
    for k in range(2):
        own = Z[k == D]
        beta = np.linalg.lstsq(own, y[k == D], rcond=None)[0]
        e = y[k == D] - own @ beta
        bread = np.linalg.inv(own.T @ own)
        robust = np.sqrt(np.diag(bread @ (own * e[:, None] ** 2).T @ own @ bread))
        np.testing.assert_allclose(fit.coefficients[:, k], beta, atol=1e-3 * robust.min())
        np.testing.assert_allclose(error[k], robust, rtol=0.01)


def test_naive_start_ranks_the_groups_rightly(randomized_response: Callable, report: Callable) -> None:
    T = randomized_response(3, 0.8)
    rows, _ = draw(Normal(), T, report, 3000, seed=9)
    problem = prepare(rows, 4, Normal(), LinearModel(), ["x0", "x1"])
    B = naive_start(problem, T, (0, 1, 2))
    assert B is not None
    assert np.all(np.diff(B[0]) > 0)


def test_the_likelihood_leaves_out_rows_without_a_report(randomized_response: Callable, report: Callable) -> None:
    T = randomized_response(2, 0.75)
    rows, _ = draw(Normal(), T, report, 500, seed=10, missing=0.3)
    problem = prepare(rows, 3, Normal(), LinearModel(), ["x0", "x1"])
    latent = mixture_likelihood(problem, T, law_of(Normal()), 0.0)
    assert len(latent.rows) == np.count_nonzero(rows.report < 2) < 500


@pytest.mark.simulation
@pytest.mark.parametrize("family", [Normal(), Poisson()], ids=repr)
def test_standard_errors_match_the_scatter(
    family: Family, repetitions: Callable, randomized_response: Callable, report: Callable
) -> None:
    """The standard deviation of R estimates has relative error 1 / sqrt(2 R): five of them over eight statistics."""
    T, R = randomized_response(2, 0.75), repetitions(40, 400)
    estimates, errors = [], []
    for seed in range(R):
        rows, _ = draw(family, T, report, 2000, seed=500 + seed)
        statistics = sandwich(fit_with(rows, T, family))
        estimates.append(np.concatenate([statistics.coefficients.T.ravel(), statistics.shares]))
        errors.append(np.diag(statistics.covariance)[:8])
    scatter = np.std(estimates, axis=0, ddof=1)
    claimed = np.sqrt(np.mean(errors, axis=0))
    assert np.abs(claimed / scatter - 1).max() < 5 / np.sqrt(2 * R) + 0.05
