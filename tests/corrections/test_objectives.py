"""What model classes are trained on, against slow second implementations."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import gammaln, softmax
from scipy.stats import nbinom, norm

from fairpremium.blocks import Rows
from fairpremium.corrections._objectives import MixtureObjective, Propensity, WeightedObjective
from fairpremium.families import Normal, Poisson, law_of
from fairpremium.families._law import NegativeBinomialLaw


class Mixture:
    """K = 3 groups behind randomized response, some reports missing, some rows with more volume."""

    def __init__(self, law: str, n: int = 300, seed: int = 0, weighted: bool = True):
        rng = np.random.default_rng(seed)
        self.K, self.n = 3, n
        self.T = np.vstack([np.full((3, 3), 0.15) + 0.55 * np.eye(3), np.ones(3)])  # the last row: no report
        self.x = rng.normal(size=n)
        self.U = np.column_stack([np.ones(n), self.x])
        self.gamma = np.array([[0.3, 0.8], [-0.4, -0.5]])
        self.eta = np.column_stack([-0.5 + 0.3 * self.x, 0.6 + 0 * self.x, 1.2 - 0.4 * self.x])
        self.q = softmax(np.column_stack([np.zeros(n), self.U @ self.gamma.T]), axis=1)
        D = (rng.random(n)[:, None] > np.cumsum(self.q, axis=1)).sum(axis=1)
        report = (rng.random(n)[:, None] > np.cumsum(self.T[:3], axis=0)[:-1].T[D]).sum(axis=1)
        self.report = np.where(rng.random(n) < 0.1, 3, report)
        self.w = rng.uniform(0.5, 3, n) if weighted else np.ones(n)
        self.log_dispersion = {"normal": np.log(0.5**2), "poisson": 0.0, "negative_binomial": np.log(0.7)}[law]
        eta = self.eta[np.arange(n), D]
        if law == "normal":
            self.law, y = law_of(Normal()), eta + 0.5 / np.sqrt(self.w) * rng.normal(size=n)
        elif law == "poisson":
            self.law, y = law_of(Poisson()), rng.poisson(self.w * np.exp(eta)) / self.w
        else:
            mixed = rng.gamma(1 / 0.7, 0.7, n)
            self.law, y = NegativeBinomialLaw(), rng.poisson(self.w * np.exp(eta) * mixed) / self.w
        self.y = y
        self.rows = Rows(self.x[:, None], y, self.w if weighted else None, self.report)

    def objective(self, log_dispersion: float | None = None, gamma: np.ndarray | None = None) -> MixtureObjective:
        return MixtureObjective(
            self.law,
            self.T,
            Propensity(self.gamma if gamma is None else gamma),
            (self.rows, self.U),
            (self.rows, self.U),
            self.log_dispersion if log_dispersion is None else log_dispersion,
        )

    def density(self, eta: np.ndarray, log_dispersion: float) -> np.ndarray:
        """p(y given D = k) by scipy, row by row and group by group."""
        p, phi = np.empty((self.n, self.K)), np.exp(log_dispersion)
        for i in range(self.n):
            for k in range(self.K):
                N, m = self.w[i] * self.y[i], self.w[i] * np.exp(eta[i, k])
                if self.law.name == "normal":
                    p[i, k] = norm.pdf(self.y[i], eta[i, k], np.sqrt(phi / self.w[i]))
                elif self.law.name == "poisson":
                    p[i, k] = np.exp(N * np.log(m) - m - gammaln(N + 1))
                else:
                    p[i, k] = nbinom.pmf(round(N), 1 / phi, 1 / (1 + phi * m))
        return p

    def log_likelihood(self, eta: np.ndarray, log_dispersion: float, gamma: np.ndarray) -> float:
        q = softmax(np.column_stack([np.zeros(self.n), self.U @ gamma.T]), axis=1)
        return float(np.sum(np.log((self.T[self.report] * q * self.density(eta, log_dispersion)).sum(axis=1))))


@pytest.mark.parametrize("law", ["normal", "poisson", "negative_binomial"])
def test_responsibilities_and_losses_against_a_slow_reference(law: str) -> None:
    mixture = Mixture(law)
    objective = mixture.objective()
    claim = mixture.q * mixture.density(mixture.eta, mixture.log_dispersion)
    joint = claim * mixture.T[mixture.report]
    found = objective.responsibilities(mixture.rows, objective.propensity.log(mixture.U), mixture.eta)
    np.testing.assert_allclose(found, joint / joint.sum(axis=1, keepdims=True), rtol=1e-6, atol=1e-12)
    # the held-out loss is the likelihood up to what depends on the outcome alone
    other = mixture.eta + np.array([0.2, -0.1, 0.3])
    difference = objective.held_loss(other) - objective.held_loss(mixture.eta)
    gamma, phi = mixture.gamma, mixture.log_dispersion
    expected = mixture.log_likelihood(mixture.eta, phi, gamma) - mixture.log_likelihood(other, phi, gamma)
    assert difference == pytest.approx(expected / mixture.n, rel=1e-6)


def test_weights_carry_the_volume_and_the_start_of_the_round() -> None:
    """The E-step comes first: the weights are those under dispersion and propensity before the M-step moves them."""
    mixture = Mixture("normal")
    objective = mixture.objective(log_dispersion=0.3)
    expected = (
        objective.responsibilities(mixture.rows, objective.propensity.log(mixture.U), mixture.eta) * mixture.w[:, None]
    )
    np.testing.assert_allclose(objective.weights(mixture.eta), expected)
    assert objective.log_dispersion != 0.3
    assert not np.array_equal(objective.propensity.gamma, mixture.gamma)


@pytest.mark.parametrize("law", ["normal", "poisson", "negative_binomial"])
def test_em_with_exact_steps_never_loses_likelihood(law: str) -> None:
    """Constant prices per group, each moved to the weighted mean outcome: the exact M-step for normal and counts.

    Dispersion and propensity take one Newton step; with the ridge of the propensity the penalised likelihood climbs.
    For the negative binomial the weighted mean is a step of the Poisson loss: prices stay where they are.
    """
    mixture = Mixture(law, n=200)
    objective = mixture.objective(log_dispersion=mixture.log_dispersion + 1.0, gamma=np.zeros((2, 2)))
    means = np.array([0.4, 1.0, 2.0])
    link = Normal().link if law == "normal" else Poisson().link
    trail = []
    for _ in range(12):
        eta = np.tile(link.predictor(means), (mixture.n, 1))
        gamma = objective.propensity.gamma
        trail.append(mixture.log_likelihood(eta, objective.log_dispersion, gamma) - 0.5 * np.sum(gamma[:, 1:] ** 2))
        weights = objective.weights(eta)
        if law != "negative_binomial":
            means = (weights * mixture.y[:, None]).sum(axis=0) / weights.sum(axis=0)
    assert np.diff(trail).min() > -1e-6
    assert trail[-1] > trail[0] + 5


@pytest.mark.parametrize("start", [-3.0, 3.0])
@pytest.mark.parametrize("law", ["normal", "negative_binomial"])
def test_the_dispersion_climbs_to_its_maximum(law: str, start: float, sigmas) -> None:
    """True prices, dispersion far off: rounds end at the maximum of an independent search, near the truth."""
    mixture = Mixture(law, n=400)
    objective = mixture.objective(log_dispersion=mixture.log_dispersion + start)
    for _ in range(200):
        objective.weights(mixture.eta)
    gamma = objective.propensity.gamma
    exact = minimize(
        lambda v: -mixture.log_likelihood(mixture.eta, float(v[0]), gamma), [mixture.log_dispersion], tol=1e-8
    ).x[0]
    assert objective.log_dispersion == pytest.approx(exact, abs=2e-3)
    # the log of a variance has standard error sqrt(2 / n) at best; mixing and counts cost at most five times that
    assert abs(objective.log_dispersion - mixture.log_dispersion) < sigmas(1) * 5 * np.sqrt(2 / mixture.n)


def test_a_law_without_dispersion_keeps_it() -> None:
    mixture = Mixture("poisson")
    objective = mixture.objective()
    objective.weights(mixture.eta)
    assert objective.log_dispersion == 0.0


def test_the_propensity_climbs_to_the_logit_of_an_independent_optimiser() -> None:
    rng = np.random.default_rng(0)
    U = np.column_stack([np.ones(400), rng.normal(size=(400, 3))])
    r = rng.dirichlet([0.5, 0.5, 0.5, 0.5], 400)

    def loss(v: np.ndarray) -> float:
        gamma = v.reshape(3, 4)
        eta = np.column_stack([np.zeros(400), U @ gamma.T])
        log_q = eta - np.log(np.exp(eta).sum(axis=1, keepdims=True))
        return float(-np.sum(r * log_q) + 0.5 * np.sum(gamma[:, 1:] ** 2))  # a ridge of one row, not on intercepts

    exact = minimize(loss, np.zeros(12), method="BFGS", options={"gtol": 1e-7}).x.reshape(3, 4)
    propensity = Propensity(rng.normal(size=(3, 4)))
    for _ in range(30):
        propensity.update(U, propensity.log(U), r)
    np.testing.assert_allclose(propensity.gamma, exact, atol=1e-5)
    np.testing.assert_allclose(np.exp(propensity.log(U)).sum(axis=1), 1)


def test_the_propensity_does_not_change_its_start_in_place() -> None:
    gamma = np.zeros((1, 2))
    Propensity(gamma).update(np.ones((5, 2)), np.full((5, 2), np.log(0.5)), np.tile([0.1, 0.9], (5, 1)))
    np.testing.assert_array_equal(gamma, 0)


def test_fixed_weights_give_the_weighted_loss() -> None:
    rng = np.random.default_rng(1)
    y, held = rng.poisson(1.0, 50).astype(float), rng.uniform(size=(50, 2))
    objective = WeightedObjective(Poisson(), np.ones((10, 2)), y, held)
    eta = rng.normal(size=(50, 2))
    slow = sum(held[i, k] * (np.exp(eta[i, k]) - y[i] * eta[i, k]) for i in range(50) for k in range(2)) / 50
    assert objective.held_loss(eta) == pytest.approx(slow)
    assert objective.weights(eta) is objective.weights(eta + 1)
    assert not objective.signed
    assert WeightedObjective(Poisson(), np.array([[0.1, -0.1]]), y, held).signed
    assert objective.held_loss(np.full((50, 2), 1e6)) == np.inf  # prices that explode are never the best
