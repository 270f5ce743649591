"""Premium against loss, by group and by premium decile."""

from __future__ import annotations

from typing import Any

from ._audit_data import AuditData, Records, estimate_records, group_labels, mean_columns, volume_share, with_limits
from ._weighted_reports import EVERYONE, REPORTED, effective_reports


def compute_calibration(
    premiums: Any,
    y: Any,
    *,
    sensitive: Any,
    channel: Any = None,
    bins: int = 10,
    sample_weight: Any = None,
    cluster: Any = None,
    by: Any = None,
    level: float = 0.95,
) -> Any:
    r"""Compare premium and loss by premium decile, for everybody and for every true group.

    Parameters
    ----------
    premiums, y, sensitive, channel, sample_weight, cluster, by, level
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
    vanish: the premium then costs what it promises, whoever pays it.
    """
    data = AuditData.read({"premiums": premiums, "y": y}, sensitive, channel, sample_weight, cluster, by, level)
    data = data.with_columns(excess=data["y"] - data["premiums"])
    return data.in_bins("premiums", bins).table(_calibration)


def _calibration(data: AuditData) -> Records:
    K = len(data.groups)
    totals = data.totals(["premiums", "y", "excess"], [EVERYONE, *range(K), REPORTED])
    volume = totals["volume"][:-1]
    difference = totals["excess"][:-1] / volume
    numbers = {
        "share": volume_share(totals["volume"], first_is_everybody=True),
        **mean_columns("premium", totals["premiums"][:-1], volume, data.level),
        **mean_columns("loss", totals["y"][:-1], volume, data.level),
        **with_limits("difference", difference, difference.interval(data.level)),
    }
    return estimate_records(group_labels((None, *data.groups)), effective_reports(volume), numbers)
