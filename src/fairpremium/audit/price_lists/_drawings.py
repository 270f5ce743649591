"""Drawings of the tables about price lists: every ``plot_x`` takes the arguments of ``compute_x``."""

from typing import Any

import pandas as pd

from .._plot_functions import dots, estimates, plots
from ..drawing import PRICE_NAMES
from ._changes import compute_change_by_factor, compute_dislocation
from ._limits import compute_limit_effect
from ._proxies import compute_list_discrimination

_SHARES = {
    "demographic_unfairness": "differs between groups",
    "proxy_discrimination": "proxy discrimination",
    "proxy_explained": "explained by proxies",
}
LIST_NAMES = {"premiums": "this list", "current": "list in force", "new": "new list", "limited": "limited"}


def _shares(table: pd.DataFrame) -> Any:
    """Draw the measures that are shares of a price's variation, a mark for each list."""
    shares = table[table["measure"].isin(_SHARES)]
    names = {**PRICE_NAMES, **LIST_NAMES}
    found = estimates(shares.assign(group=shares["measure"].map(_SHARES)), "value")
    kinds = shares["price"].map(lambda price: names.get(price, str(price)))
    return dots(found.assign(kind=kinds), "share of the price's variation", reference=0.0, format="%")


@plots(compute_list_discrimination)
def plot_list_discrimination(table: pd.DataFrame, unit: str) -> Any:
    """Draw the measures that are shares of a price's variation, a mark for each list."""
    return _shares(table)


@plots(compute_limit_effect)
def plot_limit_effect(table: pd.DataFrame, unit: str) -> Any:
    """Draw the same measures for the list in force, the new and the limited one."""
    return _shares(table)


@plots(compute_dislocation)
def plot_dislocation(table: pd.DataFrame, unit: str) -> Any:
    """Draw the share of the volume in each band of the change."""
    found = estimates(table, "share")
    return dots(found.assign(kind=found["lane"], lane=table["band"]), "share of the volume", reference=0.0, format="%")


@plots(compute_change_by_factor)
def plot_change_by_factor(table: pd.DataFrame, unit: str) -> Any:
    """Draw the relative change by level, one panel per factor."""
    found = estimates(table, "relative")
    found = found.assign(kind=found["lane"], lane=table["level"].astype(str), risk_class=table["factor"].astype(str))
    return dots(found, "change of the mean premium", reference=0.0, own_lanes=True, format="+%", labelOverlap=True)
