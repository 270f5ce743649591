"""Outcome distributions: what a loss can be, how far a price is from it, and how the mean is linked."""

from fairpremium.families._domain import REAL, ZERO_OR_ONE, Domain
from fairpremium.families._family import (
    FAMILIES,
    Bernoulli,
    Family,
    Gamma,
    NegativeBinomial,
    Normal,
    Poisson,
    Tweedie,
    get_family,
)
from fairpremium.families._law import Law, LawTerms, NegativeBinomialLaw, law_of, other_laws
from fairpremium.families._link import Identity, Link, Log, Logit
from fairpremium.families._residual_law import ResidualLaw

__all__ = [
    "FAMILIES",
    "REAL",
    "ZERO_OR_ONE",
    "Bernoulli",
    "Domain",
    "Family",
    "Gamma",
    "Identity",
    "Law",
    "LawTerms",
    "Link",
    "Log",
    "Logit",
    "NegativeBinomial",
    "NegativeBinomialLaw",
    "Normal",
    "Poisson",
    "ResidualLaw",
    "Tweedie",
    "get_family",
    "law_of",
    "other_laws",
]
