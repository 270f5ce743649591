"""What a fit writes beside the store while it runs: a folder with rows, and its steps.

An attempt that was killed leaves them behind. The next attempt uses the steps and removes the folder.
"""

import hashlib
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Connection, select

from fairpremium.parties.protocol import ENDED
from fairpremium.parties.store.schema import fits, releases

from .._context import ServiceContext


def workspace_prefix(party: str, fit: str) -> str:
    """Return how the names of the folders of a fit begin."""
    return f".fit-{hashlib.sha256(f'{party}/{fit}'.encode()).hexdigest()}-"


def steps_path(context: ServiceContext, identity: str) -> Path:
    """Return where the steps of a fit are."""
    return context.files.folder / f".fit-{identity}.json"


def drafts_of(connection: Connection, *which: ColumnElement[bool]) -> list[str]:
    """Return how the names of what fits have left behind begin, of those fits that have ended.

    - `which`: Conditions on `fits`.
    """
    query = select(fits.c.party, fits.c.id, releases.c.identity).where(fits.c.state.in_(ENDED), *which)
    same = (releases.c.party == fits.c.party) & (releases.c.fit == fits.c.id)
    rows = connection.execute(query.join_from(fits, releases, same, isouter=True)).all()
    return [name for row in rows for name in _names(row)]


def _names(row: Any) -> Iterable[str]:
    yield workspace_prefix(row.party, row.id)
    if row.identity is not None:
        yield f".fit-{row.identity}.json"


def delete_drafts(context: ServiceContext, prefixes: Iterable[str]) -> None:
    """Delete what fits have left behind."""
    starts = tuple(prefixes)
    for path in context.files.folder.glob(".fit-*"):
        if path.name.startswith(starts):
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
