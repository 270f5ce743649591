"""Tables, drawings and pages that show what prices do to whom.

``compute_*`` returns a table, ``plot_*`` takes the same arguments and draws it, and `certify` checks the level of
prices. An audit report is made in three steps: numbers to a dict, the dict to an HTML string, the string to a file.
`drawing` holds what all drawings share.
"""

from ._audit_report import render_chart, render_json, render_markdown, render_report, save_report, write_report
from ._calibration import certify, compute_calibration
from ._channel_sensitivity import compute_keep_sensitivity
from ._comparison import compute_price_comparison
from ._comparison_chart import plot_price_comparison
from ._concentration import compute_gini, compute_lorenz
from ._discrimination import compute_discrimination, compute_propensities
from ._groups import compute_demographic_disparity, compute_group_deviance, compute_group_means, compute_loss_ratio_gap
from ._plot_functions import (
    plot_adverse_selection,
    plot_balance,
    plot_calibration,
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

__all__ = [
    "MAX_GROUPS",
    "FreePriceList",
    "LimitedChange",
    "certify",
    "compute_adverse_selection",
    "compute_balance",
    "compute_calibration",
    "compute_change_by_factor",
    "compute_demographic_disparity",
    "compute_discrimination",
    "compute_dislocation",
    "compute_gini",
    "compute_group_deviance",
    "compute_group_means",
    "compute_keep_sensitivity",
    "compute_limit_effect",
    "compute_list_discrimination",
    "compute_lorenz",
    "compute_loss_ratio_gap",
    "compute_premium_change",
    "compute_price_comparison",
    "compute_prices_by_group",
    "compute_propensities",
    "describe_classes",
    "discrimination_free_list",
    "limit_changes",
    "plot_adverse_selection",
    "plot_balance",
    "plot_calibration",
    "plot_change_by_factor",
    "plot_demographic_disparity",
    "plot_discrimination",
    "plot_dislocation",
    "plot_gini",
    "plot_group_deviance",
    "plot_group_means",
    "plot_keep_sensitivity",
    "plot_limit_effect",
    "plot_list_discrimination",
    "plot_lorenz",
    "plot_loss_ratio_gap",
    "plot_premium_change",
    "plot_price_comparison",
    "plot_prices_by_group",
    "plot_sensitivity",
    "render_chart",
    "render_json",
    "render_markdown",
    "render_report",
    "save_report",
    "summarize_pricer",
    "summarize_prices",
    "write_report",
]
