"""Ways to learn group prices from privatized reports, and the checks that choose between them."""

from fairpremium.corrections._balance import balance_shift
from fairpremium.corrections._checks import (
    CHECK_ROWS,
    FAILURES,
    CandidateResult,
    corrected_risk,
    held_persons,
    held_risk,
    held_volumes,
    mean_and_error,
    paired_z,
)
from fairpremium.corrections._choice import Chosen, fit_correction
from fairpremium.corrections._fit import GroupFit, Influence, TableScores, sum_of_squares
from fairpremium.corrections._fit_input import FitInput
from fairpremium.corrections._inverse import fit_inverse
from fairpremium.corrections._latent import Latent, Parameters
from fairpremium.corrections._likelihood import mixture_likelihood, naive_start
from fairpremium.corrections._model_class import ModelFit, fit_model
from fairpremium.corrections._propensity import (
    GroupPropensity,
    fit_propensity,
    report_shares,
    with_missing_row,
    x_features,
)
from fairpremium.corrections._report_channel import MIN_EFFECTIVE_REPORTS, ReportChannel, describe_lack
from fairpremium.corrections._sandwich import Statistics, portfolio_means, sandwich

__all__ = [
    "CHECK_ROWS",
    "FAILURES",
    "MIN_EFFECTIVE_REPORTS",
    "CandidateResult",
    "Chosen",
    "FitInput",
    "GroupFit",
    "GroupPropensity",
    "Influence",
    "Latent",
    "ModelFit",
    "Parameters",
    "ReportChannel",
    "Statistics",
    "TableScores",
    "balance_shift",
    "corrected_risk",
    "describe_lack",
    "fit_correction",
    "fit_inverse",
    "fit_model",
    "fit_propensity",
    "held_persons",
    "held_risk",
    "held_volumes",
    "mean_and_error",
    "mixture_likelihood",
    "naive_start",
    "paired_z",
    "portfolio_means",
    "report_shares",
    "sandwich",
    "sum_of_squares",
    "with_missing_row",
    "x_features",
]
