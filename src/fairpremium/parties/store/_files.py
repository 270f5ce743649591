"""Files named by the SHA-256 of their content: there whole or not at all, whatever kills the process or fills the disk.

The order is always the same: temporary file in the same folder, fsync, rename, fsync of the folder. Only then may a
database refer to the file. A file that nothing refers to is swept away later.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from fairpremium.parties.faults import point
from fairpremium.parties.protocol import Problem, sync_folder

_DIGEST = re.compile(r"[0-9a-f]{64}")
_INCOMING = ".incoming-"
_LOCK = ".lock"
_CHUNK = 1 << 20
_MANY = 100_000  # files whose size is remembered


@contextmanager
def full_disk_as_problem() -> Iterator[None]:
    """Turn a full disk, or a quota that is used up, into the problem "storage-full"."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise Problem("storage-full") from None
        raise


class FileStore:
    """A folder of immutable files, each named by the SHA-256 of its content.

    - `folder`: Created, with access for its owner only, where it is missing.

    Notes
    -----
    Several processes may use one folder. A file is safe from `sweep` and `delete` of other processes from `hold` on:
    put the file and commit the reference to it inside one ``with store.hold():``.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = FileStore(folder)
    ...     digest = store.put(b"content")
    ...     digest == store.put(b"content"), store.path(digest).read_bytes()
    (True, b'content')
    """

    def __init__(self, folder: str | os.PathLike[str]):
        self.folder = Path(folder)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._sizes: dict[str, int] = {}  # content never changes

    def path(self, digest: str) -> Path:
        """Return where the file of a digest is, or would be."""
        if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
            raise ValueError("Got another name, but expected a digest: 64 hexadecimal digits in lower case.")
        return self.folder / digest

    def size(self, digest: str) -> int:
        """Return the bytes of a file, 0 where there is none; files that were asked for before are not looked at."""
        if digest not in self._sizes:
            if len(self._sizes) >= _MANY:
                self._sizes.clear()
            try:
                self._sizes[digest] = self.path(digest).stat().st_size
            except FileNotFoundError:
                return 0
        return self._sizes[digest]

    def __contains__(self, digest: str) -> bool:
        return self.path(digest).exists()

    def __iter__(self) -> Iterator[str]:
        with os.scandir(self.folder) as entries:
            yield from (entry.name for entry in entries if _DIGEST.fullmatch(entry.name))

    def receive(self, limit: int | None = None) -> Incoming:
        """Begin a file that arrives in pieces.

        - `limit`: The most bytes it may have; one more is the problem "too-large".
        """
        return Incoming(self, limit)

    def put(self, content: bytes | bytearray | memoryview | Path) -> str:
        """Store a file and return its digest; the same content again changes nothing.

        - `content`: A path is a temporary file on the same file system, which moves into the store.
        """
        with self.receive() as incoming:
            if isinstance(content, Path):
                incoming.take(content)
            else:
                incoming.write(content)
            return incoming.commit()

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Keep `sweep` and `delete`, in this process and others, waiting."""
        with self._lock(fcntl.LOCK_SH):
            yield

    def delete(self, digest: str, unless: Callable[[], bool] = lambda: False) -> bool:
        """Remove a file and return whether it was there.

        - `unless`: Asked while nobody holds the store: with True the file stays, because something refers to it after
          all.
        """
        path = self.path(digest)
        with self._lock(fcntl.LOCK_EX):
            if unless() or not path.exists():
                return False
            path.unlink()
            sync_folder(self.folder)
        return True

    def sweep(
        self,
        referenced: Set[str] | Callable[[], Set[str]],
        older_than: float = 3600.0,
        at_once: Callable[[Path], bool] = lambda _: False,
    ) -> int:
        """Remove what nothing refers to: files without a reference, and rests of uploads that were cut off.

        - `referenced`: The digests that are referred to. A callable is asked while nobody holds the store.
        - `older_than`: Files that were touched within so many seconds stay: somebody may be about to refer to them.
        - `at_once`: Says of a file without a reference that it goes however young it is. It must be of a kind that is
          only put and referred to while the store is held.
        """
        removed = 0
        with self._lock(fcntl.LOCK_EX):
            live = referenced() if callable(referenced) else referenced
            before = time.time() - older_than
            for entry in list(os.scandir(self.folder)):
                with suppress(FileNotFoundError):
                    is_orphan = bool(_DIGEST.fullmatch(entry.name)) and entry.name not in live
                    if is_orphan and (entry.stat().st_mtime <= before or at_once(Path(entry.path))):
                        os.unlink(entry.path)  # noqa: PTH108
                        removed += 1
            if removed:
                sync_folder(self.folder)
        return removed + self.delete_abandoned()

    def delete_abandoned(self) -> int:
        """Remove the rests of uploads whose process is gone."""
        removed = 0
        for path in self.folder.glob(f"{_INCOMING}*"):
            with suppress(FileNotFoundError, BlockingIOError):
                file = os.open(path, os.O_RDWR)
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # whoever writes to it has this lock
                    path.unlink()
                    removed += 1
                finally:
                    os.close(file)
        if removed:
            sync_folder(self.folder)
        return removed

    @contextmanager
    def _lock(self, kind: int) -> Iterator[None]:
        lock = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, kind)
            yield
        finally:
            os.close(lock)  # gives the lock back


def _create_locked(path: Path) -> int:
    """Create a file and hold its lock, by which others see that it is still written to."""
    while True:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file).st_nlink:
            return file
        os.close(file)  # somebody deleted it before it was locked


class Incoming:
    """A file on its way into a `FileStore`; outside its ``with`` nothing is left of it unless it was kept.

    - `path` (Path): The temporary file, complete up to the last `write`, for checks before `commit`.
    - `size` (int): Bytes so far.
    """

    def __init__(self, store: FileStore, limit: int | None):
        self._store = store
        self._limit = limit
        self._hash = hashlib.sha256()
        self._synced = self._is_committed = False
        self.size = 0
        self.path = store.folder / f"{_INCOMING}{secrets.token_hex(16)}"
        self._file = -1
        with self._no_rubbish():
            self._file = _create_locked(self.path)
            point("file.created")

    @property
    def sha256(self) -> str:
        """The digest of what was written so far."""
        return self._hash.hexdigest()

    def write(self, *pieces: bytes | bytearray | memoryview) -> None:
        """Append pieces."""
        for piece in pieces:
            view = memoryview(piece).cast("B")
            if self._limit is not None and self.size + len(view) > self._limit:
                self.discard()
                raise Problem("too-large")
            with self._no_rubbish():
                self._hash.update(view)
                self.size += len(view)
                while view:
                    view = view[os.write(self._file, view) :]

    def take(self, path: Path) -> None:
        """Become the given file, which moves here."""
        with self._no_rubbish():
            taken = os.open(path, os.O_RDWR)
            fcntl.flock(taken, fcntl.LOCK_EX)
            os.replace(path, self.path)  # noqa: PTH105
            os.close(self._file)
            self._file = taken
            os.fchmod(self._file, 0o600)
            with self.path.open("rb") as file:
                while chunk := file.read(_CHUNK):
                    self._hash.update(chunk)
                    self.size += len(chunk)

    def sync(self) -> None:
        """Bring the content to the disk; `commit` does so too."""
        with self._no_rubbish():
            point("file.written")
            os.fsync(self._file)
            point("file.synced")
        self._synced = True

    @contextmanager
    def syncing(self) -> Iterator[None]:
        """Bring the content to the disk in a thread, while the caller checks the file."""
        with ThreadPoolExecutor(1) as pool:
            synced = pool.submit(self.sync)
            try:
                yield
            finally:
                synced.result()  # whatever the caller met, an error here was the cause: the file is gone

    def commit(self) -> str:
        """Give the file its name for good, and return the digest; again, it does nothing more."""
        digest = self.sha256
        if self._is_committed:
            return digest
        if not self._synced:
            self.sync()
        with self._no_rubbish():
            os.utime(self._file)  # an upload may have taken longer than orphans live
            os.replace(self.path, self._store.path(digest))  # noqa: PTH105
            self._close()
            point("file.renamed")
            sync_folder(self._store.folder)
            point("file.folder_synced")
        self._is_committed = True
        return digest

    def discard(self) -> None:
        """Leave nothing behind; after `commit` this does nothing."""
        if self._file >= 0:
            self._close()
            self.path.unlink(missing_ok=True)

    def _close(self) -> None:
        os.close(self._file)
        self._file = -1

    @contextmanager
    def _no_rubbish(self) -> Iterator[None]:
        try:
            with full_disk_as_problem():
                yield
        except BaseException:
            self.discard()
            raise

    def __enter__(self) -> Incoming:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()
