"""Several attributes, each reported through its own channel: the Kronecker product."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from functools import cached_property, reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from ..labels import Label, check_labels
from ._channel import Channel, FloatArray, IntRows
from ._descriptor import PRODUCT
from ._exact import Rows


class ProductChannel(Channel):
    """Independent reports of several attributes; made by :meth:`Channel.product`."""

    _components: tuple[Channel, ...]

    def __init__(self, *channels: Channel) -> None:
        raise TypeError("Use Channel.product(a, b, ...) to combine channels.")

    @classmethod
    def _of(cls, channels: tuple[Channel, ...]) -> ProductChannel:
        for channel in channels:
            if not isinstance(channel, Channel):
                raise TypeError(f"Channel.product expects channels. Got {type(channel).__name__}.")
        components = tuple(part for channel in channels for part in channel.components)
        product = object.__new__(cls)
        product._set(
            _components=components,
            _groups=_tuples([c.groups for c in components], "groups"),
            _reports=_tuples([c.reports for c in components], "reports"),
            _total=math.prod(c.total for c in components),
        )
        return product

    @property
    def components(self) -> tuple[Channel, ...]:
        """The channels of the single attributes."""
        return self._components

    @cached_property
    def _weight_rows(self) -> IntRows:
        return reduce(_kronecker, (c._weight_rows for c in self._components))

    @cached_property
    def matrix(self) -> FloatArray:
        """The Kronecker product of the components' matrices."""
        return _read_only_kron([c.matrix for c in self._components])

    @cached_property
    def inverse_exact(self) -> Rows:
        """The Kronecker product of the components' left inverses, in fractions."""
        return reduce(_kronecker, (c.inverse_exact for c in self._components))

    @cached_property
    def inverse(self) -> FloatArray:
        """The Kronecker product of the components' left inverses."""
        return _read_only_kron([c.inverse for c in self._components])

    @cached_property
    def _worst_ratio(self) -> Fraction | None:
        ratios = [c._worst_ratio for c in self._components]
        return None if None in ratios else math.prod(r for r in ratios if r is not None) * Fraction(1)

    @cached_property
    def keep(self) -> float:
        """Always nan: a product does not have the shape of randomized response."""
        return math.nan

    @cached_property
    def condition_number(self) -> float:
        """The product of the components' condition numbers."""
        return math.prod(c.condition_number for c in self._components)

    def _choose_all(self, codes: npt.NDArray[Any], u: list[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
        groups = np.unravel_index(codes, [len(c.groups) for c in self._components])
        flat = np.zeros(len(codes), dtype=np.int64)
        for c, group, draw in zip(self._components, groups, u, strict=True):
            flat = flat * len(c.reports) + c._choose(group, draw)
        return flat

    def _described(self) -> dict[str, Any]:
        return {
            "scheme": PRODUCT,
            **self._described_labels(),
            "components": [c.descriptor() for c in self._components],
        }

    @cached_property
    def _identity(self) -> tuple[Any, ...]:
        return tuple(c._identity for c in self._components)

    def __repr__(self) -> str:
        return f"Channel.product({', '.join(repr(c).split('  #')[0] for c in self._components)})"


def _tuples(parts: list[tuple[Label, ...]], name: str) -> tuple[Label, ...]:
    """Return all combinations as flat tuples, the first attribute varying slowest."""
    if math.prod(len(labels) for labels in parts) > 4096:
        raise ValueError(f"A product of channels may have at most 4096 {name}.")
    combinations = itertools.product(*parts)
    return check_labels([sum((_as_tuple(label) for label in row), ()) for row in combinations], name)


def _as_tuple(label: Label) -> tuple[Label, ...]:
    return label if isinstance(label, tuple) else (label,)


def _kronecker(A: tuple[tuple[Any, ...], ...], B: tuple[tuple[Any, ...], ...]) -> tuple[tuple[Any, ...], ...]:
    return tuple(tuple(x * y for x in a for y in b) for a in A for b in B)


def _read_only_kron(parts: list[FloatArray]) -> FloatArray:
    array: FloatArray = parts[0]
    for part in parts[1:]:
        array = np.asarray(np.kron(array, part), dtype=np.float64)
    array.setflags(write=False)
    return array
