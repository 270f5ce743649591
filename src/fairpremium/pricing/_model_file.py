"""Model files: plain JSON, checked field by field, never executed.

The layout is documented in ``docs/guide/model-file.md``. A file carries a SHA-256 of its content, which finds
damage; who made a file is a question for a signature.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from fairpremium.arrays import plain_data
from fairpremium.documents import check_document, digest
from fairpremium.errors import ModelFileError
from fairpremium.families import Family, get_family
from fairpremium.labels import label_from_json, label_to_json
from fairpremium.models import AddedPrices, BoostedPrices, Design, GroupPrices, NeuralPrices, check_numbers
from fairpremium.pricing._fit_arguments import MODELS
from fairpremium.pricing._fit_quality import PRICES, PriceQuality
from fairpremium.pricing._prices import Formula, LinearPrices, ModelPrices, Prices
from fairpremium.privacy import Channel, KeyedChannels

_READERS: dict[str, type[GroupPrices]] = {"boosted": BoostedPrices, "neural": NeuralPrices}
FORMAT = "fairpremium-pricer"
VERSIONS = (1, 2, 3)  # 2: `pooling` is an object, which readers of version 1 take for damage; 3: terms, common slopes
_NEW_SETTINGS = {"slopes": "own", "terms": None}  # of the linear model in version 3; left out where they are these
NOUN = "fairpremium model"


def to_document(pricer: Any) -> dict[str, Any]:
    """Return a fitted pricer as plain data with its hash."""
    prices: Prices = pricer._fitted()
    reference = pricer.reference if isinstance(pricer.reference, str) else "given"
    settings = plain_data(pricer.model_.get_params())
    settings = {name: value for name, value in settings.items() if _NEW_SETTINGS.get(name, ...) != value}
    body = {
        "format": FORMAT,
        "version": _version(settings, pricer.pooling_),
        "family": prices.family.to_dict(),
        "model": {"kind": pricer.model_.kind, **settings},
        "groups": [label_to_json(group) for group in prices.groups],
        "channel": None if pricer.channel_ is None else pricer.channel_.descriptor(),
        "correction": pricer.correction_,
        "pooling": pricer.pooling_,
        "reference": reference,
        "unseen_levels": pricer.unseen_levels,
        "design": prices.design.to_dict(),
        **_prices_to_dict(prices),
        "quality": [_quality_to_dict(quality) for quality in prices.quality],
        "group_distribution": pricer.group_distribution_.tolist(),
        "reference_distribution": pricer.reference_distribution_.tolist(),
        "candidates": plain_data(pricer.candidates_.to_dict("records")),
        "rows": pricer.n_rows_,
        "missing_reports": pricer.n_missing_reports_,
    }
    if pricer.n_sampled_rows_ is not None:
        body["sampled_rows"] = pricer.n_sampled_rows_
    return {**body, "sha256": digest(body)}


def from_document(cls: Any, document: Any, where: str = "The document") -> Any:
    """Build a pricer from the data of `to_document`."""
    body = check_document(document, FORMAT, VERSIONS, NOUN, where)
    try:
        return _build(cls, body)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        if isinstance(error, ModelFileError):
            raise
        raise ModelFileError(f"{where} is not a valid {NOUN}: {type(error).__name__}: {error}") from error


def _build(cls: Any, body: dict[str, Any]) -> Any:
    groups = tuple(label_from_json(group) for group in body["groups"])
    channel = None if body["channel"] is None else channel_from_descriptor(body["channel"])
    settings = dict(body["model"])
    kind = settings.pop("kind")
    if kind not in MODELS:
        raise ModelFileError("The file holds a model class that this version does not know.")
    if body["version"] != _version(settings, body["pooling"]):
        raise ModelFileError("The file's version is not that of its pooling, slopes and terms.")
    model = MODELS[kind](**settings)
    model.check()
    design = Design.from_dict(body["design"])
    family, K = get_family(body["family"]), len(groups)
    weights = check_numbers(body["reference_distribution"], (K,), "reference_distribution")
    linear = kind == "linear" and "formula" not in body  # beside another class a linear part has a formula, too
    prices = (_read_linear if linear else _read_model)(body, family, design, groups)
    if channel is not None and channel.groups != groups:
        raise ModelFileError("The channel's groups are not the model's groups.")
    reference = body["reference"]
    return cls.from_prices(
        prices,
        model,
        channel=channel,
        correction=body["correction"],
        pooling=_pooling(body["pooling"]) if isinstance(body["pooling"], dict) else float(body["pooling"]),
        group_distribution=check_numbers(body["group_distribution"], (K,), "group_distribution"),
        candidates=_candidates(body["candidates"]),
        n_rows=int(body["rows"]),
        n_missing_reports=int(body["missing_reports"]),
        n_sampled_rows=None if body.get("sampled_rows") is None else int(body["sampled_rows"]),
        reference=dict(zip(groups, weights.tolist(), strict=True)) if reference == "given" else reference,
        unseen_levels=body["unseen_levels"],
    )


def channel_from_descriptor(descriptor: Any) -> Channel | KeyedChannels:
    """Build the channel, or those of several sources, that a file describes."""
    several = isinstance(descriptor, Mapping) and descriptor.get("scheme") == KeyedChannels.SCHEME
    return KeyedChannels.from_descriptor(descriptor) if several else Channel.from_descriptor(descriptor)


def _version(settings: Mapping[str, Any], pooling: Any) -> int:
    """Return the lowest version that describes a file."""
    return 3 if _NEW_SETTINGS.keys() & settings.keys() else 2 if isinstance(pooling, dict) else 1


def _prices_to_dict(prices: Prices) -> dict[str, Any]:
    if isinstance(prices, LinearPrices):
        return {
            "coefficients": prices.coefficients.T.tolist(),
            "unaware": prices.unaware.tolist(),
            "covariance": None if prices.covariance is None else prices.covariance.tolist(),
            "group_covariance": None if prices.group_covariance is None else prices.group_covariance.tolist(),
            "unaware_covariance": None if prices.unaware_covariance is None else prices.unaware_covariance.tolist(),
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
        "unaware": _added_to_dict(formula.unaware),
        "best": _added_to_dict(formula.best),
        "reference": formula.reference.tolist(),
        "bounds": list(formula.bounds),
    }


def _added_to_dict(added: AddedPrices) -> dict[str, Any]:
    return {
        "coefficients": added.coefficients.T.tolist(),
        "prices": None if added.prices is None else added.prices.to_dict(),
        "shift": added.shift,
    }


def _read_linear(body: dict[str, Any], family: Family, design: Design, groups: tuple[Any, ...]) -> LinearPrices:
    K, p = len(groups), len(design.features)
    size = K * (1 + p) + K
    covariance = None if body["covariance"] is None else check_numbers(body["covariance"], (size, size), "covariance")
    groups_own = body.get("group_covariance")  # files of 0.1.0 have none
    if groups_own is not None:
        groups_own = check_numbers(groups_own, (size - K, size - K), "group_covariance")
    own = body.get("unaware_covariance")
    return LinearPrices(
        family,
        design,
        groups,
        check_numbers(body["coefficients"], (K, 1 + p), "coefficients").T,
        check_numbers(body["unaware"], (1 + p,), "unaware"),
        check_numbers(body["reference_distribution"], (K,), "reference_distribution"),
        covariance,
        groups_own,
        None if own is None else check_numbers(own, (1 + p, 1 + p), "unaware_covariance"),
        _read_quality(body, groups),
    )


def _read_model(body: dict[str, Any], family: Family, design: Design, groups: tuple[Any, ...]) -> ModelPrices:
    kind = body["model"]["kind"]
    K, p = len(groups), len(design.features)

    def added(data: dict[str, Any], groups: int, size: int) -> AddedPrices:
        return AddedPrices(
            check_numbers(data["coefficients"], (groups, size), "coefficients").T,
            None if data["prices"] is None else _READERS[kind].from_dict(data["prices"]),
            float(check_numbers(data["shift"], (), "shift")),
        )

    def formula(data: dict[str, Any]) -> Formula:
        data = _as_now(data, p) if "center" in data else data
        return Formula(
            added(data["unaware"], 1, 1 + p),
            added(data["best"], K, 2 + p),
            check_numbers(data["reference"], (K,), "reference"),
            tuple(check_numbers(data["bounds"], (2,), "bounds").tolist()),
        )

    found = ModelPrices(
        family,
        design,
        groups,
        formula(body["formula"]),
        tuple(formula(data) for data in body["replicates"]),
        tuple(formula(data) for data in body["shifted"]),
        float(check_numbers(body["shift"], (), "shift")),
        _read_quality(body, groups),
    )
    for each in (found.formula, *found.replicates, *found.shifted):
        each.predictor(np.zeros((0, p)))  # the pieces fit together
    return found


def _quality_to_dict(quality: PriceQuality) -> dict[str, Any]:
    group = None if quality.group is None else label_to_json(quality.group)
    return {**plain_data(vars(quality)), "group": group}


def _read_quality(body: dict[str, Any], groups: tuple[Any, ...]) -> tuple[PriceQuality, ...]:
    """Read how well the prices describe the outcomes; files of 0.1.0 and fits without intervals do not say."""
    found = []
    for data in body.get("quality", []):
        group = None if data["group"] is None else label_from_json(data["group"])
        if data["price"] not in PRICES or not (group is None or group in groups) or len(data) != 5:
            raise ModelFileError("The file's quality is not about its prices.")
        numbers = [data[name] for name in ("deviance", "null_deviance", "aic")]
        known = [0.0 if number is None else number for number in numbers]
        checked = check_numbers(known, (3,), "quality").tolist()
        values = [np.nan if n is None else value for n, value in zip(numbers, checked, strict=True)]
        found.append(PriceQuality(data["price"], group, *values))
    return tuple(found)


def _pooling(scales: dict[str, Any]) -> dict[str, Any]:
    """Check the standard deviations that empirical Bayes found."""
    found = [scales["main"], *scales["slopes"].values()]
    if (check_numbers(found, (len(found),), "pooling") < 0).any() or len(scales) != 2:
        raise ModelFileError("The file's pooling is not a standard deviation of the levels and one for each column.")
    return {"main": float(scales["main"]), "slopes": {name: float(sd) for name, sd in scales["slopes"].items()}}


def _as_now(data: dict[str, Any], p: int) -> dict[str, Any]:
    """Return a formula of version 0.1.0, whose unaware price begins at a constant, as it is written now."""
    unaware = {"coefficients": [[data["center"], *[0.0] * p]], "prices": data["unaware"], "shift": 0.0}
    best = {"coefficients": data["coefficients"], "prices": data["prices"], "shift": 0.0}
    return {**data, "unaware": unaware, "best": best}


def _candidates(records: list[dict[str, Any]]) -> pd.DataFrame:
    table = pd.DataFrame(records)
    numeric = [c for c in table.columns if c not in ("model", "correction", "detail", "chosen", "reason")]
    return table.astype(dict.fromkeys(numeric, float))
