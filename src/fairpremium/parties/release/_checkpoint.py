"""The steps of a long fit, stored in a file: a fit that is started again takes them from there."""

import json
import os
from collections import UserDict
from pathlib import Path
from typing import Any

from fairpremium.parties.protocol import settle


class FileCheckpoint(UserDict[str, Any]):
    """A mapping of plain data that is on disk after every change.

    - `path`: Read if it is there; one that is damaged counts as empty.
    """

    def __init__(self, path: Path):
        self._path = path
        try:
            self.data = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            self.data = {}

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, value)
        self._write()

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        self._write()

    def remove(self) -> None:
        """Delete the file."""
        self._path.unlink(missing_ok=True)

    def _write(self) -> None:
        draft = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        draft.touch(mode=0o600)
        draft.write_text(json.dumps(self.data), encoding="utf-8")
        settle(draft, self._path)
