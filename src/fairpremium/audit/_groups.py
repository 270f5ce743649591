"""Who pays what and who costs what, by true group, from the reports alone."""

import itertools
from typing import Any

import numpy as np

from fairpremium.families import Family, get_family

from ._audit_data import AuditData, Records, estimate_records, mean_columns, with_limits
from ._estimate import Difference
from ._weighted_reports import REPORTED, effective_reports


def compute_group_means(
    premiums: Any,
    y: Any,
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
    r"""Estimate the mean premium and the mean loss of every true group.

    Parameters
    ----------
    premiums : array-like of shape (n,)
        Prices of any origin, per unit of volume if there are weights or exposures.
    y : array-like of shape (n,)
        Losses per unit of volume, or with `exposure` totals over it (claim counts, amounts).
    sensitive : array-like of shape (n,)
        Reports; None and NaN stand for "not reported". With ``channel=None`` the true attribute.
    channel : Channel, mapping of keys to Channel or None, or None
        What the reports went through; a mapping if they come from several sources, with None for a source that holds
        the true attribute.
    channel_key : array-like of shape (n,), optional
        The source of each row, with a mapping.
    sample_weight : array-like of shape (n,), optional
        Volumes that losses were divided by.
    exposure : array-like of shape (n,), optional
        If y holds totals over an exposure: then y / exposure is audited, with the exposure as its volume.
    cluster : array-like of shape (n,), optional
        Who a row belongs to, if one person has several rows.
    by : array-like of shape (n,), optional
        A class for every row: the table is made within each class and gets the column `risk_class`.
    level : float
        Confidence level.

    Returns
    -------
    DataFrame
        In the caller's library (pandas for arrays), one row per group:

        - `group`; `share`: its share of the volume that reported;
        - `premium`, `premium_low`, `premium_high`: mean premium with limits;
        - `loss`, `loss_low`, `loss_high`: mean loss with limits;
        - `effective_reports`, `note`: see below.

    Notes
    -----
    For v the premium or the loss, with a_ik = w_i T^-1[k, s_i],

    .. math:: \hat\theta_k = \frac{\sum_i a_{ik} v_i}{\sum_i a_{ik}}, \qquad
              \widehat{Var}(\hat\theta_k) = \frac{\sum_i a_{ik}^2 (v_i - \hat\theta_k)^2}{(\sum_i a_{ik})^2},

    the ratio of two unbiased estimates of group totals; with ``channel=None`` the plain mean of the group. Limits are
    Fieller's, which hold for a noisy denominator too, moved where rows are skewed; with clusters the squares are of
    sums per person. The target is the mean of the population that the rows were drawn from.

    With several sources T is that of the row's source. The weights a_ik are unbiased row by row, so that the means are
    those of all rows even if people of one group, or with high losses, prefer a source.

    Rows without a report count for no group. Group means are therefore those of the people who reported; they are
    those of the whole portfolio if reporting does not depend on premium and loss within a group.

    The effective number of reports of a group is (sum_i a_ik)^2 / sum_i a_ik^2. Below 50 the row has nan instead of
    numbers and `note` says so. Estimates are not clipped: a share may leave [0, 1] by chance when the noise is large.

    Examples
    --------
    >>> compute_group_means([1.0, 2.0] * 50, [0.0, 4.0] * 50, sensitive=["F", "M"] * 50)[["group", "premium", "loss"]]
      group  premium  loss
    0     F      1.0   0.0
    1     M      2.0   4.0
    """
    pair = {"premiums": premiums, "y": y}
    data = AuditData.read(
        pair, sensitive, channel, sample_weight, cluster, by, level, exposure, channel_key=channel_key
    )
    return data.table(_group_means)


def _group_means(data: AuditData) -> Records:
    totals, share = data.totals_and_shares(["premiums", "y"])
    volume = totals["volume"]
    numbers = {
        "share": share,
        **mean_columns("premium", totals["premiums"], volume, data.level),
        **mean_columns("loss", totals["y"], volume, data.level),
    }
    return estimate_records({"group": data.groups}, effective_reports(volume), numbers)


def compute_demographic_disparity(
    premiums: Any,
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
    r"""Compare the mean premium of every group with that of everybody, and of every other group.

    Parameters
    ----------
    premiums, sensitive, channel, channel_key, sample_weight, exposure, cluster, by, level
        As in `compute_group_means`.

    Returns
    -------
    DataFrame
        One row per group against all who reported (`against` is None), then one per pair of groups:

        - `group`, `against`;
        - `difference`, `difference_low`, `difference_high`: mean premium of `group` minus that of `against`;
        - `ratio`, `ratio_low`, `ratio_high`: their quotient;
        - `effective_reports`: of the rarer of the two; `note`.

    Notes
    -----
    With the means m_k of `compute_group_means`, m_k - m_l and m_k / m_l; standard errors by the delta method from the
    joint covariance of all totals, limits of the quotient symmetric on the log scale. Zero differences are demographic
    parity of the mean premium. With `by` the comparison is between people of one class, which is conditional
    demographic disparity; with classes as fine as the tariff's cells a difference is direct discrimination.
    """
    data = AuditData.read(
        {"premiums": premiums}, sensitive, channel, sample_weight, cluster, by, level, exposure, channel_key=channel_key
    )
    return data.table(_disparity)


def compute_loss_ratio_gap(
    premiums: Any,
    y: Any,
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
    r"""Estimate the loss ratio of every group and its gap to everybody's.

    Parameters
    ----------
    premiums, y, sensitive, channel, channel_key, sample_weight, exposure, cluster, by, level
        As in `compute_group_means`.

    Returns
    -------
    DataFrame
        One row per group: `group`; `loss_ratio`, `loss_ratio_low`, `loss_ratio_high`; `gap`, `gap_low`, `gap_high`:
        the group's loss ratio minus that of all who reported; `effective_reports`, `note`.

    Notes
    -----
    With a_ik = w_i T^-1[k, s_i] and h the premium,

    .. math:: \hat r_k = \sum_i a_{ik} y_i \Big/ \sum_i a_{ik} h_i, \qquad \hat g_k = \hat r_k - \hat r,

    where r is that of all rows with a report. Limits of a ratio are Fieller's, those of a gap come from the limits and
    the covariance of both sides. A group with a gap above zero pays too little for what it costs, one below zero
    subsidises.
    """
    pair = {"premiums": premiums, "y": y}
    data = AuditData.read(
        pair, sensitive, channel, sample_weight, cluster, by, level, exposure, channel_key=channel_key
    )
    return data.table(lambda piece: _ratios_and_gaps(piece, "loss_ratio", "y", "premiums"))


def compute_group_deviance(
    premiums: Any,
    y: Any,
    *,
    sensitive: Any,
    channel: Any = None,
    channel_key: Any = None,
    family: str | Family = "normal",
    sample_weight: Any = None,
    exposure: Any = None,
    cluster: Any = None,
    by: Any = None,
    level: float = 0.95,
) -> Any:
    r"""Estimate the mean deviance of the premium as a forecast of the loss, by true group.

    Parameters
    ----------
    premiums, y, sensitive, channel, channel_key, sample_weight, exposure, cluster, by, level
        As in `compute_group_means`.
    family : str or Family
        Whose unit deviance d(y, mu) measures the error: squared error for "normal".

    Returns
    -------
    DataFrame
        One row per group: `group`; `deviance`, `deviance_low`, `deviance_high`; `gap`, `gap_low`, `gap_high`: minus
        the mean of all who reported; `effective_reports`, `note`.

    Notes
    -----
    The ratio estimator of `compute_group_means` with v_i = d(y_i, h_i). A difference between groups is not unfairness
    by itself: a group whose losses vary more is harder to predict.
    """
    law = get_family(family)
    pair = {"premiums": premiums, "y": y}
    data = AuditData.read(
        pair, sensitive, channel, sample_weight, cluster, by, level, exposure, channel_key=channel_key
    )
    law.check_outcome(data["y"])
    bad = int(np.count_nonzero(~law.mean.contains(data["premiums"])))
    if bad:
        raise ValueError(
            f"Got premiums with {bad} rows outside the means of the {law.name} family: expected every premium to be "
            f"{law.mean}."
        )
    data = data.with_columns(deviance=law.unit_deviance(data["y"], data["premiums"]))
    return data.table(lambda piece: _ratios_and_gaps(piece, "deviance", "deviance", "volume"))


def _ratios_and_gaps(data: AuditData, name: str, numerator: str, denominator: str) -> Records:
    """Divide two totals of every group, and compare the ratio with that of all who reported."""
    K = len(data.groups)
    totals = data.totals([c for c in (denominator, numerator) if c != "volume"], [*range(K), REPORTED])
    ratio = totals[numerator] / totals[denominator]
    gap = Difference(ratio[:K], ratio[[K] * K])
    numbers = {
        **mean_columns(name, totals[numerator][:K], totals[denominator][:K], data.level),
        **with_limits("gap", gap.estimate, gap.interval(data.level)),
    }
    return estimate_records({"group": data.groups}, effective_reports(totals["volume"][:K]), numbers)


def _disparity(data: AuditData) -> Records:
    """Compare every group with all who reported (the last mean), then every pair."""
    K = len(data.groups)
    totals = data.totals(["premiums"], [*range(K), REPORTED])
    mean, effective = totals["premiums"] / totals["volume"], effective_reports(totals["volume"])
    pairs = [*((k, K) for k in range(K)), *itertools.combinations(range(K), 2)]
    names = (*data.groups, None)
    first, second = map(list, zip(*pairs, strict=True))
    labels = {"group": [names[k] for k in first], "against": [names[k] for k in second]}
    difference, quotient = mean[first] - mean[second], mean[first] / mean[second]
    numbers = {
        **with_limits("difference", difference, difference.interval(data.level)),
        **with_limits("ratio", quotient, quotient.ratio_interval(data.level)),
    }
    return estimate_records(labels, np.minimum(effective[first], effective[second]), numbers)
