"""Best estimates that reproduce the portfolio's total, by one shift of the linear predictors."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from fairpremium import DiscriminationFreePricer, RandomizedResponse
from fairpremium.blocks import Rows
from fairpremium.corrections import Chosen, ReportChannel, balance_shift, fit_correction
from fairpremium.corrections._balance import balanced
from fairpremium.corrections._signed_moments import SignedMoments
from fairpremium.families import get_family
from fairpremium.models import LinearModel, prepare

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


def weights_of(found: Chosen, rows: Rows) -> np.ndarray:
    """P(D given x, y, s), or P(D given x, s) of a fit without a model of the former: (n, 3)."""
    model = SignedMoments.of(found.fit.problem, CHANNEL).propensity if found.posterior is None else found.posterior
    return model.latent.responsibilities(rows.block(0, len(rows)), model.parameters)


@pytest.mark.parametrize("correction", ["inverse", "likelihood", "posterior", "score"])
@pytest.mark.parametrize("family", ["normal", "poisson", "gamma"])
def test_a_pooled_fit_reproduces_the_total(family: str, correction: str) -> None:
    """With its own weights over all rows, and by signed weights within the standard error."""
    rows, _ = make(family)
    problem = prepare(rows, 4, get_family(family), LinearModel(), ["a", "b"])
    found = fit_correction(problem, CHANNEL, correction, None)
    link = problem.family.link
    one = np.column_stack([np.ones(len(rows)), rows.X])
    mu = link.mean_of(one @ found.fit.coefficients)
    weights = weights_of(found, rows)
    assert_allclose(weights.sum(axis=1), 1.0, atol=1e-12)
    assert_allclose((rows.weight[:, None] * weights * mu).sum(), rows.weight @ rows.y, rtol=1e-9)
    unaware = link.mean_of(one @ found.fit.unaware_coefficients)[:, 0]
    assert_allclose(rows.weight @ unaware, rows.weight @ rows.y, rtol=1e-7)
    signed = rows.weight[:, None] * CHANNEL.table.T[rows.report] * (rows.y[:, None] - mu)
    assert abs(signed.sum()) < 4 * np.sqrt((signed.sum(axis=1) ** 2).sum())
    assert (np.abs(signed.sum(axis=0)) < 4 * np.sqrt((signed**2).sum(axis=0))).all()


@pytest.mark.parametrize("family", ["normal", "poisson", "gamma"])
def test_the_influence_of_a_row_on_the_total_is_its_own_imbalance(family: str) -> None:
    """The total of the prices is that of the outcomes, so that it moves by what the row itself adds.

    The weights of the total are held fixed here: what moves them moves both sides.
    """
    rows, _ = make(family)
    problem = prepare(rows, 4, get_family(family), LinearModel(), ["a", "b"])
    found = fit_correction(problem, CHANNEL, "inverse", None)
    fit, link, Z = found.fit, problem.family.link, problem.moments.coordinates.matrix(rows.X)
    weights = rows.weight[:, None] * weights_of(found, rows)
    gradient = (Z.T @ (weights * link.slope(Z @ fit.B))).T.ravel()
    influence = fit.influence
    own = influence.response[influence.first : influence.first + fit.B.size]
    moved = influence.scores(rows.block(0, len(rows))) @ own.T @ gradient
    gap = rows.weight[:, None] * (rows.y[:, None] - link.mean_of(Z @ fit.B))
    expected = (weights / rows.weight[:, None] * gap).sum(axis=1)
    model = SignedMoments.of(problem, CHANNEL).propensity
    block = rows.block(0, len(rows))
    of_weights = model.latent.weight_gradient(block, model.parameters, np.ones((len(rows), 1)), gap).sum(axis=0)
    _, _, information = model.latent.expand(model.parameters)
    scores = model.latent.scores(block, model.parameters) * (rows.report < 3)[:, None]
    expected = expected + scores @ np.linalg.solve(information, of_weights)
    assert_allclose(moved, expected, atol=1e-8 * np.abs(expected).max())


def test_a_given_strength_is_left_alone() -> None:
    rows, _ = make("gamma")
    problem = prepare(rows, 4, get_family("gamma"), LinearModel(), ["a", "b"])
    fit = fit_correction(problem, CHANNEL, "inverse", 0.0).fit
    assert balanced(fit, fit) is fit


def test_the_default_reproduces_the_total_of_a_tweedie_portfolio() -> None:
    rng = np.random.default_rng(3)
    X, D = rng.normal(size=(4000, 2)), rng.integers(0, 2, 4000)
    mu = np.exp(0.2 * X[:, 0] + 0.4 * D)
    y = np.where(rng.random(4000) < 0.4, rng.gamma(2.0, mu / 0.8), 0.0)
    true = DiscriminationFreePricer("tweedie", intervals=False).fit(X, y, sensitive=D)
    own = true.predict_best_estimate(X).to_numpy()[np.arange(4000), D]
    assert_allclose(own.sum(), y.sum(), rtol=1e-9)
    assert_allclose(true.predict_unaware(X).sum(), y.sum(), rtol=1e-9)
