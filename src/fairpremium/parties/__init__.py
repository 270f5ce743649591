"""The three parties: collectors that send reports, insurers that send features and losses, and the one that learns.

Each name is loaded when it is first used, so that a collector does not need what a service needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._app import create_app as create_app
    from ._bundle import Bundle as Bundle
    from ._bundle import load_bundle as load_bundle
    from ._client import AppTransport as AppTransport
    from ._client import Client as Client
    from ._client import Operator as Operator
    from ._client import ServiceUnreachable as ServiceUnreachable
    from ._collector import Collector as Collector
    from ._collector import draw_reports as draw_reports
    from ._house import Limits as Limits
    from ._house import Party as Party
    from ._insurer import Insurer as Insurer
    from ._keys import SigningKey as SigningKey
    from ._keys import VerifyKey as VerifyKey
    from ._keys import new_key as new_key
    from ._keys import read_key as read_key
    from ._keys import read_public_key as read_public_key
    from ._keys import write_key as write_key
    from ._linkage import LinkageSecret as LinkageSecret
    from ._linkage import new_secret as new_secret
    from ._linkage import read_secret as read_secret
    from ._linkage import write_secret as write_secret
    from ._messages import CollectorStudy as CollectorStudy
    from ._messages import EstimatedChannel as EstimatedChannel
    from ._messages import Feature as Feature
    from ._messages import Fit as Fit
    from ._messages import FitSpec as FitSpec
    from ._messages import InsurerStudy as InsurerStudy
    from ._messages import KnownChannel as KnownChannel
    from ._messages import OperatorStudy as OperatorStudy
    from ._messages import Portfolio as Portfolio
    from ._messages import PortfolioSpec as PortfolioSpec
    from ._messages import StudySpec as StudySpec
    from ._messages import TrueAttribute as TrueAttribute
    from ._problems import Problem as Problem
    from ._settings import Settings as Settings
    from ._third_party import ThirdParty as ThirdParty

_HOMES = {
    "_app": ("create_app",),
    "_bundle": ("Bundle", "load_bundle"),
    "_client": ("AppTransport", "Client", "Operator", "ServiceUnreachable"),
    "_collector": ("Collector", "draw_reports"),
    "_house": ("Limits", "Party"),
    "_insurer": ("Insurer",),
    "_keys": ("SigningKey", "VerifyKey", "new_key", "read_key", "read_public_key", "write_key"),
    "_linkage": ("LinkageSecret", "new_secret", "read_secret", "write_secret"),
    "_messages": (
        "CollectorStudy", "EstimatedChannel", "Feature", "Fit", "FitSpec", "InsurerStudy", "KnownChannel",
        "OperatorStudy", "Portfolio", "PortfolioSpec", "StudySpec", "TrueAttribute",
    ),
    "_problems": ("Problem",),
    "_settings": ("Settings",),
    "_third_party": ("ThirdParty",),
}  # fmt: skip
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AppTransport",
    "Bundle",
    "Client",
    "Collector",
    "CollectorStudy",
    "EstimatedChannel",
    "Feature",
    "Fit",
    "FitSpec",
    "Insurer",
    "InsurerStudy",
    "KnownChannel",
    "Limits",
    "LinkageSecret",
    "Operator",
    "OperatorStudy",
    "Party",
    "Portfolio",
    "PortfolioSpec",
    "Problem",
    "ServiceUnreachable",
    "Settings",
    "SigningKey",
    "StudySpec",
    "ThirdParty",
    "TrueAttribute",
    "VerifyKey",
    "create_app",
    "draw_reports",
    "load_bundle",
    "new_key",
    "new_secret",
    "read_key",
    "read_public_key",
    "read_secret",
    "write_key",
    "write_secret",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
