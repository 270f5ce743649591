"""Pricers and tariffs in MLflow: our own model file inside an MLflow model, so that loading executes no code.

The module has the name of the library that it uses, as flavors of other libraries do: ``import fairpremium.mlflow``.
Importing it does not load MLflow.
"""

from __future__ import annotations

import importlib
import json
import platform
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fairpremium import __version__
from fairpremium.errors import MissingExtraError, ModelFileError
from fairpremium.pricing import DiscriminationFreePricer, FrequencySeverityPricer, load_pricer
from fairpremium.tariffs import Tariff

__all__ = ["FLAVOR", "load_model", "log_model", "save_model"]

FLAVOR = "fairpremium"
_FILE = "model.json"
_KINDS = (DiscriminationFreePricer, FrequencySeverityPricer, Tariff)
_EXTRAS = {"boosted": "boosted", "neural": "neural"}  # of model classes

Model = DiscriminationFreePricer | FrequencySeverityPricer | Tariff


def log_model(
    model: Model,
    name: str,
    *,
    signature: Any = None,
    input_example: Any = None,
    registered_model_name: str | None = None,
    **settings: Any,
) -> Any:
    """Log a fitted pricer or a tariff to the active run of MLflow.

    Parameters
    ----------
    model : DiscriminationFreePricer, FrequencySeverityPricer or Tariff
        Fitted.
    name : str
        Name of the model in MLflow.
    signature : mlflow.models.ModelSignature, optional
        That of the model's columns if left out: numbers are double, categories are text, the premium is double.
    input_example : data frame, optional
        A few rows of features. If left out, one row with the base level of every category and 0 for numbers.
    registered_model_name : str, optional
        Name in the model registry.
    **settings
        Further arguments of ``mlflow.models.Model.log``, such as `metadata`, `params` or `tags`.

    Returns
    -------
    mlflow.models.model.ModelInfo
        Its `model_uri` is what `load_model` takes.

    Raises
    ------
    MissingExtraError
        If MLflow is not installed.
    """
    models = _import("mlflow.models")
    return models.Model.log(
        artifact_path=None,
        name=name,
        flavor=importlib.import_module(__name__),
        flavor_name=FLAVOR,
        registered_model_name=registered_model_name,
        model=model,
        signature=signature,
        input_example=input_example,
        **settings,
    )


def save_model(
    model: Model,
    path: str | PathLike[str],
    *,
    mlflow_model: Any = None,
    signature: Any = None,
    input_example: Any = None,
) -> None:
    """Write a fitted pricer or a tariff as a folder in MLflow's format.

    Parameters
    ----------
    model, signature, input_example
        As in `log_model`.
    path : str or path
        A folder that does not exist yet, or is empty.
    mlflow_model : mlflow.models.Model, optional
        What MLflow passes when it logs.
    """
    if not isinstance(model, _KINDS):
        raise TypeError(
            f"Got model of type {type(model).__name__}, but expected a fitted DiscriminationFreePricer, a "
            "FrequencySeverityPricer or a Tariff."
        )
    models, pyfunc = _import("mlflow.models"), _import("mlflow.pyfunc")
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise ValueError(f"Got path={str(path)!r}, which is not empty, but expected a new folder.")
    described = models.Model() if mlflow_model is None else mlflow_model
    model.save(folder / _FILE)
    document = json.loads((folder / _FILE).read_text(encoding="utf-8"))
    described.signature = _signature(model) if signature is None else signature
    example = _example(model) if input_example is None else input_example
    _import("mlflow.models.utils")._save_example(described, example, str(folder))
    described.add_flavor(FLAVOR, fairpremium_version=__version__, format=document["format"], data=_FILE)
    pyfunc.add_to_model(described, loader_module=__name__, data=_FILE, python_env="python_env.yaml")
    _write_environment(folder, document)
    described.save(str(folder / "MLmodel"))


def load_model(uri: str, dst_path: str | None = None) -> Model:
    """Read what `log_model` or `save_model` wrote.

    Parameters
    ----------
    uri : str
        Where the model is: "models:/motor/1", "runs:/.../motor", or a folder.
    dst_path : str, optional
        Where files of a remote store are put.

    Returns
    -------
    DiscriminationFreePricer, FrequencySeverityPricer or Tariff
        As it was saved. Its file is checked and never executed.
    """
    artifacts = _import("mlflow.tracking.artifact_utils")
    folder = Path(artifacts._download_artifact_from_uri(artifact_uri=uri, output_path=dst_path))
    models = _import("mlflow.models")
    flavors = models.Model.load(str(folder / "MLmodel")).flavors
    if FLAVOR not in flavors:
        raise ModelFileError(
            f"{uri} has the flavors {sorted(flavors)}, but expected one that fairpremium.mlflow wrote."
        )
    return _read(folder / _FILE)


def _load_pyfunc(path: str) -> _Premiums:
    """Return what ``mlflow.pyfunc.load_model`` wraps."""
    return _Premiums(_read(Path(path)))


class _Premiums:
    """A model whose `predict` has the arguments that MLflow passes."""

    def __init__(self, model: Model) -> None:
        self.model = model

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Compute premiums; the attribute is not needed."""
        return np.asarray(self.model.predict(model_input))


def _read(path: Path) -> Model:
    try:
        form = json.loads(path.read_text(encoding="utf-8")).get("format")
    except (ValueError, AttributeError) as error:
        raise ModelFileError(f"{path} is not a fairpremium model: it is not JSON text.") from error
    return Tariff.load(path) if form == "fairpremium-tariff" else load_pricer(path)


def _columns(model: Model) -> Any:
    return (model.design if isinstance(model, Tariff) else model.design_).columns


def _signature(model: Model) -> Any:
    """Return the columns with their types, any for numbers; none for a model that was fitted to an array."""
    types, models = _import("mlflow.types"), _import("mlflow.models")
    if not (model.named if isinstance(model, Tariff) else model.design_.named):
        return None
    number = _import("mlflow.types.schema").AnyType()  # a column of type double would reject whole numbers
    columns = [
        types.ColSpec(number if column.levels is None else _level_type(column.levels), column.name)
        for column in _columns(model)
    ]
    return models.ModelSignature(types.Schema(columns), types.Schema([types.ColSpec("double")]))


def _level_type(levels: Any) -> str:
    kinds = {type(level) for level in levels}
    return {bool: "boolean", int: "long", float: "double"}.get(kinds.pop(), "string") if len(kinds) == 1 else "string"


def _example(model: Model) -> Any:
    columns = _columns(model)
    row = {column.name: [0.0 if column.levels is None else column.levels[0]] for column in columns}
    frame = pd.DataFrame(row)
    named = model.named if isinstance(model, Tariff) else model.design_.named
    return frame if named else frame.to_numpy(dtype=np.float64)


def _write_environment(folder: Path, document: dict[str, Any]) -> None:
    """Write what another machine installs to serve the model."""
    text = json.dumps(document)
    extras = sorted(extra for kind, extra in _EXTRAS.items() if f'"kind": "{kind}"' in text)
    named = f"fairpremium[{','.join(extras)}]" if extras else "fairpremium"
    (folder / "requirements.txt").write_text(f"{named}=={__version__}\n", encoding="utf-8")
    environment = (
        f"python: {platform.python_version()}\nbuild_dependencies:\n- pip\ndependencies:\n- -r requirements.txt\n"
    )
    (folder / "python_env.yaml").write_text(environment, encoding="utf-8")


def _import(module: str) -> Any:
    """Return a module of MLflow, or say how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError('This needs MLflow. Install it with: pip install "fairpremium[mlflow]"') from error
