"""Who may open the console: somebody at this machine, or somebody who knows the password.

Without a password the console answers only to this machine: the service listens on loopback, the client's address is
loopback, no proxy stands between, and the request names a loopback host. The last condition stops a web page from
elsewhere that points a name of its own at 127.0.0.1.

With a password a session is a signed cookie that ends by itself. The key of the signature comes from the service's key
and the password, so that sessions outlive a restart, hold at every web process, and end when the password changes.
"""

import hashlib
import hmac
import secrets
from typing import Any
from urllib.parse import urlsplit

from sqlalchemy import select

from fairpremium.parties.service import RateLimiter, ServiceContext, ServiceSettings, is_loopback, is_loopback_name
from fairpremium.parties.store.log import upsert
from fairpremium.parties.store.schema import nonces

SESSION_SECONDS = 8 * 3600.0
_PURPOSE = b"fairpremium console session 1\n"
_ENDED = "console"  # stands in the place of a key among the nonces
_FORWARDED = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via")
_TRIES_AT_ONCE, _TRIES_PER_SECOND = 5, 0.1
_ALL_AT_ONCE, _ALL_PER_SECOND = 30, 1.0


class Access:
    """Decides who may see a page."""

    def __init__(self, context: ServiceContext, settings: ServiceSettings):
        self._context = context
        self._settings = settings
        self._own_tries = RateLimiter(_TRIES_PER_SECOND, burst=_TRIES_AT_ONCE)
        self._all_tries = RateLimiter(_ALL_PER_SECOND, burst=_ALL_AT_ONCE)
        self._salt = self._password = self._session_key = b""
        if settings.console_password is not None:
            seed = hashlib.sha256(context.key.sign(_PURPOSE)).digest()  # an Ed25519 signature is always the same
            self._salt = hmac.digest(seed, b"salt", "sha256")
            self._password = self._slow_hash(settings.console_password)
            self._session_key = hmac.digest(seed, b"session" + self._password, "sha256")

    @property
    def has_password(self) -> bool:
        """Must people log in?"""
        return self._settings.console_password is not None

    @property
    def cookie(self) -> str:
        """Name of the cookie; the browser holds the one for https to its host and to encryption."""
        return "__Host-fairpremium" if self.is_encrypted else "fairpremium-console"

    @property
    def is_encrypted(self) -> bool:
        """Do clients reach the service by https?"""
        return self._settings.scheme == "https"

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

    # --- the password ---

    def take_try(self, client: str) -> None:
        """Allow one more guess of the password, or raise the problem that there were too many."""
        self._own_tries.take(client)
        self._all_tries.take("")

    def knows(self, password: str) -> bool:
        """Is this the password? Takes a while, always."""
        return hmac.compare_digest(self._slow_hash(password), self._password)

    def _slow_hash(self, password: str) -> bytes:
        return hashlib.scrypt(password.encode(), salt=self._salt, n=2**15, r=8, p=1, maxmem=2**26, dklen=32)

    # --- sessions ---

    def new_session(self) -> str:
        """Return the value of a new session's cookie."""
        content = f"{int(self._context.now() + SESSION_SECONDS)}.{secrets.token_hex(16)}"
        return f"{content}.{self._sign(content)}"

    def is_session(self, value: str) -> bool:
        """Is this the cookie of a session that has not ended?"""
        session = self._read(value)
        if session is None:
            return False
        query = select(nonces.c.nonce).where(nonces.c.key_id == _ENDED, nonces.c.nonce == session[1])
        return self._context.database.read(lambda c: c.execute(query).first()) is None

    def end_session(self, value: str) -> None:
        """End a session before its time, for every web process."""
        session = self._read(value)
        if session is not None:
            values = {"key_id": _ENDED, "nonce": session[1], "expires": session[0]}
            self._context.database.write(lambda c: c.execute(upsert(c, nonces).values(**values)))

    def _read(self, value: str) -> tuple[float, str] | None:
        content, _, signature = value.rpartition(".")
        if not hmac.compare_digest(self._sign(content).encode(), signature.encode()):
            return None
        expires, _, name = content.partition(".")
        return (float(expires), name) if self._context.now() < float(expires) else None

    def _sign(self, content: str) -> str:
        return hmac.digest(self._session_key, content.encode(), "sha256").hex()
