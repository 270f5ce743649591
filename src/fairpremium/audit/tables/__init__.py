"""What further tables and drawings about prices are made from: rows with reports, totals, the marks of charts."""

from typing import TYPE_CHECKING

from fairpremium.lazy import lazy_exports

if TYPE_CHECKING:
    from .._audit_data import AuditData as AuditData
    from .._audit_data import Records as Records
    from .._audit_data import as_pandas as as_pandas
    from .._audit_data import check_numbers as check_numbers
    from .._audit_data import estimate_records as estimate_records
    from .._audit_data import frame_like_source as frame_like_source
    from .._audit_data import mean_columns as mean_columns
    from .._audit_data import n_rows as n_rows
    from .._audit_data import premium_bins as premium_bins
    from .._audit_data import with_limits as with_limits
    from .._estimate import ErrorShape as ErrorShape
    from .._estimate import Estimate as Estimate
    from .._estimate import fieller as fieller
    from .._plot_functions import EVERYBODY as EVERYBODY
    from .._plot_functions import MAX_CLASSES as MAX_CLASSES
    from .._plot_functions import TOOLTIP as TOOLTIP
    from .._plot_functions import by_kind as by_kind
    from .._plot_functions import dots as dots
    from .._plot_functions import estimates as estimates
    from .._plot_functions import group_colours as group_colours
    from .._plot_functions import name_of as name_of
    from .._plot_functions import number_axis as number_axis
    from .._plot_functions import plots as plots
    from .._plot_functions import titled as titled
    from .._plot_functions import top_legend as top_legend
    from .._weighted_reports import EVERYONE as EVERYONE
    from .._weighted_reports import REPORTED as REPORTED
    from .._weighted_reports import effective_reports as effective_reports
    from ._factors import Factor as Factor
    from ._factors import read_factors as read_factors

_HOMES = {
    "_audit_data": (
        "AuditData Records as_pandas check_numbers estimate_records frame_like_source mean_columns n_rows "
        "premium_bins with_limits"
    ),
    "_estimate": "ErrorShape Estimate fieller",
    "tables._factors": "Factor read_factors",
    "_plot_functions": (
        "EVERYBODY MAX_CLASSES TOOLTIP by_kind dots estimates group_colours name_of number_axis plots titled top_legend"
    ),
    "_weighted_reports": "EVERYONE REPORTED effective_reports",
}
__all__, __getattr__ = lazy_exports("fairpremium.audit", _HOMES)
