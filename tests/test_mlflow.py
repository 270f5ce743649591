"""MLflow: what was logged comes back without pickle, with a signature and an example, from a real local store."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fairpremium.mlflow
from fairpremium import DiscriminationFreePricer, FrequencySeverityPricer, RandomizedResponse, Tariff
from fairpremium.errors import MissingExtraError, ModelFileError

mlflow = pytest.importorskip("mlflow")
pytestmark = pytest.mark.filterwarnings("default")  # MLflow and SQLAlchemy warn about themselves


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"age": rng.uniform(20, 70, 1500), "region": rng.choice(["north", "south"], 1500)})
    channel = RandomizedResponse(["F", "M"], keep=0.8)
    sensitive = channel.privatize(rng.choice(["F", "M"], 1500), rng=1)
    counts = rng.poisson(0.5 * np.exp(0.01 * (X["age"] - 45)))
    return X, counts, counts * rng.gamma(2.0, 500.0, 1500), sensitive, channel


@pytest.fixture(scope="module")
def pricer(rows):
    X, counts, _, sensitive, channel = rows
    return DiscriminationFreePricer(family="poisson", channel=channel, correction="inverse", pooling=0).fit(
        X, counts, sensitive=sensitive
    )


@pytest.fixture
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # a database needs more than mlflow-skinny
    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    mlflow.set_experiment("prices")
    yield tmp_path
    mlflow.set_tracking_uri(None)


def test_a_pricer_comes_back_from_a_store(pricer, rows, store):
    X = rows[0]
    with mlflow.start_run():
        info = fairpremium.mlflow.log_model(pricer, "motor", input_example=X.head(3), registered_model_name="motor")
    for uri in (info.model_uri, "models:/motor/1"):
        found = fairpremium.mlflow.load_model(uri)
        np.testing.assert_array_equal(found.predict(X), pricer.predict(X))
    served = mlflow.pyfunc.load_model(info.model_uri)
    np.testing.assert_array_equal(served.predict(X), pricer.predict(X))
    assert served.metadata.signature.inputs.input_names() == ["age", "region"]
    assert "sensitive" not in str(served.metadata.signature)
    assert [str(t) for t in served.metadata.signature.inputs.input_types()] == ["Any", "DataType.string"]
    pd.testing.assert_frame_equal(served.input_example, X.head(3), check_dtype=False)
    with pytest.raises(mlflow.exceptions.MlflowException, match="age"):
        served.predict(X[["region"]])


def test_a_served_model_takes_whole_numbers(rows, tmp_path):
    X, counts, _, sensitive, channel = rows
    X = X.assign(age=X["age"].round().astype("int64"), bonus=np.arange(len(X), dtype="int32") % 5, new=X["age"] > 40)
    fitted = DiscriminationFreePricer(family="poisson", channel=channel, correction="inverse", pooling=0).fit(
        X, counts, sensitive=sensitive
    )
    fairpremium.mlflow.save_model(fitted, tmp_path / "model")
    served = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    np.testing.assert_array_equal(served.predict(X), fitted.predict(X))
    halves = X.assign(age=X["age"] + 0.5)
    np.testing.assert_array_equal(served.predict(halves), fitted.predict(halves))


def test_nothing_in_the_folder_is_a_pickle(pricer, tmp_path):
    fairpremium.mlflow.save_model(pricer, tmp_path / "model")
    names = {path.name for path in (tmp_path / "model").rglob("*") if path.is_file()}
    assert {"MLmodel", "model.json", "requirements.txt", "python_env.yaml", "input_example.json"} <= names
    assert not [name for name in names if name.endswith((".pkl", ".pickle", ".joblib", ".cloudpickle"))]
    assert (tmp_path / "model" / "requirements.txt").read_text() == f"fairpremium=={fairpremium.__version__}\n"
    example = json.loads((tmp_path / "model" / "input_example.json").read_text())
    assert example["columns"] == ["age", "region"]  # made from the model's columns
    DiscriminationFreePricer.load(tmp_path / "model" / "model.json")


def test_claims_and_tariffs_come_back(pricer, rows, tmp_path):
    X, counts, amounts, sensitive, channel = rows
    claims = FrequencySeverityPricer(channel=channel, correction="inverse", pooling=0)
    claims.fit(X, counts, amounts, sensitive=sensitive)
    tariff = pricer.to_tariff(X, bands={"age": [30, 50]})
    for name, model in (("claims", claims), ("tariff", tariff)):
        fairpremium.mlflow.save_model(model, tmp_path / name)
        found = fairpremium.mlflow.load_model(str(tmp_path / name))
        assert type(found) is type(model)
        np.testing.assert_allclose(found.predict(X), model.predict(X), rtol=1e-12)
        np.testing.assert_allclose(
            mlflow.pyfunc.load_model(str(tmp_path / name)).predict(X), model.predict(X), rtol=1e-12
        )
    assert isinstance(found, Tariff)


def test_a_pricer_of_an_array_has_no_signature_but_an_example(rows, tmp_path):
    X, counts, _, sensitive, channel = rows
    array = X[["age"]].to_numpy()
    pricer = DiscriminationFreePricer(family="poisson", channel=channel, correction="inverse", pooling=0).fit(
        array, counts, sensitive=sensitive
    )
    fairpremium.mlflow.save_model(pricer, tmp_path / "model")
    np.testing.assert_array_equal(
        mlflow.pyfunc.load_model(str(tmp_path / "model")).predict(array), pricer.predict(array)
    )


def test_mistakes_are_named(pricer, tmp_path, monkeypatch):
    with pytest.raises(TypeError, match="Got model of type int"):
        fairpremium.mlflow.save_model(3, tmp_path / "model")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("x")
    with pytest.raises(ValueError, match="is not empty"):
        fairpremium.mlflow.save_model(pricer, tmp_path / "full")
    fairpremium.mlflow.save_model(pricer, tmp_path / "model")
    file = tmp_path / "model" / "model.json"
    file.write_text(file.read_text().replace('"rows": 1500', '"rows": 1501'))
    with pytest.raises(ModelFileError, match="damaged or was edited"):
        fairpremium.mlflow.load_model(str(tmp_path / "model"))
    other = tmp_path / "model" / "MLmodel"
    other.write_text(other.read_text().replace("fairpremium:", "another:"))
    with pytest.raises(ModelFileError, match="but expected one that"):
        fairpremium.mlflow.load_model(str(tmp_path / "model"))
    monkeypatch.setitem(sys.modules, "mlflow.models", None)
    with pytest.raises(MissingExtraError, match=r"fairpremium\[mlflow\]"):
        fairpremium.mlflow.log_model(pricer, "motor")


def test_importing_it_does_not_load_mlflow_and_does_not_hide_it():
    assert mlflow.__version__
    assert Path(mlflow.__file__).parent.name == "mlflow"
    assert fairpremium.mlflow.__name__ == "fairpremium.mlflow"
