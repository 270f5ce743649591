"""Multiplicative tariffs: the closest one to a pricer's premiums, and how far a price is from inferring nothing."""

from fairpremium.tariffs._fit import fit_tariff
from fairpremium.tariffs._portfolio import Pricer
from fairpremium.tariffs._proxy_discrimination import proxy_discrimination, proxy_residual
from fairpremium.tariffs._tariff import Tariff

__all__ = ["Pricer", "Tariff", "fit_tariff", "proxy_discrimination", "proxy_residual"]
