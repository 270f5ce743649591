"""What proxies move between groups: how much more one pays than another, beyond a discrimination-free price."""

from __future__ import annotations

from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from fairpremium.arrays import Array
from fairpremium.corrections import describe_lack

from .._comparison import premium_errors
from ..tables import EVERYONE, AuditData, effective_reports

ALIKE = (
    "the features that tell the group are those that tell the cost, so that a part of the cost looks like a charge for "
    "the group"
)
_ROUNDING = 1e-8  # of the mean premium: less is rounding
_TINY = 1e-18  # relative variance that is rounding
_ALIKE = 0.01  # of the variance of the cost: less is left by the group's probabilities if both are nearly the same


class ProxyEffect(NamedTuple):
    """The largest difference between two groups in what they pay above a discrimination-free price, with limits."""

    group: Any  # who pays more
    against: Any
    value: float  # >= 0, in the unit of the prices
    low: float
    high: float
    mean: float  # of the price, over everybody
    is_exact: bool  # the discrimination-free price was taken as given
    note: str = ""  # why the limits are wide


def measure_proxy_effect(
    price: Any,
    free: Any,
    X: Any,
    *,
    pricer: Any,
    sensitive: Any,
    channel: Any,
    channel_key: Any = None,
    sample_weight: Any = None,
    exposure: Any = None,
    cluster: Any = None,
    level: float = 0.95,
    propensity: Any = None,
) -> ProxyEffect | None:
    r"""Measure how much more a group pays than another because the price infers the group from features.

    - `price`, shape (n,): the price to judge.
    - `free`, shape (n,): h* of the `pricer` for `X`.
    - `propensity`, shape (n, K): P(D given x), for a list of any origin, which may charge only a part of the cost.
    - Other arguments as in `compute_group_means`.

    Returns None where a group has too few reports.

    Notes
    -----
    With the loading c = sum w pi / sum w h* the effect is the largest difference between groups of
    E[pi - b c h* given D], from the reports by the ratio estimators of `compute_group_means`. It is zero if the
    features say nothing about the group, whatever the prices are.

    A price that only leaves the attribute out charges the whole cost: b = 1. A list may charge a part of the cost, or
    everybody the same; that is no charge for the group. With a `propensity` q, b is the coefficient of c h* in the
    regression of pi on 1, c h* and q, between 0 and 1. Where q explains nearly all of h* that coefficient cannot be
    told. The estimate is then that of the regression on 1 and c h* alone, and the limits hold for b = 1, too: nobody
    can say whether such a list charges a part of the cost, or the cost and for the group.

    Its standard error is at most s_1 + s_2, with s_1 the error
    of the reports for given prices and s_2 = |R'v| that of h*, where R R' is the covariance of h* and v the weights
    with which h* enters: the two are not independent, and the sum holds for every dependence. The limits are for the
    pair that differs most (Bonferroni over the pairs).
    """
    roles = {
        "sensitive": sensitive, "channel": channel, "sample_weight": sample_weight, "cluster": cluster,
        "by": None, "level": level, "exposure": exposure, "channel_key": channel_key,
    }  # fmt: skip
    data = AuditData.read({"price": price, "free": free}, **roles)
    w, pi, h = data.reports.weight, data["price"], data["free"]
    c = float(w @ pi) / float(w @ h)
    parts, note = _cost_parts(pi, c * h, propensity, w)
    found = [_effect(data, pi - b * c * h, b * c, pricer, X, level) for b in parts]
    first = found[0]
    if first is None:
        return None
    limits = [_as_seen_by(first, effect) for effect in found if effect is not None]
    low, high = min(low for low, _ in limits), max(high for _, high in limits)
    numbers = [0.0 if abs(v) < _ROUNDING * abs(first.mean) else v for v in (first.value, low, high)]
    return first._replace(value=numbers[0], low=numbers[1], high=numbers[2], note=note)


def _as_seen_by(first: ProxyEffect, other: ProxyEffect) -> tuple[float, float]:
    """Return the limits of an effect for the pair of another one; of other pairs, its size in both directions."""
    if (other.group, other.against) == (first.group, first.against):
        return other.low, other.high
    if (other.against, other.group) == (first.group, first.against):
        return -other.high, -other.low
    return -other.high, other.high


def _cost_parts(pi: Array, cost: Array, propensity: Any, w: Array) -> tuple[list[float], str]:
    """Return the part of the cost that a price charges: one number, or those in question and why."""
    if propensity is None:
        return [1.0], ""
    share = w / w.sum()
    if share @ (pi - share @ pi) ** 2 <= _TINY * (share @ pi) ** 2:
        return [0.0], ""  # everybody pays the same
    Z = np.column_stack([np.ones(len(pi)), np.asarray(propensity, dtype=np.float64)[:, 1:]])
    root = np.sqrt(share)[:, None]
    values = np.column_stack([pi, cost])
    rest = values - Z @ np.linalg.lstsq(Z * root, values * root, rcond=None)[0]
    left, total = share @ rest[:, 1] ** 2, share @ (cost - share @ cost) ** 2
    if not total > _TINY * (share @ cost) ** 2:
        return [1.0], ""  # the cost is the same for all
    if left >= _ALIKE * total:
        return [float(np.clip(share @ (rest[:, 0] * rest[:, 1]) / left, 0.0, 1.0))], ""
    b = float(np.clip(share @ (pi * (cost - share @ cost)) / total, 0.0, 1.0))
    if b > 1 - _ALIKE:
        return [b, 1.0], ""
    return [b, 1.0], ALIKE


def _effect(data: AuditData, shift: Array, c: float, pricer: Any, X: Any, level: float) -> ProxyEffect | None:
    """Measure the largest difference between groups of the mean of pi - c h*."""
    w, h = data.reports.weight, data["free"]
    data = data.with_columns(shift=shift)
    K = len(data.groups)
    totals = data.totals(["shift", "price"], [*range(K), EVERYONE])
    volume = totals["volume"]
    if K < 2 or describe_lack(float(effective_reports(volume[:K]).min())):
        return None
    means, mean = totals["shift"] / volume, float((totals["price"] / volume).value[K])
    pairs = list(combinations(range(K), 2))
    i, j = max(pairs, key=lambda pair: abs(float(means.value[pair[0]] - means.value[pair[1]])))
    if means.value[i] < means.value[j]:
        i, j = j, i
    gap = means[i] - means[j]
    a = _contrast(data, i) - _contrast(data, j)
    found = premium_errors(pricer, X, [c * (a - (float(a @ h) / float(w @ h)) * w)])
    error = float(gap.standard_error[0]) + (0.0 if found is None else found[0][0])
    width = float(ndtri(1 - (1 - level) / (2 * len(pairs)))) * error
    value = float(gap.value[0])
    return ProxyEffect(data.groups[i], data.groups[j], value, value - width, value + width, mean, found is None)


def _contrast(data: AuditData, group: int) -> Array:
    signed = data.reports.signed_weight(group)
    return np.asarray(signed / signed.sum())
