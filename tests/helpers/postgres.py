"""A real PostgreSQL for tests: a server of this test process in a temporary folder, and a fresh database per test.

Each test process has a server of its own, which it starts when a test first asks: tests may break connections and stop
servers without disturbing tests elsewhere.
"""

from __future__ import annotations

import os
import pwd
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from helpers.ports import free_port

USER = "fairpremium"
_HELP = "on Debian and Ubuntu: apt-get install postgresql; elsewhere name the folder of initdb in FAIRPREMIUM_POSTGRES"
_QUICK = {"fsync": "off", "full_page_writes": "off"}
_START_SECONDS = 60.0


def find_programs() -> Path:
    """The folder with initdb and postgres; the test is skipped where there is none.

    Debian keeps them out of PATH, in a folder per version.
    """
    named = os.environ.get("FAIRPREMIUM_POSTGRES")
    on_path = shutil.which("initdb")
    by_version = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"),
        key=lambda folder: [int(digits) for digits in re.findall(r"\d+", folder.parent.name)],
        reverse=True,
    )
    candidates = [Path(named)] if named else [*([Path(on_path).resolve().parent] if on_path else []), *by_version]
    for folder in candidates:
        if all(os.access(folder / program, os.X_OK) for program in ("initdb", "postgres")):
            return folder
    pytest.skip(f"no PostgreSQL: {_HELP}")


def _other_user() -> str | None:
    """Whom to run the server as: PostgreSQL refuses to be root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    pytest.skip("PostgreSQL refuses to run as root, and there is no user postgres or nobody: useradd --system postgres")


class PostgresServer:
    """A PostgreSQL server on a free port of the loopback interface.

    Parameters
    ----------
    durable : bool
        Whether it waits for the disk, for tests that kill the server; it is faster if not.
    """

    def __init__(self, *, durable: bool = False):
        self._programs = find_programs()
        user = _other_user()
        self._who: dict[str, Any] = {} if user is None else {"user": user, "group": pwd.getpwnam(user).pw_gid}
        self._settings = {} if durable else _QUICK
        self._process: subprocess.Popen[bytes] | None = None
        self.folder = Path(tempfile.mkdtemp(prefix="fairpremium-pg-"))  # pytest's own folders are closed to others
        self.port = 0
        try:
            if user is not None:
                os.chown(self.folder, pwd.getpwnam(user).pw_uid, pwd.getpwnam(user).pw_gid)
            initdb = [self._programs / "initdb", "-D", "data", "-U", USER, "-A", "trust", "-E", "UTF8", "--locale=C"]
            self._run([*initdb, "--no-sync"])
            self.start()
        except BaseException:
            self.close()
            raise

    def _run(self, command: list[Any]) -> None:
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True, check=False, **self._who)
        if done.returncode:
            raise RuntimeError(f"{Path(command[0]).name} failed: {done.stderr}")

    def start(self) -> None:
        """Start it, on the same port as before."""
        assert self._process is None
        for _ in range(5):  # somebody else may take the free port first
            port = self.port or free_port()
            settings = {
                "listen_addresses": "127.0.0.1",
                "port": str(port),
                "unix_socket_directories": "",
                "shared_buffers": "32MB",
                "max_connections": "100",
                **self._settings,
            }
            options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
            with (self.folder / "log.txt").open("ab") as log:
                self._process = subprocess.Popen(
                    [self._programs / "postgres", "-D", "data", *options],
                    cwd=self.folder,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    **self._who,
                )
            if self._wait_until_ready(port):
                self.port = port
                return
            self._process = None
        raise RuntimeError(f"PostgreSQL did not start: {(self.folder / 'log.txt').read_text()[-2000:]}")

    def _wait_until_ready(self, port: int) -> bool:
        import psycopg

        assert self._process is not None
        until = time.monotonic() + _START_SECONDS
        while self._process.poll() is None and time.monotonic() < until:
            try:
                psycopg.connect(host="127.0.0.1", port=port, user=USER, dbname="postgres", connect_timeout=5).close()
            except psycopg.OperationalError:
                time.sleep(0.02)
            else:
                return True
        self.stop(signal.SIGQUIT)
        return False

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it: SIGTERM waits for clients, SIGINT sends them away, SIGQUIT is a crash."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(120)
            self._process = None

    def close(self) -> None:
        """Stop it and remove its folder."""
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, database: str) -> str:
        """The address of a database, as SQLAlchemy wants it."""
        return f"postgresql+psycopg://{USER}@127.0.0.1:{self.port}/{database}"

    def execute(self, statement: str, *values: Any) -> list[Any]:
        """Run a statement as the owner of the server, outside of any transaction."""
        import psycopg

        where = {"host": "127.0.0.1", "port": self.port, "user": USER, "dbname": "postgres"}
        with psycopg.connect(**where, autocommit=True) as connection:
            cursor = connection.execute(statement, values or None)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []

    @contextmanager
    def database(self) -> Iterator[str]:
        """A fresh, empty database: its name. It is dropped afterwards, whoever is still connected."""
        name = f"test_{secrets.token_hex(8)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        try:
            yield name
        finally:
            self.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def kill_backends(self, database: str | None = None) -> int:
        """Break all connections to a database, or to all; return how many there were."""
        rows = self.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend' AND (%s::text IS NULL OR datname = %s)",
            database,
            database,
        )
        return len(rows)


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """The server of this test process."""
    server = PostgresServer()
    yield server
    server.close()


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> Iterator[str]:
    """The address of a fresh database."""
    with postgres.database() as name:
        yield postgres.url(name)
