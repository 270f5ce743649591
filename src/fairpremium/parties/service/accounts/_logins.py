"""Logins to the console: a random token in a cookie, of which the database has a hash.

They hold at every web process and over a restart. They end after eight hours, after an hour in which nobody opened a
page, on logout, when somebody ends them, and when their account is disabled or gets another password.
"""

import hashlib
import secrets
from contextlib import suppress
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, and_, delete, insert, select, update

from fairpremium.parties.protocol import Problem
from fairpremium.parties.store.log import append
from fairpremium.parties.store.schema import accounts, logins

from .._context import ServiceContext

LOGIN_SECONDS = 8 * 3600.0
IDLE_SECONDS = 3600.0
_NOTE_AFTER = 60.0  # seconds after which another visit is noted
COMMAND_LINE = "(command line)"  # no account can have this name
_SERVICE = "service"  # who the log names
_LONGEST_ADDRESS = 64


class Login(NamedTuple):
    """A login that has not ended; the times are in seconds."""

    id: str
    account: str
    role: str
    address: str
    created: float
    seen: float
    expires: float


_COLUMNS = (
    logins.c.id, logins.c.account, accounts.c.role, logins.c.address, logins.c.created, logins.c.seen, logins.c.expires,
)  # fmt: skip


class Logins:
    """The logins in the database of a third party."""

    def __init__(self, context: ServiceContext):
        self._context = context
        self._database = context.database

    def open(self, account: str, password_hash: str, address: str) -> str | None:
        """Open a login of somebody whose password was checked, and return its token.

        None if the account was disabled or got another password meanwhile.
        """
        token = secrets.token_urlsafe(32)

        def write(connection: Connection) -> bool:
            now = self._context.now()
            is_checked = and_(accounts.c.name == account, accounts.c.password_hash == password_hash)
            in_use = select(accounts.c.name).where(is_checked, accounts.c.disabled.is_(None)).with_for_update()
            if connection.execute(in_use).first() is None:
                return False
            login = secrets.token_hex(6)
            times = {"created": now, "seen": now, "expires": now + LOGIN_SECONDS}
            values = {"id": login, "token_sha256": _hash(token), "account": account, **times}
            connection.execute(insert(logins).values(**values, address=address[:_LONGEST_ADDRESS]))
            append(connection, now, _SERVICE, "login.opened", account=account, login=login)
            return True

        return token if self._database.write(write) else None

    def find(self, token: str, *, is_visit: bool) -> Login | None:
        """Return the login of a token; None if it has ended. A visit, as of a person, begins the idle time anew."""
        query = _select().where(logins.c.token_sha256 == _hash(token), _is_open(self._context.now()))
        row = self._database.read(lambda c: c.execute(query).one_or_none())
        if row is None:
            return None
        login, now = Login(*row), self._context.now()
        if is_visit and now - login.seen > _NOTE_AFTER:
            note = update(logins).where(logins.c.id == login.id).values(seen=now)
            with suppress(Problem):  # a full disk; a page must be shown all the same
                self._database.write(lambda c: c.execute(note))
        return login

    def list(self, account: str | None = None) -> list[Login]:
        """Return the logins that have not ended, of one account or of all, the newest first."""
        query = _select().where(_is_open(self._context.now())).order_by(logins.c.created.desc(), logins.c.id)
        query = query if account is None else query.where(logins.c.account == account)
        return [Login(*row) for row in self._database.read(lambda c: c.execute(query).all())]

    def end(self, login: str, *, account: str | None = None, by: str = COMMAND_LINE) -> bool:
        """End a login, if it is open and, where one is named, of this account; `by` is whose account ends it."""
        return self._database.write(lambda c: _end(c, self._context.now(), logins.c.id == login, account, by)) > 0


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _select() -> Select[Any]:
    return select(*_COLUMNS).join(accounts, accounts.c.name == logins.c.account)


def _is_open(now: float) -> ColumnElement[bool]:
    is_in_time = and_(logins.c.expires > now, logins.c.seen > now - IDLE_SECONDS)
    return and_(logins.c.ended.is_(None), is_in_time, accounts.c.disabled.is_(None))


def end_all_logins(connection: Connection, now: float, account: str) -> None:
    """End the logins of an account."""
    _end(connection, now, logins.c.ended.is_(None), account, COMMAND_LINE)


def _end(connection: Connection, now: float, which: ColumnElement[bool], account: str | None, by: str) -> int:
    mine = which if account is None else and_(which, logins.c.account == account)
    query = select(logins.c.id, logins.c.account).where(mine, logins.c.ended.is_(None), logins.c.expires > now)
    found = connection.execute(query.with_for_update()).all()
    for row in found:
        connection.execute(update(logins).where(logins.c.id == row.id).values(ended=now))
        append(connection, now, _SERVICE, "login.ended", account=row.account, login=row.id, by=by)
    return len(found)


def delete_old_logins(connection: Connection, now: float) -> None:
    """Delete logins whose time is over, with the addresses in them."""
    connection.execute(delete(logins).where(logins.c.expires < now))
