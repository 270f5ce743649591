"""What proxies move between groups: how much more one pays than another, beyond a discrimination-free price."""

from __future__ import annotations

from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from fairpremium.arrays import Array
from fairpremium.corrections import describe_lack

from ..tables import EVERYONE, AuditData, effective_reports

_BLOCK_ROWS = 50_000


class ProxyEffect(NamedTuple):
    """The largest difference between two groups in what they pay above a discrimination-free price, with limits."""

    group: Any  # who pays more
    against: Any
    value: float  # >= 0, in the unit of the prices
    low: float
    high: float
    mean: float  # of the price, over everybody
    is_exact: bool  # the discrimination-free price was taken as given


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
) -> ProxyEffect | None:
    r"""Measure how much more a group pays than another because the price infers the group from features.

    - `price`, shape (n,): the price to judge.
    - `free`, shape (n,): h* of the `pricer` for `X`.
    - Other arguments as in `compute_group_means`.

    Returns None where a group has too few reports.

    Notes
    -----
    With the loading c = sum w pi / sum w h* the effect is the largest difference between groups of
    E[pi - c h* given D], from the reports by the ratio estimators of `compute_group_means`. It is zero if the features
    say nothing about the group, whatever the prices are. Its standard error is at most s_1 + s_2, with s_1 the error
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
    data = data.with_columns(shift=pi - c * h)
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
    root = _root_norm(pricer, X, c * (a - (float(a @ h) / float(w @ h)) * w))
    error = float(gap.standard_error[0]) + (root or 0.0)
    width = float(ndtri(1 - (1 - level) / (2 * len(pairs)))) * error
    value = float(gap.value[0])
    return ProxyEffect(data.groups[i], data.groups[j], value, value - width, value + width, mean, root is None)


def _contrast(data: AuditData, group: int) -> Array:
    signed = data.reports.signed_weight(group)
    return np.asarray(signed / signed.sum())


def _root_norm(pricer: Any, X: Any, weights: Array) -> float | None:
    """Return the standard error of sum_i weights_i h*(x_i); None if the pricer has no intervals."""
    total: Array | None = None
    for start in range(0, len(weights), _BLOCK_ROWS):
        rows = slice(start, start + _BLOCK_ROWS)
        found = pricer.covariance_root(X.iloc[rows] if hasattr(X, "iloc") else X[rows])
        if found is None:
            return None
        part = weights[rows] @ found[0]
        total = part if total is None else total + part
    return None if total is None else float(np.linalg.norm(total))
