"""Tables of the third party. Rows of portfolios are not among them: they live in files named by their digest."""

from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy import BigInteger, Column, Float, ForeignKeyConstraint, Integer, LargeBinary, String, Text

from fairpremium.errors import FairPremiumError

SCHEMA_VERSION = 6

metadata = sa.MetaData()
_name, _digest, _seq = String(64), String(64), BigInteger().with_variant(Integer, "sqlite")

_key, _column = partial(Column, primary_key=True), partial(Column, nullable=False)


def _table(name: str, *columns: Any) -> sa.Table:
    return sa.Table(name, metadata, *columns)


meta = _table("meta", _key("name", String(64)), _column("value", Text))

keys = _table(
    "keys",
    _key("key_id", String(64)),
    _column("public_key", Text),
    _column("party", _name),
    _column("role", String(16)),
    _column("added", Float),
    Column("revoked", Float),
    sa.CheckConstraint("role IN ('operator', 'collector', 'insurer', 'auditor')"),
)

nonces = _table("nonces", _key("key_id", String(64)), _key("nonce", String(64)), _column("expires", Float, index=True))

studies = _table(
    "studies",
    _key("id", _name),
    _column("spec", Text),
    _column("state", String(8)),
    _column("secret", LargeBinary),  # draws the second randomization and the noise of releases
    _column("created", Float),
)

participants = _table(
    "participants",
    _key("study", _name, sa.ForeignKey("studies.id")),
    _key("party", _name),
    _column("role", String(16)),
)

reports = _table(  # sent one by one, and not in a file yet
    "reports",
    _key("study", _name, sa.ForeignKey("studies.id")),
    _key("collector", _name),
    _key("key", LargeBinary(16)),
    _column("code", Integer),
)

answers = _table(  # whose invitation is used, with a report (in `reports`) or without one
    "answers",
    _key("study", _name, sa.ForeignKey("studies.id")),
    _key("collector", _name),
    _key("key", LargeBinary(16)),
    _column("sha256", _digest),  # of what was sent, so that the same sent again is known
)

answer_counts = _table(  # the released number of answers
    "answer_counts",
    _key("study", _name, sa.ForeignKey("studies.id")),
    _key("collector", _name),
    _column("counted", Integer),  # answers that are in it
    _column("steps", BigInteger),  # of the grid of its noise
    _column("releases", Integer),
    _column("at", Float),
)

sent_batches = _table(  # as collectors sent them, named as in 0.1.0
    "report_parts",
    _key("study", _name, sa.ForeignKey("studies.id")),
    _key("collector", _name),
    _key("n", Integer),
    _column("sha256", _digest),
    _column("rows", Integer),
)

batch_files = _table(  # files of reports, named as in 0.1.0; rows that were in none before
    "report_runs",
    _key("study", _name, sa.ForeignKey("studies.id")),
    _key("collector", _name),
    _key("sha256", _digest),
    _column("rows", Integer),
)

withdrawals = _table(  # reports that are to go, until nothing is left of them
    "withdrawals",
    _key("study", _name, sa.ForeignKey("studies.id")),
    _key("party", _name),  # the collector that asked; empty for the operator, who withdraws what anybody sent
    _key("key", LargeBinary(16)),
    _column("removed", Integer),  # whether it is out of the reports that the next epoch begins with
    _column("epoch", Integer),  # the newest one when it was asked for, whose snapshot may have it; 0 before the first
)

epochs = _table(  # snapshots of the reports of a study
    "epochs",
    _key("study", _name, sa.ForeignKey("studies.id")),
    _key("number", Integer),
    _column("closed", Float),
    Column("files", Text),  # JSON: digests by source; none once the epoch is over and its files are gone
    Column("reports", Integer),  # as released
    _column("standard_error", Float),
)

portfolios = _table(
    "portfolios",
    _key("party", _name),
    _key("id", _name),
    _column("study", _name, sa.ForeignKey("studies.id")),
    _column("spec", Text),
    _column("state", String(8)),
    Column("sha256", _digest),
    _column("created", Float),
)

portfolio_parts = _table(
    "portfolio_parts",
    _key("party", _name),
    _key("portfolio", _name),
    _key("n", Integer),
    _column("sha256", _digest, index=True),
    _column("rows", Integer),
    _column("bytes", BigInteger),
    ForeignKeyConstraint(["party", "portfolio"], ["portfolios.party", "portfolios.id"]),
)

fits = _table(
    "fits",
    _key("party", _name),
    _key("id", _name),
    _column("study", _name),
    _column("portfolio", _name),
    _column("spec", Text),
    _column("state", String(10), index=True),
    _column("phase", String(40), default="waiting"),
    _column("progress", Float, default=0.0),
    _column("cancel", Integer, default=0),
    _column("attempt", Integer, default=0),
    Column("lease_until", Float),
    Column("lease_token", String(64)),
    Column("refusal", Text),
    Column("problem", Text),
    Column("matched", Integer),
    Column("summary", Text),  # for the operator's console
    Column("sha256", _digest),
    _column("log_seq", Integer),
    _column("created", Float),
    Column("ended", Float),
    _column("epoch", Integer, server_default="0"),
    Column("erased", Float),  # when its bundle was
    ForeignKeyConstraint(["party", "portfolio"], ["portfolios.party", "portfolios.id"]),
    sa.Index("fits_of_a_study", "study", "party"),
)

releases = _table(  # what was released about the reports of a study
    "releases",
    _key("study", _name),
    _key("party", _name),
    _key("fit", _name),
    _column("keys_sha256", _digest),  # a file with keyed hashes of the keys of its rows
    _column("mechanism", String(16)),
    Column("epsilon", Float),
    Column("delta", Float),
    _column("identity", _digest),
    Column("attributes", Text),  # names in JSON, of those of several whose reports were used; none where there is one
    _column("epoch", Integer, server_default="0"),  # 0 for what was released before there were epochs
)

log = _table(
    "log",
    _key("seq", _seq, autoincrement=False),
    _column("time", String(32)),
    _column("party", _name, index=True),
    _column("event", String(40)),
    _column("body", Text),
    _column("previous", _digest),
    _column("hash", _digest),
)

log_head = _table(
    "log_head",
    _key("id", Integer, autoincrement=False),
    _column("seq", BigInteger),
    _column("hash", _digest),
)

checkpoints = _table(
    "checkpoints",
    _key("seq", _seq, autoincrement=False),
    _column("hash", _digest),
    _column("key_id", String(64)),
    _column("signature", Text),
)

commits = _table(  # marks of transactions, for an hour; see `Database`
    "commits",
    _key("mark", String(32)),
    _column("at", Float, index=True),
)

START = "0" * 64  # what the first entry of the log follows

_APPEND_ONLY = {
    "sqlite": [
        f"CREATE TRIGGER log_no_{verb} BEFORE {verb} ON log BEGIN SELECT RAISE(ABORT, 'the log is append-only'); END"
        for verb in ("UPDATE", "DELETE")
    ],
    "postgresql": [
        "CREATE FUNCTION log_append_only() RETURNS trigger AS "
        "'BEGIN RAISE EXCEPTION ''the log is append-only''; END' LANGUAGE plpgsql",
        "CREATE TRIGGER log_no_change BEFORE UPDATE OR DELETE ON log FOR EACH ROW EXECUTE FUNCTION log_append_only()",
        "CREATE TRIGGER log_no_truncate BEFORE TRUNCATE ON log EXECUTE FUNCTION log_append_only()",
    ],
}


class UnknownSchemaError(FairPremiumError):
    """A database was written by another version of fairpremium."""


def _add_answers(connection: sa.Connection) -> None:
    """Let people be asked on a page."""
    metadata.create_all(connection, tables=[answers, answer_counts])


def _add_attributes(connection: sa.Connection) -> None:
    """Let a study have several attributes."""
    connection.exec_driver_sql("ALTER TABLE releases ADD COLUMN attributes TEXT")


def _add_epochs(connection: sa.Connection) -> None:
    """Let a study release from snapshots of its reports."""
    metadata.create_all(connection, tables=[epochs])
    for table in ("fits", "releases"):
        connection.exec_driver_sql(f"ALTER TABLE {table} ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0")


def _add_erasure(connection: sa.Connection) -> None:
    """Let reports be withdrawn, and bundles be erased: those of portfolios that were erased before are."""
    metadata.create_all(connection, tables=[withdrawals])
    connection.exec_driver_sql("ALTER TABLE fits ADD COLUMN erased FLOAT")
    same = (portfolios.c.party == fits.c.party) & (portfolios.c.id == fits.c.portfolio)
    is_gone = sa.select(portfolios.c.id).where(same, portfolios.c.state == "deleted").exists()
    connection.execute(sa.update(fits).where(is_gone, fits.c.sha256.is_not(None)).values(erased=fits.c.ended))


_MIGRATIONS = {2: _add_answers, 3: _add_attributes, 4: _add_epochs, 5: _add_erasure}  # from each version to the next


def prepare_tables(connection: sa.Connection) -> None:
    """Create the tables in an empty database, migrate an older one; refuse one of an unknown version."""
    if connection.dialect.name == "postgresql":  # one of several starting processes creates, the others wait
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(7033247)"))
    if not sa.inspect(connection).has_table("meta"):
        metadata.create_all(connection)
        for statement in _APPEND_ONLY[connection.dialect.name]:
            connection.exec_driver_sql(statement)
        connection.execute(sa.insert(meta).values(name="schema_version", value=str(SCHEMA_VERSION)))
        connection.execute(sa.insert(log_head).values(id=1, seq=0, hash=START))
        return
    found = connection.execute(sa.select(meta.c.value).where(meta.c.name == "schema_version")).scalar()
    versions = {str(version): version for version in (*_MIGRATIONS, SCHEMA_VERSION)}
    if found not in versions:
        raise UnknownSchemaError(
            f"Got a database with schema version {found}, but expected version {SCHEMA_VERSION}. "
            "Run the version that wrote it, or start with an empty folder."
        )
    if found != str(SCHEMA_VERSION):
        for version in range(versions[found], SCHEMA_VERSION):
            _MIGRATIONS[version](connection)
        connection.execute(sa.update(meta).where(meta.c.name == "schema_version").values(value=str(SCHEMA_VERSION)))
