"""What is erased, and how little of it is left: portfolios, reports, bundles, by request and by date."""

from ._drafts import delete_drafts, drafts_of, steps_path, workspace_prefix
from ._files import finish_erasures
from ._reports import finish_withdrawals, withdraw_now
from ._retention import enforce_retention

__all__ = [
    "delete_drafts",
    "drafts_of",
    "enforce_retention",
    "finish_erasures",
    "finish_withdrawals",
    "steps_path",
    "withdraw_now",
    "workspace_prefix",
]
