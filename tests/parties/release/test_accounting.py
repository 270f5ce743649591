"""What releases cost: the exact Gaussian curve, its composition, and a study's budget."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from fairpremium.errors import BudgetExceededError
from fairpremium.parties.release._accounting import ReleasePlan, delta_of, epsilon_of, mu_of


@pytest.mark.parametrize("mu", [0.05, 0.2, 1.0, 3.0])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_delta_is_the_integral_it_stands_for(mu, epsilon):
    """delta(epsilon) = integral of (p - e^epsilon q)_+ for p = N(mu, 1), q = N(0, 1)."""
    cut = epsilon / mu + mu / 2  # where p = e^epsilon q
    value, error = quad(lambda x: norm.pdf(x, mu) - math.exp(epsilon) * norm.pdf(x), cut, cut + 40, epsabs=1e-14)
    assert delta_of(mu, epsilon) == pytest.approx(value, abs=1e-12 + 10 * error, rel=1e-6)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 2.0, 8.0])
@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-3])
def test_mu_and_epsilon_are_inverse(epsilon, delta):
    mu = mu_of(epsilon, delta)
    assert delta_of(mu, epsilon) <= delta * (1 + 1e-6)
    assert epsilon_of(mu, delta) == pytest.approx(epsilon, rel=1e-6)


def test_no_noise_needed_costs_nothing():
    assert epsilon_of(0.0, 1e-6) == 0.0
    assert epsilon_of(1e-9, 1e-6) == 0.0


@pytest.mark.parametrize("wrong", [0, 1, -1e-6, float("nan"), True, "1e-6"])
def test_a_wrong_delta_is_refused(wrong):
    with pytest.raises(ValueError, match="delta"):
        mu_of(1.0, wrong)


def test_gaussian_fits_add_up_less_than_linearly():
    plan = ReleasePlan(epsilon=100.0)
    for _ in range(16):
        plan = plan.charge("gaussian", 0.5)
    assert plan.spent == pytest.approx(epsilon_of(4 * mu_of(0.5, 1e-6), 1e-6))
    assert 0.5 * 4 < plan.spent < 0.5 * 16


def test_randomized_reports_are_paid_once_for_each_epsilon():
    plan = ReleasePlan().charge("randomized", 1.0)
    assert plan.charge("randomized", 1.0) == plan
    assert plan.charge("randomized", 2.0).spent == pytest.approx(3.0)


def test_the_budget_ends_and_both_kinds_share_it():
    plan = ReleasePlan(epsilon=2.0).charge("randomized", 1.0)
    left = plan.fits_left(0.25)
    assert left >= 1
    for _ in range(left):
        plan = plan.charge("gaussian", 0.25)
    assert plan.fits_left(0.25) == 0
    assert not plan.allows("gaussian", 0.25)
    with pytest.raises(BudgetExceededError, match="left"):
        plan.charge("gaussian", 0.25)
    assert ReleasePlan(epsilon=1.0).charge("randomized", 1.0).fits_left(0.1) == 0


def test_composition_of_gaussians_is_exact():
    """Two independent mechanisms: the loss of the pair is that of one with mu^2 = mu_1^2 + mu_2^2."""
    rng = np.random.default_rng(0)
    mu = np.array([0.6, 0.8])
    draws = rng.normal(size=(400_000, 2)) + mu
    loss = draws @ mu - mu @ mu / 2  # log of the ratio of densities under the first hypothesis
    for epsilon in (0.2, 1.0):
        estimate = np.maximum(0, 1 - np.exp(epsilon - loss))
        error = estimate.std() / math.sqrt(len(loss))
        assert abs(estimate.mean() - delta_of(1.0, epsilon)) < 5 * error


def test_an_unknown_mechanism_is_refused():
    with pytest.raises(ValueError, match="mechanism"):
        ReleasePlan().charge("laplace", 1.0)
