"""Claims: frequency times severity, several perils, large claims."""

from fairpremium.pricing.claims._frequency_severity import (
    FrequencySeverityPricer,
    PartRows,
    Parts,
    load_pricer,
    read_pricer,
    write_pricer,
)
from fairpremium.pricing.claims._product_prices import PerilPrices, ProductPrices

__all__ = [
    "FrequencySeverityPricer",
    "PartRows",
    "Parts",
    "PerilPrices",
    "ProductPrices",
    "load_pricer",
    "read_pricer",
    "write_pricer",
]
