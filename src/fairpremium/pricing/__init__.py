"""Premiums: the pricer, reference distributions, model files, and what theory and planning say in advance."""

from typing import TYPE_CHECKING

from fairpremium.lazy import lazy_exports

if TYPE_CHECKING:
    from fairpremium.pricing._bounds import ExcessRiskBound as ExcessRiskBound
    from fairpremium.pricing._bounds import excess_risk_bound as excess_risk_bound
    from fairpremium.pricing._bounds import inverse_constants as inverse_constants
    from fairpremium.pricing._bounds import required_rows as required_rows
    from fairpremium.pricing._bounds import required_splits as required_splits
    from fairpremium.pricing._certificate import certify_prices as certify_prices
    from fairpremium.pricing._certificate import check_segments as check_segments
    from fairpremium.pricing._level import check_level as check_level
    from fairpremium.pricing._model_file import from_document as from_document
    from fairpremium.pricing._model_file import to_document as to_document
    from fairpremium.pricing._model_selection import describe_pooling as describe_pooling
    from fairpremium.pricing._planning import Plan as Plan
    from fairpremium.pricing._planning import plan as plan
    from fairpremium.pricing._possible_channels import PossibleChannels as PossibleChannels
    from fairpremium.pricing._possible_channels import are_together as are_together
    from fairpremium.pricing._possible_channels import band_of as band_of
    from fairpremium.pricing._possible_channels import premium_band as premium_band
    from fairpremium.pricing._possible_channels import tabulate_channels as tabulate_channels
    from fairpremium.pricing._pricer import DiscriminationFreePricer as DiscriminationFreePricer
    from fairpremium.pricing._pricer import Interval as Interval
    from fairpremium.pricing._prices import LinearPrices as LinearPrices
    from fairpremium.pricing._prices import Prices as Prices
    from fairpremium.pricing._prices import Reference as Reference
    from fairpremium.pricing._source_portfolio import SourcePortfolio as SourcePortfolio
    from fairpremium.pricing._source_portfolio import count_labels as count_labels
    from fairpremium.pricing._source_portfolio import is_source as is_source
    from fairpremium.pricing.claims import FrequencySeverityPricer as FrequencySeverityPricer
    from fairpremium.pricing.claims import load_pricer as load_pricer
    from fairpremium.pricing.claims import read_pricer as read_pricer
    from fairpremium.pricing.claims import write_pricer as write_pricer

_HOMES = {
    "_bounds": "ExcessRiskBound excess_risk_bound inverse_constants required_rows required_splits",
    "_certificate": "certify_prices check_segments",
    "_level": "check_level",
    "_model_file": "from_document to_document",
    "_model_selection": "describe_pooling",
    "_planning": "Plan plan",
    "_possible_channels": "PossibleChannels are_together band_of premium_band tabulate_channels",
    "_pricer": "DiscriminationFreePricer Interval",
    "_prices": "LinearPrices Prices Reference",
    "_source_portfolio": "SourcePortfolio count_labels is_source",
    "claims": "FrequencySeverityPricer load_pricer read_pricer write_pricer",
}
__all__, __getattr__ = lazy_exports(__name__, _HOMES)
