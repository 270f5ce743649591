"""Databases as earlier versions left them: the tables of today, taken back."""

from __future__ import annotations

import hashlib
import json

from sqlalchemy import select, text

from fairpremium.documents import canonical_json
from fairpremium.parties.store.schema import (
    accounts,
    answer_counts,
    answers,
    epochs,
    log,
    logins,
    metadata,
    service_keys,
    withdrawals,
)

START = "0" * 64


def unlock_log(connection):
    """Remove the triggers, as somebody with the database in hands can."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("ALTER TABLE log DISABLE TRIGGER USER"))
        return
    for name in ("UPDATE", "DELETE"):
        connection.execute(text(f"DROP TRIGGER log_no_{name}"))


def downgrade(connection, version):
    """Take a database back to a schema version; its log gets the chain of hashes that it would have had."""
    metadata.drop_all(connection, tables=[accounts, logins, service_keys])
    run = connection.exec_driver_sql
    run("ALTER TABLE keys RENAME COLUMN ends TO revoked")
    _chain(connection)
    for column in ("salt", "taken"):
        run(f"ALTER TABLE epochs DROP COLUMN {column}")
    if version <= 5:
        metadata.drop_all(connection, tables=[withdrawals])
        run("ALTER TABLE fits DROP COLUMN erased")
    if version <= 4:
        metadata.drop_all(connection, tables=[epochs])
        for table in ("fits", "releases"):
            run(f"ALTER TABLE {table} DROP COLUMN epoch")
    if version <= 3:
        run("ALTER TABLE releases DROP COLUMN attributes")
    if version <= 2:
        metadata.drop_all(connection, tables=[answers, answer_counts])
    run(f"UPDATE meta SET value = '{version}' WHERE name = 'schema_version'")


def _chain(connection):
    run, previous = connection.exec_driver_sql, START
    rows = connection.execute(select(log).order_by(log.c.seq)).all()
    for table, column in (("log", "previous"), ("log", "hash"), ("log_head", "hash")):
        run(f"ALTER TABLE {table} ADD COLUMN {column} VARCHAR(64) DEFAULT '{START}' NOT NULL")
    unlock_log(connection)
    for row in rows:
        entry = {"seq": row.seq, "time": row.time, "party": row.party, "event": row.event}
        digest = hashlib.sha256(
            canonical_json({**entry, "body": json.loads(row.body), "previous": previous})
        ).hexdigest()
        run(f"UPDATE log SET previous = '{previous}', hash = '{digest}' WHERE seq = {row.seq}")
        previous = digest
    run(f"UPDATE log_head SET hash = '{previous}'")
    for table, column in (("log", "salt"), ("log", "nodes"), ("log_head", "peaks"), ("checkpoints", "form")):
        run(f"ALTER TABLE {table} DROP COLUMN {column}")
    if connection.dialect.name == "postgresql":
        run("ALTER TABLE log ENABLE TRIGGER USER")
        return
    for verb in ("UPDATE", "DELETE"):
        run(
            f"CREATE TRIGGER log_no_{verb} BEFORE {verb} ON log "
            "BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END"
        )
