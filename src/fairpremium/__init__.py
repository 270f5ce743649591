"""Discrimination-free insurance pricing when the sensitive attribute is never seen."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fairpremium.lazy import lazy_exports

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
    from fairpremium.noise import check_sources as check_sources
    from fairpremium.pricing import DiscriminationFreePricer as DiscriminationFreePricer
    from fairpremium.pricing import FrequencySeverityPricer as FrequencySeverityPricer
    from fairpremium.pricing import excess_risk_bound as excess_risk_bound
    from fairpremium.pricing import plan as plan
    from fairpremium.pricing import required_rows as required_rows
    from fairpremium.privacy import Channel as Channel
    from fairpremium.privacy import RandomizedResponse as RandomizedResponse
    from fairpremium.privacy import SubsetSelection as SubsetSelection
    from fairpremium.privacy import project_to_simplex as project_to_simplex
    from fairpremium.tariffs import Tariff as Tariff

__version__ = "0.2.0"

_HOMES = {
    "models": "BoostedModel LinearModel NeuralModel NeuralRepresentation",
    "noise": "AnchorNoise LikelihoodNoise MarginNoise RetestNoise ValidationNoise check_declared_channel check_sources",
    "pricing": "DiscriminationFreePricer FrequencySeverityPricer excess_risk_bound plan required_rows",
    "privacy": "Channel RandomizedResponse SubsetSelection project_to_simplex",
    "tariffs": "Tariff",
}
__all__, _load = lazy_exports(__name__, _HOMES)
_PACKAGES = {
    *_HOMES,
    "audit",
    "blocks",
    "corrections",
    "errors",
    "families",
    "model_documents",
    "monitoring",
    "portfolios",
}


def __getattr__(name: str) -> Any:
    return import_module(f"{__name__}.{name}") if name in _PACKAGES else _load(name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
