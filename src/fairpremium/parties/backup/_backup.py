"""Makes a backup: a folder with the database, the key and all files of one moment, while the service goes on.

The database is copied first, then the files that this copy refers to. Files never change. If one was erased meanwhile,
or the key was rotated, the database is copied again while nobody can delete files.
"""

import os
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Connection

from fairpremium import __version__
from fairpremium.parties.clock import service_time
from fairpremium.parties.protocol import Checkpoint, SigningKey, read_private, write_private
from fairpremium.parties.service import (
    DATABASE_FILE,
    FILES_FOLDER,
    KEY_FILE,
    ServiceContext,
    ServiceKeyError,
    database_url,
    referenced,
)
from fairpremium.parties.store import FileStore, dump_database, sqlite_url
from fairpremium.parties.store.log import Verification, iso, sign_checkpoint, verify_log
from fairpremium.parties.store.schema import SCHEMA_VERSION

from ._errors import BackupError
from ._manifest import PUBLIC_KEYS, Content, Manifest, copy_file, describe_file
from ._new_folder import new_folder
from ._rehearsal import rehearse

_ATTEMPTS = 5
_STATE = (DATABASE_FILE, KEY_FILE, PUBLIC_KEYS)

Tell = Callable[[float, str], object]


class Made(NamedTuple):
    """What was made: the manifest, and what a check of the log in the backup found."""

    manifest: Manifest
    log: Verification


class _State(NamedTuple):
    """The database of one moment: what it refers to, and who signs that it was so."""

    schema_version: int
    files: set[str]
    key: SigningKey
    checkpoint: Checkpoint | None
    log: Verification


def make_backup(
    folder: str | os.PathLike[str],
    target: str | os.PathLike[str],
    *,
    database: str | None = None,
    tell: Tell = lambda fraction, words: None,
) -> Made:
    """Copy a third party's folder and database into a new folder, whose content is of one moment.

    Parameters
    ----------
    folder : str or path
        That of a third party, which may be running.
    target : str or path
        Must not exist. It appears when it is complete and on disk.
    database : str or None
        Address of the PostgreSQL database, if there is one.
    tell : callable
        Gets how much is done, as a fraction of 1, and a few words.

    Returns
    -------
    Made
        The manifest, and what a check of the log in the backup found.
    """
    home, place = Path(folder).absolute(), Path(target).absolute()
    if os.path.lexists(place):
        raise BackupError(f"{place} exists and is not overwritten; expected a new name.")
    if place.resolve().is_relative_to(home.resolve()):
        raise BackupError(f"Got {place}, but expected a place outside of {home}, whose files it would lie among.")
    if not place.parent.is_dir():
        raise BackupError(f"There is no folder {place.parent}. Make it, or name another place.")
    url = database_url(database) if database else sqlite_url(home / DATABASE_FILE)
    for path in (home / KEY_FILE, home / PUBLIC_KEYS, *(() if database else (home / DATABASE_FILE,))):
        if not path.is_file():
            raise BackupError(f"There is no {path.name} in {home}. Name the folder of a third party.")
    with new_folder(place) as draft:
        (draft / FILES_FOLDER).mkdir(mode=0o700)
        copied: dict[str, Content] = {}
        state = _copy_all(home, url, draft, copied, tell)
        for digest in copied.keys() - state.files:  # erased since it was copied
            (draft / FILES_FOLDER / digest).unlink()
        files = {name: describe_file(draft / name) for name in _STATE}
        files |= {f"{FILES_FOLDER}/{digest}": copied[digest] for digest in sorted(state.files)}
        manifest = Manifest(
            version=__version__,
            schema_version=state.schema_version,
            database="sqlite" if url.startswith("sqlite") else "postgresql",
            made=iso(service_time()),
            entries=state.log.entries,
            checkpoint=state.checkpoint,
            files=files,
        )
        manifest.write(draft, state.key)
    return Made(manifest, state.log)


def _copy_all(home: Path, url: str, draft: Path, copied: dict[str, Content], tell: Tell) -> _State:
    """Copy database, key and files until they fit each other."""
    store = FileStore(home / FILES_FOLDER)
    for attempt in range(_ATTEMPTS):
        is_last = attempt == _ATTEMPTS - 1
        with store.hold() if attempt else nullcontext():  # not for hours, unless something is erased just now
            tell(0.0, "database")
            try:
                state = _copy_state(home, url, draft)
            except ServiceKeyError:  # rotated between the two copies
                if is_last:
                    raise
                continue
            if _copy_files(store, state.files, draft / FILES_FOLDER, copied, tell):
                return state
    lost = next(digest for digest in sorted(state.files) if digest not in store)
    raise BackupError(f"The folder is not whole: {FILES_FOLDER}/{lost} is missing. Restore it from an earlier backup.")


def _copy_state(home: Path, url: str, draft: Path) -> _State:
    for name in _STATE:
        (draft / name).unlink(missing_ok=True)
    write_private(draft / KEY_FILE, read_private(home / KEY_FILE))
    copy_file(home / PUBLIC_KEYS, draft / PUBLIC_KEYS)
    version = dump_database(url, draft / DATABASE_FILE)
    with rehearse(draft) as context:
        return context.database.read(lambda c: _look(c, context, version))


def _look(connection: Connection, context: ServiceContext, version: int) -> _State:
    key = context.keys.current(connection)
    # What an earlier version wrote gets another tree over its log each time that it is migrated.
    checkpoint = sign_checkpoint(connection, key) if version == SCHEMA_VERSION else None
    return _State(version, referenced(connection), key, checkpoint, verify_log(connection, key.chain))


def _copy_files(store: FileStore, wanted: set[str], target: Path, copied: dict[str, Content], tell: Tell) -> bool:
    """Copy the files that are not copied yet; return whether all were there."""
    missing = sorted(wanted - copied.keys())
    try:
        total = sum(store.path(digest).stat().st_size for digest in missing)
        done = 0

        def add(count: int) -> None:
            nonlocal done
            done += count
            tell(done / max(total, 1), f"{done / 1e6:,.0f} of {total / 1e6:,.0f} MB")

        for digest in missing:
            content = copy_file(store.path(digest), target / digest, add)
            if content.sha256 != digest:
                raise BackupError(
                    f"The folder is not whole: the content of {FILES_FOLDER}/{digest} has changed. Restore it from an "
                    "earlier backup."
                )
            copied[digest] = content
    except FileNotFoundError:
        return False
    return True
