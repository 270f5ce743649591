"""Gradient descent on signed weights: against a slow reference, against the closed form, and what it records."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fairpremium.paper._descent import descend, held_out_loss, record_epochs
from fairpremium.paper._real import inverse_weights
from fairpremium.privacy import RandomizedResponse


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    X = np.column_stack([np.ones(60), rng.normal(size=(60, 2))])
    D = rng.integers(0, 2, size=60)
    y = X @ [1.0, 2.0, -1.0] + D * X[:, 1] + rng.normal(size=60)
    S = np.where(rng.random(60) < 0.8, D, 1 - D)
    return X, y, D, S


def slow_descent(X, y, w, family, epochs):
    n, p = X.shape
    largest = max(np.linalg.eigvalsh(X.T @ X / n))
    step = 1 / largest if family == "normal" else 4 / largest
    beta, path = [0.0] * p, []
    for _ in range(epochs):
        gradient = [0.0] * p
        for i in range(n):
            eta = sum(X[i, j] * beta[j] for j in range(p))
            mean = eta if family == "normal" else 1 / (1 + math.exp(-eta))
            for j in range(p):
                gradient[j] += w[i] * (mean - y[i]) * X[i, j] / n
        beta = [b - step * g for b, g in zip(beta, gradient, strict=True)]
        path.append(beta)
    return np.array(path)


@pytest.mark.parametrize("family", ["normal", "bernoulli"])
def test_descent_is_its_slow_reference_for_every_column_of_weights(rows, family):
    X, y, D, S = rows
    if family == "bernoulli":
        y = (y > 1).astype(float)
    W = np.hstack([inverse_weights(S, 0.8), inverse_weights(D, 0.999)])
    fast = descend(X, y, W, family=family, epochs=12)
    kept = [e - 1 for e in record_epochs(12)]
    for m in range(W.shape[1]):
        np.testing.assert_allclose(fast[:, :, m], slow_descent(X, y, W[:, m], family, 12)[kept], rtol=1e-9, atol=1e-12)


def test_descent_ends_at_the_weighted_least_squares_fit(rows):
    X, y, D, _ = rows
    W = inverse_weights(D, 0.95)  # of either sign
    beta = descend(X, y, W, family="normal", epochs=3000)[-1]
    for k in range(2):
        A = X.T @ (W[:, [k]] * X)
        assert np.linalg.eigvalsh(A)[0] > 0  # a minimum exists in this sample
        np.testing.assert_allclose(beta[:, k], np.linalg.solve(A, X.T @ (W[:, k] * y)), rtol=1e-6)


def test_a_risk_without_a_minimum_lets_prices_grow():
    X = np.ones((4, 1))
    beta = descend(X, np.ones(4), np.array([[1.0, -0.5]] * 4), family="normal", epochs=50)
    assert abs(beta[-1, 0, 0] - 1) < 1e-9
    assert beta[-1, 0, 1] < -1e8


def test_weights_are_the_columns_of_the_inverse_channel(rows):
    S = rows[3]
    channel = RandomizedResponse([0, 1], keep=0.8)
    np.testing.assert_allclose(inverse_weights(S, 0.8), channel.inverse[:, S].T, rtol=1e-6)  # integer weights


@pytest.mark.parametrize("family", ["normal", "bernoulli"])
def test_held_out_loss_row_by_row(rows, family):
    X, y, D, _ = rows
    y = (y > 1).astype(float)
    beta = np.random.default_rng(1).normal(size=(3, 5, X.shape[1], 2))
    found = held_out_loss(X, y, D, beta, family=family)
    assert found.shape == (3, 5)
    for a in range(3):
        for b in range(5):
            total = 0.0
            for i in range(len(y)):
                eta = float(X[i] @ beta[a, b, :, D[i]])
                p = 1 / (1 + math.exp(-eta))
                total += (y[i] - eta) ** 2 if family == "normal" else -math.log(p if y[i] else 1 - p)
            assert found[a, b] == pytest.approx(total / len(y), rel=1e-9)


@pytest.mark.parametrize("epochs", [1, 2, 60, 300])
def test_the_first_and_the_last_epoch_are_recorded(epochs):
    kept = record_epochs(epochs)
    assert kept[0] == 1
    assert kept[-1] == epochs
    assert list(kept) == sorted(set(kept))
