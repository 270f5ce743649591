"""The steps of a long fit, kept in a file: a fit that is begun again takes them from there."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

__all__ = ["FileCheckpoint"]


class FileCheckpoint(MutableMapping[str, Any]):
    """A mapping of plain data that is on disk after every change.

    Parameters
    ----------
    path : path
        Read if it is there; one that is damaged counts as empty.
    """

    def __init__(self, path: Path):
        self._path = path
        try:
            self._data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            self._data = {}

    def __getitem__(self, name: str) -> Any:
        return self._data[name]

    def __setitem__(self, name: str, value: Any) -> None:
        self._data[name] = value
        self._write()

    def __delitem__(self, name: str) -> None:
        del self._data[name]
        self._write()

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)

    def remove(self) -> None:
        """Delete the file."""
        self._path.unlink(missing_ok=True)

    def _write(self) -> None:
        draft = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        with draft.open("w", encoding="utf-8") as file:
            json.dump(self._data, file)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self._path)
