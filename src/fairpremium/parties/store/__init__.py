"""What the third party stores: files by digest, a database, a log that nobody can rewrite unnoticed."""

from ._batch_merge import Extent, drop_rows, merge_batches, plan_merge, store_batch
from ._database import Database, Write, Writer, sqlite_url
from ._files import FileStore, Incoming

__all__ = [
    "Database",
    "Extent",
    "FileStore",
    "Incoming",
    "Write",
    "Writer",
    "drop_rows",
    "merge_batches",
    "plan_merge",
    "sqlite_url",
    "store_batch",
]
