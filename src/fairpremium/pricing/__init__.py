"""Premiums: the pricer, reference distributions, model files, and what theory and planning say in advance."""

from fairpremium.pricing._bounds import (
    ExcessRiskBound,
    excess_risk_bound,
    inverse_constants,
    required_rows,
    required_splits,
)
from fairpremium.pricing._certificate import certify_prices, check_segments
from fairpremium.pricing._model_file import from_document, to_document
from fairpremium.pricing._model_selection import describe_pooling
from fairpremium.pricing._planning import Plan, plan
from fairpremium.pricing._pricer import DiscriminationFreePricer, Interval
from fairpremium.pricing._prices import LinearPrices, Prices, Reference, check_level
from fairpremium.pricing._sensitivity import check_keeps, default_keeps
from fairpremium.pricing._source_portfolio import SourcePortfolio, count_labels, is_source
from fairpremium.pricing.claims import FrequencySeverityPricer, load_pricer

__all__ = [
    "DiscriminationFreePricer",
    "ExcessRiskBound",
    "FrequencySeverityPricer",
    "Interval",
    "LinearPrices",
    "Plan",
    "Prices",
    "Reference",
    "SourcePortfolio",
    "certify_prices",
    "check_keeps",
    "check_level",
    "check_segments",
    "count_labels",
    "default_keeps",
    "describe_pooling",
    "excess_risk_bound",
    "from_document",
    "inverse_constants",
    "is_source",
    "load_pricer",
    "plan",
    "required_rows",
    "required_splits",
    "to_document",
]
