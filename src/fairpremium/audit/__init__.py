"""Tables, drawings and pages that show what prices do to whom.

``compute_*`` returns a table, ``plot_*`` takes the same arguments and draws it, and `certify` checks the level of
prices. An audit report is made in three steps: numbers to a dict, the dict to an HTML string, the string to a file.
`drawing` holds what all drawings share.
"""

from typing import TYPE_CHECKING

from fairpremium.lazy import lazy_exports

if TYPE_CHECKING:
    from ._audit_report import render_chart as render_chart
    from ._audit_report import render_json as render_json
    from ._audit_report import render_markdown as render_markdown
    from ._audit_report import render_report as render_report
    from ._audit_report import save_report as save_report
    from ._audit_report import write_report as write_report
    from ._calibration import certify as certify
    from ._calibration import compute_calibration as compute_calibration
    from ._channel_sensitivity import compute_channel_band as compute_channel_band
    from ._channel_sensitivity import compute_keep_sensitivity as compute_keep_sensitivity
    from ._comparison import compute_price_comparison as compute_price_comparison
    from ._comparison_chart import plot_price_comparison as plot_price_comparison
    from ._concentration import compute_gini as compute_gini
    from ._concentration import compute_lorenz as compute_lorenz
    from ._discrimination import compute_discrimination as compute_discrimination
    from ._discrimination import compute_propensities as compute_propensities
    from ._groups import compute_demographic_disparity as compute_demographic_disparity
    from ._groups import compute_group_deviance as compute_group_deviance
    from ._groups import compute_group_means as compute_group_means
    from ._groups import compute_loss_ratio_gap as compute_loss_ratio_gap
    from ._plot_functions import plot_adverse_selection as plot_adverse_selection
    from ._plot_functions import plot_balance as plot_balance
    from ._plot_functions import plot_calibration as plot_calibration
    from ._plot_functions import plot_channel_band as plot_channel_band
    from ._plot_functions import plot_demographic_disparity as plot_demographic_disparity
    from ._plot_functions import plot_discrimination as plot_discrimination
    from ._plot_functions import plot_gini as plot_gini
    from ._plot_functions import plot_group_deviance as plot_group_deviance
    from ._plot_functions import plot_group_means as plot_group_means
    from ._plot_functions import plot_keep_sensitivity as plot_keep_sensitivity
    from ._plot_functions import plot_lorenz as plot_lorenz
    from ._plot_functions import plot_loss_ratio_gap as plot_loss_ratio_gap
    from ._plot_functions import plot_premium_change as plot_premium_change
    from ._plot_functions import plot_prices_by_group as plot_prices_by_group
    from ._price_changes import compute_adverse_selection as compute_adverse_selection
    from ._price_changes import compute_balance as compute_balance
    from ._price_changes import compute_premium_change as compute_premium_change
    from ._price_changes import compute_prices_by_group as compute_prices_by_group
    from ._sensitivity_chart import plot_sensitivity as plot_sensitivity
    from ._summary import describe_classes as describe_classes
    from ._summary import summarize_pricer as summarize_pricer
    from ._summary import summarize_prices as summarize_prices
    from .disparity import compute_adverse_impact as compute_adverse_impact
    from .disparity import compute_disparity_drivers as compute_disparity_drivers
    from .disparity import compute_marginal_effect as compute_marginal_effect
    from .disparity import compute_standardized_difference as compute_standardized_difference
    from .disparity import compute_threshold_check as compute_threshold_check
    from .disparity import plot_adverse_impact as plot_adverse_impact
    from .disparity import plot_disparity_drivers as plot_disparity_drivers
    from .disparity import plot_marginal_effect as plot_marginal_effect
    from .disparity import plot_standardized_difference as plot_standardized_difference
    from .disparity import plot_threshold_check as plot_threshold_check
    from .drawing import MAX_GROUPS as MAX_GROUPS
    from .price_lists import FreePriceList as FreePriceList
    from .price_lists import LimitedChange as LimitedChange
    from .price_lists import compute_change_by_factor as compute_change_by_factor
    from .price_lists import compute_dislocation as compute_dislocation
    from .price_lists import compute_limit_effect as compute_limit_effect
    from .price_lists import compute_list_discrimination as compute_list_discrimination
    from .price_lists import discrimination_free_list as discrimination_free_list
    from .price_lists import limit_changes as limit_changes
    from .price_lists import plot_change_by_factor as plot_change_by_factor
    from .price_lists import plot_dislocation as plot_dislocation
    from .price_lists import plot_limit_effect as plot_limit_effect
    from .price_lists import plot_list_discrimination as plot_list_discrimination
    from .report import ReportDetails as ReportDetails
    from .report import check_pdf as check_pdf
    from .report import render_pdf as render_pdf

_HOMES = {
    "_audit_report": "render_chart render_json render_markdown render_report save_report write_report",
    "_calibration": "certify compute_calibration",
    "_channel_sensitivity": "compute_channel_band compute_keep_sensitivity",
    "_comparison": "compute_price_comparison",
    "_comparison_chart": "plot_price_comparison",
    "_concentration": "compute_gini compute_lorenz",
    "_discrimination": "compute_discrimination compute_propensities",
    "_groups": "compute_demographic_disparity compute_group_deviance compute_group_means compute_loss_ratio_gap",
    "_plot_functions": (
        "plot_adverse_selection plot_balance plot_calibration plot_channel_band plot_demographic_disparity "
        "plot_discrimination plot_gini plot_group_deviance plot_group_means plot_keep_sensitivity plot_lorenz "
        "plot_loss_ratio_gap plot_premium_change plot_prices_by_group"
    ),
    "_price_changes": "compute_adverse_selection compute_balance compute_premium_change compute_prices_by_group",
    "_sensitivity_chart": "plot_sensitivity",
    "_summary": "describe_classes summarize_pricer summarize_prices",
    "disparity": (
        "compute_adverse_impact compute_disparity_drivers compute_marginal_effect compute_standardized_difference "
        "compute_threshold_check plot_adverse_impact plot_disparity_drivers plot_marginal_effect "
        "plot_standardized_difference plot_threshold_check"
    ),
    "drawing": "MAX_GROUPS",
    "price_lists": (
        "FreePriceList LimitedChange compute_change_by_factor compute_dislocation compute_limit_effect "
        "compute_list_discrimination discrimination_free_list limit_changes plot_change_by_factor "
        "plot_dislocation plot_limit_effect plot_list_discrimination"
    ),
    "report": "ReportDetails check_pdf render_pdf",
}
__all__, __getattr__ = lazy_exports(__name__, _HOMES)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
