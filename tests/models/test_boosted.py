"""Boosted trees: LightGBM's own objectives, weights, stopping, shapes, levels, and their text."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace

import lightgbm
import numpy as np
import pandas as pd
import pytest

from fairpremium import DiscriminationFreePricer, RandomizedResponse
from fairpremium.blocks import Rows
from fairpremium.corrections._objectives import WeightedObjective
from fairpremium.families import Bernoulli, Family, Gamma, Normal, Poisson, Tweedie
from fairpremium.models import BoostedModel, Design, TrainingData
from fairpremium.models._boosted import BoostedPrices, TreeEncoding, boost
from fairpremium.models._trees import compact_trees

NATIVE = {
    "normal": (Normal(), {"objective": "regression"}),
    "poisson": (Poisson(), {"objective": "poisson", "poisson_max_delta_step": 0.7}),
    "gamma": (Gamma(), {"objective": "gamma"}),
    "tweedie": (Tweedie(1.3), {"objective": "tweedie", "tweedie_variance_power": 1.3}),
    "bernoulli": (Bernoulli(), {"objective": "cross_entropy"}),
}


def draw(family: Family, n: int = 600, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two features, and an outcome that is no line in them; numbers that fit into single precision."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.integers(0, 30, n), rng.integers(0, 8, n)]).astype(float)
    eta = 0.4 * np.sin(X[:, 0] / 4) + 0.1 * (X[:, 1] - 4) * (X[:, 0] > 15)
    mu = family.link.mean_of(eta)
    drawn = {
        "normal": lambda: mu + rng.normal(size=n),
        "poisson": lambda: rng.poisson(mu),
        "gamma": lambda: rng.gamma(2, mu / 2),
        "tweedie": lambda: rng.poisson(mu) * rng.gamma(2, 0.5, n),
        "bernoulli": lambda: rng.random(n) < mu,
    }[family.name]()
    return X, np.float32(drawn).astype(float)


def train(
    family: Family,
    X: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray,
    start: np.ndarray | float = 0.0,
    *,
    rounds: int = 20,
    volume: np.ndarray | None = None,
    held: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None,
    seed: int = 0,
    **settings: object,
) -> BoostedPrices:
    """Boost on fixed weights (n, K): `rounds` rounds, or with early stopping on held-out (X, y, weights)."""
    K = weights.shape[1]
    model, design = BoostedModel(**{"max_rounds": rounds, **settings}), Design.learn(X)
    X_held, y_held, w_held = held or (X[:0], y[:0], weights[:0])
    objective = WeightedObjective(family, weights, y_held, w_held)
    at, at_held = (np.broadcast_to(start, (len(x), K)).astype(float) for x in (X, X_held))
    rows = Rows(X, y, volume, np.zeros(len(X), dtype=int))
    rows_held = None if held is None else Rows(X_held, y_held, None, np.zeros(len(X_held), dtype=int))
    like = BoostedPrices("", K, rounds, TreeEncoding.of(design, categorical=True)) if held is None else None
    data = TrainingData(design, family, rows, at, objective, rows_held, at_held)
    return model.train(data, np.random.default_rng(seed), like)


def scores(prices: BoostedPrices, X: np.ndarray) -> np.ndarray:
    return prices.predictor(X, np.zeros((len(X), prices.groups)))


@pytest.mark.parametrize("name", NATIVE)
def test_trees_are_those_of_the_native_objective(name: str) -> None:
    """LightGBM keeps outcomes and gradients in single precision: scores of order one agree to 1e-5."""
    family, native = NATIVE[name]
    X, y = draw(family)
    weight = np.float32(np.random.default_rng(1).uniform(0.05, 1, len(y))).astype(float)
    start, l2, leaf = 0.2, 1.5, 8.0
    ours = train(family, X, y, weight[:, None], start, l2=l2, min_leaf=leaf, num_leaves=7, learning_rate=0.2)
    row = float(np.mean(family.loss_terms(y, np.full(len(y), start))[2]))  # curvature that counts as one row
    params = {
        **native,
        "boost_from_average": False,
        "learning_rate": 0.2,
        "num_leaves": 7,
        "lambda_l2": l2 * row,
        "min_sum_hessian_in_leaf": leaf * row,
        "min_data_in_leaf": int(leaf),
        "verbosity": -1,
        "num_threads": 1,
        "deterministic": True,
        "force_row_wise": True,
    }
    data = lightgbm.Dataset(X, y, weight=weight, init_score=np.full(len(y), start), params=params)
    theirs = lightgbm.train(params, data, num_boost_round=20).predict(X, raw_score=True)
    assert np.ptp(theirs) > 0.3  # something was learned
    np.testing.assert_allclose(scores(ours, X)[:, 0], theirs, atol=1e-5)


@pytest.mark.parametrize("family", [Normal(), Poisson()])
def test_groups_together_are_groups_alone(family: Family) -> None:
    X, y = draw(family)
    weights = np.random.default_rng(2).dirichlet([1, 1, 1], len(y))
    settings = {"num_leaves": 6, "group_leaves": 6, "min_leaf": 5.0}
    together = scores(train(family, X, y, weights, 0.1, **settings), X)
    alone = [scores(train(family, X, y, weights[:, [k]], 0.1, **settings), X)[:, 0] for k in range(3)]
    np.testing.assert_allclose(together, np.column_stack(alone), rtol=1e-12)


def test_the_order_of_the_groups_does_not_matter() -> None:
    """The starts of the groups differ, so that a unit taken from one of them would show."""
    X, y = draw(Poisson())
    weights = np.random.default_rng(2).dirichlet([1, 1, 1], len(y))
    start, turn = np.array([-1.0, 0.0, 1.5]), [2, 0, 1]
    one, other = (train(Poisson(), X, y, w, s) for w, s in ((weights, start), (weights[:, turn], start[turn])))
    np.testing.assert_allclose(scores(other, X), scores(one, X)[:, turn], rtol=1e-10)


def test_rows_of_weight_zero_are_left_out() -> None:
    X, y = draw(Poisson())
    weight = np.where(np.random.default_rng(3).random(len(y)) < 0.4, 0.0, 0.7)[:, None]
    use = weight[:, 0] > 0
    bins = {"min_data_in_leaf": 1, "min_data_in_bin": 1}  # what LightGBM counts without regard to weights
    everyone = train(Poisson(), X, y, weight, params=bins)
    some = train(Poisson(), X[use], y[use], weight[use], params=bins)
    np.testing.assert_allclose(scores(everyone, X), scores(some, X), rtol=1e-6)


def test_weights_are_repeated_rows() -> None:
    X, y = draw(Poisson())
    times = np.random.default_rng(4).integers(1, 4, len(y))
    settings = {"l2": 0.0, "min_leaf": 0.0, "num_leaves": 5, "params": {"min_data_in_bin": 1}}
    weighted = train(Poisson(), X, y, times[:, None].astype(float), volume=times.astype(float), **settings)
    X2, y2 = np.repeat(X, times, axis=0), np.repeat(y, times)
    repeated = train(Poisson(), X2, y2, np.ones((len(y2), 1)), **settings)
    np.testing.assert_allclose(scores(weighted, X), scores(repeated, X), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("factor", [1e-6, 1e3])
def test_the_unit_of_the_weights_does_not_matter(factor: float) -> None:
    """Leaves and shrinkage count rows: weights that sum to one must not leave a portfolio without trees."""
    X, y = draw(Gamma())
    weight = np.random.default_rng(5).uniform(0.5, 2, len(y))
    one, other = (train(Gamma(), X, y, w[:, None], volume=w) for w in (weight, factor * weight))
    np.testing.assert_allclose(scores(other, X), scores(one, X), rtol=1e-5, atol=1e-7)
    assert np.ptp(scores(one, X)) > 0.1


def test_training_stops_at_the_best_round() -> None:
    X, y = draw(Normal(), n=300)
    X_held, y_held = draw(Normal(), n=200, seed=1)
    ones, ones_held = np.ones((300, 2)), np.ones((200, 2)) * [1.0, 0.3]
    settings = {"learning_rate": 0.3, "min_leaf": 3.0, "patience": 100, "rounds": 60}
    stopped = train(Normal(), X, y, ones, held=(X_held, y_held, ones_held), **settings)
    long = train(Normal(), X, y, ones, **settings)
    losses = []
    for done in range(61):
        eta = scores(replace(long, rounds=done), X_held)
        losses.append(np.sum(ones_held * (0.5 * eta**2 - y_held[:, None] * eta)) / 200)
    assert 0 < stopped.rounds < 60
    assert stopped.rounds == int(np.argmin(losses))
    np.testing.assert_allclose(scores(stopped, X), scores(replace(long, rounds=stopped.rounds), X))


def test_patience_ends_training() -> None:
    X, y = draw(Normal(), n=300)
    X_held, y_held = draw(Normal(), n=200, seed=1)
    settings = {"learning_rate": 0.3, "min_leaf": 3.0, "rounds": 60}
    held, ones = (X_held, y_held, np.ones((200, 1))), np.ones((300, 1))
    patient, hasty = (train(Normal(), X, y, ones, held=held, patience=p, **settings) for p in (100, 1))
    assert 0 < hasty.rounds <= patient.rounds


def test_no_round_is_taken_when_none_helps() -> None:
    """Held-out outcomes with the opposite sign: every tree makes them worse."""
    X, y = draw(Normal())
    prices = train(Normal(), X, y, np.ones((len(y), 2)), held=(X, -10 * y, np.ones((len(y), 2))))
    assert prices.rounds == 0
    start = np.random.default_rng(0).normal(size=(len(y), 2))
    np.testing.assert_array_equal(prices.predictor(X, start), start)
    again = BoostedPrices.from_dict(json.loads(json.dumps(prices.to_dict())))
    np.testing.assert_array_equal(again.predictor(X, start), start)


def test_a_round_without_a_split_is_not_counted() -> None:
    """Trees grow in the first rounds only: the number of rounds is that of LightGBM, not that of the calls."""
    X = np.arange(200.0)[:, None]
    rows = BoostedModel().read(Design.learn(X), X)
    calls = []

    def slopes(s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        calls.append(1)
        grow = len(calls) <= 4
        return np.where(X > 100, 1.0, -1.0) * grow, np.ones_like(s)

    booster, best = boost(rows, slopes, 1, {}, rounds=20, held=(rows, lambda s: -len(calls)), patience=3)
    assert len(calls) == 21
    assert best == booster.current_iteration() == 3  # the first call only asks for the weights at the start


@pytest.mark.parametrize("rounds", [None, 12])
def test_rows_taken_from_binned_ones_give_the_same_trees(rounds: int | None) -> None:
    """Features of few values have a bin for each, from whatever rows they are learned."""
    X, y = draw(Poisson())
    t, h = np.flatnonzero(np.arange(600) % 3), np.arange(0, 600, 3)
    model, design = BoostedModel(max_rounds=40, min_leaf=3.0), Design.learn(X)
    objective = WeightedObjective(Poisson(), np.ones((400, 2)), y[h], np.ones((200, 2)))
    train_rows, held = (Rows(X[i], y[i], None, np.zeros(len(i), dtype=int)) for i in (t, h))
    data = TrainingData(design, Poisson(), train_rows, np.zeros((400, 2)), objective, held, np.zeros((200, 2)))
    like = rounds and BoostedPrices("", 2, rounds, TreeEncoding.of(design, categorical=True))
    every = model.read(design, np.concatenate([X[:50], X]))
    some = every.take(np.arange(len(every)) >= 50)
    both = data._replace(features=some.take(t), held_features=some.take(h))
    alone, shared = (model.train(one, np.random.default_rng(0), like) for one in (data, both))
    assert shared.text == alone.text
    assert shared.rounds == alone.rounds > 0


@pytest.mark.parametrize("family", ["normal", "poisson"])
def test_monotone_constraints_hold_for_every_group_and_the_premium(family: str) -> None:
    """The truth falls in parts, so that the constraint binds."""
    rng = np.random.default_rng(6)
    n = 1500
    X = pd.DataFrame({"a": rng.uniform(0, 1, n), "b": rng.uniform(0, 1, n)})
    D = rng.integers(0, 2, n)
    eta = X["a"] + 0.5 * np.sin(9 * X["a"]) - (X["b"] + 0.5 * np.sin(9 * X["b"])) * (1 + D)
    y = eta + rng.normal(size=n) if family == "normal" else rng.poisson(np.exp(eta)).astype(float)
    channel = RandomizedResponse([0, 1], keep=0.9)
    model = BoostedModel(monotone={"a": 1, "b": -1}, max_rounds=60, min_leaf=5.0)
    pricer = DiscriminationFreePricer(
        family, model, channel, correction="posterior", pooling=0, intervals=False, random_state=0
    ).fit(X, y, sensitive=channel.privatize(D, rng=1))
    grid = np.linspace(-0.1, 1.1, 60)
    moved = 0.0
    for name, sign in (("a", 1), ("b", -1)):
        for other in (0.1, 0.5, 0.9):
            risks = pd.DataFrame({"a": other, "b": other}, index=range(60)).assign(**{name: grid})
            prices = np.column_stack(
                [pricer.predict_best_estimate(risks), pricer.predict(risks), pricer.predict_unaware(risks)]
            )
            assert (sign * np.diff(prices, axis=0) >= -1e-12).all()
            moved += np.ptp(prices, axis=0).min()
    assert moved > 0.1


@pytest.fixture(scope="module")
def by_area() -> tuple[pd.DataFrame, np.ndarray, np.ndarray, dict[str, float]]:
    """Text levels whose effects go up and down in alphabetical order, where |x| < 1, on all groups alike."""
    rng = np.random.default_rng(7)
    effect = dict(zip("abcdefgh", [0.0, 3.0, 0.5, 3.5, 0.2, 3.2, 0.1, 3.3], strict=True))
    X = pd.DataFrame({"x": rng.normal(size=2400), "area": rng.choice(list(effect), 2400)})
    D = rng.choice(["F", "M"], 2400)
    here = np.abs(X["x"].to_numpy()) < 1
    y = X["area"].map(effect).to_numpy(dtype=float) * here + (D == "F") * (1 + X["x"]) + rng.normal(size=2400)
    return X, y, D, effect


def fit_by_area(by_area: tuple, **settings: object) -> DiscriminationFreePricer:
    X, y, D, _ = by_area
    model = BoostedModel(max_rounds=80, params={"min_data_per_group": 20})
    return DiscriminationFreePricer(
        **{"model": model, "intervals": False, "pooling": 0.0, "random_state": 0, **settings}
    ).fit(X, y, sensitive=D)


def test_text_columns_are_sets_of_levels(by_area: tuple, tmp_path) -> None:
    X, _, _, effect = by_area
    pricer = fit_by_area(by_area)
    unaware = pricer._prices.formula.unaware.prices
    assert unaware.encoding.categorical == (False, True)
    assert "cat_threshold" in unaware.text
    risks = pd.DataFrame({"x": 0.0, "area": list(effect)})
    # 200 rows of a level with |x| < 1, sd 1, the mean of the groups 0.5: shrinkage and noise stay below 0.5
    np.testing.assert_allclose(pricer.predict(risks) - 0.5, list(effect.values()), atol=0.5)
    pricer.save(tmp_path / "m.json")
    np.testing.assert_array_equal(DiscriminationFreePricer.load(tmp_path / "m.json").predict(X), pricer.predict(X))


def test_levels_that_were_not_seen(by_area: tuple) -> None:
    pricer = fit_by_area(by_area)
    risks = pd.DataFrame({"x": [0.5], "area": ["elsewhere"]})
    with pytest.raises(ValueError, match="not seen in fit"):
        pricer.predict(risks)
    pricer.unseen_levels = "base"
    base = pricer._prices.design.columns[1].levels[0]
    np.testing.assert_array_equal(pricer.predict(risks), pricer.predict(risks.assign(area=base)))


def test_text_columns_level_by_level(by_area: tuple) -> None:
    pricer = fit_by_area(by_area, model=BoostedModel(max_rounds=20, categorical=False))
    encoding = pricer._prices.formula.unaware.prices.encoding
    assert encoding.names == ("x", *["area"] * 7)
    assert not any(encoding.categorical)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_rounds": 0}, "Got max_rounds=0, but expected an integer >= 1"),
        ({"max_rounds": True}, "Got max_rounds=True"),
        ({"num_leaves": 1}, "Got num_leaves=1, but expected an integer >= 2"),
        ({"group_leaves": 2.5}, "Got group_leaves=2.5"),
        ({"patience": 0}, "Got patience=0"),
        ({"replicates": 1}, "Got replicates=1, but expected an integer >= 2"),
        ({"learning_rate": 0.0}, "Got learning_rate=0.0, but expected a number in"),
        ({"learning_rate": float("nan")}, "Got learning_rate=nan"),
        ({"min_leaf": -1.0}, "Got min_leaf=-1.0, but expected a finite number >= 0"),
        ({"l2": float("inf")}, "Got l2=inf"),
        ({"monotone": {"a": 2}}, "Got monotone with 2 for 'a', but expected"),
        ({"params": {"objective": "poisson"}}, "Got params with .'objective'., which the family"),
        ({"params": {"application": "poisson"}}, "which the family"),
        ({"params": {"boosting": "dart"}}, "expected plain boosting with constant leaves"),
        ({"params": {"linear_tree": True}}, "expected plain boosting with constant leaves"),
        ({"params": {"tree_learner": "bonsai"}}, "Got params that LightGBM refuses"),
        ({"monotone": {"nowhere": 1}}, "Got monotone for .'nowhere'., but the columns are"),
        ({"monotone": {"t": 1}}, "which hold levels; expected numeric columns"),
    ],
)
def test_bad_settings(settings: dict, message: str) -> None:
    X = pd.DataFrame({"a": np.arange(40.0), "t": ["u", "v"] * 20})
    with pytest.raises(ValueError, match=message):
        DiscriminationFreePricer(model=BoostedModel(**settings)).fit(X, np.arange(40.0), sensitive=[0, 1] * 20)


def test_signed_weights_are_refused() -> None:
    X, y = draw(Normal())
    weights = np.ones((len(y), 2))
    weights[3, 1] = -1e-9
    with pytest.raises(ValueError, match="row weights >= 0"):
        train(Normal(), X, y, weights)


def test_a_seed_makes_training_repeatable() -> None:
    X, y = draw(Normal())
    params = {"params": {"bagging_fraction": 0.5, "bagging_freq": 1}}
    one, same, other = (train(Normal(), X, y, np.ones((len(y), 2)), seed=s, **params) for s in (1, 1, 2))
    assert one.text == same.text
    assert one.text != other.text


@pytest.fixture(scope="module")
def prices() -> BoostedPrices:
    """Trees of two groups over a number and a text column of five levels."""
    rng = np.random.default_rng(8)
    X = pd.DataFrame({"x": rng.normal(size=800), "t": rng.choice(list("abcde"), 800)})
    y = X["x"] + X["t"].isin(["b", "d"]) + rng.normal(size=800)
    design, matrix = Design.learn_transform(X)
    model = BoostedModel(max_rounds=6, params={"min_data_per_group": 10})
    objective = WeightedObjective(Normal(), rng.uniform(size=(800, 2)), y[:0], np.empty((0, 2)))
    rows = Rows(matrix, y.to_numpy(), None, np.zeros(800, dtype=int))
    like = BoostedPrices("", 2, 6, TreeEncoding.of(design, categorical=True))
    found = model.train(TrainingData(design, Normal(), rows, np.zeros((800, 2)), objective), rng, like)
    assert "cat_threshold" in found.text
    return found


def test_prices_survive_plain_data(prices: BoostedPrices) -> None:
    again = BoostedPrices.from_dict(json.loads(json.dumps(prices.to_dict())))
    assert again == prices
    X = np.eye(5)[np.arange(50) % 5] * np.linspace(-2, 2, 50)[:, None]
    np.testing.assert_array_equal(scores(again, X), scores(prices, X))


def test_the_text_says_nothing_about_rows(prices: BoostedPrices) -> None:
    """No counts or weights of leaves, no ranges of columns: LightGBM's own text has them."""
    assert not re.search(r"count|weight|gain|internal|parameters|\[", prices.text)
    assert compact_trees(prices.text, 2, 2) == prices.text


def first(name: str, change: Callable[[list[str]], list[str]]) -> Callable[[str], str]:
    """Change the values of the first field of this name that has any."""

    def edit(text: str) -> str:
        found = re.search(rf"^{name}=(.+)$", text, flags=re.MULTILINE)
        assert found
        return text[: found.start(1)] + " ".join(change(found[1].split())) + text[found.end(1) :]

    return edit


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda t: "", id="nothing"),
        pytest.param(lambda t: "import os", id="something else"),
        pytest.param(lambda t: t.replace("version=v4", "version=../v4"), id="version"),
        pytest.param(lambda t: t.replace("num_class=2", "num_class=3"), id="groups"),
        pytest.param(lambda t: t.replace("max_feature_idx=1", "max_feature_idx=9"), id="columns"),
        pytest.param(lambda t: t.replace("label_index=0", "average_output"), id="average"),
        pytest.param(lambda t: t[: t.rindex("Tree=")], id="a tree of a group is missing"),
        pytest.param(first("left_child", lambda v: ["0", *v[1:]]), id="a circle"),
        pytest.param(first("left_child", lambda v: ["99999", *v[1:]]), id="a child outside"),
        pytest.param(first("right_child", lambda v: ["-99999", *v[1:]]), id="a leaf outside"),
        pytest.param(first("right_child", lambda v: v[:-1]), id="a child is missing"),
        pytest.param(first("split_feature", lambda v: ["7", *v[1:]]), id="a column outside"),
        pytest.param(first("split_feature", lambda v: ["-1", *v[1:]]), id="a column below zero"),
        pytest.param(first("decision_type", lambda v: ["1", *v[1:]]), id="a set of levels outside"),
        pytest.param(first("leaf_value", lambda v: ["nan", *v[1:]]), id="not a number"),
        pytest.param(first("leaf_value", lambda v: ["1e999", *v[1:]]), id="infinite"),
        pytest.param(first("leaf_value", lambda v: [*v, "0"]), id="one leaf too many"),
        pytest.param(first("num_leaves", lambda v: ["1000000"]), id="many leaves"),
        pytest.param(first("num_leaves", lambda v: ["-1"]), id="fewer than no leaves"),
        pytest.param(first("num_cat", lambda v: ["0"]), id="no sets of levels"),
        pytest.param(first("cat_boundaries", lambda v: [*v[:-1], "100000"]), id="sets of levels that end nowhere"),
        pytest.param(first("cat_boundaries", lambda v: ["-5", *v[1:]]), id="sets of levels that begin nowhere"),
        pytest.param(first("is_linear", lambda v: ["1"]), id="linear leaves"),
        pytest.param(lambda t: t.replace("num_leaves=", "num_leaves=8\nnum_leaves=", 1), id="a field twice"),
    ],
)
def test_damaged_trees_are_refused(prices: BoostedPrices, damage: Callable[[str], str]) -> None:
    data = prices.to_dict()
    data["trees"] = damage(data["trees"])
    assert data["trees"] != prices.text
    with pytest.raises(ValueError, match="tree"):
        BoostedPrices.from_dict(data)


@pytest.mark.parametrize(
    "changes",
    [
        {"rounds": 7},
        {"rounds": -1},
        {"groups": 0},
        {"groups": 1},
        {"encoding": {"names": ["x"], "spans": [[0, 1]], "categorical": [False]}},
        {"encoding": {"names": ["x", "t"], "spans": [[0, 1], [2, 5]], "categorical": [False, True]}},
        {"encoding": {"names": ["x", "t"], "spans": [[0, 1], [1, 5]], "categorical": [True, True]}},
        {"encoding": {"names": ["x", "t"], "spans": [[0, 0], [0, 5]], "categorical": [False, True]}},
        {"encoding": {"names": [], "spans": [], "categorical": []}},
    ],
)
def test_pieces_that_do_not_fit_are_refused(prices: BoostedPrices, changes: dict) -> None:
    with pytest.raises(ValueError, match="trees"):
        BoostedPrices.from_dict({**prices.to_dict(), **changes})


def test_rows_with_other_features_are_refused(prices: BoostedPrices) -> None:
    with pytest.raises(ValueError, match="for 5 features and 2 groups"):
        prices.predictor(np.zeros((3, 4)), np.zeros((3, 2)))


def test_encoding_of_levels_is_undone_by_nothing_but_the_design() -> None:
    X = pd.DataFrame({"t": ["b", "a", "c", "a"], "flag": [True, False, True, True], "x": [1.0, 2.0, 3.0, 4.0]})
    design, matrix = Design.learn_transform(X)
    encoding = TreeEncoding.of(design, categorical=True)
    assert encoding.names == ("t", "flag", "x")
    codes = [design.columns[0].levels.index(level) for level in X["t"]]
    base = design.columns[1].levels[0]
    expected = np.column_stack([codes, X["flag"] != base, X["x"]]).astype(float)
    np.testing.assert_array_equal(encoding(matrix), expected)
    assert TreeEncoding.from_dict(encoding.to_dict()) == encoding
