"""Reports as the third party keeps them: taken once, compacted into files, frozen in snapshots."""

from ._compaction import compact
from ._queue import CompactionTrigger, ReportQueue
from ._reports import (
    SingleReport,
    code_of_label,
    page_of,
    put_report,
    put_report_batch,
    read_report,
    sources_of,
    waits_for_withdrawal,
)
from ._snapshots import (
    all_sources,
    begin_epoch,
    choose_epoch,
    files_of_epochs,
    forget_old_snapshots,
    open_snapshot,
    prepare_snapshot,
    take_snapshots,
    waits_for_snapshot,
)
from ._withdrawals import apply_withdrawals, hashed_key, withdraw_report

__all__ = [
    "CompactionTrigger",
    "ReportQueue",
    "SingleReport",
    "all_sources",
    "apply_withdrawals",
    "begin_epoch",
    "choose_epoch",
    "code_of_label",
    "compact",
    "files_of_epochs",
    "forget_old_snapshots",
    "hashed_key",
    "open_snapshot",
    "page_of",
    "prepare_snapshot",
    "put_report",
    "put_report_batch",
    "read_report",
    "sources_of",
    "take_snapshots",
    "waits_for_snapshot",
    "waits_for_withdrawal",
    "withdraw_report",
]
