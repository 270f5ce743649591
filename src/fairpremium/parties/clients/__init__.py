"""The programs of collectors, insurers and operators: each talks to the service with signed requests."""

from ._client import AppTransport, Client, Operator, ServiceUnreachable
from ._collector import Collector, draw_reports, plan_batches, read_drawn
from ._insurer import Insurer

__all__ = [
    "AppTransport",
    "Client",
    "Collector",
    "Insurer",
    "Operator",
    "ServiceUnreachable",
    "draw_reports",
    "plan_batches",
    "read_drawn",
]
