"""Invitations: a collector's word that a person may report once to a study, which only the third party can read.

A token is

    ephemeral X25519 key (32 bytes) | ChaCha20-Poly1305 of (version, expiry, linkage key, collector's key id, study,
    Ed25519 signature)

in base64 for addresses. Who sees a token without being the third party learns nothing from it, not even which study
or until when; two tokens of one person have nothing in common. The collector signs for one third party and one study,
so that a token is worth nothing elsewhere.
"""

import base64
import struct
from functools import lru_cache
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from ._key_chain import ServiceKey
from ._keys import SigningKey
from ._linkage import KEY_BYTES
from ._messages import check_id

TOKEN_BYTES = 512  # no token is longer
_PURPOSE = b"fairpremium invitation 1\n"
_KEY_TEXT = "x25519:"
_HEAD = struct.Struct(f">BQ{KEY_BYTES}s8s")  # version, expiry, linkage key, collector's key id
_VERSION, _SIGNATURE, _PUBLIC = 1, 64, 32
_NONCE = bytes(12)  # a key seals one token


class Invitation(NamedTuple):
    """What a token says: the collector's key, the study, the linkage key of the person, and when it ends (seconds).

    `signed` and `signature` are to be checked with the collector's key.
    """

    key_id: str
    study: str
    key: bytes
    expires: int
    signed: bytes
    signature: bytes


def invitation_key(service: SigningKey) -> str:
    """Return the public key to which invitations for a third party are sealed, as text."""
    return _KEY_TEXT + _opening_key(service).public_key().public_bytes_raw().hex()


def write_token(collector: SigningKey, sealed_to: str, *, study: str, key: bytes, expires: int) -> str:
    """Write the token of one person.

    - `collector`: Signs.
    - `sealed_to`: The third party's invitation key, as the study tells it.
    - `key`: The person's linkage key, of 16 bytes.
    - `expires`: Seconds since 1970; from then on the token is worth nothing.
    """
    if not isinstance(key, bytes) or len(key) != KEY_BYTES:
        raise ValueError(f"Got another key, but expected {KEY_BYTES} bytes. `make_key` makes one of a policy number.")
    recipient = _read_key(sealed_to)
    head = _HEAD.pack(_VERSION, expires, key, bytes.fromhex(collector.key_id.partition("-")[2]))
    said = head + check_id(study).encode()
    own = X25519PrivateKey.generate()
    public = own.public_key().public_bytes_raw()
    sealing = _cipher(own.exchange(X25519PublicKey.from_public_bytes(recipient)), public, recipient)
    sealed = sealing.encrypt(_NONCE, said + collector.sign(_PURPOSE + recipient + said), None)
    return base64.urlsafe_b64encode(public + sealed).rstrip(b"=").decode()


def read_token(token: str, service: SigningKey) -> Invitation | None:
    """Open a token at the third party; None if it was not sealed to one of its keys.

    The signature is still to be checked.
    """
    openers = service.openers if isinstance(service, ServiceKey) else ()
    privates = (_opening_key(service), *map(X25519PrivateKey.from_private_bytes, openers))
    found = [_open(token, private) for private in privates]  # all of them: no refusal takes longer than another
    return next((invitation for invitation in found if invitation is not None), None)


def _open(token: str, private: X25519PrivateKey) -> Invitation | None:
    recipient = private.public_key().public_bytes_raw()
    try:
        if len(token) > TOKEN_BYTES:
            return None
        raw = base64.b64decode(token.encode("ascii") + b"=" * (-len(token) % 4), altchars=b"-_", validate=True)
        public, sealed = raw[:_PUBLIC], raw[_PUBLIC:]
        shared = private.exchange(X25519PublicKey.from_public_bytes(public))
        plain = _cipher(shared, public, recipient).decrypt(_NONCE, sealed, None)
        said, signature = plain[:-_SIGNATURE], plain[-_SIGNATURE:]
        version, expires, key, key_id = _HEAD.unpack(said[: _HEAD.size])
        study = check_id(said[_HEAD.size :].decode("ascii"))
    except (ValueError, InvalidTag, struct.error):  # text that is no base64, a bad point, another key, another form
        return None
    if version != _VERSION:
        return None
    return Invitation(f"ed25519-{key_id.hex()}", study, key, expires, _PURPOSE + recipient + said, signature)


def opener_of(service: SigningKey) -> bytes:
    """Return the part of a service's key that opens invitations: after a rotation it opens those still out."""
    return service.derive(_PURPOSE)


@lru_cache(maxsize=16)
def _opening_key(service: SigningKey) -> X25519PrivateKey:
    return X25519PrivateKey.from_private_bytes(opener_of(service))


def _read_key(text: str) -> bytes:
    digits = text.removeprefix(_KEY_TEXT)
    try:
        raw = bytes.fromhex(digits)
    except ValueError:
        raw = b""
    if not text.startswith(_KEY_TEXT) or len(raw) != _PUBLIC or digits != raw.hex():
        raise ValueError('Got another text, but expected the invitation key of a study: "x25519:" and 64 digits.')
    return raw


def _cipher(shared: bytes, public: bytes, recipient: bytes) -> ChaCha20Poly1305:
    return ChaCha20Poly1305(HKDF(SHA256(), 32, None, _PURPOSE + public + recipient).derive(shared))
