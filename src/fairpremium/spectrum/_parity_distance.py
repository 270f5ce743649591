"""How far the distributions of a price are apart between groups: demographic parity of the whole distribution."""

import itertools
from typing import Any

import numpy as np
from scipy.special import ndtri

from fairpremium.arrays import Array
from fairpremium.audit.tables import AuditData, Records, effective_reports, estimate_records

from ._group_distributions import GroupDistributions


def compute_parity_distance(
    premiums: Any,
    *,
    sensitive: Any,
    channel: Any = None,
    sample_weight: Any = None,
    exposure: Any = None,
    cluster: Any = None,
    by: Any = None,
    level: float = 0.95,
) -> Any:
    r"""Estimate how far the distributions of a price are apart between the true groups.

    Parameters
    ----------
    premiums : array-like of shape (n,) or (n, K)
        Prices of any origin. A table has one column per group, what each would pay: best estimates or corrective
        prices, which differ between groups.
    sensitive, channel, sample_weight, exposure, cluster, by, level
        As in `fairpremium.audit.compute_group_means`.

    Returns
    -------
    DataFrame
        The largest distance of all pairs first (`group` and `against` are None), then one row per pair:

        - `group`, `against`;
        - `kolmogorov`, `kolmogorov_low`, `kolmogorov_high`: largest difference of the distribution functions, from 0
          to 1; `at`: the price where it is; `sign`: 1 if more of `group` than of `against` pay at most this price, else
          -1;
        - `wasserstein`, `wasserstein_low`, `wasserstein_high`: area between the distribution functions, in money: how
          far the prices of one group have to be moved on average to be distributed like those of the other;
        - `p_value`: of the test that the distributions are equal;
        - `effective_reports`: of the rarer of the groups; `note`.

    Notes
    -----
    With the T^-1-weighted distribution functions F_k of the groups,

    .. math:: K_{kl} = \sup_t |F_k(t) - F_l(t)|, \qquad W_{kl} = \int |F_k(t) - F_l(t)| dt.

    With the true attribute these are the two-sample Kolmogorov-Smirnov and Wasserstein distances of the rows. Both are
    zero only for equal distributions, so that an estimate is never zero: noise adds to it, the more, the fewer reports.

    The p-value is the share of 1,000 draws of the error process (multiplier bootstrap, fixed seed) whose largest
    absolute value exceeds K. Where the test rejects at 1 - level, limits are the distance less its bias, -+ z standard
    errors. The standard error is that of F_k - F_l at the price where the difference is largest, or of the area. The
    bias of K is the mean over draws of the largest error at prices whose difference is within sqrt(log log n) / 2
    standard errors of the largest one (the directional derivative of the supremum [Fang2019]). Such limits are valid
    where the distance is well above zero and, for W, where the functions do not coincide over a range of prices.

    At zero neither distance has a regular limit law. Where the test does not reject, the lower limit is therefore 0
    and the upper one the distance plus the level quantile of that of the error process. This interval is one-sided
    and covers more often than the level says. In the same way the upper limit of K is 1 where that quantile reaches
    from K to 1, as with groups whose prices do not overlap. The point estimate always contains the noise, and K may
    exceed 1 by it: read the limits.

    Examples
    --------
    >>> table = compute_parity_distance([1.0, 2.0, 2.0, 3.0] * 50, sensitive=["F", "F", "M", "M"] * 50)
    >>> table[["group", "against", "kolmogorov", "at", "wasserstein"]].to_numpy().tolist()[1]
    ['F', 'M', 0.5, 1.0, 1.0]
    """
    column = {"premiums": premiums}
    tables = ["premiums"] if len(getattr(premiums, "shape", ())) == 2 else []
    data = AuditData.read(column, sensitive, channel, sample_weight, cluster, by, level, exposure, tables)
    return data.table(_distances)


def signed_weights(data: AuditData) -> Array:
    """Return a_ik = w_i T^-1[k, s_i]: shape (n, K)."""
    return np.column_stack([data.reports.signed_weight(k) for k in range(len(data.groups))])


def largest(difference: Array) -> Array:
    """Return sup |F - G| along the last axis."""
    return np.asarray(np.abs(difference).max(axis=-1))


def area(difference: Array, points: Array) -> Array:
    """Return the integral of |F - G| along the last axis, for step functions that change at the points."""
    return np.asarray(np.abs(difference[..., :-1]) @ np.diff(points))


def _distances(data: AuditData) -> Records:
    K = len(data.groups)
    pairs = list(itertools.combinations(range(K), 2))
    effective = effective_reports(data.totals([], range(K))["volume"])
    least = [float(effective.min()), *(float(min(effective[k], effective[m])) for k, m in pairs)]
    names = [(None, None), *((data.groups[k], data.groups[m]) for k, m in pairs)]
    found = _measure(data, pairs) if pairs else {}
    labels = {"group": [k for k, _ in names], "against": [m for _, m in names]}
    return estimate_records(labels, np.array(least), found)


def _measure(data: AuditData, pairs: list[tuple[int, int]]) -> dict[str, Array]:
    """Compute all numbers of the table: for the largest distance of all pairs, then for every pair."""
    with np.errstate(divide="ignore", invalid="ignore"):  # a group may have no reports at all
        found = GroupDistributions.estimate(data["premiums"], signed_weights(data), data.reports.cluster)
    whole, on_grid, errors = found.differences(pairs)
    points, some = found.points, found.points[found.grid]
    sup, value = largest(errors), largest(whole)
    # Draws are on the grid, where a supremum is a little smaller, so that the estimate is compared there too.
    p_value = (1 + (_with_largest(sup) >= _with_largest(largest(on_grid))).sum(axis=0)) / (1 + len(sup))
    place, top = np.abs(whole).argmax(axis=-1), int(value.argmax())
    sign = np.sign(whole[range(len(pairs)), place])
    equal, near = p_value > 1 - data.level, 0.5 * np.sqrt(np.log(np.log(max(len(data.reports), 16))))
    sets = [np.arange(len(pairs)), *np.arange(len(pairs))[:, None]]  # the pairs that a row of the table is about
    kolmogorov = [_bias_and_error_of_largest(on_grid[s], errors[:, s], near) for s in sets]
    wasserstein = [_bias_and_error_of_area(on_grid[s], errors[:, s], some) for s in sets]
    return {
        **_limits("kolmogorov", value, sup, kolmogorov, equal, data.level),
        "at": points[np.r_[place[top], place]],
        "sign": np.r_[sign[top], sign],
        **_limits("wasserstein", area(whole, points), area(errors, some), wasserstein, equal, data.level),
        "p_value": p_value,
    }


def _with_largest(values: Array) -> Array:
    """Put the largest of all pairs in front, along the last axis."""
    return np.concatenate([values.max(axis=-1, keepdims=True), values], axis=-1)


def _bias_and_error_of_largest(difference: Array, errors: Array, near: float) -> tuple[float, float]:
    """Return what noise adds to the largest difference of some pairs, and its standard error: that at its place."""
    size, sign = np.abs(difference).ravel(), np.sign(difference).ravel()
    moved = errors.reshape(len(errors), -1) * sign
    spread = moved.std(axis=0)
    top = size >= size.max() - near * spread.max()
    return float(moved[:, top].max(axis=1).mean()), float(spread[size.argmax()])


def _bias_and_error_of_area(difference: Array, errors: Array, points: Array) -> tuple[float, float]:
    """Return what noise adds to the largest area of some pairs, and the standard error of that area."""
    areas = area(difference, points)
    top = int(areas.argmax())
    linear = (errors[:, top, :-1] * np.sign(difference[top, :-1])) @ np.diff(points)
    return float((area(difference + errors, points).max(axis=-1) - areas[top]).mean()), float(linear.std())


def _limits(
    name: str, value: Array, error: Array, found: list[tuple[float, float]], equal: Any, level: float
) -> dict[str, Array]:
    """Compute limits: normal ones less the bias, or from zero to the band where equality is possible."""
    value, band = _with_largest(value), np.quantile(_with_largest(error), level, axis=0)
    bias, spread = np.array(found).T
    z = ndtri(0.5 + level / 2)
    low = np.where(equal, 0.0, np.maximum(value - bias - z * spread, 0.0))
    high = np.where(equal, value + band, value - bias + z * spread)
    if name == "kolmogorov":  # near the largest possible distance there is no regular law either
        high = np.where(value + band >= 1, 1.0, high)
    return {name: value, f"{name}_low": low, f"{name}_high": high}
