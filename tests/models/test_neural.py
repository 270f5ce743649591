"""Nets: their losses, their training together, what they refuse, and that they come close to a known truth."""

import json
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from sklearn.base import clone

from fairpremium.blocks import Rows
from fairpremium.errors import ConvergenceError, FairPremiumError, RiskUnboundedError
from fairpremium.families import Bernoulli, Gamma, NegativeBinomial, Normal, Poisson, Tweedie
from fairpremium.models import Design, NeuralModel, NeuralPrices, TrainingData
from fairpremium.models._nets import Nets
from fairpremium.models._training import Units, _Network, torch_loss
from fairpremium.portfolios import zhang_liu_shi_2025

FAMILIES = [Normal(), Poisson(), NegativeBinomial(), Gamma(), Tweedie(1.3), Bernoulli()]
names = pytest.mark.parametrize("family", FAMILIES, ids=lambda f: f.name)


class Fixed:
    """Weights that do not follow the prices; the held-out loss is the risk that they define."""

    def __init__(self, family, train, weights, held=None, held_weights=None, signed=False):
        self.family, self.train, self.held = family, train, held
        self.fixed, self.held_weights, self.signed = weights, held_weights, signed
        self.calls = []

    def weights(self, eta):
        assert eta.shape == self.fixed.shape
        self.calls.append(eta)
        return self.fixed

    def held_loss(self, eta):
        loss = self.family.loss_terms(self.held.y[:, None], eta)[0]
        return float((self.held_weights * loss).sum() / self.held_weights.sum())


class Mixture:
    """Responsibilities under a normal law: T[s, k] q_k(c) N(y; eta_k, phi)^heat with c a class of rows.

    The heat rises from 0 to 1: nets learn the groups' shapes from the reports before the outcomes tell groups apart.
    Without, rows at the edge of the age band go to the wrong group for good (error 18 in place of 8).
    """

    ramp = 30

    signed = False

    def __init__(self, T, train, held, cls, held_cls):
        self.T, self.train, self.held, self.cls, self.held_cls = T, train, held, cls, held_cls
        K = T.shape[1]
        self.q, self.phi = np.full((cls.max() + 1, K), 1 / K), float(np.var(train.y))
        self.epoch = 0

    def joint(self, rows, cls, eta):
        density = np.exp(-((rows.y[:, None] - eta) ** 2) / (2 * self.phi)) / np.sqrt(self.phi)
        return self.T[rows.report] * self.q[cls] * density ** min(1.0, self.epoch / self.ramp) + 1e-300

    def weights(self, eta):
        for _ in range(2):  # propensity and variance of the current prices, then their responsibilities
            joint = self.joint(self.train, self.cls, eta)
            r = joint / joint.sum(axis=1, keepdims=True)
            self.q = np.array([r[self.cls == c].mean(axis=0) for c in range(len(self.q))])
            self.phi = float((r * (self.train.y[:, None] - eta) ** 2).sum() / len(r))
        self.epoch += 1
        return r

    def held_loss(self, eta):
        if self.epoch < self.ramp:
            return float(1e6 - self.epoch)  # not yet the law that counts
        return float(-np.log(self.joint(self.held, self.held_cls, eta).sum(axis=1)).mean())


@dataclass
class Fitted:
    """Prices that build on a constant."""

    prices: NeuralPrices
    center: float

    def predictor(self, X):
        return self.prices.predictor(X, np.full((len(X), self.prices.nets.groups), self.center))


def fit(model, rows, objective, held=None, seed=0, like=None, family=None, K=2):
    """Train nets on top of the mean."""
    family = family or Normal()
    center = float(family.link.predictor(np.average(rows.y, weights=rows.weight)))
    start, held_start = (np.full((0 if r is None else len(r), K), center) for r in (rows, held))
    data = TrainingData(Design.learn(rows.X), family, rows, start, objective, held, held_start)
    return Fitted(model.train(data, np.random.default_rng(seed), like), center)


def small(seed=0, n=600, K=2, family=None):
    """Rows with one column that matters, one that is constant, and true groups."""
    family = family or Normal()
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(size=n), np.full(n, 7.0)])
    D = rng.integers(K, size=n)
    mu = family.link.mean_of(0.2 * X[:, 0] * (1 + D) - 0.3 * D)
    y = {
        "normal": lambda: mu + 0.3 * rng.normal(size=n),
        "gamma": lambda: rng.gamma(3.0, mu / 3),
        "bernoulli": lambda: (rng.random(n) < mu).astype(float),
        "tweedie": lambda: rng.gamma(np.maximum(2.0 * rng.poisson(mu), 1e-12), 0.5) + 1e-9,
    }.get(family.name, lambda: rng.poisson(mu).astype(float))()
    return Rows(X, y, rng.uniform(0.5, 2, n), D), np.eye(K)[D], mu


# ---- losses and units


@names
def test_losses_and_gradients_are_those_of_the_family(family):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 40).astype(float) if family.name == "bernoulli" else rng.gamma(2.0, 1.0, 40)
    eta = rng.normal(size=(40, 3))
    tensor = torch.tensor(eta, requires_grad=True)
    loss = torch_loss(family)(torch.tensor(y)[:, None], tensor)
    loss.sum().backward()
    value, slope, _ = family.loss_terms(y[:, None], eta)
    np.testing.assert_allclose(loss.detach().numpy(), value, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(tensor.grad.numpy(), slope, rtol=1e-12, atol=1e-12)


@names
def test_loss_minus_saturated_loss_is_half_the_deviance(family):
    rows, _, _ = small(family=family)
    units = Units.learn(rows.y, rows.weight, family)
    y = units.outcome(rows.y)
    eta = np.linspace(-1, 1, len(y))
    half = family.loss_terms(y, eta)[0] - units.saturated(y)
    np.testing.assert_allclose(half, 0.5 * family.unit_deviance(y, family.link.mean_of(eta)), atol=1e-9)


@pytest.mark.parametrize("family", [Normal(), Gamma(), Tweedie(1.5)], ids=lambda f: f.name)
def test_prices_follow_the_currency(family):
    rows, W, _ = small(family=family)
    model = NeuralModel(hidden=(8,), max_epochs=5)
    prices = []
    for factor in (1.0, 1e6):
        scaled = replace(rows, y=rows.y * factor)
        found = fit(model, scaled, Fixed(family, scaled, W), family=family)
        prices.append(family.link.mean_of(found.predictor(rows.X)))
    np.testing.assert_allclose(prices[1], 1e6 * prices[0], rtol=2e-4)


def test_an_outcome_without_a_mean_in_the_domain_is_refused():
    rows, W, _ = small(family=Poisson())
    rows = replace(rows, y=np.zeros(len(rows)))
    data = TrainingData(Design.learn(rows.X), Poisson(), rows, np.zeros((len(rows), 2)), Fixed(Poisson(), rows, W))
    with pytest.raises(ValueError, match="are all outcomes zero"):
        NeuralModel().train(data, np.random.default_rng(0))


# ---- nets as arrays


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("shared", [0, 1, 2])
@pytest.mark.parametrize("K", [1, 3])
def test_numpy_computes_what_torch_computes(activation, shared, K):
    rng = np.random.default_rng(3)
    X = rng.normal(3.0, 2.0, size=(50, 4))
    nets = Nets.draw(X, (6, 5), activation, shared, K, rng)
    weights = tuple(W + rng.normal(size=W.shape) for W in nets.weights)
    biases = tuple(b + rng.normal(size=b.shape) for b in nets.biases)
    nets = replace(nets, weights=weights, biases=biases)
    assert [len(W) for W in nets.weights] == [1 if layer < shared else K for layer in range(3)]
    network = _Network(nets, torch, torch.device("cpu"))
    Z = torch.tensor(nets.standardise(X), dtype=torch.float32)
    np.testing.assert_allclose(nets.output(X), network.output(network.values, Z).numpy(), rtol=1e-4, atol=1e-4)
    again = network.to_nets(network.values)
    for a, b in zip(again.weights + again.biases, nets.weights + nets.biases, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    # and a slow reference, row by row
    sigma = {"relu": lambda v: max(v, 0.0), "tanh": np.tanh}[activation]
    for k in range(K):
        h = list((X[7] - nets.center) / nets.spread)
        for layer, (W, b) in enumerate(zip(nets.weights, nets.biases, strict=True)):
            W, b = W[min(k, len(W) - 1)], b[min(k, len(b) - 1)]
            h = [sum(h[i] * W[i, j] for i in range(len(h))) + b[j] for j in range(len(b))]
            if layer < 2:
                h = [sigma(v) for v in h]
                hidden = h
        assert h[0] == pytest.approx(nets.output(X)[7, k], rel=1e-9, abs=1e-9)
        np.testing.assert_allclose(nets.last_hidden(X, k)[7], hidden, rtol=1e-9, atol=1e-12)


def test_constant_columns_have_no_effect_and_rare_levels_no_leverage():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=5000), np.full(5000, 0.1), np.arange(5000) == 17])
    nets = Nets.draw(X, (4,), "relu", 0, 1, rng)
    moved = X + [0.0, 100.0, 0.0]
    np.testing.assert_array_equal(nets.output(moved), nets.output(X))
    assert np.abs(nets.standardise(X)).max() <= 10


# ---- training


def test_groups_trained_together_are_the_groups_trained_alone():
    rows, W, _ = small(K=3)
    model = NeuralModel(hidden=(8, 8), shared=0, max_epochs=8)
    together = fit(model, rows, Fixed(Normal(), rows, W), K=3)
    for k in range(3):
        one = fit(model, rows, Fixed(Normal(), rows, W[:, [k]]), K=1)
        np.testing.assert_allclose(together.predictor(rows.X)[:, k], one.predictor(rows.X)[:, 0], atol=2e-4)


def test_a_seed_fixes_the_prices_and_global_state_is_left_alone():
    rows, W, _ = small()
    model = NeuralModel(hidden=(8,), max_epochs=3)
    state, threads = torch.get_rng_state(), torch.get_num_threads()

    def prices(seed):
        return fit(model, rows, Fixed(Normal(), rows, W), seed=seed).predictor(rows.X)

    np.testing.assert_array_equal(prices(1), prices(1))
    assert np.abs(prices(1) - prices(2)).max() > 1e-3
    assert torch.equal(state, torch.get_rng_state())
    assert threads == torch.get_num_threads()
    assert torch.is_grad_enabled()


def held_fit(model, like=None):
    rows, W, _ = small(n=300)
    train, held = rows.take(np.arange(100)), rows.take(np.arange(100, 300))
    objective = Fixed(Normal(), train, W[:100], held, W[100:])
    return fit(model, train, objective, held, like=like), objective, held


def test_the_best_epoch_is_kept_and_its_number_reproduces_it():
    model = NeuralModel(hidden=(64, 64), batch_size=20, max_epochs=60, patience=10)
    found, objective, held = held_fit(model)
    prices, curve = found.prices, found.prices.history["held_loss"]
    assert prices.rounds == int(np.argmin(curve)) + 1
    assert len(curve) == len(prices.history["train_loss"]) == prices.rounds + 10 < 60  # stopped by patience
    assert len(objective.calls) == len(curve)  # asked once an epoch
    assert objective.held_loss(found.predictor(held.X)) == pytest.approx(min(curve), rel=1e-5)
    again, _, _ = held_fit(model, like=prices)
    np.testing.assert_array_equal(again.predictor(held.X), found.predictor(held.X))
    assert again.prices.rounds == prices.rounds


def test_the_start_is_kept_where_nothing_helps():
    rng = np.random.default_rng(0)
    rows = Rows(rng.normal(size=(60, 5)), rng.normal(size=60), None, np.zeros(60, dtype=int))
    W = np.ones((60, 1))
    train, held = rows.take(np.arange(40)), rows.take(np.arange(40, 60))
    truth = np.zeros((60, 1))
    objective = Fixed(Normal(), train, W[:40], held, W[40:])
    objective.held_loss = lambda eta: float(np.abs(eta).max())
    model, design = NeuralModel(patience=3), Design.learn(rows.X)
    prices = model.train(TrainingData(design, Normal(), train, truth[:40], objective, held, truth[40:]), rng)
    assert prices.rounds == 0
    np.testing.assert_array_equal(prices.predictor(rows.X, truth + 3.0), truth + 3.0)
    again = model.train(TrainingData(design, Normal(), rows, truth, Fixed(Normal(), rows, W)), rng, prices)
    assert again.rounds == 0
    np.testing.assert_array_equal(again.predictor(rows.X, truth), truth)
    assert NeuralPrices.from_dict(again.to_dict()).rounds == 0


@names
def test_prices_build_on_the_start(family):
    """Nets on top of the true predictor have nothing to add; on top of its negative they have to undo it."""
    rows, W, mu = small(family=family, n=2000)
    truth = np.repeat(family.link.predictor(mu)[:, None], 2, axis=1)
    model, design = NeuralModel(hidden=(16,), max_epochs=30), Design.learn(rows.X)
    objective = Fixed(family, rows, W * rows.weight[:, None])
    for start in (truth, -truth):
        prices = model.train(TrainingData(design, family, rows, start, objective), np.random.default_rng(0))
        gap = ((family.link.mean_of(prices.predictor(rows.X, start)) - mu[:, None]) * W).sum(axis=1)
        assert np.sqrt(np.mean(gap**2)) < 0.6 * mu.std()


@names
def test_every_family_comes_close_to_its_truth(family):
    rows, W, _ = small(family=family, n=4000)
    model = NeuralModel(hidden=(16,), max_epochs=25)
    objective = Fixed(family, rows, W * rows.weight[:, None])
    found = fit(model, rows, objective, family=family)
    fresh, fresh_W, mu = small(seed=1, family=family, n=20_000)
    fitted = (family.link.mean_of(found.predictor(fresh.X)) * fresh_W).sum(axis=1)
    gap = np.sqrt(np.mean((fitted - mu) ** 2))
    assert gap < 0.45 * mu.std(), (gap, mu.std())  # one price for all has 1


# ---- the paper's portfolio


def portfolio(seed, keep=1.0, n=5000):
    p = zhang_liu_shi_2025(n=n, rng=seed)
    rng = np.random.default_rng([seed, 9])
    D = (p.sensitive == "M").astype(int)
    T = np.array([[keep, 1 - keep], [1 - keep, keep]])
    S = np.where(rng.random(n) < keep, D, 1 - D)
    rows = Rows(p.X.astype(float).to_numpy(), p.y, None, S)
    held = np.arange(n) < n // 5

    def error(found):
        gap = found.predictor(rows.X) - p.truth.means(p.X)
        return float(np.sqrt(np.mean(gap[np.arange(n), D] ** 2)))

    return rows, held, T, error


def fit_weights(model, rows, held, W, signed=False, seed=0):
    train, test = rows.take(~held), rows.take(held)
    return fit(model, train, Fixed(Normal(), train, W[~held], test, W[held], signed), test, seed)


def test_with_the_true_attribute_default_nets_are_close():
    rows, held, _, error = portfolio(0)
    assert error(fit_weights(NeuralModel(), rows, held, np.eye(2)[rows.report])) < 9  # over seeds 5.4, sd 0.3


def test_signed_weights_and_responsibilities_undo_the_noise():
    rows, held, T, error = portfolio(1, keep=0.8)
    model = NeuralModel(max_epochs=100)
    naive = error(fit_weights(model, rows, held, np.eye(2)[rows.report]))
    inverse = error(fit_weights(model, rows, held, np.linalg.inv(T).T[rows.report], signed=True))
    smoker = rows.X[:, 1].astype(int)
    train, test = rows.take(~held), rows.take(held)
    mixture = Mixture(T, train, test, smoker[~held], smoker[held])
    likelihood = error(fit(model, train, mixture, test))
    assert naive > 40
    assert inverse < 0.75 * naive
    assert likelihood < 0.35 * naive


# ---- the safeguard, and prices that explode


def test_the_safeguard_keeps_the_estimated_risk_from_falling_below_zero():
    rng = np.random.default_rng(0)
    n, T = 300, np.array([[0.6, 0.4], [0.4, 0.6]])
    rows = Rows(rng.normal(size=(n, 3)), rng.normal(size=n), None, rng.integers(2, size=n))
    W = np.linalg.inv(T).T[rows.report]
    least = []
    for nonnegative in (False, True):
        model = NeuralModel(nonnegative=nonnegative, max_epochs=60, batch_size=300, averaging=0.0)
        objective = Fixed(Normal(), rows, W, signed=True)
        with suppress(RiskUnboundedError):
            fit(model, rows, objective)
        gaps = [0.5 * (rows.y[:, None] - eta) ** 2 for eta in objective.calls]  # of each epoch
        least.append(min((W * gap).mean(axis=0).min() for gap in gaps))
    assert least[0] < -1.0
    assert least[1] > -0.1
    # where weights are not negative it never acts
    safe, plain = (
        fit(NeuralModel(nonnegative=on, hidden=(8,), max_epochs=5), rows, Fixed(Normal(), rows, np.abs(W)))
        for on in (True, False)
    )
    np.testing.assert_allclose(safe.predictor(rows.X), plain.predictor(rows.X), atol=1e-5)


def test_a_risk_without_a_minimum_is_refused_with_what_helps():
    rows, W, _ = small(n=200)
    W = np.where(W > 0, W, -2.0)  # every group's weights sum to less than zero
    model = NeuralModel(max_epochs=150, patience=150)
    with pytest.raises(RiskUnboundedError, match=r"posterior.*nonnegative=True"):
        fit(model, rows, Fixed(Normal(), rows, W, signed=True))
    with pytest.raises(ConvergenceError, match="learning_rate"):
        fit(NeuralModel(learning_rate=1e6, max_epochs=2), rows, Fixed(Normal(), rows, np.abs(W)))


def test_epochs_that_leave_the_range_are_not_kept():
    rows, W, _ = small(n=300)
    train, held = rows.take(np.arange(200)), rows.take(np.arange(200, 300))
    W = np.where(W > 0, W, -2.0)
    objective = Fixed(Normal(), train, W[:200], held, np.abs(W[200:]), signed=True)
    objective.held_loss = lambda eta: -float(np.abs(eta).max())  # a held-out loss that likes explosions
    model = NeuralModel(max_epochs=150, patience=150)
    found = fit(model, train, objective, held)
    width = np.ptp(train.y)
    assert np.abs(found.predictor(rows.X)).max() <= np.abs(train.y).max() + width
    assert 0 < found.prices.rounds < 150


@pytest.mark.parametrize("family", [Normal(), Poisson(), Bernoulli()], ids=lambda f: f.name)
@pytest.mark.parametrize("keep", [0.55, 0.7, 0.9])
@pytest.mark.parametrize("share", [0.03, 0.4])
def test_prices_are_finite_or_refused(family, keep, share):
    for seed in range(2):
        rng = np.random.default_rng([seed, int(100 * keep), int(100 * share)])
        n = 250
        X = np.column_stack([rng.normal(size=n), rng.standard_t(2, n), rng.random(n) < 0.01])
        D = (rng.random(n) < share).astype(int)
        mu = family.link.mean_of(np.clip(0.5 * X[:, 0] - 0.5 + D, -2, 2))
        y = mu + rng.normal(size=n) if family.name == "normal" else rng.poisson(mu).clip(max=1).astype(float)
        S = np.where(rng.random(n) < keep, D, 1 - D)
        T = np.array([[keep, 1 - keep], [1 - keep, keep]])
        W = np.linalg.inv(T).T[S]
        rows = Rows(X, y, None, S)
        train, held = rows.take(np.arange(200)), rows.take(np.arange(200, n))
        objective = Fixed(family, train, W[:200], held, W[200:], signed=True)
        model = NeuralModel(max_epochs=40, batch_size=50, patience=20, learning_rate=0.03)
        try:
            found = fit(model, train, objective, held, seed, family=family)
        except FairPremiumError:
            continue
        price = family.link.mean_of(found.predictor(X))
        assert np.isfinite(price).all()
        low, high = family.link.mean_of(np.array(found.prices.bounds))
        assert low <= price.min() and price.max() <= high  # noqa: PT018


# ---- prices as data


@pytest.fixture(scope="module")
def prices():
    rows, W, _ = small()
    model = NeuralModel(hidden=(4, 3), shared=1, max_epochs=3)
    return fit(model, rows, Fixed(Normal(), rows, W)).prices


def test_prices_go_through_json(prices):
    rows, _, _ = small()
    again = NeuralPrices.from_dict(json.loads(json.dumps(prices.to_dict(), allow_nan=False)))
    start = np.zeros((len(rows), 2))
    np.testing.assert_array_equal(again.predictor(rows.X, start), prices.predictor(rows.X, start))
    assert again.to_dict() == prices.to_dict()
    assert (again.rounds, again.history) == (3, prices.history)


def set_in(data, path, value):
    *parents, last = path
    for key in parents:
        data = data[key]
    data[last] = value


@pytest.mark.parametrize(
    "path, value",
    [
        (("rounds",), -1),
        (("rounds",), True),
        (("scale",), None),
        (("scale",), float("nan")),
        (("scale",), 0.0),
        (("bounds",), [1.0]),
        (("bounds",), [2.0, 1.0]),
        (("history", "train_loss"), [float("inf")]),
        (("nets", "activation"), "__import__"),
        (("nets", "center"), [0.0]),
        (("nets", "spread"), [-1.0, 1.0]),
        (("nets", "weights"), []),
        (("nets", "weights", 0), [[[1.0]]]),
        (("nets", "weights", 1, 0, 0), ["x", 0.0, 0.0]),
        (("nets", "weights", 1, 0, 0, 0), 10**400),
        (("nets", "weights", 2), [[[1.0, 2.0]] * 3] * 2),
        (("nets", "biases", 0), [[1.0]]),
        (("nets", "biases"), []),
    ],
    ids=str,
)
def test_damaged_prices_are_refused(prices, path, value):
    data = prices.to_dict()
    set_in(data, path, value)
    with pytest.raises((ValueError, TypeError)):
        NeuralPrices.from_dict(data)


def test_rows_far_from_the_fit_and_of_other_columns_are_refused(prices):
    with pytest.raises(ValueError, match="1 of 2 rows that the nets cannot price"):
        prices.predictor(np.array([[0.5, 7.0], [1e9, 7.0]]), np.zeros((2, 2)))
    with pytest.raises(ValueError, match="3 features"):
        prices.predictor(np.zeros((2, 3)), np.zeros((2, 2)))
    assert prices.predictor(np.zeros((0, 2)), np.zeros((0, 2))).shape == (0, 2)


def test_only_training_needs_torch(prices):
    program = (
        "import json, sys\n"
        "class NoTorch:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'torch':\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, NoTorch())\n"
        "import numpy as np\n"
        "from fairpremium.blocks import Rows\n"
        "from fairpremium.errors import MissingExtraError\n"
        "from fairpremium.families import Normal\n"
        "from fairpremium.models import Design, NeuralModel, NeuralPrices, TrainingData\n"
        "prices = NeuralPrices.from_dict(json.load(sys.stdin))\n"
        "X = np.array([[0.5, 7.0], [-1.0, 7.0]])\n"
        "print(json.dumps(prices.predictor(X, np.zeros((2, 2))).tolist()))\n"
        "try:\n"
        "    rows = Rows(X, np.array([1.0, 2.0]), None, np.zeros(2, int))\n"
        "    data = TrainingData(Design.learn(X), Normal(), rows, np.zeros((2, 1)), None)\n"
        "    NeuralModel().train(data, np.random.default_rng(0))\n"
        "except MissingExtraError as error:\n"
        "    assert 'fairpremium[neural]' in str(error)\n"
        "else:\n"
        "    raise SystemExit('torch was found')\n"
    )
    call = [sys.executable, "-c", program]
    done = subprocess.run(call, input=json.dumps(prices.to_dict()), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    expected = prices.predictor(np.array([[0.5, 7.0], [-1.0, 7.0]]), np.zeros((2, 2)))
    np.testing.assert_allclose(json.loads(done.stdout), expected, rtol=1e-12)


# ---- settings


@pytest.mark.parametrize(
    "setting",
    [
        {"hidden": ()},
        {"hidden": 64},
        {"hidden": (64, 0)},
        {"hidden": (True,)},
        {"activation": "sigmoid"},
        {"shared": 3},
        {"shared": -1},
        {"learning_rate": 0},
        {"learning_rate": "fast"},
        {"learning_rate": float("inf")},
        {"batch_size": 0},
        {"batch_size": "big"},
        {"batch_size": 2.5},
        {"max_epochs": 0},
        {"patience": 0},
        {"weight_decay": -1e-3},
        {"averaging": 1.0},
        {"nonnegative": 1},
        {"replicates": -1},
        {"device": 0},
    ],
    ids=str,
)
def test_settings_out_of_range_are_named(setting):
    (name,) = setting
    with pytest.raises(ValueError, match=f"Got {name}=.*but expected"):
        NeuralModel(**setting).check()


def test_an_unknown_device_is_refused():
    rows, W, _ = small(n=50)
    with pytest.raises(ValueError, match=r"device='gpu'.*cpu"):
        fit(NeuralModel(device="gpu"), rows, Fixed(Normal(), rows, W))


def test_the_papers_architecture_is_a_preset():
    model = NeuralModel.paper(max_epochs=7)
    assert (model.hidden, model.shared, model.max_epochs) == ((5, 5, 5), 0, 7)
    assert clone(model).get_params() == model.get_params()
    assert NeuralModel().hidden == (64, 64)
