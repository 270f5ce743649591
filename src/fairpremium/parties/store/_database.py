"""The database: short transactions, one writer at a time where it matters, many commands in one commit."""

import errno
import queue
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection, Engine, Table, create_engine, event
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import DBAPIError, OperationalError

from fairpremium.parties.clock import service_time
from fairpremium.parties.faults import point
from fairpremium.parties.protocol import Problem, StorageKey

from ._files import full_disk_as_problem
from ._rewrite import rewrite_tables
from .log import lock_log
from .schema import commits, encrypt_secrets, find_plain_secrets, prepare_tables, set_storage_key, studies

T = TypeVar("T")

_BUSY_MS = 30_000
_ATTEMPTS = 8
_BATCH = 200
_TOLD = "told after the commit"
_IDLE = "idle_in_transaction_session_timeout=300s"  # a process that is frozen must not hold its locks for ever


class Database:
    """A SQLite file or a PostgreSQL database with the tables of the third party.

    - `url`: ``sqlite:///path`` or ``postgresql+psycopg://...``.
    - `clock`: Returns the time in seconds; tests hand in one of their own.
    - `storage_key`: Encrypts the secrets of studies; those that are plain or encrypted with a former key are encrypted
      with it now. Without the key with which they are encrypted, a database does not open.
    - `is_known`: There are files of the database; an empty one is refused.

    Notes
    -----
    On SQLite every writing transaction begins with ``BEGIN IMMEDIATE``, so that a transaction never has to give up
    halfway because another one wrote first. A command is a function of a connection; it may be run again when the
    database breaks the connection, so it must store nothing outside of the transaction.

    A connection to PostgreSQL may break between a commit and its answer. Every transaction there leaves a mark, which a
    second try finds if the first one was committed after all: then nothing is done twice.
    """

    def __init__(
        self,
        url: str,
        clock: Callable[[], float] = service_time,
        storage_key: StorageKey | None = None,
        *,
        is_known: bool = False,
    ):
        self.url = url
        self.clock = clock
        self._engine = connect(url)
        set_storage_key(self._engine.dialect, storage_key)
        try:
            self._run(partial(prepare_tables, is_known=is_known), "")  # makes the place for marks, too
            self._encrypt_secrets()
        except BaseException:
            self.close()
            raise

    def _encrypt_secrets(self) -> None:
        """Encrypt what is plain; what it replaces is overwritten, as far as the database allows."""
        if not self.read(find_plain_secrets):
            return
        if self.dialect == "postgresql":
            self.write(encrypt_secrets)
            with self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                rewrite_tables(connection, studies)
            return

        def overwriting(connection: Connection) -> None:
            connection.exec_driver_sql("PRAGMA secure_delete = ON")
            encrypt_secrets(connection)

        self.write(overwriting)
        with self._engine.connect().execution_options(reads_only=True) as connection:
            raw: Any = connection.connection.dbapi_connection
            raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    @property
    def dialect(self) -> str:
        """Name of the database system."""
        return self._engine.dialect.name

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a transaction that reads: all of it sees the database at one moment."""
        options: dict[str, Any] = {"reads_only": True}
        if self.dialect == "postgresql":
            options["isolation_level"] = "REPEATABLE READ"
        with self._engine.connect().execution_options(**options) as connection, connection.begin():
            yield connection

    def read(self, command: Callable[[Connection], T]) -> T:
        """Run a command that only reads."""

        def once() -> T:
            with self.reading() as connection:
                return command(connection)

        return _again(once)

    def write(self, command: Callable[[Connection], T]) -> T:
        """Run a command in a transaction of its own."""
        return self._run(command, "" if self.dialect == "sqlite" else secrets.token_hex(16))

    def _run(self, command: Callable[[Connection], T], mark: str) -> T:
        results: list[T] = []
        told: list[Callable[[], None]] = []

        def once() -> T:
            with self._engine.begin() as connection:
                if not mark or self._leave_mark(connection, mark):
                    told.clear()
                    connection.info[_TOLD] = told
                    results.append(command(connection))
                    point("database.before_commit")
            point("database.after_commit", writes=False)
            for tell in told:
                tell()
            return results[-1]

        return _again(once)

    def _leave_mark(self, connection: Connection, mark: str) -> bool:
        """Return whether a transaction is new. If a try before it is still being committed, this waits for its end."""
        row = insert(commits).values(mark=mark, at=self.clock()).on_conflict_do_nothing()
        return connection.execute(row.returning(commits.c.mark)).first() is not None

    def write_all(self, commands: list[Callable[[Connection], Any]]) -> list[Any]:
        """Run commands in one transaction; what one of them raises is its result, and undoes it alone."""

        def once(connection: Connection) -> list[Any]:
            results: list[Any] = []
            if self.dialect == "postgresql":  # all of them write to the log: in turn, not waiting in circles
                lock_log(connection)
            for command in commands:
                try:
                    with connection.begin_nested():
                        results.append(command(connection))
                except DBAPIError as error:
                    if _is_transient(error) or is_full(error):
                        raise
                    results.append(error)
                except Exception as error:
                    results.append(error)
            return results

        return self.write(once)

    def scrub(self, *tables: Table) -> bool:
        """Rewrite what the database has on disk, so that it holds nothing that was deleted; False if it is too busy.

        - `tables`: Those that PostgreSQL rewrites. SQLite rewrites all, and empties its write-ahead log.

        PostgreSQL keeps its write-ahead log as its settings say, and archives and replicas have copies.
        """
        try:
            if self.dialect == "postgresql":
                with self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                    return rewrite_tables(connection, *tables)
            raw = self._engine.raw_connection()
            try:
                raw.cursor().execute("VACUUM")  # outside of a transaction
                point("database.vacuumed", writes=False)
                is_busy = raw.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            finally:
                raw.close()
            return not is_busy
        except (DBAPIError, sqlite3.OperationalError):
            return False

    def count_bytes(self, connection: Connection) -> int:
        """Return how much room the database takes."""
        if self.dialect == "postgresql":
            return int(connection.exec_driver_sql("SELECT pg_database_size(current_database())").scalar_one())
        pages, size = (int(connection.exec_driver_sql(f"PRAGMA page_{n}").scalar_one()) for n in ("count", "size"))
        log = Path(f"{self._engine.url.database}-wal")
        return pages * size + (log.stat().st_size if log.exists() else 0)

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()


def after_commit(connection: Connection, tell: Callable[[], None]) -> None:
    """Let something be told once the transaction of a command is committed; the command must not fail any more."""
    connection.info.setdefault(_TOLD, []).append(partial(copy_context().run, tell))


class Write(Protocol):
    """Runs a command in a transaction."""

    def __call__(self, command: Callable[[Connection], T], /) -> T: ...


class Writer:
    """A thread that commits the commands of many requests together: one fsync for all that wait."""

    def __init__(self, database: Database):
        self._database = database
        self._closing = threading.Lock()
        self._is_closed = False
        self._queue: queue.SimpleQueue[tuple[Callable[[Connection], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    def submit(self, command: Callable[[Connection], T]) -> Future[T]:
        """Queue a command; the future has its result once it is on disk. It knows the request that it belongs to."""
        future: Future[T] = Future()
        context = copy_context()
        with self._closing:
            if self._is_closed:  # nobody would ever answer
                future.set_exception(Problem("unavailable"))
            else:
                self._queue.put((lambda connection: context.run(command, connection), future))
        return future

    def write(self, command: Callable[[Connection], T]) -> T:
        """Run a command and return its result once it is on disk."""
        return self.submit(command).result()

    def close(self) -> None:
        """Finish what is queued and stop."""
        with self._closing:
            self._is_closed = True
            self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while True:
            batch = [self._queue.get()]
            while len(batch) < _BATCH and batch[-1] is not None:
                try:
                    batch.append(self._queue.get_nowait())
                except queue.Empty:
                    break
            work = [item for item in batch if item is not None and item[1].set_running_or_notify_cancel()]
            if work:
                self._commit(work)
            if batch[-1] is None:
                return

    def _commit(self, work: list[tuple[Callable[[Connection], Any], Future[Any]]]) -> None:
        try:
            results = self._database.write_all([command for command, _ in work])
        except Exception as error:
            results = [error] * len(work)
        for (_, future), result in zip(work, results, strict=True):
            if isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)


def sqlite_url(path: Path) -> str:
    """Return the address of a SQLite file."""
    return f"sqlite:///{path.resolve()}"


def connect(url: str) -> Engine:
    """Return an engine for a database, with our settings; nothing is created or migrated."""
    if not url.startswith("sqlite"):
        how: dict[str, Any] = {"pool_pre_ping": True, "pool_size": 10, "max_overflow": 20}
        return create_engine(url, hide_parameters=True, connect_args={"options": f"-c {_IDLE}"}, **how)
    engine = create_engine(
        url, hide_parameters=True, connect_args={"check_same_thread": False, "timeout": _BUSY_MS / 1000}
    )

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # transactions are begun below, explicitly
        for pragma in (
            "journal_mode=WAL",
            "synchronous=FULL",
            f"busy_timeout={_BUSY_MS}",
            "foreign_keys=ON",
            "secure_delete=ON",
        ):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        reads_only = connection.get_execution_options().get("reads_only")
        connection.exec_driver_sql("BEGIN" if reads_only else "BEGIN IMMEDIATE")

    return engine


def _again(once: Callable[[], T]) -> T:
    """Run a transaction, again if the database broke it off."""
    for attempt in range(_ATTEMPTS):
        try:
            with full_disk_as_problem():
                return once()
        except DBAPIError as error:
            if is_full(error):
                raise Problem("storage-full") from None
            if not _is_transient(error) or attempt == _ATTEMPTS - 1:
                raise
            time.sleep(0.05 * 2**attempt)
    raise AssertionError("unreachable")


def _is_transient(error: DBAPIError) -> bool:
    """Is this a lost connection, a lock, a deadlock or a serialization failure?"""
    if error.connection_invalidated:
        return True
    code = getattr(error.orig, "sqlstate", None)
    if code is not None:
        return code in ("40001", "40P01", "55P03") or code.startswith(("08", "57P"))
    return isinstance(error, OperationalError) and any(
        words in str(error.orig) for words in ("database is locked", "database table is locked", "connection")
    )


def is_full(error: DBAPIError) -> bool:
    """Does the database say that it has no room?"""
    return getattr(error.orig, "sqlstate", None) == "53100" or "disk is full" in str(error.orig)


def is_full_disk(error: BaseException) -> bool:
    """Does an error of the database, of a file or of a command say that there is no room?"""
    if isinstance(error, DBAPIError):
        return is_full(error)
    if isinstance(error, Problem):
        return error.code == "storage-full"
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
