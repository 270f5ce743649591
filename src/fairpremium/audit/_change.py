"""Prices against each other: the three prices by group, who gains and who loses, balance, adverse selection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fairpremium.arrays import Array
from fairpremium.audit._book import (
    Book,
    Rows,
    check_table,
    estimate_rows,
    group_labels,
    mean_columns,
    premium_bins,
    volume_share,
    with_limits,
)
from fairpremium.audit._estimate import Estimate
from fairpremium.audit._sample import EVERYONE, REPORTED, effective_reports


def compute_prices_by_group(
    prices: Mapping[str, Any],
    *,
    sensitive: Any,
    channel: Any = None,
    sample_weight: Any = None,
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
    sensitive, channel, sample_weight, cluster, by, level
        As in `compute_group_means`.

    Returns
    -------
    DataFrame
        One row per price and group: `price`, `group`; `mean`, `mean_low`, `mean_high`; `effective_reports`, `note`.

    Notes
    -----
    The ratio estimator of `compute_group_means` with v_i the price of row i, or v_ik its price in group k.
    """
    book = _read_prices(prices, sensitive, channel, sample_weight, cluster, by, level)

    def rows(part: Book) -> Rows:
        K, found = len(part.groups), []
        totals = part.totals(list(prices), range(K))
        for name in prices:
            labels = [{"price": name, "group": group} for group in part.groups]
            numbers = mean_columns("mean", totals[name], totals["volume"], part.level)
            found += estimate_rows(labels, effective_reports(totals["volume"]), numbers)
        return found

    return book.table(rows)


def compute_premium_change(
    old: Any,
    new: Any,
    *,
    sensitive: Any,
    channel: Any = None,
    bins: int | None = None,
    sample_weight: Any = None,
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
    sensitive, channel, sample_weight, cluster, by, level
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
    book = Book.read(
        {"old": old, "new": new}, sensitive=sensitive, channel=channel, sample_weight=sample_weight, cluster=cluster,
        by=by, level=level,
    )  # fmt: skip
    change = book["new"] - book["old"]
    book = book.with_columns(change=change, up=(change > 0).astype(float))
    if bins is None:
        return book.table(_change)
    book = book.with_columns(bin=premium_bins(book["old"], book.sample.weight, bins).astype(float))

    def rows(part: Book) -> Rows:
        found: Rows = []
        for number in np.unique(part["bin"]):
            in_bin = part.take(np.flatnonzero(part["bin"] == number))
            found += [{"bin": int(number) + 1, **row} for row in _change(in_bin)]
        return found

    return book.table(rows)


def _change(book: Book) -> Rows:
    K = len(book.groups)
    totals = book.totals(["old", "new", "change", "up"], [EVERYONE, *range(K), REPORTED])
    volume = totals["volume"][: K + 1]
    old, new, change, up = (totals[name][: K + 1] for name in ("old", "new", "change", "up"))
    share = volume_share(volume, totals["volume"][[K + 1] * (K + 1)])
    share[0] = 1.0
    numbers = {
        "share": share,
        "old": (old / volume).value,
        "new": (new / volume).value,
        **mean_columns("change", change, volume, book.level),
        **mean_columns("relative", change, old, book.level),
        **mean_columns("pays_more", up, volume, book.level),
    }
    labels = group_labels((None, *book.groups))
    return estimate_rows(labels, effective_reports(volume), numbers)


def compute_balance(
    prices: Mapping[str, Any],
    y: Any,
    *,
    sample_weight: Any = None,
    cluster: Any = None,
    by: Any = None,
    level: float = 0.95,
) -> Any:
    r"""Compare the premium income of several prices with the losses, over all rows.

    Parameters
    ----------
    prices : mapping of str to array-like of shape (n,)
        Prices by name.
    y, sample_weight, cluster, by, level
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
    n = len(y) if not hasattr(y, "shape") else y.shape[0]
    book = _read_prices({**prices, "y": y}, np.zeros(n, dtype=int), None, sample_weight, cluster, by, level)

    def rows(part: Book) -> Rows:
        found = []
        totals = part.totals([*prices, "y"], [EVERYONE])
        volume, loss = totals["volume"], totals["y"]
        for name in prices:
            gap = (totals[name] - loss) / volume
            ratio = totals[name] / loss
            numbers = {
                "premium": (totals[name] / volume).value,
                "loss": (loss / volume).value,
                **with_limits("difference", gap, gap.interval(part.level)),
                **with_limits("ratio", ratio, ratio.ratio_interval(part.level)),
            }
            found.append({"price": name, **{key: float(column[0]) for key, column in numbers.items()}})
        return found

    return book.table(rows)


def compute_adverse_selection(
    premiums: Any,
    y: Any,
    best_estimate: Any,
    *,
    sensitive: Any,
    channel: Any = None,
    sample_weight: Any = None,
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
    sensitive, channel, sample_weight, cluster, by, level
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
    book = Book.read(
        {"premiums": premiums, "y": y, "best_estimate": best_estimate}, sensitive=sensitive, channel=channel,
        sample_weight=sample_weight, cluster=cluster, by=by, level=level, tables=["best_estimate"],
    )  # fmt: skip
    K = len(book.groups)
    check_table(book, "best_estimate")
    stays = (book["premiums"][:, None] <= book["best_estimate"]).astype(float)
    profit = (book["premiums"] - book["y"])[:, None]
    book = book.with_columns(stays=stays, profit=stays * profit, profit_now=profit[:, 0])

    def rows(part: Book) -> Rows:
        names = ["stays", "profit_now", "profit"]
        totals = part.totals(names, range(K))
        volume = totals["volume"]
        found = []
        for group in ([k] for k in range(K)):
            numbers: dict[str, Array] = {}
            for name in names:
                numbers |= mean_columns(name, totals[name][group], volume[group], part.level)
            label = [{"group": part.groups[group[0]]}]
            effective = _effective(volume[group], totals["stays"][group], part["stays"][:, group])
            found += estimate_rows(label, effective, numbers)
        total = volume.sum()
        numbers = {}
        for name in names:
            numbers |= mean_columns(name, totals[name].sum(), total, part.level)
        effective = _effective(total, totals["stays"].sum(), part["stays"])
        return found + estimate_rows([{"group": None}], effective, numbers)

    return book.table(rows)


def _effective(volume: Estimate, stays: Estimate, may_stay: Array) -> Array:
    """Return the effective reports of those who stay, or of the group if no premium lets anybody: that is certain."""
    effective = effective_reports(volume)
    return np.minimum(effective, effective_reports(stays)) if may_stay.any() else effective


def _read_prices(
    prices: Mapping[str, Any], sensitive: Any, channel: Any, sample_weight: Any, cluster: Any, by: Any, level: float
) -> Book:
    if not isinstance(prices, Mapping) or not prices:
        raise TypeError("Got prices that are not a mapping, but expected prices by name, such as {'unaware': ...}.")
    book = Book.read(
        dict(prices), sensitive=sensitive, channel=channel, sample_weight=sample_weight, cluster=cluster, by=by,
        level=level, tables=list(prices),
    )  # fmt: skip
    for name, values in book.columns.items():
        if values.ndim == 2:
            check_table(book, name)
    return book
