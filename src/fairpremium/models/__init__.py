"""Hypothesis classes: what the group-specific prices f_k may look like."""

from fairpremium.models._additions import AddedPrices, Trainer, TrainingTask
from fairpremium.models._boosted import BoostedModel, BoostedPrices
from fairpremium.models._checks import check_cluster, check_outcome, check_volume, check_weight, is_number, is_whole
from fairpremium.models._design import Column, Design, Unseen, as_frame, check_finite, frame_like, levels_column
from fairpremium.models._group_model import GroupModel, GroupPrices, TrainingData, plausible_bounds
from fairpremium.models._linear import LinearModel, LinearProblem, prepare
from fairpremium.models._moments import Coordinates, Moments, compute_moments, find_redundant
from fairpremium.models._nets import check_numbers
from fairpremium.models._neural import NeuralModel, NeuralPrices
from fairpremium.models._regressor import RegressorModel
from fairpremium.models._representation import NeuralRepresentation
from fairpremium.models._signed_risk import GlmRisk, Penalty, joint_hessian, minimise

__all__ = [
    "AddedPrices",
    "BoostedModel",
    "BoostedPrices",
    "Column",
    "Coordinates",
    "Design",
    "GlmRisk",
    "GroupModel",
    "GroupPrices",
    "LinearModel",
    "LinearProblem",
    "Moments",
    "NeuralModel",
    "NeuralPrices",
    "NeuralRepresentation",
    "Penalty",
    "RegressorModel",
    "Trainer",
    "TrainingData",
    "TrainingTask",
    "Unseen",
    "as_frame",
    "check_cluster",
    "check_finite",
    "check_numbers",
    "check_outcome",
    "check_volume",
    "check_weight",
    "compute_moments",
    "find_redundant",
    "frame_like",
    "is_number",
    "is_whole",
    "joint_hessian",
    "levels_column",
    "minimise",
    "plausible_bounds",
    "prepare",
]
