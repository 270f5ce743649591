"""The programs of collectors, insurers and operators: each talks to the service with signed requests."""

from ._client import AppTransport, Client, Operator, ServiceUnreachable
from ._collector import Collector, draw_reports, plan_batches, read_drawn
from ._insurer import Insurer
from ._invitations import charge_invitations, make_links

__all__ = [
    "AppTransport",
    "Client",
    "Collector",
    "Insurer",
    "Operator",
    "ServiceUnreachable",
    "charge_invitations",
    "draw_reports",
    "make_links",
    "plan_batches",
    "read_drawn",
]
