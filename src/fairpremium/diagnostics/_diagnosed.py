"""The rows of a diagnosis, and records that say something about small numbers of rows too."""

from __future__ import annotations

from typing import Any

import numpy as np

from fairpremium.arrays import Array
from fairpremium.audit.tables import AuditData, Records, estimate_records
from fairpremium.corrections import MIN_EFFECTIVE_REPORTS


def read_rows(
    columns: dict[str, Any],
    y: Any,
    sensitive: Any,
    channel: Any,
    sample_weight: Any,
    exposure: Any,
    cluster: Any,
    level: float,
    *,
    channel_key: Any = None,
) -> AuditData:
    """Check prices and losses; with an exposure the losses are totals over it."""
    roles = (sensitive, channel, sample_weight, cluster, None, level, exposure)
    return AuditData.read({**columns, "y": y}, *roles, need_groups=False, channel_key=channel_key)


def records_of(labels: dict[str, Any], effective: Array, numbers: dict[str, Array]) -> Records:
    """Make the records of everybody (first) and of every group.

    A group with too few reports has a sentence instead of numbers. Everybody's means are facts about the rows: with too
    few rows only the limits are missing.
    """
    records = estimate_records(labels, effective, numbers)
    if effective[0] < MIN_EFFECTIVE_REPORTS:
        for name, column in numbers.items():
            records[0][name] = np.nan if name.endswith(("_low", "_high")) else float(column[0])
        records[0]["note"] = (
            f"too few rows for an interval ({effective[0]:.0f}, but {MIN_EFFECTIVE_REPORTS:.0f} are needed)"
        )
    return records
