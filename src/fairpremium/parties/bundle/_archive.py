"""A zip file in the one form that a bundle has: named members, stored as they are, back to back, nothing else.

Every zip program opens it. Reading it back is stricter than any zip program: the headers are built again from name,
size and checksum of each member and must be the same, byte by byte. Compression, encryption, links, paths, comments,
repeated, overlapping or hidden members do not occur in this form and need no rule of their own; nothing is ever
inflated, so that a file can be no larger inside than outside.
"""

import os
import shutil
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

import pyarrow as pa

from fairpremium.errors import BundleError

LARGEST = 2**32 - 2**16  # bytes of an archive that is read: what fits without the extensions of large zip files
_LARGEST_WRITTEN = 2**31 - 2**27  # beyond, zipfile uses these extensions

_CHUNK = 1 << 20
_MOST_MEMBERS = 16
_LONGEST_NAME = 64
_LOCAL = struct.Struct("<4s5H3I2H")
_CENTRAL = struct.Struct("<4s6H3I5H2I")
_END = struct.Struct("<4s4H2IH")
_VERSION, _DATE = 20, 0x21  # zip 2.0; the first of January 1980
_UNIX, _MODE = 3 << 8, 0o100644 << 16  # a regular file


class Member(NamedTuple):
    """A member: its name, and where its bytes are."""

    name: str
    size: int
    crc: int
    offset: int


def write_archive(file: BinaryIO, members: Mapping[str, bytes | Path]) -> None:
    """Write members one after the other; the same members give the same bytes."""
    size = sum(len(body) if isinstance(body, bytes) else body.stat().st_size for body in members.values())
    if size > _LARGEST_WRITTEN:
        raise ValueError(f"Got {size} bytes for a bundle, but expected at most {_LARGEST_WRITTEN}. Price fewer rows.")
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=False) as archive:
        for name, content in members.items():
            info = zipfile.ZipInfo(name)  # of 1980, which is as good as any date and always the same
            info.external_attr, info.create_system = _MODE, _UNIX >> 8
            with archive.open(info, "w") as target:
                if isinstance(content, bytes):
                    target.write(content)
                else:
                    with content.open("rb") as source:
                        shutil.copyfileobj(source, target, _CHUNK)


class Archive:
    """The members of a file that `write_archive` wrote.

    - `names`: Members that the archive may have, in their order.

    Raises
    ------
    BundleError
        If the file has any other form.
    """

    def __init__(self, path: str | os.PathLike[str], names: Sequence[str]) -> None:
        self.path = Path(path)
        with self.path.open("rb") as file:
            self.members = {member.name: member for member in _read_directory(file, names)}

    def __contains__(self, name: str) -> bool:
        return name in self.members

    def __iter__(self) -> Iterator[str]:
        return iter(self.members)

    def read(self, name: str, largest: int) -> bytes:
        """Return a member of at most so many bytes."""
        size = self._member(name).size
        if size > largest:
            raise _error(f"{name} has {size} bytes; at most {largest} are read")
        return b"".join(self.chunks(name))

    def chunks(self, name: str) -> Iterator[bytes]:
        """Read a member piece by piece, and compare its checksum at the end."""
        crc = 0
        with self.open(name) as file:
            while chunk := file.read(_CHUNK):
                crc = zlib.crc32(chunk, crc)
                yield chunk
        if crc != self._member(name).crc:
            raise _error(f"{name} is damaged")

    def open(self, name: str) -> pa.NativeFile:
        """Open a member as a file of its own, mapped into memory."""
        member = self._member(name)
        with pa.memory_map(os.fspath(self.path)) as file:
            file.seek(member.offset)
            content = file.read_buffer(member.size)
        if content.size != member.size:
            raise _error("it ends too early")
        return pa.BufferReader(content)

    def _member(self, name: str) -> Member:
        if name not in self.members:
            raise _error(f"it has no {name}")
        return self.members[name]


# --- the form --------------------------------------------------------------------------------------------------------


def _place(found: Sequence[tuple[str, int, int]]) -> list[Member]:
    """Put members (name, size, checksum) back to back, each after its header."""
    placed, at = [], 0
    for name, size, crc in found:
        at += _LOCAL.size + len(name)
        placed.append(Member(name, size, crc, at))
        at += size
    return placed


def _start(member: Member) -> int:
    return member.offset - _LOCAL.size - len(member.name)


def _local(member: Member) -> bytes:
    name, size = member.name.encode("ascii"), member.size
    return _LOCAL.pack(b"PK\3\4", _VERSION, 0, 0, 0, _DATE, member.crc, size, size, len(name), 0) + name


def _central(member: Member) -> bytes:
    name, size = member.name.encode("ascii"), member.size
    return (
        _CENTRAL.pack(
            b"PK\1\2", _UNIX | _VERSION, _VERSION, 0, 0, 0, _DATE, member.crc, size, size, len(name), 0, 0, 0, 0,
            _MODE, _start(member),
        )
        + name
    )  # fmt: skip


def _directory(members: Sequence[Member]) -> bytes:
    central = b"".join(map(_central, members))
    n = len(members)
    end = members[-1].offset + members[-1].size
    return central + _END.pack(b"PK\5\6", 0, 0, n, n, len(central), end, 0)


def _read_directory(file: BinaryIO, names: Sequence[str]) -> list[Member]:
    """Read the directory at the end, and compare all headers with those that its members must have."""
    total = file.seek(0, os.SEEK_END)
    if not _END.size <= total <= LARGEST:
        raise _error(f"it has {total} bytes")
    *_, n, length, start, _comment = _END.unpack(_read(file, total - _END.size, _END.size))
    if n > _MOST_MEMBERS or length > _MOST_MEMBERS * (_CENTRAL.size + _LONGEST_NAME):
        raise _error("its directory is too long")
    if n == 0 or start + length + _END.size != total:
        raise _error("its directory is not at its end; it was cut off or extended")
    found = _read_central(_read(file, start, length), n)
    own = [name for name, _, _ in found]
    if own != [name for name in names if name in own]:
        raise _error(f"its members are not {', '.join(names)}, each once and in this order")
    if sum(_LOCAL.size + len(name) + size for name, size, _ in found) != start:
        raise _error("its members do not lie back to back")
    members = _place(found)
    if _read(file, start, total - start) != _directory(members):
        raise _error("its directory has another form; pack nothing again")
    for member in members:
        if _read(file, _start(member), member.offset - _start(member)) != _local(member):
            raise _error("its headers contradict its directory")
    return members


def _read_central(directory: bytes, n: int) -> list[tuple[str, int, int]]:
    """Read names, sizes and checksums; the rest of the directory is compared as a whole afterwards."""
    found, at = [], 0
    for _ in range(n):
        if at + _CENTRAL.size > len(directory):
            raise _error("its directory ends too early")
        fields = _CENTRAL.unpack_from(directory, at)
        method, crc, packed, size, length = fields[4], fields[7], fields[8], fields[9], fields[10]
        if method != 0 or packed != size:
            raise _error("a member is compressed; members are stored as they are")
        if (fields[15] >> 16) & 0o170000 == 0o120000:
            raise _error("a member is a link")
        at += _CENTRAL.size
        found.append((directory[at : at + length].decode("latin-1"), size, crc))
        at += length
    return found


def _read(file: BinaryIO, start: int, size: int) -> bytes:
    file.seek(start)
    content = file.read(size)
    if len(content) != size:
        raise _error("it ends too early")
    return content


def _error(reason: str) -> BundleError:
    return BundleError(f"The file is not a bundle: {reason}.", check="archive")
