"""Model files of frequency and severity: the documents of all parts, and their joint covariance.

The layout is documented in ``docs/guide/model-file.md``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from fairpremium.arrays import plain_data
from fairpremium.documents import check_document, digest
from fairpremium.errors import ModelFileError
from fairpremium.models import check_numbers
from fairpremium.pricing import _model_file as part_file
from fairpremium.pricing._pricer import DiscriminationFreePricer
from fairpremium.pricing.claims._product_prices import PerilPrices, ProductPrices

FORMAT = "fairpremium-frequency-severity"
VERSION = 1
_EXCESS = ("large_rows", "amount", "excess", "loading")


def to_document(pricer: Any) -> dict[str, Any]:
    """Return a fitted pricer of frequency and severity as plain data with its hash."""
    prices: ProductPrices = pricer._fitted()
    body = {
        "format": FORMAT,
        "version": VERSION,
        "reference": pricer.reference if isinstance(pricer.reference, str) else "given",
        "unseen_levels": pricer.unseen_levels,
        "perils": [
            {
                "name": peril.name,
                "frequency": part_file.to_document(pricer.parts_[peril.name].frequency),
                "severity": part_file.to_document(pricer.parts_[peril.name].severity),
                "cap": plain_data(pricer.excess_.loc[peril.name, "cap"]),
                **{name: plain_data(pricer.excess_.loc[peril.name, name]) for name in _EXCESS},
                "loading_replicates": list(peril.loading_replicates),
            }
            for peril in prices.perils
        ],
        "covariance": None if prices.covariance is None else prices.covariance.tolist(),
        "group_covariance": None if prices.group_covariance is None else prices.group_covariance.tolist(),
    }
    return {**body, "sha256": digest(body)}


def from_document(cls: Any, document: Any, where: str = "The document") -> Any:
    """Build a pricer of frequency and severity from the data of `to_document`."""
    body = check_document(document, FORMAT, VERSION, part_file.NOUN, where)
    try:
        return _build(cls, body, where)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        if isinstance(error, ModelFileError):
            raise
        raise ModelFileError(f"{where} is not a valid {part_file.NOUN}: {type(error).__name__}: {error}") from error


def _build(cls: Any, body: dict[str, Any], where: str) -> Any:
    from fairpremium.pricing.claims._frequency_severity import Parts

    parts, perils = {}, []
    for data in body["perils"]:
        pair = Parts(*(part_file.from_document(DiscriminationFreePricer, data[k], where) for k in Parts._fields))
        loading, again = (check_numbers(data[name], shape, name) for name, shape in _shapes(data))
        parts[str(data["name"])] = pair
        perils.append(
            PerilPrices(
                str(data["name"]), pair.frequency._prices, pair.severity._prices, float(loading), tuple(again.tolist())
            )
        )
    first = perils[0].frequency
    for peril in perils:
        for part in peril.parts:
            same = part.design == first.design and part.groups == first.groups
            if not same or not np.array_equal(part.reference, first.reference):
                raise ModelFileError(f"{where} has parts with other features, groups or reference weights.")
    size = sum(_size(part) for peril in perils for part in peril.parts) + len(first.groups) + len(perils)
    covariance, single = (
        None if body[name] is None else check_numbers(body[name], (size, size), name)
        for name in ("covariance", "group_covariance")
    )
    excess = pd.DataFrame(
        {name: [np.nan if data[name] is None else data[name] for data in body["perils"]] for name in ("cap", *_EXCESS)},
        index=pd.Index(list(parts), name="peril"),
    ).astype({"cap": float})
    weights = dict(zip(first.groups, first.reference.tolist(), strict=True))
    prices = ProductPrices(tuple(perils), covariance, single)
    if not prices.is_linear:
        prices.best_estimate(np.zeros((0, len(first.design.features))))  # the pieces fit together
    return cls.from_prices(
        prices,
        parts,
        excess,
        channel=parts[perils[0].name].frequency.channel_,
        reference=weights if body["reference"] == "given" else body["reference"],
        unseen_levels=body["unseen_levels"],
    )


def _shapes(data: dict[str, Any]) -> list[tuple[str, tuple[int, ...]]]:
    return [("loading", ()), ("loading_replicates", (len(data["loading_replicates"]),))]


def _size(part: Any) -> int:
    coefficients = getattr(part, "coefficients", np.empty(0))
    return int(coefficients.size)
