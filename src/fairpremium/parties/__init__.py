"""The three parties: collectors that send reports, insurers that send features and losses, and the one that learns."""

from __future__ import annotations

from ._messages import (
    CollectorStudy,
    EstimatedChannel,
    Feature,
    Fit,
    FitSpec,
    InsurerStudy,
    KnownChannel,
    OperatorStudy,
    Portfolio,
    PortfolioSpec,
    StudySpec,
    TrueAttribute,
)
from ._problems import Problem

__all__ = [
    "CollectorStudy",
    "EstimatedChannel",
    "Feature",
    "Fit",
    "FitSpec",
    "InsurerStudy",
    "KnownChannel",
    "OperatorStudy",
    "Portfolio",
    "PortfolioSpec",
    "Problem",
    "StudySpec",
    "TrueAttribute",
]
