"""Checks of the pricer's settings, once, before it looks at a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator

from fairpremium.families import Family, get_family
from fairpremium.models import BoostedModel, GroupModel, LinearModel, NeuralModel, RegressorModel

if TYPE_CHECKING:
    from fairpremium.pricing._pricer import DiscriminationFreePricer

_MODELS: dict[str, type[LinearModel | GroupModel]] = {
    "linear": LinearModel,
    "boosted": BoostedModel,
    "neural": NeuralModel,
}
_CORRECTIONS = ("auto", "inverse", "score", "posterior", "likelihood")


class Settings(NamedTuple):
    """What names and numbers of the pricer stand for."""

    family: Family
    models: list[LinearModel | GroupModel]
    pooling: float | None  # None chooses


def check_settings(pricer: DiscriminationFreePricer) -> Settings:
    """Return the settings of a pricer, or say which of them is wrong."""
    if pricer.correction not in _CORRECTIONS:
        raise ValueError(f"Got correction={pricer.correction!r}, but expected one of {list(_CORRECTIONS)}.")
    if pricer.unseen_levels not in ("error", "base"):
        raise ValueError(f'Got unseen_levels={pricer.unseen_levels!r}, but expected "error" or "base".')
    models = [_check_model(model) for model in (pricer.model if isinstance(pricer.model, list) else [pricer.model])]
    if not models:
        raise ValueError("Got model=[], but expected at least one model class.")
    for model in models:
        model.check()
        if isinstance(model, GroupModel) and pricer.channel is not None:
            _check_correction(model, pricer.correction)
    return Settings(get_family(pricer.family), models, _check_pooling(pricer.pooling))


def _check_model(model: Any) -> LinearModel | GroupModel:
    """Return the model object that a name or a regressor stands for."""
    if isinstance(model, str):
        if model not in _MODELS:
            raise ValueError(f"Got model={model!r}, but expected one of {list(_MODELS)} or a model object.")
        return _MODELS[model]()
    if isinstance(model, LinearModel | GroupModel):
        return model
    if isinstance(model, BaseEstimator):
        return RegressorModel(model)
    raise TypeError(
        f"Got model of type {type(model).__name__}, but expected one of {list(_MODELS)}, a model object, a "
        "scikit-learn regressor, or a list of these."
    )


def _check_correction(model: GroupModel, correction: str) -> None:
    if correction == "auto" or correction in model.corrections:
        return
    why = (
        "its equations are those of a linear predictor"
        if correction == "score"
        else "its row weights T^-1[k, s] are negative, and trees then diverge without a word"
    )
    raise ValueError(
        f'Got correction={correction!r} with a {model.kind} model, but {why}; expected "auto" or one of '
        f"{list(model.corrections)}."
    )


def _check_pooling(pooling: Any) -> float | None:
    if isinstance(pooling, str):
        if pooling == "auto":
            return None
    elif not isinstance(pooling, bool) and isinstance(pooling, int | float | np.number) and 0 <= pooling < np.inf:
        return float(pooling)
    raise ValueError(f'Got pooling={pooling!r}, but expected "auto" or a finite strength >= 0 in rows.')
