"""What the tests of backups share."""

from __future__ import annotations

import pytest

from helpers.places import Place


@pytest.fixture
def fresh(base, tmp_path, postgres, request):
    """Give a place for a restore, with an empty database of the same kind."""
    made = []

    def make(name="restored"):
        if base.database is None:
            return Place(tmp_path / name)
        database = f"{base.database.rpartition('/')[2]}_{name.replace('-', '_')}"
        made.append(database)
        postgres.execute(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")
        postgres.execute(f"CREATE DATABASE {database} TEMPLATE template0")
        return Place(tmp_path / name, postgres.url(database), postgres)

    yield make
    for database in made:
        postgres.execute(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)")
