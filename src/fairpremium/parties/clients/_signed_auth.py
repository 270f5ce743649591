"""Requests of httpx that sign themselves."""

import hashlib
from collections.abc import Generator

import httpx

from fairpremium.parties.protocol import SigningKey, sign_request


class SignedAuth(httpx.Auth):
    """Sign every request of a client, sync or async, at the moment it is sent.

    Notes
    -----
    A body that is streamed needs a Content-Digest set beforehand (`content_digest` of its SHA-256); bodies in memory do
    not. A request that is sent again is signed again, with a new nonce. A redirect is not signed again, and fails.

    Examples
    --------
    >>> from fairpremium.parties import new_key
    >>> client = httpx.Client(auth=SignedAuth(new_key()))
    >>> client.close()
    """

    def __init__(self, key: SigningKey) -> None:
        self.key = key

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Add the fields of the signature."""
        try:
            sha256 = hashlib.sha256(request.content).digest()
        except httpx.RequestNotRead:
            sha256 = None
            if "content-digest" not in request.headers:
                raise ValueError(
                    "Got a streamed body without its digest, but expected the header Content-Digest; "
                    "`content_digest` makes it from the SHA-256 of what will be sent."
                ) from None
        host = request.headers.get("host") or request.url.netloc.decode("ascii")
        url = f"{request.url.scheme}://{host}{request.url.raw_path.decode('ascii')}"
        request.headers.update(sign_request(request.method, url, request.headers, sha256, self.key))
        yield request
