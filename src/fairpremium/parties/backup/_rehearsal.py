"""A copy of a backup's database and key is opened as a third party before anybody relies on them."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fairpremium.parties.service import DATABASE_FILE, KEY_FILE, ServiceContext, open_context

from ._manifest import copy_file


@contextmanager
def rehearse(folder: Path) -> Iterator[ServiceContext]:
    """Open copies of the database and the key in a folder, which stay as they are.

    A database of an earlier version is migrated in its copy. This fails where the service itself would not start:
    without the storage key, or with another service key than the one in force.
    """
    scratch = folder / "rehearsal"
    scratch.mkdir(mode=0o700)
    try:
        for name in (DATABASE_FILE, KEY_FILE):
            copy_file(folder / name, scratch / name)
        context = open_context(scratch)
        try:
            yield context
        finally:
            context.database.close()
    finally:
        shutil.rmtree(scratch)
