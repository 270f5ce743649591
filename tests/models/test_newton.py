"""The solver finds a minimum or says that there is none: whatever it returns is checked here again."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable

import numpy as np
import pytest
from scipy.linalg import eigvalsh, solve

from fairpremium.blocks import Rows
from fairpremium.errors import ConvergenceError, RiskUnboundedError
from fairpremium.families import Bernoulli, Family, Gamma, Normal, Poisson, Tweedie
from fairpremium.models import LinearModel, LinearProblem, prepare

FAMILIES = [Normal(), Poisson(), Gamma(), Tweedie(1.5), Bernoulli()]


def problem_of(rows: Rows, codes: int, family: Family, **settings: float) -> LinearProblem:
    return prepare(rows, codes, family, LinearModel(**settings), [f"x{j}" for j in range(rows.n_features)])


def assert_minimum(problem: LinearProblem, table: np.ndarray, strength: float, B: np.ndarray) -> None:
    """Assert a vanishing gradient and a positive definite Hessian, summed here from the rows."""
    rows, family, K = problem.rows, problem.family, len(table)
    Z = problem.moments.coordinates.matrix(rows.X)
    q = Z.shape[1]
    w = np.ones(len(rows)) if rows.weight is None else rows.weight
    a = table.T[rows.report] * w[:, None]
    _, slope, curvature = family.loss_terms(rows.y[:, None], Z @ B)
    centering = np.eye(K) - 1 / K
    ridge = np.zeros((q, q)) if problem.ridge is None else problem.ridge  # of levels without a loss
    gradient = Z.T @ (a * slope) + strength * problem.metric @ B @ centering + ridge @ B
    hessian = np.kron(centering, strength * problem.metric) + np.kron(np.eye(K), ridge)
    for k in range(K):
        hessian[k * q : (k + 1) * q, k * q : (k + 1) * q] += (Z * (a * curvature)[:, [k]]).T @ Z
    assert np.isfinite(B).all()
    assert eigvalsh(hessian)[0] > 0
    left = solve(hessian, gradient.T.ravel(), assume_a="pos").reshape(K, q).T  # the Newton step that is left
    assert np.sqrt(np.mean((Z @ left) ** 2)) <= 1e-5 * (1 + np.sqrt(np.mean((Z @ B) ** 2)))


@pytest.mark.parametrize("family", FAMILIES, ids=repr)
@pytest.mark.parametrize("shape", ["normal", "rare level", "heavy tail"])
def test_either_a_verified_minimum_or_an_error_that_says_so(draw: Callable, family: Family, shape: str) -> None:
    """Hundreds of problems from comfortable to hopeless: no other error, no warning, no NaN, no saddle."""
    outcomes = {"minimum": 0, "error": 0}
    settings = itertools.product((12, 40, 150, 600), (2, 3), (0.9, 0.62), (0.0, 5.0), range(3))
    for i, (n, K, keep, strength, features) in enumerate(settings):
        keep = max(keep, 1 / K + 0.15)
        drawn = draw(family, 1000 + i, n=n, K=K, features=features, keep=keep, weights=i % 2 == 0)
        rng = np.random.default_rng(i)
        X = drawn.rows.X
        if shape == "rare level" and features:
            X = np.column_stack([rng.random(n) < 0.08, X[:, 1:]])
        if shape == "heavy tail" and features:
            X = np.column_stack([rng.standard_t(1.1, size=n), X[:, 1:]])
        rows = Rows(X, drawn.rows.y, drawn.rows.weight, drawn.rows.report)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", "The features", UserWarning)  # constant by chance: rightly named
            warnings.filterwarnings("ignore", "The rows of .* have no loss", UserWarning)  # likewise
            try:
                problem = problem_of(rows, K + 1, family)
                minimum = problem.solve(drawn.table, strength, tuple(range(K)))
            except (RiskUnboundedError, ConvergenceError):
                outcomes["error"] += 1
                continue
            except ValueError as error:  # all outcomes zero, or all one
                assert "mean" in str(error)  # noqa: PT017
                outcomes["error"] += 1
                continue
        assert_minimum(problem, drawn.table, strength, minimum.B)
        outcomes["minimum"] += 1
    assert min(outcomes.values()) >= 10, outcomes  # the problems are neither all easy nor all hopeless


@pytest.mark.parametrize("family", [Poisson(), Gamma(), Tweedie(1.5)], ids=repr)
def test_an_outlier_with_a_negative_weight_ends_in_an_error_not_in_overflow(family: Family) -> None:
    """exp(eta) of the outlier runs to minus infinity long before the other rows notice."""
    for seed, sign, size in itertools.product(range(2), (-1, 1), (50.0, 3000.0)):
        rng = np.random.default_rng(seed)
        n = 3000
        X = rng.normal(size=(n, 1))
        X[:2] = sign * size
        report = rng.integers(2, size=n)
        report[:2] = 0
        report[2:5] = 2  # missing: weight zero times an infinite loss
        y = rng.poisson(1.0, n) + (family == Gamma())
        problem = problem_of(Rows(X, y.astype(float), None, report), 3, family)
        table = np.hstack([np.linalg.inv([[0.7, 0.3], [0.3, 0.7]]), np.zeros((2, 1))])
        try:
            minimum = problem.solve(table, 0.0, (0, 1))
        except (RiskUnboundedError, ConvergenceError):
            continue
        assert_minimum(problem, table, 0.0, minimum.B)


def test_an_indefinite_group_is_named_with_its_effective_rows(draw: Callable) -> None:
    """Group "rare" has signed weights that sum to less than nothing in a cell of x."""
    x = np.repeat([0.0, 1.0], 50)
    report = np.zeros(100, dtype=int)
    report[:20] = 1  # 20 of 50 report "rare" at x = 0, and 2 of 50 at x = 1, where noise alone gives 10
    report[50:52] = 1
    table = np.hstack([np.linalg.inv([[0.8, 0.2], [0.2, 0.8]]), np.zeros((2, 1))])
    rows = Rows(x[:, None], np.arange(100.0) % 7, None, report)
    a = table[1][report]
    assert a[50:].sum() < 0 < a[:50].sum()  # so the quadratic has a saddle for group 1
    with pytest.raises(RiskUnboundedError) as caught:
        problem_of(rows, 3, Normal()).solve(table, 0.0, ("common", "rare"))
    error = caught.value
    assert error.group == "rare"
    assert error.effective_rows == pytest.approx(a.sum() ** 2 / (a**2).sum())
    for words in ("'rare'", "effective rows", "2 coefficients", "more data", "pooling", "ridge", "less noisy"):
        assert words in str(error)
    pooled = problem_of(rows, 3, Normal()).solve(table, 1000.0, ("common", "rare"))  # what helps, helps
    assert np.isfinite(pooled.B).all()


@pytest.mark.parametrize("family", [Poisson(), Gamma(), Tweedie(1.5), Bernoulli()], ids=repr)
@pytest.mark.parametrize("case", ["volume", "losses"])
def test_a_risk_without_lower_bound_is_refused(family: Family, case: str) -> None:
    """In the cell x = 1 of group 1 the signed volume, or the signed losses, are negative: no minimum exists."""
    rng = np.random.default_rng(0)
    n = 400
    x = np.repeat([0.0, 1.0], n // 2)
    report = rng.permutation(np.repeat([0, 1], n // 2))
    y = np.ones(n) if family != Bernoulli() else (rng.random(n) < 0.5).astype(float)
    if case == "volume":
        report[n // 2 :] = np.where(np.arange(n // 2) < 10, 1, 0)
    elif family == Bernoulli():
        y[n // 2 :] = report[n // 2 :] == 0  # nobody with report 1 has a claim there
    else:
        y[n // 2 :] = np.where(report[n // 2 :] == 1, 0.01, 5.0)
    table = np.hstack([np.linalg.inv([[0.7, 0.3], [0.3, 0.7]]), np.zeros((2, 1))])
    a = table[1][report][n // 2 :]
    assert (a.sum() if case == "volume" else a @ y[n // 2 :]) < 0
    rows = Rows(x[:, None], y + 0.01 * rng.random(n) * (family != Bernoulli()), None, report)
    with pytest.raises(RiskUnboundedError) as caught:
        problem_of(rows, 3, family).solve(table, 0.0, ("a", "b"))
    if case == "volume":
        assert caught.value.group == "b"


@pytest.mark.parametrize("family", [Poisson(), Bernoulli()], ids=repr)
def test_a_level_without_claims_has_no_minimum_and_is_given_a_ridge(family: Family) -> None:
    """The ordinary fit of a cell without a claim has its infimum at a price of zero."""
    x = np.zeros(1000)
    x[:20] = 1.0
    y = np.where(x == 1, 0.0, np.arange(1000) % (3 if family == Poisson() else 2)).astype(float)
    rows = Rows(x[:, None], y, None, np.zeros(1000, dtype=int))
    with pytest.warns(UserWarning, match="have no loss at all.*ridge"):
        given = problem_of(rows, 2, family)
    problem = problem_of(rows, 2, family, ridge=1.0)
    np.testing.assert_allclose(given.unaware, problem.unaware)
    eta = problem.moments.coordinates.matrix(np.array([[1.0], [0.0]])) @ problem.unaware
    low, high = family.link.mean_of(eta)[:, 0]
    assert 0 < low < high


@pytest.mark.parametrize("family", [Poisson(), Bernoulli()], ids=repr)
def test_a_level_without_claims_in_one_group_is_named(family: Family) -> None:
    """With the true attribute there is no noise to undo, and the message does not speak of any."""
    x = (np.arange(1000) < 40).astype(float)
    group = np.arange(1000) // 2 % 2
    y = np.where((x == 1) & (group == 1), 0.0, np.arange(1000) % 2)
    rows = Rows(np.column_stack([np.arange(1000.0) % 7, x]), y, None, group)
    with pytest.raises(RiskUnboundedError, match=r"group 'b' has no minimum: the rows of \['x1'\]") as caught:
        problem_of(rows, 3, family).solve(np.eye(2, 3), 0.0, ("a", "b"))
    assert caught.value.group == "b"
    assert "noise" not in str(caught.value)
    assert np.isfinite(problem_of(rows, 3, family).solve(np.eye(2, 3), 10.0, ("a", "b")).B).all()  # what helps, helps


def test_a_group_of_few_rows_is_named_without_speaking_of_noise() -> None:
    rng = np.random.default_rng(0)
    group = (np.arange(1000) < 2).astype(int)
    rows = Rows(rng.normal(size=(1000, 3)), rng.normal(size=1000), None, group)
    with pytest.raises(RiskUnboundedError, match="group 'b' has no minimum: its 2 effective rows") as caught:
        problem_of(rows, 3, Normal()).solve(np.eye(2, 3), 0.0, ("a", "b"))
    assert caught.value.effective_rows == 2
    assert "nois" not in str(caught.value)


def test_the_start_is_not_changed(draw: Callable) -> None:
    drawn = draw(Poisson(), 0, n=500)
    problem = problem_of(drawn.rows, 3, Poisson())
    before = problem.unaware.copy()
    problem.solve(drawn.table, 0.0, (0, 1))
    np.testing.assert_array_equal(problem.unaware, before)


@pytest.mark.parametrize("family", FAMILIES[1:], ids=repr)
def test_the_returned_hessian_belongs_to_the_minimum(draw: Callable, family: Family) -> None:
    """Standard errors rest on it: two per cent of a Hessian are two per cent of a variance."""
    for seed in range(5):
        drawn = draw(family, seed, n=4000, K=2, keep=0.9)
        problem = problem_of(drawn.rows, 3, family)
        minimum = problem.solve(drawn.table, 0.0, (0, 1))
        at = problem.risk(drawn.table).expand(minimum.B).hessian
        q = problem.moments.q
        for k in range(2):
            returned = minimum.hessian[k * q : (k + 1) * q, k * q : (k + 1) * q]
            ratio = eigvalsh(returned, at[k])  # all one if they agree
            np.testing.assert_allclose(ratio, 1, atol=0.02)


def test_the_returned_hessian_belongs_to_the_minimum_when_groups_hardly_differ() -> None:
    """The solver then stops after steps with the Hessian of its start; the variance inherits twice its error."""
    table = np.hstack([np.linalg.inv([[0.85, 0.15], [0.15, 0.85]]), np.zeros((2, 1))])
    for seed in range(25):
        rng = np.random.default_rng(seed)
        n = 5000
        X, D = rng.normal(size=(n, 2)), rng.integers(2, size=n)
        y = rng.poisson(np.exp(-1 + 0.05 * D + 0.3 * X[:, 0])).astype(float)
        report = np.where(rng.random(n) < 0.85, D, 1 - D)
        problem = problem_of(Rows(X, y, None, report), 3, Poisson())
        minimum = problem.solve(table, 0.0, (0, 1))
        at = problem.risk(table).expand(minimum.B).hessian
        for k in range(2):
            returned = minimum.hessian[3 * k : 3 * k + 3, 3 * k : 3 * k + 3]
            np.testing.assert_allclose(eigvalsh(returned, at[k]), 1, atol=0.02)
