"""Fits of a service that take no longer than what a test looks at."""

import html
from typing import Any

from fairpremium.audit import render_json
from fairpremium.parties.service._context import ServiceLimits

AT_ONCE = ServiceLimits(step_seconds=0.0, snapshot_seconds=0.0)  # nobody measures how long fits take
RENDER_REPORT = "fairpremium.parties.service._run_fit.render_report"


def numbers_alone(summary: Any) -> str:
    """Render a report without its charts, which take half of the time of a fit."""
    numbers = html.escape(render_json(summary))
    return f"<!doctype html>\n<title>Charts are drawn in other tests</title><pre>{numbers}</pre>"
