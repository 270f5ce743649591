"""Who may open the console: somebody at this machine, or somebody with an account.

Without any account the console answers only to this machine: the service listens on loopback, the client's address is
loopback, no proxy stands between, and the request names a loopback host. The last condition stops a web page from
elsewhere that points a name of its own at 127.0.0.1.

As soon as there is an account, everybody logs in, at this machine too.
"""

from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

from anyio.to_thread import run_sync

from fairpremium.parties.service import (
    AccountRole,
    Accounts,
    FailedLogins,
    Logins,
    ServiceContext,
    ServiceSettings,
    is_loopback,
    is_loopback_name,
)

from ._devices import Devices
from ._login_limits import LoginLimits
from ._rights import AT_THE_MACHINE, Viewer

_FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")


class NewLogin(NamedTuple):
    """The values of the cookies of somebody who has logged in."""

    token: str
    device: str


class Access:
    """Decides who may see a page."""

    def __init__(self, context: ServiceContext, settings: ServiceSettings):
        self._settings = settings
        self.accounts = Accounts(context)
        self.logins = Logins(context)
        self.failures = FailedLogins(context)
        self._devices = Devices(context)
        self._limits = LoginLimits()

    @property
    def cookie(self) -> str:
        """Name of the cookie of a login; the browser holds the one for https to its host and to encryption."""
        return "__Host-fairpremium" if self.is_encrypted else "fairpremium-console"

    @property
    def device_cookie(self) -> str:
        """Name of the cookie of a device, which the page with the form for the password gets alone."""
        return "__Secure-fairpremium-device" if self.is_encrypted else "fairpremium-device"

    @property
    def is_encrypted(self) -> bool:
        """Do clients reach the service by https?"""
        return self._settings.scheme == "https"

    def has_accounts(self) -> bool:
        """Must people log in?"""
        return self.accounts.has_some()

    def find_viewer(self, client: str, headers: Any, token: str) -> Viewer | None:
        """Return who asks for a page; None for somebody who must log in, or may not."""
        if not self.has_accounts():
            return AT_THE_MACHINE if self.is_local(client, headers) else None
        self.failures.write_if_due()
        is_visit = headers.get("sec-fetch-dest") != "empty"  # a page that keeps itself up to date is no visit
        login = self.logins.find(token, is_visit=is_visit) if token else None
        return None if login is None else Viewer(login.account, cast(AccountRole, login.role), login.id)

    def is_local(self, client: str, headers: Any) -> bool:
        """Does the request come from this machine, straight and on purpose?"""
        return (
            self._settings.is_loopback
            and not self._settings.behind_proxy
            and not any(name in headers for name in _FORWARDED)
            and is_loopback(client)
            and is_loopback_name(headers.get("host", ""))
        )

    def is_own_form(self, headers: Any) -> bool:
        """Was a form sent from one of our own pages?"""
        site = headers.get("sec-fetch-site")
        if site is not None:
            return bool(site == "same-origin")
        origin = urlsplit(headers.get("origin", ""))
        return origin.scheme in ("http", "https") and origin.netloc == headers.get("host", "")

    # --- logging in and out ---

    async def log_in(self, name: str, password: str, client: str, headers: Any, device: str) -> NewLogin | None:
        """Return the cookies of a new login; None if name and password are not those of an account in use.

        Raises the problem that there were too many tries.
        """
        known = await run_sync(self._devices.find, device, name) if device else None
        self._limits.take(name, client, known)
        is_trusted = known is not None or self.is_local(client, headers)
        return await self._limits.run(self._check, name, password, client, is_trusted=is_trusted)

    def _check(self, name: str, password: str, client: str) -> NewLogin | None:
        checked = self.accounts.check(name, password)
        token = None if checked is None else self.logins.open(name, checked, client)
        if token is None:
            self.failures.count(name if self.accounts.knows(name) else None)
            return None
        return NewLogin(token, self._devices.sign(name))

    def log_out(self, token: str) -> None:
        """End the login of a token."""
        login = self.logins.find(token, is_visit=False) if token else None
        if login is not None:
            self.logins.end(login.id, by=login.account)
