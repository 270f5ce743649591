"""What the first page of an audit report and its printed form are made from."""

from ._classes import choose_classes
from ._details import ReportDetails
from ._panel import MATERIAL_BALANCE, build_panel
from ._pdf import check_pdf, render_pdf
from ._proxy_effect import ProxyEffect, measure_proxy_effect

__all__ = [
    "MATERIAL_BALANCE",
    "ProxyEffect",
    "ReportDetails",
    "build_panel",
    "check_pdf",
    "choose_classes",
    "measure_proxy_effect",
    "render_pdf",
]
