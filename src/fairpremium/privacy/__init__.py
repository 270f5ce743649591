"""How a sensitive attribute is reported with plausible deniability, and how its noise is undone on average.

The objects here own one small fact, the channel ``T[s, d] = P(S = s given D = d)`` in exact integers;
sampling, the privacy parameter and the correction all come from those integers.
"""

from __future__ import annotations

from ._channel import Channel
from ._files import attach_descriptor, read_descriptor, read_reports, write_reports
from ._ledger import PrivacyLedger
from ._memo import MemoizedReports
from ._randomized_response import RandomizedResponse
from ._simplex import project_to_simplex

__all__ = [
    "Channel",
    "MemoizedReports",
    "PrivacyLedger",
    "RandomizedResponse",
    "attach_descriptor",
    "project_to_simplex",
    "read_descriptor",
    "read_reports",
    "write_reports",
]
