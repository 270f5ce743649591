"""Ways to learn group prices from privatized reports, and the judge that compares them."""

from fairpremium.corrections._auto import Chosen, Verdict, fit_correction
from fairpremium.corrections._candidates import Noise
from fairpremium.corrections._fit import GroupFit
from fairpremium.corrections._inverse import fit_inverse, pad_missing
from fairpremium.corrections._pooling import Judged
from fairpremium.corrections._referee import corrected_risk
from fairpremium.corrections._sandwich import Statistics, portfolio_means, sandwich
from fairpremium.corrections._shares import estimate_shares

__all__ = [
    "Chosen",
    "GroupFit",
    "Judged",
    "Noise",
    "Statistics",
    "Verdict",
    "corrected_risk",
    "estimate_shares",
    "fit_correction",
    "fit_inverse",
    "pad_missing",
    "portfolio_means",
    "sandwich",
]
