"""Hypothesis classes: what the group-specific prices f_k may look like."""

from fairpremium.models._additions import AddedPrices, Trainer, TrainingTask
from fairpremium.models._boosted import BoostedModel, BoostedPrices
from fairpremium.models._checks import (
    check_cluster,
    check_one_volume,
    check_outcome,
    check_volume,
    check_weight,
    exposure_message,
    is_number,
    is_whole,
    warn_if_counts,
)
from fairpremium.models._design import (
    ArrayFacts,
    Column,
    Design,
    as_frame,
    check_finite,
    frame_like,
    learn_design,
    levels_column,
)
from fairpremium.models._group_model import GroupModel, GroupPrices, TrainingData, plausible_bounds
from fairpremium.models._linear import LinearModel, LinearProblem, prepare
from fairpremium.models._moments import Coordinates, Moments, compute_moments, find_redundant
from fairpremium.models._nets import check_numbers
from fairpremium.models._neural import NeuralModel, NeuralPrices
from fairpremium.models._recognition import DATES_HELP, check_texts, describe_numbers, describe_texts, find_outcome
from fairpremium.models._regressor import RegressorModel
from fairpremium.models._representation import NeuralRepresentation
from fairpremium.models._signed_risk import GlmRisk, Minimum, Penalty, joint_hessian, minimise
from fairpremium.models._span import Span
from fairpremium.models._terms import (
    OTHER,
    BandsFactor,
    Categories,
    LevelsFactor,
    NumberFactor,
    PolynomialFactor,
    SplineFactor,
    Term,
    Unseen,
    Values,
    whole_categories,
)
from fairpremium.models._terms_language import parse_terms

__all__ = [
    "DATES_HELP",
    "OTHER",
    "AddedPrices",
    "ArrayFacts",
    "BandsFactor",
    "BoostedModel",
    "BoostedPrices",
    "Categories",
    "Column",
    "Coordinates",
    "Design",
    "GlmRisk",
    "GroupModel",
    "GroupPrices",
    "LevelsFactor",
    "LinearModel",
    "LinearProblem",
    "Minimum",
    "Moments",
    "NeuralModel",
    "NeuralPrices",
    "NeuralRepresentation",
    "NumberFactor",
    "Penalty",
    "PolynomialFactor",
    "RegressorModel",
    "Span",
    "SplineFactor",
    "Term",
    "Trainer",
    "TrainingData",
    "TrainingTask",
    "Unseen",
    "Values",
    "as_frame",
    "check_cluster",
    "check_finite",
    "check_numbers",
    "check_one_volume",
    "check_outcome",
    "check_texts",
    "check_volume",
    "check_weight",
    "compute_moments",
    "describe_numbers",
    "describe_texts",
    "exposure_message",
    "find_outcome",
    "find_redundant",
    "frame_like",
    "is_number",
    "is_whole",
    "joint_hessian",
    "learn_design",
    "levels_column",
    "minimise",
    "parse_terms",
    "plausible_bounds",
    "prepare",
    "warn_if_counts",
    "whole_categories",
]
