"""A channel as the corrections use it: T, its inverse with a column for missing reports, the labels; enough reports.

Several sources are one channel over the pairs (key, report). The columns of T then sum to one within each source, so
that T[s, k] q_k is P(S = s, D = k given the source): likelihoods, report log-losses and weights need nothing else.
What needs the law of the reports of *one* source takes it from `source`. People who were asked several times and gave
some of the reports are a source, too: their codes stand behind all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from fairpremium.arrays import Array
from fairpremium.labels import distinct_rows, encode_labels, label_key
from fairpremium.privacy import Channel, KeyedChannels

MIN_EFFECTIVE_REPORTS = 50.0  # below that a number would be noise: its denominator has a relative error above 14 %

_NOTHING, _FOREIGN = -1, -2  # what a row says that has no report, or one that its source cannot make


@dataclass(frozen=True)
class ReportSource:
    """A source of reports, or the part of one whose people gave some of several reports."""

    key: Any  # None if there is one source
    channel: Channel | None  # None stands for the true attribute
    codes: npt.NDArray[np.intp]
    chosen: tuple[int, ...] | None = None  # which of several reports; None for all of them

    @property
    def name(self) -> Any:
        """What messages call it."""
        if self.chosen is None:
            return "reported" if self.key is None else self.key
        of = "" if self.key is None else f"{self.key}: "
        return f"{of}report {' and '.join(str(j + 1) for j in self.chosen)} only"


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
        sources = [channel] if not isinstance(channel, KeyedChannels) else list(channel.values())
        some = [part for each in sources if each is not None for part in each.incomplete.values()]
        if some:
            parts = KeyedChannels(dict(enumerate(some)), groups=groups)
            matrix, inverse = np.vstack([matrix, parts.matrix]), np.hstack([inverse, parts.inverse])
        return cls(matrix, pad_missing(inverse), groups, channel, estimator)

    @property
    def labels(self) -> tuple[Any, ...]:
        """The values that may occur, in the order of their codes; the code after the last one is a missing report.

        With several sources these are pairs (key, report).
        """
        return self.groups if self.channel is None else self.channel.reports

    @cached_property
    def sources(self) -> tuple[ReportSource, ...]:
        """The sources with their codes, those of people with some of several reports behind all others."""
        given = dict(self.channel) if isinstance(self.channel, KeyedChannels) else {None: self.channel}
        listed: list[tuple[Any, Channel | None, tuple[int, ...] | None]] = [(*each, None) for each in given.items()]
        for key, each in given.items():
            listed += [(key, part, chosen) for chosen, part in ({} if each is None else each.incomplete).items()]
        found, first = [], 0
        for key, each, chosen in listed:
            n = len(self.groups if each is None else each.reports)
            found.append(ReportSource(key, each, first + np.arange(n), chosen))
            first += n
        return tuple(found)

    @cached_property
    def truth(self) -> bool:
        """Whether every report is the true attribute, so that there is nothing to correct."""
        return bool(np.isin(self.matrix, (0.0, 1.0)).all() and (self.matrix.sum(axis=1) == 1).all())

    @cached_property
    def source(self) -> npt.NDArray[np.intp]:
        """Which of the different channels each code went through, the missing report as the first one: (codes,).

        Sources with the same channel count as one: their reports say the same.
        """
        kinds: dict[bytes, int] = {}
        kind = np.zeros(self.n_codes, dtype=np.intp)
        for each in self.sources:
            kind[each.codes] = kinds.setdefault(self.matrix[each.codes].tobytes(), len(kinds))
        return kind

    def encode(self, sensitive: Any, keys: Any = None, *, name: str = "sensitive") -> npt.NDArray[np.uint16]:
        """Turn reports into codes, the number of labels standing for a missing one; several sources need the keys."""
        keyed = isinstance(self.channel, KeyedChannels)
        if keys is not None and not keyed:
            raise ValueError(
                "Got channel_key with one channel for all rows, but expected a mapping of keys to channels, such as "
                'channel={"app": channel, "staff": None}. Leave channel_key out if there is one source only.'
            )
        if any(each.chosen for each in self.sources):
            codes = self._encode_repeated(sensitive, keys, name)
        elif isinstance(self.channel, KeyedChannels):
            codes = self.channel.encode(sensitive, keys)
        else:
            codes = encode_labels(sensitive, self.labels, name=name, missing="code")
        found = codes.astype(np.uint16)  # -1 becomes the largest number of 16 bits
        return np.minimum(found, np.uint16(self.n_codes - 1), out=found)

    def _encode_repeated(self, sensitive: Any, keys: Any, name: str) -> npt.NDArray[Any]:
        """Return the code of each row where people may have given several reports, or some of them; -1 for none."""
        row, distinct = distinct_rows(sensitive, name)
        keyed = self.channel if isinstance(self.channel, KeyedChannels) else None
        whose = np.zeros(len(row), dtype=np.intp) if keyed is None else keyed.encode_keys(keys)
        if len(whose) != len(row):
            raise ValueError(f"Got channel_key with {len(whose)} rows, but {name} has {len(row)}.")
        listed = [each for each in self.sources if each.chosen is None]
        table = np.array([[self._code(cells, each) for cells in distinct] for each in listed])
        unnamed = [_NOTHING if all(cell is None for cell in cells) else _FOREIGN for cells in distinct]
        codes = np.vstack([table, unnamed])[whose, row]  # the last one serves rows without a key
        wrong = int(np.count_nonzero(codes == _FOREIGN))
        if wrong:
            sources = "" if keyed is None else f", or that have no source among {list(keyed)}"
            raise ValueError(
                f"Got {name} with {wrong} of {len(codes)} rows whose reports the channel cannot make{sources}. "
                "Expected a column for each report of a person, in the order of Channel.repeated(first, second), and "
                "empty where there is none; who is asked once has the report in the first column."
            )
        return codes

    def _code(self, cells: tuple[Any, ...], source: ReportSource) -> int:
        """Return the code of a row of a source, whose cells are its reports one after the other."""
        repeats = [self.groups] if source.channel is None else [each.reports for each in source.channel.repeats]
        widths = [len(labels[0]) if isinstance(labels[0], tuple) else 1 for labels in repeats]
        ends = np.cumsum(widths)
        padded = cells + (None,) * int(ends[-1] - len(cells))
        if any(cell is not None for cell in padded[ends[-1] :]):
            return _FOREIGN
        reports = [padded[end - width : end] for end, width in zip(ends, widths, strict=True)]
        filled = tuple(j for j, report in enumerate(reports) if None not in report)
        chosen = None if len(filled) == len(repeats) else filled
        given: tuple[Any, ...] = sum((reports[j] for j in filled), ())
        known = self._positions.get((source.key, chosen))  # none for an empty row
        return _NOTHING if known is None else known.get(label_key(given), _FOREIGN)

    @cached_property
    def _positions(self) -> dict[tuple[Any, Any], dict[tuple[Any, ...], int]]:
        """The codes of the reports of each source, reports as tuples."""
        found = {}
        for each in self.sources:
            labels = self.groups if each.channel is None else each.channel.reports
            tuples = (label if isinstance(label, tuple) else (label,) for label in labels)
            found[each.key, each.chosen] = dict(zip(map(label_key, tuples), each.codes.tolist(), strict=True))
        return found

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
