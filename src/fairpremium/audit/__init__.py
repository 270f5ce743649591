"""Tables, drawings and pages that show what prices do to whom.

``compute_*`` returns a table, ``plot_*`` takes the same arguments and draws it; a report is made in three
steps: numbers to a dict, the dict to an HTML string, the string to a file.
"""

from fairpremium.audit._calibration import compute_calibration
from fairpremium.audit._change import (
    compute_adverse_selection,
    compute_balance,
    compute_premium_change,
    compute_prices_by_group,
)
from fairpremium.audit._comparison import compute_price_comparison
from fairpremium.audit._groups import (
    compute_demographic_disparity,
    compute_group_deviance,
    compute_group_means,
    compute_loss_ratio_gap,
)
from fairpremium.audit._keep import compute_keep_sensitivity
from fairpremium.audit._plots import plot_price_comparison
from fairpremium.audit._power import compute_gini, compute_lorenz
from fairpremium.audit._proxy import compute_discrimination, compute_propensities
from fairpremium.audit._report import render_json, render_markdown, render_report, save_report, write_report
from fairpremium.audit._sensitivity_plot import plot_sensitivity
from fairpremium.audit._summary import summarize_pricer, summarize_prices
from fairpremium.audit._twins import (
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

__all__ = [
    "compute_adverse_selection",
    "compute_balance",
    "compute_calibration",
    "compute_demographic_disparity",
    "compute_discrimination",
    "compute_gini",
    "compute_group_deviance",
    "compute_group_means",
    "compute_keep_sensitivity",
    "compute_lorenz",
    "compute_loss_ratio_gap",
    "compute_premium_change",
    "compute_price_comparison",
    "compute_prices_by_group",
    "compute_propensities",
    "plot_adverse_selection",
    "plot_balance",
    "plot_calibration",
    "plot_demographic_disparity",
    "plot_discrimination",
    "plot_gini",
    "plot_group_deviance",
    "plot_group_means",
    "plot_keep_sensitivity",
    "plot_lorenz",
    "plot_loss_ratio_gap",
    "plot_premium_change",
    "plot_price_comparison",
    "plot_prices_by_group",
    "plot_sensitivity",
    "render_json",
    "render_markdown",
    "render_report",
    "save_report",
    "summarize_pricer",
    "summarize_prices",
    "write_report",
]
