"""Tables of the third party. Rows of portfolios are not among them: they live in files named by their digest."""

import hmac
from functools import partial
from typing import Any

import sqlalchemy as sa
from sqlalchemy import BigInteger, Column, Float, ForeignKeyConstraint, Integer, LargeBinary, String, Text

from fairpremium.errors import FairPremiumError
from fairpremium.parties.faults import point
from fairpremium.parties.protocol import StorageKey, open_stored

SCHEMA_VERSION = 11

SCRUB = "scrub"  # in `meta`: what was deleted is to be removed from the disk, too

metadata = sa.MetaData()
_name, _digest, _seq = String(64), String(64), BigInteger().with_variant(Integer, "sqlite")

_PURPOSE = b"secret of a study"  # of what the storage key encrypts
_key, _column = partial(Column, primary_key=True), partial(Column, nullable=False)


class SealedBinary(sa.TypeDecorator[bytes]):
    """Bytes that are encrypted with the storage key of the database (see `Database`), where it has one."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: bytes | None, dialect: sa.Dialect) -> bytes | None:
        """Encrypt."""
        key = _storage_key_of(dialect)
        return value if key is None or value is None else key.seal(value, _PURPOSE)

    def process_result_value(self, value: Any, dialect: sa.Dialect) -> bytes | None:
        """Decrypt; what an earlier version stored is plain."""
        return None if value is None else open_stored(_storage_key_of(dialect), bytes(value), _PURPOSE)


def _storage_key_of(dialect: sa.Dialect) -> StorageKey | None:
    return getattr(dialect, "fairpremium_storage_key", None)


def set_storage_key(dialect: sa.Dialect, key: StorageKey | None) -> None:
    """Say which key encrypts what an engine stores; each engine has a dialect of its own."""
    dialect.fairpremium_storage_key = key  # type: ignore[attr-defined]


def find_plain_secrets(connection: sa.Connection) -> dict[str, bytes]:
    """Return the secrets of studies that are plain or encrypted with a former storage key, where there is one now.

    Raises `StorageKeyError` if some are encrypted with a key that is not there.
    """
    key = _storage_key_of(connection.dialect)
    stored = connection.execute(sa.select(studies.c.id, sa.type_coerce(studies.c.secret, LargeBinary))).all()
    opened = {name: open_stored(key, bytes(found), _PURPOSE) for name, found in stored}
    return {name: opened[name] for name, found in stored if key is not None and not key.is_current(bytes(found))}


def encrypt_secrets(connection: sa.Connection) -> None:
    """Encrypt the secrets of studies that `find_plain_secrets` finds."""
    connection.execute(sa.select(studies.c.id).with_for_update()).all()
    for name, secret in find_plain_secrets(connection).items():
        connection.execute(sa.update(studies).where(studies.c.id == name).values(secret=secret))


def keyed_digest(secret: bytes, sha256: str) -> str:
    """Return what is stored of the digest of a batch of reports.

    The digest itself would stay when a report of the batch is withdrawn, and tell whoever knows the other rows what
    that report was.

    - `secret`: That of the study.
    """
    return hmac.digest(secret, b"fairpremium batch " + sha256.encode(), "sha256").hex()


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
    Column("ends", Float),  # from then on it is refused
    sa.CheckConstraint("role IN ('operator', 'collector', 'insurer', 'auditor')"),
)

nonces = _table("nonces", _key("key_id", String(64)), _key("nonce", String(64)), _column("expires", Float, index=True))

studies = _table(
    "studies",
    _key("id", _name),
    _column("spec", Text),
    _column("state", String(8)),
    _column("secret", SealedBinary),  # draws the second randomization and the noise of releases
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
    _column("sha256", _digest),  # see `keyed_digest`
    _column("rows", Integer),
)

batch_files = _table(  # files of reports, named as in 0.1.0; rows, summed over those of a collector: its reports
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
    _column("closed", Float),  # when it began
    Column("taken", Float),  # when its snapshot was taken; none before
    Column("files", Text),  # JSON: digests by source; none once the epoch is over and its files are gone
    Column("reports", Integer),  # as released
    _column("standard_error", Float),
    _column("counted", BigInteger),  # of the newest: reports less those deleted since; the next number starts here
    _column("steps", BigInteger),  # the released number, in units of its noise
    Column("salt", LargeBinary),  # random; all draws of the epoch depend on it. None in those of earlier versions
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
    _column("salt", LargeBinary, server_default=""),
    _column("nodes", LargeBinary, server_default=""),  # hashes of the subtrees that end here, 32 bytes each, leaf first
)

log_head = _table(
    "log_head",
    _key("id", Integer, autoincrement=False),
    _column("seq", BigInteger),
    _column("peaks", LargeBinary, server_default=""),  # see `append_leaf`
)

checkpoints = _table(
    "checkpoints",
    _key("seq", _seq, autoincrement=False),
    _column("hash", _digest),
    _column("key_id", String(64)),
    _column("signature", Text),
    _column("form", Integer, server_default="1"),  # 2: of the tree; 1: of the chain of hashes of 0.1.0
)

service_keys = _table(  # the service's own keys; the last one is in force
    "service_keys",
    _key("n", Integer, autoincrement=False),
    _column("public_key", Text),
    Column("succession", Text),  # JSON; none of the first key
)

accounts = _table(  # of people who open the console; a row stays, so that a name always means the same person
    "accounts",
    _key("name", _name),
    _column("role", String(16)),
    _column("password_hash", Text),
    _column("created", Float),
    Column("disabled", Float),
    sa.CheckConstraint("role IN ('operator', 'auditor')"),
)

logins = _table(  # to the console; deleted when their time is over
    "logins",
    _key("id", String(16)),
    _column("token_sha256", _digest, unique=True),  # of what is in the cookie
    _column("account", _name, sa.ForeignKey("accounts.name")),
    _column("address", String(64)),  # of the client: by it a person recognizes a login that is not hers
    _column("created", Float),
    _column("seen", Float),
    _column("expires", Float, index=True),
    Column("ended", Float),
)

commits = _table(  # marks of transactions, for an hour; see `Database`
    "commits",
    _key("mark", String(32)),
    _column("at", Float, index=True),
)

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


_ALLOW_CHANGE = {
    "sqlite": ["DROP TRIGGER log_no_UPDATE", "DROP TRIGGER log_no_DELETE"],
    "postgresql": ["ALTER TABLE log DISABLE TRIGGER USER"],
}
_REFUSE_CHANGE = {"sqlite": _APPEND_ONLY["sqlite"], "postgresql": ["ALTER TABLE log ENABLE TRIGGER USER"]}


def mark_for_scrub(connection: sa.Connection) -> None:
    """Say that the database has deleted something that must not stay on disk."""
    connection.exec_driver_sql(f"INSERT INTO meta (name, value) VALUES ('{SCRUB}', '1') ON CONFLICT DO NOTHING")


class UnknownSchemaError(FairPremiumError):
    """A database was written by another version of fairpremium, or is not that of its files."""


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


def _add_log_tree(connection: sa.Connection) -> None:
    """Put a tree of hashes (RFC 6962) over the log in the place of the chain of hashes, which stays verifiable."""
    from ._tree_migration import replace_chain

    for table, column, kind in (("log", "salt", "BLOB"), ("log", "nodes", "BLOB"), ("log_head", "peaks", "BLOB")):
        kind = "BYTEA" if connection.dialect.name == "postgresql" else kind
        connection.exec_driver_sql(f"ALTER TABLE {table} ADD COLUMN {column} {kind} DEFAULT '' NOT NULL")
    for statement in _ALLOW_CHANGE[connection.dialect.name]:
        connection.exec_driver_sql(statement)
    replace_chain(connection)
    for statement in _REFUSE_CHANGE[connection.dialect.name]:
        connection.exec_driver_sql(statement)
    for table, column in (("log", "previous"), ("log", "hash"), ("log_head", "hash")):
        connection.exec_driver_sql(f"ALTER TABLE {table} DROP COLUMN {column}")
    connection.exec_driver_sql("ALTER TABLE checkpoints ADD COLUMN form INTEGER DEFAULT 1 NOT NULL")


def _add_service_keys(connection: sa.Connection) -> None:
    """Let the service have several keys, one after the other, and let keys of parties end later."""
    metadata.create_all(connection, tables=[service_keys])
    connection.exec_driver_sql("ALTER TABLE keys RENAME COLUMN revoked TO ends")


def _add_accounts(connection: sa.Connection) -> None:
    """Let people have accounts for the console."""
    metadata.create_all(connection, tables=[accounts, logins])


def _add_salts(connection: sa.Connection) -> None:
    """Let epochs have random bytes that their draws depend on, and delete what is left of erased bundles."""
    if "salt" not in {column["name"] for column in sa.inspect(connection).get_columns("epochs")}:
        kind = "BYTEA" if connection.dialect.name == "postgresql" else "BLOB"
        connection.exec_driver_sql(f"ALTER TABLE epochs ADD COLUMN salt {kind}")
    is_left = fits.c.summary.is_not(None) | fits.c.matched.is_not(None)
    gone = sa.update(fits).where(fits.c.erased.is_not(None), is_left).values(summary=None, matched=None)
    if connection.execute(gone).rowcount:
        mark_for_scrub(connection)


def _add_snapshots(connection: sa.Connection) -> None:
    """Let snapshots be taken after their epochs have begun, and let only the study's secret tell what a batch was."""
    if "taken" not in {column["name"] for column in sa.inspect(connection).get_columns("epochs")}:
        connection.exec_driver_sql("ALTER TABLE epochs ADD COLUMN taken FLOAT")
    connection.execute(sa.update(epochs).values(taken=epochs.c.closed))
    of_study = {row.id: row.secret for row in connection.execute(sa.select(studies.c.id, studies.c.secret))}
    batches = connection.execute(sa.select(sent_batches)).all()
    for row in batches:
        this = [sent_batches.c[name] == getattr(row, name) for name in ("study", "collector", "n")]
        keyed = keyed_digest(bytes(of_study[row.study]), row.sha256)
        connection.execute(sa.update(sent_batches).where(*this).values(sha256=keyed))
    if batches:
        mark_for_scrub(connection)


_MIGRATIONS = {  # from each version to the next
    2: _add_answers,
    3: _add_attributes,
    4: _add_epochs,
    5: _add_erasure,
    6: _add_log_tree,
    7: _add_service_keys,
    8: _add_accounts,
    9: _add_salts,
    10: _add_snapshots,
}


def prepare_tables(connection: sa.Connection, is_known: bool = False) -> None:
    """Create the tables in an empty database, migrate an older one; refuse one of an unknown version.

    - `is_known`: There are files of this database, so that an empty one is another one, or has lost its content.
    """
    if connection.dialect.name == "postgresql":  # one of several starting processes creates, the others wait
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(7033247)"))
    if not sa.inspect(connection).has_table("meta"):
        if is_known:
            raise UnknownSchemaError(
                "Got an empty database, but expected the one to which the files of this folder belong. "
                "Name its database (--database), or restore a backup (fairpremium restore)."
            )
        metadata.create_all(connection)
        for statement in _APPEND_ONLY[connection.dialect.name]:
            connection.exec_driver_sql(statement)
        connection.execute(sa.insert(meta).values(name="schema_version", value=str(SCHEMA_VERSION)))
        connection.execute(sa.insert(log_head).values(id=1, seq=0, peaks=b""))
        return
    found = connection.execute(sa.select(meta.c.value).where(meta.c.name == "schema_version")).scalar()
    versions = {str(version): version for version in (*_MIGRATIONS, SCHEMA_VERSION)}
    if found not in versions:
        raise UnknownSchemaError(
            f"Got a database with schema version {found}, but expected version {SCHEMA_VERSION}. "
            "Run the version that wrote it, or restore a backup from before the upgrade."
        )
    if found != str(SCHEMA_VERSION):
        for version in range(versions[found], SCHEMA_VERSION):
            _MIGRATIONS[version](connection)
            point("schema.migrated")
        connection.execute(sa.update(meta).where(meta.c.name == "schema_version").values(value=str(SCHEMA_VERSION)))
