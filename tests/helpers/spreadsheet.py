"""LibreOffice for tests: it calculates the formulas of workbooks that were written elsewhere."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest


def find_soffice() -> str:
    """The path of LibreOffice; the test is skipped where there is none."""
    named = os.environ.get("FAIRPREMIUM_SOFFICE")
    found = next(filter(None, map(shutil.which, filter(None, [named, "soffice", "libreoffice"]))), None)
    if found is None:
        pytest.skip("no LibreOffice: apt-get install libreoffice-calc, or name another one in FAIRPREMIUM_SOFFICE")
    return found


def recalculate(books: Sequence[Path], folder: Path) -> list[Path]:
    """Calculate workbooks whose cells hold no values and return them with values, from one start of the program."""
    program, profile = find_soffice(), (folder / "profile").absolute().as_uri()
    done = folder / "calculated"
    command = [program, f"-env:UserInstallation={profile}", "--headless", "--convert-to", "xlsx", "--outdir", done]
    subprocess.run([*command, *books], check=True, capture_output=True, timeout=240)
    return [done / book.name for book in books]
