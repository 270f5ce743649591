"""Writes tables of PostgreSQL anew: nothing of what was deleted stays in their files or in the planner's statistics.

Two places keep a deleted value beyond a plain ``VACUUM FULL``:

- Statistics. ``ANALYZE``, which the server runs by itself, samples up to a hundred values of each column.
- Rows that a transaction may still look at, because it began before they were deleted: they are copied along.
"""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import Column, Connection, LargeBinary, Table, Text
from sqlalchemy.types import TypeDecorator


def rewrite_tables(connection: Connection, *tables: Table) -> bool:
    """Write tables anew, and say whether nothing is left of deleted rows; False if a transaction still sees some.

    - `connection`: Commits each statement. Its user owns the tables and the database.
    """
    for table in tables:
        _forget_statistics(connection, table)
    left = sum(_vacuum(connection, name) for name in (*(table.name for table in tables), "pg_statistic"))
    return not left


def _forget_statistics(connection: Connection, table: Table) -> None:
    """Drop what the planner has of the values of keys, digests and texts, and let it sample none from now on."""
    for column in filter(_is_told, table.columns):
        kind = column.type.compile(connection.dialect)
        change = f"ALTER COLUMN {column.name}"  # to a type that it has: its statistics go, its rows stay
        connection.exec_driver_sql(f"ALTER TABLE {table.name} {change} SET STATISTICS 0, {change} TYPE {kind}")


def _is_told(column: Column[Any]) -> bool:
    return column.name == "sha256" or isinstance(column.type, LargeBinary | Text | TypeDecorator)


def _vacuum(connection: Connection, table: str) -> int:
    """Write a table anew, and return how many deleted rows are still in it."""
    left = []

    def read(notice: Any) -> None:
        counted = re.search(r"\d+", notice.message_detail or "")  # "3 dead row versions cannot be removed yet"
        if counted:
            left.append(int(counted.group()))

    raw: Any = connection.connection.dbapi_connection
    raw.add_notice_handler(read)
    try:
        connection.exec_driver_sql(f"VACUUM (FULL, VERBOSE) {table}")
    finally:
        raw.remove_notice_handler(read)
    return sum(left)
