"""A search for bytes in all that the third party has on disk: files, members of archives, the database and its log."""

from __future__ import annotations

import base64
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np


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
    holds = Search(needles).is_in
    return {name for name, content in contents(folder) if holds(content)}


class Search:
    """A search for many byte strings at once: places where the first four bytes of one stand are looked at closer."""

    def __init__(self, needles: Iterable[bytes]):
        self._short: list[bytes] = []
        self._by_start: dict[int, list[bytes]] = {}
        for needle in needles:
            if len(needle) < 4:
                self._short.append(needle)
            else:
                self._by_start.setdefault(int.from_bytes(needle[:4], "little"), []).append(needle)
        self._starts = np.array(sorted(self._by_start), dtype=np.uint32)
        self._pairs = np.zeros(2**16, dtype=bool)
        self._pairs[self._starts & 0xFFFF] = True

    def is_in(self, content: bytes) -> bool:
        """Whether one of the needles is in some bytes."""
        if any(needle in content for needle in self._short):
            return True
        data = np.frombuffer(content, dtype=np.uint8)
        if len(data) < 4:
            return False
        at = np.flatnonzero(self._pairs[data[:-3] | data[1:-2].astype(np.uint16) << 8])
        starts = sum(data[at + i].astype(np.uint32) << 8 * i for i in range(4))
        near = np.isin(starts, self._starts)
        return any(
            content.startswith(needle, i)
            for i, start in zip(at[near].tolist(), starts[near].tolist(), strict=True)
            for needle in self._by_start[start]
        )


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
