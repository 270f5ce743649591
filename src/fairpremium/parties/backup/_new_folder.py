"""A folder that appears whole or not at all."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from fairpremium.parties.faults import point
from fairpremium.parties.protocol import Problem, sync_folder
from fairpremium.parties.store import full_disk_as_problem

from ._errors import BackupError

_INCOMPLETE = ".fairpremium-incomplete"


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Yield an empty folder for its owner alone; it gets its name once all in it is on disk.

    Its name ends in ``.fairpremium-incomplete`` until then. If something fails, nothing is left of it; what a killed
    process left is removed by the next one that makes a folder beside it. Files in it are on disk already.
    """
    target = target.absolute()
    draft = target.with_name(f".{target.name}{_INCOMPLETE}")
    _remove_abandoned(target.parent)
    try:
        with full_disk_as_problem(), _locked(draft):
            try:
                yield draft
                for path in (*(path for path in draft.rglob("*") if path.is_dir()), draft):
                    sync_folder(path)
                point("backup.synced")
                draft.rename(target)  # replaces an empty folder, and nothing else
                sync_folder(target.parent)
                point("backup.renamed", writes=False)
            except BaseException:
                shutil.rmtree(draft, ignore_errors=True)
                raise
    except Problem as problem:
        if problem.code != "storage-full":
            raise
        raise BackupError(f"There is no room for {target.name} in {target.parent}. Nothing is left of it.") from None


def _remove_abandoned(parent: Path) -> None:
    """Remove what killed processes left: it holds secrets."""
    for draft in parent.glob(f".*{_INCOMPLETE}"):
        with suppress(BackupError, FileNotFoundError, PermissionError), _locked(draft):  # another user's is theirs
            draft.rmdir()


@contextmanager
def _locked(draft: Path) -> Iterator[None]:
    """Make a folder, or empty what is left of one, while no other process does."""
    draft.mkdir(mode=0o700, exist_ok=True)
    folder = os.open(draft, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_ours = draft.exists() and os.path.samestat(os.fstat(folder), draft.stat())
        except BlockingIOError:
            is_ours = False
        if not is_ours:
            raise BackupError(f"Another process is writing to {draft}. Wait for its end, or name another place.")
        for left in draft.iterdir():
            shutil.rmtree(left) if left.is_dir() and not left.is_symlink() else left.unlink()
        yield
    finally:
        os.close(folder)
