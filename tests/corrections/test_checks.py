"""The corrected risk is unbiased, exactly, and its standard error is honest."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import chi2

from fairpremium.corrections import corrected_risk, mean_and_error, paired_z
from fairpremium.corrections._report_channel import pad_missing
from fairpremium.families import Bernoulli, Family, Gamma, Normal, Poisson, Tweedie

FAMILIES = [Normal(), Poisson(), Gamma(), Tweedie(1.5), Bernoulli()]


def tiny(family: Family, n: int, K: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(0)
    y = np.array([1.0, 0.0, 1.0, 1.0, 0.0])[:n] if family == Bernoulli() else rng.gamma(2, 1, n)
    mu = rng.uniform(0.1, 0.9, size=(n, K))
    return y, mu, rng.integers(K, size=n), rng.uniform(0.5, 2, n)


@pytest.mark.parametrize("family", FAMILIES, ids=repr)
@pytest.mark.parametrize(("K", "keep"), [(2, 0.6), (3, 0.5)])
def test_the_mean_over_all_report_vectors_is_the_risk_under_the_truth(
    family: Family, K: int, keep: float, randomized_response: Callable
) -> None:
    """Every report vector of a population of four, weighted with its probability."""
    y, mu, D, w = tiny(family, 4, K)
    T = randomized_response(K, keep)
    table = pad_missing(np.linalg.inv(T))
    expected = np.average([family.unit_deviance(y[[i]], mu[i, [D[i]]])[0] for i in range(4)], weights=w)
    mean = mass = 0.0
    for vector in itertools.product(range(K), repeat=4):
        s = np.array(vector)
        probability = float(np.prod(T[s, D]))
        mean += probability * corrected_risk(family, y, mu, s, table, w)[0]
        mass += probability
    assert mass == pytest.approx(1)
    assert mean == pytest.approx(expected, rel=1e-10)


def test_also_for_more_reports_than_groups(randomized_response: Callable) -> None:
    T = np.array([[0.6, 0.1], [0.3, 0.3], [0.1, 0.6]])  # three reports, two groups
    table = pad_missing(np.linalg.pinv(T))
    y, mu, D, _ = tiny(Normal(), 4, 2)
    expected = np.mean((y - mu[np.arange(4), D]) ** 2)
    mean = sum(
        float(np.prod(T[list(s), D])) * corrected_risk(Normal(), y, mu, np.array(s), table)[0]
        for s in itertools.product(range(3), repeat=4)
    )
    assert mean == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("family", FAMILIES, ids=repr)
@pytest.mark.parametrize("weights", [False, True])
def test_it_equals_the_plain_loop_and_skips_missing_reports(
    family: Family, weights: bool, randomized_response: Callable
) -> None:
    y, mu, s, w = tiny(family, 5, 3)
    s[2] = 3  # missing
    table = pad_missing(np.linalg.inv(randomized_response(3, 0.6)))
    losses = {}
    for i in (0, 1, 3, 4):
        losses[i] = sum(table[k, s[i]] * family.unit_deviance(y[[i]], mu[i, [k]])[0] for k in range(3))
    volume = {i: w[i] if weights else 1.0 for i in losses}
    total = sum(volume.values())
    risk = sum(volume[i] * losses[i] for i in losses) / total
    error = np.sqrt(sum((volume[i] * (losses[i] - risk)) ** 2 for i in losses)) / total
    ours = corrected_risk(family, y, mu, s, table, w if weights else None)
    assert ours == pytest.approx((risk, error), rel=1e-10)


def test_one_group_without_noise_is_the_mean_deviance() -> None:
    y, mu, _, w = tiny(Gamma(), 5, 1)
    ours = corrected_risk(Gamma(), y, mu, np.zeros(5, dtype=int), np.array([[1.0, 0.0]]), w)[0]
    assert ours == pytest.approx(np.average(Gamma().unit_deviance(y, mu[:, 0]), weights=w))


@pytest.mark.parametrize("weights", [False, True])
def test_rows_of_one_person_count_once(weights: bool) -> None:
    """Every row twice is no second look: with persons as clusters z is that of each row once, exactly."""
    rng = np.random.default_rng(3)
    difference, w, person = rng.normal(0.1, 1, 50), rng.uniform(0.5, 2, 50) if weights else None, np.arange(50)
    twice = np.concatenate([np.arange(50), rng.permutation(50)])
    once = paired_z(difference, w)
    assert paired_z(difference, w, person) == pytest.approx(once, rel=1e-12)
    more = None if w is None else w[twice]
    assert paired_z(difference[twice], more, person[twice]) == pytest.approx(once, rel=1e-12)
    assert paired_z(difference[twice], more) == pytest.approx(np.sqrt(2) * once, rel=1e-12)  # what rows alone would say


def test_clustered_errors_equal_the_slow_sum_over_persons() -> None:
    rng = np.random.default_rng(4)
    values, w, person = rng.normal(size=60), rng.uniform(0.5, 2, 60), rng.integers(0, 17, 60)
    mean = sum(w[i] * values[i] for i in range(60)) / w.sum()
    totals = [sum(w[i] * (values[i] - mean) for i in range(60) if person[i] == p) for p in set(person)]
    assert mean_and_error(values, w, person) == pytest.approx(
        (mean, np.sqrt(sum(t**2 for t in totals)) / w.sum()), rel=1e-10
    )


@pytest.mark.simulation
def test_standard_error_and_bias_in_simulation(
    randomized_response: Callable, report: Callable, sigmas: Callable, repetitions: Callable
) -> None:
    m, n = repetitions(2000, 20_000), 400
    rng = np.random.default_rng(7)
    T = randomized_response(2, 0.7)
    table = pad_missing(np.linalg.inv(T))
    risks, errors = np.empty(m), np.empty(m)
    for r in range(m):
        x, D, w = rng.normal(size=n), (rng.random(n) < 0.3).astype(int), rng.uniform(0.5, 1.5, n)
        y = rng.poisson(np.exp(0.2 * x + 0.5 * D)).astype(float)
        mu = np.exp(np.column_stack([0.2 * x, 0.2 * x + 0.3]))  # a wrong price has a risk too
        risks[r], errors[r] = corrected_risk(Poisson(), y, mu, report(D, T, rng), table, w)
    # truth by a large sample with D known; its own standard error joins the tolerance
    big = 1_000_000
    x, D = rng.normal(size=big), (rng.random(big) < 0.3).astype(int)
    y = rng.poisson(np.exp(0.2 * x + 0.5 * D)).astype(float)
    deviance = Poisson().unit_deviance(y, np.exp(0.2 * x + 0.3 * D))
    tolerance = sigmas() * np.hypot(risks.std() / np.sqrt(m), deviance.std() / np.sqrt(big))
    assert risks.mean() == pytest.approx(deviance.mean(), abs=tolerance)
    # variance of normal risks: chi2 limits at 5e-7 each; the mean squared error is off by O(1/n) itself
    low, high = chi2.ppf(5e-7, m - 1) / (m - 1), chi2.isf(5e-7, m - 1) / (m - 1)
    assert low - 0.02 < risks.var(ddof=1) / np.mean(errors**2) < high + 0.02
