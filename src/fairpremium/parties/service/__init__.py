"""What the third party does: studies, reports, portfolios, fits, and the workers that compute them."""

from ._budget import attributes_of, spent_by
from ._context import Party, ServiceContext, ServiceLimits, replace_lost_key
from ._epochs import count_epochs
from ._log_monitor import LogMonitor
from ._rate_limit import RateLimiter
from ._settings import ServiceSettings, is_loopback, is_loopback_name, log_failure
from ._studies import count_fits, spec_of
from ._third_party import ThirdParty
from ._worker import stop_with_parent, work
from .answers import OpenInvitation, read_answered
from .keys import ServiceKeyError, in_force
from .reports import read_report

__all__ = [
    "LogMonitor",
    "OpenInvitation",
    "Party",
    "RateLimiter",
    "ServiceContext",
    "ServiceKeyError",
    "ServiceLimits",
    "ServiceSettings",
    "ThirdParty",
    "attributes_of",
    "count_epochs",
    "count_fits",
    "in_force",
    "is_loopback",
    "is_loopback_name",
    "log_failure",
    "read_answered",
    "read_report",
    "replace_lost_key",
    "spec_of",
    "spent_by",
    "stop_with_parent",
    "work",
]
