"""What the commands of the third party work with: a database, a folder of files, a key, limits, and who is asking."""

import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, select

from fairpremium.documents import canonical_json
from fairpremium.parties.clock import in_service_time, service_time
from fairpremium.parties.protocol import (
    Problem,
    ReportBatch,
    Role,
    ServiceKey,
    Verified,
    check_id,
    open_batch,
    restrict_access,
    storage_key_of,
    stored_fields,
)
from fairpremium.parties.store import Database, FileStore, sqlite_url
from fairpremium.parties.store.schema import UnknownSchemaError, meta

from .keys import KeyRing
from .operations import WORKERS_FOLDER, log_event

KEY_FILE, DATABASE_FILE, FILES_FOLDER = "service.key", "fairpremium.sqlite", "files"  # in a third party's folder
RESTORED = "restored"  # in `meta`: when the database was restored from a backup


class Party(NamedTuple):
    """Who asks: a name, a role, and the signature of a request that came over HTTP."""

    name: str
    role: Role
    signed: Verified | None = None


@dataclass(frozen=True)
class ServiceLimits:
    """How much the service accepts and how long it waits."""

    json_bytes: int = 256 * 1024
    part_bytes: int = 64 * 1024**2
    parts: int = 10_000
    portfolio_rows: int = 100_000_000  # of all parts of a portfolio
    signature_window: float = 300.0
    requests_per_second: float = 5000.0
    answers_per_second: float = 20.0  # requests of an address about invitations; five times as many at once
    wait_seconds: float = 30.0
    head_bytes: int = 32 * 1024  # of a request: its address and headers
    head_seconds: float = 10.0  # that it may take to arrive
    read_seconds: float = 30.0  # that the other end may take to read on, some 64 KB at a time
    connections: int = 2000  # fewer where the system does not allow twice as many open files
    connections_per_address: int = 256  # of an IPv6 network of 64 bits likewise
    handshakes_per_address: int = 64  # connections that have not finished the TLS handshake, each with 0.08 MB
    handshakes: int = 512  # of all addresses
    handshake_seconds: float = 5.0  # that the handshake may take
    waits: int = 64  # requests of a party that wait for a fit at the same time
    lease_seconds: float = 30.0
    attempts: int = 5
    memory_rows: int = 500_000
    queued_fits: int = 30  # of an insurer
    stored_bytes: int = 100 * 1024**3  # of the portfolios and bundles of an insurer
    fit_memory: int = 16 * 1024**3  # bytes that the process of a fit may take
    fit_seconds: int = 12 * 3600  # of processor time that it may take
    step_seconds: float = 0.05  # between what others see of a fit, see `wait_for_step`
    snapshot_seconds: float = 0.5  # see `snapshot_step`

    def snapshot_step(self, sources: int, reports: int) -> float:
        """Return the seconds that a snapshot takes whatever waits for it, on a machine that is fast enough.

        - `sources`: Of reports; up to some 16,000 single ones of each wait for a file.
        - `reports`: Which may have to be written anew, where some were withdrawn; a released number.
        """
        return self.snapshot_seconds * (sources + reports / 500_000)


@dataclass(frozen=True)
class ServiceContext:
    """The database, the files, the keys and the limits of a third party.

    - `restored`: When it was restored from a backup; what was signed before is not taken any more.
    """

    database: Database
    files: FileStore
    keys: KeyRing = field(repr=False)
    limits: ServiceLimits = ServiceLimits()
    restored: float = 0.0

    @property
    def key(self) -> ServiceKey:
        """The service's key in force, as the database says now."""
        return self.keys.current()

    def now(self) -> float:
        """Return the time in seconds."""
        return self.database.clock()

    def after(self, seconds: float) -> float:
        """Return the time when so many seconds of this machine have passed."""
        return self.now() + in_service_time(seconds)

    def open_batch(self, digest: str) -> ReportBatch:
        """Open a batch of reports; the newest ones stay open."""
        return _open_batch(self.files.path(digest))

    def forget_batches(self) -> None:
        """Close the batches that stay open: a file that was deleted is on the disk until then."""
        _open_batch.cache_clear()


_open_batch = lru_cache(maxsize=256)(open_batch)


def open_context(
    folder: str | os.PathLike[str],
    *,
    database: str | None = None,
    clock: Callable[[], float] = service_time,
    limits: ServiceLimits | None = None,
) -> ServiceContext:
    """Open a folder of the third party (see `ThirdParty`); an empty one gets a key, a database and files."""
    opened = _open_parts(folder, database, clock)
    try:
        opened.keys.open(opened.database)
        query = select(meta.c.value).where(meta.c.name == RESTORED)
        restored = opened.database.read(lambda c: c.execute(query).scalar())
    except BaseException:
        opened.database.close()
        raise
    return replace(opened, limits=limits or ServiceLimits(), restored=float(restored or 0.0))


def replace_lost_key(
    folder: str | os.PathLike[str], *, database: str | None = None, clock: Callable[[], float] = service_time
) -> ServiceKey:
    """Give a third party a new key where the one in force is lost, so that its folder does not open any more."""
    opened = _open_parts(folder, database, clock)
    try:
        return opened.keys.replace_lost(opened.database)
    finally:
        opened.database.close()


def _open_parts(folder: str | os.PathLike[str], database: str | None, clock: Callable[[], float]) -> ServiceContext:
    storage_key = storage_key_of()
    home = Path(folder).absolute()  # whoever changes the working directory later changes nothing here
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not database:
        if (home / KEY_FILE).exists() and not (home / DATABASE_FILE).exists():  # the database comes before the key
            raise UnknownSchemaError(
                f"Got no address of a database, but the third party in {home.name} has no database in its folder. "
                "Name its PostgreSQL database (--database or FAIRPREMIUM_DATABASE), or restore a backup (fairpremium "
                "restore)."
            )
        (home / DATABASE_FILE).touch(mode=0o600, exist_ok=True)  # SQLite gives its other files the same mode
    _restrict(home)
    keys = KeyRing(home / KEY_FILE, storage_key)  # whose file must be readable before anything changes
    url = database_url(database) if database else sqlite_url(home / DATABASE_FILE)
    files = FileStore(home / FILES_FOLDER)
    return ServiceContext(Database(url, clock, storage_key, is_known=any(files)), files, keys)


def _restrict(home: Path) -> None:
    """Take away the rights of others to a third party's folder; if they had any, to all files below, too."""
    folders = home / FILES_FOLDER, home / WORKERS_FOLDER
    paths = home, *folders, *home.glob(f"{DATABASE_FILE}*")
    opened = [path for path in paths if path.exists() and restrict_access(path)]
    for path in opened:
        log_event("file.restricted", file=path.name)
    for folder in folders if opened else ():  # otherwise nobody else gets to them
        if sum(map(_restrict_below, os.walk(folder))):
            log_event("file.restricted", file=f"{folder.name}/*")


def _restrict_below(found: tuple[str, list[str], list[str]]) -> int:
    """Take away the rights of others to what `os.walk` has found in a folder; return to how many they had any."""
    folder, folders, files = found
    changed = 0
    for name in (*folders, *files):
        with suppress(FileNotFoundError):  # another process may delete it
            changed += restrict_access(f"{folder}/{name}")
    return changed


def database_url(address: str) -> str:
    """Return an address as SQLAlchemy wants it; ``postgresql://`` gets its driver."""
    head, sep, rest = address.partition("://")
    if not sep or head.partition("+")[0] not in ("postgresql", "postgres", "sqlite"):
        raise ValueError("Got another kind of address, but expected a database like postgresql://user@host/name.")
    if head in ("postgresql", "postgres"):
        return f"postgresql+psycopg://{rest}"
    return address


def check_name(value: str) -> None:
    """Insist on the form of an id."""
    try:
        check_id(value)
    except ValueError:
        raise Problem("bad-id") from None


def find_row(connection: Connection, query: Select[Any], *, lock: bool = False) -> Any:
    """Return the one row of a query; otherwise there is no such thing for who asks."""
    row = connection.execute(query.with_for_update() if lock else query).one_or_none()
    if row is None:
        raise Problem("not-found")
    return row


def as_json(value: Any) -> str:
    """Return the one JSON text of a message."""
    return canonical_json(stored_fields(value)).decode()
