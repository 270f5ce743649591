"""The storage key: it encrypts the secrets of a service where they are stored (AES-256-GCM)."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Mapping

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from fairpremium.errors import FairPremiumError

from ._safe_files import Path_, Secret, read_private, write_private

STORAGE_KEY, STORAGE_KEY_FILE = "FAIRPREMIUM_STORAGE_KEY", "FAIRPREMIUM_STORAGE_KEY_FILE"
_LINE = re.compile(r"storage-key:([0-9a-f]{64})")
_MAGIC = b"fairpremium sealed 1\n"  # then 8 bytes that name the key, 12 of the nonce, and what AES-GCM gives
_NAME, _NONCE = 8, 12


class StorageKeyError(FairPremiumError):
    """What is stored was encrypted, and the storage key is missing or another one."""


class StorageKey(Secret):
    """One or more keys of 32 bytes: the first one seals, all of them open.

    Examples
    --------
    >>> old, new = secrets.token_bytes(32), secrets.token_bytes(32)
    >>> sealed = StorageKey(old).seal(b"a secret", b"purpose")
    >>> StorageKey(new, old).open(sealed, b"purpose")
    b'a secret'
    """

    __slots__ = ("__ciphers", "__first")

    def __init__(self, *keys: bytes) -> None:
        if not keys or any(not isinstance(key, bytes) or len(key) != 32 for key in keys):
            raise ValueError("Got other keys, but expected at least one of 32 bytes.")
        self.__ciphers = {_name(key): AESGCM(key) for key in keys}
        self.__first = _name(keys[0])

    def seal(self, content: bytes, purpose: bytes) -> bytes:
        """Encrypt; only `open` with the same purpose gives the content back."""
        nonce = secrets.token_bytes(_NONCE)
        head = _MAGIC + self.__first
        return head + nonce + self.__ciphers[self.__first].encrypt(nonce, content, head + purpose)

    def open(self, sealed: bytes, purpose: bytes) -> bytes:
        """Decrypt what `seal` made."""
        head, rest = sealed[: len(_MAGIC) + _NAME], sealed[len(_MAGIC) + _NAME :]
        cipher = self.__ciphers.get(head[len(_MAGIC) :])
        if cipher is None:
            raise StorageKeyError(
                "The secrets of the service are encrypted with another storage key than the one given. Give the right "
                f"one in {STORAGE_KEY_FILE} or {STORAGE_KEY}; after a rotation the file holds the new key first, then "
                "the old one."
            )
        try:
            return cipher.decrypt(rest[:_NONCE], rest[_NONCE:], head + purpose)
        except (InvalidTag, ValueError):
            raise StorageKeyError("An encrypted secret of the service was changed. Restore it from a backup.") from None

    def is_current(self, stored: bytes) -> bool:
        """Was this sealed by the first key?"""
        return stored.startswith(_MAGIC + self.__first)

    def __repr__(self) -> str:
        return f"StorageKey({self.__first.hex()!r})"


def _name(key: bytes) -> bytes:
    return hashlib.sha256(b"fairpremium storage key 1\n" + key).digest()[:_NAME]


def is_sealed(stored: bytes) -> bool:
    """Was this encrypted with some storage key?"""
    return stored.startswith(_MAGIC)


def open_stored(key: StorageKey | None, stored: bytes, purpose: bytes) -> bytes:
    """Return what was stored, encrypted or, by an earlier version, plain."""
    if not is_sealed(stored):
        return stored
    if key is None:
        raise StorageKeyError(
            f"The secrets of the service are encrypted, but no storage key was given. Name its file in "
            f"{STORAGE_KEY_FILE}, or give the key itself in {STORAGE_KEY}."
        )
    return key.open(stored, purpose)


def write_storage_key(path: Path_) -> None:
    """Make a storage key, in a file that only its owner can read and that must not exist."""
    write_private(path, f"storage-key:{secrets.token_hex(32)}\n".encode())


def storage_key_of(environment: Mapping[str, str] = os.environ) -> StorageKey | None:
    """Return the storage key that the environment gives; None if it gives none."""
    text, path = environment.get(STORAGE_KEY), environment.get(STORAGE_KEY_FILE)
    if text and path:
        raise ValueError(f"Got both {STORAGE_KEY} and {STORAGE_KEY_FILE}, but expected one of them.")
    if path:
        text = read_private(path).decode("latin-1")
    if not text:
        return None
    found = [_LINE.fullmatch(line) for line in text.split()]
    if not found or not all(found):
        raise ValueError(
            f"Got another text in {STORAGE_KEY_FILE if path else STORAGE_KEY}, but expected lines of "
            '"storage-key:" and 64 hexadecimal digits. `fairpremium keys storage` makes such a file.'
        )
    return StorageKey(*(bytes.fromhex(match[1]) for match in found if match is not None))
