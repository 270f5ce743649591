"""Files that appear whole or not at all, and secrets that only their owner can read."""

import os
import secrets
import stat
from pathlib import Path
from typing import Any, NoReturn

from fairpremium.parties.faults import point

Path_ = str | os.PathLike[str]

LARGEST_FILE = 10_000


class Secret:
    """An object whose secret is in no copy or pickle of it."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        name = type(self).__name__
        raise TypeError(f"A {name} holds a secret and is not pickled or copied; read it again where it is needed.")

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        self.__reduce__()


def create_file(path: Path_, content: bytes, mode: int) -> None:
    """Create a file, which must not exist; it appears with all of its content, on disk, or not at all."""
    target = Path(path)
    draft = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            os.fchmod(file.fileno(), mode)  # whatever the umask is: others read a public key
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        point("key.written")
        os.link(draft, target)  # unlike a rename, this does not replace what is there
    except FileExistsError:
        raise FileExistsError(
            f"{os.fspath(path)} exists and is not overwritten; expected a new name, or remove it if it is not needed."
        ) from None
    finally:
        draft.unlink(missing_ok=True)
    sync_folder(target.parent)
    point("key.linked")


def replace_file(path: Path_, content: bytes, mode: int) -> None:
    """Write a file in the place of the one that is there, if any; it has its old or its new content, on disk."""
    target = Path(path)
    draft = target.with_name(f".{target.name}.{secrets.token_hex(8)}")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(content)
        settle(draft, target)
    finally:
        draft.unlink(missing_ok=True)
    sync_folder(target.parent)


def settle(draft: Path, target: Path) -> None:
    """Give a file its name once its content is on disk; an earlier file of this name is replaced."""
    with draft.open("rb") as file:
        os.fsync(file.fileno())
    draft.replace(target)


def sync_folder(path: Path) -> None:
    """Bring the names in a folder to the disk."""
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_private(path: Path_, content: bytes) -> None:
    """Create a file with mode 600."""
    create_file(path, content, 0o600)


def restrict_access(path: Path_) -> bool:
    """Take away the rights of others than the owner of a file or folder; return whether they had any."""
    mode = stat.S_IMODE(os.stat(path).st_mode)  # noqa: PTH116
    if not mode & 0o077:
        return False
    try:
        os.chmod(path, mode & 0o700)  # noqa: PTH101
    except PermissionError:
        raise PermissionError(
            f"{os.fspath(path)} can be read or changed by others than its owner, and belongs to another user; "
            "run the command as its owner, or name a place of your own."
        ) from None
    return True


def read_private(path: Path_) -> bytes:
    """Read a small file, or refuse it if anyone but its owner could."""
    with open(path, "rb") as file:  # noqa: PTH123
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"Got {os.fspath(path)}, but expected a file.")
        if os.name == "posix" and stat.S_IMODE(status.st_mode) & _foreign_rights(path):
            raise PermissionError(
                f"{os.fspath(path)} can be read or changed by others than its owner, but holds a secret; "
                f"run chmod 600 {os.fspath(path)}, and make a new one if it may have been read."
            )
        content = file.read(LARGEST_FILE + 1)
    if len(content) > LARGEST_FILE:
        raise ValueError(f"Got {os.fspath(path)} of more than {LARGEST_FILE} bytes, but expected a key.")
    return content


def _foreign_rights(path: Path_) -> int:
    """Return the mode bits that a secret must not have.

    systemd hands a credential over as a file of root that an ACL opens to the service's user alone. The mode then shows
    the mask of the ACL as the rights of the group, so that they tell nothing there.
    """
    folder = os.environ.get("CREDENTIALS_DIRECTORY")
    is_credential = bool(folder) and Path(os.path.abspath(path)).parent == Path(os.path.abspath(folder or ""))  # noqa: PTH100
    return 0o027 if is_credential else 0o077
