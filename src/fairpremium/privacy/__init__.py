"""How a sensitive attribute is reported with plausible deniability, and how its noise is undone on average.

The objects here own one small fact, the channel ``T[s, d] = P(S = s given D = d)`` in exact integers;
sampling, the privacy parameter and the correction all come from those integers.
"""

from ._channel import Channel
from ._exact import MAX_TOTAL
from ._files import attach_descriptor, describe_reports, read_descriptor, read_reports, write_reports
from ._keyed_channels import KeyedChannels
from ._ledger import PrivacyLedger
from ._memoized_reports import DrawnReports, MemoizedReports
from ._randomized_response import RandomizedResponse, check_epsilon
from ._simplex import project_to_simplex
from ._subset_selection import SubsetSelection
from ._words import draw_from_words

__all__ = [
    "MAX_TOTAL",
    "Channel",
    "DrawnReports",
    "KeyedChannels",
    "MemoizedReports",
    "PrivacyLedger",
    "RandomizedResponse",
    "SubsetSelection",
    "attach_descriptor",
    "check_epsilon",
    "describe_reports",
    "draw_from_words",
    "project_to_simplex",
    "read_descriptor",
    "read_reports",
    "write_reports",
]
