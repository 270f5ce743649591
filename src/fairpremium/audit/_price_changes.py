"""Prices against each other: the three prices by group, who gains and who loses, balance, adverse selection."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fairpremium.arrays import Array

from ._audit_data import AuditData, Records, estimate_records, mean_columns, n_rows, with_limits
from ._weighted_reports import EVERYONE, effective_reports


def compute_prices_by_group(
    prices: Mapping[str, Any],
    *,
    sensitive: Any,
    channel: Any = None,
    channel_key: Any = None,
    sample_weight: Any = None,
    exposure: Any = None,
    cluster: Any = None,
    by: Any = None,
    level: float = 0.95,
) -> Any:
    r"""Estimate the mean of several prices by true group, side by side.

    Parameters
    ----------
    prices : mapping of str to array-like of shape (n,) or (n, K)
        Prices by name. A table with one column per group (in the order of the groups), such as the best estimates,
        counts in each group with that group's own column: what its members would pay if they were charged it.
    sensitive, channel, channel_key, sample_weight, exposure, cluster, by, level
        As in `compute_group_means`.

    Returns
    -------
    DataFrame
        One row per price and group: `price`, `group`; `mean`, `mean_low`, `mean_high`; `effective_reports`, `note`.

    Notes
    -----
    The ratio estimator of `compute_group_means` with v_i the price of row i, or v_ik its price in group k.
    """
    data = _read_prices(
        prices, {}, sensitive, channel, sample_weight, exposure, cluster, by, level, channel_key=channel_key
    )

    def means(piece: AuditData) -> Records:
        totals = piece.totals(list(prices), range(len(piece.groups)))
        records: Records = []
        for name in prices:
            labels = {"price": [name] * len(piece.groups), "group": piece.groups}
            numbers = mean_columns("mean", totals[name], totals["volume"], piece.level)
            records += estimate_records(labels, effective_reports(totals["volume"]), numbers)
        return records

    return data.table(means)


def compute_premium_change(
    old: Any,
    new: Any,
    *,
    sensitive: Any,
    channel: Any = None,
    channel_key: Any = None,
    bins: int | None = None,
    sample_weight: Any = None,
    exposure: Any = None,
    cluster: Any = None,
    by: Any = None,
    level: float = 0.95,
) -> Any:
    r"""Estimate who gains and who loses when one price takes the place of another.

    Parameters
    ----------
    old, new : array-like of shape (n,)
        Prices before and after, such as unaware and discrimination-free.
    bins : int, optional
        Divide the rows at quantiles of the old price, as `compute_calibration` does; the table gets the column `bin`.
    sensitive, channel, channel_key, sample_weight, exposure, cluster, by, level
        As in `compute_group_means`; `by` gives the change by risk class.

    Returns
    -------
    DataFrame
        One row for everybody (`group` is None, all rows) and one per group:

        - `group`, `share`: of the volume that reported;
        - `old`, `new`: mean prices;
        - `change`, `change_low`, `change_high`: mean of new minus old;
        - `relative`, `relative_low`, `relative_high`: the change of the mean in parts of the old mean;
        - `pays_more`, `pays_more_low`, `pays_more_high`: share of the volume whose price goes up;
        - `effective_reports`, `note`.

    Notes
    -----
    Ratio estimators of `compute_group_means` with v_i = new_i - old_i and v_i = 1{new_i > old_i}; the relative change
    is sum_i a_ik (new_i - old_i) / sum_i a_ik old_i, with Fieller's limits.
    """
    data = AuditData.read(
        {"old": old, "new": new},
        sensitive,
        channel,
        sample_weight,
        cluster,
        by,
        level,
        exposure,
        channel_key=channel_key,
    )
    change = data["new"] - data["old"]
    data = data.with_columns(change=change, up=(change > 0).astype(float))
    return (data if bins is None else data.in_bins("old", bins)).table(change_records)


def change_records(data: AuditData) -> Records:
    """Make the records of `compute_premium_change` from the columns old, new, change and up."""
    totals, share = data.totals_and_shares(["old", "new", "change", "up"], [EVERYONE])
    old, new, change, up, volume = totals.values()
    numbers = {
        "share": share,
        "old": (old / volume).value,
        "new": (new / volume).value,
        **mean_columns("change", change, volume, data.level),
        **mean_columns("relative", change, old, data.level),
        **mean_columns("pays_more", up, volume, data.level),
    }
    return estimate_records({"group": (None, *data.groups)}, effective_reports(volume), numbers)


def compute_balance(
    prices: Mapping[str, Any],
    y: Any,
    *,
    sample_weight: Any = None,
    exposure: Any = None,
    cluster: Any = None,
    by: Any = None,
    level: float = 0.95,
) -> Any:
    r"""Compare the premium income of several prices with the losses, over all rows.

    Parameters
    ----------
    prices : mapping of str to array-like of shape (n,)
        Prices by name.
    y, sample_weight, exposure, cluster, by, level
        As in `compute_group_means`. Nobody's attribute is needed.

    Returns
    -------
    DataFrame
        One row per price: `price`; `premium`, `loss`: means; `difference`, `difference_low`, `difference_high`: mean
        premium minus mean loss; `ratio`, `ratio_low`, `ratio_high`: premiums over losses.

    Notes
    -----
    sum_i w_i (h_i - y_i) / sum_i w_i and sum_i w_i h_i / sum_i w_i y_i; the error is that of the losses (and of the mix
    of risks) as a sample of what they could have been.
    """
    everyone = np.zeros(n_rows(y, "y"), dtype=int)
    data = _read_prices(prices, {"y": y}, everyone, None, sample_weight, exposure, cluster, by, level)

    def balances(piece: AuditData) -> Records:
        totals = piece.totals([*prices, "y"], [EVERYONE])
        volume, loss = totals["volume"], totals["y"]
        records: Records = []
        for name in prices:
            gap, ratio = (totals[name] - loss) / volume, totals[name] / loss
            numbers = {
                "premium": (totals[name] / volume).value,
                "loss": (loss / volume).value,
                **with_limits("difference", gap, gap.interval(piece.level)),
                **with_limits("ratio", ratio, ratio.ratio_interval(piece.level)),
            }
            records.append({"price": name, **{key: float(column[0]) for key, column in numbers.items()}})
        return records

    return data.table(balances)


def compute_adverse_selection(
    premiums: Any,
    y: Any,
    best_estimate: Any,
    *,
    sensitive: Any,
    channel: Any = None,
    channel_key: Any = None,
    sample_weight: Any = None,
    exposure: Any = None,
    cluster: Any = None,
    by: Any = None,
    level: float = 0.95,
) -> Any:
    r"""Estimate the profit by true group if a competitor charges the best estimate and everybody takes the lower price.

    Parameters
    ----------
    premiums, y
        As in `compute_group_means`.
    best_estimate : table of shape (n, K)
        mu(x, d), one column per group in the order of the groups: what the competitor charges.
    sensitive, channel, channel_key, sample_weight, exposure, cluster, by, level
        As in `compute_group_means`.

    Returns
    -------
    DataFrame
        One row per group and one for all who reported (`group` is None, last):

        - `stays`, `stays_low`, `stays_high`: share of the volume that stays, because the premium is not above mu(x, d);
        - `profit_now`, `profit_now_low`, `profit_now_high`: mean of premium minus loss if nobody moves;
        - `profit`, `profit_low`, `profit_high`: mean of premium minus loss of those who stay, per unit of volume today;
        - `effective_reports`: of those who stay, if fewer than of the group; `note`.

    Notes
    -----
    A member of group k with features x stays if h(x) <= mu(x, k). With the indicator u_ik = 1{h_i <= mu(x_i, k)}

    .. math:: \frac{\sum_i a_{ik} u_{ik}}{\sum_i a_{ik}}, \qquad
              \frac{\sum_i a_{ik} u_{ik} (h_i - y_i)}{\sum_i a_{ik}},

    and the totals of all are sums over k. It is the worst case: no loyalty, no cost of switching, a competitor who
    knows the attribute and the best estimates (which are taken as given, without their own error).

    The numbers are about those who stay, so that their effective reports must suffice, (sum_i a_ik u_ik)^2 /
    sum_i (a_ik u_ik)^2. Where u_ik is zero for all rows nobody stays for certain, and those of the group count.
    """
    columns, tables = {"premiums": premiums, "y": y, "best_estimate": best_estimate}, ["best_estimate"]
    data = AuditData.read(
        columns, sensitive, channel, sample_weight, cluster, by, level, exposure, tables, channel_key=channel_key
    )
    stays = (data["premiums"][:, None] <= data["best_estimate"]).astype(float)
    profit = (data["premiums"] - data["y"])[:, None]
    return data.with_columns(stays=stays, profit=stays * profit, profit_now=profit[:, 0]).table(_selection)


def _selection(data: AuditData) -> Records:
    names, K = ["stays", "profit_now", "profit"], len(data.groups)
    totals = data.totals(names, range(K))
    records: Records = []
    for label, members in (*zip(data.groups, ([k] for k in range(K)), strict=True), (None, list(range(K)))):
        sums = {name: total[members].sum() for name, total in totals.items()}
        numbers: dict[str, Array] = {}
        for name in names:
            numbers |= mean_columns(name, sums[name], sums["volume"], data.level)
        effective = effective_reports(sums["volume"])
        if data["stays"][:, members].any():  # where no premium lets anybody stay, that is certain
            effective = np.minimum(effective, effective_reports(sums["stays"]))
        records += estimate_records({"group": [label]}, effective, numbers)
    return records


def _read_prices(
    prices: Mapping[str, Any],
    losses: dict[str, Any],
    sensitive: Any,
    channel: Any,
    sample_weight: Any,
    exposure: Any,
    cluster: Any,
    by: Any,
    level: float,
    *,
    channel_key: Any = None,
) -> AuditData:
    if not isinstance(prices, Mapping) or not prices:
        raise TypeError("Got prices that are not a mapping, but expected prices by name, such as {'unaware': ...}.")
    if "y" in prices:
        raise ValueError("Got a price with the name 'y', which the losses have; expected another name.")
    tables = [name for name, values in prices.items() if len(getattr(values, "shape", ())) == 2]
    columns = {**prices, **losses}
    return AuditData.read(
        columns, sensitive, channel, sample_weight, cluster, by, level, exposure, tables, channel_key=channel_key
    )
