"""Reports from several sources, each with a channel of its own: one channel over the pairs (key, report)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from ..arrays import Array
from ..documents import canonical_json, seal
from ..labels import (
    Codes,
    Label,
    check_labels,
    encode_labels,
    infer_labels,
    label_from_json,
    label_key,
    label_to_json,
)
from ._channel import Channel, check_groups
from ._containers import labels_like
from ._exact import read_only
from ._sampling import Rng, check_rng

_MAX_REPORTS = 4096


class KeyedChannels(Mapping[Label, Channel | None]):
    r"""The law of the reports of several sources, by key; an immutable mapping.

    Parameters
    ----------
    sources : mapping of a key to a Channel or None
        What each source did to the attribute: an app, a broker's survey, a wave of a panel. None: its rows hold the
        true attribute D. All channels have the same groups; their order is that of the first one.
    groups : sequence, optional
        The groups, if they are not those of a channel: every source holds D itself, or another order is wanted.

    Attributes
    ----------
    groups : tuple
        The values of D.
    reports : tuple
        The pairs (key, report), source after source.

    Notes
    -----
    With w the key of a row,

    .. math:: T_{(w, s), d} = P(S = s \mid D = d, \text{source } w), \qquad T^{-1}_{d, (w, s)} = (T_w^{-1})_{ds}.

    The columns of T sum to one **within each source**. How often a source occurs drops out of every likelihood, as
    long as it does not depend on D given what else is known about the row. The columns of the inverse are row weights
    that are unbiased row by row: the mean of :math:`T_w^{-1}[k, S]` given D and the source is 1 if D = k, else 0,
    however people came to their source.

    Examples
    --------
    >>> app = Channel([[0.75, 0.25], [0.25, 0.75]], groups=["F", "M"])
    >>> channels = KeyedChannels({"app": app, "consent": None})
    >>> channels.reports
    (('app', 'F'), ('app', 'M'), ('consent', 'F'), ('consent', 'M'))
    >>> channels.inverse
    array([[ 1.5, -0.5,  1. ,  0. ],
           [-0.5,  1.5,  0. ,  1. ]])
    >>> channels.encode(["F", "F", None], ["app", "consent", "app"]).tolist()
    [0, 2, -1]
    """

    SCHEME: ClassVar[str] = "sources/1"  # of descriptors

    def __init__(self, sources: Mapping[Label, Channel | None], *, groups: Sequence[Label] | None = None) -> None:
        if not isinstance(sources, Mapping) or not sources:
            raise TypeError("Got sources that are no mapping or empty, but expected a channel, or None, for each key.")
        self._keys = check_labels(list(sources), "keys")
        self._sources: dict[Label, Channel | None] = dict(zip(self._keys, sources.values(), strict=True))
        for key, channel in self._sources.items():
            if channel is not None and not isinstance(channel, Channel):
                raise TypeError(
                    f"Got a {type(channel).__name__} for the key {key!r}, but expected a Channel, or None if its rows "
                    "hold the true attribute."
                )
        self.groups = self._common_groups(groups)
        if sum(len(self.reports_of(key)) for key in self) > _MAX_REPORTS:
            raise ValueError(f"Sources may have at most {_MAX_REPORTS} reports in all.")

    def _common_groups(self, groups: Sequence[Label] | None) -> tuple[Label, ...]:
        named = {key: channel for key, channel in self._sources.items() if channel is not None}
        if groups is None and not named:
            raise ValueError("Got no channel and no groups, but expected the groups if every source holds D itself.")
        common = check_groups(next(iter(named.values())).groups if groups is None else groups)
        for key, channel in named.items():
            if set(map(label_key, channel.groups)) != set(map(label_key, common)):
                raise ValueError(
                    f"Got a channel for the key {key!r} with the groups {list(channel.groups)}, but expected "
                    f"{list(common)}: all sources report the same attribute."
                )
        return common

    # --- the mapping ---

    def __getitem__(self, key: Label) -> Channel | None:
        return self._sources[key]

    def __iter__(self) -> Iterator[Label]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)

    def __repr__(self) -> str:
        return f"KeyedChannels({self._sources!r})"

    # --- facts ---

    def reports_of(self, key: Label) -> tuple[Label, ...]:
        """Return the values that occur in the rows of a source; the groups if it holds D itself."""
        channel = self._sources[key]
        return self.groups if channel is None else channel.reports

    @cached_property
    def reports(self) -> tuple[Label, ...]:
        """The pairs (key, report), source after source."""
        return tuple((key, label) for key in self for label in self.reports_of(key))

    @cached_property
    def matrix(self) -> Array:
        """T, shape (reports, groups): P(S = s given D = d and the source); sums to one within each source."""
        return read_only(np.vstack([self._arrays(key)[0] for key in self]))

    @cached_property
    def inverse(self) -> Array:
        """The left inverses side by side, shape (groups, reports): row weights that are unbiased row by row."""
        return read_only(np.hstack([self._arrays(key)[1] for key in self]))

    def _arrays(self, key: Label) -> tuple[Array, Array]:
        """T and its left inverse for one source, groups in the common order."""
        channel = self._sources[key]
        if channel is None:
            return np.eye(len(self.groups)), np.eye(len(self.groups))
        position = {label_key(group): d for d, group in enumerate(channel.groups)}
        order = [position[label_key(group)] for group in self.groups]
        return channel.matrix[:, order], channel.inverse[order]

    @cached_property
    def source_of(self) -> npt.NDArray[np.intp]:
        """Which source each of the `reports` is from, as its position: shape (reports,)."""
        return np.repeat(np.arange(len(self)), [len(self.reports_of(key)) for key in self])

    @cached_property
    def _labels(self) -> tuple[tuple[Label, ...], npt.NDArray[np.intp]]:
        """The distinct values of a column of reports, and the position there of each of the `reports`."""
        distinct = {label_key(label): label for _, label in self.reports}
        order = {key: i for i, key in enumerate(distinct)}
        return tuple(distinct.values()), np.array([order[label_key(label)] for _, label in self.reports])

    @property
    def epsilon(self) -> float:
        """The largest epsilon of the sources, what a person's report costs at most; inf if some D is known."""
        return max(math.inf if channel is None else channel.epsilon for channel in self.values())

    # --- reports ---

    def encode(self, reports: Any, keys: Any, missing: Literal["error", "code"] = "code") -> Codes:
        """Replace each pair of key and report by its position in `reports`; a missing report gets -1.

        Parameters
        ----------
        reports : array-like of shape (n,), or a table with one column per attribute
            The report of each row, or D where the source holds it.
        keys : array-like of shape (n,)
            The source of each row; it may be missing where the report is.
        missing : {"code", "error"}
            Whether a missing report gets -1 or is an error.

        Returns
        -------
        codes : ndarray of int32, shape (n,)
        """
        source = self.encode_keys(keys)
        labels, position = self._labels
        value = encode_labels(reports, labels, name="sensitive", missing=missing)
        if len(source) != len(value):
            raise ValueError(f"Got channel_key with {len(source)} rows, but sensitive has {len(value)}.")
        absent = int(np.count_nonzero((source < 0) & (value >= 0)))
        if absent:
            raise ValueError(
                f"Got channel_key without a value in {absent} of the rows that have a report; expected the source of "
                "every report."
            )
        table = np.full((len(self) + 1, len(labels) + 1), -1, dtype=np.int32)  # the last ones serve the code -1
        table[self.source_of, position] = np.arange(len(position))
        codes = table[source, value]
        foreign = (codes < 0) & (value >= 0)
        if foreign.any():
            key = self._keys[source[foreign][0]]
            raise ValueError(
                f"Got sensitive with {int(np.count_nonzero(foreign & (source == source[foreign][0])))} rows of the "
                f"source {key!r} that are not among its reports, but expected {list(self.reports_of(key))}."
            )
        return codes

    def encode_keys(self, keys: Any) -> Codes:
        """Replace each key by the position of its source; a missing one gets -1, an unknown one is an error."""
        if keys is None:
            raise ValueError(f"Got no channel_key, but expected the source of each row, one of {list(self)}.")
        known = set(map(label_key, self))
        unknown = [key for key in infer_labels(keys, "channel_key") if label_key(key) not in known]
        if unknown:
            raise ValueError(
                f"Got channel_key with {unknown[:5]}{' and others' if len(unknown) > 5 else ''}, but expected one of "
                f"{list(self)}. Add the source to the mapping, with None if its rows hold the true attribute."
            )
        return encode_labels(keys, self._keys, name="channel_key", missing="code")

    def privatize(self, values: Any, keys: Any, *, rng: Rng = None) -> Any:
        """Draw one report for each true value through the channel of its source.

        Parameters
        ----------
        values : array-like of shape (n,)
            True values of D.
        keys : array-like of shape (n,)
            The source of each row; rows whose source holds D itself keep their value.
        rng : numpy Generator or int, optional
            For simulations only; see :meth:`Channel.privatize`.

        Returns
        -------
        reports : ndarray, or a Series or Arrow column when ``values`` is one
        """
        generator = check_rng(rng)
        groups = encode_labels(values, self.groups, name="values", missing="error")
        source = self.encode_keys(keys)
        if len(source) != len(groups) or (source < 0).any():
            raise ValueError(f"Got keys that do not name the source of each of the {len(groups)} values.")
        labels, position = self._labels
        drawn = np.empty(len(groups), dtype=np.int64)
        for w, channel in enumerate(self.values()):
            own = source == w
            if channel is None:
                found = groups[own]
            else:
                if generator is None:
                    channel._refuse_if_unprotected()
                order = {label_key(group): d for d, group in enumerate(channel.groups)}
                codes = np.array([order[label_key(group)] for group in self.groups])[groups[own]]
                found = channel._draw(codes, generator)
            drawn[own] = position[self.source_of == w][found]
        return labels_like(values, drawn, labels)

    def group_distribution(self, reports: Any, keys: Any, *, sample_weight: npt.ArrayLike | None = None) -> Array:
        r"""Estimate P(D) without bias from the reports of all sources.

        Parameters
        ----------
        reports, keys : array-like of shape (n,)
            Missing reports are left out.
        sample_weight : array-like of shape (n,), optional
            Volumes; the estimate is then the distribution of volume.

        Returns
        -------
        p : ndarray of shape (groups,)
            The mean of the row weights :math:`T_w^{-1}[k, s_i]`. Sums to one; entries may leave [0, 1].

        Notes
        -----
        Every row counts alike, whatever its source, so that it stays unbiased if people of one group prefer a source.
        """
        codes = self.encode(reports, keys)
        weight = np.ones(len(codes)) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
        if weight.shape != codes.shape or not np.all(np.isfinite(weight)) or np.any(weight < 0):
            raise ValueError("Got sample_weight that is not one finite number >= 0 for each report.")
        mass = np.bincount(codes[codes >= 0], weights=weight[codes >= 0], minlength=len(self.reports))
        if not mass.sum() > 0:
            raise ValueError("Got reports without volume, but expected a row with a report and a positive weight.")
        return np.asarray(self.inverse @ (mass / mass.sum()))

    # --- description ---

    def descriptor(self) -> dict[str, Any]:
        """Return groups, keys and the descriptor of each channel (None: D itself): a plain dict that JSON can hold.

        Examples
        --------
        >>> channels = KeyedChannels({"app": Channel([[0.75, 0.25], [0.25, 0.75]], groups=["F", "M"]), "staff": None})
        >>> KeyedChannels.from_descriptor(channels.descriptor()) == channels
        True
        """
        sources = [
            {"key": label_to_json(key), "channel": None if channel is None else channel.descriptor()}
            for key, channel in self.items()
        ]
        return seal({"scheme": self.SCHEME, "groups": [label_to_json(g) for g in self.groups], "sources": sources})

    @staticmethod
    def from_descriptor(descriptor: Mapping[str, Any]) -> KeyedChannels:
        """Rebuild the mapping from its descriptor; anything unknown, missing, extra or false is an error."""
        try:
            channels = KeyedChannels(
                {
                    label_from_json(each["key"]): (
                        None if each["channel"] is None else Channel.from_descriptor(each["channel"])
                    )
                    for each in descriptor["sources"]
                },
                groups=label_from_json(descriptor["groups"]),
            )
            same = canonical_json(channels.descriptor()) == canonical_json(dict(descriptor))
        except (KeyError, TypeError, ValueError) as error:
            reason = f"field {error} is missing" if isinstance(error, KeyError) else str(error)
            raise ValueError(f"descriptor does not describe channels by key: {reason}") from None
        if not same:
            raise ValueError(
                "descriptor contradicts itself: it was damaged or edited on the way; ask the sender for a fresh one."
            )
        return channels
