"""A search for bytes in all that the third party has on disk: files, members of archives, the database and its log."""

from __future__ import annotations

import base64
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path


def forms_of(key: bytes) -> dict[str, bytes]:
    """A key as it could be written: its bytes, their halves as numbers, hexadecimal digits, base64."""
    plain = base64.b64encode(key)
    return {
        "bytes": key,
        "first half": key[7::-1],  # batch files hold both halves as numbers, apart from each other
        "second half": key[:7:-1],
        "hex": key.hex().encode(),
        "HEX": key.hex().upper().encode(),
        "base64": plain.rstrip(b"="),
        "base64url": base64.urlsafe_b64encode(key).rstrip(b"="),
    }


def find(folder: Path, keys: Iterable[bytes], others: Iterable[bytes] = ()) -> set[str]:
    """Where keys, in any form, or other bytes are found below a folder: names of files."""
    needles = {form for key in keys for form in forms_of(key).values()} | set(others)
    return {name for name, content in contents(folder) if any(needle in content for needle in needles)}


def contents(folder: Path) -> Iterator[tuple[str, bytes]]:
    """All files below a folder, and what archives hold."""
    for path in sorted(folder.rglob("*")):
        if not path.is_file():
            continue
        name = str(path.relative_to(folder))
        yield name, name.encode() + path.read_bytes()
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                for member in archive.namelist():
                    yield f"{name}/{member}", archive.read(member)
