"""Devices from which a person has logged in before: a signed cookie, so that guesses from elsewhere do not count there.

A cookie says nothing by itself: the name of the account is in its signature only. It opens nothing; it only gives a
device tries of its own.
"""

import hashlib
import hmac
import secrets

from fairpremium.parties.service import ServiceContext

DEVICE_SECONDS = 365 * 86400.0
_PURPOSE = b"fairpremium console device 1\n"


class Devices:
    """Signs and checks the cookies of devices; the key comes from the service's key, the same at every web process."""

    def __init__(self, context: ServiceContext):
        self._context = context

    def sign(self, account: str) -> str:
        """Return the cookie of a device from which somebody has logged in."""
        device = f"{int(self._context.now())}.{secrets.token_hex(16)}"
        return f"{device}.{self._signature(account, device)}"

    def find(self, cookie: str, account: str) -> str | None:
        """Return the name of a device that is known for an account, or None."""
        device, _, signature = cookie.rpartition(".")
        if not hmac.compare_digest(self._signature(account, device).encode(), signature.encode()):
            return None
        since = float(device.partition(".")[0])
        return device if self._context.now() < since + DEVICE_SECONDS else None

    def _signature(self, account: str, device: str) -> str:
        key = hashlib.sha256(self._context.key.sign(_PURPOSE)).digest()  # an Ed25519 signature is always the same
        return hmac.digest(key, f"{account}\n{device}".encode(), "sha256").hex()
