"""Premium against loss, by group and by premium decile."""

from typing import Any

from ._audit_data import AuditData, Records, estimate_records, mean_columns, with_limits
from ._weighted_reports import EVERYONE, effective_reports


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
    vanish: the mean loss of those who pay a premium is then that premium, in every group.
    """
    data = AuditData.read({"premiums": premiums, "y": y}, sensitive, channel, sample_weight, cluster, by, level)
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
