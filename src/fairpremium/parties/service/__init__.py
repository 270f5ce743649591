"""What the third party does: studies, reports, portfolios, fits, and the workers that compute them."""

from ._access import RIGHTS
from ._budget import attributes_of, spent_by
from ._context import (
    DATABASE_FILE,
    FILES_FOLDER,
    KEY_FILE,
    RESTORED,
    Party,
    ServiceContext,
    ServiceLimits,
    database_url,
    open_context,
    replace_lost_key,
)
from ._epochs import count_epochs
from ._housekeeping import referenced
from ._log_monitor import LogMonitor
from ._portfolios import used_bytes
from ._restored import EPOCH_LEAP, INTACT, RESTORED_EARLIER, begin_again
from ._settings import ServiceSettings, is_loopback, is_loopback_name
from ._studies import count_fits, spec_of
from ._third_party import ThirdParty
from ._worker import stop_with_parent, work
from .accounts import IDLE_SECONDS, LOGIN_SECONDS, AccountRole, Accounts, FailedLogins, Login, Logins
from .answers import OpenInvitation, read_answered
from .keys import KnownKey, RegisteredKey, ServiceKeyError, in_force, list_keys
from .operations import (
    LogFormat,
    LogLevel,
    LogSettings,
    RateLimiter,
    SecurityEvents,
    count_workers,
    log_event,
    log_failure,
    measure_service,
    network_of,
    request_id,
    write_log,
)
from .reports import read_report

__all__ = [
    "DATABASE_FILE",
    "EPOCH_LEAP",
    "FILES_FOLDER",
    "IDLE_SECONDS",
    "INTACT",
    "KEY_FILE",
    "LOGIN_SECONDS",
    "RESTORED",
    "RESTORED_EARLIER",
    "RIGHTS",
    "AccountRole",
    "Accounts",
    "FailedLogins",
    "KnownKey",
    "LogFormat",
    "LogLevel",
    "LogMonitor",
    "LogSettings",
    "Login",
    "Logins",
    "OpenInvitation",
    "Party",
    "RateLimiter",
    "RegisteredKey",
    "SecurityEvents",
    "ServiceContext",
    "ServiceKeyError",
    "ServiceLimits",
    "ServiceSettings",
    "ThirdParty",
    "attributes_of",
    "begin_again",
    "count_epochs",
    "count_fits",
    "count_workers",
    "database_url",
    "in_force",
    "is_loopback",
    "is_loopback_name",
    "list_keys",
    "log_event",
    "log_failure",
    "measure_service",
    "network_of",
    "open_context",
    "read_answered",
    "read_report",
    "referenced",
    "replace_lost_key",
    "request_id",
    "spec_of",
    "spent_by",
    "stop_with_parent",
    "used_bytes",
    "work",
    "write_log",
]
