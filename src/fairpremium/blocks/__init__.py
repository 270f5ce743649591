"""Where rows live. Estimators see one operation: sum a function over blocks of rows."""

from fairpremium.blocks._join import Joined, join_reports
from fairpremium.blocks._merge import merge_rows, worth_merging
from fairpremium.blocks._rows import Block, RowFunction, Rows
from fairpremium.blocks._sources import open_source
from fairpremium.blocks._stream import Reader, Source, Stream

__all__ = [
    "Block",
    "Joined",
    "Reader",
    "RowFunction",
    "Rows",
    "Source",
    "Stream",
    "join_reports",
    "merge_rows",
    "open_source",
    "worth_merging",
]
