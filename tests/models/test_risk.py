"""The signed risk against loops, differences, and its second implementation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, replace

import numpy as np
import pytest

from fairpremium.families import Bernoulli, Family, Gamma, Normal, Poisson, Tweedie
from fairpremium.models._moments import compute_moments
from fairpremium.models._signed_risk import GlmRisk, SampleRisk, SquaredRisk, UnawareRisk, make_risk

FAMILIES = [Normal(), Poisson(), Gamma(), Tweedie(1.3), Bernoulli()]
every_family = pytest.mark.parametrize("family", FAMILIES, ids=repr)


@every_family
def test_expansion_equals_a_loop_over_rows_and_groups(draw: Callable, family: Family) -> None:
    drawn = draw(family, 0, n=120, K=3, keep=0.6)
    rows, a = drawn.rows, drawn.signed
    assert (a < 0).any()
    moments = compute_moments(rows, 4)
    Z = moments.coordinates.matrix(rows.X)
    B = 0.3 * np.random.default_rng(1).normal(size=(3, 3))
    value, gradient, hessian = np.zeros(3), np.zeros((3, 3)), np.zeros((3, 3, 3))
    for i in range(len(rows)):
        for k in range(3):
            terms = family.loss_terms(rows.y[i : i + 1], Z[i : i + 1] @ B[:, k])
            loss, slope, curvature = (float(t[0]) for t in terms)
            value[k] += a[i, k] * loss
            gradient[:, k] += a[i, k] * slope * Z[i]
            hessian[k] += a[i, k] * curvature * np.outer(Z[i], Z[i])
    expansion = GlmRisk(rows, moments, drawn.table, family).expand(B)
    np.testing.assert_allclose(expansion.value, value, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(expansion.gradient, gradient, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(expansion.hessian, hessian, rtol=1e-9, atol=1e-9)


@every_family
def test_gradient_and_hessian_match_differences(draw: Callable, family: Family) -> None:
    drawn = draw(family, 2, n=400, K=2, keep=0.6)
    risk = make_risk(drawn.rows, compute_moments(drawn.rows, 3), drawn.table, family)
    B = 0.3 * np.random.default_rng(1).normal(size=(3, 2))
    at, h = risk.expand(B), 1e-5
    for j in range(3):
        for k in range(2):
            up, down = B.copy(), B.copy()
            up[j, k] += h
            down[j, k] -= h
            plus, minus = risk.expand(up), risk.expand(down)
            by_value = (plus.value - minus.value) / (2 * h)
            np.testing.assert_allclose(by_value[k], at.gradient[j, k], rtol=1e-6, atol=1e-5)
            np.testing.assert_allclose(by_value[1 - k], 0, atol=1e-6)  # groups do not share coefficients
            by_gradient = (plus.gradient - minus.gradient) / (2 * h)
            np.testing.assert_allclose(by_gradient[:, k], at.hessian[k, :, j], rtol=1e-6, atol=1e-5)


def test_squared_risk_equals_the_general_one(draw: Callable) -> None:
    drawn = draw(Normal(), 3, n=1500, K=3, keep=0.6)
    moments = compute_moments(drawn.rows, 4)
    squared, general = SquaredRisk(moments, drawn.table), GlmRisk(drawn.rows, moments, drawn.table, Normal())
    rng = np.random.default_rng(0)
    points = [rng.normal(size=(3, 3)) for _ in range(3)]
    a, b = [squared.expand(B) for B in points], [general.expand(B) for B in points]
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(x.gradient, y.gradient, rtol=1e-9, atol=1e-8)
        np.testing.assert_allclose(x.hessian, y.hessian, rtol=1e-9, atol=1e-8)
        constant = a[0].value - b[0].value  # depends on y alone
        np.testing.assert_allclose(x.value - y.value, constant, rtol=1e-9, atol=1e-7)


@every_family
def test_without_the_hessian_the_rest_is_the_same(draw: Callable, family: Family) -> None:
    drawn = draw(family, 5, n=3000)
    risk = make_risk(drawn.rows, compute_moments(drawn.rows, 3), drawn.table, family)
    B = np.full((3, 2), 0.1)
    full, lean = risk.expand(B), risk.expand(B, hessian=False)
    np.testing.assert_array_equal(full.value, lean.value)
    np.testing.assert_array_equal(full.gradient, lean.gradient)


@pytest.mark.parametrize("shift", [0.0, 100.0])  # far from zero features are moved to their center first
@pytest.mark.parametrize("family", FAMILIES[1:], ids=repr)
def test_sums_by_report_give_the_risk_of_every_table(draw: Callable, family: Family, shift: float) -> None:
    drawn = draw(family, 6, n=3000, K=3, keep=0.6)
    rows = replace(drawn.rows, X=drawn.rows.X + shift)
    moments = compute_moments(rows, 4)
    risk, b = UnawareRisk(rows, moments, family), np.array([[0.2], [0.1], [-0.3]])
    plain = GlmRisk(rows, moments, np.ones((1, 4)), family).expand(b)
    for own, other in zip(astuple(risk.expand(b)), astuple(plain), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-9, atol=1e-9)
    assert risk.by_report is not None
    found, expected = risk.by_report.combine(drawn.table), GlmRisk(rows, moments, drawn.table, family)
    for own, other in zip(astuple(found), astuple(expected.expand(np.repeat(b, 3, axis=1))), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("family", FAMILIES[1:], ids=repr)
def test_a_sample_agrees_with_all_rows_where_it_is_matched(draw: Callable, family: Family) -> None:
    drawn = draw(family, 7, n=4000, K=2, keep=0.7)
    moments, at = compute_moments(drawn.rows, 3), np.array([[0.2], [0.1], [-0.2]])
    everyone, unaware = GlmRisk(drawn.rows, moments, drawn.table, family), UnawareRisk(drawn.rows, moments, family)
    unaware.expand(at)
    some = GlmRisk(drawn.rows.draw(400), moments, drawn.table, family)
    matched, plain = SampleRisk(some, 0.1, unaware.by_report), SampleRisk(some, 0.1, None)
    B = np.repeat(at, 2, axis=1)
    found, expected = matched.expand(B), everyone.expand(B)
    np.testing.assert_allclose(found.gradient, expected.gradient, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(found.hessian, expected.hessian, rtol=1e-8, atol=1e-8)
    # nearby, where groups differ, the sample's own error is ten times as large
    near = B + 0.1 * np.random.default_rng(0).normal(size=B.shape)
    error = [np.abs(risk.expand(near).gradient - everyone.expand(near).gradient).max() for risk in (matched, plain)]
    assert error[0] < 0.1 * error[1]
    # value, gradient and Hessian belong together
    step = 1e-5 * np.eye(3)[:, :1]
    up, down, here = matched.expand(near + step), matched.expand(near - step), matched.expand(near)
    np.testing.assert_allclose((up.value - down.value) / 2e-5, here.gradient[0], rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose((up.gradient - down.gradient).T / 2e-5, here.hessian[:, 0], rtol=1e-5, atol=1e-4)
