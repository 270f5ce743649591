"""Find a data file that is not ours to ship, and make sure that it is the right one."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import pandas as pd

__all__ = ["ENVIRONMENT_VARIABLE", "DataFile"]

ENVIRONMENT_VARIABLE = "FAIRPREMIUM_DATA"


@dataclass(frozen=True)
class DataFile:
    """A file that users fetch themselves.

    Attributes
    ----------
    filename : str
        Its name in a folder.
    sha256 : str
        Of its content, with LF or with CRLF line ends, as its publisher has it; either is accepted.
    source : str
        Where to get it, as part of a sentence.
    """

    filename: str
    sha256: str
    source: str

    def find(self, path: str | os.PathLike[str] | None) -> Path:
        """Return the file: `path` itself, or the one in the folder `path`, or in the environment's folder."""
        if path is None:
            folder = os.environ.get(ENVIRONMENT_VARIABLE)
            if not folder:
                raise FileNotFoundError(
                    f"Got no path to {self.filename}. Get the file from {self.source}, then pass path=..., "
                    f"or let the environment variable {ENVIRONMENT_VARIABLE} name the folder it is in."
                )
            path = folder
        place = Path(path)
        if place.is_dir():
            place = place / self.filename
        if not place.is_file():
            raise FileNotFoundError(f"There is no file {place}. Get {self.filename} from {self.source}.")
        return place

    def read(self, content: bytes, place: object) -> pd.DataFrame:
        """Parse `content` after its hash was checked; `place` is for the message."""
        lf = content.replace(b"\r\n", b"\n")
        crlf = lf.replace(b"\n", b"\r\n")
        if self.sha256 not in {hashlib.sha256(text).hexdigest() for text in (lf, crlf)}:
            got = hashlib.sha256(content).hexdigest()
            raise ValueError(
                f"Got {place} with sha256 {got}, but expected {self.sha256} (line ends do not matter). It is "
                f"another version of {self.filename}, or damaged: get it from {self.source}, or read your "
                "file with pandas."
            )
        return pd.read_csv(BytesIO(lf))
