"""Reading requests: limits, the host name, the signature, the body."""

import asyncio
import hashlib
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from anyio.to_thread import run_sync
from fastapi import Request

from fairpremium.parties.clock import in_service_time, on_this_machine
from fairpremium.parties.protocol import Message, Problem, Verified, VerifyKey, request_url, verify_request
from fairpremium.parties.service import KnownKey, Party, RateLimiter, ServiceSettings, ThirdParty, network_of
from fairpremium.parties.store import Incoming

from ._connections import head_bytes
from ._request_record import RefusedKey

M = TypeVar("M", bound=Message)

_KEYS_FOR = 1.0  # seconds that the table of keys is cached
_CLEAN_EVERY = 3600.0  # seconds between two deletions of old nonces
_KEY_ID, _NO_KEY_ID = re.compile(r"ed25519-[0-9a-f]{16}"), "of another form"
_TOGETHER, _PIECES = 1 << 20, 256  # bytes of a file that are written at a time, and in how many pieces they may come


class Requests:
    """Reads and checks requests, for all routes."""

    def __init__(self, party: ThirdParty, settings: ServiceSettings):
        self.party = party
        self.settings = settings
        self.limits = party.context.limits
        self.limiter = RateLimiter(self.limits.requests_per_second)
        self._keys: dict[str, KnownKey] = {}
        self._keys_at = float("-inf")
        self._refreshing = asyncio.Lock()
        self._cleaned_at = time.monotonic()

    def check_caller(self, scope: Any) -> None:
        """Limit the rate of a network and the size of a head, and insist on our own host name."""
        self.limiter.take(f"address {network_of(scope['client'][0]) if scope.get('client') else ''}")
        if head_bytes(scope) > self.limits.head_bytes:
            raise Problem("head-too-large")
        try:
            url = request_url(scope, behind_proxy=self.settings.behind_proxy)
        except Problem:
            raise Problem("not-found") from None
        self.settings.check_host(_host_of(url))

    async def verify(self, request: Request, command: str) -> Party:
        """Check the signature of a request and the right to a command, and return who asks; only PUT has a body."""
        await self._refresh_keys()
        signed = self._verify_signature(request)
        known = self._keys[signed.key_id]
        who = Party(known.party, known.role, signed)
        request.scope["state"].update(party=who.name, role=who.role, key_id=signed.key_id)
        self.limiter.take(f"party {who.name}")
        self.party.check_right(who, command)
        if time.monotonic() - self._cleaned_at > on_this_machine(_CLEAN_EVERY):
            self._cleaned_at = time.monotonic()
            await run_sync(self.party.delete_old_nonces)
        if request.method != "PUT":
            async for chunk in request.stream():
                if chunk:
                    raise Problem("digest-mismatch")
            _check_digest(who, hashlib.sha256(b"").digest())
        return who

    def _verify_signature(self, request: Request) -> Verified:
        """Check the signature of a request; a key that has ended gets the same answer as one that is not registered."""
        named: list[str] = []
        url = request_url(request.scope, behind_proxy=self.settings.behind_proxy)
        self.settings.check_host(_host_of(url), is_signed=True)

        def find(key_id: str) -> VerifyKey | None:
            named.append(key_id)
            return self._keys[key_id].key if key_id in self._keys else None

        def refuse(event: str, key_id: str) -> None:
            party = self._keys[key_id].party if key_id in self._keys else None
            shown = key_id if _KEY_ID.fullmatch(key_id) else _NO_KEY_ID
            request.scope["state"]["refused_key"] = RefusedKey(event, shown, party)

        try:
            signed = verify_request(
                request.method,
                url,
                request.headers.raw,
                find,
                self.party.context.now(),
                in_service_time(self.limits.signature_window),
            )
        except Problem:
            if named:
                refuse("signature.bad" if named[0] in self._keys else "key.unknown", named[0])
            raise
        if not self._keys[signed.key_id].is_active:
            refuse("key.refused", signed.key_id)
            raise Problem("bad-signature")
        return signed

    async def _refresh_keys(self) -> None:
        if time.monotonic() - self._keys_at > _KEYS_FOR:
            async with self._refreshing:  # those who waited meanwhile find it done
                if time.monotonic() - self._keys_at > _KEYS_FOR:
                    self._keys = await run_sync(self.party.known_keys)
                    self._keys_at = time.monotonic()

    async def read_message(self, request: Request, who: Party, kind: type[M]) -> M:
        """Read a body that is a message."""
        return kind.parse(await self.read_body(request, who))

    async def read_body(self, request: Request, who: Party) -> bytes:
        """Read a short body and check its digest."""
        limit = self.limits.json_bytes
        _check_length(request, limit)
        body = bytearray()
        async with asyncio.timeout(self.settings.body_seconds):
            async for chunk in request.stream():
                body += chunk
                if len(body) > limit:
                    raise Problem("too-large")
        _check_digest(who, hashlib.sha256(body).digest())
        return bytes(body)

    @asynccontextmanager
    async def receive_file(self, request: Request, who: Party, kind: str) -> AsyncIterator[Incoming]:
        """Receive a file of a media type and check its digest."""
        _check_length(request, self.limits.part_bytes)
        if request.headers.get("content-type", "").partition(";")[0] != kind:
            raise Problem("unsupported-media")
        with self.party.context.files.receive(self.limits.part_bytes) as incoming:
            async with asyncio.timeout(self.settings.body_seconds):
                async for pieces in _gathered(request.stream()):  # hashed and written while others are served
                    await run_sync(incoming.write, *pieces)
            _check_digest(who, bytes.fromhex(incoming.sha256))
            yield incoming


def _host_of(url: str) -> str:
    return url.partition("://")[2].partition("/")[0]


async def _gathered(chunks: AsyncIterator[bytes]) -> AsyncIterator[list[bytes]]:
    """Yield chunks some at a time: a thread for each of them would take longer than its work."""
    pieces, size = [], 0
    async for chunk in chunks:
        pieces.append(chunk)
        size += len(chunk)
        if size >= _TOGETHER or len(pieces) >= _PIECES:
            yield pieces
            pieces, size = [], 0
    yield pieces


def _check_length(request: Request, limit: int) -> None:
    length = request.headers.get("content-length")
    if length is None or not length.isdigit():
        raise Problem("length-required")
    if int(length) > limit:
        raise Problem("too-large")


def _check_digest(who: Party, sha256: bytes) -> None:
    if who.signed is None or who.signed.body_sha256 != sha256:
        raise Problem("digest-mismatch")
