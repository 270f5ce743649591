"""Several reports of one person about the same attribute, each with fresh noise: the row-wise product."""

from __future__ import annotations

import itertools
import math
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ..labels import MAX_LABELS, label_key
from ._channel import Channel, IntRows, _check_rank
from ._descriptor import REPEATED
from ._product import _tuples


class RepeatedChannel(Channel):
    """Independent reports of one attribute; made by :meth:`Channel.repeated`."""

    _scheme = REPEATED

    def __init__(self, *channels: Channel) -> None:
        raise TypeError("Use Channel.repeated(a, b, ...) for several reports of one person.")

    @classmethod
    def _of(cls, channels: tuple[Channel, ...]) -> RepeatedChannel:
        for channel in channels:
            if not isinstance(channel, Channel):
                raise TypeError(f"Got a {type(channel).__name__}, but Channel.repeated expected channels.")
            if [label_key(g) for g in channel.groups] != [label_key(g) for g in channels[0].groups]:
                raise ValueError(
                    f"Got channels with the groups {list(channels[0].groups)} and {list(channel.groups)}, but expected "
                    "the same, in one order. Use Channel.product for reports of several attributes."
                )
        repeated = object.__new__(cls)
        repeated._set(
            repeats=channels,
            groups=channels[0].groups,
            reports=_tuples([c.reports for c in channels], "reports"),
            total=math.prod(c.total for c in channels),
        )
        _check_rank(repeated._weight_rows, repeated.total, repeated.reports)
        return repeated

    @cached_property
    def _weight_rows(self) -> IntRows:
        rows = self.repeats[0]._weight_rows
        for channel in self.repeats[1:]:
            rows = tuple(tuple(x * y for x, y in zip(a, b, strict=True)) for a in rows for b in channel._weight_rows)
        return rows

    @cached_property
    def incomplete(self) -> dict[tuple[int, ...], Channel]:
        """The channels of people who gave some of the reports only; empty if there are more than 4,096 cases."""
        if math.prod(len(c.reports) + 1 for c in self.repeats) > MAX_LABELS:
            return {}
        places = range(len(self.repeats))
        some = (chosen for size in places[1:] for chosen in itertools.combinations(places, size))
        return {
            chosen: RepeatedChannel._of(tuple(self.repeats[j] for j in chosen))
            if chosen[1:]
            else self.repeats[chosen[0]]
            for chosen in some
        }

    def _draw(self, codes: npt.NDArray[Any], rng: np.random.Generator | None) -> npt.NDArray[np.int64]:
        flat = np.zeros(len(codes), dtype=np.int64)
        for channel in self.repeats:
            flat = flat * len(channel.reports) + channel._draw(codes, rng)
        return flat

    def _described_integers(self) -> dict[str, Any]:
        return {"repeats": [c.descriptor() for c in self.repeats]}

    def __repr__(self) -> str:
        return f"Channel.repeated({', '.join(repr(c).split('  #')[0] for c in self.repeats)})"
