"""Correction by the optimally weighted score: constructed truth, a slow reference, and what it rests on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import root

import fairpremium.corrections._score as module
from fairpremium.blocks import Rows
from fairpremium.corrections import GroupFit, ReportChannel, fit_correction, sandwich
from fairpremium.corrections._latent import Latent, Parameters
from fairpremium.corrections._report_channel import pad_missing
from fairpremium.errors import ConvergenceError
from fairpremium.families import Bernoulli, Family, Gamma, Normal, Poisson, Tweedie
from fairpremium.models import LinearModel, prepare
from fairpremium.privacy import Channel


def truth(K: int) -> np.ndarray:
    k = np.arange(K)
    return np.array([0.1 + 0.6 * k, 0.4 - 0.2 * k, 0.1 * k])


def draw(
    family: Family,
    T: np.ndarray,
    report: Callable,
    n: int,
    seed: int,
    *,
    missing: float = 0.0,
    right_propensity: bool = False,
) -> tuple[Rows, np.ndarray]:
    """The means are right; the variance is not what the working model says, nor P(D given x) unless asked for."""
    rng = np.random.default_rng([seed, len(T), 8])
    K = len(T)
    X = rng.normal(size=(n, 2))
    x = X[:, :1] if right_propensity else np.abs(X[:, :1])
    p = np.exp(-0.2 * np.arange(K) + 0.5 * x * np.arange(K))
    p /= p.sum(axis=1, keepdims=True)
    D = (rng.random(n)[:, None] > np.cumsum(p, axis=1)[:, :-1]).sum(axis=1)
    eta = np.einsum("ij,ji->i", np.column_stack([np.ones(n), X]), truth(K)[:, D])
    w = rng.uniform(0.5, 2, n)
    if family == Normal():
        y = eta + (rng.exponential(size=n) - 1) * (1 + 0.5 * (X[:, 1] > 0)) / np.sqrt(w)
    elif family == Bernoulli():
        y = (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(float)
    elif family == Gamma():
        y = np.exp(eta) * rng.lognormal(-0.18, 0.6, n)
    elif isinstance(family, Tweedie):
        claims = rng.poisson(w * np.exp(eta))
        y = np.where(claims > 0, rng.gamma(2.0 * np.maximum(claims, 1), 0.5), 0.0) / w
    else:
        y = rng.poisson(rng.gamma(2.0, w * np.exp(eta) / 2)) / w
    S = np.where(rng.random(n) < missing * (1 + (X[:, 0] > 0)), K, report(D, T, rng))
    return Rows(X, y, w, S), D


def fit_with(rows: Rows, T: np.ndarray, family: Family, correction: str = "score", pooling: float = 0.0) -> GroupFit:
    problem = prepare(rows, len(T) + 1, family, LinearModel(), ["x0", "x1"])
    groups = tuple(range(len(T)))
    channel = ReportChannel(T, pad_missing(np.linalg.inv(T)), groups, Channel(T, groups=groups))
    return fit_correction(problem, channel, correction, pooling).fit


def z_values(fit: GroupFit) -> np.ndarray:
    beta = truth(len(fit.channel.table))
    error = np.sqrt(np.diag(sandwich(fit).covariance))[: beta.size]
    return (fit.coefficients - beta).T.ravel() / error


CASES = [
    pytest.param(Normal(), 2, 5000, id="normal, 2"),
    pytest.param(Normal(), 3, 12_000, id="normal, 3"),
    pytest.param(Normal(), 5, 30_000, id="normal, 5"),
    pytest.param(Poisson(), 2, 10_000, id="poisson, 2"),
    pytest.param(Poisson(), 4, 30_000, id="poisson, 4"),
    pytest.param(Gamma(), 2, 8000, id="gamma, 2"),
    pytest.param(Tweedie(1.5), 2, 10_000, id="tweedie, 2"),
    pytest.param(Bernoulli(), 2, 12_000, id="bernoulli, 2"),
]


@pytest.mark.parametrize(("family", "K", "n"), CASES)
def test_recovers_truth_with_wrong_working_models(
    family: Family, K: int, n: int, randomized_response: Callable, report: Callable, sigmas: Callable
) -> None:
    T = randomized_response(K, 0.8)
    rows, _ = draw(family, T, report, n, seed=1, missing=0.1)
    z = z_values(fit_with(rows, T, family))
    assert np.abs(z).max() < sigmas(len(z))
    assert np.sqrt(np.mean(z**2)) > 0.25


@pytest.mark.parametrize("wrong", [(1.5, 0.0, 0.0), (-1.0, 0.0, 1.5)], ids=["share", "slope"])
def test_a_wrong_propensity_leaves_it_consistent(
    wrong: tuple[float, ...],
    randomized_response: Callable,
    report: Callable,
    sigmas: Callable,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    T = randomized_response(2, 0.75)
    rows, _ = draw(Normal(), T, report, 40_000, seed=2)
    right = fit_with(rows, T, Normal())

    def wrong_propensity(latent: Latent, shares: np.ndarray, **how: bool) -> Parameters:
        return Parameters(np.array([wrong]))

    monkeypatch.setattr(module, "fit_propensity", wrong_propensity)
    fit = fit_with(rows, T, Normal())
    assert not np.allclose(fit.B, right.B, rtol=1e-6)  # it was used
    assert np.abs(z_values(fit)).max() < sigmas(6)


def test_a_wrong_group_model_leaks(randomized_response: Callable, report: Callable) -> None:
    """The documented weakness: group 1 lacks its square, and group 0 pays; the inverse correction does not leak."""
    T = randomized_response(2, 0.75)
    rng = np.random.default_rng(3)
    n = 40_000
    X = rng.normal(size=(n, 2))
    D = (rng.random(n) < 1 / (1 + np.exp(-X[:, 0]))).astype(int)
    y = np.where(D == 0, 0.5 * X[:, 0], X[:, 0] ** 2) + 0.5 * rng.normal(size=n)
    rows = Rows(X, y, None, report(D, T, rng))
    score = fit_with(rows, T, Normal())
    inverse = fit_with(rows, T, Normal(), "inverse")
    error = np.sqrt(np.diag(sandwich(inverse).covariance))[1]
    assert abs(inverse.coefficients[1, 0] - 0.5) < 5 * error
    assert abs(score.coefficients[1, 0] - 0.5) > 5 * error


@pytest.mark.parametrize("family", [Normal(), Poisson()], ids=repr)
def test_equals_a_slow_loop(family: Family, randomized_response: Callable, report: Callable) -> None:
    """The equations from the docstring, with loops over groups and reports, solved by scipy.optimize.root."""
    T = randomized_response(2, 0.8)
    rows, _ = draw(family, T, report, 1500, seed=4, missing=0.1)
    gammas: list[np.ndarray] = []
    plain = module.fit_propensity

    def record(latent: Latent, shares: np.ndarray, **how: bool) -> Parameters:
        found = plain(latent, shares, **how)
        gammas.append(found.gamma)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "fit_propensity", record)
        fit = fit_with(rows, T, family)
    start = fit_with(rows, T, family, "inverse")
    Zs = fit.problem.moments.coordinates.matrix(rows.X)
    q1 = 1 / (1 + np.exp(-Zs @ gammas[0][0]))
    q = np.column_stack([1 - q1, q1])
    Z = np.column_stack([np.ones(1500), rows.X])
    told = rows.report < 2
    inverse = np.linalg.inv(T)
    mean, slope = family.link.mean_of, family.link.slope
    # Pearson's dispersion with corrected weights
    f = mean(Z @ start.coefficients)
    a = inverse.T[rows.report[told]]
    squares = rows.weight[told, None] * (rows.y[told, None] - f[told]) ** 2 / family.variance(f[told])
    phi = float((a * squares).sum() / told.sum())
    C = np.zeros((2, 2, 2))
    for j in range(2):
        for d in range(2):
            for e in range(2):
                C[j, d, e] = sum(T[s, j] * inverse[d, s] * inverse[e, s] for s in range(2))

    def instruments(beta: np.ndarray) -> np.ndarray:
        f = mean(Z @ beta)
        result = np.zeros((1500, 2, 2))
        for i in range(1500):
            omega = np.zeros((2, 2))
            for d in range(2):
                for e in range(2):
                    for j in range(2):
                        gap = (f[i, j] - f[i, d]) * (f[i, j] - f[i, e])
                        omega[d, e] += q[i, j] * C[j, d, e] * (phi * family.variance(f[i, [j]])[0] + gap)
            result[i] = np.diag(q[i] * slope(Z[i] @ beta)) @ np.linalg.inv(omega)
        return result

    def equations(flat: np.ndarray, G: np.ndarray) -> np.ndarray:
        f = mean(Z @ flat.reshape(2, 3).T)
        total = np.zeros((2, 3))
        for i in np.flatnonzero(told):
            M = inverse[:, rows.report[i]] * (rows.y[i] - f[i])
            total += rows.weight[i] * np.outer(G[i] @ M, Z[i])
        return total.ravel() / 1500

    beta = start.coefficients
    for _ in range(2):
        G = instruments(beta)
        solution = root(equations, beta.T.ravel(), args=(G,), tol=1e-10)
        assert solution.success
        beta = solution.x.reshape(2, 3).T
    np.testing.assert_allclose(fit.coefficients, beta, rtol=1e-4, atol=1e-5)


def test_rows_without_a_report_do_not_count(randomized_response: Callable, report: Callable) -> None:
    T = randomized_response(2, 0.8)
    rows, _ = draw(Normal(), T, report, 1500, seed=5, missing=0.3)
    full = fit_with(rows, T, Normal())
    told = fit_with(rows.take(rows.report < 2), T, Normal())
    np.testing.assert_allclose(full.coefficients, told.coefficients, rtol=1e-3, atol=1e-3)


def test_no_solution_raises(randomized_response: Callable, report: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    T = randomized_response(2, 0.8)
    rows, _ = draw(Poisson(), T, report, 1500, seed=6)
    monkeypatch.setattr(module, "_PASSES", 1)
    with pytest.raises(ConvergenceError, match="no solution near"):
        fit_with(rows, T, Poisson())


@pytest.mark.parametrize("family", [Poisson(), Gamma(), Bernoulli()], ids=repr)
@pytest.mark.parametrize(("pooling", "right"), [(0.0, True), (200.0, True), (0.0, False)])
def test_the_slope_of_a_sample_leads_to_the_same_solution(
    family: Family,
    pooling: float,
    right: bool,
    randomized_response: Callable,
    report: Callable,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where a wrong propensity makes it lead astray, all rows are asked."""
    monkeypatch.setattr(module, "_NOISE_SHARE", 1e-5)  # 1e-7 of the predictors, as without a sample
    T = randomized_response(3, 0.8)
    rows, _ = draw(family, T, report, 12_000, 5, right_propensity=right)
    whole = fit_with(rows, T, family, pooling=pooling)
    asked: list[int] = []
    expand = module._Instruments.expand

    def count(self: module._Instruments, B: np.ndarray, modelled: bool = False) -> tuple[np.ndarray, np.ndarray]:
        asked.append(len(rows) if self.rows is None else len(self.rows))
        return expand(self, B, modelled)

    monkeypatch.setattr(module._Instruments, "expand", count)
    monkeypatch.setattr(module, "_SAMPLE_ROWS", 4000)
    found = fit_with(rows, T, family, pooling=pooling)
    if right:
        assert set(asked) == {4000}  # that of all rows is computed where it is asked for
    np.testing.assert_allclose(found.B, whole.B, rtol=1e-5, atol=1e-6)
    scale = np.abs(whole.influence.response).max()  # of two places next to each other
    np.testing.assert_allclose(found.influence.response, whole.influence.response, atol=0.02 * scale)
    assert asked[-1] == len(rows)


def test_many_rows_are_solved_to_a_part_of_their_noise(
    randomized_response: Callable, report: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a step is a small part of a standard error, another pass over many rows changes nothing."""
    T = randomized_response(3, 0.8)
    rows, _ = draw(Poisson(), T, report, 12_000, 5)
    exact = fit_with(rows, T, Poisson())
    monkeypatch.setattr(module, "_SAMPLE_ROWS", 4000)
    found = fit_with(rows, T, Poisson())
    error = np.sqrt(np.diag(exact.influence.response)).reshape(found.B.T.shape).T
    assert (np.abs(found.B - exact.B) < 0.01 * error).all()


def test_many_rows_are_read_few_times(
    randomized_response: Callable, report: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first weights come from a sample; then a few passes for the equations alone."""
    T = randomized_response(3, 0.8)
    rows, _ = draw(Poisson(), T, report, 60_000, 6, right_propensity=True)
    exact = fit_with(rows, T, Poisson())
    passes: list[int] = []
    value = module._Instruments.value

    def count(self: module._Instruments, B: np.ndarray) -> np.ndarray:
        passes.append(len(rows) if self.rows is None else len(self.rows))
        return value(self, B)

    monkeypatch.setattr(module._Instruments, "value", count)
    monkeypatch.setattr(module, "_SAMPLE_ROWS", 20_000)
    monkeypatch.setattr(module, "_ROUGH_FROM", 50_000)
    found = fit_with(rows, T, Poisson())
    assert passes.count(60_000) <= 6
    assert len(passes) > passes.count(60_000)
    error = np.sqrt(np.diag(sandwich(exact).covariance))[: exact.B.size]
    # weights that rest on a third of the rows move an efficient estimate by the square of their error
    np.testing.assert_array_less(np.abs(found.coefficients - exact.coefficients).T.ravel(), 0.1 * error)


def test_pooling_pulls_the_groups_together(randomized_response: Callable, report: Callable) -> None:
    T = randomized_response(2, 0.75)
    rows, _ = draw(Normal(), T, report, 3000, seed=7)
    spread = [np.ptp(fit_with(rows, T, Normal(), pooling=s).coefficients, axis=1).sum() for s in (0, 300, 1e7)]
    assert spread[0] > spread[1] > spread[2]
    assert spread[2] < 1e-2 * spread[0]


@pytest.mark.simulation
@pytest.mark.parametrize("family", [Normal(), Poisson()], ids=repr)
def test_scatters_less_than_the_inverse_correction_and_knows_it(
    family: Family, repetitions: Callable, randomized_response: Callable, report: Callable
) -> None:
    """With a right propensity; the claimed scatter has relative error 1 / sqrt(2 R), five of them over six."""
    T, R = randomized_response(2, 0.7), repetitions(40, 400)
    score, inverse, errors = [], [], []
    for seed in range(R):
        rows, _ = draw(family, T, report, 3000, seed=900 + seed, right_propensity=True)
        fit = fit_with(rows, T, family)
        score.append(fit.coefficients.T.ravel())
        inverse.append(fit_with(rows, T, family, "inverse").coefficients.T.ravel())
        errors.append(np.diag(sandwich(fit).covariance)[:6])
    beta = truth(2).T.ravel()
    ours, theirs = np.sum((np.array(score) - beta) ** 2, axis=1), np.sum((np.array(inverse) - beta) ** 2, axis=1)
    assert ours.mean() < theirs.mean()
    claimed = np.sqrt(np.mean(errors, axis=0))
    assert np.abs(claimed / np.std(score, axis=0, ddof=1) - 1).max() < 5 / np.sqrt(2 * R) + 0.05


def test_a_start_at_the_border_of_the_means_is_refused(randomized_response, report, fit) -> None:
    """Prices of exactly zero or one have no variance to weigh by."""
    T = randomized_response(2, 0.9)
    rows, _ = draw(Bernoulli(), T, report, 300, 0)
    start = fit(rows, T, Bernoulli(), pooling=1.0)
    with pytest.raises(ConvergenceError, match="border of its means"):
        module.fit_score(start.problem, replace(start, B=1e4 * start.B), 1.0)
