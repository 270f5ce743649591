"""The keys of the parties: Ed25519 keys that sign, stored in files that nobody else can read."""

from __future__ import annotations

import hashlib
import os
import re
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from ._safe_files import LARGEST_FILE, Path_, Secret, create_file, read_private, write_private

FINGERPRINT_DIGITS = 16
_PUBLIC = re.compile(r"ed25519:([0-9a-f]{64})")

# The y of the points of small order (RFC 8032, section 5.1): under such a "key" anyone can sign anything.
_P = 2**255 - 19
_Y8 = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7
_SMALL_ORDER = frozenset({0, 1, _P - 1, _Y8, _P - _Y8})


def fingerprint(kind: str, content: bytes) -> str:
    """Return the short name of a key or secret that people compare: its kind and 16 digits of a SHA-256.

    All keys and secrets are named so, in every output, message and file, and by nothing shorter.

    Examples
    --------
    >>> fingerprint("ed25519", bytes(32))
    'ed25519-66687aadf862bd77'
    """
    return f"{kind}-{hashlib.sha256(content).hexdigest()[:FINGERPRINT_DIGITS]}"


class VerifyKey:
    """The public half of a party's key.

    Parameters
    ----------
    public_key : str
        ``ed25519:`` and 64 hexadecimal digits, as `SigningKey.public_key` gives it.

    Examples
    --------
    >>> key = new_key()
    >>> VerifyKey(key.public_key).verify(key.sign(b"a message"), b"a message")
    True
    """

    def __init__(self, public_key: str) -> None:
        found = _PUBLIC.fullmatch(public_key) if isinstance(public_key, str) else None
        if found is None:
            raise ValueError(
                'Got text that is not a public key, but expected "ed25519:" and 64 hexadecimal digits in lower case, '
                "as in the file that ends in .pub."
            )
        raw = bytes.fromhex(found[1])
        if (int.from_bytes(raw, "little") & (2**255 - 1)) % _P in _SMALL_ORDER:
            raise ValueError("Got a public key under which anyone can sign; expected one that `new_key` made.")
        self._raw = raw
        self._key = Ed25519PublicKey.from_public_bytes(raw)

    @property
    def public_key(self) -> str:
        """The key as text."""
        return f"ed25519:{self._raw.hex()}"

    @cached_property
    def key_id(self) -> str:
        """Its fingerprint, by which signatures and logs name it: ``ed25519-`` and 16 digits of the SHA-256 of it."""
        return fingerprint("ed25519", self._raw)

    def verify(self, signature: bytes, message: bytes) -> bool:
        """Say whether a signature is this key's signature of a message."""
        try:
            self._key.verify(signature, message)
        except InvalidSignature:
            return False
        return True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VerifyKey) and self._raw == other._raw

    def __hash__(self) -> int:
        return hash(self._raw)

    def __repr__(self) -> str:
        return f"VerifyKey({self.public_key!r})"

    def __reduce__(self) -> tuple[type[VerifyKey], tuple[str]]:
        return VerifyKey, (self.public_key,)


class SigningKey(Secret):
    """A party's key. Its secret is in no text, copy or pickle of it, only in the file that `write_key` writes.

    Examples
    --------
    >>> key = new_key()
    >>> repr(key) == f"SigningKey({key.key_id!r})"
    True
    """

    __slots__ = ("__key", "verify_key")

    verify_key: VerifyKey

    def __init__(self, key: Ed25519PrivateKey) -> None:
        if not isinstance(key, Ed25519PrivateKey):
            raise TypeError(f"Got a key of type {type(key).__name__}, but expected Ed25519; `new_key` makes one.")
        object.__setattr__(self, "_SigningKey__key", key)
        object.__setattr__(self, "verify_key", VerifyKey(f"ed25519:{key.public_key().public_bytes_raw().hex()}"))

    @property
    def key_id(self) -> str:
        """Fingerprint of the key, which every signature carries."""
        return self.verify_key.key_id

    @property
    def public_key(self) -> str:
        """What the other parties need to check signatures, as text."""
        return self.verify_key.public_key

    def sign(self, message: bytes) -> bytes:
        """Return the signature of a message: 64 bytes."""
        key: Ed25519PrivateKey = self.__key  # type: ignore[attr-defined]
        return key.sign(message)

    def derive(self, purpose: bytes) -> bytes:
        """Return 32 secret bytes that only this key gives, others for every other purpose (HKDF, RFC 5869)."""
        key: Ed25519PrivateKey = self.__key  # type: ignore[attr-defined]
        return HKDF(SHA256(), 32, None, b"fairpremium derived key 1\n" + purpose).derive(key.private_bytes_raw())

    def _private(self) -> Ed25519PrivateKey:
        key: Ed25519PrivateKey = self.__key  # type: ignore[attr-defined]
        return key

    def _pem(self) -> bytes:
        return self._private().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def __repr__(self) -> str:
        return f"SigningKey({self.key_id!r})"

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError("A SigningKey does not change.")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError("A SigningKey does not change.")


def new_key() -> SigningKey:
    """Make a key from the randomness of the operating system."""
    return SigningKey(Ed25519PrivateKey.generate())


def write_key(path: Path_, key: SigningKey) -> None:
    """Write a key to a file that only its owner can read, and its public half beside it.

    Parameters
    ----------
    path : str or path
        The secret, PEM (PKCS 8), with mode 600. The public half goes to the same name with ``.pub``: one line.
        Neither may exist.
    key : SigningKey

    Examples
    --------
    >>> import tempfile
    >>> key = new_key()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_key(f"{folder}/insurer.key", key)
    ...     read_key(f"{folder}/insurer.key").key_id == key.key_id
    True
    """
    write_private(path, key._pem())
    try:
        create_file(f"{os.fspath(path)}.pub", f"{key.public_key}\n".encode(), 0o644)
    except BaseException:
        os.unlink(path)  # noqa: PTH108
        raise


def read_key(path: Path_) -> SigningKey:
    """Read a key that `write_key` wrote; the file must be readable by its owner alone."""
    content = read_private(path)
    try:
        key = load_pem_private_key(content, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):  # no PEM, encrypted, of an unknown kind
        key = None
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError(
            f"Got {path}, but expected a key of a party: an unencrypted Ed25519 key in PEM (PKCS 8). "
            "`write_key` writes such a file."
        )
    return SigningKey(key)


def read_public_key(path: Path_) -> VerifyKey:
    """Read a public key from a file such as the one ending in ``.pub``.

    In ``service.key.pub`` the key in force comes first; `read_trusted_keys` reads those before it, too.
    """
    text = Path(path).read_bytes()[:LARGEST_FILE].decode("latin-1").strip()
    try:
        return VerifyKey(text.partition("\n")[0].rstrip())
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
