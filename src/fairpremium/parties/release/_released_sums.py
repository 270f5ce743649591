"""Sums that are released once: the noise belongs to the data, the settings and the question.

The question has numbers such as a sensitivity in it, to the last digit. Where it is computed with another last digit it
gets other noise, and two answers tell more than one: what decides the last digit belongs to what was paid for.
"""

import functools
import hashlib
import hmac
import math
import operator
import platform
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg  # its library for linear algebra is loaded before `describe_arithmetic` looks for all
from threadpoolctl import threadpool_info

from fairpremium.arrays import Array
from fairpremium.blocks import Rows, Stream

from ._keyed_noise import FINENESS, KeyedStream, grid_for, noised_steps
from ._public_data import weight_of


class Releaser:
    """Adds noise to sums, each once: the noise belongs to the data, the settings and the question.

    - `identity`: Digest of the data, reports and settings.
    - `checkpoint` (mutable mapping): Released integers by label; what is in it is not computed again.
    """

    def __init__(self, secret: bytes, identity: bytes, checkpoint: MutableMapping[str, Any]):
        self._secret, self._identity, self.checkpoint = secret, identity, checkpoint
        self.released: list[dict[str, Any]] = []

    def release(
        self,
        label: str,
        context: Sequence[Array],
        sensitivity: float,
        mu: float,
        shape: tuple[int, ...],
        compute: Callable[[], Array],
    ) -> tuple[Array, float]:
        """Return a noised vector in a shape, and the standard deviation of the noise.

        - `context`: All that the sum depends on besides the data and the settings.
        - `sensitivity`: Largest change, in Euclidean length, that one report makes.
        - `compute`: Returns the sum; called unless the checkpoint has the answer.
        """
        size = math.prod(shape)
        grid = grid_for(sensitivity, mu, size)
        question = hashlib.sha256(label.encode())
        for array in (*context, np.array([sensitivity, mu, grid])):
            question.update(np.ascontiguousarray(array, dtype=np.float64).tobytes() + b"|")
        fields = (self._identity, question.digest())
        mark = hmac.digest(self._secret, b"question" + b"".join(fields), "sha256").hex()
        known = self.checkpoint.get(label)
        if known is not None and known["question"] == mark and len(known["steps"]) == size:
            steps = [int(step) for step in known["steps"]]
        else:
            exact = np.asarray(compute(), dtype=np.float64).ravel()
            steps = noised_steps(exact, grid, KeyedStream(self._secret, *fields))
            self.checkpoint[label] = {"question": mark, "steps": steps}
        sigma = grid * FINENESS
        self.released.append({"sum": label, "numbers": size, "sigma": sigma, "mu": mu})
        return (np.asarray(steps, dtype=np.float64) * grid).reshape(shape), sigma


def digest_of(rows: Rows | Stream) -> bytes:
    """Compute a digest of everything in the rows, reports included."""
    task = _Digest()
    pieces = [task(rows, 0)] if isinstance(rows, Rows) else list(rows.apply(task))
    return hashlib.sha256(b"".join(pieces)).digest()


@dataclass(frozen=True)
class _Digest:
    join = staticmethod(operator.add)

    def __call__(self, rows: Rows, start: int) -> bytes:
        hashed = hashlib.sha256()
        for array in (rows.X, rows.y, weight_of(rows.block(0, len(rows))), rows.report):
            hashed.update(str((array.dtype.str, array.shape)).encode() + np.ascontiguousarray(array).tobytes())
        return hashed.digest()


@functools.cache
def describe_arithmetic() -> dict[str, Any]:
    """Return what decides the last digit of what this process computes with one thread for linear algebra."""
    config = np.show_config(mode="dicts")
    blas = {(one["internal_api"], one["version"], one["architecture"]) for one in _linear_algebra()}
    return {
        "machine": platform.machine(),
        "libc": list(platform.libc_ver()),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "vectors": config.get("SIMD Extensions", {}).get("found", []),  # left out where there are none
        "blas": sorted([str(part) for part in one] for one in blas),
    }


def _linear_algebra() -> list[dict[str, Any]]:
    return [{"architecture": None, **one} for one in threadpool_info() if one["user_api"] == "blas"]
