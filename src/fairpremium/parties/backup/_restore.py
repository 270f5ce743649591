"""Restores a backup into a fresh place: everything is checked before anything can be seen there."""

import os
from pathlib import Path
from typing import NamedTuple

from fairpremium.parties.clock import service_time
from fairpremium.parties.faults import point
from fairpremium.parties.service import (
    DATABASE_FILE,
    FILES_FOLDER,
    INTACT,
    RESTORED,
    RESTORED_EARLIER,
    begin_again,
    database_url,
    open_context,
    referenced,
)
from fairpremium.parties.store import check_empty, load_database, read_schema_version, write_marks
from fairpremium.parties.store.log import Verification, verify_log
from fairpremium.parties.store.schema import SCHEMA_VERSION

from ._backup import Tell
from ._errors import BackupError
from ._manifest import Manifest, copy_file, read_manifest
from ._new_folder import new_folder
from ._rehearsal import rehearse


class Restored(NamedTuple):
    """What was restored.

    - `log`: What a check of the restored log found.
    - `is_complete`: Whether the log says so, and each study goes on with a new epoch. A database of an earlier version
      only gets a mark, so that the version that wrote it can open it; the rest follows when this version migrates it.
    """

    manifest: Manifest
    log: Verification
    is_complete: bool


def restore_backup(
    backup: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    *,
    database: str | None = None,
    tell: Tell = lambda fraction, words: None,
) -> Restored:
    """Copy a backup into a new folder, and perhaps into an empty database, from which a third party can then run.

    Parameters
    ----------
    backup : str or path
        What `make_backup` made.
    folder : str or path
        Must not exist, or be empty.
    database : str or None
        Address of an empty database; without one the database is a SQLite file in the folder.
    tell : callable
        Gets how much is done, as a fraction of 1, and a few words.

    Returns
    -------
    Restored
        The manifest, what a check of the restored log found, and whether nothing is left to the first start.
    """
    source, home = Path(backup).absolute(), Path(folder).absolute()
    if os.path.lexists(home) and not (home.is_dir() and not any(home.iterdir())):
        raise BackupError(f"{home} is not empty, and nothing is overwritten; expected a new folder.")
    if not home.parent.is_dir():
        raise BackupError(f"There is no folder {home.parent}. Make it, or name another place.")
    url = database_url(database) if database else None
    if url:
        check_empty(url)
    read = read_manifest(source)
    with new_folder(home) as draft:
        _copy_checked(source, read.manifest, draft, tell)
        with rehearse(draft) as context:
            key = context.key
            read.check_signature(key.verify_key)
            known = () if read.manifest.checkpoint is None else (read.manifest.checkpoint,)
            found, wanted = context.database.read(lambda c: (verify_log(c, key.chain, known), referenced(c)))
            for digest in sorted(wanted):
                if f"{FILES_FOLDER}/{digest}" not in read.manifest.files:
                    raise BackupError(f"The backup is not whole: it lacks {FILES_FOLDER}/{digest}. Take another one.")
            if url:
                (draft / DATABASE_FILE).unlink()
                load_database(context.files.folder.parent / DATABASE_FILE, url)
        is_complete = url is not None or read_schema_version(draft / DATABASE_FILE) == SCHEMA_VERSION
        if is_complete:
            opened = open_context(draft, database=url)
            try:
                begin_again(opened, is_intact=found.intact)
            finally:
                opened.database.close()
        else:
            how = INTACT if found.intact else ""
            write_marks(draft / DATABASE_FILE, {RESTORED: repr(service_time()), RESTORED_EARLIER: how})
        point("backup.restored")
    return Restored(read.manifest, found, is_complete)


def _copy_checked(source: Path, manifest: Manifest, draft: Path, tell: Tell) -> None:
    """Copy the files that the manifest names; each must have its digest."""
    (draft / FILES_FOLDER).mkdir(mode=0o700)
    total, done = max(sum(content.size for content in manifest.files.values()), 1), 0

    def add(count: int) -> None:
        nonlocal done
        done += count
        tell(done / total, f"{done / 1e6:,.0f} of {total / 1e6:,.0f} MB")

    for name, content in manifest.files.items():
        try:
            found = copy_file(source / name, draft / name, add)
        except FileNotFoundError:
            raise BackupError(f"The backup is not whole: {name} is missing. Take another one.") from None
        except OSError as error:
            if not (source / name).is_symlink():
                raise
            raise BackupError(f"Got a link in the place of {name}, but expected a file. Take another one.") from error
        if found != content:
            raise BackupError(f"The backup is damaged: {name} is not what was written. Take another one.")
