"""Hypothesis classes: what the group-specific prices f_k may look like."""

from typing import TYPE_CHECKING

from fairpremium.lazy import lazy_exports

if TYPE_CHECKING:
    from fairpremium.models._additions import AddedPrices as AddedPrices
    from fairpremium.models._additions import Trainer as Trainer
    from fairpremium.models._additions import TrainingTask as TrainingTask
    from fairpremium.models._boosted import BoostedModel as BoostedModel
    from fairpremium.models._boosted import BoostedPrices as BoostedPrices
    from fairpremium.models._checks import check_cluster as check_cluster
    from fairpremium.models._checks import check_one_volume as check_one_volume
    from fairpremium.models._checks import check_outcome as check_outcome
    from fairpremium.models._checks import check_volume as check_volume
    from fairpremium.models._checks import check_weight as check_weight
    from fairpremium.models._checks import exposure_message as exposure_message
    from fairpremium.models._checks import is_number as is_number
    from fairpremium.models._checks import is_whole as is_whole
    from fairpremium.models._checks import warn_if_counts as warn_if_counts
    from fairpremium.models._design import ArrayFacts as ArrayFacts
    from fairpremium.models._design import Column as Column
    from fairpremium.models._design import Design as Design
    from fairpremium.models._design import as_frame as as_frame
    from fairpremium.models._design import check_finite as check_finite
    from fairpremium.models._design import frame_like as frame_like
    from fairpremium.models._design import learn_design as learn_design
    from fairpremium.models._design import levels_column as levels_column
    from fairpremium.models._group_model import Features as Features
    from fairpremium.models._group_model import GroupModel as GroupModel
    from fairpremium.models._group_model import GroupPrices as GroupPrices
    from fairpremium.models._group_model import TrainingData as TrainingData
    from fairpremium.models._group_model import plausible_bounds as plausible_bounds
    from fairpremium.models._linear import LinearModel as LinearModel
    from fairpremium.models._linear import LinearProblem as LinearProblem
    from fairpremium.models._linear import prepare as prepare
    from fairpremium.models._moments import Coordinates as Coordinates
    from fairpremium.models._moments import Moments as Moments
    from fairpremium.models._moments import compute_moments as compute_moments
    from fairpremium.models._moments import find_redundant as find_redundant
    from fairpremium.models._nets import check_numbers as check_numbers
    from fairpremium.models._neural import NeuralModel as NeuralModel
    from fairpremium.models._neural import NeuralPrices as NeuralPrices
    from fairpremium.models._recognition import DATES_HELP as DATES_HELP
    from fairpremium.models._recognition import check_texts as check_texts
    from fairpremium.models._recognition import describe_numbers as describe_numbers
    from fairpremium.models._recognition import describe_texts as describe_texts
    from fairpremium.models._recognition import find_outcome as find_outcome
    from fairpremium.models._regressor import RegressorModel as RegressorModel
    from fairpremium.models._representation import NeuralRepresentation as NeuralRepresentation
    from fairpremium.models._signed_risk import GlmRisk as GlmRisk
    from fairpremium.models._signed_risk import Minimum as Minimum
    from fairpremium.models._signed_risk import Penalty as Penalty
    from fairpremium.models._signed_risk import joint_hessian as joint_hessian
    from fairpremium.models._signed_risk import minimise as minimise
    from fairpremium.models._span import Span as Span
    from fairpremium.models._terms import OTHER as OTHER
    from fairpremium.models._terms import BandsFactor as BandsFactor
    from fairpremium.models._terms import Categories as Categories
    from fairpremium.models._terms import LevelsFactor as LevelsFactor
    from fairpremium.models._terms import NumberFactor as NumberFactor
    from fairpremium.models._terms import PolynomialFactor as PolynomialFactor
    from fairpremium.models._terms import SplineFactor as SplineFactor
    from fairpremium.models._terms import Term as Term
    from fairpremium.models._terms import Unseen as Unseen
    from fairpremium.models._terms import Values as Values
    from fairpremium.models._terms import whole_categories as whole_categories
    from fairpremium.models._terms_language import parse_terms as parse_terms

_HOMES = {
    "_additions": "AddedPrices Trainer TrainingTask",
    "_boosted": "BoostedModel BoostedPrices",
    "_checks": (
        "check_cluster check_one_volume check_outcome check_volume check_weight exposure_message is_number "
        "is_whole warn_if_counts"
    ),
    "_design": "ArrayFacts Column Design as_frame check_finite frame_like learn_design levels_column",
    "_group_model": "Features GroupModel GroupPrices TrainingData plausible_bounds",
    "_linear": "LinearModel LinearProblem prepare",
    "_moments": "Coordinates Moments compute_moments find_redundant",
    "_nets": "check_numbers",
    "_neural": "NeuralModel NeuralPrices",
    "_recognition": "DATES_HELP check_texts describe_numbers describe_texts find_outcome",
    "_regressor": "RegressorModel",
    "_representation": "NeuralRepresentation",
    "_signed_risk": "GlmRisk Minimum Penalty joint_hessian minimise",
    "_span": "Span",
    "_terms": (
        "BandsFactor Categories LevelsFactor NumberFactor OTHER PolynomialFactor SplineFactor Term Unseen Values "
        "whole_categories"
    ),
    "_terms_language": "parse_terms",
}
__all__, __getattr__ = lazy_exports(__name__, _HOMES)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
