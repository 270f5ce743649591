"""Hypothesis classes: what the group-specific prices f_k may look like."""

from fairpremium.models._design import Design
from fairpremium.models._linear import LinearModel, LinearProblem, prepare
from fairpremium.models._neural import NeuralModel, NeuralPrices

__all__ = ["Design", "LinearModel", "LinearProblem", "NeuralModel", "NeuralPrices", "prepare"]
