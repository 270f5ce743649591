"""Families: identities over all members, outside references, and an independent Tweedie series."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.integrate import quad
from scipy.special import gammaln
from sklearn.metrics import mean_tweedie_deviance

from fairpremium.families import (
    Bernoulli,
    Family,
    Gamma,
    NegativeBinomial,
    Normal,
    Poisson,
    Tweedie,
    get_family,
)

# Exponential dispersion models: variance phi V(mu) / w, log-likelihood -w / (2 phi) deviance + c(y)
FAMILIES = [Normal(), Poisson(), Gamma(), Tweedie(1.2), Tweedie(1.5), Tweedie(1.8), Bernoulli()]
every_dispersion_model = pytest.mark.parametrize("family", FAMILIES, ids=repr)
# The negative binomial is fitted as a Poisson family and has a law of its own
every_family = pytest.mark.parametrize("family", [*FAMILIES, NegativeBinomial()], ids=repr)


def outcomes(family: Family) -> np.ndarray:
    """Values inside the domain, its included ends among them."""
    if family.outcome.values is not None:
        return np.array(family.outcome.values)
    if family.outcome.low == -np.inf:
        return np.array([-30.0, -1.0, 0.0, 0.3, 2.0, 400.0])
    inner = np.array([1e-3, 0.3, 1.0, 2.0, 7.0, 400.0])
    return np.concatenate([[0.0], inner]) if family.outcome.low_inclusive else inner


def means(family: Family) -> np.ndarray:
    return family.link.mean_of(np.array([-3.0, -0.7, 0.0, 0.4, 1.0, 2.5]))


def grid(family: Family) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of an outcome and a linear predictor."""
    y, eta = np.meshgrid(outcomes(family), [-3.0, -0.7, 0.0, 0.4, 1.0, 2.5])
    return y.ravel(), eta.ravel()


def test_the_parametrisation_covers_every_family() -> None:
    concrete, queue = set(), [Family]
    while queue:
        children = queue.pop().__subclasses__()
        queue += children
        concrete |= {c for c in children if not c.__name__.startswith("_")}
    assert {type(f) for f in FAMILIES} | {NegativeBinomial} == concrete


@every_family
def test_deviance_is_positive_and_zero_exactly_at_the_outcome(family: Family) -> None:
    y, mu = np.meshgrid(outcomes(family), means(family))
    y, mu = y.ravel(), mu.ravel()
    deviance = family.unit_deviance(y, mu)
    assert np.all(deviance[y != mu] > 0)
    inside = outcomes(family)[family.mean.contains(outcomes(family))]
    # rounding of the terms that cancel, which have the size y^(2-p) times a constant
    np.testing.assert_allclose(family.unit_deviance(inside, inside), 0, atol=1e-10)


@every_family
def test_deviance_grows_with_the_distance_from_the_outcome(family: Family) -> None:
    """Along the predictor the deviance falls up to g(y) and rises after it."""
    eta = np.linspace(-4, 4, 81)
    for y in outcomes(family):
        deviance = family.unit_deviance(np.full_like(eta, y), family.link.mean_of(eta))
        centre = family.link.predictor(np.array(y)) if family.mean.contains(np.array(y)) else None
        steps = np.diff(deviance)
        if centre is None:  # at the end of the domain: monotone
            assert np.all(steps > 0) or np.all(steps < 0)
        else:
            assert np.all(steps[eta[1:] < centre] < 0)
            assert np.all(steps[eta[:-1] > centre] > 0)


@every_family
def test_derivatives_of_the_loss_match_central_differences(family: Family) -> None:
    y, eta = grid(family)
    h = 1e-5
    _, slope, curvature = family.loss_terms(y, eta)
    up, up_slope, _ = family.loss_terms(y, eta + h)
    down, down_slope, _ = family.loss_terms(y, eta - h)
    scale = 1 + np.abs(y) + np.abs(slope) + np.abs(curvature)
    # error: h^2 / 6 times the third derivative, and rounding / h
    assert np.max(np.abs((up - down) / (2 * h) - slope) / scale) < 2e-8
    assert np.max(np.abs((up_slope - down_slope) / (2 * h) - curvature) / scale) < 2e-8


@every_family
def test_loss_is_convex_in_the_predictor(family: Family) -> None:
    y, eta = grid(family)
    assert np.all(family.loss_terms(y, eta)[2] >= 0)


@every_family
def test_loss_is_half_the_deviance_up_to_a_function_of_the_outcome(family: Family) -> None:
    y, eta = grid(family)
    other = eta[::-1] + 0.1
    gap = family.loss_terms(y, eta)[0] - family.loss_terms(y, other)[0]
    half = (family.unit_deviance(y, family.link.mean_of(eta)) - family.unit_deviance(y, family.link.mean_of(other))) / 2
    np.testing.assert_allclose(gap, half, rtol=1e-10, atol=1e-10)


@every_family
def test_the_score_is_the_residual_over_the_variance(family: Family) -> None:
    """d loss / d eta = -(y - mu) mu'(eta) / V(mu): the defining property of an exponential dispersion model."""
    y, eta = grid(family)
    mu = family.link.mean_of(eta)
    expected = -(y - mu) * family.link.slope(eta) / family.variance(mu)
    np.testing.assert_allclose(family.loss_terms(y, eta)[1], expected, rtol=1e-10, atol=1e-12)


@every_dispersion_model
@pytest.mark.parametrize("weight", [1.0, 0.25, 3.0])
def test_log_likelihood_differs_between_means_by_the_deviance(family: Family, weight: float) -> None:
    phi = 0.7 if family.has_dispersion else 1.0
    y, eta = grid(family)
    keep = y < 50  # the series of large outcomes at tiny means cancels
    y, eta = y[keep], eta[keep]
    mu, other = family.link.mean_of(eta), family.link.mean_of(eta[::-1] + 0.1)
    gap = family.log_likelihood(y, mu, phi, weight) - family.log_likelihood(y, other, phi, weight)
    expected = -weight / (2 * phi) * (family.unit_deviance(y, mu) - family.unit_deviance(y, other))
    np.testing.assert_allclose(gap, expected, rtol=1e-9, atol=1e-9)


# a weighted Bernoulli row stands for repeated rows, not for one outcome: weight 1 only
@pytest.mark.parametrize(
    ("family", "mu", "weight"),
    [(f, 0.4, 1.0) for f in FAMILIES]
    + [(f, mu, w) for f in FAMILIES if f != Bernoulli() for mu, w in ((0.8, 2.5), (0.15, 0.5))],
    ids=repr,
)
def test_density_has_total_one_the_mean_and_the_variance(family: Family, mu: float, weight: float) -> None:
    phi = 0.6 if family.has_dispersion else 1.0
    if isinstance(family, Bernoulli):
        points = np.array([0.0, 1.0])
    elif isinstance(family, Poisson):
        points = np.arange(60) / weight  # y = count / exposure
    else:
        points = None

    def density(y: float) -> float:
        return float(np.exp(family.log_likelihood(np.array(y), np.array(mu), phi, weight)))

    if points is not None:
        p = np.array([density(y) for y in points])
        total, first, second = (float((p * points**j).sum()) for j in range(3))
    else:
        sd = float(np.sqrt(phi * family.variance(np.array(mu)) / weight))
        low = 0.0 if family.outcome.low == 0 else mu - 15 * sd
        atom = density(0.0) if isinstance(family, Tweedie) else 0.0
        # the substitution y = low + u^4 removes the integrable poles of gamma and Tweedie densities at zero
        top = (mu + 60 * sd - low) ** 0.25

        def moment(j: int) -> float:
            def integrand(u: float) -> float:
                y = low + u**4
                return density(y) * y**j * 4 * u**3 if u > 0 else 0.0

            return quad(integrand, 0, top, limit=400, epsabs=1e-10)[0]

        total, first, second = moment(0) + atom, moment(1), moment(2)
    assert total == pytest.approx(1, abs=1e-6)
    assert first == pytest.approx(mu, rel=1e-6)
    assert second - first**2 == pytest.approx(phi * float(family.variance(np.array(mu))) / weight, rel=1e-5)


def test_log_likelihoods_match_scipy() -> None:
    mu = np.array([0.2, 0.5, 0.9])
    y = np.array([0.1, 0.7, 2.0])
    phi, w = 0.4, np.array([0.5, 1.0, 3.0])
    np.testing.assert_allclose(
        Normal().log_likelihood(y, mu, phi, w), stats.norm(mu, np.sqrt(phi / w)).logpdf(y), rtol=1e-12
    )
    np.testing.assert_allclose(
        Gamma().log_likelihood(y, mu, phi, w), stats.gamma(w / phi, scale=mu * phi / w).logpdf(y), rtol=1e-12
    )
    counts = np.array([0.0, 1.0, 6.0])
    np.testing.assert_allclose(
        Poisson().log_likelihood(counts / w, mu, weight=w), stats.poisson(w * mu).logpmf(counts), rtol=1e-12
    )
    claims = np.array([0.0, 1.0, 1.0])
    np.testing.assert_allclose(Bernoulli().log_likelihood(claims, mu), stats.bernoulli(mu).logpmf(claims), rtol=1e-12)


@pytest.mark.parametrize("dispersion", [0.01, 0.5, 3.0])
@pytest.mark.parametrize("weight", [0.5, 1.0, 4.0])
def test_negative_binomial_matches_scipy(dispersion: float, weight: float) -> None:
    """Counts N = w y with mean m = w mu and variance m + dispersion m^2."""
    counts, mu = np.arange(400.0), 1.7
    m, r = weight * mu, 1 / dispersion
    p = np.exp(NegativeBinomial().log_likelihood(counts / weight, np.full(400, mu), dispersion, weight))
    np.testing.assert_allclose(p, stats.nbinom(r, r / (r + m)).pmf(counts), rtol=1e-9, atol=1e-300)
    assert counts @ p == pytest.approx(m, rel=1e-6)
    assert counts**2 @ p - m**2 == pytest.approx(m + dispersion * m**2, rel=1e-5)


def test_negative_binomial_ends_in_poisson() -> None:
    counts = np.arange(10.0)
    np.testing.assert_allclose(
        NegativeBinomial().log_likelihood(counts, np.full(10, 2.0), 1e-6),
        Poisson().log_likelihood(counts, np.full(10, 2.0)),
        atol=1e-4,
    )


@pytest.mark.parametrize("family", [Poisson(), Gamma()], ids=repr)
def test_deviance_matches_scikit_learn(family: Family) -> None:
    rng = np.random.default_rng(0)
    y, mu, w = rng.gamma(1, 2, 50), rng.gamma(1, 2, 50), rng.random(50)
    ours = np.average(family.unit_deviance(y, mu), weights=w)
    theirs = mean_tweedie_deviance(y, mu, sample_weight=w, power={"poisson": 1, "gamma": 2}[family.name])
    assert ours == pytest.approx(theirs, rel=1e-12)


@pytest.mark.parametrize("power", [1.01, 1.2, 1.5, 1.8, 1.99])
def test_tweedie_deviance_matches_scikit_learn(power: float) -> None:
    rng = np.random.default_rng(0)
    y = np.where(rng.random(50) < 0.3, 0, rng.gamma(1, 2, 50))
    mu = rng.gamma(2, 1, 50)
    ours = Tweedie(power).unit_deviance(y, mu).mean()
    assert ours == pytest.approx(mean_tweedie_deviance(y, mu, power=power), rel=1e-10)


def claim_count_series(y: float, mu: float, phi: float, p: float) -> float:
    """Log-density of a Poisson number of gamma claims, summed claim count by claim count."""
    rate = mu ** (2 - p) / (phi * (2 - p))
    shape, scale = (2 - p) / (p - 1), phi * (p - 1) * mu ** (p - 1)
    if y == 0:
        return -rate
    n = np.arange(1, 6000)
    terms = (
        n * np.log(rate) - rate - gammaln(n + 1)
        + (n * shape - 1) * np.log(y) - y / scale - n * shape * np.log(scale) - gammaln(n * shape)
    )  # fmt: skip
    largest = terms.max()
    return float(largest + np.log(np.exp(terms - largest).sum()))


@pytest.mark.parametrize("power", [1.2, 1.3, 1.5, 1.8, 1.95])
@pytest.mark.parametrize("phi", [0.01, 0.3, 1.0, 50.0])
def test_tweedie_log_likelihood_matches_the_sum_over_claim_counts(power: float, phi: float) -> None:
    y = np.array([0.0, 1e-3, 0.2, 1.0, 3.0, 20.0])
    for mu in (0.1, 1.0, 5.0):
        ours = Tweedie(power).log_likelihood(y, np.full_like(y, mu), phi)
        slow = [claim_count_series(v, mu, phi, power) for v in y]
        np.testing.assert_allclose(ours, slow, rtol=1e-8, atol=1e-6)


@pytest.mark.parametrize("power", [1.01, 1.05, 1.1, 1.15])
@pytest.mark.parametrize("phi", [0.01, 0.1, 1.0, 100.0])
def test_tweedie_log_likelihood_near_the_poisson_end(power: float, phi: float) -> None:
    """exp(log_z) over- or underflows near power 1, and scipy's Wright function is off by up to 0.4 below 1.2."""
    y = np.array([0.5, 1.0, 5.0, 20.0])
    ours = Tweedie(power).log_likelihood(y, y, phi)
    slow = [claim_count_series(v, v, phi, power) for v in y]
    assert np.isfinite(slow).all()
    np.testing.assert_allclose(ours, slow, rtol=1e-5, atol=1e-5)


def test_tweedie_weight_is_the_inverse_dispersion() -> None:
    y, mu = np.array([0.0, 0.4, 2.0]), np.array([1.0, 0.5, 3.0])
    family = Tweedie(1.4)
    np.testing.assert_allclose(
        family.log_likelihood(y, mu, 0.5, np.array([2.0, 0.1, 4.0])),
        [family.log_likelihood(y[i : i + 1], mu[i : i + 1], 0.5 / w)[0] for i, w in enumerate([2.0, 0.1, 4.0])],
        rtol=1e-12,
    )


@pytest.mark.parametrize("family", [Poisson(), Bernoulli()], ids=repr)
def test_families_without_dispersion_refuse_one(family: Family) -> None:
    assert not family.has_dispersion
    with pytest.raises(ValueError, match=r"dispersion=2.*dispersion 1"):
        family.log_likelihood(np.array([1.0]), np.array([0.5]), 2.0)


@pytest.mark.parametrize(
    ("family", "bad", "rule"),
    [
        (Normal(), [np.nan, 1.0, np.inf], "any finite number"),
        (Poisson(), [-1.0, 0.0, np.nan], "at least 0"),
        (Gamma(), [0.0, 1.0, -2.0], "greater than 0"),
        (Tweedie(), [0.0, -1e-9, np.inf], "at least 0"),
        (Bernoulli(), [0.5, 1.0, -1.0], "one of 0, 1"),
    ],
    ids=lambda v: repr(v) if isinstance(v, Family) else None,
)
def test_check_outcome_names_rule_count_and_argument(family: Family, bad: list[float], rule: str) -> None:
    count = int(np.count_nonzero(~family.outcome.contains(np.array(bad))))
    message = rf"losses with {count} of 3 rows outside .* {family.name} family.*{re.escape(rule)}\."
    with pytest.raises(ValueError, match=message):
        family.check_outcome(np.array(bad), "losses")
    family.check_outcome(outcomes(family))  # the good ones pass


def test_gamma_tells_what_to_do_with_zeros() -> None:
    with pytest.raises(ValueError, match="tweedie"):
        Gamma().check_outcome(np.array([0.0, 1.0]))


@every_family
def test_plain_data_round_trip(family: Family) -> None:
    assert get_family(json.loads(json.dumps(family.to_dict()))) == family
    assert get_family(family) is family
    assert get_family(family.name).name == family.name
    assert family.link.mean == family.mean


@pytest.mark.parametrize("bad", ["lognormal", None, 3, {"power": 1.5}, ["normal"]])
def test_get_family_names_what_it_expected(bad: object) -> None:
    with pytest.raises(ValueError, match=r"expected one of .*bernoulli.*tweedie"):
        get_family(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("power", [1, 2, 0.5, 3.0, np.nan, True])
def test_tweedie_refuses_other_powers(power: float) -> None:
    with pytest.raises(ValueError, match="strictly between 1 and 2"):
        Tweedie(power)


@settings(deadline=None, derandomize=True)
@given(power=st.floats(1.05, 1.95), y=st.floats(0, 1e4), mu=st.floats(1e-3, 1e4), factor=st.floats(1e-2, 1e2))
def test_power_deviances_are_homogeneous(power: float, y: float, mu: float, factor: float) -> None:
    """d(c y, c mu) = c^(2-p) d(y, mu): the choice of currency scales the risk and moves no minimum."""
    for family, p in ((Poisson(), 1.0), (Tweedie(power), power), (Gamma(), 2.0)):
        if p == 2 and y == 0:
            continue
        if p == 2 and y < 1e-300:
            continue
        one = family.unit_deviance(np.array(y), np.array(mu))
        scaled = family.unit_deviance(np.array(factor * y), np.array(factor * mu))
        size = 10 * (y ** (2 - p) + mu ** (2 - p) + y * mu ** (1 - p)) / abs((2 - p) * (1 - p) or 1)
        assert abs(scaled / factor ** (2 - p) - one) <= 1e-10 * (size + 1)
