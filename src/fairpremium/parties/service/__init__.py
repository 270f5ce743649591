"""What the third party does: studies, reports, portfolios, fits, and the workers that compute them."""

from ._budget import plan_of, releases_to
from ._context import Party, ServiceContext, ServiceLimits
from ._log_monitor import LogMonitor
from ._rate_limit import RateLimiter
from ._reports import read_report
from ._settings import ServiceSettings, is_loopback, log_failure
from ._studies import count_fits, count_reports, spec_of
from ._third_party import ThirdParty
from ._worker import stop_with_parent, work
from .answers import OpenInvitation, read_answered

__all__ = [
    "LogMonitor",
    "OpenInvitation",
    "Party",
    "RateLimiter",
    "ServiceContext",
    "ServiceLimits",
    "ServiceSettings",
    "ThirdParty",
    "count_fits",
    "count_reports",
    "is_loopback",
    "log_failure",
    "plan_of",
    "read_answered",
    "read_report",
    "releases_to",
    "spec_of",
    "stop_with_parent",
    "work",
]
