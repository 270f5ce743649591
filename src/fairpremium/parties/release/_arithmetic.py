"""What decides the last digit of a sum: libraries, processor, number of threads.

The randomness of noised sums depends on numbers such as a sensitivity, to the last digit. Where the same question is
computed with another last digit it gets other noise, and the two answers together tell more than one.
"""

from __future__ import annotations

import functools
import platform
from typing import Any

import numpy as np
import scipy.linalg  # so that its library for linear algebra is among those below
from threadpoolctl import threadpool_info


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
        "vectors": config["SIMD Extensions"]["found"],
        "blas": sorted([str(part) for part in one] for one in blas),
    }


def _linear_algebra() -> list[dict[str, Any]]:
    return [{"architecture": None, **one} for one in threadpool_info() if one["user_api"] == "blas"]
