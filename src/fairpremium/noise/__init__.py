"""Estimators of an unknown channel, best source first: retest, validation, a known margin, likelihood, anchors.

Each is fitted like a scikit-learn estimator, ``fit(X, y, sensitive=S)``, takes its own sample (if it has one)
in the constructor, and says in ``message_`` what the estimate rests on.
"""

from fairpremium.noise._anchor import AnchorNoise
from fairpremium.noise._base import NoiseEstimator
from fairpremium.noise._declared_channel import DeclaredChannelCheck, check_declared_channel
from fairpremium.noise._declared_channel import check_coded_reports as check_coded_reports  # for pricers
from fairpremium.noise._likelihood import LikelihoodNoise
from fairpremium.noise._margin import MarginNoise
from fairpremium.noise._retest import RetestNoise
from fairpremium.noise._source_check import SourceCheck, check_sources
from fairpremium.noise._source_check import check_coded_sources as check_coded_sources  # for pricers
from fairpremium.noise._validation import ValidationNoise

__all__ = [
    "AnchorNoise",
    "DeclaredChannelCheck",
    "LikelihoodNoise",
    "MarginNoise",
    "NoiseEstimator",
    "RetestNoise",
    "SourceCheck",
    "ValidationNoise",
    "check_declared_channel",
    "check_sources",
]
