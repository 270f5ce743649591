"""Claims: frequency times severity, several perils, large claims."""

from fairpremium.pricing.claims._frequency_severity import FrequencySeverityPricer, Parts, load_pricer
from fairpremium.pricing.claims._product_prices import PerilPrices, ProductPrices

__all__ = ["FrequencySeverityPricer", "Parts", "PerilPrices", "ProductPrices", "load_pricer"]
