"""What whoever runs the service needs: the operational log, security events, readiness, measures, limits of rates.

Nothing here imports the service's context, which logs itself.
"""

from ._heartbeats import WORKERS_FOLDER, Heartbeat, count_workers
from ._log import EVENTS, LogFormat, LogLevel, LogSettings, log_event, log_failure, request_id, write_log, written_log
from ._measures import ServiceMeasures, measure_service
from ._rate_limit import RateLimiter, network_of
from ._readiness import check_writes
from ._security_events import SecurityEvents

__all__ = [
    "EVENTS",
    "WORKERS_FOLDER",
    "Heartbeat",
    "LogFormat",
    "LogLevel",
    "LogSettings",
    "RateLimiter",
    "SecurityEvents",
    "ServiceMeasures",
    "check_writes",
    "count_workers",
    "log_event",
    "log_failure",
    "measure_service",
    "network_of",
    "request_id",
    "write_log",
    "written_log",
]
