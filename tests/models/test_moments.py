"""Moments, coordinates and redundant features against plain loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fairpremium.blocks import Rows
from fairpremium.families import Normal
from fairpremium.models._moments import compute_moments, find_redundant


@pytest.mark.parametrize("weights", [False, True])
def test_moments_equal_a_loop_over_the_rows(draw: Callable, weights: bool) -> None:
    rows = draw(Normal(), 0, n=300, K=3, weights=weights).rows
    moments = compute_moments(rows, 4)
    Z = moments.coordinates.matrix(rows.X)
    second, weight, squares, counts = (np.zeros((4, *shape)) for shape in ((4, 4), (), (), ()))
    for i in range(len(rows)):
        v = np.append(Z[i], rows.y[i] - moments.y_center)
        w = 1.0 if rows.weight is None else rows.weight[i]
        at = rows.report[i]
        second[at] += w * np.outer(v, v)
        weight[at] += w
        squares[at] += w * w
        counts[at] += 1
    np.testing.assert_allclose(moments.by_report, second, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(moments.weights, weight, rtol=1e-12)
    np.testing.assert_allclose(moments.squared_weights, squares, rtol=1e-12)
    np.testing.assert_array_equal(moments.counts, counts)
    assert moments.total_weight == pytest.approx(weight.sum())


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("features", [1, 20, 62, 63])  # narrow and wide ones are multiplied in other ways
@pytest.mark.parametrize("center", [0.0, 50.0])
def test_moments_of_many_rows_in_either_order(order: Any, features: int, center: float) -> None:
    rng = np.random.default_rng(0)
    n = 20_000  # several products for each report
    X, y, w = rng.normal(center, size=(n, features)), rng.normal(size=n), rng.uniform(0.5, 1, n)
    report = rng.choice(3, n, p=[0.7, 0.3, 0.0])
    given = X.copy(order)
    moments = compute_moments(Rows(given, y, w, report), 3)
    np.testing.assert_array_equal(given, X)
    v = np.column_stack([moments.coordinates.matrix(X), y - moments.y_center])
    for s in range(3):
        rows = report == s
        np.testing.assert_allclose(moments.by_report[s], (v[rows].T * w[rows]) @ v[rows], rtol=1e-9, atol=1e-9)


def test_many_segments_do_not_wrap_around() -> None:
    """BUG: the sort of the segments casts to 16 bits, so that segment 65536 is mixed up with segment 0."""
    rng = np.random.default_rng(0)
    report = rng.permutation(np.repeat([0, 65_536], 50))
    X = rng.normal(size=(100, 1))
    y = np.where(report == 0, X[:, 0], -X[:, 0])
    moments = compute_moments(Rows(X, y, None, report), 65_538)
    Z = moments.coordinates.matrix(X)
    for code in (0, 65_536):
        rows = report == code
        np.testing.assert_allclose(moments.by_report[code, 1, 2], Z[rows, 1] @ (y[rows] - moments.y_center), rtol=1e-9)


def test_effective_rows_equal_their_definition(draw: Callable) -> None:
    drawn = draw(Normal(), 1, n=200, K=3)
    a = drawn.signed
    moments = compute_moments(drawn.rows, 4)
    np.testing.assert_allclose(moments.effective_rows(drawn.table), a.sum(axis=0) ** 2 / (a**2).sum(axis=0))
    assert moments.effective_rows(np.zeros((1, 4)))[0] == 0
    plain = compute_moments(Rows(drawn.rows.X, drawn.rows.y, None, drawn.rows.report), 4)
    assert plain.effective_rows(np.ones((1, 4)))[0] == pytest.approx(200)  # equal weights: all rows count


def test_coordinates_to_raw_keep_the_predictor() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(5, 3, size=(100, 4))
    X[:, 2] = X[:, 0] - 2 * X[:, 1]
    moments = compute_moments(Rows(X, rng.normal(size=100), None, np.zeros(100, int)), 2)
    assert moments.coordinates.used.tolist() == [0, 1, 3]
    B = rng.normal(size=(4, 3))
    raw = moments.coordinates.to_raw(B)
    np.testing.assert_array_equal(raw[3], 0)  # the redundant one
    np.testing.assert_allclose(
        np.column_stack([np.ones(100), X]) @ raw, moments.coordinates.matrix(X) @ B, rtol=1e-11, atol=1e-11
    )
    np.testing.assert_allclose(moments.coordinates.jacobian() @ B, raw)


def test_redundant_columns_by_matrix_rank() -> None:
    """A column is redundant if and only if it does not raise the rank of those before it."""
    for seed in range(50):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(60, 6)) * 10.0 ** rng.integers(-3, 4, size=6)
        for j in range(1, 6):
            if rng.random() < 0.4:
                X[:, j] = X[:, :j] @ rng.normal(size=j) if rng.random() < 0.8 else 7.0
        Z = np.column_stack([np.ones(60), X])
        unit = Z / np.linalg.norm(Z, axis=0)
        ranks = [np.linalg.matrix_rank(unit[:, : j + 1], tol=1e-9) for j in range(7)]
        expected = [j for j in range(1, 7) if ranks[j] == ranks[j - 1]]
        assert find_redundant(Z.T @ Z).tolist() == expected


def test_a_rare_level_that_the_scale_sample_misses_is_kept() -> None:
    n = 50_000
    X = np.zeros((n, 2))
    X[1, 0] = X[5, 0] = 1.0  # evenly spaced sampling looks at every twelfth row
    X[:, 1] = np.arange(n)
    rng = np.random.default_rng(0)
    y = rng.normal(size=n) + 3 * X[:, 0]
    moments = compute_moments(Rows(X, y, None, np.zeros(n, int)), 2)
    assert moments.coordinates.used.tolist() == [0, 1]
    slope = np.linalg.lstsq(np.column_stack([np.ones(n), X / [1, n]]), y, rcond=None)[0][1]
    b = np.linalg.solve(moments.gram, moments.by_report.sum(axis=0)[:3, 3])
    assert moments.coordinates.to_raw(b[:, None])[1, 0] == pytest.approx(slope, rel=1e-9)
