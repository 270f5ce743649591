"""The manifest of a backup: what is in it, with digests, signed by the key of the service."""

import base64
import hashlib
import os
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple

from fairpremium.documents import canonical_json
from fairpremium.parties.faults import point
from fairpremium.parties.protocol import Checkpoint, Message, Problem, SigningKey, VerifyKey, write_private
from fairpremium.parties.service import DATABASE_FILE, FILES_FOLDER, KEY_FILE

from ._errors import BackupError

MANIFEST, SIGNATURE = "manifest.json", "manifest.sig"
PUBLIC_KEYS = f"{KEY_FILE}.pub"
_PREFIX = b"fairpremium backup 1\n"
_LARGEST = 1 << 28  # bytes of a manifest: a million files
_FILE = re.compile(rf"{FILES_FOLDER}/([0-9a-f]{{64}})")
_CHUNK = 1 << 20

Told = Callable[[int], object]


class Content(Message):
    """Digest and size of a file."""

    sha256: str
    size: int


class Manifest(Message):
    """What a backup holds.

    - `version`: Of fairpremium, which made it.
    - `schema_version`: Of the database.
    - `database`: Where the database was: the copy is a SQLite file always.
    - `made`: When, in UTC.
    - `entries`: Of the log.
    - `checkpoint`: The signed end of the log; None if an earlier version wrote the database: its log has another form.
    - `files`: All files, by their names in the backup.
    """

    form: Literal["fairpremium backup 1"] = "fairpremium backup 1"
    version: str
    schema_version: int
    database: Literal["sqlite", "postgresql"]
    made: str
    entries: int
    checkpoint: Checkpoint | None
    files: dict[str, Content]

    def write(self, folder: Path, key: SigningKey) -> None:
        """Write it with its signature: the last files of a backup."""
        content = canonical_json(self.model_dump())
        write_private(folder / SIGNATURE, base64.b64encode(key.sign(_PREFIX + content)) + b"\n")
        write_private(folder / MANIFEST, content)
        point("backup.manifest")


class ReadManifest(NamedTuple):
    """A manifest with what was signed; the key to check it with is in the backup."""

    manifest: Manifest
    content: bytes
    signature: bytes

    def check_signature(self, key: VerifyKey) -> None:
        """Insist that the service signed it."""
        try:
            signature = base64.b64decode(self.signature, validate=True)
        except ValueError:
            signature = b""
        if not key.verify(signature, _PREFIX + self.content):
            raise BackupError(
                f"{MANIFEST} of the backup is not signed by the key of its service: somebody changed it. Take another "
                "backup."
            )


def read_manifest(backup: Path) -> ReadManifest:
    """Read a manifest and check its form: no file has another place than those of a backup."""
    if not (backup / MANIFEST).is_file():
        raise BackupError(f"Got {backup}, but expected a folder that `fairpremium backup` wrote; it has no {MANIFEST}.")
    content = _read_small(backup / MANIFEST, _LARGEST)
    try:
        manifest = Manifest.parse(content)
    except Problem as problem:
        raise BackupError(f"{MANIFEST} of the backup was changed or is of another version: {problem}") from None
    for name, about in manifest.files.items():
        found = _FILE.fullmatch(name)
        if (found is None or found[1] != about.sha256) and name not in (DATABASE_FILE, KEY_FILE, PUBLIC_KEYS):
            raise BackupError(f"{MANIFEST} of the backup names a file that no backup has. Take another backup.")
    for name in (DATABASE_FILE, KEY_FILE):
        if name not in manifest.files:
            raise BackupError(f"{MANIFEST} of the backup does not name {name}. Take another backup.")
    signature = backup / SIGNATURE
    return ReadManifest(manifest, content, _read_small(signature, 1000).strip() if signature.is_file() else b"")


def _read_small(path: Path, most: int) -> bytes:
    with path.open("rb") as file:
        return file.read(most)


def copy_file(source: Path, target: Path, tell: Told = lambda _: None) -> Content:
    """Copy a file to the disk, for its owner alone, and return what was copied; links are refused.

    - `tell`: Gets the number of bytes copied each time.
    """
    digest, size = hashlib.sha256(), 0
    opened = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise BackupError(f"Got {source}, which is not a file, but expected one. Take another backup.")
    with (
        os.fdopen(opened, "rb") as reading,
        os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as writing,
    ):
        while chunk := reading.read(_CHUNK):
            digest.update(chunk)
            size += len(chunk)
            writing.write(chunk)
            tell(len(chunk))
        writing.flush()
        os.fsync(writing.fileno())
    point("backup.file")
    return Content(sha256=digest.hexdigest(), size=size)


def describe_file(path: Path) -> Content:
    """Bring a file to the disk, and return its digest and size."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return Content(sha256=digest, size=path.stat().st_size)
