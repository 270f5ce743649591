"""What the third party does: studies, reports, portfolios, fits, and the workers that compute them.

Each name is loaded when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairpremium.lazy import lazy_exports

if TYPE_CHECKING:
    from ._budget import plan_of as plan_of
    from ._budget import releases_to as releases_to
    from ._context import Party as Party
    from ._context import ServiceContext as ServiceContext
    from ._context import ServiceLimits as ServiceLimits
    from ._log_monitor import LogMonitor as LogMonitor
    from ._parent_process import stop_with_parent as stop_with_parent
    from ._rate_limit import RateLimiter as RateLimiter
    from ._reports import read_report as read_report
    from ._settings import ServiceSettings as ServiceSettings
    from ._settings import log_failure as log_failure
    from ._studies import count_fits as count_fits
    from ._studies import count_reports as count_reports
    from ._studies import spec_of as spec_of
    from ._third_party import ThirdParty as ThirdParty
    from ._worker import work as work

__all__, __getattr__ = lazy_exports(
    __name__,
    {
        "_budget": "plan_of releases_to",
        "_context": "Party ServiceContext ServiceLimits",
        "_log_monitor": "LogMonitor",
        "_parent_process": "stop_with_parent",
        "_rate_limit": "RateLimiter",
        "_reports": "read_report",
        "_settings": "ServiceSettings log_failure",
        "_studies": "count_fits count_reports spec_of",
        "_third_party": "ThirdParty",
        "_worker": "work",
    },
)
