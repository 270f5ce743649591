"""Estimators of an unknown channel, best source first: retest, validation, a known margin, likelihood, anchors.

Each is fitted like a scikit-learn estimator, ``fit(X, y, sensitive=S)``, takes its own sample (if it has one)
in the constructor, and says in ``message_`` what the estimate rests on.
"""

from typing import TYPE_CHECKING

from fairpremium.lazy import lazy_exports

if TYPE_CHECKING:
    from fairpremium.noise._anchor import AnchorNoise as AnchorNoise
    from fairpremium.noise._base import NoiseEstimator as NoiseEstimator
    from fairpremium.noise._declared_channel import DeclaredChannelCheck as DeclaredChannelCheck
    from fairpremium.noise._declared_channel import check_coded_reports as check_coded_reports
    from fairpremium.noise._declared_channel import check_declared_channel as check_declared_channel
    from fairpremium.noise._likelihood import LikelihoodNoise as LikelihoodNoise
    from fairpremium.noise._margin import MarginNoise as MarginNoise
    from fairpremium.noise._retest import RetestNoise as RetestNoise
    from fairpremium.noise._source_check import SourceCheck as SourceCheck
    from fairpremium.noise._source_check import check_coded_sources as check_coded_sources
    from fairpremium.noise._source_check import check_sources as check_sources
    from fairpremium.noise._validation import ValidationNoise as ValidationNoise

_HOMES = {
    "_anchor": "AnchorNoise",
    "_base": "NoiseEstimator",
    "_declared_channel": "DeclaredChannelCheck check_coded_reports check_declared_channel",
    "_likelihood": "LikelihoodNoise",
    "_margin": "MarginNoise",
    "_retest": "RetestNoise",
    "_source_check": "SourceCheck check_coded_sources check_sources",
    "_validation": "ValidationNoise",
}
_FOR_PRICERS = {"check_coded_reports", "check_coded_sources"}
_names, __getattr__ = lazy_exports(__name__, _HOMES)
__all__ = [name for name in _names if name not in _FOR_PRICERS]
