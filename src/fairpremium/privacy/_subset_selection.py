"""Subset selection: a report names several groups, and the true one more often than any other."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any

from ..labels import Label, label_to_json
from ._channel import Channel, IntRows, check_groups
from ._descriptor import SUBSET_SELECTION
from ._exact import MAX_TOTAL, Rows
from ._randomized_response import check_epsilon, weights_from_epsilon

_MOST_SUBSETS = 4096  # as many reports as a channel may have


class SubsetSelection(Channel):
    r"""Report a random set of `size` groups, in which the true one is more often than any other.

    With many groups and a small epsilon it needs fewer rows than randomized response: with 12 groups 1.6 times fewer at
    epsilon 1, and 2.2 times fewer at 0.5. With five groups or fewer and epsilon at least 1 there is nothing to gain.

    Parameters
    ----------
    groups : sequence of str, int, bool, float or tuple
        The K values of the attribute.
    epsilon : float
        Privacy parameter, 0 < epsilon < inf. What is realised is never above it.
    size : int, optional
        Number of groups in a report, 1 to K - 1. Default: the whole number beside K / (1 + e^epsilon) that gives the
        group means the smaller variance when the groups are equal, with at most 4096 different reports.

    Attributes
    ----------
    size : int
        m, the number of groups in a report.
    a, b : int
        Weight of each set with the true group and of each set without it.
    subsets : tuple of tuples
        The groups that each of the `reports` names.

    Notes
    -----
    .. math:: T_{sd} = \frac{a}{N} \text{ if } d \in s, \text{ else } \frac{b}{N}, \qquad
              N = \binom{K-1}{m-1} a + \binom{K-1}{m} b \le 2^{32}, \qquad
              \frac{a}{b} \le e^\varepsilon < \frac{a + 1}{b},

    where b is the largest such integer, before the common divisor of a and b is taken out. With P1 the probability that
    a report names the true group and P0 that it names a certain other one, the left inverse is

    .. math:: T^{-1}_{ks} = \frac{1 - P_0}{P_1 - P_0} \text{ if } k \in s, \text{ else } \frac{-P_0}{P_1 - P_0}.

    By symmetry no left inverse has a smaller variance for equal groups. With size 1 it is that of randomized response.

    **How a report is written.** A report is the text of a JSON list of its groups, in the order of `groups` and without
    spaces: ``["Asian","Black"]``. Labels may contain commas, quotes and brackets, and `subsets` has the groups
    themselves. Any other text, also of the same groups in another order, is refused.

    The neighbouring relation is any D to any D'; the trust model is local, see :class:`Channel`.

    References
    ----------
    Ye and Barg (2018), *Optimal schemes for discrete distribution estimation under locally differential privacy*, IEEE
    Transactions on Information Theory 64(8). doi:10.1109/TIT.2018.2809790

    Examples
    --------
    >>> channel = SubsetSelection(["a", "b", "c", "d", "e", "f"], epsilon=1.0)
    >>> channel.size, len(channel.reports), channel.epsilon <= 1.0
    (2, 15, True)
    >>> channel.reports[0], channel.subsets[0]
    ('["a","b"]', ('a', 'b'))
    >>> set(channel.privatize(["a", "f"])) <= set(channel.reports)
    True
    """

    size: int
    a: int
    b: int
    _scheme = SUBSET_SELECTION

    def __init__(self, groups: Sequence[Label], epsilon: float, *, size: int | None = None, _bits: int = 32) -> None:
        named, limit = check_groups(groups), 2**_bits
        K, epsilon = len(named), check_epsilon(epsilon)
        if size is None:
            size = _best_size(K, epsilon, limit)
            given = f"{K} groups and epsilon={epsilon:g}, for which {size} groups in a report are best"
        else:
            size = _check_size(size, K)
            given = f"{K} groups and size={size}"
        _check_number_of_subsets(K, size, given)
        a, b = weights_from_epsilon(epsilon, K, limit, size)
        if a <= b:
            raise ValueError(
                f"Got epsilon={epsilon}, which is too close to pure chance for {_bits}-bit weights: sets with and "
                "without the truth would weigh the same."
            )
        self._set_integers(named, size, a, b)

    @classmethod
    def from_integers(cls, groups: Sequence[Label], size: int, a: int, b: int) -> SubsetSelection:
        """Make the channel with weight a for a set with the truth and b for others, without common divisor."""
        named = check_groups(groups)
        K = len(named)
        _check_number_of_subsets(K, _check_size(size, K), f"{K} groups and size={size}")
        if not (a > b >= 1 and math.gcd(a, b) == 1 and _total(K, size, a, b) <= MAX_TOTAL):
            raise ValueError("a and b must satisfy a > b >= 1, without common divisor, and N <= 2**32")
        channel = object.__new__(cls)
        channel._set_integers(named, size, a, b)
        return channel

    def _set_integers(self, groups: tuple[Label, ...], size: int, a: int, b: int) -> None:
        divisor = math.gcd(a, b)
        a, b = a // divisor, b // divisor
        subsets = tuple(itertools.combinations(groups, size))
        self._set(
            groups=groups,
            reports=tuple(_subset_text(subset) for subset in subsets),
            subsets=subsets,
            total=_total(len(groups), size, a, b),
            size=size,
            a=a,
            b=b,
        )

    @cached_property
    def _members(self) -> tuple[frozenset[int], ...]:
        """The positions of the groups that each report names."""
        return tuple(map(frozenset, itertools.combinations(range(len(self.groups)), self.size)))

    @cached_property
    def _weight_rows(self) -> IntRows:
        K = range(len(self.groups))
        return tuple(tuple(self.a if d in members else self.b for d in K) for members in self._members)

    @cached_property
    def _worst_ratio(self) -> Fraction | None:
        return Fraction(self.a, self.b)

    @cached_property
    def inverse_exact(self) -> Rows:
        """The left inverse in fractions: one value for the reports that name the group, one for the others."""
        inside, outside = _inverse_entries(len(self.groups), self.size, self.a, self.b)
        return tuple(
            tuple(inside if k in members else outside for members in self._members) for k in range(len(self.groups))
        )

    def _described_integers(self) -> dict[str, Any]:
        return {"size": self.size, "a": self.a, "b": self.b}

    def __repr__(self) -> str:
        return f"SubsetSelection({list(self.groups)!r}, epsilon={self.epsilon:.6g}, size={self.size})"


def _subset_text(subset: tuple[Label, ...]) -> str:
    content = [label_to_json(label) for label in subset]
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _total(K: int, size: int, a: int, b: int) -> int:
    return math.comb(K - 1, size - 1) * a + math.comb(K - 1, size) * b


def _inverse_entries(K: int, size: int, a: int, b: int) -> tuple[Fraction, Fraction]:
    """Return T^-1[k, s] for reports that name k and for those that do not."""
    N = _total(K, size, a, b)
    P1 = Fraction(math.comb(K - 1, size - 1) * a, N)  # the report names the true group
    both = math.comb(K - 2, size - 2) if size >= 2 else 0
    P0 = Fraction(both * a + math.comb(K - 2, size - 1) * b, N)  # it names a certain other one
    return (1 - P0) / (P1 - P0), -P0 / (P1 - P0)


def _best_size(K: int, epsilon: float, limit: int) -> int:
    """Return the whole number beside K / (1 + e^epsilon) with the smaller E[T^-1[k, S]^2] for equal groups."""
    near = K / (1 + math.exp(min(epsilon, 64.0)))
    sizes = sorted({min(max(whole, 1), K - 1) for whole in (math.floor(near), math.ceil(near))})

    def second_moment(size: int) -> Fraction:
        a, b = weights_from_epsilon(epsilon, K, limit, size)
        if a <= b:  # refused by the caller, whatever the size
            return Fraction(limit)
        inside, outside = _inverse_entries(K, size, a, b)
        return (size * inside**2 + (K - size) * outside**2) / K

    possible = [size for size in sizes if math.comb(K, size) <= _MOST_SUBSETS]
    return min(possible, key=second_moment, default=sizes[0])  # with none the caller says what helps


def _check_size(size: Any, K: int) -> int:
    if type(size) is not int or not 1 <= size < K:
        raise ValueError(f"Got size={size!r}, but expected a whole number from 1 to {K - 1}, less than the {K} groups.")
    return size


def _check_number_of_subsets(K: int, size: int, given: str) -> None:
    count = math.comb(K, size)
    if count > _MOST_SUBSETS:
        fits = next((s for s in range(min(size, K // 2), 0, -1) if math.comb(K, s) <= _MOST_SUBSETS), None)
        smaller = "" if fits is None else f"size={fits} ({math.comb(K, fits)} reports), "
        raise ValueError(
            f"Got {given}: {count} different reports, but expected at most {_MOST_SUBSETS}. What helps: {smaller}"
            "fewer groups, a larger epsilon, or RandomizedResponse."
        )
