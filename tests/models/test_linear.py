"""Signed generalised linear fits: against normal equations, scikit-learn, scipy, and their own invariances."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy.linalg import block_diag, eigvalsh
from scipy.optimize import minimize
from sklearn.linear_model import (
    GammaRegressor,
    LinearRegression,
    LogisticRegression,
    PoissonRegressor,
    Ridge,
    TweedieRegressor,
)

from fairpremium.blocks import Rows
from fairpremium.errors import ConvergenceError, RiskUnboundedError
from fairpremium.families import Bernoulli, Family, Gamma, Normal, Poisson, Tweedie
from fairpremium.models import LinearModel, LinearProblem, _linear, prepare

FAMILIES = [Normal(), Poisson(), Gamma(), Tweedie(1.3), Bernoulli()]
every_family = pytest.mark.parametrize("family", FAMILIES, ids=repr)


def problem_of(rows: Rows, K: int, family: Family, **settings: Any) -> LinearProblem:
    names = [f"x{j}" for j in range(rows.n_features)]
    return prepare(rows, K + 1, family, LinearModel(**settings), names)


def raw_fit(rows: Rows, table: np.ndarray, family: Family, strength: float = 0.0, **settings: Any) -> np.ndarray:
    """Coefficients on the caller's scale, shape (1 + features, K)."""
    problem = problem_of(rows, table.shape[1] - 1, family, **settings)
    minimum = problem.solve(table, strength, tuple(range(len(table))))
    return problem.moments.coordinates.to_raw(minimum.B)


def predictor(rows: Rows, table: np.ndarray, family: Family, strength: float = 0.0, **settings: float) -> np.ndarray:
    """Linear predictors of the rows in the solver's own coordinates."""
    problem = problem_of(rows, table.shape[1] - 1, family, **settings)
    minimum = problem.solve(table, strength, tuple(range(len(table))))
    return problem.moments.coordinates.matrix(rows.X) @ minimum.B


# --- against other solvers -------------------------------------------------------------------------------


@pytest.mark.parametrize("K", [2, 3, 4, 5])
def test_normal_fit_solves_the_signed_normal_equations(draw: Callable, K: int) -> None:
    drawn = draw(Normal(), K, n=8000, K=K, features=3, keep=0.8)
    Z, a = drawn.design, drawn.signed
    expected = np.column_stack(
        [np.linalg.solve((Z * a[:, [k]]).T @ Z, (Z * a[:, [k]]).T @ drawn.rows.y) for k in range(K)]
    )
    np.testing.assert_allclose(raw_fit(drawn.rows, drawn.table, Normal()), expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("family", FAMILIES, ids=repr)
def test_true_groups_give_the_fits_of_scikit_learn(draw: Callable, family: Family) -> None:
    """With an indicator table each group is an ordinary weighted fit on its own rows."""
    drawn = draw(family, 1, n=2000, K=2)
    rows = Rows(drawn.rows.X, drawn.rows.y, drawn.rows.weight, drawn.groups)
    ours = raw_fit(rows, np.eye(2, 3), family)
    exact = {"alpha": 0, "tol": 1e-10, "max_iter": 10_000}
    reference = {
        "normal": LinearRegression(),
        "poisson": PoissonRegressor(solver="newton-cholesky", **exact),
        "gamma": GammaRegressor(solver="newton-cholesky", **exact),
        "tweedie": TweedieRegressor(power=1.3, link="log", solver="newton-cholesky", **exact),
        "bernoulli": LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-12, max_iter=1000),
    }[family.name]
    for k in range(2):
        own = drawn.groups == k
        reference.fit(rows.X[own], rows.y[own], sample_weight=rows.weight[own])
        theirs = np.append(reference.intercept_, np.ravel(reference.coef_))
        np.testing.assert_allclose(ours[:, k], theirs, rtol=1e-5, atol=1e-6)


@every_family
def test_signed_fit_equals_a_general_optimiser(draw: Callable, family: Family) -> None:
    drawn = draw(family, 2, n=6000, K=3, keep=0.75)
    problem = problem_of(drawn.rows, 3, family)
    ours = problem.solve(drawn.table, 0.0, (0, 1, 2)).B
    Z, a = problem.moments.coordinates.matrix(drawn.rows.X), drawn.signed
    assert (a < 0).any()
    for k in range(3):

        def value(b: np.ndarray, k: int = k) -> tuple[float, np.ndarray]:
            loss, slope, _ = family.loss_terms(drawn.rows.y, Z @ b)
            return float(a[:, k] @ loss), Z.T @ (a[:, k] * slope)

        twin = minimize(value, problem.unaware[:, 0], jac=True, method="BFGS", options={"gtol": 1e-7 * len(Z)})
        np.testing.assert_allclose(ours[:, k], twin.x, rtol=1e-4, atol=1e-4)
        assert value(ours[:, k])[0] <= value(twin.x)[0] + 1e-9 * abs(twin.fun)


def test_ridge_equals_scikit_learn_on_standardised_features(draw: Callable) -> None:
    drawn = draw(Normal(), 3, n=500, K=2, missing=0.0)
    X, y, w = drawn.rows.X, drawn.rows.y, drawn.rows.weight
    center = np.average(X, axis=0, weights=w)
    spread = np.sqrt(np.average((X - center) ** 2, axis=0, weights=w))
    for alpha in (0.5, 100.0):
        ridge = Ridge(alpha=alpha).fit((X - center) / spread, y, sample_weight=w)
        problem = problem_of(drawn.rows, 2, Normal(), ridge=alpha)
        unaware = problem.moments.coordinates.to_raw(problem.unaware)[:, 0]
        np.testing.assert_allclose(unaware[1:], ridge.coef_ / spread, rtol=1e-8)
        both = raw_fit(Rows(X, y, w, drawn.groups), np.eye(2, 3), Normal(), ridge=alpha)
        for k in range(2):
            own = drawn.groups == k
            group = Ridge(alpha=alpha).fit(((X - center) / spread)[own], y[own], sample_weight=w[own])
            np.testing.assert_allclose(both[1:, k], group.coef_ / spread, rtol=1e-8)


def test_ridge_can_mend_an_indefinite_group(draw: Callable) -> None:
    drawn = draw(Poisson(), 0, n=40, K=2, keep=0.6)
    with pytest.raises(RiskUnboundedError):
        raw_fit(drawn.rows, drawn.table, Poisson())
    assert np.isfinite(predictor(drawn.rows, drawn.table, Normal(), ridge=1e4, strength=1e4)).all()


# --- pooling ---------------------------------------------------------------------------------------------


@every_family
@pytest.mark.parametrize("strength", [3.0, 300.0])
@pytest.mark.parametrize("ridge", [0.0, 5.0])
def test_gradient_of_the_penalised_objective_vanishes(
    draw: Callable, family: Family, strength: float, ridge: float
) -> None:
    """The objective is written out again row by row; only the metric is taken from the problem."""
    drawn = draw(family, 4, n=1500, K=3, keep=0.8)
    y, w, a = drawn.rows.y, drawn.weight, drawn.signed
    problem = problem_of(drawn.rows, 3, family, ridge=ridge)
    Z = problem.moments.coordinates.matrix(drawn.rows.X)
    variance = np.average((Z - np.average(Z, axis=0, weights=w)) ** 2, axis=0, weights=w)

    def objective(b: np.ndarray) -> float:
        B = b.reshape(3, 3)
        risk = (a * family.loss_terms(y[:, None], Z @ B)[0]).sum()
        pooled = 0.0
        for k in range(3):
            apart = B[:, k] - B.mean(axis=1)
            pooled += strength / 2 * apart @ problem.metric @ apart
        return float(risk + pooled + ridge / 2 * (B**2 * variance[:, None]).sum())

    b = problem.solve(drawn.table, strength, (0, 1, 2)).B.ravel()
    h = 1e-4
    for j in range(9):
        e = np.eye(9)[j] * h
        up, middle, down = objective(b + e), objective(b), objective(b - e)
        second = (up - 2 * middle + down) / h**2
        assert second > 0
        # the Newton step that is left along this axis; differences lose about eight digits
        assert abs((up - down) / (2 * h) / second) < 2e-6


@every_family
@pytest.mark.parametrize("ridge", [0.0, 5.0])
def test_metric_is_the_mean_curvature_at_the_unaware_price(draw: Callable, family: Family, ridge: float) -> None:
    drawn = draw(family, 4, n=1500, K=3, keep=0.8)
    problem = problem_of(drawn.rows, 3, family, ridge=ridge)
    Z, w = problem.moments.coordinates.matrix(drawn.rows.X), drawn.weight
    curvature = family.loss_terms(drawn.rows.y, Z @ problem.unaware[:, 0])[2]
    variance = np.average((Z - np.average(Z, axis=0, weights=w)) ** 2, axis=0, weights=w)
    expected = ((Z * (w * curvature)[:, None]).T @ Z + ridge * np.diag(variance)) / w.sum()
    # "at B or next to it": the solver may keep a Hessian of an earlier step
    np.testing.assert_allclose(eigvalsh(problem.metric, expected), 1, atol=0.05)


@every_family
def test_endless_pooling_gives_the_unaware_fit_of_the_rows_that_reported(draw: Callable, family: Family) -> None:
    """The columns of T^-1 sum to one, so that one price for all has the ordinary risk of the reporting rows."""
    drawn = draw(family, 5, n=1500, K=3, keep=0.7)
    pooled = raw_fit(drawn.rows, drawn.table, family, strength=1e10)
    reported = drawn.rows.take(drawn.rows.report < 3)
    problem = problem_of(reported, 3, family)
    unaware = problem.moments.coordinates.to_raw(problem.unaware)
    np.testing.assert_allclose(pooled, np.repeat(unaware, 3, axis=1), rtol=1e-4, atol=1e-5)


@every_family
def test_without_pooling_each_group_is_its_own_fit(draw: Callable, family: Family) -> None:
    drawn = draw(family, 6, n=3000, K=3, keep=0.8)
    together = raw_fit(drawn.rows, drawn.table, family)
    for k in range(3):
        np.testing.assert_allclose(
            together[:, [k]], raw_fit(drawn.rows, drawn.table[[k]], family), rtol=1e-6, atol=1e-8
        )


# --- invariances -----------------------------------------------------------------------------------------


@every_family
@pytest.mark.parametrize(("a", "b"), [(1e-6, 1e6), (1e6, -1e9), (-1e-3, 0.0), (1e-9, 1.0)])
def test_scale_of_the_features_changes_no_prediction(draw: Callable, family: Family, a: float, b: float) -> None:
    drawn = draw(family, 7, n=2000, K=2)
    moved = Rows(a * drawn.rows.X + b, drawn.rows.y, drawn.rows.weight, drawn.rows.report)
    lost = np.finfo(float).eps * (1 + abs(b / a))  # digits that x loses when it is written as a x + b
    for settings in ({}, {"ridge": 10.0}):
        np.testing.assert_allclose(
            predictor(moved, drawn.table, family, 20.0, **settings),
            predictor(drawn.rows, drawn.table, family, 20.0, **settings),
            atol=1e-6 + 100 * lost,
        )


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_scale_of_the_outcome_scales_the_prices(draw: Callable, unit: float) -> None:
    drawn = draw(Normal(), 8, n=1000, K=2)
    moved = Rows(drawn.rows.X, unit * (drawn.rows.y + 3), drawn.rows.weight, drawn.rows.report)
    np.testing.assert_allclose(
        predictor(moved, drawn.table, Normal(), 5.0) / unit,
        predictor(drawn.rows, drawn.table, Normal(), 5.0) + 3,
        rtol=1e-8,
    )


@every_family
def test_redundant_features_are_named_and_change_nothing(draw: Callable, family: Family) -> None:
    drawn = draw(family, 9, n=1000, K=2)
    X = drawn.rows.X
    wide = np.column_stack([np.full(1000, 3.3), X[:, 0], X[:, 0] * 2 - 1, X[:, 1], X[:, 0] + X[:, 1]])
    rows = Rows(wide, drawn.rows.y, drawn.rows.weight, drawn.rows.report)
    with pytest.warns(UserWarning, match=r"\['one', 'double', 'sum'\]") as record:
        problem = prepare(rows, 3, family, LinearModel(), ["one", "x0", "double", "x1", "sum"])
    assert len(record) == 1
    fitted = problem.solve(drawn.table, 0.0, (0, 1))
    raw = problem.moments.coordinates.to_raw(fitted.B)
    np.testing.assert_array_equal(raw[[1, 3, 5]], 0)
    np.testing.assert_allclose(raw[[0, 2, 4]], raw_fit(drawn.rows, drawn.table, family), rtol=1e-6, atol=1e-8)


@every_family
def test_weights_equal_repeated_rows(draw: Callable, family: Family) -> None:
    drawn = draw(family, 10, n=1200, K=2, weights=False)
    times = np.random.default_rng(0).integers(0, 4, size=1200)
    weighted = Rows(drawn.rows.X, drawn.rows.y, times.astype(float), drawn.rows.report)
    repeated = drawn.rows.take(np.repeat(np.arange(1200), times))
    np.testing.assert_allclose(
        raw_fit(weighted, drawn.table, family, 10.0),
        raw_fit(repeated, drawn.table, family, 10.0),
        rtol=1e-6,
        atol=1e-8,
    )


@pytest.mark.parametrize("family", FAMILIES[:-1], ids=repr)
def test_merging_equal_rows_is_exact(draw: Callable, family: Family) -> None:
    """Equal (x, s) with the sum of the weights and the weighted mean of y: the same point estimates.

    (A mean of zeros and ones is no outcome of the Bernoulli family.)
    """
    drawn = draw(family, 11, n=3000, K=2)
    X = np.round(drawn.rows.X)
    key = np.column_stack([X, drawn.rows.report])
    cells, cell = np.unique(key, axis=0, return_inverse=True)
    w = np.bincount(cell.ravel(), weights=drawn.rows.weight)
    y = np.bincount(cell.ravel(), weights=drawn.rows.weight * drawn.rows.y) / w
    if family == Gamma():
        assert (y > 0).all()
    merged = Rows(cells[:, :-1], y, w, cells[:, -1].astype(int))
    rows = Rows(X, drawn.rows.y, drawn.rows.weight, drawn.rows.report)
    np.testing.assert_allclose(
        raw_fit(merged, drawn.table, family, 10.0), raw_fit(rows, drawn.table, family, 10.0), rtol=1e-6, atol=1e-8
    )


@pytest.mark.parametrize("family", [Normal(), Poisson()], ids=repr)
def test_the_order_of_the_rows_does_not_matter(draw: Callable, family: Family) -> None:
    drawn = draw(family, 12, n=20_000, K=2)
    shuffled = drawn.rows.take(np.random.default_rng(0).permutation(20_000))
    np.testing.assert_allclose(
        raw_fit(shuffled, drawn.table, family), raw_fit(drawn.rows, drawn.table, family), rtol=1e-6, atol=1e-8
    )


def test_no_features_give_the_corrected_means(draw: Callable) -> None:
    drawn = draw(Poisson(), 13, n=2000, K=2, features=0)
    a = drawn.signed
    mean = (a * drawn.rows.y[:, None]).sum(axis=0) / a.sum(axis=0)
    np.testing.assert_allclose(raw_fit(drawn.rows, drawn.table, Poisson())[0], np.log(mean), rtol=1e-8)


@pytest.mark.parametrize("family", [Poisson(), Gamma(), Bernoulli()], ids=repr)
@pytest.mark.parametrize("slopes", ["own", "common"])
def test_a_first_solution_on_a_sample_leads_to_the_same_minimum(
    draw: Callable, monkeypatch: pytest.MonkeyPatch, family: Family, slopes: str
) -> None:
    drawn = draw(family, 14, n=8000, K=2, keep=0.8)
    whole = raw_fit(drawn.rows, drawn.table, family, 5.0, slopes=slopes)
    # the solver stops at 1e-7 of the size of the linear predictors
    monkeypatch.setattr(_linear, "_SAMPLE_FROM", 1000)
    for size in (1600, 20):  # few rows are hopeless on their own
        monkeypatch.setattr(_linear, "_SAMPLE_ROWS", (size, size))
        found = raw_fit(drawn.rows, drawn.table, family, 5.0, slopes=slopes)
        np.testing.assert_allclose(found, whole, rtol=1e-6, atol=1e-6)


def test_many_rows_are_read_few_times(draw: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    """One pass for the moments, three for the unaware price, few for the groups, and none for a Hessian not asked for.

    Without a sample it takes twice as many, half of them with Hessians.
    """
    drawn = draw(Poisson(), 15, n=60_000, K=3, keep=0.8, features=4)
    passes: list[str] = []
    reduce = Rows.reduce

    def count(self: Rows, function: Any, **settings: Any) -> Any:
        if len(self) == 60_000:
            given = function.keywords if isinstance(function, partial) else {}
            passes.append("hessian" if given.get("hessian", "_by_report" in repr(function)) else "")
        return reduce(self, function, **settings)

    monkeypatch.setattr(Rows, "reduce", count)
    monkeypatch.setattr(_linear, "_SAMPLE_FROM", 50_000)
    monkeypatch.setattr(_linear, "_SAMPLE_ROWS", (10_000, 10_000))
    problem = prepare(drawn.rows, 4, Poisson(), LinearModel(), list("abcd"))
    assert len(passes) <= 1 + 3
    assert passes.count("hessian") == 1
    passes.clear()
    minimum = problem.solve(drawn.table, 0.0, ("a", "b", "c"))
    assert len(passes) <= 5
    assert "hessian" not in passes
    exact = problem.risk(drawn.table).expand(minimum.B)
    np.testing.assert_allclose(minimum.hessian, block_diag(*exact.hessian))
    step = np.linalg.solve(minimum.hessian, exact.gradient.T.ravel()).reshape(3, -1).T
    size = np.sqrt(np.mean((problem.moments.coordinates.matrix(drawn.rows.X) @ minimum.B) ** 2))
    assert np.abs(problem.moments.coordinates.matrix(drawn.rows.X) @ step).max() < 1e-6 * (1 + size)


def test_coefficients_of_a_known_truth_without_noise() -> None:
    """y is exactly the price: every family must give it back, however badly the features are scaled."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(1e5, 1e3, 500), rng.normal(0, 1e-5, 500), rng.random(500) < 0.02])
    D = rng.integers(3, size=500)
    truth = np.array([[-1.0, 0.5, 1.0], [1e-4, 2e-4, 0.0], [1e4, -2e4, 3e4], [0.5, 0.1, -1.0]])
    truth[0] -= 1e5 * truth[1]
    eta = np.einsum("ij,ji->i", np.column_stack([np.ones(500), X]), truth[:, D])
    for family in (Normal(), Poisson(), Gamma(), Tweedie(1.6)):
        rows = Rows(X, family.link.mean_of(eta), None, D)
        np.testing.assert_allclose(raw_fit(rows, np.eye(3, 4), family), truth, rtol=1e-6, atol=1e-6)


# --- settings and messages -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "bad",
    [
        {"ridge": -1},
        {"ridge": np.inf},
        {"ridge": np.nan},
        {"ridge": True},
        {"ridge": "1"},
        {"max_iter": 0},
        {"max_iter": 2.5},
        {"tol": "1e-7"},
        {"tol": 0},
        {"tol": 1},
    ],
)
def test_settings_out_of_range_are_named(bad: dict[str, float]) -> None:
    ((name, value),) = bad.items()
    with pytest.raises(ValueError, match=f"Got {name}={value!r}"):
        LinearModel(**bad).check()


@pytest.mark.parametrize(("family", "y"), [(Poisson(), 0.0), (Tweedie(), 0.0), (Bernoulli(), 0.0), (Bernoulli(), 1.0)])
def test_outcomes_that_are_all_zero_or_one_are_explained(family: Family, y: float) -> None:
    rows = Rows(np.arange(10.0)[:, None], np.full(10, y), None, np.arange(10) % 2)
    with pytest.raises(ValueError, match=rf"mean {y:g}, but the {family.name} family"):
        problem_of(rows, 2, family)


def test_too_few_passes_are_reported(draw: Callable) -> None:
    drawn = draw(Poisson(), 15, n=500)
    with pytest.raises(ConvergenceError, match="did not converge in 1 passes"):
        problem_of(drawn.rows, 2, Poisson(), max_iter=1)


def test_a_fit_warns_of_nothing(draw: Callable) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for family in FAMILIES:
            raw_fit(draw(family, 16).rows, draw(family, 16).table, family)
