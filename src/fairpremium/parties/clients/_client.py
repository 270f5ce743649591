"""How a party talks to the service: signed requests, sent again when the network fails, problems as errors."""

import asyncio
import hashlib
import os
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self, TypeVar

import httpx

from fairpremium.parties.protocol import Fit, LogPage, Message, OperatorStudy, Problem, SigningKey, content_digest

from ._signed_auth import SignedAuth

M = TypeVar("M", bound=Message)
_TRIES = 6
_AT_ONCE = 3  # files on their way
_PIECE = 1 << 18
_AGAIN = {429, 502, 503, 504}


class ServiceUnreachable(OSError):  # noqa: N818 (reads as what happened)
    """The service did not answer."""


class Client:
    """A party's connection to the service.

    Parameters
    ----------
    url : str
        Address of the service.
    key : SigningKey or None
        The party's key, which the operator has registered; None for what everybody may see.
    transport : httpx transport, optional
        Another way to the service: `AppTransport(app)` runs everything in one process.
    timeout : float
        Seconds to wait for an answer, beyond what the request itself asks to wait.
    authority : path, optional
        File with the certificates (PEM) of the authorities that may vouch for the service, in place of the public ones.
    pause : callable
        Waits between two tries.

    Notes
    -----
    Every write has an id that the caller chose, so that sending it again is harmless. A request that got no answer is
    therefore signed and sent again a few times.
    """

    def __init__(
        self,
        url: str,
        key: SigningKey | None,
        *,
        transport: httpx.BaseTransport | None = None,
        timeout: float = 120.0,
        authority: str | os.PathLike[str] | None = None,
        pause: Callable[[float], None] = time.sleep,
    ):
        self.key_id = None if key is None else key.key_id
        self._http = httpx.Client(
            base_url=url,
            auth=None if key is None else SignedAuth(key),
            transport=transport,
            timeout=timeout,
            verify=True if authority is None else _trust(authority),
            trust_env=False,
        )
        self._pause = pause

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def send(self, method: str, path: str, **content: Any) -> httpx.Response:
        """Send a request, again if need be, and return the answer; a problem is raised."""
        return self._try(lambda: self._http.request(method, path, **content))

    def _try(self, request: Callable[[], httpx.Response]) -> httpx.Response:
        for attempt in range(_TRIES):
            last = attempt == _TRIES - 1
            try:
                response = request()
            except httpx.TransportError as error:
                if (why := _distrust(error)) is not None:
                    raise ServiceUnreachable(
                        f"The certificate of the service at {self._http.base_url} is not trusted ({why}). If a private "
                        "authority signed it, name the file with its certificate (--authority)."
                    ) from None
                if last:
                    raise ServiceUnreachable(
                        f"The service at {self._http.base_url} did not answer ({type(error).__name__}). Is it running, "
                        "and is the address right?"
                    ) from None
            else:
                if response.is_success:
                    return response
                if response.status_code not in _AGAIN or last:
                    raise problem_of(response)
            self._pause(min(0.1 * 2**attempt, 3.0))
        raise AssertionError("unreachable")

    def send_message(self, path: str, message: Message) -> httpx.Response:
        """Put a message; see `send`."""
        body = message.model_dump_json().encode()
        return self.send("PUT", path, content=body, headers={"Content-Type": "application/json"})

    def get(self, path: str, kind: type[M], **params: Any) -> M:
        """Read a message."""
        return kind.model_validate_json(self.send("GET", path, params=params).content)

    def put(self, path: str, message: Message, kind: type[M]) -> M:
        """Send a message and read the answer."""
        return kind.model_validate_json(self.send_message(path, message).content)

    def put_file(self, path: str, body: bytes, media: str, kind: type[M]) -> M:
        """Send a file of a media type and read the answer."""
        headers = {
            "Content-Type": media,
            "Content-Length": str(len(body)),
            "Content-Digest": content_digest(hashlib.sha256(body).digest()),
        }
        return kind.model_validate_json(self.send("PUT", path, content=_Pieces(body), headers=headers).content)

    def put_files(self, files: Iterable[tuple[str, bytes]], media: str, kind: type[M]) -> Iterator[M]:
        """Send files to their addresses and yield the answers, in order.

        Some are on their way at a time: the service checks one while the next one arrives.
        """
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            sent: deque[Future[M]] = deque()
            for path, body in files:
                sent.append(pool.submit(self.put_file, path, body, media, kind))
                if len(sent) == _AT_ONCE:
                    yield sent.popleft().result()
            while sent:
                yield sent.popleft().result()

    def post(self, path: str, kind: type[M]) -> M:
        """Ask for something to happen."""
        return kind.model_validate_json(self.send("POST", path).content)

    def download(self, path: str, target: Path) -> str:
        """Write what the service sends to a file, which appears when it is complete; return its tag."""
        draft = target.with_name(f".{target.name}.part")

        def fetch() -> httpx.Response:
            with self._http.stream("GET", path) as response:
                if not response.is_success:
                    response.read()
                    return response
                with draft.open("wb") as file:
                    for chunk in response.iter_bytes(1 << 20):
                        file.write(chunk)
                return response

        try:
            tag = self._try(fetch).headers.get("etag", "").strip('"')
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)
        return str(tag)

    def log(self, after: int = 0) -> Iterator[LogPage]:
        """Read the log, page by page."""
        while True:
            page = self.get("/v1/log", LogPage, after=after)
            yield page
            if not page.more:
                return
            after = page.entries[-1].seq

    def watch(self, fit: str, tell: Callable[[Fit], None] = lambda _: None, wait: float = 20.0) -> Fit:
        """Wait until a fit has ended, telling of its progress."""
        while True:
            seen = self.get(f"/v1/fits/{fit}", Fit, wait=wait)
            tell(seen)
            if seen.ended is not None:
                return seen


def _trust(authority: str | os.PathLike[str]) -> ssl.SSLContext:
    """Return the context that trusts the authorities of a file, and no other."""
    try:
        return ssl.create_default_context(cafile=authority)
    except ssl.SSLError:
        raise ValueError(f"Got {os.fspath(authority)} without a certificate, but expected some in PEM.") from None
    except OSError as error:
        raise ValueError(
            f"Cannot read {os.fspath(authority)}: {error.strerror}. Name a file of certificates."
        ) from None


def _distrust(error: BaseException | None) -> str | None:
    """Return why a certificate was not trusted, or None if a connection failed for another reason."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return error.verify_message
        error = error.__cause__ or error.__context__
    return None


class _Pieces:
    """A body that is sent piece by piece: as a whole it would be copied anew for every piece that a socket takes."""

    def __init__(self, body: bytes):
        self._body = body

    def __iter__(self) -> Iterator[bytes]:
        for start in range(0, len(self._body), _PIECE):
            yield self._body[start : start + _PIECE]


class Operator(Client):
    """The operator's requests."""

    def put_study(self, study: str, spec: Message) -> OperatorStudy:
        """Declare a study."""
        return self.put(f"/v1/studies/{study}", spec, OperatorStudy)

    def set_state(self, study: str, state: str) -> OperatorStudy:
        """``open`` or ``close`` a study."""
        return self.post(f"/v1/studies/{study}/{state}", OperatorStudy)

    def begin_epoch(self, study: str) -> OperatorStudy:
        """Take a new snapshot of the reports of a study."""
        number = max((epoch.number for epoch in self.get_study(study).epochs), default=0) + 1
        answer = self.send("POST", f"/v1/studies/{study}/epochs/{number}")
        return OperatorStudy.model_validate_json(answer.content)

    def withdraw(self, study: str, key: bytes, *, now: bool = False) -> None:
        """Withdraw what anybody reported of a person, from the next epoch on; or at once, which insurers see."""
        self.send("DELETE", f"/v1/studies/{study}/reports/{key.hex()}")
        if now:
            self.post(f"/v1/studies/{study}/withdrawals", OperatorStudy)

    def get_study(self, study: str) -> OperatorStudy:
        """Look at a study."""
        return self.get(f"/v1/studies/{study}", OperatorStudy)


def problem_of(response: httpx.Response) -> Problem:
    """Return the problem that an answer carries."""
    try:
        return Problem.from_dict(response.json())
    except ValueError:
        return Problem("unavailable" if response.status_code in _AGAIN else "internal")


class AppTransport(httpx.BaseTransport):
    """A way to an app in the same process, for tests and notebooks.

    Parameters
    ----------
    app : ASGI application
    """

    def __init__(self, app: Any):
        self._inner = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="app", daemon=True)
        self._thread.start()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Run the app on a request."""
        return asyncio.run_coroutine_threadsafe(self._handle(request), self._loop).result()

    async def _handle(self, request: httpx.Request) -> httpx.Response:
        request.read()
        asked = httpx.Request(request.method, request.url, headers=request.headers, content=request.content)
        response = await self._inner.handle_async_request(asked)
        body = await response.aread()
        return httpx.Response(response.status_code, headers=response.headers, content=body)

    def close(self) -> None:
        """Stop the loop."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
