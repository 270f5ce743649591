"""Whether prices have the right level: premium against loss by group and decile, and against h* by segment."""

from typing import Any

import numpy as np

from fairpremium.blocks import Rows as PortfolioRows
from fairpremium.models import Design
from fairpremium.pricing import Reference, certify_prices, check_segments

from ._audit_data import (
    AuditData,
    Records,
    estimate_records,
    frame_like_source,
    mean_columns,
    n_rows,
    with_limits,
)
from ._weighted_reports import EVERYONE, effective_reports, read_channel


def compute_calibration(
    premiums: Any,
    y: Any,
    *,
    sensitive: Any,
    channel: Any = None,
    channel_key: Any = None,
    bins: int = 10,
    sample_weight: Any = None,
    exposure: Any = None,
    cluster: Any = None,
    by: Any = None,
    level: float = 0.95,
) -> Any:
    r"""Compare premium and loss by premium decile, for everybody and for every true group.

    Parameters
    ----------
    premiums, y, sensitive, channel, channel_key, sample_weight, exposure, cluster, by, level
        As in `compute_group_means`.
    bins : int
        Number of bins of about equal volume; the premium is not private, so that its quantiles are known. Equal
        premiums stay together, so that a tariff with few prices may have fewer bins. With `by` the bins are those of
        the whole portfolio.

    Returns
    -------
    DataFrame
        One row per bin and group, everybody first (`group` is None, all rows, with or without a report):

        - `bin` (1 for the lowest premiums), `group`, `share`: of the bin's volume that reported;
        - `premium`, `loss`: means, each with `_low` and `_high`;
        - `difference`, `difference_low`, `difference_high`: mean loss minus mean premium;
        - `effective_reports`, `note`.

    Notes
    -----
    In bin B the ratio estimators of `compute_group_means` with a_ik 1{h_i in B} in the place of a_ik; the difference
    is that of v_i = y_i - h_i. A price is calibrated within groups (auto-calibrated, sufficient) if all differences
    vanish: the mean loss of those who pay a premium is then that premium, in every group.
    """
    pair = {"premiums": premiums, "y": y}
    data = AuditData.read(
        pair, sensitive, channel, sample_weight, cluster, by, level, exposure, channel_key=channel_key
    )
    data = data.with_columns(excess=data["y"] - data["premiums"])
    return data.in_bins("premiums", bins).table(_calibration)


def _calibration(data: AuditData) -> Records:
    totals, share = data.totals_and_shares(["premiums", "y", "excess"], [EVERYONE])
    volume = totals["volume"]
    difference = totals["excess"] / volume
    numbers = {
        "share": share,
        **mean_columns("premium", totals["premiums"], volume, data.level),
        **mean_columns("loss", totals["y"], volume, data.level),
        **with_limits("difference", difference, difference.interval(data.level)),
    }
    return estimate_records({"group": (None, *data.groups)}, effective_reports(volume), numbers)


def certify(
    premiums: Any,
    best_estimates: Any,
    X: Any,
    y: Any,
    *,
    sensitive: Any,
    channel: Any = None,
    channel_key: Any = None,
    by: Any = None,
    reference: Any = "marginal",
    sample_weight: Any = None,
    exposure: Any = None,
    cluster: Any = None,
    level: float = 0.95,
) -> Any:
    r"""Estimate the mean of h*, overall and by segment, and whether prices of any origin agree with it.

    The estimate is right if the best estimates are, **or** if P(D given x) is. It needs no law for y.

    Parameters
    ----------
    premiums : array-like of shape (n,)
        The prices to be judged, per unit of volume.
    best_estimates : table of shape (n, K)
        mu(x, d), one column per group, from a fit that has not seen these rows. Columns that have the names of the
        groups may be in any order.
    X : data frame or array of shape (n, features)
        Features that P(D given x) is learned from: those of the tariff.
    y : array-like of shape (n,)
        Losses per unit of volume, or with `exposure` totals over it (claim counts, amounts).
    sensitive, channel, channel_key, sample_weight, cluster, level
        As in `compute_group_means`.
    by : array of shape (n,) or name of a column of X, optional
        Segment of each row, such as the region or an age band.
    reference : {"marginal", "uniform"} or dict from group to weight
        P*, the weights of the groups in h*. "marginal" is estimated from these rows, and intervals contain its error.
    exposure : array-like of shape (n,), optional
        If y holds totals over an exposure (counts, amounts): then y / exposure is certified, with the exposure as its
        volume.

    Returns
    -------
    DataFrame
        In the caller's library, one row for the portfolio (`segment` is "all") and one per segment:

        - `segment`, `rows`, `volume`;
        - `premium`: mean premium; `level`: estimate of the mean of h*, with `standard_error`, `lower`, `upper`;
        - `inside`: whether the mean premium lies between the limits;
        - `effective_reports`: how many rows the estimate rests on; below 50 there is a `note` instead of an estimate.

    Notes
    -----
    With e_d(x) = P(D = d given x) among those who reported and r(x) the probability of a report,

    .. math:: \xi_i = \sum_d P^*(d) \Big[\mu_d(x_i) +
              \frac{T^{-1}[d, s_i]}{e_d(x_i)\, r(x_i)} \, (y_i - \mu_d(x_i))\Big]

    has the mean h*(x_i) if mu is right or e and r are: it is doubly robust. The level of a segment is the mean of xi,
    weighted by volume. e and r are logits in the features, the volume, squares and products, each learned on other rows
    than those it is used for. Missing reports may depend on the features and on the group, but not on the loss beyond
    these.

    Examples
    --------
    >>> from fairpremium.portfolios import zhang_liu_shi_2025
    >>> p = zhang_liu_shi_2025(n=2000, rng=0)
    >>> h = p.discrimination_free(p.X)
    >>> table = certify(h, p.best_estimate(p.X), p.X, p.y, sensitive=p.sensitive, reference=p.group_distribution)
    >>> table[["segment", "rows", "inside"]]
      segment  rows  inside
    0     all  2000    True
    """
    n = n_rows(premiums, "premiums")
    columns, tables = {"premiums": premiums, "y": y, "best_estimates": best_estimates}, ["best_estimates"]
    data = AuditData.read(
        columns, sensitive, channel, sample_weight, cluster, None, level, exposure, tables, channel_key=channel_key
    )
    weights = Reference.of(reference, data.groups)
    if weights.needs_means:
        raise ValueError(
            f'Got reference={reference!r}, but expected "marginal", "uniform" or a dict from group to weight. Weights '
            "that balance a portfolio belong to the fit that made the prices: give them as a dict."
        )
    _, matrix = Design.learn_transform(X)
    if len(matrix) != n:
        raise ValueError(f"Got X with {len(matrix)} rows, but premiums has {n}; expected the same number.")
    reports = data.reports
    volume = None if sample_weight is None and exposure is None else reports.weight
    table = certify_prices(
        data["premiums"],
        data["best_estimates"],
        PortfolioRows(matrix, data["y"], volume, reports.code.astype(np.uint16), cluster=reports.cluster),
        read_channel(channel, sensitive),
        reference=weights.fixed,
        segment=check_segments(by, X, n),
        level=data.level,
    )
    return frame_like_source(data.source, table)
