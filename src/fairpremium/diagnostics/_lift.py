"""Lift and double lift: what rows cost that a price, or two prices, order from low to high."""

from typing import Any

import numpy as np
import numpy.typing as npt

from fairpremium.arrays import Array
from fairpremium.audit.tables import (
    EVERYONE,
    AuditData,
    Records,
    effective_reports,
    fieller,
    mean_columns,
    premium_bins,
    with_limits,
)

from ._diagnosed import read_rows, records_of


def compute_lift(
    premiums: Any,
    y: Any,
    *,
    bins: int = 10,
    sensitive: Any = None,
    channel: Any = None,
    channel_key: Any = None,
    sample_weight: Any = None,
    exposure: Any = None,
    cluster: Any = None,
    level: float = 0.95,
) -> Any:
    r"""Order rows by premium and compare what each part costs with what all cost on average.

    Parameters
    ----------
    premiums, y, sensitive, channel, channel_key, sample_weight, exposure, cluster, level
        As in `compute_observed_expected`.
    bins : int
        Number of bins of about equal volume; equal premiums stay together.

    Returns
    -------
    DataFrame
        One row per bin (1 for the lowest premiums) and group, everybody first (`group` is None):

        - `bin`, `group`; `premium`, `loss`: means;
        - `expected_lift`: mean premium of the bin over that of the group;
        - `lift`, `lift_low`, `lift_high`: the same of the losses;
        - `effective_reports`, `note`.

    Notes
    -----
    With m_k the mean loss of group k and m_kb that of its rows in bin b, lift is m_kb / m_k. Its limits are symmetric
    on the log scale, by the delta method from the joint covariance of the four totals (Fieller's would need a fixed
    denominator). The steeper the lift, the better the price separates; where lift and expected lift differ the price is
    not calibrated.
    """
    data = read_rows(
        {"premiums": premiums}, y, sensitive, channel, sample_weight, exposure, cluster, level, channel_key=channel_key
    )
    codes = premium_bins(data["premiums"], data.reports.weight, bins)
    return data.table(lambda whole: _lift(whole, codes))


def _lift(data: AuditData, codes: npt.NDArray[np.intp]) -> Records:
    groups = [EVERYONE, *range(len(data.groups))]
    records: Records = []
    for b in np.unique(codes):
        inside = (codes == b).astype(float)
        part = {"y": inside * data["y"], "premiums": inside * data["premiums"], "inside": inside}
        totals = data.with_columns(**{f"bin_{name}": column for name, column in part.items()}).totals(
            ["y", "premiums", *(f"bin_{name}" for name in part)], groups
        )
        volume, inside_volume = totals["volume"], totals["bin_inside"]
        premium, loss = totals["bin_premiums"] / inside_volume, totals["bin_y"] / inside_volume
        lift = loss / (totals["y"] / volume)
        numbers = {
            "premium": premium.value,
            "loss": loss.value,
            "expected_lift": (premium / (totals["premiums"] / volume)).value,
            **with_limits("lift", lift, lift.ratio_interval(data.level)),
        }
        found = records_of({"group": (None, *data.groups)}, effective_reports(inside_volume), numbers)
        records += [{"bin": int(b) + 1, **record} for record in found]
    return records


def compute_double_lift(
    premiums: Any,
    against: Any,
    y: Any,
    *,
    bins: int = 10,
    rescale: bool = True,
    sensitive: Any = None,
    channel: Any = None,
    channel_key: Any = None,
    sample_weight: Any = None,
    exposure: Any = None,
    cluster: Any = None,
    level: float = 0.95,
) -> Any:
    r"""Order rows by the quotient of two prices and see which of them the losses follow.

    Parameters
    ----------
    premiums, against : array-like of shape (n,)
        Two prices, such as a new and a current one; both above zero.
    y, sensitive, channel, channel_key, sample_weight, exposure, cluster, level
        As in `compute_observed_expected`.
    bins : int
        Number of bins of about equal volume, of premiums / against.
    rescale : bool
        Whether both prices are first multiplied so that their total over all rows is that of the losses: then a bin
        tells how they distribute the cost, not who is cheaper.

    Returns
    -------
    DataFrame
        One row per bin (1 where `premiums` is lowest compared with `against`) and group, everybody first:

        - `bin`, `group`; `quotient`: mean premium over mean of the other price;
        - `premium`, `against`: means; `loss`, `loss_low`, `loss_high`: mean loss;
        - `ratio`, `ratio_low`, `ratio_high`: losses over `premiums`; `against_ratio` with limits: over `against`;
        - `effective_reports`, `note`.

    Notes
    -----
    The better price is that whose ratio stays near one in all bins. Limits are Fieller's; the factors of `rescale` are
    taken as given.
    """
    data = read_rows(
        {"premiums": premiums, "against": against},
        y,
        sensitive,
        channel,
        sample_weight,
        exposure,
        cluster,
        level,
        channel_key=channel_key,
    )
    for name in ("premiums", "against"):
        bad = int(np.count_nonzero(data[name] <= 0))
        if bad:
            raise ValueError(f"Got {name} with {bad} of {len(data[name])} values not above zero; expected prices.")
    if rescale:
        w = data.reports.weight
        data = data.with_columns(**{p: _scaled(data[p], data["y"], w) for p in ("premiums", "against")})
    codes = premium_bins(data["premiums"] / data["against"], data.reports.weight, bins)
    return data.divided(("bin", codes, range(1, bins + 1))).table(_double_lift)


def _scaled(price: Array, y: Array, w: Array) -> Array:
    if not w @ y > 0:
        raise ValueError("Got y without any loss, but expected a positive total, which prices are scaled to.")
    return np.asarray(price * (w @ y) / (w @ price))


def _double_lift(data: AuditData) -> Records:
    groups = [EVERYONE, *range(len(data.groups))]
    totals = data.totals(["premiums", "against", "y"], groups)
    premium, against, loss, volume = totals["premiums"], totals["against"], totals["y"], totals["volume"]
    numbers = {
        "quotient": (premium / against).value,
        "premium": (premium / volume).value,
        "against": (against / volume).value,
        **mean_columns("loss", loss, volume, data.level),
        **mean_columns("ratio", loss, premium, data.level),
        **with_limits("against_ratio", loss / against, fieller(loss, against, data.level)),
    }
    return records_of({"group": (None, *data.groups)}, effective_reports(volume), numbers)
