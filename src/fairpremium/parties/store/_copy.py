"""Copies of a whole database: into a SQLite file, and from such a file into an empty database.

A copy shows one moment, while others go on writing. Secrets are copied as they are stored: encrypted, where they are.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from fairpremium.errors import FairPremiumError
from fairpremium.parties.faults import point
from fairpremium.parties.protocol import Problem

from ._database import connect, is_full, sqlite_url
from ._files import full_disk_as_problem
from .schema import SCHEMA_VERSION, SealedBinary, log_head, meta, metadata, prepare_tables

_AT_ONCE = 5000  # rows


class DatabaseCopyError(FairPremiumError):
    """A database cannot be copied, or not to this place."""


def dump_database(url: str, path: Path) -> int:
    """Copy a database into a new SQLite file, and return its schema version.

    - `url`: A SQLite file of any version, which is copied as it is; or PostgreSQL with the tables of this version.
    """
    engine = connect(url)
    path.touch(mode=0o600, exist_ok=False)
    try:
        with _full_as_problem():
            if engine.dialect.name == "sqlite":
                _vacuum_into(engine, path)
            else:
                snapshot = {"isolation_level": "REPEATABLE READ", "reads_only": True}
                with engine.connect().execution_options(**snapshot) as source, source.begin():
                    _refuse_older(source)
                    _fill(source, sqlite_url(path))
            point("copy.database")
    finally:
        engine.dispose()
    return read_schema_version(path)


def load_database(path: Path, url: str) -> None:
    """Copy a SQLite file with the tables of this version into an empty database, in one transaction."""
    engine = connect(sqlite_url(path))
    try:
        with _full_as_problem(), engine.connect().execution_options(reads_only=True) as source, source.begin():
            _fill(source, url)
            point("copy.loaded", writes=False)
    finally:
        engine.dispose()


def check_empty(url: str) -> None:
    """Refuse a database that has tables."""
    engine = connect(url)
    try:
        with engine.connect().execution_options(reads_only=True) as connection:
            _refuse_tables(connection)
    finally:
        engine.dispose()


def read_schema_version(path: Path) -> int:
    """Return the schema version of a SQLite file."""
    with sqlite3.connect(path) as connection:
        try:
            found = connection.execute("SELECT value FROM meta WHERE name = 'schema_version'").fetchone()
        except sqlite3.DatabaseError:
            found = None
    connection.close()
    if found is None:
        raise DatabaseCopyError(f"Got {path.name}, but expected a database of a third party.")
    return int(found[0])


def write_marks(path: Path, marks: dict[str, str]) -> None:
    """Write marks into `meta` of a SQLite file of any version, and nothing else."""
    with sqlite3.connect(path) as connection:
        connection.executemany("INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)", marks.items())
    connection.close()


def _vacuum_into(engine: sa.Engine, path: Path) -> None:
    """Copy within SQLite: one moment, and nothing of what was deleted."""
    raw = engine.raw_connection()
    try:
        raw.cursor().execute("VACUUM INTO ?", (str(path),))
    finally:
        raw.close()


def _fill(source: sa.Connection, url: str) -> None:
    """Make all tables in an empty database, with the rows of another one."""
    engine = connect(url)
    try:
        with engine.begin() as target:
            _refuse_tables(target)
            prepare_tables(target)
            for table in (meta, log_head):  # which have a first row
                target.execute(sa.delete(table))
            for table in metadata.sorted_tables:
                plain = _plain(table)
                rows = source.execute(sa.select(plain).execution_options(yield_per=_AT_ONCE))
                for some in rows.partitions():
                    target.execute(sa.insert(plain), [dict(row._mapping) for row in some])
                point("copy.table")
    finally:
        engine.dispose()


def _plain(table: sa.Table) -> sa.TableClause:
    """Return a table whose secrets are bytes, neither opened nor sealed, and that has no defaults."""
    types = {c.name: sa.LargeBinary() if isinstance(c.type, SealedBinary) else c.type for c in table.columns}
    return sa.table(table.name, *(sa.column(name, kind) for name, kind in types.items()))


def _refuse_tables(connection: sa.Connection) -> None:
    if sa.inspect(connection).get_table_names():
        raise DatabaseCopyError("Got a database that has tables, but expected an empty one. Create another one.")


def _refuse_older(connection: sa.Connection) -> None:
    found = None
    if sa.inspect(connection).has_table("meta"):
        found = connection.execute(sa.select(meta.c.value).where(meta.c.name == "schema_version")).scalar()
    if found != str(SCHEMA_VERSION):
        raise DatabaseCopyError(
            f"Got a database with schema version {found}, but expected version {SCHEMA_VERSION}. Run the command of "
            "the version that wrote it; of PostgreSQL with 0.1.0, stop the service and use pg_dump."
        )


@contextmanager
def _full_as_problem() -> Iterator[None]:
    try:
        with full_disk_as_problem():
            yield
    except (DBAPIError, sqlite3.OperationalError) as error:
        if is_full(error) if isinstance(error, DBAPIError) else "disk is full" in str(error):
            raise Problem("storage-full") from None
        raise
