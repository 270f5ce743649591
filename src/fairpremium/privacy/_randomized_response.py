"""Randomized response with K groups: the truth with weight a, each other group with weight b."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ..labels import Label
from ._channel import Channel, IntRows, check_groups
from ._descriptor import RANDOMIZED_RESPONSE
from ._exact import MAX_TOTAL, Rows, floor_times_exp

_LARGEST_EXPONENT = 64.0  # e^64 > 2**32: beyond, the 32 bits are the limit and not the request


class RandomizedResponse(Channel):
    r"""Tell the truth with probability pi, else one of the other groups, each alike.

    Parameters
    ----------
    groups : sequence of str, int, bool, float or tuple
        The K values of the attribute.
    epsilon : float, optional
        Privacy parameter, 0 < epsilon < inf. What is realised is never above it.
    keep : float, optional
        pi = P(S = D), 1/K < keep < 1. Give exactly one of the two.

    Attributes
    ----------
    a, b : int
        Weight of the truth and of each other group, N = a + (K - 1) b <= 2**32.

    Notes
    -----
    .. math:: \pi = \frac{e^\varepsilon}{K - 1 + e^\varepsilon}, \qquad
              \frac{a}{b} \le e^\varepsilon < \frac{a + 1}{b}, \qquad
              T^{-1} = \frac{N}{a - b} I - \frac{b}{a - b} 1 1',

    where b is the largest integer for which N stays within 32 bits, before the common divisor of a and b is taken
    out. (Above epsilon = 22.18 the 32 bits bind, and less is spent than asked.) From ``keep`` the ratio is
    pi (K - 1) / (1 - pi) of the decimal number as written: keep=0.8 with two groups is exactly 4 to 1.

    The neighbouring relation is any D to any D'; the trust model is local, see :class:`Channel`.

    Examples
    --------
    >>> channel = RandomizedResponse(["F", "M"], keep=0.8)
    >>> channel.a, channel.b, channel.keep
    (4, 1, 0.8)
    >>> channel.inverse
    array([[ 1.33333333, -0.33333333],
           [-0.33333333,  1.33333333]])
    >>> RandomizedResponse(["a", "b", "c"], epsilon=1.0).epsilon <= 1.0
    True
    """

    a: int
    b: int
    _scheme = RANDOMIZED_RESPONSE

    def __init__(
        self, groups: Sequence[Label], *, epsilon: float | None = None, keep: float | None = None, _bits: int = 32
    ) -> None:
        named = check_groups(groups)
        if (epsilon is None) == (keep is None):
            raise ValueError(f"Got epsilon={epsilon} and keep={keep}, but expected exactly one of epsilon and keep.")
        if epsilon is not None:
            a, b = weights_from_epsilon(check_epsilon(epsilon), len(named), 2**_bits)
        else:
            a, b = weights_from_keep(_check_keep(keep, len(named)), len(named), 2**_bits)
        if a <= b:
            raise ValueError(
                f"Got {'epsilon' if keep is None else 'keep'}={epsilon if keep is None else keep}, which is "
                f"too close to pure chance for {_bits}-bit weights: truth and lie would weigh the same."
            )
        self._set_integers(named, a, b)

    @classmethod
    def from_integers(cls, groups: Sequence[Label], a: int, b: int) -> RandomizedResponse:
        """Make the channel with weight a for the truth and b for each other group, without common divisor."""
        named = check_groups(groups)
        if not (a > b >= 1 and math.gcd(a, b) == 1 and a + (len(named) - 1) * b <= MAX_TOTAL):
            raise ValueError("a and b must satisfy a > b >= 1, without common divisor, and N <= 2**32")
        channel = object.__new__(cls)
        channel._set_integers(named, a, b)
        return channel

    def _set_integers(self, groups: tuple[Label, ...], a: int, b: int) -> None:
        divisor = math.gcd(a, b)
        a, b = a // divisor, b // divisor
        self._set(groups=groups, reports=groups, total=a + (len(groups) - 1) * b, a=a, b=b)

    @cached_property
    def _weight_rows(self) -> IntRows:
        K = len(self.groups)
        return tuple(tuple(self.a if s == d else self.b for d in range(K)) for s in range(K))

    @cached_property
    def _worst_ratio(self) -> Fraction | None:
        return Fraction(self.a, self.b)

    @cached_property
    def inverse_exact(self) -> Rows:
        """The inverse in fractions: C1 on the diagonal, C2 beside it."""
        K, a, b = len(self.groups), self.a, self.b
        C1, C2 = Fraction(a + (K - 2) * b, a - b), Fraction(-b, a - b)
        return tuple(tuple(C1 if s == d else C2 for s in range(K)) for d in range(K))

    @cached_property
    def condition_number(self) -> float:
        """N / (a - b), the ratio of the two eigenvalues of T."""
        return self.total / (self.a - self.b)

    def _choose(self, codes: npt.NDArray[Any], u: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Tell the truth if u < a, else the (u - a) // b -th of the other groups."""
        truth = codes.astype(np.int64)
        other = (u - self.a) // self.b
        other += other >= truth
        return np.where(u < self.a, truth, other)

    def _described_integers(self) -> dict[str, Any]:
        return {"a": self.a, "b": self.b}

    def __repr__(self) -> str:
        return f"RandomizedResponse({list(self.groups)!r}, keep={self.keep!r})  # epsilon={self.epsilon:.6g}"


def weights_from_epsilon(epsilon: float, K: int, limit: int, size: int = 1) -> tuple[int, int]:
    """Return a, b with a/b <= e^epsilon < (a + 1)/b and b as large as N <= limit admits.

    A report names `size` of the K groups; N = C(K - 1, size - 1) a + C(K - 1, size) b counts the reports that name the
    true group and those that do not. Randomized response has size 1 and N = a + (K - 1) b.

    Examples
    --------
    >>> weights_from_epsilon(1.0, 2, 16), weights_from_epsilon(1.0, 4, 100, size=2)
    ((10, 4), (24, 9))
    """
    truths, others = math.comb(K - 1, size - 1), math.comb(K - 1, size)
    if epsilon > _LARGEST_EXPONENT:
        return (limit - others) // truths, 1
    return _largest(truths, others, limit, lambda b: floor_times_exp(b, epsilon), math.exp(epsilon))


def weights_from_keep(keep: Fraction, K: int, limit: int) -> tuple[int, int]:
    """Return a, b with a/b = keep (K - 1)/(1 - keep), rounded down only when the bits do not suffice.

    Examples
    --------
    >>> weights_from_keep(Fraction("0.8"), 2, 2**32)
    (4, 1)
    """
    ratio = keep * (K - 1) / (1 - keep)
    if ratio.numerator + (K - 1) * ratio.denominator <= limit:
        return ratio.numerator, ratio.denominator
    return _largest(1, K - 1, limit, lambda b: math.floor(b * ratio), float(ratio))


def _largest(truths: int, others: int, limit: int, truth: Any, ratio: float) -> tuple[int, int]:
    """Find the largest b for which truths truth(b) + others b fits; the float ratio only says where to look."""
    b = max(int(limit / (others + truths * ratio)), 1)
    while truths * truth(b + 1) + others * (b + 1) <= limit:
        b += 1
    while b > 1 and truths * truth(b) + others * b > limit:
        b -= 1
    return min(truth(b), (limit - others * b) // truths), b


def check_epsilon(epsilon: Any, name: str = "epsilon") -> float:
    """Return epsilon as a float if 0 < epsilon < inf, tested positively, or raise with a sentence."""
    if isinstance(epsilon, (bool, np.bool_)) or not isinstance(epsilon, numbers.Real):
        raise TypeError(f"Got {name} of type {type(epsilon).__name__}, but expected a positive finite number.")
    value = float(epsilon)
    if not 0 < value < math.inf:
        raise ValueError(f"Got {name}={value}, but expected a positive finite number.")
    return value


def _check_keep(keep: Any, K: int) -> Fraction:
    if isinstance(keep, (bool, np.bool_)) or not isinstance(keep, numbers.Real):
        raise TypeError(f"Got keep of type {type(keep).__name__}, but expected a number between 1/{K} and 1.")
    if isinstance(keep, Fraction):
        exact = keep
    elif math.isfinite(keep):
        exact = Fraction(repr(float(keep)))
    else:
        raise ValueError(f"Got keep={keep}, but expected a number between 1/{K} and 1.")
    if exact == 1:
        raise ValueError(
            "Got keep=1, which is no privacy mechanism: every report would be the truth. "
            "To price the true attribute, leave the channel out (channel=None)."
        )
    if not Fraction(1, K) < exact < 1:
        raise ValueError(
            f"Got keep={float(exact)}, but expected 1/{K} < keep < 1 for {K} groups: at 1/{K} a report says "
            "nothing, below it lies more often than chance."
        )
    return exact
