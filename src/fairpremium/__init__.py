"""Discrimination-free insurance pricing when the sensitive attribute is never seen."""

from fairpremium.models import BoostedModel, LinearModel, NeuralModel, NeuralRepresentation
from fairpremium.noise import (
    AnchorNoise,
    LikelihoodNoise,
    MarginNoise,
    RetestNoise,
    ValidationNoise,
    check_declared_channel,
)
from fairpremium.pricing import DiscriminationFreePricer, excess_risk_bound, plan, required_rows
from fairpremium.privacy import Channel, RandomizedResponse, project_to_simplex

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
