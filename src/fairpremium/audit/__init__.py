"""Tables, drawings and pages that show what prices do to whom.

``compute_*`` returns a table, ``plot_*`` takes the same arguments and draws it; a report is made in three
steps: numbers to a dict, the dict to an HTML string, the string to a file.
"""

from fairpremium.audit._comparison import compute_price_comparison
from fairpremium.audit._plots import plot_price_comparison
from fairpremium.audit._report import render_report, summarize_comparison, write_report
from fairpremium.audit._sensitivity_plot import plot_sensitivity

__all__ = [
    "compute_price_comparison",
    "plot_price_comparison",
    "plot_sensitivity",
    "render_report",
    "summarize_comparison",
    "write_report",
]
