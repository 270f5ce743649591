"""Options that several commands share: the roles of columns, and how the reports were drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

COLUMNS, NOISE = "Columns", "How the reports were drawn"

OutcomeOption = Annotated[str, typer.Option(help="Column with the losses.", rich_help_panel=COLUMNS)]
SensitiveOption = Annotated[str, typer.Option(help="Column with the reports.", rich_help_panel=COLUMNS)]
WeightOption = Annotated[str | None, typer.Option(help="Column with the exposure or volume.", rich_help_panel=COLUMNS)]
ReportsOption = Annotated[
    Path | None, typer.Option(help="File with the reports, joined by --key.", rich_help_panel=COLUMNS)
]
KeyOption = Annotated[str | None, typer.Option(help="Column that identifies a policy.", rich_help_panel=COLUMNS)]
KeepOption = Annotated[
    float | None, typer.Option(help="Probability that a report is the truth.", rich_help_panel=NOISE)
]
EpsilonOption = Annotated[float | None, typer.Option(help="Privacy parameter, instead of keep.", rich_help_panel=NOISE)]
ChannelOption = Annotated[
    Path | None, typer.Option(help="JSON file that describes the channel.", rich_help_panel=NOISE)
]
GroupsOption = Annotated[
    str | None,
    typer.Option(help="All groups, such as F,M; the distinct reports if left out.", rich_help_panel=NOISE),
]
TrueAttributeOption = Annotated[
    bool,
    typer.Option("--true-attribute", help="The column holds the truth, not reports.", rich_help_panel=NOISE),
]
MarginOption = Annotated[str | None, typer.Option(help="Known shares, such as F=0.45,M=0.55.", rich_help_panel=NOISE)]
ValidationOption = Annotated[
    Path | None, typer.Option(help="File of people with truth and report.", rich_help_panel=NOISE)
]
TrueColumnOption = Annotated[str, typer.Option(help="Truth in the validation file.", rich_help_panel=NOISE)]
ReportColumnOption = Annotated[str, typer.Option(help="Report in the validation file.", rich_help_panel=NOISE)]
RetestOption = Annotated[
    Path | None, typer.Option(help="File of people with two fresh reports.", rich_help_panel=NOISE)
]
FirstColumnOption = Annotated[str, typer.Option(help="First report in the retest file.", rich_help_panel=NOISE)]
SecondColumnOption = Annotated[str, typer.Option(help="Second report in the retest file.", rich_help_panel=NOISE)]
