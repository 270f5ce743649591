"""Tables, drawings and pages that show what prices do to whom.

``compute_*`` returns a table, ``plot_*`` takes the same arguments and draws it, and `certify` checks the level of
prices. An audit report is made in three steps: numbers to a dict, the dict to an HTML string, the string to a file.
`drawing` holds what all drawings share.
"""

from ._audit_report import render_chart, render_json, render_markdown, render_report, save_report, write_report
from ._calibration import certify, compute_calibration
from ._channel_sensitivity import compute_channel_band, compute_keep_sensitivity
from ._comparison import compute_price_comparison
from ._comparison_chart import plot_price_comparison
from ._concentration import compute_gini, compute_lorenz
from ._discrimination import compute_discrimination, compute_propensities
from ._groups import compute_demographic_disparity, compute_group_deviance, compute_group_means, compute_loss_ratio_gap
from ._plot_functions import (
    plot_adverse_selection,
    plot_balance,
    plot_calibration,
    plot_channel_band,
    plot_demographic_disparity,
    plot_discrimination,
    plot_gini,
    plot_group_deviance,
    plot_group_means,
    plot_keep_sensitivity,
    plot_lorenz,
    plot_loss_ratio_gap,
    plot_premium_change,
    plot_prices_by_group,
)
from ._price_changes import compute_adverse_selection, compute_balance, compute_premium_change, compute_prices_by_group
from ._sensitivity_chart import plot_sensitivity
from ._summary import MAX_GROUPS, describe_classes, summarize_pricer, summarize_prices
from .disparity import (
    compute_adverse_impact,
    compute_disparity_drivers,
    compute_marginal_effect,
    compute_standardized_difference,
    compute_threshold_check,
    plot_adverse_impact,
    plot_disparity_drivers,
    plot_marginal_effect,
    plot_standardized_difference,
    plot_threshold_check,
)
from .price_lists import (
    FreePriceList,
    LimitedChange,
    compute_change_by_factor,
    compute_dislocation,
    compute_limit_effect,
    compute_list_discrimination,
    discrimination_free_list,
    limit_changes,
    plot_change_by_factor,
    plot_dislocation,
    plot_limit_effect,
    plot_list_discrimination,
)
from .report import ReportDetails, check_pdf, render_pdf

__all__ = [
    "MAX_GROUPS",
    "FreePriceList",
    "LimitedChange",
    "ReportDetails",
    "certify",
    "check_pdf",
    "compute_adverse_impact",
    "compute_adverse_selection",
    "compute_balance",
    "compute_calibration",
    "compute_change_by_factor",
    "compute_channel_band",
    "compute_demographic_disparity",
    "compute_discrimination",
    "compute_dislocation",
    "compute_disparity_drivers",
    "compute_gini",
    "compute_group_deviance",
    "compute_group_means",
    "compute_keep_sensitivity",
    "compute_limit_effect",
    "compute_list_discrimination",
    "compute_lorenz",
    "compute_loss_ratio_gap",
    "compute_marginal_effect",
    "compute_premium_change",
    "compute_price_comparison",
    "compute_prices_by_group",
    "compute_propensities",
    "compute_standardized_difference",
    "compute_threshold_check",
    "describe_classes",
    "discrimination_free_list",
    "limit_changes",
    "plot_adverse_impact",
    "plot_adverse_selection",
    "plot_balance",
    "plot_calibration",
    "plot_change_by_factor",
    "plot_channel_band",
    "plot_demographic_disparity",
    "plot_discrimination",
    "plot_dislocation",
    "plot_disparity_drivers",
    "plot_gini",
    "plot_group_deviance",
    "plot_group_means",
    "plot_keep_sensitivity",
    "plot_limit_effect",
    "plot_list_discrimination",
    "plot_lorenz",
    "plot_loss_ratio_gap",
    "plot_marginal_effect",
    "plot_premium_change",
    "plot_price_comparison",
    "plot_prices_by_group",
    "plot_sensitivity",
    "plot_standardized_difference",
    "plot_threshold_check",
    "render_chart",
    "render_json",
    "render_markdown",
    "render_pdf",
    "render_report",
    "save_report",
    "summarize_pricer",
    "summarize_prices",
    "write_report",
]
