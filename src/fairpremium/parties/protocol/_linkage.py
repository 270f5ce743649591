"""How collector and insurer name the same policy without telling the third party which: keyed hashes.

key = HMAC-SHA-256(secret of the study, policy number)[:16]. The third party never has the secret.
"""

import hashlib
import math
import re
import secrets
from collections.abc import Callable, Iterable
from typing import Any

import narwhals.stable.v1 as nw
import numpy as np
import pyarrow as pa

from ._keys import fingerprint
from ._safe_files import Path_, Secret, read_private, write_private

KEY_BYTES = 16
_SECRET_BYTES = 32
_LINE = re.compile(rb"linkage-secret:([0-9a-f]{64})\n?")
_FINGERPRINT = b"fairpremium linkage secret 1\n"


class LinkageSecret(Secret):
    """The secret that collector and insurer of a study share, and nobody else.

    Parameters
    ----------
    value : bytes
        32 bytes. `new_secret` draws them; they are in no text or pickle of this object.
    """

    __slots__ = ("__value",)

    def __init__(self, value: bytes) -> None:
        if not isinstance(value, bytes) or len(value) != _SECRET_BYTES:
            raise ValueError(f"Got another secret, but expected {_SECRET_BYTES} bytes. `new_secret` makes one.")
        self.__value = value

    @property
    def fingerprint(self) -> str:
        """``linkage-`` and 16 digits that are equal when the secrets are: parties compare them by telephone.

        It is printed to collector and insurer, and sent to nobody. Whoever sees it, the third party even, learns
        nothing of use: the secret has 256 random bits, of which 64 bits of a one-way function leave none to search,
        and its input begins with a text of its own, so that it is no key of any policy.
        """
        return fingerprint("linkage", _FINGERPRINT + self.__value)

    def hasher(self) -> Callable[[bytes], bytes]:
        """Return the function text -> key, HMAC with both of its pads hashed once (RFC 2104)."""
        padded = self.__value.ljust(64, b"\0")
        inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in padded)).copy
        outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in padded)).copy

        def key_of(text: bytes) -> bytes:
            a, b = inner(), outer()
            a.update(text)
            b.update(a.digest())
            return b.digest()[:KEY_BYTES]

        return key_of

    def _line(self) -> bytes:
        return b"linkage-secret:" + self.__value.hex().encode() + b"\n"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LinkageSecret) and secrets.compare_digest(self._line(), other._line())

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return f"LinkageSecret(fingerprint={self.fingerprint!r})"


def new_secret() -> LinkageSecret:
    """Draw the secret of a study from the operating system. Use one per study."""
    return LinkageSecret(secrets.token_bytes(_SECRET_BYTES))


def write_secret(path: Path_, secret: LinkageSecret) -> None:
    """Write a secret to a new file that only its owner can read."""
    write_private(path, secret._line())


def read_secret(path: Path_) -> LinkageSecret:
    """Read a secret; the file must be readable by its owner alone."""
    found = _LINE.fullmatch(read_private(path))
    if found is None:
        raise ValueError(f"Got {path}, but expected the secret of a study: one line that `write_secret` wrote.")
    return LinkageSecret(bytes.fromhex(found[1].decode()))


def make_key(secret: LinkageSecret, policy_number: str | int) -> bytes:
    """Compute the key of one policy: 16 bytes.

    - `policy_number`: As text, exactly: 7 and "7" are the same policy, "07", "7 " and "７" are three others.

    Examples
    --------
    >>> secret = new_secret()
    >>> make_key(secret, 7) == make_key(secret, "7") != make_key(secret, "07")
    True
    """
    return bytes(make_keys(secret, [policy_number])[0].as_py())


def make_keys(secret: LinkageSecret, policies: Any) -> pa.FixedSizeBinaryArray:
    """Compute the keys of many policies.

    - `policies` (list, array or column of str or int): Policy numbers, none missing and none twice.

    Returns one key of 16 bytes per policy, in order: a column for Parquet, or a list by ``.to_pylist()``.

    Notes
    -----
    **Text counts exactly.** Nothing is trimmed, folded or padded, no case and no form of Unicode is changed: collector
    and insurer agree on how a policy number is written before they make keys, because a difference is seen by nobody
    and means only that the policy does not match. Numbers with a decimal point are refused, since 7.0 is how tables
    with gaps spoil 7.

    Examples
    --------
    >>> keys = make_keys(new_secret(), ["A-1", "A-2"])
    >>> str(keys.type), len(keys)
    ('fixed_size_binary[16]', 2)
    """
    if not isinstance(secret, LinkageSecret):
        raise TypeError(f"Got secret of type {type(secret).__name__}, but expected a LinkageSecret; see `read_secret`.")
    texts = _texts(policies)
    key_of = secret.hasher()
    try:
        joined = b"".join([key_of(text.encode()) for text in texts])
    except UnicodeEncodeError:
        raise ValueError("Got policy numbers with lone surrogates, but expected text.") from None
    n = len(joined) // KEY_BYTES
    _refuse_repeats(joined, n)
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(KEY_BYTES), n, [None, pa.py_buffer(joined)])


def _texts(policies: Any) -> Iterable[str]:
    """Return policy numbers as texts, after looking at what they are."""
    values = _values(policies)
    kinds = set(map(type, values))
    if kinds - {str, int}:
        values = [_plain(value) for value in values]
    if "" in values:
        raise ValueError(_MISSING)
    return values if kinds <= {str} else map(str, values)


def _values(policies: Any) -> list[Any]:
    if isinstance(policies, str | bytes):
        raise TypeError("Got policies as one text, but expected a list or column; `make_key` takes one.")
    if isinstance(policies, np.ndarray) and policies.ndim != 1:
        raise ValueError(f"Got policies of shape {policies.shape}, but expected one column.")
    if isinstance(policies, pa.Array | np.ndarray):
        return list(policies.tolist())
    series = nw.from_native(policies, series_only=True, pass_through=True)
    return list(series.to_list() if isinstance(series, nw.Series) else policies)


_MISSING = "Got policies with missing policy numbers, but expected one in every row."


def _plain(value: Any) -> str | int:
    """Return a policy number as str or int, or say what kind of value it is, never the value."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return int(value)
    is_nan = isinstance(value, float | np.floating) and math.isnan(value)
    if value is None or type(value).__name__ in ("NAType", "NaTType") or is_nan:
        raise ValueError(_MISSING)
    raise TypeError(
        f"Got policy numbers of type {type(value).__name__}, but expected text or integers; "
        "read the column as text, so that it stays as it is written."
    )


def _refuse_repeats(joined: bytes, n: int) -> None:
    """Raise if two keys are equal: by their first half, and only if two of those are equal by the whole."""
    halves = np.frombuffer(joined, dtype="<u8").reshape(n, 2)
    first = np.sort(halves[:, 0])
    if (first[1:] == first[:-1]).any() and len(np.unique(halves, axis=0)) < n:
        raise ValueError(
            "Got policies with the same policy number in several rows, but expected each once; "
            "add up the rows of a policy, or give each row its own number."
        )
