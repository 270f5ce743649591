"""A channel as the corrections use it: T, its inverse with a column for missing reports, the labels; enough reports.

Several sources are one channel over the pairs (key, report). The columns of T then sum to one within each source, so
that T[s, k] q_k is P(S = s, D = k given the source): likelihoods, report log-losses and weights need nothing else.
What needs the law of the reports of *one* source takes it from `source`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from fairpremium.arrays import Array
from fairpremium.labels import encode_labels
from fairpremium.privacy import Channel, KeyedChannels

MIN_EFFECTIVE_REPORTS = 50.0  # below that a number would be noise: its denominator has a relative error above 14 %


@dataclass(frozen=True)
class ReportChannel:
    """What `sensitive` holds: the true attribute if there is no channel, else reports of it."""

    matrix: Array  # (reports, K), T
    table: Array  # (K, reports + 1), T^-1 with a zero column for the missing report
    groups: tuple[Any, ...]
    channel: Channel | KeyedChannels | None = None  # None stands for the true attribute; `matrix` is then the identity
    estimator: Any = None  # the fitted noise estimator that the channel is from, if any, or a dict of them by key
    everyone: bool = False  # whether rows without a report take part where features and outcomes tell their group

    @classmethod
    def of(
        cls,
        channel: Channel | Mapping[Any, Channel | None] | None,
        groups: tuple[Any, ...] | None = None,
        estimator: Any = None,
    ) -> ReportChannel:
        """Build it from a channel, from those of several sources, or from the groups of the true attribute."""
        if isinstance(channel, Mapping) and not isinstance(channel, KeyedChannels):
            channel = KeyedChannels(channel, groups=groups)
        if channel is None:
            assert groups is not None
            matrix = inverse = np.eye(len(groups))
        else:
            matrix, inverse, groups = channel.matrix, channel.inverse, channel.groups
        return cls(matrix, pad_missing(inverse), groups, channel, estimator)

    @property
    def labels(self) -> tuple[Any, ...]:
        """The values that may occur, in the order of their codes; the code after the last one is a missing report.

        With several sources these are pairs (key, report).
        """
        return self.groups if self.channel is None else self.channel.reports

    @cached_property
    def truth(self) -> bool:
        """Whether every report is the true attribute, so that there is nothing to correct."""
        return bool(np.isin(self.matrix, (0.0, 1.0)).all() and (self.matrix.sum(axis=1) == 1).all())

    @cached_property
    def source(self) -> npt.NDArray[np.intp]:
        """Which of the different channels each code went through, the missing report as the first one: (codes,).

        Sources with the same channel count as one: their reports say the same.
        """
        if not isinstance(self.channel, KeyedChannels):
            return np.zeros(self.n_codes, dtype=np.intp)
        kinds: dict[bytes, int] = {}
        own = [self.matrix[self.channel.source_of == w] for w in range(len(self.channel))]
        kind = np.array([kinds.setdefault(T.tobytes(), len(kinds)) for T in own])
        return np.append(kind[self.channel.source_of], 0)

    def encode(self, sensitive: Any, keys: Any = None, *, name: str = "sensitive") -> npt.NDArray[np.uint16]:
        """Turn reports into codes, the number of labels standing for a missing one; several sources need the keys."""
        if isinstance(self.channel, KeyedChannels):
            codes = self.channel.encode(sensitive, keys)
        elif keys is not None:
            raise ValueError(
                "Got channel_key with one channel for all rows, but expected a mapping of keys to channels, such as "
                'channel={"app": channel, "staff": None}. Leave channel_key out if there is one source only.'
            )
        else:
            codes = encode_labels(sensitive, self.labels, name=name, missing="code")
        return np.where(codes < 0, self.n_codes - 1, codes).astype(np.uint16)

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
