"""Several attributes, each reported through its own channel: the Kronecker product."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from functools import cached_property, reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from ..arrays import Array
from ..labels import Label, check_labels
from ._channel import Channel, IntRows
from ._descriptor import PRODUCT
from ._exact import MAX_TOTAL, Rows, read_only


class ProductChannel(Channel):
    """Independent reports of several attributes; made by :meth:`Channel.product`."""

    _scheme = PRODUCT

    def __init__(self, *channels: Channel) -> None:
        raise TypeError("Use Channel.product(a, b, ...) to combine channels.")

    @classmethod
    def _of(cls, channels: tuple[Channel, ...]) -> ProductChannel:
        for channel in channels:
            if not isinstance(channel, Channel):
                raise TypeError(f"Got a {type(channel).__name__}, but Channel.product expected channels.")
        components = tuple(c for channel in channels for c in channel.components)
        if any(c.total > MAX_TOTAL for c in components):
            raise ValueError(
                "Got repeated reports whose integer weights exceed 2**32, which a product cannot draw. Repeat the "
                "product of the attributes instead: Channel.repeated(Channel.product(...), ...)."
            )
        product = object.__new__(cls)
        product._set(
            components=components,
            groups=_tuples([c.groups for c in components], "groups"),
            reports=_tuples([c.reports for c in components], "reports"),
            total=math.prod(c.total for c in components),
        )
        return product

    @cached_property
    def _weight_rows(self) -> IntRows:
        return reduce(_kronecker, (c._weight_rows for c in self.components))

    @cached_property
    def matrix(self) -> Array:
        """The Kronecker product of the components' matrices."""
        return _kron([c.matrix for c in self.components])

    @cached_property
    def inverse_exact(self) -> Rows:
        """The Kronecker product of the components' left inverses, in fractions."""
        return reduce(_kronecker, (c.inverse_exact for c in self.components))

    @cached_property
    def inverse(self) -> Array:
        """The Kronecker product of the components' left inverses."""
        return _kron([c.inverse for c in self.components])

    @cached_property
    def _worst_ratio(self) -> Fraction | None:
        ratios = [c._worst_ratio for c in self.components]
        return None if None in ratios else math.prod(r for r in ratios if r is not None) * Fraction(1)

    @cached_property
    def keep(self) -> float:
        """Always nan: a product does not have the shape of randomized response."""
        return math.nan

    @cached_property
    def condition_number(self) -> float:
        """The product of the components' condition numbers."""
        return math.prod(c.condition_number for c in self.components)

    def _choose_all(self, codes: npt.NDArray[Any], u: list[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
        groups = np.unravel_index(codes, [len(c.groups) for c in self.components])
        flat = np.zeros(len(codes), dtype=np.int64)
        for c, group, draw in zip(self.components, groups, u, strict=True):
            flat = flat * len(c.reports) + c._choose(group, draw)
        return flat

    def _described_integers(self) -> dict[str, Any]:
        return {"components": [c.descriptor() for c in self.components]}

    @cached_property
    def _identity(self) -> tuple[Any, ...]:
        return tuple(c._identity for c in self.components)

    def __repr__(self) -> str:
        return f"Channel.product({', '.join(repr(c).split('  #')[0] for c in self.components)})"


def _tuples(labels: list[tuple[Label, ...]], name: str) -> tuple[Label, ...]:
    """Return all combinations as flat tuples, the first attribute varying slowest."""
    if math.prod(map(len, labels)) > 4096:
        raise ValueError(f"A product of channels may have at most 4096 {name}.")
    tuples = [[label if isinstance(label, tuple) else (label,) for label in own] for own in labels]
    return check_labels([sum(row, ()) for row in itertools.product(*tuples)], name)


def _kronecker(A: tuple[tuple[Any, ...], ...], B: tuple[tuple[Any, ...], ...]) -> tuple[tuple[Any, ...], ...]:
    return tuple(tuple(x * y for x in a for y in b) for a in A for b in B)


def _kron(arrays: list[npt.NDArray[Any]]) -> Array:
    return read_only(reduce(lambda a, b: np.kron(a, b), arrays))
