"""Hypothesis classes: what the group-specific prices f_k may look like."""

from fairpremium.models._boosted import BoostedModel
from fairpremium.models._design import Design
from fairpremium.models._groups import GroupModel, GroupPrices
from fairpremium.models._linear import LinearModel, LinearProblem, prepare
from fairpremium.models._regressor import RegressorModel

__all__ = [
    "BoostedModel",
    "Design",
    "GroupModel",
    "GroupPrices",
    "LinearModel",
    "LinearProblem",
    "RegressorModel",
    "prepare",
]
