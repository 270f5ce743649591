"""Tables of the third party. Rows of portfolios are not among them: they live in files named by their digest."""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Connection,
    Float,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    insert,
    inspect,
    select,
    text,
)

from fairpremium.errors import FairPremiumError

SCHEMA_VERSION = 2

metadata = MetaData()
_name, _digest, _seq = String(64), String(64), BigInteger().with_variant(Integer, "sqlite")

meta = Table("meta", metadata, Column("name", String(64), primary_key=True), Column("value", Text, nullable=False))

keys = Table(
    "keys",
    metadata,
    Column("key_id", String(64), primary_key=True),
    Column("public_key", Text, nullable=False),
    Column("party", _name, nullable=False),
    Column("role", String(16), nullable=False),
    Column("added", Float, nullable=False),
    Column("revoked", Float),
    CheckConstraint("role IN ('operator', 'collector', 'insurer', 'auditor')"),
)

nonces = Table(
    "nonces",
    metadata,
    Column("key_id", String(64), primary_key=True),
    Column("nonce", String(64), primary_key=True),
    Column("expires", Float, nullable=False, index=True),
)

studies = Table(
    "studies",
    metadata,
    Column("id", _name, primary_key=True),
    Column("spec", Text, nullable=False),
    Column("state", String(8), nullable=False),
    Column("secret", LargeBinary, nullable=False),  # draws the second randomization and the noise of releases
    Column("created", Float, nullable=False),
)

participants = Table(
    "participants",
    metadata,
    Column("study", _name, primary_key=True),
    Column("party", _name, primary_key=True),
    Column("role", String(16), nullable=False),
    ForeignKeyConstraint(["study"], ["studies.id"]),
)

reports = Table(  # sent one by one, and not in a file yet
    "reports",
    metadata,
    Column("study", _name, primary_key=True),
    Column("collector", _name, primary_key=True),
    Column("key", LargeBinary(16), primary_key=True),
    Column("code", Integer, nullable=False),
    ForeignKeyConstraint(["study"], ["studies.id"]),
)

report_parts = Table(  # sent in batches
    "report_parts",
    metadata,
    Column("study", _name, primary_key=True),
    Column("collector", _name, primary_key=True),
    Column("n", Integer, primary_key=True),
    Column("sha256", _digest, nullable=False),
    Column("rows", Integer, nullable=False),
    ForeignKeyConstraint(["study"], ["studies.id"]),
)

report_runs = Table(  # files of reports; rows that were in none before
    "report_runs",
    metadata,
    Column("study", _name, primary_key=True),
    Column("collector", _name, primary_key=True),
    Column("sha256", _digest, primary_key=True),
    Column("rows", Integer, nullable=False),
    ForeignKeyConstraint(["study"], ["studies.id"]),
)

portfolios = Table(
    "portfolios",
    metadata,
    Column("party", _name, primary_key=True),
    Column("id", _name, primary_key=True),
    Column("study", _name, nullable=False),
    Column("spec", Text, nullable=False),
    Column("state", String(8), nullable=False),
    Column("sha256", _digest),
    Column("created", Float, nullable=False),
    ForeignKeyConstraint(["study"], ["studies.id"]),
)

portfolio_parts = Table(
    "portfolio_parts",
    metadata,
    Column("party", _name, primary_key=True),
    Column("portfolio", _name, primary_key=True),
    Column("n", Integer, primary_key=True),
    Column("sha256", _digest, nullable=False, index=True),
    Column("rows", Integer, nullable=False),
    Column("bytes", BigInteger, nullable=False),
    ForeignKeyConstraint(["party", "portfolio"], ["portfolios.party", "portfolios.id"]),
)

fits = Table(
    "fits",
    metadata,
    Column("party", _name, primary_key=True),
    Column("id", _name, primary_key=True),
    Column("study", _name, nullable=False),
    Column("portfolio", _name, nullable=False),
    Column("spec", Text, nullable=False),
    Column("state", String(10), nullable=False, index=True),
    Column("phase", String(40), nullable=False, default="waiting"),
    Column("progress", Float, nullable=False, default=0.0),
    Column("cancel", Integer, nullable=False, default=0),
    Column("attempt", Integer, nullable=False, default=0),
    Column("lease_until", Float),
    Column("lease_token", String(64)),
    Column("refusal", Text),
    Column("problem", Text),
    Column("matched", Integer),
    Column("summary", Text),  # for the operator's console
    Column("sha256", _digest),
    Column("log_seq", Integer, nullable=False),
    Column("created", Float, nullable=False),
    Column("ended", Float),
    ForeignKeyConstraint(["party", "portfolio"], ["portfolios.party", "portfolios.id"]),
    Index("fits_of_a_study", "study", "party"),
)

releases = Table(  # what left the house about the reports of a study
    "releases",
    metadata,
    Column("study", _name, primary_key=True),
    Column("party", _name, primary_key=True),
    Column("fit", _name, primary_key=True),
    Column("keys_sha256", _digest, nullable=False),  # a run with the keys that took part, and their reports
    Column("mechanism", String(16), nullable=False),
    Column("epsilon", Float),
    Column("delta", Float),
    Column("identity", _digest, nullable=False),
)

log = Table(
    "log",
    metadata,
    Column("seq", _seq, primary_key=True, autoincrement=False),
    Column("time", String(32), nullable=False),
    Column("party", _name, nullable=False, index=True),
    Column("event", String(40), nullable=False),
    Column("body", Text, nullable=False),
    Column("previous", _digest, nullable=False),
    Column("hash", _digest, nullable=False),
)

log_head = Table(
    "log_head",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("seq", BigInteger, nullable=False),
    Column("hash", _digest, nullable=False),
)

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("seq", _seq, primary_key=True, autoincrement=False),
    Column("hash", _digest, nullable=False),
    Column("key_id", String(64), nullable=False),
    Column("signature", Text, nullable=False),
)

commits = Table(  # marks of transactions, for an hour; see Store
    "commits",
    metadata,
    Column("mark", String(32), primary_key=True),
    Column("at", Float, nullable=False, index=True),
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


def prepare(connection: Connection) -> None:
    """Create the tables in an empty database; refuse one of an unknown version."""
    if connection.dialect.name == "postgresql":  # one of several starting processes creates, the others wait
        connection.execute(text("SELECT pg_advisory_xact_lock(7033247)"))
    if not inspect(connection).has_table("meta"):
        metadata.create_all(connection)
        for statement in _APPEND_ONLY[connection.dialect.name]:
            connection.exec_driver_sql(statement)
        connection.execute(insert(meta).values(name="schema_version", value=str(SCHEMA_VERSION)))
        connection.execute(insert(log_head).values(id=1, seq=0, hash=START))
        return
    found = connection.execute(select(meta.c.value).where(meta.c.name == "schema_version")).scalar()
    if found != str(SCHEMA_VERSION):
        raise UnknownSchemaError(
            f"The database has schema version {found}, but this fairpremium knows version {SCHEMA_VERSION}. "
            "Run the version that wrote it, or start with an empty folder."
        )
