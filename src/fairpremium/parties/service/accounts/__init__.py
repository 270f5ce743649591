"""Accounts of the people who open the console, and their logins."""

from ._accounts import Account, AccountRole, Accounts
from ._failures import FailedLogins
from ._logins import IDLE_SECONDS, LOGIN_SECONDS, Login, Logins, delete_old_logins

__all__ = [
    "IDLE_SECONDS",
    "LOGIN_SECONDS",
    "Account",
    "AccountRole",
    "Accounts",
    "FailedLogins",
    "Login",
    "Logins",
    "delete_old_logins",
]
