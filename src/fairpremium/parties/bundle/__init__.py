"""The signed file that an insurer gets, and the test of itself that it carries."""

from ._bundle import Bundle, load_bundle, write_bundle
from ._selftest import compute_prices, feature_ranges

__all__ = ["Bundle", "compute_prices", "feature_ranges", "load_bundle", "write_bundle"]
