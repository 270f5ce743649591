"""Portfolios to learn and test with: simulated ones with known prices, and loaders of real ones."""

from fairpremium.portfolios._loaders import (
    load_ausprivauto,
    load_auto,
    load_belgian_motor,
    load_health,
    load_swmotorcycle,
)
from fairpremium.portfolios._nonlinear_poisson import nonlinear_poisson
from fairpremium.portfolios._portfolio import Portfolio, SimulatedPortfolio
from fairpremium.portfolios._unbalanced_poisson import unbalanced_poisson
from fairpremium.portfolios._zhang_liu_shi_2025 import zhang_liu_shi_2025

__all__ = [
    "Portfolio",
    "SimulatedPortfolio",
    "load_ausprivauto",
    "load_auto",
    "load_belgian_motor",
    "load_health",
    "load_swmotorcycle",
    "nonlinear_poisson",
    "unbalanced_poisson",
    "zhang_liu_shi_2025",
]
