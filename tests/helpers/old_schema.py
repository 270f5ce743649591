"""Databases as earlier versions of the schema had them, made from a new one."""

from __future__ import annotations

from typing import Any

from fairpremium.parties.store.schema import SCHEMA_VERSION, answer_counts, answers, epochs, metadata, withdrawals

# What each version added: tables, and columns of others.
ADDED: dict[int, tuple[tuple[Any, ...], tuple[tuple[str, str], ...]]] = {
    3: ((answers, answer_counts), ()),
    4: ((), (("releases", "attributes"),)),
    5: ((epochs,), (("fits", "epoch"), ("releases", "epoch"))),
    6: ((withdrawals,), (("fits", "erased"),)),
}


def make_old(connection: Any, version: int) -> None:
    """Take away what versions after one have added."""
    assert max(ADDED) == SCHEMA_VERSION
    for added in range(SCHEMA_VERSION, version, -1):
        tables, columns = ADDED[added]
        metadata.drop_all(connection, tables=list(tables))
        for table, column in columns:
            connection.exec_driver_sql(f"ALTER TABLE {table} DROP COLUMN {column}")
    connection.exec_driver_sql(f"UPDATE meta SET value = '{version}' WHERE name = 'schema_version'")
