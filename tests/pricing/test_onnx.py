"""ONNX files: another program computes the premium of every model class, and gets the same numbers."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestRegressor

from fairpremium import BoostedModel, DiscriminationFreePricer, LinearModel, NeuralModel
from fairpremium.errors import OutOfRangeError
from fairpremium.models import AddedPrices, NeuralPrices
from fairpremium.models._nets import Nets
from fairpremium.pricing._prices import Formula, ModelPrices
from helpers.tariffs import GROUPS, portfolio, pricer_with

TYPES = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(string)": object,
    "tensor(bool)": bool,
    "tensor(int64)": np.int64,
}


def run(pricer: DiscriminationFreePricer, X: pd.DataFrame | np.ndarray, folder, **settings) -> np.ndarray:
    """Write a pricer and let onnxruntime price a table."""
    pricer.to_onnx(folder / "model.onnx", **settings)
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    inputs = {each.name: TYPES[each.type] for each in session.get_inputs()}
    if isinstance(X, np.ndarray):
        feeds = {name: X.astype(kind) for name, kind in inputs.items()}
    else:
        feeds = {name: X[[name]].to_numpy(dtype=kind) for name, kind in inputs.items()}
    (found,) = session.run(["premium"], feeds)
    assert found.shape == (len(X),)
    return found


def single(X: pd.DataFrame) -> pd.DataFrame:
    """Numbers that single precision holds exactly."""
    return X.assign(power=X["power"].astype(np.float32).astype(float))


def losses(X: pd.DataFrame, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    D = np.where(rng.random(len(X)) < 0.3 + 0.4 * X["smoker"], *GROUPS)
    bump = 1.5 * ((X["age"] > 40) & (X["power"] > 80)) + 0.8 * X["region"].isin(["city", "it's"])
    return rng.poisson(np.exp(-1 + bump + 0.5 * (D == "F") * X["smoker"])), D


@pytest.mark.parametrize("family", ["poisson", "normal", "bernoulli"])
def test_a_linear_pricer(family, tmp_path):
    X = portfolio()
    pricer = pricer_with(X, own=0.8, family=family)
    exact = run(pricer, X, tmp_path, precision="float64")
    np.testing.assert_allclose(exact, pricer.predict(X), rtol=1e-12)
    np.testing.assert_allclose(run(pricer, single(X), tmp_path), pricer.predict(single(X)), rtol=1e-12)
    np.testing.assert_allclose(run(pricer, X, tmp_path), pricer.predict(X), atol=1e-6)


@pytest.mark.parametrize(
    "terms",
    [
        "bands(age, 25, 40, 65) + spline(power, 4) + rare(region, 0.15) + smoker",
        "poly(age, 3):smoker + levels(doors) + base(region, 'rural'):power + spline(age, 3):region",
        "ordered(doors, 2, 3, 4, 5) + bands(power, 66.6):bands(age, 30, 50)",
    ],
)
def test_terms(terms, tmp_path):
    X = single(portfolio(800)).assign(doors=lambda t: np.random.default_rng(3).integers(2, 6, len(t)))
    y, D = losses(X)
    pricer = DiscriminationFreePricer("poisson", LinearModel(terms=terms), correction="inverse", pooling=1.0)
    pricer.fit(X, y, sensitive=D)
    far = single(X.assign(age=X["age"] * 2, power=X["power"] * 2 - 100))
    for rows in (X, far):
        np.testing.assert_allclose(run(pricer, rows, tmp_path), pricer.predict(rows), rtol=1e-9)
    if "rare" in terms:
        unknown = X.head(2).assign(region="moon")
        np.testing.assert_allclose(run(pricer, unknown, tmp_path), pricer.predict(unknown), rtol=1e-9)


@pytest.mark.parametrize("categorical", [True, False])
def test_a_boosted_pricer(categorical, tmp_path):
    X = single(portfolio(1500))
    y, D = losses(X)
    model = BoostedModel(max_rounds=40, patience=5, categorical=categorical)
    pricer = DiscriminationFreePricer("poisson", model, intervals=False, random_state=0).fit(X, y, sensitive=D)
    assert pricer._prices.formula.unaware.prices.rounds > 0  # there are trees
    on_edges = X.assign(age=np.float32(X["age"]), power=X["power"].round())
    for rows in (X, on_edges, portfolio(500, seed=5).pipe(single)):
        np.testing.assert_allclose(run(pricer, rows, tmp_path), pricer.predict(rows), rtol=1e-10)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_a_neural_pricer(activation, tmp_path):
    X, rng = single(portfolio(300)), np.random.default_rng(0)
    linear = pricer_with(X)._prices
    matrix = linear.design.transform(X)

    def added(start, groups):  # nets as they might have been trained, with a constant column and a shared layer
        nets = Nets.draw(matrix, (8, 4), activation, 1, groups, rng)
        weights = tuple(W + 0.1 * rng.normal(size=W.shape) for W in nets.weights)
        nets = Nets(activation, nets.center, nets.spread * (nets.spread != nets.spread.max()), weights, nets.biases)
        prices = NeuralPrices(nets, 0.7, (-50.0, 50.0), 3, {"train_loss": [], "held_loss": []})
        return AddedPrices(rng.normal(size=(1 + start, groups)) * 0.01, prices, 0.1)

    p = matrix.shape[1]
    formula = Formula(added(p, 1), added(p + 1, 2), linear.reference, (-50.0, 50.0))
    pricer = pricer_with(X)
    pricer._prices = ModelPrices(linear.family, linear.design, GROUPS, formula, ())
    assert np.ptp(pricer.predict(X)) > 0.1
    np.testing.assert_allclose(run(pricer, X, tmp_path), pricer.predict(X), rtol=1e-10)


def test_a_neural_pricer_that_was_trained(tmp_path):
    X = single(portfolio(600))
    y, D = losses(X)
    model = NeuralModel(hidden=(8,), max_epochs=5)
    pricer = DiscriminationFreePricer("poisson", model, correction="inverse", intervals=False, random_state=0)
    pricer.fit(X, y, sensitive=D)
    np.testing.assert_allclose(run(pricer, X, tmp_path), pricer.predict(X), rtol=1e-10)


def test_rows_that_predict_refuses_have_no_premium(tmp_path):
    """The mistake: rows far from those of the fit, which `predict` refuses, had made-up premiums."""
    X = single(portfolio(600))
    y, D = losses(X)
    for model in (NeuralModel(hidden=(8,), max_epochs=5), BoostedModel(max_rounds=5), "linear"):
        settings = {"correction": "inverse", "intervals": False, "random_state": 0}
        pricer = DiscriminationFreePricer("poisson", model, **settings).fit(X, y, sensitive=D)
        far = X.head(3).assign(power=[80.0, 1e6, -1e6])
        refused = []
        for i in range(3):
            try:
                pricer.predict(far.iloc[[i]])
                refused.append(False)
            except (OutOfRangeError, OverflowError):
                refused.append(True)
        assert any(refused)
        assert not refused[0]
        found = run(pricer, far, tmp_path)
        assert np.isnan(found).tolist() == refused
        np.testing.assert_allclose(found[0], pricer.predict(far.head(1))[0], rtol=1e-9)


def test_rare_whole_numbers(tmp_path):
    X = single(portfolio(800)).assign(
        doors=lambda t: np.random.default_rng(3).choice([2, 3, 5], len(t), p=[0.5, 0.4, 0.1])
    )
    y, D = losses(X)
    model = LinearModel(terms="age + rare(doors, 200)")
    pricer = DiscriminationFreePricer("poisson", model, correction="inverse", pooling=0, intervals=False)
    pricer.fit(X, y, sensitive=D)
    rows = X.head(4).assign(doors=[2, 3, 5, 99])
    np.testing.assert_allclose(run(pricer, rows, tmp_path), pricer.predict(rows), rtol=1e-9)


def test_an_array(tmp_path):
    X = single(portfolio(500))[["age", "power"]].to_numpy(float)
    y, D = losses(portfolio(500))
    pricer = DiscriminationFreePricer("poisson", correction="inverse", pooling=0, intervals=False)
    pricer.fit(X, y, sensitive=D)
    np.testing.assert_allclose(run(pricer, X, tmp_path), pricer.predict(X), rtol=1e-12)


def test_unknown_levels_and_missing_numbers(tmp_path):
    X = single(portfolio(300))
    new = X.head(3).assign(region=["city", "moon", "city"])
    with pytest.raises(Exception, match=r"(?i)unknown"):
        run(pricer_with(X), new, tmp_path)
    base = pricer_with(X, unseen_levels="base")
    np.testing.assert_allclose(run(base, new, tmp_path), base.predict(new), rtol=1e-12)
    missing = X.head(2).assign(power=[np.nan, 80.0])
    assert np.isnan(run(base, missing, tmp_path)).tolist() == [True, False]


def test_what_cannot_be_written_is_named(tmp_path):
    X = portfolio(2000)
    y, D = losses(X)
    pricer = DiscriminationFreePricer(
        "poisson", RandomForestRegressor(5, min_samples_leaf=20), intervals=False, random_state=0
    )
    with pytest.raises(ValueError, match="Got precision='half'"):
        pricer_with(X).to_onnx(tmp_path / "model.onnx", precision="half")
    pricer.fit(X, y, sensitive=D)
    with pytest.raises(ValueError, match="linear, boosted or neural"):
        pricer.to_onnx(tmp_path / "model.onnx")
