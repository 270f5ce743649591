"""A channel as the corrections use it: T, its inverse with a column for missing reports, and the labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fairpremium.arrays import Array
from fairpremium.privacy import Channel


@dataclass(frozen=True)
class ReportChannel:
    """What `sensitive` holds: the true attribute if there is no channel, else reports of it.

    Parameters
    ----------
    matrix : array of shape (reports, K)
        T.
    table : array of shape (K, reports + 1)
        T^-1 with a zero column for the missing report: such rows count for no group.
    groups : tuple
    channel : Channel or None
        None stands for the true attribute; `matrix` is then the identity.
    estimator : NoiseEstimator, optional
        The fitted estimator that the channel is from.
    """

    matrix: Array
    table: Array
    groups: tuple[Any, ...]
    channel: Channel | None = None
    estimator: Any = None

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
