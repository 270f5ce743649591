"""The population of the audit benchmark, whose tables are known exactly."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def benchmark():
    """benchmarks/audit.py as a module."""
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "audit.py"
    spec = importlib.util.spec_from_file_location("audit_benchmark", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["audit_benchmark"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session", params=[2, 3, 4])
def population(request, benchmark):
    return benchmark.Population.with_groups(request.param)


@pytest.fixture(scope="session")
def sample(population, benchmark):
    import numpy as np

    return population.sample(4000, 0.8, np.random.default_rng(1))
