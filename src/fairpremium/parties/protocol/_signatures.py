"""Signed requests: one profile of RFC 9421 (HTTP message signatures) with Ed25519.

A request carries three fields::

    Content-Digest: sha-256=:<SHA-256 of the body, also of an empty one>:
    Signature-Input: fp=("@method" "@authority" "@path" "@query" "content-digest");created=<seconds>;
        nonce="<16 to 64 url-safe characters>";keyid="<key>";alg="ed25519"
    Signature: fp=:<64 bytes>:

Method, host, path, query and body are covered, always all of them and in this order; the four parameters may come in
any order. The scheme is not covered, so that a request can pass a proxy that ends TLS. What does not have this form is
refused, even where RFC 9421 allows it: several signatures, `expires`, further algorithms, repeated fields. Paths and
queries count as they are sent, byte by byte.

The form being fixed, it is read and written here directly: that takes a fraction of the time of a general library,
which in turn is the independent implementation that the tests compare with, in both directions.
"""

import base64
import hashlib
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from fairpremium.parties.clock import service_time

from ._keys import SigningKey, VerifyKey
from ._problems import Problem

WINDOW = 300  # seconds that a signature is good for, before and after
EMPTY_SHA256 = hashlib.sha256(b"").digest()

_COVERED = '("@method" "@authority" "@path" "@query" "content-digest")'
_FIELDS = frozenset({"content-digest", "signature-input", "signature"})
_LARGEST_URL = 8192

_PARAMETERS = "created", "nonce", "keyid", "alg"
_NONCE = r"[A-Za-z0-9_-]{16,64}"
_KEY_ID = r"[A-Za-z0-9._:+/=@-]{1,64}"
_VALUE = (
    rf'(?:created=(?P<created>[1-9][0-9]{{0,14}})|nonce="(?P<nonce>{_NONCE})"|keyid="(?P<keyid>{_KEY_ID})"'
    r'|alg="(?P<alg>ed25519)")'
)
_INPUT = re.compile(rf"([a-z*][a-z0-9_.*-]{{0,31}})=({re.escape(_COVERED)}((?:;[a-z]+=[^;,]{{1,80}}){{4}}))")
_PARAMETER = re.compile(_VALUE)
# Base64 whose unused last bits are zero: a value has one spelling.
_SIGNATURE = re.compile(r"([a-z*][a-z0-9_.*-]{0,31})=:([A-Za-z0-9+/]{85}[AQgw]==):")
_DIGEST = re.compile(r"sha-256=:([A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=):")
_METHOD = re.compile(r"[A-Z]{1,20}")
_URL = re.compile(r"(https?)://([!-\"$-.0-9:;<=>A-~]{1,255})(/[!\"$->@-~]*)?(?:\?([!\"$-~]*))?")
_DEFAULT_PORTS = {"http": ":80", "https": ":443"}

# Takes the place of a key that is not registered, so that the answer needs the same time.
_NOBODY = VerifyKey("ed25519:d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")

Headers = Mapping[str, str] | Iterable[tuple[str | bytes, str | bytes]]


class Verified(NamedTuple):
    """What a signature vouches for.

    The caller has two things left to do: refuse a `nonce` of this key that it has seen within the window, and refuse a
    body whose SHA-256 is not `body_sha256`.
    """

    key_id: str
    nonce: str
    created: int
    body_sha256: bytes


def sign_request(
    method: str,
    url: str,
    headers: Headers,
    body_sha256: bytes | None,
    key: SigningKey,
    *,
    created: int | None = None,
    nonce: str | None = None,
) -> dict[str, str]:
    """Compute the header fields that sign a request.

    - `method`: In capitals.
    - `url`: Absolute, with the host that the service is reached by, encoded as it is sent.
    - `headers`: What the request has so far. Fields of an earlier signature are to be replaced.
    - `body_sha256`: SHA-256 of the body as it is sent. None takes it from a Content-Digest among the headers, or else
      means an empty body.
    - `created`: Whole seconds since 1970; now by default.
    - `nonce`: 16 to 64 url-safe characters, never used before; random by default.

    Returns content-Digest, Signature-Input and Signature.
    """
    if not _METHOD.fullmatch(method):
        raise ValueError("Got a method that is not capital letters, but expected one such as GET.")
    target = _target(url)
    if target is None:
        raise ValueError("Got a url that is not absolute and encoded, but expected http(s)://host/path?query.")
    created = int(service_time() if created is None else created)
    nonce = secrets.token_urlsafe(24) if nonce is None else nonce
    if not re.fullmatch(_NONCE, nonce):
        raise ValueError("Got a nonce of another form, but expected 16 to 64 url-safe characters.")
    digest = _digest_to_sign(headers, body_sha256)
    parameters = f'{_COVERED};created={created};nonce="{nonce}";keyid="{key.key_id}";alg="ed25519"'
    signature = key.sign(_base(method, target, digest, parameters))
    return {
        "Content-Digest": digest,
        "Signature-Input": f"fp={parameters}",
        "Signature": f"fp=:{base64.b64encode(signature).decode()}:",
    }


def verify_request(
    method: str,
    url: str,
    headers: Headers,
    lookup: Callable[[str], VerifyKey | None],
    now: float,
    window: float = WINDOW,
) -> Verified:
    """Check who signed a request, and return what is left to check.

    - `method`, `url`: Of the request as the client sent it; see `request_url`.
    - `headers`: Names and values, as text or bytes (Latin-1); repeated fields must be visible, as in the pairs of ASGI.
    - `lookup`: From the id of a key to the key, or None if it is not registered.
    - `now`: Seconds since 1970.
    - `window`: Largest distance of `created` from now.

    Raises
    ------
    Problem
        "unsigned" if there is no signature, "stale" if it is too old or from the future, "bad-signature" for all else,
        whether the key is known or not.
    """
    fields = _fields(headers)
    if "signature" not in fields and "signature-input" not in fields:
        raise Problem("unsigned")
    found = _read(fields)
    target = _target(url)
    if found is None or target is None or not _METHOD.fullmatch(method):
        raise Problem("bad-signature")
    parameters, signature, verified = found
    if not abs(now - verified.created) <= window:
        raise Problem("stale")
    key = lookup(verified.key_id)
    message = _base(method, target, fields["content-digest"], parameters)
    fits = (_NOBODY if key is None else key).verify(signature, message)
    if key is None or not fits:
        raise Problem("bad-signature")
    return verified


def request_url(scope: Mapping[str, Any], *, behind_proxy: bool = False) -> str:
    """Return the address that the client of an ASGI request used, byte by byte.

    - `scope` (mapping): Of ASGI, with ``raw_path``.
    - `behind_proxy`: A proxy ends TLS: the scheme is https, and the host is the one in X-Forwarded-Host if the proxy
      sets it. Only for services that nobody reaches around the proxy.

    Raises
    ------
    Problem
        "bad-signature" if the host is missing or not told once.
    """
    hosts: dict[bytes, list[bytes]] = {b"host": [], b"x-forwarded-host": []}
    for name, value in scope["headers"]:
        if name in hosts:
            hosts[name].append(value)
    told = hosts[b"x-forwarded-host"] if behind_proxy and hosts[b"x-forwarded-host"] else hosts[b"host"]
    if len(told) != 1:
        raise Problem("bad-signature")
    scheme = "https" if behind_proxy else scope["scheme"]
    query = b"?" + scope["query_string"] if scope["query_string"] else b""
    return f"{scheme}://{(told[0] + scope['raw_path'] + query).decode('latin-1')}"


def content_digest(sha256: bytes) -> str:
    """Return the value of Content-Digest (RFC 9530) for a body with this SHA-256."""
    if not isinstance(sha256, bytes) or len(sha256) != 32:
        raise ValueError("Got a SHA-256 of another form, but expected 32 bytes.")
    return f"sha-256=:{base64.b64encode(sha256).decode()}:"


def _base(method: str, target: tuple[str, str, str], digest: str, parameters: str) -> bytes:
    """Return the signature base (RFC 9421, section 2.5)."""
    authority, path, query = target
    return (
        f'"@method": {method}\n"@authority": {authority}\n"@path": {path}\n"@query": ?{query}\n'
        f'"content-digest": {digest}\n"@signature-params": {parameters}'
    ).encode("ascii")


def _target(url: str) -> tuple[str, str, str] | None:
    """Return authority, path and query as section 2.2 of RFC 9421 wants them, or None."""
    found = _URL.fullmatch(url) if len(url) <= _LARGEST_URL else None
    if found is None:
        return None
    scheme, authority, path, query = found.groups()
    return authority.lower().removesuffix(_DEFAULT_PORTS[scheme]), path or "/", query or ""


def _fields(headers: Headers) -> dict[str, str]:
    """Return the three fields of a signature; one that comes twice is refused."""
    fields: dict[str, str] = {}
    for name, value in _pairs(headers):
        text = (name.decode("latin-1") if isinstance(name, bytes) else name).lower()
        if text in _FIELDS:
            if text in fields:
                raise Problem("bad-signature")
            fields[text] = (value.decode("latin-1") if isinstance(value, bytes) else value).strip(" \t")
    return fields


def _pairs(headers: Any) -> Iterable[tuple[str | bytes, str | bytes]]:
    if hasattr(headers, "multi_items"):  # httpx
        return headers.multi_items()  # type: ignore[no-any-return]
    return headers.items() if isinstance(headers, Mapping) else headers


def _read(fields: dict[str, str]) -> tuple[str, bytes, Verified] | None:
    """Return the signed parameters as text, the signature, and what it says; None for any other form."""
    told = _INPUT.fullmatch(fields.get("signature-input", ""))
    signed = _SIGNATURE.fullmatch(fields.get("signature", ""))
    digest = _DIGEST.fullmatch(fields.get("content-digest", ""))
    if told is None or signed is None or digest is None or told[1] != signed[1]:
        return None
    values: dict[str, str] = {}
    for text in told[3].split(";")[1:]:
        found = _PARAMETER.fullmatch(text)
        if found is None:
            return None
        assert found.lastgroup is not None
        values[found.lastgroup] = found[found.lastgroup]
    if len(values) != len(_PARAMETERS):  # one came twice
        return None
    says = Verified(values["keyid"], values["nonce"], int(values["created"]), base64.b64decode(digest[1]))
    return told[2], base64.b64decode(signed[2]), says


def _digest_to_sign(headers: Headers, body_sha256: bytes | None) -> str:
    given = _fields(headers).get("content-digest")
    if given is None:
        return content_digest(EMPTY_SHA256 if body_sha256 is None else body_sha256)
    if not _DIGEST.fullmatch(given):
        raise ValueError("Got another Content-Digest, but expected sha-256 alone. Leave it to `sign_request`.")
    if body_sha256 is not None and given != content_digest(body_sha256):
        raise ValueError("Got another Content-Digest, but expected that of the body. Leave it to `sign_request`.")
    return given
