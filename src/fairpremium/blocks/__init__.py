"""Where rows live. Estimators see one operation: sum a function over blocks of rows."""

from fairpremium.blocks._job import Job, Reader, Source
from fairpremium.blocks._join import Joined, join_reports
from fairpremium.blocks._merge import merge_rows, worth_merging
from fairpremium.blocks._persons import Persons, person_codes, person_totals
from fairpremium.blocks._pool import start_processes
from fairpremium.blocks._rows import Block, RowFunction, Rows, all_finite, count_codes
from fairpremium.blocks._sources import open_source, source_kind
from fairpremium.blocks._stream import Reduction, Stream
from fairpremium.blocks._threads import at_once, checkpoint, count_workers, has_share, one_blas_thread

__all__ = [
    "Block",
    "Job",
    "Joined",
    "Persons",
    "Reader",
    "Reduction",
    "RowFunction",
    "Rows",
    "Source",
    "Stream",
    "all_finite",
    "at_once",
    "checkpoint",
    "count_codes",
    "count_workers",
    "has_share",
    "join_reports",
    "merge_rows",
    "one_blas_thread",
    "open_source",
    "person_codes",
    "person_totals",
    "source_kind",
    "start_processes",
    "worth_merging",
]
