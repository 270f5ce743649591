"""The learned representation: a scikit-learn transformer, its files, and what prices gain from it."""

import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import Pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from fairpremium import DiscriminationFreePricer, RandomizedResponse
from fairpremium.errors import ModelFileError
from fairpremium.models import NeuralModel, NeuralRepresentation
from fairpremium.portfolios import zhang_liu_shi_2025

QUICK = {"layers": (12, 6), "max_epochs": 15, "random_state": 0}


def expected_failures(estimator):
    return {
        "check_sample_weight_equivalence_on_dense_data": "mini-batches and held-out rows are drawn per row: a row of "
        "weight two is in one, two equal rows may be in two"
    }


def without_array_api(mark):
    """Drop the array-API check: it needs SCIPY_ARRAY_API=1 before the first import, as the next test has it."""
    names, params = mark.args
    kept = [p for p in params if "check_array_api_input" not in str(getattr(p, "values", p))]
    assert len(kept) == len(params) - 1
    return pytest.mark.parametrize(names, kept, **mark.kwargs)


@without_array_api(
    parametrize_with_checks(
        [NeuralRepresentation(layers=(4,), max_epochs=2)], expected_failed_checks=expected_failures
    ).mark
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_scikit_learn_array_api_check():
    program = (
        "from fairpremium.models import NeuralRepresentation\n"
        "from sklearn.utils.estimator_checks import check_array_api_input\n"
        "representation = NeuralRepresentation(layers=(4,), max_epochs=2, random_state=0)\n"
        "check_array_api_input('Representation', representation, 'numpy', expect_only_array_outputs=False)"
    )
    env = {**os.environ, "SCIPY_ARRAY_API": "1"}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.fixture(scope="module")
def table():
    p = zhang_liu_shi_2025(n=1000, rng=0)
    X = p.X.assign(region=np.where(p.X["age"] % 3 == 0, "north", np.where(p.X["age"] % 3 == 1, "south", "west")))
    return X, p.y


@pytest.fixture(scope="module")
def fitted(table):
    return NeuralRepresentation(**QUICK).fit(*table)


def test_frames_of_any_library_go_in_and_come_out(table, fitted):
    X, _ = table
    Z = fitted.transform(X)
    assert isinstance(Z, pd.DataFrame)
    assert list(Z.columns) == list(fitted.get_feature_names_out()) == [f"z{j}" for j in range(6)]
    assert Z.index.equals(X.index)
    assert np.abs(Z.to_numpy()).max() <= 1  # tanh
    for frame, library in ((pl.from_pandas(X), pl.DataFrame), (pa.Table.from_pandas(X), pa.Table)):
        other = fitted.transform(frame)
        assert isinstance(other, library)
        np.testing.assert_array_equal(np.column_stack([other[f"z{j}"].to_numpy() for j in range(6)]), Z.to_numpy())
    numbers = X[["age", "smoker"]].astype(float).to_numpy()
    assert isinstance(NeuralRepresentation(**QUICK).fit(numbers, table[1]).transform(numbers), np.ndarray)
    with pytest.raises(ValueError, match="level of column 'region'"):
        fitted.transform(X.assign(region="east"))


def test_set_output(table):
    X, y = table
    numbers = X[["age", "smoker"]].astype(float).to_numpy()
    Z = NeuralRepresentation(**QUICK).set_output(transform="pandas").fit(numbers, y).transform(numbers)
    assert list(Z.columns) == [f"z{j}" for j in range(6)]


def test_the_price_is_the_link_of_a_linear_function_of_the_representation(table):
    X, y = table
    counts = np.random.default_rng(0).poisson(y.clip(0) / y.mean()).astype(float)
    fitted = NeuralRepresentation("poisson", **QUICK).fit(X, counts, sample_weight=np.full(len(y), 2.0))
    Z = np.column_stack([np.ones(len(y)), fitted.transform(X)])
    log_price = np.log(fitted.predict(X))
    coefficients, *_ = np.linalg.lstsq(Z, log_price, rcond=None)
    np.testing.assert_allclose(Z @ coefficients, log_price, atol=1e-6)
    assert fitted.predict(X).mean() == pytest.approx(counts.mean(), rel=0.1)


def test_the_unaware_price_is_learned():
    p = zhang_liu_shi_2025(n=5000, rng=1)
    fitted = NeuralRepresentation(random_state=0, max_epochs=60).fit(p.X, p.y)
    error = np.sqrt(np.mean((fitted.predict(p.X) - p.unaware(p.X)) ** 2))
    line = LinearRegression().fit(p.X, p.y).predict(p.X)
    assert error < 0.8 * np.sqrt(np.mean((line - p.unaware(p.X)) ** 2))
    assert fitted.history_["held_loss"][-1] < fitted.history_["held_loss"][0]


def test_volumes_count(table):
    X, y = table
    w = np.where(X["smoker"], 1.0, 0.0)
    fitted = NeuralRepresentation(held_out=0, **QUICK).fit(X, y, sample_weight=w)
    low = NeuralRepresentation(held_out=0, **QUICK).fit(X, np.where(w > 0, y, -1e6), sample_weight=w)
    np.testing.assert_allclose(low.predict(X)[w > 0], fitted.predict(X)[w > 0], rtol=1e-2)


def test_a_file_brings_it_back_and_its_fingerprint_with_it(table, fitted, tmp_path):
    X, y = table
    path = tmp_path / "representation.json"
    fitted.save(path)
    again = NeuralRepresentation.load(path)
    np.testing.assert_array_equal(again.transform(X), fitted.transform(X))
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))
    assert again.fingerprint_ == fitted.fingerprint_ == json.loads(path.read_text())["sha256"]
    assert again.get_params() == {**fitted.get_params(), "family": again.family, "random_state": None}
    assert list(again.feature_names_in_) == ["age", "smoker", "region"]
    same, other = clone(fitted).fit(X, y), clone(fitted).set_params(random_state=1).fit(X, y)
    assert same.fingerprint_ == fitted.fingerprint_ != other.fingerprint_


def damage(document, **fields):
    from fairpremium.documents import digest

    body = {**document, **fields}
    body.pop("sha256")
    return json.dumps({**body, "sha256": digest(body)})


def test_damaged_files_are_refused(fitted, tmp_path):
    path = tmp_path / "representation.json"
    fitted.save(path)
    document = json.loads(path.read_text())
    design = {**document["design"], "columns": document["design"]["columns"][:1]}
    texts = {
        "not JSON": "{",
        'expected "format"': "[]",
        "version 2": json.dumps({**document, "version": 2}),
        "does not match its sha256": json.dumps({**document, "family": {"name": "gamma"}}),
        "content does not match": json.dumps({**document, "version": 1, "x": float("nan")}),
        "family='lognormal'": damage(document, family={"name": "lognormal"}),
        "KeyError": damage(document, prices={}),
        "unexpected keyword": damage(document, settings={**document["settings"], "x": 1}),
        "layers": damage(document, settings={}),
        "does not fit the columns": damage(document, design=design),
    }
    for message, text in texts.items():
        path.write_text(text)
        with pytest.raises(ModelFileError, match=message):
            NeuralRepresentation.load(path)


def test_it_works_in_a_pipeline_before_the_pricer(table):
    X, y = table
    p = zhang_liu_shi_2025(n=1000, rng=0)
    channel = RandomizedResponse(["F", "M"], keep=0.9)
    S = channel.privatize(p.sensitive, rng=0)
    pricer = DiscriminationFreePricer(channel=channel, correction="inverse", pooling=0, random_state=0)
    representation = NeuralRepresentation(**QUICK)
    pipeline = Pipeline([("representation", representation), ("pricer", pricer)]).fit(X, y, pricer__sensitive=S)
    apart = clone(pricer).fit(clone(representation).fit_transform(X, y), y, sensitive=S)
    Z = pipeline["representation"].transform(X)
    np.testing.assert_allclose(pipeline.predict(X), apart.predict(Z))
    with config_context(enable_metadata_routing=True):
        routed = Pipeline(
            [
                ("representation", clone(representation).set_fit_request(sample_weight=True)),
                ("pricer", clone(pricer).set_fit_request(sensitive=True, sample_weight=True)),
            ]
        ).fit(X, y, sensitive=S, sample_weight=np.ones(len(y)))
    np.testing.assert_allclose(routed.predict(X), pipeline.predict(X), rtol=1e-6)


def test_linear_prices_gain_from_it():
    p = zhang_liu_shi_2025(n=5000, rng=2)
    truth = p.best_estimate(p.X).to_numpy()

    def error(X):
        pricer = DiscriminationFreePricer(pooling=0, intervals=False).fit(X, p.y, sensitive=p.sensitive)
        return float(np.sqrt(np.mean((pricer.predict_best_estimate(X).to_numpy() - truth) ** 2)))

    learned = NeuralRepresentation(max_epochs=100, random_state=0).fit_transform(p.X, p.y)
    assert error(learned) < 0.6 * error(p.X)


def test_settings_are_checked(table):
    X, y = table
    shared = set(NeuralRepresentation().get_params()) & set(NeuralModel().get_params()) - {"activation"}
    assert len(shared) == 7
    for name in shared:
        assert NeuralRepresentation().get_params()[name] == NeuralModel().get_params()[name]
    for layers in (0, 8, (), (8, 0), "8"):
        with pytest.raises(ValueError, match="Got layers="):
            NeuralRepresentation(layers=layers).fit(X, y)
    with pytest.raises(ValueError, match="Got learning_rate="):
        NeuralRepresentation(learning_rate=0).fit(X, y)
    for share in (1.0, -0.1, True):
        with pytest.raises(ValueError, match="Got held_out="):
            NeuralRepresentation(held_out=share).fit(X, y)
    with pytest.raises(ValueError, match=r"Got held_out=0\.9999 of 1000 rows, which leaves none to learn from"):
        NeuralRepresentation(held_out=0.9999).fit(X, y)
    with pytest.raises(NotFittedError):
        NeuralRepresentation().save("never.json")


def test_a_share_of_less_than_half_a_row_holds_out_none(table):
    X, y = table
    fitted = NeuralRepresentation(held_out=0.0004, layers=(3,), max_epochs=2, random_state=0).fit(X, y)
    assert fitted.history_["held_loss"] == []
    assert len(fitted.history_["train_loss"]) == 2


def test_parameters_set_after_the_fit_say_nothing_about_it(table, fitted, tmp_path):
    """The file and its fingerprint are those of the net that was trained, not of the next one."""
    X, _ = table
    fitted.save(tmp_path / "before.json")
    before, params = fitted.fingerprint_, fitted.get_params()
    try:
        fitted.set_params(layers=(3,), max_epochs=1, held_out=0.5)
        fitted.save(tmp_path / "after.json")
    finally:
        fitted.set_params(**params)
    assert (tmp_path / "after.json").read_bytes() == (tmp_path / "before.json").read_bytes()
    again = NeuralRepresentation.load(tmp_path / "after.json")
    assert again.fingerprint_ == before
    assert again.layers == QUICK["layers"]
    np.testing.assert_array_equal(again.transform(X), fitted.transform(X))
