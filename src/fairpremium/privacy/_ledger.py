"""The account of what has been spent: epsilon per person and attribute, durable and safe to share."""

import math
import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from ..documents import digest
from ..errors import BudgetExceededError
from ._randomized_response import check_epsilon

_APPLICATION_ID = 0x46505256  # "FPRV"
_SCHEMA_VERSION = 1
_SCHEMA = (
    "CREATE TABLE charges (person TEXT NOT NULL, attribute TEXT NOT NULL, epsilon REAL NOT NULL)",
    "CREATE INDEX charges_by_person ON charges (person, attribute)",
    "CREATE TABLE receipts (charge_id TEXT PRIMARY KEY, content TEXT NOT NULL) WITHOUT ROWID",
    f"PRAGMA application_id = {_APPLICATION_ID}",
    f"PRAGMA user_version = {_SCHEMA_VERSION}",
)
_LOCK = "BEGIN IMMEDIATE"  # from the first read on, so that nobody spends between our look and our charge
_SLACK = 1e-12  # three charges of 0.1 must fit into a budget of 0.3
_BUSY_SECONDS = 60.0

Charge = tuple[str, str, float]


class PrivacyLedger(AbstractContextManager["PrivacyLedger"]):
    """Record what each person has spent per attribute, and refuse what would pass the budget.

    Parameters
    ----------
    path : str or Path
        An SQLite file, created with access for its owner only; ":memory:" for a ledger that ends with the
        process.
    budget : float
        The most epsilon that a person may spend on one attribute, 0 < budget < inf.

    Notes
    -----
    By sequential composition the epsilons of independent reports of one attribute add up. Charge the
    *realised* epsilon, ``channel.epsilon``, before releasing a report. A report that is stored and reused
    costs nothing.

    A charge is on the disk when the call returns (write-ahead log, ``synchronous=FULL``), and two processes
    or threads never both get the last of a budget (``BEGIN IMMEDIATE``). Sums are compared with a slack of
    1e-12 of the budget, for the rounding of floats. The file does not hold the budget: every ledger object
    applies its own to what has been spent.

    Person keys are stored as given. Hashing them here would look like protection and give none: keys such as
    policy numbers are few enough to try. Give the ledger keys that mean nothing elsewhere, not names.

    Examples
    --------
    >>> with PrivacyLedger(":memory:", budget=2.0) as ledger:
    ...     ledger.charge("key 17", "sex", 1.5)
    ...     ledger.remaining("key 17", "sex")
    0.5
    0.5
    """

    def __init__(self, path: str | os.PathLike[str], *, budget: float) -> None:
        self.budget = check_epsilon(budget, "budget")
        self.path = os.fspath(path)
        self._connection: sqlite3.Connection | None = None
        self._open()

    # --- charging ---

    def charge(self, person: str, attribute: str, epsilon: float, *, charge_id: str | None = None) -> float:
        """Charge one report, or refuse.

        Parameters
        ----------
        person, attribute : str
        epsilon : float
            The realised epsilon of the report.
        charge_id : str, optional
            Name of this charge. A retry under the same name is recognised and not charged twice; the same
            name with another content is an error.

        Returns
        -------
        remaining : float
            What the person has left for the attribute.

        Raises
        ------
        BudgetExceededError
            If the charge would pass the budget; nothing is recorded then.
        """
        self.charge_many([(person, attribute, epsilon)], charge_id=charge_id)
        return self.remaining(person, attribute)

    def charge_many(self, charges: Iterable[Charge], *, charge_id: str | None = None) -> None:
        """Charge several reports, all of them or, if one would pass its budget, none.

        Parameters
        ----------
        charges : iterable of (person, attribute, epsilon)
        charge_id : str, optional
            Name of the whole batch, as in :meth:`charge`.
        """
        rows = [
            (check_key(person, "person"), check_key(attribute, "attribute"), check_epsilon(epsilon))
            for person, attribute, epsilon in charges
        ]
        with self._connected() as connection, connection:
            connection.execute(_LOCK)
            if charge_id is not None and _already_done(connection, check_key(charge_id, "charge_id"), rows):
                return
            self._charge(connection, rows)

    def _charge(self, connection: sqlite3.Connection, rows: list[Charge]) -> None:
        """Charge all rows or, if one would pass its budget, none."""
        asked = _sums(rows)
        limit = self.budget * (1 + _SLACK)
        refused = sum(_spent(connection, *keys, more) > limit for keys, more in asked.items())
        if refused:
            raise BudgetExceededError(
                f"Got charges beyond the budget of epsilon={self.budget:g} per person and attribute, for "
                f"{refused} of {len(asked)} balances; nothing was charged. Reuse the stored reports."
            )
        connection.executemany("INSERT INTO charges VALUES (?, ?, ?)", rows)

    def charge_each(self, charges: Iterable[tuple[str, Charge]]) -> int:
        """Charge several reports, each once and for all under a name of its own; all of the new ones, or none.

        Parameters
        ----------
        charges : iterable of (charge_id, (person, attribute, epsilon))
            One whose name was charged before costs nothing more; the same name with another content is an error.

        Returns
        -------
        charged : int
            How many were new.
        """
        named = {
            check_key(name, "charge_id"): (
                check_key(person, "person"), check_key(attribute, "attribute"), check_epsilon(epsilon)
            )
            for name, (person, attribute, epsilon) in charges
        }  # fmt: skip
        with self._connected() as connection, connection:
            connection.execute(_LOCK)
            new = [row for name, row in named.items() if not _already_done(connection, name, [row])]
            self._charge(connection, new)
        return len(new)

    # --- asking ---

    def spent(self, person: str, attribute: str) -> float:
        """Return the epsilon that a person has spent on an attribute."""
        keys = check_key(person, "person"), check_key(attribute, "attribute")
        with self._connected() as connection:
            return _spent(connection, *keys)

    def remaining(self, person: str, attribute: str) -> float:
        """Return the epsilon that a person has left for an attribute, at least 0."""
        return max(self.budget - self.spent(person, attribute), 0.0)

    # --- the file ---

    def close(self) -> None:
        """Close the file; a closed ledger refuses to be used."""
        connection, self._connection = self._connection, None
        if connection is not None and self._process == os.getpid():
            connection.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"PrivacyLedger({self.path!r}, budget={self.budget!r})"

    def _open(self) -> None:
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._connection = None
        if self.path != ":memory:":
            Path(self.path).touch(mode=0o600, exist_ok=True)
            Path(self.path).chmod(0o600)  # it says who was asked
        connection = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            _prepare(connection)
        except (sqlite3.DatabaseError, ValueError) as error:
            connection.close()
            if isinstance(error, (sqlite3.OperationalError, ValueError)):  # locked, full, read-only: the file is fine
                raise
            raise ValueError(f"{self.path!r} is not a ledger: {error}.") from error
        self._connection = connection

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        if self._process != os.getpid() and self._connection is not None:
            # An SQLite connection must not cross a fork. Leave the parent's unused, open our own.
            if self.path == ":memory:":
                raise RuntimeError("A ledger in memory cannot be shared with a child process; use a file.")
            self._parent = self._connection
            self._open()
        with self._lock:
            if self._connection is None:
                raise ValueError("The ledger is closed.")
            yield self._connection


def _prepare(connection: sqlite3.Connection) -> None:
    _use_write_ahead_log(connection)
    connection.execute("PRAGMA synchronous = FULL")
    with connection:
        connection.execute(_LOCK)
        queries = "PRAGMA application_id", "PRAGMA user_version", "SELECT count(*) FROM sqlite_master"
        identity = [connection.execute(query).fetchone()[0] for query in queries]
        if identity == [0, 0, 0]:
            for statement in _SCHEMA:
                connection.execute(statement)
        elif identity[0] != _APPLICATION_ID:
            raise ValueError("The file is an SQLite database, but not a ledger. Choose another path.")
        elif identity[1] != _SCHEMA_VERSION:
            raise ValueError(
                f"The ledger has schema version {identity[1]}, but this fairpremium knows {_SCHEMA_VERSION}. "
                "Use the version of fairpremium that wrote it."
            )


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Switch the journal mode; SQLite does not wait for a busy file here, so that we do."""
    deadline = time.monotonic() + _BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _spent(connection: sqlite3.Connection, person: str, attribute: str, more: float = 0.0) -> float:
    query = "SELECT epsilon FROM charges WHERE person = ? AND attribute = ?"
    return math.fsum([more, *(row[0] for row in connection.execute(query, (person, attribute)))])


def _sums(rows: list[Charge]) -> dict[tuple[str, str], float]:
    asked: dict[tuple[str, str], list[float]] = {}
    for person, attribute, epsilon in rows:
        asked.setdefault((person, attribute), []).append(epsilon)
    return {key: math.fsum(epsilons) for key, epsilons in asked.items()}


def _already_done(connection: sqlite3.Connection, charge_id: str, rows: list[Charge]) -> bool:
    """Say whether this very charge was recorded; if not, write its receipt in the same transaction."""
    content = digest(rows)
    found = connection.execute("SELECT content FROM receipts WHERE charge_id = ?", (charge_id,)).fetchone()
    if found is None:
        connection.execute("INSERT INTO receipts VALUES (?, ?)", (charge_id, content))
        return False
    if found[0] != content:
        raise ValueError("charge_id was used before for another charge; give every charge its own name.")
    return True


def check_key(value: Any, name: str) -> str:
    """Return a non-empty str, or raise with a sentence."""
    if not isinstance(value, str) or not value:
        raise TypeError(f"Got {name} of type {type(value).__name__}, but expected a non-empty str.")
    return value
