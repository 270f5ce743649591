"""A price list with the features at hand: its proxies, the list without them, and the change from the one in force."""

from ._changes import compute_change_by_factor, compute_dislocation
from ._drawings import LIST_NAMES, plot_change_by_factor, plot_dislocation, plot_limit_effect, plot_list_discrimination
from ._limits import LimitedChange, compute_limit_effect, limit_changes
from ._proxies import FreePriceList, compute_list_discrimination, discrimination_free_list

__all__ = [
    "LIST_NAMES",
    "FreePriceList",
    "LimitedChange",
    "compute_change_by_factor",
    "compute_dislocation",
    "compute_limit_effect",
    "compute_list_discrimination",
    "discrimination_free_list",
    "limit_changes",
    "plot_change_by_factor",
    "plot_dislocation",
    "plot_limit_effect",
    "plot_list_discrimination",
]
