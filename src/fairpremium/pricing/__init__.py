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
from fairpremium.pricing._possible_channels import (
    PossibleChannels,
    are_together,
    band_of,
    premium_band,
    tabulate_channels,
)
from fairpremium.pricing._pricer import DiscriminationFreePricer, Interval
from fairpremium.pricing._prices import LinearPrices, Prices, Reference, check_level
from fairpremium.pricing._source_portfolio import SourcePortfolio, count_labels, is_source
from fairpremium.pricing.claims import FrequencySeverityPricer, load_pricer, read_pricer, write_pricer

__all__ = [
    "DiscriminationFreePricer",
    "ExcessRiskBound",
    "FrequencySeverityPricer",
    "Interval",
    "LinearPrices",
    "Plan",
    "PossibleChannels",
    "Prices",
    "Reference",
    "SourcePortfolio",
    "are_together",
    "band_of",
    "certify_prices",
    "check_level",
    "check_segments",
    "count_labels",
    "describe_pooling",
    "excess_risk_bound",
    "from_document",
    "inverse_constants",
    "is_source",
    "load_pricer",
    "plan",
    "premium_band",
    "read_pricer",
    "required_rows",
    "required_splits",
    "tabulate_channels",
    "to_document",
    "write_pricer",
]
