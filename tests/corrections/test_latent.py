"""The likelihood with a latent attribute: against finite differences, plain loops, SciPy and scikit-learn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp
from sklearn.linear_model import LogisticRegression

from fairpremium.blocks import Block, Rows
from fairpremium.corrections import _latent as latent_module
from fairpremium.corrections._latent import Latent, Parameters, log_softmax
from fairpremium.errors import ConvergenceError
from fairpremium.families import Bernoulli, Family, Gamma, NegativeBinomial, Normal, Poisson, Tweedie, law_of
from fairpremium.models import Penalty, Span

FAMILIES = [Normal(), Poisson(), Gamma(), Tweedie(1.5), Bernoulli(), NegativeBinomial()]


def z(block: Block) -> np.ndarray:
    return np.column_stack([np.ones(len(block.X)), block.X])


def draw(family: Family, T: np.ndarray, report: Callable, n: int = 300, seed: int = 0, weighted: bool = True) -> Rows:
    """Two features that move the groups' shares and, by group, the means."""
    rng = np.random.default_rng([seed, len(T)])
    K = T.shape[1]
    X = rng.normal(size=(n, 2))
    logits = 0.6 * X[:, :1] * np.arange(K) - 0.2 * np.arange(K)
    p = np.exp(logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)))
    D = (rng.random(n)[:, None] > np.cumsum(p, axis=1)[:, :-1]).sum(axis=1)
    eta = 0.2 + 0.7 * D + (0.3 - 0.3 * D) * X[:, 0] + 0.2 * X[:, 1]
    w = rng.uniform(0.5, 2.0, n) if weighted else np.ones(n)
    if family == Normal():
        y = rng.normal(eta, 1 / np.sqrt(w))
    elif family == Bernoulli():
        y = (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(float)
    elif family == Gamma():
        y = rng.gamma(2 * w, np.exp(eta) / (2 * w))
    elif isinstance(family, Tweedie):
        claims = rng.poisson(w * np.exp(eta))
        y = np.where(claims > 0, rng.gamma(2.0 * np.maximum(claims, 1), 0.5), 0.0) / w
    elif isinstance(family, NegativeBinomial):
        y = rng.poisson(rng.gamma(2.0, w * np.exp(eta) / 2)) / w
    else:
        y = rng.poisson(w * np.exp(eta)) / w
    return Rows(X, y, w if weighted else None, report(D, T, rng))


def make(
    rows: Rows,
    T: np.ndarray,
    family: Family | None,
    *,
    common: bool = True,
    ridge: float = 1.0,
    strength: float = 0.0,
) -> Latent:
    metric = np.array([[1.0, 0.2, 0.0], [0.2, 1.5, 0.1], [0.0, 0.1, 0.8]])
    return Latent(
        rows,
        np.vstack([T, np.ones(T.shape[1])]),
        z,
        3,
        ridge,
        None if family is None else law_of(family),
        None if family is None else z,
        None if family is None else Penalty(metric, strength, np.diag([0.0, 0.7, 0.7]) if strength else None),
        common,
    )


def some_parameters(latent: Latent, seed: int = 3) -> Parameters:
    rng = np.random.default_rng(seed)
    K, d = latent.n_groups, latent.n_dispersions
    gamma = rng.normal(0, 0.4, (K - 1, 3))
    if latent.law is None:
        return Parameters(gamma)
    lam = np.full(K, -0.2) if d == 1 else rng.normal(0, 0.3, K) if d else np.zeros(K)
    return Parameters(gamma, rng.normal(0, 0.3, (3, K)), lam)


CASES = [(None, True), *((f, True) for f in FAMILIES), *((f, False) for f in FAMILIES if f.has_dispersion)]
NAMES = [f"{f.name if f else 'no law'}, {'common' if c else 'by group'}" for f, c in CASES]


@pytest.mark.parametrize("plain", [False, True], ids=["weights, penalty", "plain"])
@pytest.mark.parametrize("K", [2, 3])
@pytest.mark.parametrize(("family", "common"), CASES, ids=NAMES)
def test_gradient_and_information_are_derivatives(
    family: Family | None, common: bool, K: int, plain: bool, randomized_response: Callable, report: Callable
) -> None:
    """Observed information is minus the derivative of the gradient, and the gradient that of the value."""
    T = randomized_response(K, 0.7)
    rows = draw(family or Normal(), T, report, weighted=not plain)
    latent = make(rows, T, family, common=common, strength=0.0 if plain else 15.0)
    at = latent.pack(some_parameters(latent))
    value, gradient, observed = latent.expand(latent.unpack(at))
    complete = latent._complete_information(latent.unpack(at))()
    assert value == pytest.approx(latent.value(latent.unpack(at)), rel=1e-12)
    h, size = 1e-5, len(at)
    slow_gradient, slow_information = np.empty(size), np.empty((size, size))
    for j in range(size):
        step = h * np.eye(size)[j]
        up, down = (latent.expand(latent.unpack(at + sign * step)) for sign in (1, -1))
        slow_gradient[j] = (up[0] - down[0]) / (2 * h)
        slow_information[j] = (down[1] - up[1]) / (2 * h)
    np.testing.assert_allclose(gradient, slow_gradient, rtol=1e-5, atol=1e-6 * np.abs(gradient).max())
    scale = np.abs(complete).max()
    np.testing.assert_allclose(observed, slow_information, rtol=1e-4, atol=2e-6 * scale)
    np.testing.assert_allclose(complete, complete.T, atol=1e-10 * scale)
    # what is missing is a covariance of scores: never negative definite anywhere
    assert np.linalg.eigvalsh(complete - observed).min() > -1e-9 * scale


def test_scores_along_a_vector_are_products_of_the_scores(randomized_response: Callable, report: Callable) -> None:
    T = randomized_response(3, 0.7)
    latent = make(draw(Normal(), T, report), T, None, common=True)
    at, block = some_parameters(latent), latent.rows.block(0, 300)
    along = np.random.default_rng(0).normal(size=at.gamma.size)
    r, products = latent.responsibilities_and_scores(block, at, along)
    np.testing.assert_allclose(r, latent.responsibilities(block, at), rtol=1e-12)
    np.testing.assert_allclose(products, latent.scores(block, at) @ along, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("family", [None, Normal(), NegativeBinomial()], ids=repr)
def test_scores_add_up_to_the_gradient(family: Family | None, randomized_response: Callable, report: Callable) -> None:
    T = randomized_response(3, 0.7)
    latent = make(draw(family or Normal(), T, report), T, family, common=False, ridge=0.0)
    at = some_parameters(latent)
    np.testing.assert_allclose(
        latent.scores(latent.rows.block(0, 300), at).sum(axis=0), latent.expand(at)[1], rtol=1e-9, atol=1e-9
    )


@pytest.mark.parametrize("K", [2, 3, 5])
@pytest.mark.parametrize(("family", "common"), CASES, ids=NAMES)
def test_pack_and_unpack_round_trip(
    family: Family | None, common: bool, K: int, randomized_response: Callable, report: Callable
) -> None:
    T = randomized_response(K, 0.7)
    latent = make(draw(family or Normal(), T, report, 20), T, family, common=common)
    at = some_parameters(latent)
    back = latent.unpack(latent.pack(at))
    np.testing.assert_array_equal(back.gamma, at.gamma)
    if family is not None:
        np.testing.assert_array_equal(back.B, at.B)
        np.testing.assert_array_equal(back.log_dispersion, at.log_dispersion)
    d = 0 if family is None or not family.has_dispersion else 1 if common else K
    assert len(latent.pack(at)) == (K - 1) * 3 + (0 if family is None else 3 * K) + d


@pytest.mark.parametrize("family", FAMILIES, ids=repr)
def test_value_report_log_loss_and_responsibilities_equal_plain_loops(
    family: Family, randomized_response: Callable, report: Callable
) -> None:
    K = 3
    T = randomized_response(K, 0.6)
    rows = draw(family, T, report, 40)
    latent = make(rows, T, family, ridge=0.0)
    at = some_parameters(latent)
    r = latent.responsibilities(rows.block(0, 40), at)
    loss = latent.report_log_loss(rows.block(0, 40), at)
    for i in range(40):
        zi = np.array([1.0, *rows.X[i]])
        logits = [0.0] + [at.gamma[k - 1] @ zi for k in range(1, K)]
        q = np.exp(logits) / np.sum(np.exp(logits))
        phi = float(np.exp(at.log_dispersion[0])) if family.has_dispersion else 1.0
        p = [
            np.exp(family.log_likelihood(rows.y[i], family.link.mean_of(at.B[:, k] @ zi), phi, rows.weight[i]))
            for k in range(K)
        ]
        joint = np.array([T[rows.report[i], k] * q[k] * p[k] for k in range(K)])
        np.testing.assert_allclose(r[i], joint / joint.sum(), rtol=1e-8)
        assert loss[i] == pytest.approx(-np.log(joint.sum() / (q @ p)), rel=1e-8)
    assert np.all(loss > 0)


def test_report_log_loss_of_a_missing_report_is_zero(randomized_response: Callable, report: Callable) -> None:
    T = randomized_response(2, 0.7)
    rows = draw(Normal(), T, report, 20)
    silent = replace(rows, report=np.full(20, 2))
    latent = make(silent, T, Normal())
    np.testing.assert_allclose(latent.report_log_loss(silent.block(0, 20), some_parameters(latent)), 0, atol=1e-12)


@pytest.mark.parametrize(
    ("family", "K"), [(f, K) for f in [None, *FAMILIES] for K in (2, 3) if not (K == 3 and isinstance(f, Tweedie))]
)
def test_maximise_ends_where_bfgs_ends(
    family: Family | None, K: int, randomized_response: Callable, report: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    T = randomized_response(K, 0.8)
    rows = draw(family or Normal(), T, report, 1000, seed=7)
    latent = make(rows, T, family, strength=5.0)
    start = Parameters(np.zeros((K - 1, 3)))
    if family is not None:
        B = np.array([[0.2 + 0.7 * k, 0.3 - 0.3 * k, 0.2] for k in range(K)]).T
        start = Parameters(np.zeros((K - 1, 3)), B, np.zeros(K))
    passes: list[float] = []
    plain_expand = Latent.expand

    def expand(self: Latent, at: Parameters) -> tuple[float, np.ndarray, np.ndarray]:
        result = plain_expand(self, at)
        passes.append(result[0])
        return result

    monkeypatch.setattr(Latent, "expand", expand)
    found = latent.maximise(start)
    monkeypatch.undo()
    flat, top = latent.pack(found), latent.value(found)
    assert top == pytest.approx(max(passes), rel=1e-9)  # it ends at the highest point it has seen
    assert len(passes) < 60

    def objective(x: np.ndarray) -> float:
        return -latent.value(latent.unpack(x)) / 1000

    twin = minimize(objective, latent.pack(start), method="BFGS", options={"gtol": 1e-5, "maxiter": 400})
    assert top >= -1000 * twin.fun - 1e-4
    np.testing.assert_allclose(flat, twin.x, atol=0.02)
    gradient = latent.expand(found)[1]
    error = np.sqrt(np.diag(np.linalg.inv(latent.expand(found)[2])))
    assert np.abs(gradient * error).max() < 1e-3  # a thousandth of a standard error from the top


@pytest.mark.parametrize("family", [None, Poisson()], ids=repr)
@pytest.mark.parametrize("seen", [True, False])
def test_many_rows_are_climbed_with_the_information_of_a_sample(
    family: Family | None,
    seen: bool,
    randomized_response: Callable,
    report: Callable,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    T = randomized_response(3, 0.8)
    rows = draw(family or Normal(), T, report, 4000, seed=3)
    if not seen:  # a feature that no row of the sample has
        rows.X[:, 1] = np.where(np.arange(4000) % 40 == 7, rows.X[:, 1] > 0, 0.0)
    latent = make(rows, T, family, strength=5.0)
    start = Parameters(np.zeros((2, 3)))
    if family is not None:
        B = np.array([[0.2 + 0.7 * k, 0.3 - 0.3 * k, 0.2] for k in range(3)]).T
        start = Parameters(np.zeros((2, 3)), B, np.zeros(3))
    passes: list[int] = []
    plain_expand = Latent.expand

    def expand(self: Latent, at: Parameters) -> tuple[float, np.ndarray, np.ndarray]:
        passes.append(len(self.rows))
        return plain_expand(self, at)

    monkeypatch.setattr(Latent, "expand", expand)
    exact, needed = latent.maximise(start), len(passes)
    passes.clear()
    monkeypatch.setattr(latent_module, "INFORMATION_ROWS", 500)
    found = latent.maximise(start)
    assert passes[0] == 500  # the first steps are those of the sample
    assert passes.count(4000) <= (needed - 2 if seen else needed + 1)  # all rows are asked where it does not lead on
    monkeypatch.undo()
    error = np.sqrt(np.diag(latent.covariance(exact)))
    np.testing.assert_array_less(np.abs(latent.pack(found) - latent.pack(exact)), 0.01 * error)


def test_propensities_are_climbed_with_little_information(
    randomized_response: Callable, report: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most passes are for the gradient alone; the last step is Newton's, so that the end is exact."""
    T = randomized_response(3, 0.8)
    latent = make(draw(Normal(), T, report, 3000, seed=5), T, None)
    counts = {"expand": 0, "_expand_without_information": 0}
    for name in counts:
        plain = getattr(Latent, name)

        def counted(self: Latent, at: Parameters, name: str = name, plain: Callable = plain) -> object:
            counts[name] += 1
            return plain(self, at)

        monkeypatch.setattr(Latent, name, counted)
    found = latent.maximise(Parameters(np.zeros((2, 3))))
    assert 2 <= counts["expand"] < counts["_expand_without_information"]
    gradient = latent.expand(found)[1]
    error = np.sqrt(np.diag(latent.covariance(found)))
    assert np.abs(gradient * error).max() < 1e-8


def test_features_of_a_propensity_are_computed_once(randomized_response: Callable, report: Callable) -> None:
    T = randomized_response(3, 0.8)
    latent = make(draw(Normal(), T, report, 3000, seed=5), T, None)
    priced = []

    def features(block: Block) -> np.ndarray:
        priced.append(len(block.y))
        return latent.features(block)

    start = Parameters(np.zeros((2, 3)))
    found = replace(latent, features=features).maximise(start)
    assert sum(priced) == 3000
    np.testing.assert_allclose(found.gamma, latent._climb(start, 200, 1e-6).gamma, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("groups", [2, 3, 12])
def test_log_sum_exp_is_that_of_scipy(groups: int) -> None:
    values = np.random.default_rng(0).normal(scale=300.0, size=(50, groups))
    values[0, 0] = -np.inf
    np.testing.assert_allclose(latent_module.log_sum_exp(values), logsumexp(values, axis=1), rtol=1e-14)


def test_what_is_missing_is_left_out_only_where_there_is_no_maximum() -> None:
    gradient, complete, asked = np.array([1.0, -2.0]), np.diag([4.0, 3.0]), []

    def ask() -> np.ndarray:
        asked.append(1)
        return complete

    step = latent_module._ascent(Span(), gradient, np.diag([2.0, 1.0]), ask)
    np.testing.assert_allclose(step, [0.5, -2.0])
    assert not asked
    missing = np.diag([0.0, 3.2])  # 97 % of it is too much, 90 % is not
    step = latent_module._ascent(Span(), gradient, complete - missing, ask)
    np.testing.assert_allclose(step, gradient / np.diag(complete - 0.9 * missing))
    assert asked


def test_accepted_steps_go_up(randomized_response: Callable, report: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a bad start, every point from which the next step is taken lies higher than the one before."""
    import fairpremium.corrections._latent as module

    T = randomized_response(3, 0.6)
    latent = make(draw(Normal(), T, report, 800), T, Normal(), common=False)
    start = Parameters(np.zeros((2, 3)), np.array([[3.0, 0, -3], [1, 0, 0], [0, 1, 0]]), np.full(3, 2.0))
    points: list[float] = []
    expansions: dict[bytes, float] = {}
    plain_expand, plain_ascent = Latent.expand, module._ascent

    def expand(self: Latent, at: Parameters) -> tuple[float, np.ndarray, np.ndarray]:
        result = plain_expand(self, at)
        expansions[result[1].tobytes()] = result[0]
        return result

    def ascent(span: Span, gradient: np.ndarray, observed: np.ndarray, complete: Callable) -> np.ndarray:
        points.append(expansions[gradient.tobytes()])
        step = plain_ascent(span, gradient, observed, complete)
        assert gradient @ step >= 0
        return step

    monkeypatch.setattr(Latent, "expand", expand)
    monkeypatch.setattr(module, "_ascent", ascent)
    latent.maximise(start)
    assert len(points) > 4
    assert np.all(np.diff(points) >= -1e-9 * np.abs(points[0]))


@pytest.mark.parametrize("K", [2, 3])
def test_the_loss_of_held_out_reports_is_that_of_fits_without_each_fold(
    K: int, randomized_response: Callable, report: Callable
) -> None:
    """Up to squares of what a fold moves: far less than what leaving it out costs."""
    T = randomized_response(K, 0.75)
    rows = draw(Normal(), T, report, 2000)
    latent = make(rows, T, None)
    at = latent.maximise(some_parameters(latent))
    fold = rows.draw_folds(5, np.random.default_rng(0))
    total = 0.0
    for f in range(5):
        train, held = rows.take(fold != f), rows.take(fold == f)
        without = latent.on(train).maximise(at)
        total += latent.report_log_loss(held.block(0, len(held)), without).sum()
    found, within = latent.held_out_report_loss(at, fold), latent.report_log_loss(rows.block(0, 2000), at).mean()
    assert total / 2000 > within
    assert abs(found - total / 2000) < 0.05 * (total / 2000 - within)


def test_too_few_passes_raise(randomized_response: Callable, report: Callable) -> None:
    T = randomized_response(2, 0.7)
    latent = make(draw(Normal(), T, report), T, Normal())
    with pytest.raises(ConvergenceError, match="did not converge in 1 passes"):
        latent.maximise(some_parameters(latent), max_iter=1)


@pytest.mark.parametrize("factor", [1e-4, 100.0, 1e4])
def test_maximise_does_not_care_about_the_unit_of_the_outcome(
    factor: float, randomized_response: Callable, report: Callable
) -> None:
    """Euros or cents or millions: the same maximum from the same start."""
    T = randomized_response(2, 0.8)
    rows = draw(Normal(), T, report, 1000)
    B = np.array([[1.5, 0.0, 0.0], [-0.5, 0.0, 0.0]]).T

    def at(unit: float) -> Parameters:
        latent = make(replace(rows, y=unit * rows.y), T, Normal())
        return latent.maximise(Parameters(np.zeros((1, 3)), unit * B, np.full(2, 2 * np.log(unit))))

    one, other = at(1.0), at(factor)
    np.testing.assert_allclose(other.B / factor, one.B, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(other.gamma, one.gamma, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("K", [2, 3])
def test_without_noise_the_propensity_is_logistic_regression(
    K: int, randomized_response: Callable, report: Callable
) -> None:
    """Our ridge is symmetric over groups: for K = 2 half of scikit-learn's penalty, for more the symmetric softmax."""
    T = randomized_response(K, 1 - 1e-12)
    rows = draw(Normal(), T, report, 2000)
    ridge = 3.0
    found = make(rows, T, None, ridge=ridge).maximise(Parameters(np.zeros((K - 1, 3))))
    C = 2 / ridge if K == 2 else 1 / ridge
    model = LogisticRegression(C=C, tol=1e-10, max_iter=5000).fit(rows.X, rows.report)
    coefficients = np.column_stack([model.intercept_, model.coef_])
    if K > 2:
        coefficients = coefficients[1:] - coefficients[:1]
    np.testing.assert_allclose(found.gamma, coefficients, atol=2e-5)


def test_ridge_does_not_depend_on_which_group_is_the_base(randomized_response: Callable, report: Callable) -> None:
    T = randomized_response(3, 0.7)
    rows = draw(Normal(), T, report, 500)
    turned = replace(rows, report=(rows.report + 1) % 3)
    zero = Parameters(np.zeros((2, 3)))
    one = make(rows, T, None, ridge=20.0).maximise(zero)
    other = make(turned, T, None, ridge=20.0).maximise(zero)
    Z = z(rows.block(0, 500))
    q, q_turned = log_softmax(Z @ one.gamma.T), log_softmax(Z @ other.gamma.T)
    np.testing.assert_allclose(q_turned[:, [1, 2, 0]], q, atol=1e-5)


def test_more_reports_than_groups(report: Callable) -> None:
    """A report that all groups give alike says nothing: leaving its rows out changes nothing."""
    T = np.array([[0.5, 0.1], [0.1, 0.5], [0.4, 0.4]])
    rows = draw(Normal(), T, report, 600)
    latent = make(rows, T, None, ridge=0.0)
    found = latent.maximise(Parameters(np.zeros((1, 3))))
    informative = make(rows.take(rows.report < 2), T, None, ridge=0.0).maximise(Parameters(np.zeros((1, 3))))
    np.testing.assert_allclose(found.gamma, informative.gamma, atol=1e-5)
