"""Correction by posterior weights: proper weights, constructed truth, and standard errors that know the classifier."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from fairpremium import DiscriminationFreePricer, RandomizedResponse
from fairpremium.blocks import Rows
from fairpremium.corrections import GroupFit, ReportChannel, fit_correction, fit_inverse, sandwich
from fairpremium.corrections._candidates import PosteriorCandidate, _train_logit
from fairpremium.corrections._posterior import GroupPosterior, classifier_likelihood, posterior_fit
from fairpremium.corrections._propensity import OutcomeFeatures, fit_propensity, natural_spline
from fairpremium.corrections._report_channel import pad_missing
from fairpremium.families import Family, Gamma, Normal, Poisson
from fairpremium.models import LinearModel, LinearProblem, prepare
from fairpremium.privacy import Channel

BETA = np.array([[0.1, 0.7], [0.4, 0.1], [0.0, 0.3]])


def draw(
    family: Family,
    T: np.ndarray,
    report: Callable,
    n: int,
    seed: int,
    *,
    weighted: bool = False,
    missing: float = 0.0,
    gap: float = 1.0,
) -> tuple[Rows, np.ndarray]:
    """Two groups with normal, Poisson or gamma outcomes of one dispersion: log P(D given x, y) is quadratic."""
    rng = np.random.default_rng([seed, 31])
    X = rng.normal(size=(n, 2))
    D = (rng.random(n) < 1 / (1 + np.exp(0.3 - 0.6 * X[:, 0]))).astype(int)
    beta = BETA[:, :1] + gap * (BETA - BETA[:, :1])
    eta = np.einsum("ij,ji->i", np.column_stack([np.ones(n), X]), beta[:, D])
    w = rng.uniform(0.5, 2, n) if weighted else np.ones(n)
    if family == Normal():
        y = rng.normal(eta, 1 / np.sqrt(w))
    elif family == Gamma():
        y = rng.gamma(2 * w, np.exp(eta) / (2 * w))
    else:
        y = rng.poisson(w * np.exp(eta)) / w
    S = np.where(rng.random(n) < missing, len(T), report(D, T, rng))
    return Rows(X, y, w if weighted else None, S), D


def prepared(rows: Rows, T: np.ndarray, family: Family) -> tuple[LinearProblem, ReportChannel]:
    problem = prepare(rows, len(T) + 1, family, LinearModel(), ["x0", "x1"])
    groups = tuple(range(len(T)))
    return problem, ReportChannel(T, pad_missing(np.linalg.inv(T)), groups, Channel(T, groups=groups))


def logit(problem: LinearProblem, base: GroupFit, spline: bool = False, ridge: float = 0.1) -> GroupPosterior:
    """A logit that is not chosen among several."""
    return PosteriorCandidate(None, (spline, ridge), True).learn(problem, base).posterior


def quadratic_fit(rows: Rows, T: np.ndarray, family: Family, ridge: float = 0.1) -> GroupFit:
    """The right classifier of these portfolios, without a choice among several."""
    problem, channel = prepared(rows, T, family)
    start = fit_inverse(problem, channel, 0.0)
    return posterior_fit(problem, logit(problem, start, ridge=ridge), start, 0.0)[0]


@pytest.mark.parametrize("spline", [False, True])
@pytest.mark.parametrize("K", [2, 3])
def test_weights_are_probabilities_and_zero_without_a_report(
    K: int, spline: bool, randomized_response: Callable, report: Callable
) -> None:
    T = randomized_response(K, 0.7)
    rows, _ = draw(Poisson(), T, report, 1500, seed=1, weighted=True, missing=0.3)
    problem, _ = prepared(rows, T, Poisson())
    latent = classifier_likelihood(problem, T, spline=spline, ridge=1.0)
    at = fit_propensity(latent, np.full(K, 1 / K))
    r = problem.rows.map(GroupPosterior(latent, at).weights)
    assert r.shape == (1500, K)
    assert r.min() >= 0
    assert r.max() <= 1
    reported = rows.report < K
    np.testing.assert_allclose(r[reported].sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_array_equal(r[~reported], 0)
    # r is Bayes' rule for the classifier's q: plain loop over some rows
    U = latent.features(rows.block(0, 50))
    for i in np.flatnonzero(reported[:50]):
        q = np.exp(np.append(0, at.gamma @ U[i]))
        joint = T[rows.report[i]] * q / q.sum()
        np.testing.assert_allclose(r[i], joint / joint.sum(), rtol=1e-9)


def test_prices_are_weighted_fits(randomized_response: Callable, report: Callable) -> None:
    """For the normal family K weighted least squares, for which weights are known."""
    T = randomized_response(2, 0.7)
    rows, _ = draw(Normal(), T, report, 800, seed=2, weighted=True, missing=0.2)
    fit = quadratic_fit(rows, T, Normal())
    problem, channel = prepared(rows, T, Normal())
    posterior = logit(problem, fit_inverse(problem, channel, 0.0))
    r = rows_weights = problem.rows.map(posterior.weights)
    Z = np.column_stack([np.ones(800), rows.X])
    for k in range(2):
        a = r[:, k] * rows.weight
        beta = np.linalg.solve((Z * a[:, None]).T @ Z, (Z * a[:, None]).T @ rows.y)
        np.testing.assert_allclose(fit.coefficients[:, k], beta, rtol=1e-6, atol=1e-8)
    assert rows_weights.shape == (800, 2)


@pytest.mark.parametrize(
    ("family", "n", "weighted"),
    [
        pytest.param(Normal(), 6000, False, id="normal"),
        pytest.param(Normal(), 6000, True, id="normal, volumes"),
        pytest.param(Poisson(), 20_000, True, id="poisson, volumes"),
        pytest.param(Gamma(), 12_000, False, id="gamma"),
    ],
)
def test_recovers_truth_with_the_right_classifier(
    family: Family, n: int, weighted: bool, randomized_response: Callable, report: Callable, sigmas: Callable
) -> None:
    T = randomized_response(2, 0.75)
    rows, _ = draw(family, T, report, n, seed=3, weighted=weighted, missing=0.1)
    statistics = sandwich(quadratic_fit(rows, T, family))
    error = np.sqrt(np.diag(statistics.covariance))[:6]
    z = (statistics.coefficients - BETA).T.ravel() / error
    assert np.abs(z).max() < sigmas(6)
    x = np.random.default_rng(9).normal(size=1_000_000)
    share = float(np.mean(1 / (1 + np.exp(0.3 - 0.6 * x))))
    assert abs(statistics.shares[1] - share) < sigmas(1) * np.sqrt(statistics.covariance[7, 7])


def test_skewed_noise_does_no_harm(randomized_response: Callable, report: Callable, sigmas: Callable) -> None:
    """No law for the outcome: with the choice among classifiers, exponential noise is no obstacle."""
    T = randomized_response(2, 0.75)
    rows, D = draw(Normal(), T, report, 12_000, seed=4)
    rng = np.random.default_rng(5)
    means = np.einsum("ij,ji->i", np.column_stack([np.ones(12_000), rows.X]), BETA[:, D])
    skewed = Rows(rows.X, means + rng.exponential(size=12_000) - 1, None, rows.report)
    problem, channel = prepared(skewed, T, Normal())
    _, fit, posterior, _, _ = fit_correction(problem, channel, "posterior", 0.0)
    error = np.sqrt(np.diag(sandwich(fit).covariance))[:6]
    # a spline is close to the truth, not equal to it: half a standard error on top
    assert np.abs((fit.coefficients - BETA).T.ravel() / error).max() < sigmas(6) + 0.5
    assert posterior.latent.features.spline


def test_the_classifier_that_predicts_held_out_reports_best_is_taken(
    randomized_response: Callable, report: Callable
) -> None:
    T = randomized_response(2, 0.75)
    rows, _ = draw(Normal(), T, report, 2000, seed=6)
    problem, channel = prepared(rows, T, Normal())
    candidate, fit, posterior, results, _ = fit_correction(problem, channel, "posterior", 0.0)
    assert fit.correction == "posterior"
    assert [r.chosen for r in results] == [True]
    base = fit_inverse(problem, channel, 0.0)
    loss = {}
    for spline in (False, True):
        for ridge in (0.1, 10.0):
            loss[spline, ridge] = candidate._held_loss(problem, logit(problem, base, spline, ridge))
    assert len(set(loss.values())) == 4
    assert all(0.3 < x < np.log(2) + 0.02 for x in loss.values())
    assert (posterior.latent.features.spline, posterior.latent.ridge) == candidate.logit == min(loss, key=loss.get)


def test_a_logit_with_a_spline_starts_from_the_one_without(randomized_response: Callable, report: Callable) -> None:
    """It ends where it ends from the shares, and is the same to the last bit if it is trained alone."""
    T = randomized_response(2, 0.75)
    problem, channel = prepared(draw(Normal(), T, report, 2000, seed=6)[0], T, Normal())
    base = fit_inverse(problem, channel, 0.0)
    trained: dict[tuple[bool, float], GroupPosterior] = {}
    plain = _train_logit(problem, base, False, 10.0, trained)
    found = _train_logit(problem, base, True, 10.0, trained)
    assert set(trained) == {(False, 10.0), (True, 10.0)}
    assert plain.latent.n_features < found.latent.n_features
    alone = _train_logit(problem, base, True, 10.0, {})
    np.testing.assert_array_equal(found.parameters.gamma, alone.parameters.gamma)
    cold = fit_propensity(found.latent, base.shares)
    np.testing.assert_allclose(found.parameters.gamma, cold.gamma, atol=1e-9)


def test_a_chosen_classifier_is_not_chosen_again(
    randomized_response: Callable, report: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    T = randomized_response(2, 0.75)
    problem, channel = prepared(draw(Normal(), T, report, 800, seed=6)[0], T, Normal())
    first = fit_correction(problem, channel, "posterior", None)
    monkeypatch.setattr(PosteriorCandidate, "_held_loss", lambda *_: pytest.fail("it was compared again"))
    again = first.refit(channel)
    np.testing.assert_allclose(again.fit.B, first.fit.B, atol=1e-9)
    np.testing.assert_allclose(again.base.B, first.base.B, atol=1e-12)
    assert first.candidate.detail == first.results[0].detail != ""


def test_features_do_not_depend_on_the_unit_of_the_outcome(randomized_response: Callable, report: Callable) -> None:
    T = randomized_response(2, 0.75)
    rows, _ = draw(Normal(), T, report, 500, seed=7)
    scaled = Rows(rows.X, 1e4 * rows.y, None, rows.report)
    features = []
    for these in (rows, scaled):
        problem, _ = prepared(these, T, Normal())
        features.append(OutcomeFeatures.learn(problem, these, spline=True)(these.block(0, 500)))
    np.testing.assert_allclose(features[0], features[1], rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(features[0][:, 1:].mean(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(features[0][:, 1:].std(axis=0), 1, rtol=1e-9)


def test_natural_spline_is_linear_outside_its_knots_and_smooth_inside() -> None:
    knots = np.array([-2.0, -1.0, 0.3, 1.0, 2.5])
    outside = np.concatenate([np.linspace(-9, -2, 30), np.linspace(2.5, 9, 30)])
    for t in (outside[:30], outside[30:]):
        second = np.diff(natural_spline(t, knots), n=2, axis=0)
        np.testing.assert_allclose(second, 0, atol=1e-9)
    t = np.linspace(-3, 4, 20_001)
    third = np.diff(natural_spline(t, knots), n=2, axis=0) / (t[1] - t[0]) ** 2
    assert np.abs(np.diff(third, axis=0)).max() < 0.02  # the second derivative has no jump


@pytest.mark.simulation
def test_stacking_the_classifier_matters_and_is_right(
    repetitions: Callable, randomized_response: Callable, report: Callable
) -> None:
    """Estimated and empirical scatter agree; without the classifier's part the estimate would be far too small.

    The standard deviation of R estimates has relative error 1 / sqrt(2 R): five of them over eight statistics.
    """
    T, R = randomized_response(2, 0.75), repetitions(40, 400)
    estimates, errors, alone = [], [], []
    for seed in range(R):
        rows, _ = draw(Normal(), T, report, 3000, seed=700 + seed)
        fit = quadratic_fit(rows, T, Normal())
        statistics = sandwich(fit)
        estimates.append(np.concatenate([statistics.coefficients.T.ravel(), statistics.shares]))
        errors.append(np.diag(statistics.covariance)[:8])
        bread = np.linalg.inv(fit.influence.response)
        first = fit.influence.first
        bread[first:, :first] = 0.0
        unstacked = GroupFit(
            fit.problem,
            fit.correction,
            fit.channel,
            fit.B,
            fit.shares,
            0.0,
            type(fit.influence)(
                fit.influence.scores,
                np.linalg.inv(bread),
                first,
                fit.influence.share_scores,
                fit.influence.share_gradient,
            ),
        )
        alone.append(np.diag(sandwich(unstacked).covariance)[:6])
    scatter = np.std(estimates, axis=0, ddof=1)
    claimed = np.sqrt(np.mean(errors, axis=0))
    assert np.abs(claimed / scatter - 1).max() < 5 / np.sqrt(2 * R) + 0.05
    assert np.median(np.sqrt(np.mean(alone, axis=0)) / scatter[:6]) < 0.7


def test_outcomes_that_are_mostly_the_same_have_fewer_knots():
    """Quantiles of the residuals coincide; the spline divided by their distance."""
    rng = np.random.default_rng(0)
    n = 2000
    X = pd.DataFrame({"x": np.arange(n) % 2.0})
    y = np.where(np.arange(n) % 100 > 0, 3.0, 4.0)
    channel = RandomizedResponse(["F", "M"], keep=0.8)
    S = channel.privatize(rng.choice(["F", "M"], n), rng=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        pricer = DiscriminationFreePricer(channel=channel, correction="posterior", random_state=0)
        prices = pricer.fit(X, y, sensitive=S).predict(X)
    assert np.allclose(prices, 3.01, atol=5 * np.sqrt(0.0099 / (n / 2)))
