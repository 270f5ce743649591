"""Counts that are released with noise of a stated epsilon and delta."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ._accounting import mu_of
from ._keyed_noise import FINENESS, KeyedStream, grid_for, noised_steps


@dataclass(frozen=True)
class CountNoise:
    """Noise with which a number of people is (epsilon, delta)-private for whether one of them is counted.

    - `epsilon`, `delta`: Of one count, or of any number of counts of which each person is in at most one.
    - `most`: How often a person can be counted, in one of these counts or in several.

    Examples
    --------
    >>> noise = CountNoise(epsilon=1.0, delta=1e-6)
    >>> noise.add(7, b"sixteen bytes or more") == noise.add(7, b"sixteen bytes or more")
    True
    >>> round(noise.sigma, 2)
    4.22
    """

    epsilon: float
    delta: float
    most: int = 1

    @property
    def grid(self) -> float:
        """The unit in which counts are released."""
        return grid_for(float(self.most), mu_of(self.epsilon, self.delta), 1)

    @property
    def sigma(self) -> float:
        """The standard deviation of the noise."""
        return self.grid * FINENESS

    def add(self, count: int, secret: bytes, *about: bytes) -> int:
        """Return a noised count, in units of `grid`.

        - `secret`: At least 16 bytes; draws the noise.
        - `about`: What is counted. The same count of the same gets the same noise, everything else another one.
        """
        stream = KeyedStream(secret, b"count", b"%d" % count, *about)
        return noised_steps(np.array([float(count)]), self.grid, stream)[0]
