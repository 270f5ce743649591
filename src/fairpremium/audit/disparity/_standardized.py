"""Differences of means in standard deviations, of the premium and of the loss ratio."""

from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtri

from fairpremium.arrays import Array

from .._audit_data import AuditData, Records, estimate_records, with_limits
from .._estimate import Difference, Estimate
from .._weighted_reports import REPORTED
from ._pairs import Pairs, all_pairs, check_choice, read_pairs


def compute_standardized_difference(
    premiums: Any,
    y: Any = None,
    *,
    against: Any = None,
    spread: str = "population",
    sensitive: Any,
    channel: Any = None,
    channel_key: Any = None,
    sample_weight: Any = None,
    exposure: Any = None,
    cluster: Any = None,
    by: Any = None,
    level: float = 0.95,
) -> Any:
    r"""Compare mean premiums, and loss ratios, between groups in units of their standard deviation.

    Parameters
    ----------
    premiums, sensitive, channel, channel_key, sample_weight, exposure, cluster, by, level
        As in `compute_group_means`.
    y : array-like of shape (n,), optional
        Losses, as in `compute_group_means`: adds the loss ratio, and premiums must be above zero.
    against : label, optional
        The group that others are compared with; by default the largest, by estimated volume.
    spread : {"population", "groups"}
        What a difference is divided by: the standard deviation among all who reported, which needs no attribute and
        has little noise, or the root of the mean of the two groups' variances.

    Returns
    -------
    DataFrame
        One row per quantity and group other than the one it is compared with:

        - `quantity`: "premium", or "loss_ratio"; `group`, `against`;
        - `difference`, `difference_low`, `difference_high`: of the means (of the loss ratios);
        - `standardized`, `standardized_low`, `standardized_high`: the difference in standard deviations;
        - `p_value`: two-sided, of equal means;
        - `effective_reports`: of the rarer of the two; `note`.

    Notes
    -----
    With a value v and a volume u of each row, the means and variances are

    .. math:: m_k = \frac{\sum_i a_{ik} u_i v_i}{\sum_i a_{ik} u_i}, \qquad
              s_k^2 = \frac{\sum_i a_{ik} u_i v_i^2}{\sum_i a_{ik} u_i} - m_k^2,

    with a_ik = w_i T^-1[k, s_i]; the standardized difference is (m_k - m_l) / s. For the premium u = 1. The loss ratio
    of a group is that of `compute_loss_ratio_gap`, losses over premiums, hence v = y / h with the premium as volume,
    u = h. The error of s is in the limits. Limits of the difference of loss ratios come from those of the two groups,
    each with its own tail, and allow for a standard deviation that is too small, because a sample from a heavy tail
    rarely has its largest losses.

    Examples
    --------
    >>> table = compute_standardized_difference([1.0, 3.0] * 50 + [2.0, 4.0] * 60, sensitive=["F"] * 100 + ["M"] * 120)
    >>> table[["quantity", "group", "against", "difference", "standardized"]].round(3)
      quantity group against  difference  standardized
    0  premium     F       M        -1.0        -0.895
    """
    check_choice(spread, "spread", ("population", "groups"))
    columns = {"premiums": premiums} if y is None else {"premiums": premiums, "y": y}
    data = AuditData.read(
        columns, sensitive, channel, sample_weight, cluster, by, level, exposure, channel_key=channel_key
    )
    h, pairs = data["premiums"], read_pairs(data, against)
    bad = int(np.count_nonzero(h <= 0))
    if y is not None and bad:
        raise ValueError(
            f"Got premiums with {bad} of {len(h)} values not above zero; expected premiums above zero, of which losses "
            "are a multiple. Without y the table is about the premium alone."
        )
    one = np.ones(len(h))
    data = data.with_columns(**_moments("premium", h, one))
    if y is not None:
        data = data.with_columns(**_moments("loss_ratio", data["y"] / h, h))
    quantities = ["premium", *(["loss_ratio"] if y is not None else [])]
    return data.table(lambda piece: [row for q in quantities for row in _differences(piece, q, pairs, spread)])


def differences_of_pairs(premiums: Any, **roles: Any) -> pd.DataFrame:
    """Return the table of `compute_standardized_difference` of the premium for all pairs, the lower mean first."""
    data = AuditData.read({"premiums": premiums}, by=None, **roles)
    totals = data.totals(["premiums"], range(len(data.groups)))
    pairs = all_pairs((totals["premiums"] / totals["volume"]).value)
    data = data.with_columns(**_moments("premium", data["premiums"], np.ones(len(data.reports))))
    return pd.DataFrame(_differences(data, "premium", pairs, "population"))


def _moments(name: str, value: Array, volume: Array) -> dict[str, Array]:
    """Return volume, and first and second moments about a centre, which keeps digits."""
    v = value - np.average(value, weights=volume) if volume.sum() > 0 else value
    return {f"{name} 0": volume, f"{name} 1": volume * v, f"{name} 2": volume * v**2}


def _differences(data: AuditData, quantity: str, pairs: Pairs, spread: str) -> Records:
    names = [f"{quantity} {power}" for power in range(3)]
    K = len(data.groups)
    totals = data.totals(names, [*range(K), REPORTED])
    zero, one, two = (totals[name] for name in names)
    mean = one / zero
    variance = two / zero - mean * mean
    first, second = pairs
    difference = mean[first] - mean[second]
    square = variance[[K] * len(first)] if spread == "population" else _half(variance[first] + variance[second])
    standardized = difference / square.sqrt()
    if quantity == "premium":
        limits, scaled, p_value = (
            difference.interval(data.level),
            standardized.interval(data.level),
            difference.p_value(),
        )
    else:
        both = Difference(mean[first], mean[second])
        limits, p_value = both.interval(data.level), both.p_value()
        scaled = _scaled_limits(difference, limits, square, data.level)
    numbers = {
        **with_limits("difference", difference, limits),
        **with_limits("standardized", standardized, scaled),
        "p_value": p_value,
    }
    labels = {"quantity": [quantity] * len(first), **pairs.labels(data.groups)}
    return estimate_records(labels, pairs.effective(totals["volume"][:K]), numbers)


def _scaled_limits(
    difference: Estimate, limits: tuple[Array, Array], variance: Estimate, level: float
) -> tuple[Array, Array]:
    """Return limits of a difference in standard deviations, from those of both.

    A sample from a heavy tail rarely has its largest losses, so that the variance s^2 is more often too small than too
    large, and by more than its standard error says. Its upper limit s'^2 is therefore that of the audit's means, which
    allows for skewness. The limit towards zero is x - sqrt((x - low / s)^2 + (x - x s / s')^2) for x = difference / s >
    0, and likewise elsewhere (the method of variance estimates recovery, Zou and Donner 2008).
    """
    s, (low, high) = variance.sqrt(), limits
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        x = difference.value / s.value
        inner = np.abs(x) * (1 - s.value / np.sqrt(variance.interval(level)[1]))
        outer = np.abs(x) * np.expm1(ndtri(0.5 + level / 2) * s.standard_error / s.value)
        below, above = np.where(x > 0, inner, outer), np.where(x > 0, outer, inner)
        return x - np.hypot(x - low / s.value, below), x + np.hypot(high / s.value - x, above)


def _half(estimate: Estimate) -> Estimate:
    return Estimate(estimate.value / 2, estimate.gradient / 2, estimate.rows)
