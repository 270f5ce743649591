"""Hypothesis classes: what the group-specific prices f_k may look like."""

from fairpremium.models._design import Design
from fairpremium.models._linear import LinearModel, LinearProblem, prepare
from fairpremium.models._neural import NeuralModel, NeuralPrices
from fairpremium.models._representation import NeuralRepresentation

__all__ = [
    "Design",
    "LinearModel",
    "LinearProblem",
    "NeuralModel",
    "NeuralPrices",
    "NeuralRepresentation",
    "prepare",
]
