"""Accounts for the console: a name, a role, a password. Only somebody at the third party's machine changes them."""

from typing import Literal, NamedTuple

from sqlalchemy import Connection, insert, select, update

from fairpremium.parties.protocol import check_id
from fairpremium.parties.store.log import append
from fairpremium.parties.store.schema import accounts

from .._context import ServiceContext
from ._logins import end_all_logins
from ._passwords import check_password, hash_password

AccountRole = Literal["operator", "auditor"]
_SERVICE = "service"  # who the log names


class Account(NamedTuple):
    """An account of a person; the times are in seconds. From `disabled` on nobody logs in with it."""

    name: str
    role: AccountRole
    created: float
    disabled: float | None


_COLUMNS = (accounts.c.name, accounts.c.role, accounts.c.created, accounts.c.disabled)


class Accounts:
    """The accounts in the database of a third party."""

    def __init__(self, context: ServiceContext):
        self._context = context
        self._database = context.database
        self._has_some = False

    def has_some(self) -> bool:
        """Is there an account, disabled ones too? Then everybody must log in."""
        if not self._has_some:  # no account is ever deleted
            found = self._database.read(lambda c: c.execute(select(accounts.c.name).limit(1)).first())
            self._has_some = found is not None
        return self._has_some

    def list(self) -> list[Account]:
        """Return all accounts."""
        rows = self._database.read(lambda c: c.execute(select(*_COLUMNS).order_by(accounts.c.created)).all())
        return [Account(*row) for row in rows]

    def add(self, name: str, role: AccountRole, password: str) -> None:
        """Make an account."""
        try:
            check_id(name)
        except ValueError as error:
            raise ValueError(f"Got another name for an account, but {error}.") from None
        stored = hash_password(password)

        def write(connection: Connection) -> None:
            if connection.execute(select(accounts.c.name).where(accounts.c.name == name)).first() is not None:
                raise ValueError(f"Got {name}, but expected a name that no account has or had. Choose another one.")
            now = self._context.now()
            connection.execute(insert(accounts).values(name=name, role=role, password_hash=stored, created=now))
            append(connection, now, _SERVICE, "account.added", account=name, role=role)

        self._database.write(write)

    def disable(self, name: str) -> None:
        """Refuse an account from now on, and end its logins."""

        def write(connection: Connection) -> None:
            now = self._context.now()
            if _lock(connection, name).disabled is None:
                connection.execute(update(accounts).where(accounts.c.name == name).values(disabled=now))
                append(connection, now, _SERVICE, "account.disabled", account=name)
            end_all_logins(connection, now, name)

        self._database.write(write)

    def set_password(self, name: str, password: str) -> None:
        """Give an account another password, and end its logins."""
        stored = hash_password(password)

        def write(connection: Connection) -> None:
            now = self._context.now()
            if _lock(connection, name).disabled is not None:
                raise ValueError(f"Got the disabled account {name}, but expected one in use. Add another account.")
            connection.execute(update(accounts).where(accounts.c.name == name).values(password_hash=stored))
            append(connection, now, _SERVICE, "account.password", account=name)
            end_all_logins(connection, now, name)

        self._database.write(write)

    def knows(self, name: str) -> bool:
        """Is there an account of this name?"""
        query = select(accounts.c.name).where(accounts.c.name == name)
        return self._database.read(lambda c: c.execute(query).first()) is not None

    def check(self, name: str, password: str) -> str | None:
        """Return the stored hash if this is the password of an account in use; one slow hash, whatever the name."""
        query = select(accounts.c.password_hash, accounts.c.disabled).where(accounts.c.name == name)
        row = self._database.read(lambda c: c.execute(query).one_or_none())
        stored = None if row is None else str(row.password_hash)
        is_right = check_password(stored, password)
        return stored if is_right and row is not None and row.disabled is None else None


def _lock(connection: Connection, name: str) -> Account:
    row = connection.execute(select(*_COLUMNS).where(accounts.c.name == name).with_for_update()).one_or_none()
    if row is None:
        raise ValueError("Got an unknown name, but expected that of an account. They are listed by: account list.")
    return Account(*row)
