"""Premiums: the pricer, reference distributions, model files, and what theory and planning say in advance."""

from fairpremium.pricing._bounds import (
    ExcessRiskBound,
    excess_risk_bound,
    inverse_constants,
    required_rows,
    required_splits,
)
from fairpremium.pricing._planning import Plan, plan
from fairpremium.pricing._pricer import DiscriminationFreePricer, Interval

__all__ = [
    "DiscriminationFreePricer",
    "ExcessRiskBound",
    "Interval",
    "Plan",
    "excess_risk_bound",
    "inverse_constants",
    "plan",
    "required_rows",
    "required_splits",
]
