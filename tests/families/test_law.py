"""Laws of the outcome: derivatives against central differences, densities against SciPy and the families."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from fairpremium.families import Bernoulli, Family, Gamma, NegativeBinomial, Normal, Poisson, Tweedie, law_of
from fairpremium.families._law import (
    DispersionLaw,
    Law,
    LawTerms,
    NegativeBinomialLaw,
    PositiveLaw,
    ZeroInflatedPoissonLaw,
    other_laws,
)

FAMILIES = [Normal(), Poisson(), Gamma(), Tweedie(1.5), Tweedie(1.2), Bernoulli(), NegativeBinomial()]
WITH_DISPERSION = [f for f in FAMILIES if f.has_dispersion]


def outcomes(family: Family, n: int = 60, K: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """y and w of shape (n, 1), eta of shape (n, K); volumes differ, and counts w y are whole numbers."""
    rng = np.random.default_rng(5)
    w = rng.uniform(0.3, 4.0, (n, 1))
    eta = rng.normal(0.2, 0.7, (n, K))
    mu = np.exp(eta[:, :1])
    if family == Normal():
        return rng.normal(0, 2, (n, 1)), w, eta
    if family == Bernoulli():
        return (rng.random((n, 1)) < 0.4).astype(float), w, eta
    if family == Gamma():
        return rng.gamma(2 * w, mu / (2 * w)), w, eta
    if isinstance(family, Tweedie):
        claims = rng.poisson(w * mu)
        return np.where(claims > 0, rng.gamma(2.0 * np.maximum(claims, 1), 0.5), 0.0) / w, w, eta
    return rng.poisson(rng.gamma(1.5, w * mu / 1.5)) / w, w, eta


def value(law: Law, y: np.ndarray, w: np.ndarray, eta: np.ndarray, lam: np.ndarray) -> np.ndarray:
    return np.broadcast_to(law.terms(y, w, eta, lam).log_density, eta.shape)


def rows_of(law: Law) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Outcomes that a law can give."""
    family = next((f for f in FAMILIES if f.name == law.name), Poisson())
    if isinstance(law, PositiveLaw):
        y, w, eta = outcomes(Gamma())
        return y, w, np.exp(eta)
    return outcomes(family)


@pytest.mark.parametrize(
    "law", [*map(law_of, FAMILIES), PositiveLaw(), ZeroInflatedPoissonLaw()], ids=lambda law: law.name
)
@pytest.mark.parametrize("lam", [(0.3, 0.3, 0.3), (-0.8, 0.1, 0.9)], ids=["common", "by group"])
def test_derivatives_are_those_of_the_log_density(law: Law, lam: tuple[float, ...]) -> None:
    y, w, eta = rows_of(law)
    at = np.array(lam)
    terms = LawTerms(*(np.broadcast_to(t, eta.shape) for t in law.terms(y, w, eta, at)))

    def density(e: float, d: float) -> np.ndarray:
        return value(law, y, w, eta + e, at + d)

    h = 1e-4
    close = {"rtol": 2e-5, "atol": 2e-6 * (1 + np.abs(terms.log_density).max())}
    np.testing.assert_allclose(terms.d_eta, (density(h, 0) - density(-h, 0)) / (2 * h), **close)
    second = (density(h, 0) - 2 * density(0, 0) + density(-h, 0)) / h**2
    np.testing.assert_allclose(terms.d_eta_eta, second, **close)
    if not law.has_dispersion:
        for term in (terms.d_lambda, terms.d_lambda_lambda, terms.d_eta_lambda):
            np.testing.assert_array_equal(term, 0.0)
        return
    np.testing.assert_allclose(terms.d_lambda, (density(0, h) - density(0, -h)) / (2 * h), **close)
    second = (density(0, h) - 2 * density(0, 0) + density(0, -h)) / h**2
    np.testing.assert_allclose(terms.d_lambda_lambda, second, **close)
    mixed = (density(h, h) - density(h, -h) - density(-h, h) + density(-h, -h)) / (4 * h**2)
    np.testing.assert_allclose(terms.d_eta_lambda, mixed, **close)


@pytest.mark.parametrize("family", FAMILIES, ids=repr)
def test_log_density_and_log_likelihood_differ_by_no_more_than_a_constant(family: Family) -> None:
    """In eta and lambda both: what is left out may depend on (y, w) alone."""
    y, w, eta = outcomes(family)
    grid = (0.0,) if not family.has_dispersion else (-0.7, 0.0, 0.6)
    gaps = []
    for lam in grid:
        ours = value(law_of(family), y, w, eta, np.full(eta.shape[1], lam))
        theirs = family.log_likelihood(y, family.link.mean_of(eta), float(np.exp(lam)), w)
        gaps.append(ours - theirs)
    gap = np.concatenate(gaps, axis=1)
    np.testing.assert_allclose(gap, np.repeat(gap[:, :1], gap.shape[1], axis=1), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("alpha", [0.05, 0.7, 3.0])
def test_negative_binomial_equals_scipy(alpha: float) -> None:
    N = np.arange(12.0)
    for w, mu in [(1.0, 0.4), (2.5, 1.3), (0.2, 6.0)]:
        m = w * mu
        scipy = stats.nbinom.logpmf(N, 1 / alpha, 1 / (1 + alpha * m))
        np.testing.assert_allclose(NegativeBinomial().log_likelihood(N / w, mu, alpha, w), scipy, rtol=1e-10)
        terms = NegativeBinomialLaw().terms(
            N[:, None] / w, np.full((12, 1), w), np.full((12, 1), np.log(mu)), np.log([alpha])
        )
        np.testing.assert_allclose(terms.log_density[:, 0], scipy, rtol=1e-10)


def test_negative_binomial_has_the_moments_of_its_docstring() -> None:
    w, mu, alpha = 1.7, 0.9, 0.6
    N = np.arange(400.0)
    p = np.exp(NegativeBinomial().log_likelihood(N / w, mu, alpha, w))
    m = w * mu
    assert p.sum() == pytest.approx(1, abs=1e-12)
    assert p @ N == pytest.approx(m, rel=1e-10)
    assert p @ (N - m) ** 2 == pytest.approx(m + alpha * m**2, rel=1e-10)


def test_the_positive_law_is_a_gamma_law_on_the_scale_of_the_normal_law() -> None:
    y, w, mu = rows_of(PositiveLaw())
    lam = np.array([-1.0, 0.2, 1.5])
    variance = np.exp(lam) / w
    scipy = stats.gamma.logpdf(y, mu**2 / variance, scale=variance / mu)
    constant = stats.norm.logpdf(0.0)  # that the normal law leaves out
    np.testing.assert_allclose(PositiveLaw().log_density(y, w, mu, lam), scipy - constant, rtol=1e-9, atol=1e-9)
    normal = law_of(Normal()).log_density(y, w, mu, lam)
    np.testing.assert_allclose(normal, stats.norm.logpdf(y, mu, np.sqrt(variance)) - constant, rtol=1e-9)


def test_the_positive_law_has_no_value_where_a_mean_is_not_positive() -> None:
    found = PositiveLaw().terms(np.ones((1, 1)), np.ones((1, 1)), np.array([[-1.0, 2.0]]), np.zeros(2))
    assert np.isnan(found.log_density[0, 0])
    assert np.isfinite(found.log_density[0, 1])


@pytest.mark.parametrize(("w", "mu", "odds"), [(1.0, 0.4, 0.5), (2.5, 1.3, 2.0), (0.2, 6.0, 0.05)])
def test_zero_inflated_poisson_is_the_mixture_of_its_docstring(w: float, mu: float, odds: float) -> None:
    N = np.arange(150.0)
    pi, m = odds / (1 + odds), w * mu
    p = (1 - pi) * stats.poisson.pmf(N, m / (1 - pi)) + pi * (N == 0)
    one = np.ones((len(N), 1))
    found = ZeroInflatedPoissonLaw().log_density(N[:, None] / w, w * one, np.log(mu) * one, np.log([odds]))
    np.testing.assert_allclose(np.exp(found[:, 0]), p, rtol=1e-9, atol=1e-300)
    assert p @ N == pytest.approx(m, rel=1e-10)
    assert p @ (N - m) ** 2 == pytest.approx(m + odds * m**2, rel=1e-10)


@pytest.mark.parametrize("law", [PositiveLaw(), ZeroInflatedPoissonLaw()], ids=lambda law: law.name)
def test_start_of_the_other_laws(law: Law) -> None:
    """Within a factor of 1.25 with 20,000 rows: a start, not an estimate."""
    rng = np.random.default_rng(2)
    n, phi = 20_000, 0.5
    w, mu = rng.uniform(0.5, 3.0, n), np.exp(rng.normal(0.3, 0.4, n))
    if isinstance(law, PositiveLaw):
        y = rng.gamma(mu**2 * w / phi, phi / w / mu)
    else:
        y = np.where(rng.random(n) < phi / (1 + phi), 0, rng.poisson(w * mu * (1 + phi))) / w
    assert np.exp(law.start(y, w, mu)) == pytest.approx(phi, rel=0.25)


@pytest.mark.parametrize("alpha", [1e-3, 1e-5, 1e-7])
def test_negative_binomial_becomes_poisson(alpha: float) -> None:
    """The difference is of the order alpha (N^2 + m^2); rounding adds 1e-16 times gammaln(1 / alpha)."""
    y, w, eta = outcomes(Poisson())
    poisson = law_of(Poisson()).terms(y, w, eta, np.zeros(3))
    nb = law_of(NegativeBinomial()).terms(y, w, eta, np.full(3, np.log(alpha)))
    N, m = w * y, w * np.exp(eta)
    bound = alpha * (1 + (N + m) ** 2) + 1e-14 / alpha
    constant = stats.poisson.logpmf(np.round(N), m) - poisson.log_density
    assert np.all(np.abs(nb.log_density - poisson.log_density - constant) <= bound)
    assert np.all(np.abs(nb.d_eta - poisson.d_eta) <= alpha * (1 + N + m) * (1 + m))
    assert np.all(np.abs(nb.d_eta_eta - poisson.d_eta_eta) <= 2 * alpha * (1 + N + m) * (1 + m) * (1 + m))
    assert np.all(np.isfinite(nb.d_lambda_lambda))


@pytest.mark.parametrize("family", WITH_DISPERSION, ids=repr)
def test_start_finds_the_dispersion_when_there_are_no_groups(family: Family) -> None:
    """Within a factor of 1.25 with 20,000 rows: a start, not an estimate."""
    rng = np.random.default_rng(1)
    n, phi = 20_000, 0.5
    w = rng.uniform(0.5, 3.0, n)
    mu = np.exp(rng.normal(0.3, 0.4, n))
    if family == Normal():
        y = rng.normal(mu, np.sqrt(phi / w))
    elif family == Gamma():
        y = rng.gamma(w / phi, mu * phi / w)
    elif isinstance(family, Tweedie):
        p = family.power
        claims = rng.poisson(mu ** (2 - p) / ((2 - p) * phi / w))
        shape, scale = (2 - p) / (p - 1), phi / w * (p - 1) * mu ** (p - 1)
        y = np.where(claims > 0, rng.gamma(shape * np.maximum(claims, 1), scale), 0.0)
    else:
        y = rng.poisson(rng.gamma(1 / phi, w * mu * phi)) / w
    assert np.exp(law_of(family).start(y, w, mu)) == pytest.approx(phi, rel=0.25)


@pytest.mark.parametrize("family", [Poisson(), Bernoulli()], ids=repr)
def test_start_without_dispersion_is_zero(family: Family) -> None:
    y, w, eta = outcomes(family)
    assert law_of(family).start(y[:, 0], w[:, 0], family.link.mean_of(eta[:, 0])) == 0.0


def test_start_of_underdispersed_counts_is_finite() -> None:
    law = NegativeBinomialLaw()
    assert np.isfinite(law.start(np.ones(50), np.ones(50), np.ones(50)))


def test_which_laws_are_tried() -> None:
    assert isinstance(law_of(NegativeBinomial()), NegativeBinomialLaw)
    for family in (Normal(), Poisson(), Gamma(), Tweedie(), Bernoulli()):
        assert isinstance(law_of(family), DispersionLaw)
        assert law_of(family).name == family.name
    assert [law.name for law in other_laws(Poisson())] == ["negative_binomial", "zero-inflated Poisson"]
    assert [law.name for law in other_laws(Normal())] == ["positive, constant variance"]
    for family in (NegativeBinomial(), Gamma(), Tweedie(), Bernoulli()):
        assert other_laws(family) == []


def test_laws_of_counts_are_on_one_scale() -> None:
    """Likelihoods are compared: without overdispersion every law is the Poisson law, constants included."""
    y, w, eta = outcomes(Poisson())
    poisson = law_of(Poisson()).log_density(y, w, eta, np.zeros(3))
    for law, lam in ((NegativeBinomialLaw(), -18.0), (ZeroInflatedPoissonLaw(), -30.0)):
        np.testing.assert_allclose(law.log_density(y, w, eta, np.full(3, lam)), poisson, atol=1e-5)
    np.testing.assert_allclose(poisson, stats.poisson.logpmf(np.round(w * y), w * np.exp(eta)), rtol=1e-8)
