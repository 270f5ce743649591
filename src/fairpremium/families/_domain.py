"""The values an outcome or a mean may take, as data rather than as scattered conditions."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from fairpremium.arrays import Array


@dataclass(frozen=True)
class Domain:
    """An interval of the real line, or a finite set inside it.

    Parameters
    ----------
    low, high : float
        The ends.
    low_inclusive, high_inclusive : bool
        Whether the ends belong to the domain.
    values : tuple of float, optional
        If given, the domain is this finite set.
    """

    low: float = -np.inf
    high: float = np.inf
    low_inclusive: bool = False
    high_inclusive: bool = False
    values: tuple[float, ...] | None = None

    def contains(self, x: Array) -> npt.NDArray[np.bool_]:
        """Tell for each number whether it lies in the domain; NaN never does."""
        if self.values is not None:
            return np.isin(x, self.values)
        above = x >= self.low if self.low_inclusive else x > self.low
        below = x <= self.high if self.high_inclusive else x < self.high
        return np.asarray(above & below)

    def __str__(self) -> str:
        if self.values is not None:
            return "one of " + ", ".join(f"{v:g}" for v in self.values)
        if self.low == -np.inf and self.high == np.inf:
            return "any finite number"
        if self.high == np.inf:
            return f"at least {self.low:g}" if self.low_inclusive else f"greater than {self.low:g}"
        left, right = "[" if self.low_inclusive else "(", "]" if self.high_inclusive else ")"
        return f"in {left}{self.low:g}, {self.high:g}{right}"


REAL = Domain()
POSITIVE = Domain(low=0.0)
NON_NEGATIVE = Domain(low=0.0, low_inclusive=True)
UNIT_INTERVAL = Domain(low=0.0, high=1.0)
ZERO_OR_ONE = Domain(low=0.0, high=1.0, low_inclusive=True, high_inclusive=True, values=(0.0, 1.0))
