"""Uniform integers without modulo bias, from the operating system or, for simulations, from a generator."""

import os
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Rng: TypeAlias = np.random.Generator | int | np.integer | None

WORD = 2**32  # one draw consumes at least one 32-bit word


def uniform_integers(n: int, total: int, rng: np.random.Generator | None) -> npt.NDArray[np.int64]:
    """Draw n independent integers, each value of ``range(total)`` with probability exactly 1/total.

    - `n`: How many.
    - `total`: Number of values, 1 to 2**32.
    - `rng`: None takes the randomness from the operating system, afresh in every call: nothing is buffered, so that
      nothing repeats after a fork.

    Notes
    -----
    A 32-bit word w is accepted if w < 2**32 - (2**32 mod total), and u = w mod total; other words are thrown
    away and drawn again. At least half of the words are accepted.

    Examples
    --------
    >>> u = uniform_integers(5, 3, None)
    >>> bool((0 <= u).all() and (u < 3).all())
    True
    """
    if not 1 <= total <= WORD:
        raise ValueError(f"Got total={total}, but expected a number between 1 and 2**32.")
    if rng is not None:
        return rng.integers(0, total, size=n, dtype=np.int64)
    result = np.empty(n, dtype=np.int64)
    filled = 0
    while filled < n:
        data = os.urandom(4 * (n - filled))
        if len(data) != 4 * (n - filled):
            raise OSError("The operating system returned too little entropy; no report was released.")
        u = accepted_integers(np.frombuffer(data, dtype=np.uint32), total)
        result[filled : filled + len(u)] = u
        filled += len(u)
    return result


def accepted_integers(words: npt.NDArray[np.uint32], total: int) -> npt.NDArray[np.int64]:
    """Return the integers in ``range(total)`` that random words stand for, without the words that are thrown away.

    Examples
    --------
    >>> accepted_integers(np.array([7, 2**32 - 1, 3], dtype=np.uint32), 5).tolist()
    [2, 3]
    """
    limit = WORD - WORD % total
    kept = words[words < np.uint32(limit)] if limit < WORD else words
    return (kept % np.uint32(total) if total < WORD else kept).astype(np.int64)


def check_rng(rng: Rng) -> np.random.Generator | None:
    """Turn the ``rng`` argument into a generator once; None stays None and means the operating system."""
    if rng is None or isinstance(rng, np.random.Generator):
        return rng
    if isinstance(rng, (int, np.integer)) and not isinstance(rng, bool):
        # a stream of its own: default_rng(seed) would repeat the draws of a portfolio that was simulated with the
        # same seed, and the noise of the reports would then depend on the features
        return np.random.default_rng([int(rng), *b"privatize"])
    raise TypeError(
        f"Got rng of type {type(rng).__name__}, but expected None (operating-system entropy) or, for simulations, a "
        "numpy Generator or an integer seed."
    )
