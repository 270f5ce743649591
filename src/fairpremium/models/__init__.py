"""Hypothesis classes: what the group-specific prices f_k may look like."""

from fairpremium.models._boosted import BoostedModel
from fairpremium.models._design import Design
from fairpremium.models._groups import GroupModel, GroupPrices, Learner, Start
from fairpremium.models._inputs import check_outcome, check_weight
from fairpremium.models._linear import LinearModel, LinearProblem, prepare
from fairpremium.models._moments import Coordinates, Moments, compute_moments, find_redundant
from fairpremium.models._neural import NeuralModel, NeuralPrices
from fairpremium.models._newton import Minimum, Penalty, minimise, newton_point
from fairpremium.models._plausible import plausible_bounds
from fairpremium.models._regressor import RegressorModel
from fairpremium.models._representation import NeuralRepresentation
from fairpremium.models._risk import GlmRisk

__all__ = [
    "BoostedModel",
    "Coordinates",
    "Design",
    "GlmRisk",
    "GroupModel",
    "GroupPrices",
    "Learner",
    "LinearModel",
    "LinearProblem",
    "Minimum",
    "Moments",
    "NeuralModel",
    "NeuralPrices",
    "NeuralRepresentation",
    "Penalty",
    "RegressorModel",
    "Start",
    "check_outcome",
    "check_weight",
    "compute_moments",
    "find_redundant",
    "minimise",
    "newton_point",
    "plausible_bounds",
    "prepare",
]
