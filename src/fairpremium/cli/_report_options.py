"""The options that say whose prices an audit report is about, for ``fairpremium audit`` and ``insurer fit``."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

from fairpremium.cli._command import option_panel

if TYPE_CHECKING:
    from fairpremium.audit import ReportDetails

report_option = option_panel("Report")


@dataclass(frozen=True)
class ReportOptions:
    """What the head of an audit report says; what is left out is shown as not given."""

    unit: Annotated[str, report_option(help="What an amount is measured in, such as 'EUR a year'.")] = ""
    insurer: Annotated[str, report_option(help="Whose prices they are.")] = ""
    tariff_version: Annotated[str, report_option(help="Which tariff, such as 'Motor 2026.1'.")] = ""
    period: Annotated[str, report_option(help="When the losses happened, such as 2025.")] = ""
    prepared_by: Annotated[str, report_option(help="Name and function in the sign-off.")] = ""
    approved_by: Annotated[str, report_option(help="Name and function in the sign-off.")] = ""

    def details(self) -> ReportDetails:
        """Return them as the report takes them."""
        from fairpremium.audit import ReportDetails

        given = asdict(self)
        del given["unit"]
        return ReportDetails(**given)
