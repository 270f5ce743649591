"""Noise from a secret: exact discrete Gaussians, the same for the same question and independent for every other.

A sum is released on a grid far finer than its noise, as integers, plus integers with the probabilities

    P(k) proportional to exp(-k^2 / (2 sigma^2)),

drawn without floating-point arithmetic (Canonne, Kamath and Steinke, 2020), so that no pattern of low-order digits
shows the sum. The randomness is a keyed hash of everything that the sum depends on: asking the same again gives the
same answer and averages nothing out, and asking anything else, or the same of other reports, draws afresh.
"""

import hmac
import math
from typing import Any

from fairpremium.arrays import Array

FINENESS = 2**20  # grid steps in one standard deviation of the noise
_BLOCK_BITS = 512
_SLACK = 2  # grid steps per coordinate that rounding the sum, and adding it up in floating point, may move it
_LEAST, _MOST = 1e-250, 1e250  # sensitivities whose grid, and sums in steps of it, floats hold with all their digits


class KeyedStream:
    """Uniform integers from HMAC-SHA-512 in counter mode.

    - `secret`: At least 16 bytes.
    - `*fields`: What the randomness belongs to; other fields give an independent stream.
    """

    def __init__(self, secret: bytes, *fields: bytes):
        if len(secret) < 16:
            raise ValueError("Got a short secret, but expected at least 16 bytes.")
        message = b"".join(len(part).to_bytes(8, "big") + part for part in (b"fairpremium noise 1", *fields))
        self._key = hmac.digest(secret, message, "sha512")
        self._counter = 0
        self._pool = 0
        self._left = 0

    def bits(self, count: int) -> int:
        """Return an integer of so many random bits."""
        while self._left < count:
            block = hmac.digest(self._key, self._counter.to_bytes(8, "big"), "sha512")
            self._counter += 1
            self._pool = (self._pool << _BLOCK_BITS) | int.from_bytes(block, "big")
            self._left += _BLOCK_BITS
        self._left -= count
        value = self._pool >> self._left
        self._pool &= (1 << self._left) - 1
        return value

    def below(self, n: int) -> int:
        """Return an integer of range(n), each with probability exactly 1/n."""
        size = (n - 1).bit_length()
        while True:
            value = self.bits(size)
            if value < n:
                return value


def bernoulli_exp(numerator: int, denominator: int, stream: KeyedStream) -> bool:
    """Return True with probability exactly exp(-numerator / denominator)."""
    while numerator > denominator:
        if not _bernoulli_exp_unit(1, 1, stream):
            return False
        numerator -= denominator
    return _bernoulli_exp_unit(numerator, denominator, stream)


def _bernoulli_exp_unit(numerator: int, denominator: int, stream: KeyedStream) -> bool:
    """The same for a ratio g <= 1: how long trials with probabilities g, g/2, g/3, ... go on is odd or even."""
    k = 1
    while stream.below(denominator * k) < numerator:
        k += 1
    return k % 2 == 1


def discrete_laplace(scale: int, stream: KeyedStream) -> int:
    """Return an integer k with probability proportional to exp(-|k| / scale)."""
    while True:
        u = stream.below(scale)
        if not bernoulli_exp(u, scale, stream):
            continue
        v = 0
        while bernoulli_exp(1, 1, stream):
            v += 1
        magnitude = u + scale * v
        negative = stream.bits(1)
        if not (negative and magnitude == 0):
            return -magnitude if negative else magnitude


def discrete_gaussian(sigma: int, stream: KeyedStream) -> int:
    """Return an integer k with probability proportional to exp(-k^2 / (2 sigma^2))."""
    t = sigma + 1
    while True:
        k = discrete_laplace(t, stream)
        if bernoulli_exp((abs(k) * t - sigma * sigma) ** 2, 2 * sigma * sigma * t * t, stream):
            return k


def grid_for(sensitivity: float, mu: float, size: int) -> float:
    """Return the grid on which noise of `FINENESS` steps makes a vector of this size mu-private.

    One report moves the vector by at most `sensitivity`, on the grid by at most sensitivity / grid plus `_SLACK` steps
    per coordinate, and mu = (sensitivity / grid + _SLACK sqrt(size)) / FINENESS. A sensitivity that is zero is refused,
    too: where there is something to release it is one that was rounded.
    """
    if not _LEAST <= sensitivity <= _MOST:
        raise ValueError(
            f"Got sums that a report moves by {sensitivity:.3g}, but expected {_LEAST:g} to {_MOST:g}, within which "
            "floats have all their digits. Choose other units of outcomes and volumes."
        )
    steps = mu * FINENESS - _SLACK * math.sqrt(size)
    if steps <= 0:
        raise ValueError(f"Got {size} sums to release with mu={mu:.3g}, but expected fewer sums or a larger epsilon.")
    return sensitivity / steps


def noised_steps(flat: Array, grid: float, stream: Any) -> list[int]:
    """Return the nearest grid points, moved by noise."""
    return [round(float(value) / grid) + discrete_gaussian(FINENESS, stream) for value in flat]
