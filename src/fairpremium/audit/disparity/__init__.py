"""What supervisors ask for: decisions, standardized differences, marginal effects, drivers, and thresholds."""

from ._decisions import compute_adverse_impact
from ._drawings import (
    plot_adverse_impact,
    plot_disparity_drivers,
    plot_marginal_effect,
    plot_standardized_difference,
    plot_threshold_check,
)
from ._drivers import compute_disparity_drivers
from ._regression import compute_marginal_effect
from ._sections import ALL_PAIRS, disparity_tables
from ._standardized import compute_standardized_difference
from ._thresholds import compute_threshold_check

__all__ = [
    "ALL_PAIRS",
    "compute_adverse_impact",
    "compute_disparity_drivers",
    "compute_marginal_effect",
    "compute_standardized_difference",
    "compute_threshold_check",
    "disparity_tables",
    "plot_adverse_impact",
    "plot_disparity_drivers",
    "plot_marginal_effect",
    "plot_standardized_difference",
    "plot_threshold_check",
]
