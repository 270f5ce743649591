"""Model classes beyond the linear one: never worse than a line, better where the truth is no line, and balanced."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fairpremium import RandomizedResponse
from fairpremium.blocks import Rows
from fairpremium.corrections import FitInput, ReportChannel, fit_correction, fit_model
from fairpremium.errors import ConvergenceError
from fairpremium.families import get_family
from fairpremium.models import BoostedModel, Design, LinearModel, prepare

QUICK = BoostedModel(max_rounds=60, learning_rate=0.2, patience=8)


def make(
    n: int = 2000,
    seed: int = 0,
    *,
    family: str = "normal",
    bend: float = 1.0,
    apart: float = 1.0,
    correction: str = "auto",
    keep: float | None = 0.85,
) -> tuple[FitInput, np.ndarray]:
    """Inputs and the true linear predictors of two groups.

    Where `bend` is not zero the unaware price is V-shaped. Where `apart` is not zero the groups differ by a step in
    the product of two features, which no linear predictor in x and the unaware price describes.
    """
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 3))
    D = (rng.random(n) < 0.4 + 0.2 * X[:, 0]).astype(int)
    common = 0.5 * X[:, 0] + 2 * bend * np.abs(X[:, 2])
    truth = common[:, None] + np.outer(0.5 + 0.3 * X[:, 1] + apart * np.sign(X[:, 0] * X[:, 1]), [0.0, 1.0])
    eta = truth[np.arange(n), D]
    y = eta + 0.5 * rng.normal(size=n) if family == "normal" else rng.poisson(np.exp(0.5 * eta)).astype(float)
    channel = None if keep is None else RandomizedResponse([0, 1], keep=keep)
    report = D if channel is None else np.asarray(channel.privatize(D, rng=seed), dtype=int)
    rows = Rows(X, y, None, report)
    inputs = FitInput(
        get_family(family), correction, None, None, None, rows, Design.learn(X), ReportChannel.of(channel, (0, 1)), seed
    )
    return inputs, truth if family == "normal" else 0.5 * truth


def error(eta: np.ndarray, truth: np.ndarray) -> float:
    return float(np.sqrt(np.mean((eta - truth) ** 2)))


def linear_fit(inputs: FitInput) -> np.ndarray:
    model, channel = LinearModel(ridge=1.0), inputs.channel
    problem = prepare(inputs.rows, channel.n_codes, inputs.family, model, inputs.design.features)
    coefficients = fit_correction(problem, channel, inputs.correction, None).fit.coefficients
    return inputs.rows.X @ coefficients[1:] + coefficients[0]


@pytest.mark.parametrize("family", ["normal", "poisson"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_where_the_truth_is_a_line_prices_are_the_linear_ones(family: str, seed: int) -> None:
    inputs, _ = make(seed=seed, family=family, bend=0.0, apart=0.0)
    fit = fit_model(inputs, QUICK)
    assert fit.unaware.prices is None
    assert fit.groups.prices is None
    eta = fit.predictor(inputs.rows.X)
    # but for the shift that gives balance
    np.testing.assert_allclose(eta - fit.groups.shift, linear_fit(inputs), atol=1e-9)
    assert abs(fit.groups.shift) < 0.01
    assert [result.chosen for result in fit.results].count(True) == 1
    assert not fit.results[-1].chosen
    assert [result.correction for result in fit.results[-2:]] == ["likelihood", "posterior"]
    assert all(result.detail.endswith("start and trees") for result in fit.results[-2:])
    assert "the start" in fit.results[-1].reason


def test_the_unaware_price_bends_without_trees_for_the_groups() -> None:
    inputs, truth = make(apart=0.0)
    fit = fit_model(inputs, QUICK)
    assert fit.unaware.prices is not None
    # a V of height 2 around its line has standard deviation .3; trees on 2,000 rows with noise .5 leave well below half
    assert error(fit.predictor(inputs.rows.X), truth) < 0.5 * error(linear_fit(inputs), truth)


@pytest.mark.parametrize("keep", [0.85, None])
def test_trees_find_what_no_line_describes(keep: float | None) -> None:
    inputs, truth = make(n=4000, keep=keep, correction="auto")
    fit = fit_model(inputs, QUICK)
    assert fit.groups.prices is not None
    (chosen,) = (result for result in fit.results if result.chosen)
    assert chosen.detail.endswith("start and trees")
    assert "below the start's" in chosen.reason
    assert chosen.risk == min(result.risk for result in fit.results if np.isfinite(result.risk))
    start = replace(fit, groups=replace(fit.groups, prices=None))
    X = inputs.rows.X
    # the step of height one has standard deviation .5 around the start; trees find at least a fifth of it
    assert error(fit.predictor(X), truth) < 0.8 * error(start.predictor(X), truth)


def test_features_are_sorted_into_bins_once() -> None:
    """Fits without some rows and for other channels learn from the same bins, those of other rows from their own."""
    inputs, _ = make(n=1000)
    fit = fit_model(inputs, QUICK)
    use = np.arange(1000) % 5 > 0
    without, near = fit.without(~use), fit.with_channel(ReportChannel.of(RandomizedResponse([0, 1], keep=0.86), (0, 1)))
    assert without.features.whole is near.features.whole is fit.features.whole
    np.testing.assert_array_equal(without.features.places, np.flatnonzero(use))
    assert len(near.features) == 1000
    other = fit.refit(inputs.rows.take(use))
    assert other.features.whole is not fit.features.whole
    assert len(other.features) == 800
    # bins of 1,000 and of 800 rows differ by a part of a bin: prices by a part of their noise
    apart = error(without.predictor(inputs.rows.X), other.predictor(inputs.rows.X))
    assert apart < 0.25 * error(fit.predictor(inputs.rows.X), linear_fit(inputs))


@pytest.mark.parametrize("family", ["normal", "poisson"])
@pytest.mark.parametrize(("bend", "apart"), [(0.0, 0.0), (1.0, 1.0)])
def test_totals_are_those_of_the_outcomes(family: str, bend: float, apart: float) -> None:
    """With P(D given x, y, s) of the fit whose weights are used, over the rows that reported."""
    inputs, _ = make(family=family, bend=bend, apart=apart)
    report = np.where(np.arange(len(inputs.rows)) % 7 == 0, 2, inputs.rows.report)
    volume = np.random.default_rng(1).uniform(0.5, 2, len(report))
    inputs = replace(inputs, rows=replace(inputs.rows, report=report, weight=volume))
    fit = fit_model(inputs, QUICK)
    X, y, link = inputs.rows.X, inputs.rows.y, inputs.family.link
    weighting = fit.weighting
    weights = fit.start.fit.moments.rows.share if weighting.posterior is None else weighting.weights()
    np.testing.assert_allclose(weights.sum(axis=1), report < 2, atol=1e-12)
    weights = weights * volume[:, None]
    assert np.sum(weights * link.mean_of(fit.predictor(X))) == pytest.approx(weights.sum(axis=1) @ y, rel=1e-9)
    assert volume @ link.mean_of(fit.unaware.predictor(X, X))[:, 0] == pytest.approx(volume @ y, rel=1e-9)


def test_the_start_in_the_unaware_price_is_the_start_in_what_was_added_to_it() -> None:
    inputs, _ = make(apart=0.0)
    fit = fit_model(inputs, QUICK)
    assert fit.groups.prices is None
    B, rows = fit.start.fit.coefficients, fit.start.fit.problem.rows
    assert rows.X.shape[1] == 4
    expected = rows.X @ B[1:] + B[0]
    lifted = np.column_stack([inputs.rows.X, fit.lift])
    np.testing.assert_allclose(lifted @ fit.groups.coefficients[1:] + fit.groups.coefficients[0], expected, atol=1e-9)


def test_additions_that_fail_leave_the_start(monkeypatch) -> None:
    inputs, _ = make(n=600, bend=0.0)

    def fail_for_groups(self, data, rng, like=None):
        if data.start.shape[1] > 1:
            raise ConvergenceError("no tree grows here")
        return train(self, data, rng, like)

    train = BoostedModel.train
    monkeypatch.setattr(BoostedModel, "train", fail_for_groups)
    fit = fit_model(inputs, QUICK)
    assert fit.groups.prices is None
    assert fit.results[-1].reason == "could not be fitted: no tree grows here"
    assert np.isnan(fit.results[-1].risk)
    with pytest.raises(ConvergenceError, match="no tree grows here"):
        fit_model(replace(inputs, correction="posterior"), QUICK)


def test_a_fit_can_be_repeated_on_other_rows_and_for_another_channel() -> None:
    """The jackknife's fits: the same choices with the same number of rounds, on the rows they are given alone."""
    inputs, _ = make(correction="likelihood")
    fit = fit_model(inputs, QUICK)
    X = inputs.rows.X
    np.testing.assert_allclose(fit.refit(inputs.rows).predictor(X), fit.predictor(X), atol=0.5)
    fold = np.arange(len(inputs.rows)) % 2 == 0
    some = fit.without(fold)
    assert len(some.inputs.rows) == len(some.lift) == 1000
    assert some.groups.prices.rounds <= fit.groups.prices.rounds
    assert some.unaware.prices.rounds <= fit.unaware.prices.rounds
    assert some.correction == fit.correction == "likelihood"
    other = fit.with_channel(ReportChannel.of(RandomizedResponse([0, 1], keep=0.8)))
    assert error(other.predictor(X), fit.predictor(X)) > 0


def test_an_outcome_without_a_mean_in_the_domain_is_refused() -> None:
    inputs, _ = make(n=100, family="poisson")
    with pytest.raises(ValueError, match="are all outcomes zero"):
        fit_model(replace(inputs, rows=replace(inputs.rows, y=np.zeros(100))), QUICK)
