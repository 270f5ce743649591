"""The programs of collectors, insurers and operators: each talks to the service with signed requests."""

from ._client import AppTransport, Client, Operator, ServiceUnreachable
from ._collector import Collector, draw_reports, plan_batches, read_drawn, restrict_reports
from ._insurer import Insurer
from ._invitations import charge_invitations, make_links
from ._log_audit import AuditState, LogAudit, audit_log

__all__ = [
    "AppTransport",
    "AuditState",
    "Client",
    "Collector",
    "Insurer",
    "LogAudit",
    "Operator",
    "ServiceUnreachable",
    "audit_log",
    "charge_invitations",
    "draw_reports",
    "make_links",
    "plan_batches",
    "read_drawn",
    "restrict_reports",
]
