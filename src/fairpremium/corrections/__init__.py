"""Ways to learn group prices from privatized reports, and the checks that choose between them."""

from typing import TYPE_CHECKING

from fairpremium.lazy import lazy_exports

if TYPE_CHECKING:
    from fairpremium.corrections._balance import balance_shift as balance_shift
    from fairpremium.corrections._checks import CHECK_ROWS as CHECK_ROWS
    from fairpremium.corrections._checks import FAILURES as FAILURES
    from fairpremium.corrections._checks import CandidateResult as CandidateResult
    from fairpremium.corrections._checks import corrected_risk as corrected_risk
    from fairpremium.corrections._checks import held_persons as held_persons
    from fairpremium.corrections._checks import held_risk as held_risk
    from fairpremium.corrections._checks import held_volumes as held_volumes
    from fairpremium.corrections._checks import mean_and_error as mean_and_error
    from fairpremium.corrections._checks import paired_z as paired_z
    from fairpremium.corrections._choice import Chosen as Chosen
    from fairpremium.corrections._choice import fit_correction as fit_correction
    from fairpremium.corrections._fit import GroupFit as GroupFit
    from fairpremium.corrections._fit import Influence as Influence
    from fairpremium.corrections._fit import TableScores as TableScores
    from fairpremium.corrections._fit import sum_of_squares as sum_of_squares
    from fairpremium.corrections._fit_input import FitInput as FitInput
    from fairpremium.corrections._inverse import fit_inverse as fit_inverse
    from fairpremium.corrections._latent import Latent as Latent
    from fairpremium.corrections._latent import Parameters as Parameters
    from fairpremium.corrections._likelihood import mixture_likelihood as mixture_likelihood
    from fairpremium.corrections._likelihood import naive_start as naive_start
    from fairpremium.corrections._model_class import ModelFit as ModelFit
    from fairpremium.corrections._model_class import fit_model as fit_model
    from fairpremium.corrections._propensity import GroupPropensity as GroupPropensity
    from fairpremium.corrections._propensity import fit_propensity as fit_propensity
    from fairpremium.corrections._propensity import report_shares as report_shares
    from fairpremium.corrections._propensity import with_missing_row as with_missing_row
    from fairpremium.corrections._propensity import x_features as x_features
    from fairpremium.corrections._report_channel import MIN_EFFECTIVE_REPORTS as MIN_EFFECTIVE_REPORTS
    from fairpremium.corrections._report_channel import ReportChannel as ReportChannel
    from fairpremium.corrections._report_channel import describe_lack as describe_lack
    from fairpremium.corrections._sandwich import Statistics as Statistics
    from fairpremium.corrections._sandwich import portfolio_means as portfolio_means
    from fairpremium.corrections._sandwich import sandwich as sandwich

_HOMES = {
    "_balance": "balance_shift",
    "_checks": (
        "CHECK_ROWS CandidateResult FAILURES corrected_risk held_persons held_risk held_volumes mean_and_error paired_z"
    ),
    "_choice": "Chosen fit_correction",
    "_fit": "GroupFit Influence TableScores sum_of_squares",
    "_fit_input": "FitInput",
    "_inverse": "fit_inverse",
    "_latent": "Latent Parameters",
    "_likelihood": "mixture_likelihood naive_start",
    "_model_class": "ModelFit fit_model",
    "_propensity": "GroupPropensity fit_propensity report_shares with_missing_row x_features",
    "_report_channel": "MIN_EFFECTIVE_REPORTS ReportChannel describe_lack",
    "_sandwich": "Statistics portfolio_means sandwich",
}
__all__, __getattr__ = lazy_exports(__name__, _HOMES)
