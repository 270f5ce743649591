"""What the third party stores: files by digest, a database, a log that nobody can rewrite unnoticed."""

from ._batch_merge import Extent, merge_runs, plan_merge, write_run
from ._database import Store, Write, Writer, sqlite_url
from ._files import BlobStore, Incoming

__all__ = [
    "BlobStore",
    "Extent",
    "Incoming",
    "Store",
    "Write",
    "Writer",
    "merge_runs",
    "plan_merge",
    "sqlite_url",
    "write_run",
]
