"""The twins of the tables: every ``plot_x`` takes the arguments of ``compute_x`` and draws its table.

Charts are Altair's: ``chart.save("x.svg")`` (or .png) writes a still picture, ``chart.save("x.html")`` one that answers
to the mouse. Colours are those of Okabe and Ito, and shapes or dashes tell the same as the colours.
"""

from __future__ import annotations

from typing import Any

from fairpremium.audit._calibration import compute_calibration
from fairpremium.audit._change import (
    compute_adverse_selection,
    compute_balance,
    compute_premium_change,
    compute_prices_by_group,
)
from fairpremium.audit._charts import draw
from fairpremium.audit._groups import (
    compute_demographic_disparity,
    compute_group_deviance,
    compute_group_means,
    compute_loss_ratio_gap,
)
from fairpremium.audit._keep import compute_keep_sensitivity
from fairpremium.audit._power import compute_gini, compute_lorenz
from fairpremium.audit._proxy import compute_discrimination


def plot_group_means(*data: Any, unit: str = "", **settings: Any) -> Any:
    """Draw the mean premium and the mean loss of every group.

    Takes the arguments of `compute_group_means`, and `unit`, what an amount is measured in.

    Returns
    -------
    altair.Chart
    """
    return draw("group_means", compute_group_means(*data, **settings), unit=unit)


def plot_demographic_disparity(*data: Any, unit: str = "", **settings: Any) -> Any:
    """Draw the differences between the groups' mean premiums.

    Takes the arguments of `compute_demographic_disparity`, and `unit`, what an amount is measured in.

    Returns
    -------
    altair.Chart
    """
    return draw("demographic_disparity", compute_demographic_disparity(*data, **settings), unit=unit)


def plot_loss_ratio_gap(*data: Any, unit: str = "", **settings: Any) -> Any:
    """Draw the loss ratio of every group.

    Takes the arguments of `compute_loss_ratio_gap`, and `unit`, what an amount is measured in.

    Returns
    -------
    altair.Chart
    """
    return draw("loss_ratio_gap", compute_loss_ratio_gap(*data, **settings), unit=unit)


def plot_group_deviance(*data: Any, unit: str = "", **settings: Any) -> Any:
    """Draw the mean deviance of every group.

    Takes the arguments of `compute_group_deviance`, and `unit`, what an amount is measured in.

    Returns
    -------
    altair.Chart
    """
    return draw("group_deviance", compute_group_deviance(*data, **settings), unit=unit)


def plot_calibration(*data: Any, unit: str = "", **settings: Any) -> Any:
    """Draw mean loss against mean premium by decile, one panel per group; points on the dashed line are calibrated.

    Takes the arguments of `compute_calibration`, and `unit`, what an amount is measured in.

    Returns
    -------
    altair.Chart
    """
    return draw("calibration", compute_calibration(*data, **settings), unit=unit)


def plot_gini(*data: Any, unit: str = "", **settings: Any) -> Any:
    """Draw the Gini index of everybody and of every group.

    Takes the arguments of `compute_gini`, and `unit`, what an amount is measured in.

    Returns
    -------
    altair.Chart
    """
    return draw("gini", compute_gini(*data, **settings), unit=unit)


def plot_lorenz(*data: Any, unit: str = "", **settings: Any) -> Any:
    """Draw the concentration curves of everybody and of every group.

    Takes the arguments of `compute_lorenz`, and `unit`, what an amount is measured in.

    Returns
    -------
    altair.Chart
    """
    return draw("lorenz", compute_lorenz(*data, **settings), unit=unit)


def plot_prices_by_group(*data: Any, unit: str = "", **settings: Any) -> Any:
    """Draw the mean of each price in every group.

    Takes the arguments of `compute_prices_by_group`, and `unit`, what an amount is measured in.

    Returns
    -------
    altair.Chart
    """
    return draw("prices_by_group", compute_prices_by_group(*data, **settings), unit=unit)


def plot_premium_change(*data: Any, unit: str = "", **settings: Any) -> Any:
    """Draw the mean change of every group; with `bins` over the bins of the old price.

    Takes the arguments of `compute_premium_change`, and `unit`, what an amount is measured in.

    Returns
    -------
    altair.Chart
    """
    return draw("premium_change", compute_premium_change(*data, **settings), unit=unit)


def plot_balance(*data: Any, unit: str = "", **settings: Any) -> Any:
    """Draw premiums over losses for every price.

    Takes the arguments of `compute_balance`, and `unit`, what an amount is measured in.

    Returns
    -------
    altair.Chart
    """
    return draw("balance", compute_balance(*data, **settings), unit=unit)


def plot_adverse_selection(*data: Any, unit: str = "", **settings: Any) -> Any:
    """Draw the profit of every group today, and after a competitor has taken what it can.

    Takes the arguments of `compute_adverse_selection`, and `unit`, what an amount is measured in.

    Returns
    -------
    altair.Chart
    """
    return draw("adverse_selection", compute_adverse_selection(*data, **settings), unit=unit)


def plot_discrimination(*data: Any, unit: str = "", **settings: Any) -> Any:
    """Draw the measures that are shares of the price's variation.

    Takes the arguments of `compute_discrimination`, and `unit`, what an amount is measured in.

    Returns
    -------
    altair.Chart
    """
    return draw("discrimination", compute_discrimination(*data, **settings), unit=unit)


def plot_keep_sensitivity(*data: Any, unit: str = "", **settings: Any) -> Any:
    """Draw the group means against keep.

    Takes the arguments of `compute_keep_sensitivity`, and `unit`, what an amount is measured in.

    Returns
    -------
    altair.Chart
    """
    return draw("keep_sensitivity", compute_keep_sensitivity(*data, **settings), unit=unit)
