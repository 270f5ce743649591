"""A black-box audit: looks at nothing but the reports that a path releases.

Every public path that releases reports is audited with the same function. It draws n reports for every group,
bounds every probability P(S = s given D = d) by Clopper-Pearson intervals that hold together with probability
1 - alpha, and complains

- about *privacy* if for some report and some ordered pair of groups the ratio is certainly above e^epsilon;
- about the *channel* if some probability is certainly not the declared one, in either direction.

An honest path fails with probability at most alpha = 1e-6.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.stats import beta

from fairpremium.labels import encode_labels
from fairpremium.privacy import Channel

ALPHA = 1e-6


def clopper_pearson(count: Any, n: int, alpha: float) -> tuple[np.ndarray, np.ndarray]:
    """Bounds that each miss with probability at most alpha / 2."""
    count = np.asarray(count, dtype=float)
    with np.errstate(invalid="ignore"):
        low = np.where(count > 0, beta.ppf(alpha / 2, count, n - count + 1), 0.0)
        high = np.where(count < n, beta.ppf(1 - alpha / 2, count + 1, n - count), 1.0)
    return low, high


def count_reports(draw: Callable[[list[Any]], Any], channel: Channel, n: int) -> np.ndarray:
    """Counts of shape (reports, groups) from n draws per group."""
    counts = np.zeros((len(channel.reports), len(channel.groups)), dtype=np.int64)
    for d, group in enumerate(channel.groups):
        codes = encode_labels(draw([group] * n), channel.reports)
        counts[:, d] = np.bincount(codes, minlength=len(channel.reports))
    return counts


def audit(
    draw: Callable[[list[Any]], Any],
    channel: Channel,
    *,
    epsilon: float | None = None,
    n: int = 50_000,
    alpha: float = ALPHA,
) -> dict[str, list[str]]:
    """Complaints about a path that claims to be the channel; both lists are empty for an honest path.

    Parameters
    ----------
    draw : function from a list of n true values to n reports, independent of each other
    channel : the declared channel
    epsilon : the promised epsilon, the channel's own by default
    """
    counts = count_reports(draw, channel, n)
    low, high = clopper_pearson(counts, n, alpha / counts.size)
    bound = math.exp(channel.epsilon if epsilon is None else epsilon)
    privacy = [
        f"P({channel.reports[s]!r} | {channel.groups[d]!r}) : P(same | {channel.groups[e]!r}) > {bound:.4g}"
        for s in range(len(channel.reports))
        for d in range(len(channel.groups))
        for e in range(len(channel.groups))
        if d != e and low[s, d] > bound * high[s, e]
    ]
    wrong = np.argwhere((channel.matrix < low) | (channel.matrix > high))
    declared = [
        f"P({channel.reports[s]!r} | {channel.groups[d]!r}) is not {channel.matrix[s, d]:.4g}" for s, d in wrong
    ]
    return {"privacy": privacy, "channel": declared}
