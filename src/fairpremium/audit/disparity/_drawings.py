"""Drawings of the measures that supervisors ask for: every ``plot_x`` takes the arguments of ``compute_x``."""

from typing import Any

import pandas as pd

from .._plot_functions import dots, estimates, name_of, name_pairs, plots, titled
from ..drawing import import_altair
from ._decisions import compute_adverse_impact
from ._drivers import compute_disparity_drivers
from ._regression import compute_marginal_effect
from ._standardized import compute_standardized_difference
from ._thresholds import compute_threshold_check, threshold_of

_QUANTITIES = {"premium": "premium", "loss_ratio": "loss ratio"}


@plots(compute_adverse_impact)
def plot_adverse_impact(table: pd.DataFrame, unit: str) -> Any:
    """Draw the adverse impact ratio and the denial odds ratio of every group."""
    titles = {"ratio": "adverse impact ratio", "denial_odds_ratio": "denial odds ratio"}
    panels = [
        dots(estimates(table, name).assign(lane=name_pairs(table), kind=name_pairs(table)), title, reference=1.0)
        for name, title in titles.items()
    ]
    return import_altair().vconcat(*panels, spacing=20)


@plots(compute_standardized_difference)
def plot_standardized_difference(table: pd.DataFrame, unit: str) -> Any:
    """Draw the differences of mean premium and loss ratio in standard deviations."""
    data = estimates(table, "standardized").assign(lane=name_pairs(table), kind=table["quantity"].map(_QUANTITIES))
    return dots(data, "difference in standard deviations", reference=0.0)


@plots(compute_marginal_effect)
def plot_marginal_effect(table: pd.DataFrame, unit: str) -> Any:
    """Draw what every group pays more at equal controls."""
    data = estimates(table, "effect").assign(lane=name_pairs(table), kind=name_pairs(table))
    return dots(data, titled("difference of premiums at equal controls", unit), reference=0.0)


@plots(compute_disparity_drivers)
def plot_disparity_drivers(table: pd.DataFrame, unit: str) -> Any:
    """Draw the contribution of every rating factor to the difference between groups."""
    lanes = table["factor"].astype(str)
    data = estimates(table, "contribution").assign(lane=lanes, kind=name_pairs(table))
    return dots(data, titled("contribution to the difference of mean premiums", unit), reference=0.0)


@plots(compute_threshold_check)
def plot_threshold_check(table: pd.DataFrame, unit: str) -> Any:
    """Draw a measure with its limits and thresholds, marked by the answer."""
    lanes = name_pairs(table) if "against" in table else table["group"].map(name_of)
    if "quantity" in table:
        lanes = table["quantity"].str.replace("_", " ") + ": " + lanes
    data = estimates(table, "value").assign(lane=lanes, kind=table["answer"])
    return dots(data, str(table["measure"].iloc[0]).replace("_", " "), reference=threshold_of(table))
