"""What the third party stores: files by digest, a database, a log that nobody can rewrite unnoticed."""

from ._batch_merge import Extent, drop_rows, merge_batches, plan_merge, store_batch
from ._copy import DatabaseCopyError, check_empty, dump_database, load_database, read_schema_version, write_marks
from ._database import Database, Write, Writer, after_commit, is_full_disk, sqlite_url
from ._files import FileStore, Incoming, full_disk_as_problem

__all__ = [
    "Database",
    "DatabaseCopyError",
    "Extent",
    "FileStore",
    "Incoming",
    "Write",
    "Writer",
    "after_commit",
    "check_empty",
    "drop_rows",
    "dump_database",
    "full_disk_as_problem",
    "is_full_disk",
    "load_database",
    "merge_batches",
    "plan_merge",
    "read_schema_version",
    "sqlite_url",
    "store_batch",
    "write_marks",
]
