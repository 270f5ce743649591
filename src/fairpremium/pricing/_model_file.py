"""Model files: plain JSON, checked field by field, never executed.

The layout is documented in ``docs/guide/model-file.md``. A file carries a SHA-256 of its content, which finds
damage; who made a file is a question for a signature.
"""

from __future__ import annotations

import hashlib
import json
import math
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from fairpremium.errors import ModelFileError
from fairpremium.families import get_family
from fairpremium.models import Design, LinearModel
from fairpremium.pricing._prices import LinearPrices
from fairpremium.privacy import Channel

FORMAT = "fairpremium-pricer"
VERSION = 1


def write_model(pricer: Any, path: str | PathLike[str]) -> None:
    """Write a fitted pricer as JSON."""
    Path(path).write_text(json.dumps(to_document(pricer), indent=1, allow_nan=False) + "\n", encoding="utf-8")


def read_model(cls: Any, path: str | PathLike[str]) -> Any:
    """Read a pricer that `write_model` wrote."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ModelFileError(f"{path} is not a fairpremium model: it is not JSON text.") from error
    return from_document(cls, document, str(path))


def to_document(pricer: Any) -> dict[str, Any]:
    """Return a fitted pricer as plain data with its hash."""
    prices: LinearPrices = pricer._fitted()
    model = LinearModel() if isinstance(pricer.model, str) else pricer.model
    reference = pricer.reference if isinstance(pricer.reference, str) else "given"
    body = {
        "format": FORMAT,
        "version": VERSION,
        "family": prices.family.to_dict(),
        "model": {"kind": "linear", **model.get_params()},
        "groups": [_label(group) for group in prices.groups],
        "channel": None if pricer.channel_ is None else pricer.channel_.descriptor(),
        "correction": pricer.correction_,
        "pooling": pricer.pooling_,
        "reference": reference,
        "unseen_levels": pricer.unseen_levels,
        "design": prices.design.to_dict(),
        "coefficients": prices.coefficients.T.tolist(),
        "unaware": prices.unaware.tolist(),
        "group_distribution": pricer.group_distribution_.tolist(),
        "reference_distribution": prices.reference.tolist(),
        "covariance": None if prices.covariance is None else prices.covariance.tolist(),
        "candidates": [
            {key: _plain(value) for key, value in row.items()} for row in pricer.candidates_.to_dict("records")
        ],
        "rows": pricer.n_rows_,
        "missing_reports": pricer.n_missing_reports_,
    }
    return {**body, "sha256": _digest(body)}


def from_document(cls: Any, document: Any, where: str = "The document") -> Any:
    """Build a pricer from the data of `to_document`."""
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ModelFileError(f'{where} is not a fairpremium model: expected "format": "{FORMAT}".')
    if document.get("version") != VERSION:
        raise ModelFileError(
            f"{where} has model version {document.get('version')!r}, but this fairpremium reads version {VERSION}. "
            "Install a version that reads it, or fit the model again."
        )
    body = {key: value for key, value in document.items() if key != "sha256"}
    try:
        if document["sha256"] != _digest(body):
            raise ModelFileError(f"{where} is damaged or was edited: its content does not match its sha256.")
        return _build(cls, body)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        if isinstance(error, ModelFileError):
            raise
        raise ModelFileError(f"{where} is not a valid fairpremium model: {type(error).__name__}: {error}") from error


def _build(cls: Any, body: dict[str, Any]) -> Any:
    groups = tuple(_unlabel(group) for group in body["groups"])
    channel = None if body["channel"] is None else Channel.from_descriptor(body["channel"])
    settings = dict(body["model"])
    if settings.pop("kind") != "linear":
        raise ModelFileError("The file holds a model class that this version does not know.")
    model = LinearModel(**settings)
    model.check()
    design = Design.from_dict(body["design"])
    K, p = len(groups), len(design.features)
    coefficients = _numbers(body["coefficients"], (K, 1 + p), "coefficients").T
    size = K * (1 + p) + K
    weights = _numbers(body["reference_distribution"], (K,), "reference_distribution")
    covariance = None if body["covariance"] is None else _numbers(body["covariance"], (size, size), "covariance")
    reference = body["reference"]
    pricer = cls(
        family=get_family(body["family"]),
        model=model,
        channel=channel,
        correction="auto" if body["correction"] == "none" else body["correction"],
        pooling=float(body["pooling"]),
        reference=dict(zip(groups, weights.tolist(), strict=True)) if reference == "given" else reference,
        intervals=covariance is not None,
        unseen_levels=body["unseen_levels"],
    )
    if channel is not None and channel.groups != groups:
        raise ModelFileError("The channel's groups are not the model's groups.")
    pricer.groups_ = groups
    pricer.channel_ = channel
    pricer.noise_ = None
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
    unaware = _numbers(body["unaware"], (1 + p,), "unaware")
    pricer._prices = LinearPrices(pricer.family, design, groups, coefficients, unaware, weights, covariance)
    return pricer


def _candidates(records: list[dict[str, Any]]) -> pd.DataFrame:
    table = pd.DataFrame(records)
    numeric = [c for c in table.columns if c not in ("model", "correction", "detail", "chosen", "reason")]
    return table.astype(dict.fromkeys(numeric, float))


def _digest(body: dict[str, Any]) -> str:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _numbers(values: Any, shape: tuple[int, ...], name: str) -> Any:
    array = np.asarray(values, dtype=np.float64)
    if array.shape != shape or not np.isfinite(array).all():
        raise ModelFileError(f"{name} should be finite numbers of shape {shape}, got shape {array.shape}.")
    return array


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _label(label: Any) -> Any:
    return [_label(part) for part in label] if isinstance(label, tuple) else label


def _unlabel(label: Any) -> Any:
    return tuple(_unlabel(part) for part in label) if isinstance(label, list) else label
