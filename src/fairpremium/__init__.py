"""Discrimination-free insurance pricing when the sensitive attribute is never seen."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairpremium.models import BoostedModel as BoostedModel
    from fairpremium.models import LinearModel as LinearModel
    from fairpremium.models import NeuralModel as NeuralModel
    from fairpremium.models import NeuralRepresentation as NeuralRepresentation
    from fairpremium.noise import AnchorNoise as AnchorNoise
    from fairpremium.noise import LikelihoodNoise as LikelihoodNoise
    from fairpremium.noise import MarginNoise as MarginNoise
    from fairpremium.noise import RetestNoise as RetestNoise
    from fairpremium.noise import ValidationNoise as ValidationNoise
    from fairpremium.noise import check_declared_channel as check_declared_channel
    from fairpremium.pricing import DiscriminationFreePricer as DiscriminationFreePricer
    from fairpremium.pricing import excess_risk_bound as excess_risk_bound
    from fairpremium.pricing import plan as plan
    from fairpremium.pricing import required_rows as required_rows
    from fairpremium.privacy import Channel as Channel
    from fairpremium.privacy import RandomizedResponse as RandomizedResponse
    from fairpremium.privacy import project_to_simplex as project_to_simplex

__version__ = "0.1.0"

__all__ = [
    "AnchorNoise",
    "BoostedModel",
    "Channel",
    "DiscriminationFreePricer",
    "LikelihoodNoise",
    "LinearModel",
    "MarginNoise",
    "NeuralModel",
    "NeuralRepresentation",
    "RandomizedResponse",
    "RetestNoise",
    "ValidationNoise",
    "check_declared_channel",
    "excess_risk_bound",
    "plan",
    "project_to_simplex",
    "required_rows",
]

# Names are loaded when they are first used: a command that signs a request needs no model.
_NAMES = {
    "models": ("BoostedModel", "LinearModel", "NeuralModel", "NeuralRepresentation"),
    "noise": (
        "AnchorNoise", "LikelihoodNoise", "MarginNoise", "RetestNoise", "ValidationNoise", "check_declared_channel",
    ),
    "pricing": ("DiscriminationFreePricer", "excess_risk_bound", "plan", "required_rows"),
    "privacy": ("Channel", "RandomizedResponse", "project_to_simplex"),
}  # fmt: skip
_PACKAGE_OF = {name: package for package, names in _NAMES.items() for name in names}
_PACKAGES = {*_NAMES, "audit", "blocks", "corrections", "errors", "families", "portfolios"}


def __getattr__(name: str) -> Any:
    if name in _PACKAGE_OF:
        return getattr(import_module(f"{__name__}.{_PACKAGE_OF[name]}"), name)
    if name in _PACKAGES:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
