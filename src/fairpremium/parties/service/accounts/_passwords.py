"""Passwords: hashed with argon2id, and the same work for every name that is tried."""

import base64
import unicodedata

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

_SHORTEST, _LONGEST = 12, 1000  # letters
_HASHER = PasswordHasher(time_cost=3, memory_cost=64 * 1024, parallelism=1)  # RFC 9106, second choice, on one core


def _in_text(content: bytes) -> str:
    return base64.b64encode(content).decode().rstrip("=")


# A hash that no password has, with the parameters of all others: to check it is the same work.
_NOBODY = (
    f"$argon2id$v=19$m={_HASHER.memory_cost},t={_HASHER.time_cost},p={_HASHER.parallelism}"
    f"${_in_text(bytes(_HASHER.salt_len))}${_in_text(bytes(_HASHER.hash_len))}"
)


def hash_password(password: str) -> str:
    """Return what is stored of a password, which must be long enough."""
    if not _SHORTEST <= len(password) <= _LONGEST:
        raise ValueError(
            f"Got a password of {len(password)} letters, but expected {_SHORTEST} or more. Take a sentence that "
            "nobody else would."
        )
    return _HASHER.hash(_normal(password))


def check_password(stored: str | None, password: str) -> bool:
    """Is this the password? Takes the same time for an account that does not exist (None)."""
    try:
        return _HASHER.verify(_NOBODY if stored is None else stored, _normal(password))
    except (VerificationError, InvalidHashError):
        return False


def _normal(password: str) -> str:
    """Return the one spelling of a text that keyboards write in several ways."""
    return unicodedata.normalize("NFKC", password)
