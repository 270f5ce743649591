"""The three parties: collectors that send reports, insurers that send features and losses, and the one that learns.

Each name is loaded when it is first used, so that a collector does not need what a service needs.
"""

from typing import TYPE_CHECKING

from fairpremium.lazy import lazy_exports

if TYPE_CHECKING:
    from .bundle import Bundle as Bundle
    from .bundle import load_bundle as load_bundle
    from .clients import AppTransport as AppTransport
    from .clients import Client as Client
    from .clients import Collector as Collector
    from .clients import Insurer as Insurer
    from .clients import Operator as Operator
    from .clients import ServiceUnreachable as ServiceUnreachable
    from .clients import draw_reports as draw_reports
    from .http import create_app as create_app
    from .protocol import CollectorStudy as CollectorStudy
    from .protocol import EstimatedChannel as EstimatedChannel
    from .protocol import Feature as Feature
    from .protocol import Fit as Fit
    from .protocol import FitSpec as FitSpec
    from .protocol import InsurerStudy as InsurerStudy
    from .protocol import KnownChannel as KnownChannel
    from .protocol import LinkageSecret as LinkageSecret
    from .protocol import OperatorStudy as OperatorStudy
    from .protocol import Portfolio as Portfolio
    from .protocol import PortfolioSpec as PortfolioSpec
    from .protocol import Problem as Problem
    from .protocol import SigningKey as SigningKey
    from .protocol import StudySpec as StudySpec
    from .protocol import TrueAttribute as TrueAttribute
    from .protocol import VerifyKey as VerifyKey
    from .protocol import new_key as new_key
    from .protocol import new_secret as new_secret
    from .protocol import read_key as read_key
    from .protocol import read_public_key as read_public_key
    from .protocol import read_secret as read_secret
    from .protocol import write_key as write_key
    from .protocol import write_secret as write_secret
    from .service import Party as Party
    from .service import ServiceLimits as ServiceLimits
    from .service import ServiceSettings as ServiceSettings
    from .service import ThirdParty as ThirdParty

__all__, __getattr__ = lazy_exports(
    __name__,
    {
        "bundle": "Bundle load_bundle",
        "clients": "AppTransport Client Collector Insurer Operator ServiceUnreachable draw_reports",
        "http": "create_app",
        "protocol": (
            "CollectorStudy EstimatedChannel Feature Fit FitSpec InsurerStudy KnownChannel LinkageSecret "
            "OperatorStudy Portfolio PortfolioSpec Problem SigningKey StudySpec TrueAttribute VerifyKey new_key "
            "new_secret read_key read_public_key read_secret write_key write_secret"
        ),
        "service": "Party ServiceLimits ServiceSettings ThirdParty",
    },
)
