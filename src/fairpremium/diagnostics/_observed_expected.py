"""Observed losses against expected ones, level by level of every rating factor."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from fairpremium.audit.tables import (
    EVERYONE,
    AuditData,
    Records,
    as_pandas,
    effective_reports,
    frame_like_source,
    mean_columns,
    read_factors,
)

from ._diagnosed import read_rows, records_of


def compute_observed_expected(
    premiums: Any,
    y: Any,
    X: Any,
    *,
    factors: Sequence[str] | None = None,
    bands: int = 10,
    sensitive: Any = None,
    channel: Any = None,
    channel_key: Any = None,
    sample_weight: Any = None,
    exposure: Any = None,
    cluster: Any = None,
    level: float = 0.95,
) -> Any:
    r"""Compare observed with expected losses by rating factor, for everybody and for every true group.

    Parameters
    ----------
    premiums : array-like of shape (n,)
        Expected losses of any origin, per unit of volume.
    y : array-like of shape (n,)
        Losses, per unit of volume; with `exposure` totals over it.
    X : data frame or array of shape (n, factors)
        Rating factors, also such as the price does not use.
    factors : sequence of str, optional
        Columns of X to look at; all by default.
    bands : int
        A column of numbers with more values than this is divided into so many bands of about equal volume.
    sensitive, channel, channel_key : optional
        As in `fairpremium.audit.compute_group_means`: adds rows for the true groups.
    sample_weight, exposure : array-like of shape (n,), optional
        Volumes; `exposure` if y is a total over it.
    cluster : array-like of shape (n,), optional
        Who a row belongs to, if one person has several rows.
    level : float
        Confidence level.

    Returns
    -------
    DataFrame
        In the caller's library, one row per factor, level and group, everybody first (`group` is None):

        - `factor`, `level`: a value, or a band such as "18 to 25";
        - `group`, `volume`: of everybody, or estimated of the group;
        - `observed`, `expected`: mean loss and mean premium;
        - `ratio`, `ratio_low`, `ratio_high`: observed over expected losses;
        - `effective_reports`, `note`.

    Notes
    -----
    With a_ik = w_i T^-1[k, s_i], for everybody a_i = w_i, and the rows of the level,

    .. math:: \hat r_k = \sum_i a_{ik} y_i \Big/ \sum_i a_{ik} h_i,

    with Fieller's limits. They hold the chance of the losses, of the mix of risks and of the noise of the reports; the
    premiums are taken as given. Of many levels one in twenty misses one by chance.
    """
    data = read_rows(
        {"premiums": premiums}, y, sensitive, channel, sample_weight, exposure, cluster, level, channel_key=channel_key
    )
    tables = [
        as_pandas(factor.divide(data).table(_ratios)) for factor in read_factors(X, factors, bands, data.reports.weight)
    ]
    return frame_like_source(premiums, pd.concat(tables, ignore_index=True))


def _ratios(data: AuditData) -> Records:
    groups = [EVERYONE, *range(len(data.groups))]
    totals = data.totals(["premiums", "y"], groups)
    volume = totals["volume"]
    numbers = {
        "volume": volume.value,
        "observed": (totals["y"] / volume).value,
        "expected": (totals["premiums"] / volume).value,
        **mean_columns("ratio", totals["y"], totals["premiums"], data.level),
    }
    return records_of({"group": (None, *data.groups)}, effective_reports(volume), numbers)
