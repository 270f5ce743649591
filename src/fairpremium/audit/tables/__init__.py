"""What further tables and drawings about prices are made from: rows with reports, totals, the marks of charts."""

from .._audit_data import (
    AuditData,
    Records,
    as_pandas,
    check_numbers,
    estimate_records,
    frame_like_source,
    mean_columns,
    n_rows,
    premium_bins,
    with_limits,
)
from .._estimate import ErrorShape, Estimate, fieller
from .._plot_functions import (
    EVERYBODY,
    MAX_CLASSES,
    TOOLTIP,
    by_kind,
    dots,
    estimates,
    group_colours,
    name_of,
    number_axis,
    plots,
    titled,
    top_legend,
)
from .._weighted_reports import EVERYONE, REPORTED, effective_reports
from ._factors import Factor, read_factors

__all__ = [
    "EVERYBODY",
    "EVERYONE",
    "MAX_CLASSES",
    "REPORTED",
    "TOOLTIP",
    "AuditData",
    "ErrorShape",
    "Estimate",
    "Factor",
    "Records",
    "as_pandas",
    "by_kind",
    "check_numbers",
    "dots",
    "effective_reports",
    "estimate_records",
    "estimates",
    "fieller",
    "frame_like_source",
    "group_colours",
    "mean_columns",
    "n_rows",
    "name_of",
    "number_axis",
    "plots",
    "premium_bins",
    "read_factors",
    "titled",
    "top_legend",
    "with_limits",
]
