"""The account of what has been spent: epsilon per person and attribute, durable and safe to share."""

import itertools
import math
import os
import sqlite3
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from ..documents import digest
from ..errors import BudgetExceededError, NewDrawError
from ._key_spelling import spelling_of
from ._randomized_response import check_epsilon

_APPLICATION_ID = 0x46505256  # "FPRV"
_SCHEMA = (  # what each version added to the one before it
    (
        "CREATE TABLE charges (person TEXT NOT NULL, attribute TEXT NOT NULL, epsilon REAL NOT NULL)",
        "CREATE INDEX charges_by_person ON charges (person, attribute)",
        "CREATE TABLE receipts (charge_id TEXT PRIMARY KEY, content TEXT NOT NULL) WITHOUT ROWID",
        f"PRAGMA application_id = {_APPLICATION_ID}",
    ),
    (
        "ALTER TABLE charges ADD COLUMN draw BLOB",
        "CREATE UNIQUE INDEX charges_by_draw ON charges (draw) WHERE draw IS NOT NULL",
        "CREATE TABLE policies "
        "(policy TEXT NOT NULL, person TEXT NOT NULL, PRIMARY KEY (policy, person)) WITHOUT ROWID",
        "CREATE INDEX policies_by_person ON policies (person)",
    ),
)
_NOBODY_NAMED = ""  # holds the charges of tables without a column that identifies people
_NAMED = "people are named by "  # in `receipts`, before what names them
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
    budget : float, optional
        The most epsilon that a person may spend on one attribute, 0 < budget < inf. By default there is no limit:
        charges are recorded, and a second draw must still be confirmed.

    Notes
    -----
    By sequential composition the epsilons of independent reports of one attribute add up. Charge the
    *realised* epsilon, ``channel.epsilon``, before releasing a report. A report that is stored and reused
    costs nothing.

    An account belongs to a person and an attribute. It does not depend on where a table lies, what its columns are
    called or how many policies a person has. :meth:`charge_draws` charges every draw of a memo
    (:class:`MemoizedReports`) once, however often it is repeated, and asks for confirmation before a person who has
    reported already is drawn afresh.

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

    def __init__(self, path: str | os.PathLike[str], *, budget: float | None = None) -> None:
        self.budget = None if budget is None else check_epsilon(budget, "budget")
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
        if self.budget is not None:
            self._refuse(sum(self._passes(_spent(connection, *keys, more)) for keys, more in asked.items()), len(asked))
        connection.executemany("INSERT INTO charges VALUES (?, ?, ?, NULL)", rows)

    def _passes(self, epsilon: float) -> bool:
        return self.budget is not None and epsilon > self.budget * (1 + _SLACK)

    def _refuse(self, refused: int, asked: int) -> None:
        if refused:
            raise BudgetExceededError(
                f"Got charges beyond the budget of epsilon={self.budget:g} per person and attribute, for "
                f"{refused} of {asked} balances; nothing was charged. Reuse the stored reports."
            )

    def charge_draws(
        self,
        persons: Sequence[str] | None,
        draws: Sequence[bytes | None],
        *,
        attribute: str,
        epsilon: float,
        policies: Sequence[str] | None = None,
        declared: Collection[str] = (),
        named_by: str | None = None,
        confirm_new_draw: bool = False,
    ) -> int:
        """Charge each draw once, all of the new ones or none; a repeated draw is free.

        Parameters
        ----------
        persons : sequence of str, or None
            Whose draw each is. None stands for people whom nothing identifies: they may be any of those in the ledger,
            and everybody in the ledger may be one of them.
        draws : sequence of bytes or None
            Name of each draw, as :meth:`MemoizedReports.draw_ids` makes it: two draws have one name if they are the
            same report for certain. None stands for a report that is paid for: only its policy is remembered. If the
            ledger does not know a draw that stands beside several people, each of them is charged.
        attribute : str
        epsilon : float
            The realised epsilon of each draw.
        policies : sequence of str, optional
            A policy number of the person, beside each of `persons`. The ledger remembers whose it is. What was charged
            under the policy number belongs to the account of the person from now on.
        declared : collection of str
            Names of attributes that are known to be others than this one, such as those of one study.
        named_by : str, optional
            By what `persons` are named, such as a column of a table. The ledger remembers it: people most of
            whom it does not know may be those that it knows, if they are named by something else.
        confirm_new_draw : bool
            Whether to charge people who have reported before. A person has reported before if the ledger knows of
            another draw of the attribute, or of an attribute that is not `declared`: it may be this one under another
            name. So may people who share a policy, or whose keys differ as 7, 007 and 7.0, or ab-12 and AB 12 do, be
            one person. Once that is denied, they have accounts of their own.

        Returns
        -------
        charged : int
            For how many people.

        Raises
        ------
        NewDrawError
            If somebody has reported before, or may have under another name, and `confirm_new_draw` does not allow
            another draw.
        BudgetExceededError
            If a charge would pass the budget. In both cases nothing is recorded.
        """
        names = [_NOBODY_NAMED] * len(draws) if persons is None else [check_key(who, "person") for who in persons]
        asked = dict.fromkeys(zip(names, draws, strict=True))
        epsilon = check_epsilon(epsilon)
        account = check_key(attribute, "attribute")
        with self._connected() as connection, connection:
            connection.execute(_LOCK)
            links = [] if policies is None else [check_key(policy, "policy") for policy in policies]
            connection.execute("CREATE TEMP TABLE asked (person TEXT NOT NULL, draw BLOB, spent REAL, others INTEGER)")
            connection.executemany("INSERT INTO asked (person, draw) VALUES (?, ?)", asked)
            if named_by is not None and asked and persons is not None:
                _check_names(connection, check_key(named_by, "named_by"), links, names, confirm_new_draw)
            if policies is not None:
                connection.executemany("INSERT OR IGNORE INTO policies VALUES (?, ?)", zip(links, names, strict=True))
            connection.execute(
                "DELETE FROM asked WHERE draw IS NULL OR draw IN (SELECT draw FROM charges WHERE draw IS NOT NULL)"
            )
            same = {account, *declared}
            _fill_accounts(connection, account, same)
            self._check_draws(connection, account, same, epsilon, confirm_new_draw)
            first = "CASE row_number() OVER (PARTITION BY draw ORDER BY rowid) WHEN 1 THEN draw END"
            connection.execute(f"INSERT INTO charges SELECT person, ?, ?, {first} FROM asked", (account, epsilon))
            charged = connection.execute("SELECT count(DISTINCT person) FROM asked").fetchone()[0]
            connection.execute("DROP TABLE asked")
        return int(charged)

    def _check_draws(
        self,
        connection: sqlite3.Connection,
        attribute: str,
        same: Collection[str],
        epsilon: float,
        confirm_new_draw: bool,
    ) -> None:
        """Raise if a draw would pass the budget, or may not be the first one and is not confirmed.

        - `same`: Names of attributes that are not others.
        """
        after = "SELECT max(spent) + count(*) * ? AS total FROM asked GROUP BY person"
        totals = [row[0] for row in connection.execute(after, (epsilon,))]
        self._refuse(sum(map(self._passes, totals)), len(totals))
        if confirm_new_draw or not totals:
            return
        again, highest = connection.execute(
            "SELECT count(DISTINCT person), max(spent) FROM asked WHERE spent > 0"
        ).fetchone()
        who = f"{again:,} person{'' if again == 1 else 's'} who reported it before, or may have"
        if connection.execute(_ARE_UNNAMED).fetchone():
            who = "people who were not named, and may have reported it before"
        if again:
            raise NewDrawError(
                f"Got a new draw of {attribute!r} for {who}. It would "
                f"cost each of them epsilon {epsilon:.4g} more, up to {highest + epsilon:.4g} in all; nothing was "
                "drawn. The same memo key, channel, campaign and answer repeat a report at no cost: restore what "
                "has changed, or accept the charge with --confirm-new-draw (in Python confirm_new_draw=True)."
            )
        others = connection.execute("SELECT count(DISTINCT person) FROM asked WHERE others > 0").fetchone()[0]
        if others:
            known = connection.execute("SELECT DISTINCT attribute FROM charges WHERE attribute != ?", (attribute,))
            names = ", ".join(sorted(repr(row[0]) for row in known)[:3])
            raise NewDrawError(
                f"Got a draw of {attribute!r}, but the ledger knows {others:,} of these people with {names}. If that "
                "is the same attribute under another name, say so with --attribute (in Python attribute=...). "
                f"Otherwise this is a new account of each of them, epsilon {epsilon:.4g}: accept it with "
                "--confirm-new-draw (in Python confirm_new_draw=True). Nothing was drawn."
            )
        alike = _count_alike(connection, attribute, same)
        if alike:
            raise NewDrawError(
                f"Got a draw of {attribute!r} for {alike:,} person{'' if alike == 1 else 's'} whom the ledger may know "
                "by another key: it knows a policy of theirs with somebody else, or a key that is written otherwise, "
                "as 7, 007 and 7.0 are. If they are the same people, name them as before: they would be drawn again, "
                "and charged as if they were others. If they are others, for instance because a policy has passed on "
                "to them, accept it with --confirm-new-draw (in Python confirm_new_draw=True). Nothing was drawn."
            )

    def find_draws(self, draws: Iterable[bytes]) -> set[bytes]:
        """Return those draws that have been charged."""
        query = "SELECT 1 FROM charges WHERE draw = ?"
        with self._connected() as connection:
            return {draw for draw in draws if connection.execute(query, (draw,)).fetchone()}

    def knows_charge(self, charge_id: str) -> bool:
        """Say whether a charge of this name was recorded by :meth:`charge` or :meth:`charge_many`."""
        with self._connected() as connection:
            query = "SELECT 1 FROM receipts WHERE charge_id = ?"
            return connection.execute(query, (check_key(charge_id, "charge_id"),)).fetchone() is not None

    def bind_charge(self, charge_id: str, content: str) -> bool:
        """Say whether a recorded charge paid for this content: the first one that is asked for, and no other.

        A charge of version 0.1.0 does not say which reports it paid for. Without this, it would pay for any number of
        independent draws of the same people.

        Parameters
        ----------
        charge_id : str
            As :meth:`charge` or :meth:`charge_many` recorded it.
        content : str
            A digest of the reports.
        """
        name = f"content of {check_key(charge_id, 'charge_id')}"
        with self._connected() as connection, connection:
            connection.execute(_LOCK)
            query = "SELECT content FROM receipts WHERE charge_id = ?"
            if connection.execute(query, (charge_id,)).fetchone() is None:
                return False
            connection.execute("INSERT OR IGNORE INTO receipts VALUES (?, ?)", (name, check_key(content, "content")))
            return bool(connection.execute(query, (name,)).fetchone()[0] == content)

    def find_policies(self, policies: Iterable[str]) -> list[str]:
        """Return policies, and after them all others of the same persons, as far as the ledger knows them.

        A policy that the ledger knows with several persons stands for itself alone.
        """
        own = "SELECT policy FROM policies WHERE person = ? ORDER BY policy"
        found = dict.fromkeys(policies)
        with self._connected() as connection:
            for policy in list(found):
                persons = _persons_behind(connection, policy, policies=True)
                if len(persons) == 1:
                    found |= dict.fromkeys(row[0] for row in connection.execute(own, persons))
        return list(found)

    def find_persons(self, names: Sequence[str], *, policies: bool) -> list[str]:
        """Return the person behind each name, as far as the ledger knows policies of persons.

        - `policies`: Whether the names are policy numbers. Once a ledger knows persons, a policy number that it does
          not know is refused: it may belong to one of them. Otherwise names are persons, and a policy number among
          them stands for the person whom it belongs to.
        """
        with self._connected() as connection:
            if connection.execute("SELECT 1 FROM policies LIMIT 1").fetchone() is None:
                return list(names)
            found = [_persons_behind(connection, name, policies) for name in names]
        unclear = sum(len(persons) != 1 for persons in found)
        if unclear:
            raise ValueError(
                f"The ledger knows people by a column of their own, and does not know to whom {unclear:,} of these "
                "policies belong. Name that column with --person (in Python person=...)."
            )
        return [persons[0] for persons in found]

    # --- asking ---

    def spent(self, person: str, attribute: str) -> float:
        """Return the epsilon that a person has spent on an attribute.

        It includes what was charged under policy numbers of the person, and for people who were not named.
        """
        keys = check_key(person, "person"), check_key(attribute, "attribute")
        with self._connected() as connection:
            return _spent(connection, *keys)

    def remaining(self, person: str, attribute: str) -> float:
        """Return the epsilon that a person has left for an attribute, at least 0; inf without a budget."""
        spent = self.spent(person, attribute)
        return math.inf if self.budget is None else max(self.budget - spent, 0.0)

    def is_empty(self) -> bool:
        """Say whether nothing was ever charged."""
        with self._connected() as connection:
            return connection.execute("SELECT 1 FROM charges LIMIT 1").fetchone() is None

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
        if identity != [0, 0, 0] and identity[0] != _APPLICATION_ID:
            raise ValueError("The file is an SQLite database, but not a ledger. Choose another path.")
        if identity[1] > len(_SCHEMA):
            raise ValueError(
                f"The ledger has schema version {identity[1]}, but this fairpremium knows {len(_SCHEMA)}. "
                "Use the version of fairpremium that wrote it."
            )
        for statement in itertools.chain(*_SCHEMA[identity[1] :]):
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(_SCHEMA)}")


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


_IS_A_PERSON = "EXISTS (SELECT 1 FROM policies AS known WHERE known.person = policies.policy)"
_ARE_UNNAMED = f"SELECT 1 FROM asked WHERE person = '{_NOBODY_NAMED}'"


def _spent(connection: sqlite3.Connection, person: str, attribute: str, more: float = 0.0) -> float:
    """Return what was charged for a person under all names, and for people who were not named."""
    owned = f"SELECT policy FROM policies WHERE person = ? AND NOT {_IS_A_PERSON}"
    names = {person, _NOBODY_NAMED}
    for who in _persons_behind(connection, person, policies=False):
        names |= {who, *(row[0] for row in connection.execute(owned, (who,)))}
    query = "SELECT epsilon FROM charges WHERE person = ? AND attribute = ?"
    rows = (row for name in names for row in connection.execute(query, (name, attribute)))
    return math.fsum([more, *(row[0] for row in rows)])


def _persons_behind(connection: sqlite3.Connection, name: str, policies: bool) -> list[str]:
    """Return the persons that a name may stand for; see `PrivacyLedger.find_persons`."""
    if not policies and connection.execute("SELECT 1 FROM policies WHERE person = ?", (name,)).fetchone():
        return [name]
    found = [row[0] for row in connection.execute("SELECT person FROM policies WHERE policy = ?", (name,))]
    return found or ([] if policies else [name])


def _fill_accounts(connection: sqlite3.Connection, attribute: str, same: Collection[str]) -> None:
    """Write beside each draw what its person has spent on the attribute, and how many charges of others there are.

    - `same`: Names of attributes that are not others.
    """
    is_other = f"attribute NOT IN ({', '.join('?' for _ in same)})"
    connection.execute("CREATE TEMP TABLE sums (person TEXT PRIMARY KEY, spent REAL, others INTEGER)")
    connection.execute(
        f"""WITH names AS (
                SELECT person, person AS name FROM asked
                UNION SELECT asked.person, policy FROM asked JOIN policies ON policies.person = asked.person
                WHERE NOT {_IS_A_PERSON})
            INSERT INTO sums
            SELECT names.person, total(CASE WHEN attribute = ? THEN epsilon END), total({is_other})
            FROM names JOIN charges ON charges.person = names.name GROUP BY names.person""",
        (attribute, *same),
    )
    own = "coalesce((SELECT {0} FROM sums WHERE sums.person = asked.person), 0)"
    connection.execute(f"UPDATE asked SET spent = {own.format('spent')}, others = {own.format('others')}")
    connection.execute("DROP TABLE sums")
    # Somebody who was not named may be anybody.
    unnamed = connection.execute(
        f"SELECT total(CASE WHEN attribute = ? THEN epsilon END), total({is_other}) FROM charges WHERE person = ''",
        (attribute, *same),
    ).fetchone()
    connection.execute("UPDATE asked SET spent = spent + ?, others = others + ? WHERE person != ''", unnamed)
    if connection.execute(_ARE_UNNAMED).fetchone():
        highest = connection.execute(
            f"""WITH names AS (
                    SELECT person, person AS name FROM charges WHERE person != ''
                    UNION SELECT person, person FROM policies
                    UNION SELECT person, policy FROM policies WHERE NOT {_IS_A_PERSON}),
                sums AS (
                    SELECT total(epsilon) AS own FROM names JOIN charges ON charges.person = names.name
                    WHERE attribute = ? GROUP BY names.person)
                SELECT coalesce(max(own), 0) FROM sums""",
            (attribute,),
        ).fetchone()
        named = connection.execute(
            f"SELECT count(*) FROM charges WHERE person != '' AND {is_other}", tuple(same)
        ).fetchone()
        connection.execute("UPDATE asked SET spent = spent + ?, others = others + ? WHERE person = ''", highest + named)


def _count_alike(connection: sqlite3.Connection, attribute: str, same: Collection[str]) -> int:
    """Count those who are asked and may be somebody who was charged: by a policy, or a key that is written otherwise.

    - `same`: Names of attributes that are not others.
    """
    connection.create_function("spelling", 1, spelling_of, deterministic=True)
    connection.execute("CREATE TEMP TABLE keys (person TEXT PRIMARY KEY, spelling TEXT)")
    connection.execute("CREATE INDEX temp.keys_by_spelling ON keys (spelling)")
    connection.execute(
        f"INSERT INTO keys SELECT DISTINCT person, spelling(person) FROM asked WHERE person != '{_NOBODY_NAMED}'"
    )
    connection.execute("CREATE TEMP TABLE spelled AS SELECT person, spelling(policy) AS spelling FROM policies")
    connection.execute("CREATE INDEX temp.spelled_by_person ON spelled (person)")
    connection.execute("CREATE INDEX temp.spelled_by_spelling ON spelled (spelling)")
    count = connection.execute(
        f"""WITH RECURSIVE
            known AS (SELECT person FROM charges UNION SELECT person FROM policies),
            alike AS (
                SELECT person, person AS other FROM keys
                UNION SELECT keys.person, known.person FROM known JOIN keys ON keys.spelling = spelling(known.person)
                UNION SELECT alike.person, others.person FROM alike
                JOIN spelled AS own ON own.person = alike.other
                JOIN spelled AS others ON others.spelling = own.spelling),
            names AS (
                SELECT person, other AS name FROM alike
                UNION SELECT alike.person, policy FROM alike JOIN policies ON policies.person = alike.other
                WHERE NOT {_IS_A_PERSON})
        SELECT count(DISTINCT names.person) FROM names JOIN charges ON charges.person = names.name
        WHERE attribute = ? OR attribute NOT IN ({", ".join("?" for _ in same)})""",
        (attribute, *same),
    ).fetchone()[0]
    connection.execute("DROP TABLE keys")
    connection.execute("DROP TABLE spelled")
    return int(count)


def _check_names(
    connection: sqlite3.Connection,
    named_by: str,
    policies: Sequence[str],
    persons: Sequence[str],
    confirm_new_draw: bool,
) -> None:
    """Raise if most people who are asked are unknown, and those who are known were named by something else.

    Who was charged under the number of a policy is known by that policy (see `policies`, beside `persons`), too.
    """
    query = "SELECT content FROM receipts WHERE charge_id LIKE ?"
    known = sorted(row[0] for row in connection.execute(query, (f"{_NAMED}%",)))
    are_known = known or connection.execute("SELECT 1 FROM charges WHERE person != '' LIMIT 1").fetchone()
    if are_known and named_by not in known and not confirm_new_draw:
        charged = "SELECT 1 FROM charges WHERE person = ? UNION ALL SELECT 1 FROM policies WHERE person = ? LIMIT 1"
        own = dict.fromkeys(persons)
        found = {who for who in own if connection.execute(charged, (who, who)).fetchone()}
        by_policy = "SELECT 1 FROM charges WHERE person = ? LIMIT 1"
        found |= {
            who
            for who, policy in zip(persons, policies, strict=False)
            if connection.execute(by_policy, (policy,)).fetchone()
        }
        if 2 * len(found) < len(own):
            raise NewDrawError(
                f"Got people named by {named_by!r}, but the ledger knows people by "
                f"{', '.join(map(repr, known[:3])) or 'a column that it did not note'}, "
                f"and {len(found):,} of these {len(own):,}. If they are the same people, name them as before: they "
                "would be drawn again, and charged as if they were others. Otherwise accept it with --confirm-new-draw "
                "(in Python confirm_new_draw=True). Nothing was drawn."
            )
    connection.execute("INSERT OR IGNORE INTO receipts VALUES (?, ?)", (f"{_NAMED}{named_by}", named_by))


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
