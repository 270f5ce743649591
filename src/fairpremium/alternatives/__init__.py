"""Less discriminatory alternatives: tariffs compared by accuracy on held-out rows and by disparity."""

from ._candidate import Candidate, FeatureSet
from ._drawings import plot_alternatives
from ._search import Alternatives, FittedCandidate, search_alternatives

__all__ = [
    "Alternatives",
    "Candidate",
    "FeatureSet",
    "FittedCandidate",
    "plot_alternatives",
    "search_alternatives",
]
