"""The population of the audit benchmark, whose tables are known exactly."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def benchmark():
    """benchmarks/audit.py as a module."""
    from benchmarks import audit

    return audit


@pytest.fixture(scope="session", params=[2, 3, 4])
def population(request, benchmark):
    return benchmark.Population.with_groups(request.param)


@pytest.fixture(scope="session")
def sample(population, benchmark):
    import numpy as np

    return population.sample(4000, 0.8, np.random.default_rng(1))
