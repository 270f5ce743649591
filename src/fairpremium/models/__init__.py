"""Hypothesis classes: what the group-specific prices f_k may look like."""

from fairpremium.models._boosted import BoostedModel
from fairpremium.models._design import Design
from fairpremium.models._groups import GroupModel, GroupPrices
from fairpremium.models._linear import LinearModel, LinearProblem, prepare
from fairpremium.models._neural import NeuralModel, NeuralPrices
from fairpremium.models._regressor import RegressorModel
from fairpremium.models._representation import NeuralRepresentation

__all__ = [
    "BoostedModel",
    "Design",
    "GroupModel",
    "GroupPrices",
    "LinearModel",
    "LinearProblem",
    "NeuralModel",
    "NeuralPrices",
    "NeuralRepresentation",
    "RegressorModel",
    "prepare",
]
