"""A channel as the corrections use it: T, its inverse with a column for missing reports, the labels; enough reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fairpremium.arrays import Array
from fairpremium.privacy import Channel

MIN_EFFECTIVE_REPORTS = 50.0  # below that a number would be noise: its denominator has a relative error above 14 %


@dataclass(frozen=True)
class ReportChannel:
    """What `sensitive` holds: the true attribute if there is no channel, else reports of it."""

    matrix: Array  # (reports, K), T
    table: Array  # (K, reports + 1), T^-1 with a zero column for the missing report
    groups: tuple[Any, ...]
    channel: Channel | None = None  # None stands for the true attribute; `matrix` is then the identity
    estimator: Any = None  # the fitted noise estimator that the channel is from, if any

    @classmethod
    def of(cls, channel: Channel | None, groups: tuple[Any, ...] | None = None, estimator: Any = None) -> ReportChannel:
        """Build it from a channel, or from the groups of the true attribute."""
        if channel is None:
            assert groups is not None
            matrix = inverse = np.eye(len(groups))
        else:
            matrix, inverse, groups = channel.matrix, channel.inverse, channel.groups
        return cls(matrix, pad_missing(inverse), groups, channel, estimator)

    @property
    def labels(self) -> tuple[Any, ...]:
        """The values that may occur, in the order of their codes; the code after the last one is a missing report."""
        return self.groups if self.channel is None else self.channel.reports

    @property
    def n_codes(self) -> int:
        """Number of report codes, the missing report included."""
        return int(self.table.shape[1])


def pad_missing(inverse: Array) -> Array:
    """Append a zero column for the missing report: such rows count for no group."""
    return np.hstack([inverse, np.zeros((len(inverse), 1))])


def describe_lack(effective: float) -> str:
    """Return what stands in the place of a number that would be noise; empty if there is enough.

    Examples
    --------
    >>> describe_lack(12.34), describe_lack(50.0)
    ('too few effective reports (12, but 50 are needed)', '')
    """
    if effective >= MIN_EFFECTIVE_REPORTS:
        return ""
    return f"too few effective reports ({effective:.0f}, but {MIN_EFFECTIVE_REPORTS:.0f} are needed)"
