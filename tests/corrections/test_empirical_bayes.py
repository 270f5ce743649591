"""Empirical Bayes pooling: against quadrature over the standard deviations, exact identities, and constructed truth."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fairpremium.blocks import Rows
from fairpremium.corrections import _empirical_bayes as module
from fairpremium.corrections import fit_inverse
from fairpremium.corrections._empirical_bayes import Evidence, GaussianPenalty, Posterior, Prior, relinearise
from fairpremium.families import Family, Gamma, Normal, Poisson
from fairpremium.models import LinearModel, LinearProblem, prepare

SEEDS = 16  # chains that run independently, which show the Monte Carlo error


def make_prior(q: int, block: list[int] | None = None, seed: int = 0) -> Prior:
    """The prior of q coefficients, each a block of its own, in coordinates that are mixed at random."""
    block = list(range(q)) if block is None else block
    transform = np.eye(q) + 0.2 * np.random.default_rng(seed).normal(size=(q, q))
    blocks = max(block) + 1
    scale = np.array([0.3] + [0.03] * (blocks - 1))
    return Prior(transform, np.array(block), scale, 1.0, tuple(f"x{j}" for j in range(1, blocks)))


def make_evidence(K: int, q: int, deviation: float, rows: float, seed: int) -> Evidence:
    """Groups whose coefficients differ by about `deviation`, and correlated evidence worth so many unit rows."""
    rng = np.random.default_rng([seed, K, q])
    A = rng.normal(size=(K * q, 2 * K * q))
    precision = rows * A @ A.T / (2 * K * q)
    b = np.tile(rng.normal(size=q), K) + deviation * rng.normal(size=K * q)
    return Evidence(precision, precision @ b + np.linalg.cholesky(precision) @ rng.normal(size=K * q))


def quadrature(prior: Prior, evidence: Evidence, K: int, points: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Posterior mean (K q), covariance (K q, K q) and mean of each tau, by sums over a grid of log tau.

    The deviations from the groups' mean have precision (I - 11'/K) x diag(1 / tau^2), in the prior's coordinates; the
    mean itself has none. tau_0 is half-Cauchy with scale 0.3 c, the others with 0.03 d; c and d are uniform.
    """
    blocks = len(prior.scale)
    tau = np.array(list(itertools.product(*(scale * np.geomspace(1e-4, 60, points) for scale in prior.scale))))
    factors = np.array([1, 0.3, 0.1, 0.03, 0.01, 10, 3])  # the last two for slopes only
    ratio = tau[:, :, None] / (prior.scale[:, None] * factors)  # (grid, blocks, factors)
    density = tau[:, :, None] / (prior.scale[:, None] * factors) / (1 + ratio**2)  # per unit of log tau
    log_prior = np.log(density[:, 0, :5].mean(axis=1))
    if blocks > 1:
        log_prior += np.log(density[:, 1:].prod(axis=1).mean(axis=1))
    back = np.linalg.inv(prior.transform)
    between = np.eye(K) - 1 / K
    diagonal = tau[:, prior.block] ** -2.0
    own = np.einsum("ji,gj,jk->gik", back, diagonal, back)
    precision = evidence.precision + np.einsum("kl,gij->gkilj", between, own).reshape(
        len(tau), *evidence.precision.shape
    )
    covariance = np.linalg.inv(precision)
    mean = covariance @ evidence.shift
    log_weight = log_prior + 0.5 * mean @ evidence.shift - 0.5 * np.linalg.slogdet(precision)[1]
    log_weight -= (K - 1) * np.log(tau[:, prior.block]).sum(axis=1)
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    center = weight @ mean
    spread = np.einsum("g,gij->ij", weight, covariance) + (mean * weight[:, None]).T @ mean - np.outer(center, center)
    return center, spread, weight @ tau


def chains(
    prior: Prior, evidence: Evidence, K: int, monkeypatch: pytest.MonkeyPatch, draws: int = 600
) -> list[Posterior]:
    """Posteriors of chains with different seeds."""
    found = []
    for seed in range(SEEDS):
        monkeypatch.setattr(module, "_SEED", 100 + seed)
        found.append(prior.shrink(evidence, K, draws))
    return found


def assert_mean_is(values: list[np.ndarray], expected: np.ndarray, sigmas: float) -> None:
    """Assert that the mean over independent chains is as expected, within its own standard error."""
    found = np.array(values)
    error = found.std(axis=0, ddof=1) / np.sqrt(len(found))
    # quadrature, and the start of the chains after burn-in: a thousandth of the size of the numbers
    slack = 1e-3 * np.abs(expected).max()
    assert (np.abs(found.mean(axis=0) - expected) < sigmas * error + slack).all()


# K, block of each coefficient, how far the groups differ, evidence in rows, points of the grid per tau
CASES = [
    pytest.param(2, [0], 0.1, 40.0, 400, id="two groups, level"),
    pytest.param(4, [0], 0.3, 100.0, 400, id="four groups, level"),
    pytest.param(3, [0], 0.0, 100.0, 400, id="three equal groups, level"),
    pytest.param(3, [0, 1], 0.1, 400.0, 70, id="three groups, level and slope"),
    pytest.param(3, [0, 1, 1], 0.02, 2000.0, 70, id="three groups, a text column"),
    pytest.param(2, [0, 1, 2], 0.05, 3000.0, 28, id="two groups, two slopes"),
]


@pytest.mark.parametrize(("K", "block", "deviation", "rows", "points"), CASES)
def test_shrinkage_is_the_posterior_mean_over_all_standard_deviations(
    K: int, block: list[int], deviation: float, rows: float, points: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mean and covariance against a grid that shares no code with the sampler; t with 15 degrees of freedom at 6."""
    prior, evidence = make_prior(len(block), block), make_evidence(K, len(block), deviation, rows, 1)
    mean, covariance, tau = quadrature(prior, evidence, K, points)
    found = chains(prior, evidence, K, monkeypatch)
    assert_mean_is([p.B.T.ravel() for p in found], mean, 6)
    assert_mean_is([p.covariance for p in found], covariance, 6)
    if K > 3:  # with fewer groups the variance of tau is large or infinite
        assert_mean_is([np.array(p.deviations["main"]) for p in found], tau[0], 6)
    # the comparison has power: neither no pooling nor complete pooling would pass
    unpooled = np.linalg.solve(evidence.precision, evidence.shift)
    error = np.std([p.B.T.ravel() for p in found], axis=0).max() / np.sqrt(SEEDS)
    assert np.abs(mean - unpooled).max() > 12 * error  # twice what the comparison allows
    assert np.ptp(mean.reshape(K, -1), axis=0).max() > 0


def test_one_chain_is_as_exact_as_prices_need(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Monte Carlo error of the default number of draws is a small part of the standard error that remains."""
    prior, evidence = make_prior(3), make_evidence(3, 3, 0.05, 1000.0, 2)
    found = chains(prior, evidence, 3, monkeypatch, module._DRAWS)[:8]
    scatter = np.std([p.B.T.ravel() for p in found], axis=0, ddof=1)
    assert (scatter < 0.15 * np.sqrt(np.diag(found[0].covariance))).all()


def test_the_mean_moves_with_the_evidence_by_the_covariance(monkeypatch: pytest.MonkeyPatch) -> None:
    """An identity of exponential families, on which the standard errors rest: d E[b] / d eta = Cov[b].

    A difference quotient of each chain, with the same seed on both sides, scatters; its mean over chains does not. The
    step moves the mean by a tenth of its standard deviation, so that the quotient's own error is of order 1 %.
    """
    K, prior = 2, make_prior(2)
    evidence = make_evidence(K, 2, 0.1, 400.0, 3)
    _, covariance, _ = quadrature(prior, evidence, K, 90)
    for j in (0, 3):  # the level of the first group, the slope of the second
        step = 0.1 / np.sqrt(covariance[j, j])
        moved = [replace(evidence, shift=evidence.shift + sign * step * np.eye(4)[j]) for sign in (1, -1)]
        exact = [quadrature(prior, e, K, 90)[0] for e in moved]
        np.testing.assert_allclose((exact[0] - exact[1]) / (2 * step), covariance[j], atol=0.02 * covariance.max())
        up, down = (chains(prior, e, K, monkeypatch, 300) for e in moved)
        slope = [(a.B - b.B).T.ravel() / (2 * step) for a, b in zip(up, down, strict=True)]
        error = np.std(slope, axis=0, ddof=1) / np.sqrt(SEEDS)
        assert (np.abs(np.mean(slope, axis=0) - covariance[j]) < 6 * error + 0.02 * covariance.max()).all()


@pytest.mark.parametrize("K", [2, 3, 4])
def test_the_common_part_is_flat(K: int) -> None:
    """All groups moved alike: the answer moves as much and nothing else changes."""
    prior, evidence = make_prior(3), make_evidence(K, 3, 0.1, 200.0, 4)
    move = np.array([5.0, -3.0, 40.0])
    moved = replace(evidence, shift=evidence.shift + evidence.precision @ np.tile(move, K))
    before, after = prior.shrink(evidence, K), prior.shrink(moved, K)
    np.testing.assert_allclose(after.B, before.B + move[:, None], rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(after.covariance, before.covariance, rtol=1e-6, atol=1e-9)


def test_a_group_without_evidence_is_the_mean_of_the_others() -> None:
    """Nothing is known about the third group: for every tau it is expected halfway between the first two."""
    prior, two = make_prior(2), make_evidence(2, 2, 0.2, 300.0, 5)
    precision, shift = np.zeros((6, 6)), np.zeros(6)
    precision[:4, :4], shift[:4] = two.precision, two.shift
    B = prior.shrink(Evidence(precision, shift), 3).B
    np.testing.assert_allclose(B[:, 2], 0.5 * (B[:, 0] + B[:, 1]), rtol=1e-8)
    assert np.abs(B[:, 0] - B[:, 1]).max() > 0.05


def test_the_order_of_groups_does_not_matter() -> None:
    """Contrasts follow what is known about a group, not its place, so that every chain is the same."""
    K, order = 4, np.array([2, 0, 3, 1])
    prior, evidence = make_prior(2), make_evidence(K, 2, 0.1, 400.0, 6)
    index = (2 * order[:, None] + np.arange(2)).ravel()
    renamed = Evidence(evidence.precision[np.ix_(index, index)], evidence.shift[index])
    a, b = prior.shrink(evidence, K), prior.shrink(renamed, K)
    np.testing.assert_allclose(a.B[:, order], b.B, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(a.covariance[np.ix_(index, index)], b.covariance, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("K", [2, 3])
def test_no_evidence_gives_equal_groups_and_finite_numbers(K: int) -> None:
    posterior = make_prior(3).shrink(Evidence(1e-9 * np.eye(3 * K), np.zeros(3 * K)), K)
    assert np.isfinite(posterior.B).all()
    assert np.isfinite(posterior.covariance).all()
    np.testing.assert_allclose(posterior.B, posterior.B[:, :1] @ np.ones((1, K)), atol=1e-9)


@pytest.mark.parametrize("K", [2, 3, 4])
def test_strong_evidence_gives_the_unpooled_answer(K: int) -> None:
    prior, evidence = make_prior(3), make_evidence(K, 3, 0.3, 1e6, 8)
    posterior = prior.shrink(evidence, K)
    unpooled = np.linalg.inv(evidence.precision)
    gap = posterior.B.T.ravel() - unpooled @ evidence.shift
    assert (np.abs(gap) < 0.05 * np.sqrt(np.diag(unpooled))).all()
    np.testing.assert_allclose(np.diag(posterior.covariance), np.diag(unpooled), rtol=0.02)


def test_intervals_reach_as_far_as_pooling_moved() -> None:
    """Groups that differ much, with little evidence: whatever is asked, the move counts as one standard error."""
    posterior = make_prior(2).shrink(make_evidence(3, 2, deviation=0.5, rows=20.0, seed=0), 3)
    moved = posterior.B.T.ravel() - posterior.wide_mean
    scatter = posterior.covariance @ posterior.evidence.precision @ posterior.covariance
    assert np.abs(moved).max() > np.sqrt(np.diag(scatter)).max()  # the case is one in which it matters
    for question in np.random.default_rng(0).normal(size=(20, 6)):
        assert question @ posterior.left @ question >= (question @ moved) ** 2 * (1 - 1e-9)
    sure = make_prior(2).shrink(make_evidence(3, 2, deviation=0.5, rows=1e7, seed=0), 3)
    assert np.abs(sure.left).max() < 0.05 * np.abs(sure.covariance).max()  # little is added where rows decide


def test_a_second_estimate_widens_statements_about_groups() -> None:
    posterior = make_prior(3).shrink(make_evidence(3, 3, 0.3, 100.0, 4), 3)
    apart = np.arange(9.0)
    more = replace(posterior, apart=apart).hidden - posterior.hidden
    np.testing.assert_allclose(more, np.outer(apart, apart), atol=1e-12)


def test_the_gaussian_penalty_is_half_of_a_quadratic_form() -> None:
    rng = np.random.default_rng(9)
    A = rng.normal(size=(6, 6))
    penalty = GaussianPenalty(A @ A.T)
    B = rng.normal(size=(3, 2))
    for j, k in itertools.product(range(3), range(2)):
        step = np.zeros((3, 2))
        step[j, k] = 1e-6
        slope = (penalty.value(B + step) - penalty.value(B - step)) / 2e-6
        assert penalty.gradient(B)[j, k] == pytest.approx(slope, rel=1e-6)
        change = (penalty.gradient(B + step) - penalty.gradient(B - step)) / 2e-6
        np.testing.assert_allclose(penalty.hessian(2)[3 * k + j], change.T.ravel(), rtol=1e-6, atol=1e-6)


# --- on rows ---


def draw(
    family: Family, T: np.ndarray, report: Callable, n: int, seed: int, effect: float = 0.3, missing: float = 0.1
) -> Rows:
    """Unbalanced groups, weights, missing reports; a number, an indicator and a column of small whole numbers."""
    rng = np.random.default_rng([seed, T.shape[1]])
    K = T.shape[1]
    X = np.column_stack([rng.normal(2, 3, n), rng.random(n) < 0.2, rng.integers(0, 4, n)])
    D = rng.choice(K, n, p=np.arange(1, K + 1) / np.arange(1, K + 1).sum())
    eta = 0.3 + 0.1 * X[:, 0] - 0.2 * X[:, 1] + effect * D * (1 + 0.1 * X[:, 0])
    w = rng.uniform(0.5, 2, n)
    y = {
        "normal": lambda: rng.normal(eta, 1 / np.sqrt(w)),
        "poisson": lambda: rng.poisson(w * np.exp(eta)) / w,
        "gamma": lambda: rng.gamma(2 * w, np.exp(eta) / (2 * w)),
    }[family.name]()
    S = np.where(rng.random(n) < missing, len(T), report(D, T, rng))
    return Rows(X, y, w, S)


def problem_of(rows: Rows, reports: int, family: Family, **settings: float) -> LinearProblem:
    return prepare(rows, reports + 1, family, LinearModel(**settings), ["a", "b", "c"])


@pytest.mark.parametrize("family", [Normal(), Poisson(), Gamma()], ids=repr)
def test_the_unit_of_a_number_changes_no_price(
    family: Family, randomized_response: Callable, report: Callable, channel_of: Callable
) -> None:
    """Kilometres or metres, counted from anywhere."""
    T = randomized_response(3, 0.8)
    rows = draw(family, T, report, 1500, 10)
    prices = []
    for scale, move in ((1.0, 0.0), (1000.0, 0.0), (1.0, 700.0)):
        X = rows.X.copy()
        X[:, 0] = scale * X[:, 0] + move
        fit = fit_inverse(problem_of(replace(rows, X=X), 3, family), channel_of(T), None)
        prices.append(np.column_stack([np.ones(1500), X]) @ fit.coefficients)
    np.testing.assert_allclose(prices[1], prices[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(prices[2], prices[0], rtol=1e-5, atol=1e-6)


def test_the_currency_changes_no_relative_price(
    randomized_response: Callable, report: Callable, channel_of: Callable
) -> None:
    T = randomized_response(2, 0.8)
    rows = draw(Normal(), T, report, 1500, 11)
    euros, cents = (
        fit_inverse(problem_of(replace(rows, y=unit * rows.y), 2, Normal()), channel_of(T), None)
        for unit in (1.0, 100.0)
    )
    np.testing.assert_allclose(cents.coefficients, 100 * euros.coefficients, rtol=1e-5, atol=1e-6)
    assert cents.pooling["main"] == pytest.approx(100 * euros.pooling["main"], rel=1e-5)


@pytest.mark.parametrize("weighted", [False, True])
def test_indicators_are_columns_of_zeros_and_ones(weighted: bool) -> None:
    rng = np.random.default_rng(12)
    n = 700
    columns = {
        "indicator": rng.random(n) < 0.4,
        "rare": np.arange(n) < 3,
        "number": rng.normal(size=n),
        "counts": rng.integers(0, 5, n),
        "share": rng.random(n),
        "zero and two": 2 * (rng.random(n) < 0.5),
        "minus one": -1 * (rng.random(n) < 0.5),
        "one and two": 1 + (rng.random(n) < 0.5),
        "large": 1e6 * rng.random(n),
    }
    X = np.column_stack([np.asarray(c, dtype=float) for c in columns.values()])
    rows = Rows(X, rng.normal(size=n), rng.uniform(0.2, 2, n) if weighted else None, rng.integers(2, size=n))
    problem = prepare(rows, 3, Normal(), LinearModel(), list(columns))
    assert module._indicators(problem).tolist() == [name in ("indicator", "rare") for name in columns]


def test_effects_count_per_standard_deviation_of_a_number_and_per_step_of_an_indicator(
    randomized_response: Callable, report: Callable
) -> None:
    """A prior coordinate of one moves the linear predictor by one, centred in the portfolio."""
    rows = draw(Normal(), randomized_response(2, 0.8), report, 3000, 13)
    problem = problem_of(rows, 2, Normal())
    prior = Prior.of(problem)
    mean = np.average(rows.X, axis=0, weights=rows.weight)
    sd = np.sqrt(np.average((rows.X - mean) ** 2, axis=0, weights=rows.weight))
    raw = problem.moments.coordinates.to_raw(prior.transform)  # columns: effects of the prior's coordinates on (1, x)
    slopes = np.array([1 / sd[0], 1.0, 1 / sd[2]])
    np.testing.assert_allclose(raw[1:, 1:], np.diag(slopes), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(raw[0], [1, *(-mean * slopes)], rtol=1e-8)
    one = np.column_stack([np.ones(3000), rows.X]) * np.sqrt(rows.weight)[:, None]
    residual = rows.y * np.sqrt(rows.weight)
    residual -= one @ np.linalg.lstsq(one, residual, rcond=None)[0]
    unit = np.sqrt(residual @ residual / rows.weight.sum())
    np.testing.assert_allclose(prior.scale, unit * np.array([0.3, 0.03, 0.03, 0.03]), rtol=1e-8)
    assert prior.factors.max() == 0.1
    of_counts = Prior.of(problem_of(replace(rows, y=np.round(np.abs(rows.y))), 2, Poisson()))
    np.testing.assert_allclose(of_counts.scale, [0.3, 0.03, 0.03, 0.03])
    assert of_counts.factors.max() == 1.0


def test_levels_of_a_text_column_are_one_block(randomized_response: Callable, report: Callable) -> None:
    rows = draw(Poisson(), randomized_response(2, 0.8), report, 500, 14)
    names = ["region=N", "region=S", "age"]
    problem = prepare(rows, 3, Poisson(), LinearModel(), names, origins=["region", "region", "age"])
    prior = Prior.of(problem)
    assert prior.names == ("region", "age")
    assert prior.block.tolist() == [0, 1, 1, 2]
    assert prior.unit == 1.0


def test_constant_evidence_needs_no_linearisation(randomized_response: Callable, report: Callable) -> None:
    problem = problem_of(draw(Poisson(), randomized_response(3, 0.8), report, 500, 15), 3, Poisson())
    q = problem.moments.q
    evidence = make_evidence(3, q, 0.1, 200.0, 16)
    found = relinearise(problem, np.zeros((q, 3)), lambda B: evidence)
    once = Prior.of(problem).shrink(evidence, 3)
    gap = found.B - once.B  # at most the change of the linear predictor that counts as none
    metric = problem.metric / problem.metric[0, 0]
    assert np.sqrt(np.einsum("ik,ij,jk->k", gap, metric, gap)).max() < 1e-3
    np.testing.assert_allclose(found.covariance, once.covariance, rtol=1e-9)


def test_equal_groups_are_pooled_and_different_ones_are_not(
    randomized_response: Callable, report: Callable, fit: Callable
) -> None:
    T, rng, n = randomized_response(2, 0.7), np.random.default_rng(0), 4000
    D, X = rng.integers(2, size=n), rng.normal(size=(n, 1))
    s, noise = report(D, T, rng), rng.normal(size=n)

    def gaps(effect: float) -> tuple[np.ndarray, np.ndarray]:
        rows = Rows(X, X[:, 0] + effect * D + noise, None, s)
        pooled, unpooled = fit(rows, T, Normal(), None), fit(rows, T, Normal(), 0.0)
        return tuple(np.abs(np.diff(f.coefficients, axis=1)) for f in (pooled, unpooled))

    same, apart = gaps(0.0), gaps(3.0)
    assert (same[0] < 0.7 * same[1]).all()
    assert apart[0][0] == pytest.approx(apart[1][0], rel=0.02)
    assert apart[0][1] < 0.7 * apart[1][1]  # the slopes are equal: levels that differ say nothing about slopes


@pytest.mark.parametrize("family", [Normal(), Poisson(), Gamma()], ids=repr)
def test_with_many_rows_pooling_changes_nothing(
    family: Family, randomized_response: Callable, report: Callable, channel_of: Callable, sigmas: Callable
) -> None:
    T = randomized_response(3, 0.9)
    problem = problem_of(draw(family, T, report, 40_000, 17, effect=0.3), 3, family)
    pooled, unpooled = (fit_inverse(problem, channel_of(T), pooling) for pooling in (None, 0.0))
    error = np.sqrt(np.diag(pooled.posterior.covariance)).reshape(3, -1).T
    # the evidence weighs the same equations, and the prior moves well-known levels by little
    assert (np.abs(pooled.B - unpooled.B) / error)[0].max() < 0.5


@pytest.mark.parametrize("seed", range(4))
def test_a_fit_exists_where_the_unpooled_one_has_no_minimum(
    seed: int, randomized_response: Callable, channel_of: Callable
) -> None:
    rng = np.random.default_rng(seed)
    n, T = 100, randomized_response(2, 0.55)
    X, D = rng.normal(size=(n, 2)), rng.integers(2, size=n)
    rows = Rows(X, rng.normal(size=n) + D, None, np.where(rng.random(n) < 0.55, D, 1 - D))
    problem = prepare(rows, 3, Normal(), LinearModel(), ["a", "b"])
    fitted = fit_inverse(problem, channel_of(T), None)
    assert np.isfinite(fitted.coefficients).all()
    assert np.abs(fitted.B - problem.unaware).max() < 3  # three standard deviations of y


def test_pooling_is_told(randomized_response: Callable, report: Callable, fit: Callable) -> None:
    T = randomized_response(2, 0.8)
    rows = draw(Poisson(), T, report, 800, 18)
    told = fit(rows, T, Poisson(), None).pooling
    assert set(told) == {"main", "slopes"}
    assert set(told["slopes"]) == {"x0", "x1", "x2"}
    assert all(0 < tau < 10 for tau in (told["main"], *told["slopes"].values()))
    assert fit(rows, T, Poisson(), 7.0).pooling == 7.0
