"""Model files: plain JSON, checked field by field, never executed.

The layout is documented in ``docs/guide/model-file.md``. A file carries a SHA-256 of its content, which finds
damage; who made a file is a question for a signature.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fairpremium.documents import check_document, digest, load_json
from fairpremium.errors import ModelFileError
from fairpremium.families import Family, get_family
from fairpremium.models import BoostedModel, Design, GroupModel, GroupPrices, LinearModel, NeuralModel
from fairpremium.models._boosted import BoostedPrices
from fairpremium.models._neural import NeuralPrices
from fairpremium.pricing._classes import correction_for
from fairpremium.pricing._prices import Formula, LinearPrices, ModelPrices, Prices
from fairpremium.privacy import Channel

_CLASSES: dict[str, type[LinearModel | GroupModel]] = {
    "linear": LinearModel,
    "boosted": BoostedModel,
    "neural": NeuralModel,
}
_READERS: dict[str, type[GroupPrices]] = {"boosted": BoostedPrices, "neural": NeuralPrices}
FORMAT = "fairpremium-pricer"
VERSION = 1
NOUN = "fairpremium model"


def write_model(pricer: Any, path: str | PathLike[str]) -> None:
    """Write a fitted pricer as JSON."""
    Path(path).write_text(json.dumps(to_document(pricer), indent=1, allow_nan=False) + "\n", encoding="utf-8")


def read_model(cls: Any, path: str | PathLike[str]) -> Any:
    """Read a pricer that `write_model` wrote."""
    return from_document(cls, load_json(path, NOUN), str(path))


def to_document(pricer: Any) -> dict[str, Any]:
    """Return a fitted pricer as plain data with its hash."""
    prices: Prices = pricer._fitted()
    reference = pricer.reference if isinstance(pricer.reference, str) else "given"
    body = {
        "format": FORMAT,
        "version": VERSION,
        "family": prices.family.to_dict(),
        "model": {"kind": prices.kind, **_plain(pricer.model_.get_params())},
        "groups": [_label(group) for group in prices.groups],
        "channel": None if pricer.channel_ is None else pricer.channel_.descriptor(),
        "correction": pricer.correction_,
        "pooling": pricer.pooling_,
        "reference": reference,
        "unseen_levels": pricer.unseen_levels,
        "design": prices.design.to_dict(),
        **_prices_to_dict(prices),
        "group_distribution": pricer.group_distribution_.tolist(),
        "reference_distribution": pricer.reference_distribution_.tolist(),
        "candidates": [
            {key: _plain(value) for key, value in row.items()} for row in pricer.candidates_.to_dict("records")
        ],
        "rows": pricer.n_rows_,
        "missing_reports": pricer.n_missing_reports_,
    }
    return {**body, "sha256": digest(body)}


def from_document(cls: Any, document: Any, where: str = "The document") -> Any:
    """Build a pricer from the data of `to_document`."""
    body = check_document(document, FORMAT, VERSION, NOUN, where)
    try:
        return _build(cls, body)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        if isinstance(error, ModelFileError):
            raise
        raise ModelFileError(f"{where} is not a valid {NOUN}: {type(error).__name__}: {error}") from error


def _build(cls: Any, body: dict[str, Any]) -> Any:
    groups = tuple(_unlabel(group) for group in body["groups"])
    channel = None if body["channel"] is None else Channel.from_descriptor(body["channel"])
    settings = dict(body["model"])
    kind = settings.pop("kind")
    if kind not in _CLASSES:
        raise ModelFileError("The file holds a model class that this version does not know.")
    model = _CLASSES[kind](**settings)
    model.check()
    design = Design.from_dict(body["design"])
    family, K = get_family(body["family"]), len(groups)
    weights = _numbers(body["reference_distribution"], (K,), "reference_distribution")
    prices = (
        _read_linear(body, family, design, groups) if kind == "linear" else _read_model(body, family, design, groups)
    )
    reference = body["reference"]
    pricer = cls(
        family=family,
        model=model,
        channel=channel,
        correction=correction_for(model, body["correction"]),
        pooling=float(body["pooling"]),
        reference=dict(zip(groups, weights.tolist(), strict=True)) if reference == "given" else reference,
        intervals=prices.has_intervals,
        unseen_levels=body["unseen_levels"],
    )
    if channel is not None and channel.groups != groups:
        raise ModelFileError("The channel's groups are not the model's groups.")
    pricer.groups_ = groups
    pricer.channel_ = channel
    pricer.noise_ = None
    pricer.model_ = model
    added = prices.formula.prices if isinstance(prices, ModelPrices) else None
    pricer.history_ = getattr(added, "history", None)
    pricer.correction_ = body["correction"]
    pricer.pooling_ = pricer.pooling
    pricer.candidates_ = _candidates(body["candidates"])
    pricer.group_distribution_ = _numbers(body["group_distribution"], (K,), "group_distribution")
    pricer.reference_distribution_ = weights
    pricer.n_rows_ = int(body["rows"])
    pricer.n_missing_reports_ = int(body["missing_reports"])
    pricer.n_features_in_ = len(design.columns)
    if design.named:
        pricer.feature_names_in_ = np.asarray(design.names, dtype=object)
    pricer.has_intervals_ = prices.has_intervals
    pricer._prices = prices
    return pricer


def _prices_to_dict(prices: Prices) -> dict[str, Any]:
    if isinstance(prices, LinearPrices):
        return {
            "coefficients": prices.coefficients.T.tolist(),
            "unaware": prices.unaware.tolist(),
            "covariance": None if prices.covariance is None else prices.covariance.tolist(),
        }
    assert isinstance(prices, ModelPrices)
    return {
        "formula": _formula_to_dict(prices.formula),
        "replicates": [_formula_to_dict(formula) for formula in prices.replicates],
        "shifted": [_formula_to_dict(formula) for formula in prices.shifted],
        "shift": prices.shift,
    }


def _formula_to_dict(formula: Formula) -> dict[str, Any]:
    return {
        "center": formula.center,
        "unaware": formula.unaware.to_dict(),
        "coefficients": formula.coefficients.T.tolist(),
        "prices": None if formula.prices is None else formula.prices.to_dict(),
        "reference": formula.reference.tolist(),
        "bounds": list(formula.bounds),
    }


def _read_linear(body: dict[str, Any], family: Family, design: Design, groups: tuple[Any, ...]) -> LinearPrices:
    K, p = len(groups), len(design.features)
    size = K * (1 + p) + K
    return LinearPrices(
        family,
        design,
        groups,
        _numbers(body["coefficients"], (K, 1 + p), "coefficients").T,
        _numbers(body["unaware"], (1 + p,), "unaware"),
        _numbers(body["reference_distribution"], (K,), "reference_distribution"),
        None if body["covariance"] is None else _numbers(body["covariance"], (size, size), "covariance"),
    )


def _read_model(body: dict[str, Any], family: Family, design: Design, groups: tuple[Any, ...]) -> ModelPrices:
    reader = _READERS[body["model"]["kind"]]
    K, p = len(groups), len(design.features)

    def formula(data: dict[str, Any]) -> Formula:
        return Formula(
            float(_numbers(data["center"], (), "center")),
            reader.from_dict(data["unaware"]),
            _numbers(data["coefficients"], (K, 2 + p), "coefficients").T,
            None if data["prices"] is None else reader.from_dict(data["prices"]),
            _numbers(data["reference"], (K,), "reference"),
            tuple(_numbers(data["bounds"], (2,), "bounds").tolist()),
        )

    found = ModelPrices(
        family,
        design,
        groups,
        formula(body["formula"]),
        tuple(formula(data) for data in body["replicates"]),
        tuple(formula(data) for data in body["shifted"]),
        float(_numbers(body["shift"], (), "shift")),
    )
    for each in (found.formula, *found.replicates, *found.shifted):
        each.predictor(np.zeros((0, p)))  # the pieces fit together
    return found


def _candidates(records: list[dict[str, Any]]) -> pd.DataFrame:
    table = pd.DataFrame(records)
    numeric = [c for c in table.columns if c not in ("model", "correction", "detail", "chosen", "reason")]
    return table.astype(dict.fromkeys(numeric, float))


def _numbers(values: Any, shape: tuple[int, ...], name: str) -> Any:
    array = np.asarray(values, dtype=np.float64)
    if array.shape != shape or not np.isfinite(array).all():
        raise ModelFileError(f"{name} should be finite numbers of shape {shape}, got shape {array.shape}.")
    return array


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _label(label: Any) -> Any:
    return [_label(part) for part in label] if isinstance(label, tuple) else label


def _unlabel(label: Any) -> Any:
    return tuple(_unlabel(part) for part in label) if isinstance(label, list) else label
